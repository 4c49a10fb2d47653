use std::time::Duration;

use client::LocalCounters;

use super::*;
use crate::failure::FailureKind;
use crate::limits;
use crate::load_plan::Length;
use crate::measure::Tally;
use crate::pacing::Arrivals;
use crate::run_intervals::LoadInterval;
use crate::stalls::Stalls;
use crate::worker::{ConnectionMode, WorkerPlan};

pub(crate) fn plan(pace: Pace) -> LoadPlan {
    let address = "127.0.0.1:1978".parse().expect("an address");
    let second = Duration::from_secs(1);
    LoadPlan {
        connections: 2,
        worker: WorkerPlan {
            pace,
            ..WorkerPlan::closed(4)
        },
        ..LoadPlan::to(address, second, Length::Duration(second))
    }
}

const OPEN: Pace = Pace::Open {
    rate: 1_000.0,
    arrivals: Arrivals::Poisson,
};

/// A thousand calls of 1 to 1000 µs in a second.
pub(crate) fn outcome() -> LoadOutcome {
    let mut tally = Tally::default();
    for us in 1..=1_000 {
        tally.succeed(0, 0, us * 1_000, us % 10 == 0);
        tally.lag_ns.record(1_000).expect("in range");
    }
    tally.ended_in_window = 1_000;
    tally.ended = 1_000;
    tally.due = 1_000;
    LoadOutcome {
        tally,
        elapsed_ns: 1_000_000_000,
        from_ns: 7_000_000_000,
        own_cpu_ns: 2_000_000,
        server_cpu_ns: Some(5_000_000),
        busiest_percent: Some(40.0),
        stalls: None,
        counters: LocalCounters {
            reads: 100,
            writes: 50,
            waits: 50,
            dials: 3,
            socket_wait_ns: 250_000_000,
            window_wait_ns: 1_500_000_000,
            ..LocalCounters::default()
        },
        tcp: None,
        intervals: intervals(),
        was_stopped: false,
    }
}

/// Four quarters of that second.
fn intervals() -> Vec<LoadInterval> {
    let quarter = |number: u64| LoadInterval {
        from_ns: number * 250_000_000,
        until_ns: (number + 1) * 250_000_000,
        ended: 250,
        failed: 0,
        p50_ns: Some(500_000),
        p99_ns: Some(990_000),
        most_ns: Some(1_000_000),
    };
    (0..4).map(quarter).collect()
}

pub(super) fn report(pace: Pace, outcome: LoadOutcome) -> Report {
    Report::new("Get".into(), &plan(pace), outcome, 1)
}

#[test]
fn figures_have_their_names() {
    let report = report(OPEN, outcome());
    let fields = report.fields();
    assert_eq!(fields["calls_per_s"], 1_000.0);
    assert_eq!(fields["own_us"], 2.0);
    assert_eq!(fields["server_us"], 5.0);
    assert_eq!(fields["calls_per_system_call"], 5.0);
    assert_eq!(fields["misses"], 100);
    assert_eq!(fields["socket_wait_s"], 0.25);
    assert_eq!(fields["window_wait_s"], 1.5);
    assert_eq!(fields["connections_dialed"], 3);
    assert_eq!(fields["unsent_wait_s"], 0.0);
    // 1000 calls of half a millisecond in a second.
    assert_eq!(fields["segments_out_per_call"], Value::Null);
    let near = |name: &str, expected: f64| {
        let value = fields[name].as_f64().expect(name);
        assert!((value / expected - 1.0).abs() < 0.002, "{name}: {value}");
    };
    near("mean_in_flight", 0.501);
    near("p50_us", 500.0);
    near("p99_us", 990.0);
    near("p9999_us", 1_000.0);
    near("max_us", 1_000.0);
    near("uncorrected_p90_us", 900.0);
    near("lag_max_us", 1.0);
    let closed = self::report(Pace::Closed, outcome());
    assert!(!closed.fields().contains_key("uncorrected_p50_us"));
}

