//! What the followers of a store hold on their devices, and how many of them a commit needs.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::replica_set::{FIRST_EPOCH, ReplicaId, ReplicaSet, ReplicaSetChange};

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
    /// Each replica that counts and is not connected; none where none are required.
    pub absent: Vec<ReplicaId>,
}

/// The followers that are connected, and what waits for them.
pub(crate) struct Acknowledgements {
    /// 0: none are required.
    required: AtomicUsize,
    /// The same when that is in the log: until then the requirement of the previous run holds too.
    required_later: AtomicUsize,
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
    /// The epoch of the visible log.
    epoch: AtomicU64,
    /// A higher one of which this server has heard, whose leader takes the writes; 0: none.
    higher_epoch: AtomicU64,
    /// Where that is, as far as known.
    new_leader: Mutex<String>,
    /// The set is to be changed, as [`Acknowledgements::take_change`] says.
    has_change: AtomicBool,
}

impl Default for Acknowledgements {
    fn default() -> Acknowledgements {
        Acknowledgements {
            required: AtomicUsize::new(0),
            required_later: AtomicUsize::new(0),
            timeout_ms: AtomicU64::new(0),
            sessions: Mutex::default(),
            sequence: AtomicU64::new(0),
            is_starting: AtomicBool::new(false),
            is_late: AtomicBool::new(false),
            awaited_since_ms: AtomicU64::new(0),
            has_late_identities: AtomicBool::new(false),
            on_change: OnceLock::new(),
            epoch: AtomicU64::new(FIRST_EPOCH),
            higher_epoch: AtomicU64::new(0),
            new_leader: Mutex::default(),
            has_change: AtomicBool::new(false),
        }
    }
}

/// Each follower once: its last connection counts.
#[derive(Debug, Default)]
struct Sessions {
    last_number: u64,
    open: Vec<OpenSession>,
    /// Who counts, and the epochs.
    set: ReplicaSet,
    /// Those that an operator wants to count no more.
    lost: Vec<ReplicaId>,
}

#[derive(Debug)]
struct OpenSession {
    replica: ReplicaId,
    number: u64,
    sequence: u64,
}

impl Sessions {
    /// Up to which sequence so many hold everything, half of those that count among them if that is
    /// less: one of these is asked before any of them becomes the leader. At a start the same goes
    /// for those that counted before a change that perhaps nobody has acknowledged.
    fn held_by(&self, required: usize, is_starting: bool) -> u64 {
        let held = self.held_by_set(required, &self.set);
        match self.set.before_unsettled().filter(|_| is_starting) {
            Some(before) => held.min(self.held_by_set(required, &before)),
            None => held,
        }
    }

    fn held_by_set(&self, required: usize, set: &ReplicaSet) -> u64 {
        let of_set = required.min(set.members().len().div_ceil(2));
        let is_member = |one: &&OpenSession| set.has_member(&one.replica);
        let held = held_by(required, self.open.iter());
        match of_set {
            0 => held,
            _ => held.min(held_by(of_set, self.open.iter().filter(is_member))),
        }
    }

    /// What is to be changed of the set: somebody who counts no more, or who is connected and does
    /// not count, if there is room for it.
    fn change(&self) -> Option<ReplicaSetChange> {
        // It is visible, and so acknowledged: the next start need not wait for it.
        if self.set.is_unsettled() {
            return Some(ReplicaSetChange::Settle);
        }
        let lost = self.lost.iter().find(|one| self.set.has_member(one));
        let removal = lost.map(|one| ReplicaSetChange::Forget(*one));
        removal.or_else(|| self.newcomer().map(ReplicaSetChange::Add))
    }

    fn newcomer(&self) -> Option<ReplicaId> {
        let is_new = |one: &&OpenSession| !self.set.has_member(&one.replica);
        let newcomer = self.open.iter().find(is_new).map(|one| one.replica);
        newcomer.filter(|_| self.set.has_room())
    }
}

/// Up to which sequence so many of some hold everything.
fn held_by<'a>(count: usize, sessions: impl Iterator<Item = &'a OpenSession>) -> u64 {
    let mut sequences: Vec<u64> = sessions.map(|one| one.sequence).collect();
    sequences.sort_unstable_by(|one, other| other.cmp(one));
    let last = count.checked_sub(1);
    last.and_then(|last| sequences.get(last).copied())
        .unwrap_or(0)
}

