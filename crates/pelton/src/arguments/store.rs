//! The commands that speak to a server.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use clap::{ArgGroup, Args, ValueEnum};
use net::Address;
use service::limits::TIME_TO_LIVE_MS_MAX;

use super::server_address::server_address;
use super::{CredentialArguments, ProfileArguments, TlsArguments, number};
use crate::size::Span;

/// Which server, and how long to wait for it.
#[derive(Args, Clone, Debug)]
pub struct ConnectionArguments {
    /// The server: host:port, [ipv6]:port or unix:/path
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "PELTON_ADDRESS",
        default_value = "127.0.0.1:1978",
        value_parser = server_address
    )]
    pub address: Address,

    /// How long to wait for the server, connecting included
    #[arg(
        long,
        value_name = "TIME",
        env = "PELTON_TIMEOUT",
        default_value = "10s",
        value_parser = number::timeout
    )]
    pub timeout: Span,

    /// How to print the answer
    #[arg(
        long,
        value_name = "FORMAT",
        env = "PELTON_OUTPUT",
        value_enum,
        default_value_t = OutputFormat::Text
    )]
    pub output: OutputFormat,

    #[command(flatten)]
    pub tls: TlsArguments,

    #[command(flatten)]
    pub credentials: CredentialArguments,

    #[command(flatten)]
    pub profile: ProfileArguments,
}

/// Which database, and how keys are written.
#[derive(Args, Clone, Debug)]
pub struct DatabaseArguments {
    #[command(flatten)]
    pub connection: ConnectionArguments,

    /// The database; empty: the default database
    #[arg(long, value_name = "NAME", env = "PELTON_DATABASE", default_value = "")]
    pub database: String,

    /// How keys are written on the command line and in text output
    #[arg(long, value_name = "ENCODING", value_enum, default_value_t = KeyEncoding::Text)]
    pub key_encoding: KeyEncoding,
}

/// How an answer is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// for people and pipes
    Text,
    /// one JSON object a line; what is not UTF-8 as base64, and a field that says so
    Json,
}

/// How a command of the lab prints what it comes to.
#[derive(Args, Clone, Copy, Debug)]
pub struct ReportOutput {
    /// How to print the report
    #[arg(
        long = "output",
        value_name = "FORMAT",
        env = "PELTON_OUTPUT",
        value_enum,
        default_value_t = OutputFormat::Text
    )]
    pub format: OutputFormat,
}

/// How the bytes of a key are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum KeyEncoding {
    /// as they are on the command line, escaped in output
    Text,
    /// escaped, as `scan` prints them: \n, \t, \r, \\ and \xNN
    Escape,
    /// two hexadecimal digits a byte
    Hex,
    /// base64 with the standard alphabet
    Base64,
}

/// The value of a `put` or `append`.
#[derive(Args, Clone, Debug)]
pub struct ValueArguments {
    /// The value; `-`, or left out when standard input is a file or a pipe: read it from standard
    /// input
    #[arg(value_name = "VALUE", allow_negative_numbers = true)]
    pub value: Option<OsString>,

    /// Read the value from a file
    #[arg(long, value_name = "FILE", conflicts_with = "value")]
    pub file: Option<PathBuf>,
}

/// What must hold for a write. At most one.
#[derive(Args, Clone, Debug)]
pub struct ConditionArguments {
    /// Write only if the key is not there
    #[arg(long, conflicts_with_all = ["if_present", "if_version", "if_value"])]
    pub if_absent: bool,

    /// Write only if the key is there
    #[arg(long, conflicts_with_all = ["if_version", "if_value"])]
    pub if_present: bool,

    /// Write only if the key has this version; 0: only if it is not there
    #[arg(long, value_name = "VERSION", conflicts_with = "if_value", value_parser = parse_version)]
    pub if_version: Option<u64>,

    /// Write only if the key is there with exactly this value
    #[arg(long, value_name = "VALUE", allow_hyphen_values = true)]
    pub if_value: Option<OsString>,
}

