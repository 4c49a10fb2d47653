//! One right, and how it is written: `read:orders`, `write:orders/images/`, `service:kvstore`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use crate::limits::{IDENTITY_NAME_BYTES_MAX, RIGHT_BYTES_MAX};
use crate::redact::contains_token;
use crate::status::shortened;

/// What a caller may do. Each includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Right {
    /// Read entries and blobs, and look at what there is.
    Read,
    /// Change entries and blobs as well.
    Write,
    /// Make, drop and convert databases as well; of the whole server also backups, snapshots and
    /// tokens.
    Admin,
}

/// Where a right holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// In every database, also later ones, and for the server as a whole.
    Server,
    /// In the database of this name, with its blobs. The default database has the empty name, and
    /// is written [`DEFAULT_DATABASE`].
    Database(Box<str>),
    /// For the blobs of a database whose names begin so.
    Blobs {
        /// The name of the database.
        database: Box<str>,
        /// How the names begin; all blobs of the database if it is empty.
        prefix: Box<str>,
    },
}

/// One right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Grant {
    /// A right where it holds.
    In(Right, Scope),
    /// Whatever a drop-in service does, on the database that the server's settings name for it.
    DropIn(DropIn),
    /// What the role of this name grants, as long as there is one. By itself nothing.
    Role(Box<str>),
}

impl Grant {
    /// Reads a right that is new. Those that were given to somebody before keep what they have.
    ///
    /// # Errors
    /// If it is none, or has a character in it that is not shown, or a token.
    pub fn new(text: &str) -> Result<Grant, GrantError> {
        if contains_token(text) {
            return Err(GrantError::Token);
        }
        let is_shown = |char: char| !char.is_control() && !HIDDEN.contains(&char);
        match text.chars().all(is_shown) {
            true => text.parse(),
            false => Err(GrantError::Hidden(shortened(text))),
        }
    }

    /// Returns the name of the database in which it holds; `None`: it is of none by itself.
    pub fn database(&self) -> Option<&str> {
        match self {
            Grant::In(_, Scope::Database(name)) => Some(name),
            Grant::In(_, Scope::Blobs { database, .. }) => Some(database),
            Grant::In(_, Scope::Server) | Grant::DropIn(_) | Grant::Role(_) => None,
        }
    }

    /// Returns how many bytes it has in text.
    pub(super) fn text_bytes(&self) -> usize {
        let (word, place_bytes) = match self {
            Grant::In(right, Scope::Server) => return right.name().len(),
            Grant::In(right, Scope::Database(name)) => (right.name(), shown_database(name).len()),
            Grant::In(right, Scope::Blobs { database, prefix }) => {
                let database = shown_database(database);
                (right.name(), database.len() + "/".len() + prefix.len())
            }
            Grant::DropIn(service) => ("service", service.name().len()),
            Grant::Role(name) => ("role", name.len()),
        };
        word.len() + ":".len() + place_bytes
    }
}

/// Returns the text of a right as it stands in a list or a sentence: in quotes, with escapes, if
/// there is something in it that could end it there. Blobs may have any names, so a prefix could be
/// taken for more rights than one, or for a line of its own.
pub fn shown_right(text: &str) -> Cow<'_, str> {
    let is_plain = |char: char| !", `".contains(char) && char.escape_debug().eq([char]);
    match text.chars().all(is_plain) {
        true => Cow::Borrowed(text),
        false => Cow::Owned(format!("{text:?}")),
    }
}

/// A drop-in service that can be opened by itself: its original clients can send no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropIn {
    /// `io.grpc.KeyValueService`.
    Kvstore,
    /// `messaging.GuploadService`, and its form over plain HTTP/2.
    Gupload,
    /// `Ydb.Debug.V1.DebugService`.
    YdbPing,
    /// `example.EchoService`.
    BrpcEcho,
    /// `BenchmarkPB`.
    SrpcBenchmark,
    /// `tkrzw_rpc.DBMService`, and `tkrzw.DBMService`.
    Tkrzw,
}

/// Separators of lines, and characters that change the direction of a text.
const HIDDEN: [char; 11] = [
    '\u{2028}', '\u{2029}', '\u{202a}', '\u{202b}', '\u{202c}', '\u{202d}', '\u{202e}', '\u{2066}',
    '\u{2067}', '\u{2068}', '\u{2069}',
];

/// The default database in a right: no other database can have this name.
pub const DEFAULT_DATABASE: &str = "default";

