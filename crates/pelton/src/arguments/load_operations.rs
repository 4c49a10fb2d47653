//! Which operations `pelton load` makes, and of which keys.

use clap::ValueEnum;
use lab::{Distribution, Mix, Ycsb};

/// A core workload of YCSB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LoadYcsb {
    /// half reads, half updates
    #[value(name = "A")]
    A,
    /// 95 % reads
    #[value(name = "B")]
    B,
    /// only reads
    #[value(name = "C")]
    C,
    /// 95 % reads, mostly of what was inserted last
    #[value(name = "D")]
    D,
    /// 95 % short scans
    #[value(name = "E")]
    E,
    /// half reads, half reads with a write
    #[value(name = "F")]
    F,
}

/// That of YCSB, which most others have taken over.
const USUAL_EXPONENT: f64 = 0.99;

impl LoadYcsb {
    /// Returns which operations, and how their keys are chosen.
    pub fn operations(self) -> (Mix, Distribution) {
        let ycsb = match self {
            LoadYcsb::A => Ycsb::A,
            LoadYcsb::B => Ycsb::B,
            LoadYcsb::C => Ycsb::C,
            LoadYcsb::D => Ycsb::D,
            LoadYcsb::E => Ycsb::E,
            LoadYcsb::F => Ycsb::F,
        };
        ycsb.load(USUAL_EXPONENT)
    }
}

pub fn parse_distribution(text: &str) -> Result<Distribution, String> {
    let (way, exponent) = match text.split_once(':') {
        None => (text, Ok(USUAL_EXPONENT)),
        Some((way, exponent)) => (way, parse_exponent(exponent)),
    };
    match (way, text == way) {
        ("uniform", true) => Ok(Distribution::Uniform),
        ("sequential", true) => Ok(Distribution::Sequential),
        ("zipf", _) => exponent.map(Distribution::Zipf),
        ("latest", _) => exponent.map(Distribution::Latest),
        _ => Err(format!(
            "`{text}` is no way to choose keys; write uniform, zipf, zipf:1.2, latest or sequential"
        )),
    }
}

fn parse_exponent(text: &str) -> Result<f64, String> {
    let exponent = text.parse::<f64>().ok();
    exponent
        .filter(|exponent| *exponent > 0.0 && *exponent <= 10.0)
        .ok_or_else(|| format!("`{text}` is no exponent; write a number above 0, at most 10"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_to_choose_keys_are_read() {
        for (text, distribution) in [
            ("uniform", Distribution::Uniform),
            ("sequential", Distribution::Sequential),
            ("zipf", Distribution::Zipf(0.99)),
            ("zipf:1.2", Distribution::Zipf(1.2)),
            ("latest", Distribution::Latest(0.99)),
            ("latest:0.5", Distribution::Latest(0.5)),
        ] {
            assert_eq!(parse_distribution(text), Ok(distribution));
        }
        for text in ["uniform:1", "zipf:0", "latest:x", "latest:11", "newest", ""] {
            assert!(parse_distribution(text).is_err(), "{text}");
        }
    }
}
