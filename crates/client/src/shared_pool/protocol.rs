//! Who works for whom: the token of those who write, and the seat of the one who waits in the
//! kernel.
//!
//! Stands by itself, so that `tests/shared_pool_loom.rs` can go through all its orders of steps.

use std::collections::VecDeque;

use super::sync::{Arc, AtomicU32, Mutex, MutexGuard, Ordering, SubmissionQueue, fence, lock};

/// State that one thread at a time works on, for all that submitted something.
#[derive(Debug)]
pub(super) struct Combiner<D, T> {
    /// Who has locked it has the token.
    token: Mutex<D>,
    submissions: SubmissionQueue<T>,
}

impl<D, T> Combiner<D, T> {
    pub(super) fn new(state: D, capacity: usize) -> Combiner<D, T> {
        Combiner {
            token: Mutex::new(state),
            submissions: SubmissionQueue::new(capacity),
        }
    }

    /// Submits something, and works for all if nobody else does. When this returns, the submission
    /// has been taken, or who has the token will look for it after having released it.
    pub(super) fn submit(&self, mut item: T, mut work: impl FnMut(&mut D, &SubmissionQueue<T>)) {
        while let Err(returned) = self.submissions.push(item) {
            // Full: work until there is room.
            item = returned;
            work(&mut lock(&self.token), &self.submissions);
        }
        self.serve(work);
    }

    /// Works until no submission is left, unless somebody else has the token.
    pub(super) fn serve(&self, mut work: impl FnMut(&mut D, &SubmissionQueue<T>)) {
        loop {
            // Either the other thread's look below finds what was submitted here, or the token is
            // seen free here.
            fence(Ordering::SeqCst);
            let Ok(mut state) = self.token.try_lock() else {
                return;
            };
            work(&mut state, &self.submissions);
            drop(state);
            fence(Ordering::SeqCst);
            if self.submissions.is_empty() {
                return;
            }
        }
    }

    /// After [`Combiner::acquire`] was over: whether [`Combiner::serve`] has something to do.
    pub(super) fn has_submissions(&self) -> bool {
        fence(Ordering::SeqCst);
        !self.submissions.is_empty()
    }

    /// Waits for the token. Who has had it looks at [`Combiner::has_submissions`] afterwards.
    pub(super) fn acquire(&self) -> (MutexGuard<'_, D>, &SubmissionQueue<T>) {
        (lock(&self.token), &self.submissions)
    }
}

/// Bits of a [`CallPhase`].
const DONE: u32 = 1;
const SEATED: u32 = 2;
const POLLING: u32 = 4;

/// How far a call with a thread that waits for it has come.
#[derive(Debug)]
pub(super) struct CallPhase(AtomicU32);

impl CallPhase {
    pub(super) fn new() -> CallPhase {
        CallPhase(AtomicU32::new(0))
    }

    pub(super) fn reset(&self) {
        self.0.store(0, Ordering::Release);
    }

    pub(super) fn is_done(&self) -> bool {
        self.0.load(Ordering::Acquire) & DONE != 0
    }

    /// Its thread was given the seat.
    fn is_seated(&self) -> bool {
        self.0.load(Ordering::Acquire) & SEATED != 0
    }

    /// Gives its thread the seat, unless the call is done.
    fn seat(&self) -> bool {
        self.0
            .compare_exchange(0, SEATED, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// The result is there. Returns whether its thread is the one that waits in the kernel.
    pub(super) fn finish(&self) -> bool {
        self.0.fetch_or(DONE, Ordering::AcqRel) & POLLING != 0
    }

    /// Its thread is about to wait in the kernel. Returns whether the result is there already.
    pub(super) fn begin_polling(&self) -> bool {
        self.0.fetch_or(POLLING, Ordering::AcqRel) & DONE != 0
    }
}

/// What waits for the seat.
pub(super) trait Sitter {
    fn phase(&self) -> &CallPhase;
    /// Wakes the thread that waits.
    fn unpark(&self);
}

/// The right to wait in the kernel for all: one thread has it at a time.
#[derive(Debug)]
pub(super) struct Seat<S>(Mutex<SeatState<S>>);

#[derive(Debug)]
struct SeatState<S> {
    is_taken: bool,
    parked: VecDeque<Arc<S>>,
}

impl<S: Sitter> Seat<S> {
    pub(super) fn new() -> Seat<S> {
        Seat(Mutex::new(SeatState {
            is_taken: false,
            parked: VecDeque::new(),
        }))
    }

    /// Takes the seat if it is free.
    pub(super) fn try_take(&self) -> bool {
        !std::mem::replace(&mut lock(&self.0).is_taken, true)
    }

    /// Returns once the call is done, which is `false`, or its thread has the seat. `park` waits
    /// until the thread is unparked.
    pub(super) fn take_or_park(&self, sitter: &Arc<S>, mut park: impl FnMut()) -> bool {
        {
            let mut state = lock(&self.0);
            if sitter.phase().is_done() {
                return false;
            }
            if !state.is_taken {
                state.is_taken = true;
                return true;
            }
            state.parked.push_back(Arc::clone(sitter));
        }
        loop {
            if sitter.phase().is_seated() {
                return true;
            }
            if sitter.phase().is_done() {
                break;
            }
            park();
        }
        let mut state = lock(&self.0);
        let place = state.parked.iter().position(|it| Arc::ptr_eq(it, sitter));
        if let Some(place) = place {
            state.parked.remove(place);
        }
        sitter.phase().is_seated()
    }

    /// Gives the seat to a thread that waits for its call, or leaves it. Returns whether somebody
    /// has it now.
    pub(super) fn leave(&self) -> bool {
        let mut state = lock(&self.0);
        while let Some(next) = state.parked.pop_front() {
            // What is done goes without the seat.
            if next.phase().seat() {
                drop(state);
                next.unpark();
                return true;
            }
        }
        state.is_taken = false;
        false
    }
}
