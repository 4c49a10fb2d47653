//! Profiles: a file of the user gives names to servers, with what it takes to call each.
//!
//! A profile stands below flags and variables, and above the defaults. One that is not named is
//! taken only where no address is given, and the token of one that is named goes to its address
//! only: else a token would go to another server.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{ArgMatches, Command};
use service::redact::contains_token;

use crate::arguments::{server_address, word_like};
use crate::credentials::token_as_file;
use crate::exit::Failure;
use crate::limits::PROFILES_FILE_BYTES;
use crate::settings::{PROFILES_VARIABLE, TOKEN_VARIABLE};

/// Where the file is in the folder with the user's settings.
const FILE: &str = "pelton/client.toml";

/// The profile of whoever names none.
const DEFAULT: &str = "default";

/// The flags that can stand in a profile, and whether they name files.
const FLAGS: [(&str, bool); 9] = [
    ("address", false),
    ("database", false),
    ("timeout", false),
    ("tls", false),
    ("tls-ca", true),
    ("tls-cert", true),
    ("tls-key", true),
    ("tls-server-name", false),
    ("token-file", true),
];

/// Why there is no profile to take anything from.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The file cannot be read.
    #[error("cannot read the profiles in {path}: {1}", path = .0.display())]
    Unreadable(PathBuf, io::Error),
    /// It is larger than such a file can be.
    #[error("{} has more than {PROFILES_FILE_BYTES} bytes: no file with profiles", .0.display())]
    TooLarge(PathBuf),
    /// It is no file with profiles.
    #[error("{path}: {1}", path = .0.display())]
    BadFile(PathBuf, String),
    /// It has none of this name, but these.
    #[error(fmt = no_profile)]
    NoProfile(PathBuf, String, Vec<String>),
    /// A profile was named, and there is no file.
    #[error(fmt = no_file)]
    NoFile(String, Option<PathBuf>),
}

fn no_profile(
    path: &Path,
    name: &str,
    names: &[String],
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    let path = path.display();
    match names.is_empty() {
        true => write!(f, "{path} has no profile: `[{name}]` begins one"),
        false => write!(
            f,
            "{path} has no profile `{name}`, but {}",
            names.join(", ")
        ),
    }
}

fn no_file(name: &str, path: &Option<PathBuf>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "there is no profile `{name}`")?;
    match path {
        Some(path) => write!(f, ", as there is no file {}", path.display()),
        None => write!(
            f,
            ": neither HOME nor {PROFILES_VARIABLE} says where the file is"
        ),
    }
}

impl From<ProfileError> for Failure {
    fn from(error: ProfileError) -> Failure {
        match error {
            // As of any other file.
            ProfileError::Unreadable(..) => Failure::Failed(error.to_string()),
            error => Failure::Usage(error.to_string()),
        }
    }
}

/// Flags with their values, by which the defaults of a command are replaced.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Profile {
    values: BTreeMap<&'static str, OsString>,
    /// Where it stands.
    file: PathBuf,
    name: String,
}

impl Profile {
    /// Leaves the token out where something else is stronger. Returns what is to be said of it.
    fn leave_token_out(&mut self, given: &Given) -> Option<String> {
        let has_token = self.values.contains_key("token-file");
        if !has_token || given.has_token_file {
            return None;
        }
        if given.has_token {
            // A variable, which is stronger than a profile.
            self.values.remove("token-file");
            return None;
        }
        let own = self.values.get("address")?.to_string_lossy().into_owned();
        let other = given
            .address
            .as_ref()
            .filter(|other| !is_same(&own, other))?;
        self.values.remove("token-file");
        Some(format!(
            "the token of the profile `{}` is for {own}, and is not sent to {other}: --token-file \
             or {TOKEN_VARIABLE} gives one for it",
            self.name
        ))
    }

    /// Returns what is wrong with a value that stands in it, from what is said of the flag.
    pub fn bad_value(&self, error: &clap::Error) -> Failure {
        let text = error.render().to_string();
        let first = text.split("\n\n").next().unwrap_or_default();
        let first = first.trim().trim_start_matches("error: ");
        let (file, name) = (self.file.display(), &self.name);
        Failure::Usage(format!("{file}: profile `{name}`: {first}"))
    }
}

