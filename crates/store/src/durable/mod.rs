//! Durable databases: their commits go through the log.
//!
//! Design: docs/internals/commit-and-log.md, "The committer". Layers, from below:
//!
//! 1. Parts of the committer, which can be tested alone: building of groups (`group_builder`,
//!    `group_decider`, `databases`, `pending`, `shares`, `group_sizing`), the log with its
//!    `segments`, `publish`, `trees`, `conversion`, `retained`, and what says when: `sync_plan`,
//!    `snapshot_plan`.
//!    `followed` and `follow_decider` put what a leader has decided in the place of decisions.
//! 2. `committer`, which joins them; `folder`, `replay` and `open`, which make one at a start.
//! 3. Where others reach it: `mailbox`, `committer_jobs`, `snapshot_queue`, `hold`.
//! 4. `commit_loop`, which runs it step by step, on a thread or in a simulation.
//! 5. Background jobs, each written once for both: `snapshot_job`, `convert`, and
//!    [`backup`](crate::backup), by way of `committer_access`.
//! 6. `thread`, `snapshot_thread`, `reclaim`: the threads of a server.

mod ahead;
mod commit_loop;
mod committer;
mod committer_access;
mod committer_jobs;
mod conversion;
mod convert;
mod database_name;
mod databases;
mod event;
mod folder;
mod follow;
mod follow_decider;
mod followed;
mod group_builder;
mod group_decider;
mod group_sizing;
mod hold;
mod mailbox;
mod open;
mod open_error;
mod pending;
mod places;
mod publish;
mod reclaim;
mod replay;
mod replay_trees;
mod retained;
mod segments;
mod shares;
mod signal;
mod snapshot_job;
mod snapshot_plan;
mod snapshot_queue;
mod snapshot_thread;
mod sync_plan;
mod thread;
mod trees;
mod verify_trees;
mod visible;

pub use commit_loop::CommitLoop;
pub use committer::DurableCommitter;
pub(crate) use committer_access::CommitterAccess;
pub use conversion::{ConvertError, ConvertReport, ConvertWatch};
pub use event::StorageEvent;
pub(crate) use folder::{
    BACKUP_MANIFEST_NAME, FolderState, is_own_file, mark as mark_folder, new_owner,
};
pub use folder::{
    FOLDER_VERSION, FolderError, LOCK_NAME, REPLICA_ID_NAME, REPLICA_MARK_NAME, inspect_folder,
    known, open_folder, owner,
};
pub use followed::{FollowError, FollowReport, FollowedGroups};
pub(crate) use hold::Holds;
pub use hold::LogHold;
pub use mailbox::{CommitWaker, Mailbox};
pub use open::{Opened, TREES_FOLDER, TreePlace};
pub use open_error::{OpenError, ReplayError};
pub use pending::PublishAfter;
pub use replay_trees::LostTree;
pub use thread::{Durable, Reporter};
pub use verify_trees::{NamedTrees, TreeVerdict};

pub use crate::log_statistics::LogStatistics;
