//! `pelton lab compare`

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use lab::compare::{ComparedSide, Comparison};
use lab::sweep::limits;

use super::print_report;
use crate::arguments::CompareArguments;
use crate::command::page_file::PageFile;
use crate::exit::{Exit, Failure};

/// Compares two saved results; a miss if anything became worse, or nothing can be said.
pub fn compare(arguments: &CompareArguments) -> Result<Exit, Failure> {
    let one = side(&arguments.one)?;
    let other = side(&arguments.other)?;
    let page = PageFile::check("--html", arguments.html.as_deref())?;
    let comparison = Comparison::new(one, other).ok_or_else(|| {
        Failure::Usage(format!(
            "{} and {} have no cell in common that has runs which are not void: compare results of \
             the same parameters and flags",
            arguments.one.display(),
            arguments.other.display()
        ))
    })?;
    page.write_and_print(
        || comparison.html(),
        || print_report(arguments.output, &comparison.text(), || comparison.fields()),
    )?;
    Ok(match comparison.is_worse() || comparison.is_undecided() {
        true => Exit::Miss,
        false => Exit::Done,
    })
}

fn side(path: &Path) -> Result<ComparedSide, Failure> {
    let failed = |what: String| Failure::Failed(format!("{}: {what}", path.display()));
    let file = read(path).map_err(|error| failed(format!("cannot be read: {error}")))?;
    let name = path.display().to_string();
    ComparedSide::read(name, &file).map_err(|error| failed(error.to_string()))
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // A file may grow, or have no length, as that of a pipe.
    let mut file = File::open(path)?.take(limits::MAX_SAVED_BYTES + 1);
    file.read_to_end(&mut bytes)?;
    match bytes.len() as u64 > limits::MAX_SAVED_BYTES {
        true => Err(io::Error::other("it is larger than any result")),
        false => Ok(bytes),
    }
}
