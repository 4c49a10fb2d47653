//! What is measured while a run goes on, by one thread.

use client::Ending;
use hdrhistogram::Histogram;

use crate::failure::FailureKind;
use crate::limits;
use crate::terminal_text::without_controls;
use crate::verdict::Verdict;

/// Digits of a latency that are kept.
const DIGITS: u8 = 3;

/// Latencies in nanoseconds.
pub fn histogram() -> Histogram<u64> {
    let most = limits::LATENCY_MAX.as_nanos() as u64;
    Histogram::new_with_bounds(1, most, DIGITS).expect("the bounds are in order")
}

/// The window in which calls are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// From when on.
    pub from_ns: u64,
    /// Until when.
    pub until_ns: u64,
}

impl Window {
    /// Whether a moment lies in it.
    #[inline]
    pub fn contains(&self, at_ns: u64) -> bool {
        (self.from_ns..self.until_ns).contains(&at_ns)
    }

    /// Which of so many equal parts of it a moment lies in; `None`: it lies outside of it.
    pub fn part(&self, at_ns: u64, parts: usize) -> Option<usize> {
        let length_ns = self.until_ns.saturating_sub(self.from_ns);
        let since_ns = u128::from(at_ns.saturating_sub(self.from_ns));
        let part = since_ns * parts as u128 / u128::from(length_ns.max(1));
        self.contains(at_ns).then_some(part as usize)
    }
}

/// What one thread has counted in a part of the window whose rate is another one.
#[derive(Clone, Debug)]
pub struct PartTally {
    /// Calls that ended in it.
    pub ended: u64,
    /// As [`Tally::latency_ns`], of calls that were to begin in it.
    pub latency_ns: Histogram<u64>,
    /// As [`Tally::uncorrected_ns`], of the same.
    pub uncorrected_ns: Histogram<u64>,
}

impl Default for PartTally {
    fn default() -> PartTally {
        PartTally {
            ended: 0,
            latency_ns: histogram(),
            uncorrected_ns: histogram(),
        }
    }
}

impl PartTally {
    fn add(&mut self, other: &PartTally) {
        let same = "all histograms have the same bounds";
        self.ended += other.ended;
        self.latency_ns.add(&other.latency_ns).expect(same);
        self.uncorrected_ns.add(&other.uncorrected_ns).expect(same);
    }
}

/// What one thread has counted.
#[derive(Clone, Debug)]
pub struct Tally {
    /// From the moment at which a call was to begin until its end: calls that succeeded.
    pub latency_ns: Histogram<u64>,
    /// From the moment at which it really began: what a generator sees that forgets the waiting
    /// before.
    pub uncorrected_ns: Histogram<u64>,
    /// Open loop: how late the generator took up what was due.
    pub lag_ns: Histogram<u64>,
    /// Calls that were to begin in the window, and succeeded.
    pub succeeded: u64,
    /// Of them, those that found no such key.
    pub misses: u64,
    /// Calls that were to begin in the window, and failed: how many of each kind.
    pub failed: Vec<(FailureKind, u64)>,
    /// What the first failure said.
    pub first_failure: Option<String>,
    /// Calls that ended within the window, whenever they began.
    pub ended_in_window: u64,
    /// Of them, those of each kind.
    pub ended_by_kind: [u64; limits::MAX_KINDS],
    /// Of [`Tally::ended_in_window`], those answered at each place in flight. In a closed loop a
    /// place is what other generators call a worker: it sends again when it was answered.
    pub ended_by_place: Vec<u64>,
    /// Of [`Tally::misses`], those of each kind.
    pub misses_by_kind: [u64; limits::MAX_KINDS],
    /// Open loop: calls that were due in the window.
    pub due: u64,
    /// Open loop: the last moment at which so many calls had ended as had come due
    /// ([`Tally::keeps_up`]); 0: never.
    pub kept_up_until_ns: u64,
    /// Open loop: calls that had to wait for a free place.
    pub waited: u64,
    /// Open loop: calls that were never sent because too many waited already.
    pub never_sent: u64,
    /// Calls that had not ended when the run was given up.
    pub unfinished: u64,
    /// Calls that began in the warm-up, and ended while it was measured: they are in
    /// [`Tally::ended_in_window`], and not among the latencies.
    pub begun_before: u64,
    /// Calls that were to begin in the warm-up, and had not ended when the run was given up.
    pub unfinished_before: u64,
    /// How long the oldest of both kinds of unfinished ones had waited.
    pub oldest_unfinished_ns: u64,
    /// Calls on a connection at which the server let no more begin; `u64::MAX`: that did not
    /// happen.
    pub server_allows: u64,
    /// Calls that the server refused before it began with them, and that were made again.
    pub refused: u64,
    /// Connections lost and made again.
    pub reconnects: u64,
    /// The run ended early because no connection could be made for [`limits::SERVER_GONE`].
    pub is_server_gone: bool,
    /// The run ended early because no call ended for [`limits::SERVER_STALLED`], or for the
    /// deadline of a call where that is longer.
    pub is_server_stalled: bool,
    /// Calls under way in the window, each for as long as it was, as the worker counted them: with
    /// those that failed or did not end, without those that wait for a connection of their own.
    pub in_flight_ns: f64,
    /// Open loop with a rate that changes: equal parts of the window.
    pub parts: Vec<PartTally>,
    /// What was measured of the messages of streaming methods; `None`: calls are not of one.
    pub streams: Option<Box<StreamTally>>,
    /// Calls that ended at any time, warm-up included.
    pub ended: u64,
    /// When the last call ended.
    pub last_end_ns: u64,
}

