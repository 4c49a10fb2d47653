//! Sweeping: the removal of entries whose time has come.
//!
//! Nobody sees such an entry any more, so nobody waits for it to be swept: it is done for the memory that it takes,
//! and so that the removal stands among the changes of the database. What is to be removed is found in a view and
//! removed by commits like any other, which look again: a key that was written meanwhile stays.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::batch::WriteBatch;
use crate::catalogue::DatabaseId;
use crate::limits;
use crate::operation::{Mode, Operation};
use crate::store::{Store, View};

/// The tag of the commits that sweep. Nobody waits for their outcomes.
pub const SWEEP_TAG: u64 = u64::MAX;

/// When to sweep, and where to begin.
#[derive(Debug)]
pub(crate) struct Schedule {
    due_ms: AtomicU64,
    /// The database whose turn it is. Held by the one thread that sweeps.
    turn: Mutex<DatabaseId>,
}

impl Schedule {
    /// Due at once: a store that was read from files knows nothing yet of what it holds.
    pub(crate) fn new() -> Schedule {
        Schedule {
            due_ms: AtomicU64::new(0),
            turn: Mutex::new(DatabaseId::DEFAULT),
        }
    }

    /// An entry that expires at `expires_ms` was stored. Call it under the lock of its database: a sweep then either
    /// sees the entry or leaves this call's mark in place.
    #[inline]
    pub(crate) fn expect(&self, expires_ms: u64) {
        let due_ms = expires_ms.saturating_add(limits::SWEEP_DELAY_MS);
        // A load first: it is rarely the earliest, and a load is shared, a read-modify-write is not.
        if due_ms < self.due_ms.load(Ordering::Relaxed) {
            self.due_ms.fetch_min(due_ms, Ordering::Relaxed);
        }
    }
}

impl Store {
    /// From when on [`Store::sweep`] has something to do, by [`Store::clock_ms`]; `u64::MAX` if no entry has an expiry.
    #[inline]
    pub fn sweep_due_ms(&self) -> u64 {
        self.schedule().due_ms.load(Ordering::Relaxed)
    }

    /// If it is time, puts commits into `batch` that remove entries which have expired: at most
    /// [`SWEEP_KEYS`](limits::SWEEP_KEYS), and if that is not all, it is due again at once. Answers how many.
    ///
    /// One thread at a time sweeps; for the others there is nothing to do. The calling thread must hold no [`View`],
    /// and must run the batch soon: until then the same entries are found again.
    pub fn sweep(&self, now_ms: u64, batch: &mut WriteBatch) -> usize {
        if now_ms < self.sweep_due_ms() {
            return 0;
        }
        let schedule = self.schedule();
        let Some(mut turn) = schedule.turn.try_lock() else {
            return 0;
        };
        schedule.due_ms.store(u64::MAX, Ordering::Relaxed);
        let mut keys_left = limits::SWEEP_KEYS;
        let mut due_ms = u64::MAX;
        for id in self.database_ids_from(*turn) {
            let Some(view) = self.view(id) else { continue };
            let (swept, is_all) = sweep_database(self, id, &view, now_ms, keys_left, batch);
            keys_left -= swept;
            if !is_all {
                // The others come first the next time.
                *turn = id.next();
                due_ms = now_ms;
                break;
            }
            if let Some(expires_ms) = view.next_expiry_ms(now_ms) {
                due_ms = due_ms.min(expires_ms.saturating_add(limits::SWEEP_DELAY_MS));
            }
        }
        schedule.due_ms.fetch_min(due_ms, Ordering::Relaxed);
        limits::SWEEP_KEYS - keys_left
    }
}

/// Puts at most `keys_max` removals into the batch; answers how many, and whether these were all.
fn sweep_database(
    store: &Store,
    id: DatabaseId,
    view: &View<'_>,
    now_ms: u64,
    keys_max: usize,
    batch: &mut WriteBatch,
) -> (usize, bool) {
    let mut expired = view.expired(now_ms).peekable();
    let commit_keys = store
        .limits(id)
        .unwrap_or_default()
        .commit_operations
        .max(1);
    let mut swept = 0;
    while swept < keys_max && expired.peek().is_some() {
        let mut commit = batch.begin(SWEEP_TAG, id, Mode::Independent);
        let mut pushed = 0;
        while pushed < commit_keys.min(keys_max - swept)
            && let Some(&key) = expired.peek()
            && commit.push(&Operation::Expire { key }).is_ok()
        {
            expired.next();
            pushed += 1;
        }
        if pushed == 0 {
            debug_assert!(false, "a key that was stored fits into a commit");
            return (swept, true);
        }
        commit.submit();
        swept += pushed;
    }
    (swept, expired.peek().is_none())
}
