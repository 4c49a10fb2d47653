//! A snapshot of the data folder in the making: what the thread that makes snapshots does, and a
//! simulation without threads.

use std::sync::Arc;

use wal::disk::Disk;

use super::hold::Holds;
use crate::clock::Clock;
use crate::snapshot::{
    self, SnapshotError, SnapshotHeader, SnapshotMaking, SnapshotMakingStep, SnapshotReport,
};
use crate::store::Store;

/// See the module. It is over with an error or a report.
pub(super) struct SnapshotJob {
    making: SnapshotMaking,
    disk: Arc<dyn Disk>,
    holds: Arc<Holds>,
}

/// What a step has come to.
#[must_use]
pub(super) enum SnapshotStep {
    /// Something was written, and there is more to do.
    Worked(SnapshotJob),
    /// The log was synced, and there is more to do.
    Synced(SnapshotJob),
    /// It is complete, and what it replaces was removed.
    Complete(SnapshotReport),
}

impl SnapshotJob {
    /// Begins a snapshot of what the committer has given, between two groups. `None`: its log has
    /// failed.
    pub(super) fn begin(
        store: &Store,
        base: Option<SnapshotHeader>,
        disk: &Arc<dyn Disk>,
        holds: &Arc<Holds>,
    ) -> Result<SnapshotJob, SnapshotError> {
        let base = base.ok_or(SnapshotError::LogFailed)?;
        Ok(SnapshotJob {
            making: SnapshotMaking::new(store, base, disk.clone())?,
            disk: disk.clone(),
            holds: holds.clone(),
        })
    }

    /// Puts so many entries into a page.
    pub(super) fn set_slice_rows(&mut self, rows: u32) {
        self.making.set_slice_rows(rows);
    }

    /// Does a little of it. `sync` syncs the log, and returns up to where it is durable. After an
    /// error nothing of it is left.
    pub(super) fn step(
        mut self,
        clock: &mut dyn Clock,
        sync: impl FnOnce() -> Result<u64, SnapshotError>,
    ) -> Result<SnapshotStep, SnapshotError> {
        let synced = match self.making.step(clock) {
            Ok(SnapshotMakingStep::More) => return Ok(SnapshotStep::Worked(self)),
            Ok(SnapshotMakingStep::Installed(report)) => {
                // What cannot be removed now is removed after the next one, or at the next start.
                let _ = snapshot::remove_older(&*self.disk, report.sequence);
                self.holds.retire_through(report.replay_sequence);
                return Ok(SnapshotStep::Complete(report));
            }
            Ok(SnapshotMakingStep::SyncLog) => sync(),
            Err(error) => Err(error),
        };
        match synced {
            Ok(durable_sequence) => {
                self.making.log_synced(durable_sequence);
                Ok(SnapshotStep::Synced(self))
            }
            Err(error) => {
                self.discard();
                Err(error)
            }
        }
    }

    /// Gives it up, and removes what was written.
    pub(super) fn discard(self) {
        self.making.discard();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::StandingClock;
    use crate::database::Durability;
    use crate::durable::signal::Signal;
    use crate::store::StoreConfig;

    fn store() -> Store {
        let mut config = StoreConfig::new(1);
        config.default_database.durability = Durability::Synced;
        Store::new(config, true, None).expect("the configuration is well")
    }

    fn header(store: &Store, sequence: u64) -> SnapshotHeader {
        SnapshotHeader {
            history_id: 1,
            sequence,
            replay_sequence: sequence,
            wall_ms: 1,
            next_database: store.next_database_number(),
            databases: store.all_databases(),
            tree_lists: Default::default(),
        }
    }

    #[test]
    fn a_complete_snapshot_takes_the_place_of_the_one_before() {
        let store = store();
        let disk: Arc<dyn Disk> = Arc::new(testkit::simulated_disk(1));
        let holds = Holds::new(&Arc::<Signal>::default());
        for sequence in [5, 9] {
            let base = Some(header(&store, sequence));
            let mut job = SnapshotJob::begin(&store, base, &disk, &holds).expect("there is room");
            let mut syncs = 0;
            let report = loop {
                let step = job.step(&mut StandingClock, || {
                    syncs += 1;
                    Ok(sequence)
                });
                job = match step.expect("the disk works") {
                    SnapshotStep::Worked(job) | SnapshotStep::Synced(job) => job,
                    SnapshotStep::Complete(report) => break report,
                };
            };
            assert_eq!((report.sequence, syncs), (sequence, 1));
            assert_eq!(snapshot::list(&*disk).expect("the disk works"), [sequence]);
            assert_eq!(holds.take_retire_sequence(0), sequence);
        }
    }

    #[test]
    fn nothing_is_left_of_one_whose_sync_failed() {
        let store = store();
        let disk: Arc<dyn Disk> = Arc::new(testkit::simulated_disk(1));
        let holds = Holds::new(&Arc::<Signal>::default());
        let begun = SnapshotJob::begin(&store, None, &disk, &holds);
        assert!(matches!(begun, Err(SnapshotError::LogFailed)));
        let base = Some(header(&store, 5));
        let mut job = SnapshotJob::begin(&store, base, &disk, &holds).expect("there is room");
        let error = loop {
            match job.step(&mut StandingClock, || Err(SnapshotError::LogFailed)) {
                Ok(SnapshotStep::Worked(next)) => job = next,
                Ok(_) => panic!("the log was not synced"),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, SnapshotError::LogFailed));
        assert!(disk.list().expect("the disk works").is_empty());
        assert_eq!(holds.take_retire_sequence(0), 0);
    }
}
