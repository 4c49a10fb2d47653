//! What is wrong with settings.

use std::io;
use std::path::{Path, PathBuf};

/// Why there are no settings to run with. Each names the file or the flag and says what is right.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The configuration file cannot be read.
    #[error("{}", unreadable(.path, .error))]
    Unreadable { path: PathBuf, error: io::Error },
    /// The configuration file is not what it should be.
    #[error("the configuration file {} is wrong: {}", .path.display(), .message.trim_end())]
    BadFile { path: PathBuf, message: String },
    /// A setting has a value that no server can run with.
    #[error("{name} is {value}, which is not possible: {allowed} (see pelton serve --help)")]
    OutOfRange {
        name: &'static str,
        value: String,
        allowed: String,
    },
    /// What is wrong stands in the configuration file, at this place.
    #[error("{place}: {}", without_name(.error))]
    InFile {
        place: String,
        error: Box<SettingsError>,
    },
    /// Two settings do not go together.
    #[error("{0} (see pelton serve --help)")]
    Contradiction(String),
}

fn unreadable(path: &Path, error: &io::Error) -> String {
    let path = path.display();
    match error.kind() {
        io::ErrorKind::InvalidData => format!("the configuration file {path} is not UTF-8 text"),
        _ => format!("cannot read the configuration file {path}: {error}"),
    }
}

/// Returns what is wrong at a place that shows the name and the value.
fn without_name(error: &SettingsError) -> String {
    match error {
        SettingsError::OutOfRange { allowed, .. } => {
            format!("not possible: {allowed} (see pelton serve --help)")
        }
        error => error.to_string(),
    }
}
