//! Events of a connection: requests that begin, what their callers send, and how calls end.

use net::Io;
use service::identities::{Binding, Identity, IdentityKey, Unauthenticated, ambiguous, unbound};
use service::method::{Access, CallKind};
use service::redact::shortened_without_tokens;
use service::{
    CallHead, CallSteps, Code, DelayedRefusal, Method, RefusedFor, ServiceCall, Shared, Status,
};
use wire::{Event, StreamKey};

use super::LoopState;
use crate::account::CountedCaller;
use crate::actions::{CallActions, StepAgain};
use crate::admission::{self, ShedFor};
use crate::audit;
use crate::authorization;
use crate::calls::deadline_exceeded;
use crate::connection::{Link, RpcState};
use crate::limits;
use crate::metadata::CapturedMetadata;
use crate::peer_identity::Proved;
use crate::plain::{self, FixedResponse};
use crate::rpc_connection::RpcConnection;
use crate::settings::FailedCall;
use crate::spans::SpanMethod;
use crate::wrong_tokens::RefusedWhen;

impl LoopState {
    pub(super) fn event(&mut self, rpc: &mut RpcState, io: &mut Io, event: Event) {
        match event {
            Event::Request { stream, end } => self.request(rpc, io, stream, end),
            Event::Message { stream, last } => self.message(rpc, io, stream, last),
            Event::Part { stream, left, last } => self.part(rpc, io, stream, left, last),
            Event::HalfClosed { stream } => self.half_closed(rpc, io, stream),
            Event::Writable { stream } => self.step_of(rpc, io, stream, |call, shared, step| {
                call.writable(shared, step)
            }),
            Event::Cancelled { stream, cause } => {
                (self.calls).cancel(&self.context, rpc, stream, cause);
            }
            Event::Body { stream, last } => self.body(rpc, io, stream, last),
            Event::Refused => self.calls.figures().refused(RefusedFor::NoCall),
            Event::Response { .. } | Event::Finished { .. } => {
                debug_assert!(false, "events of the client role")
            }
        }
    }

    fn request(&mut self, rpc: &mut RpcState, io: &mut Io, stream: StreamKey, end: bool) {
        if !rpc.connection.head().is_grpc() {
            return self.plain_request(rpc, io, stream, end);
        }
        let Some(method) = route(&rpc.connection) else {
            return self.refuse_unknown(rpc, io, stream);
        };
        if let Err(reason) = self.admit(rpc) {
            let status = self.refusal(rpc, method, reason);
            return rpc.stream(stream, &mut io.output).finish(status);
        }
        let found = {
            let at = (&*self.context.identities, self.context.clock.store_ms());
            let (connection, peer) = (&mut rpc.connection, &mut rpc.link.identity);
            (rpc.authorization).identify(connection, method as u8, peer, at)
        };
        match self.check_begin(&rpc.link, method, found) {
            // Who may not call it is told that, as over gRPC.
            Ok(_) if rpc.connection.is_framed() && method.kind() != Some(CallKind::Unary) => {
                self.refuse_streaming(rpc, io, stream, method);
            }
            Ok(identity) => self.begin(rpc, io, stream, (method, identity), end),
            Err(refused) => self.refuse_caller(rpc, io, stream, (method, refused), end),
        }
    }

    /// Returns whose call it is, if it may begin.
    #[inline]
    fn check_begin(
        &self,
        link: &Link,
        method: Method,
        found: Result<Proved, Unauthenticated>,
    ) -> Result<AdmittedCaller, RefusedCaller> {
        let proved = found.map_err(|why| {
            let names = link.identity.names(&self.context.identities);
            RefusedCaller::without_identity(why, &names)
        })?;
        let key = proved.key;
        let identity = self.context.identities.get(key);
        if let Err(status) = service::check_begin(method, identity, link.peer) {
            let is_anonymous = identity.is_some_and(Identity::is_anonymous);
            let shown = link.identity.shown().filter(|_| is_anonymous);
            return Err(RefusedCaller::without_right(key, status, shown));
        }
        let counted = link.counted(key, identity);
        if counted.is_none() {
            return Ok(AdmittedCaller { proved, counted });
        }
        let (in_loop, own) = (self.calls.len(), self.calls.of_identity(key));
        match self.context.admission.admit_identity(in_loop, own) {
            Ok(()) => Ok(AdmittedCaller { proved, counted }),
            Err(reason) => Err(RefusedCaller::beyond_share(key, reason)),
        }
    }

