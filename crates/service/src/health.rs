//! `grpc.health.v1.Health`.

use crate::call::{Actions, CallHead, Shared, State};
use crate::method::Method;
use crate::status::Status;

/// A call of the health service.
pub struct HealthCall {
    method: Method,
}

impl HealthCall {
    /// Begins a call.
    pub fn started(
        method: Method,
        _head: &CallHead<'_>,
        _shared: &Shared,
        actions: &mut impl Actions,
    ) -> HealthCall {
        actions.finish(Status::unimplemented(method.path()));
        HealthCall { method }
    }
}

impl State for HealthCall {
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

/// Which services are ready to serve.
#[derive(Debug, Default)]
pub struct Registry {}
