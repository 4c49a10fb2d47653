//! Entries that were read lately, where a loop finds them without waiting for anybody.
//!
//! A set-associative cache for all trees together: a hash names a set, and a set has room for a few
//! rows, of which the oldest goes. It is right because of two rules, both kept under the lock of
//! the set: whoever changes a key takes its row out *before* the commit becomes visible, and leaves
//! the sequence of that commit in the set; and a row comes in only from a view that is not older
//! than this sequence. So a row that is there is what every view sees that could be taken now.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use lsm_tree::Slice;
use parking_lot::Mutex;

use super::limits;
use crate::hash::KeyHasher;

/// Rows in a set.
const WAYS: usize = 4;

/// The cache of all trees.
pub(super) struct Rows {
    /// What table and rows may take, in bytes.
    limit_bytes: usize,
    /// Made with the first tree: most servers have none.
    table: OnceLock<Table>,
    next_tree: AtomicU64,
}

/// The rows of one tree among those of others.
pub(super) struct TreeRows {
    rows: std::sync::Arc<Rows>,
    tree: u64,
}

struct Table {
    sets: Box<[Mutex<Set>]>,
    hasher: KeyHasher,
    /// What the rows take beside the sets.
    row_bytes: AtomicUsize,
    row_bytes_max: usize,
}

#[derive(Default)]
struct Set {
    /// The last commit that has changed a key of this set.
    changed: u64,
    rows: [Option<CachedRow>; WAYS],
    /// The place that is taken next if none is free.
    next: usize,
}

struct CachedRow {
    tree: u64,
    key: Slice,
    stored: Slice,
}

impl CachedRow {
    fn bytes(&self) -> usize {
        limits::ROW_OVERHEAD_BYTES + self.key.len() + self.stored.len()
    }
}

impl Rows {
    pub(super) fn new(limit_bytes: u64) -> Rows {
        Rows {
            limit_bytes: usize::try_from(limit_bytes).unwrap_or(usize::MAX),
            table: OnceLock::new(),
            next_tree: AtomicU64::new(0),
        }
    }

    fn table(&self) -> &Table {
        self.table.get_or_init(|| {
            let sets = (self.limit_bytes / limits::ROW_SET_BYTES).max(1);
            let table_bytes = sets * size_of::<Mutex<Set>>();
            Table {
                sets: (0..sets).map(|_| Mutex::default()).collect(),
                // No secret: whoever makes keys collide only has them read the slower way.
                hasher: KeyHasher::new(0),
                row_bytes: AtomicUsize::new(0),
                row_bytes_max: self.limit_bytes.saturating_sub(table_bytes),
            }
        })
    }
}

impl TreeRows {
    /// A place for the rows of a tree that is opened.
    pub(super) fn new(rows: std::sync::Arc<Rows>) -> TreeRows {
        // Now, since changes are noted in it.
        rows.table();
        let tree = rows.next_tree.fetch_add(1, Ordering::Relaxed);
        TreeRows { rows, tree }
    }

    /// What is stored under a key, if it was read lately and not changed since.
    #[inline]
    pub(super) fn find(&self, key: &[u8]) -> Option<Slice> {
        let set = self.rows.table().set(key).lock();
        let place = set.place(self.tree, key)?;
        set.rows[place].as_ref().map(|row| row.stored.clone())
    }

    /// What a view of a sequence has found under a key, without an expiry.
    pub(super) fn remember(&self, key: &[u8], stored: &[u8], sequence: u64) {
        if key.len() + stored.len() > limits::ROW_BYTES {
            return;
        }
        let row = CachedRow {
            tree: self.tree,
            key: Slice::new(key),
            // A copy: what was read may be a part of a block, and would keep all of it.
            stored: Slice::new(stored),
        };
        self.rows.table().put(row, sequence);
    }

    /// A commit changes a key. To be called before it becomes visible.
    pub(super) fn forget(&self, key: &[u8], sequence: u64) {
        let table = self.rows.table();
        let mut set = table.set(key).lock();
        set.changed = set.changed.max(sequence);
        let place = set.place(self.tree, key);
        let gone = place.and_then(|place| set.rows[place].take());
        table.uncount(&gone);
        drop(set);
    }
}

