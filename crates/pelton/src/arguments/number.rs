//! Whole numbers and spans of the command line, with messages that say what can be written.

use std::str::FromStr;

use crate::size::{ParseError, Span};

/// From here on a bound is that of the type, and tells nobody anything.
const ENDLESS: i128 = 1 << 48;

/// Returns a parser of whole numbers from `least` to `most`.
pub(super) fn whole<T>(
    least: i128,
    most: i128,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: TryFrom<i128>,
{
    move |text| {
        let number = parse(text).filter(|number| (least..=most).contains(number));
        let number = number.and_then(|number| T::try_from(number).ok());
        number.ok_or_else(|| range(least, most))
    }
}

/// Returns a parser of numbers that [`crate::settings::Settings`] checks, wherever they come from:
/// of what is no number at all it says what the setting allows.
pub(super) fn setting<T>(
    least: i128,
    most: i128,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: FromStr,
{
    move |text| text.parse().map_err(|_| range(least, most))
}

/// A limit of how many are shown or removed.
pub(super) fn limit(text: &str) -> Result<u64, String> {
    let parse = whole(1, i128::from(u64::MAX));
    parse(text).map_err(|_| "write a whole number, at least 1; without it there is no limit".into())
}

/// How long an answer is waited for.
pub(super) fn timeout(text: &str) -> Result<Span, String> {
    let span: Span = text
        .parse()
        .map_err(|error: ParseError| error.to_string())?;
    match span.ms {
        0 => Err("no answer comes in no time; write at least 1ms".into()),
        _ => Ok(span),
    }
}

/// Seconds, of which a part may be given.
pub(super) fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().ok().filter(|number| number.is_finite());
    seconds.ok_or_else(|| "write a number of seconds, such as 60 or 0.5".into())
}

fn parse(text: &str) -> Option<i128> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok())?
}

fn range(least: i128, most: i128) -> String {
    match (least, most) {
        (0.., ENDLESS..) => format!("write a whole number, at least {least}"),
        _ => format!("write a whole number from {least} to {most}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_out_of_range_is_refused_with_the_range() {
        let small = whole::<u8>(1, 64);
        assert_eq!((small("1"), small("64")), (Ok(1), Ok(64)));
        for text in [
            "0",
            "65",
            "-1",
            "",
            "x",
            "1.5",
            "99999999999999999999999999",
            "- 1",
            "--1",
        ] {
            let message = small(text).expect_err(text);
            assert_eq!(message, "write a whole number from 1 to 64");
        }
        let signed = whole::<i64>(i64::MIN.into(), i64::MAX.into());
        assert_eq!(signed("-9223372036854775808"), Ok(i64::MIN));
        assert!(signed("9223372036854775808").is_err());
        let endless = whole::<u64>(1, u64::MAX.into());
        assert_eq!(endless("18446744073709551615"), Ok(u64::MAX));
        let message = endless("0").expect_err("too small");
        assert_eq!(message, "write a whole number, at least 1");
    }

    #[test]
    fn seconds_have_parts_and_are_never_endless() {
        assert_eq!((seconds("60"), seconds("-0.5")), (Ok(60.0), Ok(-0.5)));
        for text in ["", "abc", "5s", "nan", "inf", "1e999"] {
            assert!(seconds(text).expect_err(text).contains("such as 60"));
        }
    }

    #[test]
    fn no_time_is_no_timeout() {
        assert_eq!(timeout("1ms"), Ok(Span { ms: 1 }));
        for text in ["0s", "0ms", "0h0m"] {
            assert!(timeout(text).expect_err(text).contains("at least 1ms"));
        }
        assert!(timeout("5").expect_err("no unit").contains("5s"));
    }
}
