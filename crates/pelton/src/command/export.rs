//! `pelton export`

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

use api::keyvalue::{CountPrecision, CountRequest, Entry, ScanRequest};
use api::rpc::keyvalue::Count;

use super::Caller;
use super::resumable_scan::{EntrySink, ResumableScan};
use crate::arguments::{ExportArguments, ExportFormat};
use crate::exit::{Exit, Failure};
use crate::export_format::ExportWriter;
use crate::in_place;
use crate::interrupt::Interrupt;
use crate::limits::EXPORT_PARTIAL_NAMES;
use crate::output::{self, Output, object};
use crate::progress::ProgressLine;

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
        caller,
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
    let request = CountRequest {
        database,
        precision: CountPrecision::Estimate.number(),
        ..CountRequest::default()
    };
    Ok(caller.call::<Count>(&request)?.message().count)
}

/// An export on its way out.
struct Exporting<'a, W> {
    format: ExportFormat,
    interrupt: &'a Interrupt,
    progress: &'a ProgressLine,
    /// Begun with the first page: of a database that does not exist not even an empty export is
    /// made.
    out: Option<W>,
    writer: Option<ExportWriter<W>>,
}

impl<W: Write> EntrySink for Exporting<'_, W> {
    fn entry(&mut self, entry: &Entry<'_>) -> Result<(), Failure> {
        self.begin()?;
        let writer = self.writer.as_mut();
        writer.map_or(Ok(()), |writer| writer.entry(entry).map_err(written))
    }

    fn page(&mut self, entries: u64) -> Result<(), Failure> {
        self.progress.set(entries);
        self.begin()
    }

    fn check_interrupt(&self, entries: u64) -> Result<(), Failure> {
        match self.interrupt.is_set() {
            true => Err(Failure::Interrupted(format!(
                "interrupted after {}",
                output::entries(entries)
            ))),
            false => Ok(()),
        }
    }
}

impl<W: Write> Exporting<'_, W> {
    fn begin(&mut self) -> Result<(), Failure> {
        if let Some(out) = self.out.take() {
            self.writer = Some(ExportWriter::begin(self.format, out).map_err(written)?);
        }
        Ok(())
    }

    fn end(self) -> Result<(), Failure> {
        let Some(writer) = self.writer else {
            return Ok(());
        };
        let mut out = writer.end().map_err(written)?;
        out.flush().map_err(written)
    }
}

/// Scans the database into `out`. Returns how many entries there were.
fn write_all(
    caller: Caller,
    arguments: &ExportArguments,
    interrupt: &Interrupt,
    progress: &ProgressLine,
    out: impl Write,
) -> Result<u64, Failure> {
    let mut exporting = Exporting {
        format: arguments.format,
        interrupt,
        progress,
        out: Some(out),
        writer: None,
    };
    let request = ScanRequest {
        database: &arguments.database,
        ..ScanRequest::default()
    };
    let scan = ResumableScan::new(&arguments.connection, request);
    let entries = scan.run(caller, &mut exporting, |_| None)?;
    exporting.end()?;
    Ok(entries)
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
