//! Where answers of an engine go.

use std::sync::Arc;

use super::room::RoomShare;
use crate::outcome::Outcomes;
use crate::remote_kind::RemoteError;
use crate::tree::{Fetched, FromElsewhere, ReadPlan};

/// Where answers go: gathers them for a loop, and wakes it once for all that has come.
pub trait RemoteSink: Send + Sync {
    /// Takes an answer. Called by any thread.
    fn put(&self, done: RemoteDone);
}

/// What a request has come to.
#[derive(Debug)]
pub enum RemoteDone {
    /// What was read for a call.
    Read(RemoteFetched),
    /// The outcome of one commit, or of one change of the catalogue.
    Commit(Outcomes),
}

/// What an engine has returned for one call. Its bytes have their share of the room until it is
/// dropped.
#[derive(Debug)]
pub struct RemoteFetched {
    fetched: Fetched,
    _share: Option<RoomShare>,
}

impl RemoteFetched {
    pub(super) fn new(
        plan: &Arc<ReadPlan>,
        call: usize,
        result: Result<FromElsewhere, RemoteError>,
        share: Option<RoomShare>,
    ) -> RemoteFetched {
        RemoteFetched {
            fetched: Fetched::from_elsewhere(Arc::clone(plan), call, result),
            _share: share,
        }
    }

    /// Returns what was fetched.
    pub fn fetched(&self) -> &Fetched {
        &self.fetched
    }
}

/// What waits for the end of a part of a commit.
pub(super) trait PartEnd: Send + Sync {
    /// The part is complete.
    fn complete(self: Box<Self>, outcome: PartOutcome);
}

/// What became of a part.
pub(super) struct PartOutcome {
    pub(super) outcomes: Outcomes,
    /// Something was written, or may have been.
    pub(super) has_written: bool,
}
