//! Whether a backup is whole.

use std::collections::BTreeSet;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

use wal::disk::Disk;

use super::blobs::{BackupContents, ContentError, Described, Needed, find_foreign};
use super::copy::ReadFile;
use super::error::RestoreError;
use super::file_entry::FileEntry;
use super::manifest::{self, MANIFEST_NAME, Manifest};
use crate::blob::{self, CheckError};
use crate::database_id::DatabaseId;
use crate::log::records;
use crate::snapshot::{self, SnapshotHeader, Visitor};
use crate::value::Entry;

/// Told of the bytes done so far, and how many there are; may end it.
pub(super) type CheckWatch<'a> = &'a mut dyn FnMut(u64, u64) -> ControlFlow<()>;

/// What a whole backup holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// What it consists of.
    pub manifest: Manifest,
    /// Entries in its snapshot. What the log behind it changes is not counted.
    pub snapshot_entries: u64,
    /// Records in its log.
    pub log_records: u64,
    /// Blobs, each with its content.
    pub blobs: u64,
    /// Bytes of these contents, which the manifest does not count.
    pub blob_bytes: u64,
}

/// Checks a backup: its manifest, the checksum of each file, the pages of its snapshot, the chain
/// and the records of its log, and that they belong together. Changes nothing. `watch` is told of
/// the bytes done so far, and may end it.
pub fn verify(source: &dyn Disk, watch: CheckWatch<'_>) -> Result<Verified, RestoreError> {
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
    let mut described = Described::default();
    let summary = one.read_snapshot(&mut described)?;
    let log_records = one.read_log(&summary, &mut described)?;
    let (blobs, blob_bytes) = check_blobs(source, &described, total_bytes, watch)?;
    Ok(Verified {
        snapshot_entries: summary.totals.entries,
        manifest,
        log_records,
        blobs,
        blob_bytes,
    })
}

/// Checks that each description has its content, and that there is nothing else. Returns how many
/// they are, and their bytes.
fn check_blobs(
    source: &dyn Disk,
    described: &Described,
    before_bytes: u64,
    watch: CheckWatch<'_>,
) -> Result<(u64, u64), RestoreError> {
    let needed = needed(source, described)?;
    if needed.is_empty() {
        return Ok((0, 0));
    }
    let folder = open_blobs(source, &needed)?;
    let found = (needed.len() as u64, bytes_of(&needed));
    let mut contents = BackupContents::of_backup(folder, None, needed);
    walk_blobs(&mut contents, before_bytes, before_bytes + found.1, watch)?;
    Ok(found)
}

/// Bytes of contents.
pub(super) fn bytes_of(needed: &[Needed]) -> u64 {
    needed.iter().map(|one| one.size_bytes).sum()
}

pub(super) fn needed(
    source: &dyn Disk,
    described: &Described,
) -> Result<Vec<Needed>, RestoreError> {
    described
        .needed()
        .ok_or_else(|| RestoreError::Inconsistent {
            folder: source.describe(""),
            what: "the description of a blob makes no sense",
        })
}

/// Opens the folder of contents, if there is nothing in it that is not needed.
pub(super) fn open_blobs(
    source: &dyn Disk,
    needed: &[Needed],
) -> Result<Arc<dyn Disk>, RestoreError> {
    let failed = |error| RestoreError::Device {
        file: source.describe(blob::FOLDER),
        source: error,
    };
    let folder = source.subfolder(blob::FOLDER).map_err(failed)?;
    match find_foreign(&*folder, needed).map_err(failed)? {
        Some(file) => Err(RestoreError::Foreign { file }),
        None => Ok(folder),
    }
}

/// Goes through all contents. `watch` is told of the bytes done, with those of the files before,
/// and of how many there are.
pub(super) fn walk_blobs(
    contents: &mut BackupContents,
    before_bytes: u64,
    total_bytes: u64,
    watch: CheckWatch<'_>,
) -> Result<(), RestoreError> {
    while !contents.step().map_err(blob_error)? {
        let done_bytes = before_bytes + contents.done_bytes();
        if watch(done_bytes, total_bytes).is_break() {
            return Err(RestoreError::Cancelled);
        }
    }
    Ok(())
}

fn blob_error(ContentError { file, what, .. }: ContentError) -> RestoreError {
    match what {
        CheckError::Damaged => RestoreError::Changed { file },
        CheckError::Device(source) if source.kind() == io::ErrorKind::NotFound => {
            RestoreError::Missing { file }
        }
        CheckError::Device(source) => RestoreError::Device { file, source },
    }
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

/// What is done with each piece of a file that is read: it gets the bytes up to its end, and the
/// piece.
pub(super) type VisitPiece<'a> = &'a mut dyn FnMut(u64, &[u8]) -> ControlFlow<()>;

/// Reads a file of a backup to its end and checks its checksum. Returns its length.
pub(super) fn read_file(
    source: &dyn Disk,
    expected: &FileEntry,
    piece: VisitPiece<'_>,
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
        RestoreError::Inconsistent { folder, what }
    }

    fn read_snapshot(&self, described: &mut Described) -> Result<snapshot::Summary, RestoreError> {
        let name = &self.manifest.files[0].name;
        let sequences = snapshot::list(self.source).unwrap_or_default();
        let [sequence] = sequences[..] else {
            return Err(self.error("there is not one snapshot"));
        };
        if snapshot::file_name(sequence) != *name {
            return Err(self.error("the snapshot is not the one that is named"));
        }
        let summary = snapshot::read(self.source, sequence, &mut OfBlobs(described));
        let summary = summary.map_err(RestoreError::Snapshot)?;
        if summary.header.history_id != self.manifest.history_id {
            return Err(self.error("the snapshot is of another history"));
        }
        if summary.totals.last_sequence != self.manifest.cut.sequence {
            return Err(self.error("the snapshot was not cut where the backup was"));
        }
        Ok(summary)
    }

    fn read_log(
        &self,
        snapshot: &snapshot::Summary,
        described: &mut Described,
    ) -> Result<u64, RestoreError> {
        let mut last = None;
        let report = wal::verify_copy(self.source, &mut |_, group| {
            last = Some(group.header);
            for record in records(group) {
                let record = record?;
                if record.sequence > snapshot.header.sequence {
                    described.note_record(&record);
                }
            }
            Ok(())
        });
        let report = report.map_err(RestoreError::Log)?;
        if matches!(
            report.ending,
            wal::LogEnding::Damaged(_) | wal::LogEnding::Empty
        ) {
            return Err(self.error("a part of the log is missing"));
        }
        if report.first_sequence > snapshot.header.replay_sequence + 1 {
            return Err(self.error("the log does not reach back to the snapshot"));
        }
        if last.map(|header| header.position()) != Some(self.manifest.cut) {
            return Err(self.error("the log does not end where the backup was cut"));
        }
        Ok(report.records)
    }
}

/// Looks at the descriptions of blobs only: the reader makes all checks.
struct OfBlobs<'a>(&'a mut Described);

impl Visitor for OfBlobs<'_> {
    fn header(&mut self, _header: &SnapshotHeader) -> Result<(), &'static str> {
        Ok(())
    }

    fn entry(&mut self, database: DatabaseId, entry: &Entry<'_>) -> Result<(), &'static str> {
        if database == DatabaseId::BLOBS {
            self.0.note_entry(entry);
        }
        Ok(())
    }
}
