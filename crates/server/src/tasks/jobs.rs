//! Backups, snapshots and conversions in the store of this server.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::admin::{BackupProgress, SnapshotResponse};
use service::{Task, TaskFailure, TaskFailureKind, TaskRefusal};
use store::Store;
use store::background::Background;
use store::backup::{BackupError, BackupRoot, ReplicaCopyError};
use store::durable::Durable;
use store::remote::Lack;
use store::snapshot::SnapshotError;
use wal::disk::{Disk, is_full};

use super::{DoneTask, Jobs, TaskProgress, TaskWatch, convert};
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
    /// The data folder, for copies.
    pub data: Option<PathBuf>,
    pub time: Arc<dyn TimeSource>,
    /// Name and version, for the manifest of a backup.
    pub server: String,
    pub log: Arc<dyn Log>,
}

impl Jobs for StorageJobs {
    fn refuse(&self, task: &Task) -> Option<TaskRefusal> {
        if self.store.is_remote() {
            return Some(TaskRefusal::Lacks(match task {
                Task::Convert { .. } => Lack::Convert,
                Task::Backup { .. } | Task::Snapshot => Lack::Backup,
                Task::Copy => Lack::Replicas,
            }));
        }
        match task {
            Task::Convert { .. } if self.durable.is_none() => Some(TaskRefusal::NoDataFolder),
            _ if self.durable.is_none() => Some(TaskRefusal::NothingKept),
            Task::Backup { .. } if self.root.is_none() => Some(TaskRefusal::NoBackupRoot),
            Task::Copy if self.data.is_none() => Some(TaskRefusal::NothingKept),
            _ => None,
        }
    }

