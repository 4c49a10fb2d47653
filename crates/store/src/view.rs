//! What readers see of a database in memory.

use std::fmt;
use std::marker::PhantomData;
use std::ops::ControlFlow;

use parking_lot::RawRwLock;
use parking_lot::lock_api::ArcRwLockReadGuard;

use crate::catalogue::State;
use crate::memory::PassedExpiry;
use crate::range::{CountSlice, Direction, Range, ScanEnd};
use crate::remote_kind::RemoteShape;
use crate::tree::TreeIndex;
use crate::value::Entry;

/// Where the entries of a database are.
#[derive(Debug)]
pub enum IndexView<'a> {
    /// Here.
    Memory(View<'a>),
    /// On disk: a thread that may wait for the device [fetches](crate::tree::Fetch) them.
    Disk(TreeIndex),
    /// On an engine elsewhere: [`remote`](crate::remote) has the way there.
    Remote(RemoteShape),
    /// There is no such database (any more).
    Gone,
}

/// One database in memory between two commits: the visible view.
pub struct View<'a> {
    state: ArcRwLockReadGuard<RawRwLock, State>,
    history_id: u64,
    /// It is not to outlive its store.
    store: PhantomData<&'a ()>,
}

impl View<'_> {
    /// What the lock of a database in memory guards, in a history.
    pub(crate) fn new(state: ArcRwLockReadGuard<RawRwLock, State>, history_id: u64) -> Self {
        View {
            state,
            history_id,
            store: PhantomData,
        }
    }

    /// The sequence of the last commit that this view shows (0: none).
    pub fn sequence(&self) -> u64 {
        self.state.sequence
    }

    /// The history that the sequence belongs to ([`Store::history_id`](crate::Store::history_id)).
    pub fn history_id(&self) -> u64 {
        self.history_id
    }

    /// The entry of a key, unless it has expired. `hash` is the key's by
    /// [`Store::hasher`](crate::Store::hasher), `now_ms` the
    /// [`Store::clock_ms`](crate::Store::clock_ms).
    #[inline]
    pub fn get(&self, key: &[u8], hash: u64, now_ms: u64) -> Option<Entry<'_>> {
        self.state
            .index
            .memory()
            .find(key, hash)
            .filter(|entry| !entry.is_expired(now_ms))
    }

    /// Notes that the entry of a key is used, where the database drops what was not used for
    /// longest.
    #[inline]
    pub fn touch(&self, hash: u64) {
        if let Some(cache) = &self.state.cache {
            cache.touch(hash);
        }
    }

    /// Looks at the entries of several hashes, so that the gets that follow find them in the
    /// processor's caches. The look-ups of one call overlap in waiting for memory, which those of
    /// separate gets do not.
    #[inline]
    pub fn warm(&self, hashes: impl Iterator<Item = u64>) {
        self.state.index.memory().warm(hashes);
    }

    /// Visits the live entries of a range in order, walking at most `budget_rows` entries, but at
    /// least one.
    pub fn scan<'a>(
        &'a self,
        range: &Range<'_>,
        direction: Direction,
        now_ms: u64,
        budget_rows: u32,
        visit: &mut dyn FnMut(&Entry<'a>) -> ControlFlow<()>,
    ) -> ScanEnd<'a> {
        self.state
            .index
            .memory()
            .scan(range, direction, now_ms, budget_rows, visit)
    }

    /// Counts the live entries of a range, walking at most `budget_rows` entries, but at least one.
    /// An entry counts [`COUNT_ROWS_PER_LOOKUP`](crate::limits::COUNT_ROWS_PER_LOOKUP) times where
    /// expired entries wait to be swept. All entries of a database without such are counted at
    /// once.
    pub fn count(&self, range: &Range<'_>, now_ms: u64, budget_rows: u32) -> CountSlice<'_> {
        self.state.index.memory().count(range, now_ms, budget_rows)
    }

    /// Whether its keys are in order. If not, a scan walks over all entries:
    /// [`Store::order_keys`](crate::Store::order_keys) comes first.
    pub fn is_ordered(&self) -> bool {
        self.state.index.memory().is_ordered()
    }

    /// The keys that have expired and are still there, those that expired first at first: work for
    /// a sweeper.
    pub fn expired(&self, now_ms: u64) -> impl Iterator<Item = &[u8]> {
        self.state.index.memory().expired(now_ms)
    }

    /// The same with their expiries, beginning behind the entry `passed`.
    pub(crate) fn expired_after(
        &self,
        now_ms: u64,
        passed: Option<&PassedExpiry>,
    ) -> impl Iterator<Item = (u64, &[u8])> {
        self.state.index.memory().expired_after(now_ms, passed)
    }

    /// When the next entry expires that has not expired yet; `None` if there is none.
    pub fn next_expiry_ms(&self, now_ms: u64) -> Option<u64> {
        self.state.index.memory().next_expiry_ms(now_ms)
    }

    /// Checks that the parts of the index agree, and adds up what the entries take in memory.
    #[cfg(any(test, feature = "hooks"))]
    pub fn verify(&self) -> u64 {
        self.state.index.memory().verify()
    }

    /// Figures of the whole database, at no cost.
    pub fn statistics(&self) -> Statistics {
        Statistics {
            entries: self.state.index.memory().len() as u64,
            content_bytes: self.state.index.memory().content_bytes(),
            expiring: self.state.index.memory().expiring_len() as u64,
            memory_bytes: self.state.memory_bytes,
            disk_bytes: 0,
            sequence: self.sequence(),
        }
    }
}

impl fmt::Debug for View<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("View")
            .field("sequence", &self.sequence())
            .finish_non_exhaustive()
    }
}

/// Figures of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// Entries, with those that have expired and are not swept yet; on disk by estimate.
    pub entries: u64,
    /// Bytes of their keys and values; 0 on disk, where they are not counted.
    pub content_bytes: u64,
    /// Entries that have an expiry; 0 on disk, where they are not counted.
    pub expiring: u64,
    /// What the entries take in memory, by estimate.
    pub memory_bytes: u64,
    /// What files of its own take; 0 in memory: the log belongs to all.
    pub disk_bytes: u64,
    /// The last commit that reads see.
    pub sequence: u64,
}
