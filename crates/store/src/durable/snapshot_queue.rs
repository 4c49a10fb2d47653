//! Where the thread that makes snapshots, the committer's thread and callers that want a snapshot
//! meet.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Condvar, Mutex};

use super::committer::DurableCommitter;
use super::signal::Signal;
use crate::clock::Clock;
use crate::snapshot::{SnapshotError, SnapshotHeader, SnapshotReport};

/// What an attempt to make a snapshot came to.
pub(super) type Outcome = Result<SnapshotReport, SnapshotError>;

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
    Given(Option<SnapshotHeader>),
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
    pub(super) fn next(&self) -> Option<u64> {
        let mut requests = self.requests.lock();
        while requests.asked == requests.answered && !requests.is_over {
            self.changed.wait(&mut requests);
        }
        (!requests.is_over).then_some(requests.asked)
    }

    /// Waits for what a snapshot is of that begins now.
    pub(super) fn base(&self, signal: &Signal) -> Result<SnapshotHeader, SnapshotError> {
        let mut requests = self.requests.lock();
        requests.base = Base::Wanted;
        self.tell(signal);
        loop {
            if requests.is_over {
                // Given behind the end, it would count as begun, and nobody would end it.
                requests.base = Base::None;
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

    /// Returns an error when no more snapshots are made.
    pub(super) fn check_over(&self) -> Result<(), SnapshotError> {
        if self.requests.lock().is_over {
            return Err(SnapshotError::Stopping);
        }
        Ok(())
    }

    /// Says what came of the requests up to a number.
    pub(super) fn answer(&self, number: u64, outcome: Outcome, signal: &Signal) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_when_the_end_comes_is_not_given_behind_it() {
        let (queue, signal) = (SnapshotQueue::default(), Signal::default());
        queue.end();
        assert!(matches!(queue.base(&signal), Err(SnapshotError::Stopping)));
        assert!(matches!(queue.requests.lock().base, Base::None));
        assert!(matches!(queue.request(), Err(SnapshotError::Stopping)));
    }
}
