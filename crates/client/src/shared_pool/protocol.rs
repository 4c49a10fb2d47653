//! Which thread works for which others.
//!
//! Who writes is decided by flat combining (Hendler, Incze, Shavit and Tzafrir, 2010): the thread
//! that has locked the [`Combiner`] does what all others have submitted. Who waits in the kernel is
//! decided as in the pattern leader/followers (Schmidt and others, 2000): one thread at a time has
//! the [`Leadership`], the others are parked.
//!
//! Stands by itself, so that `tests/shared_pool_loom.rs` can go through all its orders of steps.

use std::collections::VecDeque;

use super::sync::{Arc, AtomicU32, Mutex, Ordering, SubmissionQueue, fence, lock, try_lock};

/// State that one thread at a time works on, for all that submitted something.
#[derive(Debug)]
pub(super) struct Combiner<D, T> {
    /// The thread that has locked it combines.
    state: Mutex<D>,
    submissions: SubmissionQueue<T>,
}

impl<D, T> Combiner<D, T> {
    pub(super) fn new(state: D, capacity: usize) -> Combiner<D, T> {
        Combiner {
            state: Mutex::new(state),
            submissions: SubmissionQueue::new(capacity),
        }
    }

    /// Submits something, and works for all if nobody else does. When this returns, the submission
    /// has been taken, or the combining thread will look for it after having unlocked the state.
    pub(super) fn submit(&self, mut item: T, mut work: impl FnMut(&mut D, &SubmissionQueue<T>)) {
        while let Err(returned) = self.submissions.push(item) {
            // Full: work until there is room.
            item = returned;
            work(&mut lock(&self.state), &self.submissions);
        }
        self.serve(work);
    }

    /// Submits something that whoever works next takes along; who submits must see to it that
    /// somebody does. Returns it if there is no room.
    pub(super) fn leave(&self, item: T) -> Result<(), T> {
        self.submissions.push(item)
    }

    /// Works until no submission is left, unless another thread combines.
    pub(super) fn serve(&self, mut work: impl FnMut(&mut D, &SubmissionQueue<T>)) {
        loop {
            // Either the other thread's look below finds what was submitted here, or the state is
            // seen unlocked here.
            fence(Ordering::SeqCst);
            let Some(mut state) = try_lock(&self.state) else {
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

    /// Locks the state, runs `first` on it, and works for those who submitted something meanwhile:
    /// they rely on that.
    pub(super) fn with<R>(
        &self,
        first: impl FnOnce(&mut D, &SubmissionQueue<T>) -> R,
        work: impl FnMut(&mut D, &SubmissionQueue<T>),
    ) -> R {
        let result = first(&mut lock(&self.state), &self.submissions);
        fence(Ordering::SeqCst);
        if !self.submissions.is_empty() {
            self.serve(work);
        }
        result
    }
}

/// Bits of a [`CallPhase`].
const DONE: u32 = 1;
const PROMOTED: u32 = 2;
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

    /// Returns whether its thread was made the leader.
    fn is_promoted(&self) -> bool {
        self.0.load(Ordering::Acquire) & PROMOTED != 0
    }

    /// Makes its thread the leader, unless the call is done.
    fn promote(&self) -> bool {
        self.0
            .compare_exchange(0, PROMOTED, Ordering::AcqRel, Ordering::Acquire)
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

    /// Its thread, which leads, is about to give the leadership up, with or without the result.
    pub(super) fn end_polling(&self) {
        self.0.fetch_and(DONE, Ordering::AcqRel);
    }
}

/// A call whose thread is parked while another one leads.
pub(super) trait CallFollower {
    fn phase(&self) -> &CallPhase;
    /// Wakes the thread that waits.
    fn unpark(&self);
}

/// The right to wait in the kernel for all: one thread, the leader, has it at a time.
#[derive(Debug)]
pub(super) struct Leadership<S: ?Sized>(Mutex<LeadershipState<S>>);

#[derive(Debug)]
struct LeadershipState<S: ?Sized> {
    is_held: bool,
    parked: VecDeque<Arc<S>>,
}

impl<S: CallFollower + ?Sized> Leadership<S> {
    pub(super) fn new() -> Leadership<S> {
        Leadership(Mutex::new(LeadershipState {
            is_held: false,
            parked: VecDeque::new(),
        }))
    }

    /// Becomes the leader if there is none.
    pub(super) fn try_acquire(&self) -> bool {
        !std::mem::replace(&mut lock(&self.0).is_held, true)
    }

    /// Returns `true` once its thread leads, and `false` once the call is done or `park` has given
    /// up. `park` waits until the thread is unparked, and returns whether to go on waiting.
    pub(super) fn acquire_or_park(
        &self,
        follower: &Arc<S>,
        mut park: impl FnMut() -> bool,
    ) -> bool {
        {
            let mut state = lock(&self.0);
            if follower.phase().is_done() {
                return false;
            }
            if !state.is_held {
                state.is_held = true;
                return true;
            }
            state.parked.push_back(Arc::clone(follower));
        }
        loop {
            if follower.phase().is_promoted() {
                return true;
            }
            if follower.phase().is_done() || !park() {
                break;
            }
        }
        let mut state = lock(&self.0);
        let is_own = |it: &Arc<S>| std::ptr::eq(it.phase(), follower.phase());
        let place = state.parked.iter().position(is_own);
        if let Some(place) = place {
            state.parked.remove(place);
        }
        follower.phase().is_promoted()
    }

    /// Makes a parked thread the leader; there is none if nobody waits. Returns whether there is a
    /// leader now.
    pub(super) fn release(&self) -> bool {
        let mut state = lock(&self.0);
        while let Some(next) = state.parked.pop_front() {
            // A call that is done needs no leadership.
            if next.phase().promote() {
                drop(state);
                next.unpark();
                return true;
            }
        }
        state.is_held = false;
        false
    }
}
