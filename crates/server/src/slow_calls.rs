//! What calls of a loop wait for: a line in the slow-call log for each that took longer than it
//! should, and spans for those that are traced.
//!
//! Between two steps a call waits for one thing. Each step reads the clock, and adds the time since
//! the last one to what the call waited for. Without a threshold this is done for traced calls
//! alone, and without tracing for none: all that steps call is out of line, so that they are what
//! they are without it.

use net::PeerAddress;
use service::identities::{IdentityKey, IdentityTable};
use service::request_subject::RequestSubject;
use service::{CallKind, Code, Method};
use wire::StreamKey;

use crate::audit_record::AuditCaller;
use crate::clock::LoopClock;
use crate::limits;
use crate::rpc_connection::RpcConnection;
use crate::settings::{Log, LoopSettings};
use crate::slow_call_record::{PhaseTimes, SlowCall, SlowCallKeys, SlowCallLog, SlowCallRule};
use crate::spans::{CallSpan, CallerTrace, RunningSpan, SpanMethod, SpanSampler, SpanSink};

/// What a call waits for between two steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum WaitCause {
    /// Its client, a timer, a task: nothing that is shown.
    #[default]
    Other,
    Read,
    Commit,
    Send,
}

/// What is known of a call that runs.
#[derive(Debug, Default)]
struct TrackedCall {
    /// Somebody wants to know.
    is_tracked: bool,
    span: Option<Box<RunningSpan>>,
    /// When the last byte of its request was read.
    arrived_ns: u64,
    /// When its last step ended.
    since_ns: u64,
    waits_for: WaitCause,
    phases: PhaseTimes,
    /// How long the sync of the commit took that comes with the next step.
    sync_ns: u64,
    /// Its request has come as a whole.
    has_request: bool,
    /// It waits for what may never come.
    is_endless: bool,
    database: Option<String>,
    key_bytes: Option<usize>,
    key_prefix: Vec<u8>,
}

impl TrackedCall {
    fn account(&mut self, now_ns: u64) {
        let waited_ns = now_ns.saturating_sub(self.since_ns);
        self.since_ns = now_ns;
        let sync_ns = std::mem::take(&mut self.sync_ns).min(waited_ns);
        match self.waits_for {
            WaitCause::Other => {}
            WaitCause::Read => self.phases.read_ns += waited_ns,
            WaitCause::Commit => {
                self.phases.sync_ns += sync_ns;
                self.phases.commit_ns += waited_ns - sync_ns;
            }
            WaitCause::Send => self.phases.send_ns += waited_ns,
        }
        self.waits_for = WaitCause::Other;
    }
}

/// The calls of a loop, by their slots in its table, which bound how many there are.
#[derive(Debug)]
pub(crate) struct SlowCalls {
    /// `None`: there is no slow-call log.
    rule: Option<SlowCallRule>,
    /// `None`: no call is traced.
    sampler: Option<SpanSampler>,
    tracked: Vec<TrackedCall>,
}

/// How a call has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlowCallEnd {
    pub method: Method,
    pub code: Code,
    /// Whose it was.
    pub identity: IdentityKey,
    /// Its answer waits on this stream.
    pub unsent: Option<StreamKey>,
}

impl SlowCallEnd {
    pub fn of(
        (method, identity): (Method, IdentityKey),
        code: Code,
        unsent: Option<StreamKey>,
    ) -> SlowCallEnd {
        SlowCallEnd {
            method,
            code,
            identity,
            unsent,
        }
    }
}

/// A call that has ended.
#[derive(Debug)]
struct EndedSlowCall {
    method: Method,
    code: Code,
    identity: IdentityKey,
    call: TrackedCall,
    /// It comes into the log if it takes long enough.
    may_be_slow: bool,
}

/// Calls of one connection that have ended, and whose answers wait for the peer: at most as many as
/// it has streams.
#[derive(Debug, Default)]
pub(crate) struct UnsentSlowCalls(Vec<(StreamKey, EndedSlowCall)>);

