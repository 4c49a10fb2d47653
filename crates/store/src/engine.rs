//! The commit engine: carries out commits on a database, one after the other, with a log or
//! without.
//!
//! # The order of things
//!
//! For each commit: *decide* it against the pending state, which gives outcomes and effects; *keep*
//! the effects; and later *publish* them by raising the database's sequence. A [`CommitTarget`] is
//! where effects are kept. In a volatile database pending and visible state are the same, and
//! effects are applied at once, under the write lock
//! ([`VolatileCommitter`](crate::VolatileCommitter)). In a durable one they wait in a group until
//! that is in the log (`durable::group_decider`).
//!
//! So a commit is always decided as a whole before anything is applied, and effects name each key
//! once.

use crate::batch::WriteBatch;
use crate::limits;
use crate::outcome::{CommitVerdict, Decision, KeyState, OperationStatus, Outcomes, Refusal};
use crate::record::{CommitRecord, Whole};

/// A database that commits are decided against, and that takes what they leave.
pub(crate) trait CommitTarget {
    /// Begins a commit.
    fn begin(&mut self, commit: &CommitRecord) -> CommitTurn;

    /// Has the places of keys with these hashes loaded into the cache of the CPU.
    fn warm(&self, hashes: impl Iterator<Item = u64>);

    /// Where the outcome of a commit goes.
    fn outcomes(&mut self, commit: &CommitRecord) -> &mut Outcomes;

    /// Decides a commit that changes keys, and keeps its effects. `Err`: it has none, and what it
    /// has left of outcomes is to be taken back.
    fn decide_commit(&mut self, place: &CommitPlace<'_>) -> Result<CommitVerdict, Refusal>;

    /// Empties the database; returns how many entries it had.
    fn clear(&mut self, place: &CommitPlace<'_>) -> i64;

    /// Ends a commit, which has its outcome.
    fn end(&mut self, place: &CommitPlace<'_>);
}

/// What is to be done with a commit.
pub(crate) enum CommitTurn {
    /// It is decided, under this sequence.
    Decide(u64),
    /// It was refused, or is kept for later.
    Skip,
    /// It waits, as all that come behind it.
    Stop,
}

/// A commit where it is decided.
pub(crate) struct CommitPlace<'a> {
    pub(crate) batch: &'a WriteBatch,
    pub(crate) commit: &'a CommitRecord,
    pub(crate) now_ms: u64,
    pub(crate) sequence: u64,
}

/// Carries out commits of one database in their order. Returns how many had their turn.
pub(crate) fn carry_out(
    target: &mut impl CommitTarget,
    batch: &WriteBatch,
    commits: &[CommitRecord],
    now_ms: u64,
) -> usize {
    let mut warm_until = 0;
    for (index, commit) in commits.iter().enumerate() {
        let sequence = match target.begin(commit) {
            CommitTurn::Decide(sequence) => sequence,
            CommitTurn::Skip => continue,
            CommitTurn::Stop => return index,
        };
        let operations = commit.operations();
        if operations.end > warm_until {
            warm_until = (operations.end).max(operations.start + limits::WARM_OPERATIONS);
            target.warm(batch.hashes(operations.start..warm_until));
        }
        let place = CommitPlace {
            batch,
            commit,
            now_ms,
            sequence,
        };
        carry_out_one(target, &place);
    }
    commits.len()
}

#[inline]
fn carry_out_one(target: &mut impl CommitTarget, place: &CommitPlace<'_>) {
    let commit = place.commit;
    let mark = target.outcomes(commit).mark();
    let verdict = if commit.whole == Some(Whole::Clear) {
        let removed = target.clear(place);
        let (status, untouched) = (OperationStatus::Done, KeyState::default());
        (target.outcomes(commit)).push(status, untouched, untouched, removed, None);
        Decision::Applied.into()
    } else {
        match target.decide_commit(place) {
            Ok(verdict) => verdict,
            Err(refusal) => {
                target.outcomes(commit).truncate(&mark, false);
                Decision::Refused(refusal).into()
            }
        }
    };
    (target.outcomes(commit)).finish(&mark, commit, place.sequence, verdict);
    target.end(place);
}
