//! Which databases an engine has.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::room::RoomShare;
use super::sink::{RemoteDone, RemoteSink};
use crate::database::{CreateError, DatabaseConfig, DropError};
use crate::database_id::DatabaseId;
use crate::outcome::{Decision, Outcomes, Refusal};
use crate::record::CommitRecord;
use crate::remote_kind::RemoteError;

/// The databases of an engine, as they were last read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemoteCatalogue {
    /// Grows whenever `databases` changes, but for estimates.
    pub generation: u64,
    /// All databases, by their ids.
    pub databases: Vec<RemoteDatabase>,
}

/// One database of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteDatabase {
    /// Its number, which the engine keeps: all servers agree on it, and it is never used again.
    pub id: DatabaseId,
    /// Its name.
    pub name: String,
    /// Its shape and limits: [`Kind::Remote`](crate::Kind::Remote).
    pub config: DatabaseConfig,
    /// How many entries it has, by estimate; `None`: nobody knows.
    pub entries: Option<u64>,
    /// What they take in the engine, by estimate; `None`: nobody knows.
    pub disk_bytes: Option<u64>,
}

/// A change of the catalogue, to be carried out by the engine.
pub struct RemoteChange {
    what: WhatChanges,
    timeout: Duration,
    end: Option<ChangeEnd>,
}

/// What is to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhatChanges {
    /// An empty database is made, under a number that was never used before.
    Create {
        /// Its name, which nobody else may have: [`CreateError::Exists`].
        name: String,
        /// Its shape and limits.
        config: DatabaseConfig,
    },
    /// A database is dropped with all it holds.
    Drop {
        /// Which.
        id: DatabaseId,
        /// Only if it holds nothing: [`DropError::NotEmpty`].
        only_empty: bool,
    },
}

/// Why a catalogue was not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemoteChangeError {
    /// The database was not made.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// The database was not dropped.
    #[error(transparent)]
    Drop(#[from] DropError),
    /// The engine has not done it.
    #[error(transparent)]
    Remote(#[from] RemoteError),
}

/// Where the outcome of a change goes.
struct ChangeEnd {
    record: CommitRecord,
    sink: Arc<dyn RemoteSink>,
    share: RoomShare,
}

impl RemoteChange {
    pub(crate) fn new(
        what: WhatChanges,
        record: CommitRecord,
        timeout: Duration,
        (sink, share): (Arc<dyn RemoteSink>, RoomShare),
    ) -> RemoteChange {
        let end = ChangeEnd {
            record,
            sink,
            share,
        };
        RemoteChange {
            what,
            timeout,
            end: Some(end),
        }
    }

    /// Returns what is to change.
    pub fn what(&self) -> &WhatChanges {
        &self.what
    }

    /// Returns within which time it is to be completed.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Ends it: with the database that was made or dropped, or the reason why not.
    pub fn complete(mut self, result: Result<DatabaseId, RemoteChangeError>) {
        if let Some(end) = self.end.take() {
            end.complete(result);
        }
    }
}

impl ChangeEnd {
    fn complete(mut self, result: Result<DatabaseId, RemoteChangeError>) {
        let mut outcomes = Outcomes::new();
        match result {
            Ok(id) => {
                self.record.database = id;
                let mark = outcomes.mark();
                outcomes.finish(&mark, &self.record, 1, Decision::Applied.into());
            }
            Err(error) => outcomes.refuse(&self.record, error.refusal()),
        }
        self.share.room().count_outcomes(&outcomes);
        // Before its loop hands over what waited for it.
        drop(self.share);
        self.sink.put(RemoteDone::Commit(outcomes));
    }
}

impl RemoteChangeError {
    fn refusal(self) -> Refusal {
        match self {
            RemoteChangeError::Create(error) => Refusal::NotCreated(error),
            RemoteChangeError::Drop(error) => Refusal::NotDropped(error),
            RemoteChangeError::Remote(error) => error.into(),
        }
    }
}

impl Drop for RemoteChange {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            end.complete(Err(RemoteError::OutcomeUnknown.into()));
        }
    }
}

impl fmt::Debug for RemoteChange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("RemoteChange")
            .field("what", &self.what)
            .finish_non_exhaustive()
    }
}
