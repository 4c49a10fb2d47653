//! A fair semaphore: so many threads may compute at once, and the others wait in the order in which
//! they came.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};

/// How many threads may compute at once.
#[derive(Debug)]
pub(crate) struct Permits {
    state: Mutex<PermitState>,
}

#[derive(Debug)]
struct PermitState {
    /// While there is one, nobody waits.
    free: usize,
    /// In the order of arrival.
    waiting: VecDeque<Arc<PermitWaiter>>,
}

/// A thread that may wait for a permit.
#[derive(Debug)]
pub(crate) struct PermitWaiter {
    thread: Thread,
    is_granted: AtomicBool,
}

impl PermitWaiter {
    /// Returns the waiter of the calling thread.
    pub(crate) fn of_this_thread() -> Arc<PermitWaiter> {
        Arc::new(PermitWaiter {
            thread: thread::current(),
            is_granted: AtomicBool::new(false),
        })
    }
}

/// The right to compute, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Permit<'a> {
    permits: &'a Permits,
    has_waited: bool,
}

impl Permits {
    pub(crate) fn new(count: usize) -> Permits {
        Permits {
            state: Mutex::new(PermitState {
                free: count,
                waiting: VecDeque::new(),
            }),
        }
    }

    /// Waits for a permit. `waiter` is that of the calling thread.
    pub(crate) fn acquire(&self, waiter: &Arc<PermitWaiter>) -> Permit<'_> {
        let mut state = self.lock();
        let has_waited = state.free == 0;
        if has_waited {
            waiter.is_granted.store(false, Ordering::Relaxed);
            state.waiting.push_back(Arc::clone(waiter));
            drop(state);
            while !waiter.is_granted.load(Ordering::Acquire) {
                thread::park();
            }
        } else {
            state.free -= 1;
        }
        Permit {
            permits: self,
            has_waited,
        }
    }

    /// Passes a permit on to the thread that has waited longest.
    fn release(&self) {
        let mut state = self.lock();
        match state.waiting.pop_front() {
            None => state.free += 1,
            Some(next) => {
                drop(state);
                next.is_granted.store(true, Ordering::Release);
                next.thread.unpark();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, PermitState> {
        // Nothing under this lock can panic half-way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.lock().waiting.len()
    }
}

impl Permit<'_> {
    /// Whether the thread had to wait for it.
    pub(crate) fn has_waited(&self) -> bool {
        self.has_waited
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.permits.release();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::mpsc;

    use super::*;

    fn wait_until_waiting(permits: &Permits, count: usize) {
        while permits.waiting() < count {
            thread::yield_now();
        }
    }

    #[test]
    fn a_permit_goes_to_the_thread_that_has_waited_longest() {
        let permits = Permits::new(1);
        for _ in 0..2 {
            let held = permits.acquire(&PermitWaiter::of_this_thread());
            assert!(!held.has_waited);
            let (sender, order) = mpsc::channel();
            thread::scope(|scope| {
                for number in 0..5 {
                    let (permits, sender) = (&permits, sender.clone());
                    scope.spawn(move || {
                        let permit = permits.acquire(&PermitWaiter::of_this_thread());
                        assert!(permit.has_waited);
                        sender.send(number).expect("somebody listens");
                    });
                    wait_until_waiting(permits, number + 1);
                }
                drop(held);
            });
            assert_eq!(order.try_iter().collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        }
    }

    #[test]
    fn no_more_threads_compute_than_there_are_permits() {
        let permits = Permits::new(3);
        let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| {
                    let waiter = PermitWaiter::of_this_thread();
                    for _ in 0..200 {
                        let _permit = permits.acquire(&waiter);
                        let now = running.fetch_add(1, Ordering::SeqCst) + 1;
                        most.fetch_max(now, Ordering::SeqCst);
                        thread::yield_now();
                        running.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert!(most.into_inner() <= 3);
        let waiter = PermitWaiter::of_this_thread();
        let all: Vec<_> = (0..3).map(|_| permits.acquire(&waiter)).collect();
        assert!(all.iter().all(|permit| !permit.has_waited), "all came back");
    }

    #[test]
    fn a_thread_that_panics_gives_its_permit_back() {
        let permits = Permits::new(1);
        let panicked = thread::scope(|scope| {
            let panics = scope.spawn(|| {
                let _permit = permits.acquire(&PermitWaiter::of_this_thread());
                panic!("asked to");
            });
            panics.join().is_err()
        });
        assert!(panicked);
        assert!(!permits.acquire(&PermitWaiter::of_this_thread()).has_waited);
    }
}
