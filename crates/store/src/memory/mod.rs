//! The index of a memory database: hash tables for the keys, and one ordered index beside them.
//!
//! - **256 hash tables**, chosen by middle bits of the hash (a table itself uses the top and the
//!   low bits): a table that grows stalls everybody while it moves its slots, and a 256th of the
//!   slots is a 256th of the stall.
//! - **One ordered index** of the keys alone, which only inserts and removals touch. Scans walk it
//!   and look each key up. An ordered index per table would have to be merged at each scan, which
//!   costs a hundred times as much for short ones. Where nobody may ever ask for an order, it is
//!   made when somebody does (`order.rs`).
//! - **One index of expiries**, touched only by entries that have one.

mod defragment;
mod key;
mod order;
mod ordered;
mod remains;
mod slot;
mod walk;

use std::collections::BTreeSet;

use bytes::Bytes;
use hashbrown::HashTable;

use crate::hash::KeyHasher;
use crate::limits;
use crate::value::Entry;
pub(crate) use defragment::{DefragmentCursor, DefragmentStep};
use key::EntryKey;
use ordered::OrderedSet;
pub(crate) use remains::Remains;
use slot::IndexSlot;
pub(crate) use walk::PassedExpiry;

const TABLES: usize = 256;

/// A slot's share of its table, which is between 7/16 and 7/8 full, with a control byte each.
const SLOT_BYTES: usize = (size_of::<IndexSlot>() + 1) * 3 / 2;

/// A key's share of an ordered index: nodes are about two thirds full, and one in eleven is an
/// inner node.
const ORDERED_KEY_BYTES: usize = size_of::<EntryKey>() * 8 / 5;

/// An expiry's share of the index of expiries.
const EXPIRY_BYTES: usize = size_of::<(u64, EntryKey)>() * 8 / 5;

/// Tables up to this capacity are not shrunk.
const KEPT_CAPACITY: usize = 64;

/// Which table a hash belongs to.
#[inline]
pub(crate) fn table_of(hash: u64) -> usize {
    // Bits 48 to 55: hashbrown tells slots apart by the topmost seven bits and places them by the
    // lowest.
    (hash >> 48) as usize % TABLES
}

/// About what an allocator takes for an allocation of this size.
fn allocation_bytes(bytes: usize) -> usize {
    (bytes + 8).next_multiple_of(16).max(32)
}

/// The memory that an entry takes, by estimate.
pub(crate) fn entry_bytes(key_len: usize, value_len: usize, expires_ms: u64) -> u64 {
    let expiry = if expires_ms == 0 {
        0
    } else {
        EXPIRY_BYTES + EntryKey::heap_bytes(key_len)
    };
    let key = ORDERED_KEY_BYTES + EntryKey::heap_bytes(key_len);
    (slot::heap_bytes(key_len, value_len) + SLOT_BYTES + key + expiry) as u64
}

/// [`entry_bytes`] of an entry.
pub(crate) fn bytes_of(entry: &Entry<'_>) -> u64 {
    entry_bytes(entry.key.len(), entry.value.len(), entry.expires_ms)
}

/// All entries of one memory database, the expired ones among them.
#[derive(Debug)]
pub(crate) struct MemoryIndex {
    hasher: KeyHasher,
    tables: Box<[HashTable<IndexSlot>]>,
    entries: usize,
    ordered: OrderedSet<EntryKey>,
    /// The keys of the first so many tables are in the ordered index, or among `unordered`.
    ordered_tables: usize,
    /// An empty one begins without an order.
    is_lazy: bool,
    /// Keys that are not in the ordered index yet: see [`load`](MemoryIndex::load) and
    /// [`order_some`](MemoryIndex::order_some).
    unordered: Vec<EntryKey>,
    /// An entry was removed since there are such keys.
    removed_unordered: bool,
    expiring: OrderedSet<(u64, EntryKey)>,
    /// Bytes of all keys and values.
    content_bytes: u64,
}

impl MemoryIndex {
    pub(crate) fn new(hasher: KeyHasher) -> MemoryIndex {
        let tables = (0..TABLES).map(|_| HashTable::new()).collect();
        MemoryIndex {
            hasher,
            tables,
            entries: 0,
            ordered: OrderedSet::new(),
            ordered_tables: TABLES,
            is_lazy: false,
            unordered: Vec::new(),
            removed_unordered: false,
            expiring: OrderedSet::new(),
            content_bytes: 0,
        }
    }

    /// How many entries there are, the expired ones among them.
    pub(crate) fn len(&self) -> usize {
        self.entries
    }

    /// How many entries have an expiry.
    pub(crate) fn expiring_len(&self) -> usize {
        self.expiring.len()
    }

