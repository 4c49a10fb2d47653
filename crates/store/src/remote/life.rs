//! Until when a request is wanted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Until when a request is wanted: until its deadline, or until its call ends.
#[derive(Clone, Debug)]
pub(super) struct RequestLife {
    deadline: Instant,
    is_abandoned: AbandonFlag,
}

/// Shows requests under way that their call has ended.
#[derive(Clone, Debug, Default)]
pub(super) struct AbandonFlag(Arc<AtomicBool>);

impl AbandonFlag {
    /// The call has ended.
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl RequestLife {
    /// That of a request which begins now.
    pub(super) fn new(timeout: Duration, is_abandoned: AbandonFlag) -> RequestLife {
        let now = Instant::now();
        // A time-out beyond what a clock can show is none.
        let deadline = now.checked_add(timeout).unwrap_or(now + LONGEST);
        RequestLife {
            deadline,
            is_abandoned,
        }
    }

    /// Returns the time that is left.
    pub(super) fn left(&self, now: Instant) -> Duration {
        self.deadline.saturating_duration_since(now)
    }

    /// Whether the call has ended.
    pub(super) fn is_abandoned(&self) -> bool {
        self.is_abandoned.0.load(Ordering::Relaxed)
    }

    /// Whether nobody waits any more.
    pub(super) fn is_over(&self) -> bool {
        self.is_abandoned() || Instant::now() >= self.deadline
    }
}

/// Longer than any request.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
