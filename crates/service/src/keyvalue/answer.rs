//! From what the committer says of an operation to the message that answers it.

use api::keyvalue::{
    AppendResponse, DeleteResponse, Entry, GetResponse, IncrementRefusal, IncrementResponse,
    OperationKind, PutResponse, ResultBody,
};
use protobuf::writer;
use store::{DatabaseId, OperationOutcome, OperationStatus};

use super::PushedOperation;
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
) -> ResultBody<'a> {
    let applied = outcome.status == OperationStatus::Done;
    let (before, after) = (outcome.before, outcome.after);
    match kind {
        OperationKind::Get => ResultBody::Get(GetResponse {
            found: outcome.existed(),
            value: outcome.value.map_or(&[], |value| value.bytes()),
            version: before.version,
            expires_at_ms: before.expires_ms,
        }),
        OperationKind::Put => ResultBody::Put(PutResponse {
            applied,
            version: after.version,
            previous: previous(outcome),
        }),
        OperationKind::Delete => {
            let deleted = applied && outcome.existed();
            let sequence = if deleted { sequence } else { 0 };
            let (version, previous) = (before.version, previous(outcome));
            ResultBody::Delete(DeleteResponse {
                deleted,
                version,
                previous,
                sequence,
            })
        }
        OperationKind::Append => ResultBody::Append(AppendResponse {
            applied,
            version: after.version,
            length: after.value_bytes,
        }),
        OperationKind::Increment => ResultBody::Increment(IncrementResponse {
            applied,
            value: outcome.counter,
            version: after.version,
            refusal: increment_refusal(outcome.status).number(),
        }),
    }
}

/// Appends the response as it stands alone.
#[inline]
pub(super) fn encode_alone(response: &ResultBody<'_>, out: &mut Vec<u8>) {
    match response {
        ResultBody::Get(response) => response.encode(out),
        ResultBody::Put(response) => response.encode(out),
        ResultBody::Delete(response) => response.encode(out),
        ResultBody::Append(response) => response.encode(out),
        ResultBody::Increment(response) => response.encode(out),
        ResultBody::Failure(failure) => failure.encode(out),
    }
}

/// Appends a response to a Get without the `value_bytes` bytes of its value, which must follow.
#[inline]
pub(super) fn encode_get_head(response: &GetResponse<'_>, value_bytes: usize, out: &mut Vec<u8>) {
    let without_value = GetResponse {
        value: &[],
        ..*response
    };
    without_value.encode(out);
    if value_bytes > 0 {
        writer::bytes_head(out, GetResponse::NUMBERS.value, value_bytes);
    }
}

fn previous<'a>(outcome: &OperationOutcome<'a>) -> Option<Entry<'a>> {
    let value = outcome.value?.bytes();
    let before = outcome.before;
    Some(Entry {
        key: &[],
        value,
        version: before.version,
        expires_at_ms: before.expires_ms,
    })
}

fn increment_refusal(status: OperationStatus) -> IncrementRefusal {
    match status {
        OperationStatus::ConditionFailed => IncrementRefusal::Condition,
        OperationStatus::WrongLength => IncrementRefusal::NotANumber,
        OperationStatus::Overflow => IncrementRefusal::Overflow,
        OperationStatus::Done | OperationStatus::TooLarge => IncrementRefusal::Unspecified,
    }
}

/// The error that an operation ends in, if its outcome is not something that a response can say.
#[inline]
pub(super) fn failure(
    pushed: PushedOperation,
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
