//! `pelton get`

use service::Method;
use service::keyvalue::messages::{GetResponse, Request};
use store::Operation;

use super::{Caller, Key, in_database, say_miss, unreadable};
use crate::arguments::GetArguments;
use crate::encoding::insert_bytes;
use crate::exit::{Exit, Failure};
use crate::output::{Output, object};

/// Reads the value of a key.
pub fn get(arguments: &GetArguments) -> Result<Exit, Failure> {
    let database = &arguments.database;
    let key = Key::new(&arguments.key, database)?;
    let mut request = Vec::new();
    let operation = Operation::Get { key: &key.bytes };
    Request {
        database: &database.database,
        operation,
    }
    .encode(&mut request);

    let answer = Caller::connect(&database.connection)?.unary(Method::Get, &request)?;
    let answer = GetResponse::decode(&answer).map_err(unreadable)?;
    let mut output = Output::new(database.connection.output);
    if output.is_json() {
        let mut fields = object([("found", answer.found.into())]);
        if answer.found {
            insert_bytes(&mut fields, "value", answer.value);
            fields.insert("version".into(), answer.version.into());
            if answer.expires_at_ms != 0 {
                fields.insert("expires_at_ms".into(), answer.expires_at_ms.into());
            }
        }
        output.object(fields)?;
    } else if answer.found {
        output.raw(answer.value)?;
    }
    output.end()?;
    if answer.found {
        return Ok(Exit::Done);
    }
    let place = in_database(&database.database);
    say_miss(
        database.connection.output,
        &format!("the key `{}` is not there{place}", key.shown),
    );
    Ok(Exit::Miss)
}
