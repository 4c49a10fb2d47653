//! Requests of several operations: Batch, Transact and the messages of a Pipe.

use api::keyvalue::{
    self, BatchMode, BatchRequest, Comparand, Comparison, OperationKind, PipeAnswers, PipeRequest,
    TransactRequest,
};
use protobuf::{Embedded, List};
use store::{Condition, Mode, Operation};

use super::{FieldRule, Invalid, decode_operation};

/// Decodes all of a Batch but its operations.
///
/// # Errors
///
/// The message is broken, or a field has a value that is not allowed.
pub(crate) fn decode_batch(message: &[u8]) -> Result<(BatchRequest<'_>, Mode), Invalid> {
    let request = BatchRequest::decode(message)?;
    Invalid::refuse_unserved(request.unserved)?;
    let mode = mode(request.mode)?;
    Ok((request, mode))
}

/// Decodes all of a message of a Pipe but its operations.
///
/// # Errors
///
/// As [`decode_batch`].
pub(crate) fn decode_pipe(message: &[u8]) -> Result<(PipeRequest<'_>, Mode), Invalid> {
    let request = PipeRequest::decode(message)?;
    Invalid::refuse_unserved(request.unserved)?;
    let mode = mode(request.mode)?;
    Ok((request, mode))
}

/// Decodes all of a Transact but its comparisons and operations.
///
/// # Errors
///
/// As [`decode_batch`].
pub(crate) fn decode_transact(message: &[u8]) -> Result<TransactRequest<'_>, Invalid> {
    let request = TransactRequest::decode(message)?;
    Invalid::refuse_unserved(request.unserved)?;
    Ok(request)
}

fn mode(number: i32) -> Result<Mode, Invalid> {
    match BatchMode::from_number(number) {
        Some(BatchMode::Unspecified | BatchMode::Atomic) => Ok(Mode::Atomic),
        Some(BatchMode::Independent) => Ok(Mode::Independent),
        None => Err(Invalid::rule(
            "mode",
            "is not a BatchMode that this server knows",
        )),
    }
}

/// Returns which batches of a Pipe are answered.
///
/// # Errors
///
/// The number is none that this version knows.
pub(crate) fn pipe_answers(number: i32) -> Result<PipeAnswers, Invalid> {
    PipeAnswers::from_number(number).ok_or(Invalid::rule(
        "answers",
        "is not a PipeAnswers that this server knows",
    ))
}

/// Decodes the operations of a list, in order.
#[inline(always)]
pub(crate) fn operations<'a>(
    list: &List<'a, Embedded<keyvalue::Operation<'a>>>,
) -> impl Iterator<Item = Result<(OperationKind, Operation<'a>), Invalid>> + use<'a> {
    list.encoded().map(decode_operation)
}

/// Returns a comparison as the operation of the store that it is.
///
/// # Errors
///
/// It compares with nothing.
pub(crate) fn comparison(given: Comparison<'_>) -> Result<Operation<'_>, Invalid> {
    let condition = match given.condition {
        Some(Comparand::Version(version)) => Condition::VersionIs(version),
        Some(Comparand::Exists(true)) => Condition::Present,
        Some(Comparand::Exists(false)) => Condition::Absent,
        Some(Comparand::Value(value)) => Condition::ValueIs(value),
        None => {
            return Err(Invalid::rule(
                "condition",
                "is not set: choose one of version, exists, value",
            ));
        }
    };
    Ok(Operation::Compare {
        key: given.key,
        condition,
    })
}

/// Returns whether what is wrong with a message concerns only its batch: the Pipe can go on after
/// it.
pub(crate) fn concerns_only_its_batch(invalid: &Invalid) -> bool {
    matches!(
        (invalid.field, invalid.rule),
        ("mode", FieldRule::Broken(_))
    )
}
