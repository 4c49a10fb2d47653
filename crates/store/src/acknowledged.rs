//! What the followers of a store hold on their devices, and how many of them a commit needs.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

/// Names a replica for as long as its folder lives, whatever its connections.
pub type ReplicaId = [u8; REPLICA_ID_BYTES];

/// Bytes of a [`ReplicaId`].
pub const REPLICA_ID_BYTES: usize = 16;

/// How many followers must hold a commit before it is visible.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicasAcked {
    /// So many; 0: none.
    pub replicas: usize,
    /// After so many milliseconds those who wait for a commit are told that they wait in vain.
    pub timeout_ms: u64,
}

/// What followers hold, for those who ask.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AcknowledgedState {
    /// How many must hold a commit before it is visible.
    pub required: usize,
    /// So many hold everything up to this sequence; 0 where none are required.
    pub sequence: u64,
    /// Commits have waited longer than they may, or what a start has found is not held by enough.
    pub is_late: bool,
    /// Each follower that is connected and has a name, with the sequence up to which it holds
    /// everything.
    pub followers: Vec<(ReplicaId, u64)>,
}

/// The followers that are connected, and what waits for them.
#[derive(Default)]
pub(crate) struct Acknowledgements {
    /// 0: none are required.
    required: AtomicUsize,
    timeout_ms: AtomicU64,
    sessions: Mutex<Sessions>,
    /// Enough hold everything up to this sequence.
    sequence: AtomicU64,
    /// What the start has found is not held by enough yet.
    is_starting: AtomicBool,
    /// Commits have waited longer than they may.
    is_late: AtomicBool,
    /// Since when a commit waits, by the clock of the store; 0: none does.
    awaited_since_ms: AtomicU64,
    /// Identities were changed by a commit whose caller was told that its outcome is unknown.
    has_late_identities: AtomicBool,
    on_change: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

/// Each follower once: its last connection counts.
#[derive(Debug, Default)]
struct Sessions {
    last_number: u64,
    open: Vec<OpenSession>,
}

#[derive(Debug)]
struct OpenSession {
    replica: ReplicaId,
    number: u64,
    sequence: u64,
}

impl Sessions {
    /// Up to which sequence so many hold everything.
    fn held_by(&self, required: usize) -> u64 {
        let mut sequences: Vec<u64> = self.open.iter().map(|one| one.sequence).collect();
        sequences.sort_unstable_by(|one, other| other.cmp(one));
        let last = required.checked_sub(1);
        last.and_then(|last| sequences.get(last).copied())
            .unwrap_or(0)
    }
}

impl Acknowledgements {
    /// Requires followers from now on: what is there already waits for them, too.
    pub(crate) fn require(&self, wanted: ReplicasAcked) {
        if wanted.replicas == 0 {
            return;
        }
        self.timeout_ms.store(wanted.timeout_ms, Ordering::Relaxed);
        self.is_starting.store(true, Ordering::Release);
        self.required.store(wanted.replicas, Ordering::Release);
        self.changed(&self.sessions.lock());
        self.wake();
    }

    /// How many must hold a commit; 0: none.
    #[inline]
    pub(crate) fn required(&self) -> usize {
        self.required.load(Ordering::Acquire)
    }

    pub(crate) fn timeout_ms(&self) -> u64 {
        self.timeout_ms.load(Ordering::Relaxed)
    }

    /// Up to which sequence enough followers hold everything.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence.load(Ordering::Acquire)
    }

    /// Has `wake` called when more is held.
    pub(crate) fn on_change(&self, wake: Box<dyn Fn() + Send + Sync>) {
        let set = self.on_change.set(wake);
        debug_assert!(set.is_ok(), "a store has one committer");
    }

    /// Enough hold what the start has found.
    pub(crate) fn start_is_over(&self) {
        self.is_starting.store(false, Ordering::Release);
    }

    #[inline]
    pub(crate) fn is_starting(&self) -> bool {
        self.is_starting.load(Ordering::Acquire)
    }

