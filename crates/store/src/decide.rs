//! Decides one commit: what it answers, and what it changes.
//!
//! This is the meaning of every operation, written once for every kind of database. Nothing is
//! changed here: the effects are applied (and, for a durable database, logged before) by the
//! committer.

use crate::batch::WriteBatch;
use crate::database::DatabaseLimits;
use crate::effects::{After, Effects, NewValue};
use crate::limits::ANSWER_BYTES_PER_OPERATION;
use crate::memory::{MemoryIndex, bytes_of};
use crate::operation::{Expiry, Mode, TransactList};
use crate::outcome::{CommitVerdict, Decision, KeyState, OperationStatus, Outcomes, Refusal};
use crate::record::{Action, Check, CommitRecord, OperationRecord};
use crate::value::Entry;

/// The state against which a commit is decided: what all earlier commits of its database have left,
/// whether or not readers see it yet.
pub(crate) trait PendingState {
    /// What it knows of a key is at hand. If not, it is asked only where that
    /// [matters](OperationRecord::needs_state); and what an entry takes is not compared with what
    /// the one before took.
    const IS_IN_MEMORY: bool;

    /// The entry of a key, be it expired or not.
    fn find<'a>(&'a self, key: &'a [u8], hash: u64) -> Option<Entry<'a>>;
}

impl PendingState for MemoryIndex {
    const IS_IN_MEMORY: bool = true;

    #[inline]
    fn find<'a>(&'a self, key: &'a [u8], hash: u64) -> Option<Entry<'a>> {
        MemoryIndex::find(self, key, hash)
    }
}

/// What surrounds a commit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context {
    pub(crate) sequence: u64,
    pub(crate) now_ms: u64,
    pub(crate) limits: DatabaseLimits,
}

/// Decides a commit. Unless the decision is to apply, there are no effects afterwards, and the
/// outcomes are those that [`CommitOutcome::operations`](crate::CommitOutcome::operations)
/// promises.
pub(crate) fn decide_operations(
    pending: &impl PendingState,
    batch: &WriteBatch,
    commit: &CommitRecord,
    context: Context,
    effects: &mut Effects,
    outcomes: &mut Outcomes,
) -> CommitVerdict {
    effects.begin();
    let mark = outcomes.mark();
    let mut decider = CommitDecider {
        pending,
        batch,
        commit,
        context,
        effects,
        outcomes,
        answer_bytes: 0,
    };
    let mut unmet_compare = None;
    let decided = match commit.mode {
        Mode::Independent => decider.independent(),
        Mode::Atomic => decider.atomic(TransactList::Compares),
        Mode::Transact => {
            unmet_compare = decider.unmet_compare();
            decider.atomic(if unmet_compare.is_none() {
                TransactList::Then
            } else {
                TransactList::Otherwise
            })
        }
    };
    let decision = decided.err().unwrap_or(Decision::Applied);
    if decision != Decision::Applied {
        effects.clear();
        outcomes.truncate(&mark, matches!(decision, Decision::Failed { .. }));
    }
    CommitVerdict {
        decision,
        unmet_compare,
    }
}

/// A decision in the making. Where a function returns an error, that is the decision.
struct CommitDecider<'a, P> {
    pending: &'a P,
    batch: &'a WriteBatch,
    commit: &'a CommitRecord,
    context: Context,
    effects: &'a mut Effects,
    outcomes: &'a mut Outcomes,
    answer_bytes: usize,
}

