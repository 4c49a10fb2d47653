//! When a write counts as done, as people write it.

use std::fmt;
use std::str::FromStr;

use crate::size::Span;

/// The longest interval, one minute.
const INTERVAL_MS_MAX: u64 = 60_000;

/// `synced`, `interval=100ms`, `written`, `volatile`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DurabilityArgument {
    Synced,
    Interval(Span),
    Written,
    Volatile,
}

impl FromStr for DurabilityArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<DurabilityArgument, String> {
        match text.split_once('=') {
            None if text == "synced" => Ok(DurabilityArgument::Synced),
            None if text == "written" => Ok(DurabilityArgument::Written),
            None if text == "volatile" => Ok(DurabilityArgument::Volatile),
            Some(("interval", span)) => {
                let span: Span = span
                    .parse()
                    .map_err(|error: crate::size::ParseError| error.to_string())?;
                if !(1..=INTERVAL_MS_MAX).contains(&span.ms) {
                    return Err(format!("the interval is {span}; it may be 1ms to 60s"));
                }
                Ok(DurabilityArgument::Interval(span))
            }
            _ => Err(format!(
                "`{text}` is no durability; write synced, interval=100ms, written or volatile"
            )),
        }
    }
}

impl fmt::Display for DurabilityArgument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DurabilityArgument::Synced => f.write_str("synced"),
            DurabilityArgument::Interval(span) => write!(f, "interval={span}"),
            DurabilityArgument::Written => f.write_str("written"),
            DurabilityArgument::Volatile => f.write_str("volatile"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durabilities_are_read_and_written() {
        for text in ["synced", "interval=100ms", "written", "volatile"] {
            let durability: DurabilityArgument = text.parse().expect(text);
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
            let error = text.parse::<DurabilityArgument>().expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
