//! Files into which a report is drawn.

use std::fs;
use std::io;
use std::path::Path;

use crate::exit::Failure;

/// A file that a flag names, if it does.
#[derive(Clone, Copy)]
pub(super) struct PageFile<'a> {
    /// The flag, as it is written.
    pub(super) flag: &'static str,
    pub(super) path: Option<&'a Path>,
}

impl PageFile<'_> {
    /// Fails before anything is begun if the page could not be kept.
    pub(super) fn check_writable(self) -> Result<(), Failure> {
        let Some(path) = self.path else {
            return Ok(());
        };
        let mut options = fs::File::options();
        let opened = options.create(true).truncate(false).write(true).open(path);
        opened
            .map(drop)
            .map_err(|error| self.not_written(path, &error))
    }

    /// Writes what `draw` returns.
    pub(super) fn write(self, draw: impl FnOnce() -> String) -> Result<(), Failure> {
        let Some(path) = self.path else {
            return Ok(());
        };
        fs::write(path, draw()).map_err(|error| self.not_written(path, &error))
    }

    fn not_written(self, path: &Path, error: &io::Error) -> Failure {
        Failure::Failed(format!(
            "{}: cannot write {}: {error}",
            self.flag,
            path.display()
        ))
    }
}