impl<P: PendingState> CommitDecider<'_, P> {
    fn independent(&mut self) -> Result<(), Decision> {
        for place in self.commit.operations() {
            self.operation(place)?;
        }
        Ok(())
    }

    /// All operations of one list, or none.
    fn atomic(&mut self, list: TransactList) -> Result<(), Decision> {
        let (batch, commit) = (self.batch, self.commit);
        let in_list = commit
            .operations()
            .filter(|&place| batch.operation(place).list == list);
        for (index, place) in in_list.enumerate() {
            match self.operation(place)? {
                OperationStatus::Done => {}
                status => return Err(Decision::Failed { index, status }),
            }
        }
        Ok(())
    }

    /// The first of the compares before the lists that does not hold.
    fn unmet_compare(&self) -> Option<usize> {
        let compares = self
            .commit
            .operations()
            .map(|place| self.batch.operation(place));
        compares
            .take_while(|compare| compare.list == TransactList::Compares)
            .position(|compare| {
                let entry = self.pending.find(self.batch.key(compare), compare.hash);
                let current = entry.filter(|entry| !entry.is_expired(self.context.now_ms));
                !holds(
                    compare.check,
                    self.batch.expected_value(compare),
                    current.as_ref(),
                )
            })
    }

    /// Decides the operation at `place` of the batch.
    fn operation(&mut self, place: usize) -> Result<OperationStatus, Decision> {
        let (batch, pending, context) = (self.batch, self.pending, self.context);
        let record = batch.operation(place);
        let own = self.effects.find(batch, record);
        let is_plain = !P::IS_IN_MEMORY && !record.needs_state();
        let found = if own.is_some() || is_plain {
            None
        } else {
            pending.find(batch.key(record), record.hash)
        };

        let entry = match own {
            // It is not told where it is known by chance either.
            _ if is_plain => None,
            Some(own) => self.effects.get(own).entry(batch, context.sequence),
            None => found,
        };
        if matches!(record.action, Action::Expire) {
            let has_expired = entry.is_some_and(|entry| entry.is_expired(context.now_ms));
            return self.expire(place, own, found.as_ref(), has_expired);
        }
        let current = entry.filter(|entry| !entry.is_expired(context.now_ms));
        let (status, change, counter) = act(batch, record, current.as_ref(), &context);
        let before = current.as_ref().map_or(KeyState::default(), state_of);
        let after = change.state_after(before, batch.value(record).len(), context.sequence);
        let wanted = record.want_previous || matches!(record.action, Action::Get);
        let value = current.as_ref().map(|entry| entry.value).filter(|_| wanted);
        count_answer(
            &mut self.answer_bytes,
            self.commit,
            value.map_or(0, |value| value.len()),
        )?;
        self.outcomes.push(status, before, after, counter, value);

        let after = match change {
            OperationEffect::None => return Ok(status),
            OperationEffect::Remove => After::Absent,
            OperationEffect::Put { expires_ms } => After::Present {
                value: NewValue::Given(place),
                expires_ms,
            },
            OperationEffect::Count { expires_ms } => After::Present {
                value: NewValue::Counter(counter.to_be_bytes()),
                expires_ms,
            },
            OperationEffect::Extend { expires_ms } => {
                let current_len = before.value_bytes as usize;
                let value = self.extend(place, own, current_len, found.as_ref())?;
                After::Present {
                    value: NewValue::Built(value),
                    expires_ms,
                }
            }
        };
        let base_bytes = base_bytes::<P>(found.as_ref());
        self.effects.set(batch, place, own, base_bytes, after);
        Ok(status)
    }

    /// To everybody else the key is absent already, so the outcome says so, and counts what was
    /// removed.
    fn expire(
        &mut self,
        place: usize,
        own: Option<usize>,
        found: Option<&Entry<'_>>,
        has_expired: bool,
    ) -> Result<OperationStatus, Decision> {
        count_answer(&mut self.answer_bytes, self.commit, 0)?;
        let (status, absent) = (OperationStatus::Done, KeyState::default());
        self.outcomes
            .push(status, absent, absent, i64::from(has_expired), None);
        if has_expired {
            let base_bytes = base_bytes::<P>(found);
            (self.effects).set(self.batch, place, own, base_bytes, After::Expired);
        }
        Ok(status)
    }

    /// The value of an Append to a key that has one: in this commit's own effects, or in the
    /// pending state.
    fn extend(
        &mut self,
        place: usize,
        own: Option<usize>,
        current_len: usize,
        found: Option<&Entry<'_>>,
    ) -> Result<Vec<u8>, Decision> {
        let added = self.batch.value(self.batch.operation(place)).bytes();
        let is_copied = own.is_none_or(|own| !self.effects.is_built(own));
        let copied_bytes = if is_copied { current_len } else { 0 };
        let limit_bytes = self.context.limits.rewritten_bytes;
        if self.effects.rewritten_bytes() + copied_bytes > limit_bytes {
            return Err(Decision::Refused(Refusal::RewritesTooMuch { limit_bytes }));
        }
        self.effects.count_rewritten(copied_bytes);
        let mut value = Vec::new();
        if let Some(own) = own {
            value = self.effects.take_value(self.batch, own);
        } else if let Some(entry) = found {
            value.reserve_exact(current_len + added.len());
            value.extend_from_slice(&entry.value);
        }
        value.extend_from_slice(added);
        Ok(value)
    }
}

/// What the entry of a key takes that a commit will replace. On disk it goes on to take that until
/// the tables are merged.
fn base_bytes<P: PendingState>(found: Option<&Entry<'_>>) -> u64 {
    found.filter(|_| P::IS_IN_MEMORY).map_or(0, bytes_of)
}

/// Adds to what the answer to a commit will take.
fn count_answer(
    answer_bytes: &mut usize,
    commit: &CommitRecord,
    value_bytes: usize,
) -> Result<(), Decision> {
    *answer_bytes += ANSWER_BYTES_PER_OPERATION + value_bytes;
    let limit_bytes = commit.answer_bytes;
    if *answer_bytes > limit_bytes {
        return Err(Decision::Refused(Refusal::AnswerTooLarge { limit_bytes }));
    }
    Ok(())
}

