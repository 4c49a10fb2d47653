//! The contract in the simplest possible code: a sorted map, copied before each commit that may
//! fail.

use std::collections::BTreeMap;

use store::limits::ANSWER_BYTES_PER_OPERATION;
use store::{
    Condition, Decision, Expiry, KeyState, Mode, Operation, OperationStatus, Refusal, TransactList,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) value: Vec<u8>,
    pub(super) version: u64,
    pub(super) expires_ms: u64,
}

impl Stored {
    fn state(&self) -> KeyState {
        KeyState {
            version: self.version,
            expires_ms: self.expires_ms,
            value_bytes: self.value.len() as u64,
        }
    }
}

/// One database.
#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    entries: BTreeMap<Vec<u8>, Stored>,
    value_bytes_max: usize,
    is_on_disk: bool,
}

/// What should become of an operation.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Expected {
    pub(super) status: OperationStatus,
    pub(super) before: KeyState,
    pub(super) after: KeyState,
    pub(super) counter: i64,
    pub(super) value: Option<Vec<u8>>,
}

/// What should become of a commit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ExpectedCommit {
    pub(super) decision: Decision,
    pub(super) unmet_compare: Option<usize>,
    pub(super) operations: Vec<Expected>,
}

impl Model {
    pub(super) fn new(value_bytes_max: usize, is_on_disk: bool) -> Model {
        Model {
            entries: BTreeMap::new(),
            value_bytes_max,
            is_on_disk,
        }
    }

    /// The live entries, in order.
    pub(super) fn live(&self, now_ms: u64) -> Vec<(&[u8], &Stored)> {
        let alive = |stored: &Stored| stored.expires_ms == 0 || now_ms < stored.expires_ms;
        self.entries
            .iter()
            .filter(|(_, stored)| alive(stored))
            .map(|(key, stored)| (&key[..], stored))
            .collect()
    }

    pub(super) fn get(&self, key: &[u8], now_ms: u64) -> Option<&Stored> {
        self.live(now_ms)
            .into_iter()
            .find(|(one, _)| *one == key)
            .map(|(_, stored)| stored)
    }

