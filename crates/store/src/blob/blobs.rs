//! All blobs of a store, beside their descriptions: unfinished uploads, contents that are read,
//! contents that are to go.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Mutex, RwLock};
use wal::disk::Disk;

use super::error::ContentReadError;
use super::layout::file_name;
use super::limits;
use super::open_content::{ContentBuffers, OpenContents};
use super::permit::BlobPermit;
use super::stream::UploadKey;
use super::unfinished::{IncompleteUpload, Over};
use crate::aside::SetAside;
use crate::database_id::DatabaseId;
use crate::descriptor_budget::DescriptorBudget;

/// The bounds of blobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlobConfig {
    /// Bytes that the blobs of one database may have together, with unfinished uploads and what
    /// waits to be removed.
    pub quota_bytes: u64,
    /// Bytes of the disk that blobs leave free.
    pub free_bytes: u64,
    /// How long an upload that nobody continues is kept, in milliseconds.
    pub abandoned_ms: u64,
    /// Uploads of one database that may be unfinished at a time.
    pub uploads_per_database: usize,
    /// Uploads that may be open at a time: each has a file descriptor.
    pub open_uploads: usize,
    /// Contents that may be open for reading at a time.
    pub open_contents: usize,
    /// Bytes of one database that uploads without a stream may keep, beside the largest of them.
    pub idle_upload_bytes: u64,
    /// Bytes of an upload after which what came is made durable. Tests want few.
    pub sync_bytes: u64,
}

impl Default for BlobConfig {
    fn default() -> BlobConfig {
        BlobConfig {
            quota_bytes: u64::MAX,
            free_bytes: limits::FREE_SEGMENTS * wal::limits::SEGMENT_BYTES,
            abandoned_ms: limits::ABANDONED_MS,
            uploads_per_database: limits::UPLOADS_PER_DATABASE,
            open_uploads: limits::OPEN_UPLOADS,
            open_contents: limits::OPEN_CONTENTS,
            idle_upload_bytes: limits::IDLE_UPLOAD_BYTES,
            sync_bytes: limits::SYNC_BYTES,
        }
    }
}

/// Something to be done where waiting for a disk disturbs nobody.
pub type RunnerJob = Box<dyn FnOnce() + Send>;

/// Something to be done for a call, which may be gone before it is begun.
pub trait CallJob: Send {
    /// Whether nobody waits for it any more, so that it need not be done.
    fn is_forsaken(&self) -> bool;

    /// Does it. A read is given what it may bring, and what that takes of a bound; `None`: nothing
    /// is bounded.
    fn run(self: Box<Self>, grant: Option<(usize, BlobPermit)>);
}

/// Who does jobs.
pub trait BlobRunner: Send + Sync {
    /// Does it now or soon, in any order.
    fn run(&self, job: RunnerJob);

    /// The same for one of many sources, none of which is to hold up the others.
    fn run_for(&self, _source: u64, job: Box<dyn CallJob>) {
        self.run(Box::new(move || job.run(None)));
    }

    /// The same for a read of so many bytes, which may have to wait until what was read before is
    /// out of the way.
    fn run_read(&self, _source: u64, _bytes: usize, read: Box<dyn CallJob>) {
        self.run(Box::new(move || read.run(None)));
    }
}

/// Does each job at once, where it is asked for: for tests and simulations.
#[derive(Clone, Copy, Debug, Default)]
pub struct Inline;

impl BlobRunner for Inline {
    fn run(&self, job: RunnerJob) {
        job();
    }
}

/// An upload that was lost although its sender could have gone on with it, for whoever writes a
/// log.
#[derive(Clone, Debug)]
pub struct LostUpload {
    /// The database.
    pub database: DatabaseId,
    /// The name of the blob that it was to become.
    pub name: Box<str>,
    /// Bytes that were stored.
    pub stored_bytes: u64,
    /// What the disk said.
    pub source: Arc<io::Error>,
}

/// A listener for what an operator should know of blobs. Called on any thread, with no lock held.
pub trait Observer: Send + Sync {
    /// An upload was lost to an error of the disk.
    fn upload_failed(&self, lost: &LostUpload);

    /// So many unfinished uploads were removed since the last report, to make room for others.
    fn uploads_evicted(&self, count: u64);

    /// The content of a blob is damaged or missing. Once for each content, of the first
    /// [`CONTENTS_TOLD`](limits::CONTENTS_TOLD) of them.
    fn content_lost(&self, why: &ContentReadError);
}