    /// Refuses a call whose caller may not begin it: at once, or later if its connection sends one
    /// wrong token after the other. The connection goes on in any case: that of a proxy has others
    /// on it, also before the first of them has come with a good token.
    #[cold]
    fn refuse_caller(
        &mut self,
        rpc: &mut RpcState,
        io: &mut Io,
        stream: StreamKey,
        (method, refused): (Method, RefusedCaller),
        end: bool,
    ) {
        let RefusedCaller {
            status,
            reason,
            shown,
            ..
        } = refused;
        self.calls.figures().refused(reason);
        self.log_refusal(&rpc.link, method, &status);
        let called = SpanMethod::Known(method);
        self.calls
            .note_refused(&self.context, rpc, (called, status.code()));
        if audit::is_denial(status.code()) {
            let detail = match shown {
                Some(shown) => format!("{} ({shown})", status.message()),
                None => status.message().to_owned(),
            };
            self.audit_refusal(rpc, method, refused.caller, (status.code(), &detail));
        }
        let at_ns = match refused.has_wrong_token {
            true => self.refused_at_ns(rpc),
            false => None,
        };
        if let Some(at_ns) = at_ns {
            let caller = (method, Proved::by_table(IdentityKey::NOBODY));
            return self.begin_with(rpc, io, stream, caller, end, |_, _, step| {
                ServiceCall::Refused(DelayedRefusal::started(status, at_ns, step))
            });
        }
        let mut stream = rpc.stream(stream, &mut io.output);
        match method.is_plain() {
            true => plain::fail(&mut stream, &status, false),
            false => stream.finish(status),
        }
    }

    /// Notes a wrong token of a connection. Returns until when the call waits for its refusal;
    /// `None`: it is refused at once.
    fn refused_at_ns(&self, rpc: &mut RpcState) -> Option<u64> {
        let (all, now_ns) = (&self.context.wrong_tokens, self.context.clock.tick_ns());
        let address = rpc.link.caller.address;
        let at_ns = match rpc.wrong_tokens.note(all, address, now_ns) {
            RefusedWhen::Now => None,
            RefusedWhen::At(at_ns) => Some(at_ns),
            // Those who were let in need its streams more than these need to be slowed.
            RefusedWhen::Crowded(at_ns) => (!rpc.has_let_in).then_some(at_ns),
        };
        let streams = self.context.settings.http2.max_streams as usize;
        let share = streams * limits::WAITING_REFUSALS_STREAMS_PERCENT / 100;
        let has_room = rpc.running_calls() < share
            && self.calls.waiting_refusals() < limits::WAITING_REFUSALS_PER_LOOP;
        at_ns.filter(|_| has_room)
    }

    #[cold]
    fn refuse_unknown(&mut self, rpc: &mut RpcState, io: &mut Io, stream: StreamKey) {
        self.calls.figures().refused(RefusedFor::UnknownMethod);
        self.unknown_events += limits::UNKNOWN_METHOD_EVENTS;
        let path = rpc.connection.head().path();
        let status = no_such_method(path);
        self.context.settings.log_failure(&FailedCall {
            method: None,
            path: &lossy(path),
            code: status.code(),
            message: "there is no such method",
            peer: &rpc.link.address,
        });
        let path = lossy(path);
        let called = SpanMethod::Unknown(&path);
        self.calls
            .note_refused(&self.context, rpc, (called, status.code()));
        if let Some(framed) = rpc.connection.as_framed() {
            let has_service = service::method::has_service(framed.head().path());
            return framed.finish_unknown(stream, &mut io.output, has_service);
        }
        rpc.stream(stream, &mut io.output).finish(status);
    }

