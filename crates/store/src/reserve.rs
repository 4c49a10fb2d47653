//! How far commit sequences may run ahead of the log.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::outcome::Refusal;

/// The bound on commit sequences: so far past what is durable in the log that a restart, which
/// begins beyond it, can give none out for the second time.
pub(crate) struct Reserve {
    /// The highest sequence that may be given out.
    limit: AtomicU64,
    /// From this one on the limit should be raised.
    due: AtomicU64,
    failed: AtomicBool,
    /// Asks for the limit to be raised.
    ask: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Reserve {
    /// Of a store without a log.
    pub(crate) fn unbounded() -> Reserve {
        Reserve {
            limit: AtomicU64::new(u64::MAX),
            due: AtomicU64::new(u64::MAX),
            failed: AtomicBool::new(false),
            ask: OnceLock::new(),
        }
    }

    /// Whether a sequence may be given out.
    #[inline]
    pub(crate) fn admits(&self, sequence: u64) -> bool {
        if sequence >= self.due.load(Ordering::Relaxed) {
            return self.admits_late(sequence);
        }
        true
    }

    #[cold]
    fn admits_late(&self, sequence: u64) -> bool {
        if let Some(ask) = self.ask.get() {
            ask();
        }
        sequence <= self.limit.load(Ordering::Relaxed)
    }

    /// Sets the bound: sequences up to `limit`, and at `due` it is time to raise it.
    pub(crate) fn set(&self, due: u64, limit: u64) {
        debug_assert!(due <= limit);
        self.limit.store(limit, Ordering::Relaxed);
        self.due.store(due, Ordering::Relaxed);
    }

    /// From which sequence on the bound should be raised.
    pub(crate) fn due(&self) -> u64 {
        self.due.load(Ordering::Relaxed)
    }

    /// The bound will not be raised any more.
    pub(crate) fn fail(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    /// Why a sequence was not admitted.
    pub(crate) fn refusal(&self) -> Refusal {
        if self.failed.load(Ordering::Relaxed) {
            Refusal::LogFailed
        } else if self.limit.load(Ordering::Relaxed) == 0 {
            Refusal::Replica
        } else {
            Refusal::LogBehind
        }
    }

    /// Says who is to be asked to raise the bound. Only the first call counts.
    pub(crate) fn on_due(&self, ask: Box<dyn Fn() + Send + Sync>) {
        let _ = self.ask.set(ask);
    }
}

impl fmt::Debug for Reserve {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Reserve")
            .field("limit", &self.limit)
            .field("due", &self.due)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}
