use std::time::Duration;

use super::super::axis::SweepAxes;
use super::super::results::SweepRun;
use super::*;
use crate::machine::{RecordedFiles, TargetPlace};

fn axis(parameter: SweepParameter, values: &[&str]) -> SweepAxis {
    SweepAxis {
        parameter,
        values: values.iter().map(ToString::to_string).collect(),
    }
}

fn figures(calls_per_s: f64, in_flight: f64, failures: u64, is_void: bool) -> RunFigures {
    let mean_us = in_flight * 1e6 / calls_per_s;
    let fields = json!({
        "calls_per_s": calls_per_s, "records_per_s": calls_per_s, "succeeded": 1000,
        "failures": failures, "void": is_void, "what": "get=100",
        "void_reasons": if is_void { "the generator is the limit" } else { "" },
        "first_failure": if failures > 0 { Some("UNAVAILABLE") } else { None },
        "mean_us": mean_us, "p50_us": mean_us, "p90_us": mean_us * 2.0, "p99_us": mean_us * 3.0,
        "p999_us": mean_us * 4.0, "own_us": 0.5, "server_us": null,
    });
    match fields {
        Value::Object(fields) => RunFigures::new(fields).expect("a result"),
        _ => panic!("an object"),
    }
}

fn report(axes: Vec<SweepAxis>, runs: Vec<SweepRun>, ended_early: Option<&str>) -> SweepReport {
    let axes = SweepAxes::new(axes).expect("two at most");
    let setting = SweepSetting {
        target: "127.0.0.1:1978".into(),
        machine: LoadMachine::read(&RecordedFiles::default(), &TargetPlace::Unix, None),
        during: Some(CpuShares {
            busy_percent: 80.0,
            steal_percent: 1.5,
        }),
        times: SweepTimes {
            runs: 2,
            warm_up: Duration::from_millis(200),
            measured: Duration::from_millis(1_500),
        },
        seed: 7,
        ended_early: ended_early.map(str::to_owned),
    };
    SweepReport::new(setting, SweepResults::new(axes, runs))
}

/// Two runs of each in-flight, one percent apart.
fn one_axis(medians: &[f64]) -> SweepReport {
    let values = ["1", "2", "4", "8", "16"];
    let runs = medians.iter().enumerate().flat_map(|(cell, median)| {
        [0.995, 1.005]
            .into_iter()
            .enumerate()
            .map(move |(run, factor)| SweepRun {
                cell,
                run,
                at_ms: 0,
                figures: figures(median * factor, f64::from(1 << cell), 0, false),
            })
    });
    let axes = vec![axis(SweepParameter::InFlight, &values[..medians.len()])];
    report(axes, runs.collect(), None)
}

#[test]
fn the_text_has_machine_table_and_knee() {
    let text = one_axis(&[1_000.0, 1_900.0, 2_500.0, 2_550.0]).text();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("machine: "), "{text}");
    assert!(lines[1].starts_with("way: a UNIX socket"), "{text}");
    assert!(lines[2].starts_with("others: "), "{text}");
    assert!(
        lines[3].contains("80 % of the CPUs were busy, 1.5 % stolen"),
        "{text}"
    );
    assert_eq!(
        lines[4],
        "get=100 on 127.0.0.1:1978: 4 cells of in-flight, 2 runs each of 1.5 s after 0.2 s of \
         warm-up, in random order (--order-seed 7); 8 of 8 runs were made"
    );
    let head: Vec<&str> = lines[5].split_whitespace().collect();
    assert_eq!(head[..3], ["in-flight", "calls/s", "spread"], "{text}");
    assert!(
        !lines[5].contains("server CPU"),
        "it was not measured: {text}"
    );
    let row: Vec<&str> = lines[8].split_whitespace().collect();
    assert_eq!(row[..4], ["4", "2500", "1.0", "%"], "{text}");
    assert_eq!(
        lines[10],
        "knee: in-flight=4, the least with 95 % of the best calls/s (2550 at 8); throughput \
         divided by latency is largest at in-flight=2"
    );
    assert_eq!(lines.len(), 11, "{text}");
}

#[test]
fn no_knee_and_too_few_values_are_said() {
    let text = one_axis(&[1_000.0, 2_000.0, 4_000.0]).text();
    assert!(
        text.contains("knee: none within what was swept: calls/s still grows, by 100 %"),
        "{text}"
    );
    let text = one_axis(&[1_000.0, 2_000.0]).text();
    assert!(
        text.contains("knee: not looked for, as that takes 3 values"),
        "{text}"
    );
    let text = one_axis(&[1_000.0, 1_001.0, 1_002.0]).text();
    assert!(text.contains("knee: in-flight=1 or below"), "{text}");
}

