//! Why a durable store is not opened.

use std::io;

use wal::disk::Advised;

use super::database_name::Named;
use super::folder::FolderError;
use crate::database::CreateError;
use crate::snapshot;
use crate::tree::TreeError;

/// Why a durable store was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The folder cannot be used.
    #[error("{0}")]
    Folder(#[source] FolderError),
    /// The configuration cannot be used.
    #[error("the default database: {0}")]
    Config(#[source] CreateError),
    /// The newest snapshot cannot be used.
    #[error("{0}")]
    Snapshot(#[source] snapshot::SnapshotReadError),
    /// The log cannot be used.
    #[error("{0}")]
    Log(#[source] wal::LogOpenError),
    /// A database on disk cannot be used.
    #[error("{0}")]
    Tree(#[source] TreeError),
    /// The same, and it is known which.
    #[error("{}: {error}{}", Named(.name), nor_can(.others))]
    Database {
        /// Its name; empty: the default one.
        name: String,
        /// What is wrong with it.
        #[source]
        error: TreeError,
        /// The names of other databases that cannot be used either.
        others: Vec<String>,
    },
    /// A database on disk has commits that the log has not, although it should.
    #[error(
        "the log ends with sequence {last_sequence}, though a database on disk has everything up \
         to {tree_sequence}: a file of the log is missing; put it back, or restore a backup"
    )]
    TreeAhead {
        /// The last commit on disk.
        tree_sequence: u64,
        /// The last one in the log.
        last_sequence: u64,
    },
    /// The log is whole and makes no sense.
    #[error("{0}")]
    Replay(#[source] ReplayError),
    /// The folder of blobs cannot be made, read or changed.
    #[error("{folder}: the folder of blobs cannot be used: {}", Advised(.source))]
    Blobs {
        /// The folder.
        folder: String,
        /// What the operating system said.
        source: io::Error,
    },
    /// There are more contents of blobs that nothing names than a crash can leave.
    #[error(
        "{folder}: nothing names {contents} files that were complete blobs, and the log does not \
         tell why: a part of the log or a snapshot seems to be missing; put it back, or restore a \
         backup"
    )]
    Orphans {
        /// The folder.
        folder: String,
        /// How many.
        contents: u64,
    },
    /// The default database was durable, and what is in it would come back after each restart.
    #[error(
        "the default database in this data folder has content and cannot be volatile; choose \
         another durability, or another folder"
    )]
    DefaultHasContent,
}

/// A record that does not fit those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the log does not fit together at sequence {sequence}: {what}; if another version wrote it, \
     use that one"
)]
pub struct ReplayError {
    /// Its sequence.
    pub sequence: u64,
    /// What does not fit.
    pub what: &'static str,
}

fn nor_can(others: &[String]) -> String {
    let each = |name: &String| format!("; nor can {} be used", Named(name));
    others.iter().map(each).collect()
}