impl Table {
    #[inline]
    fn set(&self, key: &[u8]) -> &Mutex<Set> {
        &self.sets[self.hasher.hash(key) as usize % self.sets.len()]
    }

    fn put(&self, row: CachedRow, sequence: u64) {
        let mut set = self.set(&row.key).lock();
        if set.changed > sequence {
            return;
        }
        let place = set.place(row.tree, &row.key);
        let free = || set.rows.iter().position(Option::is_none);
        let place = place.or_else(free).unwrap_or(set.next);
        let old = set.rows[place].take();
        self.uncount(&old);
        // Without room other sets are left alone: this one gets poorer, and takes turns with them.
        let bytes = row.bytes();
        if self.row_bytes.load(Ordering::Relaxed) + bytes <= self.row_bytes_max {
            // Under the lock, so that nobody takes it out before it is counted.
            self.row_bytes.fetch_add(bytes, Ordering::Relaxed);
            set.rows[place] = Some(row);
            set.next = (place + 1) % WAYS;
        }
        drop(set);
    }

    fn uncount(&self, gone: &Option<CachedRow>) {
        if let Some(row) = gone {
            self.row_bytes.fetch_sub(row.bytes(), Ordering::Relaxed);
        }
    }
}

impl Set {
    #[inline]
    fn place(&self, tree: u64, key: &[u8]) -> Option<usize> {
        let is_it = |row: &Option<CachedRow>| {
            row.as_ref()
                .is_some_and(|row| row.tree == tree && row.key[..] == *key)
        };
        self.rows.iter().position(is_it)
    }
}

impl fmt::Debug for TreeRows {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = self.rows.table();
        formatter
            .debug_struct("TreeRows")
            .field("tree", &self.tree)
            .field("sets", &table.sets.len())
            .field("row_bytes", &table.row_bytes)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const LIMIT_BYTES: u64 = 64 << 10;

    fn bytes_of(rows: &Rows) -> usize {
        rows.table().row_bytes.load(Ordering::Relaxed)
    }

    #[test]
    fn a_row_is_there_until_its_key_changes() {
        let rows = Arc::new(Rows::new(LIMIT_BYTES));
        let (one, other) = (TreeRows::new(rows.clone()), TreeRows::new(rows.clone()));
        one.remember(b"key", b"stored at 5", 7);
        assert_eq!(one.find(b"key").as_deref(), Some(&b"stored at 5"[..]));
        assert_eq!(other.find(b"key"), None, "another tree");
        one.forget(b"key", 9);
        assert_eq!(one.find(b"key"), None);
        assert_eq!(bytes_of(&rows), 0);
    }

    #[test]
    fn what_an_older_view_has_found_does_not_come_in() {
        let rows = TreeRows::new(Arc::new(Rows::new(LIMIT_BYTES)));
        rows.forget(b"key", 9);
        rows.remember(b"key", b"old", 8);
        assert_eq!(rows.find(b"key"), None);
        rows.remember(b"key", b"new", 9);
        assert_eq!(rows.find(b"key").as_deref(), Some(&b"new"[..]));
    }

    #[test]
    fn there_is_a_bound() {
        let rows = Arc::new(Rows::new(LIMIT_BYTES));
        let tree = TreeRows::new(rows.clone());
        let value = [7; 400];
        for number in 0..10_000u32 {
            tree.remember(&number.to_be_bytes(), &value, 1);
            assert!(bytes_of(&rows) <= rows.table().row_bytes_max, "{number}");
        }
        let kept = (0..10_000u32).filter(|number| tree.find(&number.to_be_bytes()).is_some());
        let kept: Vec<u32> = kept.collect();
        assert!(kept.len() > 50, "{kept:?}");
        assert!(
            kept.iter().any(|&number| number > 9_000),
            "new ones come in"
        );
        tree.remember(b"large", &vec![7; limits::ROW_BYTES], 1);
        assert_eq!(tree.find(b"large"), None);
    }
}
