//! `pelton get`

use api::keyvalue::GetRequest;
use api::rpc::keyvalue::Get;

use super::value::NUMBER_BYTES;
use super::{Caller, Key, in_database, say_miss, wildcard_hint};
use crate::arguments::GetArguments;
use crate::encoding::insert_bytes;
use crate::exit::{Exit, Failure};
use crate::output::{Output, bytes, object};

/// Reads the value of a key.
pub fn get(arguments: &GetArguments) -> Result<Exit, Failure> {
    let database = &arguments.database;
    let key = Key::new(&arguments.key, database)?;
    let request = GetRequest {
        database: &database.database,
        key: &key.bytes,
        ..GetRequest::default()
    };
    let reply = Caller::connect(&database.connection)?.call::<Get>(&request)?;
    let answer = reply.message();
    let number = arguments.number.then(|| number_of(answer.value));
    let mut output = Output::new(database.connection.output);
    if output.is_json() {
        let mut fields = object([("found", answer.found.into())]);
        if answer.found {
            match number {
                Some(number) => drop(fields.insert("value".into(), number.into())),
                None => insert_bytes(&mut fields, "value", answer.value),
            }
            fields.insert("version".into(), answer.version.into());
            if answer.expires_at_ms != 0 {
                fields.insert("expires_at_ms".into(), answer.expires_at_ms.into());
            }
        }
        output.object(fields)?;
    } else if answer.found {
        match number {
            Some(Some(number)) => output.line(&number.to_string())?,
            Some(None) => {}
            None => {
                check_terminal(&key, answer.value)?;
                output.raw(answer.value)?;
            }
        }
    }
    output.end()?;
    let what = match number {
        _ if !answer.found => "is not there".to_owned(),
        Some(None) => format!(
            "has a value of {}, and a number has {NUMBER_BYTES}",
            bytes(answer.value.len() as u64)
        ),
        _ => return Ok(Exit::Done),
    };
    let place = in_database(&database.database);
    let hint = match answer.found {
        true => String::new(),
        false => wildcard_hint(&key.shown, "pelton scan --prefix", "keys"),
    };
    say_miss(
        database.connection.output,
        &format!("the key `{}` {what}{place}{hint}", key.shown),
    );
    Ok(Exit::Miss)
}

/// Refuses a value that would put a terminal into disorder.
fn check_terminal(key: &Key, value: &[u8]) -> Result<(), Failure> {
    let what = format!(
        "the value of `{}`, {},",
        key.shown,
        bytes(value.len() as u64)
    );
    let number = match number_of(value) {
        Some(number) => format!("--number prints it as a number ({number}); "),
        None => String::new(),
    };
    let instead = format!(
        "{number}write it into a file (`> FILE`), take --output json, or pipe it to `cat` to see \
         it all the same"
    );
    Output::check_terminal(value, &what, &instead)
}

/// The number that a value is, if it is one.
fn number_of(value: &[u8]) -> Option<i64> {
    let bytes: [u8; NUMBER_BYTES] = value.try_into().ok()?;
    Some(i64::from_be_bytes(bytes))
}