    /// Refuses a call with streams on a connection that has none.
    #[cold]
    fn refuse_streaming(
        &mut self,
        rpc: &mut RpcState,
        io: &mut Io,
        stream: StreamKey,
        method: Method,
    ) {
        self.calls.figures().refused(RefusedFor::UnknownMethod);
        let path = method.path();
        let status = Status::unimplemented(format!(
            "{path} has streams, which this protocol has not: call it over gRPC"
        ));
        self.log_refusal(&rpc.link, method, &status);
        let called = SpanMethod::Known(method);
        self.calls
            .note_refused(&self.context, rpc, (called, status.code()));
        rpc.stream(stream, &mut io.output).finish(status);
    }

    /// Counts and logs a call that may not begin, and hands its span over. Returns the status that
    /// ends it.
    #[cold]
    fn refusal(&mut self, rpc: &RpcState, method: Method, reason: ShedFor) -> Status {
        self.calls.figures().refused(reason.into());
        let status = admission::status(reason);
        self.log_refusal(&rpc.link, method, &status);
        let called = SpanMethod::Known(method);
        self.calls
            .note_refused(&self.context, rpc, (called, status.code()));
        status
    }

    fn plain_request(&mut self, rpc: &mut RpcState, io: &mut Io, stream: StreamKey, end: bool) {
        let head = rpc.connection.head();
        let is_waiting = (head.get(b"expect"))
            .is_some_and(|value| !end && value.eq_ignore_ascii_case(b"100-continue"));
        match service::http::route(head.method(), head.path()) {
            Some(method) => self.plain_call(rpc, io, stream, method, end),
            None => self.plain_question(rpc, io, stream, end),
        }
        if is_waiting {
            rpc.stream(stream, &mut io.output).send_continue();
        }
    }

    /// A plain request that is no call.
    fn plain_question(&mut self, rpc: &mut RpcState, io: &mut Io, stream: StreamKey, end: bool) {
        let admission = &self.context.admission;
        let streams = rpc.connection.running();
        if let Err(reason) = admission.admit_plain(streams, &rpc.link.holding) {
            self.calls.figures().refused(reason.into());
            return plain::shed(&mut rpc.stream(stream, &mut io.output));
        }
        let answer = FixedResponse::to(&rpc.connection);
        rpc.connection.set_token(stream, answer.token());
        if end {
            self.answer_plain(rpc, io, stream);
        }
    }

    /// A plain request that is a call.
    fn plain_call(
        &mut self,
        rpc: &mut RpcState,
        io: &mut Io,
        stream: StreamKey,
        method: Method,
        end: bool,
    ) {
        if let Err(reason) = self.admit(rpc) {
            let status = self.refusal(rpc, method, reason);
            let mut stream = rpc.stream(stream, &mut io.output);
            return match reason {
                ShedFor::Buffers | ShedFor::RunningCalls => plain::shed(&mut stream),
                _ => plain::fail(&mut stream, &status, false),
            };
        }
        let found = {
            let at = (&*self.context.identities, self.context.clock.store_ms());
            let (connection, peer) = (&rpc.connection, &mut rpc.link.identity);
            (rpc.authorization).identify_plain(connection, peer, at)
        };
        match self.check_begin(&rpc.link, method, found) {
            Ok(identity) => self.begin(rpc, io, stream, (method, identity), end),
            Err(refused) => self.refuse_caller(rpc, io, stream, (method, refused), end),
        }
    }

    fn admit(&self, rpc: &RpcState) -> Result<(), ShedFor> {
        if self.drain.is_some() {
            return Err(ShedFor::Stopping);
        }
        if let Some(reason) = rpc.link.refused {
            return Err(reason);
        }
        debug_assert!(
            rpc.running_calls() < self.context.settings.http2.max_streams as usize,
            "the protocol refuses streams beyond its limit, running ones included"
        );
        let admission = &self.context.admission;
        admission.admit(self.calls.len(), rpc.running_calls(), &rpc.link.holding)
    }

