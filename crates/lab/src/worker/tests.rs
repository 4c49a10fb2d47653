//! Workers before a server of which everything is known, with a simulated clock.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use client::{
    Address, CallError, CallStart, ChannelKey, ConnectError, Ending, Happened, NotBegun, Status,
};
use hdrhistogram::Histogram;

use super::*;
use crate::failure::FailureKind;
use crate::measure;
use crate::pacing::Arrivals;
use crate::verdict::Verdict;
use crate::workload::SameRequest;

const MS: u64 = 1_000_000;

const BAD_PATH: &str = "";

/// Answers to messages of long calls: one byte for each verdict.
const GOOD: u8 = 0;
const MISS: u8 = 1;
const NO_EFFECT: u8 = 2;
const WRONG: u8 = 3;
const UNREADABLE: u8 = 4;

/// What happens next on a fake server.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Next {
    Connected(ChannelKey),
    Answer(u64, ChannelKey),
    Lost(u64, ChannelKey),
    /// The server did not begin with it.
    Refused(u64, ChannelKey),
    Gone(ChannelKey),
    /// A message of a long call.
    Message(u64, ChannelKey),
    /// A long call has ended.
    StreamEnded(u64, ChannelKey),
}

/// What a fake server does about connections.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Connecting {
    Takes,
    Refuses,
    Ignores,
    /// Says so at once.
    Fails,
}

/// A server that answers each call after the same time, except that during a stall nothing comes
/// back.
pub(crate) struct Fake {
    service_ns: u64,
    stall: Range<u64>,
    /// Calls at once on a connection.
    allowed: usize,
    /// More calls than so many at once are refused, whatever was announced.
    begins: usize,
    refused: u64,
    /// After so many calls a connection takes no more.
    calls_per_channel: u64,
    events: BTreeMap<(u64, u64), Next>,
    numbered: u64,
    begun: HashMap<ChannelKey, (usize, u64)>,
    opened: u32,
    closed: u32,
    begun_in_all: u64,
    last_channel: Option<ChannelKey>,
    /// How often a call was not on the connection of the call before it.
    changes: u64,
    connecting: Connecting,
    /// What the messages of long calls are answered with, in turn.
    answers: Vec<u8>,
    /// After so many messages a long call ends.
    messages_per_stream: u64,
    streams: HashMap<u64, (ChannelKey, u64)>,
    streams_begun: u64,
    now_ns: u64,
}

impl Fake {
    pub(crate) fn new(service_ns: u64, stall: Range<u64>) -> Fake {
        Fake {
            service_ns,
            stall,
            allowed: usize::MAX,
            begins: usize::MAX,
            refused: 0,
            calls_per_channel: u64::MAX,
            events: BTreeMap::new(),
            numbered: 0,
            begun: HashMap::new(),
            opened: 0,
            closed: 0,
            begun_in_all: 0,
            last_channel: None,
            changes: 0,
            connecting: Connecting::Takes,
            answers: vec![GOOD],
            messages_per_stream: u64::MAX,
            streams: HashMap::new(),
            streams_begun: 0,
            now_ns: 0,
        }
    }

    fn at(&mut self, at_ns: u64, next: Next) {
        self.numbered += 1;
        self.events.insert((at_ns, self.numbered), next);
    }

    fn answered_ns(&self, sent_ns: u64) -> u64 {
        let end_ns = sent_ns + self.service_ns;
        if self.stall.contains(&end_ns) {
            self.stall.end
        } else {
            end_ns
        }
    }
}

impl Transport for Fake {
    type Stream = u64;

    fn open_channel(&mut self, now_ns: u64) -> Result<ChannelKey, ConnectError> {
        let channel = ChannelKey {
            slot: self.opened % 256,
            generation: self.opened,
        };
        self.opened += 1;
        self.begun.insert(channel, (0, 0));
        match self.connecting {
            Connecting::Takes => self.at(now_ns + 1_000, Next::Connected(channel)),
            Connecting::Refuses => self.at(now_ns + 1_000, Next::Gone(channel)),
            Connecting::Ignores => {}
            Connecting::Fails => {
                let address = "127.0.0.1:1".parse().expect("an address");
                return Err(ConnectError::TimedOut { address });
            }
        }
        Ok(channel)
    }

    fn close_channel(&mut self, channel: ChannelKey) {
        self.closed += 1;
        self.begun.remove(&channel);
    }

    fn room(&self, channel: ChannelKey) -> usize {
        self.allowed - self.begun[&channel].0
    }

    fn begin(
        &mut self,
        channel: ChannelKey,
        tag: u64,
        start: &CallStart<'_>,
        now_ns: u64,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), CallError> {
        if start.path == BAD_PATH {
            let reason = "it has no path".into();
            return Err(CallError::BadRequest { reason });
        }
        let calls = self.begun.get_mut(&channel).expect("it is open");
        if calls.1 >= self.calls_per_channel {
            let reason = "no more".into();
            return Err(CallError::NotBegun(NotBegun::Closing { reason }));
        }
        *calls = (calls.0 + 1, calls.1 + 1);
        self.begun_in_all += 1;
        self.changes += u64::from(self.last_channel.replace(channel) != Some(channel));
        encode(&mut Vec::new());
        let is_refused = calls.0 > self.begins;
        let answered_ns = self.answered_ns(now_ns);
        match is_refused {
            true => {
                self.refused += 1;
                self.at(now_ns + 1_000, Next::Refused(tag, channel));
            }
            false => self.at(answered_ns, Next::Answer(tag, channel)),
        }
        Ok(())
    }

    fn begin_stream(
        &mut self,
        channel: ChannelKey,
        tag: u64,
        _start: &CallStart<'_>,
        _now_ns: u64,
    ) -> Result<u64, CallError> {
        let calls = self.begun.get_mut(&channel).expect("it is open");
        if calls.1 >= self.calls_per_channel {
            let reason = "no more".into();
            return Err(CallError::NotBegun(NotBegun::Closing { reason }));
        }
        *calls = (calls.0 + 1, calls.1 + 1);
        self.streams.insert(tag, (channel, 0));
        self.streams_begun += 1;
        Ok(tag)
    }

    fn send_last(&mut self, _stream: u64, _encode: impl FnOnce(&mut Vec<u8>)) {
        panic!("no Pipe is ended")
    }

    fn can_send(&mut self, _stream: u64) -> bool {
        true
    }

    fn cancel(&mut self, _stream: u64) {
        panic!("no Pipe is given up")
    }

    fn send(&mut self, stream: u64, encode: impl FnOnce(&mut Vec<u8>)) {
        encode(&mut Vec::new());
        self.begun_in_all += 1;
        let answered_ns = self.answered_ns(self.now_ns);
        let (channel, messages) = self.streams.get_mut(&stream).expect("it is open");
        *messages += 1;
        let next = match *messages > self.messages_per_stream {
            true => Next::StreamEnded(stream, *channel),
            false => Next::Message(stream, *channel),
        };
        self.at(answered_ns, next);
    }
}

pub(crate) fn plan(pace: Pace, connections: usize, in_flight: usize) -> WorkerPlan {
    WorkerPlan {
        connections,
        pace,
        ..WorkerPlan::closed(in_flight)
    }
}