impl Acknowledgements {
    /// Requires followers from now on: what is there already waits for them, too.
    ///
    /// So many as the previous run has required, `required_before`, are waited for until the lower
    /// number is in the log: who has not heard of it must not take those that hold a commit for
    /// more.
    pub(crate) fn require(&self, wanted: ReplicasAcked, required_before: usize) {
        if wanted.replicas == 0 {
            return;
        }
        self.timeout_ms.store(wanted.timeout_ms, Ordering::Relaxed);
        self.required_later
            .store(wanted.replicas, Ordering::Release);
        self.is_starting.store(true, Ordering::Release);
        let required = wanted.replicas.max(required_before);
        self.required.store(required, Ordering::Release);
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
        let sessions = self.sessions.lock();
        self.lower_requirement(&sessions.set);
        self.changed(&sessions);
    }

    /// Requires what is wanted, once the log says no more.
    fn lower_requirement(&self, set: &ReplicaSet) {
        let wanted = self.required_later.load(Ordering::Acquire);
        if !self.is_starting() && set.required() <= wanted {
            self.required.store(wanted, Ordering::Release);
        }
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    pub(crate) fn replica_set(&self) -> ReplicaSet {
        self.sessions.lock().set.clone()
    }

    /// Takes over who counts, as it is visible.
    pub(crate) fn set_replica_set(&self, set: ReplicaSet) {
        let mut sessions = self.sessions.lock();
        self.epoch.store(set.epoch(), Ordering::Release);
        sessions.set = set;
        self.lower_requirement(&sessions.set);
        self.changed(&sessions);
    }

    /// Has replicas count no more; returns those of them that are connected, and stay.
    pub(crate) fn forget(&self, replicas: &[ReplicaId]) -> Vec<ReplicaId> {
        let mut sessions = self.sessions.lock();
        let (here, lost): (Vec<_>, Vec<_>) = (replicas.iter().copied())
            .partition(|replica| sessions.open.iter().any(|one| one.replica == *replica));
        if here.is_empty() {
            sessions.lost.extend(lost);
            sessions.lost.sort_unstable();
            sessions.lost.dedup();
            self.changed(&sessions);
        }
        here
    }

    /// Nobody wants any more that these count no more.
    pub(crate) fn keep(&self, replicas: &[ReplicaId]) {
        let mut sessions = self.sessions.lock();
        sessions.lost.retain(|one| !replicas.contains(one));
    }

    /// Takes notice of the epoch of another server; returns whether this one is not the leader any
    /// more.
    pub(crate) fn note_epoch(&self, epoch: u64, leader: &str) -> bool {
        if epoch <= self.epoch() {
            return false;
        }
        let mut new_leader = self.new_leader.lock();
        let before = self.higher_epoch.fetch_max(epoch, Ordering::AcqRel);
        if epoch > before || (epoch == before && !leader.is_empty()) {
            leader.clone_into(&mut new_leader);
        }
        true
    }

    /// A higher epoch of which this server has heard; 0: none.
    #[inline]
    pub(crate) fn higher_epoch(&self) -> u64 {
        self.higher_epoch.load(Ordering::Acquire)
    }

    pub(crate) fn new_leader(&self) -> String {
        self.new_leader.lock().clone()
    }

    /// What is to be changed of the set, if something is since this was asked last. One at a time,
    /// each behind the outcome of the one before: so of two logs that differ by a change, a
    /// majority of those that count in one has somebody in common with each majority of the other.
    pub(crate) fn take_change(&self) -> Option<ReplicaSetChange> {
        let has_one = self.has_change.swap(false, Ordering::AcqRel);
        has_one
            .then(|| self.next_change(&self.sessions.lock()))
            .flatten()
    }

    fn next_change(&self, sessions: &Sessions) -> Option<ReplicaSetChange> {
        if self.required() == 0 || self.is_starting() {
            return None;
        }
        let wanted = self.required_later.load(Ordering::Acquire);
        match sessions.set.required() > wanted {
            true => Some(ReplicaSetChange::Require(wanted)),
            false => sessions.change(),
        }
    }

    #[inline]
    pub(crate) fn has_change(&self) -> bool {
        self.has_change.load(Ordering::Relaxed)
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
        // Whoever is back is not lost.
        sessions.lost.retain(|one| *one != replica);
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
        let sequence = sessions.held_by(self.required(), self.is_starting());
        let has_grown = self.sequence.swap(sequence, Ordering::AcqRel) < sequence;
        let has_change = self.next_change(sessions).is_some();
        if has_change {
            self.has_change.store(true, Ordering::Release);
        }
        if has_grown || has_change {
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
        let is_absent = |id: &&ReplicaId| {
            self.required() > 0 && !sessions.open.iter().any(|one| one.replica == **id)
        };
        AcknowledgedState {
            required: self.required(),
            sequence: self.sequence(),
            is_late: self.is_late.load(Ordering::Relaxed) || self.is_starting(),
            followers: (sessions.open.iter())
                .map(|one| (one.replica, one.sequence))
                .collect(),
            absent: sessions.set.members().filter(is_absent).copied().collect(),
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
