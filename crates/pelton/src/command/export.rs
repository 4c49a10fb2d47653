//! `pelton export`

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use api::keyvalue::{CountPrecision, CountRequest, CountResponse, ScanPage, ScanRequest};
use client::{CallOptions, StreamStep};
use service::Method;

use super::{Caller, call_failure, path, unreadable};
use crate::arguments::{ExportArguments, ExportFormat};
use crate::exit::{Exit, Failure};
use crate::export_format::ExportWriter;
use crate::in_place;
use crate::interrupt::Interrupt;
use crate::limits::EXPORT_PARTIAL_NAMES;
use crate::output::{self, Output, object};
use crate::progress::ProgressLine;

/// How long to wait for a page before the user is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// Bytes gathered before they are written.
const BUFFER_BYTES: usize = 256 << 10;

/// Writes all entries of a database.
pub fn export(arguments: &ExportArguments) -> Result<Exit, Failure> {
    if to_standard_output(arguments)
        && arguments.format == ExportFormat::Binary
        && io::stdout().is_terminal()
    {
        return Err(Failure::Usage(
            "an export of --format binary is no text, and standard output is a terminal: name a \
             file, write `> FILE`, or take --format jsonl"
                .into(),
        ));
    }
    let interrupt = Interrupt::listen();
    let mut caller = Caller::connect(&arguments.connection)?;
    let total = match ProgressLine::is_wanted() {
        true => Some(count(&mut caller, &arguments.database)?),
        false => None,
    };
    let (out, place) = open(arguments)?;
    let name = place.as_ref().map(|place| place.path.display().to_string());
    let left = match &name {
        Some(name) => format!("{name} was not written"),
        None => "what was printed is incomplete".into(),
    };
    let entries = write_all(
        &mut caller,
        arguments,
        &interrupt,
        &ProgressLine::entries("exporting", total),
        BufWriter::with_capacity(BUFFER_BYTES, out),
    )
    .map_err(|failure| failure.with(&left))?;
    if let (Some(place), Some(name)) = (place, name) {
        place.complete(arguments.force)?;
        say(arguments, entries, &name)?;
    }
    Ok(Exit::Done)
}

fn count(caller: &mut Caller, database: &str) -> Result<u64, Failure> {
    let mut request = Vec::new();
    CountRequest {
        database,
        precision: CountPrecision::Estimate.number(),
        ..CountRequest::default()
    }
    .encode(&mut request);
    let answer = caller.unary(Method::Count, &request)?;
    Ok(CountResponse::decode(&answer).map_err(unreadable)?.count)
}

/// Scans the database into `out`. Returns how many entries there were.
fn write_all(
    caller: &mut Caller,
    arguments: &ExportArguments,
    interrupt: &Interrupt,
    progress: &ProgressLine,
    out: impl Write,
) -> Result<u64, Failure> {
    let (address, timeout) = (caller.address.clone(), caller.timeout);
    let failed = |error| call_failure(&address, Method::Scan.path(), &error);
    let mut scan = caller
        .channel
        .streaming(&path(Method::Scan), &CallOptions::default())
        .map_err(failed)?;
    scan.send(&scan_request(&arguments.database));
    scan.close_send();
    // Begun with the first page: of a database that does not exist not even an empty export is
    // made.
    let (mut out, mut writer) = (Some(out), None);
    let (mut entries, mut is_complete, mut last_page) = (0, false, Instant::now());
    loop {
        if interrupt.is_set() {
            return Err(Failure::Interrupted(format!(
                "interrupted after {}",
                output::entries(entries)
            )));
        }
        match scan.poll(LOOK).map_err(failed)? {
            StreamStep::Message(page) => {
                let page = ScanPage::decode(&page).map_err(unreadable)?;
                if let Some(out) = out.take() {
                    writer = Some(ExportWriter::begin(arguments.format, out).map_err(written)?);
                }
                let writer = writer.as_mut().expect("it was begun with the first page");
                for entry in &page.entries {
                    let entry = entry.map_err(unreadable)?;
                    writer.entry(&entry).map_err(written)?;
                    entries += 1;
                }
                is_complete |= page.last;
                progress.set(entries);
                last_page = Instant::now();
            }
            StreamStep::Ended if is_complete => {
                let writer = writer.expect("the last page has come, and so the first");
                let mut out = writer.end().map_err(written)?;
                out.flush().map_err(written)?;
                return Ok(entries);
            }
            StreamStep::Ended => return Err(unreadable("the last page of the scan is missing")),
            StreamStep::Nothing if last_page.elapsed() >= timeout => {
                return Err(Failure::Failed(format!(
                    "{} on {address}: no answer for {timeout:.1?}; --timeout says how long to wait",
                    Method::Scan.path()
                )));
            }
            StreamStep::Nothing => {}
        }
    }
}

