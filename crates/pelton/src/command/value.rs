//! The value and the condition of a command that writes.

use std::fs::{self, File, Metadata};
use std::io::{self, IsTerminal, Read};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use api::keyvalue::Condition;

use crate::arguments::{ConditionArguments, ValueArguments};
use crate::encoding::escape;
use crate::exit::Failure;
use crate::input::{self, unreadable};

/// The longest value that any server can be set to take; more is not even read.
const VALUE_BYTES_MAX: u64 = store::limits::VALUE_BYTES_MAX as u64;

/// Bytes of a number, as `pelton incr` stores it.
pub const NUMBER_BYTES: usize = 8;

/// Characters that a message shows of what was to be a number: more than any number has.
const LONGEST_SHOWN: usize = 32;

/// The condition of the command line.
pub fn condition(arguments: &ConditionArguments) -> Option<Condition<'_>> {
    match (arguments.if_version, &arguments.if_value) {
        (Some(version), _) => Some(Condition::IfVersion(version)),
        (None, Some(value)) => Some(Condition::IfValue(value.as_bytes())),
        (None, None) if arguments.if_absent => Some(Condition::IfExists(false)),
        (None, None) if arguments.if_present => Some(Condition::IfExists(true)),
        (None, None) => None,
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
        (None, None) if is_null_device() => Err(Failure::Usage(format!(
            "there is no value: standard input is closed or /dev/null; write `{usage}` ('' is an \
             empty value), use --file FILE, or pipe it in"
        ))),
        _ => {
            let value = read_value(io::stdin().lock(), "standard input", 0)?;
            match value.is_empty() {
                true => Err(input::empty(
                    "standard input",
                    &format!(
                        "`{}` writes an empty value, and so does --file with an empty file",
                        usage.replace("VALUE", "''")
                    ),
                )),
                false => Ok(value),
            }
        }
    }
}

/// Whether standard input is /dev/null, which is also what the program finds instead of one that
/// was closed. Where a value was forgotten or its variable is not set, as in a job of cron or
/// systemd, nothing must not become the value.
fn is_null_device() -> bool {
    let Ok(input) = io::stdin().as_fd().try_clone_to_owned() else {
        return true;
    };
    let (input, null) = (File::from(input).metadata(), fs::metadata("/dev/null"));
    input.is_ok_and(|input| {
        input.file_type().is_char_device() && null.is_ok_and(|null| null.rdev() == input.rdev())
    })
}

/// Returns the bytes of a number that was written as text, as `pelton incr` stores it. `name` is
/// what was written where.
pub fn number(text: &[u8], name: &str) -> Result<[u8; NUMBER_BYTES], Failure> {
    let text = String::from_utf8_lossy(text);
    let number: Result<i64, _> = text.trim().parse();
    number.map(i64::to_be_bytes).map_err(|_| {
        let shown: String = text.chars().take(LONGEST_SHOWN).collect();
        Failure::Usage(format!(
            "{name} is `{}`: with --number it is a whole number from {} to {}",
            escape(shown.as_bytes()),
            i64::MIN,
            i64::MAX
        ))
    })
}

fn read_file(path: &Path) -> Result<Vec<u8>, Failure> {
    let name = path.display().to_string();
    let file = File::open(path).map_err(|error| unreadable(&name, &error))?;
    // What is no regular file has no length that could be known before.
    let known = file.metadata().ok().filter(Metadata::is_file);
    let expected_bytes = known.map_or(0, |known| known.len());
    if expected_bytes > VALUE_BYTES_MAX {
        return Err(too_long(&name));
    }
    read_value(file, &name, expected_bytes)
}

/// Reads all of a source that has probably so many bytes, for which there is memory at once.
fn read_value(source: impl Read, name: &str, expected_bytes: u64) -> Result<Vec<u8>, Failure> {
    // One more, so that the end is found without more memory.
    let mut value = Vec::with_capacity(usize::try_from(expected_bytes).unwrap_or(0) + 1);
    source
        .take(VALUE_BYTES_MAX + 1)
        .read_to_end(&mut value)
        .map_err(|error| unreadable(name, &error))?;
    if value.len() as u64 > VALUE_BYTES_MAX {
        return Err(too_long(name));
    }
    Ok(value)
}

fn too_long(name: &str) -> Failure {
    Failure::Failed(format!(
        "{name} has more than {VALUE_BYTES_MAX} bytes, the most that any value can have; `pelton \
         upload` stores content of any size"
    ))
}
