//! What all connections of a tap add up to.

use std::collections::{HashMap, VecDeque};

use hdrhistogram::Histogram;

use super::call::{CallEnd, TappedCall};
use super::compressed::CompressedMessages;
use super::direction::BothWays;
use super::limits::{LONGEST_NS, METHOD_NAME_BYTES, TIMELINE_CALLS, WATCHED_ENDS, WATCHED_METHODS};
use super::time_use::TimeUse;
use crate::terminal_text::without_controls;

/// Digits of a time that are kept: a gap is judged by its size, not by its last percent.
const DIGITS: u8 = 2;

/// How many calls are open on a connection on average, to the nearest power of two: 1, 2, 4, and so
/// on.
pub const OPEN_CLASSES: usize = 16;

/// Times in nanoseconds.
pub(super) fn times() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST_NS, DIGITS).expect("the bounds are in order")
}

/// Calls of one method.
#[derive(Clone, Debug)]
pub struct MethodTotals {
    /// `/package.Service/Method`, or `package.Service/Method` of baidu_std.
    pub name: String,
    /// Calls that ended.
    pub calls: u64,
    /// Those of them without success.
    pub failed: u64,
    /// From the last byte of the request to the first of the response.
    pub server_ns: Histogram<u64>,
    /// Bytes of messages.
    pub request_bytes: u64,
    /// The same of responses.
    pub response_bytes: u64,
}

/// Time in which about as many calls were open, and the answers that came in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenClass {
    /// How long, of all connections.
    pub ns: u64,
    /// Calls that the server ended.
    pub answers: u64,
}

/// Times and counts of all connections.
#[derive(Clone, Debug)]
pub struct TapTotals {
    /// Calls that began.
    pub begun: u64,
    /// Calls that ended.
    pub ended: u64,
    /// Calls that were not followed, as too many were open.
    pub unwatched: u64,
    /// By name, in the order in which they came; the last one stands for all that came after the
    /// bound.
    pub methods: Vec<MethodTotals>,
    index_of: HashMap<Vec<u8>, usize>,
    /// How calls ended; `None` stands for kinds that came after the bound.
    pub ends: HashMap<Option<CallEnd>, u64>,
    /// First to last byte of requests.
    pub request_ns: Histogram<u64>,
    /// Last byte of the request to the first of the response.
    pub server_ns: Histogram<u64>,
    /// First to last byte of responses.
    pub response_ns: Histogram<u64>,
    /// First byte of the request to the last of the response.
    pub call_ns: Histogram<u64>,
    gaps: Vec<Histogram<u64>>,
    /// Calls begun between two gaps.
    pub burst_calls: Histogram<u64>,
    /// How long such a burst took.
    pub burst_ns: Histogram<u64>,
    /// See [`OPEN_CLASSES`].
    pub by_open: [OpenClass; OPEN_CLASSES],
    /// The last calls.
    pub recent: VecDeque<TappedCall>,
    /// Messages that were compressed.
    pub(crate) compressed: BothWays<CompressedMessages>,
    /// Connections that stand and have had a call.
    carrying: usize,
    /// The most of them at a time.
    pub most_carrying: usize,
}

impl Default for TapTotals {
    fn default() -> TapTotals {
        TapTotals {
            begun: 0,
            ended: 0,
            unwatched: 0,
            methods: Vec::new(),
            index_of: HashMap::new(),
            ends: HashMap::new(),
            request_ns: times(),
            server_ns: times(),
            response_ns: times(),
            call_ns: times(),
            gaps: TimeUse::ALL.iter().map(|_| times()).collect(),
            burst_calls: times(),
            burst_ns: times(),
            by_open: [OpenClass::default(); OPEN_CLASSES],
            recent: VecDeque::new(),
            compressed: BothWays::default(),
            carrying: 0,
            most_carrying: 0,
        }
    }
}

impl TapTotals {
    /// A connection has its first call.
    pub(super) fn carries(&mut self) {
        self.carrying += 1;
        self.most_carrying = self.most_carrying.max(self.carrying);
    }

    /// A connection that had calls is over.
    pub(super) fn carries_no_more(&mut self) {
        self.carrying = self.carrying.saturating_sub(1);
    }

    /// Returns the index of a method, which it notes if there is room.
    pub(super) fn method(&mut self, name: &[u8]) -> usize {
        let kept = name.get(..METHOD_NAME_BYTES).unwrap_or(name);
        if let Some(&index) = self.index_of.get(kept) {
            return index;
        }
        let is_last = self.methods.len() + 1 >= WATCHED_METHODS;
        if is_last && self.methods.len() >= WATCHED_METHODS {
            return WATCHED_METHODS - 1;
        }
        let index = self.methods.len();
        let name = match is_last {
            true => "(other methods)".to_owned(),
            false => {
                self.index_of.insert(kept.to_vec(), index);
                printable(kept)
            }
        };
        self.methods.push(MethodTotals {
            name,
            calls: 0,
            failed: 0,
            server_ns: times(),
            request_bytes: 0,
            response_bytes: 0,
        });
        index
    }

