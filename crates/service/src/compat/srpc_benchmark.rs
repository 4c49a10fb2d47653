//! `BenchmarkPB`: answers with an empty message, at once or a little later.

use crate::actions::{CallClock, Responses, Wakeups};
use crate::call::{CallHead, CallSteps, PlanReads, Shared};
use crate::limits::SRPC_SLOW_MS;
use crate::method::Method;
use crate::status::{self, Status};
use crate::waiting::WaitingPlace;
use api::srpc_benchmark::FixLengthPbMsg;
use protobuf::DecodeError;

/// A call of the service.
pub struct SrpcBenchmarkCall {
    method: Method,
    waits: Option<Box<Waits>>,
}

struct Waits {
    due_ns: u64,
    _place: WaitingPlace,
}

impl SrpcBenchmarkCall {
    /// Begins a call of `method`.
    pub fn started(
        method: Method,
        _head: &CallHead<'_>,
        _shared: &Shared,
        _actions: &mut impl Sized,
    ) -> SrpcBenchmarkCall {
        SrpcBenchmarkCall {
            method,
            waits: None,
        }
    }

    fn wait(
        &mut self,
        shared: &Shared,
        actions: &mut (impl Wakeups + CallClock),
    ) -> Result<(), Status> {
        let place = shared.waiting.enter(actions.caller())?;
        let due_ns = actions.now_ns() + SRPC_SLOW_MS * 1_000_000;
        self.waits = Some(Box::new(Waits {
            due_ns,
            _place: place,
        }));
        actions.wake_at_ns(due_ns);
        Ok(())
    }
}

impl PlanReads for SrpcBenchmarkCall {}

impl<A: Responses + Wakeups + CallClock> CallSteps<A> for SrpcBenchmarkCall {
    #[inline]
    fn message(&mut self, bytes: &[u8], _last: bool, shared: &Shared, actions: &mut A) {
        if let Err(error) = FixLengthPbMsg::decode(bytes) {
            return actions.finish(not_a_request(error));
        }
        if self.method == Method::SrpcEchoPb {
            return actions.respond(|_| {});
        }
        if let Err(status) = self.wait(shared, actions) {
            actions.finish(status);
        }
    }

    fn half_closed(&mut self, _shared: &Shared, actions: &mut A) {
        if self.waits.is_none() {
            actions.finish(status::no_request(self.method.path()));
        }
    }

    fn woken(&mut self, _shared: &Shared, actions: &mut A) {
        let now_ns = actions.now_ns();
        if self.waits.take_if(|waits| now_ns >= waits.due_ns).is_some() {
            return actions.respond(|_| {});
        }
        if let Some(waits) = &self.waits {
            actions.wake_at_ns(waits.due_ns);
        }
    }
}

#[cold]
fn not_a_request(error: DecodeError) -> Status {
    Status::invalid_argument(format!("FixLengthPBMsg: {error}"))
}
