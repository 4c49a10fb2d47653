//! Where the entries of a database are: in memory, or in a tree on the device.

use crate::memory::MemoryIndex;
use crate::tree::TreeIndex;

/// The index of one database.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "a box would cost each read one more place in memory"
)]
pub(crate) enum Index {
    /// All of it in memory. Readers share the lock of the database with who changes it.
    Memory(MemoryIndex),
    /// On the device. Readers take [views](TreeIndex::view), without the lock of the database; the
    /// one who changes it has the writer that belongs to it.
    Tree(TreeIndex),
}

impl Index {
    /// The index in memory.
    ///
    /// # Panics
    ///
    /// If the database is on disk: who calls this knows better.
    #[inline]
    #[expect(clippy::panic, reason = "the kind of a database is matched before")]
    pub(crate) fn memory(&self) -> &MemoryIndex {
        match self {
            Index::Memory(index) => index,
            Index::Tree(tree) => panic!("the database is on disk: {tree:?}"),
        }
    }

    /// See [`memory`](Index::memory).
    #[inline]
    #[expect(clippy::panic, reason = "the kind of a database is matched before")]
    pub(crate) fn memory_mut(&mut self) -> &mut MemoryIndex {
        match self {
            Index::Memory(index) => index,
            Index::Tree(tree) => panic!("the database is on disk: {tree:?}"),
        }
    }

    /// The tree of a database on disk.
    pub(crate) fn tree(&self) -> Option<&TreeIndex> {
        match self {
            Index::Memory(_) => None,
            Index::Tree(tree) => Some(tree),
        }
    }

    /// How many entries there are, with those that have expired; by estimate on disk.
    pub(crate) fn entries(&self) -> u64 {
        match self {
            Index::Memory(index) => index.len() as u64,
            Index::Tree(tree) => tree.statistics().entries,
        }
    }
}
