//! When calls of futures are written that begin while others are in flight.
//!
//! Such a call is only left in the queue, for the leader. While calls are left, the leader waits in
//! the kernel for a moment at most, and then writes what was left together. Nobody is woken for
//! that, so that an executor goes on through its tasks; only a leader that waits for long is.
//!
//! Stands by itself, so that `tests/shared_pool_loom.rs` can go through all its orders of steps.

use super::sync::{AtomicBool, Ordering};

/// What was left, and whether the leader knows.
#[derive(Debug)]
pub(super) struct Deferral {
    /// A call was left since the leader began to wait for the last time.
    was_left: AtomicBool,
    /// The leader waits, and for long.
    waits_long: AtomicBool,
}

impl Deferral {
    pub(super) fn new() -> Deferral {
        Deferral {
            was_left: AtomicBool::new(false),
            waits_long: AtomicBool::new(false),
        }
    }

    /// A call was left in the queue. Returns whether the leader has to be woken for it.
    pub(super) fn leave(&self) -> bool {
        // Either the leader sees this, or this sees that the leader waits.
        self.was_left.store(true, Ordering::SeqCst);
        self.waits_long.load(Ordering::SeqCst) && self.waits_long.swap(false, Ordering::SeqCst)
    }

    /// The leader is about to wait. Returns whether it may do so for long.
    pub(super) fn begin_waiting(&self) -> bool {
        self.waits_long.store(true, Ordering::SeqCst);
        let may_wait = !self.was_left.swap(false, Ordering::SeqCst);
        if !may_wait {
            self.waits_long.store(false, Ordering::SeqCst);
        }
        may_wait
    }

    /// The leader has waited, and is about to take what was left.
    pub(super) fn end_waiting(&self) {
        self.waits_long.store(false, Ordering::SeqCst);
    }
}
