//! Where the entries of a database are: in memory, in a tree on the device, or elsewhere.

use crate::memory::MemoryIndex;
use crate::remote_kind::RemoteIndex;
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
    /// On an engine elsewhere.
    Remote(RemoteIndex),
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
            other => panic!("the database is not in memory: {other:?}"),
        }
    }

    /// See [`memory`](Index::memory).
    #[inline]
    #[expect(clippy::panic, reason = "the kind of a database is matched before")]
    pub(crate) fn memory_mut(&mut self) -> &mut MemoryIndex {
        match self {
            Index::Memory(index) => index,
            other => panic!("the database is not in memory: {other:?}"),
        }
    }

    /// The tree of a database on disk.
    pub(crate) fn tree(&self) -> Option<&TreeIndex> {
        match self {
            Index::Memory(_) | Index::Remote(_) => None,
            Index::Tree(tree) => Some(tree),
        }
    }

    /// How many entries there are, with those that have expired; by estimate on disk.
    pub(crate) fn entries(&self) -> u64 {
        match self {
            Index::Memory(index) => index.len() as u64,
            Index::Tree(tree) => tree.statistics().entries,
            Index::Remote(remote) => remote.entries.unwrap_or(0),
        }
    }
}
