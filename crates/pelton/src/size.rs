//! Sizes, shares of memory and spans of time as people write them.

use std::fmt;
use std::str::FromStr;

/// A number of bytes: `65536`, `64KiB`, `1.5GiB`, `4MB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// A limit on memory: a [`Size`], or a share of what this process may use: `70%`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryLimit {
    Bytes(Size),
    Percent(u8),
}

/// A span of time in milliseconds: `500ms`, `10s`, `2min` or `2m`, `1h`, `30d`, or several, the
/// largest first: `1h30m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    pub ms: u64,
}

/// How much of something is kept: a [`Size`], or what is not older than a [`Span`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptAmount {
    Size(Size),
    Age(Span),
}

/// Why a text is no size, limit or span. Each says what the right form is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Neither digits nor a unit that exists.
    #[error("`{0}` is no size; write bytes (65536) or a unit: 64KiB, 4MiB, 2GiB, 4MB")]
    NotASize(String),
    /// `4G`: could be 10⁹ or 2³⁰.
    #[error("the unit of `{0}` is ambiguous; write {0}iB (1024) or {0}B (1000)")]
    AmbiguousUnit(String),
    /// More than 64 bits.
    #[error("`{0}` is more than can be counted")]
    TooLarge(String),
    /// A share below 1 % or above 100 %.
    #[error("`{0}` is no share of memory; write 1% to 100%, or a size such as 4GiB")]
    NotAShare(String),
    /// Neither digits nor a unit that exists.
    #[error("`{0}` is no span of time; write 500ms, 10s, 2min, 1h, 30d or 1h30m")]
    NotASpan(String),
    /// `10`: could be seconds or milliseconds.
    #[error("`{0}` has no unit; write {0}s for seconds or {0}ms for milliseconds")]
    NoUnit(String),
    /// Neither a size nor a span.
    #[error("`{0}` is neither a size nor a span of time; write 64MiB or 1h, and 0 for nothing")]
    NotAnAmount(String),
    /// `1m30`: the same.
    #[error("the last number of `{0}` has no unit; write {0}s or {0}ms")]
    NoLastUnit(String),
}

/// Splits `1.5GiB` into its number and its unit.
fn split_unit(text: &str) -> (&str, &str) {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number, unit.trim_start())
}

