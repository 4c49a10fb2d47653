//! Backups, snapshots and conversions in the store of this server.

use std::io;
use std::sync::Arc;

use service::admin::messages::{BackupProgress, SnapshotResponse};
use service::{Task, TaskFailure, TaskFailureKind, TaskRefusal};
use store::Store;
use store::background::Background;
use store::backup::{BackupError, BackupRoot};
use store::disk::{Disk, is_full};
use store::durable::Durable;
use store::snapshot::SnapshotError;

use super::{Done, Jobs, Progress, Watch, convert};
use crate::clock::TimeSource;
use crate::settings::Log;
use crate::storage::Unticked;

/// The tasks of a server that keeps its data, or of one that does not.
pub(crate) struct StorageJobs {
    pub store: Store,
    /// `None`: nothing lasts.
    pub durable: Option<Arc<Durable>>,
    /// Where backups go.
    pub root: Option<BackupRoot>,
    pub time: Arc<dyn TimeSource>,
    /// Name and version, for the manifest of a backup.
    pub server: String,
    pub log: Arc<dyn Log>,
}

impl Jobs for StorageJobs {
    fn refuse(&self, task: &Task) -> Option<TaskRefusal> {
        match task {
            Task::Convert { .. } if self.durable.is_none() => Some(TaskRefusal::NoDataFolder),
            _ if self.durable.is_none() => Some(TaskRefusal::NothingKept),
            Task::Backup { .. } if self.root.is_none() => Some(TaskRefusal::NoBackupRoot),
            _ => None,
        }
    }

    fn run(&self, task: &Task, watch: &mut Watch<'_>) -> Result<Done, TaskFailure> {
        if let Err(error) = Background::Bulk.enter() {
            self.log.storage(&error.to_string());
        }
        let durable = self.durable.as_ref().expect("refused without");
        match task {
            Task::Snapshot => snapshot(durable),
            Task::Convert { database, kind } => {
                convert::convert(&self.store, durable, *database, *kind, watch)
            }
            Task::Backup { name } => {
                let root = self.root.as_ref().expect("refused without");
                self.backup(durable, root, name, watch)
            }
        }
    }
}

impl StorageJobs {
    fn backup(
        &self,
        durable: &Durable,
        root: &BackupRoot,
        name: &str,
        watch: &mut Watch<'_>,
    ) -> Result<Done, TaskFailure> {
        let path = root.path_of(name).display().to_string();
        let disk: Arc<dyn Disk> = match root.create(name) {
            Ok(disk) => Arc::new(disk),
            Err(error) => return Err(not_created(&path, &error)),
        };
        let mut clock = Unticked(Arc::clone(&self.time));
        let report = durable.backup(disk, &self.server, &mut clock, &mut |progress| {
            watch.tell(Progress::Backup(BackupProgress {
                written_bytes: progress.written_bytes,
                total_bytes: progress.total_bytes,
                sequence: progress.sequence,
                ..BackupProgress::default()
            }));
            watch.go_on()
        });
        let report = report.map_err(|error| {
            // Its files are removed. If that failed, the folder stays, and is known not to be complete.
            let _ = root.remove(name);
            not_made(&path, &error)
        })?;
        let progress = BackupProgress {
            written_bytes: report.bytes,
            total_bytes: report.bytes,
            sequence: report.sequence,
            complete: true,
            databases: report.databases,
            volatile_databases: report.volatile_databases,
            path: "",
        };
        Ok(Done::Backup { progress, path })
    }
}

fn snapshot(durable: &Durable) -> Result<Done, TaskFailure> {
    let report = durable.snapshot().map_err(|error| TaskFailure {
        kind: match error {
            SnapshotError::Full { .. } => TaskFailureKind::Full,
            SnapshotError::LogFailed => TaskFailureKind::LogFailed,
            SnapshotError::Stopping => TaskFailureKind::Stopping,
            _ => TaskFailureKind::Device,
        },
        message: error.to_string(),
    })?;
    Ok(Done::Snapshot(SnapshotResponse {
        sequence: report.sequence,
        entries: report.entries,
        bytes: report.file_bytes,
    }))
}

#[cold]
fn not_created(path: &str, error: &io::Error) -> TaskFailure {
    match error.kind() {
        io::ErrorKind::AlreadyExists => TaskFailure {
            kind: TaskFailureKind::Exists,
            message: format!("{path} exists; choose another name, or remove it first"),
        },
        _ => TaskFailure {
            kind: match is_full(error) {
                true => TaskFailureKind::Full,
                false => TaskFailureKind::Device,
            },
            message: format!("the folder {path} cannot be made: {error}"),
        },
    }
}

#[cold]
fn not_made(path: &str, error: &BackupError) -> TaskFailure {
    let kind = match error {
        error if error.is_full() => TaskFailureKind::Full,
        BackupError::LogFailed => TaskFailureKind::LogFailed,
        BackupError::Stopping | BackupError::Cancelled => TaskFailureKind::Stopping,
        error if error.is_of_damage() => TaskFailureKind::Damaged,
        _ => TaskFailureKind::Device,
    };
    TaskFailure {
        kind,
        message: format!("the backup {path} was not made, and nothing of it is left: {error}"),
    }
}

#[cfg(test)]
#[test]
fn backup_that_cannot_read_for_now_is_not_told_as_loss_of_data() {
    use service::Code;
    use store::log::GroupError;

    const EIO: i32 = 5;
    const EMFILE: i32 = 24;
    let file = || "1.log".to_owned();
    for code in [EIO, EMFILE] {
        let error = BackupError::Log(GroupError::Device {
            file: file(),
            offset: 512,
            source: io::Error::from_raw_os_error(code),
        });
        let failure = not_made("backup", &error);
        assert_eq!(failure.status().code, Code::Unavailable, "{error}");
    }
    let damaged = BackupError::Log(GroupError::Damaged {
        file: file(),
        offset: 512,
    });
    assert_eq!(not_made("backup", &damaged).status().code, Code::DataLoss);
}
