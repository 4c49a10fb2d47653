//! The slow-call log: what each call of a loop waits for, and a line for each that took longer than
//! it should.
//!
//! Between two steps a call waits for one thing. Each step reads the clock, and adds the time since
//! the last one to what the call waited for. Without a threshold nothing of this is done: all that
//! steps call is out of line, so that they are what they are without it.

use net::PeerAddress;
use service::identities::{IdentityKey, IdentityTable};
use service::request_subject::RequestSubject;
use service::{CallKind, Code, Method};
use wire::StreamKey;

use crate::audit_record::AuditCaller;
use crate::limits;
use crate::rpc_connection::RpcConnection;
use crate::settings::Log;
use crate::slow_call_record::{PhaseTimes, SlowCall, SlowCallKeys, SlowCallLog, SlowCallRule};

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
    rule: SlowCallRule,
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
}

/// Calls of one connection that have ended, and whose answers wait for the peer: at most as many as
/// it has streams.
#[derive(Debug, Default)]
pub(crate) struct UnsentSlowCalls(Vec<(StreamKey, EndedSlowCall)>);

/// Where lines go, and what they take the names of callers from.
#[derive(Clone, Copy)]
pub(crate) struct SlowCallSink<'a> {
    pub all: &'a SlowCallLog,
    pub log: &'a dyn Log,
    pub identities: &'a IdentityTable,
}

impl SlowCalls {
    pub fn new(rule: SlowCallRule) -> SlowCalls {
        SlowCalls {
            rule,
            tracked: Vec::new(),
        }
    }

    /// A call begins in a slot.
    #[cold]
    #[inline(never)]
    pub fn begin(&mut self, slot: u32, now_ns: u64) {
        let slot = slot as usize;
        if slot >= self.tracked.len() {
            self.tracked.resize_with(slot + 1, TrackedCall::default);
        }
        if let Some(call) = self.tracked.get_mut(slot) {
            *call = TrackedCall {
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
        let keys = self.rule.keys;
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

    /// A call has ended: logs it if it was slow, and keeps it in view if its answer waits.
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
        let threshold_ns = self.rule.threshold_ns;
        let Some(call) = self.call(slot) else {
            return;
        };
        call.account(now_ns);
        let is_slow = now_ns.saturating_sub(call.arrived_ns) >= threshold_ns;
        if call.is_endless || !is_looked_at(end.method) || end.unsent.is_none() && !is_slow {
            return;
        }
        let mut ended = EndedSlowCall {
            method: end.method,
            code: end.code,
            identity: end.identity,
            call: std::mem::take(call),
        };
        match end.unsent {
            None => log_call(to, peer, &ended, now_ns),
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
            log_call(to, peer, &ended, now_ns);
        }
    }
}

/// Logs a call whose answer was handed over, or given up, if it was slow.
#[cold]
fn log_call(
    SlowCallSink {
        all,
        log,
        identities,
    }: SlowCallSink<'_>,
    peer: &PeerAddress,
    ended: &EndedSlowCall,
    now_ns: u64,
) {
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
    log.slow_call(&SlowCall {
        method: ended.method,
        database: database.as_deref(),
        key_bytes: call.key_bytes,
        key_prefix: (all.rule.keys == SlowCallKeys::Prefix && call.key_bytes.is_some())
            .then_some(&prefix),
        caller: AuditCaller::of(identities.get_former(ended.identity)),
        peer,
        code: ended.code,
        took_ns,
        phases: call.phases,
        suppressed,
    });
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
        let mut calls = SlowCalls::new(RULE);
        calls.begin(2, 0);
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
    fn a_slot_without_a_call_is_passed_over() {
        let mut calls = SlowCalls::new(RULE);
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
