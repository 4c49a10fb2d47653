//! The protocol of the shared pool in all orders of its steps that differ, with at most three
//! threads that are interrupted at most three times.

#[path = "../src/shared_pool/deferral.rs"]
mod deferral;
#[path = "../src/shared_pool/protocol.rs"]
#[allow(dead_code, reason = "not all of it has an order worth going through")]
mod protocol;

/// What the protocol is made of here.
mod sync {
    use std::collections::VecDeque;

    pub(super) use loom::sync::atomic::{AtomicU32, Ordering, fence};
    pub(super) use loom::sync::{Arc, Mutex, MutexGuard};

    pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().expect("nobody panics")
    }

    pub(super) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
        mutex.try_lock().ok()
    }

    #[derive(Debug)]
    pub(super) struct SubmissionQueue<T> {
        items: Mutex<VecDeque<T>>,
        capacity: usize,
        steps: AtomicU32,
    }

    impl<T> SubmissionQueue<T> {
        pub(super) fn new(capacity: usize) -> SubmissionQueue<T> {
            SubmissionQueue {
                items: Mutex::new(VecDeque::new()),
                capacity,
                steps: AtomicU32::new(0),
            }
        }

        /// A step between the last look at the queue and the unlocking of the state, before which
        /// and after which others submit: loom lets no other thread in at the release of a lock.
        pub(super) fn step(&self) {
            self.steps.fetch_add(1, Ordering::SeqCst);
        }

        pub(super) fn push(&self, item: T) -> Result<(), T> {
            let mut items = lock(&self.items);
            if items.len() == self.capacity {
                return Err(item);
            }
            items.push_back(item);
            drop(items);
            self.step();
            Ok(())
        }

        pub(super) fn pop(&self) -> Option<T> {
            lock(&self.items).pop_front()
        }

        pub(super) fn is_empty(&self) -> bool {
            lock(&self.items).is_empty()
        }
    }
}

use loom::sync::{Arc, Condvar, Mutex};
use loom::thread::{self, Thread};

use deferral::Deferral;
use protocol::{CallFollower, CallPhase, Combiner, Leadership};
use sync::{SubmissionQueue, lock};

fn model(check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(check);
}

fn count(total: &mut u32, queue: &SubmissionQueue<u32>) {
    while let Some(item) = queue.pop() {
        *total += item;
    }
    queue.step();
}

/// Two others and this thread submit; nothing is left when all have returned.
fn no_submission_is_left(capacity: usize) {
    model(move || {
        let combiner = Arc::new(Combiner::new(0, capacity));
        let others = [1, 2].map(|item| {
            let combiner = Arc::clone(&combiner);
            thread::spawn(move || combiner.submit(item, count))
        });
        combiner.submit(4, count);
        for other in others {
            other.join().expect("no panic");
        }
        assert_eq!(combiner.with(|total, _| *total, count), 7);
    });
}

/// Who submits while another thread combines goes on, and the other one looks again.
#[test]
fn no_submission_is_left_behind_by_who_waited_for_the_lock() {
    model(|| {
        let combiner = Arc::new(Combiner::new(0, 4));
        let other = {
            let combiner = Arc::clone(&combiner);
            thread::spawn(move || combiner.submit(1, count))
        };
        let before = combiner.with(
            |total, queue| {
                queue.step();
                *total
            },
            count,
        );
        assert!(before <= 1);
        other.join().expect("no panic");
        assert_eq!(combiner.with(|total, _| *total, count), 1);
    });
}

#[test]
fn no_submission_is_left_behind() {
    no_submission_is_left(4);
}

#[test]
fn no_submission_is_left_behind_by_a_full_queue() {
    no_submission_is_left(1);
}

/// What wakes the leader in the kernel: also one that waits only afterwards. (An `unpark` of loom
/// is lost by a thread that waits for a lock.)
#[derive(Default)]
struct LeaderWaker {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl LeaderWaker {
    fn wake(&self) {
        *lock(&self.is_set) = true;
        self.changed.notify_one();
    }

