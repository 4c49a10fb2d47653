//! What brings the commits of a leader into a server that follows it.

use std::sync::Arc;

use service::Shared;
use store::durable::{Durable, FollowError, FollowedGroups};
use store::{Refusal, ReplicaSetChange, Store};

use crate::clock::TimeSource;
use crate::first_admin::commit;
use crate::settings::Log;
use crate::{Server, load_identities};

/// A server that follows another one, for the thread that does so.
#[derive(Clone)]
pub struct Replica {
    durable: Arc<Durable>,
    shared: Arc<Shared>,
    time: Arc<dyn TimeSource>,
    log: Arc<dyn Log>,
}

impl Replica {
    pub(crate) fn new(
        durable: Arc<Durable>,
        shared: Arc<Shared>,
        time: Arc<dyn TimeSource>,
        log: Arc<dyn Log>,
    ) -> Replica {
        Replica {
            durable,
            shared,
            time,
            log,
        }
    }

    /// Its store.
    pub fn store(&self) -> &Store {
        &self.shared.store
    }

    /// Up to which sequence its log goes: behind that it follows.
    pub fn sequence(&self) -> u64 {
        let log = self.shared.store.log_statistics();
        log.map_or(0, |log| log.written_sequence)
    }

    /// Up to which sequence its log is on the device.
    pub fn durable_sequence(&self) -> u64 {
        let log = self.shared.store.log_statistics();
        log.map_or(0, |log| log.durable_sequence)
    }

    /// Returns whether its log has failed, so that it takes nothing before a restart.
    pub fn has_failed_log(&self) -> bool {
        let log = self.shared.store.log_statistics();
        log.is_some_and(|log| log.has_failed)
    }

    /// Returns whether the server stops.
    pub fn is_stopping(&self) -> bool {
        self.shared.health.is_stopping()
    }

    /// Takes over groups of the leader, and waits until they are on the device and visible. One
    /// thread calls it. Returns up to which sequence everything is there.
    ///
    /// # Errors
    /// Why they are not there; some of the first of them may be.
    pub fn follow(&self, groups: FollowedGroups) -> Result<u64, FollowError> {
        let report = self.durable.follow(groups)?;
        if report.changes_identities {
            let (store, identities) = (&self.shared.store, &self.shared.identities);
            let now_ms = store.clock_ms(self.time.wall_ms());
            load_identities(identities, store, now_ms, &*self.log);
        }
        Ok(report.sequence)
    }
}

impl Server {
    /// Has epochs and the replicas that count changed, and waits until that is visible: before the
    /// server serves, and before commits wait for followers.
    ///
    /// # Errors
    /// If the log cannot take it.
    pub fn change_replica_set(&self, changes: &[ReplicaSetChange]) -> Result<(), Refusal> {
        let (parts, store) = (&self.parts, &self.parts.shared.store);
        let mut batch = store.write_batch();
        store.change_replica_set(&mut batch, changes)?;
        commit(&mut batch, store, parts.durable.as_deref(), &parts.time)
    }

    /// Returns what brings the commits of its leader to a replica; `None`: it is none.
    pub fn replica(&self) -> Option<Replica> {
        let parts = &self.parts;
        let is_replica = parts.shared.following.is_some();
        let durable = parts.durable.as_ref().filter(|_| is_replica)?;
        Some(Replica::new(
            Arc::clone(durable),
            Arc::clone(&parts.shared),
            Arc::clone(&parts.time),
            Arc::clone(&parts.settings.log),
        ))
    }
}