/// `number` (digits, perhaps with a decimal point and underscores) times `unit`, exactly and
/// rounded down; `None` if it is no number, `Some(None)` if it has more than 64 bits.
fn scaled(number: &str, unit: u64) -> Option<Option<u64>> {
    let number = number.replace('_', "");
    let (whole, fraction) = number.split_once('.').unwrap_or((&number, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) || number.ends_with('.') {
        return None;
    }
    // More than nine places are less than a byte of a gibibyte.
    let fraction = &fraction[..fraction.len().min(9)];
    let places = 10_u128.pow(fraction.len() as u32);
    let part = fraction.parse::<u128>().unwrap_or(0) * u128::from(unit) / places;
    let whole = whole
        .parse::<u64>()
        .ok()
        .map(|whole| u128::from(whole) * u128::from(unit));
    Some(whole.and_then(|whole| u64::try_from(whole + part).ok()))
}

const SIZE_UNITS: [(&str, u64); 9] = [
    ("B", 1),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

impl Size {
    /// Shows bytes for people: in the largest unit of which there is one, with one decimal where
    /// that says more.
    pub fn rounded(bytes: u64) -> String {
        let units = [
            ("TiB", 1_u64 << 40),
            ("GiB", 1 << 30),
            ("MiB", 1 << 20),
            ("KiB", 1 << 10),
        ];
        let Some((unit, factor)) = units.into_iter().find(|(_, factor)| bytes >= *factor) else {
            return format!("{bytes} B");
        };
        let number = format!("{:.1}", bytes as f64 / factor as f64);
        format!("{} {unit}", number.strip_suffix(".0").unwrap_or(&number))
    }
}

impl FromStr for Size {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Size, ParseError> {
        let (number, unit) = split_unit(text.trim());
        let factor = match SIZE_UNITS
            .iter()
            .find(|(name, _)| unit.eq_ignore_ascii_case(name))
        {
            Some((_, factor)) => *factor,
            // There are no parts of a byte: a share was meant, or a unit is missing.
            None if unit.is_empty() && number.contains('.') => {
                return Err(ParseError::NotASize(text.into()));
            }
            None if unit.is_empty() => 1,
            None if ["k", "m", "g", "t"].contains(&unit.to_ascii_lowercase().as_str()) => {
                return Err(ParseError::AmbiguousUnit(text.into()));
            }
            None => return Err(ParseError::NotASize(text.into())),
        };
        let bytes = scaled(number, factor).ok_or(ParseError::NotASize(text.into()))?;
        bytes.map(Size).ok_or(ParseError::TooLarge(text.into()))
    }
}

impl fmt::Display for Size {
    /// The largest binary unit that divides the size, so that reading it back gives the same.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// From so many of a unit on, a decimal one may say the same in fewer digits: 1TB.
        const MANY: u64 = 100_000;
        let whole = |units: &'static [(&'static str, u64)]| {
            let mut units = units.iter().rev();
            let unit =
                units.find(|(_, factor)| self.0 >= *factor && self.0.is_multiple_of(*factor));
            unit.map(|(name, factor)| (self.0 / factor, *name))
        };
        let decimal = || whole(&SIZE_UNITS[1..5]);
        let shown = match whole(&SIZE_UNITS[5..]) {
            Some((count, name)) if count >= MANY => decimal()
                .filter(|(fewer, _)| *fewer < count)
                .or(Some((count, name))),
            binary => binary,
        };
        match shown {
            Some((count, name)) => write!(f, "{count}{name}"),
            None => write!(f, "{}", self.0),
        }
    }
}

/// A number of bytes for people: three digits or so, and the unit; not to be read back.
pub fn people(bytes: u64) -> String {
    let units = SIZE_UNITS[5..].iter().rev();
    for (name, factor) in units {
        if bytes >= *factor {
            let amount = bytes as f64 / *factor as f64;
            let places = usize::from(amount < 99.95);
            return format!("{amount:.places$} {name}");
        }
    }
    format!("{bytes} B")
}

impl FromStr for MemoryLimit {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<MemoryLimit, ParseError> {
        let Some(share) = text.trim().strip_suffix('%') else {
            let limit = text.parse().map(MemoryLimit::Bytes);
            return limit.map_err(|error| match error {
                ParseError::NotASize(text) if text.starts_with("0.") || text.starts_with('.') => {
                    ParseError::NotAShare(text)
                }
                other => other,
            });
        };
        match share.trim_end().parse() {
            Ok(percent @ 1..=100) => Ok(MemoryLimit::Percent(percent)),
            _ => Err(ParseError::NotAShare(text.into())),
        }
    }
}

impl fmt::Display for MemoryLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MemoryLimit::Bytes(size) => size.fmt(f),
            MemoryLimit::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

