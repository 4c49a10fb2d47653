//! How large the next group should be, so that the loops work while the device syncs.

use crate::limits::WORK_NS_PER_OPERATION;

/// Callers who wait for their answers come back together: those of a group with the answers of that
/// group. If all of them are in one group, nobody has work while the device syncs, and the device
/// rests while they come back. In two group_sizing one is synced while the other comes back.
///
/// Where a sync takes longer than that, a second one for the other half would only cost more.
#[derive(Debug, Default)]
pub(super) struct GroupSizing {
    /// Operations of the group before.
    before: usize,
    /// When its answers went out.
    answered_ns: u64,
    /// How long they waited for the device; 0: they did not.
    sync_ns: u64,
}

impl GroupSizing {
    /// A group begins: how many operations of those that are gathered should go into it, at most.
    pub(super) fn begin(&mut self, gathered: usize, now_ns: u64) -> usize {
        let sync_ns = std::mem::take(&mut self.sync_ns);
        if sync_ns == 0 {
            return usize::MAX;
        }
        let since_ns = now_ns.saturating_sub(self.answered_ns);
        // Later they are among those that are gathered, or stay away.
        let away = if since_ns < sync_ns { self.before } else { 0 };
        let all = gathered + away;
        if (all as u64).saturating_mul(WORK_NS_PER_OPERATION) < sync_ns {
            return usize::MAX;
        }
        all.div_ceil(2).max(1)
    }

    /// Answers of this group waited so long for a sync.
    pub(super) fn synced(&mut self, took_ns: u64) {
        self.sync_ns = took_ns;
    }

    /// The answers of the group, which had so many operations, go out.
    pub(super) fn end(&mut self, operations: usize, now_ns: u64) {
        self.before = operations;
        self.answered_ns = now_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYNC_NS: u64 = 200_000;

    fn after(operations: usize, sync_ns: u64) -> GroupSizing {
        let mut group_sizing = GroupSizing::default();
        assert_eq!(
            group_sizing.begin(operations, 0),
            usize::MAX,
            "nothing is known"
        );
        group_sizing.synced(sync_ns);
        group_sizing.end(operations, 1_000_000);
        group_sizing
    }

    #[test]
    fn callers_who_came_back_together_are_parted() {
        assert_eq!(after(1024, SYNC_NS).begin(1024, 1_600_000), 512);
        assert_eq!(after(3, 1).begin(3, 1_600_000), 2);
    }

    #[test]
    fn what_is_away_counts() {
        assert_eq!(after(256, SYNC_NS).begin(768, 1_000_000), 512);
        assert_eq!(after(512, SYNC_NS).begin(512, 1_000_000), 512);
        // The others will be here before that group is done.
        assert_eq!(after(768, SYNC_NS).begin(256, 1_000_000), 512);
    }

    #[test]
    fn a_few_share_a_slow_sync() {
        assert_eq!(after(64, SYNC_NS).begin(64, 1_300_000), usize::MAX);
        let slow_ns = 100 * SYNC_NS;
        assert_eq!(after(1024, slow_ns).begin(1024, 9_000_000), usize::MAX);
    }

    #[test]
    fn groups_that_wait_for_no_sync_are_not_parted() {
        let mut group_sizing = after(1024, 0);
        assert_eq!(group_sizing.begin(1024, 1_600_000), usize::MAX);
        group_sizing.synced(SYNC_NS);
        group_sizing.end(1024, 2_000_000);
        assert_eq!(group_sizing.begin(1024, 2_600_000), 512);
        group_sizing.end(512, 3_000_000);
        assert_eq!(
            group_sizing.begin(1024, 3_600_000),
            usize::MAX,
            "that one did not"
        );
    }
}
