//! Keeps account of one connection: its calls, and what its time goes to. Knows no protocol.

use std::collections::HashMap;

use super::call::{CallEnd, TappedCall};
use super::direction::TapDirection;
use super::limits::{GAP_NS, WATCHED_CALLS, WINDOW_ANSWERS};
use super::time_use::{HoldClock, RelayHold, TimeTable, TimeUse};
use super::totals::TapTotals;

/// A call that is under way.
#[derive(Debug)]
struct OpenCall {
    method: usize,
    begin_ns: u64,
    request_end_ns: Option<u64>,
    response_begin_ns: Option<u64>,
    request_bytes: u64,
    response_bytes: u64,
}

/// What a connection did, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionFigures {
    /// Calls that began.
    pub calls: u64,
    /// The most that were open at a time.
    pub most_open: usize,
    /// The last limit of the server on calls that are open at a time.
    pub limit: Option<u32>,
    /// What its time went to, from its first call to its last sign of progress.
    pub times: TimeTable,
    /// Time with as many calls open as the server allows.
    pub at_limit_ns: u64,
    /// Open calls, added up over time: divided by the time, how many were open on average.
    pub open_call_ns: u128,
}

impl ConnectionFigures {
    /// Adds all of another connection.
    pub fn add(&mut self, other: &ConnectionFigures) {
        self.calls += other.calls;
        self.most_open = self.most_open.max(other.most_open);
        self.limit = self.limit.or(other.limit);
        self.times.add_all(&other.times);
        self.at_limit_ns += other.at_limit_ns;
        self.open_call_ns += other.open_call_ns;
    }

    /// Calls that were open on average.
    pub fn mean_open(&self) -> f64 {
        match self.times.total_ns() {
            0 => 0.0,
            total => self.open_call_ns as f64 / total as f64,
        }
    }
}

/// So many answers in a row, and how many calls were open meanwhile. Not for each answer by itself:
/// of calls that come and go together the last ones are open alone for a moment.
#[derive(Clone, Copy, Debug, Default)]
struct ThroughputWindow {
    answers: u64,
    ns: u64,
    open_call_ns: u128,
}

impl ThroughputWindow {
    /// Time passes with so many calls open; without any it does not count.
    fn pass(&mut self, span_ns: u64, open: usize) {
        if open > 0 {
            self.ns += span_ns;
            self.open_call_ns += u128::from(span_ns) * open as u128;
        }
    }

    /// The server has ended a call. A full window is counted.
    fn answer(&mut self, totals: &mut TapTotals) {
        self.answers += 1;
        if self.answers >= WINDOW_ANSWERS {
            let window = std::mem::take(self);
            let open = window.open_call_ns as f64 / window.ns.max(1) as f64;
            let class = totals.open_class(open);
            class.ns += window.ns;
            class.answers += window.answers;
        }
    }
}

/// Calls since the last gap.
#[derive(Clone, Copy, Debug, Default)]
struct Burst {
    begin_ns: u64,
    calls: u64,
}

/// The account of one connection. `key` tells its calls apart: the stream, or the correlation id.
#[derive(Debug)]
pub(super) struct ConnectionLedger {
    index: usize,
    open: HashMap<u64, OpenCall>,
    /// Open calls whose request is whole.
    whole_requests: usize,
    /// Calls that ended since the client last made progress.
    answers_since_client: u64,
    /// The last sign of progress, in either direction; none before the first call.
    last: Option<(u64, TapDirection)>,
    window: ThroughputWindow,
    holds: [HoldClock; RelayHold::ALL.len()],
    burst: Burst,
    figures: ConnectionFigures,
    is_over: bool,
}

impl ConnectionLedger {
    /// The account of the connection that is the `index`th one, from 0.
    pub(super) fn new(index: usize) -> ConnectionLedger {
        ConnectionLedger {
            index,
            open: HashMap::new(),
            whole_requests: 0,
            answers_since_client: 0,
            last: None,
            window: ThroughputWindow::default(),
            holds: [HoldClock::default(); RelayHold::ALL.len()],
            burst: Burst::default(),
            figures: ConnectionFigures::default(),
            is_over: false,
        }
    }

