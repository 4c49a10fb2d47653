//! `grpc.reflection.v1` and `v1alpha`.

use crate::call::{Actions, CallHead, Shared, State};
use crate::method::Method;
use crate::status::Status;

/// A call of the reflection service.
pub struct ReflectionCall {
    method: Method,
}

impl ReflectionCall {
    /// Begins a call.
    pub fn started(
        method: Method,
        _head: &CallHead<'_>,
        _shared: &Shared,
        actions: &mut impl Actions,
    ) -> ReflectionCall {
        actions.finish(Status::unimplemented(method.path()));
        ReflectionCall { method }
    }
}

impl State for ReflectionCall {
    fn message(
        &mut self,
        _bytes: &[u8],
        _last: bool,
        _shared: &Shared,
        actions: &mut impl Actions,
    ) {
        actions.finish(Status::unimplemented(self.method.path()));
    }

    fn half_closed(&mut self, _shared: &Shared, actions: &mut impl Actions) {
        actions.finish(Status::unimplemented(self.method.path()));
    }
}
