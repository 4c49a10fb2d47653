//! Tasks: work that calls ask for and that takes too long for a loop. One runs at a time, on a
//! thread of its own; a few others wait for their turn, one of each caller.
//!
//! The call keeps a [`TaskHandle`]; when that goes, whatever the reason, the task is told to stop
//! and cleans up behind itself. News go into the inbox of the loop that the call lives on.

mod convert;
mod jobs;
mod queue;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use api::admin::{BackupProgress, ConvertProgress, SnapshotResponse};
use service::{Task, TaskFailure, TaskFailureKind, TaskNews, TaskRefusal};
use store::backup::ReplicaCopy;

use crate::SharedWaker;
use crate::call_id::CallId;
use crate::clock::TimeSource;
use crate::inbox::Inbox;
use crate::limits;
use crate::settings::Log;
use crate::threads;

pub(crate) use jobs::StorageJobs;
pub(crate) use queue::TaskCaller;
use queue::{TaskQueue, WaitingTask};

/// What tasks do. An object, so that tests can put others in its place.
pub(crate) trait Jobs: Send + Sync {
    /// Why such a task cannot be done here at all.
    fn refuse(&self, task: &Task) -> Option<TaskRefusal>;

    /// Does it, and nothing is left of it if it fails. Looks at the watch often.
    fn run(&self, task: &Task, watch: &mut TaskWatch<'_>) -> Result<DoneTask, TaskFailure>;
}

/// What a task has made.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum DoneTask {
    /// A backup, in this folder.
    Backup {
        progress: BackupProgress<'static>,
        path: String,
    },
    /// A copy for a server that will follow this one.
    Copy(Arc<ReplicaCopy>),
    /// A snapshot.
    Snapshot(SnapshotResponse),
    /// A database of another kind.
    Conversion(ConvertProgress),
}

/// How far a task has come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum TaskProgress {
    Backup(BackupProgress<'static>),
    Conversion(ConvertProgress),
}

/// News on their way to a call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TaskProgressNews {
    Progress(TaskProgress),
    Done(DoneTask),
    Failed(TaskFailure),
}

impl TaskProgressNews {
    /// In the words of the service.
    pub fn with<R>(&self, tell: impl FnOnce(&TaskNews<'_>) -> R) -> R {
        match self {
            TaskProgressNews::Progress(TaskProgress::Backup(progress)) => {
                tell(&TaskNews::BackingUp(*progress))
            }
            TaskProgressNews::Progress(TaskProgress::Conversion(progress)) => {
                tell(&TaskNews::Converting(*progress))
            }
            TaskProgressNews::Done(DoneTask::Backup { progress, path }) => {
                tell(&TaskNews::BackedUp(BackupProgress { path, ..*progress }))
            }
            TaskProgressNews::Done(DoneTask::Copy(copy)) => tell(&TaskNews::Copied(copy)),
            TaskProgressNews::Done(DoneTask::Snapshot(made)) => {
                tell(&TaskNews::SnapshotMade(*made))
            }
            TaskProgressNews::Done(DoneTask::Conversion(progress)) => {
                tell(&TaskNews::Converted(*progress))
            }
            TaskProgressNews::Failed(failure) => tell(&TaskNews::Failed(failure)),
        }
    }
}

/// All tasks of a server.
pub(crate) struct Tasks {
    jobs: Box<dyn Jobs>,
    time: Arc<dyn TimeSource>,
    log: Arc<dyn Log>,
    state: Mutex<TaskState>,
}

#[derive(Default)]
struct TaskState {
    running: Option<RunningTask>,
    waiting: TaskQueue,
    is_stopping: bool,
}

struct RunningTask {
    thread: JoinHandle<()>,
    cancel: Arc<AtomicBool>,
}

impl Tasks {
    pub fn new(jobs: Box<dyn Jobs>, time: Arc<dyn TimeSource>, log: Arc<dyn Log>) -> Arc<Tasks> {
        Arc::new(Tasks {
            jobs,
            time,
            log,
            state: Mutex::default(),
        })
    }

