//! When calls of futures are written that begin while others are in flight.
//!
//! Such a call is only left in the queue, for the leader. While calls are left, the leader waits in
//! the kernel for a moment at most, and then writes what was left together. Nobody is woken for
//! that, so that an executor goes on through its tasks; only a leader that waits for long is.
//!
//! Stands by itself, so that `tests/shared_pool_loom.rs` can go through all its orders of steps.

use super::sync::{AtomicU32, Ordering};

/// The leader is at work, and will wait.
const AT_WORK: u32 = 0;
/// A call was left, and the leader has not waited since.
const LEFT: u32 = 1;
/// The leader waits, and for long.
const WAITS_LONG: u32 = 2;

/// Whether a call was left, and what the leader does about it.
#[derive(Debug)]
pub(super) struct Deferral(AtomicU32);

impl Deferral {
    pub(super) fn new() -> Deferral {
        Deferral(AtomicU32::new(AT_WORK))
    }

    /// A call was left in the queue. Returns whether the leader has to be woken for it.
    pub(super) fn leave(&self) -> bool {
        // Also where it is set already: so the leader sees what was left before.
        self.0.swap(LEFT, Ordering::AcqRel) == WAITS_LONG
    }

    /// The leader is about to wait. Returns whether it may do so for long.
    pub(super) fn begin_waiting(&self) -> bool {
        let may_wait = self.exchange(AT_WORK, WAITS_LONG);
        if !may_wait {
            self.0.swap(AT_WORK, Ordering::AcqRel);
        }
        may_wait
    }

    /// The leader has waited, and is about to take what was left.
    pub(super) fn end_waiting(&self) {
        self.exchange(WAITS_LONG, AT_WORK);
    }

    fn exchange(&self, from: u32, to: u32) -> bool {
        let exchanged = self
            .0
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
        exchanged.is_ok()
    }
}
