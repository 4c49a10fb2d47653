//! The hidden index of epochs and replicas in a store.

use std::ops::ControlFlow;

use crate::batch::WriteBatch;
use crate::database_id::DatabaseId;
use crate::operation::{Condition, Expiry, Mode, Operation};
use crate::outcome::Refusal;
use crate::range::{Direction, Range};
use crate::replica_set::{ReplicaSet, ReplicaSetChange};
use crate::store::Store;

impl Store {
    /// Returns the epochs and the replicas that count, as they are visible.
    pub fn replica_set(&self) -> ReplicaSet {
        self.acknowledgements().replica_set()
    }

    /// Returns the epoch of this server.
    pub fn epoch(&self) -> u64 {
        self.acknowledgements().epoch()
    }

    /// Takes over what the hidden index has.
    pub(crate) fn load_replica_set(&self) {
        let mut set = ReplicaSet::default();
        if let Some(view) = self.view(DatabaseId::REPLICAS) {
            let _ = view.scan(&Range::ALL, Direction::Forward, 0, u32::MAX, &mut |entry| {
                set.add(entry.key, &entry.value);
                ControlFlow::Continue(())
            });
        }
        self.acknowledgements().set_replica_set(set);
    }

    /// Adds a commit with changes of the set to a batch, for the durable committer.
    ///
    /// # Errors
    /// If they do not fit into a commit.
    pub fn change_replica_set(
        &self,
        batch: &mut WriteBatch,
        changes: &[ReplicaSetChange],
    ) -> Result<(), Refusal> {
        let set = self.replica_set();
        let mut commit = batch.begin(0, DatabaseId::REPLICAS, Mode::Atomic);
        let mut push = |key: &[u8], value: Option<&[u8]>| match value {
            Some(value) => commit.push(&Operation::Put {
                key,
                value,
                condition: Condition::None,
                expiry: Expiry::None,
                want_previous: false,
            }),
            None => commit.push(&Operation::Delete {
                key,
                condition: Condition::None,
                want_previous: false,
            }),
        };
        for change in changes {
            let pushed = change.push(&set, &mut push);
            pushed.map_err(|_| Refusal::LogNotReady)?;
        }
        commit.submit();
        Ok(())
    }
}
