//! How a replica follows its leader, for those who ask.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use store::ReplicaId;

use crate::limits::REPLICA_CHAIN_MAX;
use crate::replica_orders::ReplicaOrders;
use crate::status::{Code, Status};

const NS_PER_MS: u64 = 1_000_000;

/// Whom a replica follows, and how far it has come. Written by the thread that follows.
#[derive(Debug)]
pub struct Following {
    leader: Box<str>,
    /// The name of the replica itself.
    id: ReplicaId,
    /// The replicas through which the leader gets what it has, itself first if it is one, as it
    /// said last. Not forgotten without a connection: it is what it is set to follow.
    upstream: Mutex<Vec<ReplicaId>>,
    is_connected: AtomicBool,
    /// The problem is that this server has no place for what the leader sends.
    is_blocked: AtomicBool,
    /// It is further behind than it may be.
    is_too_far_behind: AtomicBool,
    /// Everything up to this sequence is on the device and visible.
    sequence: AtomicU64,
    /// The same of the leader, as it said last.
    leader_sequence: AtomicU64,
    /// When this server had everything last, or began, by the monotonic clock: one that is set
    /// must not change how far it is behind.
    complete_ns: AtomicU64,
    /// Why it does not follow now.
    problem: Mutex<String>,
    orders: ReplicaOrders,
}

/// How far a replica has come, at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FollowingState {
    /// There is a stream of the leader's log.
    pub is_connected: bool,
    /// This server has no place for what the leader sends: its own disk or memory is in the way.
    pub is_blocked: bool,
    /// It is further behind than `--max-lag` says, so that it is not ready.
    pub is_too_far_behind: bool,
    /// Everything up to this sequence is on the device and visible.
    pub sequence: u64,
    /// The same of the leader, as it said last.
    pub leader_sequence: u64,
    /// When this server had everything last, or began, by the monotonic clock.
    pub complete_ns: u64,
    /// Why it does not follow now; empty: it does, or has not tried.
    pub problem: String,
}

impl Following {
    /// Of a replica with this name that follows `leader`, and has everything up to a sequence.
    pub fn new(leader: &str, id: ReplicaId, sequence: u64) -> Following {
        Following {
            leader: leader.into(),
            id,
            upstream: Mutex::default(),
            is_connected: AtomicBool::new(false),
            is_blocked: AtomicBool::new(false),
            is_too_far_behind: AtomicBool::new(false),
            sequence: AtomicU64::new(sequence),
            leader_sequence: AtomicU64::new(sequence),
            complete_ns: AtomicU64::new(0),
            problem: Mutex::default(),
            orders: ReplicaOrders::default(),
        }
    }

    /// Returns what an operator wants of it.
    pub fn orders(&self) -> &ReplicaOrders {
        &self.orders
    }

    /// Returns whom it follows.
    pub fn leader(&self) -> &str {
        &self.leader
    }

    /// Returns the name of the replica.
    pub fn id(&self) -> &ReplicaId {
        &self.id
    }

    /// Returns the replicas through which others get what this one has, itself first.
    pub fn replica_ids(&self) -> Vec<ReplicaId> {
        let upstream = self.upstream.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ids = vec![self.id];
        ids.extend(upstream.iter().take(REPLICA_CHAIN_MAX));
        ids
    }

