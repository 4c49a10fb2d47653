//! What the feeds of all databases share: their bound, and who is woken when something has changed.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::Feed;
use crate::limits;

/// The feeds of a store.
pub(crate) struct Feeds {
    /// What all of them may hold, in bytes.
    all_bytes: usize,
    open: AtomicUsize,
    /// How often something was recorded.
    version: AtomicU64,
    /// Something was recorded, and nobody was told yet.
    has_news: AtomicBool,
    known: Mutex<Vec<Weak<Feed>>>,
    wakers: Mutex<Vec<(u64, Waker)>>,
    next_waker: AtomicU64,
}

type Waker = Arc<dyn Fn() + Send + Sync>;

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
    /// `memory_limit_bytes` is what all entries of the store may take.
    pub(crate) fn new(memory_limit_bytes: u64) -> Arc<Feeds> {
        let share = memory_limit_bytes / limits::FEED_SHARE;
        let share = usize::try_from(share).unwrap_or(usize::MAX);
        Arc::new(Feeds {
            all_bytes: share.min(limits::FEED_BYTES_MAX),
            open: AtomicUsize::new(0),
            version: AtomicU64::new(0),
            has_news: AtomicBool::new(false),
            known: Mutex::default(),
            wakers: Mutex::default(),
            next_waker: AtomicU64::new(0),
        })
    }

    /// What one feed may hold, in bytes.
    pub(super) fn bound_bytes(&self) -> usize {
        self.all_bytes / self.open.load(Ordering::Relaxed).max(1)
    }

    /// A feed opens: the others make room for it when it is their turn ([`Feeds::trim`]).
    pub(super) fn open(&self, feed: &Arc<Feed>) {
        self.open.fetch_add(1, Ordering::Relaxed);
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
    pub(crate) fn trim(&self, now_ms: u64) {
        let known = self.known.lock().clone();
        for feed in known.iter().filter_map(Weak::upgrade) {
            feed.trim(self.bound_bytes(), now_ms);
        }
    }

    #[cfg(test)]
    pub(super) fn open_feeds(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    pub(super) fn note_change(&self) {
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

    /// Changes whenever something was recorded.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Has somebody woken at each change, until what is returned is dropped.
    pub(crate) fn add_waker(self: &Arc<Feeds>, wake: Waker) -> ChangeWaker {
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
