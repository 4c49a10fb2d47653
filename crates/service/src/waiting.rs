//! Counts the calls that wait for something that may never come, so that there is a bound on them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::limits::WAITING_CALLS_MAX;
use crate::status::Status;

/// The places for waiting calls of one server, shared by all its loops.
#[derive(Debug)]
pub struct WaitingCalls {
    taken: Arc<AtomicUsize>,
    max: usize,
}

/// The place of one waiting call; free again when dropped.
#[derive(Debug)]
pub struct WaitingPlace {
    taken: Arc<AtomicUsize>,
}

impl WaitingCalls {
    /// At most `max` calls wait at a time.
    pub fn new(max: usize) -> WaitingCalls {
        WaitingCalls {
            taken: Arc::new(AtomicUsize::new(0)),
            max,
        }
    }

    /// A place for one more call, or the status that ends the call because there is none.
    pub fn enter(&self) -> Result<WaitingPlace, Status> {
        // Relaxed: the number guards nothing but itself.
        let entered = self
            .taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
                (taken < self.max).then_some(taken + 1)
            });
        match entered {
            Ok(_) => Ok(WaitingPlace {
                taken: Arc::clone(&self.taken),
            }),
            Err(_) => Err(Status::resource_exhausted(format!(
                "{} calls wait on this server already, its limit of waiting calls; try again later",
                self.max
            ))),
        }
    }

    /// How many calls wait now.
    pub fn count(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }
}

impl Default for WaitingCalls {
    fn default() -> WaitingCalls {
        WaitingCalls::new(WAITING_CALLS_MAX)
    }
}

impl Drop for WaitingPlace {
    fn drop(&mut self) {
        let before = self.taken.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "a place is left only by who entered it");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::Code;

    #[test]
    fn places_are_limited_and_given_back() {
        let waiting = WaitingCalls::new(2);
        let first = waiting.enter().expect("there is room for two");
        let _second = waiting.enter().expect("there is room for two");
        let status = waiting.enter().expect_err("both places are taken");
        assert_eq!(status.code, Code::ResourceExhausted);
        assert!(status.message.contains("2 calls"), "{}", status.message);
        assert_eq!(waiting.count(), 2);
        drop(first);
        assert_eq!(waiting.count(), 1);
        waiting.enter().expect("one place was given back");
    }
}