impl Right {
    /// All rights, the smallest first.
    pub const ALL: [Right; 3] = [Right::Read, Right::Write, Right::Admin];

    /// Returns the word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Right::Read => "read",
            Right::Write => "write",
            Right::Admin => "admin",
        }
    }
}

impl DropIn {
    /// All of them.
    pub const ALL: [DropIn; 6] = [
        DropIn::Kvstore,
        DropIn::Gupload,
        DropIn::YdbPing,
        DropIn::BrpcEcho,
        DropIn::SrpcBenchmark,
        DropIn::Tkrzw,
    ];

    /// Returns the word for it.
    pub const fn name(self) -> &'static str {
        match self {
            DropIn::Kvstore => "kvstore",
            DropIn::Gupload => "gupload",
            DropIn::YdbPing => "ydb-ping",
            DropIn::BrpcEcho => "brpc-echo",
            DropIn::SrpcBenchmark => "srpc-benchmark",
            DropIn::Tkrzw => "tkrzw",
        }
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Grant::DropIn(service) => write!(formatter, "service:{}", service.name()),
            Grant::Role(name) => write!(formatter, "role:{name}"),
            Grant::In(right, Scope::Server) => formatter.write_str(right.name()),
            Grant::In(right, Scope::Database(name)) => {
                write!(formatter, "{}:{}", right.name(), shown_database(name))
            }
            Grant::In(right, Scope::Blobs { database, prefix }) => {
                let database = shown_database(database);
                write!(formatter, "{}:{database}/{prefix}", right.name())
            }
        }
    }
}

fn shown_database(name: &str) -> &str {
    match name {
        "" => DEFAULT_DATABASE,
        name => name,
    }
}

/// Why a text is no right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrantError {
    /// It does not begin with a right.
    #[error("{0:?} is no right: read, write, admin, role:NAME, or service:NAME is expected")]
    UnknownRight(String),
    /// There is no such drop-in service.
    #[error(
        "there is no drop-in service {0:?}: {names} can be named",
        names = DropIn::ALL.map(DropIn::name).join(", ")
    )]
    UnknownService(String),
    /// No role can have this name.
    #[error("no role can be named {0:?}")]
    BadRole(String),
    /// Behind the colon stands no database.
    #[error(
        "a right ends with `:`: name a database behind it (`default` is the one without a name), \
         or leave the colon out for all databases"
    )]
    NoDatabase,
    /// No database can have this name.
    #[error("no database can be named {0:?}")]
    BadDatabase(String),
    /// Databases are made and dropped as a whole.
    #[error(
        "admin of some blobs is no right: name the database alone, or write, which deletes too"
    )]
    AdminOfBlobs,
    /// Nobody would see what is granted.
    #[error("the right {0:?} has a control character in it, or one that is not shown")]
    Hidden(String),
    /// All who list tokens would see it.
    #[error("a token stands where the name of a database, of blobs or of a role belongs")]
    Token,
    /// It is too long.
    #[error("a right has {0} bytes, at most {RIGHT_BYTES_MAX} are allowed")]
    TooLong(usize),
}

impl FromStr for Grant {
    type Err = GrantError;

    fn from_str(text: &str) -> Result<Grant, GrantError> {
        if text.len() > RIGHT_BYTES_MAX {
            return Err(GrantError::TooLong(text.len()));
        }
        let (word, place) = match text.split_once(':') {
            Some((word, place)) => (word, Some(place)),
            None => (text, None),
        };
        if word == "service" {
            return drop_in(place.unwrap_or_default()).map(Grant::DropIn);
        }
        if word == "role" {
            let name = place.unwrap_or_default();
            return match is_identity_name(name) {
                true => Ok(Grant::Role(name.into())),
                false => Err(GrantError::BadRole(shortened(name))),
            };
        }
        let right = (Right::ALL.into_iter())
            .find(|right| right.name() == word)
            .ok_or_else(|| GrantError::UnknownRight(shortened(word)))?;
        let scope = place.map_or(Ok(Scope::Server), scope)?;
        match (right, &scope) {
            (Right::Admin, Scope::Blobs { .. }) => Err(GrantError::AdminOfBlobs),
            _ => Ok(Grant::In(right, scope)),
        }
    }
}

/// Returns whether a role or a token can have this name: those of databases, and shorter, as
/// people type them.
pub(crate) fn is_identity_name(name: &str) -> bool {
    name.len() <= IDENTITY_NAME_BYTES_MAX && store::is_database_name(name)
}

