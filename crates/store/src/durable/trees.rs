//! The trees of the databases on disk, as the one who commits has them.

use std::collections::BTreeMap;
use std::fmt;

use crate::database_id::DatabaseId;
use crate::store::Store;
use crate::tree::{
    Generation, Keeper, Pressure, TreeError, TreeIndex, TreeWriter, Trouble, limits,
};

/// The writers of all databases on disk. Nobody else changes these.
pub(super) struct TreeWriters {
    store: Store,
    open: BTreeMap<DatabaseId, Open>,
    /// Flushes and compacts them on threads of its own. Without one, whoever runs the committer has
    /// that done.
    keeper: Option<Keeper>,
}

struct Open {
    writer: TreeWriter,
    /// What its memtables take, as far as it is counted among the memory in use.
    booked_bytes: u64,
}

impl TreeWriters {
    pub(super) fn new(store: &Store) -> TreeWriters {
        TreeWriters {
            store: store.clone(),
            open: BTreeMap::new(),
            keeper: None,
        }
    }

    /// Has them flushed and compacted from now on.
    pub(super) fn set_keeper(&mut self, keeper: Keeper) {
        for open in self.open.values() {
            keeper.add(open.writer.index());
        }
        self.keeper = Some(keeper);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    pub(super) fn get(&self, id: DatabaseId) -> Option<&TreeWriter> {
        self.open.get(&id).map(|open| &open.writer)
    }

    pub(super) fn get_mut(&mut self, id: DatabaseId) -> Option<&mut TreeWriter> {
        self.open.get_mut(&id).map(|open| &mut open.writer)
    }

    /// Takes a tree over, in the place of an older one of the same database.
    pub(super) fn insert(&mut self, id: DatabaseId, writer: TreeWriter) {
        self.remove(id);
        if let Some(keeper) = &self.keeper {
            keeper.add(writer.index());
        }
        let open = Open {
            writer,
            booked_bytes: 0,
        };
        self.open.insert(id, open);
        self.book(id);
    }

    /// Forgets a tree.
    pub(super) fn remove(&mut self, id: DatabaseId) {
        if let Some(open) = self.open.remove(&id) {
            if let Some(keeper) = &self.keeper {
                keeper.remove(open.writer.index().generation());
            }
            self.store.change_memory(open.booked_bytes, 0);
        }
    }

    /// Counts what the memtables of a database take among the memory in use.
    pub(super) fn book(&mut self, id: DatabaseId) {
        if let Some(open) = self.open.get_mut(&id) {
            let bytes = open.writer.index().memtable_bytes();
            self.store.change_memory(open.booked_bytes, bytes);
            open.booked_bytes = bytes;
        }
    }

    /// Everything up to this sequence is on the device or was never for a tree, if everything up to
    /// `visible_sequence` is visible.
    pub(super) fn flushed_through(&self, visible_sequence: u64) -> u64 {
        let unflushed = self
            .open
            .values()
            .filter_map(|open| open.writer.unflushed_from());
        let through = unflushed.map(|first| first - 1);
        through
            .min()
            .unwrap_or(visible_sequence)
            .min(visible_sequence)
    }

    /// Seals what should be sealed, as far as the log is durable. Call it between groups. Returns
    /// whether something waits for a sync of the log.
    pub(super) fn maintain(&mut self, durable_sequence: u64) -> bool {
        let mut waits = false;
        for id in self.to_seal() {
            let open = self.open.get_mut(&id).expect("it was just listed");
            if open.writer.seal(durable_sequence) {
                self.call_keeper();
            } else {
                waits = true;
            }
        }
        self.trim();
        waits
    }

    fn to_seal(&self) -> Vec<DatabaseId> {
        let full = self
            .open
            .iter()
            .filter(|(_, open)| open.writer.wants_seal());
        let mut full: Vec<_> = full.map(|(&id, _)| id).collect();
        // One whose folder cannot be made keeps what it has: to wait for it would be to wait for
        // ever.
        let sealable = (self.open.iter()).filter(|(_, open)| open.writer.can_seal());
        let active = sealable.map(|(&id, open)| (open.writer.active_bytes(), id));
        let limit_bytes = self.store.memory_limit_bytes();
        let is_over = active.clone().map(|(bytes, _)| bytes).sum::<u64>()
            > limits::ACTIVE_BYTES.min(limit_bytes / limits::ACTIVE_SHARE);
        // What is in memory for others can fill it, too: then little is worth a table.
        let is_tight = self.store.memory_bytes() > limit_bytes - limit_bytes / limits::TIGHT_SHARE;
        let least_bytes = match is_over {
            true => 0,
            false => limit_bytes / limits::SEALED_WHEN_TIGHT_SHARE,
        };
        if is_over || is_tight {
            let largest = active.max().filter(|&(bytes, _)| bytes > least_bytes);
            full.extend(largest.map(|(_, id)| id).filter(|id| !full.contains(id)));
        }
        full
    }

    /// Seals the trees that have something in memory that is older than a sequence: what keeps the
    /// log from being shortened.
    pub(super) fn seal_older_than(&mut self, sequence: u64, durable_sequence: u64) {
        let mut has_sealed = false;
        for open in self.open.values_mut() {
            if (open.writer.unflushed_from()).is_some_and(|first| first <= sequence) {
                has_sealed |= open.writer.seal(durable_sequence);
            }
        }
        if has_sealed {
            self.call_keeper();
        }
    }

    fn call_keeper(&self) {
        if let Some(keeper) = &self.keeper {
            keeper.call();
        }
    }

    /// Lets memtables go that are on the device and that no commit needs any more.
    fn trim(&mut self) {
        let kept = self
            .open
            .iter()
            .filter(|(_, open)| open.writer.index().keeps_flushed());
        for id in kept.map(|(&id, _)| id).collect::<Vec<_>>() {
            let trimmed = |open: &Open| open.writer.index().trim();
            if self.open.get(&id).is_some_and(trimmed) {
                self.book(id);
                self.call_keeper();
            }
        }
        if self.indexes().any(TreeIndex::wants_release) {
            self.call_keeper();
        }
    }

    /// A flush or compaction has ended: what the trees take has changed.
    pub(super) fn rebook(&mut self) {
        for id in self.open.keys().copied().collect::<Vec<_>>() {
            self.book(id);
        }
    }

    /// How long the one who commits should wait before the next group, in nanoseconds, if the last
    /// one was for these databases.
    pub(super) fn delay_ns(&self, touched: impl Iterator<Item = DatabaseId>) -> u64 {
        // To wait for one whose folder takes nothing would hold up all others for nothing.
        let takes_some = |index: &&TreeIndex| index.trouble() == Trouble::None;
        let indexes = touched.filter_map(|id| self.get(id).map(TreeWriter::index));
        let pressures = indexes.filter(takes_some).map(TreeIndex::pressure);
        let delays = pressures.map(|pressure| match pressure {
            Pressure::None => 0,
            Pressure::Slow { delay_ns } => delay_ns,
            Pressure::Refuse => limits::DELAY_NS,
        });
        delays.max().unwrap_or(0)
    }

    /// Whether the folder of a tree could not be made when that was tried last: then it is not
    /// worth while to begin another one.
    pub(super) fn cannot_be_made(&self) -> bool {
        self.indexes()
            .any(|index| !index.is_made() && index.trouble() != Trouble::None)
    }

    /// Writes all sealed memtables to the device, and merges what is due, on this thread. An error
    /// of one keeps nothing from the others.
    pub(super) fn flush(&mut self) -> Result<(), TreeError> {
        let flush = |index: &TreeIndex| -> Result<(), TreeError> {
            while index.flush()? {}
            while index.compact()? {}
            Ok(())
        };
        let flushed: Vec<_> = self.indexes().map(flush).collect();
        self.rebook();
        flushed.into_iter().collect()
    }

    /// Handles of all trees.
    pub(super) fn indexes(&self) -> impl Iterator<Item = &TreeIndex> {
        self.open.values().map(|open| open.writer.index())
    }

    /// The numbers of the lists of tables that they have, at least.
    pub(super) fn lists(&self) -> BTreeMap<Generation, u64> {
        self.indexes()
            .map(|index| (index.generation(), index.list()))
            .collect()
    }

    /// The trees that there are.
    pub(super) fn generations(&self) -> impl Iterator<Item = Generation> {
        self.open
            .values()
            .map(|open| open.writer.index().generation())
    }
}

impl fmt::Debug for TreeWriters {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.generations()).finish()
    }
}
