//! `pelton put`

use api::keyvalue::{Condition, Expiry, PutRequest};
use api::rpc::keyvalue::Put;

use super::value::{condition, number, value};
use super::{Caller, Key, in_database, insert_previous, say_miss, show_previous};
use crate::arguments::PutArguments;
use crate::exit::{Exit, Failure};
use crate::output::{Output, object};

/// Writes the value of a key.
pub fn put(arguments: &PutArguments) -> Result<Exit, Failure> {
    let database = &arguments.database;
    let key = Key::new(&arguments.key, database)?;
    let mut value = value(&arguments.value, "pelton put KEY VALUE")?;
    let mut condition = condition(&arguments.condition);
    let expected;
    if arguments.number {
        value = number(&value, "the value")?.to_vec();
        if let Some(Condition::IfValue(text)) = condition {
            expected = number(text, "the value of --if-value")?;
            condition = Some(Condition::IfValue(&expected));
        }
    }
    let expiry = match arguments.ttl {
        Some(time_to_live) => Some(Expiry::TimeToLiveMs(time_to_live.ms)),
        None => (arguments.keep_ttl).then_some(Expiry::KeepTimeToLive(true)),
    };
    let request = PutRequest {
        database: &database.database,
        key: &key.bytes,
        value: &value,
        return_previous: arguments.previous,
        condition,
        expiry,
        ..PutRequest::default()
    };
    let reply = Caller::connect(&database.connection)?.call::<Put>(&request)?;
    let answer = reply.message();
    let done = answer
        .applied
        .then_some("the value is written all the same");
    let mut output = Output::new(database.connection.output).after(done);
    if output.is_json() {
        let mut fields = object([
            ("applied", answer.applied.into()),
            ("version", answer.version.into()),
        ]);
        insert_previous(&mut fields, answer.previous.as_ref(), arguments.previous);
        output.object(fields)?;
    } else if answer.applied {
        output.line(&format!("stored, version {}", answer.version))?;
        if arguments.previous {
            output.line(&show_previous(answer.previous.as_ref()))?;
        }
    }
    output.end()?;
    if answer.applied {
        return Ok(Exit::Done);
    }
    let found = found(answer.version, arguments.condition.if_value.is_some());
    let place = in_database(&database.database);
    say_miss(
        database.connection.output,
        &format!("nothing written: the key `{}` {found}{place}", key.shown),
    );
    Ok(Exit::Miss)
}

/// What is there instead of what a condition asked for; `of_value`: which was one of the value.
pub fn found(version: u64, of_value: bool) -> String {
    match (version, of_value) {
        (0, _) => "is not there".to_owned(),
        (version, true) => format!("has another value, version {version}"),
        (version, false) => format!("is there with version {version}"),
    }
}
