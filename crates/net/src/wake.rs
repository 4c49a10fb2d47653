//! Waking a loop that may be asleep in the kernel.

use std::io;
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::handler::Waker;

const RUNNING: u8 = 0;
const WOKEN: u8 = 1;
const ASLEEP: u8 = 2;

/// The eventfd of one loop, and whether the loop sleeps. Only a loop that is asleep costs the
/// caller of `wake` a system call; further callers find it woken.
#[derive(Debug)]
pub(crate) struct EventfdWaker {
    state: AtomicU8,
    event: OwnedFd,
}

impl EventfdWaker {
    pub(crate) fn new() -> io::Result<EventfdWaker> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(EventfdWaker {
            state: AtomicU8::new(RUNNING),
            event,
        })
    }

    /// The loop is about to wait. False: it was woken meanwhile and must not.
    pub(crate) fn may_sleep(&self) -> bool {
        self.state
            .compare_exchange(RUNNING, ASLEEP, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// The loop is awake. True: somebody woke it since the last call; what they left for the loop
    /// before is visible to it now.
    pub(crate) fn awake(&self) -> bool {
        // A loop that is busy, and that nobody woke, need not write.
        self.state.load(Ordering::Acquire) != RUNNING
            && self.state.swap(RUNNING, Ordering::AcqRel) == WOKEN
    }

    /// Clears the event that woke a loop. For a thread that polls the level of the eventfd; epoll
    /// reports each write once by itself.
    pub(crate) fn quieten(&self) {
        // Fails if there was no event, which is as well.
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
    }
}

impl Waker for EventfdWaker {
    fn wake(&self) {
        if self.state.swap(WOKEN, Ordering::AcqRel) == ASLEEP {
            // Cannot fail before 2^64 - 1 wakes.
            let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
        }
    }
}

impl AsFd for EventfdWaker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wakes_fall_together_and_none_is_lost() {
        let waker = EventfdWaker::new().expect("eventfd");
        waker.wake();
        waker.wake();
        assert!(!waker.may_sleep(), "woken while running");
        assert!(waker.awake());
        assert!(!waker.awake(), "two wakes before were one");
        assert!(waker.may_sleep());
        waker.wake();
        let mut count = [0; 8];
        rustix::io::read(&waker.event, &mut count).expect("one write");
        assert_eq!(
            u64::from_ne_bytes(count),
            1,
            "only a sleeping loop costs a write"
        );
        assert!(waker.awake());
    }
}
