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
            TreeError::Damaged { .. } => None,
        }
    }
}