/// What flags and variables say that a profile depends on.
#[derive(Debug, Default)]
struct Given {
    address: Option<String>,
    has_token_file: bool,
    /// In a variable.
    has_token: bool,
}

impl Given {
    fn of(matches: &ArgMatches) -> Given {
        let is_given = |id: &str| {
            let is_known = matches.try_contains_id(id).is_ok();
            is_known
                && matches!(
                    matches.value_source(id),
                    Some(ValueSource::CommandLine | ValueSource::EnvVariable)
                )
        };
        let address = is_given("address").then(|| {
            let raw = matches.get_raw("address").into_iter().flatten().next();
            raw.map(|value| value.to_string_lossy().into_owned())
        });
        let token = std::env::var_os(TOKEN_VARIABLE);
        Given {
            address: address.flatten(),
            has_token_file: is_given("token_file"),
            has_token: token.is_some_and(|value| !value.is_empty()),
        }
    }
}

/// Returns whether two texts are the same address.
fn is_same(one: &str, other: &str) -> bool {
    match (server_address(one), server_address(other)) {
        (Ok(one), Ok(other)) => one == other,
        _ => one == other,
    }
}

/// Returns the profile for a command line, if it is of a command that has profiles, and what is to
/// be said of it.
///
/// # Errors
/// If the one that is named is not there, or the file is none.
pub fn of_command(
    commands: &Command,
    matches: &ArgMatches,
) -> Result<Option<(Profile, Option<String>)>, ProfileError> {
    let (mut command, mut matches) = (commands, matches);
    while let Some((name, below)) = matches.subcommand() {
        let Some(found) = command.find_subcommand(name) else {
            return Ok(None);
        };
        (command, matches) = (found, below);
    }
    if !has_profile(command) {
        return Ok(None);
    }
    let named = matches.get_one::<String>("profile");
    let given = Given::of(matches);
    let profile = match named {
        None if given.address.is_some() => None,
        named => read(named.map(String::as_str), file_of_user())?,
    };
    Ok(profile.map(|mut profile| {
        let left_out = profile.leave_token_out(&given);
        (profile, left_out)
    }))
}

/// Returns where the file is, and whether somebody has said that it is there.
fn file_of_user() -> Option<(PathBuf, bool)> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(path) = variable(PROFILES_VARIABLE) {
        return Some((path.into(), true));
    }
    let folder = match variable("XDG_CONFIG_HOME") {
        Some(folder) => PathBuf::from(folder),
        None => PathBuf::from(variable("HOME")?).join(".config"),
    };
    Some((folder.join(FILE), false))
}

/// Reads a profile, or `default`, from a file. `None`: none is named, and there is none.
fn read(
    named: Option<&str>,
    file: Option<(PathBuf, bool)>,
) -> Result<Option<Profile>, ProfileError> {
    let Some((path, is_said)) = file else {
        return match named {
            Some(name) => Err(ProfileError::NoFile(name.to_owned(), None)),
            None => Ok(None),
        };
    };
    let text = match read_text(&path) {
        Ok(text) => text,
        Err(ProfileError::Unreadable(path, error))
            if error.kind() == ErrorKind::NotFound && !is_said =>
        {
            return match named {
                Some(name) => Err(ProfileError::NoFile(name.to_owned(), Some(path))),
                None => Ok(None),
            };
        }
        Err(error) => return Err(error),
    };
    let home = std::env::var_os("HOME").map(PathBuf::from);
    parse(&text, named, &path, home.as_deref())
}

fn read_text(path: &Path) -> Result<String, ProfileError> {
    let unreadable = |error| ProfileError::Unreadable(path.to_owned(), error);
    let file = File::open(path).map_err(unreadable)?;
    let mut text = String::new();
    // Not by the length that it has: that of a pipe or a device says nothing.
    let mut beginning = file.take(PROFILES_FILE_BYTES + 1);
    let bytes = beginning.read_to_string(&mut text).map_err(unreadable)?;
    match bytes as u64 > PROFILES_FILE_BYTES {
        true => Err(ProfileError::TooLarge(path.to_owned())),
        false => Ok(text),
    }
}

