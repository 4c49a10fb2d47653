//! From what the committer says of an operation to the message that answers it.

use store::{DatabaseId, OperationOutcome, OperationStatus};

use super::Pushed;
use super::messages::{
    AppendResponse, DeleteResponse, EntryMessage, GetResponse, IncrementRefusal, IncrementResponse,
    OperationKind, OperationResult, PutResponse,
};
use super::refuse;
use crate::call::Shared;
use crate::status::Status;

/// The response to an operation of `kind` in the commit `sequence`, unless [`failure`] has
/// something to say.
#[inline]
pub(super) fn result<'a>(
    kind: OperationKind,
    outcome: &OperationOutcome<'a>,
    sequence: u64,
) -> OperationResult<'a> {
    let applied = outcome.status == OperationStatus::Done;
    let (before, after) = (outcome.before, outcome.after);
    match kind {
        OperationKind::Get => OperationResult::Get(GetResponse {
            found: outcome.existed(),
            value: outcome.value.map_or(&[], |value| value.bytes()),
            version: before.version,
            expires_at_ms: before.expires_ms,
        }),
        OperationKind::Put => OperationResult::Put(PutResponse {
            applied,
            version: after.version,
            previous: previous(outcome),
        }),
        OperationKind::Delete => {
            let deleted = applied && outcome.existed();
            let sequence = if deleted { sequence } else { 0 };
            let (version, previous) = (before.version, previous(outcome));
            OperationResult::Delete(DeleteResponse {
                deleted,
                version,
                previous,
                sequence,
            })
        }
        OperationKind::Append => OperationResult::Append(AppendResponse {
            applied,
            version: after.version,
            length: after.value_bytes,
        }),
        OperationKind::Increment => OperationResult::Increment(IncrementResponse {
            applied,
            value: outcome.counter,
            version: after.version,
            refusal: increment_refusal(outcome.status),
        }),
    }
}

fn previous<'a>(outcome: &OperationOutcome<'a>) -> Option<EntryMessage<'a>> {
    let value = outcome.value?.bytes();
    let before = outcome.before;
    Some(EntryMessage {
        key: &[],
        value,
        version: before.version,
        expires_at_ms: before.expires_ms,
    })
}

fn increment_refusal(status: OperationStatus) -> Option<IncrementRefusal> {
    match status {
        OperationStatus::ConditionFailed => Some(IncrementRefusal::Condition),
        OperationStatus::WrongLength => Some(IncrementRefusal::NotANumber),
        OperationStatus::Overflow => Some(IncrementRefusal::Overflow),
        OperationStatus::Done | OperationStatus::TooLarge => None,
    }
}

/// The error that an operation ends in, if its outcome is not something that a response can say.
#[inline]
pub(super) fn failure(
    pushed: Pushed,
    outcome: &OperationOutcome<'_>,
    database: DatabaseId,
    shared: &Shared,
) -> Option<Status> {
    match outcome.status {
        OperationStatus::TooLarge => {
            let bytes = outcome.before.value_bytes + u64::from(pushed.value_bytes);
            let allowed = shared
                .store
                .limits(database)
                .unwrap_or_default()
                .value_bytes;
            Some(refuse::grown_too_large(bytes, allowed))
        }
        _ => None,
    }
}
