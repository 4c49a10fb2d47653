//! When the sweeps of expired entries are due, and how far they have come.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};

use crate::database_id::DatabaseId;
use crate::limits;
use crate::memory::PassedExpiry;

/// When to sweep databases in memory, and where to begin.
#[derive(Debug)]
pub(crate) struct SweepSchedule {
    due_ms: AtomicU64,
    /// Held by the one thread that sweeps.
    rounds: Mutex<SweepRounds>,
}

/// How far the sweeps of databases in memory have come.
#[derive(Debug)]
pub(crate) struct SweepRounds {
    /// The database whose turn it is.
    turn: DatabaseId,
    /// The last entry of each database whose removal is on its way, if more wait behind it. In a
    /// durable database it stays in view until it is on the device, and must not be asked for again
    /// meanwhile.
    passed: BTreeMap<DatabaseId, PassedExpiry>,
}

impl SweepSchedule {
    /// Due at once: a store that was read from files knows nothing yet of what it holds.
    pub(crate) fn new() -> SweepSchedule {
        SweepSchedule {
            due_ms: AtomicU64::new(0),
            rounds: Mutex::new(SweepRounds {
                turn: DatabaseId::DEFAULT,
                passed: BTreeMap::new(),
            }),
        }
    }

    /// An entry that expires at `expires_ms` was stored. Call it under the lock of its database: a
    /// sweep then either sees the entry or leaves this call's mark in place.
    #[inline]
    pub(crate) fn expect(&self, expires_ms: u64) {
        self.begin_by(expires_ms.saturating_add(limits::SWEEP_DELAY_MS));
    }

    /// Makes the next sweep due at this time, unless it is due before.
    #[inline]
    pub(crate) fn begin_by(&self, due_ms: u64) {
        // A load first: it is rarely the earliest, and a load is shared, a read-modify-write is
        // not.
        if due_ms < self.due_ms.load(Ordering::Relaxed) {
            self.due_ms.fetch_min(due_ms, Ordering::Relaxed);
        }
    }

    /// Returns when the next sweep is due; `u64::MAX`: never.
    #[inline]
    pub(crate) fn due_ms(&self) -> u64 {
        self.due_ms.load(Ordering::Relaxed)
    }

    /// Begins a sweep: from now on none is due, until somebody says so. `None`: another thread
    /// sweeps.
    pub(crate) fn try_begin(&self) -> Option<MutexGuard<'_, SweepRounds>> {
        let rounds = self.rounds.try_lock()?;
        self.due_ms.store(u64::MAX, Ordering::Relaxed);
        Some(rounds)
    }
}

impl SweepRounds {
    /// Returns the database whose turn it is.
    pub(crate) fn turn(&self) -> DatabaseId {
        self.turn
    }

    /// Sets whose turn is next.
    pub(crate) fn set_turn(&mut self, id: DatabaseId) {
        self.turn = id;
    }

    /// Takes out the last entry of a database whose removal is on its way.
    pub(crate) fn take_passed(&mut self, id: DatabaseId) -> Option<PassedExpiry> {
        self.passed.remove(&id)
    }

    /// Sets the last entry of a database whose removal is on its way.
    pub(crate) fn set_passed(&mut self, id: DatabaseId, passed: PassedExpiry) {
        self.passed.insert(id, passed);
    }
}

/// When to walk databases on disk on, and where.
#[derive(Debug)]
pub(crate) struct TreeSweepSchedule {
    due_ms: AtomicU64,
    /// Held by the one who walks.
    progress: Mutex<TreeSweepProgress>,
}

/// How far the walk through databases on disk has come.
#[derive(Debug)]
pub(crate) struct TreeSweepProgress {
    database: DatabaseId,
    /// The key that it has passed there; `None`: it has not begun with the database.
    passed: Option<Box<[u8]>>,
}

impl TreeSweepSchedule {
    /// Due at once, if there can be databases on disk: what was opened may have anything in it.
    pub(crate) fn new(has_trees: bool) -> TreeSweepSchedule {
        TreeSweepSchedule {
            due_ms: AtomicU64::new(if has_trees { 0 } else { u64::MAX }),
            progress: Mutex::new(TreeSweepProgress {
                database: DatabaseId::DEFAULT,
                passed: None,
            }),
        }
    }

    /// Returns when the next slice is due; `u64::MAX`: never, or somebody is at it.
    #[inline]
    pub(crate) fn due_ms(&self) -> u64 {
        self.due_ms.load(Ordering::Relaxed)
    }

    /// Sets when the next slice is due.
    pub(crate) fn set_due_ms(&self, due_ms: u64) {
        self.due_ms.store(due_ms, Ordering::Relaxed);
    }

    /// Takes the next slice, if it is due: until its time is set again, it is due for nobody else.
    pub(crate) fn try_begin(&self, now_ms: u64) -> bool {
        let due_ms = self.due_ms();
        let (taken, order) = (u64::MAX, Ordering::Relaxed);
        now_ms >= due_ms
            && self
                .due_ms
                .compare_exchange(due_ms, taken, order, order)
                .is_ok()
    }

    /// Returns how far the walk has come, and keeps others from walking.
    pub(crate) fn lock(&self) -> MutexGuard<'_, TreeSweepProgress> {
        self.progress.lock()
    }
}

impl TreeSweepProgress {
    /// Returns the database that is walked.
    pub(crate) fn database(&self) -> DatabaseId {
        self.database
    }

    /// Goes to the beginning of a database.
    pub(crate) fn go_to(&mut self, database: DatabaseId) {
        (self.database, self.passed) = (database, None);
    }

    /// Returns the key that the walk has passed in its database; `None`: it has not begun with it.
    pub(crate) fn passed(&self) -> Option<&[u8]> {
        self.passed.as_deref()
    }

    /// Sets the key that the walk has passed.
    pub(crate) fn pass(&mut self, key: Box<[u8]>) {
        self.passed = Some(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_is_due_at_the_earliest_expiry_and_after_it_began_only_anew() {
        let schedule = SweepSchedule::new();
        assert_eq!(schedule.due_ms(), 0);
        for _ in 0..2 {
            let rounds = schedule.try_begin().expect("nobody sweeps");
            assert!(schedule.try_begin().is_none());
            drop(rounds);
            assert_eq!(schedule.due_ms(), u64::MAX);
            schedule.expect(20);
            schedule.expect(10);
            schedule.expect(30);
            assert_eq!(schedule.due_ms(), 10 + limits::SWEEP_DELAY_MS);
            schedule.expect(u64::MAX);
        }
    }

    #[test]
    fn a_slice_is_taken_by_one_until_its_time_is_set_again() {
        let schedule = TreeSweepSchedule::new(true);
        for now_ms in [5, 7] {
            assert!(schedule.try_begin(now_ms));
            assert!(!schedule.try_begin(now_ms));
            schedule.set_due_ms(now_ms + 1);
            assert!(!schedule.try_begin(now_ms));
        }
        assert!(!TreeSweepSchedule::new(false).try_begin(u64::MAX - 1));
    }

    #[test]
    fn a_walk_begins_each_database_at_its_beginning() {
        let schedule = TreeSweepSchedule::new(true);
        let mut progress = schedule.lock();
        assert_eq!(progress.database(), DatabaseId::DEFAULT);
        progress.pass((*b"key").into());
        assert_eq!(progress.passed(), Some(&b"key"[..]));
        progress.go_to(DatabaseId::DEFAULT.next());
        assert_eq!(progress.passed(), None);
    }
}