    /// Bytes of all keys and values, the expired ones among them.
    pub(crate) fn content_bytes(&self) -> u64 {
        self.content_bytes
    }

    /// The entry of a key, be it expired or not.
    #[inline]
    pub(crate) fn find(&self, key: &[u8], hash: u64) -> Option<Entry<'_>> {
        let slot = self.tables[table_of(hash)]
            .find(hash, |slot| slot.hash == hash && slot.key() == key)?;
        Some(slot.entry())
    }

    /// The entry of the key with a hash; of several with it, any.
    pub(crate) fn find_hash(&self, hash: u64) -> Option<Entry<'_>> {
        let slot = self.tables[table_of(hash)].find(hash, |slot| slot.hash == hash)?;
        Some(slot.entry())
    }

    /// Brings what the hashes lead to into the processor's caches.
    ///
    /// In two steps for some dozens at a time: an entry can only be fetched when its slot has come,
    /// and a processor does not look far enough ahead to fetch the next slots meanwhile.
    #[inline]
    pub(crate) fn warm(&self, mut hashes: impl Iterator<Item = u64>) {
        let mut touched = 0;
        loop {
            let mut slots = [None; limits::WARM_OPERATIONS];
            let mut count = 0;
            for (place, hash) in slots.iter_mut().zip(&mut hashes) {
                *place = self.tables[table_of(hash)].find(hash, |slot| slot.hash == hash);
                count += 1;
            }
            for slot in slots[..count].iter().flatten() {
                touched ^= slot.touch();
            }
            if count < slots.len() {
                break;
            }
        }
        std::hint::black_box(touched);
    }

    /// Puts an entry, in the place of one of the same key. A large old value is returned: to free
    /// it takes time.
    pub(crate) fn put(&mut self, hash: u64, entry: &Entry<'_>) -> Option<Bytes> {
        match self.put_in_table(hash, entry) {
            Some(old_value) => old_value,
            None => {
                if self.is_table_ordered(hash) {
                    self.ordered.insert(EntryKey::new(entry.key));
                }
                None
            }
        }
    }

    /// Puts an entry at a start, where nobody walks the index before
    /// [`finish_loading`](MemoryIndex::finish_loading): to put all keys in order at once is several
    /// times as fast as one by one.
    pub(crate) fn load(&mut self, hash: u64, entry: &Entry<'_>) {
        if self.put_in_table(hash, entry).is_none() {
            self.unordered.push(EntryKey::new(entry.key));
        }
    }

    /// Puts the keys of what was loaded in order.
    pub(crate) fn finish_loading(&mut self) {
        let mut keys = std::mem::take(&mut self.unordered);
        if std::mem::take(&mut self.removed_unordered) {
            keys.retain(|key| {
                let bytes = key.bytes();
                self.find(bytes, self.hasher.hash(bytes)).is_some()
            });
        }
        // A key that came, went and came again is there twice, and once in the set.
        let mut loaded = BTreeSet::from_iter(keys);
        self.ordered.append(&mut loaded);
    }

    /// Puts an entry into its table. `None`: the key is new; otherwise perhaps a large old value.
    fn put_in_table(&mut self, hash: u64, entry: &Entry<'_>) -> Option<Option<Bytes>> {
        let table = &mut self.tables[table_of(hash)];
        if let Some(slot) =
            table.find_mut(hash, |slot| slot.hash == hash && slot.key() == entry.key)
        {
            let old = slot.entry();
            let (expired_ms, old_bytes) = (old.expires_ms, old.value.len());
            let old_value = slot.replace(entry);
            self.content_bytes += entry.value.len() as u64;
            self.content_bytes -= old_bytes as u64;
            if expired_ms != entry.expires_ms {
                self.change_expiry(entry.key, expired_ms, entry.expires_ms);
            }
            return Some(old_value);
        }
        table.insert_unique(hash, IndexSlot::new(hash, entry), |slot| slot.hash);
        self.entries += 1;
        self.content_bytes += (entry.key.len() + entry.value.len()) as u64;
        self.change_expiry(entry.key, 0, entry.expires_ms);
        None
    }

    /// Removes the entry of a key, if there is one. A large old value is returned: to free it takes
    /// time.
    pub(crate) fn remove(&mut self, key: &[u8], hash: u64) -> Option<Bytes> {
        let table = &mut self.tables[table_of(hash)];
        let occupied = table
            .find_entry(hash, |slot| slot.hash == hash && slot.key() == key)
            .ok()?;
        let (slot, _) = occupied.remove();
        // A table that was large once must not keep its memory, nor cost a walk over empty slots.
        if table.capacity() > KEPT_CAPACITY && table.len() < table.capacity() / 8 {
            table.shrink_to(2 * table.len(), |slot| slot.hash);
        }
        self.entries -= 1;
        self.ordered.remove(key);
        self.removed_unordered |= !self.unordered.is_empty();
        let old = slot.entry();
        self.content_bytes -= (key.len() + old.value.len()) as u64;
        self.change_expiry(key, old.expires_ms, 0);
        slot.into_large_value()
    }

    fn change_expiry(&mut self, key: &[u8], old_ms: u64, new_ms: u64) {
        if old_ms != 0 {
            self.expiring.remove(&(old_ms, EntryKey::new(key)));
        }
        if new_ms != 0 {
            self.expiring.insert((new_ms, EntryKey::new(key)));
        }
    }

    /// The hash of a key.
    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash(key)
    }

    /// What all entries take in memory, by a walk over them.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let slots = self.tables.iter().flat_map(HashTable::iter);
        slots.map(|slot| bytes_of(&slot.entry())).sum()
    }

    /// Takes all content out. To free it takes long: about 0.1 µs for each entry.
    pub(crate) fn take(&mut self) -> MemoryIndex {
        let hasher = self.hasher.clone();
        let empty = match self.is_lazy {
            true => MemoryIndex::lazy(hasher),
            false => MemoryIndex::new(hasher),
        };
        std::mem::replace(self, empty)
    }

    /// Checks that the parts agree, and adds up what the entries take in memory.
    #[cfg(any(test, feature = "hooks"))]
    pub(crate) fn verify(&self) -> u64 {
        let (mut bytes, mut content_bytes, mut expiring) = (0, 0, 0);
        for slot in self.tables.iter().flat_map(HashTable::iter) {
            let entry = slot.entry();
            bytes += bytes_of(&entry);
            content_bytes += (entry.key.len() + entry.value.len()) as u64;
            if entry.expires_ms != 0 {
                expiring += 1;
                let expiry = (entry.expires_ms, EntryKey::new(entry.key));
                assert!(self.expiring.contains(&expiry));
            }
        }
        assert_eq!(self.expiring.len(), expiring);
        assert_eq!(self.content_bytes, content_bytes);
        let slots: usize = self.tables.iter().map(HashTable::len).sum();
        assert_eq!(slots, self.entries);
        self.verify_order();
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Value;

    #[test]
    fn tables_shrink_and_lose_nothing() {
        let hasher = KeyHasher::new(1);
        let mut index = MemoryIndex::new(hasher.clone());
        let keys: Vec<[u8; 4]> = (0..40_000u32).map(u32::to_be_bytes).collect();
        let entry = |key| Entry {
            key,
            value: Value::Inline(key),
            version: 1,
            expires_ms: 0,
        };
        for key in &keys {
            index.put(hasher.hash(key), &entry(key));
        }
        let capacity =
            |index: &MemoryIndex| index.tables.iter().map(HashTable::capacity).sum::<usize>();
        let full = capacity(&index);
        let is_kept = |key: &[u8; 4]| u32::from_be_bytes(*key).is_multiple_of(50);
        for key in keys.iter().filter(|key| !is_kept(key)) {
            index.remove(key, hasher.hash(key));
        }
        assert!(capacity(&index) < full / 3);
        index.verify();
        for key in &keys {
            assert_eq!(
                index.find(key, hasher.hash(key)),
                is_kept(key).then(|| entry(key))
            );
        }
    }
    #[test]
    fn what_is_loaded_is_put_in_order_at_the_end() {
        let hasher = KeyHasher::new(1);
        for rounds in 1..200u64 {
            let mut indexes = [(); 2].map(|()| MemoryIndex::new(hasher.clone()));
            for number in 0..rounds * 7 {
                // Some keys come several times, and some of them go in between.
                let key = (number * number % 97).to_be_bytes();
                let hash = hasher.hash(&key);
                for (index, is_loaded) in indexes.iter_mut().zip([true, false]) {
                    let entry = Entry {
                        key: &key,
                        value: Value::Inline(&key[7..]),
                        version: number + 1,
                        expires_ms: number % 3,
                    };
                    match number % 5 {
                        4 => drop(index.remove(&key, hash)),
                        _ if is_loaded => index.load(hash, &entry),
                        _ => drop(index.put(hash, &entry)),
                    }
                }
            }
            indexes[0].finish_loading();
            let bytes = indexes[0].verify();
            assert_eq!(bytes, indexes[1].verify());
            assert!(indexes[0].ordered.iter().eq(indexes[1].ordered.iter()));
        }
    }
}
