//! Threads that wait for the device.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use service::ReaderFigures;
use store::tree::{Fetch, NeedsBytes};
use store::{LogReadError, NextCommits, ReplicaPiece, Store};

use super::queue::{Asker, JobLength, ReadOwner, ReadQueue};
use super::{DoneRead, Full, Job, WhyFull, sweep};
use crate::inbox::Inbox;
use crate::limits;
use crate::settings::Log;
use crate::threads::{JobQueue, JobThreads};
use crate::watchers::{LogRead, ReplicaRead};

/// What one run of a fetch reads at most, unless one call alone needs more.
const CLAIM_BYTES: usize = store::tree::limits::FETCHED_BYTES;

/// A few threads, begun when there is something for them to do.
pub(crate) struct Pool {
    store: Store,
    result_limit_bytes: usize,
    figures: Arc<ReaderFigures>,
    threads: Arc<JobThreads<ReadQueue<Waiting>>>,
    room: Mutex<Room>,
    /// A result was dropped.
    has_room: Condvar,
}

/// A job that waits.
pub(super) struct Waiting {
    job: Job,
    asking: ReadOwner,
    /// Where its results go.
    inbox: Arc<Inbox<ReaderResult>>,
    /// Whose room they take.
    pool: Arc<Pool>,
}

#[derive(Default)]
struct Room {
    /// Bytes of results that are still there, and of those that are about to be read.
    result_bytes: usize,
    /// One run has a claim beyond the room, so that a call that needs much has its turn.
    is_overdrawn: bool,
    is_stopping: bool,
}

/// What a run takes of the room, or is beyond it.
#[derive(Clone, Copy, Debug, Default)]
struct RoomClaim {
    bytes: usize,
    is_beyond: bool,
}

impl Room {
    fn add(&mut self, claim: RoomClaim) {
        match claim.is_beyond {
            true => self.is_overdrawn = true,
            false => self.result_bytes += claim.bytes,
        }
    }

    fn subtract(&mut self, claim: RoomClaim) {
        match claim.is_beyond {
            true => self.is_overdrawn = false,
            false => self.result_bytes -= claim.bytes,
        }
    }
}

/// What became of a fetch.
enum Ran {
    /// All is read, or nobody wants it any more.
    Over,
    /// Its next call needs so many bytes.
    Needs(Fetch, usize),
}

impl JobQueue for ReadQueue<Waiting> {
    type Job = (Waiting, JobLength);

    fn pop(&mut self) -> Option<Self::Job> {
        ReadQueue::pop(self)
    }

    fn len(&self) -> usize {
        self.ready()
    }

    fn show(&self, threads: usize) {
        ReadQueue::show(self, threads);
    }

    fn run(threads: &Arc<JobThreads<ReadQueue<Waiting>>>, (waiting, length): Self::Job) {
        let long = waiting.run(length);
        if long.is_none() && length == JobLength::Short {
            return;
        }
        let mut state = threads.lock();
        if length == JobLength::Long {
            state.queue.end_long();
        }
        if let Some(waiting) = long.filter(|_| !state.is_stopping()) {
            state.queue.put_back(waiting.asking, waiting);
        }
    }
}

/// The result of a read. Its bytes count against the limit of the pool until it is dropped.
pub(crate) struct ReaderResult {
    /// `None`: it was taken out.
    result: Option<DoneRead>,
    claim: RoomClaim,
    /// Where its bytes count.
    pool: Option<Arc<Pool>>,
}

impl ReaderResult {
    /// Returns a result that counts against no limit.
    pub(super) fn free(result: DoneRead) -> ReaderResult {
        ReaderResult {
            result: Some(result),
            claim: RoomClaim::default(),
            pool: None,
        }
    }

    /// Takes the result out; `None` if it was taken before.
    pub fn take(&mut self) -> Option<DoneRead> {
        self.result.take()
    }
}

impl Drop for ReaderResult {
    fn drop(&mut self) {
        if let Some(pool) = &self.pool {
            pool.settle(self.claim, RoomClaim::default());
        }
    }
}

