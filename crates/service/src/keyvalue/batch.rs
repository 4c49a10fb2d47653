//! Batch: several operations in one request.

use store::{Commit, CommitOutcome, Decision, Operation, OperationOutcome, View};

use super::messages::{
    BatchRequest, BatchResponse, Failure, GetResponse, OperationKind, OperationResult,
};
use super::{Pushed, Step, answer, refuse};
use crate::call::{Actions, Shared};
use crate::limits::{ANSWER_BYTES, ANSWER_BYTES_MAX, ANSWER_FRAME_BYTES, FAILURE_BYTES};
use crate::method::Method;
use crate::status::Status;

/// A batch of reads that waits for a view.
pub(super) struct ReadBatch {
    /// The request, decoded again when it is served: cheaper than a list of keys.
    request: Box<[u8]>,
    max_answer_bytes: u64,
}

/// A batch with a write that is with the committer.
pub(super) struct WriteBatch {
    pushed: Box<[Pushed]>,
    max_answer_bytes: u64,
}

/// Takes up a request.
pub(super) fn begin(
    bytes: &[u8],
    shared: &Shared,
    actions: &mut impl Actions,
) -> Result<Step, Status> {
    let request =
        BatchRequest::decode(bytes).map_err(|invalid| refuse::invalid(Method::Batch, invalid))?;
    let database = refuse::find_database(request.database, shared)?;
    let max_answer_bytes = match request.max_answer_bytes {
        0 => ANSWER_BYTES,
        given if given > ANSWER_BYTES_MAX => return Err(answer_bound_too_large(given)),
        given => given,
    };
    let allowed = shared
        .store
        .limits(database)
        .unwrap_or_default()
        .commit_operations;
    if request.operation_count > allowed {
        return Err(refuse::too_many_operations(
            Method::Batch,
            request.operation_count,
            allowed,
        ));
    }
    if request.writes {
        let commit = actions.write(database, request.mode);
        let batch = begin_writes(&request, max_answer_bytes, commit)?;
        return Ok(Step::WriteBatch(Box::new(batch)));
    }
    check_reads(&request)?;
    actions.read_long(database);
    let request = bytes.into();
    Ok(Step::ReadBatch(Box::new(ReadBatch {
        request,
        max_answer_bytes,
    })))
}

fn begin_writes(
    request: &BatchRequest<'_>,
    max_answer_bytes: u64,
    mut commit: Commit<'_>,
) -> Result<WriteBatch, Status> {
    let mut pushed = Vec::with_capacity(request.operation_count);
    let mut answer_bytes_left = max_answer_bytes.saturating_sub(ANSWER_FRAME_BYTES);
    for (index, operation) in request.operations().enumerate() {
        let (kind, operation) = operation
            .map_err(|invalid| refuse::invalid_operation(Method::Batch, index, invalid))?;
        commit
            .push(&operation)
            .map_err(|error| refuse::push_error(Method::Batch, error))?;
        pushed.push(Pushed::new(kind, &operation));
        if kind == OperationKind::Append {
            // The one operation whose result may be a failure in words.
            answer_bytes_left = answer_bytes_left.saturating_sub(FAILURE_BYTES);
        }
    }
    commit.limit_answer(usize::try_from(answer_bytes_left).unwrap_or(usize::MAX));
    commit.submit();
    let pushed = pushed.into();
    Ok(WriteBatch {
        pushed,
        max_answer_bytes,
    })
}

#[cold]
fn answer_bound_too_large(given: u64) -> Status {
    Status::invalid_argument(format!(
        "{}: field max_answer_bytes is {given}, at most {ANSWER_BYTES_MAX} are allowed",
        Method::Batch.path()
    ))
}

fn check_reads(request: &BatchRequest<'_>) -> Result<(), Status> {
    for (index, operation) in request.operations().enumerate() {
        match operation
            .map_err(|invalid| refuse::invalid_operation(Method::Batch, index, invalid))?
        {
            (_, Operation::Get { key }) => refuse::check_key(key)?,
            _ => unreachable!("a batch of reads has only Gets"),
        }
    }
    Ok(())
}

impl ReadBatch {
    /// Answers all reads from one view.
    pub(super) fn read(&self, view: &View<'_>, shared: &Shared, actions: &mut impl Actions) {
        let request = BatchRequest::decode(&self.request).expect("it was decoded before");
        let now_ms = actions.now_ms();
        let keys = request.operations().map(|operation| match operation {
            Ok((_, Operation::Get { key })) => key,
            _ => unreachable!("check_reads let only Gets pass"),
        });
        let mut answer = Vec::new();
        BatchResponse::encode_applied(&mut answer, view.sequence(), []);
        for key in keys {
            let response = match view.get(key, shared.store.hasher().hash(key), now_ms) {
                None => GetResponse::default(),
                Some(entry) => GetResponse {
                    found: true,
                    value: entry.value.bytes(),
                    version: entry.version,
                    expires_at_ms: entry.expires_ms,
                },
            };
            // Looked at before the value is copied, so that no more than the bound is ever in memory.
            let bytes =
                answer.len() + response.value.len() + store::limits::ANSWER_BYTES_PER_OPERATION;
            if bytes as u64 > self.max_answer_bytes {
                return actions.finish(refuse::answer_too_large(
                    Method::Batch,
                    self.max_answer_bytes,
                ));
            }
            BatchResponse::encode_result(&mut answer, &OperationResult::Get(response));
        }
        actions.respond(|out| out.extend_from_slice(&answer));
    }
}

impl WriteBatch {
    /// Answers with what became of the commit.
    pub(super) fn committed(
        &self,
        outcome: &CommitOutcome<'_>,
        shared: &Shared,
        actions: &mut impl Actions,
    ) {
        match outcome.decision {
            Decision::Applied => actions.respond(|out| {
                BatchResponse::encode_applied(out, outcome.sequence, []);
                debug_assert_eq!(outcome.operations().len(), self.pushed.len());
                for (&pushed, operation) in self.pushed.iter().zip(outcome.operations()) {
                    with_result(pushed, &operation, outcome, shared, |result| {
                        BatchResponse::encode_result(out, result)
                    });
                }
            }),
            Decision::Failed { index, .. } => {
                let operation = outcome
                    .first()
                    .expect("a failed commit has the outcome of what failed");
                with_result(self.pushed[index], &operation, outcome, shared, |result| {
                    // An index fits: the operations of a commit are far fewer than 2^32.
                    actions.respond(|out| {
                        BatchResponse::encode_failed(out, outcome.sequence, index as u32, result)
                    });
                });
            }
            Decision::Refused(store::Refusal::AnswerTooLarge { .. }) => {
                actions.finish(refuse::answer_too_large(
                    Method::Batch,
                    self.max_answer_bytes,
                ));
            }
            Decision::Refused(refusal) => actions.finish(refuse::refusal(refusal)),
        }
    }
}

/// Calls `use_it` with the result of one operation, which may be a failure in words.
#[inline]
fn with_result(
    pushed: Pushed,
    operation: &OperationOutcome<'_>,
    outcome: &CommitOutcome<'_>,
    shared: &Shared,
    use_it: impl FnOnce(&OperationResult<'_>),
) {
    match answer::failure(pushed, operation, outcome.database, shared) {
        None => use_it(&answer::result(pushed.kind, operation, outcome.sequence)),
        Some(status) => {
            let failure = Failure {
                code: status.code as u32,
                message: &status.message,
            };
            use_it(&OperationResult::Failure(failure));
        }
    }
}