pub(crate) fn open_loop(rate: f64) -> Pace {
    Pace::Open {
        rate,
        arrivals: Arrivals::Fixed,
    }
}

/// Runs a worker against a fake, to its end. While `asleep` the generator does not run.
pub(crate) fn simulate(
    plan: WorkerPlan,
    fake: &mut Fake,
    window: Window,
    asleep: Range<u64>,
) -> Tally {
    simulate_from(window.from_ns, plan, fake, window, asleep)
}

/// The same with a warm-up, which begins at `begin_ns`.
fn simulate_from(
    begin_ns: u64,
    plan: WorkerPlan,
    fake: &mut Fake,
    window: Window,
    asleep: Range<u64>,
) -> Tally {
    let workload = SameRequest::new("/t.T/Echo".into(), vec![1, 2, 3]);
    simulate_workload(workload, begin_ns, plan, fake, window, asleep)
}

/// The same with any workload.
fn simulate_workload(
    workload: impl Workload,
    begin_ns: u64,
    plan: WorkerPlan,
    fake: &mut Fake,
    window: Window,
    asleep: Range<u64>,
) -> Tally {
    let mut worker = LoadWorker::new(plan, workload);
    let mut now_ns = 0;
    worker.connect(fake, now_ns);
    let mut begun = false;
    for _ in 0..50_000_000_u64 {
        if !begun && worker.is_connected().expect("it connects") {
            begun = true;
            now_ns = begin_ns;
            worker.begin(now_ns, window);
        }
        fake.now_ns = now_ns;
        worker.turn(fake, now_ns).expect("calls can be made");
        if begun && worker.is_finished(now_ns) {
            return worker.finish(now_ns);
        }
        let event_ns = fake.events.keys().next().map(|(at_ns, _)| *at_ns);
        let next_ns = [event_ns, worker.next_due_ns()].into_iter().flatten().min();
        let drained_ns = window
            .until_ns
            .saturating_add(limits::DRAIN.as_nanos() as u64);
        let next_ns = next_ns.unwrap_or(drained_ns).min(drained_ns);
        now_ns = now_ns.max(next_ns);
        if asleep.contains(&now_ns) {
            now_ns = asleep.end;
        }
        deliver(&mut worker, fake, now_ns);
        worker.received(now_ns);
    }
    panic!("the run does not end");
}

