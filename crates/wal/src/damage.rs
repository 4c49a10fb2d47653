//! What of a log is missing that was durable.

use std::fmt;

use super::group::Position;
use super::place::LogPlace;
use super::segment::segment_name;

/// Something that was durable is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Where the group that is missing should be.
    pub place: LogPlace,
    /// What is whole before it.
    pub last_good: Position,
    /// A later group that knows the missing one, or a later one, to have been durable, and where it
    /// is. `None`: a file is missing, or there is nothing at all in the files that is a group of a
    /// log.
    pub witness: Option<Witness>,
    /// The first file that is missing, although a later one is there; 0: none is.
    pub missing_segment: u64,
    /// The newest file that was there, which is missing, perhaps with others before it; 0: it is
    /// not missing.
    pub newest_gone: u64,
    /// The highest sequence in groups that are lost, as far as they can be read.
    pub lost_sequence: u64,
    /// The folder, a snapshot or a database on disk knows the log to have been durable up to this
    /// sequence, which is missing; 0: nothing of what they know is missing.
    pub known_sequence: u64,
    /// A file that is shorter than it was made.
    pub cut: Option<Cut>,
}

/// A file of the log that is shorter than it was made. Files get their name when they are whole,
/// and never shrink: no crash leaves such a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The segment.
    pub segment: u64,
    /// Bytes that it had at least.
    pub made_bytes: u64,
    /// Bytes that it has.
    pub bytes: u64,
}

/// A group that knows of something durable that is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Witness {
    /// Where it is.
    pub place: LogPlace,
    /// Its number.
    pub group: u64,
    /// The last group that it knows to be durable.
    pub durable_group: u64,
}

/// What stands behind the last group that counts, and is cut: the beginning of the next one, which
/// is not whole. A crash in the middle of a write leaves that. So does a device that changes what
/// it had confirmed, if it is in the last group: nothing tells the two apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TornGroup {
    /// Where it begins.
    pub place: LogPlace,
    /// Bytes that it should have.
    pub bytes: u64,
    /// Records that it should have.
    pub records: u32,
}

impl fmt::Display for Damage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "the log is damaged in {}: ", self.place)?;
        self.fmt_missing(formatter)?;
        self.fmt_files(formatter)?;
        if self.witness.is_some() && self.known_sequence > 0 {
            write!(
                formatter,
                "; everything up to sequence {} is known to have been durable, and changes that go \
                 with the log's missing part may be in a snapshot or in a database on disk",
                self.known_sequence
            )?;
        }
        Ok(())
    }
}

impl Damage {
    /// Writes what is missing, and what is whole.
    fn fmt_missing(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last_good = self.last_good;
        match &self.witness {
            Some(witness) => write!(
                formatter,
                "group {} is missing or has changed, though group {} in {} knows group {} to have \
                 been durable; whole is everything up to sequence {}",
                last_good.group + 1,
                witness.group,
                witness.place,
                witness.durable_group,
                last_good.sequence,
            ),
            None if self.known_sequence > 0 && last_good.group == 0 => write!(
                formatter,
                "no group of it is left, though everything up to sequence {} is known to have been \
                 durable: put the files *.log back",
                self.known_sequence
            ),
            None if self.known_sequence > 0 => write!(
                formatter,
                "it ends with sequence {}, though everything up to {} is known to have been \
                 durable",
                last_good.sequence, self.known_sequence
            ),
            None if self.missing_segment > 0 || self.newest_gone > 0 || self.cut.is_some() => {
                write!(
                    formatter,
                    "whole is everything up to sequence {}",
                    last_good.sequence
                )
            }
            None => write!(formatter, "nothing in it is a group of a log"),
        }
    }

    /// Writes which files are cut or missing.
    fn fmt_files(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(cut) = self.cut {
            write!(
                formatter,
                "; the file {} was cut: it has {} bytes of at least {}",
                segment_name(cut.segment),
                cut.bytes,
                cut.made_bytes
            )?;
        }
        if self.missing_segment > 0 {
            let name = segment_name(self.missing_segment);
            write!(
                formatter,
                "; the file {name} is missing, though a later one is there: put it back"
            )?;
        }
        if self.newest_gone > 0 {
            let name = segment_name(self.newest_gone);
            write!(
                formatter,
                "; the newest file of the log, {name}, is missing, and any others between: put \
                 them back"
            )?;
        }
        Ok(())
    }
}
