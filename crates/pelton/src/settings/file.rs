//! The configuration file.

use std::fs;
use std::path::PathBuf;

use super::SettingsError;
use crate::arguments::ServeArguments;

/// What the configuration file says.
#[derive(Debug, Default)]
pub struct SettingsFile {
    pub(super) arguments: ServeArguments,
    /// The names that stand in it, to tell what comes from where.
    pub(super) names: Vec<String>,
    /// Where it is, and its text, to say where something wrong stands.
    path: PathBuf,
    text: String,
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
        let file = SettingsFile::parse(&text).map_err(|error| SettingsError::BadFile {
            path: path.clone(),
            message: error.to_string(),
        })?;
        Ok(SettingsFile {
            path: path.clone(),
            ..file
        })
    }

    /// Where a setting stands in the file, and what stands there; `None`: nowhere.
    pub(super) fn place_of(&self, name: &str) -> Option<String> {
        let is_it = |line: &str| {
            let rest = line.trim_start().strip_prefix(name);
            rest.is_some_and(|rest| rest.trim_start().starts_with('='))
        };
        let (index, line) = (self.text.lines().enumerate()).find(|(_, line)| is_it(line))?;
        Some(format!(
            "{}, line {}: {}",
            self.path.display(),
            index + 1,
            line.trim()
        ))
    }

    pub(super) fn parse(text: &str) -> Result<SettingsFile, toml::de::Error> {
        // Editors of some systems begin a file with a mark of its encoding.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let arguments = toml::from_str(text)?;
        let names = toml::from_str::<toml::Table>(text)?
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        Ok(SettingsFile {
            arguments,
            names,
            path: PathBuf::new(),
            text: text.into(),
        })
    }
}
