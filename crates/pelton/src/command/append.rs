//! `pelton append`

use api::keyvalue::AppendRequest;
use api::rpc::keyvalue::Append;

use super::put::found;
use super::value::{condition, value};
use super::{Caller, Key, in_database, say_miss};
use crate::arguments::AppendArguments;
use crate::exit::{Exit, Failure};
use crate::output::{Output, bytes, object};

/// Adds bytes at the end of the value of a key.
pub fn append(arguments: &AppendArguments) -> Result<Exit, Failure> {
    let database = &arguments.database;
    let key = Key::new(&arguments.key, database)?;
    let value = value(&arguments.value, "pelton append KEY VALUE")?;
    let request = AppendRequest {
        database: &database.database,
        key: &key.bytes,
        value: &value,
        condition: condition(&arguments.condition),
        ..AppendRequest::default()
    };
    let reply = Caller::connect(&database.connection)?.call::<Append>(&request)?;
    let answer = reply.message();
    let done = answer
        .applied
        .then_some("the bytes are appended all the same");
    let mut output = Output::new(database.connection.output).after(done);
    if output.is_json() {
        output.object(object([
            ("applied", answer.applied.into()),
            ("version", answer.version.into()),
            ("length", answer.length.into()),
        ]))?;
    } else if answer.applied {
        output.line(&format!(
            "appended, {} now, version {}",
            bytes(answer.length),
            answer.version
        ))?;
    }
    output.end()?;
    if answer.applied {
        return Ok(Exit::Done);
    }
    let found = found(answer.version, arguments.condition.if_value.is_some());
    let place = in_database(&database.database);
    say_miss(
        database.connection.output,
        &format!("nothing appended: the key `{}` {found}{place}", key.shown),
    );
    Ok(Exit::Miss)
}