    /// Begins a task whose news go to `call`, or lets it wait for its turn.
    pub fn start(
        self: &Arc<Tasks>,
        task: Task,
        (caller, call): (TaskCaller, CallId),
        inbox: &Arc<Inbox<(CallId, TaskProgressNews)>>,
    ) -> Result<TaskHandle, TaskRefusal> {
        if let Some(refusal) = self.jobs.refuse(&task) {
            return Err(refusal);
        }
        let mut state = self.lock();
        if state.is_stopping {
            return Err(TaskRefusal::Stopping);
        }
        let cancel = Arc::new(AtomicBool::new(false));
        let work = WaitingTask {
            task,
            caller,
            call,
            inbox: Arc::clone(inbox),
            cancel: Arc::clone(&cancel),
            until_ns: self.time.monotonic_ns() + limits::TASK_WAIT_MS * 1_000_000,
        };
        let until_ns = work.until_ns;
        let waits_until_ns = if state.running.is_some() {
            state.waiting.push(work).map_err(|_| TaskRefusal::Busy)?;
            Some(until_ns)
        } else {
            self.begin(&mut state, work)?;
            None
        };
        Ok(TaskHandle {
            cancel,
            tasks: Arc::clone(self),
            waits_until_ns,
        })
    }

    /// Begins a task on a thread of its own.
    fn begin(
        self: &Arc<Tasks>,
        state: &mut TaskState,
        work: WaitingTask,
    ) -> Result<(), TaskRefusal> {
        let cancel = Arc::clone(&work.cancel);
        let tasks = Arc::clone(self);
        let what = "a backup, snapshot or conversion";
        let thread = threads::begin("pelton-task", what, &*self.log, move || tasks.run(work));
        let thread = thread.ok_or(TaskRefusal::NoThread)?;
        // The thread waits for the lock before it says that it is done.
        state.running = Some(RunningTask { thread, cancel });
        Ok(())
    }

    /// Does a task, and those that wait behind it, on the same thread.
    fn run(&self, first: WaitingTask) {
        let mut next = Some(first);
        while let Some(work) = next {
            let mut watch = TaskWatch {
                cancel: &work.cancel,
                inbox: &work.inbox,
                call: work.call,
                time: &*self.time,
                told_ns: None,
            };
            let news = match self.jobs.run(&work.task, &mut watch) {
                Ok(done) => TaskProgressNews::Done(done),
                Err(failure) => TaskProgressNews::Failed(failure),
            };
            // Before the call hears of the end and another one can begin.
            next = self.next();
            tell(&work.inbox, work.call, news);
        }
    }

    /// Takes out the task whose turn it is, which runs from now on; none does if there is none.
    /// After a stop there is nothing to take.
    fn next(&self) -> Option<WaitingTask> {
        let mut state = self.lock();
        let next = state.waiting.pop(self.time.monotonic_ns());
        match (&next, &mut state.running) {
            (Some(next), Some(running)) => running.cancel = Arc::clone(&next.cancel),
            (_, running) => *running = None,
        }
        next
    }

    /// Forgets what waits and is not wanted any more, so that its place is free.
    fn forget_cancelled(&self) {
        let forgotten = self.lock().waiting.take_cancelled();
        drop(forgotten);
    }

    /// Ends the wait of those of a loop whose time is over: its calls hear of it.
    fn end_waits(&self, inbox: &Arc<Inbox<(CallId, TaskProgressNews)>>, now_ns: u64) {
        let over = self.lock().waiting.take_over(inbox, now_ns);
        for work in over {
            let failure = TaskFailure {
                kind: TaskFailureKind::NotNow,
                message: TaskRefusal::Busy.status().message().into(),
            };
            tell(&work.inbox, work.call, TaskProgressNews::Failed(failure));
        }
    }

    /// Lets no task begin any more, and waits for the end of the one that runs, which is told to
    /// stop.
    pub fn stop(&self) {
        let (running, waiting) = {
            let mut state = self.lock();
            state.is_stopping = true;
            (state.running.take(), std::mem::take(&mut state.waiting))
        };
        // Their calls have ended.
        drop(waiting);
        if let Some(running) = running {
            running.cancel.store(true, Ordering::Relaxed);
            // In a build that unwinds, a task that panicked has reported it; the log is still
            // closed.
            let _ = running.thread.join();
        }
    }

