//! What readers see of a database while a group is decided.

use crate::catalogue::State;
use crate::memory::MemoryIndex;
use crate::outcome::Refusal;
use crate::tree::{Pressure, TreeWriter, Trouble};

/// What readers see of a database.
pub(super) struct Visible<'a> {
    index: VisibleIndex<'a>,
    /// What it takes of what it may take.
    used_bytes: u64,
    /// Why commits that grow it are refused.
    refusal: Option<Refusal>,
    /// Why all commits that change keys are refused.
    full_refusal: Option<Refusal>,
}

#[derive(Clone, Copy)]
pub(super) enum VisibleIndex<'a> {
    Memory(&'a MemoryIndex),
    Tree(&'a TreeWriter),
}

impl<'a> Visible<'a> {
    pub(super) fn new(state: &'a State, tree: Option<&'a TreeWriter>) -> Visible<'a> {
        let Some(tree) = tree else {
            return Visible {
                index: VisibleIndex::Memory(state.index.memory()),
                used_bytes: state.memory_bytes,
                refusal: None,
                full_refusal: None,
            };
        };
        let index = tree.index();
        let is_behind = index.pressure() == Pressure::Refuse;
        let why = match index.trouble() {
            Trouble::None => Refusal::DiskBehind,
            Trouble::NoRoom => Refusal::DiskFull,
            Trouble::Failed => Refusal::DiskFailed,
        };
        Visible {
            index: VisibleIndex::Tree(tree),
            used_bytes: index.disk_bytes() + index.memtable_bytes(),
            refusal: is_behind.then_some(why),
            full_refusal: (is_behind && index.is_overfull()).then_some(why),
        }
    }

    /// Where its entries are.
    pub(super) fn index(&self) -> VisibleIndex<'a> {
        self.index
    }

    /// Returns what it takes of what it may take.
    pub(super) fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// Why commits that grow it are refused.
    pub(super) fn refusal(&self) -> Option<Refusal> {
        self.refusal
    }

    /// Why all commits that change keys are refused.
    pub(super) fn full_refusal(&self) -> Option<Refusal> {
        self.full_refusal
    }

    pub(super) fn tree(&self) -> Option<&'a TreeWriter> {
        match self.index {
            VisibleIndex::Memory(_) => None,
            VisibleIndex::Tree(tree) => Some(tree),
        }
    }

    pub(super) fn warm(&self, hashes: impl Iterator<Item = u64>) {
        if let VisibleIndex::Memory(index) = self.index {
            index.warm(hashes);
        }
    }

    pub(super) fn entries(&self) -> u64 {
        match self.index {
            VisibleIndex::Memory(index) => index.len() as u64,
            VisibleIndex::Tree(tree) => tree.index().statistics().entries,
        }
    }
}
