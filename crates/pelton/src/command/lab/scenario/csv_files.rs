//! The files of `--csv`.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};

use lab::scenario::{Scenario, ScenarioReport};

use crate::exit::Failure;

/// Files that will have the times of uploads, one for each way.
pub(super) struct CsvFiles {
    path: PathBuf,
}

impl CsvFiles {
    /// Looks whether there can be such files, so that one that cannot be written costs no run.
    ///
    /// # Errors
    /// If the scenario has none, or a file cannot be made.
    pub(super) fn check(path: &Path, scenario: Scenario) -> Result<CsvFiles, Failure> {
        if path.file_name().is_none() {
            let text = format!("--csv: {} is no name of a file", path.display());
            return Err(Failure::Usage(text));
        }
        let names = scenario.csv_names().ok_or_else(|| {
            Failure::Usage(format!(
                "--csv is of the scenario chunk-size, and {} has no such files: leave it out; \
                 --output json has all figures",
                scenario.name()
            ))
        })?;
        let files = CsvFiles { path: path.into() };
        for name in names {
            let path = files.path_of(name);
            let mut options = OpenOptions::new();
            let opened = options.write(true).create(true).truncate(false).open(&path);
            opened.map_err(|error| unwritable(&path, &error))?;
        }
        Ok(files)
    }

    /// Writes what a report has.
    pub(super) fn write(&self, report: &ScenarioReport) -> Result<(), Failure> {
        for (name, text) in report.csv().unwrap_or_default() {
            let path = self.path_of(name);
            fs::write(&path, text).map_err(|error| unwritable(&path, &error))?;
        }
        Ok(())
    }

    /// The name of a way stands before the extension.
    fn path_of(&self, name: &str) -> PathBuf {
        let extension = self.path.extension();
        let extension = extension.map_or_else(|| "csv".into(), |text| text.to_string_lossy());
        self.path.with_extension(format!("{name}.{extension}"))
    }
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Failed(format!("--csv: cannot write {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_way_stands_before_the_extension() {
        for (path, expected) in [
            ("a/sizes.csv", "a/sizes.grpc-tls.csv"),
            ("sizes", "sizes.grpc-tls.csv"),
            ("sizes.v2.txt", "sizes.v2.grpc-tls.txt"),
        ] {
            let files = CsvFiles { path: path.into() };
            assert_eq!(files.path_of("grpc-tls"), Path::new(expected));
        }
    }

    #[test]
    fn a_scenario_without_such_files_and_a_folder_are_refused() {
        let refused = |path: &str, scenario| {
            let failure = CsvFiles::check(Path::new(path), scenario).err();
            failure.expect("refused").to_string()
        };
        let text = refused("a.csv", Scenario::Channels);
        assert!(text.contains("channels has no such files"), "{text}");
        let text = refused("/", Scenario::ChunkSize);
        assert!(text.contains("no name of a file"), "{text}");
        let text = refused("/nonexistent/a.csv", Scenario::ChunkSize);
        assert!(text.contains("/nonexistent/a.grpc.csv"), "{text}");
    }
}
