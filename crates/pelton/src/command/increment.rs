//! `pelton incr`

use api::keyvalue::{IncrementRefusal, IncrementRequest, IncrementResponse};
use api::rpc::keyvalue::Increment;

use super::put::found;
use super::value::condition;
use super::{Caller, Key, in_database, say_miss};
use crate::arguments::IncrementArguments;
use crate::exit::{Exit, Failure};
use crate::output::{Output, object};

/// Adds to a number.
pub fn increment(arguments: &IncrementArguments) -> Result<Exit, Failure> {
    let database = &arguments.database;
    let key = Key::new(&arguments.key, database)?;
    let request = IncrementRequest {
        database: &database.database,
        key: &key.bytes,
        delta: arguments.delta,
        initial: arguments.initial,
        condition: condition(&arguments.condition),
        ..IncrementRequest::default()
    };
    let reply = Caller::connect(&database.connection)?.call::<Increment>(&request)?;
    let answer = reply.message();
    let done = answer.applied.then_some("the number is added all the same");
    let mut output = Output::new(database.connection.output).after(done);
    if output.is_json() {
        let mut fields = object([
            ("applied", answer.applied.into()),
            ("value", answer.value.into()),
            ("version", answer.version.into()),
        ]);
        if let Some(name) = refusal_name(&answer) {
            fields.insert("refusal".into(), name.into());
        }
        output.object(fields)?;
    } else if answer.applied {
        output.line(&answer.value.to_string())?;
    }
    output.end()?;
    if answer.applied {
        return Ok(Exit::Done);
    }
    let why = refusal(&answer, arguments.condition.if_value.is_some());
    let place = in_database(&database.database);
    say_miss(
        database.connection.output,
        &format!("nothing added: the key `{}` {why}{place}", key.shown),
    );
    Ok(Exit::Miss)
}

/// Why nothing was added, as JSON names it; `None` if it was, or for a reason that this version
/// does not know.
pub fn refusal_name(answer: &IncrementResponse) -> Option<&'static str> {
    match IncrementRefusal::from_number(answer.refusal)? {
        IncrementRefusal::Unspecified => None,
        IncrementRefusal::Condition => Some("condition"),
        IncrementRefusal::NotANumber => Some("not_a_number"),
        IncrementRefusal::Overflow => Some("overflow"),
    }
}

/// Why nothing was added, as what follows "the key"; `of_value`: a condition was one of the value.
pub fn refusal(answer: &IncrementResponse, of_value: bool) -> String {
    match IncrementRefusal::from_number(answer.refusal) {
        Some(IncrementRefusal::NotANumber) => {
            "has a value that is no number of 8 bytes (`pelton put KEY --number N` stores one)"
                .into()
        }
        Some(IncrementRefusal::Overflow) => {
            format!(
                "has the number {}, the sum does not fit into 64 bits",
                answer.value
            )
        }
        Some(IncrementRefusal::Condition | IncrementRefusal::Unspecified) | None => {
            found(answer.version, of_value)
        }
    }
}