fn scan_request(database: &str) -> Vec<u8> {
    let mut request = Vec::new();
    ScanRequest {
        database,
        ..ScanRequest::default()
    }
    .encode(&mut request);
    request
}

fn written(error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::BrokenPipe,
        _ => Failure::Failed(format!("cannot write: {error}")),
    }
}

/// Says on standard output what is in the file; on a pipe the export itself is there.
fn say(arguments: &ExportArguments, entries: u64, name: &str) -> Result<(), Failure> {
    let mut output = Output::new(arguments.connection.output);
    let text = format!("{} written to {name}", output::entries(entries));
    output.either(&text, || {
        object([("entries", entries.into()), ("file", name.into())])
    })?;
    output.end()
}

/// A file under the name that it has until it is complete. Removed with the value.
struct ExportFile {
    path: PathBuf,
    partial: PathBuf,
    file: File,
}

impl Drop for ExportFile {
    fn drop(&mut self) {
        // Renamed, it is no longer there.
        let _ = fs::remove_file(&self.partial);
    }
}

impl ExportFile {
    /// All is written: gives the file its name, once it is on the device; that of another file only
    /// if it may be replaced.
    fn complete(self, may_replace: bool) -> Result<(), Failure> {
        let put = || in_place::put(&self.partial, &self.path, may_replace);
        let named = self.file.sync_all().and_then(|()| put());
        named.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => in_place::there(&self.path),
            _ => unwritable(&self.path, &error),
        })
    }
}

fn to_standard_output(arguments: &ExportArguments) -> bool {
    let file = arguments.file.as_deref();
    file.is_none_or(|path| path == Path::new("-"))
}

/// Where an export goes; with a place, if it is a file that is to appear when it is complete.
fn open(arguments: &ExportArguments) -> Result<(Box<dyn Write>, Option<ExportFile>), Failure> {
    let file = arguments.file.as_deref();
    let Some(path) = file.filter(|path| *path != Path::new("-")) else {
        return Ok((Box::new(io::stdout()), None));
    };
    // A link stays one: what it points to is replaced.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    match fs::metadata(&path) {
        // A device or a named pipe is written to, and not replaced by a file.
        Ok(about) if !about.is_file() => {
            let file = OpenOptions::new().write(true).open(&path);
            return match file {
                Ok(file) => Ok((Box::new(file), None)),
                Err(error) => Err(unwritable(&path, &error)),
            };
        }
        Ok(_) if !arguments.force => {
            return Err(Failure::Failed(format!(
                "{} is there already, nothing was written; --force replaces it",
                path.display()
            )));
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(unwritable(&path, &error));
        }
        _ => {}
    }
    let (partial, file) = create_partial(&path)?;
    let out = file
        .try_clone()
        .map_err(|error| unwritable(&partial, &error))?;
    let place = ExportFile {
        path,
        partial,
        file,
    };
    Ok((Box::new(out), Some(place)))
}

/// Creates the file in which an export is written until it is complete: `NAME.partial`, or with a
/// number where that is there, since it may be of another export, or somebody's own.
fn create_partial(path: &Path) -> Result<(PathBuf, File), Failure> {
    for number in 1..=EXPORT_PARTIAL_NAMES {
        let mut partial = OsString::from(path);
        partial.push(match number {
            1 => ".partial".into(),
            number => format!(".{number}.partial"),
        });
        let partial = PathBuf::from(partial);
        match File::create_new(&partial) {
            Ok(file) => return Ok((partial, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(unwritable(&partial, &error)),
        }
    }
    let path = path.display();
    Err(Failure::Failed(format!(
        "cannot write {path}: {path}.partial and {EXPORT_PARTIAL_NAMES} such names are there; \
         remove those of exports that were killed"
    )))
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    Failure::Failed(format!("cannot write {}: {error}", path.display()))
}
