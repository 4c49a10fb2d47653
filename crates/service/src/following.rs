//! How a replica follows its leader, for those who ask.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::status::{Code, Status};

/// Whom a replica follows, and how far it has come. Written by the thread that follows.
#[derive(Debug)]
pub struct Following {
    leader: Box<str>,
    is_connected: AtomicBool,
    /// Everything up to this sequence is on the device and visible.
    sequence: AtomicU64,
    /// The same of the leader, as it said last.
    leader_sequence: AtomicU64,
    /// When this server had everything last, or began, in milliseconds since 1970.
    complete_ms: AtomicU64,
    /// Why it does not follow now.
    problem: Mutex<String>,
}

/// How far a replica has come, at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FollowingState {
    /// There is a stream of the leader's log.
    pub is_connected: bool,
    /// Everything up to this sequence is on the device and visible.
    pub sequence: u64,
    /// The same of the leader, as it said last.
    pub leader_sequence: u64,
    /// When this server had everything last, or began, in milliseconds since 1970.
    pub complete_ms: u64,
    /// Why it does not follow now; empty: it does, or has not tried.
    pub problem: String,
}

impl Following {
    /// Of a server that follows `leader`, and has everything up to a sequence.
    pub fn new(leader: &str, sequence: u64) -> Following {
        Following {
            leader: leader.into(),
            is_connected: AtomicBool::new(false),
            sequence: AtomicU64::new(sequence),
            leader_sequence: AtomicU64::new(sequence),
            complete_ms: AtomicU64::new(0),
            problem: Mutex::default(),
        }
    }

    /// Returns whom it follows.
    pub fn leader(&self) -> &str {
        &self.leader
    }

    /// Notes where the leader stands.
    pub fn note_leader(&self, sequence: u64, now_ms: u64) {
        self.is_connected.store(true, Ordering::Relaxed);
        self.leader_sequence.fetch_max(sequence, Ordering::Relaxed);
        self.note_complete(now_ms);
    }

    /// Notes that everything up to a sequence is there.
    pub fn note_sequence(&self, sequence: u64, now_ms: u64) {
        self.sequence.fetch_max(sequence, Ordering::Relaxed);
        self.note_complete(now_ms);
    }

    fn note_complete(&self, now_ms: u64) {
        let (sequence, leader) = (&self.sequence, &self.leader_sequence);
        if sequence.load(Ordering::Relaxed) >= leader.load(Ordering::Relaxed) {
            self.complete_ms.store(now_ms, Ordering::Relaxed);
        }
    }

    /// Notes that the stream begins, or why there is none.
    pub fn note_problem(&self, problem: Option<&str>) {
        let is_connected = problem.is_none();
        self.is_connected.store(is_connected, Ordering::Relaxed);
        let mut noted = self.lock();
        noted.clear();
        noted.push_str(problem.unwrap_or_default());
    }

    /// Returns how far it has come.
    pub fn state(&self) -> FollowingState {
        FollowingState {
            is_connected: self.is_connected.load(Ordering::Relaxed),
            sequence: self.sequence.load(Ordering::Relaxed),
            leader_sequence: self.leader_sequence.load(Ordering::Relaxed),
            complete_ms: self.complete_ms.load(Ordering::Relaxed),
            problem: self.lock().clone(),
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
    pub fn lag_ms(&self, now_ms: u64) -> u64 {
        match self.is_connected && self.lag_sequences() == 0 {
            true => 0,
            false => now_ms.saturating_sub(self.complete_ms),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_is_behind_until_it_has_what_its_leader_has() {
        let following = Following::new("leader:1978", 5);
        assert_eq!(following.state().complete_ms, 0);
        for round in 1..3 {
            following.note_problem(None);
            following.note_leader(10 * round, 100 * round);
            let state = following.state();
            assert!(state.is_connected && state.lag_sequences() > 0);
            following.note_sequence(10 * round, 100 * round + 7);
            let state = following.state();
            assert_eq!((state.lag_sequences(), state.lag_ms(1_000)), (0, 0));
            assert_eq!(state.complete_ms, 100 * round + 7);
            following.note_problem(Some("it is gone"));
            let state = following.state();
            assert_eq!((state.is_connected, &*state.problem), (false, "it is gone"));
            assert_eq!(state.lag_ms(1_000), 1_000 - state.complete_ms);
        }
        let refusal = following.refusal();
        assert_eq!(refusal.code(), Code::FailedPrecondition);
        assert!(refusal.message().contains("leader:1978"));
    }
}
