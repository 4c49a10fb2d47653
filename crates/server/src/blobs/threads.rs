//! The threads that wait for the disk.

use std::sync::Arc;
use std::time::Duration;

use store::blob::{BlobPermit, BlobRunner, CallJob, RunnerJob};

use super::queue::{NextBlobWork, Queue, STORE};
use crate::account::Account;
use crate::limits;
use crate::settings::Log;
use crate::threads::{JobQueue, JobThreads};

/// The threads. They begin when there is something to do.
pub(crate) struct BlobThreads(Arc<JobThreads<Queue>>);

/// What the store is given.
pub(crate) struct Threads(pub Arc<BlobThreads>);

impl BlobRunner for Threads {
    fn run(&self, job: RunnerJob) {
        self.0
            .0
            .submit(|jobs| jobs.push(STORE, Box::new(StoreJob(job))));
    }

    fn run_for(&self, source: u64, job: Box<dyn CallJob>) {
        self.0.0.submit(|jobs| jobs.push(source, job));
    }

    fn run_read(&self, source: u64, bytes: usize, read: Box<dyn CallJob>) {
        self.0.0.submit(|jobs| jobs.push_read(source, bytes, read));
    }
}

/// What the store itself wants done.
struct StoreJob(RunnerJob);

impl CallJob for StoreJob {
    fn is_forsaken(&self) -> bool {
        false
    }

    fn run(self: Box<StoreJob>, _grant: Option<(usize, BlobPermit)>) {
        (self.0)();
    }
}

impl BlobThreads {
    /// Threads whose reads take memory of `account`.
    pub fn new(account: Arc<Account>, log: Arc<dyn Log>) -> BlobThreads {
        BlobThreads(JobThreads::new(
            ("pelton-blobs", "reading and writing blobs"),
            limits::BLOB_THREADS,
            Duration::from_millis(limits::IDLE_THREAD_MS),
            Queue::new(account),
            log,
        ))
    }

    /// Waits until everything is done, which ends the threads.
    pub fn stop(&self) {
        self.0.stop(Queue::lift_bounds);
    }
}

impl JobQueue for Queue {
    type Job = NextBlobWork;

    fn pop(&mut self) -> Option<NextBlobWork> {
        Queue::pop(self)
    }

    fn len(&self) -> usize {
        Queue::len(self)
    }

    fn run(pool: &Arc<JobThreads<Queue>>, next: NextBlobWork) {
        match next {
            NextBlobWork::Job(job) => job.run(None),
            NextBlobWork::Read {
                source,
                bytes,
                read,
            } => {
                let pool = Arc::clone(pool);
                // What was read is out of the way: others may begin.
                let release = move || pool.submit(|jobs| jobs.release(source, bytes));
                read.run(Some((bytes, BlobPermit::new(release))));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Barrier, mpsc};

    use super::*;

    /// Jobs that need each other: with fewer threads than jobs none of them would end.
    #[test]
    fn each_job_has_a_thread_as_long_as_there_may_be_more() {
        let threads = Arc::new(BlobThreads::new(
            Account::new(1 << 30),
            Arc::new(crate::settings::SilentLog),
        ));
        let runner = Threads(Arc::clone(&threads));
        let (done, ended) = mpsc::channel();
        for _ in 0..2 {
            let meeting = Arc::new(Barrier::new(limits::BLOB_THREADS));
            for number in 0..limits::BLOB_THREADS as u64 {
                let (meeting, done) = (Arc::clone(&meeting), done.clone());
                let meet = move || {
                    meeting.wait();
                    done.send(()).expect("somebody waits");
                };
                // Of the store, of a connection, and a read.
                match number % 3 {
                    0 => runner.run(Box::new(meet)),
                    1 => runner.run_for(number, Box::new(StoreJob(Box::new(meet)))),
                    _ => runner.run_read(number, 1, Box::new(StoreJob(Box::new(meet)))),
                }
            }
            for _ in 0..limits::BLOB_THREADS {
                ended.recv().expect("all meet");
            }
        }
        threads.stop();
    }

    /// By which threads are begun.
    #[test]
    fn as_many_jobs_may_begin_as_sources_have_some() {
        let mut queue = Queue::new(Account::new(1 << 30));
        for source in 0..3 {
            assert_eq!(JobQueue::len(&queue), source as usize);
            queue.push(source, Box::new(StoreJob(Box::new(|| ()))));
            queue.push(source, Box::new(StoreJob(Box::new(|| ()))));
        }
        for left in [3, 3, 3, 2, 1, 0] {
            assert!(JobQueue::pop(&mut queue).is_some());
            assert_eq!(JobQueue::len(&queue), left);
        }
    }
}
