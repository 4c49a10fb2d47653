//! What the feeds of all databases share: their bound, and who is woken when something has changed.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::{Feed, FeedCommit};
use crate::limits;

/// The feeds of a store.
pub(crate) struct Feeds {
    /// What all of them may hold, in bytes.
    all_bytes: usize,
    /// What they hold, and how many of them hold something.
    held_bytes: AtomicUsize,
    holding: AtomicUsize,
    open: AtomicUsize,
    /// When they are looked at next, by the clock of the store.
    trim_due_ms: AtomicU64,
    /// How often something was recorded.
    version: AtomicU64,
    /// Something was recorded, and nobody was told yet.
    has_news: AtomicBool,
    known: Mutex<Vec<Weak<Feed>>>,
    wakers: Mutex<Vec<(u64, HubWaker)>>,
    next_waker: AtomicU64,
    /// The clock of the store.
    clock_ms: Arc<AtomicU64>,
    /// What feeds have held that were closed, to be freed.
    discarded: Mutex<Vec<VecDeque<Arc<FeedCommit>>>>,
    /// A feed is open, or something is to be freed.
    has_work: AtomicBool,
}

type HubWaker = Arc<dyn Fn() + Send + Sync>;

/// What is kept in memory for those who watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watched {
    /// Databases whose commits are recorded.
    pub databases: u64,
    /// What their commits take, in bytes.
    pub bytes: u64,
}

impl fmt::Debug for Feeds {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Feeds")
            .field("open", &self.open)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

impl Feeds {
    /// `memory_limit_bytes` is what all entries of the store may take, `clock_ms` its clock.
    pub(crate) fn new(memory_limit_bytes: u64, clock_ms: &Arc<AtomicU64>) -> Arc<Feeds> {
        let share = memory_limit_bytes / limits::FEED_SHARE;
        let share = usize::try_from(share).unwrap_or(usize::MAX);
        Arc::new(Feeds {
            all_bytes: share.min(limits::FEED_BYTES_MAX),
            held_bytes: AtomicUsize::new(0),
            holding: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            trim_due_ms: AtomicU64::new(0),
            version: AtomicU64::new(0),
            has_news: AtomicBool::new(false),
            known: Mutex::default(),
            wakers: Mutex::default(),
            next_waker: AtomicU64::new(0),
            clock_ms: Arc::clone(clock_ms),
            discarded: Mutex::default(),
            has_work: AtomicBool::new(false),
        })
    }

    /// What one feed may hold, in bytes: as much as each other that holds something.
    pub(super) fn bound_bytes(&self) -> usize {
        self.all_bytes / self.holding.load(Ordering::Relaxed).max(1)
    }

    /// Whether they hold more than they may together.
    pub(super) fn are_full(&self) -> bool {
        self.held_bytes.load(Ordering::Relaxed) > self.all_bytes
    }

    /// One of them holds so many bytes now.
    pub(super) fn note_held(&self, before_bytes: usize, bytes: usize) {
        let order = Ordering::Relaxed;
        (self.held_bytes).fetch_add(bytes.wrapping_sub(before_bytes), order);
        match (before_bytes > 0, bytes > 0) {
            (false, true) => self.holding.fetch_add(1, order),
            (true, false) => self.holding.fetch_sub(1, order),
            _ => return,
        };
    }

    /// A feed opens.
    pub(super) fn open(&self, feed: &Arc<Feed>) {
        self.open.fetch_add(1, Ordering::Relaxed);
        self.has_work.store(true, Ordering::Relaxed);
        let mut known = self.known.lock();
        known.retain(|feed| feed.strong_count() > 0);
        let is_known = |known: &Weak<Feed>| known.as_ptr() == Arc::as_ptr(feed);
        if !known.iter().any(is_known) {
            known.push(Arc::downgrade(feed));
        }
    }

