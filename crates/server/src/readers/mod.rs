//! Reads that wait for the device, on threads of their own.
//!
//! A loop makes jobs of what its calls plan to read of databases on disk, and of what their writes
//! must know before they can be decided. Threads of a [`Pool`] run them and put each
//! [`ReaderResult`] into the inbox of the loop. The threads of the blocking driver use the same
//! pool: so one bound holds for all reads from the device and for their results, and a device that
//! does not respond takes no permit to compute.

mod pool;
mod queue;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use net::ConnectionId;
use service::identities::IdentityKey;
use store::tree::{Fetch, Fetched, TreeError};
use store::{LogReadError, NextCommits, ReadAhead, ReplicaPiece, Store, WriteBatch};

use crate::SharedWaker;
use crate::inbox::Inbox;
use crate::watchers::{LogRead, ReplicaRead};
pub(crate) use pool::{Pool, ReaderResult};
use queue::{Asker, JobLength, ReadOwner};

/// Who does the jobs of a loop.
#[derive(Clone)]
pub(crate) enum Readers {
    /// The loop itself, in a simulation.
    Inline(Store),
    /// Threads that all loops share.
    Pool(Arc<Pool>),
}

/// Names a batch of writes that is read ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadAheadId {
    /// Whose writes they are.
    pub connection: ConnectionId,
    /// Of the batches of that connection.
    pub number: u64,
}

/// A piece of work for a reader.
enum Job {
    /// For calls that read.
    Fetch {
        fetch: Fetch,
        length: JobLength,
        /// What its next call needs, if that is more than usual.
        needed_bytes: usize,
        /// Set when all of them are gone.
        has_left: Option<Arc<AtomicBool>>,
    },
    /// For calls that write; its name comes back with it.
    ReadAhead {
        id: ReadAheadId,
        batch: Box<WriteBatch>,
    },
    /// For what has expired; comes back with the removals.
    Sweep { batch: Box<WriteBatch> },
    /// For a call that watches.
    Log(Box<LogRead>),
    /// For a call of a server that follows this one.
    Replica(Box<ReplicaRead>),
}

impl Job {
    fn length(&self) -> JobLength {
        match self {
            Job::Fetch { length, .. } => *length,
            Job::ReadAhead { .. } => JobLength::Short,
            Job::Sweep { .. } | Job::Log(_) | Job::Replica(_) => JobLength::Long,
        }
    }
}

/// What a job of a reader results in.
pub(crate) enum DoneRead {
    /// For calls that read; there may be more of the same job.
    Fetched(Fetched),
    /// Commits of which as many as were read can be decided now, or will be refused for what could
    /// not be read.
    Ahead {
        id: ReadAheadId,
        batch: Box<WriteBatch>,
        read: ReadAhead,
    },
    /// Removals of what has expired, which nobody waits for.
    Swept {
        batch: Box<WriteBatch>,
        failure: Option<TreeError>,
    },
    /// Commits from the log, for a call that watches.
    Log(Box<LogRead>, Result<NextCommits, LogReadError>),
    /// Groups or bytes, for a call of a server that follows this one.
    Replica(Box<ReplicaRead>, Result<ReplicaPiece, LogReadError>),
}

/// A connection that reads, and whose token it has, if that is counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadingConnection {
    pub connection: ConnectionId,
    pub identity: Option<IdentityKey>,
}

impl From<ConnectionId> for ReadingConnection {
    fn from(connection: ConnectionId) -> ReadingConnection {
        ReadingConnection {
            connection,
            identity: None,
        }
    }
}

/// There is no room for a further job, or nobody to do it.
pub(crate) struct Full<J>(pub J, pub WhyFull);

/// Why a job was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WhyFull {
    /// Too many wait.
    Jobs,
    /// There is no reader, and the system gives no thread for one.
    NoThread,
}

impl Readers {
    /// When the loops have ended.
    pub fn stop(&self) {
        if let Readers::Pool(pool) = self {
            pool.stop();
        }
    }
}