    fn wait(&self) {
        let mut is_set = lock(&self.is_set);
        while !std::mem::take(&mut *is_set) {
            is_set = self.changed.wait(is_set).expect("nobody panics");
        }
    }
}

/// Waits as the leader does, but for ever where it waits for long, until so much was taken.
fn lead(combiner: &Combiner<u32, u32>, deferral: &Deferral, waker: &LeaderWaker, expected: u32) {
    // A wait that is not long is over by time.
    while combiner.with(|total, _| *total, count) < expected {
        if deferral.begin_waiting() {
            waker.wait();
        }
        deferral.end_waiting();
        combiner.with(count, count);
    }
}

/// Whoever leaves something finds the leader, and wakes it if it waits for long.
fn nothing_that_was_left_stays(callers: u32, each: u32) {
    model(move || {
        let combiner = Arc::new(Combiner::new(0, 4));
        let deferral = Arc::new(Deferral::new());
        let waker = Arc::new(LeaderWaker::default());
        for _ in 0..callers {
            let (combiner, deferral) = (Arc::clone(&combiner), Arc::clone(&deferral));
            let waker = Arc::clone(&waker);
            thread::spawn(move || {
                for _ in 0..each {
                    combiner.leave(1).expect("there is room");
                    if deferral.leave() {
                        waker.wake();
                    }
                }
            });
        }
        lead(&combiner, &deferral, &waker, callers * each);
    });
}

#[test]
fn nothing_that_one_caller_left_stays() {
    nothing_that_was_left_stays(1, 2);
}

#[test]
fn nothing_that_two_callers_left_stays() {
    nothing_that_was_left_stays(2, 1);
}

struct Caller {
    phase: CallPhase,
    thread: Thread,
}

impl CallFollower for Caller {
    fn phase(&self) -> &CallPhase {
        &self.phase
    }

    fn unpark(&self) {
        self.thread.unpark();
    }
}

fn caller() -> Arc<Caller> {
    Arc::new(Caller {
        phase: CallPhase::new(),
        thread: thread::current(),
    })
}

fn park() -> bool {
    thread::park();
    true
}

/// Waits for a call as the pool does; whoever polls finishes its own call.
fn wait(leadership: &Leadership<Caller>, own: &Arc<Caller>) {
    while !own.phase.is_done() {
        if leadership.acquire_or_park(own, park) {
            if !own.phase.begin_polling() {
                own.phase.finish();
            }
            leadership.release();
        }
    }
}

#[test]
fn the_leadership_goes_from_caller_to_caller_and_is_free_in_the_end() {
    model(|| {
        let leadership = Arc::new(Leadership::new());
        let other = {
            let leadership = Arc::clone(&leadership);
            thread::spawn(move || wait(&leadership, &caller()))
        };
        wait(&leadership, &caller());
        other.join().expect("no panic");
        assert!(leadership.try_acquire());
    });
}

#[test]
fn a_call_that_ended_while_it_waited_is_not_promoted_when_it_is_used_again() {
    model(|| {
        let leadership = Arc::new(Leadership::new());
        assert!(leadership.try_acquire());
        let own = caller();
        let finishing = {
            let own = Arc::clone(&own);
            thread::spawn(move || {
                own.phase.finish();
                own.thread.unpark();
            })
        };
        assert!(!leadership.acquire_or_park(&own, park));
        finishing.join().expect("no panic");
        own.phase.reset();
        assert!(!leadership.release(), "nobody waits");
        assert!(leadership.try_acquire());
    });
}

/// As one does that looks from time to time whether it is to be given up.
#[test]
fn a_caller_that_leads_for_a_while_only_gives_the_leadership_back_each_time() {
    model(|| {
        let leadership = Arc::new(Leadership::new());
        let own = caller();
        let other = {
            let leadership = Arc::clone(&leadership);
            thread::spawn(move || wait(&leadership, &caller()))
        };
        for _ in 0..2 {
            let mut parks = 1;
            let parked = leadership.acquire_or_park(&own, || {
                parks -= 1;
                parks > 0
            });
            if parked {
                assert!(!own.phase.begin_polling(), "nobody finishes it");
                own.phase.end_polling();
                leadership.release();
            }
        }
        other.join().expect("no panic");
        assert!(leadership.try_acquire());
    });
}

#[test]
fn a_call_that_others_finish_while_it_is_promoted_passes_the_leadership_on() {
    model(|| {
        let leadership = Arc::new(Leadership::new());
        assert!(leadership.try_acquire());
        let own = caller();
        let finishing = {
            let own = Arc::clone(&own);
            thread::spawn(move || {
                own.phase.finish();
                own.thread.unpark();
            })
        };
        let leaving = {
            let leadership = Arc::clone(&leadership);
            thread::spawn(move || {
                leadership.release();
            })
        };
        while !own.phase.is_done() {
            if leadership.acquire_or_park(&own, park) {
                // The other finishes it, as one does who writes for all.
                while !own.phase.is_done() {
                    thread::yield_now();
                }
                leadership.release();
            }
        }
        finishing.join().expect("no panic");
        leaving.join().expect("no panic");
        assert!(leadership.try_acquire());
    });
}
