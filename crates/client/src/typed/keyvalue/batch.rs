//! Several operations in one request.

use api::keyvalue::{BatchMode, BatchResponse, Failure, Operation, OperationResult, ResultBody};
use api::rpc::keyvalue::{Batch, Pipe, Transact};
use wire::grpc::{Code, Status};

use super::single::{
    AppendOutcome, DeleteOutcome, IncrementOutcome, PutOutcome, StoredValue, found_value,
};
use crate::typed::{Call, Reply, TypedMethod};

macro_rules! independent {
    ($($method:ident),*) => { $(
        impl<O> Call<'_, $method, O> {
            /// Each operation for itself, in order: one that fails does not hinder the others.
            pub fn independent(mut self) -> Self {
                self.request.mode = BatchMode::Independent.number();
                self
            }
        }
    )* };
}

independent!(Batch, Pipe);

macro_rules! bounded {
    ($($method:ident),*) => { $(
        impl<O> Call<'_, $method, O> {
            /// Takes a response of so many bytes, of a Pipe for each batch, at most 64 MiB. Without
            /// this the server refuses what could have a response of more than 4 MiB, with nothing
            /// applied.
            pub fn max_response_bytes(mut self, bytes: u64) -> Self {
                self.request.max_answer_bytes = bytes;
                self
            }
        }
    )* };
}

bounded!(Batch, Transact, Pipe);

impl<'a, O> Call<'a, Transact, O> {
    /// What is applied, as one commit, if a comparison is not met.
    pub fn otherwise(mut self, operations: &'a [Operation<'a>]) -> Self {
        self.request.when_unmet = operations.into();
        self
    }
}

/// What became of one operation of several.
#[derive(Clone, Debug)]
pub enum OperationOutcome {
    /// Of a get; `None`: there is no such key.
    Get(Option<StoredValue>),
    /// Of a put.
    Put(PutOutcome),
    /// Of a delete.
    Delete(DeleteOutcome),
    /// Of an append.
    Append(AppendOutcome),
    /// Of an increment.
    Increment(IncrementOutcome),
    /// It would have ended its call with this status, had it been alone.
    Failed(Status),
    /// An outcome that this version does not know.
    Unknown,
}

impl OperationOutcome {
    pub(super) fn of(result: &OperationResult<'_>) -> OperationOutcome {
        match &result.result {
            Some(ResultBody::Get(get)) => OperationOutcome::Get(found_value(get)),
            Some(ResultBody::Put(put)) => OperationOutcome::Put(PutOutcome::of(put)),
            Some(ResultBody::Delete(delete)) => OperationOutcome::Delete(DeleteOutcome::of(delete)),
            Some(ResultBody::Append(append)) => OperationOutcome::Append(AppendOutcome::of(append)),
            Some(ResultBody::Increment(increment)) => {
                OperationOutcome::Increment(IncrementOutcome::of(increment))
            }
            Some(ResultBody::Failure(failure)) => OperationOutcome::Failed(status_of(failure)),
            None => OperationOutcome::Unknown,
        }
    }
}

/// Returns the status that a failure stands for.
pub(super) fn status_of(failure: &Failure<'_>) -> Status {
    let code = u8::try_from(failure.code).map_or(Code::Unknown, Code::from_u8);
    Status::new(code, failure.message.to_owned())
}

/// The operation that kept a batch from taking effect.
#[derive(Clone, Debug)]
pub struct FailedOperation {
    /// Its index, from 0.
    pub index: usize,
    /// How it failed.
    pub outcome: OperationOutcome,
}

/// What became of a batch.
#[derive(Clone, Debug)]
pub struct BatchOutcome {
    /// One for each operation, in their order; empty if the batch did not take effect.
    pub results: Vec<OperationOutcome>,
    /// The first operation that failed, if the batch was to be applied as a whole and was not.
    pub failed: Option<FailedOperation>,
    /// The sequence of the commit; of a batch of reads, that of the view it was read from.
    pub sequence: u64,
}

impl BatchOutcome {
    /// Returns whether the batch took effect. One of independent operations always does.
    pub fn is_applied(&self) -> bool {
        self.failed.is_none()
    }

    pub(super) fn of(batch: &BatchResponse<'_>) -> BatchOutcome {
        let failed = (!batch.applied).then(|| FailedOperation {
            index: batch.failed_operation as usize,
            outcome: (batch.failed_result.as_ref())
                .map_or(OperationOutcome::Unknown, OperationOutcome::of),
        });
        // They were decoded when the response came.
        let results = batch.results.iter().flatten();
        BatchOutcome {
            results: results
                .map(|result| OperationOutcome::of(&result))
                .collect(),
            failed,
            sequence: batch.sequence,
        }
    }
}

impl TypedMethod for Batch {
    type Outcome = BatchOutcome;

    fn outcome(reply: Reply<Batch>) -> BatchOutcome {
        BatchOutcome::of(&reply.message())
    }
}

/// What became of a transaction.
#[derive(Clone, Debug)]
pub struct TransactOutcome {
    /// The index, from 0, of the first comparison that was not met; `None`: all were.
    pub unmet_comparison: Option<usize>,
    /// What became of the operations that were chosen so.
    pub batch: BatchOutcome,
}

impl TypedMethod for Transact {
    type Outcome = TransactOutcome;

    fn outcome(reply: Reply<Transact>) -> TransactOutcome {
        let transact = reply.message();
        TransactOutcome {
            unmet_comparison: (!transact.met).then_some(transact.unmet_comparison as usize),
            batch: BatchOutcome::of(&transact.batch.unwrap_or_default()),
        }
    }
}