    /// Counts a call that has ended.
    pub(super) fn end(&mut self, call: TappedCall) {
        self.ended += 1;
        let kind = Some(call.end);
        let is_known = self.ends.contains_key(&kind) || self.ends.len() < WATCHED_ENDS;
        *self.ends.entry(kind.filter(|_| is_known)).or_default() += 1;
        let between = |from_ns: u64, to_ns: u64| to_ns.saturating_sub(from_ns);
        let server_ns = between(call.request_end_ns, call.response_begin_ns);
        record(
            &mut self.request_ns,
            between(call.begin_ns, call.request_end_ns),
        );
        record(&mut self.server_ns, server_ns);
        record(
            &mut self.response_ns,
            between(call.response_begin_ns, call.end_ns),
        );
        record(&mut self.call_ns, between(call.begin_ns, call.end_ns));
        if let Some(method) = self.methods.get_mut(call.method) {
            method.calls += 1;
            method.failed += u64::from(!call.end.is_success());
            method.request_bytes += call.request_bytes;
            method.response_bytes += call.response_bytes;
            record(&mut method.server_ns, server_ns);
        }
        if self.recent.len() >= TIMELINE_CALLS {
            self.recent.pop_front();
        }
        self.recent.push_back(call);
    }

    /// The class of so many open calls.
    pub(super) fn open_class(&mut self, open: f64) -> &mut OpenClass {
        let class = (open.max(1.0).log2().round() as usize).min(OPEN_CLASSES - 1);
        &mut self.by_open[class]
    }

    /// Notes a gap, and the burst before it.
    pub(super) fn gap(&mut self, time_use: TimeUse, gap_ns: u64, burst_calls: u64, burst_ns: u64) {
        if let Some(gaps) = self.gaps.get_mut(time_use as usize) {
            record(gaps, gap_ns);
        }
        if burst_calls > 0 {
            record(&mut self.burst_calls, burst_calls);
            record(&mut self.burst_ns, burst_ns);
        }
    }

    /// The gaps of a use.
    pub fn gaps(&self, time_use: TimeUse) -> Option<&Histogram<u64>> {
        self.gaps.get(time_use as usize)
    }
}

/// Notes a time; one that is too long counts as the longest.
pub(super) fn record(histogram: &mut Histogram<u64>, ns: u64) {
    histogram.saturating_record(ns);
}

/// A name as it can be shown on a terminal.
fn printable(name: &[u8]) -> String {
    without_controls(&String::from_utf8_lossy(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::Code;

    fn call(method: usize, begin_ns: u64, end: CallEnd) -> TappedCall {
        TappedCall {
            connection: 0,
            method,
            begin_ns,
            request_end_ns: begin_ns + 10,
            response_begin_ns: begin_ns + 110,
            end_ns: begin_ns + 130,
            request_bytes: 5,
            response_bytes: 7,
            end,
        }
    }

    #[test]
    fn methods_beyond_the_bound_share_the_last_place() {
        let mut totals = TapTotals::default();
        for round in 0..2 {
            for number in 0..WATCHED_METHODS + 9 {
                let index = totals.method(format!("/m{number}").as_bytes());
                assert_eq!(index, number.min(WATCHED_METHODS - 1), "round {round}");
            }
        }
        assert_eq!(totals.methods.len(), WATCHED_METHODS);
        let names: Vec<_> = totals.methods.iter().map(|method| &method.name).collect();
        assert_eq!(names[0], "/m0");
        assert_eq!(names[WATCHED_METHODS - 1], "(other methods)");
        assert_eq!(printable(b"/a\x1b[2J"), "/a?[2J");
    }

    #[test]
    fn an_ended_call_is_counted_everywhere_and_the_oldest_is_forgotten() {
        let mut totals = TapTotals::default();
        let method = totals.method(b"/a/b");
        for number in 0..TIMELINE_CALLS as u64 + 3 {
            totals.end(call(method, number, CallEnd::Grpc(Code::Ok)));
        }
        totals.end(call(method, 9_999_999, CallEnd::Grpc(Code::Aborted)));
        let all = TIMELINE_CALLS as u64 + 4;
        assert_eq!((totals.ended, totals.methods[0].calls), (all, all));
        assert_eq!(totals.methods[0].failed, 1);
        assert_eq!(totals.methods[0].request_bytes, all * 5);
        assert_eq!(totals.recent.len(), TIMELINE_CALLS);
        assert_eq!(totals.recent[0].begin_ns, 4);
        assert_eq!(totals.server_ns.max(), 100);
        assert_eq!(totals.response_ns.len(), all);
        assert_eq!(totals.ends[&Some(CallEnd::Grpc(Code::Aborted))], 1);
    }

    #[test]
    fn kinds_of_ends_that_a_peer_makes_up_are_bounded() {
        let mut totals = TapTotals::default();
        for code in 0..WATCHED_ENDS as i32 + 50 {
            totals.end(call(0, 0, CallEnd::BaiduStd(code)));
        }
        assert_eq!(totals.ends.len(), WATCHED_ENDS + 1);
        assert_eq!(totals.ends[&None], 50);
    }

    #[test]
    fn numbers_of_open_calls_share_classes_by_powers_of_two() {
        let mut totals = TapTotals::default();
        for (open, class) in [
            (0.0, 0),
            (1.3, 0),
            (1.5, 1),
            (2.8, 1),
            (3.0, 2),
            (4.0, 2),
            (32_768.0, 15),
            (1e12, 15),
            (f64::NAN, 0),
        ] {
            totals.by_open = Default::default();
            totals.open_class(open).answers += 1;
            assert_eq!(totals.by_open[class].answers, 1, "{open}");
        }
    }

    #[test]
    fn a_gap_ends_a_burst_that_had_calls() {
        let mut totals = TapTotals::default();
        totals.gap(TimeUse::Server, 70_000, 3, 9_000);
        totals.gap(TimeUse::Server, 90_000, 0, 0);
        let gaps = totals.gaps(TimeUse::Server).expect("every use has gaps");
        assert_eq!((gaps.len(), totals.burst_calls.len()), (2, 1));
        assert_eq!(
            totals
                .gaps(TimeUse::NoCall)
                .map(hdrhistogram::Histogram::len),
            Some(0)
        );
    }
}
