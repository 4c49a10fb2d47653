//! When a write counts as done, as people write it.

use std::fmt;
use std::str::FromStr;

use crate::size::Span;

/// The longest interval, one minute.
const INTERVAL_MS_MAX: u64 = 60_000;

/// `synced`, `interval=100ms`, `written`, `volatile`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    Synced,
    Interval(Span),
    Written,
    Volatile,
}

impl FromStr for Durability {
    type Err = String;

    fn from_str(text: &str) -> Result<Durability, String> {
        match text.split_once('=') {
            None if text == "synced" => Ok(Durability::Synced),
            None if text == "written" => Ok(Durability::Written),
            None if text == "volatile" => Ok(Durability::Volatile),
            Some(("interval", span)) => {
                let span: Span = span
                    .parse()
                    .map_err(|error: crate::size::ParseError| error.to_string())?;
                if !(1..=INTERVAL_MS_MAX).contains(&span.ms) {
                    return Err(format!("the interval is {span}; it may be 1ms to 60s"));
                }
                Ok(Durability::Interval(span))
            }
            _ => Err(format!(
                "`{text}` is no durability; write synced, interval=100ms, written or volatile"
            )),
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Durability::Synced => f.write_str("synced"),
            Durability::Interval(span) => write!(f, "interval={span}"),
            Durability::Written => f.write_str("written"),
            Durability::Volatile => f.write_str("volatile"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durabilities_are_read_and_written() {
        for text in ["synced", "interval=100ms", "written", "volatile"] {
            let durability: Durability = text.parse().expect(text);
            assert_eq!(durability.to_string(), text);
        }
        for (text, expected) in [
            ("", "interval=100ms"),
            ("Synced", "interval=100ms"),
            ("interval", "interval=100ms"),
            ("interval=5", "5ms"),
            ("interval=0ms", "1ms to 60s"),
            ("interval=61s", "1ms to 60s"),
        ] {
            let error = text.parse::<Durability>().expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
