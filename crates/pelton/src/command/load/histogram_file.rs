//! The file of `--histogram`.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use lab::{HistogramLog, Report};

use crate::exit::Failure;

/// A file that will have the latencies of a run. It is opened before the run, so that a file that
/// cannot be written costs no run, and keeps what it has until there is something to write.
pub(super) struct HistogramFile {
    file: File,
    path: PathBuf,
}

impl HistogramFile {
    /// Opens the file, and makes it where there is none.
    pub(super) fn open(path: &Path) -> Result<HistogramFile, Failure> {
        let mut options = OpenOptions::new();
        let opened = options.write(true).create(true).truncate(false).open(path);
        Ok(HistogramFile {
            file: opened.map_err(|error| unwritable(path, &error))?,
            path: path.to_owned(),
        })
    }

    /// Writes the latencies of a run that has just ended.
    pub(super) fn write(mut self, report: &Report) -> Result<(), Failure> {
        let length = Duration::from_nanos(report.outcome().elapsed_ns);
        let start = SystemTime::now().checked_sub(length);
        let start = start.unwrap_or(SystemTime::UNIX_EPOCH);
        let log = HistogramLog::of(report).encode(start, length);
        let bytes = log.map_err(|error| Failure::Failed(format!("--histogram: {error}")))?;
        let emptied = self.file.set_len(0);
        let written = emptied.and_then(|()| self.file.write_all(&bytes));
        written.map_err(|error| unwritable(&self.path, &error))
    }
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Failed(format!(
        "--histogram: cannot write {}: {error}",
        path.display()
    ))
}
