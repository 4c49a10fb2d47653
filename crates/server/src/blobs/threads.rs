//! The threads that wait for the disk.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use store::blob::{Job, Permit, ReadJob, Runner};

use super::queue::{Next, Queue, STORE};
use crate::limits;

/// The threads. They begin when there is something to do.
#[derive(Default)]
pub(crate) struct BlobThreads {
    state: Mutex<ThreadsState>,
    has_jobs: Condvar,
}

#[derive(Default)]
struct ThreadsState {
    /// Each running call has one at most, beside what the ends of calls leave to do.
    jobs: Queue,
    idle: usize,
    threads: Vec<JoinHandle<()>>,
    is_stopping: bool,
}

/// What the store is given: a thread holds the threads as long as it runs.
pub(crate) struct Threads(pub Arc<BlobThreads>);

impl Runner for Threads {
    fn run(&self, job: Job) {
        BlobThreads::run(&self.0, |jobs| jobs.push(STORE, job));
    }

    fn run_for(&self, source: u64, job: Job) {
        BlobThreads::run(&self.0, |jobs| jobs.push(source, job));
    }

    fn run_read(&self, source: u64, bytes: usize, read: ReadJob) {
        BlobThreads::run(&self.0, |jobs| jobs.push_read(source, bytes, read));
    }
}

impl BlobThreads {
    fn run(self: &Arc<BlobThreads>, push: impl FnOnce(&mut Queue)) {
        let mut state = self.lock();
        push(&mut state.jobs);
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
    fn run_here(self: &Arc<BlobThreads>, mut state: MutexGuard<'_, ThreadsState>) {
        let next = state.jobs.pop();
        drop(state);
        if let Some(next) = next {
            self.do_next(next);
        }
    }

    fn do_next(self: &Arc<BlobThreads>, next: Next) {
        match next {
            Next::Job(job) => job(),
            Next::Read {
                source,
                bytes,
                read,
            } => {
                let threads = Arc::clone(self);
                read(Some((
                    bytes,
                    Permit::new(move || threads.release(source, bytes)),
                )));
            }
        }
    }

    /// What was read is out of the way.
    fn release(&self, source: u64, bytes: usize) {
        if self.lock().jobs.release(source, bytes) {
            self.has_jobs.notify_all();
        }
    }

    fn work(self: &Arc<BlobThreads>) {
        let mut state = self.lock();
        loop {
            if let Some(next) = state.jobs.pop() {
                drop(state);
                self.do_next(next);
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
            state.jobs.lift_bounds();
            std::mem::take(&mut state.threads)
        };
        self.has_jobs.notify_all();
        for thread in threads {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }

    fn lock(&self) -> MutexGuard<'_, ThreadsState> {
        // Whole values are put in and taken out: sound whoever panicked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
