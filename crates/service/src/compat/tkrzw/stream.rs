//! Stream: operations of one commit each, with their responses in the order sent.
//!
//! Several are with the committer at a time. Those on one database are carried out in the order
//! sent, and their outcomes come in that order; an outcome on another database may come before, and
//! waits for its turn.

use std::collections::VecDeque;

use api::tkrzw::{GetRequest, GetResponse, StreamRequest, StreamedRequest};
use api::tkrzw_before::{
    StreamRequest as StreamRequestBefore, StreamedRequest as StreamedRequestBefore,
};
use protobuf::writer;
use store::{CommitOutcome, DatabaseId, Mode, Value};

use super::decode::decode;
use super::idle::IdleTimer;
use super::maintain::encode_echo;
use super::single::{Pending, SingleAnswer, SingleRequest, present_fields};
use super::target::target;
use super::{Package, TkrzwActions};
use crate::actions::{CallClock, RequestFlow, ResponseMemory, Responses, SendRoom, Wakeups};
use crate::call::Shared;
use crate::keyvalue;
use crate::limits::{TKRZW_STREAM_ANSWER_BYTES, TKRZW_STREAM_BYTES, TKRZW_STREAM_REQUESTS};
use crate::method::Method;
use crate::rights::Right;
use crate::status::Status;

/// The number of the response to an Echo.
const ECHO_FIELD: u32 = 1;

/// An open stream.
pub(super) struct TkrzwStream {
    package: Package,
    idle: IdleTimer,
    /// What came and is not answered, in the order sent.
    waiting: VecDeque<Streamed>,
    /// Bytes of the requests that are with the committer.
    request_bytes: usize,
    /// Bytes of the responses in `waiting`: what those may have that are not known yet, and what
    /// the others have.
    answer_bytes: usize,
    /// The caller sends nothing more.
    is_half_closed: bool,
    /// Nothing more is taken.
    is_broken: bool,
    is_held: bool,
}

/// One message of the caller.
enum Streamed {
    /// Is with the committer.
    Pending(PendingOperation),
    /// Its response is known.
    Ready(Vec<u8>),
    /// Nothing is said of it.
    Silent,
    /// Ends the call.
    Broken(Status),
}

struct PendingOperation {
    pending: Pending,
    database: DatabaseId,
    omit_response: bool,
    request_bytes: usize,
    answer_bytes: usize,
}