    pub(super) fn commit(
        &mut self,
        mode: Mode,
        operations: &[(TransactList, Operation<'_>)],
        sequence: u64,
        now_ms: u64,
        answer_limit: usize,
    ) -> ExpectedCommit {
        let saved = self.clone();
        let mut unmet_compare = None;
        let mut taken: Vec<&Operation<'_>> =
            operations.iter().map(|(_, operation)| operation).collect();
        if mode == Mode::Transact {
            let of = |list| {
                operations
                    .iter()
                    .filter(move |one| one.0 == list)
                    .map(|one| &one.1)
            };
            unmet_compare =
                of(TransactList::Compares).position(|compare| !self.holds(compare, now_ms));
            taken = of(if unmet_compare.is_none() {
                TransactList::Then
            } else {
                TransactList::Otherwise
            })
            .collect();
        }
        let mut outcomes = Vec::new();
        let mut answer_bytes = 0;
        for (index, operation) in taken.into_iter().enumerate() {
            let outcome = self.operation(operation, sequence, now_ms);
            let status = outcome.status;
            answer_bytes += ANSWER_BYTES_PER_OPERATION + outcome.value.as_ref().map_or(0, Vec::len);
            outcomes.push(outcome);
            let decision = if answer_bytes > answer_limit {
                outcomes.clear();
                Decision::Refused(Refusal::AnswerTooLarge {
                    limit_bytes: answer_limit,
                })
            } else if mode != Mode::Independent && status != OperationStatus::Done {
                outcomes.drain(..index);
                Decision::Failed { index, status }
            } else {
                continue;
            };
            *self = saved;
            return ExpectedCommit {
                decision,
                unmet_compare,
                operations: outcomes,
            };
        }
        ExpectedCommit {
            decision: Decision::Applied,
            unmet_compare,
            operations: outcomes,
        }
    }

    fn holds(&self, operation: &Operation<'_>, now_ms: u64) -> bool {
        let (key, condition) = match *operation {
            Operation::Get { .. }
            | Operation::WrappingIncrement { .. }
            | Operation::Expire { .. }
            | Operation::Clear => return true,
            Operation::Put { key, condition, .. }
            | Operation::Delete { key, condition, .. }
            | Operation::Append { key, condition, .. }
            | Operation::Increment { key, condition, .. }
            | Operation::Compare { key, condition } => (key, condition),
        };
        let stored = self.get(key, now_ms);
        match condition {
            Condition::None => true,
            Condition::Absent | Condition::VersionIs(0) => stored.is_none(),
            Condition::Present => stored.is_some(),
            Condition::VersionIs(version) => stored.is_some_and(|stored| stored.version == version),
            Condition::ValueIs(value) => stored.is_some_and(|stored| stored.value == value),
        }
    }

    fn operation(&mut self, operation: &Operation<'_>, version: u64, now_ms: u64) -> Expected {
        let key = match *operation {
            Operation::Get { key }
            | Operation::Put { key, .. }
            | Operation::Delete { key, .. }
            | Operation::Append { key, .. }
            | Operation::Increment { key, .. }
            | Operation::WrappingIncrement { key, .. }
            | Operation::Compare { key, .. } => key,
            Operation::Expire { key } => return self.expire(key, now_ms),
            Operation::Clear => {
                let counter = self.entries.len() as i64;
                self.entries.clear();
                let (before, after) = (KeyState::default(), KeyState::default());
                return Expected {
                    status: OperationStatus::Done,
                    before,
                    after,
                    counter,
                    value: None,
                };
            }
        };
        let old = self.get(key, now_ms).cloned();
        let (status, new, counter) = if self.holds(operation, now_ms) {
            self.result(operation, old.clone(), version, now_ms)
        } else {
            (OperationStatus::ConditionFailed, old.clone(), 0)
        };
        let wanted = matches!(
            operation,
            Operation::Get { .. }
                | Operation::Put {
                    want_previous: true,
                    ..
                }
                | Operation::Delete {
                    want_previous: true,
                    ..
                }
        );
        let state =
            |stored: &Option<Stored>| stored.as_ref().map_or(KeyState::default(), Stored::state);
        let (mut before, after) = (state(&old), state(&new));
        if self.is_on_disk && needs_nothing(operation) {
            before = KeyState::default();
        }
        if new != old {
            match new {
                Some(new) => self.entries.insert(key.to_vec(), new),
                None => self.entries.remove(key),
            };
        }
        Expected {
            status,
            before,
            after,
            counter,
            value: old.filter(|_| wanted).map(|old| old.value),
        }
    }

    /// Status, what the key holds afterwards, and the counter.
    fn result(
        &self,
        operation: &Operation<'_>,
        old: Option<Stored>,
        version: u64,
        now_ms: u64,
    ) -> (OperationStatus, Option<Stored>, i64) {
        let kept_ms = old.as_ref().map_or(0, |old| old.expires_ms);
        match *operation {
            Operation::Put { value, expiry, .. } => {
                let expires_ms = match expiry {
                    Expiry::None => 0,
                    Expiry::Keep => kept_ms,
                    Expiry::AfterMs(ms) => now_ms + ms,
                    Expiry::AtMs(ms) => ms,
                };
                (
                    OperationStatus::Done,
                    Some(Stored {
                        value: value.to_vec(),
                        version,
                        expires_ms,
                    }),
                    0,
                )
            }
            Operation::Delete { .. } => (OperationStatus::Done, None, 0),
            Operation::Append { value: added, .. } => {
                let mut value = old.as_ref().map_or(Vec::new(), |old| old.value.clone());
                value.extend(added);
                if value.len() > self.value_bytes_max {
                    return (OperationStatus::TooLarge, old, 0);
                }
                (
                    OperationStatus::Done,
                    Some(Stored {
                        value,
                        version,
                        expires_ms: kept_ms,
                    }),
                    0,
                )
            }
            Operation::Increment { delta, initial, .. } => {
                let number = match &old {
                    None => initial,
                    Some(old) if old.value.len() == 8 => old
                        .value
                        .iter()
                        .fold(0, |number, &byte| (number << 8) | i64::from(byte)),
                    Some(_) => return (OperationStatus::WrongLength, old, 0),
                };
                let sum = i128::from(number) + i128::from(delta);
                match i64::try_from(sum) {
                    Ok(sum) => {
                        let value = sum.to_be_bytes().to_vec();
                        (
                            OperationStatus::Done,
                            Some(Stored {
                                value,
                                version,
                                expires_ms: kept_ms,
                            }),
                            sum,
                        )
                    }
                    Err(_) => (OperationStatus::Overflow, old, number),
                }
            }
            Operation::WrappingIncrement { delta, initial, .. } => {
                let number = old.as_ref().map_or(initial, |old| {
                    let mut bytes = old.value.clone();
                    bytes.truncate(8);
                    bytes.splice(0..0, vec![0; 8 - bytes.len()]);
                    i64::from_be_bytes(bytes.try_into().expect("there are 8"))
                });
                let sum = number.wrapping_add(delta);
                let stored = Stored {
                    value: sum.to_be_bytes().to_vec(),
                    version,
                    expires_ms: kept_ms,
                };
                (OperationStatus::Done, Some(stored), sum)
            }
            Operation::Get { .. }
            | Operation::Compare { .. }
            | Operation::Expire { .. }
            | Operation::Clear => (OperationStatus::Done, old, 0),
        }
    }

    fn expire(&mut self, key: &[u8], now_ms: u64) -> Expected {
        let stored = self.entries.get(key);
        let has_expired =
            stored.is_some_and(|stored| stored.expires_ms != 0 && now_ms >= stored.expires_ms);
        if has_expired {
            self.entries.remove(key);
        }
        Expected {
            status: OperationStatus::Done,
            before: KeyState::default(),
            after: KeyState::default(),
            counter: i64::from(has_expired),
            value: None,
        }
    }

    /// Removes what has expired; returns how many that were.
    pub(super) fn sweep(&mut self, now_ms: u64) -> usize {
        let before = self.entries.len();
        self.entries
            .retain(|_, stored| stored.expires_ms == 0 || now_ms < stored.expires_ms);
        before - self.entries.len()
    }

    /// When the first entry expires, or has expired without being swept.
    pub(super) fn first_expiry_ms(&self) -> Option<u64> {
        let expiries = self.entries.values().map(|stored| stored.expires_ms);
        expiries.filter(|&expires_ms| expires_ms != 0).min()
    }
}

/// Whether what an operation does and answers is the same whatever was there.
fn needs_nothing(operation: &Operation<'_>) -> bool {
    matches!(
        operation,
        Operation::Put {
            condition: Condition::None,
            expiry: Expiry::None | Expiry::AfterMs(_) | Expiry::AtMs(_),
            want_previous: false,
            ..
        }
    )
}
