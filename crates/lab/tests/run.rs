//! Whole runs in this process, against a server that does what a test says.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use client::Code;
use common::{Gate, Reply, Script, Server, TIMEOUT, plan};
use lab::{
    Arrivals, ConnectionMode, FailureKind, Length, LoadOutcome, LoadPlan, LoadProgress,
    LoadRunError, MetadataField, MetadataValue, Pace, Report, SameRequest, Tally, Verdict,
    Workload, process_cpu_ns, run,
};
use rustix::time::{ClockId, clock_gettime};

/// Longer than any run here: a run for so long ends because it is stopped.
const LONG: Duration = Duration::from_secs(3_600);

const MS: u64 = 1_000_000;

fn echo() -> SameRequest {
    SameRequest::new("/t.T/Echo".into(), b"ping".to_vec())
}

/// Runs a plan to its end, which must be a good one.
fn outcome(plan: &LoadPlan) -> LoadOutcome {
    run(plan, |_| echo(), &mut |_| true).expect("the server is there")
}

fn open_loop(rate: f64) -> Pace {
    Pace::Open {
        rate,
        arrivals: Arrivals::Fixed,
    }
}

fn cpu_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Works until this thread has had so much CPU time more.
fn burn(ns: u64) {
    let until_ns = cpu_ns(ClockId::ThreadCPUTime) + ns;
    while cpu_ns(ClockId::ThreadCPUTime) < until_ns {
        std::hint::spin_loop();
    }
}

/// The same request again and again, with something done before each: it is given their number.
struct Before<F> {
    act: F,
    number: u64,
}

impl<F: FnMut(u64)> Before<F> {
    fn new(act: F) -> Before<F> {
        Before { act, number: 0 }
    }
}

impl<F: FnMut(u64)> Workload for Before<F> {
    fn paths(&self) -> Vec<String> {
        echo().paths()
    }

    fn choose(&mut self) -> usize {
        0
    }

    fn encode(&mut self, out: &mut Vec<u8>) {
        (self.act)(self.number);
        self.number += 1;
        echo().encode(out);
    }

    fn judge(&self, _kind: usize, _ticket: u32, _answer: &[u8]) -> Verdict {
        Verdict::Good
    }
}

// --- what is counted

