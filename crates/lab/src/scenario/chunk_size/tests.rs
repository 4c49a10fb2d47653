//! Tests of the claims about sizes of chunks.

use serde_json::json;

use super::super::claim::tests::verdicts;
use super::*;

const FILE_BYTES: f64 = 143e6;

/// What uploads of one way and size have shown.
struct Sample {
    line: UploadLine,
    shift: u32,
    /// The middle of the times, and how far the first and the last are from it.
    answered_s: f64,
    apart: f64,
    sent_share: f64,
    cpu_percent: f64,
}

fn add(measured: &mut Measurements, sample: &Sample) {
    let times: Vec<f64> = [-1.0, -0.5, 0.0, 0.5, 1.0]
        .map(|at| sample.answered_s * (1.0 + at * sample.apart) * 1e9)
        .to_vec();
    let sent: Vec<f64> = times.iter().map(|ns| ns * sample.sent_share).collect();
    let figures = json!({
        "file_bytes": FILE_BYTES,
        "answered_ns": times,
        "sent_ns": sent,
        "own_cpu_percent": sample.cpu_percent,
        "server_cpu_percent": sample.cpu_percent * 0.9,
        "mb_per_s": FILE_BYTES / 1e6 / sample.answered_s,
    });
    measured.add(MeasuredRun {
        name: named(sample.line, sample.shift),
        figures: figures.as_object().cloned().expect("an object"),
        ..MeasuredRun::default()
    });
}

/// Seconds of gRPC: the three that were published; then ever less, as its picture has it.
fn published_s(shift: u32) -> f64 {
    match shift {
        4 => 29.5,
        5 => 16.0,
        6 => 8.0,
        7 => 4.0,
        8 => 2.0,
        9 => 1.0,
        10 => 0.6,
        _ => 0.5,
    }
}

/// As published, with both clocks of ours.
fn published_figures(shifts: &[u32]) -> Measurements {
    let mut measured = Measurements::default();
    for shift in shifts.iter().copied() {
        for line in LINES {
            let factor = match line.file_name {
                "grpc-tls" => 1.03,
                "grpc-gzip" => 4.0,
                "http2" => 0.7,
                "http2-tls" => 0.72,
                _ => 1.0,
            };
            add(
                &mut measured,
                &Sample {
                    line,
                    shift,
                    answered_s: published_s(shift) * factor,
                    apart: if shift == MOST_SPREAD { 0.3 } else { 0.1 },
                    sent_share: 0.9,
                    cpu_percent: if shift < 8 { 200.0 } else { 90.0 },
                },
            );
        }
    }
    measured
}

/// Every effect is absent: the size of a chunk changes nothing, and TLS much.
fn flat_figures() -> Measurements {
    let mut measured = Measurements::default();
    for shift in FEW_SHIFTS {
        for line in LINES {
            let factor = if line.server == TLS { 1.5 } else { 1.0 };
            add(
                &mut measured,
                &Sample {
                    line,
                    shift,
                    answered_s: factor,
                    apart: 0.1,
                    sent_share: 1.0,
                    cpu_percent: 30.0,
                },
            );
        }
    }
    measured
}

#[test]
fn the_published_figures_reproduce_what_was_published() {
    for shifts in [&FEW_SHIFTS[..], &SHIFTS.collect::<Vec<u32>>()] {
        let claims = judge(&published_figures(shifts));
        assert_eq!(verdicts(&claims), ["reproduced"; 7], "{claims:#?}");
        assert!(
            claims[0].figures.contains("3.7 times as long"),
            "{claims:#?}"
        );
        assert!(claims[5].figures.contains("2^20 × 0.70"), "{claims:#?}");
    }
}

#[test]
fn effects_that_are_absent_are_not_reproduced() {
    let claims = judge(&flat_figures());
    assert_eq!(verdicts(&claims), ["not-reproduced"; 7], "{claims:#?}");
}