impl Default for Tally {
    fn default() -> Tally {
        Tally {
            latency_ns: histogram(),
            uncorrected_ns: histogram(),
            lag_ns: histogram(),
            succeeded: 0,
            misses: 0,
            failed: Vec::new(),
            first_failure: None,
            ended_in_window: 0,
            ended_by_kind: [0; limits::MAX_KINDS],
            ended_by_place: Vec::new(),
            misses_by_kind: [0; limits::MAX_KINDS],
            due: 0,
            kept_up_until_ns: u64::MAX,
            waited: 0,
            never_sent: 0,
            unfinished: 0,
            begun_before: 0,
            unfinished_before: 0,
            oldest_unfinished_ns: 0,
            server_allows: u64::MAX,
            refused: 0,
            reconnects: 0,
            is_server_gone: false,
            is_server_stalled: false,
            in_flight_ns: 0.0,
            parts: Vec::new(),
            streams: None,
            ended: 0,
            last_end_ns: 0,
        }
    }
}

impl Tally {
    /// A call that was to begin in the window has succeeded.
    #[inline]
    pub fn succeed(&mut self, intended_ns: u64, sent_ns: u64, now_ns: u64, is_miss: bool) {
        self.succeeded += 1;
        self.misses += u64::from(is_miss);
        self.latency_ns.saturating_record(now_ns - intended_ns);
        self.uncorrected_ns.saturating_record(now_ns - sent_ns);
    }

    /// A call at this place has ended within the window.
    #[inline]
    pub fn end_at(&mut self, place: usize) {
        if self.ended_by_place.len() <= place {
            self.ended_by_place.resize(place + 1, 0);
        }
        self.ended_by_place[place] += 1;
    }

