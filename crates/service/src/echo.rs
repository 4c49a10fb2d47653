//! `pelton.v1.Echo`: for measuring.

use crate::call::{Actions, CallHead, Shared, State};
use crate::method::Method;
use crate::status::Status;

/// A call of the echo service.
pub struct EchoCall {
    method: Method,
}

impl EchoCall {
    /// Begins a call.
    pub fn started(
        method: Method,
        _head: &CallHead<'_>,
        _shared: &Shared,
        actions: &mut impl Actions,
    ) -> EchoCall {
        actions.finish(Status::unimplemented(method.path()));
        EchoCall { method }
    }
}

impl State for EchoCall {
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
