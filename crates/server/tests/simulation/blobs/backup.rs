//! A backup that is made while everything goes on, and held against what was visible at its cut.

use std::ops::ControlFlow;
use std::sync::Arc;

use store::backup::{
    self, BackupError, BackupJob, BackupStep, ManifestError, RestoreConfig, RestoreError,
};
use store::{Durability, Store, StoreConfig};
use wal::disk::{Disk, DiskFaultCounts, Fault, SimulatedDisk};
use wal::{LogConfig, LogId};

use super::found::{Found, found, found_at_start};
use crate::machine::Machine;
use crate::time::CommitterClock;

/// The disk of one in so many backups fails once.
const FAULTS_ONCE_IN: u64 = 3;
/// In which of its steps: of more, most backups would be complete before.
const FAULT_STEPS: u64 = 60;

/// A backup in the making, on a disk of its own, which may fail.
pub struct Backup {
    job: BackupJob,
    target: SimulatedDisk,
    at_cut: Option<Found>,
}

/// What has become of a backup.
pub enum BackupFate {
    GoesOn(Box<Backup>),
    /// It is complete, and was right.
    Complete,
    /// Nothing is left of it. It may be so if its disk has failed, or the server's, or the log.
    Failed {
        has_target_failed: bool,
        error: BackupError,
    },
}

impl Backup {
    /// `None`: the log has failed, or the disk of the backup.
    pub fn begin(machine: &mut Machine) -> Option<Backup> {
        let target = testkit::simulated_disk(machine.random.any());
        if machine.random.below(FAULTS_ONCE_IN) == 0 {
            let faults = [Fault::Error, Fault::Full, Fault::Short, Fault::PowerLoss];
            let fault = faults[machine.random.below(faults.len() as u64) as usize];
            target.plan(machine.random.below(FAULT_STEPS) as usize, fault);
        }
        let mut clock = CommitterClock(Arc::clone(&machine.time));
        let mut commit_loop = machine.commit_loop.borrow_mut();
        let disk = Arc::new(target.clone());
        let begun = (commit_loop.as_mut()?).begin_backup(disk, "simulation", &mut clock);
        let mut job = begun.ok()?;
        job.set_slice_rows(2);
        Some(Backup {
            job,
            target,
            at_cut: None,
        })
    }

    /// Goes on.
    pub fn step(mut self, machine: &Machine, store: &Store) -> BackupFate {
        let mut clock = CommitterClock(Arc::clone(&machine.time));
        let mut commit_loop = machine.commit_loop.borrow_mut();
        let commit_loop = commit_loop.as_mut().expect("it ends with the server");
        match commit_loop.step_backup(self.job, &mut clock) {
            Ok(BackupStep::Worked(job)) => BackupFate::GoesOn(Box::new(Backup { job, ..self })),
            Ok(BackupStep::Synced(job)) => {
                self.at_cut = Some(found(store));
                BackupFate::GoesOn(Box::new(Backup { job, ..self }))
            }
            Ok(BackupStep::Complete(report)) => {
                let at_cut = self.at_cut.expect("the log was synced before");
                let count = at_cut.iter().flatten().count() as u64;
                assert_eq!(report.blobs, count);
                check(&self.target, &at_cut, count);
                // It is on the device.
                self.target.lose_power();
                check(&self.target, &at_cut, count);
                BackupFate::Complete
            }
            Err(error) => {
                let has_target_failed = has_failed(&self.target);
                let lost_power = !self.target.has_power();
                self.target.lose_power();
                match backup::verify(&self.target, &mut |_, _| ControlFlow::Continue(())) {
                    // The power went when its last name was on the device.
                    Ok(verified) if lost_power => {
                        let at_cut = self.at_cut.expect("the log was synced before");
                        check(&self.target, &at_cut, verified.blobs);
                    }
                    _ => check_no_backup(&self.target),
                }
                BackupFate::Failed {
                    has_target_failed,
                    error,
                }
            }
        }
    }

    /// The server has ended, and the power of the backup's disk with it.
    pub fn cut(self) {
        drop(self.job);
        self.target.lose_power();
        check_no_backup(&self.target);
    }
}

fn has_failed(disk: &SimulatedDisk) -> bool {
    !disk.has_power() || disk.fault_counts() != DiskFaultCounts::default()
}

/// What is left of a backup that was not completed is not taken for one.
fn check_no_backup(target: &SimulatedDisk) {
    let verified = backup::verify(target, &mut |_, _| ControlFlow::Continue(()));
    let Err(RestoreError::Manifest { source, .. }) = verified else {
        panic!("it is taken for a backup");
    };
    assert!(matches!(source, ManifestError::Missing), "{source}");
}

fn check(source: &SimulatedDisk, at_cut: &Found, count: u64) {
    let goes_on = &mut |_, _| ControlFlow::Continue(());
    let verified = backup::verify(source, goes_on);
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
    let done = backup::restore(source, &target, &config, &mut clock, goes_on);
    done.unwrap_or_else(|error| panic!("{error}"));
    let opened = Store::open(store, target, &log);
    let opened = opened.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(found_at_start(&opened.store), *at_cut);
}
