//! Work on blobs, which waits for the disk, beside the loops: some threads for all of them.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use service::{Call, State as _};
use store::CommitOutcome;
use store::blob::{Blobs, Job, News, Owner, Runner, Sealed, Work};

use crate::SharedWaker;
use crate::calls::CallId;
use crate::connection::Channel;
use crate::core::Core;
use crate::inbox::Inbox;
use crate::limits;

/// The threads. They begin when there is something to do.
#[derive(Default)]
pub(crate) struct BlobThreads {
    state: Mutex<State>,
    has_jobs: Condvar,
}

#[derive(Default)]
struct State {
    /// Each running call has one at most, beside what the ends of calls leave to do.
    jobs: VecDeque<Job>,
    idle: usize,
    threads: Vec<JoinHandle<()>>,
    is_stopping: bool,
}

/// What the store is given: a thread holds the threads as long as it runs.
pub(crate) struct Threads(pub Arc<BlobThreads>);

impl Runner for Threads {
    fn run(&self, job: Job) {
        BlobThreads::run(&self.0, job);
    }
}

impl BlobThreads {
    fn run(self: &Arc<BlobThreads>, job: Job) {
        let mut state = self.lock();
        state.jobs.push_back(job);
        if state.idle == 0 && state.threads.len() < limits::BLOB_THREADS {
            let threads = Arc::clone(self);
            let started = thread::Builder::new()
                .name("pelton-blobs".into())
                .spawn(move || threads.work());
            match started {
                Ok(thread) => state.threads.push(thread),
                // Others will do it, or whoever asks next may have more luck.
                Err(_) if !state.threads.is_empty() => {}
                Err(_) => return self.run_here(state),
            }
        }
        drop(state);
        self.has_jobs.notify_one();
    }

    /// Not a single thread can be had: better to hold up a loop than to leave it undone.
    fn run_here(&self, mut state: MutexGuard<'_, State>) {
        let job = state.jobs.pop_back();
        drop(state);
        job.into_iter().for_each(|job| job());
    }

    fn work(&self) {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                job();
                state = self.lock();
            } else if state.is_stopping {
                return;
            } else {
                state.idle += 1;
                let waited = self.has_jobs.wait(state);
                state = waited.unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            }
        }
    }

    /// Waits until everything is done, which ends the threads.
    pub fn stop(&self) {
        let threads = {
            let mut state = self.lock();
            state.is_stopping = true;
            std::mem::take(&mut state.threads)
        };
        self.has_jobs.notify_all();
        for thread in threads {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Whole values are put in and taken out: sound whoever panicked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that has an upload.
struct CallOwner {
    inbox: Arc<Inbox<(CallId, News)>>,
    call: CallId,
}

impl Owner for CallOwner {
    fn taken_over(&self) {
        self.inbox.put((self.call, News::TakenOver));
    }
}

/// Blobs, seen from one loop.
pub(crate) struct LoopBlobs {
    pub blobs: Option<Arc<Blobs>>,
    inbox: Arc<Inbox<(CallId, News)>>,
    /// What commits of this loop are to describe, by their tags.
    pub sealed: HashMap<u64, Box<Sealed>>,
}

impl LoopBlobs {
    pub fn new(blobs: Option<Arc<Blobs>>, waker: SharedWaker) -> LoopBlobs {
        LoopBlobs {
            blobs,
            inbox: Inbox::new(waker),
            sealed: HashMap::new(),
        }
    }

    /// Has work done; its news come to the call.
    pub fn submit(&self, work: Work, call: CallId) {
        let Some(blobs) = self.blobs.clone() else {
            debug_assert!(false, "calls ask only where there are blobs");
            return;
        };
        let inbox = Arc::clone(&self.inbox);
        let for_work = Arc::clone(&blobs);
        blobs.run(Box::new(move || {
            let owner: Arc<dyn Owner> = Arc::new(CallOwner {
                inbox: Arc::clone(&inbox),
                call,
            });
            inbox.put((call, work.run(&for_work, &owner)));
        }));
    }

    /// Takes the news that have come.
    pub fn take_news(&self) -> VecDeque<(CallId, News)> {
        self.inbox.take_all()
    }

    /// Whatever becomes of the call that asked for it, blobs take notice of what was decided.
    pub fn settle(&mut self, outcome: &CommitOutcome<'_>) {
        let sealed = self.sealed.remove(&outcome.tag);
        if let Some(blobs) = &self.blobs {
            blobs.settle(outcome, sealed.map(|sealed| *sealed));
        }
    }
}

impl Core {
    /// Tells a call what was done for it.
    pub(crate) fn blob_news(
        &mut self,
        channel: &mut Channel,
        io: &mut drive::Io,
        id: CallId,
        news: News,
    ) {
        self.step(
            channel,
            &mut io.output,
            id,
            |call: &mut Call, shared, step| {
                call.blob(news, shared, step);
            },
        );
    }
}