impl Waiting {
    /// Returns itself if it is short no longer: it needs much, and comes behind short ones.
    fn run(self, length: JobLength) -> Option<Waiting> {
        let Waiting {
            job,
            asking,
            inbox,
            pool,
        } = self;
        match job {
            Job::Fetch {
                fetch,
                length: _,
                needed_bytes,
                has_left,
            } => {
                let most_bytes = match length {
                    JobLength::Short => CLAIM_BYTES,
                    JobLength::Long => usize::MAX,
                };
                let is_wanted =
                    || !(has_left.as_ref()).is_some_and(|left| left.load(Ordering::Relaxed));
                let needed_bytes = needed_bytes.max(CLAIM_BYTES);
                let ran = pool.fetch(fetch, (needed_bytes, most_bytes), is_wanted, &inbox);
                let Ran::Needs(fetch, needed_bytes) = ran else {
                    return None;
                };
                let job = Job::Fetch {
                    fetch,
                    length: JobLength::Long,
                    needed_bytes,
                    has_left,
                };
                return Some(Waiting {
                    job,
                    asking,
                    inbox,
                    pool,
                });
            }
            Job::ReadAhead { id, mut batch } => {
                let read = batch.read_ahead();
                let result = DoneRead::Ahead { id, batch, read };
                pool.put_result(result, RoomClaim::default(), &inbox);
            }
            Job::Sweep { mut batch } => {
                let failure = sweep(&pool.store, &mut batch);
                let result = DoneRead::Swept { batch, failure };
                pool.put_result(result, RoomClaim::default(), &inbox);
            }
            Job::Log(read) => pool.read_log(read, &inbox),
            Job::Replica(read) => pool.read_replica(read, &inbox),
        }
        None
    }
}