/// What a message asks for.
enum StreamedOperation<'a> {
    Echo(&'a str),
    Single(SingleRequest<'a>),
}

impl TkrzwStream {
    pub(super) fn new(package: Package, idle: IdleTimer) -> TkrzwStream {
        TkrzwStream {
            package,
            idle,
            waiting: VecDeque::new(),
            request_bytes: 0,
            answer_bytes: 0,
            is_half_closed: false,
            is_broken: false,
            is_held: false,
        }
    }

    pub(super) fn message(
        &mut self,
        bytes: &[u8],
        last: bool,
        shared: &Shared,
        actions: &mut impl TkrzwActions,
    ) {
        self.idle.note();
        if !self.is_broken {
            let taken = self.take(bytes, shared, actions).unwrap_or_else(|status| {
                self.is_broken = true;
                Some(Streamed::Broken(status))
            });
            // Without memory for its response, the message comes once more.
            let Some(streamed) = taken else { return };
            if let Streamed::Ready(response) = &streamed {
                self.answer_bytes += response.len();
            }
            self.waiting.push_back(streamed);
        }
        self.is_half_closed = last;
        self.go_on(actions);
    }

    pub(super) fn half_closed(
        &mut self,
        actions: &mut (impl Responses + SendRoom + ResponseMemory + RequestFlow),
    ) {
        self.is_half_closed = true;
        self.go_on(actions);
    }

    /// Ends if nothing has come for long.
    pub(super) fn woken(&mut self, actions: &mut (impl Responses + Wakeups + CallClock)) {
        self.idle.woken(actions);
    }

    fn method(&self) -> Method {
        match self.package {
            Package::Present => Method::TkrzwStream,
            Package::Before => Method::TkrzwBeforeStream,
        }
    }

    /// Takes up a message; `None`: it comes once more, when there is memory for its response.
    fn take(
        &mut self,
        bytes: &[u8],
        shared: &Shared,
        actions: &mut impl TkrzwActions,
    ) -> Result<Option<Streamed>, Status> {
        let method = self.method();
        let (operation, omit_response) = match self.package {
            Package::Present => {
                let request: StreamRequest<'_> = decode(method, bytes)?;
                (present(request.request_oneof), request.omit_response)
            }
            Package::Before => {
                let request: StreamRequestBefore<'_> = decode(method, bytes)?;
                (before(request.request_oneof), request.omit_response)
            }
        };
        match operation.ok_or_else(no_operation)? {
            StreamedOperation::Echo(_) if omit_response => Ok(Some(Streamed::Silent)),
            StreamedOperation::Echo(echo) => {
                let mut response = Vec::new();
                let package = self.package;
                writer::message(&mut response, ECHO_FIELD, |out| {
                    encode_echo(package, echo, out);
                });
                Ok(Some(Streamed::Ready(response)))
            }
            StreamedOperation::Single(request) => {
                self.submit((request, omit_response), bytes.len(), shared, actions)
            }
        }
    }

    fn submit(
        &mut self,
        (request, omit_response): (SingleRequest<'_>, bool),
        request_bytes: usize,
        shared: &Shared,
        actions: &mut impl TkrzwActions,
    ) -> Result<Option<Streamed>, Status> {
        let request = match request {
            // Nobody wants the value.
            SingleRequest::Get(get) if omit_response => SingleRequest::Get(GetRequest {
                omit_value: true,
                ..get
            }),
            request => request,
        };
        let right = right_of(&request);
        let id = target(request.dbm_index(), right, shared, actions)?.id;
        let mut answer_bytes = 0;
        if request.wants_value() {
            answer_bytes = shared.store.limits(id).unwrap_or_default().value_bytes;
            if !actions.room_for_answer(answer_bytes) {
                return Ok(None);
            }
        }
        let is_refused = shared.settings.tkrzw.is_read_only && request.may_write();
        let mut commit = actions.write(id, Mode::Independent);
        let pushed = request.push(&mut commit);
        let pending = pushed.map_err(|error| keyvalue::push_error(self.method(), error))?;
        if is_refused {
            drop(commit);
            return Ok(Some(match omit_response {
                true => Streamed::Silent,
                false => Streamed::Ready(encoded(pending, &SingleAnswer::READ_ONLY)),
            }));
        }
        commit.submit();
        self.request_bytes += request_bytes;
        self.answer_bytes += answer_bytes;
        Ok(Some(Streamed::Pending(PendingOperation {
            pending,
            database: id,
            omit_response,
            request_bytes,
            answer_bytes,
        })))
    }

    /// Responds, or keeps the response until those before have theirs.
    pub(super) fn committed(
        &mut self,
        outcome: &CommitOutcome<'_>,
        actions: &mut (impl Responses + SendRoom + ResponseMemory + RequestFlow),
    ) {
        let is_its_own = |streamed: &Streamed| match streamed {
            Streamed::Pending(operation) => operation.database == outcome.database,
            Streamed::Ready(_) | Streamed::Silent | Streamed::Broken(_) => false,
        };
        let place = self.waiting.iter().position(is_its_own);
        let Some(streamed) = place.and_then(|place| self.waiting.get_mut(place)) else {
            return debug_assert!(false, "something was submitted");
        };
        let Streamed::Pending(operation) = std::mem::replace(streamed, Streamed::Silent) else {
            return;
        };
        self.request_bytes -= operation.request_bytes;
        self.answer_bytes -= operation.answer_bytes;
        let answer = match operation.pending.answer(outcome) {
            Ok(answer) => answer,
            Err(status) => {
                *streamed = Streamed::Broken(status);
                self.is_broken = true;
                return self.go_on(actions);
            }
        };
        if operation.omit_response {
            return self.go_on(actions);
        }
        match place {
            Some(0) => {
                self.waiting.pop_front();
                send(operation.pending, &answer, actions);
            }
            _ => {
                let response = encoded(operation.pending, &answer);
                self.answer_bytes += response.len();
                *streamed = Streamed::Ready(response);
            }
        }
        self.go_on(actions);
    }

    /// Sends all responses that wait for nothing, ends the call if that was all, and holds the
    /// caller if too much is under way.
    pub(super) fn go_on(
        &mut self,
        actions: &mut (impl Responses + SendRoom + ResponseMemory + RequestFlow),
    ) {
        while let Some(next) = self.waiting.pop_front() {
            match next {
                Streamed::Pending(_) => {
                    self.waiting.push_front(next);
                    break;
                }
                Streamed::Ready(response) => {
                    self.answer_bytes -= response.len();
                    actions.message(|out| out.extend_from_slice(&response));
                }
                Streamed::Silent => {}
                Streamed::Broken(status) => return actions.finish(status),
            }
        }
        if self.is_half_closed && self.waiting.is_empty() {
            return actions.finish(Status::OK);
        }
        // Room for one response replaces that for those before, and what is sent gives all of it
        // back: so all that is under way is set aside anew.
        actions.reserve(self.request_bytes + self.answer_bytes);
        let is_full = self.is_broken
            || self.waiting.len() >= TKRZW_STREAM_REQUESTS
            || self.request_bytes >= TKRZW_STREAM_BYTES
            || self.answer_bytes >= TKRZW_STREAM_ANSWER_BYTES
            || !actions.can_send();
        if std::mem::replace(&mut self.is_held, is_full) == is_full {
            return;
        }
        match is_full {
            true => actions.hold(),
            false => actions.resume(),
        }
    }
}

fn right_of(request: &SingleRequest<'_>) -> Right {
    match request {
        SingleRequest::Get(_) => Right::Read,
        SingleRequest::Set(_)
        | SingleRequest::Remove(_)
        | SingleRequest::Append(_)
        | SingleRequest::CompareExchange(..)
        | SingleRequest::Increment(_) => Right::Write,
    }
}

fn present(request: Option<StreamedRequest<'_>>) -> Option<StreamedOperation<'_>> {
    use StreamedRequest as R;
    Some(StreamedOperation::Single(match request? {
        R::Echo(request) => return Some(StreamedOperation::Echo(request.message)),
        R::Get(request) => SingleRequest::Get(request),
        R::Set(request) => SingleRequest::Set(request),
        R::Remove(request) => SingleRequest::Remove(request),
        R::Append(request) => SingleRequest::Append(request),
        R::CompareExchange(request) => SingleRequest::CompareExchange(request, Package::Present),
        R::Increment(request) => SingleRequest::Increment(request),
    }))
}

fn before(request: Option<StreamedRequestBefore<'_>>) -> Option<StreamedOperation<'_>> {
    use StreamedRequestBefore as R;
    Some(StreamedOperation::Single(match request? {
        R::Echo(request) => return Some(StreamedOperation::Echo(request.message)),
        R::Get(request) => SingleRequest::Get(request),
        R::Set(request) => SingleRequest::Set(request),
        R::Remove(request) => SingleRequest::Remove(request),
        R::Append(request) => SingleRequest::Append(request),
        R::CompareExchange(request) => {
            SingleRequest::CompareExchange(present_fields(&request), Package::Before)
        }
        R::Increment(request) => SingleRequest::Increment(request),
    }))
}

/// Returns a response as a message of the stream.
fn encoded(pending: Pending, answer: &SingleAnswer<'_>) -> Vec<u8> {
    let mut response = Vec::new();
    writer::message(&mut response, pending.stream_field(), |out| {
        pending.encode(answer, out);
    });
    response
}

/// Sends a response, without copying a large value.
fn send(pending: Pending, answer: &SingleAnswer<'_>, actions: &mut impl Responses) {
    let Some(Value::Shared(body)) = answer.value() else {
        return actions.message(|out| {
            writer::message(out, pending.stream_field(), |out| {
                pending.encode(answer, out)
            });
        });
    };
    let mut head = Vec::new();
    pending.encode(&answer.without_value(), &mut head);
    writer::bytes_head(&mut head, GetResponse::NUMBERS.value, body.len());
    let bytes = head.len() + body.len();
    let head = |out: &mut Vec<u8>| {
        writer::bytes_head(out, pending.stream_field(), bytes);
        out.extend_from_slice(&head);
    };
    actions.message_shared(head, body, 0..body.len());
}

#[cold]
fn no_operation() -> Status {
    Status::invalid_argument("a message of a stream has no request")
}
