//! What a run must reach: `p99<2ms` and the like.

use std::fmt;
use std::str::FromStr;

use hdrhistogram::Histogram;

use crate::limits;

/// What is required of a run, such as `p99<2ms`, `rate>=1000` or `errors<1%`.
#[derive(Clone, Debug, PartialEq)]
pub struct Requirement {
    text: String,
    figure: RequiredFigure,
    comparison: RequirementOperator,
    /// In the figure's own unit: nanoseconds, calls a second, a share or a number of calls.
    bound: f64,
}

/// Which figure of a run is compared.
#[derive(Clone, Copy, Debug, PartialEq)]
enum RequiredFigure {
    Mean,
    Max,
    /// The quantile, from 0 to 1.
    Quantile(f64),
    Rate,
    ErrorShare,
    Errors,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequirementOperator {
    Below,
    AtMost,
    Above,
    AtLeast,
}

/// What a run has shown, as far as something can be required of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequiredFigures<'a> {
    pub(crate) latency_ns: &'a Histogram<u64>,
    pub(crate) calls_per_s: f64,
    /// Calls that failed, did not end, or were never sent.
    pub(crate) errors: u64,
    /// Their share of all; `None`: there was no call.
    pub(crate) error_share: Option<f64>,
}

/// A requirement, and what was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct RequirementResult {
    requirement: Requirement,
    /// `None`: there is no such figure, as no call succeeded.
    measured: Option<f64>,
}

/// Why a text is no requirement.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no requirement: {reason}")]
pub struct RequirementError {
    text: String,
    reason: &'static str,
}

const FORMS: &str = "write a figure, a comparison and a bound, such as p99<2ms, mean<=300us, \
                     max<1s, rate>1000 or errors<1%";
const NO_FIGURE: &str = "its figure is none of mean, p50, p99.9 (or another percentile), max, rate \
                         and errors";
const NO_TIME: &str = "its bound is no time; write 300us, 2ms or 1s";
const NO_RATE: &str = "its bound is no rate; write calls per second";
const NO_ERRORS: &str = "its bound is no number of calls and no share of them; write 0 or 1%";
const NO_COMPARISON: &str = "it is met by every run, or by none; latencies and errors take < and \
                             <=, the rate takes > and >=";

impl FromStr for Requirement {
    type Err = RequirementError;

    fn from_str(text: &str) -> Result<Requirement, RequirementError> {
        let error = |reason| RequirementError {
            text: text.into(),
            reason,
        };
        let (figure, comparison, bound) = split(text).ok_or_else(|| error(FORMS))?;
        let wants_less = matches!(
            comparison,
            RequirementOperator::Below | RequirementOperator::AtMost
        );
        let (figure, bound) = match figure {
            "rate" => (RequiredFigure::Rate, read_rate(bound).ok_or(NO_RATE)),
            "errors" => match bound.strip_suffix('%') {
                Some(percent) => {
                    let share = read_number(percent).filter(|percent| *percent <= 100.0);
                    let share = share.map(|percent| percent / 100.0);
                    (RequiredFigure::ErrorShare, share.ok_or(NO_ERRORS))
                }
                None => (RequiredFigure::Errors, read_number(bound).ok_or(NO_ERRORS)),
            },
            latency => {
                let figure = read_latency(latency).ok_or_else(|| error(NO_FIGURE))?;
                (figure, read_time_ns(bound).ok_or(NO_TIME))
            }
        };
        let bound = bound.map_err(error)?;
        if wants_less == (figure == RequiredFigure::Rate) {
            return Err(error(NO_COMPARISON));
        }
        Ok(Requirement {
            text: text.split_whitespace().collect(),
            figure,
            comparison,
            bound,
        })
    }
}