#[test]
fn csv_has_a_figure_for_each_name() {
    let mut outcome = outcome();
    outcome
        .tally
        .fail(FailureKind::BadAnswer, 1, || "a, \"b\"".into());
    let report = report(OPEN, outcome);
    let csv = report.csv();
    let mut lines = csv.lines();
    let names = lines.next().expect("names").split(',').count();
    let values = lines.next().expect("values");
    assert!(values.contains("\"a, \"\"b\"\"\""), "{values}");
    assert_eq!(
        values.replace("\"a, \"\"b\"\"\"", "x").split(',').count(),
        names
    );
    assert_eq!(lines.next(), None);
    assert_eq!(names, report.fields().len());
}

#[test]
fn text_says_what_was_seen() {
    let mut outcome = outcome();
    outcome
        .tally
        .fail(FailureKind::Status(14), 3, || "the server is full".into());
    outcome.tally.unfinished = 2;
    outcome.tally.unfinished_before = 5;
    outcome.tally.begun_before = 7;
    let text = report(OPEN, outcome).text();
    for part in [
        "Get on 127.0.0.1:1978: 2 connections × 4 in flight, open loop, 1000 calls/s",
        "1000 succeeded, 3 failed",
        "3 × UNAVAILABLE",
        "the server is full",
        "unfinished: 2, and 5 that began in the warm-up",
        "begun in the warm-up: 7 that ended",
        "100 misses",
        "corrected",
        "own lag",
        "server 5.000 µs, generator 2.000 µs",
        "calls per system call: 5.000",
        "in flight: 0.5 on average",
        "calls 0.000 s to be sent, connections 0.250 s for their sockets, 1.500 s for the server's \
         windows; 3 dialed",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}

/// If the generator was the limit, the first line says so.
#[test]
fn void_results_say_so_first() {
    let good = report(OPEN, outcome());
    assert!(good.void_reasons().is_empty(), "{:?}", good.void_reasons());
    assert!(good.text().starts_with("Get on"));

    let busy = LoadOutcome {
        busiest_percent: Some(limits::BUSY_PERCENT as f64 + 0.5),
        ..outcome()
    };
    let mut late = outcome();
    for _ in 0..50 {
        late.tally.lag_ns.record(300_000).expect("in range");
    }
    let mut behind = outcome();
    behind.tally.due = 800;
    // Those have time left: more threads would not help.
    let (idly_late, idly_behind) = (late.clone(), behind.clone());
    late.busiest_percent = Some(60.0);
    behind.busiest_percent = Some(60.0);
    let none = LoadOutcome {
        tally: Tally {
            lag_ns: late.tally.lag_ns.clone(),
            due: 1_000,
            ..Tally::default()
        },
        ..outcome()
    };
    let mut never_sent = outcome();
    never_sent.tally.never_sent = 1;
    for (outcome, part) in [
        (busy, "the generator is the limit: a thread"),
        (late, "the generator is the limit: it was late"),
        (behind, "the generator is the limit: it took up 800"),
        (never_sent, "never sent"),
        (idly_late, "busy for only 40 %"),
        (idly_behind, "busy for only 40 %"),
        (none, "no call succeeded"),
    ] {
        let is_idle = outcome.busiest_percent < Some(limits::IDLE_PERCENT as f64);
        let report = report(OPEN, outcome);
        assert!(report.text().starts_with("VOID: "), "{}", report.text());
        assert!(report.void_reasons()[0].contains(part), "{:?}", report.void);
        let blames = report.text().contains("--threads") || report.text().contains("is the limit");
        assert!(!(blames && is_idle), "{:?}", report.void);
        assert_eq!(report.fields()["void"], true);
    }
}

/// A run that a stalled server has ended says so first, with what was done until then.
#[test]
fn the_result_of_a_run_that_stalled_says_so_first() {
    let mut outcome = outcome();
    outcome.tally.unfinished = 6;
    outcome.tally.is_server_stalled = true;
    let mut calls = plan(Pace::Closed);
    assert!(report(Pace::Closed, outcome.clone()).void.is_empty());
    calls.length = Length::Calls(5_000);
    let report = Report::new("Get".into(), &calls, outcome, 1);
    let text = report.text();
    let stall_s = limits::SERVER_STALLED.as_secs();
    for part in [
        "VOID: the server stalled: no call to 127.0.0.1:1978 ended".to_owned(),
        format!("for {stall_s} s while 6 were under way"),
        "ended after 1000 of 5000 calls".to_owned(),
    ] {
        assert!(text.contains(&part), "{part:?} is not in\n{text}");
    }
    assert!(report.has_failures());
}

#[test]
fn a_generator_that_is_late_by_little_is_not_the_limit() {
    // Compared with what the server takes.
    let mut slow = outcome();
    for _ in 0..50 {
        slow.tally.lag_ns.record(300_000).expect("in range");
    }
    slow.tally.succeed(0, 0, 1, false);
    for _ in 0..500 {
        slow.tally.succeed(0, 0, 50_000_000, false);
    }
    assert!(report(OPEN, slow).void_reasons().is_empty());
    // What a closed loop sends depends on the answers: it cannot be late.
    let mut closed = outcome();
    closed.tally.due = 0;
    assert!(report(Pace::Closed, closed).void_reasons().is_empty());
}

/// On a machine that wakes nobody in time the generator is not to blame, and the text says what to
/// do.
#[test]
fn a_noisy_machine_is_named_before_the_generator() {
    let late_by = |late_ns: u64| {
        let mut outcome = outcome();
        let mut stalls = Stalls {
            late_ns: crate::measure::histogram(),
            cpu_ns: 0,
        };
        for _ in 0..50 {
            outcome.tally.lag_ns.record(300_000).expect("in range");
            stalls.late_ns.record(late_ns).expect("in range");
        }
        outcome.stalls = Some(stalls);
        report(OPEN, outcome)
    };
    let noisy = late_by(200_000);
    assert!(noisy.void_reasons().is_empty(), "{:?}", noisy.void);
    assert!(noisy.text().starts_with("NOISY: "), "{}", noisy.text());
    assert!(noisy.text().contains("--pin"));
    assert!(noisy.fields()["noise"].is_string());
    let calm = late_by(100_000);
    assert!(calm.text().starts_with("VOID: "), "{}", calm.text());
    assert_eq!(calm.fields()["noise"], Value::Null);
}

/// A server that answers more slowly than calls come due: what was asked, what was reached, and
/// since when.
#[test]
fn what_falls_behind_its_rate_says_so() {
    let mut slow = outcome();
    slow.tally.ended_in_window = 700;
    slow.tally.kept_up_until_ns = slow.from_ns + 250_000_000;
    slow.tally.waited = 90;
    let slow = report(OPEN, slow);
    let text = slow.text();
    let said = "BEHIND: --rate asks for 1000 calls/s, 700/s were reached: behind since 0.25 s";
    assert!(text.starts_with(said), "{text}");
    assert!(text.contains("more places"), "{text}");
    assert!(slow.is_behind() && slow.void_reasons().is_empty());
    let fields = slow.fields();
    assert_eq!(
        (&fields["rate_reached"], &fields["behind_since_s"]),
        (&json!(false), &json!(0.25))
    );
    let good = report(OPEN, outcome());
    assert!(!good.is_behind() && !good.text().contains("BEHIND"));
    assert_eq!(good.fields()["rate_reached"], true);
    // A closed loop has no rate to fall behind.
    let mut closed = outcome();
    closed.tally.ended_in_window = 700;
    let closed = report(Pace::Closed, closed);
    assert!(!closed.is_behind());
    assert_eq!(closed.fields()["rate_reached"], Value::Null);
}

/// A server that answers nothing that began in the warm-up has not done well.
#[test]
fn unfinished_calls_of_the_warm_up_are_failures() {
    let mut outcome = outcome();
    assert!(!report(Pace::Closed, outcome.clone()).has_failures());
    outcome.tally.unfinished_before = 1;
    let report = report(Pace::Closed, outcome);
    assert!(report.has_failures());
    assert_eq!(report.fields()["unfinished_of_warm_up"], 1);
    assert_eq!(report.fields()["begun_in_warm_up"], 0);
}

#[test]
fn runs_without_calls_have_no_figures_and_no_panic() {
    let nothing = LoadOutcome {
        tally: Tally::default(),
        elapsed_ns: 0,
        server_cpu_ns: None,
        counters: LocalCounters::default(),
        ..outcome()
    };
    let report = report(Pace::Closed, nothing);
    assert_eq!(report.fields()["p50_us"], Value::Null);
    assert!(report.text().contains('–'));
}

/// Numbers of which no two are the same, so that none can stand in the place of another.
fn distinct() -> LoadOutcome {
    let mut tally = Tally {
        lag_ns: crate::measure::histogram(),
        ended_in_window: 500,
        due: 501,
        waited: 11,
        never_sent: 12,
        unfinished: 13,
        begun_before: 14,
        unfinished_before: 15,
        oldest_unfinished_ns: 16_000_500,
        server_allows: 3,
        refused: 18,
        reconnects: 17,
        ended: 1_000,
        ..Tally::default()
    };
    tally.succeed(0, 500_000, 1_000_000, true);
    tally.succeed(0, 1_000_000, 2_000_000, false);
    tally.fail(FailureKind::Status(14), 3, || "full".into());
    tally.fail(FailureKind::NoEffect, 4, String::new);
    tally.lag_ns.record(1_000).expect("in range");
    let mut stalls = Stalls {
        late_ns: crate::measure::histogram(),
        cpu_ns: 1,
    };
    stalls.late_ns.record(2_000).expect("in range");
    LoadOutcome {
        tally,
        elapsed_ns: 250_000_000,
        from_ns: 7_000_000_000,
        own_cpu_ns: 1_500_000,
        server_cpu_ns: Some(2_500_000),
        busiest_percent: Some(61.25),
        stalls: Some(stalls),
        counters: LocalCounters {
            ended: 1_200,
            reads: 100,
            writes: 200,
            waits: 300,
            bytes_in: 7_000,
            bytes_out: 9_000,
            dials: 21,
            socket_wait_ns: 22_000_000,
            window_wait_ns: 23_000_000,
            ..LocalCounters::default()
        },
        tcp: Some(client::TcpFigures {
            segments_out: 1_300,
            segments_in: 1_400,
            retransmits: 19,
        }),
        intervals: Vec::new(),
        was_stopped: true,
    }
}

fn expected_waits() -> serde_json::Map<String, Value> {
    let waits = json!({
        "mean_in_flight": 0.006,
        "unsent_wait_s": 0.002,
        "socket_wait_s": 0.022,
        "window_wait_s": 0.023,
        "connections_dialed": 21,
        "bytes_out": 9_000,
        "bytes_in": 7_000,
    });
    waits.as_object().expect("an object").clone()
}

/// Figures that a run has whose rate changes, of which something is required, or that counts the
/// calls under way.
const UNMEASURED: [&str; 7] = [
    "rate_profile",
    "rate_parts",
    "counted_in_flight",
    "rate_times_latency",
    "littles_law_apart_percent",
    "requirements",
    "requirements_met",
];

#[test]
fn each_figure_is_its_own() {
    let report = Report::new("Put".into(), &plan(OPEN), distinct(), 7);
    let fields = report.fields();
    let expected = json!({
        "address": "127.0.0.1:1978",
        "what": "Put",
        "mode": "multiplexed",
        "loop": "open",
        "rate": 1_000.0,
        "rate_reached": true,
        "behind_since_s": null,
        "arrivals": "poisson",
        "threads": 1,
        "connections": 2,
        "in_flight": 4,
        "seed": 1,
        "elapsed_s": 0.25,
        "stopped_early": true,
        "void": true,
        "noise": null,
        "calls": 9,
        "calls_per_s": 2_000.0,
        "records_per_s": 13_804.0,
        "succeeded": 2,
        "misses": 1,
        "failures": 7,
        "failures_by_kind": "UNAVAILABLE: 3; without effect: 4",
        "first_failure": "full",
        "unfinished": 13,
        "begun_in_warm_up": 14,
        "unfinished_of_warm_up": 15,
        "oldest_unfinished_us": 16_000,
        "due": 501,
        "waited_for_a_place": 11,
        "never_sent": 12,
        "reconnects": 17,
        "own_us": 3.0,
        "server_us": 5.0,
        "busiest_thread_percent": 61.25,
        "calls_per_system_call": 2.0,
        "bytes_out_per_call": 9.0,
        "bytes_in_per_call": 7.0,
        "segments_out_per_call": 1.3,
        "segments_in_per_call": 1.4,
        "retransmits": 19,
    });
    let mut expected = expected.as_object().expect("an object").clone();
    expected.extend(expected_waits());
    expected.insert("protocol".into(), "grpc".into());
    expected.insert("refused".into(), 18.into());
    for name in UNMEASURED {
        expected.insert(name.into(), Value::Null);
    }
    for (name, value) in &expected {
        assert_eq!(&fields[name], value, "{name}");
    }
    // The others are latencies: four times seven, and the reasons.
    assert_eq!(fields.len(), expected.len() + 4 * 7 + 1);
    let near = |name: &str, expected: f64| {
        let value = fields[name].as_f64().expect(name);
        assert!((value / expected - 1.0).abs() < 0.002, "{name}: {value}");
    };
    near("mean_us", 1_500.0);
    near("max_us", 2_000.0);
    near("uncorrected_mean_us", 750.0);
    near("uncorrected_max_us", 1_000.0);
    near("lag_mean_us", 1.0);
    near("stall_p50_us", 2.0);
    assert!(report.has_failures());
}

#[test]
fn the_text_has_a_line_for_each_thing_to_know() {
    let report = Report::new("Put".into(), &plan(OPEN), distinct(), 7);
    let void = report.void_reasons().len();
    let text = report.text();
    let lines: Vec<&str> = text.lines().skip(void).collect();
    assert_eq!(
        lines[..12],
        [
            "Put on 127.0.0.1:1978: 2 connections × 4 in flight, open loop, 1000 calls/s as a \
             Poisson process, 1 thread, 0.250 s, stopped early",
            "calls: 2 succeeded, 7 failed, 2000/s, 13804 records/s, 1 misses",
            "  failed: 3 × UNAVAILABLE",
            "  failed: 4 × without effect",
            "  the first said: full",
            "  unfinished: 13, and 15 that began in the warm-up, the oldest for 0.016 s; they are \
             not among the latencies",
            "  begun in the warm-up: 14 that ended while it was measured; they count in calls/s, \
             and are not among the latencies",
            "  11 calls waited for a free place, which is part of their latency: more \
             --connections or --in-flight give more places",
            "  3 calls at once on a connection, fewer than --in-flight: the server allows no more, \
             or larger messages than can wait on one",
            "  18 calls were refused by the server before it began with them, and made again when \
             another one on their connection had ended: keep --in-flight below its limit",
            "  connections made again: 17",
            "latency (µs)       mean       p50       p90       p99     p99.9    p99.99       max",
        ]
    );
    for (line, name) in lines[12..16]
        .iter()
        .zip(["corrected", "uncorrected", "own lag", "machine"])
    {
        assert!(line.starts_with(&format!("{name:<13}")), "{line}");
        assert_eq!(line.chars().count(), 13 + 7 * 10, "{line}");
    }
    assert_eq!(
        lines[16..],
        [
            "CPU per call: server 5.000 µs, generator 3.000 µs (its busiest thread was busy for \
             61 % of the time)",
            "calls per system call: 2.000; TCP segments per call: 1.300 out, 1.400 in; \
             retransmits: 19",
            "in flight: 0.0 on average; waited: calls 0.002 s to be sent, connections 0.022 s for \
             their sockets, 0.023 s for the server's windows; 21 dialed",
        ]
    );
}

/// Nothing that did not happen is spoken of.
#[test]
fn the_text_of_a_good_run_is_short() {
    let mut plan = plan(Pace::Closed);
    plan.threads = 2;
    let mut outcome = outcome();
    outcome.tally.misses = 0;
    let text = |plan: &LoadPlan| Report::new("Get".into(), plan, outcome.clone(), 1).text();
    let all = text(&plan);
    let lines: Vec<&str> = all.lines().collect();
    assert_eq!(lines.len(), 7, "{all}");
    assert_eq!(
        lines[..2],
        [
            "Get on 127.0.0.1:1978: 2 connections × 4 in flight, closed loop, 2 threads, 1.000 s",
            "calls: 1000 succeeded, 0 failed, 1000/s",
        ]
    );
    assert!(lines[3].starts_with("             "), "{all}");
    assert!(!all.contains("TCP"), "{all}");
    for (mode, part) in [
        (
            ConnectionMode::Exclusive,
            ": 2 connections, one call at a time on each, ",
        ),
        (
            ConnectionMode::Short,
            ": 2 at a time, each on a new connection, ",
        ),
    ] {
        plan.worker.mode = mode;
        assert!(text(&plan).contains(part), "{}", text(&plan));
    }
    plan.worker.pace = Pace::Open {
        rate: 0.5,
        arrivals: Arrivals::Fixed,
    };
    assert!(text(&plan).contains(", open loop, 0.5 calls/s at equal distances, "));
}

/// A share of a few milliseconds is left out, and no reason to blame the generator or to excuse it.
#[test]
fn a_thread_that_was_measured_for_too_short_a_time_has_no_share() {
    let short = LoadOutcome {
        busiest_percent: None,
        ..outcome()
    };
    let report = report(Pace::Closed, short);
    let (text, fields) = (report.text(), report.fields());
    assert!(report.void_reasons().is_empty(), "{:?}", report.void);
    assert!(
        text.contains("generator 2.000 µs\n") && !text.contains("busy"),
        "{text}"
    );
    assert_eq!(fields["busiest_thread_percent"], Value::Null);
    let mut late = outcome();
    late.busiest_percent = None;
    for _ in 0..50 {
        late.tally.lag_ns.record(300_000).expect("in range");
    }
    let text = self::report(OPEN, late).text();
    assert!(!text.contains("busy for only"), "{text}");
}

/// One kind of what has not ended is enough, whichever it is.
#[test]
fn what_never_ended_is_told_whenever_it_began() {
    for (unfinished, before, part) in [
        (2, 0, "unfinished: 2, the oldest"),
        (
            0,
            3,
            "unfinished: 0, and 3 that began in the warm-up, the oldest",
        ),
    ] {
        let mut outcome = outcome();
        (outcome.tally.unfinished, outcome.tally.unfinished_before) = (unfinished, before);
        let report = report(Pace::Closed, outcome);
        assert!(report.has_failures());
        assert!(report.text().contains(part), "{}", report.text());
    }
    let mut outcome = outcome();
    outcome.tally.never_sent = 1;
    assert!(report(OPEN, outcome).has_failures());
}

/// The figures at which a result becomes void, and the last ones at which it is not.
#[test]
fn bounds_of_void_results_are_exact() {
    let is_void =
        |pace: Pace, outcome: LoadOutcome| !report(pace, outcome).void_reasons().is_empty();
    let busy = |percent: u64| LoadOutcome {
        busiest_percent: Some(percent as f64),
        ..outcome()
    };
    assert!(!is_void(Pace::Closed, busy(limits::BUSY_PERCENT)));
    assert!(is_void(Pace::Closed, busy(limits::BUSY_PERCENT + 1)));

    // 99 % of 10 000 calls, less four times their root, and two.
    let many = Pace::Open {
        rate: 5_000.0,
        arrivals: Arrivals::Poisson,
    };
    let due = |due: u64, busiest_percent: u64| {
        let mut outcome = LoadOutcome {
            elapsed_ns: 2_000_000_000,
            ..busy(busiest_percent)
        };
        outcome.tally.due = due;
        outcome
    };
    assert!(!is_void(many, due(9_498, 60)));
    assert!(is_void(many, due(9_497, 60)));
    // So many calls and no more, or until the user has had enough: then fewer come due.
    let mut some = plan(many);
    some.length = Length::Calls(9_497);
    let report = Report::new("Get".into(), &some, due(9_497, 60), 1);
    assert!(report.void_reasons().is_empty());
    let stopped = LoadOutcome {
        was_stopped: true,
        ..due(9_497, 60)
    };
    assert!(!is_void(many, stopped));

    // From half of its time on the generator is the reason.
    let reason = |percent| self::report(many, due(1, percent)).void_reasons()[0].clone();
    assert!(reason(limits::IDLE_PERCENT).contains("the generator is the limit"));
    assert!(reason(limits::IDLE_PERCENT - 1).contains("busy for only 49 %"));
}

/// Lag counts from 200 µs on, and if it is more than a tenth of the latency; half of it excuses the
/// machine.
#[test]
fn bounds_of_lag_are_exact() {
    let outcome = |lag_us: u64, latency_us: u64, stall_us: u64| {
        let mut late_ns = crate::measure::histogram();
        late_ns.record(stall_us * 1_000).expect("in range");
        let mut outcome = outcome();
        outcome.tally.lag_ns = crate::measure::histogram();
        outcome
            .tally
            .lag_ns
            .record(lag_us * 1_000)
            .expect("in range");
        outcome.tally.latency_ns = crate::measure::histogram();
        outcome
            .tally
            .latency_ns
            .record(latency_us * 1_000)
            .expect("in range");
        outcome.stalls = Some(Stalls { late_ns, cpu_ns: 0 });
        outcome
    };
    let is_void = |outcome| !report(OPEN, outcome).void_reasons().is_empty();
    let is_noisy = |outcome| report(OPEN, outcome).text().starts_with("NOISY: ");
    assert!(!is_void(outcome(199, 1_000, 1)));
    assert!(is_void(outcome(201, 1_000, 1)));
    assert!(!is_void(outcome(300, 3_020, 1)));
    assert!(is_void(outcome(300, 2_980, 1)));
    assert!(!is_noisy(outcome(300, 1_000, 149)));
    assert!(is_void(outcome(300, 1_000, 149)));
    assert!(is_noisy(outcome(300, 1_000, 151)));
    assert!(!is_void(outcome(300, 1_000, 151)));
    // What did not disturb the latencies is no noise.
    assert!(!is_noisy(outcome(199, 1_000, 1_000)));
    let text = report(OPEN, outcome(300, 1_000, 200)).text();
    assert!(
        text.contains("looks at the clock 200 µs late (p99), and the generator 300 µs late"),
        "{text}"
    );
    let text = report(OPEN, outcome(300, 1_000, 1)).text();
    assert!(
        text.contains("late by 300 µs (p99) where the latency is 1000 µs (p99)"),
        "{text}"
    );
    assert!(
        !report(Pace::Closed, outcome(300, 1_000, 200))
            .text()
            .contains("NOISY")
    );
}

#[test]
fn cells_of_csv_are_quoted_where_they_must_be() {
    for plain in ["", "a", "a b", "a;b"] {
        assert_eq!(csv_cell(plain), plain);
    }
    for (text, cell) in [
        ("a,b", "\"a,b\""),
        ("a\nb", "\"a\nb\""),
        ("a\rb", "\"a\rb\""),
        ("\"", "\"\"\"\""),
    ] {
        assert_eq!(csv_cell(text), cell);
    }
    let fields = object([("a", Value::Null), ("b,", json!("x,")), ("c", json!(1.5))]);
    assert_eq!(csv_lines(&fields), "a,\"b,\",c\n,\"x,\",1.5\n");
    assert_eq!(
        (rounded(1.23449), rounded(1.2345)),
        (json!(1.234), json!(1.235))
    );
}

/// The report of a simulated run in an open loop: of 1 ms for each call, or of a server that
/// answers nothing.
fn simulated(rate: f64, answers: bool, length_ns: u64, asleep: std::ops::Range<u64>) -> Report {
    use crate::worker::tests as worker;
    let window = crate::measure::Window {
        from_ns: 1_000_000,
        until_ns: 1_000_000 + length_ns,
    };
    let stall = if answers { 0..0 } else { 0..u64::MAX };
    let mut fake = worker::Fake::new(1_000_000, stall);
    let worker_plan = worker::plan(worker::open_loop(rate), 1, 1_000);
    let tally = worker::simulate(worker_plan.clone(), &mut fake, window, asleep);
    let plan = LoadPlan {
        worker: worker_plan,
        length: Length::Duration(Duration::from_nanos(length_ns)),
        ..plan(OPEN)
    };
    let outcome = LoadOutcome {
        tally,
        elapsed_ns: length_ns,
        ..outcome()
    };
    Report::new("Get".into(), &plan, outcome, 1)
}

#[test]
fn a_run_that_keeps_up_is_not_void() {
    let report = simulated(1_000.0, true, 1_000_000_000, 0..0);
    assert!(report.void_reasons().is_empty(), "{:?}", report.void);
    assert!(!report.has_failures());
    assert_eq!(report.fields()["due"], 1_000);
}

/// More comes due while the server answers nothing than is kept.
#[test]
fn a_server_that_keeps_nobody_up_makes_the_result_void() {
    let report = simulated(100e6, false, 60_000_000, 0..0);
    let tally = &report.outcome().tally;
    assert_eq!(tally.due, 6_000_000);
    // All but those in flight, and those that wait.
    assert_eq!(
        tally.never_sent,
        6_000_000 - 1_000 - limits::MAX_BACKLOG as u64
    );
    assert_eq!(tally.unfinished, 1_000 + limits::MAX_BACKLOG as u64);
    assert_eq!(tally.waited, limits::MAX_BACKLOG as u64);
    let reasons = report.void_reasons();
    assert!(
        reasons
            .iter()
            .any(|reason| reason.contains("were never sent")),
        "{reasons:?}"
    );
    assert!(
        reasons
            .iter()
            .any(|reason| reason.contains("no call succeeded")),
        "{reasons:?}"
    );
}

/// A generator that stands still until long after the end takes up only what came due before.
#[test]
fn a_generator_that_sleeps_over_the_end_makes_the_result_void() {
    let second = 1_000_000_000;
    let report = simulated(10_000.0, true, second, second / 2..100 * second);
    let tally = &report.outcome().tally;
    assert_eq!(tally.due, 4_990, "from 1 to 500 ms");
    let reasons = report.void_reasons();
    let behind = "4990 of the 10000 calls that --rate asks for were taken up";
    assert!(
        reasons.iter().any(|reason| reason.contains(behind)),
        "{reasons:?}"
    );
}

/// Ten failed, ten did not end, and five were never sent, beside a thousand that succeeded.
#[test]
fn what_is_required_is_compared_with_all_that_did_not_succeed() {
    let mut outcome = outcome();
    outcome.tally.failed = vec![(FailureKind::Status(14), 10)];
    outcome.tally.unfinished = 10;
    outcome.tally.never_sent = 5;
    let required = ["errors<=25", "errors<2.43%", "rate>=1000", "p50<1ms"];
    let required = required.map(|text| text.parse().expect(text));
    let report = report(Pace::Closed, outcome).requiring(&required);
    assert_eq!(report.meets_requirements(), Some(false));
    let text = report.text();
    let lines: Vec<&str> = text.lines().rev().take(4).collect();
    assert!(lines[0].starts_with("required: p50<1ms: met, "), "{text}");
    assert_eq!(lines[1], "required: rate>=1000: met, 1000.0/s");
    assert_eq!(lines[2], "required: errors<2.43%: MISSED, 2.439 %");
    assert_eq!(lines[3], "required: errors<=25: met, 25");
    let fields = report.fields();
    assert_eq!(fields["requirements_met"], false);
    let results = fields["requirements"].as_str().expect("a text");
    assert!(
        results.starts_with("errors<=25: met, 25; errors<2.43%: MISSED"),
        "{results}"
    );
}

#[test]
fn a_run_of_which_nothing_is_required_says_nothing_of_it() {
    let report = report(Pace::Closed, outcome()).requiring(&[]);
    assert_eq!(report.meets_requirements(), None);
    assert!(!report.text().contains("required"));
    assert_eq!(report.fields()["requirements_met"], Value::Null);
}

/// Of ten streams of a hundred records nine have failed.
#[test]
fn records_of_calls_that_failed_are_not_counted() {
    let mut outcome = outcome();
    outcome.tally = Tally::default();
    outcome.tally.succeed(0, 0, 1_000, false);
    outcome
        .tally
        .fail(FailureKind::ConnectionLost, 9, String::new);
    outcome.tally.ended_in_window = 10;
    let report = Report::new("x".into(), &plan(Pace::Closed), outcome, 100);
    let fields = report.fields();
    assert_eq!(
        (&fields["calls_per_s"], &fields["records_per_s"]),
        (&json!(10.0), &json!(100.0))
    );
    assert!(report.text().contains("10/s, 100 records/s"));
}
