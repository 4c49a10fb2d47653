//! The threads that wait for the disk.

use std::sync::Arc;
use std::time::Duration;

use store::blob::{Job, Permit, ReadJob, Runner};

use super::queue::{Next, Queue, STORE};
use crate::account::Account;
use crate::limits;
use crate::threads::{JobQueue, ThreadPool};

/// The threads. They begin when there is something to do.
pub(crate) struct BlobThreads(Arc<ThreadPool<Queue>>);

/// What the store is given.
pub(crate) struct Threads(pub Arc<BlobThreads>);

impl Runner for Threads {
    fn run(&self, job: Job) {
        self.0.0.submit(|jobs| jobs.push(STORE, job));
    }

    fn run_for(&self, source: u64, job: Job) {
        self.0.0.submit(|jobs| jobs.push(source, job));
    }

    fn run_read(&self, source: u64, bytes: usize, read: ReadJob) {
        self.0.0.submit(|jobs| jobs.push_read(source, bytes, read));
    }
}

impl BlobThreads {
    /// Threads whose reads take memory of `account`.
    pub fn new(account: Arc<Account>) -> BlobThreads {
        BlobThreads(ThreadPool::new(
            "pelton-blobs",
            limits::BLOB_THREADS,
            Duration::from_millis(limits::IDLE_THREAD_MS),
            Queue::new(account),
        ))
    }

    /// Waits until everything is done, which ends the threads.
    pub fn stop(&self) {
        self.0.stop(Queue::lift_bounds);
    }
}

impl JobQueue for Queue {
    type Job = Next;

    fn pop(&mut self) -> Option<Next> {
        Queue::pop(self)
    }

    fn len(&self) -> usize {
        Queue::len(self)
    }

    fn run(pool: &Arc<ThreadPool<Queue>>, next: Next) {
        match next {
            Next::Job(job) => job(),
            Next::Read {
                source,
                bytes,
                read,
            } => {
                let pool = Arc::clone(pool);
                // What was read is out of the way: others may begin.
                let release = move || pool.submit(|jobs| jobs.release(source, bytes));
                read(Some((bytes, Permit::new(release))));
            }
        }
    }
}