    fn lock(&self) -> MutexGuard<'_, TaskState> {
        // Whole values are put in and taken out: sound whoever panicked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A task, seen from its call: dropped, the task stops, or does not begin.
pub(crate) struct TaskHandle {
    cancel: Arc<AtomicBool>,
    tasks: Arc<Tasks>,
    /// `None`: it did not have to wait.
    waits_until_ns: Option<u64>,
}

impl Drop for TaskHandle {
    fn drop(&mut self) {
        self.cancel.store(true, Ordering::Relaxed);
        if self.waits_until_ns.is_some() {
            self.tasks.forget_cancelled();
        }
    }
}

/// Of the progress of a call only the newest is kept, so that there are never many news.
fn tell(inbox: &Inbox<(CallId, TaskProgressNews)>, call: CallId, news: TaskProgressNews) {
    inbox.put_instead((call, news), |(other, old)| {
        *other == call && matches!(old, TaskProgressNews::Progress(_))
    });
}

/// Through which a task looks whether it should stop, and tells how far it has come.
pub(crate) struct TaskWatch<'a> {
    cancel: &'a AtomicBool,
    inbox: &'a Inbox<(CallId, TaskProgressNews)>,
    call: CallId,
    time: &'a dyn TimeSource,
    told_ns: Option<u64>,
}

impl TaskWatch<'_> {
    /// Whether nobody wants the task any more.
    pub fn is_cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }

    /// For work that asks at each step whether it is to go on.
    pub fn go_on(&self) -> ControlFlow<()> {
        match self.is_cancelled() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    /// Tells the call, if it has not been told a moment ago.
    pub fn tell(&mut self, progress: TaskProgress) {
        let now_ns = self.time.monotonic_ns();
        let interval_ns = limits::TASK_PROGRESS_MS * 1_000_000;
        let is_due = |told_ns| now_ns.saturating_sub(told_ns) >= interval_ns;
        if self.told_ns.is_none_or(is_due) {
            self.told_ns = Some(now_ns);
            tell(self.inbox, self.call, TaskProgressNews::Progress(progress));
        }
    }
}

/// The tasks of a server, seen from one of its loops.
pub(crate) struct LoopTasks {
    tasks: Arc<Tasks>,
    inbox: Arc<Inbox<(CallId, TaskProgressNews)>>,
    /// When to look whether the wait of some is over; `u64::MAX`: none waits.
    look_ns: Cell<u64>,
}

impl LoopTasks {
    pub fn new(tasks: Arc<Tasks>, waker: SharedWaker) -> LoopTasks {
        LoopTasks {
            tasks,
            inbox: Inbox::new(waker),
            look_ns: Cell::new(u64::MAX),
        }
    }

    pub fn start(
        &self,
        task: Task,
        caller: TaskCaller,
        call: CallId,
    ) -> Result<TaskHandle, TaskRefusal> {
        let handle = self.tasks.start(task, (caller, call), &self.inbox)?;
        let until_ns = handle.waits_until_ns.unwrap_or(u64::MAX);
        self.look_ns.set(self.look_ns.get().min(until_ns));
        Ok(handle)
    }

    /// Takes the news that have come by now.
    pub fn take_news(&self, now_ns: u64) -> VecDeque<(CallId, TaskProgressNews)> {
        if self.look_ns.get() <= now_ns {
            self.tasks.end_waits(&self.inbox, now_ns);
            let next_ns = self.tasks.lock().waiting.next_end_ns(&self.inbox);
            self.look_ns.set(next_ns);
        }
        self.inbox.take_all()
    }

    /// Returns when the wait of one ends next, if one waits.
    pub fn next_deadline_ns(&self) -> Option<u64> {
        Some(self.look_ns.get()).filter(|at_ns| *at_ns < u64::MAX)
    }

    /// Returns whether no news can come any more.
    pub fn is_idle(&self) -> bool {
        self.inbox.is_over()
    }
}
