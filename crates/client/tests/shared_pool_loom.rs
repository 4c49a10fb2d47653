//! The protocol of the shared pool in all orders of its steps that differ, with at most three
//! threads that are interrupted at most three times.

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

    #[derive(Debug)]
    pub(super) struct SubmissionQueue<T> {
        items: Mutex<VecDeque<T>>,
        capacity: usize,
    }

    impl<T> SubmissionQueue<T> {
        pub(super) fn new(capacity: usize) -> SubmissionQueue<T> {
            SubmissionQueue {
                items: Mutex::new(VecDeque::new()),
                capacity,
            }
        }

        pub(super) fn push(&self, item: T) -> Result<(), T> {
            let mut items = lock(&self.items);
            if items.len() == self.capacity {
                return Err(item);
            }
            items.push_back(item);
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

use loom::sync::Arc;
use loom::thread::{self, Thread};

use protocol::{CallPhase, Combiner, Seat, Sitter};
use sync::SubmissionQueue;

fn model(check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(check);
}

fn count(total: &mut u32, queue: &SubmissionQueue<u32>) {
    while let Some(item) = queue.pop() {
        *total += item;
    }
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
        assert_eq!(*combiner.acquire().0, 7);
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

struct Caller {
    phase: CallPhase,
    thread: Thread,
}

impl Sitter for Caller {
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

/// Waits for a call as the pool does; whoever polls finishes its own call.
fn wait(seat: &Seat<Caller>, own: &Arc<Caller>) {
    while !own.phase.is_done() {
        if seat.take_or_park(own, thread::park) {
            if !own.phase.begin_polling() {
                own.phase.finish();
            }
            seat.leave();
        }
    }
}

#[test]
fn the_seat_goes_from_caller_to_caller_and_is_free_in_the_end() {
    model(|| {
        let seat = Arc::new(Seat::new());
        let other = {
            let seat = Arc::clone(&seat);
            thread::spawn(move || wait(&seat, &caller()))
        };
        wait(&seat, &caller());
        other.join().expect("no panic");
        assert!(seat.try_take());
    });
}

#[test]
fn a_call_that_others_finish_while_it_is_given_the_seat_passes_it_on() {
    model(|| {
        let seat = Arc::new(Seat::new());
        assert!(seat.try_take());
        let own = caller();
        let finishing = {
            let own = Arc::clone(&own);
            thread::spawn(move || {
                own.phase.finish();
                own.thread.unpark();
            })
        };
        let leaving = {
            let seat = Arc::clone(&seat);
            thread::spawn(move || {
                seat.leave();
            })
        };
        while !own.phase.is_done() {
            if seat.take_or_park(&own, thread::park) {
                // The other finishes it, as one does who writes for all.
                while !own.phase.is_done() {
                    thread::yield_now();
                }
                seat.leave();
            }
        }
        finishing.join().expect("no panic");
        leaving.join().expect("no panic");
        assert!(seat.try_take());
    });
}
