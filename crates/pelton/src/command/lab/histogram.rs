//! `pelton lab histogram`

use std::io::Read;
use std::path::Path;

use lab::{HistogramLog, limits};

use crate::arguments::{HistogramArguments, OutputFormat};
use crate::exit::{Exit, Failure};
use crate::input;
use crate::output::Output;

/// Adds up the histograms of all files, and prints their percentiles.
pub(super) fn histogram(arguments: &HistogramArguments) -> Result<Exit, Failure> {
    let mut log = HistogramLog::default();
    for file in &arguments.files {
        let bytes = read(file)?;
        log.add(&bytes).map_err(|error| {
            Failure::Failed(format!(
                "{}: {error}; `pelton load --histogram FILE` writes such a file",
                file.display()
            ))
        })?;
    }
    let mut output = Output::new(arguments.output.format);
    match arguments.output.format {
        OutputFormat::Json => {
            for fields in log.fields() {
                output.object(fields)?;
            }
        }
        OutputFormat::Text => output.line(&log.text())?,
    }
    output.end()?;
    Ok(Exit::Done)
}

fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    let input = input::open(Some(file))?;
    let mut bytes = Vec::new();
    let most = limits::MAX_HISTOGRAM_FILE_BYTES;
    let mut source = input.source.take(most as u64 + 1);
    let read = source.read_to_end(&mut bytes);
    read.map_err(|error| input::unreadable(&input.name, &error))?;
    match bytes.len() > most {
        true => Err(Failure::Failed(format!(
            "{} has more than {most} bytes, which is all that can be used",
            input.name
        ))),
        false => Ok(bytes),
    }
}
