//! The hidden index of blobs: what its commits mean for contents, and the removal of descriptions
//! that no database has any more.

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::batch::WriteBatch;
use crate::blob::limits::SWEEP_BLOBS;
use crate::blob::{BlobOpening, BlobStore, Description, Sealed, Settled, key};
use crate::database_id::DatabaseId;
use crate::operation::{Condition, Mode, Operation};
use crate::outcome::{CommitOutcome, Decision, OperationStatus, Refusal};
use crate::range::{Direction, Range};
use crate::store::Store;
use crate::sweep::SWEEP_TAG;

impl BlobStore {
    /// Takes notice of the outcome of a commit on [`DatabaseId::BLOBS`], whoever asked for it: what
    /// it has replaced or removed goes. `sealed` is what it was to describe.
    pub fn settle(self: &Arc<BlobStore>, outcome: &CommitOutcome<'_>, sealed: Option<Sealed>) {
        let is_applied = outcome.decision == Decision::Applied;
        for operation in outcome.operations().filter(|_| is_applied) {
            if operation.status == OperationStatus::Done
                && let Some(value) = operation.value
                && let Some(old) = Description::decode(value.bytes())
            {
                self.remove_described(&old);
            }
        }
        let Some(sealed) = sealed else { return };
        let is_done = (outcome.first()).is_some_and(|one| one.status == OperationStatus::Done);
        match outcome.decision {
            Decision::Applied if is_done => self.settle_described(sealed),
            Decision::Refused(Refusal::OutcomeUnknown | Refusal::NotAcknowledged) => {
                sealed.settle(Settled::Unknown)
            }
            Decision::Refused(_) => sealed.settle(Settled::Refused),
            _ => sealed.settle(Settled::NotWanted),
        }
    }

    /// Collects what is due, if it is time. Removals of descriptions go into the batch; their
    /// outcomes are to be [settled](Blobs::settle) like others. The calling thread must hold no
    /// [`View`](crate::View).
    pub fn collect(self: &Arc<BlobStore>, store: &Store, now_ms: u64, batch: &mut WriteBatch) {
        if !self.begin_collection(now_ms) {
            return;
        }
        let mut dropped = self.databases();
        dropped.retain(|&id| store.config(id).is_none());
        // What a leader removes of it, its log says.
        if !store.follows() {
            self.sweep_dropped(store, &dropped, batch);
        }
        self.collect_expired(now_ms, dropped);
    }

    /// Removes some descriptions of a database that was dropped.
    fn sweep_dropped(&self, store: &Store, dropped: &[DatabaseId], batch: &mut WriteBatch) {
        for &database in dropped {
            let keys = keys_of(store, database, SWEEP_BLOBS);
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
            self.collect_at_once();
            return;
        }
    }
}

/// Returns keys of some descriptions of a database.
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

/// Begins the start of blobs with all descriptions of a store whose log was read.
pub(crate) fn read_descriptions(store: &Store) -> BlobOpening {
    let mut opening = BlobOpening::default();
    let view = store.view(DatabaseId::BLOBS);
    let view = view.expect("a store with a log has this index");
    let _ = view.scan(&Range::ALL, Direction::Forward, 0, u32::MAX, &mut |entry| {
        opening.note_description(entry.key, entry.value.bytes());
        ControlFlow::Continue(())
    });
    opening
}
