//! Of which share of calls a trace begins.

use std::fmt;
use std::str::FromStr;

use server::SampledShare;

/// A share from 0 to 1, in millionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OtlpSample(u32);

/// Digits behind the point.
const DIGITS: usize = 6;

/// All of it.
const WHOLE: u32 = 1_000_000;

impl OtlpSample {
    /// Returns it of a ratio from 0 to 1, to the nearest millionth that is not 0; `None`: it is
    /// none.
    pub fn of_ratio(ratio: f64) -> Option<OtlpSample> {
        if !(0.0..=1.0).contains(&ratio) {
            return None;
        }
        let least = u32::from(ratio > 0.0);
        let millionths = (ratio * f64::from(WHOLE)).round() as u32;
        Some(OtlpSample(millionths.clamp(least, WHOLE)))
    }

    /// Returns whether it is 0.
    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Returns it as the server wants it.
    pub fn share(self) -> SampledShare {
        let share = u64::from(self.0) * u64::from(u32::MAX) / u64::from(WHOLE);
        SampledShare(u32::try_from(share).unwrap_or(u32::MAX))
    }
}

impl FromStr for OtlpSample {
    type Err = String;

    fn from_str(text: &str) -> Result<OtlpSample, String> {
        let wrong = || {
            format!(
                "`{text}` is no share; write a number from 0 to 1 such as 0.01, which is one call \
                 of a hundred, with at most {DIGITS} digits behind the point"
            )
        };
        let (whole, rest) = text.split_once('.').unwrap_or((text, "0"));
        let are_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if !(1..=DIGITS).contains(&rest.len()) || !are_digits(rest) || !are_digits(whole) {
            return Err(wrong());
        }
        let whole: u32 = whole.parse().map_err(|_| wrong())?;
        let millionths: u32 = format!("{rest:0<DIGITS$}").parse().map_err(|_| wrong())?;
        match whole.checked_mul(WHOLE).map(|whole| whole + millionths) {
            Some(millionths @ 0..=WHOLE) => Ok(OtlpSample(millionths)),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for OtlpSample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, millionths) = (self.0 / WHOLE, self.0 % WHOLE);
        let digits = format!("{millionths:0DIGITS$}");
        match digits.trim_end_matches('0') {
            "" => write!(f, "{whole}"),
            digits => write!(f, "{whole}.{digits}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_number_from_0_to_1() {
        for (text, shown, share) in [
            ("0", "0", 0),
            ("1", "1", u32::MAX),
            ("1.0", "1", u32::MAX),
            ("0.5", "0.5", u32::MAX / 2),
            ("0.01", "0.01", 42_949_672),
            ("0.000001", "0.000001", 4_294),
        ] {
            let sample: OtlpSample = text.parse().expect(text);
            assert_eq!(
                (sample.to_string(), sample.share()),
                (shown.into(), SampledShare(share))
            );
        }
        for text in [
            "",
            "1.1",
            "2",
            "-1",
            "1%",
            "0.",
            "0.0000001",
            "a",
            "1e-3",
            "99999999999",
        ] {
            let message = text.parse::<OtlpSample>().expect_err(text);
            assert!(message.contains("0 to 1"), "{message}");
        }
    }
}