/// In the order of their size; of two for the same, the last one is written.
const SPAN_UNITS_MS: [(&str, u64); 6] = [
    ("ms", 1),
    ("s", 1_000),
    ("m", 60_000),
    ("min", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
];

impl FromStr for Span {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Span, ParseError> {
        let mut rest = text.trim();
        let (mut sum_ms, mut above_ms) = (0_u64, u64::MAX);
        loop {
            let (number, behind) = split_unit(rest);
            let unit_end = behind
                .find(|c: char| c.is_ascii_digit())
                .unwrap_or(behind.len());
            let (unit, behind) = behind.split_at(unit_end);
            let Some((_, factor)) = SPAN_UNITS_MS.iter().find(|(name, _)| unit == *name) else {
                return Err(match scaled(number, 1) {
                    Some(_) if unit.is_empty() && above_ms == u64::MAX => {
                        ParseError::NoUnit(text.into())
                    }
                    Some(_) if unit.is_empty() => ParseError::NoLastUnit(text.into()),
                    _ => ParseError::NotASpan(text.into()),
                });
            };
            // `30m1h` and `1h1h` are more likely slips than meant.
            if *factor >= above_ms {
                return Err(ParseError::NotASpan(text.into()));
            }
            above_ms = *factor;
            let ms = scaled(number, *factor).ok_or(ParseError::NotASpan(text.into()))?;
            sum_ms = ms
                .and_then(|ms| sum_ms.checked_add(ms))
                .ok_or(ParseError::TooLarge(text.into()))?;
            if behind.is_empty() {
                return Ok(Span { ms: sum_ms });
            }
            rest = behind;
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, factor) in SPAN_UNITS_MS.iter().rev() {
            if self.ms >= *factor && self.ms.is_multiple_of(*factor) {
                return write!(f, "{}{name}", self.ms / factor);
            }
        }
        write!(f, "{}ms", self.ms)
    }
}

impl FromStr for KeptAmount {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<KeptAmount, ParseError> {
        let size = match text.parse() {
            // A number alone could be seconds as well.
            Ok(Size(1..)) if text.trim().bytes().all(|byte| byte.is_ascii_digit()) => {
                return Err(ParseError::NotAnAmount(text.into()));
            }
            Ok(size) => return Ok(KeptAmount::Size(size)),
            Err(error) => error,
        };
        match (text.parse(), size) {
            (Ok(age), _) => Ok(KeptAmount::Age(age)),
            (Err(too_large @ ParseError::TooLarge(_)), _)
            | (_, too_large @ ParseError::TooLarge(_)) => Err(too_large),
            (_, ambiguous @ ParseError::AmbiguousUnit(_)) => Err(ambiguous),
            _ => Err(ParseError::NotAnAmount(text.into())),
        }
    }
}

impl fmt::Display for KeptAmount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeptAmount::Size(size) => {
                let text = size.to_string();
                let is_bare = size.0 > 0 && text.bytes().all(|byte| byte.is_ascii_digit());
                write!(f, "{text}{}", if is_bare { "B" } else { "" })
            }
            KeptAmount::Age(age) => age.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(text: &str) -> Result<u64, ParseError> {
        text.parse::<Size>().map(|size| size.0)
    }

    #[test]
    fn sizes_are_read() {
        for (text, bytes) in [
            ("0", 0),
            ("65536", 65_536),
            ("4_000_000", 4_000_000),
            ("64KiB", 65_536),
            ("64kib", 65_536),
            ("64 KiB", 65_536),
            ("4MB", 4_000_000),
            ("1.5GiB", 3 << 29),
            ("0.5kB", 500),
            ("1.0001kB", 1_000),
            ("3TiB", 3 << 40),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn wrong_sizes_are_refused_with_a_reason() {
        for text in [
            "", "-1", "4 apples", "KiB", "1..5MB", "1.MB", ".5MB", "0x10", "1e6", "_", "0.5", "1.0",
        ] {
            assert_eq!(size(text), Err(ParseError::NotASize(text.into())), "{text}");
        }
        for text in ["4G", "4k", "1.5M"] {
            assert_eq!(
                size(text),
                Err(ParseError::AmbiguousUnit(text.into())),
                "{text}"
            );
        }
        for text in ["18446744073709551616", "99999999TiB"] {
            assert_eq!(size(text), Err(ParseError::TooLarge(text.into())), "{text}");
        }
    }

    #[test]
    fn sizes_are_printed_as_they_can_be_read() {
        for bytes in [
            0,
            1,
            1_000,
            1 << 10,
            1 << 20,
            4_000_000,
            3 << 29,
            (1 << 40) + 1,
            u64::MAX,
        ] {
            assert_eq!(size(&Size(bytes).to_string()), Ok(bytes));
        }
        assert_eq!(Size(1 << 20).to_string(), "1MiB");
        assert_eq!(Size(4_000_000).to_string(), "4000000");
    }

    #[test]
    fn kept_amounts_are_sizes_or_spans() {
        let size = |bytes| Ok(KeptAmount::Size(Size(bytes)));
        let age = |ms| Ok(KeptAmount::Age(Span { ms }));
        for (text, amount) in [
            ("0", size(0)),
            ("64MiB", size(64 << 20)),
            ("1000B", size(1_000)),
            ("3600", Err(ParseError::NotAnAmount("3600".into()))),
            ("1h", age(3_600_000)),
            ("1m", age(60_000)),
            ("1h30m", age(5_400_000)),
            ("much", Err(ParseError::NotAnAmount("much".into()))),
            ("4G", Err(ParseError::AmbiguousUnit("4G".into()))),
            (
                "99999999TiB",
                Err(ParseError::TooLarge("99999999TiB".into())),
            ),
            (
                "99999999999999d",
                Err(ParseError::TooLarge("99999999999999d".into())),
            ),
        ] {
            assert_eq!(text.parse(), amount, "{text}");
            if let Ok(amount) = amount {
                assert_eq!(amount.to_string().parse(), Ok(amount), "{text}");
            }
        }
    }

    #[test]
    fn memory_limits_are_sizes_or_shares() {
        assert_eq!("70%".parse(), Ok(MemoryLimit::Percent(70)));
        assert_eq!("2GiB".parse(), Ok(MemoryLimit::Bytes(Size(2 << 30))));
        for text in ["0%", "101%", "-5%", "x%", "%", "0.5", ".7"] {
            assert_eq!(
                text.parse::<MemoryLimit>(),
                Err(ParseError::NotAShare(text.into()))
            );
        }
    }

    #[test]
    fn sizes_for_people_are_short() {
        for (bytes, text) in [
            (0, "0 B"),
            (1_023, "1023 B"),
            (1_024, "1.0 KiB"),
            (1_536, "1.5 KiB"),
            (100 << 10, "100 KiB"),
            (5 << 30, "5.0 GiB"),
            (3 << 50, "3072 TiB"),
        ] {
            assert_eq!(people(bytes), text);
        }
    }

    #[test]
    fn a_size_in_decimal_units_is_shown_in_these() {
        for (bytes, text) in [
            (1_000_000_000_000, "1TB"),
            (64 << 20, "64MiB"),
            (4_000_000, "4000000"),
            (3 << 50, "3072TiB"),
        ] {
            assert_eq!(Size(bytes).to_string(), text);
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
    }

    #[test]
    fn spans_need_a_unit() {
        let ms = |text: &str| text.parse::<Span>().map(|span| span.ms);
        for (text, expected) in [
            ("500ms", 500),
            ("10s", 10_000),
            ("2min", 120_000),
            ("5m", 300_000),
            ("30d", 2_592_000_000),
            ("1h", 3_600_000),
            ("0.25s", 250),
            ("1h30m", 5_400_000),
            ("1d12h", 129_600_000),
            ("2min30s", 150_000),
            ("1m5s250ms", 65_250),
            ("1h0.5m", 3_630_000),
        ] {
            assert_eq!(ms(text), Ok(expected), "{text}");
            assert_eq!(
                ms(&Span { ms: expected }.to_string()),
                Ok(expected),
                "{text} there and back"
            );
        }
        assert_eq!(ms("10"), Err(ParseError::NoUnit("10".into())));
        assert_eq!(ms("1h30"), Err(ParseError::NoLastUnit("1h30".into())));
        for text in [
            "", "s", "-1s", "5 days", "1M", "30m1h", "1h1h", "1m1min", "1h 30m", "1h,30m", "1h-1m",
        ] {
            assert_eq!(ms(text), Err(ParseError::NotASpan(text.into())), "{text}");
        }
        assert_eq!(
            ms("9999999999999999999h"),
            Err(ParseError::TooLarge("9999999999999999999h".into()))
        );
    }
}