    pub(crate) fn awaited_since_ms(&self) -> u64 {
        self.awaited_since_ms.load(Ordering::Relaxed)
    }

    /// Notes since when a commit waits; 0: none does.
    pub(crate) fn set_awaited_since(&self, now_ms: u64) {
        self.awaited_since_ms.store(now_ms, Ordering::Relaxed);
    }

    pub(crate) fn set_late(&self, is_late: bool) {
        self.is_late.store(is_late, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn has_late_identities(&self) -> bool {
        self.has_late_identities.load(Ordering::Relaxed)
    }

    pub(crate) fn take_late_identities(&self) -> bool {
        self.has_late_identities() && self.has_late_identities.swap(false, Ordering::AcqRel)
    }

    pub(crate) fn note_late_identities(&self) {
        self.has_late_identities.store(true, Ordering::Release);
    }

    /// A follower is connected, and holds everything up to a sequence. An earlier connection of it
    /// does not count any more.
    fn begin(&self, replica: ReplicaId, sequence: u64) -> u64 {
        let mut sessions = self.sessions.lock();
        sessions.last_number += 1;
        let number = sessions.last_number;
        sessions.open.retain(|one| one.replica != replica);
        sessions.open.push(OpenSession {
            replica,
            number,
            sequence,
        });
        self.changed(&sessions);
        number
    }

    /// The follower of a connection holds everything up to a sequence.
    fn note(&self, number: u64, sequence: u64) {
        let mut sessions = self.sessions.lock();
        let session = sessions.open.iter_mut().find(|one| one.number == number);
        if let Some(session) = session {
            session.sequence = session.sequence.max(sequence);
        }
        self.changed(&sessions);
    }

    fn counts(&self, number: u64) -> bool {
        let sessions = self.sessions.lock();
        sessions.open.iter().any(|one| one.number == number)
    }

    fn end(&self, number: u64) {
        let mut sessions = self.sessions.lock();
        sessions.open.retain(|one| one.number != number);
        self.changed(&sessions);
    }

    fn changed(&self, sessions: &Sessions) {
        let sequence = sessions.held_by(self.required());
        if self.sequence.swap(sequence, Ordering::AcqRel) < sequence {
            self.wake();
        }
    }

    fn wake(&self) {
        if let Some(wake) = self.on_change.get() {
            wake();
        }
    }

    pub(crate) fn state(&self) -> AcknowledgedState {
        let sessions = self.sessions.lock();
        AcknowledgedState {
            required: self.required(),
            sequence: self.sequence(),
            is_late: self.is_late.load(Ordering::Relaxed) || self.is_starting(),
            followers: (sessions.open.iter())
                .map(|one| (one.replica, one.sequence))
                .collect(),
        }
    }
}

impl fmt::Debug for Acknowledgements {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Acknowledgements")
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

/// A connection of a follower that says what it holds: it counts as long as this lives.
#[derive(Debug)]
pub struct FollowerSession {
    acknowledgements: Arc<Acknowledgements>,
    number: u64,
}

impl FollowerSession {
    /// A follower is connected, and holds everything up to a sequence.
    pub(crate) fn begin(
        acknowledgements: &Arc<Acknowledgements>,
        replica: ReplicaId,
        sequence: u64,
    ) -> FollowerSession {
        FollowerSession {
            number: acknowledgements.begin(replica, sequence),
            acknowledgements: Arc::clone(acknowledgements),
        }
    }

    /// Returns whether what is said here counts: the follower has not begun another one since.
    pub fn counts(&self) -> bool {
        self.acknowledgements.counts(self.number)
    }

    /// Notes that the follower holds everything up to a sequence on its device.
    pub fn acknowledge(&self, sequence: u64) {
        self.acknowledgements.note(self.number, sequence);
    }
}

impl Drop for FollowerSession {
    fn drop(&mut self) {
        self.acknowledgements.end(self.number);
    }
}