/// The three parts of a requirement.
fn split(text: &str) -> Option<(&str, RequirementOperator, &str)> {
    let at = text.find(['<', '>'])?;
    let (figure, rest) = text.split_at(at);
    let forms = [
        ("<=", RequirementOperator::AtMost),
        (">=", RequirementOperator::AtLeast),
        ("<", RequirementOperator::Below),
        (">", RequirementOperator::Above),
    ];
    let mut found = forms.iter().filter_map(|(sign, comparison)| {
        let bound = rest.strip_prefix(sign)?;
        Some((figure.trim(), *comparison, bound.trim()))
    });
    found.next()
}

fn read_number(text: &str) -> Option<f64> {
    let number = text.trim().replace('_', "").parse::<f64>().ok()?;
    (number.is_finite() && number >= 0.0).then_some(number)
}

fn read_rate(text: &str) -> Option<f64> {
    read_number(text.strip_suffix("/s").unwrap_or(text))
}

fn read_latency(text: &str) -> Option<RequiredFigure> {
    match text {
        "mean" => Some(RequiredFigure::Mean),
        "max" => Some(RequiredFigure::Max),
        _ => {
            let percent = read_number(text.strip_prefix('p')?)?;
            (percent > 0.0 && percent <= 100.0).then_some(RequiredFigure::Quantile(percent / 100.0))
        }
    }
}

fn read_time_ns(text: &str) -> Option<f64> {
    let units = [
        ("ns", 1.0),
        ("us", 1e3),
        ("µs", 1e3),
        ("ms", 1e6),
        ("s", 1e9),
    ];
    let mut found = units
        .iter()
        .filter_map(|(unit, ns)| Some((text.strip_suffix(unit)?, *ns)));
    let (number, unit_ns) = found.next()?;
    let ns = read_number(number)? * unit_ns;
    (ns <= limits::LATENCY_MAX.as_nanos() as f64).then_some(ns)
}

impl Requirement {
    /// Whether it is about calls that fail.
    pub fn is_about_errors(&self) -> bool {
        matches!(
            self.figure,
            RequiredFigure::ErrorShare | RequiredFigure::Errors
        )
    }

    /// Compares it with what a run has shown.
    pub(crate) fn check(&self, figures: &RequiredFigures<'_>) -> RequirementResult {
        let latency = Some(figures.latency_ns).filter(|latency| !latency.is_empty());
        let measured = match self.figure {
            RequiredFigure::Mean => latency.map(Histogram::mean),
            RequiredFigure::Max => latency.map(|latency| latency.max() as f64),
            RequiredFigure::Quantile(quantile) => {
                latency.map(|latency| latency.value_at_quantile(quantile) as f64)
            }
            RequiredFigure::Rate => Some(figures.calls_per_s),
            RequiredFigure::Errors => Some(figures.errors as f64),
            RequiredFigure::ErrorShare => figures.error_share,
        };
        RequirementResult {
            requirement: self.clone(),
            measured,
        }
    }
}

impl RequirementResult {
    /// Whether the run has reached what was required.
    pub fn is_met(&self) -> bool {
        let bound = self.requirement.bound;
        self.measured
            .is_some_and(|measured| match self.requirement.comparison {
                RequirementOperator::Below => measured < bound,
                RequirementOperator::AtMost => measured <= bound,
                RequirementOperator::Above => measured > bound,
                RequirementOperator::AtLeast => measured >= bound,
            })
    }
}

