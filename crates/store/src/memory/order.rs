//! Puts the keys of an index in order when somebody wants that, a few at a time.
//!
//! A new key costs about a microsecond more in the ordered index than in its hash table, and a
//! database that is a cache, a counter or a session store is never scanned. So that of a volatile
//! database begins without an order, and has one for good from the first scan on. What is scanned
//! before the order is complete is found by a walk over all entries: right, and slow.
//!
//! Databases with a log have an order from the beginning, since their snapshots are made in it.

use std::ops::ControlFlow;

use hashbrown::HashTable;

use super::slot::IndexSlot;
use super::{EntryKey, MemoryIndex, TABLES, table_of};
use crate::hash::KeyHasher;
use crate::range::{Direction, Range, ScanEnd};
use crate::value::{Entry, is_expired};

impl MemoryIndex {
    /// Returns an empty index that has no order until somebody wants one.
    pub(crate) fn lazy(hasher: KeyHasher) -> MemoryIndex {
        MemoryIndex {
            ordered_tables: 0,
            is_lazy: true,
            ..MemoryIndex::new(hasher)
        }
    }

    /// Whether all keys are in the ordered index.
    #[inline]
    pub(crate) fn is_ordered(&self) -> bool {
        self.ordered_tables == TABLES && self.unordered.is_empty()
    }

    /// Whether a new key with this hash belongs into the ordered index at once.
    #[inline]
    pub(super) fn is_table_ordered(&self, hash: u64) -> bool {
        table_of(hash) < self.ordered_tables
    }

    /// Puts some more keys in order: about so many, or as many as are in one table. Returns whether
    /// all are.
    pub(crate) fn order_some(&mut self, keys: usize) -> bool {
        for _ in 0..keys {
            if let Some(key) = self.unordered.pop() {
                let bytes = key.bytes();
                let is_there =
                    !self.removed_unordered || self.find(bytes, self.hasher.hash(bytes)).is_some();
                if is_there {
                    self.ordered.insert(key);
                }
                continue;
            }
            self.removed_unordered = false;
            let Some(table) = self.tables.get(self.ordered_tables) else {
                self.unordered = Vec::new();
                return true;
            };
            self.unordered
                .extend(table.iter().map(|slot| EntryKey::new(slot.key())));
            self.ordered_tables += 1;
        }
        self.is_ordered()
    }

