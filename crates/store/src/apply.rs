//! Applies what was decided to databases in memory. The committer of volatile databases and the
//! publisher of durable ones change an index by this alone.
//!
//! # Readers first
//!
//! A writer keeps readers out for at most one slice ([`SLICE_NS`](limits::SLICE_NS)), or for one
//! commit if that takes longer; between slices the lock is handed to those who wait, fairly.

use bytes::Bytes;
use parking_lot::RwLockWriteGuard;

use crate::catalogue::State;
use crate::clock::Clock;
use crate::feed::Recording;
use crate::garbage::Garbage;
use crate::limits;
use crate::memory::MemoryIndex;
use crate::store::Store;
use crate::value::Entry;

/// Changes databases in memory, and keeps what is to be freed later.
#[derive(Debug)]
pub(crate) struct Applier {
    store: Store,
    /// Large values that were overwritten: freed when the lock is not held.
    old_values: Vec<Bytes>,
    garbage: Garbage,
    /// The first expiry of what the commit has stored.
    first_expiry_ms: u64,
    /// How many slices have ended since their time was up.
    slices: u64,
}

/// What a commit does to one key.
pub(crate) struct KeyChange<'a> {
    pub(crate) hash: u64,
    pub(crate) key: &'a [u8],
    /// Its entry now; `None`: it is removed.
    pub(crate) entry: Option<&'a Entry<'a>>,
    /// It is removed because its time had come.
    pub(crate) is_expiry: bool,
}

/// The time for which the lock of a database is held.
#[derive(Debug)]
pub(crate) struct Slice {
    start_ns: u64,
    work: usize,
}

impl Slice {
    /// Begins with the lock.
    pub(crate) fn begin(clock: &mut dyn Clock) -> Slice {
        Slice {
            start_ns: clock.now_ns(),
            work: 0,
        }
    }
}

impl Applier {
    /// Nothing is to be freed.
    pub(crate) fn new(store: &Store) -> Applier {
        Applier {
            store: store.clone(),
            old_values: Vec::new(),
            garbage: Garbage::default(),
            first_expiry_ms: u64::MAX,
            slices: 0,
        }
    }

    /// Puts the entry of a key into an index, or removes what is there, and records that for those
    /// who watch. [`Applier::end_commit`] follows.
    #[inline]
    pub(crate) fn change(
        &mut self,
        index: &mut MemoryIndex,
        change: &KeyChange<'_>,
        recording: &mut Recording<'_>,
    ) {
        let KeyChange {
            hash,
            key,
            entry,
            is_expiry,
        } = *change;
        let previous = match recording.wants_previous() {
            true => index.find(key, hash),
            false => None,
        };
        recording.change(key, entry, is_expiry, previous);
        let old_value = match entry {
            Some(entry) => {
                if entry.expires_ms != 0 {
                    self.first_expiry_ms = self.first_expiry_ms.min(entry.expires_ms);
                }
                index.put(hash, entry)
            }
            None => index.remove(key, hash),
        };
        self.old_values.extend(old_value);
    }

    /// Empties an index, and records that.
    pub(crate) fn clear(&mut self, index: &mut MemoryIndex, recording: &mut Recording<'_>) {
        recording.clear();
        if index.len() > 0 {
            self.garbage.add(index.take());
        }
    }

    /// A commit is applied, by which the database has grown: readers see it.
    #[inline]
    pub(crate) fn end_commit(&mut self, state: &mut State, growth_bytes: i64, sequence: u64) {
        if self.first_expiry_ms != u64::MAX {
            self.store.sweep_schedule().expect(self.first_expiry_ms);
            self.first_expiry_ms = u64::MAX;
        }
        let memory_bytes = state.memory_bytes.wrapping_add_signed(growth_bytes);
        self.store.change_memory(state.memory_bytes, memory_bytes);
        state.memory_bytes = memory_bytes;
        state.sequence = sequence;
    }

    /// Hands the lock to those who wait for it if the time of the slice is over, after so much more
    /// work.
    #[inline]
    pub(crate) fn end_slice(
        &mut self,
        slice: &mut Slice,
        work: usize,
        state: &mut RwLockWriteGuard<'_, State>,
        clock: &mut dyn Clock,
    ) {
        slice.work += work;
        if slice.work < limits::SLICE_WORK {
            return;
        }
        slice.work = 0;
        let now_ns = clock.now_ns();
        if now_ns.saturating_sub(slice.start_ns) >= limits::SLICE_NS {
            RwLockWriteGuard::unlocked_fair(state, || self.old_values.clear());
            self.slices += 1;
            slice.start_ns = clock.now_ns();
        }
    }