    fn run(&self, task: &Task, watch: &mut TaskWatch<'_>) -> Result<DoneTask, TaskFailure> {
        if let Err(error) = Background::Bulk.enter() {
            self.log.storage(&error.to_string());
        }
        let durable = self.durable.as_ref().expect("refused without");
        match task {
            Task::Snapshot => snapshot(durable),
            Task::Copy => {
                let data = self.data.as_ref().expect("refused without");
                self.copy(durable, data, watch)
            }
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
    fn copy(
        &self,
        durable: &Durable,
        data: &Path,
        watch: &mut TaskWatch<'_>,
    ) -> Result<DoneTask, TaskFailure> {
        let mut clock = Unticked(Arc::clone(&self.time));
        let copy = durable.copy_for_replica(data, &self.server, &mut clock, &mut |progress| {
            watch.tell(TaskProgress::Backup(BackupProgress {
                written_bytes: progress.written_bytes,
                total_bytes: progress.total_bytes,
                sequence: progress.sequence,
                ..BackupProgress::default()
            }));
            watch.go_on()
        });
        match copy {
            Ok(copy) => Ok(DoneTask::Copy(Arc::new(copy))),
            Err(ReplicaCopyError::Backup(error)) => Err(not_made("for a replica", &error, None)),
            Err(ReplicaCopyError::Folder { folder, source }) => Err(not_created(&folder, &source)),
        }
    }

    fn backup(
        &self,
        durable: &Durable,
        root: &BackupRoot,
        name: &str,
        watch: &mut TaskWatch<'_>,
    ) -> Result<DoneTask, TaskFailure> {
        let path = root.path_of(name).display().to_string();
        let disk: Arc<dyn Disk> = match root.create(name) {
            Ok(disk) => Arc::new(disk),
            Err(error) => return Err(not_created(&path, &error)),
        };
        let mut clock = Unticked(Arc::clone(&self.time));
        let folder = Arc::clone(&disk);
        let report = durable.backup(disk, &self.server, &mut clock, &mut |progress| {
            watch.tell(TaskProgress::Backup(BackupProgress {
                written_bytes: progress.written_bytes,
                total_bytes: progress.total_bytes,
                sequence: progress.sequence,
                ..BackupProgress::default()
            }));
            watch.go_on()
        });
        let report = report.map_err(|error| {
            // Where it was moved away, what is there now belongs to somebody else.
            let removed = folder.check_place().and_then(|()| root.remove(name));
            not_made(&path, &error, removed.err())
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
        Ok(DoneTask::Backup { progress, path })
    }
}

fn snapshot(durable: &Durable) -> Result<DoneTask, TaskFailure> {
    let report = durable.snapshot().map_err(|error| not_copied(&error))?;
    Ok(DoneTask::Snapshot(SnapshotResponse {
        sequence: report.sequence,
        entries: report.entries,
        bytes: report.file_bytes,
    }))
}

#[cold]
fn not_copied(error: &SnapshotError) -> TaskFailure {
    TaskFailure {
        kind: match error {
            SnapshotError::Full { .. } => TaskFailureKind::Full,
            SnapshotError::LogFailed => TaskFailureKind::LogFailed,
            SnapshotError::Stopping => TaskFailureKind::Stopping,
            _ => TaskFailureKind::Device,
        },
        message: error.to_string(),
    }
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
fn not_made(path: &str, error: &BackupError, not_removed: Option<io::Error>) -> TaskFailure {
    let kind = match error {
        error if error.is_full() => TaskFailureKind::Full,
        BackupError::LogFailed => TaskFailureKind::LogFailed,
        BackupError::Stopping | BackupError::Cancelled => TaskFailureKind::Stopping,
        error if error.is_of_damage() => TaskFailureKind::Damaged,
        _ => TaskFailureKind::Device,
    };
    let left = match not_removed {
        // Without a manifest it is known not to be complete.
        Some(error) => format!("what is left of it is no backup, and is to be removed ({error})"),
        None => "nothing of it is left".into(),
    };
    TaskFailure {
        kind,
        message: format!("the backup {path} was not made, and {left}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use service::Code;
    use store::durable::TreePlace;
    use store::tree::TreeConfig;
    use store::{DatabaseId, Durability, Kind};
    use wal::disk::NoRoom;
    use wal::{GroupError, LogConfig, LogId};

    use super::*;
    use crate::call_id::CallId;
    use crate::inbox::Inbox;
    use crate::pair;
    use crate::readers::tests::TempFolder;
    use crate::settings::SilentLog;
    use crate::{ServerConfig, Storage, storage};

    struct Standing;

    impl TimeSource for Standing {
        fn monotonic_ns(&self) -> u64 {
            7
        }

        fn wall_ms(&self) -> u64 {
            1_000_000
        }
    }

    /// The jobs of a server that keeps its data.
    fn jobs(root: Option<BackupRoot>) -> StorageJobs {
        jobs_over(root, None)
    }

    /// The same, whose databases may be on disk.
    fn jobs_over(root: Option<BackupRoot>, trees: Option<TreePlace>) -> StorageJobs {
        let (log, time) = (Arc::new(SilentLog), Arc::new(Standing));
        let id = LogId {
            history: 7,
            secret: 8,
        };
        let config = ServerConfig {
            storage: Storage::Folder {
                disk: Arc::new(testkit::simulated_disk(1)),
                log: LogConfig {
                    segment_bytes: 1 << 20,
                    ..LogConfig::new(id, 1)
                },
                trees,
                durability: Durability::Synced,
                kind: None,
                keep_log: store::KeepLog::NONE,
            },
            ..pair::config(Arc::clone(&log) as _, Arc::clone(&time) as _)
        };
        let opening = storage::open(&config).expect("an empty disk is well");
        let committer = opening.committer.expect("there is a log");
        let durable = storage::start(committer, &config).expect("there are threads");
        StorageJobs {
            store: opening.store,
            durable: Some(Arc::new(durable)),
            root,
            data: None,
            time,
            server: "test 0".into(),
            log,
        }
    }

    fn run(jobs: &StorageJobs, task: &Task) -> Result<DoneTask, TaskFailure> {
        run_beside(jobs, task, || {})
    }

    /// The same, doing something when it tells of its progress.
    fn run_beside(
        jobs: &StorageJobs,
        task: &Task,
        act: impl Fn() + Send + Sync + 'static,
    ) -> Result<DoneTask, TaskFailure> {
        let inbox = Inbox::new(Arc::new(act));
        let mut watch = TaskWatch {
            cancel: &AtomicBool::new(false),
            inbox: &inbox,
            call: CallId::from_tag(0),
            time: &*jobs.time,
            told_ns: None,
        };
        jobs.run(task, &mut watch)
    }

    fn stop(jobs: &StorageJobs) {
        let durable = jobs.durable.as_ref().expect("there is a log");
        durable.end_snapshots();
        durable.stop().expect("the log is closed");
    }

    fn backup(name: &str) -> Task {
        Task::Backup { name: name.into() }
    }

    #[test]
    fn a_task_is_refused_by_what_the_server_lacks() {
        let convert = Task::Convert {
            database: DatabaseId::DEFAULT,
            kind: Kind::Disk,
        };
        let folder = TempFolder::new();
        let mut jobs = jobs(None);
        for is_there in [false, true] {
            if is_there {
                jobs.root = Some(BackupRoot::open(&folder.0).expect("it is made"));
            }
            let no_root = (!is_there).then_some(TaskRefusal::NoBackupRoot);
            assert_eq!(jobs.refuse(&backup("a")), no_root);
            assert_eq!(jobs.refuse(&Task::Snapshot), None);
            assert_eq!(jobs.refuse(&convert), None);
        }
        stop(&jobs);
        jobs.durable = None;
        assert_eq!(jobs.refuse(&backup("a")), Some(TaskRefusal::NothingKept));
        let nothing = Some(TaskRefusal::NothingKept);
        assert_eq!(jobs.refuse(&Task::Snapshot), nothing);
        assert_eq!(jobs.refuse(&convert), Some(TaskRefusal::NoDataFolder));
    }

    #[test]
    fn a_backup_is_made_in_a_new_folder_only() {
        let folder = TempFolder::new();
        let root = BackupRoot::open(&folder.0).expect("it is made");
        let jobs = jobs(Some(root));
        for name in ["a", "b"] {
            let made = run(&jobs, &backup(name));
            let Ok(DoneTask::Backup { progress, path }) = made else {
                panic!("another end of {name}");
            };
            assert!(progress.complete && progress.written_bytes > 0);
            assert_eq!(progress.total_bytes, progress.written_bytes);
            assert!(path.ends_with(&format!("/{name}")), "{path}");
            let Err(failure) = run(&jobs, &backup(name)) else {
                panic!("{name} is there twice");
            };
            assert_eq!(failure.kind, TaskFailureKind::Exists);
            assert!(failure.message.contains(&path), "{}", failure.message);
        }
        let snapshot = run(&jobs, &Task::Snapshot);
        assert!(matches!(snapshot, Ok(DoneTask::Snapshot(made)) if made.bytes > 0));
        stop(&jobs);
        // The folder that was begun is not left behind.
        for _ in 0..2 {
            let Err(failure) = run(&jobs, &backup("c")) else {
                panic!("it has stopped");
            };
            assert_eq!(failure.kind, TaskFailureKind::Stopping);
            assert!(!folder.0.join("c").exists());
        }
    }

    /// A backup that is said to be complete is where it is said to be, and has all its files; what
    /// is of somebody else stays.
    #[test]
    fn a_backup_whose_folder_is_changed_meanwhile_is_not_complete() {
        let folder = TempFolder::new();
        let jobs = jobs(Some(BackupRoot::open(&folder.0).expect("it is made")));
        let (path, moved) = (folder.0.join("a"), folder.0.join("moved"));
        for is_replaced in [false, true] {
            let (from, to) = (path.clone(), moved.clone());
            let failed = run_beside(&jobs, &backup("a"), move || {
                if !to.exists() {
                    std::fs::rename(&from, &to).expect("it is there");
                    if is_replaced {
                        std::fs::create_dir(&from).expect("the name is free");
                        std::fs::write(from.join("mine"), "").expect("it is written");
                    }
                }
            });
            let Err(failure) = failed else {
                panic!("it is not where it is said to be");
            };
            let said = failure.message;
            assert!(
                said.contains("was not made") && said.contains("no longer there"),
                "{said}"
            );
            assert!(!moved.join("MANIFEST").exists());
            assert_eq!(path.join("mine").exists(), is_replaced);
            std::fs::remove_dir(&moved).expect("nothing is left in it");
        }
        std::fs::remove_dir_all(&path).expect("it is there");
        for _ in 0..2 {
            let from = path.clone();
            let failed = run_beside(&jobs, &backup("a"), move || {
                for entry in std::fs::read_dir(&from).expect("it is there").flatten() {
                    let _ = std::fs::remove_file(entry.path());
                }
            });
            assert!(failed.is_err(), "it lacks a file");
            assert!(!path.exists());
            assert!(run(&jobs, &backup("a")).is_ok());
            std::fs::remove_dir_all(&path).expect("it is there");
        }
        stop(&jobs);
    }

    #[test]
    fn a_database_is_converted_once_and_to_and_fro() {
        let folder = TempFolder::new();
        let place = TreePlace {
            folder: folder.0.clone(),
            config: TreeConfig::default(),
        };
        let jobs = jobs_over(None, Some(place));
        for (kind, is_new) in [
            (Kind::Disk, true),
            (Kind::Disk, false),
            (Kind::Memory, true),
            (Kind::Memory, false),
        ] {
            let convert = |database| run(&jobs, &Task::Convert { database, kind });
            let Ok(DoneTask::Conversion(progress)) = convert(DatabaseId::DEFAULT) else {
                panic!("it is empty");
            };
            assert_eq!((progress.converted, progress.complete), (is_new, true));
            let is = jobs.store.config(DatabaseId::DEFAULT);
            assert_eq!(is.expect("it always exists").kind, kind);
        }
        stop(&jobs);
    }

    #[test]
    fn the_reason_of_a_failure_decides_what_its_caller_is_told() {
        const ENOSPC: i32 = 28;
        const EACCES: i32 = 13;
        let system = io::Error::from_raw_os_error;
        let file = || "file".to_owned();
        for (error, kind) in [
            (system(ENOSPC), TaskFailureKind::Full),
            (system(EACCES), TaskFailureKind::Device),
        ] {
            assert_eq!(not_created("path", &error).kind, kind, "{error}");
            let error = BackupError::Device {
                file: file(),
                source: error,
            };
            assert_eq!(not_made("path", &error, None).kind, kind, "{error}");
        }
        for (error, kind) in [
            (BackupError::LogFailed, TaskFailureKind::LogFailed),
            (BackupError::LogGone, TaskFailureKind::Full),
            (BackupError::Stopping, TaskFailureKind::Stopping),
            (BackupError::Cancelled, TaskFailureKind::Stopping),
            (BackupError::TooMany, TaskFailureKind::Device),
        ] {
            assert_eq!(not_made("path", &error, None).kind, kind, "{error}");
        }
        let full = SnapshotError::Full {
            file: file(),
            why: NoRoom::Disk,
        };
        let device = SnapshotError::Device {
            file: file(),
            source: Arc::new(system(EACCES)),
        };
        for (error, kind) in [
            (full, TaskFailureKind::Full),
            (device, TaskFailureKind::Device),
            (SnapshotError::LogFailed, TaskFailureKind::LogFailed),
            (SnapshotError::Stopping, TaskFailureKind::Stopping),
        ] {
            assert_eq!(not_copied(&error).kind, kind, "{error}");
        }
    }

    #[test]
    fn backup_that_cannot_read_for_now_is_not_told_as_loss_of_data() {
        const EIO: i32 = 5;
        const EMFILE: i32 = 24;
        let file = || "1.log".to_owned();
        for code in [EIO, EMFILE] {
            let error = BackupError::Log(GroupError::Device {
                file: file(),
                offset: 512,
                source: io::Error::from_raw_os_error(code),
            });
            let failure = not_made("backup", &error, None);
            assert_eq!(failure.status().code(), Code::Unavailable, "{error}");
        }
        let damaged = BackupError::Log(GroupError::Damaged {
            file: file(),
            offset: 512,
        });
        assert_eq!(
            not_made("backup", &damaged, None).status().code(),
            Code::DataLoss
        );
    }
}
