//! The results of several operations, for people and as JSON.

use api::keyvalue::{DeleteResponse, Entry, Failure as OperationFailure, PutResponse, ResultBody};
use client::Code;
use serde_json::{Map, Value};

use super::increment::{refusal, refusal_name};
use super::put::found;
use super::{insert_entry, insert_previous, show_previous};
use crate::encoding::escape;
use crate::exit::{Exit, Failure};
use crate::json::{JsonOperationKind, OwnedOperation};
use crate::output::{Output, bytes, object};

/// What the number of a place counts.
#[derive(Clone, Copy, Debug)]
pub enum Unit {
    Line,
    Operation,
}

impl Unit {
    pub fn name(self) -> &'static str {
        match self {
            Unit::Line => "line",
            Unit::Operation => "operation",
        }
    }

    /// The field of an object; `operation` is already the kind.
    fn field(self) -> &'static str {
        match self {
            Unit::Line => "line",
            Unit::Operation => "number",
        }
    }
}

/// Where an operation comes from, and what is needed to judge its result.
#[derive(Clone, Copy, Debug)]
pub struct InputPlace {
    /// The number of its line, or its place in a list, from 1.
    pub number: u64,
    kind: JsonOperationKind,
    is_conditional: bool,
    /// Its condition is one of the value.
    compares_value: bool,
    wants_previous: bool,
}

impl InputPlace {
    pub fn of(operation: &OwnedOperation, number: u64) -> InputPlace {
        InputPlace {
            number,
            kind: operation.kind,
            is_conditional: operation.is_conditional(),
            compares_value: operation.compares_value(),
            wants_previous: operation.wants_value() && operation.kind != JsonOperationKind::Get,
        }
    }
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OperationVerdict {
    /// It did what it says.
    Done,
    /// Its condition was not met, or the increment was refused.
    Unmet,
    /// It could not be done.
    Failed,
}

impl OperationVerdict {
    /// What a command ends with whose operations ended like this at worst.
    pub fn exit(self) -> Exit {
        match self {
            OperationVerdict::Done => Exit::Done,
            OperationVerdict::Unmet => Exit::Miss,
            OperationVerdict::Failed => Exit::Failed,
        }
    }
}

/// How a result is to be judged.
pub fn judge(place: &InputPlace, result: &ResultBody<'_>) -> OperationVerdict {
    let applied = match result {
        ResultBody::Get(_) => true,
        ResultBody::Put(answer) => answer.applied,
        ResultBody::Delete(answer) => {
            answer.deleted || (answer.version == 0 && !place.is_conditional)
        }
        ResultBody::Append(answer) => answer.applied,
        ResultBody::Increment(answer) => answer.applied,
        ResultBody::Failure(_) => return OperationVerdict::Failed,
    };
    if applied {
        OperationVerdict::Done
    } else {
        OperationVerdict::Unmet
    }
}

/// Prints one result.
pub fn print(
    output: &mut Output,
    unit: Unit,
    place: &InputPlace,
    result: &ResultBody<'_>,
) -> Result<(), Failure> {
    if !output.is_json() {
        return output.line(&format!(
            "{} {}: {}",
            unit.name(),
            place.number,
            describe(place, result)
        ));
    }
    output.object(fields(unit, place, result))
}

/// A result as an object.
pub fn fields(unit: Unit, place: &InputPlace, result: &ResultBody<'_>) -> Map<String, Value> {
    let mut fields = object([
        (unit.field(), place.number.into()),
        ("operation", place.kind.name().into()),
    ]);
    insert(&mut fields, place, result);
    fields
}

/// A result on one line.
pub fn describe(place: &InputPlace, result: &ResultBody<'_>) -> String {
    let previous = |entry: Option<_>| match place.wants_previous {
        true => format!("; {}", show_previous(entry.as_ref())),
        false => String::new(),
    };
    match result {
        ResultBody::Get(answer) if answer.found => {
            format!(
                "found, version {}, {}",
                answer.version,
                escape(answer.value)
            )
        }
        ResultBody::Get(_) => "not there".into(),
        ResultBody::Put(PutResponse {
            applied: true,
            version,
            previous: before,
        }) => format!("stored, version {version}{}", previous(*before)),
        ResultBody::Put(answer) => format!(
            "not stored: the key {}",
            found(answer.version, place.compares_value)
        ),
        ResultBody::Delete(DeleteResponse {
            deleted: true,
            version,
            previous: before,
            ..
        }) => format!("deleted, it had version {version}{}", previous(*before)),
        ResultBody::Delete(answer) => {
            format!(
                "not deleted: the key {}",
                found(answer.version, place.compares_value)
            )
        }
        ResultBody::Append(answer) if answer.applied => format!(
            "appended, {} now, version {}",
            bytes(answer.length),
            answer.version
        ),
        ResultBody::Append(answer) => {
            format!(
                "not appended: the key {}",
                found(answer.version, place.compares_value)
            )
        }
        ResultBody::Increment(answer) if answer.applied => {
            format!("{}, version {}", answer.value, answer.version)
        }
        ResultBody::Increment(answer) => format!(
            "not added: the key {}",
            refusal(answer, place.compares_value)
        ),
        ResultBody::Failure(failure) => failure_text(failure),
    }
}

/// `RESOURCE_EXHAUSTED: the value …`
pub fn failure_text(failure: &OperationFailure<'_>) -> String {
    format!("{}: {}", code_name(failure.code), failure.message)
}

pub fn code_name(code: u32) -> &'static str {
    u8::try_from(code)
        .map_or(Code::Unknown, Code::from_u8)
        .name()
}

fn insert(fields: &mut Map<String, Value>, place: &InputPlace, result: &ResultBody<'_>) {
    let mut insert = |name: &str, value: Value| {
        fields.insert(name.into(), value);
    };
    match result {
        ResultBody::Get(answer) => {
            insert("found", answer.found.into());
            if answer.found {
                let entry = Entry {
                    key: b"",
                    value: answer.value,
                    version: answer.version,
                    expires_at_ms: answer.expires_at_ms,
                };
                insert_entry(fields, &entry);
            }
        }
        ResultBody::Put(answer) => {
            insert("applied", answer.applied.into());
            insert("version", answer.version.into());
            insert_previous(fields, answer.previous.as_ref(), place.wants_previous);
        }
        ResultBody::Delete(answer) => {
            insert("deleted", answer.deleted.into());
            insert("version", answer.version.into());
            insert_previous(fields, answer.previous.as_ref(), place.wants_previous);
        }
        ResultBody::Append(answer) => {
            insert("applied", answer.applied.into());
            insert("version", answer.version.into());
            insert("length", answer.length.into());
        }
        ResultBody::Increment(answer) => {
            insert("applied", answer.applied.into());
            insert("value", answer.value.into());
            insert("version", answer.version.into());
            if let Some(name) = refusal_name(answer) {
                insert("refusal", name.into());
            }
        }
        ResultBody::Failure(failure) => {
            insert("status", code_name(failure.code).into());
            insert("message", failure.message.into());
        }
    }
}