impl fmt::Display for RequirementResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.is_met() { "met" } else { "MISSED" };
        write!(f, "{}: {verdict}, ", self.requirement.text)?;
        let Some(measured) = self.measured else {
            return f.write_str("nothing was measured");
        };
        match self.requirement.figure {
            RequiredFigure::Rate => write!(f, "{measured:.1}/s"),
            RequiredFigure::Errors => write!(f, "{measured}"),
            RequiredFigure::ErrorShare => write!(f, "{:.3} %", measured * 100.0),
            _ => write!(f, "{:.1} µs", measured / 1e3),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure;

    /// A thousand calls of 1 to 1000 µs in a second, of which so many beside failed.
    fn checked(text: &str, errors: u64) -> (bool, String) {
        let mut latency = measure::histogram();
        for us in 1..=1_000 {
            latency.record(us * 1_000).expect("in range");
        }
        check(
            text,
            &RequiredFigures {
                latency_ns: &latency,
                calls_per_s: 1_000.0,
                errors,
                error_share: Some(errors as f64 / (errors + 1_000) as f64),
            },
        )
    }

    fn check(text: &str, figures: &RequiredFigures<'_>) -> (bool, String) {
        let requirement: Requirement = text.parse().expect(text);
        let result = requirement.check(figures);
        (result.is_met(), result.to_string())
    }

    #[test]
    fn latencies_are_compared_with_times() {
        for (text, is_met) in [
            ("mean<501us", true),
            ("mean<500us", false),
            ("p50<501us", true),
            ("p50 < 500us", false),
            ("p99<1ms", true),
            ("p99<0.9ms", false),
            ("p99.9<=1s", true),
            ("max<=1.1ms", true),
            ("max<999_000ns", false),
            ("p100<1000µs", false),
        ] {
            assert_eq!(checked(text, 0).0, is_met, "{text}");
        }
        let (_, text) = checked("p50 < 500us", 0);
        assert!(text.starts_with("p50<500us: MISSED, 500."), "{text}");
    }

    #[test]
    fn the_bound_itself_belongs_to_it_only_with_an_equal_sign() {
        for (text, is_met) in [
            ("rate>1000", false),
            ("rate>=1000", true),
            ("rate > 999/s", true),
            ("errors<0", false),
            ("errors<=0", true),
        ] {
            assert_eq!(checked(text, 0).0, is_met, "{text}");
        }
        assert_eq!(checked("rate>=1000", 0).1, "rate>=1000: met, 1000.0/s");
    }

    #[test]
    fn errors_are_a_share_or_a_number() {
        for (text, is_met) in [
            ("errors<26", true),
            ("errors<25", false),
            ("errors<2.44%", true),
            ("errors<2.43%", false),
            ("errors<=100%", true),
        ] {
            assert_eq!(checked(text, 25).0, is_met, "{text}");
        }
        assert_eq!(checked("errors<1%", 25).1, "errors<1%: MISSED, 2.439 %");
    }

    #[test]
    fn a_run_without_a_latency_meets_no_requirement_of_it() {
        let nothing = RequiredFigures {
            latency_ns: &measure::histogram(),
            calls_per_s: 0.0,
            errors: 0,
            error_share: None,
        };
        for text in ["p99<1s", "mean<1s", "max<1s", "errors<1%"] {
            let (is_met, said) = check(text, &nothing);
            assert!(!is_met && said.ends_with("nothing was measured"), "{said}");
        }
    }

    #[test]
    fn what_is_no_requirement_is_said() {
        for (text, reason) in [
            ("", FORMS),
            ("p99", FORMS),
            ("p99=2ms", FORMS),
            ("p99<2", NO_TIME),
            ("p99<ms", NO_TIME),
            ("p99<-2ms", NO_TIME),
            ("p99<2h", NO_TIME),
            ("p99<3601s", NO_TIME),
            ("p0<2ms", NO_FIGURE),
            ("p101<2ms", NO_FIGURE),
            ("median<2ms", NO_FIGURE),
            ("<2ms", NO_FIGURE),
            ("rate>fast", NO_RATE),
            ("rate>inf", NO_RATE),
            ("rate<1000", NO_COMPARISON),
            ("p99>2ms", NO_COMPARISON),
            ("errors>=1%", NO_COMPARISON),
            ("errors<101%", NO_ERRORS),
            ("errors<few", NO_ERRORS),
        ] {
            let error = text.parse::<Requirement>().expect_err(text);
            assert_eq!(error.reason, reason, "{text}");
        }
    }
}
