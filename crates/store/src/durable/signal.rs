//! The wake-up of the committer's thread.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::Duration;

/// Wakes the committer's thread; costs next to nothing while it is awake.
///
/// Each side first says what it does and then looks what the other one does, in one order for all
/// (SeqCst). So it cannot be that the thread sleeps and somebody who has brought work believes it
/// awake.
#[derive(Debug, Default)]
pub(super) struct Signal {
    has_work: AtomicBool,
    is_asleep: AtomicBool,
    thread: OnceLock<Thread>,
}

impl Signal {
    /// Says that there is work.
    pub(super) fn wake(&self) {
        self.has_work.store(true, Ordering::SeqCst);
        if self.is_asleep.load(Ordering::SeqCst) && self.is_asleep.swap(false, Ordering::SeqCst) {
            // Without a thread nobody sleeps.
            if let Some(thread) = self.thread.get() {
                thread.unpark();
            }
        }
    }

    /// Whether there is work.
    pub(super) fn has_work(&self) -> bool {
        self.has_work.load(Ordering::Relaxed)
    }

    /// Whether there is work; forgets it.
    pub(super) fn take_work(&self) -> bool {
        self.has_work.load(Ordering::Relaxed) && self.has_work.swap(false, Ordering::SeqCst)
    }

    /// Names the thread to wake.
    pub(super) fn set_thread(&self, thread: Thread) {
        let _ = self.thread.set(thread);
    }

    /// Sleeps until there is work, or for the time given; may return early. Only for the thread
    /// that is named.
    pub(super) fn sleep(&self, longest: Option<Duration>) {
        self.is_asleep.store(true, Ordering::SeqCst);
        if !self.has_work.load(Ordering::SeqCst) {
            match longest {
                Some(longest) => std::thread::park_timeout(longest),
                None => std::thread::park(),
            }
        }
        self.is_asleep.store(false, Ordering::SeqCst);
    }
}
