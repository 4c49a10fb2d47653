//! Backups and snapshots of the store of this server.

use std::sync::Arc;

use service::{Task, TaskFailure, TaskRefusal};
use store::durable::Durable;

use super::{Done, Jobs, Watch};

/// The tasks of a server that keeps its data, or of one that does not.
pub(crate) struct StorageJobs {
    pub durable: Option<Arc<Durable>>,
}

impl Jobs for StorageJobs {
    fn refuse(&self, _task: &Task) -> Option<TaskRefusal> {
        Some(TaskRefusal::NothingKept)
    }

    fn run(&self, _task: &Task, _watch: &mut Watch<'_>) -> Result<Done, TaskFailure> {
        unreachable!("refused")
    }
}
