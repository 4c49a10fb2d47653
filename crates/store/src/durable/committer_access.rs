//! How a job that takes long reaches the committer: from a thread of its own, or between two rounds
//! of one thread.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use super::commit_loop::CommitLoop;
use super::committer::DurableCommitter;
use super::hold::Holds;
use super::mailbox::Hub;
use crate::clock::Clock;

/// The committer as a background job sees it. A job is written once, against this: the threads of
/// a server and a simulation without threads run the same steps.
pub(crate) trait CommitterAccess {
    /// Has something done between two groups, and waits for it. `None`: the committer has stopped.
    fn between_groups<R: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut DurableCommitter, &mut dyn Clock) -> R + Send + 'static,
    ) -> Option<R>;

    /// Has something done between two groups or while one waits for followers, and waits for it.
    /// `None`: the committer has stopped.
    fn while_awaiting<R: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut DurableCommitter, &mut dyn Clock) -> R + Send + 'static,
    ) -> Option<R>;

    /// Waits until what was asked for between two groups, such as a mark, is in the log and synced.
    /// Returns up to where the log is durable then; `None`: it failed.
    fn sync(&mut self) -> Option<u64>;

    /// Waits for what a group brings. `None`: nothing comes any more.
    fn wait_for<R>(&mut self, outcome: &Receiver<R>) -> Option<R>;

    /// Which segments of the log may be retired.
    fn holds(&self) -> &Arc<Holds>;
}

/// The committer on another thread.
impl CommitterAccess for &Hub {
    fn between_groups<R: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut DurableCommitter, &mut dyn Clock) -> R + Send + 'static,
    ) -> Option<R> {
        Hub::between_groups(self, work)
    }

    fn while_awaiting<R: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut DurableCommitter, &mut dyn Clock) -> R + Send + 'static,
    ) -> Option<R> {
        Hub::while_awaiting(self, work)
    }

    fn sync(&mut self) -> Option<u64> {
        Hub::sync(self)
    }

    fn wait_for<R>(&mut self, outcome: &Receiver<R>) -> Option<R> {
        outcome.recv().ok()
    }

    fn holds(&self) -> &Arc<Holds> {
        Hub::holds(self)
    }
}

/// The committer on this thread, between two rounds of the commit loop.
pub(crate) struct BetweenRounds<'a> {
    commit_loop: &'a mut CommitLoop,
    clock: &'a mut dyn Clock,
}

impl<'a> BetweenRounds<'a> {
    /// Runs the commit loop where a job has to wait for a group.
    pub(crate) fn new(
        commit_loop: &'a mut CommitLoop,
        clock: &'a mut dyn Clock,
    ) -> BetweenRounds<'a> {
        BetweenRounds { commit_loop, clock }
    }

    fn run_rounds(&mut self) {
        while self.commit_loop.round(self.clock) {}
    }
}

impl CommitterAccess for BetweenRounds<'_> {
    fn between_groups<R: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut DurableCommitter, &mut dyn Clock) -> R + Send + 'static,
    ) -> Option<R> {
        Some(work(self.commit_loop.committer(), self.clock))
    }

    fn while_awaiting<R: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut DurableCommitter, &mut dyn Clock) -> R + Send + 'static,
    ) -> Option<R> {
        self.between_groups(work)
    }

    fn sync(&mut self) -> Option<u64> {
        self.run_rounds();
        let durable_sequence = self.commit_loop.committer().log().durable().sequence;
        (!self.commit_loop.has_failed()).then_some(durable_sequence)
    }

    fn wait_for<R>(&mut self, outcome: &Receiver<R>) -> Option<R> {
        self.run_rounds();
        outcome.try_recv().ok()
    }

    fn holds(&self) -> &Arc<Holds> {
        self.commit_loop.holds()
    }
}
