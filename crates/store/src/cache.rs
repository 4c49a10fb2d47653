//! Which entries of a database were used last: for those that drop what was not, beyond a bound.
//!
//! Entries stand in the order in which they were used, each at the place of its last use or of an
//! earlier one: a read, which holds the lock only together with other readers, notes its use beside
//! that. Who looks for the oldest entry moves those that were used since to where they belong. So a
//! read costs a look-up, nothing is moved for it, and other databases have none of this.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashTable;

use crate::limits;
use crate::memory::{MemoryIndex, bytes_of};

/// How much a database keeps at most; beyond it the entries go that were not used for longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheBounds {
    /// Entries.
    pub entries: u64,
    /// Bytes of memory, by estimate.
    pub memory_bytes: u64,
}

/// The uses of the entries of a database.
#[derive(Debug)]
pub(crate) struct CacheUses {
    bounds: CacheBounds,
    uses: HashTable<EntryUse>,
    /// The hashes of the keys by the uses at whose places they stand.
    order: BTreeMap<u64, u64>,
    next: AtomicU64,
}

/// The uses of an entry, by numbers that grow.
#[derive(Debug)]
struct EntryUse {
    hash: u64,
    /// That at whose place it stands.
    placed: u64,
    last: AtomicU64,
}

impl CacheUses {
    /// No entry was used yet.
    pub(crate) fn new(bounds: CacheBounds) -> CacheUses {
        CacheUses {
            bounds,
            uses: HashTable::new(),
            order: BTreeMap::new(),
            next: AtomicU64::new(0),
        }
    }

    /// Returns how much is kept at most.
    pub(crate) fn bounds(&self) -> CacheBounds {
        self.bounds
    }

    fn next_use(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Notes that the entry of a key was read, if it is there.
    pub(crate) fn touch(&self, hash: u64) {
        if let Some(entry) = self.uses.find(hash, |one| one.hash == hash) {
            entry.last.store(self.next_use(), Ordering::Relaxed);
        }
    }

    /// Notes that the entry of a key was written, or is gone.
    pub(crate) fn change(&mut self, hash: u64, is_there: bool) {
        if !is_there {
            return self.remove(hash);
        }
        let number = self.next_use();
        if let Some(entry) = self.uses.find(hash, |one| one.hash == hash) {
            return entry.last.store(number, Ordering::Relaxed);
        }
        self.order.insert(number, hash);
        let entry = EntryUse {
            hash,
            placed: number,
            last: AtomicU64::new(number),
        };
        self.uses.insert_unique(hash, entry, |one| one.hash);
    }

    fn remove(&mut self, hash: u64) {
        if let Ok(found) = self.uses.find_entry(hash, |one| one.hash == hash) {
            let (entry, _) = found.remove();
            self.order.remove(&entry.placed);
        }
    }

    /// All entries are gone.
    pub(crate) fn clear(&mut self) {
        *self = CacheUses::new(self.bounds);
    }

    /// Returns the entry that was not used for longest; of very many that were read since they were
    /// placed, that of those which stand first.
    fn oldest(&mut self) -> Option<u64> {
        let mut least: Option<(u64, u64)> = None;
        for _ in 0..limits::CACHE_LOOKS {
            let (&placed, &hash) = self.order.first_key_value()?;
            let Some(entry) = self.uses.find_mut(hash, |one| one.hash == hash) else {
                debug_assert!(false, "what has a place has uses");
                self.order.pop_first();
                continue;
            };
            let last = entry.last.load(Ordering::Relaxed);
            if last == placed {
                return Some(hash);
            }
            entry.placed = last;
            self.order.pop_first();
            self.order.insert(last, hash);
            least = Some(least.map_or((last, hash), |least| least.min((last, hash))));
        }
        least.map(|(_, hash)| hash)
    }

    /// Returns the next entry that must go from an index that takes so much memory: never the last
    /// one.
    pub(crate) fn next_to_drop(
        &mut self,
        index: &MemoryIndex,
        memory_bytes: u64,
    ) -> Option<Dropped> {
        let entries = index.len() as u64;
        let is_over = entries > self.bounds.entries || memory_bytes > self.bounds.memory_bytes;
        if !is_over || entries <= 1 {
            return None;
        }
        let hash = self.oldest()?;
        self.remove(hash);
        let entry = index.find_hash(hash)?;
        Some(Dropped {
            hash,
            key: entry.key.into(),
            bytes: bytes_of(&entry),
        })
    }

    /// Returns how many entries have uses.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        assert_eq!(self.uses.len(), self.order.len());
        self.order.len()
    }
}

/// An entry that goes from a cache.
pub(crate) struct Dropped {
    pub(crate) hash: u64,
    pub(crate) key: Box<[u8]>,
    /// What it takes in memory.
    pub(crate) bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: CacheBounds = CacheBounds {
        entries: 10,
        memory_bytes: 1_000,
    };

    #[test]
    fn the_oldest_is_what_was_not_used_for_longest() {
        let mut uses = CacheUses::new(BOUNDS);
        for _ in 0..2 {
            (0..5).for_each(|hash| uses.change(hash, true));
            uses.touch(0);
            uses.touch(7);
            uses.change(1, true);
            assert_eq!(uses.oldest(), Some(2));
            uses.change(2, false);
            assert_eq!(uses.oldest(), Some(3));
            for hash in [3, 4, 0, 1] {
                assert_eq!(uses.oldest(), Some(hash));
                uses.remove(hash);
            }
            assert_eq!((uses.oldest(), uses.len()), (None, 0));
        }
        uses.change(1, true);
        uses.clear();
        assert_eq!((uses.oldest(), uses.len()), (None, 0));
    }

    /// Not all of a million entries that were read are moved for one.
    #[test]
    fn a_look_for_the_oldest_is_bounded() {
        let mut uses = CacheUses::new(BOUNDS);
        let count = 3 * limits::CACHE_LOOKS as u64;
        (0..count).for_each(|hash| uses.change(hash, true));
        (0..count).rev().for_each(|hash| uses.touch(hash));
        let first = uses.oldest();
        assert_eq!(first, Some(limits::CACHE_LOOKS as u64 - 1));
        assert_eq!(uses.len(), count as usize);
    }
}
