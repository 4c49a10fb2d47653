//! `example.EchoService`: answers with what came, with its attachment where the protocol has one.

use crate::actions::{Responses, SendRoom};
use crate::call::{CallHead, CallSteps, PlanReads, Shared};
use crate::method::Method;
use crate::status::{self, Status};
use api::brpc_echo::{EchoRequest, EchoResponse};

/// A call of the service.
pub struct BrpcEchoCall;

impl BrpcEchoCall {
    /// Begins a call.
    pub fn started(
        _method: Method,
        _head: &CallHead<'_>,
        _shared: &Shared,
        actions: &mut impl Responses,
    ) -> BrpcEchoCall {
        actions.echo_attachment();
        BrpcEchoCall
    }
}

impl PlanReads for BrpcEchoCall {}

impl<A: Responses + SendRoom> CallSteps<A> for BrpcEchoCall {
    #[inline]
    fn message(&mut self, bytes: &[u8], _last: bool, _shared: &Shared, actions: &mut A) {
        match EchoRequest::decode(bytes) {
            Ok(EchoRequest {
                message: message @ Some(_),
            }) => actions.respond(|out| EchoResponse { message }.encode(out)),
            _ => actions.finish(not_a_request(bytes.len())),
        }
    }

    fn half_closed(&mut self, _shared: &Shared, actions: &mut A) {
        actions.finish(status::no_request(Method::BrpcEcho.path()));
    }
}

/// In the words of a brpc server. What it says of compression is that of what came to be parsed.
#[cold]
fn not_a_request(bytes: usize) -> Status {
    Status::invalid_argument(format!(
        "Fail to parse request=example.EchoRequest, ContentType=pb, CompressType=none, \
         CheckSumType=none, request_size={bytes}"
    ))
}
