//! Sweeping: the removal of entries whose time has come.
//!
//! Nobody sees such an entry any more, so nobody waits for it to be swept: it is done for the
//! memory that it takes, and so that the removal stands among the changes of the database. What is
//! to be removed is found in a view and removed by commits like any other, which look again: a key
//! that was written meanwhile stays.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::batch::WriteBatch;
use crate::catalogue::{DatabaseId, Durability};
use crate::limits;
use crate::operation::{Mode, Operation};
use crate::store::{Store, View};

/// The tag of the commits that sweep. Nobody waits for their outcomes.
pub const SWEEP_TAG: u64 = u64::MAX;

/// When to sweep, and where to begin.
#[derive(Debug)]
pub(crate) struct Schedule {
    due_ms: AtomicU64,
    /// Held by the one thread that sweeps.
    rounds: Mutex<CommitLoop>,
}

/// How far the sweeps have come.
#[derive(Debug)]
struct CommitLoop {
    /// The database whose turn it is.
    turn: DatabaseId,
    /// The last entry of each database whose removal is on its way, if more wait behind it: its
    /// expiry and key. In a durable database it stays in view until it is on the device, and must
    /// not be asked for again meanwhile.
    passed: BTreeMap<DatabaseId, Passed>,
}

/// An expiry and a key.
pub(crate) type Passed = (u64, Box<[u8]>);

impl Schedule {
    /// Due at once: a store that was read from files knows nothing yet of what it holds.
    pub(crate) fn new() -> Schedule {
        Schedule {
            due_ms: AtomicU64::new(0),
            rounds: Mutex::new(CommitLoop {
                turn: DatabaseId::DEFAULT,
                passed: BTreeMap::new(),
            }),
        }
    }

    /// An entry that expires at `expires_ms` was stored. Call it under the lock of its database: a
    /// sweep then either sees the entry or leaves this call's mark in place.
    #[inline]
    pub(crate) fn expect(&self, expires_ms: u64) {
        let due_ms = expires_ms.saturating_add(limits::SWEEP_DELAY_MS);
        // A load first: it is rarely the earliest, and a load is shared, a read-modify-write is
        // not.
        if due_ms < self.due_ms.load(Ordering::Relaxed) {
            self.due_ms.fetch_min(due_ms, Ordering::Relaxed);
        }
    }
}

impl Store {
    /// From when on [`Store::sweep`] has something to do, by [`Store::clock_ms`]; `u64::MAX` if no
    /// entry has an expiry.
    #[inline]
    pub fn sweep_due_ms(&self) -> u64 {
        self.schedule().due_ms.load(Ordering::Relaxed)
    }

    /// If it is time, puts commits into `batch` that remove entries which have expired: at most
    /// [`SWEEP_KEYS`](limits::SWEEP_KEYS), and if that is not all, it is soon due again. Returns
    /// how many.
    ///
    /// One thread at a time sweeps; for the others there is nothing to do. The calling thread must
    /// hold no [`View`]. Should the commits come to nothing, the entries are found again some time
    /// later.
    pub fn sweep(&self, now_ms: u64, batch: &mut WriteBatch) -> usize {
        if now_ms < self.sweep_due_ms() {
            return 0;
        }
        let schedule = self.schedule();
        let Some(mut rounds) = schedule.rounds.try_lock() else {
            return 0;
        };
        schedule.due_ms.store(u64::MAX, Ordering::Relaxed);
        let mut sweep = Sweep {
            store: self,
            now_ms,
            batch,
            keys_left: limits::SWEEP_KEYS,
            due_ms: u64::MAX,
        };
        for id in self.database_ids_from(rounds.turn) {
            if !sweep.database(id, &mut rounds.passed) {
                // The others come first the next time.
                rounds.turn = id.next();
                break;
            }
        }
        schedule.due_ms.fetch_min(sweep.due_ms, Ordering::Relaxed);
        limits::SWEEP_KEYS - sweep.keys_left
    }
}

/// One sweep.
struct Sweep<'a> {
    store: &'a Store,
    now_ms: u64,
    batch: &'a mut WriteBatch,
    keys_left: usize,
    /// When the next one is due.
    due_ms: u64,
}

impl Sweep<'_> {
    /// Sweeps one database; returns whether that was all of it.
    fn database(&mut self, id: DatabaseId, passed: &mut BTreeMap<DatabaseId, Passed>) -> bool {
        let (Some(database), Some(view)) = (self.store.find(id), self.store.view(id)) else {
            passed.remove(&id);
            return true;
        };
        let after = passed.remove(&id);
        let keys_before = self.keys_left;
        let last = self.push(id, &view, after.as_ref());
        let behind = last.as_ref().or(after.as_ref());
        if view.expired_after(self.now_ms, behind).next().is_some() {
            // A durable database takes its time: more of this would only wait there.
            let pause_ms = u64::from(database.config.durability != Durability::Volatile);
            self.due_ms = self.due_ms.min(self.now_ms + pause_ms);
            if let Some(behind) = last.or(after) {
                passed.insert(id, behind);
            }
            return false;
        }
        let is_clean = keys_before == self.keys_left && after.is_none();
        let next_ms = match view.next_expiry_ms(self.now_ms) {
            // What is on its way is looked at again, in case it does not arrive.
            _ if !is_clean => self.now_ms,
            Some(expires_ms) => expires_ms,
            None => return true,
        };
        let due_ms = next_ms.saturating_add(limits::SWEEP_DELAY_MS);
        self.due_ms = self.due_ms.min(due_ms);
        true
    }

    /// Puts removals into the batch; returns the last entry of these.
    fn push(&mut self, id: DatabaseId, view: &View<'_>, after: Option<&Passed>) -> Option<Passed> {
        let limits = self.store.limits(id).unwrap_or_default();
        let mut expired = view.expired_after(self.now_ms, after).peekable();
        let mut last = None;
        while self.keys_left > 0 && expired.peek().is_some() {
            let mut commit = self.batch.begin(SWEEP_TAG, id, Mode::Independent);
            let mut pushed = 0;
            while pushed < self.keys_left.min(limits.commit_operations)
                && let Some(&(expires_ms, key)) = expired.peek()
                && commit.push(&Operation::Expire { key }).is_ok()
            {
                expired.next();
                pushed += 1;
                last = Some((expires_ms, key));
            }
            if pushed == 0 {
                debug_assert!(false, "a key that was stored fits into a commit");
                break;
            }
            commit.submit();
            self.keys_left -= pushed;
        }
        last.map(|(expires_ms, key)| (expires_ms, key.into()))
    }
}
