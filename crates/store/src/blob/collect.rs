//! What nobody needs any more: contents of blobs that were replaced or deleted, abandoned uploads, blobs of databases that
//! were dropped.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::blobs::Blobs;
use super::description::{Description, key};
use super::limits;
use super::sealed::{Sealed, Settled};
use super::unfinished::{Over, Unfinished};
use crate::batch::WriteBatch;
use crate::catalogue::DatabaseId;
use crate::operation::{Condition, Mode, Operation};
use crate::outcome::{CommitOutcome, Decision, OperationStatus, Refusal};
use crate::range::{Direction, Range};
use crate::store::Store;
use crate::sweep::SWEEP_TAG;

impl Blobs {
    /// Takes notice of the outcome of a commit on [`DatabaseId::BLOBS`], whoever asked for it: what it has replaced or
    /// removed goes. `sealed` is what it was to describe.
    pub fn settle(self: &Arc<Blobs>, outcome: &CommitOutcome<'_>, sealed: Option<Sealed>) {
        let is_applied = outcome.decision == Decision::Applied;
        for operation in outcome.operations().filter(|_| is_applied) {
            if operation.status == OperationStatus::Done
                && let Some(value) = operation.value
                && let Some(old) = Description::decode(value.bytes())
            {
                let mut state = self.state.lock();
                state.take_back(old.database, 1, |used| &mut used.blobs);
                drop(state);
                self.doom(old.number, old.database, old.size_bytes);
            }
        }
        let Some(sealed) = sealed else { return };
        let is_done = (outcome.first()).is_some_and(|one| one.status == OperationStatus::Done);
        match outcome.decision {
            Decision::Applied if is_done => {
                // Before it is no upload any more: at each moment the database has something.
                let database = sealed.description().database;
                self.state.lock().used.entry(database).or_default().blobs += 1;
                sealed.settle(Settled::Described);
            }
            Decision::Refused(Refusal::OutcomeUnknown) => sealed.settle(Settled::Unknown),
            Decision::Refused(_) => sealed.settle(Settled::Refused),
            _ => sealed.settle(Settled::NotWanted),
        }
    }

    /// Collects what is due, if it is time. Removals of descriptions go into the batch; their outcomes are to be
    /// [settled](Blobs::settle) like others. The calling thread must hold no [`View`](crate::View).
    pub fn collect(self: &Arc<Blobs>, store: &Store, now_ms: u64, batch: &mut WriteBatch) {
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
            return;
        }
        let blobs = Arc::clone(self);
        self.run(Box::new(move || {
            blobs.collect_abandoned(now_ms);
            // What cannot be removed is tried again.
            let _ = blobs.aside.expire(now_ms);
        }));
        self.sweep_dropped(store, batch);
    }

    /// Whether there is nothing that might be collected some day.
    fn is_empty(&self) -> bool {
        let state = self.state.lock();
        state.used.is_empty() && state.uploads.is_empty()
    }

    /// When [`collect`](Blobs::collect) is due, in milliseconds since 1970; `u64::MAX`: there is nothing.
    pub fn collect_due_ms(&self) -> u64 {
        self.collect_due_ms.load(Ordering::Relaxed)
    }

    fn collect_abandoned(self: &Arc<Blobs>, now_ms: u64) {
        let since_ms = now_ms.saturating_sub(self.config.abandoned_ms);
        let uploads: Vec<_> = self.state.lock().unfinished.values().cloned().collect();
        let is_abandoned =
            |upload: &Unfinished| !upload.has_stream() && upload.touched_ms() < since_ms;
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

    /// Removes some descriptions of a database that was dropped.
    fn sweep_dropped(&self, store: &Store, batch: &mut WriteBatch) {
        let databases: Vec<DatabaseId> = self.state.lock().used.keys().copied().collect();
        let dropped = databases
            .into_iter()
            .filter(|&id| store.config(id).is_none());
        for database in dropped {
            let keys = keys_of(store, database, limits::SWEEP_BLOBS);
            if keys.is_empty() {
                continue;
            }
            let mut commit = batch.begin(SWEEP_TAG, DatabaseId::BLOBS, Mode::Independent);
            for key in &keys {
                let pushed = commit.push(&Operation::Delete {
                    key,
                    condition: Condition::None,
                    want_previous: true,
                });
                debug_assert_eq!(pushed, Ok(()), "few short keys fit into a commit");
            }
            commit.submit();
            // There may be more.
            self.collect_due_ms.store(0, Ordering::Relaxed);
            return;
        }
    }
}

/// Keys of some descriptions of a database.
fn keys_of(store: &Store, database: DatabaseId, most: usize) -> Vec<Box<[u8]>> {
    let mut keys = Vec::new();
    let Some(view) = store.view(DatabaseId::BLOBS) else {
        return keys;
    };
    let (prefix, mut buffer) = (key(database, ""), Vec::new());
    let range = Range::prefix(&prefix, &mut buffer);
    let budget = u32::try_from(most).expect("a small number");
    let _ = view.scan(&range, Direction::Forward, 0, budget, &mut |entry| {
        keys.push(entry.key.into());
        ControlFlow::Continue(())
    });
    keys
}
