//! A new data folder from a backup.

use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use wal::LogConfig;
use wal::disk::{Disk, RealDisk};

use super::blobs::{BackupContents, Described};
use super::check::{self, CheckWatch};
use super::copy::GrowingFile;
use super::error::RestoreError;
use super::file_entry::FileEntry;
use super::manifest::Manifest;
use super::trees;
use crate::blob;
use crate::clock::Clock;
use crate::database::Durability;
use crate::database_id::DatabaseId;
use crate::durable::{
    CommitLoop, FolderState, Opened, StorageEvent, TreePlace, is_own_file, mark_folder, new_owner,
};
use crate::operation::{Mode, Operation};
use crate::store::{Store, StoreConfig};

/// How a backup is restored.
#[derive(Clone, Debug)]
pub struct RestoreConfig {
    /// For the store that checks what was restored. Its default database must have a log.
    pub store: StoreConfig,
    /// For the log of the new folder, with the id of its new history.
    pub log: LogConfig,
    /// Where databases on disk go; `None`: a backup that has such is refused.
    pub trees: Option<TreePlace>,
}

/// What was restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// What the backup consisted of.
    pub manifest: Manifest,
    /// The history that begins with it: places in another one mean nothing in it.
    pub history_id: u64,
    /// Entries in all databases; of those on disk by estimate.
    pub entries: u64,
    /// Databases, with those that are empty since they are volatile.
    pub databases: u64,
    /// Blobs.
    pub blobs: u64,
    /// Bytes of their contents, which the manifest does not count.
    pub blob_bytes: u64,
}

/// Makes a data folder of a backup: every commit up to the cut, none behind it, and a new history.
/// `target` is empty, and the caller's; when this fails nothing of the backup is left in it, or the
/// error says that something is, and no server takes it. What others have put there stays.
///
/// Everything is read and checked as it is copied, and then opened as a server would open it.
pub fn restore(
    source: &dyn Disk,
    target: &Arc<dyn Disk>,
    config: &RestoreConfig,
    clock: &mut dyn Clock,
    watch: CheckWatch<'_>,
) -> Result<Restored, RestoreError> {
    let manifest = check::read_manifest(source)?;
    let names = target
        .list()
        .map_err(|error| device(&**target, "", error))?;
    if !names.is_empty() {
        let folder = target.describe("");
        return Err(RestoreError::NotEmpty { folder });
    }
    let restoring = Restoring {
        source,
        target,
        config,
    };
    let copied: Vec<String> = manifest
        .files
        .iter()
        .map(|file| file.name.clone())
        .collect();
    let restored = restoring.run(manifest, clock, watch);
    restored.map_err(|error| match restoring.discard(&copied) {
        Ok(()) => error,
        Err(source) => RestoreError::Left {
            error: Box::new(error),
            folder: target.describe(""),
            source,
        },
    })
}

struct Restoring<'a> {
    source: &'a dyn Disk,
    target: &'a Arc<dyn Disk>,
    config: &'a RestoreConfig,
}