#[test]
fn runs_with_failures_and_void_ones_are_named() {
    let run = |cell, run, figures| SweepRun {
        cell,
        run,
        at_ms: 0,
        figures,
    };
    let axes = vec![axis(SweepParameter::InFlight, &["1", "2", "4"])];
    let runs = vec![
        run(0, 0, figures(1_000.0, 1.0, 0, false)),
        run(0, 1, figures(100.0, 1.0, 5, false)),
        run(1, 0, figures(50.0, 2.0, 5, false)),
        run(2, 0, figures(3_000.0, 4.0, 0, true)),
    ];
    let report = report(axes, runs, Some("the server is gone"));
    let text = report.text();
    assert!(text.contains("ENDED EARLY: the server is gone"), "{text}");
    assert!(text.contains("4 of 6 runs were made"), "{text}");
    assert!(text.contains("void: 1 of 4 runs"), "{text}");
    assert!(text.contains("failed: calls failed in 2 runs"), "{text}");
    assert!(text.contains("the first: UNAVAILABLE"), "{text}");
    assert!(
        text.contains("the generator was the limit at the largest value"),
        "{text}"
    );
    let fields = report.fields();
    // The run with failures counts only where there is no other one.
    assert_eq!(fields["cells"][0]["calls_per_s"]["median"], 1_000.0);
    assert_eq!(fields["cells"][1]["calls_per_s"]["median"], 50.0);
    assert_eq!(fields["cells"][0]["failures"], 5);
    assert_eq!(fields["runs_made"], 4);
    assert_eq!(fields["ended_early"], "the server is gone");
}

#[test]
fn runs_that_are_far_apart_are_named() {
    let axes = vec![axis(SweepParameter::InFlight, &["1", "2"])];
    let run = |cell, run, calls_per_s| SweepRun {
        cell,
        run,
        at_ms: 0,
        figures: figures(calls_per_s, 1.0, 0, false),
    };
    let near = vec![run(0, 0, 100.0), run(0, 1, 101.0)];
    let far = [near.clone(), vec![run(1, 0, 80.0), run(1, 1, 120.0)]].concat();
    let text = report(axes.clone(), far, None).text();
    assert!(text.contains("up to 40 % apart (at in-flight=2)"), "{text}");
    assert!(!report(axes, near, None).text().contains("unsteady"));
}

fn two_axes() -> SweepReport {
    let axes = vec![
        axis(SweepParameter::Mode, &["multiplexed", "exclusive"]),
        axis(SweepParameter::Connections, &["1", "2", "4"]),
    ];
    let medians = [100.0, 200.0, 205.0, 50.0, 100.0, 200.0];
    let runs = medians.iter().enumerate().map(|(cell, median)| SweepRun {
        cell,
        run: 0,
        at_ms: 0,
        figures: figures(*median, 1.0, 0, false),
    });
    report(axes, runs.collect(), None)
}

#[test]
fn two_parameters_have_a_knee_for_each_value_of_the_other() {
    let report = two_axes();
    let text = report.text();
    assert!(
        text.contains("knee at mode=multiplexed: connections=2,"),
        "{text}"
    );
    assert!(
        text.contains("knee at mode=exclusive: none within what was swept"),
        "{text}"
    );
    let fields = report.fields();
    assert_eq!(fields["knees"][0]["value"], "2");
    assert_eq!(fields["knees"][1]["found"], "beyond");
    assert_eq!(fields["knees"][1]["other_value"], "exclusive");
}

#[test]
fn csv_has_a_row_for_each_cell() {
    let csv = two_axes().csv();
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), 7, "{csv}");
    assert!(lines[0].starts_with("mode,connections,calls_per_s_median,calls_per_s_least,"));
    assert!(lines[4].starts_with("exclusive,1,50,50,50,"), "{csv}");
    let columns = lines.iter().map(|line| line.split(',').count());
    assert!(
        columns
            .clone()
            .all(|count| Some(count) == columns.clone().next()),
        "{csv}"
    );
}

#[test]
fn the_page_draws_each_measure() {
    let one = one_axis(&[1_000.0, 1_900.0, 2_500.0, 2_550.0]).html();
    assert_eq!(
        one.matches("<svg").count(),
        4,
        "throughput, latency, both, CPU"
    );
    assert!(one.contains("knee: in-flight=4"));
    assert!(one.contains("p99.9 µs</text>"));
    let two = two_axes().html();
    assert_eq!(
        two.matches("<svg").count(),
        5,
        "two fields, two lines, points"
    );
    assert!(two.contains("mode=exclusive"));
    for page in [one, two] {
        assert!(!page.contains("://") && !page.contains("<script"));
    }
}