/// The blobs of a store with a log.
pub struct BlobStore {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) aside: SetAside,
    pub(super) config: BlobConfig,
    pub(super) state: Mutex<BlobsState>,
    runner: RwLock<Arc<dyn BlobRunner>>,
    pub(super) buffers: Mutex<ContentBuffers>,
    pub(super) upload_descriptors: DescriptorBudget,
    /// Locked after `state`, or without it.
    pub(super) open_contents: Mutex<OpenContents>,
    observer: RwLock<Option<Arc<dyn Observer>>>,
    /// Uploads that were lost to errors of the disk, and to the needs of others, since the start.
    failed_uploads: AtomicU64,
    evicted_uploads: AtomicU64,
    /// Of the latter, those that were reported.
    reported_evicted: AtomicU64,
    /// When to look again for what is to be collected.
    pub(super) collect_due_ms: AtomicU64,
    /// Uploads that streams have at this moment.
    pub(super) streams: AtomicUsize,
    /// Held while uploads are removed to make room: what they had counts until their removal is
    /// durable, and a second caller would remove others for the same room.
    pub(super) making_room: Mutex<()>,
}

#[derive(Default)]
pub(super) struct BlobsState {
    pub(super) next_number: u64,
    /// All uploads that are not complete, by number.
    pub(super) unfinished: BTreeMap<u64, Arc<IncompleteUpload>>,
    /// Those that can be resumed.
    pub(super) uploads: HashMap<UploadKey, Arc<IncompleteUpload>>,
    /// What each database has.
    pub(super) used: BTreeMap<DatabaseId, BlobUse>,
    /// How many read each content that is read.
    pub(super) readers: HashMap<u64, u32>,
    /// Contents that go when nobody needs them any more.
    pub(super) orphans: BTreeMap<u64, Orphan>,
    /// Backups that need all contents that were described since they began.
    pub(super) holds: u32,
    /// Contents of which the observer knows that they cannot be read.
    told: HashSet<u64>,
}

/// An upload that has ended without a description, and whose file is to be removed.
#[derive(Clone, Copy, Debug)]
pub(super) struct EndedUpload {
    pub(super) number: u64,
    pub(super) database: DatabaseId,
    /// Bytes that it has booked.
    pub(super) bytes: u64,
    /// A start that finds the file resumes the upload.
    pub(super) is_resumable: bool,
}

/// A content without a description.
#[derive(Clone, Copy, Debug)]
pub(super) struct Orphan {
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
    /// Uploads that were lost to errors of the disk since the start.
    pub failed_uploads: u64,
    /// Uploads that were removed since the start to make room for others.
    pub evicted_uploads: u64,
}

