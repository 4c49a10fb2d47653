//! An index on its way out: freed a little at a time.

use std::iter::Flatten;
use std::vec;

use hashbrown::HashTable;

use super::MemoryIndex;
use super::key::EntryKey;
use super::ordered::OrderedSet;
use super::slot::IndexSlot;

/// What is left of an index that nobody needs any more.
#[derive(Debug)]
pub(crate) struct Remains {
    slots: Flatten<vec::IntoIter<HashTable<IndexSlot>>>,
    keys: <OrderedSet<EntryKey> as IntoIterator>::IntoIter,
    unordered: vec::IntoIter<EntryKey>,
    expiring: <OrderedSet<(u64, EntryKey)> as IntoIterator>::IntoIter,
    entries_left: usize,
}

impl Remains {
    /// Frees about so many entries; returns whether any are left.
    pub(crate) fn free(&mut self, entries: usize) -> bool {
        let freed = self.slots.by_ref().take(entries).count()
            + self.keys.by_ref().take(entries).count()
            + self.unordered.by_ref().take(entries).count()
            + self.expiring.by_ref().take(entries).count();
        self.entries_left = self.entries_left.saturating_sub(entries);
        freed > 0
    }

    /// How many entries are left.
    pub(crate) fn entries_left(&self) -> usize {
        self.entries_left
    }
}

impl From<MemoryIndex> for Remains {
    fn from(index: MemoryIndex) -> Remains {
        Remains {
            entries_left: index.len().max(index.unordered.len()),
            slots: index.tables.into_vec().into_iter().flatten(),
            keys: index.ordered.into_iter(),
            unordered: index.unordered.into_iter(),
            expiring: index.expiring.into_iter(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::KeyHasher;
    use crate::value::{Entry, Value};

    #[test]
    fn an_index_is_freed_in_slices_of_the_size_asked_for() {
        let hasher = KeyHasher::new(1);
        for round in 0..2 {
            let mut index = MemoryIndex::new(hasher.clone());
            for number in 0..1000_u32 {
                let key = number.to_be_bytes();
                let entry = Entry {
                    key: &key,
                    value: Value::Inline(&[0; 50]),
                    version: 1,
                    expires_ms: u64::from(number % 3),
                };
                index.put(hasher.hash(&key), &entry);
            }
            let mut remains = Remains::from(index);
            for left in (0..10).rev() {
                assert!(remains.free(100), "round {round}, {left} hundreds");
                assert_eq!(remains.entries_left(), left * 100);
            }
            assert!(!remains.free(100), "round {round}: nothing is left");
            assert!(remains.slots.next().is_none() && remains.keys.next().is_none());
        }
    }
}
