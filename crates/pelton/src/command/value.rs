//! The value and the condition of a command that writes.

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use store::Condition;

use crate::arguments::{ConditionArguments, ValueArguments};
use crate::exit::Failure;
use crate::input::unreadable;

/// The longest value that any server can be set to take; more is not even read.
const VALUE_BYTES_MAX: u64 = store::limits::VALUE_BYTES_MAX as u64;

/// The condition of the command line.
pub fn condition(arguments: &ConditionArguments) -> Condition<'_> {
    match (arguments.if_version, &arguments.if_value) {
        (Some(version), _) => Condition::VersionIs(version),
        (None, Some(value)) => Condition::ValueIs(value.as_bytes()),
        (None, None) if arguments.if_absent => Condition::Absent,
        (None, None) if arguments.if_present => Condition::Present,
        (None, None) => Condition::None,
    }
}

/// The value from the argument, a file or standard input. `usage` is how the command is written.
pub fn value(arguments: &ValueArguments, usage: &str) -> Result<Vec<u8>, Failure> {
    match (&arguments.value, &arguments.file) {
        (_, Some(file)) if file != Path::new("-") => read_file(file),
        (Some(value), None) if value != "-" => Ok(value.as_bytes().to_vec()),
        (None, None) if io::stdin().is_terminal() => Err(Failure::Usage(format!(
            "there is no value: write `{usage}`, use --file FILE, or pipe it in"
        ))),
        _ => read_value(io::stdin().lock(), "standard input"),
    }
}

fn read_file(path: &Path) -> Result<Vec<u8>, Failure> {
    let name = path.display().to_string();
    let file = File::open(path).map_err(|error| unreadable(&name, &error))?;
    read_value(file, &name)
}

fn read_value(source: impl Read, name: &str) -> Result<Vec<u8>, Failure> {
    let mut value = Vec::new();
    source
        .take(VALUE_BYTES_MAX + 1)
        .read_to_end(&mut value)
        .map_err(|error| unreadable(name, &error))?;
    if value.len() as u64 > VALUE_BYTES_MAX {
        return Err(Failure::Failed(format!(
            "{name} has more than {VALUE_BYTES_MAX} bytes, the most that any value can have"
        )));
    }
    Ok(value)
}