/// `pelton put`
#[derive(Args, Debug)]
pub struct PutArguments {
    /// The key
    #[arg(value_name = "KEY")]
    pub key: OsString,

    #[command(flatten)]
    pub value: ValueArguments,

    /// The value, and that of --if-value, is a whole number: store it as `pelton incr` does, 8
    /// bytes, signed, big-endian
    #[arg(long)]
    pub number: bool,

    #[command(flatten)]
    pub condition: ConditionArguments,

    /// Let the entry expire so long after it was written: 500ms, 10s, 5m, 1h, 30d
    #[arg(
        long,
        value_name = "TIME",
        conflicts_with = "keep_ttl",
        value_parser = parse_time_to_live
    )]
    pub ttl: Option<Span>,

    /// Keep the expiry of the entry that is there; without it and --ttl the entry stays until it is
    /// removed
    #[arg(long)]
    pub keep_ttl: bool,

    /// Also print the entry as it was before
    #[arg(long)]
    pub previous: bool,

    #[command(flatten)]
    pub database: DatabaseArguments,
}

/// `pelton append`
#[derive(Args, Debug)]
pub struct AppendArguments {
    /// The key
    #[arg(value_name = "KEY")]
    pub key: OsString,

    #[command(flatten)]
    pub value: ValueArguments,

    #[command(flatten)]
    pub condition: ConditionArguments,

    #[command(flatten)]
    pub database: DatabaseArguments,
}

/// `pelton incr`
#[derive(Args, Debug)]
pub struct IncrementArguments {
    /// The key
    #[arg(value_name = "KEY")]
    pub key: OsString,

    /// What to add; may be negative
    #[arg(
        value_name = "DELTA",
        default_value_t = 1,
        allow_negative_numbers = true,
        value_parser = number::whole::<i64>(i64::MIN.into(), i64::MAX.into())
    )]
    pub delta: i64,

    /// What a missing key counts as
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 0,
        allow_negative_numbers = true,
        value_parser = number::whole::<i64>(i64::MIN.into(), i64::MAX.into())
    )]
    pub initial: i64,

    #[command(flatten)]
    pub condition: ConditionArguments,

    #[command(flatten)]
    pub database: DatabaseArguments,
}

/// `pelton get`
#[derive(Args, Debug)]
pub struct GetArguments {
    /// The key
    #[arg(value_name = "KEY")]
    pub key: OsString,

    /// Print the value as a number: what `pelton incr` stores, 8 bytes, signed, big-endian
    ///
    /// A value of another length is a miss: exit code 1.
    #[arg(long)]
    pub number: bool,

    #[command(flatten)]
    pub database: DatabaseArguments,
}

/// `pelton delete`
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("which").args(["key", "prefix", "all"]).required(true))]
#[command(group = ArgGroup::new("range").args(["prefix", "all"])
    .conflicts_with_all(["if_version", "if_value", "previous"]))]
pub struct DeleteArguments {
    /// The key
    #[arg(value_name = "KEY")]
    pub key: Option<OsString>,

    /// Delete all keys that begin with this, which must not be empty
    #[arg(long, value_name = "KEY")]
    pub prefix: Option<OsString>,

    /// Delete every key of the database
    #[arg(long)]
    pub all: bool,

    /// Of --prefix or --all, delete the first so many keys only
    #[arg(long, value_name = "NUMBER", conflicts_with = "key", value_parser = number::limit)]
    pub limit: Option<u64>,

    /// Delete only if the key has this version
    #[arg(
        long,
        value_name = "VERSION",
        conflicts_with = "if_value",
        value_parser = parse_version_there
    )]
    pub if_version: Option<u64>,

    /// Delete only if the key has exactly this value
    #[arg(long, value_name = "VALUE", allow_hyphen_values = true)]
    pub if_value: Option<OsString>,

    /// Also print the entry as it was before
    #[arg(long)]
    pub previous: bool,

    #[command(flatten)]
    pub database: DatabaseArguments,
}