fn drop_in(name: &str) -> Result<DropIn, GrantError> {
    (DropIn::ALL.into_iter())
        .find(|service| service.name() == name)
        .ok_or_else(|| GrantError::UnknownService(shortened(name)))
}

fn scope(place: &str) -> Result<Scope, GrantError> {
    match place.split_once('/') {
        Some((name, prefix)) => Ok(Scope::Blobs {
            database: database(name)?,
            prefix: prefix.into(),
        }),
        None => database(place).map(Scope::Database),
    }
}

/// The name of a database in a right. A database need not be there yet.
fn database(name: &str) -> Result<Box<str>, GrantError> {
    match name {
        "" => Err(GrantError::NoDatabase),
        DEFAULT_DATABASE => Ok(Box::default()),
        name if store::is_database_name(name) => Ok(name.into()),
        name => Err(GrantError::BadDatabase(shortened(name))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_right_is_read_as_it_is_written() {
        for text in [
            "read",
            "write",
            "admin",
            "read:default",
            "admin:orders",
            "write:orders/images/",
            "read:default/",
            "read:orders/a:b/c",
            "service:kvstore",
            "service:gupload",
            "service:ydb-ping",
            "role:reader",
        ] {
            let grant: Grant = text.parse().expect(text);
            assert_eq!(grant.to_string(), text);
            assert_eq!(grant.text_bytes(), text.len());
            assert_eq!(grant.to_string().parse(), Ok(grant));
        }
        let default = Grant::In(Right::Read, Scope::Database("".into()));
        assert_eq!("read:default".parse(), Ok(default));
    }

    #[test]
    fn a_right_that_could_be_taken_for_others_stands_in_quotes() {
        for (text, shown) in [
            ("write:orders/images/", "write:orders/images/"),
            ("read:a/größe", "read:a/größe"),
            ("read:a/x,admin", r#""read:a/x,admin""#),
            ("read:a/x for uid:0", r#""read:a/x for uid:0""#),
            (r#"read:a/"x"#, r#""read:a/\"x""#),
            (r"read:a/\", r#""read:a/\\""#),
            ("read:a/`", r#""read:a/`""#),
            ("read:a/\nb\u{202e}", r#""read:a/\nb\u{202e}""#),
        ] {
            assert_eq!(shown_right(text), shown);
        }
    }

    #[test]
    fn a_new_right_has_no_token_in_it() {
        let token = format!("pelton_{}", "x_-9".repeat(11));
        for begin in ["read:", "write:a/", "role:", ""] {
            let text = format!("{begin}{token}");
            assert_eq!(Grant::new(&text), Err(GrantError::Token));
        }
        assert!(Grant::new("read:pelton_x").is_ok());
    }

    /// What was given to somebody before stays readable.
    #[test]
    fn a_new_right_has_no_characters_that_are_not_shown() {
        for text in [
            "read:a/\n",
            "read:a/x\u{202e}y",
            "read:a/\u{2028}",
            "read:a/\u{85}",
        ] {
            let error = Grant::new(text).expect_err(text);
            assert_eq!(error, GrantError::Hidden(text.into()));
            assert!(!error.to_string().contains(text), "{error}");
            assert!(text.parse::<Grant>().is_ok());
        }
        for text in ["read:a/x,y z\"", "read:a/e\u{301}", "role:dev"] {
            assert_eq!(Grant::new(text), text.parse());
        }
        assert_eq!(Grant::new("reads"), "reads".parse());
    }

    #[test]
    fn what_is_no_right_says_why() {
        use GrantError as E;
        let unknown = |text: &str| E::UnknownRight(text.into());
        for (text, error) in [
            ("", unknown("")),
            ("Read", unknown("Read")),
            ("reads:a", unknown("reads")),
            (" read", unknown(" read")),
            ("read:", E::NoDatabase),
            ("read:/a", E::NoDatabase),
            ("read:a b", E::BadDatabase("a b".into())),
            ("read:*", E::BadDatabase("*".into())),
            ("admin:a/b", E::AdminOfBlobs),
            ("service", E::UnknownService("".into())),
            ("role", E::BadRole("".into())),
            ("role:a b", E::BadRole("a b".into())),
            ("role:a:b", E::BadRole("a:b".into())),
            ("service:redis", E::UnknownService("redis".into())),
        ] {
            assert_eq!(text.parse::<Grant>(), Err(error), "{text:?}");
        }
        let long = format!("read:a/{}", "x".repeat(RIGHT_BYTES_MAX));
        assert_eq!(long.parse::<Grant>(), Err(E::TooLong(long.len())));
    }
}
