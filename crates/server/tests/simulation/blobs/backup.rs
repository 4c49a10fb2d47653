//! A backup that is made while everything goes on, and held against what was visible at its cut.

use std::ops::ControlFlow;
use std::sync::Arc;

use store::backup::{self, Making, RestoreConfig, Step};
use store::{Durability, Store, StoreConfig};
use wal::disk::{Disk, SimulatedDisk};
use wal::{LogConfig, LogId};

use super::found::{Found, found, found_at_start};
use crate::machine::Machine;
use crate::time::CommitterClock;

/// A backup in the making.
pub struct Backup {
    making: Making,
    target: SimulatedDisk,
    at_cut: Option<Found>,
}

impl Backup {
    /// `None`: the log has failed.
    pub fn begin(machine: &Machine, store: &Store, seed: u64) -> Option<Backup> {
        let target = testkit::simulated_disk(seed);
        let mut clock = CommitterClock(Arc::clone(&machine.time));
        let mut rounds = machine.rounds.borrow_mut();
        let base = rounds.as_mut()?.backup_base(&mut clock).ok()?;
        let making = Making::new(store, base, Arc::new(target.clone()), "simulation");
        let mut making = making.expect("the folder is empty");
        making.set_slice_rows(2);
        Some(Backup {
            making,
            target,
            at_cut: None,
        })
    }

    /// Goes on. True: it is complete, and was right.
    ///
    /// # Errors
    /// If it has failed, as it may when the log has.
    pub fn step(&mut self, machine: &Machine, store: &Store) -> Result<bool, String> {
        let mut clock = CommitterClock(Arc::clone(&machine.time));
        let step = self.making.step(&mut clock);
        match step.map_err(|error| error.to_string())? {
            Step::More => Ok(false),
            Step::SyncLog => {
                let mut rounds = machine.rounds.borrow_mut();
                let rounds = rounds.as_mut().ok_or("the server has ended")?;
                self.at_cut = Some(found(store));
                let end = rounds.backup_sync().map_err(|error| error.to_string())?;
                self.making.log_synced(end);
                Ok(false)
            }
            Step::Complete(report) => {
                let at_cut = self.at_cut.take().expect("the log was synced before");
                let count = at_cut.iter().flatten().count() as u64;
                assert_eq!(report.blobs, count);
                self.check(&at_cut, count);
                Ok(true)
            }
        }
    }

    fn check(&self, at_cut: &Found, count: u64) {
        let goes_on = &mut |_, _| ControlFlow::Continue(());
        let verified = backup::verify(&self.target, goes_on);
        let verified = verified.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(verified.blobs, count);
        let restored = testkit::simulated_disk(1);
        let target: Arc<dyn Disk> = Arc::new(restored.clone());
        let mut store = StoreConfig::new(1);
        store.default_database.durability = Durability::Synced;
        let log_id = LogId {
            history: 5,
            secret: 6,
        };
        // Segments are filled with zeros: small ones take less time.
        let log = LogConfig {
            segment_bytes: 64 << 10,
            ..LogConfig::new(log_id, 1)
        };
        let config = RestoreConfig {
            store,
            log,
            trees: None,
        };
        let mut clock = testkit::suite::StandingClock { now_ms: 1 };
        let done = backup::restore(&self.target, &target, &config, &mut clock, goes_on);
        done.unwrap_or_else(|error| panic!("{error}"));
        let opened = Store::open(store, target, &log);
        let opened = opened.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(found_at_start(&opened.store), *at_cut);
    }
}
