//! What can go wrong with snapshots.

use std::io;
use std::sync::Arc;

use wal::disk::{Disk, NoRoom};

use super::page::FORMAT_VERSION;

/// Why no snapshot was made. Nothing is lost by it but time: the log holds everything.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// There is no room on the disk.
    #[error("no room for the snapshot {file}: {why}")]
    Full {
        /// The file.
        file: String,
        /// What has no room.
        why: NoRoom,
    },
    /// The device, or the operating system, refused.
    #[error("the snapshot {file} could not be written: {source}")]
    Device {
        /// The file.
        file: String,
        /// What it said.
        source: Arc<io::Error>,
    },
    /// The log has failed: a snapshot must not be newer than what is durable in the log.
    #[error("no snapshot is made, since a write or sync of the log has failed; restart the server")]
    LogFailed,
    /// The server is stopping.
    #[error("no snapshot is made any more: the server is stopping")]
    Stopping,
}

impl SnapshotError {
    pub(crate) fn new(file: String, source: io::Error) -> SnapshotError {
        match NoRoom::of(&source) {
            Some(why) => SnapshotError::Full { file, why },
            None => SnapshotError::Device {
                file,
                source: Arc::new(source),
            },
        }
    }
}

impl SnapshotError {
    /// Whether the reason is that the disk has no room.
    pub fn is_full(&self) -> bool {
        matches!(self, SnapshotError::Full { .. })
    }
}

/// Why a snapshot cannot be used. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotReadError {
    /// The files cannot be listed.
    #[error("{folder}: the snapshots cannot be listed: {source}")]
    Folder {
        /// The folder.
        folder: String,
        /// What the operating system said.
        source: io::Error,
    },
    /// It cannot be read.
    #[error("{file} cannot be read from byte {offset} on: {source}")]
    Device {
        /// The file.
        file: String,
        /// The place from which on it was read.
        offset: u64,
        /// What the operating system said.
        source: io::Error,
    },
    /// It was written by another version.
    #[error(
        "{file} was written by another version, or is damaged: format {version}; this version \
         reads formats up to {FORMAT_VERSION}"
    )]
    TooNew {
        /// The file.
        file: String,
        /// The version of the format.
        version: u16,
    },
    /// It is not as it was written.
    #[error("the snapshot {file} is damaged at byte {offset}: {what}")]
    Damaged {
        /// The file.
        file: String,
        /// The place of what is wrong: the beginning of a page, or of where one should be.
        offset: u64,
        /// What is wrong there.
        what: &'static str,
    },
}

impl SnapshotReadError {
    /// The snapshots in a folder could not be listed.
    pub(crate) fn folder(disk: &dyn Disk, source: io::Error) -> SnapshotReadError {
        let folder = disk.describe("");
        SnapshotReadError::Folder { folder, source }
    }
}
