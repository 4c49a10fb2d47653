use std::time::Duration;

use client::LocalCounters;

use super::*;
use crate::limits;
use crate::measure::{FailureKind, Tally};
use crate::pacing::Arrivals;
use crate::run::Length;
use crate::stalls::Stalls;
use crate::worker::{Mode, WorkerPlan};

fn plan(pace: Pace) -> Plan {
    Plan {
        address: "127.0.0.1:1978".parse().expect("an address"),
        tls: None,
        connect_timeout: Duration::from_secs(1),
        authority: None,
        threads: 1,
        pin: Vec::new(),
        connections: 2,
        worker: WorkerPlan {
            thread: (0, 1),
            connections: 0,
            in_flight: 4,
            mode: Mode::Multiplexed,
            pace,
            deadline_ns: None,
            metadata: Vec::new(),
            calls: None,
            seed: 1,
        },
        warm_up: Duration::ZERO,
        length: Length::Duration(Duration::from_secs(1)),
        stop_on_failure: false,
        server_process: None,
    }
}

const OPEN: Pace = Pace::Open {
    rate: 1_000.0,
    arrivals: Arrivals::Poisson,
};

/// A thousand calls of 1 to 1000 µs in a second.
fn outcome() -> Outcome {
    let mut tally = Tally::default();
    for us in 1..=1_000 {
        tally.succeed(0, 0, us * 1_000, us % 10 == 0);
        tally.lag_ns.record(1_000).expect("in range");
    }
    tally.ended_in_window = 1_000;
    tally.ended = 1_000;
    tally.due = 1_000;
    Outcome {
        tally,
        elapsed_ns: 1_000_000_000,
        own_cpu_ns: 2_000_000,
        server_cpu_ns: Some(5_000_000),
        busiest_percent: 40.0,
        stalls: None,
        counters: LocalCounters {
            reads: 100,
            writes: 50,
            waits: 50,
            ..LocalCounters::default()
        },
        tcp: None,
        was_stopped: false,
    }
}

fn report(pace: Pace, outcome: Outcome) -> Report {
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
    assert_eq!(fields["segments_out_per_call"], Value::Null);
    let near = |name: &str, expected: f64| {
        let value = fields[name].as_f64().expect(name);
        assert!((value / expected - 1.0).abs() < 0.002, "{name}: {value}");
    };
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

    let busy = Outcome {
        busiest_percent: limits::BUSY_PERCENT as f64 + 0.5,
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
    late.busiest_percent = 60.0;
    behind.busiest_percent = 60.0;
    let none = Outcome {
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
        let is_idle = outcome.busiest_percent < limits::IDLE_PERCENT as f64;
        let report = report(OPEN, outcome);
        assert!(report.text().starts_with("VOID: "), "{}", report.text());
        assert!(report.void_reasons()[0].contains(part), "{:?}", report.void);
        let blames = report.text().contains("--threads") || report.text().contains("is the limit");
        assert!(!(blames && is_idle), "{:?}", report.void);
        assert_eq!(report.fields()["void"], true);
    }
    // Late, but by little compared with what the server takes.
    let mut slow = outcome();
    for _ in 0..50 {
        slow.tally.lag_ns.record(300_000).expect("in range");
    }
    slow.tally.succeed(0, 0, 1, false);
    for _ in 0..500 {
        slow.tally.succeed(0, 0, 50_000_000, false);
    }
    assert!(report(OPEN, slow).void_reasons().is_empty());
    // As late, on a machine that wakes nobody in time: the generator is not to blame, and the text says what to do.
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
    // What a closed loop sends depends on the answers: it cannot be late.
    let mut closed = outcome();
    closed.tally.due = 0;
    assert!(report(Pace::Closed, closed).void_reasons().is_empty());
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
    let nothing = Outcome {
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
