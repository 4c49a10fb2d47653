//! When the log is synced, and how long that took.

use crate::durations::Durations;

/// The syncs that somebody has asked for, and the next one that is due by itself.
#[derive(Debug)]
pub(super) struct SyncPlan {
    /// When what is written must be synced although nobody waits for it; `u64::MAX`: nothing must.
    due_ns: u64,
    /// Somebody has asked for one.
    is_asked: bool,
    /// How long those took for which writes had to wait.
    durations: Durations,
}

impl SyncPlan {
    /// No sync is due.
    pub(super) fn new() -> SyncPlan {
        SyncPlan {
            due_ns: u64::MAX,
            is_asked: false,
            durations: Durations::default(),
        }
    }

    /// Asks for a sync of all that is written, be it needed or not.
    pub(super) fn ask(&mut self) {
        self.is_asked = true;
    }

    /// Something was written that must be synced within some milliseconds.
    pub(super) fn expect_within(&mut self, interval_ms: u64, now_ns: u64) {
        let due_ns = now_ns.saturating_add(interval_ms.saturating_mul(1_000_000));
        self.due_ns = self.due_ns.min(due_ns);
    }

    /// Returns whether a sync was asked for.
    pub(super) fn is_asked(&self) -> bool {
        self.is_asked
    }

    /// Returns when a sync is due although nobody waits for it; `u64::MAX`: none is.
    pub(super) fn due_ns(&self) -> u64 {
        self.due_ns
    }

    /// A sync begins: it does all that was asked for.
    pub(super) fn begin(&mut self) {
        self.due_ns = u64::MAX;
        self.is_asked = false;
    }

    /// Counts how long a sync took.
    pub(super) fn add_duration(&mut self, took_ns: u64) {
        self.durations.add(took_ns);
    }

    /// Returns how long the syncs took for which writes had to wait.
    pub(super) fn durations(&self) -> Durations {
        self.durations
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_interval_counts_until_a_sync_begins() {
        let mut plan = SyncPlan::new();
        for _ in 0..2 {
            assert_eq!(plan.due_ns(), u64::MAX);
            plan.expect_within(5, 1_000_000);
            plan.expect_within(2, 2_000_000);
            plan.expect_within(9, 3_000_000);
            assert_eq!(plan.due_ns(), 4_000_000);
            plan.begin();
        }
        plan.expect_within(u64::MAX, 7);
        assert_eq!(plan.due_ns(), u64::MAX);
    }

    #[test]
    fn what_was_asked_for_is_done_by_the_next_sync() {
        let mut plan = SyncPlan::new();
        for _ in 0..2 {
            assert!(!plan.is_asked());
            plan.ask();
            plan.ask();
            assert!(plan.is_asked());
            plan.begin();
        }
    }
}
