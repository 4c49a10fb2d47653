//! What is known of a tree's tables without asking the engine, which would wait while it installs
//! some; writers ask for each group.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use lsm_tree::{AbstractTree, Tree};

/// The tables as they were after the last flush or compaction.
pub(super) struct TableFigures {
    first_level_runs: AtomicUsize,
    disk_bytes: AtomicU64,
    entries: AtomicU64,
    /// The number of the list of tables, as it was then or before. The folder names this list, or a
    /// later one.
    list: AtomicU64,
}

impl TableFigures {
    /// Makes those of a tree; `None`: one without tables.
    pub(super) fn of(tree: Option<&Tree>) -> TableFigures {
        TableFigures {
            first_level_runs: AtomicUsize::new(tree.map_or(0, Tree::l0_run_count)),
            disk_bytes: AtomicU64::new(tree.map_or(0, Tree::disk_space)),
            entries: AtomicU64::new(tree.map_or(0, entries)),
            list: AtomicU64::new(tree.map_or(0, list)),
        }
    }

    /// Notes what a flush or a compaction has left.
    pub(super) fn note(&self, tree: &Tree) {
        let runs = tree.l0_run_count();
        self.first_level_runs.store(runs, Ordering::Relaxed);
        self.disk_bytes.store(tree.disk_space(), Ordering::Relaxed);
        self.entries.store(entries(tree), Ordering::Relaxed);
        // One that flushes and one that compacts may come here in another order than to the engine.
        self.list.fetch_max(list(tree), Ordering::Relaxed);
    }

    /// Returns the number of runs in the first level.
    pub(super) fn first_level_runs(&self) -> usize {
        self.first_level_runs.load(Ordering::Relaxed)
    }

    /// Returns the bytes of the tables.
    pub(super) fn disk_bytes(&self) -> u64 {
        self.disk_bytes.load(Ordering::Relaxed)
    }

    /// Returns their entries, without those that say that a key is gone.
    pub(super) fn entries(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }

    /// Returns the number of a list of tables that the folder names, unless it names a later one.
    pub(super) fn list(&self) -> u64 {
        self.list.load(Ordering::Relaxed)
    }
}

fn entries(tree: &Tree) -> u64 {
    let version = tree.current_version();
    let live = version.iter_tables().map(|table| {
        let meta = &table.metadata;
        meta.item_count.saturating_sub(meta.tombstone_count)
    });
    live.sum()
}

/// The number of the list of tables. Each change of the set of tables writes a list of its own,
/// with a higher number, and it is on the device before the engine has it.
fn list(tree: &Tree) -> u64 {
    tree.current_version().id()
}