    /// Visits the live entries of a range, those that come first at first, of an index without an
    /// order.
    pub(super) fn scan_unordered<'a>(
        &'a self,
        range: &Range<'_>,
        direction: Direction,
        now_ms: u64,
        budget_rows: u32,
        visit: &mut dyn FnMut(&Entry<'a>) -> ControlFlow<()>,
    ) -> ScanEnd<'a> {
        let slots = self.tables.iter().flat_map(HashTable::iter);
        let mut found: Vec<&IndexSlot> = slots.filter(|slot| range.contains(slot.key())).collect();
        found.sort_unstable_by(|one, other| match direction {
            Direction::Forward => one.key().cmp(other.key()),
            Direction::Backward => other.key().cmp(one.key()),
        });
        let mut passed = None;
        for (rows, slot) in found.into_iter().enumerate() {
            if rows >= budget_rows as usize
                && let Some(passed) = passed
            {
                return ScanEnd::BudgetSpent(passed);
            }
            passed = Some(slot.key());
            let entry = slot.entry();
            if !entry.is_expired(now_ms) && visit(&entry).is_break() {
                return ScanEnd::Stopped;
            }
        }
        ScanEnd::Complete
    }

    /// Counts the live entries of a range of an index without an order.
    pub(super) fn count_unordered(&self, range: &Range<'_>, now_ms: u64) -> u64 {
        if *range == Range::ALL {
            return (self.entries - self.expired(now_ms).count()) as u64;
        }
        let slots = self.tables.iter().flat_map(HashTable::iter);
        let is_counted = |slot: &&IndexSlot| {
            range.contains(slot.key()) && !is_expired(slot.entry().expires_ms, now_ms)
        };
        slots.filter(is_counted).count() as u64
    }

    /// Checks that each key is in order or waits for it, and nothing else is.
    #[cfg(any(test, feature = "hooks"))]
    pub(super) fn verify_order(&self) {
        let waiting: std::collections::HashSet<&[u8]> =
            self.unordered.iter().map(EntryKey::bytes).collect();
        let mut in_order = 0;
        for slot in self.tables.iter().flat_map(HashTable::iter) {
            let is_in_order = self.ordered.contains(&EntryKey::new(slot.key()));
            in_order += usize::from(is_in_order);
            let is_known = is_in_order || waiting.contains(slot.key());
            assert_eq!(is_known, self.is_table_ordered(slot.hash));
        }
        assert_eq!(self.ordered.len(), in_order, "no other key is in order");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::ops::Bound;

    use testkit::Random;

    use super::*;
    use crate::value::Value;

    fn scanned(
        index: &MemoryIndex,
        range: &Range<'_>,
        direction: Direction,
        budget_rows: u32,
    ) -> (Vec<u8>, Option<Vec<u8>>) {
        let mut keys = Vec::new();
        let end = index.scan(range, direction, 10, budget_rows, &mut |entry| {
            keys.extend_from_slice(entry.key);
            ControlFlow::Continue(())
        });
        let passed = match end {
            ScanEnd::BudgetSpent(key) => Some(key.to_vec()),
            _ => None,
        };
        (keys, passed)
    }

    /// Whatever is put and removed while an order is made, all reads are those of an index that has
    /// had one from the beginning.
    #[test]
    fn an_index_reads_the_same_before_while_and_after_it_is_put_in_order() {
        for seed in 1..60 {
            let mut random = Random::new(seed);
            let hasher = KeyHasher::new(seed);
            let mut index = MemoryIndex::lazy(hasher.clone());
            let mut model = MemoryIndex::new(hasher.clone());
            let mut orders = 0;
            for step in 0..400 {
                let key = [random.below(50) as u8, random.below(4) as u8];
                let hash = hasher.hash(&key);
                let expires_ms = [0, 0, 5, 20][random.below(4)];
                let entry = Entry {
                    key: &key,
                    value: Value::Inline(&key),
                    version: step + 1,
                    expires_ms,
                };
                match random.below(3) {
                    0 => {
                        index.remove(&key, hash);
                        model.remove(&key, hash);
                    }
                    _ => {
                        index.put(hash, &entry);
                        model.put(hash, &entry);
                    }
                }
                if step > 100 && random.once_in(2) {
                    orders += 1;
                    let is_ordered = index.order_some(random.below(20));
                    assert_eq!(is_ordered, index.is_ordered());
                }
                if random.once_in(150) {
                    (index, model) = (index.take(), model.take());
                    drop((index.take(), model.take()));
                    assert_eq!(index.len(), 0);
                }
                assert_eq!((index.len(), index.verify()), (model.len(), model.verify()));
                let (one, other) = ([random.below(50) as u8], [random.below(50) as u8]);
                let bounded = Range {
                    start: Bound::Included(&one[..]),
                    end: Bound::Excluded(&other[..]),
                };
                for range in [&Range::ALL, &bounded] {
                    for direction in [Direction::Forward, Direction::Backward] {
                        let rows = 1 + random.below(30) as u32;
                        let read = scanned(&index, range, direction, rows);
                        let expected = scanned(&model, range, direction, rows);
                        assert_eq!(read, expected, "seed {seed}, step {step}");
                    }
                    let count = |index: &MemoryIndex| {
                        let counted = index.count(range, 10, u32::MAX);
                        assert!(counted.passed.is_none());
                        counted.count
                    };
                    assert_eq!(count(&index), count(&model), "seed {seed}, step {step}");
                }
            }
            assert!(orders > 50);
            while !index.order_some(100) {}
            let keys = |index: &MemoryIndex| {
                let keys = index.ordered.iter().map(|key| key.bytes().to_vec());
                keys.collect::<Vec<_>>()
            };
            assert_eq!(keys(&index), keys(&model));
        }
    }

    #[test]
    fn a_step_is_short_and_an_index_that_is_cleared_has_no_order_again() {
        let hasher = KeyHasher::new(1);
        let mut index = MemoryIndex::lazy(hasher.clone());
        let mut places = BTreeMap::new();
        for _ in 0..2 {
            for number in 0..20_000_u32 {
                let key = number.to_be_bytes();
                let entry = Entry {
                    key: &key,
                    value: Value::Inline(b""),
                    version: 1,
                    expires_ms: 0,
                };
                index.put(hasher.hash(&key), &entry);
                places.insert(key, ());
            }
            assert_eq!(index.ordered.len(), 0, "new keys cost nothing in an order");
            let mut before = 0;
            while !index.order_some(64) {
                assert!(index.ordered.len() - before <= 64);
                before = index.ordered.len();
            }
            assert!(index.is_ordered() && index.ordered.len() == places.len());
            drop(index.take());
            assert!(!index.is_ordered(), "it was a lazy one");
        }
    }
}
