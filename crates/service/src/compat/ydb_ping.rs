//! `Ydb.Debug.V1.DebugService`: answers, and no more, so that a benchmark sees what a call costs.

use crate::actions::{CallClock, RequestFlow, Responses, SendRoom};
use crate::call::{CallHead, CallSteps, PlanReads, Shared};
use crate::method::Method;
use crate::status::{self, Status};
use api::ydb_ping::{PlainGrpcRequest, PlainGrpcResponse};
use protobuf::DecodeError;

/// A call of the service.
pub struct YdbPingCall {
    method: Method,
}

impl YdbPingCall {
    /// Begins a call of `method`.
    pub fn started(
        method: Method,
        _head: &CallHead<'_>,
        _shared: &Shared,
        _actions: &mut impl Sized,
    ) -> YdbPingCall {
        YdbPingCall { method }
    }

    fn is_stream(&self) -> bool {
        self.method != Method::YdbPingUnary
    }
}

impl PlanReads for YdbPingCall {}

impl<A: Responses + SendRoom + RequestFlow + CallClock> CallSteps<A> for YdbPingCall {
    fn message(&mut self, bytes: &[u8], last: bool, _shared: &Shared, actions: &mut A) {
        // The request has no fields; unknown ones are passed over.
        if let Err(error) = PlainGrpcRequest::decode(bytes) {
            return actions.finish(not_a_request(error));
        }
        if !self.is_stream() {
            return actions.respond(|_| {});
        }
        let answer = PlainGrpcResponse {
            call_back_ts: actions.wall_us(),
        };
        actions.message(|out| answer.encode(out));
        if last {
            actions.finish(Status::OK);
        } else if !actions.can_send() {
            // One message may go beyond the bound of unsent bytes; the next one waits until there
            // is room.
            actions.hold();
        }
    }

    fn half_closed(&mut self, _shared: &Shared, actions: &mut A) {
        actions.finish(match self.is_stream() {
            true => Status::OK,
            false => status::no_request(self.method.path()),
        });
    }

    fn writable(&mut self, _shared: &Shared, actions: &mut A) {
        actions.resume();
    }
}

#[cold]
fn not_a_request(error: DecodeError) -> Status {
    Status::invalid_argument(format!("PlainGrpcRequest: {error}"))
}
