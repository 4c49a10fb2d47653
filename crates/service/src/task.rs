//! Work that takes long: a call asks for it
//! ([`Administration::start_task`](crate::Administration::start_task)), the layer above does it
//! beside its loops, one at a time, and tells the call how it goes
//! ([`CallSteps::task`](crate::CallSteps::task)).

use std::sync::Arc;

use store::backup::ReplicaCopy;
use store::remote::Lack;
use store::{DatabaseId, Kind};

use crate::status::{Code, Status};
use api::admin::{BackupProgress, ConvertProgress, SnapshotResponse};

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// A copy of all databases in a new folder of this name, which has been checked.
    Backup {
        /// The name of the folder.
        name: Box<str>,
    },
    /// A snapshot in the data folder.
    Snapshot,
    /// A copy of everything, for a server that will follow this one.
    Copy,
    /// A database made one of another kind, with all that is in it.
    Convert {
        /// Which.
        database: DatabaseId,
        /// What it becomes.
        kind: Kind,
    },
}

/// What has become of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TaskNews<'a> {
    /// A backup goes on.
    BackingUp(BackupProgress<'a>),
    /// A backup is complete. Nothing follows.
    BackedUp(BackupProgress<'a>),
    /// A copy for a replica is made. Nothing follows.
    Copied(&'a Arc<ReplicaCopy>),
    /// A snapshot is made. Nothing follows.
    SnapshotMade(SnapshotResponse),
    /// A conversion goes on.
    Converting(ConvertProgress),
    /// A conversion is done, or there was nothing to do. Nothing follows.
    Converted(ConvertProgress),
    /// It failed, and nothing of it is left. Nothing follows.
    Failed(&'a TaskFailure),
}

/// Why a task was not begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskRefusal {
    /// Another one runs.
    Busy,
    /// The system gives no thread for it.
    NoThread,
    /// The server keeps nothing.
    NothingKept,
    /// The server was not told where backups go.
    NoBackupRoot,
    /// The server keeps nothing, and so has no place for a database on disk.
    NoDataFolder,
    /// Its databases are on an engine elsewhere, which cannot do it.
    Lacks(Lack),
    /// The server is about to stop.
    Stopping,
}

/// What kind of failure it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskFailureKind {
    /// There is a folder of this name.
    Exists,
    /// What it is to be done with is gone.
    Gone,
    /// As things are, it cannot be done.
    NotPossible,
    /// There is no room on a disk, or in memory.
    Full,
    /// The log has failed, so that nothing can be made durable until a restart.
    LogFailed,
    /// The log failed with it: only a restart shows whether it is done.
    OutcomeUnknown,
    /// Not at this moment.
    NotNow,
    /// What is on the device is not what was written.
    Damaged,
    /// The server is about to stop.
    Stopping,
    /// The operating system refused something.
    Device,
}

/// Why a task failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskFailure {
    /// For the code of the status.
    pub kind: TaskFailureKind,
    /// In words: what happened, to what, and what to do.
    pub message: String,
}

impl TaskRefusal {
    /// The status that ends the call.
    #[cold]
    pub fn status(self) -> Status {
        match self {
            TaskRefusal::Busy => Status::new(
                Code::Unavailable,
                "another backup, snapshot or conversion runs on this server; try again when it is \
                 done",
            ),
            TaskRefusal::NoThread => Status::new(
                Code::Unavailable,
                "the system gives the server no thread to do this with, as the server's log says; \
                 nothing was done, try again \
                 later",
            ),
            TaskRefusal::NothingKept => Status::new(
                Code::FailedPrecondition,
                "this server keeps nothing (--durability volatile without --data): there is \
                 nothing to copy; \
                 `pelton export` writes out what is in a database",
            ),
            TaskRefusal::NoBackupRoot => Status::new(
                Code::FailedPrecondition,
                "this server was not told where backups go; start it with --backup-root DIR",
            ),
            TaskRefusal::NoDataFolder => Status::new(
                Code::FailedPrecondition,
                "this server keeps nothing (--durability volatile without --data), so that no \
                 database can be on disk; \
                 start it with --data DIR",
            ),
            TaskRefusal::Lacks(lack) => Status::unimplemented(lack.to_string()),
            TaskRefusal::Stopping => Status::new(
                Code::Unavailable,
                "the server is about to stop; try again on another one, or later",
            ),
        }
    }
}

impl TaskFailure {
    /// The status that ends the call.
    #[cold]
    pub fn status(&self) -> Status {
        let code = match self.kind {
            TaskFailureKind::Exists => Code::AlreadyExists,
            TaskFailureKind::Gone => Code::NotFound,
            TaskFailureKind::Full => Code::ResourceExhausted,
            TaskFailureKind::NotPossible | TaskFailureKind::LogFailed => Code::FailedPrecondition,
            TaskFailureKind::OutcomeUnknown => Code::Unknown,
            TaskFailureKind::Damaged => Code::DataLoss,
            TaskFailureKind::NotNow | TaskFailureKind::Stopping | TaskFailureKind::Device => {
                Code::Unavailable
            }
        };
        Status::new(code, self.message.clone())
    }
}
