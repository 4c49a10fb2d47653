//! Tasks that wait for their turn.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use service::Task;
use service::identities::IdentityKey;
use store::blob::UploadPeer;

use super::TaskProgressNews;
use crate::call_id::CallId;
use crate::inbox::Inbox;
use crate::limits;

/// Who asks for a task: each has one place in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskCaller {
    /// All calls with a token.
    Token(IdentityKey),
    /// All calls without one from an address.
    Address(UploadPeer),
    /// Those of a connection of this machine without one.
    Connection(u64),
}

/// A task that waits.
pub(super) struct WaitingTask {
    pub(super) task: Task,
    pub(super) caller: TaskCaller,
    pub(super) call: CallId,
    pub(super) inbox: Arc<Inbox<(CallId, TaskProgressNews)>>,
    pub(super) cancel: Arc<AtomicBool>,
    /// It waits no longer.
    pub(super) until_ns: u64,
}

impl WaitingTask {
    fn is_cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }
}

/// The tasks that wait, the next one first.
#[derive(Default)]
pub(super) struct TaskQueue(VecDeque<WaitingTask>);

impl TaskQueue {
    /// Adds a task, or gives it back: all places are taken, or its caller has one.
    pub(super) fn push(&mut self, work: WaitingTask) -> Result<(), WaitingTask> {
        let has_place = self.0.iter().any(|other| other.caller == work.caller);
        if has_place || self.0.len() >= limits::WAITING_TASKS {
            return Err(work);
        }
        self.0.push_back(work);
        Ok(())
    }

    /// Takes out the next one that is wanted still, and whose wait is not over.
    pub(super) fn pop(&mut self, now_ns: u64) -> Option<WaitingTask> {
        let may_begin = |work: &WaitingTask| !work.is_cancelled() && now_ns < work.until_ns;
        let at = self.0.iter().position(may_begin)?;
        self.0.remove(at)
    }

    /// Takes out those that nobody wants any more.
    pub(super) fn take_cancelled(&mut self) -> Vec<WaitingTask> {
        self.take(WaitingTask::is_cancelled)
    }

    /// Takes out those of a loop whose wait is over.
    pub(super) fn take_over(
        &mut self,
        inbox: &Arc<Inbox<(CallId, TaskProgressNews)>>,
        now_ns: u64,
    ) -> Vec<WaitingTask> {
        self.take(|work| Arc::ptr_eq(&work.inbox, inbox) && work.until_ns <= now_ns)
    }

    /// Returns when the wait of one of a loop ends next; `u64::MAX`: it has none.
    pub(super) fn next_end_ns(&self, inbox: &Arc<Inbox<(CallId, TaskProgressNews)>>) -> u64 {
        let of_loop = (self.0.iter()).filter(|work| Arc::ptr_eq(&work.inbox, inbox));
        of_loop.map(|work| work.until_ns).min().unwrap_or(u64::MAX)
    }

    fn take(&mut self, is_wanted: impl Fn(&WaitingTask) -> bool) -> Vec<WaitingTask> {
        let all = std::mem::take(&mut self.0).into_iter();
        let (taken, left) = all.partition::<Vec<_>, _>(is_wanted);
        self.0 = left.into();
        taken
    }
}