impl BlobStore {
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        aside: SetAside,
        config: BlobConfig,
        state: BlobsState,
    ) -> Arc<BlobStore> {
        Arc::new(BlobStore {
            disk,
            aside,
            upload_descriptors: DescriptorBudget::new(config.open_uploads),
            open_contents: Mutex::new(OpenContents::new(config.open_contents)),
            config,
            state: Mutex::new(state),
            runner: RwLock::new(Arc::new(Inline)),
            buffers: Mutex::default(),
            observer: RwLock::new(None),
            failed_uploads: AtomicU64::new(0),
            evicted_uploads: AtomicU64::new(0),
            reported_evicted: AtomicU64::new(0),
            collect_due_ms: AtomicU64::new(0),
            streams: AtomicUsize::new(0),
            making_room: Mutex::new(()),
        })
    }

    /// Who does what touches files from now on.
    pub fn set_runner(&self, runner: Arc<dyn BlobRunner>) {
        *self.runner.write() = runner;
    }

    /// Sets what is told from now on what an operator should know.
    pub fn set_observer(&self, observer: Arc<dyn Observer>) {
        *self.observer.write() = Some(observer);
    }

    /// Has something done.
    pub fn run(&self, job: RunnerJob) {
        self.runner().run(job);
    }

    /// Who does what touches files.
    pub fn runner(&self) -> Arc<dyn BlobRunner> {
        self.runner.read().clone()
    }

    /// Figures.
    pub fn statistics(&self) -> BlobStatistics {
        BlobStatistics {
            used: self.state.lock().used_in_all(),
            quota_bytes: self.config.quota_bytes,
            failed_uploads: self.failed_uploads.load(Ordering::Relaxed),
            evicted_uploads: self.evicted_uploads.load(Ordering::Relaxed),
        }
    }

    /// What a database has.
    pub fn used(&self, database: DatabaseId) -> BlobUse {
        self.state.lock().used(database)
    }

    /// Releases room that was booked.
    /// The folder of contents.
    pub(crate) fn folder(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    pub(super) fn unbook(&self, database: DatabaseId, bytes: u64) {
        self.state.lock().unbook(database, bytes);
    }

    /// A content has no description any more, or never got one: it goes when nobody reads it.
    pub(super) fn orphan(self: &Arc<BlobStore>, number: u64, database: DatabaseId, bytes: u64) {
        let mut state = self.state.lock();
        state.orphans.insert(number, Orphan { database, bytes });
        self.remove_orphans(state, &[number]);
    }

    /// Removes the contents of uploads that have ended and were never described, and releases
    /// their room. Returns whether all of it is free. Waits for the disk.
    ///
    /// A start resumes each upload whose file it finds. So the room of one that can be resumed is
    /// free only when the removal is durable: after a loss of power the file would be there beside
    /// what took its room, and both together would exceed the quota.
    pub(super) fn remove_ended(&self, ended: &[EndedUpload]) -> bool {
        let removed: Vec<&EndedUpload> = ended
            .iter()
            .filter(|one| self.remove_content(one.number))
            .collect();
        let must_sync = removed.iter().any(|one| one.is_resumable);
        let is_durable = !must_sync || self.disk.sync_folder().is_ok();
        let mut state = self.state.lock();
        let mut released = 0;
        for one in removed {
            if is_durable || !one.is_resumable {
                state.unbook(one.database, one.bytes);
                released += 1;
            }
        }
        released == ended.len()
    }

    /// Removes the file of a content; returns whether it is gone. One that cannot be removed is
    /// found at the next start, and counts until then.
    fn remove_content(&self, number: u64) -> bool {
        match self.disk.remove(&file_name(number)) {
            Ok(()) => true,
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        }
    }

    /// Reports a content that cannot be read, the first time.
    pub(super) fn report_unreadable(&self, number: u64, why: &ContentReadError) {
        let is_new = {
            let told = &mut self.state.lock().told;
            told.len() < limits::CONTENTS_TOLD && told.insert(number)
        };
        let observer = self.observer.read().clone();
        if let Some(observer) = observer.filter(|_| is_new) {
            observer.content_lost(why);
        }
    }

    /// Counts and reports an upload that its sender could have gone on with.
    pub(super) fn note_lost(&self, unfinished: &IncompleteUpload, over: &Over) {
        match over {
            Over::Failed(source) => {
                self.failed_uploads.fetch_add(1, Ordering::Relaxed);
                let observer = self.observer.read().clone();
                if let Some(observer) = observer {
                    observer.upload_failed(&LostUpload {
                        database: unfinished.database,
                        name: unfinished.name.clone(),
                        stored_bytes: unfinished.stored_bytes(),
                        source: Arc::clone(source),
                    });
                }
            }
            Over::Evicted => {
                self.evicted_uploads.fetch_add(1, Ordering::Relaxed);
            }
            _ => {}
        }
    }

    /// Reports how many uploads were removed to make room, if there were any since the last report.
    pub(super) fn report_evicted(&self) {
        let evicted = self.evicted_uploads.load(Ordering::Relaxed);
        let reported = self.reported_evicted.swap(evicted, Ordering::Relaxed);
        let observer = self.observer.read().clone();
        if evicted > reported
            && let Some(observer) = observer
        {
            observer.uploads_evicted(evicted - reported);
        }
    }

    /// Has those of the orphans removed that nobody needs.
    pub(super) fn remove_orphans(
        self: &Arc<BlobStore>,
        mut state: parking_lot::MutexGuard<'_, BlobsState>,
        numbers: &[u64],
    ) {
        let mut gone = Vec::new();
        for &number in numbers {
            if state.holds == 0 && !state.readers.contains_key(&number) {
                gone.extend(
                    state
                        .orphans
                        .remove(&number)
                        .map(|orphans| (number, orphans)),
                );
            }
        }
        drop(state);
        for (number, orphans) in gone {
            let blobs = Arc::clone(self);
            self.run(Box::new(move || {
                // Need not be durable: for a start, a complete content without a description
                // is none.
                if blobs.remove_content(number) {
                    blobs.unbook(orphans.database, orphans.bytes);
                }
            }));
        }
    }

    /// Keeps every content that is described now or was since, until the hold is dropped.
    pub(crate) fn hold(self: &Arc<BlobStore>) -> BlobHold {
        self.state.lock().holds += 1;
        BlobHold(Arc::clone(self))
    }
}

impl BlobsState {
    fn used_in_all(&self) -> BlobUse {
        let mut all = BlobUse::default();
        for used in self.used.values() {
            all.blobs += used.blobs;
            all.unfinished += used.unfinished;
            all.bytes += used.bytes;
        }
        all
    }

    pub(super) fn used(&self, database: DatabaseId) -> BlobUse {
        self.used.get(&database).copied().unwrap_or_default()
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
pub(crate) struct BlobHold(Arc<BlobStore>);

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
            let numbers: Vec<u64> = state.orphans.keys().copied().collect();
            self.0.remove_orphans(state, &numbers);
        }
    }
}

impl fmt::Debug for BlobStore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Blobs")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}
