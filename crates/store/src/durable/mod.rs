//! Databases that last: their commits go through the log.
//!
//! Design: docs/internals/commit-and-log.md, "The committer".

mod ahead;
mod backup;
mod commit_loop;
mod committer;
mod committer_jobs;
mod convert;
mod databases;
mod decider;
mod folder;
mod group_sizing;
mod hold;
mod mailbox;
mod open;
mod pending;
mod places;
mod publish;
mod reclaim;
mod replay;
mod replay_trees;
mod shares;
mod snapshot_plan;
mod snapshot_queue;
mod thread;
mod trees;
mod verify_trees;

pub use backup::BackupWatch;
pub use commit_loop::CommitLoop;
pub use committer::{DurableCommitter, Event, Progress};
pub use convert::{ConvertError, ConvertReport, ConvertWatch};
pub use folder::{FOLDER_VERSION, FolderError, known, open_folder, owner};
pub(crate) use folder::{FolderState, mark as mark_folder, new_owner};
pub use hold::LogHold;
pub use mailbox::{Mailbox, Waker};
pub use open::{OpenError, Opened, TREES_FOLDER, TreePlace};
pub use pending::Rule;
pub use replay::ReplayError;
pub use replay_trees::LostTree;
pub use thread::{Durable, Reporter};
pub use verify_trees::{NamedTrees, TreeVerdict};

pub use crate::log_statistics::LogStatistics;
