//! What a read of a key takes of memory, before it is read: blocks of tables are read whole, and
//! their index has the size of each.

use lsm_tree::file_accessor::FileAccessor;
use lsm_tree::table::block::BlockType;
use lsm_tree::table::util::load_block;
use lsm_tree::table::{BlockHandle, IndexBlock};
use lsm_tree::{AbstractTree, Table, Tree};

use super::key::stored;
use super::limits;
use super::numbers::reads_at;
use super::view::TreeView;
use super::walk::stored_ends;
use crate::range::Range;

impl TreeView {
    /// Returns the bytes that a read of a key takes at most while it goes on: those of the largest
    /// block that it may look into. Blocks below [`LARGE_BLOCK_BYTES`](limits::LARGE_BLOCK_BYTES)
    /// count nothing. May wait for the device, for the index of a table; where that cannot be read,
    /// the read will fail too.
    pub(crate) fn read_bytes(&self, key: &[u8]) -> usize {
        let Some(tree) = self.engine() else {
            return 0;
        };
        let key = stored(key);
        let version = tree.current_version();
        let runs = version.iter_levels().flat_map(|level| level.iter());
        let tables = runs.filter_map(|run| run.get_for_key(&key));
        let bytes = tables.map(|table| match self.largest_block(tree, table) {
            Some(bytes) if bytes >= limits::LARGE_BLOCK_BYTES => {
                self.block_of(tree, table, &key).unwrap_or(0)
            }
            _ => 0,
        });
        let large = bytes.filter(|bytes| *bytes >= limits::LARGE_BLOCK_BYTES);
        large.max().unwrap_or(0)
    }

    /// Whether a block of some table is charged before it is read. Where none is, that is known
    /// without a look at the tables until they change.
    pub(super) fn has_large_blocks(&self) -> bool {
        let Some(tree) = self.engine() else {
            return false;
        };
        let version = tree.current_version();
        let known = &self.shared().largest_blocks;
        if known.are_small_in(version.id()) {
            return false;
        }
        let mut are_known = true;
        let has_large = version.iter_tables().any(|table| {
            let bytes = self.largest_block(tree, table);
            are_known &= bytes.is_some();
            bytes.is_some_and(|bytes| bytes >= limits::LARGE_BLOCK_BYTES)
        });
        if are_known && !has_large {
            known.note_small(version.id());
        }
        has_large
    }

    /// Returns the bytes of the large blocks that a walk over a range may hold at once: the largest
    /// one of each run.
    pub(super) fn walk_block_bytes(&self, range: &Range<'_>) -> usize {
        let Some(tree) = self.engine().filter(|_| !range.is_empty()) else {
            return 0;
        };
        let ends = stored_ends(range);
        let version = tree.current_version();
        let runs = version.iter_levels().flat_map(|level| level.iter());
        let bytes = runs.map(|run| match run.range_overlap_indexes(&ends) {
            Some((first, last)) => {
                let tables = run[first..=last].iter();
                let blocks = tables.filter_map(|table| self.largest_block(tree, table));
                blocks.max().unwrap_or(0)
            }
            None => 0,
        });
        bytes
            .filter(|bytes| *bytes >= limits::LARGE_BLOCK_BYTES)
            .sum()
    }

    /// `None`: the table's index cannot be read.
    fn largest_block(&self, tree: &Tree, table: &Table) -> Option<usize> {
        let known = &self.shared().largest_blocks;
        if let Some(bytes) = known.get(table.id()) {
            return Some(bytes);
        }
        let bytes = self.find_largest(tree, table).ok()?;
        let version = tree.current_version();
        let tables: Vec<_> = version.iter_tables().map(Table::id).collect();
        known.note(table.id(), bytes, &tables);
        Some(bytes)
    }

    /// Walks through the index of a table, a hundredth of it.
    fn find_largest(&self, tree: &Tree, table: &Table) -> lsm_tree::Result<usize> {
        let top = self.index_block(tree, table, &table.regions.tli)?;
        if table.regions.index.is_none() {
            return Ok(top.iter().map(|block| block.size).max().unwrap_or(0) as usize);
        }
        let mut largest = 0;
        for part in top.iter() {
            let part = BlockHandle::new(part.offset, part.size);
            let part = self.index_block(tree, table, &part)?;
            largest = part.iter().map(|block| block.size).fold(largest, u32::max);
        }
        Ok(largest as usize)
    }

    /// The bytes of the block of a table in which a key is, if it is in the table.
    fn block_of(&self, tree: &Tree, table: &Table, key: &[u8]) -> lsm_tree::Result<usize> {
        let number = reads_at(self.sequence());
        let mut handle = table.regions.tli;
        // The index is one block, or a block of blocks.
        let levels = 1 + usize::from(table.regions.index.is_some());
        for _ in 0..levels {
            let block = self.index_block(tree, table, &handle)?;
            let mut entries = block.iter();
            if !entries.seek(key, number) {
                return Ok(0);
            }
            let Some(found) = entries.next() else {
                return Ok(0);
            };
            handle = BlockHandle::new(found.offset, found.size);
        }
        Ok(handle.size() as usize)
    }

    fn index_block(
        &self,
        tree: &Tree,
        table: &Table,
        handle: &BlockHandle,
    ) -> lsm_tree::Result<IndexBlock> {
        let files = FileAccessor::DescriptorTable(self.shared().trees.descriptors());
        let block = load_block(
            (tree.id(), table.id()).into(),
            &table.path,
            &files,
            &table.cache,
            handle,
            BlockType::Index,
            table.metadata.index_block_compression,
        )?;
        Ok(IndexBlock::new(block))
    }
}
