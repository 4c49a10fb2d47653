//! Small things that the committer's thread does for others between two groups.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;

use parking_lot::Mutex;

use super::committer::DurableCommitter;
use super::signal::Signal;
use crate::clock::Clock;

/// When something can be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobTurn {
    /// Between two groups only.
    BetweenGroups,
    /// Also while a group waits for followers.
    WhileAwaiting,
}

type CommitterJob = Box<dyn FnOnce(&mut DurableCommitter, &mut dyn Clock) + Send>;

/// What waits to be done. As many as there are threads that wait for it.
#[derive(Default)]
pub(super) struct CommitterJobs {
    list: Mutex<JobList>,
    has_any: AtomicBool,
}

#[derive(Default)]
struct JobList {
    waiting: Vec<(JobTurn, CommitterJob)>,
    is_over: bool,
}

impl CommitterJobs {
    /// Has something done on the committer's thread, and waits for it. `None`: the committer has
    /// stopped.
    pub(super) fn send<R: Send + 'static>(
        &self,
        signal: &Signal,
        turn: JobTurn,
        work: impl FnOnce(&mut DurableCommitter, &mut dyn Clock) -> R + Send + 'static,
    ) -> Option<R> {
        let (answer, answered) = sync_channel(1);
        let job: CommitterJob = Box::new(move |committer, clock| {
            // Whoever asked waits for it, or is gone.
            let _ = answer.send(work(committer, clock));
        });
        {
            let mut list = self.list.lock();
            if list.is_over {
                return None;
            }
            list.waiting.push((turn, job));
            self.has_any.store(true, Ordering::Release);
        }
        signal.wake();
        // A job that is thrown away drops its sender.
        answered.recv().ok()
    }

    /// Does what waits. Call it between two groups, or while one waits for followers: then what
    /// has no turn there goes on waiting.
    pub(super) fn run(&self, committer: &mut DurableCommitter, clock: &mut dyn Clock) {
        if !self.has_any.swap(false, Ordering::Acquire) {
            return;
        }
        let waiting = std::mem::take(&mut self.list.lock().waiting);
        for (turn, job) in waiting {
            if turn == JobTurn::BetweenGroups && committer.is_awaiting() {
                self.list.lock().waiting.push((turn, job));
                self.has_any.store(true, Ordering::Release);
            } else {
                job(committer, clock);
            }
        }
    }

    /// Nobody does anything any more.
    pub(super) fn end(&self) {
        let mut list = self.list.lock();
        list.is_over = true;
        list.waiting.clear();
    }
}