    pub(super) fn index(&self) -> usize {
        self.index
    }

    /// Whether a call is under way.
    pub(super) fn has_open_calls(&self) -> bool {
        !self.open.is_empty()
    }

    pub(super) fn figures(&self) -> &ConnectionFigures {
        &self.figures
    }

    /// The server allows so many calls at a time.
    pub(super) fn set_limit(&mut self, limit: u32) {
        self.figures.limit = Some(limit);
    }

    /// From now on something holds bytes, or does so no more.
    pub(super) fn set_hold(&mut self, hold: RelayHold, is_on: bool, now_ns: u64) {
        for (clock, which) in self.holds.iter_mut().zip(RelayHold::ALL) {
            if which == hold {
                clock.set(is_on, now_ns);
            }
        }
    }

    /// A call begins.
    pub(super) fn begin(&mut self, totals: &mut TapTotals, key: u64, method: &[u8], now_ns: u64) {
        self.progress(totals, TapDirection::ToServer, now_ns);
        totals.begun += 1;
        self.figures.calls += 1;
        self.burst.calls += 1;
        if self.open.len() >= WATCHED_CALLS {
            totals.unwatched += 1;
            return;
        }
        let call = OpenCall {
            method: totals.method(method),
            begin_ns: now_ns,
            request_end_ns: None,
            response_begin_ns: None,
            request_bytes: 0,
            response_bytes: 0,
        };
        if let Some(same) = self.open.insert(key, call) {
            // A peer that uses a key twice; the first call is not heard of again.
            self.whole_requests -= usize::from(same.request_end_ns.is_some());
        }
        self.figures.most_open = self.figures.most_open.max(self.open.len());
    }

    /// Bytes of a call's messages came.
    pub(super) fn body(
        &mut self,
        totals: &mut TapTotals,
        direction: TapDirection,
        key: u64,
        bytes: u64,
        now_ns: u64,
    ) {
        self.progress(totals, direction, now_ns);
        let Some(call) = self.open.get_mut(&key) else {
            return;
        };
        match direction {
            TapDirection::ToServer => call.request_bytes += bytes,
            TapDirection::ToClient => {
                call.response_bytes += bytes;
                call.response_begin_ns.get_or_insert(now_ns);
            }
        }
    }

    /// The request of a call is whole.
    pub(super) fn request_ends(&mut self, totals: &mut TapTotals, key: u64, now_ns: u64) {
        self.progress(totals, TapDirection::ToServer, now_ns);
        if let Some(call) = self.open.get_mut(&key)
            && call.request_end_ns.is_none()
        {
            call.request_end_ns = Some(now_ns);
            self.whole_requests += 1;
        }
    }

    /// The response of a call begins.
    pub(super) fn response_begins(&mut self, totals: &mut TapTotals, key: u64, now_ns: u64) {
        self.body(totals, TapDirection::ToClient, key, 0, now_ns);
    }

    /// A call ends, by what whoever sends in this direction has sent.
    pub(super) fn end(
        &mut self,
        totals: &mut TapTotals,
        direction: TapDirection,
        key: u64,
        end: CallEnd,
        now_ns: u64,
    ) {
        self.progress(totals, direction, now_ns);
        if let Some(call) = self.open.remove(&key) {
            if direction == TapDirection::ToClient {
                self.answers_since_client += 1;
                self.window.answer(totals);
            }
            self.count_end(totals, &call, end, now_ns);
        }
    }

    /// The connection ends, and with it all that is open.
    pub(super) fn close(&mut self, totals: &mut TapTotals, now_ns: u64) {
        self.settle(totals, now_ns);
        for (_, call) in std::mem::take(&mut self.open) {
            self.count_end(totals, &call, CallEnd::ConnectionLost, now_ns);
        }
        if self.last.is_some() && !std::mem::replace(&mut self.is_over, true) {
            totals.carries_no_more();
        }
    }

    /// Counts the time since the last sign of progress if calls are open. Whole requests wait for
    /// the server; others for the rest of them, or for what holds it.
    pub(super) fn settle(&mut self, totals: &mut TapTotals, now_ns: u64) {
        let awaited = match self.whole_requests {
            0 => TapDirection::ToServer,
            _ => TapDirection::ToClient,
        };
        if !self.open.is_empty() {
            self.progress(totals, awaited, now_ns);
        }
    }

