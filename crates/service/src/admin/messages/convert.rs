//! The messages of ConvertDatabase.

use super::DatabaseKind;
use crate::keyvalue::messages::{Invalid, decode_fields};
use protobuf::writer;

/// A request to make a database one of another kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvertDatabaseRequest<'a> {
    /// Its name; empty for the default one.
    pub name: &'a str,
    /// What it becomes.
    pub kind: DatabaseKind,
}

impl<'a> ConvertDatabaseRequest<'a> {
    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        writer::bytes(out, 1, self.name.as_bytes());
        writer::uint64(out, 2, self.kind as u64);
    }

    /// Decodes the message. Unlike elsewhere the kind must be given: nobody converts to a default by chance.
    pub fn decode(message: &'a [u8]) -> Result<ConvertDatabaseRequest<'a>, Invalid> {
        let (mut name, mut kind) = ("", 0);
        decode_fields(message, &["", "name", "kind"], |number, value| {
            match number {
                1 => name = value.string()?,
                2 => kind = value.int32()?,
                _ => {}
            }
            Ok(())
        })?;
        let kind = match kind {
            1 => DatabaseKind::Memory,
            2 => DatabaseKind::Disk,
            _ => return Err(Invalid::rule("kind", "must be MEMORY or DISK")),
        };
        Ok(ConvertDatabaseRequest { name, kind })
    }
}

/// How far a conversion has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConvertProgress {
    /// Entries that are copied.
    pub copied_entries: u64,
    /// Entries that there are, as far as it can be told; 0 while it cannot.
    pub total_entries: u64,
    /// The database is of the kind that was asked for, durably.
    pub complete: bool,
    /// With `complete`: false if it was before.
    pub converted: bool,
    /// With `converted`: the commit that did it.
    pub sequence: u64,
}

impl ConvertProgress {
    /// The answer where the database is of that kind already.
    pub const NOTHING_DONE: ConvertProgress = ConvertProgress {
        copied_entries: 0,
        total_entries: 0,
        complete: true,
        converted: false,
        sequence: 0,
    };

    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        writer::uint64(out, 1, self.copied_entries);
        writer::uint64(out, 2, self.total_entries);
        writer::bool(out, 3, self.complete);
        writer::bool(out, 4, self.converted);
        writer::uint64(out, 5, self.sequence);
    }

    /// Decodes the message.
    pub fn decode(message: &[u8]) -> Result<ConvertProgress, Invalid> {
        const NAMES: &[&str] = &[
            "",
            "copied_entries",
            "total_entries",
            "complete",
            "converted",
            "sequence",
        ];
        let mut progress = ConvertProgress::default();
        decode_fields(message, NAMES, |number, value| {
            match number {
                1 => progress.copied_entries = value.varint()?,
                2 => progress.total_entries = value.varint()?,
                3 => progress.complete = value.bool()?,
                4 => progress.converted = value.bool()?,
                5 => progress.sequence = value.varint()?,
                _ => {}
            }
            Ok(())
        })?;
        Ok(progress)
    }
}
