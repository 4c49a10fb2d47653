//! The largest block of each table that was asked for.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use lsm_tree::TableId;
use parking_lot::Mutex;

use super::limits;

/// The largest block of each table that was asked for, in bytes.
#[derive(Debug)]
pub(super) struct LargestBlocks {
    bytes: Mutex<HashMap<TableId, usize>>,
    /// A version none of whose tables has a large block.
    small_in: AtomicU64,
}

impl Default for LargestBlocks {
    fn default() -> LargestBlocks {
        LargestBlocks {
            bytes: Mutex::default(),
            small_in: AtomicU64::new(u64::MAX),
        }
    }
}

impl LargestBlocks {
    pub(super) fn get(&self, table: TableId) -> Option<usize> {
        self.bytes.lock().get(&table).copied()
    }

    /// Whether it was noted that no table of a version has a large block.
    pub(super) fn are_small_in(&self, version: u64) -> bool {
        self.small_in.load(Ordering::Relaxed) == version
    }

    /// Notes that no table of a version has one.
    pub(super) fn note_small(&self, version: u64) {
        self.small_in.store(version, Ordering::Relaxed);
    }

    /// Notes that of a table. Those of tables that are gone go, at the latest when they are half of
    /// all.
    pub(super) fn note(&self, table: TableId, bytes: usize, tables: &[TableId]) {
        let mut known = self.bytes.lock();
        if known.len() >= 2 * tables.len() + limits::KNOWN_BLOCK_SIZES {
            known.retain(|id, _| tables.contains(id));
        }
        known.insert(table, bytes);
    }
}
