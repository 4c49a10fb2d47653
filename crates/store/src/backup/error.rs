//! What goes wrong with backups.

use std::fmt;
use std::io;

use wal::disk::{Advised, is_full};
use wal::{GroupError, WriteError};

use super::manifest::ManifestError;
use crate::durable;
use crate::snapshot::{self, SnapshotError};
use crate::tree::TreeError;

/// Why a backup was not made.
#[derive(Debug)]
pub enum BackupError {
    /// The snapshot in it could not be written.
    Snapshot(SnapshotError),
    /// A file of it could not be written, or not be read again.
    Device {
        /// The file.
        file: String,
        /// What the operating system said.
        source: io::Error,
    },
    /// A database on disk could not be read.
    Tree(TreeError),
    /// A database is being converted.
    Converting,
    /// The server's log could not be read.
    Log(GroupError),
    /// The content of a blob is not what was written.
    BlobDamaged {
        /// Its file.
        file: String,
        /// Its name.
        name: String,
    },
    /// The content of a blob is not there.
    BlobMissing {
        /// Its file.
        file: String,
        /// Its name.
        name: String,
    },
    /// The server's log has failed: what was written lately cannot be made durable.
    LogFailed,
    /// The log that it needs was given up, because the server had no room for more.
    LogGone,
    /// There are as many backups under way as there may be.
    TooMany,
    /// The server stops.
    Stopping,
    /// Whoever wanted it does not want it any more.
    Cancelled,
}

impl BackupError {
    /// Whether the reason is that a disk has no room.
    pub fn is_full(&self) -> bool {
        match self {
            BackupError::Device { source, .. } => is_full(source),
            BackupError::Snapshot(error) => error.is_full(),
            BackupError::LogGone => true,
            _ => false,
        }
    }

    /// Whether the reason is that something of the server's is not what was written, and not only
    /// out of reach for now.
    pub fn is_of_damage(&self) -> bool {
        match self {
            BackupError::Tree(error) => error.is_of_damage(),
            BackupError::Log(error) => error.is_of_damage(),
            BackupError::BlobDamaged { .. } | BackupError::BlobMissing { .. } => true,
            _ => false,
        }
    }
}

impl fmt::Display for BackupError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BackupError::Snapshot(error) => error.fmt(formatter),
            BackupError::Device { file, source } => {
                write!(formatter, "{file}: {}", Advised(source))
            }
            BackupError::Tree(error) => error.fmt(formatter),
            BackupError::Converting => {
                formatter.write_str("a database is being converted; try again when that is done")
            }
            BackupError::Log(error) => write!(formatter, "the server's own log: {error}"),
            BackupError::BlobDamaged { file, name } => write!(
                formatter,
                "{file}: the content of the blob {name:?} is damaged; delete the blob, or upload \
                 it again (from an \
                 older backup)"
            ),
            BackupError::BlobMissing { file, name } => write!(
                formatter,
                "{file}: the content of the blob {name:?} is missing, and a backup without it \
                 would not be whole; \
                 delete the blob, or upload it again (from an older backup)"
            ),
            BackupError::LogFailed => formatter.write_str(
                "a write or sync of the server's log has failed, so that a backup would miss \
                 something; \
                 restart the server",
            ),
            BackupError::LogGone => formatter.write_str(
                "the log grew more while the backup was made than there is room for, so that the \
                 part that the backup \
                 needs was given up; make room on the disk of the data folder, or write less \
                 meanwhile",
            ),
            BackupError::TooMany => {
                formatter.write_str("other backups are under way; try again when one is done")
            }
            BackupError::Stopping => formatter.write_str("the server is about to stop"),
            BackupError::Cancelled => formatter.write_str("the backup was cancelled"),
        }
    }
}

impl std::error::Error for BackupError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            BackupError::Device { source, .. } => Some(source),
            BackupError::Snapshot(error) => Some(error),
            BackupError::Log(error) => Some(error),
            BackupError::Tree(error) => Some(error),
            _ => None,
        }
    }
}

