//! Allocates all parts of an index anew, so that they lie together.
//!
//! The allocator has pages for pieces of one size, and gives a page back when nothing is left in
//! it. Where most pieces of a size were freed, here and there, what is left keeps every page. A
//! piece that is allocated anew comes to lie in a page that is in use, beside the others that were;
//! the page that it leaves becomes empty. Contents, order, versions and expiries stay what they
//! are.

use hashbrown::HashTable;

use super::slot::IndexSlot;
use super::{EntryKey, MemoryIndex};
use crate::limits::{DEFRAGMENT_TABLE_SLOTS, SLICE_WORK_BYTES};

/// How far a pass through an index has come.
#[derive(Debug, Default)]
pub(crate) struct DefragmentCursor {
    table: usize,
    /// Slots of the table that are passed.
    slots: usize,
    part: IndexPart,
}

#[derive(Debug, Default, PartialEq)]
enum IndexPart {
    #[default]
    Tables,
    Ordered,
    Expiring,
}

/// What one step has done.
pub(crate) enum DefragmentStep {
    /// So much work, as a slice counts it.
    Moved(usize),
    /// Nothing: all of the index was passed.
    Complete,
}

impl MemoryIndex {
    /// Takes the next step of a pass. It is short: a small table, one entry, or some keys; longer
    /// only where a large table is more than half empty, which then shrinks.
    pub(crate) fn defragment(&mut self, cursor: &mut DefragmentCursor) -> DefragmentStep {
        if !self.unordered.is_empty() {
            return DefragmentStep::Complete; // it is being loaded
        }
        if cursor.part == IndexPart::Tables {
            if let Some(table) = self.tables.get_mut(cursor.table) {
                return DefragmentStep::Moved(move_in_table(table, cursor));
            }
            self.ordered.begin_move();
            cursor.part = IndexPart::Ordered;
        }
        if cursor.part == IndexPart::Ordered {
            match self.ordered.move_some(|key| EntryKey::new(key.bytes())) {
                0 => {
                    self.expiring.begin_move();
                    cursor.part = IndexPart::Expiring;
                }
                keys => return DefragmentStep::Moved(keys),
            }
        }
        let renew = |(expires_ms, key): &(u64, EntryKey)| (*expires_ms, EntryKey::new(key.bytes()));
        match self.expiring.move_some(renew) {
            0 => DefragmentStep::Complete,
            keys => DefragmentStep::Moved(keys),
        }
    }
}

/// Moves a table itself, when the cursor comes to it, and then one entry of it after the other.
fn move_in_table(table: &mut HashTable<IndexSlot>, cursor: &mut DefragmentCursor) -> usize {
    if cursor.slots == 0 {
        move_table(table);
    }
    let mut work = 1;
    // Empty slots cost little.
    while cursor.slots < table.num_buckets() {
        cursor.slots += 1;
        work += 1;
        if let Some(slot) = table.get_bucket_mut(cursor.slots - 1) {
            return work / 8 + 1 + slot.move_content() / SLICE_WORK_BYTES;
        }
    }
    (cursor.table, cursor.slots) = (cursor.table + 1, 0);
    work / 8 + 1
}

