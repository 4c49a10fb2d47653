//! What can go wrong with snapshots.

use std::fmt;
use std::io;
use std::sync::Arc;

use wal::disk::{Disk, NoRoom};

use super::page::FORMAT_VERSION;

/// Why no snapshot was made. Nothing is lost by it but time: the log holds everything.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SnapshotError {
    /// There is no room on the disk.
    Full {
        /// The file.
        file: String,
        /// What has no room.
        why: NoRoom,
    },
    /// The device, or the operating system, refused.
    Device {
        /// The file.
        file: String,
        /// What it said.
        source: Arc<io::Error>,
    },
    /// The log has failed: a snapshot must not be newer than what is durable in the log.
    LogFailed,
    /// The server is stopping.
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

impl fmt::Display for SnapshotError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SnapshotError::Full { file, why } => {
                write!(formatter, "no room for the snapshot {file}: {why}")
            }
            SnapshotError::Device { file, source } => write!(
                formatter,
                "the snapshot {file} could not be written: {source}"
            ),
            SnapshotError::LogFailed => formatter.write_str(
                "no snapshot is made, since a write or sync of the log has failed; restart the \
                 server",
            ),
            SnapshotError::Stopping => {
                formatter.write_str("no snapshot is made any more: the server is stopping")
            }
        }
    }
}

impl std::error::Error for SnapshotError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            SnapshotError::Device { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// Why a snapshot cannot be used. Nothing was changed.
#[derive(Debug)]
pub enum ReadError {
    /// The files cannot be listed.
    Folder {
        /// The folder.
        folder: String,
        /// What the operating system said.
        source: io::Error,
    },
    /// It cannot be read.
    Device {
        /// The file.
        file: String,
        /// The place from which on it was read.
        offset: u64,
        /// What the operating system said.
        source: io::Error,
    },
    /// It was written by another version.
    TooNew {
        /// The file.
        file: String,
        /// The version of the format.
        version: u16,
    },
    /// It is not as it was written.
    Damaged {
        /// The file.
        file: String,
        /// The place of what is wrong: the beginning of a page, or of where one should be.
        offset: u64,
        /// What is wrong there.
        what: &'static str,
    },
}

impl ReadError {
    /// The snapshots in a folder could not be listed.
    pub(crate) fn folder(disk: &dyn Disk, source: io::Error) -> ReadError {
        let folder = disk.describe("");
        ReadError::Folder { folder, source }
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Folder { folder, source } => write!(
                formatter,
                "{folder}: the snapshots cannot be listed: {source}"
            ),
            ReadError::Device {
                file,
                offset,
                source,
            } => write!(
                formatter,
                "{file} cannot be read from byte {offset} on: {source}"
            ),
            ReadError::TooNew { file, version } => write!(
                formatter,
                "{file} was written by another version, or is damaged: format {version}; this \
                 version reads formats \
                 up to {FORMAT_VERSION}"
            ),
            ReadError::Damaged { file, offset, what } => write!(
                formatter,
                "the snapshot {file} is damaged at byte {offset}: {what}"
            ),
        }
    }
}

impl std::error::Error for ReadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ReadError::Folder { source, .. } | ReadError::Device { source, .. } => Some(source),
            ReadError::TooNew { .. } | ReadError::Damaged { .. } => None,
        }
    }
}
