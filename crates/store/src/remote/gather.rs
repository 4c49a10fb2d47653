//! The parts of one commit, carried out some at a time, and put together again.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::backend::RemoteBackend;
use super::commit::RemoteCommit;
use super::life::RequestLife;
use super::room::{BUSY, RoomShare};
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
        self.share.room().count_outcomes(&outcomes);
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
    life: RequestLife,
    state: Mutex<GatherState>,
}

#[derive(Default)]
struct GatherState {
    waiting: VecDeque<RemoteCommit>,
    under_way: usize,
    /// Somebody hands parts over, and goes on for as long as there is something to do.
    is_handing_over: bool,
    /// What became of the parts that are complete.
    complete: Vec<Option<Outcomes>>,
    left: usize,
    /// A part has written something, or may have.
    has_written: bool,
    /// Why the whole comes to nothing: then no further part is begun, and no outcome is kept.
    refusal: Option<Refusal>,
    /// Bytes of the values in `complete`.
    bytes: usize,
    limits: GatherLimits,
    end: Option<CommitEnd>,
}

/// What the outcomes of all parts may hold.
#[derive(Clone, Copy, Default)]
struct GatherLimits {
    /// Bytes of the whole answer.
    answer_bytes: usize,
    /// Bytes of the values in it.
    value_bytes: usize,
    /// Bytes of these that are charged before they have come.
    charged_bytes: usize,
}

impl GatherLimits {
    fn new(commit: &CommitRecord) -> GatherLimits {
        let operations = commit.operations().len();
        let beside = crate::limits::ANSWER_BYTES_PER_OPERATION * operations;
        GatherLimits {
            answer_bytes: commit.answer_bytes,
            value_bytes: commit.answer_bytes.saturating_sub(beside),
            charged_bytes: operations.saturating_mul(limits::READ_BYTES),
        }
    }

    /// Returns how much is to be charged for so many bytes of values.
    fn beyond_charged(self, bytes: usize) -> usize {
        bytes.saturating_sub(self.charged_bytes)
    }
}

impl Gather {
    /// A commit of which each part has the operations at `places`.
    pub(super) fn new<'a>(
        backend: Arc<dyn RemoteBackend>,
        commit: CommitRecord,
        places: impl ExactSizeIterator<Item = &'a [usize]>,
        (end, life): (CommitEnd, RequestLife),
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
            limits: GatherLimits::new(&commit),
            end: Some(end),
            ..GatherState::default()
        };
        Arc::new(Gather {
            backend,
            commit,
            operations,
            life,
            state: Mutex::new(state),
        })
    }

    /// Begins to carry out all parts.
    pub(super) fn begin(&self, parts: VecDeque<RemoteCommit>) {
        self.lock().waiting = parts;
        self.hand_over();
    }

    /// Hands over what may be under way. A part can be complete before `commit` returns: whoever
    /// hands over goes on then, so that the stack does not grow with each part. Once one is
    /// refused, or nobody waits any more, those that were not handed over come to nothing.
    fn hand_over(&self) {
        let mut state = self.lock();
        if std::mem::replace(&mut state.is_handing_over, true) {
            return;
        }
        while state.under_way < limits::PARTS_AT_ONCE
            && let Some(part) = state.waiting.pop_front()
        {
            if self.life.is_over() {
                state.refuse(RemoteError::TimedOut.into());
            }
            if state.refusal.is_some() {
                state.left -= 1;
                part.discard();
                continue;
            }
            state.under_way += 1;
            drop(state);
            self.backend.commit(part);
            state = self.lock();
        }
        state.is_handing_over = false;
        self.end_if_complete(state);
    }

    fn complete(&self, number: usize, outcome: PartOutcome) {
        let mut state = self.lock();
        state.under_way = state.under_way.saturating_sub(1);
        state.left -= 1;
        state.take(number, outcome);
        drop(state);
        self.hand_over();
    }

    fn end_if_complete(&self, mut state: MutexGuard<'_, GatherState>) {
        if state.left > 0 {
            return;
        }
        let Some(end) = state.end.take() else {
            return;
        };
        let parts = std::mem::take(&mut state.complete);
        let refusal = state.refusal_of_all();
        drop(state);
        end.end(match refusal {
            Some(refusal) => self.refused(refusal),
            None => self.join(&parts),
        });
    }

    fn refused(&self, refusal: Refusal) -> Outcomes {
        let mut outcomes = Outcomes::new();
        outcomes.refuse(&self.commit, refusal);
        outcomes
    }

    /// Puts the outcomes of all parts together.
    fn join(&self, parts: &[Option<Outcomes>]) -> Outcomes {
        let mut joined = Outcomes::new();
        let mark = joined.mark();
        let mut sequence = 0;
        for &(part, index) in &self.operations {
            let part = parts.get(part).and_then(Option::as_ref);
            let outcome = part.map(|part| part.get(0));
            let operation = outcome.and_then(|outcome| {
                sequence = sequence.max(outcome.sequence);
                outcome.operations().nth(index)
            });
            let Some(operation) = operation else {
                debug_assert!(false, "a part that took effect has all its outcomes");
                return self.refused(RemoteError::OutcomeUnknown.into());
            };
            joined.push_copy(&operation);
        }
        joined.finish(&mark, &self.commit, sequence, Decision::Applied.into());
        joined
    }

    fn lock(&self) -> MutexGuard<'_, GatherState> {
        // Whole values are put in and taken out: sound whoever panicked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl GatherState {
    /// Takes the outcome of a part, unless all of it comes to nothing.
    fn take(&mut self, number: usize, outcome: PartOutcome) {
        self.has_written |= outcome.has_written;
        let outcomes = outcome.outcomes;
        if let Some(refusal) = refusal_of(&outcomes) {
            return self.refuse(refusal);
        }
        if self.refusal.is_some() {
            return;
        }
        let limits = self.limits;
        let before = limits.beyond_charged(self.bytes);
        self.bytes += value_bytes(&outcomes);
        // Each part alone was not too large: what they have written stays.
        if self.bytes > limits.value_bytes {
            let limit_bytes = limits.answer_bytes;
            return self.refuse(Refusal::AnswerTooLarge { limit_bytes });
        }
        let more = limits.beyond_charged(self.bytes) - before;
        if !(self.end.as_ref()).is_none_or(|end| end.share.grow(more)) {
            return self.refuse(BUSY.into());
        }
        if let Some(place) = self.complete.get_mut(number) {
            *place = Some(outcomes);
        }
    }

    /// Notes why the whole comes to nothing, and drops what is kept.
    fn refuse(&mut self, refusal: Refusal) {
        self.refusal.get_or_insert(refusal);
        self.complete.clear();
    }

    /// Returns why the whole comes to nothing: with a part that has written, nobody can say any
    /// more that nothing was done.
    fn refusal_of_all(&self) -> Option<Refusal> {
        let refusal = self.refusal?;
        Some(match self.has_written {
            true => RemoteError::OutcomeUnknown.into(),
            false => refusal,
        })
    }
}

fn value_bytes(outcomes: &Outcomes) -> usize {
    let operations = outcomes.iter().flat_map(|outcome| outcome.operations());
    operations
        .map(|operation| operation.value.map_or(0, |value| value.len()))
        .sum()
}

/// Why a part came to nothing, or to something unknown.
fn refusal_of(outcomes: &Outcomes) -> Option<Refusal> {
    outcomes.iter().find_map(|outcome| match outcome.decision {
        Decision::Refused(refusal) => Some(refusal),
        _ => None,
    })
}