/// What an operation does to its key.
#[derive(Clone, Copy)]
enum OperationEffect {
    None,
    Remove,
    /// Its value becomes the one given.
    Put {
        expires_ms: u64,
    },
    /// The value given comes behind the one that is there.
    Extend {
        expires_ms: u64,
    },
    /// Its value becomes the counter.
    Count {
        expires_ms: u64,
    },
}

impl OperationEffect {
    fn state_after(self, before: KeyState, given_len: usize, version: u64) -> KeyState {
        let given_bytes = given_len as u64;
        match self {
            OperationEffect::None => before,
            OperationEffect::Remove => KeyState::default(),
            OperationEffect::Put { expires_ms } => KeyState {
                version,
                expires_ms,
                value_bytes: given_bytes,
            },
            OperationEffect::Extend { expires_ms } => KeyState {
                version,
                expires_ms,
                value_bytes: before.value_bytes + given_bytes,
            },
            OperationEffect::Count { expires_ms } => KeyState {
                version,
                expires_ms,
                value_bytes: 8,
            },
        }
    }
}

/// What an operation does, and the counter after it.
fn act(
    batch: &WriteBatch,
    record: &OperationRecord,
    current: Option<&Entry<'_>>,
    context: &Context,
) -> (OperationStatus, OperationEffect, i64) {
    let nothing = |status| (status, OperationEffect::None, 0);
    let done = |change| (OperationStatus::Done, change, 0);
    if !holds(record.check, batch.expected_value(record), current) {
        return nothing(OperationStatus::ConditionFailed);
    }
    let kept_ms = current.map_or(0, |entry| entry.expires_ms);
    match record.action {
        Action::Get | Action::Compare => nothing(OperationStatus::Done),
        Action::Put(expiry) => {
            let expires_ms = match expiry {
                Expiry::None => 0,
                Expiry::Keep => kept_ms,
                // 0 means that there is none, so an entry that expires at once expires at 1.
                Expiry::AfterMs(ms) => context.now_ms.saturating_add(ms).max(1),
                Expiry::AtMs(ms) => ms,
            };
            done(OperationEffect::Put { expires_ms })
        }
        Action::Delete => done(if current.is_some() {
            OperationEffect::Remove
        } else {
            OperationEffect::None
        }),
        Action::Append => match current {
            None => done(OperationEffect::Put { expires_ms: 0 }),
            Some(entry)
                if entry.value.len() + batch.value(record).len() > context.limits.value_bytes =>
            {
                nothing(OperationStatus::TooLarge)
            }
            Some(_) => done(OperationEffect::Extend {
                expires_ms: kept_ms,
            }),
        },
        Action::Increment { delta, initial } => {
            let number = match current.map(|entry| <[u8; 8]>::try_from(entry.value.bytes())) {
                None => initial,
                Some(Ok(bytes)) => i64::from_be_bytes(bytes),
                Some(Err(_)) => return nothing(OperationStatus::WrongLength),
            };
            match number.checked_add(delta) {
                Some(sum) => (
                    OperationStatus::Done,
                    OperationEffect::Count {
                        expires_ms: kept_ms,
                    },
                    sum,
                ),
                None => (OperationStatus::Overflow, OperationEffect::None, number),
            }
        }
        Action::WrappingIncrement { delta, initial } => {
            let number = current.map_or(initial, |entry| leading_number(entry.value.bytes()));
            let change = OperationEffect::Count {
                expires_ms: kept_ms,
            };
            (OperationStatus::Done, change, number.wrapping_add(delta))
        }
        Action::Expire | Action::Whole => unreachable!("these are not decided here"),
    }
}

/// Returns the number that the first 8 bytes of a value are, big-endian; a shorter value is a
/// number without sign.
pub fn leading_number(value: &[u8]) -> i64 {
    let add = |number: i64, &byte: &u8| (number << 8) | i64::from(byte);
    value.iter().take(8).fold(0, add)
}

/// Whether a condition holds for a key as it is.
fn holds(check: Check, expected: &[u8], current: Option<&Entry<'_>>) -> bool {
    match check {
        Check::None => true,
        Check::Absent => current.is_none(),
        Check::Present => current.is_some(),
        Check::VersionIs(version) => current.map_or(0, |entry| entry.version) == version,
        Check::ValueIs => current.is_some_and(|entry| entry.value.bytes() == expected),
    }
}

fn state_of(entry: &Entry<'_>) -> KeyState {
    KeyState {
        version: entry.version,
        expires_ms: entry.expires_ms,
        value_bytes: entry.value.len() as u64,
    }
}
