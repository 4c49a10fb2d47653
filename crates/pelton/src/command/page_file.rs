//! Files into which a report is drawn.

use std::fs;
use std::io;
use std::path::Path;

use crate::exit::Failure;

/// A file that a flag names, if it does.
#[derive(Clone, Copy)]
pub struct PageFile<'a> {
    /// The flag, as it is written.
    flag: &'static str,
    path: Option<&'a Path>,
}

impl<'a> PageFile<'a> {
    /// The file of a flag, for a report that does not exist yet.
    ///
    /// # Errors
    /// If it could not be written: before anything is begun.
    pub fn check(flag: &'static str, path: Option<&'a Path>) -> Result<PageFile<'a>, Failure> {
        let page = PageFile { flag, path };
        if let Some(path) = path {
            let mut options = fs::File::options();
            let opened = options.create(true).truncate(false).write(true).open(path);
            opened.map_err(|error| page.not_written(path, &error))?;
        }
        Ok(page)
    }

    /// Writes what `draw` returns, if there is a file, and prints with `print`. However the one
    /// goes, the other is tried: nobody may read what is printed.
    ///
    /// # Errors
    /// That of `print`, or else that the file cannot be written.
    pub fn write_and_print(
        self,
        draw: impl FnOnce() -> String,
        print: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let written = self.write(draw);
        print()?;
        written
    }

    fn write(self, draw: impl FnOnce() -> String) -> Result<(), Failure> {
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