/// A range of keys.
#[derive(Args, Clone, Debug)]
pub struct RangeArguments {
    /// Keys that begin with this
    #[arg(long, value_name = "KEY", conflicts_with_all = ["start", "end"])]
    pub prefix: Option<OsString>,

    /// The first key, included
    #[arg(long, value_name = "KEY")]
    pub start: Option<OsString>,

    /// The key to stop before, not included
    #[arg(long, value_name = "KEY")]
    pub end: Option<OsString>,
}

/// `pelton scan`
#[derive(Args, Debug)]
pub struct ScanArguments {
    #[command(flatten)]
    pub range: RangeArguments,

    /// From the largest key down
    #[arg(long)]
    pub reverse: bool,

    /// Go on after this key, with --reverse below it: the last key of an earlier page, whether it
    /// is still there or not
    #[arg(long, value_name = "KEY")]
    pub start_after: Option<OsString>,

    /// End after this many entries
    #[arg(long, value_name = "NUMBER", value_parser = number::limit)]
    pub limit: Option<u64>,

    /// Leave the values out
    #[arg(long)]
    pub keys_only: bool,

    #[command(flatten)]
    pub database: DatabaseArguments,
}

/// `pelton ls`
#[derive(Args, Debug)]
pub struct LsArguments {
    #[command(flatten)]
    pub range: RangeArguments,

    /// From the largest key down
    #[arg(long)]
    pub reverse: bool,

    /// Go on after this key, with --reverse below it: the last key of an earlier page, whether it
    /// is still there or not
    #[arg(long, value_name = "KEY")]
    pub start_after: Option<OsString>,

    /// End after this many keys
    #[arg(long, value_name = "NUMBER", value_parser = number::limit)]
    pub limit: Option<u64>,

    #[command(flatten)]
    pub database: DatabaseArguments,
}

impl LsArguments {
    /// The `pelton scan` that it stands for.
    pub fn as_scan(&self) -> ScanArguments {
        ScanArguments {
            range: self.range.clone(),
            reverse: self.reverse,
            start_after: self.start_after.clone(),
            limit: self.limit,
            keys_only: true,
            database: self.database.clone(),
        }
    }
}

/// `pelton watch`
#[derive(Args, Debug)]
pub struct WatchArguments {
    #[command(flatten)]
    pub range: RangeArguments,

    /// Go on behind this point, as an earlier run has printed it: what was changed since comes
    /// first
    ///
    /// Without HISTORY it is one of the server's present history. Exit code 3: the changes since
    /// then are no longer all there.
    #[arg(long, value_name = "HISTORY:SEQUENCE", value_parser = parse_point)]
    pub from: Option<Point>,

    /// End after this many commits
    #[arg(long, value_name = "NUMBER", value_parser = number::limit)]
    pub limit: Option<u64>,

    /// Leave the values out
    #[arg(long)]
    pub keys_only: bool,

    /// Also print the entries as they were before, as far as the server knows
    #[arg(long)]
    pub previous: bool,

    #[command(flatten)]
    pub database: DatabaseArguments,
}

/// A point in the history of a server: `HISTORY:SEQUENCE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// Names the history; 0: the server's present one.
    pub history_id: u64,
    /// Everything up to this commit has been seen.
    pub sequence: u64,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.history_id {
            0 => write!(f, "{}", self.sequence),
            history_id => write!(f, "{history_id:016x}:{}", self.sequence),
        }
    }
}

/// `pelton count`
#[derive(Args, Debug)]
pub struct CountArguments {
    #[command(flatten)]
    pub range: RangeArguments,

    /// About how many will do: at once where counting takes long, which is in databases on disk
    ///
    /// With --output json, `exact` is false for an estimate.
    #[arg(long)]
    pub estimate: bool,

    #[command(flatten)]
    pub database: DatabaseArguments,
}

/// `pelton echo`
#[derive(Args, Debug)]
pub struct EchoArguments {
    /// What to send
    #[arg(value_name = "TEXT", default_value = "hello")]
    pub text: OsString,