    fn count_end(&mut self, totals: &mut TapTotals, call: &OpenCall, end: CallEnd, now_ns: u64) {
        self.whole_requests -= usize::from(call.request_end_ns.is_some());
        let request_end_ns = call.request_end_ns.unwrap_or(now_ns);
        let response_begin_ns = call.response_begin_ns.unwrap_or(now_ns);
        let tapped = TappedCall {
            connection: self.index,
            method: call.method,
            begin_ns: call.begin_ns,
            // A server may answer before it has the whole request.
            request_end_ns: request_end_ns.min(response_begin_ns),
            response_begin_ns,
            end_ns: now_ns,
            request_bytes: call.request_bytes,
            response_bytes: call.response_bytes,
            end,
        };
        totals.end(tapped);
    }

    /// Something of a call has come in this direction: what the time since the last such sign went
    /// to can be said now.
    fn progress(&mut self, totals: &mut TapTotals, direction: TapDirection, now_ns: u64) {
        if let Some((last_ns, _)) = self.last {
            let span_ns = now_ns.saturating_sub(last_ns);
            if span_ns > 0 {
                self.count_span(totals, direction, span_ns, now_ns);
            }
        } else {
            totals.carries();
            for clock in &mut self.holds {
                clock.take(now_ns);
            }
            self.burst.begin_ns = now_ns;
        }
        self.last = Some((now_ns, direction));
        if direction == TapDirection::ToServer {
            self.answers_since_client = 0;
        }
    }

    fn count_span(
        &mut self,
        totals: &mut TapTotals,
        direction: TapDirection,
        span_ns: u64,
        now_ns: u64,
    ) {
        let figures = &mut self.figures;
        let mut left_ns = span_ns;
        let mut longest = (0, TimeUse::NoCall);
        for (clock, hold) in self.holds.iter_mut().zip(RelayHold::ALL) {
            let held_ns = clock.take(now_ns).min(left_ns);
            left_ns -= held_ns;
            figures.times.add(hold.time_use(), held_ns);
            longest = longest.max((held_ns, hold.time_use()));
        }
        self.window.pass(span_ns, self.open.len());
        figures.open_call_ns += u128::from(span_ns) * self.open.len() as u128;
        let is_at_limit = is_at_limit(figures.limit, self.open.len());
        figures.at_limit_ns += if is_at_limit { span_ns } else { 0 };
        let rest = self.use_of_silence(direction);
        self.figures.times.add(rest, left_ns);
        if span_ns >= GAP_NS {
            let (_, time_use) = longest.max((left_ns, rest));
            let burst = std::mem::take(&mut self.burst);
            let burst_ns = now_ns.saturating_sub(span_ns + burst.begin_ns);
            totals.gap(time_use, span_ns, burst.calls, burst_ns);
            self.burst.begin_ns = now_ns;
        }
    }

    /// Who could have moved while nothing held anybody, given who moves now.
    fn use_of_silence(&self, direction: TapDirection) -> TimeUse {
        if self.open.is_empty() {
            return TimeUse::NoCall;
        }
        let server = match is_at_limit(self.figures.limit, self.open.len()) {
            true => TimeUse::ServerAtLimit,
            false => TimeUse::Server,
        };
        let has_last_from_server = self
            .last
            .is_some_and(|(_, way)| way == TapDirection::ToClient);
        match direction {
            TapDirection::ToClient => server,
            TapDirection::ToServer if self.answers_since_client > 0 => TimeUse::ClientSilent,
            TapDirection::ToServer if self.whole_requests > 0 => server,
            // A stream in both directions, whose next message the client sends for an answer.
            TapDirection::ToServer if has_last_from_server => TimeUse::ClientSilent,
            TapDirection::ToServer => TimeUse::ClientInRequest,
        }
    }
}

fn is_at_limit(limit: Option<u32>, open: usize) -> bool {
    limit.is_some_and(|limit| open >= limit as usize)
}