    fn begin(
        &mut self,
        rpc: &mut RpcState,
        io: &mut Io,
        stream: StreamKey,
        (method, caller): (Method, AdmittedCaller),
        end: bool,
    ) {
        rpc.has_let_in |= method.entry().access != Access::Open;
        rpc.link.replicates |= method.is_of_replicas();
        let is_idle = rpc.running_calls() == 0;
        rpc.link.holding.note_caller(caller.counted, is_idle);
        let caller = (method, caller.proved);
        self.begin_with(rpc, io, stream, caller, end, |head, shared, step| {
            ServiceCall::started(method, head, shared, step)
        });
    }

    /// Begins a call, or the wait for its refusal, with the state machine that `start` makes.
    #[inline]
    fn begin_with(
        &mut self,
        rpc: &mut RpcState,
        io: &mut Io,
        stream: StreamKey,
        (method, proved): (Method, Proved),
        end: bool,
        start: impl FnOnce(&CallHead<'_>, &Shared, &mut CallActions<'_>) -> ServiceCall,
    ) {
        let now_ns = self.context.clock.tick_ns();
        let timeout_ns = rpc.connection.head().timeout_ns();
        let deadline_ns = timeout_ns.map_or(u64::MAX, |ns| now_ns.saturating_add(ns));
        let id = (self.calls).begin(rpc, stream, (method, proved), deadline_ns, now_ns);
        if method.administrates() {
            let identity = self.context.identities.get(proved.key);
            self.calls.set_audited(id, identity);
        }
        if timeout_ns == Some(0) {
            // Before anything is done for it: what is done within this tick would be answered.
            return self.end(rpc, io, id, deadline_exceeded());
        }
        if deadline_ns != u64::MAX {
            self.calls.note_deadline(id);
        }
        let metadata = CapturedMetadata::of(&rpc.connection, method);
        self.step(rpc, &mut io.output, id, |call, shared, step| {
            let head = CallHead {
                deadline_ns,
                metadata: &metadata,
            };
            *call = start(&head, shared, step);
        });
        if end {
            self.step(rpc, &mut io.output, id, |call, shared, step| {
                call.half_closed(shared, step)
            });
        }
    }

    fn message(&mut self, rpc: &mut RpcState, io: &mut Io, stream: StreamKey, last: bool) {
        let Some(id) = self.calls.of_stream(rpc, stream) else {
            return;
        };
        let message = rpc.connection.take_message();
        let bytes = message.bytes(io.input.bytes());
        self.calls.note_request(&self.context, rpc, id, bytes);
        if bytes.len() >= limits::LONG_REQUEST_BYTES && self.calls.has_long_request(id) {
            return self.defer_request(rpc, io, (id, stream), message, last);
        }
        let by_itself = message.shared();
        let again = self.step_with(
            rpc,
            &mut io.output,
            (id, by_itself),
            |call, shared, step| {
                call.message(bytes, last, shared, step);
                step.note_denied(bytes);
            },
        );
        if again == StepAgain::Message {
            let (input, output) = (io.input.bytes(), &mut io.output);
            return (rpc.connection).put_back(stream, message, input, last, output);
        }
        rpc.connection.give_back(message);
        if !last {
            rpc.stream(stream, &mut io.output).release();
        }
    }

    /// Some of a message of a call that takes parts.
    fn part(&mut self, rpc: &mut RpcState, io: &mut Io, stream: StreamKey, left: u32, last: bool) {
        let Some(id) = self.calls.of_stream(rpc, stream) else {
            return;
        };
        let part = rpc.connection.take_message();
        let bytes = part.bytes(io.input.bytes());
        let again = self.step(rpc, &mut io.output, id, |call, shared, step| {
            call.part(bytes, left as usize, last, shared, step)
        });
        if again == StepAgain::WholeMessage {
            let (input, output) = (io.input.bytes(), &mut io.output);
            return (rpc.connection).gather_message(stream, part, input, output);
        }
        rpc.connection.give_back(part);
        if !last {
            rpc.stream(stream, &mut io.output).release();
        }
    }