    /// A call that was to begin in the window has failed.
    pub fn fail(&mut self, kind: FailureKind, count: u64, text: impl FnOnce() -> String) {
        match self.failed.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, times)) => *times += count,
            None => self.failed.push((kind, count)),
        }
        // It may be a text of the server, and is printed.
        self.first_failure
            .get_or_insert_with(|| without_controls(&text()));
    }

    /// A call that was to begin in the window has not ended when the run is given up.
    pub fn leave_unfinished(&mut self, intended_ns: u64, now_ns: u64) {
        self.unfinished += 1;
        let waited_ns = now_ns.saturating_sub(intended_ns);
        self.oldest_unfinished_ns = self.oldest_unfinished_ns.max(waited_ns);
    }

    /// A call of the warm-up has not ended when the run is given up.
    pub fn leave_unfinished_before(&mut self, intended_ns: u64, now_ns: u64) {
        self.unfinished_before += 1;
        let waited_ns = now_ns.saturating_sub(intended_ns);
        self.oldest_unfinished_ns = self.oldest_unfinished_ns.max(waited_ns);
    }

    /// Open loop: whether the calls that ended in the window are as many as came due in it, but for
    /// those that are under way at any time (at least as long as the shortest call takes), and for
    /// what chance explains.
    pub fn keeps_up(&self, rate: f64) -> bool {
        let due = self.due as f64;
        let shortest_s = if self.uncorrected_ns.is_empty() {
            0.0
        } else {
            self.uncorrected_ns.min() as f64 / 1e9
        };
        let under_way = rate * shortest_s;
        let spread = 4.0 * due.sqrt() + 2.0;
        let wanted = due * limits::RATE_SHARE_PERCENT as f64 / 100.0 - under_way - spread;
        self.ended_in_window as f64 >= wanted
    }

    /// All that failed.
    pub fn failures(&self) -> u64 {
        self.failed.iter().map(|(_, times)| times).sum()
    }

    /// Adds what another thread has counted.
    pub fn add(&mut self, other: &Tally) {
        let same = "all histograms have the same bounds";
        self.latency_ns.add(&other.latency_ns).expect(same);
        self.uncorrected_ns.add(&other.uncorrected_ns).expect(same);
        self.lag_ns.add(&other.lag_ns).expect(same);
        for (kind, times) in &other.failed {
            let text = other.first_failure.clone();
            self.fail(*kind, *times, || text.unwrap_or_default());
        }
        self.failed.sort_unstable();
        self.succeeded += other.succeeded;
        self.misses += other.misses;
        self.ended_in_window += other.ended_in_window;
        for kind in 0..limits::MAX_KINDS {
            self.ended_by_kind[kind] += other.ended_by_kind[kind];
            self.misses_by_kind[kind] += other.misses_by_kind[kind];
        }
        // The places of another thread are others.
        self.ended_by_place.extend(&other.ended_by_place);
        self.due += other.due;
        // Of several threads the first that fell behind.
        self.kept_up_until_ns = self.kept_up_until_ns.min(other.kept_up_until_ns);
        self.waited += other.waited;
        self.never_sent += other.never_sent;
        self.unfinished += other.unfinished;
        self.begun_before += other.begun_before;
        self.unfinished_before += other.unfinished_before;
        self.oldest_unfinished_ns = self.oldest_unfinished_ns.max(other.oldest_unfinished_ns);
        self.server_allows = self.server_allows.min(other.server_allows);
        self.refused += other.refused;
        self.reconnects += other.reconnects;
        self.is_server_gone |= other.is_server_gone;
        self.is_server_stalled |= other.is_server_stalled;
        self.in_flight_ns += other.in_flight_ns;
        if self.parts.len() < other.parts.len() {
            self.parts
                .resize_with(other.parts.len(), PartTally::default);
        }
        for (part, other) in self.parts.iter_mut().zip(&other.parts) {
            part.add(other);
        }
        if let Some(streams) = &other.streams {
            self.streams.get_or_insert_default().add(streams);
        }
        self.ended += other.ended;
        self.last_end_ns = self.last_end_ns.max(other.last_end_ns);
    }
}

/// What was measured of the messages of streaming methods, within the window.
#[derive(Clone, Debug)]
pub struct StreamTally {
    /// Requests sent.
    pub sent: u64,
    /// Responses received.
    pub received: u64,
    /// From the moment at which a call was to begin until its first response: methods whose server
    /// alone streams.
    pub first_ns: Histogram<u64>,
    /// From one response to the next one of the same call: the same methods.
    pub gap_ns: Histogram<u64>,
    /// From a request to its response: methods of which both sides stream.
    pub response_ns: Histogram<u64>,
}

impl Default for StreamTally {
    fn default() -> StreamTally {
        StreamTally {
            sent: 0,
            received: 0,
            first_ns: histogram(),
            gap_ns: histogram(),
            response_ns: histogram(),
        }
    }
}