fn parse(
    text: &str,
    named: Option<&str>,
    path: &Path,
    home: Option<&Path>,
) -> Result<Option<Profile>, ProfileError> {
    let bad = |message: String| ProfileError::BadFile(path.to_owned(), message);
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let table: toml::Table =
        toml::from_str(text).map_err(|error: toml::de::Error| bad(error.to_string()))?;
    let mut profiles = BTreeMap::new();
    for (name, value) in table {
        let toml::Value::Table(flags) = value else {
            return Err(bad(format!(
                "`{name}` stands in no profile: write `[{DEFAULT}]`, or another name, above it"
            )));
        };
        let place = FilePlace {
            folder: path.parent().unwrap_or(Path::new("")),
            home,
        };
        let flags = flags.into_iter();
        let profile = flags.map(|(flag, value)| flag_of(&flag, value, &place));
        let profile: Result<BTreeMap<_, _>, String> = profile.collect();
        let profile = profile.map_err(|message| bad(format!("profile `{name}`: {message}")))?;
        let values = profile;
        let file = path.to_owned();
        let profile = Profile {
            values,
            file,
            name: name.clone(),
        };
        profiles.insert(name, profile);
    }
    match named {
        None => Ok(profiles.remove(DEFAULT)),
        Some(name) => match profiles.remove(name) {
            Some(profile) => Ok(Some(profile)),
            None => Err(ProfileError::NoProfile(
                path.to_owned(),
                name.to_owned(),
                profiles.into_keys().collect(),
            )),
        },
    }
}

/// What names of files in a profile are relative to.
struct FilePlace<'a> {
    folder: &'a Path,
    home: Option<&'a Path>,
}

impl FilePlace<'_> {
    fn path(&self, text: &str) -> OsString {
        match (text.strip_prefix("~/"), self.home) {
            (Some(rest), Some(home)) => home.join(rest).into(),
            _ => self.folder.join(text).into(),
        }
    }
}

/// A flag and its value, or what is wrong with them.
fn flag_of(
    flag: &str,
    value: toml::Value,
    place: &FilePlace<'_>,
) -> Result<(&'static str, OsString), String> {
    let Some((known, is_file)) = FLAGS.into_iter().find(|(known, _)| *known == flag) else {
        return Err(unknown(flag));
    };
    let value = match value {
        toml::Value::Boolean(is_wanted) if known == "tls" => is_wanted.to_string().into(),
        // The default database has no name.
        toml::Value::String(text) if known == "database" => text.into(),
        toml::Value::String(text) if known == "token-file" && contains_token(&text) => {
            return Err(token_as_file("token-file", "or put it into a file"));
        }
        toml::Value::String(text) if known != "tls" && !text.is_empty() => match is_file {
            true => place.path(&text),
            false => text.into(),
        },
        _ if known == "tls" => return Err("`tls` is true or false, without quotes".into()),
        _ => return Err(format!("`{known}` is a text in quotes")),
    };
    Ok((known, value))
}

fn unknown(flag: &str) -> String {
    if flag == "token" {
        return "a token stands in a file of its own, which only you can read: `token-file`".into();
    }
    let names = FLAGS.map(|(name, _)| name);
    match word_like(&flag.to_lowercase().replace('_', "-"), names) {
        Some(name) => format!("there is no `{flag}`; did you mean `{name}`?"),
        None => format!("there is no `{flag}`, but {}", names.join(", ")),
    }
}

/// Returns whether a command has profiles: whether it speaks to a server.
fn has_profile(command: &Command) -> bool {
    let mut arguments = command.get_arguments();
    arguments.any(|argument| argument.get_id() == "profile")
}

