//! `pelton.v1.Echo`: answers without touching a store, to measure what a call costs by itself.

use crate::actions::{CallClock, RequestFlow, ResponseMemory, Responses, SendRoom, Wakeups};
use crate::call::{CallHead, CallSteps, PlanReads, Shared};
use crate::limits::{ECHO_ANSWER_BYTES_MAX, ECHO_DELAY_MS_MAX, ECHO_DELAYED_PAYLOAD_BYTES_MAX};
use crate::method::Method;
use crate::status::{self, Status};
use crate::waiting::WaitingPlace;
use api::echo::{EchoRequest, EchoResponse};
use protobuf::{DecodeError, writer};

/// A call of the echo service.
pub struct EchoCall {
    method: Method,
    /// The caller has ended its side.
    is_half_closed: bool,
    /// An answer that waits for its time.
    delayed: Option<Box<Delayed>>,
}

struct Delayed {
    due_ns: u64,
    answer: EchoAnswer<Vec<u8>>,
    _place: WaitingPlace,
}

/// What the answer carries.
enum EchoAnswer<Bytes> {
    Payload(Bytes),
    Zeros(u32),
}

impl<Bytes: AsRef<[u8]>> EchoAnswer<Bytes> {
    /// How many bytes it has that the request has not.
    #[inline]
    fn made_bytes(&self) -> usize {
        match self {
            EchoAnswer::Payload(_) => 0,
            &EchoAnswer::Zeros(length) => length as usize,
        }
    }

    /// `EchoResponse`
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            EchoAnswer::Payload(bytes) => EchoResponse {
                payload: bytes.as_ref(),
            }
            .encode(out),
            &EchoAnswer::Zeros(length) => {
                let length = length as usize;
                writer::bytes_head(out, EchoResponse::NUMBERS.payload, length);
                out.resize(out.len() + length, 0);
            }
        }
    }
}

impl EchoCall {
    /// Begins a call.
    pub fn started(
        method: Method,
        _head: &CallHead<'_>,
        _shared: &Shared,
        _actions: &mut impl Sized,
    ) -> EchoCall {
        EchoCall {
            method,
            is_half_closed: false,
            delayed: None,
        }
    }

    #[inline]
    fn answer(
        &mut self,
        answer: &EchoAnswer<impl AsRef<[u8]>>,
        actions: &mut (impl Responses + SendRoom + RequestFlow),
    ) {
        if self.method == Method::EchoUnary {
            return actions.respond(|out| answer.encode(out));
        }
        actions.message(|out| answer.encode(out));
        if self.is_half_closed {
            actions.finish(Status::OK);
        } else if !actions.can_send() {
            // One message may go beyond the bound of unsent bytes; the next one waits until there
            // is room.
            actions.hold();
        }
    }

    /// Sends the answer that waits, if its time has come and there is memory for it; else
    /// `writable` or `woken` follows.
    fn answer_delayed(
        &mut self,
        actions: &mut (impl Responses + SendRoom + ResponseMemory + RequestFlow + CallClock),
    ) {
        let now_ns = actions.now_ns();
        let Some(delayed) = self.delayed.take_if(|delayed| {
            let made_bytes = delayed.answer.made_bytes();
            now_ns >= delayed.due_ns && (made_bytes == 0 || actions.can_send_large(made_bytes))
        }) else {
            return;
        };
        actions.resume();
        self.answer(&delayed.answer, actions);
    }

    #[cold]
    fn delay(
        &mut self,
        delay_ms: u32,
        answer: &EchoAnswer<&[u8]>,
        shared: &Shared,
        actions: &mut (impl ResponseMemory + RequestFlow + Wakeups + CallClock),
    ) -> Result<(), Status> {
        let answer = match *answer {
            EchoAnswer::Zeros(length) => EchoAnswer::Zeros(length),
            EchoAnswer::Payload(bytes) if bytes.len() <= ECHO_DELAYED_PAYLOAD_BYTES_MAX => {
                EchoAnswer::Payload(bytes.to_vec())
            }
            EchoAnswer::Payload(bytes) => return Err(delayed_payload_too_large(bytes.len())),
        };
        let due_ns = actions.now_ns() + u64::from(delay_ms) * 1_000_000;
        if let EchoAnswer::Payload(bytes) = &answer {
            actions.reserve(bytes.len());
        }
        self.delayed = Some(Box::new(Delayed {
            due_ns,
            answer,
            _place: shared.waiting.enter(actions.caller())?,
        }));
        actions.wake_at_ns(due_ns);
        actions.hold();
        Ok(())
    }
}

