//! The thread that makes snapshots, and where it and the committer's thread meet.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use wal::disk::Disk;

use super::committer::{DurableCommitter, Event};
use super::mailbox::{Hub, Signal};
use crate::background::Background;
use crate::clock::Clock;
use crate::snapshot::{self, Header, Making, SnapshotError, SnapshotReport, Step, limits};
use crate::store::Store;

type Outcome = Result<SnapshotReport, SnapshotError>;

/// Requests for snapshots, and what passes between the two threads.
#[derive(Default)]
pub(super) struct SnapshotQueue {
    requests: Mutex<SnapshotRequests>,
    changed: Condvar,
    /// There is something on it for the committer.
    has_news: AtomicBool,
}

#[derive(Default)]
struct SnapshotRequests {
    /// Numbers of requests: the last one, and the last one that is answered.
    asked: u64,
    answered: u64,
    /// The answer to the last ones.
    outcome: Option<Outcome>,
    base: Base,
    /// How the last attempt ended, until the committer knows.
    ended: Option<Outcome>,
    is_over: bool,
}

/// What a snapshot is of, on its way from the committer's thread.
#[derive(Default)]
enum Base {
    #[default]
    None,
    Wanted,
    /// `None`: the log has failed.
    Given(Option<Header>),
}

impl SnapshotQueue {
    /// Waits for a snapshot that begins after this call.
    pub(super) fn request(&self) -> Outcome {
        let mut requests = self.requests.lock();
        requests.asked += 1;
        let number = requests.asked;
        self.changed.notify_all();
        while requests.answered < number && !requests.is_over {
            self.changed.wait(&mut requests);
        }
        match &requests.outcome {
            Some(outcome) if requests.answered >= number => outcome.clone(),
            _ => Err(SnapshotError::Stopping),
        }
    }

    /// No more snapshots are made.
    pub(super) fn end(&self) {
        self.requests.lock().is_over = true;
        self.changed.notify_all();
    }

    /// What the committer does between two groups: gives what it is asked for, and asks for a
    /// snapshot when one is due.
    pub(super) fn serve(&self, committer: &mut DurableCommitter, clock: &mut dyn Clock) {
        let is_due = committer.wants_snapshot(clock);
        if !is_due && !self.has_news.swap(false, Ordering::Acquire) {
            return;
        }
        let mut requests = self.requests.lock();
        if let Some(outcome) = requests.ended.take() {
            committer.snapshot_ended(outcome, clock);
        } else if is_due && requests.asked == requests.answered {
            requests.asked += 1;
        }
        if matches!(requests.base, Base::Wanted) {
            requests.base = Base::Given(committer.snapshot_base(clock));
        }
        self.changed.notify_all();
    }

    // --- for the thread that makes them

    /// Waits for a request; returns its number. `None`: it is over.
    fn next(&self) -> Option<u64> {
        let mut requests = self.requests.lock();
        while requests.asked == requests.answered && !requests.is_over {
            self.changed.wait(&mut requests);
        }
        (!requests.is_over).then_some(requests.asked)
    }

    fn base(&self, signal: &Signal) -> Result<Header, SnapshotError> {
        let mut requests = self.requests.lock();
        requests.base = Base::Wanted;
        self.tell(signal);
        loop {
            if requests.is_over {
                return Err(SnapshotError::Stopping);
            }
            if let Base::Given(base) = &mut requests.base {
                let base = base.take();
                requests.base = Base::None;
                return base.ok_or(SnapshotError::LogFailed);
            }
            self.changed.wait(&mut requests);
        }
    }

    fn check_over(&self) -> Result<(), SnapshotError> {
        if self.requests.lock().is_over {
            return Err(SnapshotError::Stopping);
        }
        Ok(())
    }

    fn answer(&self, number: u64, outcome: Outcome, signal: &Signal) {
        let mut requests = self.requests.lock();
        requests.answered = number;
        requests.outcome = Some(outcome.clone());
        requests.ended = Some(outcome);
        self.changed.notify_all();
        self.tell(signal);
    }

    fn tell(&self, signal: &Signal) {
        self.has_news.store(true, Ordering::Release);
        signal.wake();
    }
}

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
        let _ending = Ending(self.hub.clone());
        let hub = self.hub.clone();
        if let Err(error) = Background::Bulk.enter() {
            hub.tell(Some(Event::NoPriority(error.to_string())));
        }
        while let Some(number) = hub.snapshot_queue.next() {
            let outcome = self.attempt();
            if let Ok(report) = &outcome {
                // What cannot be removed now is removed after the next one, or at the next start.
                let _ = snapshot::remove_older(&*self.disk, report.sequence);
                hub.retire_through(report.replay_sequence);
            }
            hub.snapshot_queue.answer(number, outcome, &hub.signal);
        }
    }

    fn attempt(&mut self) -> Outcome {
        let base = self.hub.snapshot_queue.base(&self.hub.signal)?;
        let mut making = Making::new(&self.store, base, self.disk.clone())?;
        let outcome = self.make(&mut making);
        if outcome.is_err() {
            making.discard();
        }
        outcome
    }

    fn make(&mut self, making: &mut Making) -> Outcome {
        loop {
            self.hub.snapshot_queue.check_over()?;
            let begin_ns = self.clock.now_ns();
            match making.step(&mut self.clock)? {
                Step::More => self.rest(begin_ns),
                Step::SyncLog => match self.hub.sync() {
                    Some(durable_sequence) => making.log_synced(durable_sequence),
                    None => {
                        self.hub.snapshot_queue.check_over()?;
                        return Err(SnapshotError::LogFailed);
                    }
                },
                Step::Installed(report) => return Ok(report),
            }
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
struct Ending(Arc<Hub>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.snapshot_queue.end();
    }
}
