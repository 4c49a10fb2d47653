//! The calls of a loop that watch databases.

use std::sync::Arc;

use store::{
    ChangeNews, ChangeWaker, LogReadError, LogReading, ReplicaPiece, ReplicaReading, Store,
};

use crate::SharedWaker;
use crate::account::LongClaim;
use crate::call_id::CallId;

/// See the module.
#[derive(Default)]
pub(crate) struct Watchers {
    list: Vec<Watching>,
    /// How often databases that are watched had changed when this was last looked.
    version: u64,
    /// Has this loop woken at each change, as long as there is a call in the list.
    waker: Option<ChangeWaker>,
    /// The place of the next call that is to be looked at, while some are.
    next: Option<usize>,
    /// Something has changed since those before that place were looked at.
    begins_anew: bool,
    /// What is to be read from the log in this tick.
    log_reads: Vec<LogRead>,
    /// What is to be read in this tick for servers that follow this one.
    replica_reads: Vec<ReplicaRead>,
}

/// Something that is to be read for a call of a server that follows this one.
#[derive(Debug)]
pub(crate) struct ReplicaRead {
    /// Who asks.
    pub call: CallId,
    /// What is read.
    pub reading: ReplicaReading,
    /// Memory for about as much as is read at a time; `None`: there is none now.
    pub memory: Option<LongClaim>,
}

impl ReplicaRead {
    /// Reads as much as there is memory for, and at most so many bytes.
    pub fn run(&mut self, most_bytes: usize) -> Result<ReplicaPiece, LogReadError> {
        let Some(memory) = &mut self.memory else {
            return Err(LogReadError::Busy);
        };
        let read = self
            .reading
            .run(memory.bytes(), memory.bytes().min(most_bytes));
        match read {
            // What comes next can only be read as a whole.
            Err(LogReadError::Needs(bytes)) if !memory.change_to(bytes) => Err(LogReadError::Busy),
            read => read,
        }
    }
}

/// Commits that are to be read from the log for a call.
#[derive(Debug)]
pub(crate) struct LogRead {
    /// Who asks.
    pub call: CallId,
    /// What is read.
    pub reading: LogReading,
    /// About so many bytes.
    pub bytes: usize,
}

/// A call that watches a database.
struct Watching {
    call: CallId,
    news: ChangeNews,
    /// How often the database had changed when the call was last woken.
    changes: u64,
}

impl Watchers {
    /// A call begins to watch a database. It has seen it as it is.
    pub fn add(&mut self, call: CallId, news: ChangeNews) {
        let changes = news.changes();
        let watching = Watching {
            call,
            news,
            changes,
        };
        self.list.push(watching);
    }

    /// Has commits read from the log, in this tick.
    pub fn read_log(&mut self, read: LogRead) {
        self.log_reads.push(read);
    }

    /// Takes one of these.
    pub fn take_log_read(&mut self) -> Option<LogRead> {
        self.log_reads.pop()
    }

    /// Has something read for a server that follows this one, in this tick.
    pub fn read_replica(&mut self, read: ReplicaRead) {
        self.replica_reads.push(read);
    }

    /// Takes one of these.
    pub fn take_replica_read(&mut self) -> Option<ReplicaRead> {
        self.replica_reads.pop()
    }

    /// Looks whether databases have changed that calls watch. Returns whether some calls are to be
    /// asked for.
    #[inline]
    pub fn look(&mut self, store: &Store, waker: &SharedWaker) -> bool {
        if self.list.is_empty() {
            return false;
        }
        self.look_at_changes(store, waker);
        self.has_waiting()
    }

    #[cold]
    fn look_at_changes(&mut self, store: &Store, waker: &SharedWaker) {
        // Before it is looked what has changed: nobody has woken this loop so far.
        let is_first = self.waker.is_none();
        (self.waker).get_or_insert_with(|| store.wake_at_changes(Arc::clone(waker)));
        let version = store.changes_version();
        if std::mem::replace(&mut self.version, version) != version || is_first {
            self.begins_anew |= self.next.is_some();
            self.next.get_or_insert(0);
        }
    }

    /// Whether some calls have yet to be looked at.
    pub fn has_waiting(&self) -> bool {
        self.next.is_some() || !self.log_reads.is_empty() || !self.replica_reads.is_empty()
    }

