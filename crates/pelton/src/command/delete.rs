//! `pelton delete`

use std::os::unix::ffi::OsStrExt;

use api::keyvalue::{Condition, DeleteRequest};
use api::rpc::keyvalue::Delete;

use super::delete_range::delete_range;
use super::put::found;
use super::{Caller, Key, in_database, insert_previous, say_miss, show_previous, wildcard_hint};
use crate::arguments::DeleteArguments;
use crate::exit::{Exit, Failure};
use crate::output::{Output, object};

/// Removes a key, or a range of keys.
pub fn delete(arguments: &DeleteArguments) -> Result<Exit, Failure> {
    let database = &arguments.database;
    let Some(key) = &arguments.key else {
        return delete_range(arguments);
    };
    let key = Key::new(key, database)?;
    let condition = match (arguments.if_version, &arguments.if_value) {
        (Some(version), _) => Some(Condition::IfVersion(version)),
        (None, Some(value)) => Some(Condition::IfValue(value.as_bytes())),
        (None, None) => None,
    };
    let request = DeleteRequest {
        database: &database.database,
        key: &key.bytes,
        return_previous: arguments.previous,
        condition,
        ..DeleteRequest::default()
    };
    let reply = Caller::connect(&database.connection)?.call::<Delete>(&request)?;
    let answer = reply.message();
    let done = answer.deleted.then_some("the key is deleted all the same");
    let mut output = Output::new(database.connection.output).after(done);
    if output.is_json() {
        let mut fields = object([
            ("deleted", answer.deleted.into()),
            ("version", answer.version.into()),
        ]);
        insert_previous(&mut fields, answer.previous.as_ref(), arguments.previous);
        output.object(fields)?;
    } else if answer.deleted {
        output.line(&format!("deleted, it had version {}", answer.version))?;
        if arguments.previous {
            output.line(&show_previous(answer.previous.as_ref()))?;
        }
    }
    output.end()?;
    if answer.deleted {
        return Ok(Exit::Done);
    }
    let found = match answer.version {
        0 => "is not there".to_owned(),
        version if arguments.if_value.is_some() => found(version, true),
        version => format!("has version {version}"),
    };
    let place = in_database(&database.database);
    let hint = match answer.version {
        0 => wildcard_hint(&key.shown, "pelton delete --prefix", "keys"),
        _ => String::new(),
    };
    say_miss(
        database.connection.output,
        &format!(
            "nothing deleted: the key `{}` {found}{place}{hint}",
            key.shown
        ),
    );
    Ok(Exit::Miss)
}