/// Where lines and spans go, what lines take the names of callers from, and spans their time.
#[derive(Clone, Copy)]
pub(crate) struct SlowCallSink<'a> {
    pub all: Option<&'a SlowCallLog>,
    pub spans: Option<&'a dyn SpanSink>,
    pub log: &'a dyn Log,
    pub identities: &'a IdentityTable,
    pub clock: &'a LoopClock,
}

impl SlowCalls {
    /// Returns what the settings ask for, if they ask for something.
    pub fn of(settings: &LoopSettings) -> Option<Box<SlowCalls>> {
        let rule = settings.slow_calls.as_ref().map(|log| log.rule);
        let sampler = settings.spans.as_ref().map(|spans| spans.sampler());
        let is_wanted = rule.is_some() || sampler.is_some();
        is_wanted.then(|| Box::new(SlowCalls::new(rule, sampler)))
    }

    fn new(rule: Option<SlowCallRule>, sampler: Option<SpanSampler>) -> SlowCalls {
        SlowCalls {
            rule,
            sampler,
            tracked: Vec::new(),
        }
    }

    /// Returns whether somebody wants to know of the call in a slot.
    pub fn is_tracked(&self, slot: u32) -> bool {
        let call = self.tracked.get(slot as usize);
        call.is_some_and(|call| call.is_tracked)
    }

    /// A call begins in a slot, on a connection from which bytes were read last at `received_ns`,
    /// with the request head that is the last one of `connection`.
    #[cold]
    #[inline(never)]
    pub fn begin(
        &mut self,
        (slot, method): (u32, Method),
        (connection, received_ns): (&RpcConnection, u64),
        now_ns: u64,
    ) {
        let caller = CallerTrace::of(&connection.head());
        let began_ns = received_ns.min(now_ns);
        let span = match &mut self.sampler {
            Some(sampler) => sampler.sample(caller, method, began_ns),
            // For the slow-call log alone.
            None => caller.into_span(began_ns),
        };
        self.begin_with(slot, span, now_ns);
    }

    fn begin_with(&mut self, slot: u32, span: Option<RunningSpan>, now_ns: u64) {
        let slot = slot as usize;
        let is_tracked = self.rule.is_some() || span.is_some();
        if slot >= self.tracked.len() {
            self.tracked.resize_with(slot + 1, TrackedCall::default);
        }
        if let Some(call) = self.tracked.get_mut(slot) {
            if !is_tracked && !call.is_tracked {
                return;
            }
            *call = TrackedCall {
                is_tracked,
                span: span.map(Box::new),
                arrived_ns: now_ns,
                since_ns: now_ns,
                ..TrackedCall::default()
            };
        }
    }

    fn call(&mut self, slot: u32) -> Option<&mut TrackedCall> {
        self.tracked.get_mut(slot as usize)
    }

    /// The request of a call is taken up, the last byte of which was read at `arrived_ns`. It may
    /// be put back, and taken up again.
    #[cold]
    #[inline(never)]
    pub fn request(
        &mut self,
        slot: u32,
        (method, message): (Method, &[u8]),
        arrived_ns: u64,
        now_ns: u64,
    ) {
        let keys = self.rule.map_or(SlowCallKeys::Off, |rule| rule.keys);
        let Some(call) = self.call(slot) else {
            return;
        };
        if !call.has_request {
            call.has_request = true;
            call.arrived_ns = arrived_ns.min(now_ns);
            let subject = RequestSubject::of(method, message);
            let name = |name: &str| {
                name.chars()
                    .take(limits::SLOW_CALL_NAME_CHARACTERS)
                    .collect()
            };
            call.database = subject.database.map(name);
            call.key_bytes = subject.key.map(<[u8]>::len);
            if keys == SlowCallKeys::Off {
                call.key_bytes = None;
            } else if let (SlowCallKeys::Prefix, Some(key)) = (keys, subject.key) {
                let bytes = key.len().min(limits::SLOW_CALL_KEY_BYTES);
                call.key_prefix.extend(key.iter().take(bytes));
            }
        }
        call.phases.queue_ns = now_ns.saturating_sub(call.arrived_ns);
        call.since_ns = now_ns;
    }

