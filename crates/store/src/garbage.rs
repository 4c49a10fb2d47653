//! Old content on its way out.

use std::fmt;

use crate::memory::{MemoryIndex, Remains};
use crate::tree::TreeIndex;

/// The content of cleared and dropped databases. To drop it frees the memory, which takes about a
/// tenth of a second for a million entries: drop it, or [free](Garbage::free) it in slices, on a
/// thread that may pause.
#[must_use = "dropping it here frees the content here"]
#[derive(Default)]
pub struct Garbage {
    contents: Vec<Remains>,
    /// Their folders go with their last handles.
    trees: Vec<TreeIndex>,
}

impl Garbage {
    pub(crate) fn of(content: MemoryIndex) -> Garbage {
        let mut garbage = Garbage::default();
        garbage.add(content);
        garbage
    }

    pub(crate) fn of_tree(tree: TreeIndex) -> Garbage {
        let mut garbage = Garbage::default();
        garbage.add_tree(tree);
        garbage
    }

    /// Adds a tree that nobody needs any more.
    pub(crate) fn add_tree(&mut self, tree: TreeIndex) {
        tree.discard();
        self.trees.push(tree);
    }

    /// Adds a tree that is only to be closed: its folder stays.
    pub(crate) fn add_closed(&mut self, tree: TreeIndex) {
        self.trees.push(tree);
    }

    pub(crate) fn add(&mut self, content: MemoryIndex) {
        self.contents.push(content.into());
    }

    pub(crate) fn append(&mut self, mut other: Garbage) {
        self.contents.append(&mut other.contents);
        self.trees.append(&mut other.trees);
    }

    /// How many entries wait to be freed. Small numbers are not worth another thread.
    pub fn entries(&self) -> usize {
        self.contents.iter().map(Remains::entries_left).sum()
    }

    /// Whether there is nothing to free.
    pub fn is_empty(&self) -> bool {
        self.contents.is_empty() && self.trees.is_empty()
    }

    /// Frees a tree, with its folder, or about so many entries. Returns whether anything is left.
    pub fn free(&mut self, entries: usize) -> bool {
        if self.trees.pop().is_none()
            && let Some(content) = self.contents.last_mut()
            && !content.free(entries)
        {
            self.contents.pop();
        }
        !self.is_empty()
    }

    /// Whether trees are among it, with their folders.
    pub(crate) fn has_trees(&self) -> bool {
        !self.trees.is_empty()
    }
}

impl fmt::Debug for Garbage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Garbage")
            .field("entries", &self.entries())
            .finish()
    }
}