impl StreamTally {
    fn add(&mut self, other: &StreamTally) {
        let same = "all histograms have the same bounds";
        self.sent += other.sent;
        self.received += other.received;
        self.first_ns.add(&other.first_ns).expect(same);
        self.gap_ns.add(&other.gap_ns).expect(same);
        self.response_ns.add(&other.response_ns).expect(same);
    }
}

/// How an end counts: a success (a miss or not), or a kind of failure.
pub fn count_as(ending: &Ending<'_>, verdict: Option<Verdict>) -> Result<bool, FailureKind> {
    match ending {
        Ending::Status { status, messages } if status.is_ok() => match verdict {
            _ if *messages != 1 => Err(FailureKind::BadAnswer),
            Some(verdict) => count_verdict(verdict),
            None => Err(FailureKind::BadAnswer),
        },
        Ending::Status { status, .. } => Err(FailureKind::Status(status.code() as u8)),
        Ending::FramedError { status, .. } => Err(FailureKind::FramedError(*status)),
        Ending::DeadlineExceeded => Err(FailureKind::DeadlineExceeded),
        Ending::NotBegun => Err(FailureKind::NotBegun),
        Ending::ConnectionLost { .. } => Err(FailureKind::ConnectionLost),
        Ending::BadAnswer { .. } => Err(FailureKind::BadAnswer),
    }
}

/// The same of what one answer says.
pub(crate) fn count_verdict(verdict: Verdict) -> Result<bool, FailureKind> {
    match verdict {
        Verdict::Good => Ok(false),
        Verdict::Miss => Ok(true),
        Verdict::NoEffect => Err(FailureKind::NoEffect),
        Verdict::Wrong => Err(FailureKind::WrongValue),
        Verdict::Unreadable => Err(FailureKind::BadAnswer),
    }
}

/// What an answer says that has come and does not do, for the user; `None`: it is not about an
/// answer. `refusal`: its own words.
pub(crate) fn describe_answer(
    outcome: Result<bool, FailureKind>,
    refusal: Option<String>,
) -> Option<String> {
    Some(match outcome {
        Err(FailureKind::NoEffect) => refusal.unwrap_or_else(|| "it had no effect".into()),
        Err(FailureKind::WrongValue) => "the answer has another value than it should".into(),
        Err(FailureKind::BadAnswer) => "the answer cannot be read, or is another one's".into(),
        _ => return None,
    })
}

/// What an end says, for the user.
pub fn describe(ending: &Ending<'_>) -> String {
    match ending {
        Ending::Status { status, messages } if status.is_ok() => {
            format!("the answer has {messages} messages, or one that is not what it should be")
        }
        Ending::Status { status, .. } => status.to_string(),
        Ending::FramedError { status, text: "" } => {
            format!("{status}: {}", status.meaning())
        }
        Ending::FramedError { status, text } => format!("{status}, {}: {text}", status.meaning()),
        Ending::DeadlineExceeded => "no answer before the deadline".into(),
        Ending::NotBegun => "the server did not begin with it".into(),
        Ending::ConnectionLost { reason } => (*reason).into(),
        Ending::BadAnswer { reason } => format!("the answer makes no sense: {reason}"),
    }
}

#[cfg(test)]
mod tests {
    use client::{Code, Status};

    use super::*;

    fn latency(ns: u64) -> Histogram<u64> {
        let mut histogram = histogram();
        histogram.record(ns).expect("in range");
        histogram
    }

    #[test]
    fn what_a_server_says_of_a_failure_is_no_command_of_a_terminal() {
        let mut tally = Tally::default();
        tally.fail(FailureKind::Status(13), 1, || {
            "INTERNAL: \u{1b}[2Jno\nmore".into()
        });
        assert_eq!(
            tally.first_failure.as_deref(),
            Some("INTERNAL: ?[2Jno?more")
        );
    }

