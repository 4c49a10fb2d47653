//! Snapshots of all memory databases that have a log, in one file: a start loads it and replays
//! only what the log holds beyond it, and what it covers can be removed from the log.
//!
//! Design: docs/internals/commit-and-log.md, "Snapshots". No threads and no clocks: the owner of
//! the values calls each step.

pub mod limits;

mod error;
mod file_writer;
mod files;
mod header;
mod making;
mod page;
mod reader;

pub use error::{SnapshotError, SnapshotReadError};
pub(crate) use files::is_snapshot;
pub use files::{file_name, list, remove_older, remove_unfinished};
pub use header::{SnapshotHeader, SnapshotTotals};
pub use making::{SnapshotMaking, SnapshotMakingStep, SnapshotReport};
pub(crate) use page::ENTRY_BYTES;
pub use page::FORMAT_VERSION;
pub use reader::{Summary, Visitor, read, verify};
