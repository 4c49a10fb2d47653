//! One run of the user's client behind the tap, as evidence, and which run comes next.

use std::time::Duration;

use super::client_runs::{PILED_UP, cycle_ns};
use super::client_verdict::{is_client_named, is_waited_for};
use super::compression::compression_use;
use super::evidence::{ClientEvidence, ClientRun};
use super::limits::{LEFT_CALLS_TIME_LEAST, LEFT_CALLS_TIME_MOST};
use super::process_watch::WatchedUse;
use super::wandering::is_worth_trying;
use crate::tap::{Bottleneck, Conditions, TapSummary, TimeUse, judge};

/// The shortest and the longest way that is added.
const DELAY_NS: std::ops::RangeInclusive<u64> = 200_000..=100_000_000;

/// How long a call may take with its time in a queue, so that the longest way is noticed: with it
/// there are 0.7 of the calls, and no more.
const NOTICED_CYCLE_NS: u64 = 230_000_000;

/// Calls that may be open where they pile up: if the server answers as many, the others only wait.
/// Fewer are left to it when that run ends.
const QUEUE_PROBE: u32 = 64;

/// What is different in a run of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunConditions {
    /// Nothing.
    Plain,
    /// At most so many calls are open at a time on a connection: half of what was, or
    /// [`QUEUE_PROBE`] where they pile up, and half after that if these are too few.
    Halved(u32),
    /// Each round trip takes so many nanoseconds longer.
    Delayed(u64),
    /// Nothing, once more.
    Again,
    /// One call is open at a time on a connection.
    Single,
    /// The client has one CPU alone.
    Pinned,
}

/// A way that is half as long as a call takes with its time in a queue: a server that has as much
/// to do with half as many calls open has it with such a way too, and any other has less. `None`:
/// calls wait so long that no way that is added is noticed.
fn noticed_delay_ns(plain: &ClientRun) -> Option<u64> {
    let half_ns = cycle_ns(plain) as u64 / 2;
    (half_ns <= NOTICED_CYCLE_NS / 2).then(|| half_ns.clamp(*DELAY_NS.start(), *DELAY_NS.end()))
}

impl RunConditions {
    /// Returns the run that comes next; `None`: enough is known.
    pub fn next(evidence: Option<&ClientEvidence>) -> Option<RunConditions> {
        let Some(evidence) = evidence else {
            return Some(RunConditions::Plain);
        };
        let plain = &evidence.plain;
        if evidence.early_end.is_none() && is_client_named(plain) && is_worth_trying(plain) {
            return match (&evidence.pinned, &evidence.again) {
                (None, _) => Some(RunConditions::Pinned),
                (Some(_), None) => Some(RunConditions::Again),
                (Some(_), Some(_)) => None,
            };
        }
        if evidence.early_end.is_some() || !is_waited_for(plain) || plain.most_open < 2 {
            return None;
        }
        let half = plain.most_open as u32 / 2;
        let Some(halved) = &evidence.halved else {
            let is_queue = plain.most_open >= PILED_UP;
            return Some(RunConditions::Halved(if is_queue {
                QUEUE_PROBE
            } else {
                half
            }));
        };
        let is_saturated = halved.rate >= plain.rate * 0.85;
        if !is_saturated && halved.stream_limit_made == Some(QUEUE_PROBE) && QUEUE_PROBE < half {
            return Some(RunConditions::Halved(half));
        }
        if let (None, Some(delay_ns)) = (&evidence.delayed, noticed_delay_ns(plain)) {
            return Some(RunConditions::Delayed(delay_ns));
        }
        if is_saturated && evidence.single.is_none() {
            return Some(RunConditions::Single);
        }
        evidence.again.is_none().then_some(RunConditions::Again)
    }

    /// What the tap does for it.
    pub fn of_tap(self) -> Conditions {
        let (delay_ns, stream_limit) = match self {
            RunConditions::Plain | RunConditions::Again | RunConditions::Pinned => (0, None),
            RunConditions::Halved(limit) => (0, Some(limit)),
            RunConditions::Single => (0, Some(1)),
            RunConditions::Delayed(delay_ns) => (delay_ns, None),
        };
        Conditions {
            delay_ns,
            stream_limit,
            ..Conditions::default()
        }
    }
}