impl Restoring<'_> {
    /// Removes what was made, as far as it can be, and returns the first error. What makes it a
    /// data folder goes first.
    fn discard(&self, copied: &[String]) -> io::Result<()> {
        let disk = &**self.target;
        let mut removed = RemovalOutcome(Ok(()));
        if let Some(trees) = &self.config.trees {
            removed.note(fs::remove_dir_all(&trees.folder));
        }
        let mut names = disk.list().unwrap_or_else(|error| {
            removed.note(Err(error));
            Vec::new()
        });
        names.retain(|name| is_own_file(name) || copied.contains(name));
        names.sort_by_key(|name| name.ends_with(".log") || name.ends_with(".snapshot"));
        for name in names {
            removed.note(disk.remove(&name));
        }
        match disk.has_subfolder(blob::FOLDER) {
            Ok(false) => {}
            Ok(true) => removed.note(remove_blobs(disk)),
            Err(error) => removed.note(Err(error)),
        }
        removed.note(disk.sync_folder());
        removed.0
    }

    fn run(
        &self,
        manifest: Manifest,
        clock: &mut dyn Clock,
        watch: CheckWatch<'_>,
    ) -> Result<Restored, RestoreError> {
        let total_bytes = manifest.bytes();
        let mut done_bytes = 0;
        for file in &manifest.files {
            done_bytes +=
                self.copy(file, &mut |bytes, _| watch(done_bytes + bytes, total_bytes))?;
        }
        let synced = self.target.sync_folder();
        synced.map_err(|error| device(&**self.target, "", error))?;
        let (restored, state) = self.open(manifest, clock, &mut |bytes, _| {
            watch(total_bytes + bytes, total_bytes + bytes)
        })?;
        // Last of all: without it no server takes the folder.
        mark_folder(&**self.target, state).map_err(|error| device(&**self.target, "", error))?;
        Ok(restored)
    }

    fn copy(&self, file: &FileEntry, watch: CheckWatch<'_>) -> Result<u64, RestoreError> {
        let failed = |error| device(&**self.target, &file.name, error);
        if trees::is_stray(&file.name) {
            return check::read_file(self.source, file, &mut |end, _| watch(end, file.bytes));
        }
        let copy = if file.name.ends_with(trees::SUFFIX) {
            let Some(place) = &self.config.trees else {
                let folder = self.source.describe("");
                let what = "it has databases on disk, for which there is no place";
                return Err(RestoreError::Inconsistent { folder, what });
            };
            trees::create(&place.folder, &file.name)
        } else {
            GrowingFile::create(&**self.target, &file.name)
        };
        let mut copy = copy.map_err(failed)?;
        let mut problem = None;
        let read = check::read_file(self.source, file, &mut |end, piece| {
            if let Err(error) = copy.add(piece) {
                problem = Some(failed(error));
                return ControlFlow::Break(());
            }
            watch(end, file.bytes)
        });
        match problem {
            Some(problem) => return Err(problem),
            None => read?,
        };
        let copied = copy.finish().map_err(failed)?;
        debug_assert_eq!(copied.checksum, file.checksum, "what was read was written");
        Ok(file.bytes)
    }

    /// Opens what was copied as a server does, with a new history, brings the contents of the blobs
    /// that it describes, and closes it.
    fn open(
        &self,
        manifest: Manifest,
        clock: &mut dyn Clock,
        watch: CheckWatch<'_>,
    ) -> Result<(Restored, FolderState), RestoreError> {
        let mut config = self.config.store;
        if config.default_database.durability == Durability::Volatile {
            config.default_database.durability = Durability::Synced;
        }
        let log_config = LogConfig {
            begin_history: true,
            accept_loss: false,
            ..self.config.log
        };
        let opened = Store::open_restored(
            config,
            self.target.clone(),
            &log_config,
            self.config.trees.as_ref(),
        );
        let Opened {
            store,
            committer,
            recovered,
            ..
        } = opened.map_err(RestoreError::Open)?;
        if recovered.last_sequence != manifest.cut.sequence {
            let folder = self.source.describe("");
            let what = "the log does not end where the backup was cut";
            return Err(RestoreError::Inconsistent { folder, what });
        }
        let (blobs, blob_bytes) = self.copy_blobs(&store, watch)?;
        let databases = store.databases();
        let views = databases.iter().filter_map(|info| store.view(info.id));
        let trees = databases.iter().filter_map(|info| store.tree(info.id));
        let on_disk = trees.map(|tree| tree.statistics().entries).sum::<u64>();
        let restored = Restored {
            history_id: recovered.history_id,
            entries: on_disk + views.map(|view| view.statistics().entries).sum::<u64>(),
            databases: databases.len() as u64,
            blobs,
            blob_bytes,
            manifest,
        };
        let mut commit_loop = CommitLoop::new(committer);
        // Who follows another server has its identities, and its epochs.
        let has_none = !self.config.log.follows;
        remove_hidden(&store, &commit_loop, has_none);
        while commit_loop.round(clock) {}
        if has_none && has_hidden(&store) {
            let why = "the tokens and replicas that the log of the backup names cannot be removed";
            return Err(device(&**self.target, "", io::Error::other(why)));
        }
        // It has made the next file of the log. A sync that has failed says that nobody knows what
        // is on the device; one that succeeds later says nothing of it.
        for event in commit_loop.take_events() {
            if let StorageEvent::NotReady(why) | StorageEvent::Failed(why) = event {
                return Err(device(&**self.target, "", io::Error::other(why)));
            }
        }
        commit_loop.close(clock).map_err(RestoreError::Close)?;
        let state = FolderState {
            owner: new_owner(self.config.log.new_log_id),
            durable_sequence: recovered.next_sequence - 1,
            newest_segment: 0,
            secret: self.config.store.secret,
        };
        Ok((restored, state))
    }
}

