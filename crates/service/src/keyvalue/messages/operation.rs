//! Get, Put, Delete, Append and Increment, alone and as operations of a batch.
//!
//! The request of each and the operation of the same name have the same field numbers, so one
//! function reads both.

use store::{Condition, Expiry, Operation};

use super::{Invalid, decode_fields, decode_parts, part};
use crate::limits::TIME_TO_LIVE_MS_MAX;
use protobuf::{Fault, Reader, Value, writer};

/// Which of the operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "named as the messages")]
pub enum OperationKind {
    Get = 1,
    Put = 2,
    Delete = 3,
    Append = 4,
    Increment = 5,
}

impl OperationKind {
    /// The kind whose field of the message `Operation` has this number.
    pub fn from_field(number: u32) -> Option<OperationKind> {
        use OperationKind as K;
        match number {
            1 => Some(K::Get),
            2 => Some(K::Put),
            3 => Some(K::Delete),
            4 => Some(K::Append),
            5 => Some(K::Increment),
            _ => None,
        }
    }

    /// The kind of `operation`, `None` for what cannot be asked for through this API.
    pub fn of(operation: &Operation<'_>) -> Option<OperationKind> {
        match operation {
            Operation::Get { .. } => Some(OperationKind::Get),
            Operation::Put { .. } => Some(OperationKind::Put),
            Operation::Delete { .. } => Some(OperationKind::Delete),
            Operation::Append { .. } => Some(OperationKind::Append),
            Operation::Increment { .. } => Some(OperationKind::Increment),
            Operation::Compare { .. } | Operation::Expire { .. } | Operation::Clear => None,
        }
    }

    fn field_names(self) -> &'static [&'static str] {
        match self {
            OperationKind::Get => &["", "database", "key"],
            OperationKind::Increment => &[
                "",
                "database",
                "key",
                "delta",
                "if_version",
                "if_exists",
                "if_value",
                "initial",
            ],
            _ => &[
                "",
                "database",
                "key",
                "value",
                "if_version",
                "if_exists",
                "if_value",
                "return_previous",
                "time_to_live_ms",
                "keep_time_to_live",
            ],
        }
    }
}

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
    #[inline]
    pub fn decode(kind: OperationKind, message: &'a [u8]) -> Result<Request<'a>, Invalid> {
        let fields = Fields::decode(kind, message)?;
        Ok(Request {
            database: fields.database,
            operation: fields.operation(kind)?,
        })
    }

    /// Appends the request message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        writer::bytes(out, 1, self.database.as_bytes());
        encode_body(&self.operation, out);
    }
}

/// Decodes a `GetRequest` into database and key: the hottest request, and nothing in it but these.
#[inline]
pub fn decode_get(message: &[u8]) -> Result<(&str, &[u8]), Invalid> {
    let (mut database, mut key, mut refused) = ("", &[][..], None);
    decode_fields(
        message,
        OperationKind::Get.field_names(),
        |number, value| {
            match number {
                1 => database = value.string()?,
                2 => key = value.bytes()?,
                _ => refused = Invalid::not_served(number).or(refused),
            }
            Ok(())
        },
    )?;
    refused.map_or(Ok((database, key)), Err)
}

/// Decodes the message `Operation` of a batch.
#[inline]
pub fn decode_operation(message: &[u8]) -> Result<(OperationKind, Operation<'_>), Invalid> {
    let mut reader = Reader::new(message);
    if let Ok(Some((number, Value::Bytes(body)))) = reader.next_field()
        && reader.is_at_end()
        && let Some(kind) = OperationKind::from_field(number)
    {
        return Ok((kind, Fields::decode(kind, body)?.operation(kind)?));
    }
    decode_operation_in_pieces(message)
}

