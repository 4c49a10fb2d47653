//! Whether a backup is whole.

use std::collections::BTreeSet;
use std::io;
use std::ops::ControlFlow;

use super::copy::ReadFile;
use super::error::RestoreError;
use super::manifest::{self, FileEntry, MANIFEST_NAME, Manifest};
use crate::catalogue::DatabaseId;
use crate::disk::Disk;
use crate::log;
use crate::snapshot::{self, Header, Visitor};
use crate::value::Entry;

/// Told of the bytes done so far, and how many there are; may end it.
pub(super) type Watch<'a> = &'a mut dyn FnMut(u64, u64) -> ControlFlow<()>;

/// What a whole backup holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// What it consists of.
    pub manifest: Manifest,
    /// Entries in its snapshot. What the log behind it changes is not counted.
    pub snapshot_entries: u64,
    /// Records in its log.
    pub log_records: u64,
}

/// Checks a backup: its manifest, the checksum of each file, the pages of its snapshot, the chain and the records of its
/// log, and that they belong together. Changes nothing. `watch` is told of the bytes done so far, and may end it.
pub fn verify(source: &dyn Disk, watch: Watch<'_>) -> Result<Verified, RestoreError> {
    let manifest = read_manifest(source)?;
    let total_bytes = manifest.bytes();
    let mut done_bytes = 0;
    for file in &manifest.files {
        done_bytes += read_file(source, file, &mut |piece_end, _| {
            watch(done_bytes + piece_end, total_bytes)
        })?;
    }
    let one = Together {
        source,
        manifest: &manifest,
    };
    let summary = one.read_snapshot()?;
    let log_records = one.read_log(&summary)?;
    Ok(Verified {
        snapshot_entries: summary.totals.entries,
        manifest,
        log_records,
    })
}

/// Reads the manifest, and checks that its files are there, and no others, each as long as it was.
pub(super) fn read_manifest(source: &dyn Disk) -> Result<Manifest, RestoreError> {
    let manifest = manifest::read(source).map_err(|error| RestoreError::Manifest {
        folder: source.describe(""),
        source: error,
    })?;
    let failed = |name: &str, error| RestoreError::Device {
        file: source.describe(name),
        source: error,
    };
    let names = source.list().map_err(|error| failed("", error))?;
    let known: BTreeSet<&str> = manifest.files.iter().map(|file| &*file.name).collect();
    if let Some(foreign) = names
        .iter()
        .find(|name| *name != MANIFEST_NAME && !known.contains(&***name))
    {
        let file = source.describe(foreign);
        return Err(RestoreError::Foreign { file });
    }
    for file in &manifest.files {
        let bytes = match source.open(&file.name).and_then(|opened| opened.len()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let file = source.describe(&file.name);
                return Err(RestoreError::Missing { file });
            }
            other => other.map_err(|error| failed(&file.name, error))?,
        };
        if bytes != file.bytes {
            return Err(RestoreError::Length {
                file: source.describe(&file.name),
                bytes,
                expected_bytes: file.bytes,
            });
        }
    }
    Ok(manifest)
}

/// What is done with each piece of a file that is read: it gets the bytes up to its end, and the piece.
pub(super) type Piece<'a> = &'a mut dyn FnMut(u64, &[u8]) -> ControlFlow<()>;

/// Reads a file of a backup to its end and checks its checksum. Answers its length.
pub(super) fn read_file(
    source: &dyn Disk,
    expected: &FileEntry,
    piece: Piece<'_>,
) -> Result<u64, RestoreError> {
    let failed = |error| RestoreError::Device {
        file: source.describe(&expected.name),
        source: error,
    };
    let mut file = ReadFile::open(source, &expected.name).map_err(failed)?;
    let mut done_bytes = 0;
    loop {
        let bytes = file.next().map_err(failed)?;
        done_bytes += bytes.len() as u64;
        if bytes.is_empty() {
            break;
        }
        if piece(done_bytes, bytes).is_break() {
            return Err(RestoreError::Cancelled);
        }
    }
    if file.entry() != expected {
        let file = source.describe(&expected.name);
        return Err(RestoreError::Changed { file });
    }
    Ok(expected.bytes)
}

/// A backup whose files are what they were.
struct Together<'a> {
    source: &'a dyn Disk,
    manifest: &'a Manifest,
}

impl Together<'_> {
    fn error(&self, what: &'static str) -> RestoreError {
        let folder = self.source.describe("");
        RestoreError::NotOne { folder, what }
    }

    fn read_snapshot(&self) -> Result<snapshot::Summary, RestoreError> {
        let name = &self.manifest.files[0].name;
        let sequences = snapshot::list(self.source).unwrap_or_default();
        let [sequence] = sequences[..] else {
            return Err(self.error("there is not one snapshot"));
        };
        if snapshot::file_name(sequence) != *name {
            return Err(self.error("the snapshot is not the one that is named"));
        }
        let summary = snapshot::read(self.source, sequence, &mut Nobody);
        let summary = summary.map_err(RestoreError::Snapshot)?;
        if summary.header.history_id != self.manifest.history_id {
            return Err(self.error("the snapshot is of another history"));
        }
        if summary.totals.last_sequence != self.manifest.cut.sequence {
            return Err(self.error("the snapshot was not cut where the backup was"));
        }
        Ok(summary)
    }

    fn read_log(&self, snapshot: &snapshot::Summary) -> Result<u64, RestoreError> {
        let mut last = None;
        let report = log::verify(self.source, &mut |_, group| last = Some(group.header));
        let report = report.map_err(RestoreError::Log)?;
        if matches!(report.ending, log::Ending::Damaged(_) | log::Ending::Empty) {
            return Err(self.error("a part of the log is missing"));
        }
        if report.first_sequence > snapshot.header.sequence + 1 {
            return Err(self.error("the log does not reach back to the snapshot"));
        }
        if last.map(|header| header.position()) != Some(self.manifest.cut) {
            return Err(self.error("the log does not end where the backup was cut"));
        }
        Ok(report.records)
    }
}

/// Looks at nothing: the reader makes all checks.
struct Nobody;

impl Visitor for Nobody {
    fn header(&mut self, _header: &Header) -> Result<(), &'static str> {
        Ok(())
    }

    fn entry(&mut self, _database: DatabaseId, _entry: &Entry<'_>) -> Result<(), &'static str> {
        Ok(())
    }
}