    /// Frees large values that were overwritten. Call it without a lock.
    pub(crate) fn free_old_values(&mut self) {
        self.old_values.clear();
    }

    /// What is to be freed by somebody who may pause.
    pub(crate) fn garbage(&mut self) -> &mut Garbage {
        &mut self.garbage
    }

    /// How many slices have ended so far because their time was up, and the lock was offered to
    /// others.
    pub(crate) fn slices(&self) -> u64 {
        self.slices
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database_id::DatabaseId;
    use crate::store::StoreConfig;
    use crate::value::Value;

    /// A clock that goes on by so much each time it is read.
    struct Steps {
        now_ns: u64,
        step_ns: u64,
    }

    impl Clock for Steps {
        fn now_ns(&mut self) -> u64 {
            self.now_ns += self.step_ns;
            self.now_ns
        }

        fn now_ms(&mut self) -> u64 {
            1
        }
    }

    fn store() -> Store {
        Store::in_memory(StoreConfig::new(1)).expect("the defaults are well")
    }

    fn entry(value: &[u8]) -> Entry<'_> {
        Entry {
            key: b"key",
            value: Value::Inline(value),
            version: 1,
            expires_ms: 5,
        }
    }

    fn put(applier: &mut Applier, index: &mut MemoryIndex, entry: &Entry<'_>) {
        let change = KeyChange {
            hash: index.hash(entry.key),
            key: entry.key,
            entry: Some(entry),
            is_expiry: false,
        };
        applier.change(index, &change, &mut Recording::default());
    }

    #[test]
    fn a_commit_is_booked_and_its_first_expiry_is_awaited() {
        let store = store();
        let mut applier = Applier::new(&store);
        let database = store.find(DatabaseId::DEFAULT).expect("it always exists");
        drop(store.sweep_schedule().try_begin());
        let mut state = database.state.write();
        for sequence in [3, 4] {
            let entry = entry(b"value");
            put(&mut applier, state.index.memory_mut(), &entry);
            applier.end_commit(&mut state, 100, sequence);
            assert_eq!((state.memory_bytes, store.memory_bytes()), (100, 100));
            assert_eq!(store.sweep_due_ms(), 5 + limits::SWEEP_DELAY_MS);
            assert_eq!(state.sequence, sequence);
            let removal = KeyChange {
                hash: store.hasher().hash(entry.key),
                key: entry.key,
                entry: None,
                is_expiry: false,
            };
            let mut recording = Recording::default();
            applier.change(state.index.memory_mut(), &removal, &mut recording);
            applier.end_commit(&mut state, -100, sequence);
            assert_eq!((state.index.entries(), store.memory_bytes()), (0, 0));
        }
    }

    #[test]
    fn the_lock_is_offered_when_work_and_time_are_up() {
        let store = store();
        let database = store.find(DatabaseId::DEFAULT).expect("it always exists");
        for (step_ns, work, slices) in [
            (limits::SLICE_NS, limits::SLICE_WORK, 2),
            (limits::SLICE_NS, limits::SLICE_WORK / 2, 1),
            (1, limits::SLICE_WORK, 0),
        ] {
            let mut applier = Applier::new(&store);
            let mut clock = Steps { now_ns: 0, step_ns };
            let mut slice = Slice::begin(&mut clock);
            let mut state = database.state.write();
            for _ in 0..2 {
                applier.end_slice(&mut slice, work, &mut state, &mut clock);
            }
            assert_eq!(applier.slices(), slices, "{step_ns} ns, {work}");
        }
    }

    #[test]
    fn what_was_cleared_is_garbage() {
        let store = store();
        let mut applier = Applier::new(&store);
        let mut index = MemoryIndex::new(store.hasher().clone());
        for entries in [1, 2] {
            let entry = entry(b"value");
            put(&mut applier, &mut index, &entry);
            applier.clear(&mut index, &mut Recording::default());
            applier.clear(&mut index, &mut Recording::default());
            assert_eq!((index.len(), applier.garbage().entries()), (0, entries));
        }
    }
}
