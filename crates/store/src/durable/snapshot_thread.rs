//! The thread that makes snapshots.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use wal::disk::Disk;

use super::event::StorageEvent;
use super::mailbox::Hub;
use super::snapshot_job::{SnapshotJob, SnapshotStep};
use super::snapshot_queue::Outcome;
use crate::background::Background;
use crate::clock::Clock;
use crate::snapshot::{SnapshotError, limits};
use crate::store::Store;

/// The thread, seen from the committer's. Dropped, it ends.
pub(super) struct SnapshotThread {
    hub: Arc<Hub>,
    thread: Option<JoinHandle<()>>,
}

impl SnapshotThread {
    pub(super) fn start(
        store: Store,
        disk: Arc<dyn Disk>,
        hub: Arc<Hub>,
        clock: impl Clock + Send + 'static,
    ) -> io::Result<SnapshotThread> {
        let maker = Maker {
            store,
            disk,
            hub: hub.clone(),
            clock,
            work_ns: 0,
        };
        let thread = thread::Builder::new()
            .name("pelton-snapshots".into())
            .spawn(move || maker.run())?;
        Ok(SnapshotThread {
            hub,
            thread: Some(thread),
        })
    }
}

impl Drop for SnapshotThread {
    fn drop(&mut self) {
        // It may wait for a sync of the committer, which is what drops this.
        self.hub.end();
        if let Some(thread) = self.thread.take() {
            // A panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

struct Maker<C> {
    store: Store,
    disk: Arc<dyn Disk>,
    hub: Arc<Hub>,
    clock: C,
    /// Time spent since the last rest.
    work_ns: u64,
}

impl<C: Clock> Maker<C> {
    fn run(mut self) {
        let _ending = SnapshotWaitersGuard(self.hub.clone());
        let hub = self.hub.clone();
        if let Err(error) = Background::Bulk.enter() {
            hub.tell(Some(StorageEvent::NoPriority(error.to_string())));
        }
        while let Some(number) = hub.snapshot_queue().next() {
            let outcome = self.attempt();
            hub.snapshot_queue().answer(number, outcome, hub.signal());
        }
    }

    fn attempt(&mut self) -> Outcome {
        let hub = self.hub.clone();
        let base = hub.snapshot_queue().base(hub.signal())?;
        let mut job = SnapshotJob::begin(&self.store, Some(base), &self.disk, hub.holds())?;
        loop {
            if let Err(error) = hub.snapshot_queue().check_over() {
                job.discard();
                return Err(error);
            }
            let begin_ns = self.clock.now_ns();
            let step = job.step(&mut self.clock, || {
                hub.sync().ok_or_else(|| {
                    let over = hub.snapshot_queue().check_over();
                    over.err().unwrap_or(SnapshotError::LogFailed)
                })
            });
            job = match step? {
                SnapshotStep::Worked(job) => {
                    self.rest(begin_ns);
                    job
                }
                SnapshotStep::Synced(job) => job,
                SnapshotStep::Complete(report) => return Ok(report),
            };
        }
    }

    /// Rests now and then, in proportion to the time that was spent.
    fn rest(&mut self, begin_ns: u64) {
        self.work_ns += self.clock.now_ns().saturating_sub(begin_ns);
        if self.work_ns >= limits::REST_AFTER_NS {
            let rest_ns = (self.work_ns * limits::REST_SHARE / 100).min(limits::REST_NS_MAX);
            self.work_ns = 0;
            thread::sleep(Duration::from_nanos(rest_ns));
        }
    }
}

/// Lets those go on who wait for a snapshot when nobody makes any more.
struct SnapshotWaitersGuard(Arc<Hub>);

impl Drop for SnapshotWaitersGuard {
    fn drop(&mut self) {
        self.0.snapshot_queue().end();
    }
}