impl Pool {
    /// At most `result_limit_bytes` may wait for loops, or be on their way to them, and what one
    /// call needs that needs more than a run usually reads.
    pub fn new(store: Store, result_limit_bytes: usize, log: Arc<dyn Log>) -> Arc<Pool> {
        let figures: Arc<ReaderFigures> = Arc::default();
        let queue = ReadQueue::new(Arc::clone(&figures));
        let idle = Duration::from_millis(limits::IDLE_THREAD_MS);
        Arc::new(Pool {
            store,
            result_limit_bytes,
            figures,
            threads: JobThreads::new(
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
        asking: impl Into<ReadOwner>,
        job: Job,
        inbox: &Arc<Inbox<ReaderResult>>,
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
        let asking = asking.into();
        let waiting = Waiting {
            job,
            asking,
            inbox: Arc::clone(inbox),
            pool: Arc::clone(self),
        };
        if let Err(waiting) = state.queue.push(asking, length, waiting) {
            return Err(Full(waiting.job, WhyFull::Jobs));
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
        let jobs = state.queue.forget(asker, &|waiting| heir(&waiting.job));
        if !jobs.is_empty() {
            state.show();
        }
        drop(state);
        // What they hold goes without the lock.
        drop(jobs);
    }

    /// Lets no job begin any more, and waits for the end of those that run. Their results
    /// are dropped.
    pub fn stop(&self) {
        self.lock().is_stopping = true;
        self.has_room.notify_all();
        self.threads.stop(ReadQueue::clear);
    }

    /// Runs a fetch to its end, or to a call that needs more than `most_bytes`.
    fn fetch(
        self: &Arc<Pool>,
        mut fetch: Fetch,
        (mut needed_bytes, most_bytes): (usize, usize),
        is_wanted: impl Fn() -> bool,
        inbox: &Inbox<ReaderResult>,
    ) -> Ran {
        while !fetch.is_done() && is_wanted() {
            let Some(claim) = self.claim_room(needed_bytes) else {
                break;
            };
            match fetch.run(&self.store, claim.bytes) {
                Ok(fetched) => {
                    // As little is claimed for what follows as if this had not needed more.
                    needed_bytes = CLAIM_BYTES;
                    let after = RoomClaim {
                        bytes: fetched.bytes(),
                        ..claim
                    };
                    self.settle(claim, after);
                    self.put_result(DoneRead::Fetched(fetched), after, inbox);
                }
                Err(NeedsBytes(bytes)) => {
                    self.settle(claim, RoomClaim::default());
                    // It may turn out to be more still: then not by a little each time.
                    needed_bytes = bytes.max(claim.bytes.saturating_mul(2));
                    if needed_bytes > most_bytes {
                        return Ran::Needs(fetch, needed_bytes);
                    }
                }
            }
        }
        Ran::Over
    }

    /// Reads commits from the log; nothing comes of it if the server stops.
    fn read_log(self: &Arc<Pool>, mut read: Box<LogRead>, inbox: &Inbox<ReaderResult>) {
        let run = |room_bytes| read.reading.run(read.bytes, room_bytes);
        if let Some((commits, claim)) = self.run_in_room(run, NextCommits::held_bytes) {
            self.put_result(DoneRead::Log(read, commits), claim, inbox);
        }
    }

    /// Reads for a server that follows this one; nothing comes of it if the server stops.
    fn read_replica(self: &Arc<Pool>, mut read: Box<ReplicaRead>, inbox: &Inbox<ReaderResult>) {
        let run = |room_bytes| read.run(room_bytes);
        if let Some((piece, claim)) = self.run_in_room(run, ReplicaPiece::held_bytes) {
            self.put_result(DoneRead::Replica(read, piece), claim, inbox);
        }
    }

    /// Makes a read of the log within as many bytes as it needs. Returns what was read and the
    /// claim for it; `None`: the server stops.
    fn run_in_room<T>(
        self: &Arc<Pool>,
        mut run: impl FnMut(usize) -> Result<T, LogReadError>,
        held_bytes: impl FnOnce(&T) -> usize,
    ) -> Option<(Result<T, LogReadError>, RoomClaim)> {
        let mut needed_bytes = CLAIM_BYTES;
        loop {
            let claim = self.claim_room(needed_bytes)?;
            let read = run(claim.bytes);
            if let Err(LogReadError::Needs(bytes)) = read {
                self.settle(claim, RoomClaim::default());
                needed_bytes = bytes.max(CLAIM_BYTES);
                continue;
            }
            let after = RoomClaim {
                bytes: read.as_ref().map_or(0, held_bytes),
                ..claim
            };
            self.settle(claim, after);
            return Some((read, after));
        }
    }

    fn put_result(
        self: &Arc<Pool>,
        result: DoneRead,
        claim: RoomClaim,
        inbox: &Inbox<ReaderResult>,
    ) {
        inbox.put(ReaderResult {
            result: Some(result),
            claim,
            pool: Some(Arc::clone(self)),
        });
    }

    /// Claims room for what one run of a fetch reads, before it is there, and waits until there is
    /// some. `None`: the server stops.
    fn claim_room(&self, bytes: usize) -> Option<RoomClaim> {
        let mut state = self.lock();
        loop {
            if state.is_stopping {
                return None;
            }
            let is_beyond = !self.has_room(&state, bytes);
            if !is_beyond || (bytes > CLAIM_BYTES && !state.is_overdrawn) {
                let claim = RoomClaim { bytes, is_beyond };
                state.add(claim);
                return Some(claim);
            }
            state = wait(&self.has_room, state);
        }
    }

    /// Whether another run may begin: if nothing waits, always.
    fn has_room(&self, state: &Room, bytes: usize) -> bool {
        let result_bytes = state.result_bytes.saturating_add(bytes);
        state.result_bytes == 0 || result_bytes <= self.result_limit_bytes
    }

    /// This is there, or on its way, instead of that.
    fn settle(&self, before: RoomClaim, after: RoomClaim) {
        if before.bytes == 0 && after.bytes == 0 && !before.is_beyond {
            return;
        }
        let mut state = self.lock();
        state.subtract(before);
        state.add(after);
        drop(state);
        // Those who wait need differently much.
        self.has_room.notify_all();
    }

    /// What is counted of it.
    pub fn figures(&self) -> Arc<ReaderFigures> {
        Arc::clone(&self.figures)
    }

    #[cfg(test)]
    pub fn result_bytes(&self) -> usize {
        self.lock().result_bytes
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
        let log = Arc::new(crate::settings::SilentLog);
        let pool = Pool::new(store.clone(), 1 << 20, log);
        let inbox = Inbox::new(Arc::new(|| {}));
        let mut state = pool.threads.lock();
        for _ in 0..2 {
            assert_eq!(JobQueue::len(&state.queue), 0);
            for count in 1..=limits::LONG_READERS + 3 {
                let batch = Box::new(store.write_batch());
                let waiting = Waiting {
                    job: Job::Sweep { batch },
                    asking: Asker::Loop(1).into(),
                    inbox: Arc::clone(&inbox),
                    pool: Arc::clone(&pool),
                };
                let pushed = state.queue.push(Asker::Loop(1), JobLength::Long, waiting);
                assert!(pushed.is_ok());
                let may_begin = count.min(limits::LONG_READERS);
                assert_eq!(JobQueue::len(&state.queue), may_begin);
            }
            state.queue.clear();
        }
    }
}
