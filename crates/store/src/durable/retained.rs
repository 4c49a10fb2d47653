//! Trees that databases came into memory from, while a start would still need them.

use crate::tree::TreeIndex;

/// A tree that a database in memory was made from, of use until a snapshot has what was in it.
#[derive(Debug)]
pub(super) struct RetainedTree {
    /// The commit that did it.
    pub(super) sequence: u64,
    pub(super) tree: TreeIndex,
}

/// All of these.
#[derive(Debug, Default)]
pub(super) struct RetainedTrees(Vec<RetainedTree>);

impl RetainedTrees {
    /// Those that a start has found.
    pub(super) fn new(found: Vec<RetainedTree>) -> RetainedTrees {
        RetainedTrees(found)
    }

    /// Keeps a tree from which a commit has brought its database into memory.
    pub(super) fn keep(&mut self, sequence: u64, tree: TreeIndex) {
        self.0.push(RetainedTree { sequence, tree });
    }

    /// A snapshot has everything up to a sequence: returns the trees that are of no use any more.
    pub(super) fn release_through(&mut self, sequence: u64) -> Vec<TreeIndex> {
        let released = self.0.extract_if(.., |one| one.sequence <= sequence);
        released.map(|one| one.tree).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database_id::DatabaseId;
    use crate::tree::{Generation, TreeConfig, Trees};

    #[test]
    fn a_tree_stays_until_a_snapshot_has_its_commit() {
        let folder = std::env::temp_dir().join("pelton-no-such-folder");
        let trees = Trees::open(&folder, TreeConfig::default()).expect("nothing is made yet");
        let tree = |sequence| {
            let database = DatabaseId::DEFAULT;
            let writer = trees.begin(Generation { database, sequence }, None);
            writer.index().clone()
        };
        let mut retained = RetainedTrees::default();
        for _ in 0..2 {
            retained.keep(5, tree(1));
            retained.keep(9, tree(2));
            assert!(retained.release_through(4).is_empty());
            for (through, sequence) in [(5, 1), (20, 2)] {
                let released = retained.release_through(through);
                let sequences = released.iter().map(|tree| tree.generation().sequence);
                assert_eq!(sequences.collect::<Vec<_>>(), [sequence]);
            }
        }
    }
}