    fn half_closed(&mut self, rpc: &mut RpcState, io: &mut Io, stream: StreamKey) {
        self.answer_plain(rpc, io, stream);
        self.step_of(rpc, io, stream, |call, shared, step| {
            call.half_closed(shared, step)
        });
    }

    /// The body of a plain request that is no call is thrown away.
    fn body(&mut self, rpc: &mut RpcState, io: &mut Io, stream: StreamKey, last: bool) {
        if self.calls.of_stream(rpc, stream).is_some() {
            return self.message(rpc, io, stream, last);
        }
        rpc.stream(stream, &mut io.output).release();
        if last {
            self.answer_plain(rpc, io, stream);
        }
    }

    /// Answers a plain request that is complete.
    fn answer_plain(&self, rpc: &mut RpcState, io: &mut Io, stream: StreamKey) {
        let mut stream = rpc.stream(stream, &mut io.output);
        if let Some(answer) = FixedResponse::from_token(stream.token()) {
            answer.send(&mut stream, &self.context.settings.about_body);
        }
    }
}

/// Whose call may begin.
struct AdmittedCaller {
    proved: Proved,
    /// Who it is to the account; `None`: somebody of this machine without an identity.
    counted: Option<CountedCaller>,
}

/// A call whose caller may not begin it.
struct RefusedCaller {
    status: Status,
    reason: RefusedFor,
    /// It came with a token that is not good.
    has_wrong_token: bool,
    /// Whose call it is.
    caller: Option<IdentityKey>,
    /// What the connection shows, and is bound to nobody.
    shown: Option<Binding>,
}

impl RefusedCaller {
    /// `names`: whom the certificate of the connection proves.
    #[cold]
    fn without_identity(why: Unauthenticated, names: &[&str]) -> RefusedCaller {
        RefusedCaller {
            status: match why {
                Unauthenticated::Ambiguous => ambiguous(names),
                why => why.status(),
            },
            reason: why.into(),
            has_wrong_token: why.is_wrong_token(),
            caller: None,
            shown: None,
        }
    }

    #[cold]
    fn beyond_share(caller: IdentityKey, reason: ShedFor) -> RefusedCaller {
        RefusedCaller {
            status: admission::status(reason),
            reason: reason.into(),
            has_wrong_token: false,
            caller: Some(caller),
            shown: None,
        }
    }

    /// `shown`: by what the peer of the connection could have been known, and was not.
    #[cold]
    fn without_right(
        caller: IdentityKey,
        status: Status,
        shown: Option<&Binding>,
    ) -> RefusedCaller {
        let status = match (status.code(), shown) {
            (Code::Unauthenticated, Some(shown)) => unbound(shown),
            _ => status,
        };
        let reason = match status.code() {
            Code::Unauthenticated => RefusedFor::TokenMissing,
            _ => RefusedFor::PermissionDenied,
        };
        RefusedCaller {
            status,
            reason,
            has_wrong_token: false,
            caller: Some(caller),
            shown: shown.cloned(),
        }
    }
}

#[inline(always)]
fn route(connection: &RpcConnection) -> Option<Method> {
    match authorization::remembered(connection) {
        Some(route) => Some(Method::ALL[usize::from(route.method())]),
        None => find_route(connection),
    }
}

#[inline(never)]
fn find_route(connection: &RpcConnection) -> Option<Method> {
    match connection.head().path() {
        path if connection.is_framed() => service::method::route_of_any(path),
        path => service::route(path),
    }
}

#[cold]
fn no_such_method(path: &[u8]) -> Status {
    Status::unimplemented(format!("there is no method {} here", lossy(path)))
}

/// Returns as much of a path as goes into a message, without tokens.
fn lossy(path: &[u8]) -> String {
    let text = String::from_utf8_lossy(path);
    shortened_without_tokens(&text, limits::PATH_IN_MESSAGE_CHARACTERS).0
}