    pub(super) fn close(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// Has all feeds drop what is beyond their bound, and those closed that nobody has watched for
    /// long.
    fn trim(&self, now_ms: u64) {
        let known = self.known.lock().clone();
        for feed in known.iter().filter_map(Weak::upgrade) {
            feed.trim(now_ms);
        }
    }

    /// The latest time that the store has seen, in milliseconds since 1970.
    pub(super) fn now_ms(&self) -> u64 {
        self.clock_ms.load(Ordering::Relaxed)
    }

    /// Has commits freed later that are not needed any more.
    pub(super) fn discard(&self, commits: VecDeque<Arc<FeedCommit>>) {
        if !commits.is_empty() {
            self.discarded.lock().push(commits);
            self.has_work.store(true, Ordering::Relaxed);
        }
    }

    /// Frees some of what is not needed any more, and now and then has all feeds looked at. To be
    /// called often, without a lock.
    #[inline]
    pub(crate) fn tend(&self, now_ms: u64) {
        if self.has_work.load(Ordering::Relaxed) {
            self.tend_those_in_use(now_ms);
        }
    }

    #[cold]
    fn tend_those_in_use(&self, now_ms: u64) {
        self.has_work.store(false, Ordering::Relaxed);
        if self.free_discarded() | (self.open.load(Ordering::Relaxed) > 0) {
            self.has_work.store(true, Ordering::Relaxed);
            self.trim_if_due(now_ms);
        }
    }

    fn trim_if_due(&self, now_ms: u64) {
        let order = Ordering::Relaxed;
        let due_ms = self.trim_due_ms.load(order);
        let next_ms = now_ms + limits::FEED_TRIM_MS;
        let is_mine = now_ms >= due_ms
            && (self.trim_due_ms)
                .compare_exchange(due_ms, next_ms, order, order)
                .is_ok();
        if is_mine {
            self.trim(now_ms);
        }
    }

    /// Returns whether there was something to be freed.
    fn free_discarded(&self) -> bool {
        let mut discarded = self.discarded.lock();
        let Some(last) = discarded.last_mut() else {
            return false;
        };
        let count = last.len().min(limits::FEED_FREED_AT_ONCE);
        let freed: Vec<_> = last.drain(..count).collect();
        if last.is_empty() {
            discarded.pop();
        }
        drop(discarded);
        drop(freed);
        true
    }

    #[cfg(test)]
    pub(super) fn discarded_commits(&self) -> usize {
        self.discarded.lock().iter().map(VecDeque::len).sum()
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.held_bytes.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(super) fn open_feeds(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    pub(crate) fn note_change(&self) {
        self.has_news.store(true, Ordering::Release);
    }

    /// Wakes those who watch, if something was recorded since this was last called.
    #[inline]
    pub(crate) fn announce(&self) {
        if self.has_news.load(Ordering::Relaxed) {
            self.announce_news();
        }
    }

    #[cold]
    fn announce_news(&self) {
        if !self.has_news.swap(false, Ordering::AcqRel) {
            return;
        }
        self.version.fetch_add(1, Ordering::Release);
        for (_, wake) in self.wakers.lock().iter() {
            wake();
        }
    }

    /// Returns what they hold.
    pub(crate) fn watched(&self) -> Watched {
        Watched {
            databases: self.open.load(Ordering::Relaxed) as u64,
            bytes: self.held_bytes.load(Ordering::Relaxed) as u64,
        }
    }

    /// Changes whenever something was recorded.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Has somebody woken at each change, until what is returned is dropped.
    pub(crate) fn add_waker(self: &Arc<Feeds>, wake: HubWaker) -> ChangeWaker {
        let number = self.next_waker.fetch_add(1, Ordering::Relaxed);
        self.wakers.lock().push((number, wake));
        ChangeWaker {
            feeds: Arc::clone(self),
            number,
        }
    }
}

/// Somebody is woken when a database that is watched has changed, as long as this lives.
#[derive(Debug)]
pub struct ChangeWaker {
    feeds: Arc<Feeds>,
    number: u64,
}

impl Drop for ChangeWaker {
    fn drop(&mut self) {
        let mut wakers = self.feeds.wakers.lock();
        wakers.retain(|(number, _)| *number != self.number);
    }
}
