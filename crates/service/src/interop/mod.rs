//! `grpc.testing.TestService`: for the public interoperability tests of gRPC, behind a flag.
//!
//! <https://github.com/grpc/grpc/blob/master/doc/interop-test-descriptions.md> says in its part on
//! servers what each method does; the words in quotes here are its names of features.

mod messages;
mod orca;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use crate::actions::{
    CallClock, RequestFlow, ResponseHeaders, ResponseMemory, Responses, SendRoom, Wakeups,
};
use crate::call::{CallHead, CallSteps, Metadata, PlanReads, Shared};
use crate::limits::LARGE_ANSWER_BYTES;
use crate::method::Method;
use crate::status::{self, Status};
use api::interop::{Payload, SimpleResponse, StreamingInputCallResponse};
use messages::{
    Response, decode_input, decode_output, decode_simple, encode_payload, encode_server_id,
};

/// A call of the test service.
pub struct InteropCall {
    method: Method,
    progress: InteropProgress,
}

/// How far a call has come.
enum InteropProgress {
    /// A unary call waits for its request.
    Unary,
    /// The sizes of the payloads so far.
    Adding(u64),
    /// Messages that go out one by one.
    Answering(Box<Answering>),
}

#[derive(Default)]
struct Answering {
    owed: VecDeque<Response>,
    /// When the first of the owed messages may go, once that is known.
    due_ns: Option<u64>,
    /// The caller has ended its side: after the last owed message the call ends.
    is_half_closed: bool,
}

impl InteropCall {
    /// Begins a call.
    pub fn started(
        method: Method,
        head: &CallHead<'_>,
        _shared: &Shared,
        actions: &mut impl ResponseHeaders,
    ) -> InteropCall {
        echo_metadata(head.metadata, actions);
        let progress = match method {
            Method::InteropStreamingInputCall => InteropProgress::Adding(0),
            Method::InteropStreamingOutputCall
            | Method::InteropFullDuplexCall
            | Method::InteropHalfDuplexCall => InteropProgress::Answering(Box::default()),
            _ => InteropProgress::Unary,
        };
        InteropCall { method, progress }
    }
}

impl PlanReads for InteropCall {}

impl<A> CallSteps<A> for InteropCall
where
    A: Responses + ResponseHeaders + SendRoom + ResponseMemory + RequestFlow + Wakeups + CallClock,
{
    fn message(&mut self, bytes: &[u8], last: bool, shared: &Shared, actions: &mut A) {
        let outcome = match &mut self.progress {
            InteropProgress::Unary => answer_unary(self.method, bytes, shared, actions),
            InteropProgress::Adding(total) => add(total, bytes, last, actions),
            InteropProgress::Answering(answering) => {
                answering.request(self.method, bytes, last, actions)
            }
        };
        if let Err(status) = outcome {
            actions.finish(status);
        }
    }

    fn half_closed(&mut self, _shared: &Shared, actions: &mut A) {
        match &mut self.progress {
            InteropProgress::Unary => actions.finish(status::no_request(self.method.path())),
            InteropProgress::Adding(total) => respond_total(*total, actions),
            InteropProgress::Answering(_) if self.method == Method::InteropStreamingOutputCall => {
                actions.finish(status::no_request(self.method.path()));
            }
            InteropProgress::Answering(answering) => {
                answering.is_half_closed = true;
                answering.go_on(actions);
            }
        }
    }

    fn writable(&mut self, _shared: &Shared, actions: &mut A) {
        if let InteropProgress::Answering(answering) = &mut self.progress {
            answering.go_on(actions);
        }
    }

    fn woken(&mut self, _shared: &Shared, actions: &mut A) {
        if let InteropProgress::Answering(answering) = &mut self.progress {
            answering.go_on(actions);
        }
    }
}

/// "Echo Metadata"
fn echo_metadata(metadata: &dyn Metadata, actions: &mut impl ResponseHeaders) {
    const INITIAL: &[u8] = b"x-grpc-test-echo-initial";
    const TRAILING: &[u8] = b"x-grpc-test-echo-trailing-bin";
    if let Some(value) = metadata.first(INITIAL) {
        actions.add_initial_metadata(INITIAL, value);
    }
    if let Some(value) = metadata.first(TRAILING) {
        actions.add_trailing_metadata(TRAILING, value);
    }
}

/// "EmptyCall", "UnaryCall", "CacheableUnaryCall", "Backend metrics report":
/// "orca_per_query_report"
fn answer_unary(
    method: Method,
    bytes: &[u8],
    shared: &Shared,
    actions: &mut (impl Responses + ResponseHeaders + ResponseMemory + RequestFlow + CallClock),
) -> Result<(), Status> {
    match method {
        Method::InteropEmptyCall => actions.respond(|_| {}),
        Method::InteropCacheableUnaryCall => answer_with_time(actions),
        _ => {
            let request = decode_simple(bytes)?;
            check_compressed(request.expect_compressed, actions)?;
            if let Some(status) = request.end_with {
                return Err(status);
            }
            if !actions.room_for_answer(request.response_bytes as usize) {
                return Ok(());
            }
            actions.compress(request.compress_response);
            if let Some(report) = request.load_report {
                actions.add_trailing_metadata(orca::TRAILER, &orca::base64(&report));
            }
            actions.respond(|out| {
                encode_payload(out, request.response_bytes);
                if request.fill_server_id {
                    encode_server_id(out, shared.store.history_id());
                }
            });
        }
    }
    Ok(())
}

