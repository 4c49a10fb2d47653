//! `pelton put`

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use service::Method;
use service::keyvalue::messages::{PutResponse, Request};
use store::{Condition, Expiry, Operation};

use super::{Caller, Key, in_database, say_miss, unreadable};
use crate::arguments::PutArguments;
use crate::exit::{Exit, Failure};
use crate::output::{Output, object};

/// The longest value that any server can be set to take; more is not even read.
const VALUE_BYTES_MAX: u64 = store::limits::VALUE_BYTES_MAX as u64;

/// Writes the value of a key.
pub fn put(arguments: &PutArguments) -> Result<Exit, Failure> {
    let database = &arguments.database;
    let key = Key::new(&arguments.key, database)?;
    let value = value(arguments)?;
    let operation = Operation::Put {
        key: &key.bytes,
        value: &value,
        condition: condition(arguments),
        expiry: Expiry::None,
        want_previous: false,
    };
    let mut request = Vec::with_capacity(value.len() + key.bytes.len() + 64);
    Request {
        database: &database.database,
        operation,
    }
    .encode(&mut request);

    let answer = Caller::connect(&database.connection)?.unary(Method::Put, &request)?;
    let answer = PutResponse::decode(&answer).map_err(unreadable)?;
    let mut output = Output::new(database.connection.output);
    if output.is_json() {
        output.object(object([
            ("applied", answer.applied.into()),
            ("version", answer.version.into()),
        ]))?;
    } else if answer.applied {
        output.line(&format!("stored, version {}", answer.version))?;
    }
    output.end()?;
    if answer.applied {
        return Ok(Exit::Done);
    }
    let found = match answer.version {
        0 => "is not there".to_owned(),
        version => format!("is there with version {version}"),
    };
    let place = in_database(&database.database);
    say_miss(
        database.connection.output,
        &format!("nothing written: the key `{}` {found}{place}", key.shown),
    );
    Ok(Exit::Miss)
}

fn condition(arguments: &PutArguments) -> Condition<'static> {
    match arguments.if_version {
        Some(version) => Condition::VersionIs(version),
        None if arguments.if_absent => Condition::Absent,
        None if arguments.if_present => Condition::Present,
        None => Condition::None,
    }
}

/// The value from the argument, a file or standard input.
fn value(arguments: &PutArguments) -> Result<Vec<u8>, Failure> {
    match (&arguments.value, &arguments.file) {
        (_, Some(file)) if file != Path::new("-") => read_file(file),
        (Some(value), None) if value != "-" => Ok(value.as_bytes().to_vec()),
        (None, None) if io::stdin().is_terminal() => Err(Failure::Usage(
            "there is no value: write `pelton put KEY VALUE`, use --file FILE, or pipe it in"
                .into(),
        )),
        _ => read_value(io::stdin().lock(), "standard input"),
    }
}

fn read_file(path: &Path) -> Result<Vec<u8>, Failure> {
    let name = path.display().to_string();
    let file = File::open(path).map_err(|error| unreadable_value(&name, &error))?;
    read_value(file, &name)
}

fn read_value(source: impl Read, name: &str) -> Result<Vec<u8>, Failure> {
    let mut value = Vec::new();
    source
        .take(VALUE_BYTES_MAX + 1)
        .read_to_end(&mut value)
        .map_err(|error| unreadable_value(name, &error))?;
    if value.len() as u64 > VALUE_BYTES_MAX {
        return Err(Failure::Failed(format!(
            "{name} has more than {VALUE_BYTES_MAX} bytes, the most that any value can have"
        )));
    }
    Ok(value)
}

fn unreadable_value(name: &str, error: &io::Error) -> Failure {
    Failure::Failed(format!("cannot read the value from {name}: {error}"))
}