    /// Returns the next call whose database has changed since it was last returned. Those that do
    /// not run any more are forgotten.
    pub fn next(&mut self, is_running: impl Fn(CallId) -> bool) -> Option<CallId> {
        while let Some(place) = self.next {
            let Some(watching) = self.list.get_mut(place) else {
                self.end_round();
                continue;
            };
            if !is_running(watching.call) {
                self.list.swap_remove(place);
                continue;
            }
            self.next = Some(place + 1);
            let changes = watching.news.changes();
            if std::mem::replace(&mut watching.changes, changes) != changes {
                return Some(watching.call);
            }
        }
        None
    }

    fn end_round(&mut self) {
        self.next = std::mem::take(&mut self.begins_anew).then_some(0);
        if self.list.is_empty() {
            (self.waker, self.next) = (None, None);
        }
    }

    /// Returns how many calls are known, of which some may have ended.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.list.len()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use store::{Clock, DatabaseConfig, DatabaseId, Durability, Mode, Outcomes, StoreConfig};

    use super::*;

    struct Now;

    impl Clock for Now {
        fn now_ns(&mut self) -> u64 {
            0
        }

        fn now_ms(&mut self) -> u64 {
            1
        }
    }

    fn run(store: &Store, fill: impl FnOnce(&mut store::WriteBatch)) {
        let mut batch = store.write_batch();
        fill(&mut batch);
        drop((store.committer()).run(&mut batch, &mut Now, &mut Outcomes::new()));
    }

    fn put(store: &Store, database: DatabaseId) {
        run(store, |batch| {
            let mut commit = batch.begin(0, database, Mode::Atomic);
            let put = testkit::suite::put(b"key", b"value");
            commit.push(&put).expect("it fits");
            commit.submit();
        });
    }

    fn call(index: u32) -> CallId {
        CallId {
            index,
            generation: 1,
        }
    }

    #[test]
    fn those_whose_database_has_changed_are_woken_once_and_those_that_have_ended_forgotten() {
        let store = Store::in_memory(StoreConfig::new(1)).expect("the limits make sense");
        let config = DatabaseConfig {
            durability: Durability::Volatile,
            ..DatabaseConfig::default()
        };
        run(&store, |batch| batch.create_database(0, "other", &config));
        let other = store.database("other").expect("it was just made");
        let wakes = Arc::new(AtomicUsize::new(0));
        let waker: SharedWaker = {
            let wakes = Arc::clone(&wakes);
            Arc::new(move || {
                wakes.fetch_add(1, Ordering::Relaxed);
            })
        };
        let mut watchers = Watchers::default();
        for _ in 0..2 {
            wakes.store(0, Ordering::Relaxed);
            assert!(!watchers.look(&store, &waker), "nobody watches");
            let databases = [DatabaseId::DEFAULT, other, DatabaseId::DEFAULT];
            let watching = databases.map(|id| store.watch(id, None, false).expect("it is there"));
            for (index, one) in (0..).zip(&watching) {
                watchers.add(call(index), one.news());
            }
            // What they began with is no news.
            assert!(watchers.look(&store, &waker));
            assert_eq!(watchers.next(|_| true), None);
            assert!(!watchers.has_waiting() && !watchers.look(&store, &waker));
            put(&store, other);
            assert_eq!(wakes.load(Ordering::Relaxed), 1);
            assert!(watchers.look(&store, &waker));
            assert_eq!(watchers.next(|_| true), Some(call(1)));
            // Something changes while others have yet to be looked at.
            put(&store, DatabaseId::DEFAULT);
            assert!(watchers.look(&store, &waker));
            let woken: Vec<_> = std::iter::from_fn(|| watchers.next(|_| true)).collect();
            assert_eq!(woken, [call(2), call(0)]);
            assert!(!watchers.look(&store, &waker));
            put(&store, DatabaseId::DEFAULT);
            assert!(watchers.look(&store, &waker));
            assert_eq!(watchers.next(|id| id == call(2)), Some(call(2)));
            assert_eq!(watchers.next(|id| id == call(2)), None);
            assert_eq!(watchers.len(), 1);
            put(&store, DatabaseId::DEFAULT);
            assert!(watchers.look(&store, &waker));
            assert_eq!(watchers.next(|_| false), None);
            assert_eq!(watchers.len(), 0);
            // Nobody wakes the loop any more.
            let woken = wakes.load(Ordering::Relaxed);
            put(&store, DatabaseId::DEFAULT);
            assert_eq!(wakes.load(Ordering::Relaxed), woken);
        }
    }
}
