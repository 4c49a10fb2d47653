//! Get, Put, Delete, Append and Increment, alone and as operations of a batch.

use api::keyvalue::{
    self, AppendOperation, AppendRequest, DeleteOperation, DeleteRequest, GetOperation, GetRequest,
    IncrementOperation, IncrementRequest, OperationBody, OperationKind, PutOperation, PutRequest,
};
use protobuf::Message;
use store::{Condition, Expiry, Operation};

use super::Invalid;
use crate::limits::TIME_TO_LIVE_MS_MAX;

/// The request for one operation.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Name of the database, empty for the default.
    pub database: &'a str,
    /// The operation.
    pub operation: Operation<'a>,
}

impl<'a> Request<'a> {
    /// Decodes the request message of `kind`.
    ///
    /// # Errors
    ///
    /// The message is broken, or a field has a value that is not allowed.
    #[inline(always)]
    pub fn decode(kind: OperationKind, message: &'a [u8]) -> Result<Request<'a>, Invalid> {
        // Each request is taken apart where it was decoded, so that none becomes a struct in
        // memory: this is on the path of each call.
        let (database, operation) = match kind {
            OperationKind::Get => {
                let request = GetRequest::decode_inlined(message)?;
                (request.database, get(request.into())?)
            }
            OperationKind::Put => {
                let request = PutRequest::decode_inlined(message)?;
                (request.database, put(request.into())?)
            }
            OperationKind::Delete => {
                let request = DeleteRequest::decode_inlined(message)?;
                (request.database, delete(request.into())?)
            }
            OperationKind::Append => {
                let request = AppendRequest::decode_inlined(message)?;
                (request.database, append(request.into())?)
            }
            OperationKind::Increment => {
                let request = IncrementRequest::decode_inlined(message)?;
                (request.database, increment(request.into())?)
            }
        };
        Ok(Request {
            database,
            operation,
        })
    }
}

/// Decodes a `GetRequest` into database and key: the hottest request, and nothing in it but these.
///
/// # Errors
///
/// As [`Request::decode`].
#[inline(always)]
pub fn decode_get(message: &[u8]) -> Result<(&str, &[u8]), Invalid> {
    let request = GetRequest::decode_inlined(message)?;
    Invalid::refuse_unserved(request.unserved)?;
    Ok((request.database, request.key))
}

/// Decodes the message `Operation` of a batch.
///
/// # Errors
///
/// As [`Request::decode`], or no operation is set.
#[inline]
pub fn decode_operation(message: &[u8]) -> Result<(OperationKind, Operation<'_>), Invalid> {
    // A closure, as the function itself would be called through a shim that is not inlined.
    match OperationBody::decode_sole(
        message,
        #[inline(always)]
        |body| meaning(body),
    ) {
        Some(decoded) => decoded,
        None => decode_in_pieces(message),
    }
}

/// [`decode_operation`] for a message that has other fields than one operation, or none, or is
/// broken.
#[cold]
fn decode_in_pieces(message: &[u8]) -> Result<(OperationKind, Operation<'_>), Invalid> {
    let body = keyvalue::Operation::decode(message)?.operation;
    meaning(body.ok_or(Invalid::rule("operation", NO_OPERATION))?)
}

const NO_OPERATION: &str = "is not set: choose one of get, put, delete, append, increment";

/// Returns what an operation asks of the store.
#[inline(always)]
fn meaning(body: OperationBody<'_>) -> Result<(OperationKind, Operation<'_>), Invalid> {
    let kind = body.kind();
    let operation = match body {
        OperationBody::Get(body) => get(body),
        OperationBody::Put(body) => put(body),
        OperationBody::Delete(body) => delete(body),
        OperationBody::Append(body) => append(body),
        OperationBody::Increment(body) => increment(body),
    };
    Ok((kind, operation?))
}

#[inline(always)]
fn get(body: GetOperation<'_>) -> Result<Operation<'_>, Invalid> {
    Invalid::refuse_unserved(body.unserved)?;
    Ok(Operation::Get { key: body.key })
}

#[inline(always)]
fn put(body: PutOperation<'_>) -> Result<Operation<'_>, Invalid> {
    Invalid::refuse_unserved(body.unserved)?;
    Ok(Operation::Put {
        key: body.key,
        value: body.value,
        condition: condition(body.condition),
        expiry: expiry(body.expiry)?,
        want_previous: body.return_previous,
    })
}

#[inline(always)]
fn delete(body: DeleteOperation<'_>) -> Result<Operation<'_>, Invalid> {
    Invalid::refuse_unserved(body.unserved)?;
    let condition = condition(body.condition);
    check_deletable(condition)?;
    Ok(Operation::Delete {
        key: body.key,
        condition,
        want_previous: body.return_previous,
    })
}

#[inline(always)]
fn append(body: AppendOperation<'_>) -> Result<Operation<'_>, Invalid> {
    Invalid::refuse_unserved(body.unserved)?;
    Ok(Operation::Append {
        key: body.key,
        value: body.value,
        condition: condition(body.condition),
    })
}

#[inline(always)]
fn increment(body: IncrementOperation<'_>) -> Result<Operation<'_>, Invalid> {
    Invalid::refuse_unserved(body.unserved)?;
    Ok(Operation::Increment {
        key: body.key,
        delta: body.delta,
        initial: body.initial,
        condition: condition(body.condition),
    })
}

#[inline(always)]
fn condition(given: Option<keyvalue::Condition<'_>>) -> Condition<'_> {
    match given {
        None => Condition::None,
        Some(keyvalue::Condition::IfVersion(version)) => Condition::VersionIs(version),
        Some(keyvalue::Condition::IfExists(true)) => Condition::Present,
        Some(keyvalue::Condition::IfExists(false)) => Condition::Absent,
        Some(keyvalue::Condition::IfValue(value)) => Condition::ValueIs(value),
    }
}

#[inline(always)]
fn expiry(given: Option<keyvalue::Expiry>) -> Result<Expiry, Invalid> {
    match given {
        None => Ok(Expiry::None),
        Some(keyvalue::Expiry::TimeToLiveMs(ms @ 1..=TIME_TO_LIVE_MS_MAX)) => {
            Ok(Expiry::AfterMs(ms))
        }
        Some(keyvalue::Expiry::KeepTimeToLive(true)) => Ok(Expiry::Keep),
        Some(keyvalue::Expiry::TimeToLiveMs(0)) => Err(Invalid::rule(
            "time_to_live_ms",
            "is 0: give at least 1, or leave it out",
        )),
        Some(keyvalue::Expiry::TimeToLiveMs(_)) => Err(Invalid::rule(
            "time_to_live_ms",
            "is above 3153600000000 (100 years)",
        )),
        Some(keyvalue::Expiry::KeepTimeToLive(false)) => Err(Invalid::rule(
            "keep_time_to_live",
            "is false: leave it out instead",
        )),
    }
}

/// A condition that only a missing key meets leaves nothing to delete: surely not what the caller
/// meant.
#[inline(always)]
fn check_deletable(condition: Condition<'_>) -> Result<(), Invalid> {
    match condition {
        Condition::VersionIs(0) => Err(Invalid::rule(
            "if_version",
            "is 0: a missing key cannot be deleted",
        )),
        Condition::Absent => Err(Invalid::rule(
            "if_exists",
            "is false: a missing key cannot be deleted",
        )),
        _ => Ok(()),
    }
}