    /// A step of a call begins.
    #[cold]
    #[inline(never)]
    pub fn step_begins(&mut self, slot: u32, now_ns: u64) {
        if let Some(call) = self.call(slot) {
            call.account(now_ns);
        }
    }

    /// From now on a call waits.
    #[cold]
    #[inline(never)]
    pub fn waits(&mut self, slot: u32, cause: WaitCause, now_ns: u64) {
        if let Some(call) = self.call(slot) {
            call.since_ns = now_ns;
            call.waits_for = cause;
        }
    }

    /// A call waits for what may never come: it is not slow, however long that takes.
    pub fn set_endless(&mut self, slot: u32) {
        if let Some(call) = self.call(slot) {
            call.is_endless = true;
        }
    }

    /// The commit of a call has its outcome, for which it waited for a sync.
    #[cold]
    #[inline(never)]
    pub fn synced(&mut self, slot: u32, sync_ns: u64) {
        if let Some(call) = self.call(slot) {
            call.sync_ns = sync_ns;
        }
    }

    /// A call of a method or path is refused before it begins: hands its span over if it has one.
    /// The head is the last one of `connection`, whose bytes were read last at `received_ns`.
    #[cold]
    pub fn refused(
        &mut self,
        (method, code): (SpanMethod<'_>, Code),
        (connection, received_ns): (&RpcConnection, u64),
        to: SlowCallSink<'_>,
        peer: &PeerAddress,
        now_ns: u64,
    ) {
        let (Some(sampler), Some(sink)) = (&mut self.sampler, to.spans) else {
            return;
        };
        let caller = CallerTrace::of(&connection.head());
        if let Some(span) = sampler.refused(caller, received_ns.min(now_ns), now_ns) {
            to.record(
                sink,
                &span,
                (method, None),
                peer,
                (code, PhaseTimes::default()),
                now_ns,
            );
        }
    }

    /// A call has ended: logs it if it was slow, hands its span over if it has one, and keeps it in
    /// view if its answer waits.
    #[cold]
    #[inline(never)]
    pub fn ended(
        &mut self,
        slot: u32,
        end: SlowCallEnd,
        to: SlowCallSink<'_>,
        (peer, unsent): (&PeerAddress, &mut UnsentSlowCalls),
        now_ns: u64,
    ) {
        let threshold_ns = self.rule.map(|rule| rule.threshold_ns);
        let Some(call) = self.call(slot) else {
            return;
        };
        call.account(now_ns);
        let took_ns = now_ns.saturating_sub(call.arrived_ns);
        let is_slow = threshold_ns.is_some_and(|ns| end.unsent.is_some() || took_ns >= ns);
        let may_be_slow = is_slow && !call.is_endless && is_looked_at(end.method);
        if !may_be_slow && call.span.is_none() {
            return;
        }
        let mut ended = EndedSlowCall {
            method: end.method,
            code: end.code,
            identity: end.identity,
            call: std::mem::take(call),
            may_be_slow,
        };
        match end.unsent {
            None => to.take(peer, &ended, now_ns),
            Some(stream) => {
                ended.call.waits_for = WaitCause::Send;
                unsent.0.push((stream, ended));
            }
        }
    }
}

/// Returns whether a call of a method ends by itself: one whose client sends as it likes does not.
fn is_looked_at(method: Method) -> bool {
    use CallKind::{ServerStreaming, Unary};
    matches!(method.kind(), Some(Unary | ServerStreaming))
}

impl UnsentSlowCalls {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Logs those whose answers were taken, or all of a connection that is gone.
    #[cold]
    pub fn settle(
        &mut self,
        to: SlowCallSink<'_>,
        (peer, connection): (&PeerAddress, Option<&RpcConnection>),
        now_ns: u64,
    ) {
        let is_sent = |(stream, _): &mut (StreamKey, EndedSlowCall)| {
            connection.is_none_or(|connection| !connection.has_unsent(*stream))
        };
        for (_, mut ended) in self.0.extract_if(.., is_sent) {
            ended.call.account(now_ns);
            to.take(peer, &ended, now_ns);
        }
    }
}

impl SlowCallSink<'_> {
    /// Takes a call whose answer was handed over, or given up.
    #[cold]
    fn take(self, peer: &PeerAddress, ended: &EndedSlowCall, now_ns: u64) {
        if let (Some(sink), Some(span)) = (self.spans, &ended.call.span) {
            let called = (
                SpanMethod::Known(ended.method),
                ended.call.database.as_deref(),
            );
            self.record(
                sink,
                span,
                called,
                peer,
                (ended.code, ended.call.phases),
                now_ns,
            );
        }
        if let Some(all) = self.all.filter(|_| ended.may_be_slow) {
            self.log_call(all, peer, ended, now_ns);
        }
    }

