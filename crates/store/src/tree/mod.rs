//! An index on the device: a tree of sorted tables without a journal, since the log is that
//! already.
//!
//! Built on the engine `lsm-tree`, of which nothing shows outside this module. A tree holds one
//! *generation* of a database: what came after the commit that made it, or that cleared it last.
//! Commits go into a *memtable*; a full one is *sealed*, then *flushed* to tables; *compaction*
//! merges tables. What is in memtables is lost when the process ends, and comes back from the log:
//! [`TreeIndex::persisted_sequence`] says from where on.
//!
//! # Whose numbers
//!
//! The engine numbers entries, and versions of its set of tables, from one counter: a read at
//! number X sees entries below X, in the newest version below X. Versions drop overwritten entries,
//! so a view must never see a later version than its own, and a later view always one that is late
//! enough. The engine draws numbers for versions itself, while ours are given by the log. So the
//! number of a commit is its sequence times 1024; the numbers between are the engine's for versions
//! that come before the next commit, or before the first one that the engine does not know
//! (`handover.rs`). At most [`CHANGES_PER_COMMIT`](limits::CHANGES_PER_COMMIT) numbers are used up
//! between two commits.

pub mod limits;

mod anew;
mod arena;
mod begin;
mod block_sizes;
mod check;
mod error;
mod estimate;
mod fetch;
mod figures;
mod folder;
mod generation;
mod handover;
mod index;
mod keeper;
mod key;
mod known;
mod largest_blocks;
mod leaving;
mod manifest;
mod merge;
mod numbers;
mod opening;
mod pace;
mod rows;
mod settle;
mod table_figures;
mod tickets;
mod value;
mod view;
mod visible_views;
mod walk;
mod writer;

#[cfg(test)]
mod tests;

pub(crate) use anew::Anew;
pub(crate) use arena::Arena;
pub use check::TreeReport;
pub(crate) use check::verify as verify_tree;
pub use error::TreeError;
pub use fetch::{
    Fetch, Fetched, FetchedCall, NeedsBytes, NotFetched, PageRequest, ReadFailure, ReadPlan,
};
pub(crate) use fetch::{FetchedView, FromElsewhere, PlannedRequest};
pub use figures::{TreeStatistics, Trouble};
pub(crate) use folder::Fate;
pub use folder::{TreeConfig, Trees};
pub use generation::Generation;
pub use index::{TreeFile, TreeIndex};
pub use keeper::{Keeper, KeeperEvent, TreeReporter};
pub(crate) use opening::HeldTreeFiles;
pub use pace::Pressure;
pub use tickets::Ticket;
pub use value::OwnedValue;
pub use view::TreeView;
pub use writer::{InMemory, TreeWriter};
