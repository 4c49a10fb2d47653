//! Waking a loop that may be asleep in the kernel.

use std::io;
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::handler::Waker;

const RUNNING: u8 = 0;
const WOKEN: u8 = 1;
const ASLEEP: u8 = 2;

/// One loop's alarm clock. Only a loop that is asleep costs its waker a system call; further wakers
/// find it woken.
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

    /// Forgets the ring that woke a loop. For who waits on the alarm's level; epoll reports each
    /// ring once by itself.
    pub(crate) fn quieten(&self) {
        // Fails if nothing rang, which is as well.
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
        let alarm = EventfdWaker::new().expect("eventfd");
        alarm.wake();
        alarm.wake();
        assert!(!alarm.may_sleep(), "woken while running");
        assert!(alarm.awake());
        assert!(!alarm.awake(), "two wakes before were one");
        assert!(alarm.may_sleep());
        alarm.wake();
        let mut count = [0; 8];
        rustix::io::read(&alarm.event, &mut count).expect("one write");
        assert_eq!(
            u64::from_ne_bytes(count),
            1,
            "only a sleeping loop costs a write"
        );
        assert!(alarm.awake());
    }
}