    /// Hands a span over.
    fn record(
        self,
        sink: &dyn SpanSink,
        span: &RunningSpan,
        (method, database): (SpanMethod<'_>, Option<&str>),
        peer: &PeerAddress,
        (code, phases): (Code, PhaseTimes),
        now_ns: u64,
    ) {
        let end_unix_ns = self.clock.wall_us().saturating_mul(1_000);
        let took_ns = now_ns.saturating_sub(span.began_ns);
        sink.record(&CallSpan {
            context: span.context,
            trace_state: span.trace_state.as_ref(),
            parent: span.parent,
            method,
            database,
            peer,
            code,
            start_unix_ns: end_unix_ns.saturating_sub(took_ns),
            end_unix_ns,
            phases,
        });
    }

    /// Logs a call if it was slow.
    fn log_call(self, all: &SlowCallLog, peer: &PeerAddress, ended: &EndedSlowCall, now_ns: u64) {
        let took_ns = now_ns.saturating_sub(ended.call.arrived_ns);
        if took_ns < all.rule.threshold_ns {
            return;
        }
        let Some(suppressed) = all.allow(now_ns) else {
            return;
        };
        let call = &ended.call;
        let database = (call.database.as_deref()).map(|name| name.escape_debug().to_string());
        let prefix = call.key_prefix.escape_ascii().to_string();
        self.log.slow_call(&SlowCall {
            method: ended.method,
            database: database.as_deref(),
            key_bytes: call.key_bytes,
            key_prefix: (all.rule.keys == SlowCallKeys::Prefix && call.key_bytes.is_some())
                .then_some(&prefix),
            caller: AuditCaller::of(self.identities.get_former(ended.identity)),
            peer,
            code: ended.code,
            traced: call.span.as_ref().map(|span| span.context),
            took_ns,
            phases: call.phases,
            suppressed,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pair::Pair;

    const MS: u64 = 1_000_000;
    const RULE: SlowCallRule = SlowCallRule {
        threshold_ns: 10 * MS,
        keys: SlowCallKeys::Prefix,
    };

    /// The phases of a call to which these things happen.
    fn phases(happen: impl FnOnce(&mut SlowCalls)) -> PhaseTimes {
        let mut calls = SlowCalls::new(Some(RULE), None);
        calls.begin_with(2, None, 0);
        happen(&mut calls);
        calls.call(2).expect("it has begun").phases
    }

    #[test]
    fn each_wait_counts_for_what_was_waited_for() {
        let found = phases(|calls| {
            calls.request(2, (Method::Get, b""), 5, 8);
            calls.waits(2, WaitCause::Read, 10);
            calls.step_begins(2, 110);
            calls.waits(2, WaitCause::Commit, 120);
            calls.synced(2, 700);
            calls.step_begins(2, 1_120);
            calls.waits(2, WaitCause::Send, 1_120);
            calls.step_begins(2, 1_150);
            calls.waits(2, WaitCause::Other, 1_150);
            calls.step_begins(2, 9_000);
        });
        let expected = PhaseTimes {
            queue_ns: 3,
            read_ns: 100,
            commit_ns: 300,
            sync_ns: 700,
            send_ns: 30,
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn a_sync_counts_for_no_more_than_was_waited_and_once() {
        let found = phases(|calls| {
            for at in [0, 100] {
                calls.waits(2, WaitCause::Commit, at);
                if at == 0 {
                    calls.synced(2, 1_000);
                }
                calls.step_begins(2, at + 40);
            }
        });
        assert_eq!((found.sync_ns, found.commit_ns), (40, 40));
    }

    #[test]
    fn a_request_that_was_put_back_waits_since_it_has_come() {
        let found = phases(|calls| {
            calls.request(2, (Method::Get, b""), 5, 8);
            calls.request(2, (Method::Get, b""), 90, 105);
        });
        assert_eq!(found.queue_ns, 100);
    }

    #[test]
    fn a_call_has_nothing_of_the_one_that_had_its_slot_before() {
        let mut calls = SlowCalls::new(Some(RULE), None);
        calls.begin_with(2, None, 0);
        calls.request(2, (Method::Get, b"\x0a\x01d\x12\x01k"), 5, 8);
        calls.waits(2, WaitCause::Read, 10);
        calls.step_begins(2, 20);
        calls.waits(2, WaitCause::Commit, 20);
        calls.synced(2, 7);
        calls.set_endless(2);
        calls.begin_with(2, None, 30);
        let call = calls.call(2).expect("it has begun");
        assert!(call.is_tracked && !call.is_endless && !call.has_request);
        assert_eq!((call.arrived_ns, call.since_ns, call.sync_ns), (30, 30, 0));
        assert_eq!(call.waits_for, WaitCause::Other);
        assert_eq!(call.phases, PhaseTimes::default());
        assert_eq!((&call.database, call.key_bytes), (&None, None));
        assert!(call.key_prefix.is_empty());
    }

    #[test]
    fn as_much_of_a_key_is_kept_as_the_rule_says() {
        let get = b"\x0a\x01d\x12\x03key";
        for (keys, length, prefix) in [
            (SlowCallKeys::Off, None, None),
            (SlowCallKeys::Length, Some(3), None),
            (SlowCallKeys::Prefix, Some(3), Some("key")),
        ] {
            let rule = SlowCallRule { keys, ..RULE };
            let mut calls = SlowCalls::new(Some(rule), None);
            calls.begin_with(2, None, 0);
            calls.request(2, (Method::Get, get), 5, 8);
            let call = calls.call(2).expect("it has begun");
            assert_eq!(call.key_bytes, length, "{keys:?}");
            assert_eq!(call.key_prefix, prefix.unwrap_or_default().as_bytes());
            let mut pair = Pair::with_slow_calls(rule);
            pair.take_time(10 * MS);
            for _ in 0..2 {
                pair.call("/pelton.v1.KeyValue/Get", get);
                pair.turn();
                let (lines, of) = (slow(&pair), format!("Get of Some(\"d\") {prefix:?} by"));
                assert!(lines.len() == 1 && lines[0].starts_with(&of), "{lines:?}");
            }
        }
    }

    #[test]
    fn a_slot_without_a_call_is_passed_over() {
        let mut calls = SlowCalls::new(Some(RULE), None);
        calls.step_begins(7, 1);
        calls.synced(7, 1);
        calls.waits(7, WaitCause::Send, 1);
        calls.set_endless(7);
        calls.request(7, (Method::Get, b""), 1, 1);
        assert!(calls.tracked.is_empty());
    }

    fn slow(pair: &Pair) -> Vec<String> {
        let mut said = pair.said.lock().expect("one thread");
        said.drain(..)
            .filter(|line| line.contains("was slow"))
            .collect()
    }

    #[test]
    fn a_call_from_the_threshold_on_is_logged() {
        let mut pair = Pair::with_slow_calls(RULE);
        for delay_ms in [9, 10] {
            for _ in 0..2 {
                pair.call("/pelton.v1.Echo/Unary", &[0x18, delay_ms]);
                pair.turn();
                pair.now_ns += u64::from(delay_ms) * MS;
                pair.turn();
            }
            let expected = match delay_ms {
                9 => vec![],
                _ => vec!["EchoUnary of None None by (anonymous) was slow, 10000000 ns: Ok, 0"; 2],
            };
            assert_eq!(slow(&pair), expected);
        }
    }

    #[test]
    fn a_slow_call_names_its_trace_also_if_no_spans_are_made() {
        let mut pair = Pair::with_slow_calls(RULE);
        let caller = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let unsampled = caller.replace("-01", "-00");
        for (value, expected) in [
            (Some(caller), format!("Ok, 0, of {caller}")),
            (Some(unsampled.as_str()), "Ok, 0".to_owned()),
            (Some("nonsense"), "Ok, 0".to_owned()),
            (None, "Ok, 0".to_owned()),
        ] {
            pair.call_traced("/pelton.v1.Echo/Unary", &[0x18, 10], value);
            pair.turn();
            pair.now_ns += 10 * MS;
            pair.turn();
            let lines = slow(&pair);
            assert!(
                lines.len() == 1 && lines[0].ends_with(&expected),
                "{lines:?}"
            );
        }
    }

    #[test]
    fn lines_beyond_the_bound_are_counted_in_the_next_one() {
        let mut pair = Pair::with_slow_calls(RULE);
        let calls = limits::SLOW_CALLS_BURST + 30;
        for round in 0..2 {
            for _ in 0..calls {
                pair.call("/pelton.v1.Echo/Unary", &[0x18, 10]);
            }
            pair.turn();
            pair.now_ns += 10 * MS;
            pair.turn();
            let lines = slow(&pair);
            assert_eq!(lines.len() as u64, limits::SLOW_CALLS_BURST);
            let suppressed = if round == 0 { 0 } else { 30 };
            assert!(
                lines[0].ends_with(&format!("Ok, {suppressed}")),
                "{lines:?}"
            );
            pair.now_ns += limits::SLOW_CALLS_BURST * limits::SLOW_CALL_INTERVAL_MS * MS;
        }
    }

    #[test]
    fn a_call_that_waits_for_what_may_never_come_is_not_slow() {
        let mut pair = Pair::with_slow_calls(RULE);
        pair.call("/grpc.health.v1.Health/Watch", b"");
        pair.call("/pelton.v1.KeyValue/Watch", b"");
        pair.turn();
        pair.now_ns += 1_000 * MS;
        pair.turn();
        pair.close();
        pair.turn();
        assert_eq!(slow(&pair), [""; 0]);
    }

    #[test]
    fn what_a_caller_writes_is_escaped_and_bounded() {
        let mut pair = Pair::with_slow_calls(RULE);
        let mut get = vec![0x0a, 100, b'\n'];
        get.extend([b'd'; 99]);
        get.extend([0x12, 100, b'\n', 0xff]);
        get.extend([b'k'; 98]);
        pair.take_time(10 * MS);
        for _ in 0..2 {
            pair.call("/pelton.v1.KeyValue/Get", &get);
            pair.turn();
            let lines = slow(&pair);
            let (name, key) = ("d".repeat(63), "k".repeat(30));
            let of = format!("Get of Some(\"\\\\n{name}\") Some(\"\\\\n\\\\xff{key}\") by");
            assert!(lines.len() == 1 && lines[0].starts_with(&of), "{lines:?}");
        }
    }
}
