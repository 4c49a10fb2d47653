//! Little's law: calls in flight are the rate times the mean latency. Both sides are measured in
//! ways of their own, so that they check each other.

use serde_json::{Map, Value};

use super::{Report, object, rounded};
use crate::limits;
use crate::worker::ConnectionMode;

/// Both sides of Little's law.
struct LittlesLaw {
    /// Calls in flight on average, as the worker counted them.
    counted: f64,
    /// Calls that ended in each second, times the mean of their latencies.
    by_rate: f64,
}

impl LittlesLaw {
    /// `None`: no call was counted, or none has a latency.
    fn of(report: &Report) -> Option<LittlesLaw> {
        let (outcome, tally) = (report.outcome(), &report.outcome().tally);
        // A call that waits for its own connection is under way and not counted.
        let is_short = report.plan.worker.mode == ConnectionMode::Short;
        let is_measured = tally.in_flight_ns > 0.0 && outcome.elapsed_ns > 0 && !is_short;
        (is_measured && !tally.uncorrected_ns.is_empty()).then(|| LittlesLaw {
            counted: tally.in_flight_ns / outcome.elapsed_ns as f64,
            by_rate: report.calls_per_s() * tally.uncorrected_ns.mean() / 1e9,
        })
    }

    /// How far the sides are apart, in percent of the larger one.
    fn apart_percent(&self) -> f64 {
        let larger = self.counted.max(self.by_rate);
        match larger > 0.0 {
            true => (self.counted - self.by_rate).abs() * 100.0 / larger,
            false => 0.0,
        }
    }
}

/// Both sides in words, if they were measured.
pub(super) fn line(report: &Report) -> Option<String> {
    let law = LittlesLaw::of(report)?;
    let percent = law.apart_percent();
    let verdict = match percent > limits::LITTLES_LAW_PERCENT {
        false => String::new(),
        true => format!(
            "; they are {percent:.0} % apart: calls that failed, did not end, or began before the \
             measured time are in one of them only, and a short run has many of these"
        ),
    };
    Some(format!(
        "Little's law: {:.1} calls in flight were counted, rate × mean latency is {:.1}{verdict}",
        law.counted, law.by_rate
    ))
}

/// The same under their names.
pub(super) fn add(report: &Report, fields: &mut Map<String, Value>) {
    let law = LittlesLaw::of(report);
    let value = |of: fn(&LittlesLaw) -> f64| {
        let value = law.as_ref().map(of);
        value.map_or(Value::Null, rounded)
    };
    fields.extend(object([
        ("counted_in_flight", value(|law| law.counted)),
        ("rate_times_latency", value(|law| law.by_rate)),
        (
            "littles_law_apart_percent",
            value(LittlesLaw::apart_percent),
        ),
    ]));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pacing::Pace;
    use crate::report::tests::{outcome, plan};

    /// A thousand calls of 1 to 1000 µs in a second: half a call in flight.
    fn report(counted: f64) -> Report {
        let mut outcome = outcome();
        outcome.tally.in_flight_ns = counted * outcome.elapsed_ns as f64;
        Report::new("x".into(), &plan(Pace::Closed), outcome, 1)
    }

    #[test]
    fn sides_that_agree_are_shown_side_by_side() {
        let line = line(&report(0.51)).expect("both were measured");
        let expected = "Little's law: 0.5 calls in flight were counted, rate × mean latency is 0.5";
        assert_eq!(line, expected);
    }

    #[test]
    fn sides_further_apart_than_the_limit_are_told() {
        for (counted, part) in [
            (1.0, "50 % apart"),
            (0.25, "50 % apart"),
            (0.54, "7 % apart"),
        ] {
            let line = line(&report(counted)).expect("both were measured");
            assert!(line.contains(part), "{line}");
        }
    }

    #[test]
    fn without_a_count_nothing_is_said() {
        assert_eq!(line(&report(0.0)), None);
        let mut fields = Map::new();
        add(&report(0.0), &mut fields);
        assert_eq!(fields["counted_in_flight"], Value::Null);
        add(&report(1.0), &mut fields);
        assert_eq!(fields["counted_in_flight"], 1.0);
        assert_eq!(fields["rate_times_latency"], 0.501);
    }
}
