//! What goes wrong with backups.

use std::io;

use wal::disk::{Advised, is_full};
use wal::{GroupError, WriteError};

use super::manifest::ManifestError;
use crate::durable;
use crate::snapshot::{self, SnapshotError};
use crate::tree::TreeError;

/// Why a backup was not made.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The snapshot in it could not be written.
    #[error("{0}")]
    Snapshot(#[source] SnapshotError),
    /// A file of it could not be written, or not be read again.
    #[error("{file}: {}", Advised(.source))]
    Device {
        /// The file.
        file: String,
        /// What the operating system said.
        source: io::Error,
    },
    /// A database on disk could not be read.
    #[error("{0}")]
    Tree(#[source] TreeError),
    /// A database is being converted.
    #[error("a database is being converted; try again when that is done")]
    Converting,
    /// The server's log could not be read.
    #[error("the server's own log: {0}")]
    Log(#[source] GroupError),
    /// The content of a blob is not what was written.
    #[error(
        "{file}: the content of the blob {name:?} is damaged; delete the blob, or upload it again \
         (from an older backup)"
    )]
    BlobDamaged {
        /// Its file.
        file: String,
        /// Its name.
        name: String,
    },
    /// The content of a blob is not there.
    #[error(
        "{file}: the content of the blob {name:?} is missing, and a backup without it would not be \
         whole; delete the blob, or upload it again (from an older backup)"
    )]
    BlobMissing {
        /// Its file.
        file: String,
        /// Its name.
        name: String,
    },
    /// The server's log has failed: what was written lately cannot be made durable.
    #[error(
        "a write or sync of the server's log has failed, so that a backup would miss something; \
         restart the server"
    )]
    LogFailed,
    /// The log that it needs was given up, because the server had no room for more.
    #[error(
        "the log grew more while the backup was made than there is room for, so that the part that \
         the backup needs was given up; make room on the disk of the data folder, or write less \
         meanwhile"
    )]
    LogGone,
    /// There are as many backups under way as there may be.
    #[error("other backups are under way; try again when one is done")]
    TooMany,
    /// The server stops.
    #[error("the server is about to stop")]
    Stopping,
    /// Whoever wanted it does not want it any more.
    #[error("the backup was cancelled")]
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

/// Why a backup is not restored, or not taken for a whole one. Nothing of the new folder is left,
/// but for [`RestoreError::Left`].
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// There is no manifest, or not a sound one.
    #[error("{folder}: {source}")]
    Manifest {
        /// The folder of the backup.
        folder: String,
        /// What is wrong with it.
        source: ManifestError,
    },
    /// A file of the backup is not there.
    #[error("{file} is missing from the backup; use another copy of it")]
    Missing {
        /// The file.
        file: String,
    },
    /// There is a file in the folder that does not belong to the backup.
    #[error(
        "{file} does not belong to the backup; a backup is restored as it was made, with nothing \
         added"
    )]
    Foreign {
        /// The file.
        file: String,
    },
    /// A file is longer or shorter than it was.
    #[error("{file} has {bytes} bytes and had {expected_bytes}; use another copy of the backup")]
    Length {
        /// The file.
        file: String,
        /// What it has.
        bytes: u64,
        /// What it had.
        expected_bytes: u64,
    },
    /// A file has changed.
    #[error("{file} has changed since the backup was made; use another copy of it")]
    Changed {
        /// The file.
        file: String,
    },
    /// The snapshot in the backup makes no sense.
    #[error("{0}")]
    Snapshot(#[source] snapshot::SnapshotReadError),
    /// The log in the backup makes no sense.
    #[error("{0}")]
    Log(#[source] wal::LogReadFailure),
    /// The files are whole, and do not fit together.
    #[error("{folder}: the files of the backup do not fit together: {what}")]
    Inconsistent {
        /// The folder of the backup.
        folder: String,
        /// What does not fit.
        what: &'static str,
    },
    /// A file cannot be read or written.
    #[error("{file}: {}", Advised(.source))]
    Device {
        /// The file.
        file: String,
        /// What the operating system said.
        source: io::Error,
    },
    /// The new folder is there and not empty. Nothing was changed in it.
    #[error("{folder} is not empty; a backup is restored into a new or an empty folder")]
    NotEmpty {
        /// The folder.
        folder: String,
    },
    /// What was copied cannot be opened.
    #[error("what was restored cannot be opened: {0}")]
    Open(#[source] durable::OpenError),
    /// What was opened cannot be closed.
    #[error("what was restored cannot be completed: {0}")]
    Close(#[source] WriteError),
    /// Whoever wanted it does not want it any more.
    #[error("cancelled")]
    Cancelled,
    /// It was not restored, and what was made of it could not be removed.
    #[error(
        "{error}; what is left of the restore in {folder} is no data folder, and is to be removed \
         ({source})"
    )]
    Left {
        /// Why it was not restored.
        error: Box<RestoreError>,
        /// The new folder.
        folder: String,
        /// Why it could not be removed.
        source: io::Error,
    },
}

impl RestoreError {
    /// Whether whoever wanted it does not want it any more.
    pub fn is_cancelled(&self) -> bool {
        match self {
            RestoreError::Cancelled => true,
            RestoreError::Left { error, .. } => error.is_cancelled(),
            _ => false,
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
