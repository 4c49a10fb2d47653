//! Threads that wait for the device.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use service::ReaderFigures;
use store::Store;

use super::{Done, Full, Job, sweep};
use crate::inbox::Inbox;
use crate::limits;

/// What one run of a fetch brings at most, unless one call alone wishes more.
const CLAIM_BYTES: usize = store::tree::limits::FETCHED_BYTES;

/// A few threads, begun when there is something for them to do.
pub(crate) struct Pool {
    store: Store,
    brought_limit_bytes: usize,
    figures: Arc<ReaderFigures>,
    state: Mutex<State>,
    /// There is a job, or nothing more will come.
    has_job: Condvar,
    /// Something that was brought was taken up.
    has_room: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<(Job, Arc<Inbox<Brought>>)>,
    threads: Vec<JoinHandle<()>>,
    /// Threads that wait for a job.
    idle: usize,
    /// Bytes that were brought and are still there.
    brought_bytes: usize,
    is_stopping: bool,
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
    pub fn new(store: Store, brought_limit_bytes: usize) -> Arc<Pool> {
        Arc::new(Pool {
            store,
            brought_limit_bytes,
            figures: Arc::default(),
            state: Mutex::default(),
            has_job: Condvar::new(),
            has_room: Condvar::new(),
        })
    }

    /// Has a job done whose results go to `inbox`.
    pub(super) fn submit(
        self: &Arc<Pool>,
        job: Job,
        inbox: &Arc<Inbox<Brought>>,
    ) -> Result<(), Full<Job>> {
        let mut state = self.lock();
        if state.is_stopping || state.jobs.len() >= limits::READ_JOBS {
            self.figures.refused_jobs.fetch_add(1, Ordering::Relaxed);
            return Err(Full(job));
        }
        if state.idle <= state.jobs.len() && state.threads.len() < limits::READERS {
            self.begin_thread(&mut state);
        }
        if state.threads.is_empty() {
            return Err(Full(job));
        }
        state.jobs.push_back((job, Arc::clone(inbox)));
        self.show(&state);
        drop(state);
        self.has_job.notify_one();
        Ok(())
    }

    /// Without a further thread those that are there do the work.
    fn begin_thread(self: &Arc<Pool>, state: &mut State) {
        let pool = Arc::clone(self);
        let thread = thread::Builder::new()
            .name("pelton-reader".into())
            .spawn(move || pool.work());
        state.threads.extend(thread);
    }

    /// Lets no job begin any more, and waits for the end of those that run. What they bring is for nobody.
    pub fn stop(&self) {
        let threads = {
            let mut state = self.lock();
            state.is_stopping = true;
            state.jobs.clear();
            std::mem::take(&mut state.threads)
        };
        self.has_job.notify_all();
        self.has_room.notify_all();
        for thread in threads {
            // In a build that unwinds, one that panicked has reported it.
            let _ = thread.join();
        }
    }

    fn work(self: &Arc<Pool>) {
        while let Some((job, inbox)) = self.next_job() {
            self.run(job, &inbox);
        }
    }

    fn next_job(&self) -> Option<(Job, Arc<Inbox<Brought>>)> {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                self.figures.jobs.fetch_add(1, Ordering::Relaxed);
                self.show(&state);
                return Some(job);
            }
            if state.is_stopping {
                return None;
            }
            state.idle += 1;
            state = wait(&self.has_job, state);
            state.idle -= 1;
        }
    }

    fn run(self: &Arc<Pool>, job: Job, inbox: &Inbox<Brought>) {
        match job {
            Job::Fetch(mut fetch) => {
                while !fetch.is_done() && self.claim_room() {
                    let fetched = fetch.run(&self.store);
                    let bytes = fetched.bytes();
                    self.settle(CLAIM_BYTES, bytes);
                    self.bring(Done::Fetched(fetched), bytes, inbox);
                }
            }
            Job::ReadAhead { number, mut batch } => {
                let failure = batch.read_ahead();
                let result = Done::Ahead {
                    number,
                    batch,
                    failure,
                };
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

    /// Claims room for what one run of a fetch brings, before it is there, and waits until there is some. `false`: the
    /// server stops.
    fn claim_room(&self) -> bool {
        let mut state = self.lock();
        while !self.has_room(&state) && !state.is_stopping {
            state = wait(&self.has_room, state);
        }
        state.brought_bytes += CLAIM_BYTES;
        !state.is_stopping
    }

    /// Whether another run may begin: if nothing waits, always.
    fn has_room(&self, state: &State) -> bool {
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

    fn show(&self, state: &State) {
        let figures = &self.figures;
        let (threads, waiting) = (state.threads.len() as u64, state.jobs.len() as u64);
        figures.threads.store(threads, Ordering::Relaxed);
        figures.waiting_jobs.store(waiting, Ordering::Relaxed);
    }

    /// What is counted of it.
    pub fn figures(&self) -> Arc<ReaderFigures> {
        Arc::clone(&self.figures)
    }

    #[cfg(test)]
    pub fn brought_bytes(&self) -> usize {
        self.lock().brought_bytes
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic is done under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wait<'a>(condition: &Condvar, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
    condition
        .wait(state)
        .unwrap_or_else(PoisonError::into_inner)
}