/// How long a server may still work on calls of a client that was ended: some servers do, and
/// would answer those of the next run after them. `None`: no time that matters.
pub fn left_calls_time(run: &ClientRun) -> Option<Duration> {
    let open = (run.most_open * run.connections_at_a_time) as f64;
    let left_ns = open * 1e9 / run.rate.max(1e-9);
    let left = Duration::from_nanos(left_ns as u64).min(LEFT_CALLS_TIME_MOST);
    (left >= LEFT_CALLS_TIME_LEAST).then_some(left)
}

impl ClientEvidence {
    /// What is known after the first run, which is as the client is.
    pub fn new(plain: ClientRun) -> ClientEvidence {
        ClientEvidence {
            plain,
            halved: None,
            single: None,
            delayed: None,
            pinned: None,
            again: None,
            agent: None,
            early_end: None,
        }
    }

    /// Adds a further run.
    pub fn add(&mut self, conditions: RunConditions, run: ClientRun) {
        match conditions {
            RunConditions::Plain => self.plain = run,
            RunConditions::Halved(_) => self.halved = Some(run),
            RunConditions::Delayed(_) => self.delayed = Some(run),
            RunConditions::Again => self.again = Some(run),
            RunConditions::Single => self.single = Some(run),
            RunConditions::Pinned => self.pinned = Some(run),
        }
    }
}

/// Returns what a run has shown, by what the tap saw and by what the processes did meanwhile.
/// `cpu_ns`: the CPU time of this thread, by which it is measured what compressing costs.
pub fn client_run(
    summary: &TapSummary,
    client: WatchedUse,
    server: WatchedUse,
    cpu_ns: &dyn Fn() -> u64,
) -> ClientRun {
    const CLIENT: &[TimeUse] = &[
        TimeUse::NoCall,
        TimeUse::ClientSilent,
        TimeUse::ClientInRequest,
        TimeUse::ClientNotReading,
    ];
    const SERVER: &[TimeUse] = &[
        TimeUse::Server,
        TimeUse::ServerAtLimit,
        TimeUse::ServerNotReading,
    ];
    let figures = summary.figures();
    let connections = || {
        let all = summary.connections.iter().chain([&summary.others]);
        all.filter(|connection| connection.figures.calls > 0)
    };
    let at_a_time = summary.totals.most_carrying.max(1);
    // From the first call to the last: a program also begins and ends. Of connections that follow
    // each other all of them together.
    let times_ns = || connections().map(|connection| connection.figures.times.total_ns());
    let one_after_another_ns = times_ns().sum::<u64>() / at_a_time as u64;
    let longest_ns = times_ns().max().unwrap_or_default();
    let active_ns = longest_ns.max(one_after_another_ns).max(1);
    let each_second = |count: u64| count as f64 * 1e9 / active_ns as f64;
    let totals = &summary.totals;
    let failed = totals.methods.iter().map(|method| method.failed).sum();
    ClientRun {
        stream_limit_made: summary.conditions.stream_limit,
        delay_ns: summary.conditions.delay_ns,
        rate: each_second(totals.ended.saturating_sub(failed)),
        ended: totals.ended,
        failed,
        connections: connections()
            .map(|connection| connection.connections as usize)
            .sum::<usize>()
            .max(1),
        connections_at_a_time: at_a_time,
        mean_open: figures.mean_open(),
        most_open: figures.most_open,
        limit: figures.limit,
        at_limit: figures.at_limit_ns as f64 / figures.times.total_ns().max(1) as f64,
        client_share: figures.times.share(CLIENT),
        server_share: figures.times.share(SERVER),
        server_window_share: figures.times.share(&[TimeUse::ServerWindow]),
        client_window_share: figures.times.share(&[TimeUse::ClientWindow]),
        server_ns: totals.server_ns.value_at_quantile(0.5),
        server_mean_ns: totals.server_ns.mean() as u64,
        call_ns: totals.call_ns.value_at_quantile(0.5),
        bytes_per_s: (
            each_second(connections().map(|one| one.bytes_to_server).sum()),
            each_second(connections().map(|one| one.bytes_to_client).sum()),
        ),
        // Of a few calls in a long time it says nothing.
        tap_busy: summary.own_cpu_ns as f64 / active_ns.max(summary.wall_ns / 4) as f64,
        compressed_requests: compression_use(&totals.compressed.to_server, each_second, cpu_ns),
        compressed_responses: compression_use(&totals.compressed.to_client, each_second, cpu_ns),
        round_trip_ns: (!summary.is_target_local).then(|| round_trip_ns(summary)),
        client: client.process,
        machine: client.machine.or(server.machine),
        server_machine: server.machine,
        server: server.process,
        problem: problem_of(summary),
    }
}

