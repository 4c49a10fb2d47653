//! The messages of Backup and Snapshot.

use crate::keyvalue::messages::{Invalid, decode_fields};
use protobuf::writer;

/// Decodes a `BackupRequest` into the name of the folder.
pub fn decode_backup(message: &[u8]) -> Result<&str, Invalid> {
    let mut name = "";
    decode_fields(message, &["", "name"], |number, value| {
        if number == 1 {
            name = value.string()?;
        }
        Ok(())
    })?;
    Ok(name)
}

/// Appends a `BackupRequest`.
pub fn encode_backup(name: &str, out: &mut Vec<u8>) {
    writer::bytes(out, 1, name.as_bytes());
}

/// How far a backup has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackupProgress<'a> {
    /// Bytes in its files so far.
    pub written_bytes: u64,
    /// Bytes that there will be, as far as it can be told; 0 while it cannot.
    pub total_bytes: u64,
    /// The commit that it shows; 0 until it is known.
    pub sequence: u64,
    /// It is complete and on the device.
    pub complete: bool,
    /// Databases that are in it with their content.
    pub databases: u64,
    /// Databases of which only the description is in it.
    pub volatile_databases: u64,
    /// The folder, on the machine of the server.
    pub path: &'a str,
}

impl<'a> BackupProgress<'a> {
    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        writer::uint64(out, 1, self.written_bytes);
        writer::uint64(out, 2, self.total_bytes);
        writer::uint64(out, 3, self.sequence);
        writer::bool(out, 4, self.complete);
        writer::uint64(out, 5, self.databases);
        writer::uint64(out, 6, self.volatile_databases);
        writer::bytes(out, 7, self.path.as_bytes());
    }

    /// Decodes the message.
    pub fn decode(message: &'a [u8]) -> Result<BackupProgress<'a>, Invalid> {
        const NAMES: &[&str] = &[
            "",
            "written_bytes",
            "total_bytes",
            "sequence",
            "complete",
            "databases",
            "volatile_databases",
            "path",
        ];
        let mut progress = BackupProgress::default();
        decode_fields(message, NAMES, |number, value| {
            match number {
                1 => progress.written_bytes = value.varint()?,
                2 => progress.total_bytes = value.varint()?,
                3 => progress.sequence = value.varint()?,
                4 => progress.complete = value.bool()?,
                5 => progress.databases = value.varint()?,
                6 => progress.volatile_databases = value.varint()?,
                7 => progress.path = value.string()?,
                _ => {}
            }
            Ok(())
        })?;
        Ok(progress)
    }
}

/// What a snapshot holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotResponse {
    /// The log up to this commit is not needed any more.
    pub sequence: u64,
    /// Entries in it.
    pub entries: u64,
    /// Bytes of its file.
    pub bytes: u64,
}

impl SnapshotResponse {
    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        writer::uint64(out, 1, self.sequence);
        writer::uint64(out, 2, self.entries);
        writer::uint64(out, 3, self.bytes);
    }

    /// Decodes the message.
    pub fn decode(message: &[u8]) -> Result<SnapshotResponse, Invalid> {
        let mut response = SnapshotResponse::default();
        let names = &["", "sequence", "entries", "bytes"];
        decode_fields(message, names, |number, value| {
            match number {
                1 => response.sequence = value.varint()?,
                2 => response.entries = value.varint()?,
                3 => response.bytes = value.varint()?,
                _ => {}
            }
            Ok(())
        })?;
        Ok(response)
    }
}
