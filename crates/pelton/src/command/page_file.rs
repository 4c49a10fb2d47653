//! Files into which a report is drawn.

use std::fs;
use std::io;
use std::path::Path;

use crate::exit::Failure;

/// A file that a flag names, if it does.
pub struct PageFile<'a> {
    /// The flag, as it is written.
    flag: &'static str,
    path: Option<&'a Path>,
    /// It was not there before, and nothing has been written: it goes with this.
    is_new: bool,
}

impl Drop for PageFile<'_> {
    fn drop(&mut self) {
        if let Some(path) = self.path.filter(|_| self.is_new) {
            // An empty page that stays is a lesser evil than a word about it.
            let _ = fs::remove_file(path);
        }
    }
}

impl<'a> PageFile<'a> {
    /// The file of a flag, for a report that does not exist yet.
    ///
    /// # Errors
    /// If it could not be written: before anything is begun.
    pub fn check(flag: &'static str, path: Option<&'a Path>) -> Result<PageFile<'a>, Failure> {
        let mut page = PageFile {
            flag,
            path,
            is_new: false,
        };
        if let Some(path) = path {
            let mut options = fs::File::options();
            options.write(true);
            let created = options.create_new(true).open(path);
            page.is_new = created.is_ok();
            let opened = match created {
                // Also a link whose file is not there yet.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => options
                    .create_new(false)
                    .create(true)
                    .truncate(false)
                    .open(path),
                created => created,
            };
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
        mut self,
        draw: impl FnOnce() -> String,
        print: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let written = self.write(draw);
        print()?;
        written
    }

    fn write(&mut self, draw: impl FnOnce() -> String) -> Result<(), Failure> {
        let Some(path) = self.path else {
            return Ok(());
        };
        self.is_new = false;
        fs::write(path, draw()).map_err(|error| self.not_written(path, &error))
    }

    fn not_written(&self, path: &Path, error: &io::Error) -> Failure {
        Failure::Failed(format!(
            "{}: cannot write {}: {error}",
            self.flag,
            path.display()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_was_not_written_is_not_left_behind() {
        let name = format!("pelton-page-{:016x}.html", crate::randomness::random());
        let path = std::env::temp_dir().join(name);
        drop(PageFile::check("--html", Some(&path)).expect("it can be written"));
        assert!(!path.exists());
        let page = PageFile::check("--html", Some(&path)).expect("it can be written");
        let written = page.write_and_print(|| "drawn".into(), || Err(Failure::BrokenPipe));
        assert!(matches!(written, Err(Failure::BrokenPipe)));
        assert_eq!(fs::read_to_string(&path).expect("it is there"), "drawn");
        // What was there before is not this command's.
        drop(PageFile::check("--html", Some(&path)).expect("it can be written"));
        assert_eq!(fs::read_to_string(&path).expect("it is there"), "drawn");
        fs::remove_file(&path).expect("it is there");
    }
}
