//! What can go wrong with a tree.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why a tree could not be read or changed.
#[derive(Debug)]
#[non_exhaustive]
pub enum TreeError {
    /// The operating system refused.
    Io {
        /// The tree's folder.
        folder: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// The folder is not there.
    Missing {
        /// The tree's folder.
        folder: PathBuf,
    },
    /// What is in the folder is not what was written there.
    Damaged {
        /// The tree's folder.
        folder: PathBuf,
        /// What is wrong.
        what: String,
    },
}

impl TreeError {
    pub(super) fn io(folder: &Path, source: io::Error) -> TreeError {
        if source.kind() == io::ErrorKind::UnexpectedEof {
            return TreeError::damaged(folder, source.to_string());
        }
        TreeError::Io {
            folder: folder.into(),
            source,
        }
    }

    /// Whether the device, or what the user may have of it, is full.
    pub(super) fn is_of_no_room(&self) -> bool {
        let is_full = |kind| {
            matches!(
                kind,
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
            )
        };
        matches!(self, TreeError::Io { source, .. } if is_full(source.kind()))
    }

    pub(super) fn damaged(folder: &Path, what: impl Into<String>) -> TreeError {
        TreeError::Damaged {
            folder: folder.into(),
            what: what.into(),
        }
    }

    pub(super) fn engine(folder: &Path, error: lsm_tree::Error) -> TreeError {
        match error {
            lsm_tree::Error::Io(source) => TreeError::io(folder, source),
            other => TreeError::damaged(folder, other.to_string()),
        }
    }
}

impl fmt::Display for TreeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TreeError::Io { folder, source } => {
                write!(formatter, "the tree in {}: {source}", folder.display())
            }
            TreeError::Missing { folder } => write!(
                formatter,
                "the tree in {} is missing; put the folder back, or restore a backup",
                folder.display()
            ),
            TreeError::Damaged { folder, what } => write!(
                formatter,
                "the tree in {} is damaged: {what}; restore a backup",
                folder.display()
            ),
        }
    }
}

impl std::error::Error for TreeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            TreeError::Io { source, .. } => Some(source),
            TreeError::Missing { .. } | TreeError::Damaged { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_device_is_told_from_one_that_fails() {
        let folder = Path::new("folder");
        let of = |kind: io::ErrorKind| TreeError::engine(folder, io::Error::from(kind).into());
        assert!(of(io::ErrorKind::StorageFull).is_of_no_room());
        assert!(of(io::ErrorKind::QuotaExceeded).is_of_no_room());
        assert!(!of(io::ErrorKind::PermissionDenied).is_of_no_room());
        assert!(!TreeError::damaged(folder, "full").is_of_no_room());
    }
}