/// The readers of a server, seen from one of its loops.
pub(crate) struct LoopReaders {
    readers: Readers,
    inbox: Arc<Inbox<ReaderResult>>,
    /// Results that were taken from the inbox and not returned by `next` yet.
    waiting: VecDeque<ReaderResult>,
    /// What says to the readers that a connection has left; for those that had jobs of their own.
    leaving: HashMap<ConnectionId, Arc<AtomicBool>>,
}

impl LoopReaders {
    /// `waker` asks the loop for a tick, from any thread.
    pub fn new(readers: Readers, waker: SharedWaker) -> LoopReaders {
        LoopReaders {
            readers,
            inbox: Inbox::new(waker),
            waiting: VecDeque::new(),
            leaving: HashMap::new(),
        }
    }

    /// Starts a fetch of a few keys for calls of a connection. Its results come out of
    /// [`LoopReaders::next`], in one piece or several.
    pub fn fetch(&mut self, connection: ConnectionId, fetch: Fetch) -> Result<(), Full<Fetch>> {
        self.fetch_as(connection.into(), fetch, JobLength::Short, None)
    }

    /// The same where all the calls are of that connection: nothing more is read for them when it
    /// has gone.
    pub fn fetch_own(
        &mut self,
        reader: impl Into<ReadingConnection>,
        fetch: Fetch,
    ) -> Result<(), Full<Fetch>> {
        let reader = reader.into();
        let has_left = Arc::clone(self.leaving.entry(reader.connection).or_default());
        self.fetch_as(reader, fetch, JobLength::Short, Some(has_left))
    }

    /// The same for a slice of a long read.
    pub fn fetch_slice(
        &mut self,
        reader: impl Into<ReadingConnection>,
        fetch: Fetch,
    ) -> Result<(), Full<Fetch>> {
        self.fetch_as(reader.into(), fetch, JobLength::Long, None)
    }

    fn fetch_as(
        &mut self,
        reader: ReadingConnection,
        mut fetch: Fetch,
        length: JobLength,
        has_left: Option<Arc<AtomicBool>>,
    ) -> Result<(), Full<Fetch>> {
        match &self.readers {
            Readers::Inline(store) => {
                while !fetch.is_done()
                    && let Ok(fetched) = fetch.run(store, usize::MAX)
                {
                    let result = DoneRead::Fetched(fetched);
                    self.waiting.push_back(ReaderResult::free(result));
                }
                Ok(())
            }
            Readers::Pool(pool) => {
                let asking = ReadOwner {
                    asker: Asker::Connection(self.number(), reader.connection),
                    identity: reader.identity,
                };
                let job = Job::Fetch {
                    fetch,
                    length,
                    needed_bytes: 0,
                    has_left,
                };
                match pool.submit(asking, job, &self.inbox) {
                    Err(Full(Job::Fetch { fetch, .. }, why)) => Err(Full(fetch, why)),
                    _ => Ok(()),
                }
            }
        }
    }

    /// A connection has gone: what waits for its calls is not done, and readers end with what they
    /// are at. Few reads of several connections share a job: `caller` names the connection of a
    /// tag, if that is still there.
    pub fn forget(
        &mut self,
        connection: ConnectionId,
        caller: &dyn Fn(u64) -> Option<ConnectionId>,
    ) {
        if let Some(has_left) = self.leaving.remove(&connection) {
            has_left.store(true, Ordering::Relaxed);
        }
        let Readers::Pool(pool) = &self.readers else {
            return;
        };
        let number = self.number();
        let heir = |job: &Job| match job {
            Job::Fetch { fetch, .. } => {
                let mut callers = fetch.plan().tags().filter_map(caller);
                callers.next().map(|heir| Asker::Connection(number, heir))
            }
            // Its commits are decided, or refused, whoever has left.
            Job::ReadAhead { .. } => Some(Asker::Loop(number)),
            Job::Sweep { .. } | Job::Log(_) | Job::Replica(_) => None,
        };
        pool.forget(Asker::Connection(number, connection), &heir);
    }

    /// By which its jobs are told from those of other loops.
    fn number(&self) -> usize {
        Arc::as_ptr(&self.inbox).addr()
    }

