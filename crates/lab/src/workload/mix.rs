//! Which operations of a Pelton server come how often.

use std::fmt;
use std::str::FromStr;

use api::keyvalue::OperationKind;

use crate::keys::Distribution;

/// What a mix consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MixOperation {
    /// One operation of `pelton.v1`, on a key that is chosen.
    Plain(OperationKind),
    /// A Put of a key that was never there.
    Insert,
    /// A Scan that begins at a key, of 1 to [`SCAN_ENTRIES`](crate::limits::SCAN_ENTRIES) entries.
    Scan,
    /// A Get, and once it is answered a Put of the same key.
    ReadModifyWrite,
}

const NAMES: [(&str, MixOperation); 8] = [
    ("get", MixOperation::Plain(OperationKind::Get)),
    ("put", MixOperation::Plain(OperationKind::Put)),
    ("delete", MixOperation::Plain(OperationKind::Delete)),
    ("append", MixOperation::Plain(OperationKind::Append)),
    ("incr", MixOperation::Plain(OperationKind::Increment)),
    ("insert", MixOperation::Insert),
    ("scan", MixOperation::Scan),
    ("rmw", MixOperation::ReadModifyWrite),
];

/// Which operations in which proportion: `get=90,put=10`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mix {
    /// Operations with their shares in percent, which add up to 100.
    pub(super) shares: Vec<(MixOperation, u64)>,
}

impl Mix {
    /// Only Puts.
    pub(super) fn puts() -> Mix {
        Mix {
            shares: vec![(MixOperation::Plain(OperationKind::Put), 100)],
        }
    }

    /// Whether keys are read, so that it matters whether they are there.
    pub fn has_reads(&self) -> bool {
        self.has(MixOperation::Plain(OperationKind::Get))
            || self.has(MixOperation::Scan)
            || self.has(MixOperation::ReadModifyWrite)
    }

    /// Whether it has an operation, be it with a share of 0.
    pub(super) fn has(&self, operation: MixOperation) -> bool {
        self.shares.iter().any(|(other, _)| *other == operation)
    }

    /// The first operation, if any, that goes in a call of its own and in no batch.
    pub(super) fn first_alone(&self) -> Option<&'static str> {
        let is_plain = |operation: &MixOperation| matches!(operation, MixOperation::Plain(_));
        let alone = self
            .shares
            .iter()
            .map(|(it, _)| it)
            .find(|it| !is_plain(it));
        alone.map(|operation| name_of(*operation))
    }
}

/// A workload of the Yahoo! Cloud Serving Benchmark (Cooper and others, "Benchmarking Cloud Serving
/// Systems with YCSB", 2010, table 2; F is of its later core workloads).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ycsb {
    /// Half reads, half updates.
    A,
    /// Mostly reads.
    B,
    /// Only reads.
    C,
    /// Reads of what was inserted last.
    D,
    /// Short scans.
    E,
    /// Half reads, half reads that are followed by a write of what was read.
    F,
}

impl Ycsb {
    /// Which operations, and how their keys are chosen. `exponent` is that of Zipf's distribution.
    pub fn load(self, exponent: f64) -> (Mix, Distribution) {
        let (get, put) = (OperationKind::Get, OperationKind::Put);
        let (get, put) = (MixOperation::Plain(get), MixOperation::Plain(put));
        let shares = match self {
            Ycsb::A => vec![(get, 50), (put, 50)],
            Ycsb::B => vec![(get, 95), (put, 5)],
            Ycsb::C => vec![(get, 100)],
            Ycsb::D => vec![(get, 95), (MixOperation::Insert, 5)],
            Ycsb::E => vec![(MixOperation::Scan, 95), (MixOperation::Insert, 5)],
            Ycsb::F => vec![(get, 50), (MixOperation::ReadModifyWrite, 50)],
        };
        let distribution = match self {
            Ycsb::D => Distribution::Latest(exponent),
            _ => Distribution::Zipf(exponent),
        };
        (Mix { shares }, distribution)
    }
}

/// Why a text is no mix. Each says what the right form is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MixError {
    /// A part is not `operation=percent`.
    #[error("`{0}` is no part of a mix; write get=90,put=10")]
    BadPart(String),
    /// There is no such operation.
    #[error(
        "there is no operation `{0}`; write get, put, delete, append, incr, insert, scan or rmw"
    )]
    UnknownOperation(String),
    /// An operation stands there twice.
    #[error("`{0}` stands there twice")]
    Twice(String),
    /// The shares do not add up to 100.
    #[error("the shares are percent and add up to {0}, not to 100")]
    BadSum(u64),
}

impl FromStr for Mix {
    type Err = MixError;

    fn from_str(text: &str) -> Result<Mix, MixError> {
        let mut shares: Vec<(MixOperation, u64)> = Vec::new();
        for part in text.split(',') {
            let bad = || MixError::BadPart(part.trim().into());
            let (name, percent) = part.split_once('=').ok_or_else(bad)?;
            let percent: u64 = percent.trim().parse().map_err(|_| bad())?;
            let name = name.trim();
            let known = NAMES.iter().find(|(known, _)| *known == name);
            let (_, operation) = known.ok_or_else(|| MixError::UnknownOperation(name.into()))?;
            if shares.iter().any(|(other, _)| other == operation) {
                return Err(MixError::Twice(name.into()));
            }
            shares.push((*operation, percent));
        }
        let sum = shares
            .iter()
            .fold(0_u64, |sum, (_, percent)| sum.saturating_add(*percent));
        if sum != 100 {
            return Err(MixError::BadSum(sum));
        }
        Ok(Mix { shares })
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (operation, percent)) in self.shares.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(f, "{comma}{}={percent}", name_of(*operation))?;
        }
        Ok(())
    }
}

fn name_of(operation: MixOperation) -> &'static str {
    let named = NAMES.iter().find(|(_, other)| *other == operation);
    named.map_or("", |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixes_are_read_and_written_back() {
        for text in [
            "get=100",
            "get=90,put=10",
            "get=0,put=50,delete=20,append=20,incr=10",
            "scan=80,insert=10,rmw=10",
        ] {
            assert_eq!(text.parse::<Mix>().expect(text).to_string(), text);
        }
        for (text, part) in [
            ("get", "write get=90"),
            ("get=x", "write get=90"),
            ("read=100", "no operation `read`"),
            ("get=50,get=50", "twice"),
            ("get=90,put=11", "101"),
        ] {
            let error = text.parse::<Mix>().expect_err(text).to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn workloads_of_ycsb_have_their_operations() {
        let all = [
            (Ycsb::A, "get=50,put=50"),
            (Ycsb::B, "get=95,put=5"),
            (Ycsb::C, "get=100"),
            (Ycsb::D, "get=95,insert=5"),
            (Ycsb::E, "scan=95,insert=5"),
            (Ycsb::F, "get=50,rmw=50"),
        ];
        for (ycsb, text) in all {
            let (mix, distribution) = ycsb.load(0.99);
            assert_eq!(mix.to_string(), text);
            assert!(mix.has_reads());
            let latest = distribution == Distribution::Latest(0.99);
            assert_eq!(latest, ycsb == Ycsb::D);
        }
        let only_writes: Mix = "put=50,insert=50".parse().expect("it is one");
        assert!(!only_writes.has_reads());
        assert_eq!(only_writes.first_alone(), Some("insert"));
        let plain: Mix = "put=50,incr=50".parse().expect("it is one");
        assert_eq!(plain.first_alone(), None);
    }
}