    /// Notes through which replicas the leader gets what it has. Returns whether this one is among
    /// them: then none of them gets what others write.
    pub fn note_upstream<'a>(&self, ids: impl IntoIterator<Item = &'a [u8]>) -> bool {
        let mut upstream = self.upstream.lock().unwrap_or_else(PoisonError::into_inner);
        upstream.clear();
        for id in ids.into_iter().take(REPLICA_CHAIN_MAX) {
            if id == self.id {
                return true;
            }
            upstream.extend(<ReplicaId>::try_from(id));
        }
        false
    }

    /// Notes where the leader stands. `now_ns` is monotonic, here and below.
    pub fn note_leader(&self, sequence: u64, now_ns: u64) {
        self.leader_sequence.fetch_max(sequence, Ordering::Relaxed);
        self.note_complete(now_ns);
    }

    /// Notes that everything up to a sequence is there.
    pub fn note_sequence(&self, sequence: u64, now_ns: u64) {
        self.sequence.fetch_max(sequence, Ordering::Relaxed);
        self.note_complete(now_ns);
    }

    fn note_complete(&self, now_ns: u64) {
        let (sequence, leader) = (&self.sequence, &self.leader_sequence);
        if sequence.load(Ordering::Relaxed) >= leader.load(Ordering::Relaxed) {
            self.complete_ns.store(now_ns, Ordering::Relaxed);
        }
    }

    /// Notes that there is a stream, and nothing is in its way.
    pub fn note_connected(&self) {
        self.note("", (true, false));
    }

    /// Notes why there is no stream.
    pub fn note_problem(&self, problem: &str) {
        self.note(problem, (false, false));
    }

    /// Notes why this server has no place for what the leader sends.
    pub fn note_blocked(&self, problem: &str) {
        self.note(problem, (false, true));
    }

    /// Notes whether it is further behind than it may be.
    pub fn note_too_far_behind(&self, is_too_far: bool) {
        self.is_too_far_behind.store(is_too_far, Ordering::Relaxed);
    }

    fn note(&self, problem: &str, (is_connected, is_blocked): (bool, bool)) {
        let mut noted = self.lock();
        self.is_connected.store(is_connected, Ordering::Relaxed);
        self.is_blocked.store(is_blocked, Ordering::Relaxed);
        noted.clear();
        noted.push_str(problem);
    }

    /// Returns how far it has come.
    pub fn state(&self) -> FollowingState {
        let problem = self.lock();
        FollowingState {
            is_connected: self.is_connected.load(Ordering::Relaxed),
            is_blocked: self.is_blocked.load(Ordering::Relaxed),
            is_too_far_behind: self.is_too_far_behind.load(Ordering::Relaxed),
            sequence: self.sequence.load(Ordering::Relaxed),
            leader_sequence: self.leader_sequence.load(Ordering::Relaxed),
            complete_ns: self.complete_ns.load(Ordering::Relaxed),
            problem: problem.clone(),
        }
    }

    /// Returns the status of what only the leader does.
    #[cold]
    pub fn refusal(&self) -> Status {
        let leader = &self.leader;
        Status::new(
            Code::FailedPrecondition,
            format!(
                "this server is a replica of {leader}, and only its leader takes writes; nothing \
                 was done; send this to {leader}"
            ),
        )
    }

    fn lock(&self) -> MutexGuard<'_, String> {
        // A text is replaced as a whole: sound whoever panicked.
        self.problem.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FollowingState {
    /// Returns by how many sequences it is behind its leader.
    pub fn lag_sequences(&self) -> u64 {
        self.leader_sequence.saturating_sub(self.sequence)
    }

    /// Returns for how long it has not had everything, in milliseconds; 0: it has.
    pub fn lag_ms(&self, now_ns: u64) -> u64 {
        match self.is_connected && self.lag_sequences() == 0 {
            true => 0,
            false => now_ns.saturating_sub(self.complete_ns) / NS_PER_MS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_is_behind_until_it_has_what_its_leader_has() {
        let following = Following::new("leader:1978", [1; 16], 5);
        assert_eq!(following.state().complete_ns, 0);
        for round in 1..3 {
            following.note_connected();
            following.note_leader(10 * round, 100 * round * NS_PER_MS);
            let state = following.state();
            assert!(state.is_connected && state.lag_sequences() > 0);
            following.note_sequence(10 * round, (100 * round + 7) * NS_PER_MS);
            let state = following.state();
            assert_eq!(
                (state.lag_sequences(), state.lag_ms(1_000 * NS_PER_MS)),
                (0, 0)
            );
            assert_eq!(state.complete_ns, (100 * round + 7) * NS_PER_MS);
            // What was said before comes late.
            following.note_sequence(10 * round - 1, (100 * round + 7) * NS_PER_MS);
            following.note_leader(10 * round - 1, (100 * round + 7) * NS_PER_MS);
            assert_eq!(following.state(), state);
            following.note_blocked("the disk is full");
            assert!(following.state().is_blocked && !following.state().is_connected);
            following.note_problem("it is gone");
            let state = following.state();
            assert_eq!((state.is_connected, &*state.problem), (false, "it is gone"));
            assert!(!state.is_blocked);
            assert_eq!(state.lag_ms(1_000 * NS_PER_MS), 1_000 - (100 * round + 7));
        }
        let refusal = following.refusal();
        assert_eq!(refusal.code(), Code::FailedPrecondition);
        assert!(refusal.message().contains("leader:1978"));
    }

    #[test]
    fn a_replica_that_follows_itself_through_others_finds_that_out_and_so_do_they() {
        let [one, two, three] =
            [1, 2, 3].map(|number| Following::new("leader:1978", [number; 16], 0));
        let hears = |who: &Following, of: &Following| {
            let ids = of.replica_ids();
            who.note_upstream(ids.iter().map(|id| &id[..]))
        };
        assert!(hears(&one, &one));
        // A chain is well, however long.
        assert!(!one.note_upstream([]));
        for _ in 0..2 {
            assert!(!hears(&two, &one) && !hears(&three, &two));
            assert_eq!(three.replica_ids(), [[3; 16], [2; 16], [1; 16]]);
        }
        // A circle is found by each that hears of it, again and again.
        for round in 0..2 {
            assert!(hears(&one, &three));
            assert!(hears(&two, &one) || round == 0);
            assert!(hears(&three, &two) || round == 0);
        }
        let many = vec![[9; 16]; 2 * REPLICA_CHAIN_MAX];
        assert!(!one.note_upstream(many.iter().map(|id| &id[..])));
        assert_eq!(one.replica_ids().len(), 1 + REPLICA_CHAIN_MAX);
        assert!(!one.note_upstream([&b"short"[..]]));
        assert_eq!(one.replica_ids().len(), 1);
    }
}