/// 101 calls of one kind, all of which succeeded.
fn check_tally(tally: &Tally) {
    assert_eq!(
        (tally.succeeded, tally.ended, tally.ended_in_window),
        (101, 101, 101)
    );
    assert_eq!(tally.ended_by_kind, [101, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(tally.ended_by_place.iter().sum::<u64>(), 101);
    assert!(
        tally.ended_by_place.len() <= 6,
        "{:?}",
        tally.ended_by_place
    );
    assert_eq!(
        (tally.failures(), tally.first_failure.as_deref()),
        (0, None)
    );
    assert_eq!(
        (tally.misses, tally.reconnects, tally.server_allows),
        (0, 0, u64::MAX)
    );
    assert_eq!((tally.unfinished, tally.unfinished_before), (0, 0));
    assert_eq!((tally.due, tally.waited, tally.never_sent), (0, 0, 0));
    assert_eq!(
        (tally.latency_ns.len(), tally.uncorrected_ns.len()),
        (101, 101)
    );
}

/// What their sockets have done.
fn check_counters(outcome: &LoadOutcome, server: &Server) {
    // Counted from the moment at which the connections stood: their greetings are not in it.
    let counters = &outcome.counters;
    assert_eq!(
        (counters.begun, counters.ended, counters.dials),
        (101, 101, 0)
    );
    assert!(counters.bytes_in >= 101 * 1_000);
    assert!(counters.bytes_in < server.seen.bytes_out.load(SeqCst));
    assert!(counters.bytes_out >= 101 * 4);
    // No more than two calls on each connection share a system call.
    assert!(
        counters.reads >= 51 && counters.writes >= 51 && counters.waits > 0,
        "{counters:?}"
    );
    let tcp = outcome
        .tcp
        .expect("the kernel counts for connections that stand");
    assert!(tcp.segments_out >= 51 && tcp.segments_in >= 51, "{tcp:?}");
    assert!(
        tcp.segments_out < 2_000 && tcp.segments_in < 2_000,
        "{tcp:?}"
    );
}

/// Two threads with three connections: one of them has two.
#[test]
fn a_run_of_so_many_calls_makes_and_counts_each() {
    let slow = Duration::from_millis(20);
    let server = Server::new(move |asked| {
        if asked.number == 50 {
            thread::sleep(slow);
        }
        Reply::Answer(vec![b'x'; 1_000])
    });
    let mut plan = plan(&server, Length::Calls(101));
    plan.threads = 2;
    plan.connections = 3;
    plan.worker.in_flight = 2;
    let begin = Instant::now();
    let outcome = outcome(&plan);
    let wall_ns = begin.elapsed().as_nanos() as u64;

    let tally = &outcome.tally;
    assert_eq!((server.messages(), server.connections()), (101, 3));
    check_tally(tally);
    assert!(tally.latency_ns.max() >= slow.as_nanos() as u64);
    assert!(tally.latency_ns.max() <= outcome.elapsed_ns + outcome.elapsed_ns / 500);
    assert!(tally.lag_ns.is_empty(), "a closed loop has none");

    // From the first call to the last answer, which is more than the slow call took.
    assert!(outcome.elapsed_ns >= slow.as_nanos() as u64 && outcome.elapsed_ns <= wall_ns);
    assert!(!outcome.was_stopped);
    assert!(
        outcome.stalls.is_none(),
        "only an open loop looks at the clock"
    );
    assert_eq!(outcome.server_cpu_ns, None);
    assert!(outcome.busiest_percent.is_none_or(|percent| percent > 0.0));

    check_counters(&outcome, &server);

    let report = Report::new("Echo".into(), &plan, outcome, 1);
    assert!(!report.has_failures());
    let text = report.text();
    for part in [
        "3 connections × 2 in flight, closed loop, 2 threads, ",
        "calls: 101 succeeded, 0 failed",
        "TCP segments per call",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}

/// Each thread has its part of the connections and of the calls, and its own workload.
#[test]
fn threads_share_connections_and_calls_evenly() {
    let server = Server::echo();
    let mut plan = plan(&server, Length::Calls(11));
    plan.threads = 3;
    plan.connections = 4;
    let calls = Arc::new(Mutex::new(BTreeMap::new()));
    let make = |index: usize| {
        let calls = Arc::clone(&calls);
        Before::new(move |number| {
            calls
                .lock()
                .expect("nobody panics")
                .insert(index, number + 1);
        })
    };
    let outcome = run(&plan, make, &mut |_| true).expect("the server is there");
    assert_eq!(outcome.tally.succeeded, 11);
    let calls: Vec<u64> = calls
        .lock()
        .expect("nobody panics")
        .values()
        .copied()
        .collect();
    assert_eq!(calls, [4, 4, 3]);
    assert_eq!(server.connections(), 4);
}

/// A run for a time lasts as long as that, however late its threads are, and what is shown of it
/// grows.
/// Intervals follow each other through the measured time, and no call ends in two of them.
fn assert_intervals(outcome: &LoadOutcome) {
    let intervals = &outcome.intervals;
    let ends = intervals.first().zip(intervals.last());
    let (first, last) = ends.expect("there is one at least");
    assert_eq!(
        (first.from_ns, last.until_ns <= outcome.elapsed_ns),
        (0, true)
    );
    for pair in intervals.windows(2) {
        assert_eq!(pair[0].until_ns, pair[1].from_ns, "{intervals:?}");
    }
    let ended: u64 = intervals.iter().map(|interval| interval.ended).sum();
    assert!(ended <= outcome.tally.ended_in_window, "{intervals:?}");
    for interval in intervals.iter().filter(|interval| interval.ended > 0) {
        assert!(interval.p50_ns <= interval.p99_ns, "{interval:?}");
        assert!(interval.p99_ns <= interval.most_ns, "{interval:?}");
    }
    let most_ns = intervals
        .iter()
        .filter_map(|interval| interval.most_ns)
        .max();
    let latencies = &outcome.tally.latency_ns;
    // Buckets are wide.
    let longest_ns = latencies.max() + latencies.max() / 30;
    assert!(
        most_ns.is_some_and(|most_ns| most_ns <= longest_ns),
        "{intervals:?}"
    );
}

#[test]
fn a_run_of_a_number_of_calls_has_each_in_an_interval() {
    let server = Server::echo();
    let mut left = Vec::new();
    let outcome = run(
        &plan(&server, Length::Calls(500)),
        |_| echo(),
        &mut |progress| {
            left.push(progress.left_ns.is_some() == (progress.ended > 0));
            true
        },
    );
    let outcome = outcome.expect("the server is there");
    assert_intervals(&outcome);
    let ended: u64 = outcome
        .intervals
        .iter()
        .map(|interval| interval.ended)
        .sum();
    assert_eq!((ended, outcome.tally.succeeded), (500, 500));
    assert!(
        left.iter().all(|is_right| *is_right),
        "known as soon as a call has ended"
    );
}

#[test]
fn a_run_for_a_time_lasts_so_long() {
    let server = Server::echo();
    let mut plan = plan(&server, Length::Duration(Duration::from_millis(500)));
    plan.warm_up = Duration::from_millis(250);
    let mut all: Vec<LoadProgress> = Vec::new();
    let begin = Instant::now();
    let outcome = run(&plan, |_| echo(), &mut |progress| {
        all.push(*progress);
        true
    });
    let (outcome, wall) = (outcome.expect("the server is there"), begin.elapsed());
    assert_eq!((outcome.elapsed_ns, outcome.was_stopped), (500 * MS, false));
    assert!(wall >= Duration::from_millis(750), "{wall:?}");
    let tally = &outcome.tally;
    assert_eq!(tally.latency_ns.len(), tally.succeeded);
    assert!(tally.ended_in_window <= tally.ended);
    assert_eq!(
        tally.ended_by_place.iter().sum::<u64>(),
        tally.ended_in_window
    );
    assert_intervals(&outcome);

    let all: Vec<LoadProgress> = all.into_iter().filter(|it| !it.is_connecting).collect();
    let measuring = all
        .iter()
        .position(|it| it.is_measuring)
        .expect("it is shown several times");
    assert!(measuring >= 1, "the warm-up is shown too: {all:?}");
    for (at, progress) in all.iter().enumerate() {
        assert_eq!(progress.is_measuring, at >= measuring, "{all:?}");
        assert_eq!(progress.failed, 0);
        assert!(progress.ended <= tally.ended_in_window);
        assert!(progress.elapsed_ns <= wall.as_nanos() as u64);
        assert!(progress.left_ns.is_some_and(|left_ns| left_ns <= 750 * MS));
        assert!(progress.measured_ns <= 500 * MS);
        assert_eq!(
            progress.p99_ns.is_some(),
            progress.ended > 0,
            "{progress:?}"
        );
        assert!(progress.p50_ns <= progress.p99_ns, "{progress:?}");
    }
    for pair in all.windows(2) {
        assert!(
            pair[0].elapsed_ns < pair[1].elapsed_ns && pair[0].ended <= pair[1].ended,
            "{all:?}"
        );
    }
}

/// Calls that begin in the warm-up and end in the window count in calls/s, and are not among the
/// latencies.
#[test]
fn calls_of_the_warm_up_are_counted_apart() {
    let measuring = Gate::default();
    let server = {
        let measuring = measuring.clone();
        Server::new(move |asked| {
            measuring.pass();
            Reply::Answer(asked.message.to_vec())
        })
    };
    let mut plan = plan(&server, Length::Duration(LONG));
    plan.worker.in_flight = 2;
    plan.warm_up = Duration::from_millis(500);
    let outcome = run(&plan, |_| echo(), &mut |progress| {
        if progress.is_measuring {
            measuring.open();
        }
        progress.ended < 10
    });
    let outcome = outcome.expect("the server is there");
    let tally = &outcome.tally;
    assert_eq!(tally.begun_before, 2, "one in each place");
    assert_eq!(tally.latency_ns.len(), tally.succeeded);
    // Those that were under way when it was stopped end behind the window.
    assert!(tally.ended >= tally.ended_in_window && tally.ended_in_window >= 10);
    assert_eq!(tally.ended, tally.succeeded + tally.begun_before);
    assert_eq!(tally.ended, server.messages());
    assert_eq!(
        tally.failures() + tally.unfinished + tally.unfinished_before,
        0
    );
    assert!(outcome.was_stopped);
    assert!(outcome.elapsed_ns < LONG.as_nanos() as u64);
    let report = Report::new("Echo".into(), &plan, outcome, 1);
    assert_eq!(report.fields()["begun_in_warm_up"], 2);
    assert_eq!(report.fields()["stopped_early"], true);
    assert!(
        report.text().contains(", stopped early"),
        "{}",
        report.text()
    );
}

/// Both processes work so much while it is measured, and have worked before: the counts lie between
/// that and all of it.
#[test]
fn cpu_times_are_those_of_the_measured_time() {
    let server = Server::echo();
    let mut worker = Command::new("sh")
        .args(["-c", "while :; do :; done"])
        .spawn()
        .expect("there is a shell");
    let server_ns = || process_cpu_ns(worker.id()).expect("it runs");
    let mut plan = plan(&server, Length::Duration(LONG));
    plan.warm_up = Duration::from_millis(1);
    plan.server_process = Some(worker.id());
    burn(30 * MS);
    let own_before_ns = cpu_ns(ClockId::ProcessCPUTime);
    let server_before_ns = server_ns();
    let mut measured_from = None;
    let outcome = run(&plan, |_| echo(), &mut |progress| {
        if !progress.is_measuring {
            return true;
        }
        burn(20 * MS);
        let first_ns = *measured_from.get_or_insert_with(server_ns);
        server_ns() < first_ns + 20 * MS
    });
    let own_ns = cpu_ns(ClockId::ProcessCPUTime) - own_before_ns;
    let whole_server_ns = server_ns() - server_before_ns;
    worker.kill().expect("it runs");
    worker.wait().expect("it was killed");
    let outcome = outcome.expect("the server is there");
    let server_cpu_ns = outcome.server_cpu_ns.expect("it runs on this machine");
    assert!(
        (20 * MS..=own_ns).contains(&outcome.own_cpu_ns),
        "{} of {own_ns}",
        outcome.own_cpu_ns
    );
    assert!(
        (20 * MS..=whole_server_ns).contains(&server_cpu_ns),
        "{server_cpu_ns} of {whole_server_ns}"
    );
    let report = Report::new("Echo".into(), &plan, outcome, 1);
    assert!(report.fields()["server_us"].as_f64() > Some(0.0));
    assert!(report.fields()["own_us"].as_f64() > Some(0.0));
}

/// A server's process that is not there is no reason to show nothing.
#[test]
fn the_cpu_time_of_a_process_that_is_not_there_is_not_known() {
    let server = Server::echo();
    let mut plan = plan(&server, Length::Calls(1));
    plan.server_process = Some(u32::MAX);
    assert_eq!(outcome(&plan).server_cpu_ns, None);
}

/// Every reason for which a call may fail, each provoked by the server.
#[test]
fn failures_are_counted_by_kind() {
    let server = Server::new(|asked| match asked.number {
        0 | 6 => Reply::Status(Code::Unavailable, "go away"),
        1 => Reply::Status(Code::NotFound, "nowhere"),
        2 => Reply::Messages(Vec::new()),
        3 => Reply::Messages(vec![b"a".to_vec(), b"b".to_vec()]),
        4 => Reply::Refuse,
        5 => Reply::Nothing,
        7 => Reply::Cut,
        _ => Reply::Answer(asked.message.to_vec()),
    });
    let mut plan = plan(&server, Length::Calls(10));
    plan.worker.deadline_ns = Some(1_000 * MS);
    let outcome = outcome(&plan);
    let tally = &outcome.tally;
    assert_eq!(
        tally.failed,
        [
            (FailureKind::Status(Code::NotFound as u8), 1),
            (FailureKind::Status(Code::Unavailable as u8), 2),
            (FailureKind::DeadlineExceeded, 1),
            (FailureKind::ConnectionLost, 1),
            (FailureKind::BadAnswer, 2),
        ]
    );
    assert_eq!((tally.failures(), tally.succeeded, tally.ended), (7, 3, 10));
    assert_eq!(
        tally.refused, 1,
        "right after the end of another, and made again"
    );
    assert_eq!(tally.latency_ns.len(), 3, "failed calls have no latency");
    let first = tally.first_failure.as_deref().expect("there was one");
    assert!(first.contains("go away"), "{first}");
    assert_eq!((tally.reconnects, server.connections()), (1, 2));
    assert_eq!(outcome.counters.dials, 1);
    assert!(
        outcome.tcp.is_none(),
        "what the lost connection counted is gone"
    );
    let report = Report::new("Echo".into(), &plan, outcome, 1);
    assert!(report.has_failures());
    let text = report.text();
    for part in [
        "calls: 3 succeeded, 7 failed",
        "failed: 2 × UNAVAILABLE",
        "  1 calls were refused by the server before it began with them",
        "failed: 1 × deadline passed here",
        "failed: 1 × connection lost",
        "failed: 2 × no answer to the request",
        "the first said: ",
        "connections made again: 1",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    assert!(!text.contains("TCP segments"), "{text}");
}

/// A server that takes no more calls on a connection loses none by that.
#[test]
fn connections_that_are_drained_are_made_again() {
    let server = Server::new(|asked| match asked.number % 5 {
        4 => Reply::Drain(asked.message.to_vec()),
        _ => Reply::Answer(asked.message.to_vec()),
    });
    let outcome = outcome(&plan(&server, Length::Calls(12)));
    assert_eq!((outcome.tally.succeeded, outcome.tally.failures()), (12, 0));
    assert_eq!((outcome.tally.reconnects, server.connections()), (2, 3));
}

#[test]
fn the_first_failure_ends_the_run_if_that_is_wanted() {
    let server = Server::new(|asked| match asked.number {
        3 => Reply::Status(Code::Internal, "broken"),
        _ => Reply::Answer(asked.message.to_vec()),
    });
    let mut plan = plan(&server, Length::Duration(LONG));
    plan.stop_on_failure = true;
    let stopped = outcome(&plan);
    assert!(stopped.was_stopped);
    assert_eq!((stopped.tally.succeeded, stopped.tally.failures()), (3, 1));
    assert_eq!(server.messages(), 4, "none begins after it");
    // Otherwise it goes on.
    plan.stop_on_failure = false;
    plan.length = Length::Calls(6);
    let server = Server::new(|asked| match asked.number {
        3 => Reply::Status(Code::Internal, "broken"),
        _ => Reply::Answer(asked.message.to_vec()),
    });
    plan.address = server.address.clone();
    let whole = outcome(&plan);
    assert!(!whole.was_stopped);
    assert_eq!((whole.tally.succeeded, whole.tally.failures()), (5, 1));
}

#[test]
fn progress_shows_what_failed() {
    let server = Server::new(|_| Reply::Status(Code::Internal, "broken"));
    let plan = plan(&server, Length::Duration(LONG));
    let mut last = LoadProgress::default();
    let outcome = run(&plan, |_| echo(), &mut |progress| {
        last = *progress;
        progress.failed < 3
    });
    let outcome = outcome.expect("the server is there");
    assert!(outcome.was_stopped);
    assert!(
        last.failed >= 3 && last.failed <= outcome.tally.failures(),
        "{last:?}"
    );
    assert!(
        last.ended >= 3 && last.ended <= outcome.tally.ended,
        "{last:?}"
    );
    assert!(outcome.tally.first_failure.is_some());
}

#[test]
fn each_call_has_its_connection_if_that_is_wanted() {
    let server = Server::echo();
    let mut plan = plan(&server, Length::Calls(7));
    plan.connections = 2;
    plan.worker.mode = ConnectionMode::Short;
    let outcome = outcome(&plan);
    assert_eq!((outcome.tally.succeeded, server.connections()), (7, 7));
    assert_eq!((outcome.counters.dials, outcome.tally.reconnects), (7, 0));
    assert!(
        outcome.tcp.is_none(),
        "no connection stands at both ends of the run"
    );
}

#[test]
fn the_server_says_how_many_calls_it_allows() {
    let server = Server::with(Script {
        answer: Box::new(|asked| Reply::Answer(asked.message.to_vec())),
        greet: Box::new(|_| true),
        config: wire::Config {
            max_streams: 2,
            ..wire::Config::server()
        },
    });
    let mut plan = plan(&server, Length::Calls(20));
    plan.worker.in_flight = 5;
    let outcome = outcome(&plan);
    assert_eq!(
        (outcome.tally.succeeded, outcome.tally.server_allows),
        (20, 2)
    );
    let text = Report::new("Echo".into(), &plan, outcome, 1).text();
    assert!(
        text.contains("2 calls at once on a connection, fewer"),
        "{text}"
    );
}

#[test]
fn metadata_go_with_each_call() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let server = {
        let seen = Arc::clone(&seen);
        Server::new(move |asked| {
            seen.lock()
                .expect("nobody panics")
                .push(asked.metadata.to_vec());
            Reply::Answer(Vec::new())
        })
    };
    let mut plan = plan(&server, Length::Calls(2));
    let field = |name: &str, value| MetadataField {
        name: name.into(),
        value,
    };
    plan.worker.metadata = vec![
        field("x-same", MetadataValue::Same("v".into())),
        field("x-trace", MetadataValue::Random),
    ];
    assert_eq!(outcome(&plan).tally.succeeded, 2);
    let seen = seen.lock().expect("nobody panics");
    let value = |call: usize, name: &str| {
        let found = seen[call].iter().find(|(other, _)| other == name);
        found.expect("it was sent").1.clone()
    };
    assert_eq!(
        (value(0, "x-same"), value(1, "x-same")),
        ("v".into(), "v".into())
    );
    assert_ne!(value(0, "x-trace"), value(1, "x-trace"));
}

// --- an open loop

/// All that is due is sent, however late; and the machine is looked at meanwhile.
#[test]
fn an_open_loop_sends_what_is_due() {
    let server = Server::echo();
    let mut plan = plan(&server, Length::Duration(Duration::from_millis(200)));
    plan.threads = 2;
    plan.connections = 2;
    plan.worker.in_flight = 100;
    plan.worker.pace = open_loop(500.0);
    let outcome = outcome(&plan);
    let tally = &outcome.tally;
    assert_eq!(
        (tally.due, tally.succeeded, tally.never_sent),
        (100, 100, 0)
    );
    assert_eq!((tally.lag_ns.len(), tally.latency_ns.len()), (100, 100));
    assert_eq!(outcome.elapsed_ns, 200 * MS);
    let stalls = outcome.stalls.as_ref().expect("it is an open loop");
    assert!(
        (1..=201).contains(&stalls.late_ns.len()),
        "{}",
        stalls.late_ns.len()
    );
    assert!(stalls.cpu_ns > 0);
    let report = Report::new("Echo".into(), &plan, outcome, 1);
    let fields = report.fields();
    assert_eq!(
        (&fields["due"], &fields["loop"]),
        (&100.into(), &"open".into())
    );
    assert!(fields["stall_max_us"].is_number() && fields["lag_p99_us"].is_number());
}

#[test]
fn an_open_loop_of_so_many_calls_ends_with_the_last() {
    let server = Server::echo();
    let mut plan = plan(&server, Length::Calls(20));
    plan.worker.pace = open_loop(1_000.0);
    let outcome = outcome(&plan);
    assert_eq!((outcome.tally.succeeded, server.messages()), (20, 20));
    // The last is due after 19 intervals.
    assert!(outcome.elapsed_ns >= 19 * MS, "{}", outcome.elapsed_ns);
    assert!(outcome.stalls.is_some());
}

// --- void results, from what makes them so

/// A generator that sleeps while calls come due is late, and the server is not to blame.
#[test]
fn a_generator_that_sleeps_makes_the_result_void() {
    let server = Server::echo();
    let mut plan = plan(&server, Length::Duration(Duration::from_millis(500)));
    plan.worker.pace = open_loop(1_000.0);
    plan.worker.in_flight = 1_000;
    let make = |_| {
        Before::new(|number| {
            if number == 5 {
                thread::sleep(Duration::from_millis(400));
            }
        })
    };
    let outcome = run(&plan, make, &mut |_| true).expect("the server is there");
    assert_eq!((outcome.tally.due, outcome.tally.succeeded), (500, 500));
    let lag_ns = outcome.tally.lag_ns.value_at_quantile(0.99);
    assert!(lag_ns >= 300 * MS, "{lag_ns}");
    let stall_ns = outcome
        .stalls
        .as_ref()
        .expect("open")
        .late_ns
        .value_at_quantile(0.99);
    let report = Report::new("Echo".into(), &plan, outcome, 1);
    // A machine that stands still for as long as the generator sleeps would explain it.
    if stall_ns < 100 * MS {
        assert_eq!(
            report.void_reasons().len(),
            1,
            "{:?}",
            report.void_reasons()
        );
        assert!(report.text().starts_with("VOID: "), "{}", report.text());
        assert!(
            report.void_reasons()[0].contains("late by"),
            "{:?}",
            report.void_reasons()
        );
        assert_eq!(report.fields()["void"], true);
    }
}

#[test]
fn an_open_loop_without_a_success_is_void() {
    let server = Server::new(|_| Reply::Status(Code::Unimplemented, "no such method"));
    let mut plan = plan(&server, Length::Calls(5));
    plan.worker.pace = open_loop(1_000.0);
    let report = Report::new("Echo".into(), &plan, outcome(&plan), 1);
    assert!(
        report.void_reasons()[0].contains("no call succeeded"),
        "{:?}",
        report.void_reasons()
    );
    // In a closed loop the failures say it all.
    plan.worker.pace = Pace::Closed;
    let report = Report::new("Echo".into(), &plan, outcome(&plan), 1);
    assert!(report.has_failures());
    assert!(
        !report
            .void_reasons()
            .iter()
            .any(|reason| reason.contains("no call"))
    );
}

// --- runs that cannot be made

fn error(plan: &LoadPlan) -> LoadRunError {
    run(plan, |_| echo(), &mut |_| true).expect_err("there can be no run")
}

#[test]
fn a_server_that_is_not_there_is_told() {
    let mut plan = plan(&Server::echo(), Length::Calls(1));
    plan.threads = 2;
    plan.connections = 2;
    let error = error(&plan);
    assert!(matches!(error, LoadRunError::Connect(_)), "{error:?}");
    assert!(error.to_string().contains("127.0.0.1"), "{error}");
}

/// Of two threads the one that failed says why, whichever it is; the other one only ended with it.
#[test]
fn the_thread_that_failed_says_why() {
    for bad in 0..2 {
        let connected = Gate::default();
        let server = {
            let connected = connected.clone();
            Server::with(Script {
                answer: Box::new(|asked| Reply::Answer(asked.message.to_vec())),
                greet: Box::new(move |connection| {
                    connected.open();
                    connection == 0
                }),
                config: wire::Config::server(),
            })
        };
        let mut plan = plan(&server, Length::Calls(10));
        plan.threads = 2;
        plan.connections = 2;
        let make = |index| {
            if index == bad {
                // Its connection is the second one.
                connected.pass();
            }
            echo()
        };
        let error = run(&plan, make, &mut |_| true).expect_err("one has no connection");
        assert!(
            matches!(error, LoadRunError::Connect(_)),
            "{bad}: {error:?}"
        );
        assert_eq!(
            server.messages(),
            0,
            "no call begins without all connections"
        );
    }
}

/// A server that takes connections and says nothing.
fn silent() -> (Gate, Server) {
    let end = Gate::default();
    let server = {
        let end = end.clone();
        Server::with(Script {
            answer: Box::new(|_| Reply::Nothing),
            greet: Box::new(move |_| {
                end.pass();
                false
            }),
            config: wire::Config::server(),
        })
    };
    (end, server)
}

#[test]
fn a_server_that_does_not_greet_is_given_up() {
    let (end, server) = silent();
    let mut plan = plan(&server, Length::Calls(1));
    plan.connect_timeout = Duration::from_millis(50);
    let begin = Instant::now();
    let error = error(&plan);
    assert!(begin.elapsed() >= plan.connect_timeout);
    assert!(matches!(error, LoadRunError::Connect(_)), "{error:?}");
    end.open();
}

/// More connections than are made at once, of which the first take half of the time: those behind
/// them cannot have theirs.
#[test]
fn connections_that_are_not_all_made_in_time_are_told() {
    let end = Gate::default();
    let first = lab::limits::DIALS_AT_ONCE as u64;
    let server = {
        let end = end.clone();
        Server::with(Script {
            answer: Box::new(|_| Reply::Nothing),
            greet: Box::new(move |connection| {
                if connection < first {
                    thread::sleep(Duration::from_millis(700));
                    return true;
                }
                end.pass();
                false
            }),
            config: wire::Config::server(),
        })
    };
    let mut plan = plan(&server, Length::Calls(1));
    plan.connections = first as usize + 2;
    plan.connect_timeout = Duration::from_millis(1_400);
    let error = error(&plan);
    end.open();
    let LoadRunError::Connect(text) = error else {
        panic!("{error:?}");
    };
    assert!(
        text.contains("64 of 66 connections of this thread were open after 1.4 s"),
        "{text}"
    );
}

#[test]
fn a_run_that_is_stopped_while_it_connects_has_no_result() {
    let (end, server) = silent();
    let mut shown = Vec::new();
    let plan = plan(&server, Length::Calls(1));
    let begin = Instant::now();
    let error = run(&plan, |_| echo(), &mut |progress| {
        shown.push(*progress);
        shown.len() < 2
    });
    assert!(
        begin.elapsed() < TIMEOUT,
        "it does not wait for the connection"
    );
    end.open();
    assert!(matches!(error, Err(LoadRunError::Stopped)), "{error:?}");
    assert_eq!(shown.len(), 2, "not asked again");
    assert!(shown[0].elapsed_ns > 0 && shown[0].elapsed_ns < shown[1].elapsed_ns);
    for progress in shown {
        let expected = LoadProgress {
            elapsed_ns: progress.elapsed_ns,
            is_connecting: true,
            ..LoadProgress::default()
        };
        assert_eq!(progress, expected);
    }
}

#[test]
fn a_request_that_cannot_be_sent_ends_the_run() {
    let server = Server::echo();
    let plan = plan(&server, Length::Duration(LONG));
    // No head may be so large.
    let bad = || SameRequest::new(format!("/{}", "x".repeat(10 << 20)), Vec::new());
    let error = run(&plan, |_| bad(), &mut |_| true).expect_err("no call can be made");
    assert!(matches!(error, LoadRunError::BadRequest(_)), "{error:?}");
    assert_eq!(server.messages(), 0);
}

#[test]
fn a_workload_that_panics_ends_the_run() {
    let server = Server::echo();
    let plan = plan(&server, Length::Duration(LONG));
    let make = |_| Before::new(|number| assert!(number < 2, "on purpose"));
    let error = run(&plan, make, &mut |_| true).expect_err("its thread is gone");
    assert!(error.to_string().contains("panicked"), "{error}");
    let make = |_| -> SameRequest { panic!("on purpose") };
    let error = run(&plan, make, &mut |_| true).expect_err("its thread is gone");
    assert!(error.to_string().contains("panicked"), "{error}");
}

// --- CPUs

/// The CPUs that this thread may run on, as the kernel writes them.
fn allowed() -> String {
    let status = fs::read_to_string("/proc/thread-self/status").expect("Linux has it");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.expect("it is there").trim().to_owned()
}

#[test]
fn threads_are_pinned_to_their_cpus_in_turn() {
    let cpus: Vec<usize> = allowed()
        .split([',', '-'])
        .map(|number| number.parse().expect("a number"))
        .collect();
    // The first and the last that there are: the same one where there is only one.
    let pin = vec![cpus[0], *cpus.last().expect("one at least")];
    let server = Server::echo();
    let mut plan = plan(&server, Length::Calls(3));
    plan.threads = 3;
    plan.connections = 3;
    plan.pin = pin.clone();
    let found = Mutex::new(BTreeMap::new());
    let make = |index: usize| {
        found
            .lock()
            .expect("nobody panics")
            .insert(index, allowed());
        echo()
    };
    let outcome = run(&plan, make, &mut |_| true).expect("the server is there");
    assert_eq!(outcome.tally.succeeded, 3);
    let found: Vec<String> = found
        .into_inner()
        .expect("nobody panics")
        .into_values()
        .collect();
    assert_eq!(found, [pin[0], pin[1], pin[0]].map(|cpu| cpu.to_string()));
}

#[test]
fn a_cpu_that_is_not_there_is_told() {
    let server = Server::echo();
    let mut plan = plan(&server, Length::Calls(1));
    plan.pin = vec![1_000_000];
    let error = error(&plan);
    assert!(error.to_string().contains("CPU 1000000"), "{error}");
    assert_eq!(server.connections(), 0);
}
