//! What the requests of `pelton.v1.KeyValue` ask of the store, and what is wrong with one.
//!
//! Everything borrows from the message it was decoded from. `api` describes the messages,
//! `proto/pelton/v1/kv.proto` says what their fields mean.

mod operation;
mod point;
mod range;
mod several;
#[cfg(test)]
mod tests;
mod watch;

pub use operation::{Request, decode_get, decode_operation};
pub(crate) use point::HistoryPoint;
pub(crate) use range::{decode_count, decode_scan};
pub(crate) use several::{
    comparison, concerns_only_its_batch, decode_batch, decode_pipe, decode_transact, operations,
    pipe_answers,
};

pub(crate) use watch::decode_watch;

use protobuf::{DecodeError, FieldFault};

/// Why a request or response is refused: the field, and what is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
pub struct Invalid {
    /// The field as the `.proto` file names it; empty if not even its number can be read.
    pub field: &'static str,
    /// What is wrong.
    pub rule: FieldRule,
}

/// What is wrong with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldRule {
    /// Its bytes are no such field.
    Malformed(FieldFault),
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
            rule: FieldRule::Broken(rule),
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
            rule: FieldRule::NotServed,
        })
    }

    /// Refuses a message with a field that is not served yet, if `number` is not 0.
    #[inline]
    pub(crate) fn refuse_unserved(number: u32) -> Result<(), Invalid> {
        Invalid::not_served(number).map_or(Ok(()), Err)
    }

    fn text(&self) -> String {
        let field = self.field;
        match self.rule {
            FieldRule::Malformed(FieldFault::TooManyFields) => {
                format!("{}, or too many operations", FieldFault::TooManyFields)
            }
            FieldRule::Malformed(fault) if field.is_empty() => {
                format!("the message is no protobuf message: {fault}")
            }
            FieldRule::Malformed(fault) => format!("field {field} cannot be read: {fault}"),
            FieldRule::NotServed => format!("field {field} is not served by this version"),
            FieldRule::Broken(rule) => format!("field {field} {rule}"),
        }
    }
}

impl From<DecodeError> for Invalid {
    fn from(error: DecodeError) -> Invalid {
        Invalid {
            field: error.name,
            rule: FieldRule::Malformed(error.fault),
        }
    }
}
