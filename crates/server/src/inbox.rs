//! Results of other threads for one loop.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::SharedWaker;

/// Filled by any thread, emptied by its loop. Whoever puts something in bounds how much there can
/// be.
pub(crate) struct Inbox<T> {
    /// Asks the loop for a tick.
    waker: SharedWaker,
    has_some: AtomicBool,
    /// Its loop takes nothing more. Changed and read under the lock of `waiting`.
    is_closed: AtomicBool,
    waiting: Mutex<VecDeque<T>>,
}

impl<T> Inbox<T> {
    pub fn new(waker: SharedWaker) -> Arc<Inbox<T>> {
        Arc::new(Inbox {
            waker,
            has_some: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            waiting: Mutex::default(),
        })
    }

    /// Puts something in; the loop is woken if there was nothing before. Dropped at once if the
    /// inbox is closed.
    pub fn put(&self, item: T) {
        self.push(self.lock(), item);
    }

    /// The same, in place of what is outdated by it.
    pub fn put_instead(&self, item: T, is_outdated: impl Fn(&T) -> bool) {
        let mut waiting = self.lock();
        let all = std::mem::take(&mut *waiting).into_iter();
        let (outdated, current): (VecDeque<T>, VecDeque<T>) = all.partition(is_outdated);
        *waiting = current;
        self.push(waiting, item);
        // Without the lock, as all that is dropped here.
        drop(outdated);
    }

    fn push(&self, mut waiting: MutexGuard<'_, VecDeque<T>>, item: T) {
        if self.is_closed.load(Ordering::Relaxed) {
            // What is dropped may have more to do than this lock should be held for.
            drop(waiting);
            return drop(item);
        }
        waiting.push_back(item);
        let was_empty = !self.has_some.swap(true, Ordering::Release);
        drop(waiting);
        if was_empty {
            (self.waker)();
        }
    }

    /// Exchanges an empty list for what has come. Costs next to nothing while nothing has.
    #[inline]
    pub fn take(&self, into: &mut VecDeque<T>) {
        debug_assert!(into.is_empty(), "what was taken before has been looked at");
        if !self.has_some.load(Ordering::Acquire) {
            return;
        }
        let mut waiting = self.lock();
        self.has_some.store(false, Ordering::Relaxed);
        std::mem::swap(&mut *waiting, into);
    }

    /// What has come, as a list of its own: for what is rare.
    #[inline]
    pub fn take_all(&self) -> VecDeque<T> {
        let mut taken = VecDeque::new();
        self.take(&mut taken);
        taken
    }

    /// Its loop ends: drops what has come, and whatever is put in from now on. Items may keep the
    /// inbox themselves, so that otherwise neither would ever be dropped.
    pub fn close(&self) {
        let waiting = {
            let mut waiting = self.lock();
            self.is_closed.store(true, Ordering::Relaxed);
            self.has_some.store(false, Ordering::Relaxed);
            std::mem::take(&mut *waiting)
        };
        drop(waiting);
    }

    /// Whether something has come that was not taken. Whoever has put it in has called the waker,
    /// once.
    #[inline]
    pub fn has_some(&self) -> bool {
        self.has_some.load(Ordering::Acquire)
    }

    /// Whether nothing has come, and nobody else can put anything in any more.
    pub fn is_over(self: &Arc<Inbox<T>>) -> bool {
        // In this order: who puts something in lets go of it afterwards.
        Arc::strong_count(self) == 1 && !self.has_some.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<T>> {
        // Whole entries are put in and taken out: sound whoever panicked.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    fn inbox() -> (Arc<Inbox<u32>>, Arc<AtomicUsize>) {
        let woken = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&woken);
        let waker = move || {
            counter.fetch_add(1, Ordering::Relaxed);
        };
        (Inbox::new(Arc::new(waker)), woken)
    }

    #[test]
    fn the_loop_is_woken_once_for_all_that_waits() {
        let (inbox, woken) = inbox();
        inbox.put(1);
        inbox.put(2);
        assert_eq!(woken.load(Ordering::Relaxed), 1);
        assert_eq!(inbox.take_all(), [1, 2]);
        assert!(inbox.take_all().is_empty());
        inbox.put(3);
        assert_eq!(woken.load(Ordering::Relaxed), 2);
        let mut taken = VecDeque::new();
        inbox.take(&mut taken);
        assert_eq!(taken, [3]);
    }

    #[test]
    fn an_inbox_is_over_when_nobody_can_fill_it() {
        let (inbox, _) = inbox();
        for _ in 0..2 {
            let writer = Arc::clone(&inbox);
            assert!(!inbox.is_over());
            writer.put(1);
            drop(writer);
            assert!(!inbox.is_over(), "something has come");
            assert_eq!(inbox.take_all(), [1]);
            assert!(inbox.is_over());
        }
    }

    /// An item that keeps the inbox.
    struct Item(#[expect(dead_code, reason = "it is only kept")] Arc<Inbox<Item>>);

    #[test]
    fn a_closed_inbox_keeps_nothing() {
        let woken = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&woken);
        let inbox = Inbox::new(Arc::new(move || {
            counter.fetch_add(1, Ordering::Relaxed);
        }));
        inbox.put(Item(Arc::clone(&inbox)));
        assert_eq!(Arc::strong_count(&inbox), 2);
        for _ in 0..2 {
            inbox.close();
            assert!(inbox.is_over());
            inbox.put(Item(Arc::clone(&inbox)));
            inbox.put_instead(Item(Arc::clone(&inbox)), |_| false);
            assert!(inbox.is_over() && inbox.take_all().is_empty());
        }
        assert_eq!(woken.load(Ordering::Relaxed), 1, "by the first item");
    }

    /// Counts when it is dropped under the lock of its inbox.
    struct Last {
        inbox: Arc<Inbox<Last>>,
        dropped_under_lock: Arc<AtomicUsize>,
    }

    impl Drop for Last {
        fn drop(&mut self) {
            let is_locked = self.inbox.waiting.try_lock().is_err();
            (self.dropped_under_lock).fetch_add(usize::from(is_locked), Ordering::Relaxed);
        }
    }

    #[test]
    fn nothing_is_dropped_under_the_lock() {
        let dropped_under_lock = Arc::new(AtomicUsize::new(0));
        let inbox = Inbox::new(Arc::new(|| ()));
        let item = || Last {
            inbox: Arc::clone(&inbox),
            dropped_under_lock: Arc::clone(&dropped_under_lock),
        };
        for _ in 0..2 {
            inbox.put(item());
            inbox.put_instead(item(), |_| true);
        }
        assert_eq!(inbox.take_all().len(), 1, "in place of all before it");
        inbox.put(item());
        for _ in 0..2 {
            inbox.close();
            inbox.put(item());
            inbox.put_instead(item(), |_| true);
        }
        assert!(inbox.is_over());
        assert_eq!(dropped_under_lock.load(Ordering::Relaxed), 0);
        assert_eq!(Arc::strong_count(&dropped_under_lock), 1);
    }

    #[test]
    fn what_is_outdated_goes() {
        let (inbox, woken) = inbox();
        for item in [1, 2, 3] {
            inbox.put(item);
        }
        inbox.put_instead(5, |old| old % 2 == 1);
        assert_eq!(inbox.take_all(), [2, 5]);
        assert_eq!(woken.load(Ordering::Relaxed), 1);
    }
}
