//! Threads that wait for the device.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use service::ReaderFigures;
use store::Store;

use super::queue::{Asker, Asking, Length, ReadQueue};
use super::{Done, Full, Job, WhyFull, sweep};
use crate::inbox::Inbox;
use crate::limits;
use crate::settings::Log;
use crate::threads::{JobQueue, ThreadPool};

/// What one run of a fetch brings at most, unless one call alone asks for more.
const CLAIM_BYTES: usize = store::tree::limits::FETCHED_BYTES;

/// A few threads, begun when there is something for them to do.
pub(crate) struct Pool {
    store: Store,
    brought_limit_bytes: usize,
    figures: Arc<ReaderFigures>,
    threads: Arc<ThreadPool<ReadQueue<Waiting>>>,
    room: Mutex<Room>,
    /// Something that was brought was taken up.
    has_room: Condvar,
}

/// A job, where its results go, and whose room they take.
type Waiting = (Job, Arc<Inbox<Brought>>, Arc<Pool>);

#[derive(Default)]
struct Room {
    /// Bytes that were brought and are still there.
    brought_bytes: usize,
    is_stopping: bool,
}

impl JobQueue for ReadQueue<Waiting> {
    type Job = (Waiting, Length);

    fn pop(&mut self) -> Option<Self::Job> {
        ReadQueue::pop(self)
    }

    fn len(&self) -> usize {
        self.ready()
    }

    fn show(&self, threads: usize) {
        ReadQueue::show(self, threads);
    }

    fn run(threads: &Arc<ThreadPool<ReadQueue<Waiting>>>, (waiting, length): Self::Job) {
        let (job, inbox, pool) = waiting;
        pool.run(job, &inbox);
        if length == Length::Long {
            threads.lock().queue.end_long();
        }
    }
}

/// What a reader has brought. While it is there, its bytes count.
pub(crate) struct Brought {
    /// `None`: it was taken out.
    result: Option<Done>,
    bytes: usize,
    /// Where its bytes count.
    pool: Option<Arc<Pool>>,
}

impl Brought {
    /// Something that counts nowhere.
    pub(super) fn free(result: Done) -> Brought {
        Brought {
            result: Some(result),
            bytes: 0,
            pool: None,
        }
    }

    /// Takes it out.
    pub fn take(&mut self) -> Option<Done> {
        self.result.take()
    }
}

impl Drop for Brought {
    fn drop(&mut self) {
        if let Some(pool) = &self.pool {
            pool.settle(self.bytes, 0);
        }
    }
}

impl Pool {
    /// At most `brought_limit_bytes` may wait for loops, or be on their way to them.
    pub fn new(store: Store, brought_limit_bytes: usize, log: Arc<dyn Log>) -> Arc<Pool> {
        let figures: Arc<ReaderFigures> = Arc::default();
        let queue = ReadQueue::new(Arc::clone(&figures));
        let idle = Duration::from_millis(limits::IDLE_THREAD_MS);
        Arc::new(Pool {
            store,
            brought_limit_bytes,
            figures,
            threads: ThreadPool::new(
                ("pelton-reader", "reading databases on disk"),
                limits::READERS,
                idle,
                queue,
                log,
            ),
            room: Mutex::default(),
            has_room: Condvar::new(),
        })
    }

    /// Has a job done whose results go to `inbox`.
    pub(super) fn submit(
        self: &Arc<Pool>,
        asking: impl Into<Asking>,
        job: Job,
        inbox: &Arc<Inbox<Brought>>,
    ) -> Result<(), Full<Job>> {
        let mut state = self.threads.lock();
        let jobs = state.queue.ready() + 1;
        if state.is_stopping() || !self.threads.begin_threads(&mut state, jobs) {
            self.figures.refused_jobs.fetch_add(1, Ordering::Relaxed);
            let why = match state.is_stopping() {
                true => WhyFull::Jobs,
                false => WhyFull::NoThread,
            };
            return Err(Full(job, why));
        }
        let length = job.length();
        let waiting = (job, Arc::clone(inbox), Arc::clone(self));
        if let Err((job, _, _)) = state.queue.push(asking, length, waiting) {
            return Err(Full(job, WhyFull::Jobs));
        }
        state.show();
        let to_wake = state.to_wake(1);
        drop(state);
        self.threads.notify(to_wake);
        Ok(())
    }