impl Restoring<'_> {
    /// Returns how many there are, and their bytes.
    fn copy_blobs(&self, store: &Store, watch: CheckWatch<'_>) -> Result<(u64, u64), RestoreError> {
        let needed = check::needed(self.source, &Described::in_store(store))?;
        if needed.is_empty() {
            return Ok((0, 0));
        }
        let source = check::open_blobs(self.source, &needed)?;
        let target = self.target.subfolder(blob::FOLDER);
        let target = target.map_err(|error| device(&**self.target, blob::FOLDER, error))?;
        let copied = (needed.len() as u64, check::bytes_of(&needed));
        let mut contents = BackupContents::of_backup(source, Some(target), needed);
        let walked = check::walk_blobs(&mut contents, 0, copied.1, watch);
        if walked.is_err() {
            contents.discard();
        }
        walked.map(|()| copied)
    }
}

/// What became of several removals: the first error.
struct RemovalOutcome(io::Result<()>);

impl RemovalOutcome {
    /// That something is not there is as good as removed.
    fn note(&mut self, removed: io::Result<()>) {
        let is_gone = matches!(&removed, Err(error) if error.kind() == io::ErrorKind::NotFound);
        if self.0.is_ok() && !is_gone {
            self.0 = removed;
        }
    }
}

fn remove_blobs(disk: &dyn Disk) -> io::Result<()> {
    let folder = disk.subfolder(blob::FOLDER)?;
    let mut removed = RemovalOutcome(Ok(()));
    for name in folder.list()? {
        removed.note(folder.remove(&name));
    }
    removed.note(disk.remove_subfolder(blob::FOLDER));
    removed.0
}

/// Hidden indexes that a folder which is no replica's begins without.
const NOT_RESTORED: [DatabaseId; 2] = [DatabaseId::IDENTITIES, DatabaseId::REPLICAS];

fn has_hidden(store: &Store) -> bool {
    NOT_RESTORED
        .iter()
        .any(|&hidden| has_entries(hidden, store))
}

/// Has what is in them removed, if the folder is to have none.
fn remove_hidden(store: &Store, commit_loop: &CommitLoop, has_none: bool) {
    for hidden in NOT_RESTORED.into_iter().filter(|_| has_none) {
        remove_entries(hidden, store, commit_loop);
    }
}

/// Has the entries of a hidden index removed that the log of a backup has made while that was
/// written.
fn remove_entries(hidden: DatabaseId, store: &Store, commit_loop: &CommitLoop) {
    if !has_entries(hidden, store) {
        return;
    }
    let mailbox = commit_loop.register(Box::new(|| {}));
    let mut batch = store.write_batch();
    let mut commit = batch.begin(0, hidden, Mode::Atomic);
    let pushed = commit.push(&Operation::Clear);
    debug_assert_eq!(pushed, Ok(()), "one operation fits into a commit");
    commit.submit();
    mailbox.submit(&mut batch);
}

fn has_entries(hidden: DatabaseId, store: &Store) -> bool {
    let view = store.view(hidden);
    view.is_some_and(|view| view.statistics().entries > 0)
}

fn device(disk: &dyn Disk, name: &str, source: io::Error) -> RestoreError {
    RestoreError::Device {
        file: disk.describe(name),
        source,
    }
}

/// Opens an empty folder for what is to be restored, and makes it where there is none; returns
/// whether it was made, too. One that was made is removed again where this fails.
pub fn new_folder(path: &Path) -> Result<(RealDisk, bool), RestoreError> {
    let failed = |source| RestoreError::Device {
        file: path.display().to_string(),
        source,
    };
    let is_made = !path.exists();
    let opened = open_empty(path, &failed);
    if opened.is_err() && is_made {
        // Only if it is empty, as it was made.
        let _ = fs::remove_dir(path);
    }
    opened.map(|disk| (disk, is_made))
}

fn open_empty(
    path: &Path,
    failed: &dyn Fn(io::Error) -> RestoreError,
) -> Result<RealDisk, RestoreError> {
    let disk = RealDisk::open_or_create(path).map_err(failed)?;
    // Folders count too, which the file layer does not see.
    if !disk.is_empty().map_err(failed)? {
        let folder = path.display().to_string();
        return Err(RestoreError::NotEmpty { folder });
    }
    Ok(disk)
}
