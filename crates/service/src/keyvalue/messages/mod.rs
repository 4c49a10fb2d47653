//! The messages of `pelton.v1.KeyValue`, both ways: what a server decodes a client encodes, and the
//! other way round.
//!
//! Everything borrows from the message it was decoded from. `proto/pelton/v1/kv.proto` says what
//! the fields mean; here stand only their numbers.

mod batch;
mod operation;
mod pipe;
mod result;
mod resume;
mod scan;
mod transact;

use std::fmt;

pub use batch::{BatchRequest, BatchResponse};
pub use operation::{OperationKind, Request, decode_get, decode_operation, encode_operation};
pub(crate) use pipe::concerns_only_its_batch;
pub use pipe::{PipeAnswers, PipeRequest, PipeResponse};
pub use result::{
    AppendResponse, DeleteResponse, EntryMessage, Failure, GetResponse, IncrementRefusal,
    IncrementResponse, OperationResult, PutResponse,
};
pub use resume::ResumePoint;
pub(crate) use resume::{decode_history_id, encode_history_id};
pub(crate) use scan::page_field;
pub use scan::{CountRequest, CountResponse, Keys, ScanPage, ScanRequest};
pub use transact::{TransactRequest, TransactResponse};

use protobuf::{DecodeError, Fault, Reader, Value};

/// Why a request or response is refused: the field, and what is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// The field as the `.proto` file names it; empty if not even its number can be read.
    pub field: &'static str,
    /// What is wrong.
    pub rule: Rule,
}

/// What is wrong with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Its bytes are no such field.
    Malformed(Fault),
    /// Its value is not allowed. The words continue "`field` …".
    Broken(&'static str),
    /// It has its place in the API, but this version does not serve it. To pass over it in silence
    /// could break a promise that the caller relies on.
    NotServed,
}

impl Invalid {
    pub(crate) fn rule(field: &'static str, rule: &'static str) -> Invalid {
        Invalid {
            field,
            rule: Rule::Broken(rule),
        }
    }

    /// The refusal of a field that is not served yet, if `number` is one: the same numbers in every
    /// request.
    #[inline]
    pub(crate) fn not_served(number: u32) -> Option<Invalid> {
        let field = match number {
            12 => "snapshot",
            13 => "durability",
            14 => "lease",
            15 => "request_id",
            _ => return None,
        };
        Some(Invalid {
            field,
            rule: Rule::NotServed,
        })
    }

    /// Refuses a message with a field that is not served yet, if `number` is not 0.
    #[inline]
    pub(crate) fn refuse_unserved(number: u32) -> Result<(), Invalid> {
        Invalid::not_served(number).map_or(Ok(()), Err)
    }

    /// Names the field that the decoder knows by number. `names[number]` is its name.
    pub(crate) fn malformed(error: DecodeError, names: &[&'static str]) -> Invalid {
        let field = names
            .get(error.field as usize)
            .copied()
            .unwrap_or("(unknown)");
        Invalid {
            field,
            rule: Rule::Malformed(error.fault),
        }
    }
}

impl From<DecodeError> for Invalid {
    fn from(error: DecodeError) -> Invalid {
        Invalid {
            field: error.name,
            rule: Rule::Malformed(error.fault),
        }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.field, self.rule) {
            ("", Rule::Malformed(fault)) => {
                write!(formatter, "the message is no protobuf message: {fault}")
            }
            (field, Rule::Malformed(fault)) => {
                write!(formatter, "field {field} cannot be read: {fault}")
            }
            (field, Rule::NotServed) => {
                write!(formatter, "field {field} is not served by this version")
            }
            (field, Rule::Broken(rule)) => write!(formatter, "field {field} {rule}"),
        }
    }
}

impl std::error::Error for Invalid {}

/// Walks the fields of `message`, whose names are `names` by number.
#[inline(always)]
pub(crate) fn decode_fields<'a>(
    message: &'a [u8],
    names: &[&'static str],
    visit: impl FnMut(u32, Value<'a>) -> Result<(), Fault>,
) -> Result<(), Invalid> {
    Reader::new(message)
        .for_each(visit)
        .map_err(|error| Invalid::malformed(error, names))
}

/// [`decode_fields`] for fields that are messages, which name what is wrong with them themselves.
pub(crate) fn decode_parts<'a>(
    message: &'a [u8],
    names: &[&'static str],
    mut visit: impl FnMut(u32, Value<'a>) -> Result<(), Invalid>,
) -> Result<(), Invalid> {
    let mut reader = Reader::new(message);
    let malformed = |error| Invalid::malformed(error, names);
    while let Some((number, value)) = reader.next_field().map_err(malformed)? {
        visit(number, value)?;
    }
    Ok(())
}

/// The inside of the embedded message in the field called `name`.
pub(crate) fn part<'a>(value: Value<'a>, name: &'static str) -> Result<&'a [u8], Invalid> {
    let malformed = |fault| Invalid {
        field: name,
        rule: Rule::Malformed(fault),
    };
    value.bytes().map_err(malformed)
}