/// What the tap says of a run in which no call succeeded.
fn problem_of(summary: &TapSummary) -> Option<String> {
    let verdict = judge(summary);
    (verdict.bottleneck == Bottleneck::NothingSeen).then_some(verdict.sentence)
}

/// There and back to the server: the quickest that TCP has measured, or what connecting took.
fn round_trip_ns(summary: &TapSummary) -> u64 {
    let all = summary.connections.iter().chain([&summary.others]);
    let carrying = all.filter(|connection| connection.figures.calls > 0);
    let rounds = carrying.filter_map(|connection| connection.server_tcp);
    let quickest = rounds.map(|tcp| tcp.round_trip_us * 1_000).min();
    quickest.unwrap_or(u64::MAX).min(summary.connect_ns)
}

#[cfg(test)]
mod tests {
    use super::super::evidence::ProcessUse;
    use super::super::tests::{run, using};
    use super::*;
    use crate::tap::tests::summary_of_turns;

    /// A program that is run again and again: its calls do not become more by that.
    #[test]
    fn connections_one_after_the_other_make_no_more_calls_a_second() {
        let rate = |turns: usize, at_once: bool| {
            let summary = summary_of_turns(turns, at_once);
            let run = client_run(
                &summary,
                WatchedUse::default(),
                WatchedUse::default(),
                &|| 0,
            );
            assert_eq!((run.connections, run.ended), (turns, 10 * turns as u64));
            assert_eq!(run.connections_at_a_time, if at_once { turns } else { 1 });
            // Ten calls of 1 ms, one after the other.
            assert_eq!(cycle_ns(&run).round(), 1e6);
            run.rate.round()
        };
        assert_eq!(rate(1, false), 1_000.0);
        assert_eq!(rate(5, false), 1_000.0);
        assert_eq!(rate(5, true), 5_000.0);
    }

    #[test]
    fn runs_follow_each_other_until_enough_is_known() {
        assert_eq!(RunConditions::next(None), Some(RunConditions::Plain));
        let mut evidence = ClientEvidence::new(run(500.0));
        let next = |evidence: &ClientEvidence| RunConditions::next(Some(evidence));
        assert_eq!(next(&evidence), Some(RunConditions::Halved(4)));
        evidence.add(RunConditions::Halved(4), run(250.0));
        assert_eq!(next(&evidence), Some(RunConditions::Delayed(7_900_000)));
        evidence.add(RunConditions::Delayed(0), run(250.0));
        assert_eq!(next(&evidence), Some(RunConditions::Again));
        evidence.add(RunConditions::Again, run(500.0));
        assert_eq!(next(&evidence), None, "fewer calls bring less");
        evidence.add(RunConditions::Halved(4), run(480.0));
        assert_eq!(next(&evidence), Some(RunConditions::Single));
        evidence.add(RunConditions::Single, run(480.0));
        assert_eq!(next(&evidence), None);
        evidence.again = None;
        assert_eq!(next(&evidence), Some(RunConditions::Again));
        // Nothing waits for the server, or nothing can be left out.
        let mut idle = run(500.0);
        (idle.client_share, idle.server_share) = (0.9, 0.1);
        assert_eq!(next(&ClientEvidence::new(idle)), None);
        let mut alone = run(500.0);
        alone.most_open = 1;
        assert_eq!(next(&ClientEvidence::new(alone)), None);
    }