    /// Each number another power of two, and another one for each thread, so that a sum shows what
    /// is in it.
    fn tally(factor: u64) -> Tally {
        Tally {
            latency_ns: latency(factor * 11),
            uncorrected_ns: latency(factor * 12),
            lag_ns: latency(factor * 13),
            succeeded: factor,
            misses: factor * 2,
            failed: vec![
                (FailureKind::NotBegun, factor * 3),
                (FailureKind::Status(14), factor),
            ],
            first_failure: Some(format!("{factor}")),
            ended_in_window: factor * 4,
            ended_by_kind: [1, 2, 3, 4, 5, 6, 7, 8].map(|kind| kind * factor),
            ended_by_place: vec![factor, factor + 1],
            misses_by_kind: [8, 7, 6, 5, 4, 3, 2, 1].map(|kind| kind * factor),
            due: factor * 5,
            kept_up_until_ns: factor * 16,
            waited: factor * 6,
            never_sent: factor * 7,
            unfinished: factor * 8,
            begun_before: factor * 9,
            unfinished_before: factor * 10,
            oldest_unfinished_ns: factor * 11,
            server_allows: factor * 12,
            refused: factor * 17,
            reconnects: factor * 13,
            is_server_gone: factor == 100,
            is_server_stalled: factor == 100,
            in_flight_ns: factor as f64,
            parts: vec![part(factor); 2],
            streams: (factor == 100).then(|| Box::new(stream_tally(factor))),
            ended: factor * 14,
            last_end_ns: factor * 15,
        }
    }

    fn part(factor: u64) -> PartTally {
        PartTally {
            ended: factor,
            latency_ns: latency(factor * 2),
            uncorrected_ns: latency(factor * 3),
        }
    }

    fn stream_tally(factor: u64) -> StreamTally {
        StreamTally {
            sent: factor,
            received: factor * 2,
            first_ns: latency(factor * 3),
            gap_ns: latency(factor * 4),
            response_ns: latency(factor * 5),
        }
    }

    #[test]
    fn messages_of_threads_are_added_up() {
        let mut sum = stream_tally(1);
        sum.add(&stream_tally(100));
        assert_eq!((sum.sent, sum.received), (101, 202));
        for (histogram, least) in [(&sum.first_ns, 3), (&sum.gap_ns, 4), (&sum.response_ns, 5)] {
            assert_eq!((histogram.len(), histogram.min()), (2, least));
        }
    }

    #[test]
    fn threads_are_added_up() {
        for (first, second) in [(1, 100), (100, 1)] {
            let mut sum = Tally::default();
            sum.add(&tally(first));
            sum.add(&tally(second));
            assert_eq!((sum.latency_ns.len(), sum.latency_ns.min()), (2, 11));
            assert_eq!(
                (sum.uncorrected_ns.len(), sum.uncorrected_ns.min()),
                (2, 12)
            );
            assert_eq!((sum.lag_ns.len(), sum.lag_ns.min()), (2, 13));
            assert_eq!(
                (sum.succeeded, sum.misses, sum.ended_in_window),
                (101, 202, 404)
            );
            let failed = [(FailureKind::Status(14), 101), (FailureKind::NotBegun, 303)];
            assert_eq!((&sum.failed[..], sum.failures()), (&failed[..], 404));
            assert_eq!(sum.first_failure, Some(first.to_string()));
            assert_eq!(sum.ended_by_kind, [101, 202, 303, 404, 505, 606, 707, 808]);
            assert_eq!(sum.misses_by_kind, [808, 707, 606, 505, 404, 303, 202, 101]);
            assert_eq!(sum.ended_by_place, [first, first + 1, second, second + 1]);
            assert_eq!((sum.due, sum.waited, sum.never_sent), (505, 606, 707));
            assert_eq!(
                (sum.unfinished, sum.begun_before, sum.unfinished_before),
                (808, 909, 1_010)
            );
            // The oldest, the fewest, the last.
            assert_eq!((sum.oldest_unfinished_ns, sum.server_allows), (1_100, 12));
            assert_eq!(sum.kept_up_until_ns, 16, "the first that fell behind");
            assert_eq!(
                (sum.reconnects, sum.ended, sum.last_end_ns, sum.refused),
                (1_313, 1_414, 1_500, 1_717)
            );
            assert_eq!(sum.parts.len(), 2);
            for part in &sum.parts {
                assert_eq!((part.ended, part.latency_ns.min()), (101, 2));
                assert_eq!((part.latency_ns.len(), part.uncorrected_ns.min()), (2, 3));
            }
            assert_eq!(sum.in_flight_ns, 101.0);
            assert_eq!(sum.streams.as_ref().map(|streams| streams.sent), Some(100));
            assert!(sum.is_server_gone, "one thread saw it");
            assert!(sum.is_server_stalled, "one thread saw it");
        }
    }

