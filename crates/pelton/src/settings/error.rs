//! What is wrong with settings.

use std::fmt;
use std::path::PathBuf;

/// Why there are no settings to run with. Each names the file or the flag and says what is right.
#[derive(Debug)]
pub enum SettingsError {
    /// The configuration file cannot be read.
    Unreadable {
        path: PathBuf,
        error: std::io::Error,
    },
    /// The configuration file is not what it should be.
    BadFile { path: PathBuf, message: String },
    /// A setting has a value that no server can run with.
    OutOfRange {
        name: &'static str,
        value: String,
        allowed: String,
    },
    /// What is wrong stands in the configuration file, at this place.
    InFile {
        place: String,
        error: Box<SettingsError>,
    },
    /// Two settings do not go together.
    Contradiction(String),
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingsError::Unreadable { path, error }
                if error.kind() == std::io::ErrorKind::InvalidData =>
            {
                write!(
                    f,
                    "the configuration file {} is not UTF-8 text",
                    path.display()
                )
            }
            SettingsError::Unreadable { path, error } => {
                write!(
                    f,
                    "cannot read the configuration file {}: {error}",
                    path.display()
                )
            }
            SettingsError::BadFile { path, message } => {
                write!(
                    f,
                    "the configuration file {} is wrong: {}",
                    path.display(),
                    message.trim_end()
                )
            }
            SettingsError::InFile { place, error } => match error.as_ref() {
                // The place shows the name and the value.
                SettingsError::OutOfRange { allowed, .. } => {
                    write!(
                        f,
                        "{place}: not possible: {allowed} (see pelton serve --help)"
                    )
                }
                error => write!(f, "{place}: {error}"),
            },
            SettingsError::Contradiction(message) => {
                write!(f, "{message} (see pelton serve --help)")
            }
            SettingsError::OutOfRange {
                name,
                value,
                allowed,
            } => {
                write!(
                    f,
                    "{name} is {value}, which is not possible: {allowed} (see pelton serve --help)"
                )
            }
        }
    }
}

impl std::error::Error for SettingsError {}
