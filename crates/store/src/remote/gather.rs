//! The parts of one commit, carried out some at a time, and put together again.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::backend::RemoteBackend;
use super::commit::RemoteCommit;
use super::room::RoomShare;
use super::sink::{PartEnd, PartOutcome, RemoteDone, RemoteSink};
use crate::outcome::{Decision, Outcomes, Refusal};
use crate::record::CommitRecord;
use crate::remote_kind::{RemoteError, limits};

/// Where the outcome of a commit goes.
pub(super) struct CommitEnd {
    pub(super) sink: Arc<dyn RemoteSink>,
    /// What it holds while it is under way.
    pub(super) share: RoomShare,
}

/// Where the outcome of one of several parts goes: it is put together with the others.
pub(super) struct GatherEnd {
    pub(super) gather: Arc<Gather>,
    /// Which part it is.
    pub(super) number: usize,
}

impl PartEnd for GatherEnd {
    fn complete(self: Box<Self>, outcome: PartOutcome) {
        self.gather.complete(self.number, outcome);
    }
}

/// The part is the whole commit.
impl PartEnd for CommitEnd {
    fn complete(self: Box<Self>, outcome: PartOutcome) {
        (*self).end(outcome.outcomes);
    }
}

impl CommitEnd {
    pub(super) fn end(self, outcomes: Outcomes) {
        // Before its loop hands over what waited for it.
        drop(self.share);
        self.sink.put(RemoteDone::Commit(outcomes));
    }
}

/// The parts of one commit.
pub(super) struct Gather {
    backend: Arc<dyn RemoteBackend>,
    commit: CommitRecord,
    /// For each operation of the commit: its part, and its place there.
    operations: Vec<(usize, usize)>,
    state: Mutex<GatherState>,
}

#[derive(Default)]
struct GatherState {
    waiting: VecDeque<RemoteCommit>,
    under_way: usize,
    /// Somebody hands parts over, and goes on for as long as there is something to do.
    is_handing_over: bool,
    /// What became of the parts that are complete.
    complete: Vec<Option<PartOutcome>>,
    left: usize,
    end: Option<CommitEnd>,
}

impl Gather {
    /// A commit of which each part has the operations at `places`.
    pub(super) fn new<'a>(
        backend: Arc<dyn RemoteBackend>,
        commit: CommitRecord,
        places: impl ExactSizeIterator<Item = &'a [usize]>,
        end: CommitEnd,
    ) -> Arc<Gather> {
        let left = places.len();
        let mut operations = vec![(0, 0); commit.operations().len()];
        for (part, places) in places.enumerate() {
            for (index, &place) in places.iter().enumerate() {
                operations[place] = (part, index);
            }
        }
        let state = GatherState {
            complete: (0..left).map(|_| None).collect(),
            left,
            end: Some(end),
            ..GatherState::default()
        };
        Arc::new(Gather {
            backend,
            commit,
            operations,
            state: Mutex::new(state),
        })
    }

    /// Begins to carry out all parts.
    pub(super) fn begin(&self, parts: VecDeque<RemoteCommit>) {
        self.lock().waiting = parts;
        self.hand_over();
    }

    /// Hands over what may be under way. A part can be complete before `commit` returns: whoever
    /// hands over goes on then, so that the stack does not grow with each part.
    fn hand_over(&self) {
        let mut state = self.lock();
        if std::mem::replace(&mut state.is_handing_over, true) {
            return;
        }
        while state.under_way < limits::PARTS_AT_ONCE
            && let Some(part) = state.waiting.pop_front()
        {
            state.under_way += 1;
            drop(state);
            self.backend.commit(part);
            state = self.lock();
        }
        state.is_handing_over = false;
    }

    fn complete(&self, number: usize, outcome: PartOutcome) {
        let mut state = self.lock();
        state.under_way = state.under_way.saturating_sub(1);
        if let Some(place) = state.complete.get_mut(number) {
            *place = Some(outcome);
        }
        state.left -= 1;
        if state.left > 0 {
            drop(state);
            return self.hand_over();
        }
        let parts = std::mem::take(&mut state.complete);
        let end = state.end.take();
        drop(state);
        if let Some(end) = end {
            end.end(self.join(&parts));
        }
    }

    /// Puts the outcomes of all parts together.
    fn join(&self, parts: &[Option<PartOutcome>]) -> Outcomes {
        let mut joined = Outcomes::new();
        let mark = joined.mark();
        let refused = parts.iter().flatten().find_map(refusal_of);
        if let Some(refusal) = refused {
            let has_written = parts.iter().flatten().any(|part| part.has_written);
            joined.refuse(&self.commit, of_all(refusal, has_written));
            return joined;
        }
        let (mut sequence, mut bytes) = (0, 0);
        for &(part, index) in &self.operations {
            let part = parts.get(part).and_then(Option::as_ref);
            let outcome = part.map(|part| part.outcomes.get(0));
            let operation = outcome.and_then(|outcome| {
                sequence = sequence.max(outcome.sequence);
                outcome.operations().nth(index)
            });
            let Some(operation) = operation else {
                debug_assert!(false, "a part that took effect has all its outcomes");
                joined.truncate(&mark, false);
                joined.refuse(&self.commit, RemoteError::OutcomeUnknown.into());
                return joined;
            };
            bytes += operation.value.map_or(0, |value| value.len());
            joined.push_copy(&operation);
        }
        let beside = crate::limits::ANSWER_BYTES_PER_OPERATION * self.operations.len();
        let limit_bytes = self.commit.answer_bytes;
        if bytes + beside > limit_bytes {
            // Each part alone was not: what they have written stays.
            let has_written = parts.iter().flatten().any(|part| part.has_written);
            joined.truncate(&mark, false);
            let refusal = Refusal::AnswerTooLarge { limit_bytes };
            joined.refuse(&self.commit, of_all(refusal, has_written));
            return joined;
        }
        joined.finish(&mark, &self.commit, sequence, Decision::Applied.into());
        joined
    }

    fn lock(&self) -> MutexGuard<'_, GatherState> {
        // Whole values are put in and taken out: sound whoever panicked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a part came to nothing, or to something unknown.
fn refusal_of(part: &PartOutcome) -> Option<Refusal> {
    part.outcomes
        .iter()
        .find_map(|outcome| match outcome.decision {
            Decision::Refused(refusal) => Some(refusal),
            _ => None,
        })
}

/// What a refusal of one part means for all: with others that took effect, nobody can say any more
/// that nothing was done.
fn of_all(refusal: Refusal, has_written: bool) -> Refusal {
    match has_written {
        true => RemoteError::OutcomeUnknown.into(),
        false => refusal,
    }
}
