//! `pelton incr`

use service::Method;
use service::keyvalue::messages::{IncrementRefusal, IncrementResponse, Request};
use store::Operation;

use super::put::found;
use super::value::condition;
use super::{Caller, Key, in_database, say_miss, unreadable};
use crate::arguments::IncrementArguments;
use crate::exit::{Exit, Failure};
use crate::output::{Output, object};

/// Adds to a number.
pub fn increment(arguments: &IncrementArguments) -> Result<Exit, Failure> {
    let database = &arguments.database;
    let key = Key::new(&arguments.key, database)?;
    let operation = Operation::Increment {
        key: &key.bytes,
        delta: arguments.delta,
        initial: arguments.initial,
        condition: condition(&arguments.condition),
    };
    let mut request = Vec::new();
    Request {
        database: &database.database,
        operation,
    }
    .encode(&mut request);

    let answer = Caller::connect(&database.connection)?.unary(Method::Increment, &request)?;
    let answer = IncrementResponse::decode(&answer).map_err(unreadable)?;
    let done = answer.applied.then_some("the number is added all the same");
    let mut output = Output::new(database.connection.output).after(done);
    if output.is_json() {
        let mut fields = object([
            ("applied", answer.applied.into()),
            ("value", answer.value.into()),
            ("version", answer.version.into()),
        ]);
        if let Some(refusal) = answer.refusal {
            fields.insert("refusal".into(), refusal_name(refusal).into());
        }
        output.object(fields)?;
    } else if answer.applied {
        output.line(&answer.value.to_string())?;
    }
    output.end()?;
    if answer.applied {
        return Ok(Exit::Done);
    }
    let why = refusal(&answer);
    let place = in_database(&database.database);
    say_miss(
        database.connection.output,
        &format!("nothing added: the key `{}` {why}{place}", key.shown),
    );
    Ok(Exit::Miss)
}

/// Why nothing was added, as JSON names it.
pub fn refusal_name(refusal: IncrementRefusal) -> &'static str {
    match refusal {
        IncrementRefusal::Condition => "condition",
        IncrementRefusal::NotANumber => "not_a_number",
        IncrementRefusal::Overflow => "overflow",
    }
}

/// Why nothing was added, as what follows "the key".
pub fn refusal(answer: &IncrementResponse) -> String {
    match answer.refusal {
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
        Some(IncrementRefusal::Condition) | None => found(answer.version),
    }
}
