//! The configuration file.

use std::fs;
use std::path::PathBuf;

use clap::Args;

use super::SettingsError;
use crate::arguments::{ServeArguments, word_like};

/// What the library says of types, and what there has to be.
const TYPES: [(&str, &str); 6] = [
    ("expected usize", "write a whole number"),
    ("expected u32", "write a whole number"),
    ("expected u64", "write a whole number"),
    ("expected a boolean", "write true or false, without quotes"),
    ("expected a string", "write a text in quotes"),
    (
        "string values must be quoted, expected literal string",
        "a text stands in quotes, as in data = \"/srv/pelton\"",
    ),
];

/// The message of the library, that of Rust types and all known names at once, in the words of
/// somebody who writes a file.
fn in_words(message: &str) -> String {
    let mut message = message.trim_end().to_owned();
    for (type_name, words) in TYPES {
        message = message.replace(type_name, words);
    }
    let Some((before, rest)) = message.split_once("unknown field `") else {
        return message;
    };
    let Some((written, _)) = rest.split_once('`') else {
        return message;
    };
    let usual = written.to_lowercase().replace('_', "-");
    let names = names();
    let is_table = before.contains(&format!("[{written}]"));
    let what_to_do = match word_like(&usual, names.iter().map(String::as_str)) {
        _ if is_table => "settings stand in no table: leave the line out".to_owned(),
        Some(name) => format!("did you mean `{name}`?"),
        None => "`pelton config print` shows all there are".to_owned(),
    };
    format!("{before}there is no setting `{written}`; {what_to_do}")
}

/// Returns the message of the library, which shows the line. Where headers of exports stand in the
/// file it does not, since they may be secrets: only where it is.
fn shown(text: &str, error: &toml::de::Error) -> String {
    let has_headers = text.lines().any(|line| {
        let rest = line.trim_start().strip_prefix("otlp-header");
        rest.is_some_and(|rest| !rest.starts_with("-file"))
    });
    if !has_headers {
        return error.to_string();
    }
    let before = error.span().and_then(|span| text.get(..span.start));
    let line = before.map_or(1, |before| before.matches('\n').count() + 1);
    format!("line {line}: {}", error.message())
}

/// The names that can stand in a file: those of the flags, but for the ones that say which file it
/// is.
fn names() -> Vec<String> {
    let command = ServeArguments::augment_args(clap::Command::new("serve"));
    let flags = command.get_arguments().filter_map(clap::Arg::get_long);
    flags
        .filter(|name| !["config", "accept-loss"].contains(name))
        .map(str::to_owned)
        .collect()
}

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
            message: in_words(&shown(&text, &error)),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_shows_no_header() {
        let shown = |text: &str| {
            let error = SettingsFile::parse(text).expect_err(text);
            in_words(&super::shown(text, &error))
        };
        for (text, line) in [
            ("threads = 1\notlp-header = \"x-key=s3cret\n", "line 2"),
            ("otlp-header = [\n  'x=s3cret',\n  'y=s3cret\n]", "line 3"),
            ("threads = 's3'\notlp-header = 'x=s3cret'", "line 1"),
        ] {
            let message = shown(text);
            assert!(message.contains(line), "{message}");
            assert!(!message.contains("s3cret"), "{message}");
        }
        let message = shown("otlp-header-file = '/x\nthreads = 1");
        assert!(message.contains("otlp-header-file = '/x"), "{message}");
    }
}