/// [`decode_operation`] for a message that has other fields than one operation, or none, or is
/// broken.
#[cold]
fn decode_operation_in_pieces(message: &[u8]) -> Result<(OperationKind, Operation<'_>), Invalid> {
    let mut chosen: Option<(OperationKind, Fields<'_>)> = None;
    decode_parts(message, NAMES, |number, value| {
        let Some(kind) = OperationKind::from_field(number) else {
            return Ok(());
        };
        let body = part(value, NAMES[number as usize])?;
        match &mut chosen {
            // The same member of a oneof again is merged, another one replaces it.
            Some((earlier, fields)) if *earlier == kind => fields.merge(kind, body)?,
            _ => chosen = Some((kind, Fields::decode(kind, body)?)),
        }
        Ok(())
    })?;
    let (kind, fields) = chosen.ok_or(Invalid::rule("operation", NO_OPERATION))?;
    Ok((kind, fields.operation(kind)?))
}

/// Names of the fields of the message `Operation`.
const NAMES: &[&str] = &["", "get", "put", "delete", "append", "increment"];

const NO_OPERATION: &str = "is not set: choose one of get, put, delete, append, increment";

/// Appends the inside of a message `Operation`.
///
/// # Panics
///
/// For operations that the API does not have.
pub fn encode_operation(operation: &Operation<'_>, out: &mut Vec<u8>) {
    let kind = OperationKind::of(operation).expect("only operations of the API are sent");
    writer::message(out, kind as u32, |out| encode_body(operation, out));
}

fn encode_body(operation: &Operation<'_>, out: &mut Vec<u8>) {
    match *operation {
        Operation::Get { key } => writer::bytes(out, 2, key),
        Operation::Put {
            key,
            value,
            condition,
            expiry,
            want_previous,
        } => {
            writer::bytes(out, 2, key);
            writer::bytes(out, 3, value);
            encode_condition(condition, out);
            writer::bool(out, 7, want_previous);
            match expiry {
                Expiry::None => {}
                Expiry::AfterMs(time_to_live_ms) => writer::uint64_always(out, 8, time_to_live_ms),
                Expiry::Keep => writer::bool(out, 9, true),
            }
        }
        Operation::Delete {
            key,
            condition,
            want_previous,
        } => {
            writer::bytes(out, 2, key);
            encode_condition(condition, out);
            writer::bool(out, 7, want_previous);
        }
        Operation::Append {
            key,
            value,
            condition,
        } => {
            writer::bytes(out, 2, key);
            writer::bytes(out, 3, value);
            encode_condition(condition, out);
        }
        Operation::Increment {
            key,
            delta,
            initial,
            condition,
        } => {
            writer::bytes(out, 2, key);
            writer::sint64(out, 3, delta);
            encode_condition(condition, out);
            writer::sint64(out, 7, initial);
        }
        Operation::Compare { .. } | Operation::Expire { .. } | Operation::Clear => {
            unreachable!("these have no kind, see OperationKind::of")
        }
    }
}

fn encode_condition(condition: Condition<'_>, out: &mut Vec<u8>) {
    match condition {
        Condition::None => {}
        Condition::VersionIs(version) => writer::uint64_always(out, 4, version),
        Condition::Absent => writer::uint64_always(out, 5, 0),
        Condition::Present => writer::uint64_always(out, 5, 1),
        Condition::ValueIs(value) => writer::bytes_always(out, 6, value),
    }
}

/// The fields of all five, as far as they have been read.
#[derive(Default)]
struct Fields<'a> {
    database: &'a str,
    key: &'a [u8],
    value: &'a [u8],
    delta: i64,
    initial: i64,
    condition: Condition<'a>,
    want_previous: bool,
    expiry: Expiry,
    /// A field that must not be there.
    refused: Option<Invalid>,
}

impl<'a> Fields<'a> {
    #[inline]
    fn decode(kind: OperationKind, message: &'a [u8]) -> Result<Fields<'a>, Invalid> {
        let mut fields = Fields::default();
        fields.merge(kind, message)?;
        Ok(fields)
    }

    #[inline]
    fn merge(&mut self, kind: OperationKind, message: &'a [u8]) -> Result<(), Invalid> {
        decode_fields(message, kind.field_names(), |number, value| {
            self.field(kind, number, value)
        })
    }

    #[inline]
    fn field(&mut self, kind: OperationKind, number: u32, value: Value<'a>) -> Result<(), Fault> {
        use OperationKind as K;
        match (number, kind) {
            (1, _) => self.database = value.string()?,
            (2, _) => self.key = value.bytes()?,
            (3, K::Put | K::Append) => self.value = value.bytes()?,
            (3, K::Increment) => self.delta = value.sint64()?,
            (12.., _) => self.refused = self.refused.or_else(|| Invalid::not_served(number)),
            (_, K::Get) => {}
            (4, _) => self.condition = Condition::VersionIs(value.varint()?),
            (5, _) if value.bool()? => self.condition = Condition::Present,
            (5, _) => self.condition = Condition::Absent,
            (6, _) => self.condition = Condition::ValueIs(value.bytes()?),
            (7, K::Put | K::Delete) => self.want_previous = value.bool()?,
            (7, K::Increment) => self.initial = value.sint64()?,
            (8, K::Put) => self.expiry = Expiry::AfterMs(value.varint()?),
            (9, K::Put) if value.bool()? => self.expiry = Expiry::Keep,
            (9, K::Put) => {
                self.refused = Some(Invalid::rule(
                    "keep_time_to_live",
                    "is false: leave it out instead",
                ));
            }
            _ => {}
        }
        Ok(())
    }

    #[inline]
    fn operation(self, kind: OperationKind) -> Result<Operation<'a>, Invalid> {
        let Fields {
            key,
            value,
            delta,
            initial,
            condition,
            want_previous,
            expiry,
            ..
        } = self;
        if let Some(refused) = self.refused {
            return Err(refused);
        }
        Ok(match kind {
            OperationKind::Get => Operation::Get { key },
            OperationKind::Put => {
                check_expiry(expiry)?;
                Operation::Put {
                    key,
                    value,
                    condition,
                    expiry,
                    want_previous,
                }
            }
            OperationKind::Delete => {
                check_deletable(condition)?;
                Operation::Delete {
                    key,
                    condition,
                    want_previous,
                }
            }
            OperationKind::Append => Operation::Append {
                key,
                value,
                condition,
            },
            OperationKind::Increment => Operation::Increment {
                key,
                delta,
                initial,
                condition,
            },
        })
    }
}

fn check_expiry(expiry: Expiry) -> Result<(), Invalid> {
    match expiry {
        Expiry::AfterMs(0) => Err(Invalid::rule(
            "time_to_live_ms",
            "is 0: give at least 1, or leave it out",
        )),
        Expiry::AfterMs(time_to_live_ms) if time_to_live_ms > TIME_TO_LIVE_MS_MAX => Err(
            Invalid::rule("time_to_live_ms", "is above 3153600000000 (100 years)"),
        ),
        _ => Ok(()),
    }
}

/// A condition that only a missing key meets leaves nothing to delete: surely not what the caller
/// meant.
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
