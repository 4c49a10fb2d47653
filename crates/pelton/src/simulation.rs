//! Simulated work, as people write it.

use std::fmt;
use std::str::FromStr;

use service::limits::SIMULATED_DELAY_MS_MAX;
use service::settings::simulate::Delays;

use crate::size::Span;

/// `read=10ms,write=50ms`, and `,serial` for one operation after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Simulation(pub Delays);

impl FromStr for Simulation {
    type Err = String;

    fn from_str(text: &str) -> Result<Simulation, String> {
        let wrong = || {
            format!(
                "`{text}` says no delays; write read=10ms,write=50ms or read=10ms,write=50ms,serial"
            )
        };
        let (mut read, mut write, mut serial) = (None, None, false);
        for part in text.split(',') {
            let delay = match part.trim().split_once('=') {
                Some(("read", delay)) if read.is_none() => read.insert(delay_ms(delay)?),
                Some(("write", delay)) if write.is_none() => write.insert(delay_ms(delay)?),
                None if part.trim() == "serial" && !serial => {
                    serial = true;
                    continue;
                }
                _ => return Err(wrong()),
            };
            debug_assert!(*delay <= SIMULATED_DELAY_MS_MAX, "checked when it was read");
        }
        let (read_ms, write_ms) = read.zip(write).ok_or_else(wrong)?;
        Ok(Simulation(Delays {
            read_ms,
            write_ms,
            serial,
        }))
    }
}

fn delay_ms(text: &str) -> Result<u64, String> {
    let span: Span = text.trim().parse().map_err(|error| format!("{error}"))?;
    if span.ms > SIMULATED_DELAY_MS_MAX {
        let most = Span {
            ms: SIMULATED_DELAY_MS_MAX,
        };
        return Err(format!("a delay of {span} is too long; at most {most}"));
    }
    Ok(span.ms)
}

impl fmt::Display for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Delays {
            read_ms,
            write_ms,
            serial,
        } = self.0;
        let (read, write) = (Span { ms: read_ms }, Span { ms: write_ms });
        let serial = if serial { ",serial" } else { "" };
        write!(f, "read={read},write={write}{serial}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_read_and_written_back() {
        for text in ["read=10ms,write=50ms", "read=0ms,write=1s,serial"] {
            let read: Simulation = text.parse().expect(text);
            assert_eq!(read.to_string().parse(), Ok(read), "{text}");
        }
        let other: Simulation = "serial, write=50ms ,read=10ms".parse().expect("valid");
        assert_eq!(other.to_string(), "read=10ms,write=50ms,serial");
    }

    #[test]
    fn what_is_no_delay_is_refused_with_an_example() {
        for text in [
            "",
            "10ms",
            "read=10ms",
            "read=1ms,read=2ms,write=3ms",
            "serial",
            "get=1ms",
        ] {
            let error = text.parse::<Simulation>().expect_err(text);
            assert!(error.contains("read=10ms,write=50ms"), "{error}");
        }
        let error = |text: &str| text.parse::<Simulation>().expect_err(text);
        assert!(error("read=10,write=50ms").contains("10"), "no unit");
        assert!(error("read=2min,write=50ms").contains("at most 1m"));
    }
}
