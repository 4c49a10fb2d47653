//! `grpc.testing.TestService`: for the public interoperability tests.

use crate::call::{Actions, CallHead, Shared, State};
use crate::method::Method;
use crate::status::Status;

/// A call of the test service.
pub struct InteropCall {
    method: Method,
}

impl InteropCall {
    /// Begins a call.
    pub fn started(
        method: Method,
        _head: &CallHead<'_>,
        _shared: &Shared,
        actions: &mut impl Actions,
    ) -> InteropCall {
        actions.finish(Status::unimplemented(method.path()));
        InteropCall { method }
    }
}

impl State for InteropCall {
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
