//! What nobody needs any more: contents of blobs that were replaced or deleted, abandoned uploads.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::blobs::BlobStore;
use super::description::Description;
use super::limits;
use super::sealed::{Sealed, Settled};
use super::unfinished::{IncompleteUpload, Over};
use crate::database_id::DatabaseId;

impl BlobStore {
    /// A description was replaced or removed: its content goes.
    pub(crate) fn remove_described(self: &Arc<BlobStore>, old: &Description) {
        let mut state = self.state.lock();
        state.take_back(old.database, 1, |used| &mut used.blobs);
        drop(state);
        self.orphan(old.number, old.database, old.size_bytes);
    }

    /// A description is there: its upload has become a blob.
    pub(crate) fn settle_described(&self, sealed: Sealed) {
        // Before it is no upload any more: at each moment the database has something.
        let database = sealed.description().database;
        self.state.lock().used.entry(database).or_default().blobs += 1;
        sealed.settle(Settled::Described);
    }

    /// A description was followed whose content is there: it is a blob.
    pub(crate) fn note_described(&self, new: &Description<'_>) {
        let mut state = self.state.lock();
        state.next_number = state.next_number.max(new.number.saturating_add(1));
        let used = state.used.entry(new.database).or_default();
        used.blobs += 1;
        used.bytes += new.size_bytes;
    }

    /// Returns whether it is time to collect, and sets the next time.
    pub(crate) fn begin_collection(&self, now_ms: u64) -> bool {
        let due_ms = self.collect_due_ms.load(Ordering::Relaxed);
        let next_ms = match self.is_empty() {
            true if self.aside.due_ms() == u64::MAX => u64::MAX,
            true => self.aside.due_ms().max(now_ms + limits::COLLECT_MS),
            false => now_ms + limits::COLLECT_MS,
        };
        let exchanged = |from| {
            let order = Ordering::Relaxed;
            (self
                .collect_due_ms
                .compare_exchange(from, next_ms, order, order))
            .is_ok()
        };
        if now_ms < due_ms || !exchanged(due_ms) {
            return false;
        }
        // An upload that was added since it was looked whether there is something may have asked
        // for a collection before.
        if !self.is_empty() {
            self.collect_within(now_ms);
        }
        true
    }

    /// Collects uploads and files whose time is over, and uploads to databases that were dropped.
    pub(crate) fn collect_expired(self: &Arc<BlobStore>, now_ms: u64, dropped: Vec<DatabaseId>) {
        let blobs = Arc::clone(self);
        self.run(Box::new(move || {
            blobs.collect_abandoned(now_ms, &dropped);
            // What cannot be removed is tried again.
            let _ = blobs.aside.expire(now_ms);
        }));
    }

    /// A database was dropped: what it has here is looked for at once, so that a stop soon after
    /// leaves nothing of it.
    pub(crate) fn database_dropped(&self, database: DatabaseId) {
        let has_any = self.state.lock().used.contains_key(&database);
        if has_any {
            self.collect_at_once();
        }
    }

    /// Makes the next collection due at once.
    pub(crate) fn collect_at_once(&self) {
        self.collect_due_ms.store(0, Ordering::Relaxed);
    }

    /// Returns the databases that have something here, be they dropped or not.
    pub(crate) fn databases(&self) -> Vec<DatabaseId> {
        self.state.lock().used.keys().copied().collect()
    }

    /// Has what is there looked through in time. To be called behind what adds something:
    /// [`begin_collection`](Blobs::begin_collection) looks behind its change of the time whether
    /// there is something.
    pub(super) fn collect_within(&self, now_ms: u64) {
        let due_ms = now_ms + limits::COLLECT_MS;
        self.collect_due_ms.fetch_min(due_ms, Ordering::Relaxed);
    }

    /// Whether there is nothing that might be collected some day.
    fn is_empty(&self) -> bool {
        let state = self.state.lock();
        state.used.is_empty() && state.uploads.is_empty()
    }

    /// When [`collect`](Blobs::collect) is due, in milliseconds since 1970; `u64::MAX`: there is
    /// nothing.
    pub fn collect_due_ms(&self) -> u64 {
        self.collect_due_ms.load(Ordering::Relaxed)
    }

    fn collect_abandoned(self: &Arc<BlobStore>, now_ms: u64, dropped: &[DatabaseId]) {
        let since_ms = now_ms.saturating_sub(self.config.abandoned_ms);
        let uploads: Vec<_> = self.state.lock().unfinished.values().cloned().collect();
        let is_over = |upload: &IncompleteUpload| {
            upload.touched_ms() < since_ms || dropped.contains(&upload.database)
        };
        let is_abandoned = |upload: &IncompleteUpload| !upload.has_stream() && is_over(upload);
        let mut ended = Vec::new();
        for upload in uploads.iter().filter(|upload| is_abandoned(upload)) {
            // Looked at once more: a stream may have taken it since. Locked: one works with it.
            if let Some(progress) = upload.progress.try_lock()
                && is_abandoned(upload)
                && !progress.is_sealed
            {
                ended.extend(self.end_and_keep(upload, progress, Over::Gone));
            }
        }
        self.remove_ended(&ended);
        self.report_evicted();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::blob::{Begin, Owner, UploadError};
    use crate::durable::Opened;
    use crate::store::{Store, StoreConfig};
    use wal::{LogConfig, LogId};

    struct Caller;

    impl Owner for Caller {
        fn lost(&self, _why: UploadError) {}
    }

    /// An upload that begins while it is looked whether there is something to collect is looked
    /// through some day.
    #[test]
    fn an_upload_that_begins_meanwhile_is_collected_in_time() {
        let mut config = StoreConfig::new(1);
        config.blobs.free_bytes = 0;
        let id = LogId {
            history: 1,
            secret: 2,
        };
        let disk = Arc::new(testkit::simulated_disk(1));
        let opened = Store::open(config, disk, &LogConfig::new(id, 1));
        let Opened { store, .. } = opened.expect("an empty disk can be used");
        let blobs = store.blobs().expect("there is a log");
        for round in 0..4_000_u64 {
            let now_ms = round * 10 * limits::COLLECT_MS;
            let begin = Begin {
                database: DatabaseId::DEFAULT,
                name: "name".into(),
                upload_id: (*b"id").into(),
                offset: 0,
                size_bytes: None,
                content_type: "".into(),
                now_ms,
            };
            // Something is due, as behind an upload that has ended.
            blobs.collect_due_ms.store(now_ms, Ordering::Relaxed);
            let (is_there, goes) = (AtomicBool::new(false), AtomicBool::new(false));
            let upload = std::thread::scope(|scope| {
                scope.spawn(|| {
                    is_there.store(true, Ordering::Release);
                    while !goes.load(Ordering::Acquire) {
                        std::hint::spin_loop();
                    }
                    // Now here, now there in what the other one does.
                    for _ in 0..round % 500 * 4 {
                        std::hint::spin_loop();
                    }
                    blobs.collect(&store, now_ms, &mut store.write_batch());
                });
                while !is_there.load(Ordering::Acquire) {
                    std::hint::spin_loop();
                }
                goes.store(true, Ordering::Release);
                blobs.begin_upload(&begin, Arc::new(Caller))
            });
            drop(upload.expect("there is a place"));
            let due_ms = blobs.collect_due_ms();
            assert!(due_ms <= now_ms + limits::COLLECT_MS, "{round}: {due_ms}");
            assert_eq!(blobs.discard_uploads(DatabaseId::DEFAULT, "name", b"id"), 1);
        }
    }
}