    /// Calls to make, one after the other; above 1 the times are summed up
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 1,
        value_parser = number::whole::<u32>(1, 1_000_000)
    )]
    pub count: u32,

    #[command(flatten)]
    pub connection: ConnectionArguments,
}

/// `pelton status`
#[derive(Args, Debug)]
pub struct StatusArguments {
    /// Wait until the server is ready, at most so long; then print only whether it is
    ///
    /// Exit code 0: it is; 1: it answers and is not; 3: it does not answer, and the last reason is
    /// printed.
    #[arg(long, value_name = "TIME")]
    pub wait: Option<Span>,

    #[command(flatten)]
    pub connection: ConnectionArguments,
}

/// `pelton top`
#[derive(Args, Debug)]
pub struct TopArguments {
    /// How often to ask the server
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_every)]
    pub every: Span,

    /// End after so many pictures [default: when you want: q or Ctrl-C]
    #[arg(long, value_name = "NUMBER", value_parser = number::whole::<u64>(1, 1_000_000_000))]
    pub count: Option<u64>,

    #[command(flatten)]
    pub connection: ConnectionArguments,
}

fn parse_every(text: &str) -> Result<Span, String> {
    let span: Span = text
        .parse()
        .map_err(|error: crate::size::ParseError| error.to_string())?;
    match span.ms {
        100..=3_600_000 => Ok(span),
        _ => Err("from 100ms, so that the server has something else to do, to 1h".into()),
    }
}

fn parse_time_to_live(text: &str) -> Result<Span, String> {
    let span: Span = text
        .parse()
        .map_err(|error: crate::size::ParseError| error.to_string())?;
    match span.ms {
        0 => Err("a time to live is at least 1ms".into()),
        ms if ms > TIME_TO_LIVE_MS_MAX => {
            Err("a time to live is at most 100 years (36500d)".into())
        }
        _ => Ok(span),
    }
}

fn parse_point(text: &str) -> Result<Point, String> {
    let (history, sequence) = match text.split_once(':') {
        Some((history, sequence)) => (Some(history), sequence),
        None => (None, text),
    };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|one| one.is_ascii_digit());
    let history_id = match history {
        None => Some(0),
        Some(digits) if digits.len() == 16 && digits.bytes().all(|one| one.is_ascii_hexdigit()) => {
            u64::from_str_radix(digits, 16).ok()
        }
        Some(_) => None,
    };
    let sequence = is_number(sequence).then(|| sequence.parse().ok()).flatten();
    match (history_id, sequence) {
        (Some(history_id), Some(sequence)) => Ok(Point {
            history_id,
            sequence,
        }),
        _ => Err(
            "write HISTORY:SEQUENCE as `pelton watch` prints it, 16 hexadecimal digits and a \
                  whole number, or the number alone"
                .into(),
        ),
    }
}

#[cfg(test)]
#[test]
fn a_point_is_read_as_it_is_printed() {
    for (history_id, sequence) in [(0, 0), (0, u64::MAX), (1, 7), (u64::MAX, u64::MAX)] {
        let point = Point {
            history_id,
            sequence,
        };
        assert_eq!(parse_point(&point.to_string()), Ok(point));
    }
    for text in [
        "",
        ":",
        ":5",
        "5:",
        "5:5",
        "+5",
        "-1",
        "x",
        "00000000000000001:5",
        "+00000000000000f:5",
        "000000000000000f:-5",
        "000000000000000f:5:5",
        "18446744073709551616",
    ] {
        assert!(parse_point(text).expect_err(text).contains("HISTORY:SEQ"));
    }
}

fn parse_version(text: &str) -> Result<u64, String> {
    let version = text.parse();
    version
        .map_err(|_| "a version is a whole number, as `pelton get --output json` shows it".into())
}

/// The version of a key or blob that is there.
pub(super) fn parse_version_there(text: &str) -> Result<u64, String> {
    match parse_version(text)? {
        0 => Err("nothing that is there has version 0".into()),
        version => Ok(version),
    }
}