/// The commands with the values of a profile as their defaults.
pub fn with_defaults(command: Command, profile: &Profile) -> Command {
    // What has no variable is no property of a server: the database that a load overwrites.
    let value = |argument: &clap::Arg| match argument.get_env() {
        Some(_) => profile.values.get(argument.get_long()?).cloned(),
        None => None,
    };
    let command = match has_profile(&command) {
        true => command.mut_args(|argument| match value(&argument) {
            Some(value) => argument.default_value(clap::builder::OsStr::from(value)),
            None => argument,
        }),
        false => command,
    };
    command.mut_subcommands(|below| with_defaults(below, profile))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments;

    const TEXT: &str = "
        [default]
        address = \"db:1978\"
        tls = true
        token-file = \"shop.token\"

        [staging]
        address = \"staging:1978\"
        tls-ca = \"/etc/ca.pem\"
        token-file = \"~/staging.token\"
        database = \"orders\"

        [plain]
        database = \"\"
    ";

    fn parsed(text: &str, named: Option<&str>) -> Result<Option<Profile>, ProfileError> {
        let home = Path::new("/home/me");
        parse(
            text,
            named,
            Path::new("/home/me/.config/pelton/client.toml"),
            Some(home),
        )
    }

    fn refused(text: &str, named: Option<&str>) -> String {
        parsed(text, named).expect_err(text).to_string()
    }

    fn values(profile: &Profile) -> Vec<(&str, &str)> {
        let values = profile.values.iter();
        values
            .map(|(flag, value)| (*flag, value.to_str().expect("a text")))
            .collect()
    }

    #[test]
    fn a_profile_has_flags_and_its_files_are_found_from_where_it_stands() {
        let default = parsed(TEXT, None)
            .expect("it is right")
            .expect("there is one");
        assert_eq!(
            values(&default),
            [
                ("address", "db:1978"),
                ("tls", "true"),
                ("token-file", "/home/me/.config/pelton/shop.token"),
            ]
        );
        let staging = parsed(TEXT, Some("staging")).expect("it is right");
        assert_eq!(
            values(&staging.expect("there is one")),
            [
                ("address", "staging:1978"),
                ("database", "orders"),
                ("tls-ca", "/etc/ca.pem"),
                ("token-file", "/home/me/staging.token"),
            ]
        );
        let plain = parsed(TEXT, Some("plain")).expect("it is right");
        assert_eq!(values(&plain.expect("there is one")), [("database", "")]);
        assert_eq!(parsed("", None).expect("it is right"), None);
        assert_eq!(parsed("[other]", None).expect("it is right"), None);
    }

    fn token() -> String {
        format!("pelton_{}", "x_-9".repeat(11))
    }

    fn given(address: Option<&str>) -> Given {
        Given {
            address: address.map(str::to_owned),
            ..Given::default()
        }
    }

    #[test]
    fn the_token_of_a_profile_goes_to_no_other_address() {
        let staging = || {
            let parsed = parsed(TEXT, Some("staging")).expect("it is right");
            parsed.expect("there is one")
        };
        for (address, is_sent) in [
            (None, true),
            (Some("staging:1978"), true),
            (Some("staging:1979"), false),
            (Some("other:1978"), false),
            (Some("unix:/staging"), false),
        ] {
            let mut profile = staging();
            let told = profile.leave_token_out(&given(address));
            assert_eq!(told.is_none(), is_sent, "{told:?}");
            assert_eq!(profile.values.contains_key("token-file"), is_sent);
            assert!(profile.values.contains_key("tls-ca"));
            if let (Some(told), Some(address)) = (told, address) {
                assert!(told.contains("`staging` is for staging:1978"), "{told}");
                assert!(told.contains(&format!("not sent to {address}")), "{told}");
            }
        }
        // Where another token is given there is nothing to say.
        let mut profile = staging();
        let other = Given {
            has_token_file: true,
            ..given(Some("other:1"))
        };
        assert_eq!(profile.leave_token_out(&other), None);
    }

    #[test]
    fn a_variable_with_a_token_is_stronger_than_the_profile() {
        for named in [None, Some("staging")] {
            let parsed = parsed(TEXT, named).expect("it is right");
            let mut profile = parsed.expect("there is one");
            let variable = Given {
                has_token: true,
                ..Given::default()
            };
            assert_eq!(profile.leave_token_out(&variable), None);
            assert!(!profile.values.contains_key("token-file"));
        }
    }

    #[test]
    fn a_bad_value_is_said_with_the_profile_and_its_file() {
        let text = "[default]\ntimeout = \"5\"";
        let profile = parsed(text, None).expect("it is a text");
        let profile = profile.expect("there is one");
        let command = with_defaults(arguments::command(), &profile);
        let error = command.try_get_matches_from(["pelton", "get", "key"]);
        let failure = profile.bad_value(&error.expect_err("it has no unit"));
        let told = failure.to_string();
        let begin = "/home/me/.config/pelton/client.toml: profile `default`: invalid value '5' for";
        assert!(told.starts_with(begin), "{told}");
    }

    #[test]
    fn a_token_in_the_place_of_its_file_is_not_repeated() {
        let token = token();
        let message = refused(&format!("[default]\ntoken-file = \"{token}\""), None);
        assert!(
            message.contains("this is a token, not the name"),
            "{message}"
        );
        assert!(message.contains("PELTON_TOKEN takes it"), "{message}");
        assert!(!message.contains(&token), "{message}");
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said_with_what_is_right() {
        for (text, named, expected) in [
            (
                TEXT,
                Some("live"),
                "has no profile `live`, but default, plain, staging",
            ),
            ("", Some("live"), "`[live]` begins one"),
            ("address = \"a:1\"", None, "write `[default]`"),
            (
                "[default]\nadress = \"a:1\"",
                None,
                "did you mean `address`?",
            ),
            ("[default]\ntls_ca = \"a\"", None, "did you mean `tls-ca`?"),
            ("[default]\ntoken = \"pelton_\"", None, "`token-file`"),
            ("[default]\nnonsense = 1", None, "but address, database"),
            ("[default]\ntls = \"yes\"", None, "true or false"),
            (
                "[default]\ntimeout = 10",
                None,
                "`timeout` is a text in quotes",
            ),
            (
                "[default]\naddress = \"\"",
                None,
                "`address` is a text in quotes",
            ),
            ("[default", None, "client.toml: "),
        ] {
            let message = refused(text, named);
            assert!(message.contains(expected), "{text}: {message}");
        }
    }

    #[test]
    fn where_there_is_no_file_only_who_names_a_profile_misses_it() {
        let missing = || Some((PathBuf::from("/nowhere/client.toml"), false));
        assert_eq!(read(None, missing()).expect("none is wanted"), None);
        assert_eq!(read(None, None).expect("none is wanted"), None);
        for (file, expected) in [
            (missing(), "there is no file /nowhere/client.toml"),
            (None, "neither HOME nor PELTON_CLIENT_CONFIG"),
        ] {
            let error = read(Some("live"), file).expect_err("it is not there");
            assert!(matches!(&error, ProfileError::NoFile(..)), "{error}");
            assert!(error.to_string().contains(expected), "{error}");
        }
        let said = Some((PathBuf::from("/nowhere/client.toml"), true));
        let error = read(None, said).expect_err("somebody said that it is there");
        assert!(matches!(&error, ProfileError::Unreadable(..)), "{error}");
        assert!(matches!(Failure::from(error), Failure::Failed(_)));
    }

    #[test]
    fn a_file_without_end_is_no_file_with_profiles() {
        let endless = Some((PathBuf::from("/dev/zero"), true));
        let error = read(None, endless).expect_err("it has no end");
        assert!(matches!(&error, ProfileError::TooLarge(_)), "{error}");
    }

    #[test]
    fn flags_go_before_a_profile_and_servers_have_none() {
        let profile = parsed(TEXT, Some("staging")).expect("it is right");
        let profile = profile.expect("there is one");
        let command = with_defaults(arguments::command(), &profile);
        let value = |words: &[&str], id: &str| {
            let matches = command.clone().try_get_matches_from(words);
            let mut found = matches.expect("it is right");
            while let Some((_, below)) = found.remove_subcommand() {
                found = below;
            }
            let raw = found.get_raw(id).and_then(|mut values| values.next());
            raw.map(|value| value.to_string_lossy().into_owned())
        };
        let get = ["pelton", "get", "key"];
        assert_eq!(value(&get, "address").as_deref(), Some("staging:1978"));
        assert_eq!(value(&get, "database").as_deref(), Some("orders"));
        assert_eq!(value(&get, "timeout").as_deref(), Some("10s"));
        let other = [
            "pelton",
            "get",
            "key",
            "--address",
            "other:1",
            "--database",
            "",
        ];
        assert_eq!(value(&other, "address").as_deref(), Some("other:1"));
        assert_eq!(value(&other, "database").as_deref(), Some(""));
        assert_eq!(value(&other, "tls_ca").as_deref(), Some("/etc/ca.pem"));
        assert_eq!(value(&["pelton", "load"], "database"), None);
        let load = ["pelton", "load", "kvstore"];
        assert_eq!(value(&load, "address").as_deref(), Some("staging:1978"));
        assert_eq!(value(&["pelton", "serve"], "tls_cert"), None);
    }
}