impl PlanReads for EchoCall {}

impl<A> CallSteps<A> for EchoCall
where
    A: Responses + SendRoom + ResponseMemory + RequestFlow + Wakeups + CallClock,
{
    #[inline]
    fn message(&mut self, bytes: &[u8], last: bool, shared: &Shared, actions: &mut A) {
        if self.delayed.is_some() {
            // Held, a stream gets nothing here: this is a unary call.
            return actions.finish(status::second_request(self.method.path()));
        }
        match decode(bytes) {
            Ok((answer, 0)) => {
                // A payload takes what the request took.
                if answer.made_bytes() > 0 && !actions.room_for_answer(answer.made_bytes()) {
                    return;
                }
                self.is_half_closed = last;
                self.answer(&answer, actions);
            }
            Ok((answer, delay_ms)) => {
                self.is_half_closed = last;
                if let Err(status) = self.delay(delay_ms, &answer, shared, actions) {
                    actions.finish(status);
                }
            }
            Err(status) => actions.finish(status),
        }
    }

    fn half_closed(&mut self, _shared: &Shared, actions: &mut A) {
        self.is_half_closed = true;
        if self.delayed.is_some() {
            return;
        }
        actions.finish(match self.method {
            Method::EchoUnary => status::no_request(self.method.path()),
            _ => Status::OK,
        });
    }

    fn writable(&mut self, _shared: &Shared, actions: &mut A) {
        if self.delayed.is_none() {
            return actions.resume();
        }
        self.answer_delayed(actions);
    }

    fn woken(&mut self, _shared: &Shared, actions: &mut A) {
        self.answer_delayed(actions);
    }
}

/// `EchoRequest`: the answer, and after how many milliseconds.
#[inline]
fn decode(bytes: &[u8]) -> Result<(EchoAnswer<&[u8]>, u32), Status> {
    let request = EchoRequest::decode(bytes).map_err(not_a_request)?;
    let EchoRequest {
        payload,
        answer_bytes,
        delay_ms,
    } = request;
    if answer_bytes > ECHO_ANSWER_BYTES_MAX {
        return Err(answer_too_large(answer_bytes));
    }
    if delay_ms > ECHO_DELAY_MS_MAX {
        return Err(delay_too_long(delay_ms));
    }
    let answer = match answer_bytes {
        0 => EchoAnswer::Payload(payload),
        length => EchoAnswer::Zeros(length),
    };
    Ok((answer, delay_ms))
}

#[cold]
fn not_a_request(error: DecodeError) -> Status {
    Status::invalid_argument(format!("EchoRequest: {error}"))
}

#[cold]
fn answer_too_large(answer_bytes: u32) -> Status {
    Status::resource_exhausted(format!(
        "field answer_bytes: {answer_bytes} bytes are asked for, at most {ECHO_ANSWER_BYTES_MAX} \
         are allowed"
    ))
}

#[cold]
fn delay_too_long(delay_ms: u32) -> Status {
    Status::invalid_argument(format!(
        "field delay_ms: {delay_ms} ms are asked for, at most {ECHO_DELAY_MS_MAX} are allowed"
    ))
}