/// Each part of a criterion alone is not enough.
#[test]
fn half_a_claim_is_not_reproduced() {
    // Idle processes, although small chunks are slow: something else is the limit.
    let mut measured = published_figures(&FEW_SHIFTS);
    let idle = Sample {
        line: GRPC,
        shift: TINY,
        answered_s: 29.5,
        apart: 0.1,
        sent_share: 0.9,
        cpu_percent: 10.0,
    };
    (0..2).for_each(|_| add(&mut measured, &idle));
    assert_eq!(judge(&measured)[0].verdict.name(), "not-reproduced");
    // 1 MiB brings much.
    let mut measured = published_figures(&FEW_SHIFTS);
    let fast = Sample {
        shift: 20,
        answered_s: 0.1,
        ..idle
    };
    (0..2).for_each(|_| add(&mut measured, &fast));
    assert_eq!(judge(&measured)[1].verdict.name(), "not-reproduced");
}

#[test]
fn a_size_that_was_not_measured_says_why() {
    let mut measured = published_figures(&[4, 6, 8]);
    for line in LINES {
        for shift in [10, 12, 14, 15, 16, 18, 20] {
            measured.add_missing(&named(line, shift), "it was interrupted");
        }
    }
    let claims = judge(&measured);
    assert_eq!(claims[0].verdict.name(), "reproduced");
    for claim in &claims[1..4] {
        let words = claim.verdict.words();
        assert!(words.ends_with("because it was interrupted"), "{words}");
    }
}

#[test]
fn the_middle_half_leaves_both_ends_out() {
    let half = |values: &[f64]| middle_half(values.to_vec());
    assert_eq!(
        half(&[100.0, 8.0, 12.0, 10.0, 1.0, 10.0, 10.0, 11.0]),
        Ok(0.1)
    );
    assert_eq!(half(&[7.0]), Ok(0.0));
    assert!(half(&[]).is_err());
}

#[test]
fn csv_has_a_line_for_each_upload_by_the_clock_of_the_original() {
    let mut measured = Measurements::default();
    for line in [GRPC, HTTP2] {
        let sample = Sample {
            line,
            shift: 5,
            answered_s: 2.0,
            apart: 0.5,
            sent_share: 0.5,
            cpu_percent: 1.0,
        };
        add(&mut measured, &sample);
    }
    let files = csv(&measured);
    let text = |name| {
        let mut files = files.iter();
        let (_, text) = files.find(|(file, _)| *file == name).expect("a file");
        text.as_str()
    };
    let sent = "5,500000000\n5,750000000\n5,1000000000\n5,1250000000\n5,1500000000\n";
    assert_eq!(text("grpc"), sent);
    let answered = "5,1000000000\n5,1500000000\n5,2000000000\n5,2500000000\n5,3000000000\n";
    assert_eq!(text("http2"), answered);
    assert_eq!(text("grpc-tls"), "");
    assert_eq!(files.len(), 5);
}

#[test]
fn a_short_run_fits_into_three_minutes_and_a_full_one_is_the_published_one() {
    let plan = super::plan(ScenarioScale::Short);
    assert!(
        plan.duration() <= Duration::from_secs(150),
        "{:?}",
        plan.duration()
    );
    assert_eq!(plan.runs.len(), 50);
    let plan = super::plan(ScenarioScale::Full);
    assert_eq!((plan.runs.len(), plan.rounds), (90, 50));
    for run in plan.runs {
        let PlannedClient::Pelton(arguments) = run.client else {
            panic!("{} has another client", run.name);
        };
        assert!(arguments.contains(&"143000000".into()), "{arguments:?}");
    }
}

#[test]
fn each_way_has_a_box_for_each_size() {
    assert_eq!(charts(&Measurements::default()), []);
    let drawn = charts(&published_figures(&[4, 10, 15]));
    assert_eq!(drawn.len(), 1 + LINES.len());
    let (title, all) = drawn.first().expect("all of them together");
    assert!(title.contains("ms for each MB"), "{title}");
    assert_eq!(all.matches("<polyline").count(), LINES.len(), "{all}");
    assert!(!all.contains("class=\"half\""), "{all}");
    for ((title, svg), line) in drawn.iter().skip(1).zip(LINES) {
        assert!(title.starts_with(line.name), "{title}");
        assert_eq!(svg.matches("class=\"half\"").count(), 3, "{svg}");
        assert!(svg.contains(">2^15</text>"), "{svg}");
    }
    // 29.5 s for 143 MB.
    let grpc = drawn.get(1).map_or("", |(_, svg)| svg.as_str());
    assert!(
        grpc.contains("gRPC 2^4: 206 (runs from 186 to 227)"),
        "{grpc}"
    );
}
