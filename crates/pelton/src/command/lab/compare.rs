//! `pelton lab compare`

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use lab::compare::{ComparedSide, Comparison};
use lab::sweep::limits;

use super::sweep::{make_writable, not_written};
use crate::arguments::CompareArguments;
use crate::exit::{Exit, Failure};
use crate::output::Output;

/// Compares two saved results; a miss if anything became worse, or nothing can be said.
pub fn compare(arguments: &CompareArguments) -> Result<Exit, Failure> {
    let one = side(&arguments.one)?;
    let other = side(&arguments.other)?;
    if let Some(path) = &arguments.html {
        make_writable(path)?;
    }
    let comparison = Comparison::new(one, other).ok_or_else(|| {
        Failure::Usage(format!(
            "{} and {} have no cell in common that has runs which are not void: compare results of \
             the same parameters and flags",
            arguments.one.display(),
            arguments.other.display()
        ))
    })?;
    let mut output = Output::new(arguments.format);
    output.either(&comparison.text(), || comparison.fields())?;
    output.end()?;
    if let Some(path) = &arguments.html {
        fs::write(path, comparison.html()).map_err(|error| not_written(path, &error))?;
    }
    Ok(match comparison.is_worse() || comparison.is_undecided() {
        true => Exit::Miss,
        false => Exit::Done,
    })
}

fn side(path: &Path) -> Result<ComparedSide, Failure> {
    let failed = |what: String| Failure::Failed(format!("{}: {what}", path.display()));
    let text = read(path).map_err(|error| failed(format!("cannot be read: {error}")))?;
    let name = path.display().to_string();
    ComparedSide::read(name, &text).map_err(|error| failed(error.to_string()))
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    // A file may grow, or have no length, as that of a pipe.
    let mut file = File::open(path)?.take(limits::MAX_SAVED_BYTES + 1);
    file.read_to_string(&mut text)?;
    match text.len() as u64 > limits::MAX_SAVED_BYTES {
        true => Err(io::Error::other("it is larger than any result")),
        false => Ok(text),
    }
}
