//! All blobs of a store, beside their descriptions: unfinished uploads, contents that are read, contents that are to go.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use parking_lot::{Mutex, RwLock};

use super::error::UploadError;
use super::layout::file_name;
use super::limits;
use super::upload::Unfinished;
use crate::aside::SetAside;
use crate::catalogue::DatabaseId;
use crate::disk::Disk;

/// The bounds of blobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlobConfig {
    /// Bytes that the blobs of one database may have together, with unfinished uploads and what waits to be removed.
    pub quota_bytes: u64,
    /// Bytes of the disk that blobs leave free.
    pub free_bytes: u64,
    /// How long an upload that nobody continues is kept, in milliseconds.
    pub abandoned_ms: u64,
    /// Bytes of an upload after which what came is made durable. Tests want few.
    pub sync_bytes: u64,
}

impl Default for BlobConfig {
    fn default() -> BlobConfig {
        BlobConfig {
            quota_bytes: u64::MAX,
            free_bytes: limits::FREE_BYTES,
            abandoned_ms: limits::ABANDONED_MS,
            sync_bytes: limits::SYNC_BYTES,
        }
    }
}

/// Something to be done where waiting for a disk disturbs nobody.
pub type Job = Box<dyn FnOnce() + Send>;

/// Who does jobs.
pub trait Runner: Send + Sync {
    /// Does it now or soon, in any order.
    fn run(&self, job: Job);
}

/// Does each job at once, where it is asked for: for tests and simulations.
#[derive(Clone, Copy, Debug, Default)]
pub struct Inline;

impl Runner for Inline {
    fn run(&self, job: Job) {
        job();
    }
}

/// The blobs of a store with a log.
pub struct Blobs {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) aside: SetAside,
    pub(super) config: BlobConfig,
    pub(super) state: Mutex<State>,
    runner: RwLock<Arc<dyn Runner>>,
    /// When to look again for what is to be collected.
    pub(super) collect_due_ms: AtomicU64,
    /// Uploads that streams have at this moment.
    pub(super) streams: AtomicUsize,
}

/// Names an upload that can be resumed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct UploadKey {
    pub(super) database: DatabaseId,
    pub(super) name: Box<str>,
    pub(super) upload_id: Box<[u8]>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) next_number: u64,
    /// Those that can be resumed.
    pub(super) uploads: HashMap<UploadKey, Arc<Unfinished>>,
    /// What each database has.
    pub(super) used: BTreeMap<DatabaseId, BlobUse>,
    /// How many read a content.
    pub(super) readers: HashMap<u64, u32>,
    /// Contents that go when nobody needs them any more.
    pub(super) doomed: BTreeMap<u64, Doomed>,
    /// Backups that need all contents that were described since they began.
    pub(super) holds: u32,
}

/// A content without a description.
#[derive(Clone, Copy, Debug)]
pub(super) struct Doomed {
    pub(super) database: DatabaseId,
    pub(super) bytes: u64,
}

/// What a database has of blobs, or all of them have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlobUse {
    /// Blobs that are complete.
    pub blobs: u64,
    /// Uploads that are not complete, with those that cannot be resumed.
    pub unfinished: u64,
    /// Bytes of content, also of what is unfinished or waits to be removed.
    pub bytes: u64,
}

/// Figures of all blobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlobStatistics {
    /// Of all databases together, with those that were dropped and are not swept yet.
    pub used: BlobUse,
    /// What each database may have at most; `u64::MAX`: as the disk has room.
    pub quota_bytes: u64,
}