fn ended(tag: u64, channel: ChannelKey, ending: Ending<'_>) -> Happened<'_> {
    Happened::Ended {
        tag,
        channel,
        ending,
    }
}

fn deliver<W: Workload>(worker: &mut LoadWorker<W, Fake>, fake: &mut Fake, now_ns: u64) {
    while let Some(entry) = fake.events.first_entry()
        && entry.key().0 <= now_ns
    {
        match entry.remove() {
            Next::Connected(channel) => worker.happened(&Happened::Connected { channel }, now_ns),
            Next::Answer(tag, channel) => {
                let Some(calls) = fake.begun.get_mut(&channel) else {
                    continue;
                };
                calls.0 -= 1;
                let bytes = b"";
                worker.happened(&Happened::Message { tag, bytes }, now_ns);
                let (status, messages) = (&Status::OK, 1);
                let ending = Ending::Status { status, messages };
                worker.happened(&ended(tag, channel, ending), now_ns);
            }
            Next::Refused(tag, channel) => {
                let calls = fake.begun.get_mut(&channel).expect("it is open");
                calls.0 -= 1;
                worker.happened(&ended(tag, channel, Ending::NotBegun), now_ns);
            }
            Next::Lost(tag, channel) => {
                let ending = Ending::ConnectionLost { reason: "cut" };
                worker.happened(&ended(tag, channel, ending), now_ns);
            }
            Next::Message(tag, channel) => {
                if !fake.begun.contains_key(&channel) {
                    continue;
                }
                let bytes = &[fake.answers[0]];
                fake.answers.rotate_left(1);
                worker.happened(&Happened::Message { tag, bytes }, now_ns);
            }
            Next::StreamEnded(tag, channel) => {
                let Some(calls) = fake.begun.get_mut(&channel) else {
                    continue;
                };
                if fake.streams.remove(&tag).is_none() {
                    continue;
                }
                calls.0 -= 1;
                let status = &Status::new(client::Code::Aborted, "enough");
                let ending = Ending::Status {
                    status,
                    messages: 0,
                };
                worker.happened(&ended(tag, channel, ending), now_ns);
            }
            Next::Gone(channel) => {
                let address: Address = "127.0.0.1:1".parse().expect("an address");
                let error = &ConnectError::TimedOut { address };
                worker.happened(&Happened::Disconnected { channel, error }, now_ns);
            }
        }
    }
}

/// What the two histograms must be, from the rules alone: call k is due at k intervals, begins when
/// it is due and one of the places is free, in order, and ends as the server says.
fn expected(
    interval_ns: u64,
    places: usize,
    fake: &Fake,
    window: Window,
) -> (Histogram<u64>, Histogram<u64>) {
    let (mut latency, mut uncorrected) = (measure::histogram(), measure::histogram());
    let mut free_ns = vec![0_u64; places];
    let mut due_ns = window.from_ns;
    while due_ns < window.until_ns {
        free_ns.sort_unstable();
        let sent_ns = due_ns.max(free_ns[0]);
        let end_ns = fake.answered_ns(sent_ns);
        free_ns[0] = end_ns;
        latency.record(end_ns - due_ns).expect("in range");
        uncorrected.record(end_ns - sent_ns).expect("in range");
        due_ns += interval_ns;
    }
    (latency, uncorrected)
}

#[test]
fn latency_under_a_stall_is_exact() {
    let window = Window {
        from_ns: 10 * MS,
        until_ns: 2_010 * MS,
    };
    // Places that are too few during the stall, of one connection and of several; and so many that
    // nobody waits.
    for (connections, in_flight) in [(1, 1), (1, 4), (3, 1), (2, 1_000)] {
        let mut fake = Fake::new(300_000, 500 * MS..900 * MS);
        let (latency, uncorrected) = expected(MS, connections * in_flight, &fake, window);
        let plan = plan(open_loop(1_000.0), connections, in_flight);
        let tally = simulate(plan, &mut fake, window, 0..0);
        let shape = format!("{connections} × {in_flight}");
        assert_eq!(tally.due, 2_000, "{shape}");
        assert_eq!(tally.succeeded, 2_000, "{shape}");
        assert!(tally.latency_ns == latency, "{shape}: latency");
        assert!(tally.uncorrected_ns == uncorrected, "{shape}: uncorrected");
        assert_eq!(tally.lag_ns.max(), 0, "the generator was on time");
        // A call that was due when the stall began has waited through all of it.
        let longest_ns = tally.latency_ns.max();
        assert!(longest_ns > 395 * MS, "{shape}: {longest_ns}");
        let median_ns = tally.latency_ns.value_at_quantile(0.5);
        assert!(median_ns < MS, "{shape}: {median_ns}");
        if connections * in_flight == 1 {
            // Whoever forgets the waiting sees a single slow call of 2000.
            let slow = tally.uncorrected_ns.count_between(MS, u64::MAX);
            assert_eq!(slow, 1);
            assert!(tally.latency_ns.value_at_quantile(0.9) > 100 * MS);
            assert!(tally.waited > 300, "{}", tally.waited);
        }
        if in_flight == 1_000 {
            assert_eq!(tally.waited, 0, "nobody waits for a place");
            assert!(tally.latency_ns == tally.uncorrected_ns);
        }
    }
}

/// Calls of 30 ms in two places, from 10 ms on: those that begin at 100 ms end in the window, which
/// begins at 110 ms.
#[test]
fn connections_are_dialed_a_few_at_a_time() {
    let (few, many) = (limits::DIALS_AT_ONCE, 2 * limits::DIALS_AT_ONCE + 10);
    let mut fake = Fake::new(MS, 0..0);
    let request = SameRequest::new("/t.T/Echo".into(), vec![1, 2, 3]);
    let mut worker = LoadWorker::new(plan(Pace::Closed, many, 1), request);
    worker.connect(&mut fake, 0);
    for _ in 0..2 {
        assert_eq!((fake.opened as usize, worker.open_connections()), (few, 0));
        worker.turn(&mut fake, 0).expect("it connects");
    }
    // Each that is open makes room for one more.
    for open in [5, 6] {
        let later = fake.events.keys().nth(open - worker.open_connections());
        let later = *later.expect("more are being made");
        let mut later = fake.events.split_off(&later);
        deliver(&mut worker, &mut fake, 1_000);
        fake.events.append(&mut later);
        worker.turn(&mut fake, 0).expect("it connects");
        let opened = fake.opened as usize;
        assert_eq!((opened, worker.open_connections()), (few + open, open));
        assert!(!worker.is_connected().expect("it connects"));
    }
    for _ in 0..many {
        deliver(&mut worker, &mut fake, 1_000);
        worker.turn(&mut fake, 0).expect("it connects");
    }
    assert!(worker.is_connected().expect("it connects"));
    assert_eq!(
        (fake.opened as usize, worker.open_connections()),
        (many, many)
    );
}

#[test]
fn calls_of_the_warm_up_are_counted_apart() {
    let window = Window {
        from_ns: 110 * MS,
        until_ns: 210 * MS,
    };
    for pace in [Pace::Closed, open_loop(1_000.0)] {
        let mut fake = Fake::new(30 * MS, 0..0);
        let tally = simulate_from(10 * MS, plan(pace, 1, 2), &mut fake, window, 0..0);
        assert_eq!(tally.unfinished_before, 0, "{pace:?}");
        assert!(tally.begun_before > 0, "{pace:?}");
        assert!(pace != Pace::Closed || tally.begun_before == 2);
        // Nothing comes back from 90 ms on: what had begun never ends.
        let mut fake = Fake::new(30 * MS, 90 * MS..u64::MAX / 2);
        let tally = simulate_from(10 * MS, plan(pace, 1, 2), &mut fake, window, 0..0);
        assert_eq!((tally.begun_before, tally.succeeded), (0, 0), "{pace:?}");
        assert!(tally.oldest_unfinished_ns >= limits::DRAIN.as_nanos() as u64);
        match pace {
            Pace::Closed => assert_eq!((tally.unfinished_before, tally.unfinished), (2, 0)),
            // Those that found no place too.
            Pace::Open { .. } | Pace::Varying { .. } => {
                assert_eq!((tally.unfinished_before, tally.unfinished), (96, 100));
            }
        }
    }
}

/// A server that takes 10 ms for each call falls behind a thousand a second as soon as more than
/// chance explains wait; one that stalls and makes good for it does not, and one that stalls to the
/// end is behind since then.
#[test]
fn since_when_an_open_loop_is_behind_is_known() {
    let window = Window {
        from_ns: 10 * MS,
        until_ns: 10_010 * MS,
    };
    let behind_since_ms = |service_ns, stall, in_flight| {
        let mut fake = Fake::new(service_ns, stall);
        let plan = plan(open_loop(1_000.0), 1, in_flight);
        let tally = simulate(plan, &mut fake, window, 0..0);
        (!tally.keeps_up(1_000.0)).then(|| (tally.kept_up_until_ns - window.from_ns) / MS)
    };
    assert_eq!(behind_since_ms(10 * MS, 0..0, 100), None);
    assert_eq!(
        behind_since_ms(400 * MS, 0..0, 1_000),
        None,
        "slow is not behind"
    );
    assert_eq!(behind_since_ms(MS / 2, 3_000 * MS..4_000 * MS, 10), None);
    let from_the_beginning = behind_since_ms(10 * MS, 0..0, 1).expect("it is behind");
    assert!(from_the_beginning < 100, "{from_the_beginning}");
    let from_a_stall_on = behind_since_ms(MS / 2, 5_000 * MS..20_000 * MS, 10);
    let from_a_stall_on = from_a_stall_on.expect("it is behind");
    assert!(
        (5_000..5_500).contains(&from_a_stall_on),
        "{from_a_stall_on}"
    );
}

/// Between many bytes of requests what came is read.
#[test]
fn many_bytes_of_requests_are_put_together_in_several_turns() {
    let request = vec![7; limits::SHARED_FROM_BYTES - 1];
    let at_once = limits::REQUEST_BYTES_PER_TURN.div_ceil(request.len());
    let window = Window {
        from_ns: 10 * MS,
        until_ns: 100 * MS,
    };
    for pace in [Pace::Closed, open_loop(1e7)] {
        let mut fake = Fake::new(20 * MS, 0..0);
        let workload = SameRequest::new("/t.T/Echo".into(), request.clone());
        let mut worker = LoadWorker::new(plan(pace, 2, 3 * at_once), workload);
        worker.connect(&mut fake, 0);
        deliver(&mut worker, &mut fake, 1_000);
        worker.begin(10 * MS, window);
        for turn in 1..=6 {
            // An open loop has more than enough to begin by then.
            worker.turn(&mut fake, 15 * MS).expect("calls can be made");
            let expected = (turn * at_once) as u64;
            assert_eq!(fake.begun_in_all, expected, "{pace:?}");
            let goes_on = worker.next_due_ns() == Some(0);
            assert!(goes_on || turn == 6, "{pace:?}, turn {turn}");
        }
    }
}

/// A closed loop sends nothing during a stall: as many slow calls as there are places. That is its
/// nature, and why the open loop is there.
#[test]
fn a_closed_loop_sees_one_slow_call_for_each_place() {
    let window = Window {
        from_ns: 10 * MS,
        until_ns: 1_010 * MS,
    };
    let mut fake = Fake::new(MS, 500 * MS..900 * MS);
    let tally = simulate(plan(Pace::Closed, 2, 3), &mut fake, window, 0..0);
    let slow = tally.latency_ns.count_between(2 * MS, u64::MAX);
    assert_eq!(slow, 6);
    // Each place: 490 calls of 1 ms, the slow one, and 110 to come.
    assert_eq!(tally.succeeded, 6 * (490 + 110));
    assert_eq!(
        tally.ended_in_window,
        6 * (490 + 109),
        "the last end at the window's end"
    );
    assert_eq!(tally.ended_by_place, [490 + 109; 6]);
    assert!(tally.latency_ns == tally.uncorrected_ns);
}

/// The time in which the generator itself slept is its own lag, and part of the latency.
#[test]
fn lag_of_the_generator_is_told() {
    let window = Window {
        from_ns: 10 * MS,
        until_ns: 1_010 * MS,
    };
    let mut fake = Fake::new(100_000, 0..0);
    let asleep = 300 * MS + 1..350 * MS;
    let tally = simulate(
        plan(open_loop(1_000.0), 1, 1_000),
        &mut fake,
        window,
        asleep,
    );
    let late = tally.lag_ns.count_between(1, u64::MAX);
    assert_eq!(late, 49, "due at 301 to 349 ms");
    let longest_ns = tally.lag_ns.max();
    assert!(
        longest_ns.abs_diff(49 * MS) < 49 * MS / 1_000,
        "{longest_ns}"
    );
    // Beside them the answer that came while it slept: of all the slow ones the only one that had
    // been sent.
    assert_eq!(tally.latency_ns.count_between(MS, u64::MAX), 50);
    assert_eq!(tally.uncorrected_ns.count_between(MS, u64::MAX), 1);
}

/// What came due while the generator slept over the end is sent and counted all the same.
#[test]
fn nothing_that_is_due_is_forgotten_at_the_end() {
    let window = Window {
        from_ns: 10 * MS,
        until_ns: 1_010 * MS,
    };
    let mut fake = Fake::new(100_000, 0..0);
    let asleep = 990 * MS + 1..1_020 * MS;
    let plan = plan(open_loop(1_000.0), 1, 1_000);
    let tally = simulate(plan, &mut fake, window, asleep);
    assert_eq!((tally.due, tally.succeeded), (1_000, 1_000));
    assert_eq!(tally.lag_ns.count_between(1, u64::MAX), 19);
}

#[test]
fn no_more_calls_at_once_than_the_server_allows() {
    let window = Window {
        from_ns: MS,
        until_ns: 101 * MS,
    };
    let mut fake = Fake::new(MS, 0..0);
    fake.allowed = 3;
    let tally = simulate(plan(Pace::Closed, 2, 8), &mut fake, window, 0..0);
    assert_eq!(tally.server_allows, 3);
    assert_eq!(tally.succeeded, 2 * 3 * 100);
}

/// Servers count a call for a while after it has ended, and refuse the next one.
#[test]
fn what_a_server_refuses_beside_others_waits_and_is_made_again() {
    let window = Window {
        from_ns: MS,
        until_ns: 101 * MS,
    };
    for (allowed, in_flight, said) in [(4, 8, 4), (usize::MAX, 8, 3), (8, 8, 8)] {
        let mut fake = Fake::new(MS, 0..0);
        (fake.allowed, fake.begins) = (allowed, 3);
        let tally = simulate(plan(Pace::Closed, 2, in_flight), &mut fake, window, 0..0);
        assert_eq!((tally.succeeded, tally.failures()), (2 * 3 * 100, 0));
        assert_eq!(tally.server_allows, said, "with {allowed} announced");
        // One for all that are taken at once, beside those of the first turn.
        assert_eq!(tally.refused, fake.refused);
        let most = 2 * (100 + in_flight as u64);
        assert!((50..=most).contains(&fake.refused), "{}", fake.refused);
    }
    // What was due waits as well, from when it was due.
    let mut fake = Fake::new(10 * MS, 0..0);
    fake.begins = 3;
    let tally = simulate(plan(open_loop(200.0), 1, 8), &mut fake, window, 0..0);
    assert_eq!((tally.due, tally.succeeded, tally.failures()), (20, 20, 0));
    let mut fake = Fake::new(20 * MS, 0..0);
    fake.begins = 1;
    let tally = simulate(plan(open_loop(100.0), 1, 8), &mut fake, window, 0..0);
    assert_eq!((tally.due, tally.succeeded, tally.failures()), (10, 10, 0));
    assert!(
        tally.latency_ns.max() >= 100 * MS,
        "each waits for the one before"
    );
    assert!(tally.uncorrected_ns.max() < 22 * MS);
}

/// The only call of a connection that is refused would be so for ever.
#[test]
fn a_server_that_refuses_everything_is_left_alone() {
    let window = Window {
        from_ns: MS,
        until_ns: 101 * MS,
    };
    let mut fake = Fake::new(MS, 0..0);
    fake.begins = 0;
    let few = WorkerPlan {
        calls: Some(20),
        ..plan(Pace::Closed, 1, 4)
    };
    let tally = simulate(few, &mut fake, window, 0..0);
    assert_eq!(tally.failed, [(FailureKind::NotBegun, 20)]);
    assert!(fake.refused < 20 * 4, "{}", fake.refused);
}

/// A connection that has had its calls is made anew, and no call is lost by it.
#[test]
fn worn_out_connections_are_replaced() {
    let window = Window {
        from_ns: MS,
        until_ns: 101 * MS,
    };
    for pace in [Pace::Closed, open_loop(3_000.0)] {
        let mut fake = Fake::new(MS, 0..0);
        fake.calls_per_channel = 50;
        let tally = simulate(plan(pace, 2, 4), &mut fake, window, 0..0);
        assert_eq!(tally.failures(), 0, "{:?}", tally.first_failure);
        assert_eq!(tally.succeeded, fake.begun_in_all);
        assert!(tally.reconnects >= 4, "{}", tally.reconnects);
        assert_eq!(u64::from(fake.closed), tally.reconnects);
        if pace != Pace::Closed {
            assert_eq!(tally.succeeded, 300);
        }
    }
}

#[test]
fn short_connections_serve_one_call_each() {
    let window = Window {
        from_ns: MS,
        until_ns: 101 * MS,
    };
    for pace in [Pace::Closed, open_loop(500.0)] {
        let mut fake = Fake::new(99_000, 0..0);
        let short = WorkerPlan {
            mode: ConnectionMode::Short,
            ..plan(pace, 3, 1)
        };
        let tally = simulate(short, &mut fake, window, 0..0);
        assert_eq!(u64::from(fake.opened), tally.succeeded);
        assert_eq!(fake.opened, fake.closed);
        assert_eq!(tally.reconnects, 0);
        // Connecting is part of the call.
        assert!(
            tally.latency_ns.min() >= 99_900,
            "{}",
            tally.latency_ns.min()
        );
        let expected = if pace == Pace::Closed { 3_000 } else { 50 };
        assert_eq!(tally.succeeded, expected);
    }
}

#[test]
fn so_many_calls_and_no_more() {
    let window = Window {
        from_ns: MS,
        until_ns: u64::MAX,
    };
    for pace in [Pace::Closed, open_loop(1_000.0)] {
        let mut fake = Fake::new(MS, 0..0);
        let some = WorkerPlan {
            calls: Some(77),
            ..plan(pace, 2, 5)
        };
        let tally = simulate(some, &mut fake, window, 0..0);
        assert_eq!((tally.succeeded, fake.begun_in_all), (77, 77));
    }
}

/// What waits for a place when enough has been sent was not to be sent.
#[test]
fn what_is_due_beyond_the_number_of_calls_is_not_unfinished() {
    let window = Window {
        from_ns: MS,
        until_ns: u64::MAX,
    };
    let mut fake = Fake::new(10 * MS, 0..0);
    let some = WorkerPlan {
        calls: Some(5),
        ..plan(open_loop(1_000.0), 1, 1)
    };
    let tally = simulate(some, &mut fake, window, 0..0);
    assert!(
        tally.due > 30,
        "ten come due for each that is sent: {}",
        tally.due
    );
    assert_eq!(
        (tally.succeeded, tally.unfinished, tally.never_sent),
        (5, 0, 0)
    );
    // Stopped before, those that wait are.
    let mut fake = Fake::new(10 * MS, 0..0);
    let request = SameRequest::new("/t.T/Echo".into(), Vec::new());
    let mut worker = LoadWorker::new(plan(open_loop(1_000.0), 1, 1), request);
    worker.connect(&mut fake, 0);
    deliver(&mut worker, &mut fake, 2_000);
    worker.begin(MS, window);
    worker.turn(&mut fake, 4 * MS).expect("calls can be made");
    worker.stop(5 * MS);
    // One is sent, and three wait that were due at 2 to 4 ms.
    assert_eq!(worker.finish(5 * MS).unfinished, 4);
}

/// What was due and never got a place, and what never got an answer, is not forgotten.
#[test]
fn what_does_not_end_is_counted() {
    let window = Window {
        from_ns: MS,
        until_ns: 101 * MS,
    };
    let never = 90 * MS..u64::MAX;
    let mut fake = Fake::new(MS, never);
    let tally = simulate(plan(open_loop(1_000.0), 1, 10), &mut fake, window, 0..0);
    assert_eq!(tally.due, 100);
    assert_eq!(tally.succeeded + tally.unfinished, 100);
    assert_eq!(tally.succeeded, 88, "due at 1 to 88 ms");
    let oldest_ns = limits::DRAIN.as_nanos() as u64 + 12 * MS;
    assert_eq!(tally.oldest_unfinished_ns, oldest_ns);
}

/// A connection is cut with calls on it: they fail, others go on, and it is made again after a
/// pause.
#[test]
fn lost_connections_are_made_again() {
    let window = Window {
        from_ns: MS,
        until_ns: 1_001 * MS,
    };
    let mut fake = Fake::new(MS, 0..0);
    let mut worker = LoadWorker::new(
        plan(Pace::Closed, 2, 1),
        SameRequest::new("/t.T/Echo".into(), Vec::new()),
    );
    worker.connect(&mut fake, 0);
    deliver(&mut worker, &mut fake, 2_000);
    assert!(worker.is_connected().expect("no failure"));
    worker.begin(MS, window);
    worker.turn(&mut fake, MS).expect("calls can be made");
    assert_eq!(fake.begun_in_all, 2);
    let victim = fake
        .events
        .iter()
        .find_map(|(key, next)| match next {
            Next::Answer(tag, channel) => Some((*key, *tag, *channel)),
            _ => None,
        })
        .expect("a call is under way");
    fake.events.remove(&victim.0);
    fake.at(MS + 1, Next::Lost(victim.1, victim.2));
    fake.at(MS + 1, Next::Gone(victim.2));
    deliver(&mut worker, &mut fake, MS + 1);
    worker.turn(&mut fake, MS + 1).expect("the run goes on");
    assert_eq!(fake.opened, 2, "not at once");
    let again_ns = worker.next_due_ns().expect("it waits to connect");
    assert_eq!(again_ns, MS + 1 + limits::RECONNECT_PAUSE.as_nanos() as u64);
    worker.turn(&mut fake, again_ns).expect("the run goes on");
    assert_eq!(fake.opened, 3);
    let tally = worker.finish(again_ns);
    assert_eq!(tally.failed, [(FailureKind::ConnectionLost, 1)]);
    assert_eq!(tally.first_failure.as_deref(), Some("cut"));
    assert_eq!(tally.reconnects, 1);
}

/// Where calls come due faster than turns can follow, those of 50 µs begin together; the wait is
/// lag, and part of the latency.
#[test]
fn dense_calls_begin_together() {
    let window = Window {
        from_ns: 10 * MS,
        until_ns: 20 * MS + 1_000,
    };
    let together_ns = limits::TOGETHER.as_nanos() as u64;
    let run = |rate: f64| {
        let mut fake = Fake::new(100_000, 0..0);
        simulate(plan(open_loop(rate), 1, 10_000), &mut fake, window, 0..0)
    };
    let dense = run(1e6);
    assert_eq!((dense.due, dense.succeeded), (10_001, 10_001));
    // The last of each 50 has just come due.
    assert_eq!(dense.lag_ns.count_between(0, 0), 201);
    let longest_ns = dense.lag_ns.max();
    assert!(
        longest_ns > together_ns / 2 && longest_ns < together_ns,
        "{longest_ns}"
    );
    assert!(dense.latency_ns.min().abs_diff(100_000) < 100);
    assert!(dense.latency_ns.max().abs_diff(100_000 + longest_ns) < 300);
    assert_eq!(dense.uncorrected_ns.count_between(101_000, u64::MAX), 0);
    // One that comes behind a pause does not wait, and others no longer than they must.
    let sparse = run(limits::TOGETHER_FROM_RATE - 1.0);
    assert_eq!((sparse.due, sparse.lag_ns.max()), (2_501, 0));
}

/// Those that begin together share connections by the system call; all connections have their
/// turns.
#[test]
fn calls_that_are_due_together_share_a_connection() {
    let window = Window {
        from_ns: 10 * MS,
        until_ns: 20 * MS,
    };
    let run = |rate: f64| {
        let mut fake = Fake::new(100_000, 0..0);
        simulate(plan(open_loop(rate), 4, 10_000), &mut fake, window, 0..0);
        let per_connection: Vec<u64> = fake.begun.values().map(|calls| calls.1).collect();
        let spread = per_connection.iter().max().zip(per_connection.iter().min());
        let (most, fewest) = spread.expect("there are four");
        assert!(
            most - fewest <= 2 * limits::CALLS_TOGETHER as u64,
            "{per_connection:?}"
        );
        (fake.begun_in_all, fake.changes)
    };
    // Two connections for each 50.
    let (calls, changes) = run(1e6);
    assert_eq!(calls, 10_000);
    assert!((400..=402).contains(&changes), "{changes}");
    let (calls, changes) = run(1e5);
    assert_eq!((calls, changes), (1_000, 1_000), "one by one");
}

/// Messages of long calls, whose answers say by their first byte what they are.
#[derive(Clone, Copy)]
struct Messages {
    /// Whether each has a long call of its own.
    is_for_each: bool,
}

impl Workload for Messages {
    fn paths(&self) -> Vec<String> {
        vec!["/t.T/Pipe".into()]
    }

    fn is_pipe(&self) -> bool {
        true
    }

    fn has_pipe_for_each(&self) -> bool {
        self.is_for_each
    }

    fn choose(&mut self) -> usize {
        0
    }

    fn encode(&mut self, _out: &mut Vec<u8>) {}

    fn judge(&self, _kind: usize, _ticket: u32, answer: &[u8]) -> Verdict {
        match answer[0] {
            GOOD => Verdict::Good,
            MISS => Verdict::Miss,
            NO_EFFECT => Verdict::NoEffect,
            WRONG => Verdict::Wrong,
            _ => Verdict::Unreadable,
        }
    }

    fn refusal(&self, _kind: usize, answer: &[u8]) -> Option<String> {
        Some(format!("{} stood in its way", answer[0]))
    }
}

fn simulate_messages(is_for_each: bool, plan: WorkerPlan, fake: &mut Fake) -> Tally {
    let window = Window {
        from_ns: MS,
        until_ns: 101 * MS,
    };
    simulate_workload(Messages { is_for_each }, MS, plan, fake, window, 0..0)
}

/// One long call for each connection, or for each call in flight; as many messages are under way in
/// both.
#[test]
fn messages_of_long_calls_are_counted_as_calls() {
    for (is_for_each, streams) in [(false, 2), (true, 6)] {
        let mut fake = Fake::new(MS, 0..0);
        let tally = simulate_messages(is_for_each, plan(Pace::Closed, 2, 3), &mut fake);
        assert_eq!(fake.streams_begun, streams);
        assert_eq!((tally.succeeded, tally.ended), (600, 600));
        assert_eq!(fake.begun_in_all, 600);
        // The last ones are answered at the end of the window, so not in it.
        assert_eq!(
            (tally.ended_in_window, &tally.ended_by_place[..]),
            (594, &[99; 6][..])
        );
        assert_eq!(tally.latency_ns.count_between(MS, MS), 600);
        assert_eq!((tally.server_allows, tally.failures()), (u64::MAX, 0));
    }
    // An open loop too.
    for is_for_each in [false, true] {
        let mut fake = Fake::new(MS, 0..0);
        let tally = simulate_messages(is_for_each, plan(open_loop(1_000.0), 2, 3), &mut fake);
        assert_eq!((tally.due, tally.succeeded, tally.waited), (100, 100, 0));
    }
}

/// Messages in a long call that is open are not bounded by the calls that the server allows.
#[test]
fn only_long_calls_that_are_new_need_room() {
    let mut fake = Fake::new(MS, 0..0);
    fake.allowed = 2;
    let tally = simulate_messages(true, plan(Pace::Closed, 1, 5), &mut fake);
    assert_eq!(
        (fake.streams_begun, tally.succeeded, tally.server_allows),
        (2, 200, 2)
    );
    let mut fake = Fake::new(MS, 0..0);
    fake.allowed = 1;
    let tally = simulate_messages(false, plan(Pace::Closed, 1, 5), &mut fake);
    assert_eq!((fake.streams_begun, tally.succeeded), (1, 500));
    assert_eq!(tally.server_allows, u64::MAX);
}

#[test]
fn each_verdict_on_a_message_counts_as_what_it_is() {
    for is_for_each in [false, true] {
        let mut fake = Fake::new(MS, 0..0);
        fake.answers = vec![GOOD, MISS, NO_EFFECT, WRONG, UNREADABLE];
        let tally = simulate_messages(is_for_each, plan(Pace::Closed, 1, 5), &mut fake);
        assert_eq!((tally.succeeded, tally.misses), (200, 100));
        assert_eq!(tally.misses_by_kind[0], 100);
        let mut failed = tally.failed.clone();
        failed.sort_unstable();
        assert_eq!(
            failed,
            [
                (FailureKind::BadAnswer, 100),
                (FailureKind::NoEffect, 100),
                (FailureKind::WrongValue, 100),
            ]
        );
        let text = format!("{NO_EFFECT} stood in its way");
        assert_eq!(tally.first_failure, Some(text));
        for (answer, text) in [
            (WRONG, "the answer has another value than it should"),
            (UNREADABLE, "the answer cannot be read, or is another one's"),
        ] {
            let mut fake = Fake::new(MS, 0..0);
            fake.answers = vec![answer];
            let tally = simulate_messages(is_for_each, plan(Pace::Closed, 1, 1), &mut fake);
            assert_eq!(tally.first_failure.as_deref(), Some(text));
        }
    }
}

/// What waits in a long call that ends has failed with it; the next message opens another one.
#[test]
fn long_calls_that_end_are_begun_again() {
    for (is_for_each, streams) in [(false, 34), (true, 51)] {
        let mut fake = Fake::new(MS, 0..0);
        fake.messages_per_stream = 2;
        let tally = simulate_messages(is_for_each, plan(Pace::Closed, 1, 1), &mut fake);
        // Two good ones, and one that ends the call.
        assert_eq!((tally.succeeded, tally.failures()), (67, 33));
        assert_eq!(
            tally.failed,
            [(FailureKind::Status(client::Code::Aborted as u8), 33)]
        );
        assert!(
            tally
                .first_failure
                .as_deref()
                .expect("one")
                .contains("enough")
        );
        assert_eq!(fake.streams_begun, 34);
        assert_eq!(tally.ended, 100);

        // All that wait in the same call fail with it, or only those of this one.
        let mut fake = Fake::new(MS, 0..0);
        fake.messages_per_stream = 1;
        let tally = simulate_messages(is_for_each, plan(Pace::Closed, 1, 2), &mut fake);
        let failures = if is_for_each { 100 } else { 0 };
        assert_eq!(tally.ended, 200, "{:?}", tally.failed);
        assert!(tally.failures() >= failures, "{:?}", tally.failed);
        assert!(fake.streams_begun >= streams, "{}", fake.streams_begun);
    }
}

/// An end with OK is none to a message that waits, and a message that nobody waits for is no
/// answer.
#[test]
fn ends_and_messages_without_a_question_are_no_successes() {
    let mut fake = Fake::new(MS, 0..0);
    let mut worker = LoadWorker::new(plan(Pace::Closed, 1, 2), Messages { is_for_each: false });
    worker.connect(&mut fake, 0);
    deliver(&mut worker, &mut fake, 2_000);
    let window = Window {
        from_ns: MS,
        until_ns: 101 * MS,
    };
    worker.begin(MS, window);
    worker.turn(&mut fake, MS).expect("calls can be made");
    let (&tag, &(channel, messages)) = fake.streams.iter().next().expect("it was begun");
    assert_eq!(messages, 2);
    let ending = Ending::Status {
        status: &Status::OK,
        messages: 1,
    };
    let ended = Happened::Ended {
        tag,
        channel,
        ending,
    };
    worker.happened(&ended, 2 * MS);
    let bytes = &[GOOD];
    worker.happened(&Happened::Message { tag, bytes }, 2 * MS);
    let tally = worker.finish(2 * MS);
    assert_eq!(tally.failed, [(FailureKind::BadAnswer, 2)]);
    assert_eq!((tally.succeeded, tally.unfinished), (0, 0));
}

/// A connection that takes no more calls, and has none, is made again at once: nobody has to wait
/// for something else.
#[test]
fn worn_out_connections_without_calls_are_replaced_at_once() {
    let window = Window {
        from_ns: MS,
        until_ns: 1_001 * MS,
    };
    let mut fake = Fake::new(MS, 0..0);
    fake.calls_per_channel = 5;
    let tally = simulate(plan(Pace::Closed, 1, 1), &mut fake, window, 0..0);
    // Five calls of 1 ms, and 1 µs for the next connection.
    assert_eq!((tally.succeeded, tally.reconnects), (1_000, 199));
    assert_eq!(tally.failures(), 0);
    for is_for_each in [false, true] {
        let mut fake = Fake::new(MS, 0..0);
        fake.calls_per_channel = 3;
        fake.messages_per_stream = 2;
        let tally = simulate_messages(is_for_each, plan(Pace::Closed, 1, 1), &mut fake);
        // Three long calls of three messages each, of which the third ends it.
        assert_eq!((tally.ended, tally.failures()), (100, 33));
        assert_eq!((tally.reconnects, u64::from(fake.closed)), (11, 11));
        assert!(matches!(tally.failed[..], [(FailureKind::Status(_), 33)]));
    }
}

/// A call that waits for its connection is one that has not ended.
#[test]
fn calls_that_wait_for_a_connection_are_unfinished() {
    let window = Window {
        from_ns: 10 * MS,
        until_ns: 20 * MS,
    };
    let short = WorkerPlan {
        mode: ConnectionMode::Short,
        ..plan(Pace::Closed, 3, 1)
    };
    let mut fake = Fake::new(99_000, 0..0);
    fake.connecting = Connecting::Ignores;
    let tally = simulate(short.clone(), &mut fake, window, 0..0);
    assert_eq!((tally.unfinished, tally.ended), (3, 0));
    let drain_ns = limits::DRAIN.as_nanos() as u64;
    assert_eq!(
        fake.now_ns,
        window.until_ns + drain_ns,
        "they are waited for"
    );
    assert_eq!(tally.oldest_unfinished_ns, drain_ns + 10 * MS);
    // In the warm-up too.
    let mut fake = Fake::new(99_000, 0..0);
    fake.connecting = Connecting::Ignores;
    let tally = simulate_from(5 * MS, short.clone(), &mut fake, window, 0..0);
    assert_eq!((tally.unfinished, tally.unfinished_before), (0, 3));
    // Where nothing waits the run is over with its last call.
    let mut fake = Fake::new(99_000, 0..0);
    let tally = simulate(short, &mut fake, window, 0..0);
    assert_eq!(tally.unfinished, 0);
    assert!(fake.now_ns <= window.until_ns + 100_000, "{}", fake.now_ns);
}

/// A connection that cannot be made is a failure of its call, and the next one comes after a pause.
#[test]
fn calls_without_a_connection_fail() {
    let window = Window {
        from_ns: 10 * MS,
        until_ns: 1_010 * MS,
    };
    let short = WorkerPlan {
        mode: ConnectionMode::Short,
        ..plan(Pace::Closed, 2, 1)
    };
    let mut fake = Fake::new(99_000, 0..0);
    fake.connecting = Connecting::Refuses;
    let tally = simulate(short, &mut fake, window, 0..0);
    // One after each pause of 100 ms, and the microsecond in which it fails.
    assert_eq!(tally.failed, [(FailureKind::NotConnected, 20)]);
    assert_eq!(
        (tally.reconnects, tally.unfinished, fake.opened),
        (0, 0, 20)
    );
    assert!(tally.first_failure.is_some());
}

#[test]
fn a_request_that_cannot_be_sent_is_fatal() {
    let mut fake = Fake::new(MS, 0..0);
    let request = SameRequest::new(BAD_PATH.into(), Vec::new());
    let mut worker = LoadWorker::new(plan(Pace::Closed, 1, 1), request);
    worker.connect(&mut fake, 0);
    deliver(&mut worker, &mut fake, 2_000);
    let window = Window {
        from_ns: MS,
        until_ns: 101 * MS,
    };
    worker.begin(MS, window);
    let error = worker.turn(&mut fake, MS).expect_err("it cannot be sent");
    assert!(matches!(error, LoadRunError::BadRequest(_)), "{error:?}");
    assert_eq!(error.to_string(), "the call cannot be made: it has no path");
}

/// A connection that takes no call is none of the call's faults, except where it was made for it.
#[test]
fn a_new_connection_that_takes_no_call_is_a_failure() {
    let window = Window {
        from_ns: MS,
        until_ns: 101 * MS,
    };
    let short = WorkerPlan {
        mode: ConnectionMode::Short,
        calls: Some(5),
        ..plan(Pace::Closed, 1, 1)
    };
    let mut fake = Fake::new(MS, 0..0);
    fake.calls_per_channel = 0;
    let tally = simulate(short, &mut fake, window, 0..0);
    assert_eq!(tally.failed, [(FailureKind::NotBegun, 5)]);
    assert_eq!((fake.opened, tally.reconnects), (5, 0));
}

/// The failure of a connection before the load says how many others stand.
#[test]
fn a_connection_that_cannot_be_made_is_fatal_before_the_load() {
    let mut fake = Fake::new(MS, 0..0);
    let request = || SameRequest::new("/t.T/Echo".into(), Vec::new());
    let mut worker = LoadWorker::new(plan(Pace::Closed, 2, 1), request());
    fake.connecting = Connecting::Refuses;
    worker.connect(&mut fake, 0);
    deliver(&mut worker, &mut fake, 2_000);
    let error = worker.is_connected().expect_err("none can be made");
    assert!(!error.to_string().contains("after"), "{error}");

    // No further one is begun when one has failed at once.
    let mut fake = Fake::new(MS, 0..0);
    let mut worker = LoadWorker::new(plan(Pace::Closed, 5, 1), request());
    fake.connecting = Connecting::Fails;
    worker.connect(&mut fake, 0);
    assert_eq!(fake.opened, 1);
    worker.is_connected().expect_err("none can be made");

    let mut fake = Fake::new(MS, 0..0);
    let mut worker = LoadWorker::new(plan(Pace::Closed, 2, 1), request());
    worker.connect(&mut fake, 0);
    let second = fake.events.pop_last().expect("two are made");
    let Next::Connected(channel) = second.1 else {
        panic!("{second:?}");
    };
    fake.at(1_500, Next::Gone(channel));
    deliver(&mut worker, &mut fake, 2_000);
    let error = worker.is_connected().expect_err("one is missing");
    let text = "after 1 connections of this thread were open";
    assert!(error.to_string().contains(text), "{error}");
}

/// A run of a number of calls ends when its server is gone for good, and goes on when it is back in
/// time. None of it hangs where an attempt to connect is never answered.
#[test]
fn a_run_of_calls_ends_when_its_server_is_gone() {
    let gone_ns = limits::SERVER_GONE.as_nanos() as u64;
    let window = Window {
        from_ns: MS,
        until_ns: u64::MAX,
    };
    let modes = [ConnectionMode::Multiplexed, ConnectionMode::Short];
    for (mode, connecting) in modes.into_iter().flat_map(|mode| {
        let ways = [Connecting::Refuses, Connecting::Ignores, Connecting::Fails];
        ways.map(|way| (mode, way))
    }) {
        let calls = WorkerPlan {
            mode,
            calls: Some(1_000_000),
            ..plan(Pace::Closed, 1, 1)
        };
        let mut fake = Fake::new(MS, 0..0);
        let workload = SameRequest::new("/t.T/Echo".into(), Vec::new());
        let mut worker = LoadWorker::new(calls, workload);
        worker.connect(&mut fake, 0);
        deliver(&mut worker, &mut fake, 2_000);
        worker.begin(MS, window);
        worker.turn(&mut fake, MS).expect("calls can be made");
        // All that stands ends, and nothing can be made any more.
        fake.connecting = connecting;
        let channel = fake.begun.keys().next().copied().expect("one is open");
        let answers = std::mem::take(&mut fake.events);
        for next in answers.into_values() {
            if let Next::Answer(tag, channel) = next {
                fake.at(2 * MS, Next::Lost(tag, channel));
            }
        }
        fake.at(2 * MS, Next::Gone(channel));
        let mut now_ns = 2 * MS;
        for _ in 0..10_000 {
            deliver(&mut worker, &mut fake, now_ns);
            worker.turn(&mut fake, now_ns).expect("the run goes on");
            if worker.is_finished(now_ns) {
                break;
            }
            let event_ns = fake.events.keys().next().map(|(at_ns, _)| *at_ns);
            let due_ns = worker.next_due_ns();
            let next_ns = [event_ns, due_ns].into_iter().flatten().min();
            now_ns = next_ns.expect("something ends it");
        }
        assert!(worker.is_finished(now_ns), "{mode:?} {connecting:?}");
        assert_eq!(now_ns, 2 * MS + gone_ns, "{mode:?} {connecting:?}");
        let tally = worker.finish(now_ns);
        assert!(tally.is_server_gone, "{mode:?} {connecting:?}");
    }
}

/// One connection that stands is a server, however long another one is refused.
#[test]
fn a_server_that_refuses_some_connections_is_not_gone() {
    let calls = WorkerPlan {
        calls: Some(40_000),
        ..plan(Pace::Closed, 2, 1)
    };
    let window = Window {
        from_ns: MS,
        until_ns: u64::MAX,
    };
    let mut fake = Fake::new(MS, 0..0);
    let workload = SameRequest::new("/t.T/Echo".into(), Vec::new());
    let mut worker = LoadWorker::new(calls, workload);
    worker.connect(&mut fake, 0);
    deliver(&mut worker, &mut fake, 2_000);
    worker.begin(MS, window);
    worker.turn(&mut fake, MS).expect("calls can be made");
    fake.connecting = Connecting::Refuses;
    let first = fake
        .events
        .first_key_value()
        .map(|(key, next)| (*key, *next));
    let Some((key, Next::Answer(tag, channel))) = first else {
        panic!("a call is under way");
    };
    fake.events.remove(&key);
    fake.at(key.0, Next::Lost(tag, channel));
    fake.at(key.0, Next::Gone(channel));
    let mut now_ns = key.0;
    while !worker.is_finished(now_ns) {
        deliver(&mut worker, &mut fake, now_ns);
        worker.turn(&mut fake, now_ns).expect("the run goes on");
        let event_ns = fake.events.keys().next().map(|(at_ns, _)| *at_ns);
        let next_ns = [event_ns, worker.next_due_ns()].into_iter().flatten().min();
        now_ns = next_ns.unwrap_or(now_ns).max(now_ns);
    }
    let tally = worker.finish(now_ns);
    assert!(!tally.is_server_gone && now_ns > 3 * limits::SERVER_GONE.as_nanos() as u64);
    assert_eq!((tally.succeeded, tally.failures()), (39_999, 1));
}

/// A run of a number of calls ends when none of those under way ends any more: at the limit, or at
/// the deadline of a call where that is longer. An answer now and then lets it go on, and so does
/// a pause in which nothing is under way.
#[test]
fn a_run_of_calls_ends_when_its_server_stalls() {
    let limit_ns = limits::SERVER_STALLED.as_nanos() as u64;
    let window = Window {
        from_ns: MS,
        until_ns: u64::MAX,
    };
    for (deadline_ns, expected_ns) in [
        (None, limit_ns),
        (Some(limit_ns / 2), limit_ns),
        (Some(limit_ns * 3), limit_ns * 3),
    ] {
        let calls = WorkerPlan {
            calls: Some(1_000_000),
            deadline_ns,
            ..plan(Pace::Closed, 2, 3)
        };
        let mut fake = Fake::new(MS, 10 * MS..u64::MAX);
        let workload = SameRequest::new("/t.T/Echo".into(), Vec::new());
        let mut worker = LoadWorker::new(calls, workload);
        worker.connect(&mut fake, 0);
        deliver(&mut worker, &mut fake, MS);
        worker.begin(MS, window);
        let mut now_ns = MS;
        while now_ns < 5 * limit_ns && !worker.is_finished(now_ns) {
            deliver(&mut worker, &mut fake, now_ns);
            worker.turn(&mut fake, now_ns).expect("the run goes on");
            now_ns += if now_ns < 20 * MS { MS } else { 100 * MS };
        }
        let stalled_ns = now_ns - 9 * MS;
        let range = expected_ns..expected_ns + 300 * MS;
        assert!(range.contains(&stalled_ns), "{deadline_ns:?}: {stalled_ns}");
        let tally = worker.finish(now_ns);
        assert!(tally.is_server_stalled && !tally.is_server_gone);
        assert_eq!((tally.succeeded, tally.unfinished), (8 * 6, 6));
    }
}

#[test]
fn a_server_that_answers_now_and_then_has_not_stalled() {
    let limit_ns = limits::SERVER_STALLED.as_nanos() as u64;
    let window = Window {
        from_ns: MS,
        until_ns: u64::MAX,
    };
    let slow = Pace::Open {
        rate: 1e9 / (3 * limit_ns) as f64,
        arrivals: Arrivals::Fixed,
    };
    // Each call takes nearly the limit; or none is under way for three times as long.
    for (pace, service_ns) in [(Pace::Closed, limit_ns - 200 * MS), (slow, MS)] {
        let calls = WorkerPlan {
            calls: Some(5),
            ..plan(pace, 1, 1)
        };
        let mut fake = Fake::new(service_ns, 0..0);
        let workload = SameRequest::new("/t.T/Echo".into(), Vec::new());
        let mut worker = LoadWorker::new(calls, workload);
        worker.connect(&mut fake, 0);
        deliver(&mut worker, &mut fake, MS);
        worker.begin(MS, window);
        let mut now_ns = MS;
        while now_ns < 20 * limit_ns && !worker.is_finished(now_ns) {
            deliver(&mut worker, &mut fake, now_ns);
            worker.turn(&mut fake, now_ns).expect("the run goes on");
            now_ns += 100 * MS;
        }
        let tally = worker.finish(now_ns);
        // The last one is not waited for as long as that.
        assert_eq!(tally.succeeded + tally.unfinished, 5);
        assert!(tally.succeeded >= 4 && !tally.is_server_stalled);
    }
}