/// Why a backup is not restored, or not taken for a whole one. Nothing of the new folder is left.
#[derive(Debug)]
pub enum RestoreError {
    /// There is no manifest, or not a sound one.
    Manifest {
        /// The folder of the backup.
        folder: String,
        /// What is wrong with it.
        source: ManifestError,
    },
    /// A file of the backup is not there.
    Missing {
        /// The file.
        file: String,
    },
    /// There is a file in the folder that does not belong to the backup.
    Foreign {
        /// The file.
        file: String,
    },
    /// A file is longer or shorter than it was.
    Length {
        /// The file.
        file: String,
        /// What it has.
        bytes: u64,
        /// What it had.
        expected_bytes: u64,
    },
    /// A file has changed.
    Changed {
        /// The file.
        file: String,
    },
    /// The snapshot in the backup makes no sense.
    Snapshot(snapshot::ReadError),
    /// The log in the backup makes no sense.
    Log(wal::ReadError),
    /// The files are whole, and do not fit together.
    NotOne {
        /// The folder of the backup.
        folder: String,
        /// What does not fit.
        what: &'static str,
    },
    /// A file cannot be read or written.
    Device {
        /// The file.
        file: String,
        /// What the operating system said.
        source: io::Error,
    },
    /// The new folder is there and not empty. Nothing was changed in it.
    NotEmpty {
        /// The folder.
        folder: String,
    },
    /// What was copied cannot be opened.
    Open(durable::OpenError),
    /// What was opened cannot be closed.
    Close(WriteError),
    /// Whoever wanted it does not want it any more.
    Cancelled,
}

impl fmt::Display for RestoreError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RestoreError::Manifest { folder, source } => write!(formatter, "{folder}: {source}"),
            RestoreError::Missing { file } => write!(
                formatter,
                "{file} is missing from the backup; use another copy of it"
            ),
            RestoreError::Foreign { file } => write!(
                formatter,
                "{file} does not belong to the backup; a backup is restored as it was made, with \
                 nothing added"
            ),
            RestoreError::Length {
                file,
                bytes,
                expected_bytes,
            } => write!(
                formatter,
                "{file} has {bytes} bytes and had {expected_bytes}; use another copy of the backup"
            ),
            RestoreError::Changed { file } => write!(
                formatter,
                "{file} has changed since the backup was made; use another copy of it"
            ),
            RestoreError::Snapshot(error) => error.fmt(formatter),
            RestoreError::Log(error) => error.fmt(formatter),
            RestoreError::NotOne { folder, what } => write!(
                formatter,
                "{folder}: the files of the backup do not fit together: {what}"
            ),
            RestoreError::Device { file, source } => {
                write!(formatter, "{file}: {}", Advised(source))
            }
            RestoreError::NotEmpty { folder } => write!(
                formatter,
                "{folder} is not empty; a backup is restored into a new or an empty folder"
            ),
            RestoreError::Open(error) => {
                write!(formatter, "what was restored cannot be opened: {error}")
            }
            RestoreError::Close(error) => {
                write!(formatter, "what was restored cannot be completed: {error}")
            }
            RestoreError::Cancelled => formatter.write_str("cancelled"),
        }
    }
}

impl std::error::Error for RestoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            RestoreError::Device { source, .. } => Some(source),
            RestoreError::Snapshot(error) => Some(error),
            RestoreError::Log(error) => Some(error),
            RestoreError::Open(error) => Some(error),
            RestoreError::Close(error) => Some(error),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_on_the_size_of_files_is_not_told_as_a_full_disk() {
        let file = || "file".to_owned();
        let of = |kind: io::ErrorKind| {
            let device = BackupError::Device {
                file: file(),
                source: kind.into(),
            };
            let restore = RestoreError::Device {
                file: file(),
                source: kind.into(),
            };
            let snapshot = SnapshotError::new(file(), kind.into());
            assert!(device.is_full() && snapshot.is_full());
            [
                device.to_string(),
                restore.to_string(),
                snapshot.to_string(),
            ]
        };
        for said in of(io::ErrorKind::FileTooLarge) {
            assert!(
                said.contains("ulimit -f") && !said.contains("inodes"),
                "{said}"
            );
        }
        for said in of(io::ErrorKind::StorageFull) {
            assert!(
                said.contains("no space or no inodes") && !said.contains("ulimit"),
                "{said}"
            );
        }
    }
}
