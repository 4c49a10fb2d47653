//! The configuration file.

use std::fs;

use super::SettingsError;
use crate::arguments::ServeArguments;

/// What the configuration file says.
#[derive(Debug, Default)]
pub struct SettingsFile {
    pub(super) arguments: ServeArguments,
    /// The names that stand in it, to tell what comes from where.
    pub(super) names: Vec<String>,
}

impl SettingsFile {
    /// Reads the file that the arguments name; without one it says nothing.
    pub(super) fn read(arguments: &ServeArguments) -> Result<SettingsFile, SettingsError> {
        let Some(path) = &arguments.config else {
            return Ok(SettingsFile::default());
        };
        let text = fs::read_to_string(path).map_err(|error| SettingsError::Unreadable {
            path: path.clone(),
            error,
        })?;
        SettingsFile::parse(&text).map_err(|error| SettingsError::BadFile {
            path: path.clone(),
            message: error.to_string(),
        })
    }

    pub(super) fn parse(text: &str) -> Result<SettingsFile, toml::de::Error> {
        let arguments = toml::from_str(text)?;
        let names = toml::from_str::<toml::Table>(text)?
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        Ok(SettingsFile { arguments, names })
    }
}
