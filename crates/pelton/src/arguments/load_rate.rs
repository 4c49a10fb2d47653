//! The rate of an open loop on the command line: `1000`, `1000..5000` or `1000,2000,3000`.

use lab::{RateProfile, RateSteps, limits};

/// Calls a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LoadRate {
    /// Always so many.
    Constant(f64),
    /// More or fewer over the measured time.
    Varying(RateProfile),
}

pub(super) fn parse_rate(text: &str) -> Result<LoadRate, String> {
    if let Some((from, to)) = text.split_once("..") {
        let (from, to) = (number(from, true)?, number(to, true)?);
        return match from.max(to) > 0.0 {
            true => Ok(LoadRate::Varying(RateProfile::Ramp { from, to })),
            false => Err(form()),
        };
    }
    let rates = text.split(',').map(|rate| number(rate, false));
    let rates = rates.collect::<Result<Vec<f64>, String>>()?;
    match rates.as_slice() {
        [rate] => Ok(LoadRate::Constant(*rate)),
        rates => RateSteps::new(rates)
            .map(|steps| LoadRate::Varying(RateProfile::Steps(steps)))
            .ok_or_else(|| {
                format!(
                    "these are {} steps; write at most {}",
                    rates.len(),
                    limits::MAX_RATE_STEPS
                )
            }),
    }
}

fn number(text: &str, may_be_zero: bool) -> Result<f64, String> {
    let rate = text.trim().replace('_', "").parse::<f64>().ok();
    let is_right = |rate: &f64| {
        (*rate > 0.0 || may_be_zero && *rate == 0.0) && *rate <= limits::MAX_RATE as f64
    };
    rate.filter(is_right).ok_or_else(form)
}

fn form() -> String {
    format!(
        "write calls per second, above 0 and at most {}: 1000, or as a ramp 1000..5000, or as \
         steps 1000,2000,3000",
        limits::MAX_RATE
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_number_a_ramp_or_steps() {
        assert_eq!(parse_rate("1_000"), Ok(LoadRate::Constant(1_000.0)));
        assert_eq!(parse_rate("0.5"), Ok(LoadRate::Constant(0.5)));
        let ramp = |from, to| Ok(LoadRate::Varying(RateProfile::Ramp { from, to }));
        assert_eq!(parse_rate("1000..5000"), ramp(1_000.0, 5_000.0));
        assert_eq!(parse_rate("0..0.5"), ramp(0.0, 0.5));
        let steps = RateSteps::new(&[10.0, 20.0, 5.0]).expect("there are three");
        let steps = LoadRate::Varying(RateProfile::Steps(steps));
        assert_eq!(parse_rate("10, 20,5"), Ok(steps));
    }

    #[test]
    fn what_is_no_rate_is_said() {
        for wrong in [
            "", "fast", "-1", "0", "inf", "NaN", "1..", "0..0", "1,,2", "1,0", "1e9",
        ] {
            let error = parse_rate(wrong).expect_err(wrong);
            assert!(
                error.contains("above 0 and at most 100000000: 1000"),
                "{error}"
            );
        }
        let many = ["1"; limits::MAX_RATE_STEPS + 1].join(",");
        let error = parse_rate(&many).expect_err("too many");
        assert!(error.contains("17 steps; write at most 16"), "{error}");
    }
}
