//! Tasks: work that calls ask for and that takes too long for a loop. One runs at a time, on a
//! thread of its own.
//!
//! The call keeps a [`TaskHandle`]; when that goes, whatever the reason, the task is told to stop
//! and cleans up behind itself. News go into the inbox of the loop that the call lives on.

mod convert;
mod jobs;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use api::admin::{BackupProgress, ConvertProgress, SnapshotResponse};
use service::{Task, TaskFailure, TaskNews, TaskRefusal};

use crate::SharedWaker;
use crate::call_id::CallId;
use crate::clock::TimeSource;
use crate::inbox::Inbox;
use crate::limits;
use crate::settings::Log;
use crate::threads;

pub(crate) use jobs::StorageJobs;

/// What tasks do. An object, so that tests can put others in its place.
pub(crate) trait Jobs: Send + Sync {
    /// Why such a task cannot be done here at all.
    fn refuse(&self, task: &Task) -> Option<TaskRefusal>;

    /// Does it, and nothing is left of it if it fails. Looks at the watch often.
    fn run(&self, task: &Task, watch: &mut Watch<'_>) -> Result<Done, TaskFailure>;
}

/// What a task has made.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Done {
    /// A backup, in this folder.
    Backup {
        progress: BackupProgress<'static>,
        path: String,
    },
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
pub(crate) enum News {
    Progress(TaskProgress),
    Done(Done),
    Failed(TaskFailure),
}

impl News {
    /// In the words of the service.
    pub fn with<R>(&self, tell: impl FnOnce(&TaskNews<'_>) -> R) -> R {
        match self {
            News::Progress(TaskProgress::Backup(progress)) => tell(&TaskNews::BackingUp(*progress)),
            News::Progress(TaskProgress::Conversion(progress)) => {
                tell(&TaskNews::Converting(*progress))
            }
            News::Done(Done::Backup { progress, path }) => {
                tell(&TaskNews::BackedUp(BackupProgress { path, ..*progress }))
            }
            News::Done(Done::Snapshot(made)) => tell(&TaskNews::SnapshotMade(*made)),
            News::Done(Done::Conversion(progress)) => tell(&TaskNews::Converted(*progress)),
            News::Failed(failure) => tell(&TaskNews::Failed(failure)),
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
    running: Option<Running>,
    is_stopping: bool,
}

struct Running {
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

    /// Begins a task whose news go to `call`.
    pub fn start(
        self: &Arc<Tasks>,
        task: Task,
        call: CallId,
        inbox: &Arc<Inbox<(CallId, News)>>,
    ) -> Result<TaskHandle, TaskRefusal> {
        if let Some(refusal) = self.jobs.refuse(&task) {
            return Err(refusal);
        }
        let mut state = self.lock();
        if state.is_stopping {
            return Err(TaskRefusal::Stopping);
        }
        if state.running.is_some() {
            return Err(TaskRefusal::Busy);
        }
        let cancel = Arc::new(AtomicBool::new(false));
        let work = TaskThread {
            tasks: Arc::clone(self),
            task,
            call,
            inbox: Arc::clone(inbox),
            cancel: Arc::clone(&cancel),
        };
        let what = "a backup, snapshot or conversion";
        let thread = threads::begin("pelton-task", what, &*self.log, move || work.run());
        let thread = thread.ok_or(TaskRefusal::NoThread)?;
        let handle = TaskHandle(Arc::clone(&cancel));
        // The thread waits for the lock before it says that it is done.
        state.running = Some(Running { thread, cancel });
        Ok(handle)
    }

    /// Lets no task begin any more, and waits for the end of the one that runs, which is told to
    /// stop.
    pub fn stop(&self) {
        let running = {
            let mut state = self.lock();
            state.is_stopping = true;
            state.running.take()
        };
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

/// A task, seen from its call: dropped, the task stops.
#[derive(Debug)]
pub(crate) struct TaskHandle(Arc<AtomicBool>);

impl Drop for TaskHandle {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A task on its thread.
struct TaskThread {
    tasks: Arc<Tasks>,
    task: Task,
    call: CallId,
    inbox: Arc<Inbox<(CallId, News)>>,
    cancel: Arc<AtomicBool>,
}

impl TaskThread {
    fn run(self) {
        let mut watch = Watch {
            cancel: &self.cancel,
            inbox: &self.inbox,
            call: self.call,
            time: &*self.tasks.time,
            told_ns: None,
        };
        let news = match self.tasks.jobs.run(&self.task, &mut watch) {
            Ok(done) => News::Done(done),
            Err(failure) => News::Failed(failure),
        };
        // Before the call hears of the end and another one can begin. After a stop there is nothing
        // to take.
        self.tasks.lock().running = None;
        tell(&self.inbox, self.call, news);
    }
}

/// Of the progress of a call only the newest is kept, so that there are never many news.
fn tell(inbox: &Inbox<(CallId, News)>, call: CallId, news: News) {
    inbox.put_instead((call, news), |(other, old)| {
        *other == call && matches!(old, News::Progress(_))
    });
}

/// Through which a task looks whether it should stop, and tells how far it has come.
pub(crate) struct Watch<'a> {
    cancel: &'a AtomicBool,
    inbox: &'a Inbox<(CallId, News)>,
    call: CallId,
    time: &'a dyn TimeSource,
    told_ns: Option<u64>,
}

impl Watch<'_> {
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
            tell(self.inbox, self.call, News::Progress(progress));
        }
    }
}

/// The tasks of a server, seen from one of its loops.
pub(crate) struct LoopTasks {
    tasks: Arc<Tasks>,
    inbox: Arc<Inbox<(CallId, News)>>,
}

impl LoopTasks {
    pub fn new(tasks: Arc<Tasks>, waker: SharedWaker) -> LoopTasks {
        let inbox = Inbox::new(waker);
        LoopTasks { tasks, inbox }
    }

    pub fn start(&self, task: Task, call: CallId) -> Result<TaskHandle, TaskRefusal> {
        self.tasks.start(task, call, &self.inbox)
    }

    /// Takes the news that have come.
    pub fn take_news(&self) -> VecDeque<(CallId, News)> {
        self.inbox.take_all()
    }

    /// Returns whether no news can come any more.
    pub fn is_idle(&self) -> bool {
        self.inbox.is_over()
    }
}
