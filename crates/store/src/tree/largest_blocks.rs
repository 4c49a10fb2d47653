//! The largest block of each table that was asked for.

use std::collections::HashMap;

use lsm_tree::TableId;
use parking_lot::Mutex;

use super::limits;

/// The largest block of each table that was asked for, in bytes.
#[derive(Debug, Default)]
pub(super) struct LargestBlocks(Mutex<HashMap<TableId, usize>>);

impl LargestBlocks {
    pub(super) fn get(&self, table: TableId) -> Option<usize> {
        self.0.lock().get(&table).copied()
    }

    /// Notes that of a table. Those of tables that are gone go, at the latest when they are half of
    /// all.
    pub(super) fn note(&self, table: TableId, bytes: usize, tables: &[TableId]) {
        let mut known = self.0.lock();
        if known.len() >= 2 * tables.len() + limits::KNOWN_BLOCK_SIZES {
            known.retain(|id, _| tables.contains(id));
        }
        known.insert(table, bytes);
    }
}