    /// 2 000 calls at a server that answers 63 a second: what is left of them takes half a minute.
    #[test]
    fn calls_that_pile_up_are_tried_with_few_of_them_and_without_a_longer_way() {
        let piled_up = |most_open: usize| {
            let mut plain = run(63.0);
            (plain.mean_open, plain.most_open) = (most_open as f64 * 0.93, most_open);
            ClientEvidence::new(plain)
        };
        let next = |evidence: &ClientEvidence| RunConditions::next(Some(evidence));
        assert_eq!(next(&piled_up(255)), Some(RunConditions::Halved(127)));
        assert_eq!(next(&piled_up(256)), Some(RunConditions::Halved(64)));
        let mut evidence = piled_up(2_000);
        let limited = |rate: f64, limit| ClientRun {
            stream_limit_made: Some(limit),
            ..run(rate)
        };
        evidence.add(RunConditions::Halved(64), limited(63.0, 64));
        assert_eq!(next(&evidence), Some(RunConditions::Single));
        evidence.add(RunConditions::Single, limited(63.0, 1));
        assert_eq!(next(&evidence), Some(RunConditions::Again));
        // So few are too few for this server, which says nothing of half of them.
        evidence.add(RunConditions::Halved(64), limited(20.0, 64));
        assert_eq!(next(&evidence), Some(RunConditions::Halved(1_000)));
        evidence.add(RunConditions::Halved(1_000), limited(30.0, 1_000));
        assert_eq!(next(&evidence), Some(RunConditions::Again));
    }

    #[test]
    fn what_a_client_has_left_to_the_server_is_waited_for_and_not_forever() {
        let mut left = run(100.0);
        (left.most_open, left.connections_at_a_time) = (100, 2);
        assert_eq!(left_calls_time(&left), Some(Duration::from_secs(2)));
        left.rate = 2_001.0;
        assert_eq!(left_calls_time(&left), None);
        left.rate = 1.0;
        assert_eq!(left_calls_time(&left), Some(LEFT_CALLS_TIME_MOST));
        // Nothing was answered at all.
        left.rate = 0.0;
        assert_eq!(left_calls_time(&left), Some(LEFT_CALLS_TIME_MOST));
    }

    #[test]
    fn a_client_whose_threads_move_runs_on_one_cpu_too() {
        let mut plain = run(500.0);
        (plain.client_share, plain.server_share) = (0.9, 0.1);
        plain.client = Some(using(0.9, 0.6));
        let mut evidence = ClientEvidence::new(plain);
        let next = |evidence: &ClientEvidence| RunConditions::next(Some(evidence));
        assert_eq!(next(&evidence), None, "nobody says that they move");
        let moves = |process: &mut ProcessUse| process.migrations_per_s = Some(900.0);
        evidence.plain.client.iter_mut().for_each(moves);
        assert_eq!(next(&evidence), Some(RunConditions::Pinned));
        evidence.add(RunConditions::Pinned, run(900.0));
        assert_eq!(next(&evidence), Some(RunConditions::Again));
        evidence.add(RunConditions::Again, run(500.0));
        assert_eq!(next(&evidence), None);
        // One that waits for the server, or needs more than a CPU, or almost none.
        for cpus in [1.4, 0.1] {
            let mut other = evidence.clone();
            (other.pinned, other.again) = (None, None);
            let change = |process: &mut ProcessUse| process.cpus = cpus;
            other.plain.client.iter_mut().for_each(change);
            assert_eq!(next(&other), None, "{cpus}");
        }
    }

    #[test]
    fn conditions_are_made_by_the_tap() {
        for (conditions, delay_ns, limit) in [
            (RunConditions::Plain, 0, None),
            (RunConditions::Again, 0, None),
            (RunConditions::Pinned, 0, None),
            (RunConditions::Halved(3), 0, Some(3)),
            (RunConditions::Single, 0, Some(1)),
            (RunConditions::Delayed(7), 7, None),
        ] {
            let made = conditions.of_tap();
            assert_eq!((made.delay_ns, made.stream_limit), (delay_ns, limit));
        }
    }
}