#[cold]
fn delayed_payload_too_large(bytes: usize) -> Status {
    Status::resource_exhausted(format!(
        "field payload: {bytes} bytes would have to be kept during delay_ms, at most \
         {ECHO_DELAYED_PAYLOAD_BYTES_MAX} are allowed; answer_bytes makes a large answer without \
         a payload"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Fake, Sent, shared};
    use crate::status::Code;
    use crate::waiting::WaitingCalls;

    fn request(payload: &[u8], answer_bytes: u32, delay_ms: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        writer::bytes(&mut bytes, 1, payload);
        writer::uint64(&mut bytes, 2, answer_bytes.into());
        writer::uint64(&mut bytes, 3, delay_ms.into());
        bytes
    }

    fn response(payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        writer::bytes(&mut bytes, 1, payload);
        bytes
    }

    fn code(fake: &mut Fake) -> Code {
        fake.take_status().expect("ended with a status").code()
    }

    #[test]
    fn unary_answers_with_what_was_sent_or_asked_for() {
        let shared = shared();
        let cases = [
            (request(b"hello", 0, 0), response(b"hello")),
            (request(b"", 0, 0), response(b"")),
            (request(b"hello", 300, 0), response(&[0; 300])),
            (request(&[7; 100_000], 0, 0), response(&[7; 100_000])),
        ];
        for (request, response) in cases {
            let mut fake = Fake::new(Method::EchoUnary, &shared);
            fake.message(&request, true, &shared);
            assert_eq!(fake.take_sent(), [Sent::Response(response)]);
        }
    }

    #[test]
    fn limits_are_kept_and_named() {
        let shared = shared();
        let cases = [
            (
                request(b"", ECHO_ANSWER_BYTES_MAX + 1, 0),
                Code::ResourceExhausted,
                "answer_bytes",
            ),
            (
                request(b"", 0, ECHO_DELAY_MS_MAX + 1),
                Code::InvalidArgument,
                "delay_ms",
            ),
            (
                request(&[0; ECHO_DELAYED_PAYLOAD_BYTES_MAX + 1], 0, 1),
                Code::ResourceExhausted,
                "payload",
            ),
            (vec![0x08, 0x01], Code::InvalidArgument, "EchoRequest"),
            (vec![0x0a, 0x05], Code::InvalidArgument, "EchoRequest"),
        ];
        for (request, code, word) in cases {
            for method in [Method::EchoUnary, Method::EchoStream] {
                let mut fake = Fake::new(method, &shared);
                fake.message(&request, true, &shared);
                let status = fake.take_status().expect("ended with a status");
                assert_eq!(status.code(), code);
                assert!(status.message().contains(word), "{}", status.message());
            }
        }
    }

    #[test]
    fn what_is_just_within_the_limits_is_answered() {
        let shared = shared();
        let kept = [7; ECHO_DELAYED_PAYLOAD_BYTES_MAX];
        for (request, bytes, reserved_bytes) in [
            (
                request(b"", ECHO_ANSWER_BYTES_MAX, ECHO_DELAY_MS_MAX),
                ECHO_ANSWER_BYTES_MAX as usize,
                0,
            ),
            (request(&kept, 0, 1), kept.len(), kept.len()),
        ] {
            let mut fake = Fake::new(Method::EchoUnary, &shared);
            fake.message(&request, true, &shared);
            // What is kept meanwhile is set aside; zeros are made when they go out.
            assert_eq!(fake.actions.reserved_bytes, reserved_bytes);
            fake.wake_in_time(&shared);
            let sent = fake.take_sent();
            assert!(matches!(&sent[..], [Sent::Response(answer)] if answer.len() > bytes));
        }
    }

    /// What an answer has that its request has not takes memory, which may have to be waited for.
    #[test]
    fn what_is_made_waits_for_memory() {
        let shared = shared();
        let mut fake = Fake::new(Method::EchoStream, &shared);
        fake.actions.has_room = false;
        fake.message(&request(b"one", 0, 0), false, &shared);
        assert_eq!(fake.take_sent(), [Sent::Message(response(b"one"))]);
        for _ in 0..2 {
            fake.message(&request(b"", 5, 0), true, &shared);
            assert!(std::mem::take(&mut fake.actions.puts_back));
            assert_eq!(fake.actions.asked_bytes, 5);
            assert_eq!(fake.take_sent(), []);
        }
        fake.actions.has_room = true;
        fake.message(&request(b"", 5, 0), true, &shared);
        assert_eq!(
            fake.take_sent(),
            [Sent::Message(response(&[0; 5])), Sent::Status(Status::OK)]
        );

        let delayed = |request: &[u8]| {
            let mut fake = Fake::new(Method::EchoUnary, &shared);
            fake.message(request, true, &shared);
            fake.actions.can_send = false;
            fake.wake_in_time(&shared);
            fake
        };
        let mut fake = delayed(&request(b"late", 0, 20));
        assert_eq!(fake.take_sent(), [Sent::Response(response(b"late"))]);
        let mut fake = delayed(&request(b"", 5, 20));
        assert_eq!(fake.take_sent(), []);
        fake.actions.can_send = true;
        fake.writable(&shared);
        assert_eq!(fake.take_sent(), [Sent::Response(response(&[0; 5]))]);
        assert_eq!(shared.waiting.count(), 0);
    }

    #[test]
    fn unary_answers_after_the_delay() {
        let shared = shared();
        let mut fake = Fake::new(Method::EchoUnary, &shared);
        let began_ns = fake.actions.now_ns;
        fake.message(&request(b"late", 0, 20), false, &shared);
        fake.half_closed(&shared);
        assert_eq!(shared.waiting.count(), 1);
        // Too early.
        fake.woken(&shared);
        assert_eq!(fake.take_sent(), []);
        fake.wake_in_time(&shared);
        assert_eq!(fake.actions.now_ns - began_ns, 20_000_000);
        assert_eq!(fake.take_sent(), [Sent::Response(response(b"late"))]);
        assert_eq!(shared.waiting.count(), 0);
    }

    #[test]
    fn delayed_calls_are_limited() {
        let mut shared = shared();
        shared.waiting = WaitingCalls::new(10);
        let delayed = || {
            let mut fake = Fake::new(Method::EchoUnary, &shared);
            fake.message(&request(b"", 5, 20), true, &shared);
            fake
        };
        let first: Vec<_> = (0..crate::limits::WAITING_CALLS_IN_ANY_CASE)
            .map(|_| delayed())
            .collect();
        assert!(first.iter().all(|fake| !fake.actions.is_over));
        assert_eq!(code(&mut delayed()), Code::ResourceExhausted);
    }

    #[test]
    fn unary_takes_exactly_one_request() {
        let shared = shared();
        let mut none = Fake::new(Method::EchoUnary, &shared);
        none.half_closed(&shared);
        assert_eq!(code(&mut none), Code::Unimplemented);
        let mut two = Fake::new(Method::EchoUnary, &shared);
        two.message(&request(b"", 0, 20), false, &shared);
        two.actions.is_held = false;
        two.message(&request(b"", 0, 20), true, &shared);
        assert_eq!(code(&mut two), Code::Unimplemented);
    }

    #[test]
    fn stream_answers_each_message_in_order() {
        let shared = shared();
        let mut fake = Fake::new(Method::EchoStream, &shared);
        for payload in [b"one", b"two"] {
            fake.message(&request(payload, 0, 0), false, &shared);
            assert_eq!(fake.take_sent(), [Sent::Message(response(payload))]);
        }
        fake.half_closed(&shared);
        assert_eq!(fake.take_sent(), [Sent::Status(Status::OK)]);

        let mut fake = Fake::new(Method::EchoStream, &shared);
        fake.message(&request(b"one", 0, 0), true, &shared);
        assert_eq!(
            fake.take_sent(),
            [Sent::Message(response(b"one")), Sent::Status(Status::OK)]
        );
        let mut fake = Fake::new(Method::EchoStream, &shared);
        fake.half_closed(&shared);
        assert_eq!(fake.take_sent(), [Sent::Status(Status::OK)]);
    }

    #[test]
    fn stream_waits_for_room() {
        let shared = shared();
        let mut fake = Fake::new(Method::EchoStream, &shared);
        fake.actions.can_send = false;
        fake.message(&request(b"one", 0, 0), false, &shared);
        assert!(fake.actions.is_held);
        fake.actions.can_send = true;
        fake.writable(&shared);
        assert!(!fake.actions.is_held);
        fake.message(&request(b"two", 0, 0), true, &shared);
        assert_eq!(fake.take_sent().len(), 3);
    }

    #[test]
    fn stream_delays_and_holds_what_follows() {
        let shared = shared();
        let mut fake = Fake::new(Method::EchoStream, &shared);
        fake.message(&request(b"late", 0, 20), false, &shared);
        assert!(fake.actions.is_held);
        fake.half_closed(&shared);
        fake.writable(&shared);
        assert!(fake.actions.is_held);
        assert_eq!(fake.take_sent(), []);
        fake.wake_in_time(&shared);
        assert_eq!(
            fake.take_sent(),
            [Sent::Message(response(b"late")), Sent::Status(Status::OK)]
        );
    }
}
