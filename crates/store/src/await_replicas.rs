//! A store whose commits wait for followers.

use crate::acknowledged::{AcknowledgedState, FollowerSession, ReplicasAcked};
use crate::limits;
use crate::replica_set::ReplicaId;
use crate::store::Store;

impl Store {
    /// Has commits that have a log wait for followers from now on, and what is there already too:
    /// until enough hold it, [`Store::awaits_replicas`]. `required_before`: so many the previous
    /// run has required, which hold for what is there already.
    pub fn require_replicas(&self, wanted: ReplicasAcked, required_before: usize) {
        self.acknowledgements().require(wanted, required_before);
    }

    /// Takes notice of the epoch of another server of the same history, and of the address of its
    /// leader, if that is known. Returns whether it is higher than that of this one, which takes no
    /// more writes then.
    pub fn note_epoch(&self, epoch: u64, leader: &str) -> bool {
        self.acknowledgements().note_epoch(epoch, leader)
    }

    /// Returns a higher epoch of which this server has heard, so that it takes no writes; 0: none.
    #[inline]
    pub fn higher_epoch(&self) -> u64 {
        self.acknowledgements().higher_epoch()
    }

    /// Returns where the leader of that epoch is; empty: nobody has said.
    pub fn new_leader(&self) -> String {
        self.acknowledgements().new_leader()
    }

    /// Has replicas count no more that are lost: by commits, as soon as enough of those that count
    /// hold these. Returns those that are connected; nothing is done then.
    pub fn forget_replicas(&self, replicas: &[ReplicaId]) -> Vec<ReplicaId> {
        self.acknowledgements().forget(replicas)
    }

    /// Gives up what [`Store::forget_replicas`] has begun, as far as it is not done.
    pub fn keep_replicas(&self, replicas: &[ReplicaId]) {
        self.acknowledgements().keep(replicas);
    }

    /// Whether what the start has found may not be read yet, since too few followers hold it. That
    /// does not concern volatile databases.
    #[inline]
    pub fn awaits_replicas(&self) -> bool {
        self.acknowledgements().is_starting()
    }

    /// Notes that a follower is connected, and holds everything up to a sequence on its device.
    pub fn begin_follower_session(&self, replica: ReplicaId, sequence: u64) -> FollowerSession {
        FollowerSession::begin(self.acknowledgements(), replica, sequence)
    }

    /// Whether what is removed by itself would pile up behind a commit that has waited for
    /// followers for some time.
    pub(crate) fn removals_rest(&self, now_ms: u64) -> bool {
        let since_ms = self.acknowledgements().awaited_since_ms();
        since_ms > 0 && now_ms.saturating_sub(since_ms) > limits::SWEEP_DELAY_MS
    }

    /// Returns what followers hold.
    pub fn acknowledged(&self) -> AcknowledgedState {
        self.acknowledgements().state()
    }

    /// Whether a commit has changed identities of whose outcome its caller was not told, since this
    /// was asked last.
    pub fn take_late_identities(&self) -> bool {
        self.acknowledgements().take_late_identities()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replica_set::REPLICA_ID_BYTES;
    use crate::store::StoreConfig;

    const ONE: ReplicaId = [1; REPLICA_ID_BYTES];
    const TWO: ReplicaId = [2; REPLICA_ID_BYTES];

    fn store(replicas: usize) -> Store {
        let store = Store::in_memory(StoreConfig::new(1)).expect("the limits make sense");
        let wanted = ReplicasAcked {
            replicas,
            timeout_ms: 1,
        };
        store.require_replicas(wanted, 0);
        store
    }

    #[test]
    fn what_counts_is_what_so_many_different_followers_hold() {
        let store = store(2);
        let sequence = || store.acknowledged().sequence;
        for _ in 0..2 {
            let one = store.begin_follower_session(ONE, 7);
            assert_eq!(sequence(), 0);
            one.acknowledge(9);
            let two = store.begin_follower_session(TWO, 8);
            assert_eq!(sequence(), 8);
            two.acknowledge(12);
            assert_eq!(sequence(), 9);
            two.acknowledge(3);
            assert_eq!(sequence(), 9, "what is held stays held");
            drop(one);
            assert_eq!(sequence(), 0);
        }
        assert!(store.acknowledged().followers.is_empty());
    }

    #[test]
    fn of_two_connections_of_one_follower_the_later_one_counts() {
        let store = store(2);
        let first = store.begin_follower_session(ONE, 9);
        let second = store.begin_follower_session(ONE, 5);
        first.acknowledge(20);
        let state = store.acknowledged();
        assert_eq!((state.sequence, &state.followers[..]), (0, &[(ONE, 5)][..]));
        let other = store.begin_follower_session(TWO, 9);
        assert_eq!(store.acknowledged().sequence, 5);
        drop(first);
        assert_eq!(store.acknowledged().sequence, 5);
        drop((second, other));
        assert!(store.acknowledged().followers.is_empty());
    }

    #[test]
    fn removals_rest_while_a_commit_has_waited_for_longer_than_they_may_be_late() {
        let store = store(1);
        let (since_ms, delay_ms) = (1_000, limits::SWEEP_DELAY_MS);
        for _ in 0..2 {
            assert!(!store.removals_rest(since_ms + 10 * delay_ms), "none waits");
            store.acknowledgements().set_awaited_since(since_ms);
            assert!(!store.removals_rest(since_ms + delay_ms));
            assert!(store.removals_rest(since_ms + delay_ms + 1));
            store.acknowledgements().set_awaited_since(0);
        }
    }

    #[test]
    fn without_a_requirement_nothing_waits() {
        let store = store(0);
        assert!(!store.awaits_replicas());
        let _one = store.begin_follower_session(ONE, 9);
        assert_eq!(store.acknowledged().required, 0);
        assert!(!store.acknowledged().is_late);
    }
}
