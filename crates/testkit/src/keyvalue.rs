//! Requests of `pelton.v1.KeyValue` for operations of the store.

use api::keyvalue::{
    self, AppendOperation, AppendRequest, BatchMode, BatchRequest, Comparand, Comparison,
    DeleteOperation, DeleteRequest, GetOperation, GetRequest, IncrementOperation, IncrementRequest,
    OperationBody, PipeAnswers, PipeRequest, PutOperation, PutRequest, TransactRequest,
};
use store::{Condition, Expiry, Mode, Operation};

/// The request for one operation.
#[derive(Clone, Copy, Debug)]
pub struct OperationRequest<'a> {
    /// Name of the database, empty for the default.
    pub database: &'a str,
    /// The operation.
    pub operation: Operation<'a>,
}

impl OperationRequest<'_> {
    /// Appends the request message.
    ///
    /// # Panics
    ///
    /// For operations that the API does not have.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let database = self.database;
        match body(&self.operation) {
            OperationBody::Get(GetOperation { key, unserved }) => GetRequest {
                database,
                key,
                unserved,
            }
            .encode(out),
            OperationBody::Put(put) => PutRequest {
                database,
                key: put.key,
                value: put.value,
                return_previous: put.return_previous,
                condition: put.condition,
                expiry: put.expiry,
                unserved: put.unserved,
            }
            .encode(out),
            OperationBody::Delete(delete) => DeleteRequest {
                database,
                key: delete.key,
                return_previous: delete.return_previous,
                condition: delete.condition,
                unserved: delete.unserved,
            }
            .encode(out),
            OperationBody::Append(append) => AppendRequest {
                database,
                key: append.key,
                value: append.value,
                condition: append.condition,
                unserved: append.unserved,
            }
            .encode(out),
            OperationBody::Increment(increment) => IncrementRequest {
                database,
                key: increment.key,
                delta: increment.delta,
                initial: increment.initial,
                condition: increment.condition,
                unserved: increment.unserved,
            }
            .encode(out),
        }
    }
}

/// Appends a Batch. `max_answer_bytes` 0 is the default.
///
/// # Panics
///
/// As [`OperationRequest::encode`].
pub fn encode_batch(
    out: &mut Vec<u8>,
    database: &str,
    mode: Mode,
    max_answer_bytes: u64,
    operations: &[Operation<'_>],
) {
    BatchRequest {
        database,
        mode: mode_number(mode),
        operations: listed(operations)[..].into(),
        max_answer_bytes,
        ..BatchRequest::default()
    }
    .encode(out);
}

/// Appends a message of a Pipe; `answers` matters in the first one.
///
/// # Panics
///
/// As [`OperationRequest::encode`].
pub fn encode_pipe(
    out: &mut Vec<u8>,
    database: &str,
    answers: PipeAnswers,
    mode: Mode,
    max_answer_bytes: u64,
    operations: &[Operation<'_>],
) {
    PipeRequest {
        database,
        mode: mode_number(mode),
        operations: listed(operations)[..].into(),
        max_answer_bytes,
        answers: answers.number(),
        ..PipeRequest::default()
    }
    .encode(out);
}

/// Appends a Transact. Each of `comparisons` is a key and what must hold for it.
///
/// # Panics
///
/// As [`OperationRequest::encode`].
pub fn encode_transact(
    out: &mut Vec<u8>,
    database: &str,
    max_answer_bytes: u64,
    comparisons: &[(&[u8], Condition<'_>)],
    when_met: &[Operation<'_>],
    when_unmet: &[Operation<'_>],
) {
    let comparisons: Vec<_> = comparisons
        .iter()
        .map(|&(key, condition)| Comparison {
            key,
            condition: comparand(condition),
        })
        .collect();
    TransactRequest {
        database,
        comparisons: comparisons[..].into(),
        when_met: listed(when_met)[..].into(),
        when_unmet: listed(when_unmet)[..].into(),
        max_answer_bytes,
        ..TransactRequest::default()
    }
    .encode(out);
}

/// Appends the inside of the message `Operation`.
///
/// # Panics
///
/// As [`OperationRequest::encode`].
pub fn encode_operation(operation: &Operation<'_>, out: &mut Vec<u8>) {
    body(operation).encode(out);
}

fn listed<'a>(operations: &[Operation<'a>]) -> Vec<keyvalue::Operation<'a>> {
    operations.iter().map(|one| body(one).into()).collect()
}

fn mode_number(mode: Mode) -> i32 {
    let mode = match mode {
        Mode::Independent => BatchMode::Independent,
        _ => BatchMode::Atomic,
    };
    mode.number()
}

fn body<'a>(operation: &Operation<'a>) -> OperationBody<'a> {
    let unserved = 0;
    match *operation {
        Operation::Get { key } => OperationBody::Get(GetOperation { key, unserved }),
        Operation::Put {
            key,
            value,
            condition,
            expiry,
            want_previous,
        } => OperationBody::Put(PutOperation {
            key,
            value,
            return_previous: want_previous,
            condition: condition_of(condition),
            expiry: match expiry {
                Expiry::None => None,
                Expiry::AfterMs(ms) => Some(keyvalue::Expiry::TimeToLiveMs(ms)),
                Expiry::Keep => Some(keyvalue::Expiry::KeepTimeToLive(true)),
                Expiry::AtMs(_) => panic!("no request has such an expiry"),
            },
            unserved,
        }),
        Operation::Delete {
            key,
            condition,
            want_previous,
        } => OperationBody::Delete(DeleteOperation {
            key,
            return_previous: want_previous,
            condition: condition_of(condition),
            unserved,
        }),
        Operation::Append {
            key,
            value,
            condition,
        } => OperationBody::Append(AppendOperation {
            key,
            value,
            condition: condition_of(condition),
            unserved,
        }),
        Operation::Increment {
            key,
            delta,
            initial,
            condition,
        } => OperationBody::Increment(IncrementOperation {
            key,
            delta,
            initial,
            condition: condition_of(condition),
            unserved,
        }),
        _ => panic!("the API has no {operation:?}"),
    }
}

fn condition_of(condition: Condition<'_>) -> Option<keyvalue::Condition<'_>> {
    match condition {
        Condition::None => None,
        Condition::VersionIs(version) => Some(keyvalue::Condition::IfVersion(version)),
        Condition::Absent => Some(keyvalue::Condition::IfExists(false)),
        Condition::Present => Some(keyvalue::Condition::IfExists(true)),
        Condition::ValueIs(value) => Some(keyvalue::Condition::IfValue(value)),
    }
}

fn comparand(condition: Condition<'_>) -> Option<Comparand<'_>> {
    match condition {
        Condition::None => None,
        Condition::VersionIs(version) => Some(Comparand::Version(version)),
        Condition::Absent => Some(Comparand::Exists(false)),
        Condition::Present => Some(Comparand::Exists(true)),
        Condition::ValueIs(value) => Some(Comparand::Value(value)),
    }
}