    #[test]
    fn the_window_ends_before_its_end() {
        let window = Window {
            from_ns: 5,
            until_ns: 7,
        };
        let inside = [4, 5, 6, 7].map(|at_ns| window.contains(at_ns));
        assert_eq!(inside, [false, true, true, false]);
    }

    #[test]
    fn a_window_has_equal_parts() {
        let window = Window {
            from_ns: 100,
            until_ns: 400,
        };
        let parts = [99, 100, 199, 200, 399, 400].map(|at_ns| window.part(at_ns, 3));
        assert_eq!(parts, [None, Some(0), Some(0), Some(1), Some(2), None]);
        assert_eq!(window.part(200, 0), Some(0));
    }

    #[test]
    fn the_oldest_of_all_that_is_unfinished_counts() {
        let mut tally = Tally::default();
        tally.leave_unfinished(10, 15);
        tally.leave_unfinished_before(3, 15);
        tally.leave_unfinished_before(11, 15);
        assert_eq!((tally.unfinished, tally.unfinished_before), (1, 2));
        assert_eq!(tally.oldest_unfinished_ns, 12);
        tally.leave_unfinished(1, 15);
        assert_eq!((tally.unfinished, tally.oldest_unfinished_ns), (2, 14));
    }

    type Counted<'a> = (
        Ending<'a>,
        Option<Verdict>,
        Result<bool, FailureKind>,
        &'static str,
    );

    fn assert_counted(endings: &[Counted<'_>]) {
        for (ending, verdict, counts, says) in endings {
            let counted = count_as(ending, *verdict);
            assert_eq!(counted, *counts, "{ending:?} {verdict:?}");
            assert!(describe(ending).contains(says), "{}", describe(ending));
        }
    }

    #[test]
    fn a_status_counts_by_the_verdict_on_its_message() {
        let ok = |messages| Ending::Status {
            status: &Status::OK,
            messages,
        };
        assert_counted(&[
            (ok(1), Some(Verdict::Good), Ok(false), "has 1 messages"),
            (ok(1), Some(Verdict::Miss), Ok(true), "has 1 messages"),
            (
                ok(1),
                Some(Verdict::NoEffect),
                Err(FailureKind::NoEffect),
                "has 1 messages",
            ),
            (
                ok(1),
                Some(Verdict::Wrong),
                Err(FailureKind::WrongValue),
                "has 1 messages",
            ),
            (
                ok(1),
                Some(Verdict::Unreadable),
                Err(FailureKind::BadAnswer),
                "has 1 messages",
            ),
            (ok(1), None, Err(FailureKind::BadAnswer), "has 1 messages"),
            (
                ok(0),
                Some(Verdict::Good),
                Err(FailureKind::BadAnswer),
                "has 0 messages",
            ),
            (
                ok(2),
                Some(Verdict::Good),
                Err(FailureKind::BadAnswer),
                "has 2 messages",
            ),
        ]);
    }

    #[test]
    fn each_ending_counts_as_what_it_is() {
        let gone = &Status::new(Code::NotFound, "nowhere");
        let failed = Ending::Status {
            status: gone,
            messages: 1,
        };
        let (lost, bad) = ("it went", "half a frame");
        assert_counted(&[
            (
                failed,
                Some(Verdict::Good),
                Err(FailureKind::Status(5)),
                "nowhere",
            ),
            (
                Ending::DeadlineExceeded,
                None,
                Err(FailureKind::DeadlineExceeded),
                "deadline",
            ),
            (
                Ending::NotBegun,
                None,
                Err(FailureKind::NotBegun),
                "did not begin",
            ),
            (
                Ending::ConnectionLost { reason: lost },
                None,
                Err(FailureKind::ConnectionLost),
                lost,
            ),
            (
                Ending::BadAnswer { reason: bad },
                None,
                Err(FailureKind::BadAnswer),
                bad,
            ),
        ]);
    }
}