    /// Has read ahead what commits of a connection must know. Given back is a batch that need not
    /// or cannot be waited for, with the number of commits that may go to the committer.
    pub fn read_ahead(
        &self,
        id: ReadAheadId,
        mut batch: Box<WriteBatch>,
    ) -> Option<(Box<WriteBatch>, usize)> {
        match &self.readers {
            Readers::Inline(_) => {
                let read = batch.read_ahead().commits;
                Some((batch, read))
            }
            Readers::Pool(pool) => {
                let asker = Asker::Connection(self.number(), id.connection);
                let job = Job::ReadAhead { id, batch };
                match pool.submit(asker, job, &self.inbox) {
                    // The committer refuses what was not read.
                    Err(Full(Job::ReadAhead { batch, .. }, _)) => {
                        let all = batch.len();
                        Some((batch, all))
                    }
                    _ => None,
                }
            }
        }
    }

    /// Has databases on disk swept. Nothing comes of it if there is no room.
    pub fn sweep(&mut self, store: &Store) {
        let mut batch = Box::new(store.write_batch());
        match &self.readers {
            Readers::Inline(_) => {
                let failure = sweep(store, &mut batch);
                let done = DoneRead::Swept { batch, failure };
                self.waiting.push_back(ReaderResult::free(done));
            }
            Readers::Pool(pool) => {
                let asker = Asker::Loop(self.number());
                if (pool.submit(asker, Job::Sweep { batch }, &self.inbox)).is_err() {
                    store.put_off_tree_sweep();
                }
            }
        }
    }

    /// Has commits read from the log for a call of a connection.
    pub fn read_log(&mut self, reader: ReadingConnection, mut read: Box<LogRead>) {
        match &self.readers {
            Readers::Inline(_) => {
                let commits = read.reading.run(read.bytes, usize::MAX);
                let result = ReaderResult::free(DoneRead::Log(read, commits));
                self.waiting.push_back(result);
            }
            Readers::Pool(pool) => {
                let asking = ReadOwner {
                    asker: Asker::Connection(self.number(), reader.connection),
                    identity: reader.identity,
                };
                let submitted = pool.submit(asking, Job::Log(read), &self.inbox);
                if let Err(Full(Job::Log(read), _)) = submitted {
                    let done = DoneRead::Log(read, Err(LogReadError::Busy));
                    self.waiting.push_back(ReaderResult::free(done));
                }
            }
        }
    }

    /// Has something read for a call of a server that follows this one.
    pub fn read_replica(&mut self, reader: ReadingConnection, mut read: Box<ReplicaRead>) {
        if read.memory.is_none() {
            let done = DoneRead::Replica(read, Err(LogReadError::Busy));
            return self.waiting.push_back(ReaderResult::free(done));
        }
        match &self.readers {
            Readers::Inline(_) => {
                let piece = read.run(usize::MAX);
                let result = ReaderResult::free(DoneRead::Replica(read, piece));
                self.waiting.push_back(result);
            }
            Readers::Pool(pool) => {
                let asking = ReadOwner {
                    asker: Asker::Connection(self.number(), reader.connection),
                    identity: reader.identity,
                };
                let submitted = pool.submit(asking, Job::Replica(read), &self.inbox);
                if let Err(Full(Job::Replica(read), _)) = submitted {
                    let done = DoneRead::Replica(read, Err(LogReadError::Busy));
                    self.waiting.push_back(ReaderResult::free(done));
                }
            }
        }
    }

    /// Returns the next result. Costs next to nothing while there is none.
    #[inline]
    pub fn next(&mut self) -> Option<ReaderResult> {
        if self.waiting.is_empty() {
            self.inbox.take(&mut self.waiting);
        }
        self.waiting.pop_front()
    }

    /// Whether nothing can come any more.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.inbox.is_over()
    }

    /// Whether there are results that `next` has not returned yet, in the inbox too: the readers
    /// call the waker once for them, and a tick may have ended before it got there.
    pub fn has_results(&self) -> bool {
        !self.waiting.is_empty() || self.inbox.has_some()
    }
}

/// Walks on through the databases on disk.
fn sweep(store: &Store, batch: &mut WriteBatch) -> Option<TreeError> {
    store.sweep_trees(batch).err()
}