/// An answer that is different each time, and that a proxy may keep for a minute.
fn answer_with_time(actions: &mut (impl Responses + ResponseHeaders + CallClock)) {
    // The wall clock is read in milliseconds; the monotonic one tells the calls of a millisecond
    // apart.
    let time_ns = actions.now_ms() * 1_000_000 + actions.now_ns() % 1_000_000;
    actions.add_initial_metadata(b"cache-control", b"max-age=60, public");
    actions.respond(|out| {
        let body = time_ns.to_string();
        let payload = Payload {
            body: body.as_bytes(),
        };
        let response = SimpleResponse {
            payload: Some(payload),
            ..SimpleResponse::default()
        };
        response.encode(out);
    });
}

/// "CompressedRequest"
fn check_compressed(expected: bool, actions: &mut impl RequestFlow) -> Result<(), Status> {
    if expected && !actions.message_was_compressed() {
        return Err(Status::invalid_argument(
            "field expect_compressed: the message was not compressed",
        ));
    }
    Ok(())
}

/// "StreamingInputCall"
fn add(
    total: &mut u64,
    bytes: &[u8],
    last: bool,
    actions: &mut (impl Responses + RequestFlow),
) -> Result<(), Status> {
    let request = decode_input(bytes)?;
    check_compressed(request.expect_compressed, actions)?;
    *total += request.payload_bytes;
    // The answer says it in an int32.
    if *total > i32::MAX as u64 {
        return Err(Status::resource_exhausted(format!(
            "the payloads have {total} bytes together, at most {} can be counted",
            i32::MAX
        )));
    }
    if last {
        respond_total(*total, actions);
    }
    Ok(())
}

/// `StreamingInputCallResponse`
fn respond_total(total: u64, actions: &mut impl Responses) {
    let response = StreamingInputCallResponse {
        // `add` refuses a larger sum.
        aggregated_payload_size: i32::try_from(total).unwrap_or(i32::MAX),
    };
    actions.respond(|out| response.encode(out));
}

fn can_send(payload_bytes: usize, actions: &mut (impl SendRoom + ResponseMemory)) -> bool {
    match payload_bytes <= LARGE_ANSWER_BYTES {
        true => actions.can_send(),
        false => actions.can_send_large(payload_bytes),
    }
}

impl Answering {
    /// "StreamingOutputCall", "FullDuplexCall", and the method HalfDuplexCall
    fn request(
        &mut self,
        method: Method,
        bytes: &[u8],
        last: bool,
        actions: &mut (
                 impl Responses
                 + ResponseHeaders
                 + SendRoom
                 + ResponseMemory
                 + RequestFlow
                 + Wakeups
                 + CallClock
             ),
    ) -> Result<(), Status> {
        if method == Method::InteropStreamingOutputCall {
            if self.is_half_closed {
                return Err(status::second_request(method.path()));
            }
            // Nothing more is expected, whether the caller has ended its side by now or does it
            // later.
            self.is_half_closed = true;
        }
        self.is_half_closed |= last;
        // "Echo Status": the call ends at once.
        if let Some(status) = decode_output(bytes, &mut self.owed)? {
            return Err(status);
        }
        if method == Method::InteropHalfDuplexCall && !self.is_half_closed {
            return Ok(());
        }
        self.go_on(actions);
        Ok(())
    }

    /// Sends what is owed, as far as time and room allow; then ends the call, or lets the next
    /// request come.
    fn go_on(
        &mut self,
        actions: &mut (
                 impl Responses
                 + ResponseHeaders
                 + SendRoom
                 + ResponseMemory
                 + RequestFlow
                 + Wakeups
                 + CallClock
             ),
    ) {
        while let Some(&response) = self.owed.front() {
            if !self.is_time_for(response, actions)
                || !can_send(response.payload_bytes as usize, actions)
            {
                return actions.hold();
            }
            actions.compress(response.compress);
            actions.message(|out| encode_payload(out, response.payload_bytes));
            self.owed.pop_front();
            self.due_ns = None;
        }
        if self.is_half_closed {
            actions.finish(Status::OK);
        } else {
            actions.resume();
        }
    }

    /// "Observe ResponseParameters.interval_us": a pause since the message before, which has just
    /// gone out.
    fn is_time_for(
        &mut self,
        response: Response,
        actions: &mut (impl Wakeups + CallClock),
    ) -> bool {
        if response.interval_us == 0 {
            return true;
        }
        let now_ns = actions.now_ns();
        let pause_ns = u64::from(response.interval_us) * 1000;
        let due_ns = *self.due_ns.get_or_insert(now_ns + pause_ns);
        if now_ns < due_ns {
            actions.wake_at_ns(due_ns);
        }
        now_ns >= due_ns
    }
}