/// A large table has pages of its own: it moves only if that makes it smaller.
fn move_table(table: &mut HashTable<IndexSlot>) {
    if table.is_empty() {
        *table = HashTable::new();
    } else if table.num_buckets() <= DEFRAGMENT_TABLE_SLOTS {
        let mut moved = HashTable::with_capacity(table.len());
        for slot in table.drain() {
            moved.insert_unique(slot.hash, slot, |slot| slot.hash);
        }
        *table = moved;
    } else if table.len() < table.capacity() / 2 {
        table.shrink_to(table.len(), |slot| slot.hash);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::KeyHasher;
    use crate::limits::SHARED_VALUE_BYTES;
    use crate::value::{Entry, Value};

    fn key(number: u32) -> Vec<u8> {
        format!("{number:0width$}", width = 8 + number as usize % 40).into_bytes()
    }

    fn put(index: &mut MemoryIndex, number: u32) {
        let key = key(number);
        let value = match number % 500 {
            0 => vec![number as u8; SHARED_VALUE_BYTES + number as usize % 7],
            _ => vec![number as u8; number as usize % 300],
        };
        let entry = Entry {
            key: &key,
            value: Value::Inline(&value),
            version: u64::from(number) + 1,
            expires_ms: u64::from(number % 3) * 1_000,
        };
        drop(index.put(index.hash(&key), &entry));
    }

    /// Key, value, version and expiry of an entry, and where it lies.
    type Placed = (Vec<u8>, Vec<u8>, u64, u64, *const u8);

    fn contents(index: &MemoryIndex) -> Vec<Placed> {
        let slots = index.tables.iter().flat_map(HashTable::iter);
        let mut contents: Vec<_> = slots
            .map(|slot| {
                let Entry {
                    key,
                    value,
                    version,
                    expires_ms,
                } = slot.entry();
                let place = key.as_ptr();
                (key.to_vec(), value.to_vec(), version, expires_ms, place)
            })
            .collect();
        contents.sort_unstable();
        contents
    }

    #[test]
    fn a_pass_moves_every_entry_and_changes_none_each_time() {
        let mut index = MemoryIndex::new(KeyHasher::new(1));
        (0..20_000).for_each(|number| put(&mut index, number));
        for _ in 0..2 {
            let before = contents(&index);
            let bytes = index.verify();
            let mut cursor = DefragmentCursor::default();
            while let DefragmentStep::Moved(work) = index.defragment(&mut cursor) {
                assert!(work > 0);
            }
            assert_eq!(index.verify(), bytes);
            let after = contents(&index);
            for (before, after) in before.iter().zip(&after) {
                let whole = |one: &Placed| (one.0.clone(), one.1.clone(), one.2, one.3);
                assert_eq!(whole(before), whole(after));
            }
            let stayed = before
                .iter()
                .zip(&after)
                .filter(|(one, two)| one.4 == two.4);
            // A place that was left may be taken by an entry that was there before.
            assert!(stayed.count() < before.len() / 100);
        }
    }

    #[test]
    fn what_is_written_between_the_steps_is_kept() {
        let mut index = MemoryIndex::new(KeyHasher::new(1));
        let mut model = std::collections::BTreeSet::new();
        for number in 0..3_000 {
            put(&mut index, number);
            model.insert(key(number));
        }
        for round in 0..2 {
            let (mut cursor, mut number) = (DefragmentCursor::default(), 0);
            while let DefragmentStep::Moved(_) = index.defragment(&mut cursor) {
                number = (number + 7) % 9_000;
                put(&mut index, number);
                model.insert(key(number));
                let gone = key((number * 31 + round) % 9_000);
                drop(index.remove(&gone, index.hash(&gone)));
                model.remove(&gone);
            }
            index.verify();
            let keys = index.ordered.iter().map(|key| key.bytes().to_vec());
            assert!(keys.eq(model.iter().cloned()));
        }
        // A pass that is given up in the middle of the keys is nothing that stays.
        let mut cursor = DefragmentCursor::default();
        while cursor.part != IndexPart::Ordered {
            index.defragment(&mut cursor);
        }
        index.defragment(&mut cursor);
        index.verify();
        let mut cursor = DefragmentCursor::default();
        while let DefragmentStep::Moved(_) = index.defragment(&mut cursor) {}
        index.verify();
    }

    #[test]
    fn tables_keep_no_room_for_what_was_there() {
        let mut index = MemoryIndex::new(KeyHasher::new(1));
        let capacity =
            |index: &MemoryIndex| -> usize { index.tables.iter().map(HashTable::capacity).sum() };
        for _ in 0..2 {
            (0..12_000).for_each(|number| put(&mut index, number));
            for kept in [3_000, 0] {
                for number in kept..12_000 {
                    let key = key(number);
                    drop(index.remove(&key, index.hash(&key)));
                }
                assert!(capacity(&index) > 3 * kept as usize, "what is to be mended");
                let mut cursor = DefragmentCursor::default();
                while let DefragmentStep::Moved(_) = index.defragment(&mut cursor) {}
                assert!(capacity(&index) <= 3 * kept as usize);
            }
        }
    }

    /// Its content would be there twice.
    #[test]
    fn a_value_that_a_reader_holds_stays_where_it_is() {
        let mut index = MemoryIndex::new(KeyHasher::new(1));
        put(&mut index, 500);
        let key = key(500);
        for is_held in [true, false, true] {
            let place = |index: &MemoryIndex| {
                let entry = index.find(&key, index.hash(&key)).expect("it was put");
                (entry.value.as_ptr(), entry.value.to_shared())
            };
            let (before, value) = place(&index);
            let held = is_held.then_some(value);
            let mut cursor = DefragmentCursor::default();
            while let DefragmentStep::Moved(_) = index.defragment(&mut cursor) {}
            assert_eq!(place(&index).0 == before, is_held);
            assert_eq!(
                place(&index).1,
                vec![500_u32 as u8; SHARED_VALUE_BYTES + 500 % 7]
            );
            drop(held);
        }
    }
}