    /// Forgets the jobs that wait for somebody who has left, but for those that have an heir.
    pub(super) fn forget(&self, asker: Asker, heir: &dyn Fn(&Job) -> Option<Asker>) {
        let mut state = self.threads.lock();
        let jobs = state.queue.forget(asker, &|(job, _, _)| heir(job));
        if !jobs.is_empty() {
            state.show();
        }
        drop(state);
        // What they hold goes without the lock.
        drop(jobs);
    }

    /// Lets no job begin any more, and waits for the end of those that run. What they bring is for
    /// nobody.
    pub fn stop(&self) {
        self.lock().is_stopping = true;
        self.has_room.notify_all();
        self.threads.stop(ReadQueue::clear);
    }

    fn run(self: &Arc<Pool>, job: Job, inbox: &Inbox<Brought>) {
        match job {
            Job::Fetch {
                mut fetch,
                has_left,
                ..
            } => {
                let is_wanted =
                    || !(has_left.as_ref()).is_some_and(|left| left.load(Ordering::Relaxed));
                while !fetch.is_done() && is_wanted() && self.claim_room() {
                    let fetched = fetch.run(&self.store);
                    let bytes = fetched.bytes();
                    self.settle(CLAIM_BYTES, bytes);
                    self.bring(Done::Fetched(fetched), bytes, inbox);
                }
            }
            Job::ReadAhead { id, mut batch } => {
                let read = batch.read_ahead();
                let result = Done::Ahead { id, batch, read };
                self.bring(result, 0, inbox);
            }
            Job::Sweep { mut batch } => {
                let failure = sweep(&self.store, &mut batch);
                self.bring(Done::Swept { batch, failure }, 0, inbox);
            }
        }
    }

    fn bring(self: &Arc<Pool>, result: Done, bytes: usize, inbox: &Inbox<Brought>) {
        inbox.put(Brought {
            result: Some(result),
            bytes,
            pool: Some(Arc::clone(self)),
        });
    }

    /// Claims room for what one run of a fetch brings, before it is there, and waits until there is
    /// some. `false`: the server stops.
    fn claim_room(&self) -> bool {
        let mut state = self.lock();
        while !self.has_room(&state) && !state.is_stopping {
            state = wait(&self.has_room, state);
        }
        state.brought_bytes += CLAIM_BYTES;
        !state.is_stopping
    }

    /// Whether another run may begin: if nothing waits, always.
    fn has_room(&self, state: &Room) -> bool {
        state.brought_bytes == 0 || state.brought_bytes + CLAIM_BYTES <= self.brought_limit_bytes
    }

    /// So many bytes are there, or on their way, instead of so many.
    fn settle(&self, before_bytes: usize, after_bytes: usize) {
        let mut state = self.lock();
        let had_room = self.has_room(&state);
        state.brought_bytes = state.brought_bytes + after_bytes - before_bytes;
        let has_room = self.has_room(&state);
        drop(state);
        if has_room && !had_room {
            self.has_room.notify_all();
        }
    }

    /// What is counted of it.
    pub fn figures(&self) -> Arc<ReaderFigures> {
        Arc::clone(&self.figures)
    }

    #[cfg(test)]
    pub fn brought_bytes(&self) -> usize {
        self.lock().brought_bytes
    }

    fn lock(&self) -> MutexGuard<'_, Room> {
        // Nothing that can panic is done under the lock.
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wait<'a>(condition: &Condvar, state: MutexGuard<'a, Room>) -> MutexGuard<'a, Room> {
    condition
        .wait(state)
        .unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use store::StoreConfig;

    use super::*;

    /// For as many threads are begun: the long ones among them do not take all.
    #[test]
    fn the_queue_counts_the_jobs_that_may_begin() {
        let store = Store::in_memory(StoreConfig::new(1)).expect("the limits make sense");
        let log = Arc::new(crate::settings::Silent);
        let pool = Pool::new(store.clone(), 1 << 20, log);
        let inbox = Inbox::new(Arc::new(|| {}));
        let mut state = pool.threads.lock();
        for _ in 0..2 {
            assert_eq!(JobQueue::len(&state.queue), 0);
            for count in 1..=limits::LONG_READERS + 3 {
                let batch = Box::new(store.write_batch());
                let waiting = (Job::Sweep { batch }, Arc::clone(&inbox), Arc::clone(&pool));
                let pushed = state.queue.push(Asker::Loop(1), Length::Long, waiting);
                assert!(pushed.is_ok());
                let may_begin = count.min(limits::LONG_READERS);
                assert_eq!(JobQueue::len(&state.queue), may_begin);
            }
            state.queue.clear();
        }
    }
}
