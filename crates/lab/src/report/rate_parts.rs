//! What each part of a run has shown whose rate changed.

use serde_json::{Map, Value};

use super::{Report, add_latencies, object, per, quantile_us, rounded, seconds};
use crate::load_plan::Length;
use crate::measure::PartTally;
use crate::pacing::Pace;

/// A part of the measured time.
struct RatePart<'a> {
    from_s: f64,
    /// Calls a second that were asked for, on average.
    asked: f64,
    /// Calls a second that ended.
    reached: f64,
    tally: &'a PartTally,
}

/// Columns of latencies, each a name, a row of the tally and a quantile.
const COLUMNS: [(&str, bool, f64); 5] = [
    ("p50", true, 0.5),
    ("p90", true, 0.9),
    ("p99", true, 0.99),
    ("max", true, 1.0),
    ("uncorr. p99", false, 0.99),
];

fn parts(report: &Report) -> Vec<RatePart<'_>> {
    let (Pace::Varying { profile, .. }, Length::Duration(length)) =
        (report.plan.worker.pace, report.plan.length)
    else {
        return Vec::new();
    };
    let tallies = &report.outcome.tally.parts;
    let part_ns = length.as_nanos() as u64 / tallies.len().max(1) as u64;
    let rates = profile.parts().into_iter().zip(tallies).enumerate();
    rates
        .map(|(number, ((from, to), tally))| RatePart {
            from_s: seconds(part_ns) * number as f64,
            asked: (from + to) / 2.0,
            reached: per(tally.ended as f64 * 1e9, part_ns).unwrap_or(0.0),
            tally,
        })
        .collect()
}

/// A table with a line for each part; empty: the rate did not change.
pub(super) fn lines(report: &Report) -> Vec<String> {
    let parts = parts(report);
    if parts.is_empty() {
        return Vec::new();
    }
    let names: String = COLUMNS
        .iter()
        .map(|(name, ..)| format!(" {name:>11}"))
        .collect();
    let mut lines = vec![format!(
        "{:>8} {:>11} {:>11}{names}   (µs)",
        "from (s)", "asked/s", "ended/s"
    )];
    for part in parts {
        let cells: String = COLUMNS
            .iter()
            .map(|(_, is_corrected, quantile)| {
                let histogram = match is_corrected {
                    true => &part.tally.latency_ns,
                    false => &part.tally.uncorrected_ns,
                };
                let us = quantile_us(histogram, *quantile);
                let cell = us.map_or_else(|| "–".into(), |us| format!("{us:.1}"));
                format!(" {cell:>11}")
            })
            .collect();
        lines.push(format!(
            "{:>8.2} {:>11.0} {:>11.0}{cells}",
            part.from_s, part.asked, part.reached
        ));
    }
    lines
}

/// How the rate changed, as it was asked for.
pub(super) fn profile(pace: &Pace) -> Value {
    match pace {
        Pace::Varying { profile, .. } => profile.to_string().into(),
        Pace::Closed | Pace::Open { .. } => Value::Null,
    }
}

/// The parts under their names.
pub(super) fn value(report: &Report) -> Value {
    let parts = parts(report);
    if parts.is_empty() {
        return Value::Null;
    }
    let fields = |part: &RatePart<'_>| {
        let mut fields: Map<String, Value> = object([
            ("from_s", rounded(part.from_s)),
            ("rate", rounded(part.asked)),
            ("calls_per_s", rounded(part.reached)),
        ]);
        add_latencies(&mut fields, "", &part.tally.latency_ns);
        add_latencies(&mut fields, "uncorrected_", &part.tally.uncorrected_ns);
        Value::Object(fields)
    };
    Value::Array(parts.iter().map(fields).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pacing::Arrivals;
    use crate::rate_profile::{RateProfile, RateSteps};
    use crate::report::tests::{outcome, plan};

    fn report(pace: Pace) -> Report {
        let mut outcome = outcome();
        for us in [100, 300] {
            let mut part = PartTally {
                ended: us,
                ..PartTally::default()
            };
            for _ in 0..us {
                part.latency_ns.record(us * 2_000).expect("in range");
                part.uncorrected_ns.record(us * 1_000).expect("in range");
            }
            outcome.tally.parts.push(part);
        }
        Report::new("x".into(), &plan(pace), outcome, 1)
    }

    #[test]
    fn each_part_has_a_line() {
        let steps = RateSteps::new(&[200.0, 700.0]).expect("there are two");
        let report = report(Pace::Varying {
            profile: RateProfile::Steps(steps),
            arrivals: Arrivals::Fixed,
        });
        let lines = lines(&report);
        assert_eq!(lines.len(), 3);
        let words = |line: &str| {
            line.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            words(&lines[1]),
            [
                "0.00", "200", "200", "200.1", "200.1", "200.1", "200.1", "100.0"
            ]
        );
        assert_eq!(words(&lines[2])[..3], ["0.50", "700", "600"]);
        let value = value(&report);
        assert_eq!(value[1]["rate"], 700.0);
        assert_eq!(value[1]["calls_per_s"], 600.0);
        assert_eq!(value[0]["uncorrected_p99_us"], 100.031);
        let text = report.text();
        assert!(
            text.contains("open loop, 200,700 calls/s at equal distances"),
            "{text}"
        );
        assert_eq!(report.fields()["rate"], 450.0);
        assert_eq!(report.fields()["rate_profile"], "200,700");
    }

    #[test]
    fn a_rate_that_does_not_change_has_no_parts() {
        let report = report(Pace::Closed);
        assert!(lines(&report).is_empty());
        assert_eq!(value(&report), Value::Null);
        assert_eq!(report.fields()["rate_profile"], Value::Null);
    }
}