impl Blobs {
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        aside: SetAside,
        config: BlobConfig,
        state: State,
    ) -> Arc<Blobs> {
        Arc::new(Blobs {
            disk,
            aside,
            config,
            state: Mutex::new(state),
            runner: RwLock::new(Arc::new(Inline)),
            collect_due_ms: AtomicU64::new(0),
            streams: AtomicUsize::new(0),
        })
    }

    /// Who does what touches files from now on.
    pub fn set_runner(&self, runner: Arc<dyn Runner>) {
        *self.runner.write() = runner;
    }

    /// Has something done.
    pub fn run(&self, job: Job) {
        let runner = self.runner.read().clone();
        runner.run(job);
    }

    /// Figures.
    pub fn statistics(&self) -> BlobStatistics {
        BlobStatistics {
            used: self.state.lock().used_in_all(),
            quota_bytes: self.config.quota_bytes,
        }
    }

    /// What a database has.
    pub fn used(&self, database: DatabaseId) -> BlobUse {
        let state = self.state.lock();
        state.used.get(&database).copied().unwrap_or_default()
    }

    /// Takes room for so much more in a database, if there is any.
    pub(super) fn book(&self, database: DatabaseId, added_bytes: u64) -> Result<(), UploadError> {
        self.check_disk(added_bytes)?;
        let mut state = self.state.lock();
        self.check_quota(&state, database, added_bytes)?;
        state.used.entry(database).or_default().bytes += added_bytes;
        Ok(())
    }

    /// Whether so much more could come into a database now.
    pub(super) fn check_room(
        &self,
        database: DatabaseId,
        added_bytes: u64,
    ) -> Result<(), UploadError> {
        self.check_disk(added_bytes)?;
        self.check_quota(&self.state.lock(), database, added_bytes)
    }

    fn check_quota(
        &self,
        state: &State,
        database: DatabaseId,
        added_bytes: u64,
    ) -> Result<(), UploadError> {
        let used_bytes = state.used.get(&database).map_or(0, |used| used.bytes);
        let quota_bytes = self.config.quota_bytes;
        match used_bytes.saturating_add(added_bytes) > quota_bytes {
            false => Ok(()),
            true => Err(UploadError::Quota {
                quota_bytes,
                used_bytes,
                added_bytes,
            }),
        }
    }

    fn check_disk(&self, added_bytes: u64) -> Result<(), UploadError> {
        let free_bytes = self.disk.free_bytes().map_err(UploadError::Device)?;
        let reserved_bytes = self.config.free_bytes;
        match free_bytes < added_bytes.saturating_add(reserved_bytes) {
            false => Ok(()),
            true => Err(UploadError::Full {
                free_bytes,
                reserved_bytes,
            }),
        }
    }

    /// What was booked is not there.
    pub(super) fn unbook(&self, database: DatabaseId, bytes: u64) {
        self.state.lock().unbook(database, bytes);
    }

    /// A content has no description any more, or never got one: it goes when nobody reads it.
    pub(super) fn doom(self: &Arc<Blobs>, number: u64, database: DatabaseId, bytes: u64) {
        let mut state = self.state.lock();
        state.doomed.insert(number, Doomed { database, bytes });
        self.remove_doomed(state, &[number]);
    }

    /// Has those of the doomed removed that nobody needs.
    pub(super) fn remove_doomed(
        self: &Arc<Blobs>,
        mut state: parking_lot::MutexGuard<'_, State>,
        numbers: &[u64],
    ) {
        let mut gone = Vec::new();
        for &number in numbers {
            if state.holds == 0 && !state.readers.contains_key(&number) {
                gone.extend(state.doomed.remove(&number).map(|doomed| (number, doomed)));
            }
        }
        drop(state);
        for (number, doomed) in gone {
            let blobs = Arc::clone(self);
            self.run(Box::new(move || {
                // What cannot be removed now is found at the next start. Until then it counts.
                if blobs.disk.remove(&file_name(number)).is_ok() {
                    blobs.unbook(doomed.database, doomed.bytes);
                }
            }));
        }
    }

    /// Keeps every content that is described now or was since, until the hold is dropped.
    pub(crate) fn hold(self: &Arc<Blobs>) -> BlobHold {
        self.state.lock().holds += 1;
        BlobHold(Arc::clone(self))
    }
}

impl State {
    fn used_in_all(&self) -> BlobUse {
        let mut all = BlobUse::default();
        for used in self.used.values() {
            all.blobs += used.blobs;
            all.unfinished += used.unfinished;
            all.bytes += used.bytes;
        }
        all
    }

    pub(super) fn unfinished(&self) -> u64 {
        self.used_in_all().unfinished
    }

    pub(super) fn unbook(&mut self, database: DatabaseId, bytes: u64) {
        self.take_back(database, bytes, |used| &mut used.bytes);
    }

    /// Takes back what was counted.
    pub(super) fn take_back(
        &mut self,
        database: DatabaseId,
        count: u64,
        of: fn(&mut BlobUse) -> &mut u64,
    ) {
        if count == 0 {
            return;
        }
        let used = self.used.entry(database).or_default();
        let counted = of(used);
        debug_assert!(*counted >= count, "only what was counted is taken back");
        *counted = counted.saturating_sub(count);
        if *used == BlobUse::default() {
            self.used.remove(&database);
        }
    }
}

/// While it lives, no content is removed.
#[derive(Debug)]
pub(crate) struct BlobHold(Arc<Blobs>);

impl BlobHold {
    pub(crate) fn disk(&self) -> &Arc<dyn Disk> {
        &self.0.disk
    }
}

impl Drop for BlobHold {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.holds -= 1;
        if state.holds == 0 {
            let numbers: Vec<u64> = state.doomed.keys().copied().collect();
            self.0.remove_doomed(state, &numbers);
        }
    }
}

impl fmt::Debug for Blobs {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Blobs")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}
