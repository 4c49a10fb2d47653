//! Why a durable store is not opened.

use std::fmt;
use std::io;

use super::database_name::Named;
use super::folder::FolderError;
use crate::database::CreateError;
use crate::snapshot;
use crate::tree::TreeError;

/// Why a durable store was not opened.
#[derive(Debug)]
pub enum OpenError {
    /// The folder cannot be used.
    Folder(FolderError),
    /// The configuration cannot be used.
    Config(CreateError),
    /// The newest snapshot cannot be used.
    Snapshot(snapshot::ReadError),
    /// The log cannot be used.
    Log(wal::OpenError),
    /// A database on disk cannot be used.
    Tree(TreeError),
    /// The same, and it is known which.
    Database {
        /// Its name; empty: the default one.
        name: String,
        /// What is wrong with it.
        error: TreeError,
        /// The names of other databases that cannot be used either.
        others: Vec<String>,
    },
    /// A database on disk has commits that the log has not, although it should.
    TreeAhead {
        /// The last commit on disk.
        tree_sequence: u64,
        /// The last one in the log.
        last_sequence: u64,
    },
    /// The log is whole and makes no sense.
    Replay(ReplayError),
    /// The folder of blobs cannot be read.
    Blobs {
        /// The folder.
        folder: String,
        /// What the operating system said.
        source: io::Error,
    },
    /// There are more contents of blobs that nothing names than a crash can leave.
    Orphans {
        /// The folder.
        folder: String,
        /// How many.
        contents: u64,
    },
    /// The default database was durable, and what is in it would come back after each restart.
    DefaultHasContent,
}

impl fmt::Display for OpenError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Folder(error) => error.fmt(formatter),
            OpenError::Config(error) => write!(formatter, "the default database: {error}"),
            OpenError::Snapshot(error) => error.fmt(formatter),
            OpenError::Log(error) => error.fmt(formatter),
            OpenError::Tree(error) => error.fmt(formatter),
            OpenError::Database {
                name,
                error,
                others,
            } => {
                write!(formatter, "{}: {error}", Named(name))?;
                for other in others {
                    write!(formatter, "; nor can {} be used", Named(other))?;
                }
                Ok(())
            }
            OpenError::TreeAhead {
                tree_sequence,
                last_sequence,
            } => write!(
                formatter,
                "the log ends with sequence {last_sequence}, though a database on disk has \
                 everything up to \
                 {tree_sequence}: a file of the log is missing; put it back, or restore a backup"
            ),
            OpenError::Replay(ReplayError { sequence, what }) => write!(
                formatter,
                "the log does not fit together at sequence {sequence}: {what}; \
                 if another version wrote it, use that one"
            ),
            OpenError::Blobs { folder, source } => {
                write!(
                    formatter,
                    "{folder}: the folder of blobs cannot be read: {source}"
                )
            }
            OpenError::Orphans { folder, contents } => write!(
                formatter,
                "{folder}: nothing names {contents} files that were complete blobs, and the log \
                 does not tell why: a part \
                 of the log or a snapshot seems to be missing; put it back, or restore a backup"
            ),
            OpenError::DefaultHasContent => write!(
                formatter,
                "the default database in this data folder has content and cannot be volatile; \
                 choose another durability, or another folder"
            ),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            OpenError::Folder(error) => Some(error),
            OpenError::Config(error) => Some(error),
            OpenError::Snapshot(error) => Some(error),
            OpenError::Log(error) => Some(error),
            OpenError::Tree(error) | OpenError::Database { error, .. } => Some(error),
            OpenError::Blobs { source, .. } => Some(source),
            OpenError::TreeAhead { .. }
            | OpenError::Replay(_)
            | OpenError::Orphans { .. }
            | OpenError::DefaultHasContent => None,
        }
    }
}

/// A record that does not fit those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayError {
    /// Its sequence.
    pub sequence: u64,
    /// What does not fit.
    pub what: &'static str,
}
