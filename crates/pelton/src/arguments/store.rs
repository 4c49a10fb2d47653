//! The commands that speak to a server.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum, value_parser};
use drive::Address;

use crate::size::Span;

/// Which server, and how long to wait for it.
#[derive(Args, Clone, Debug)]
pub struct ConnectionArguments {
    /// The server: host:port, [ipv6]:port or unix:/path
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "PELTON_ADDRESS",
        default_value = "127.0.0.1:1978"
    )]
    pub address: Address,

    /// How long to wait for the server, connecting included
    #[arg(
        long,
        value_name = "TIME",
        env = "PELTON_TIMEOUT",
        default_value = "10s"
    )]
    pub timeout: Span,

    /// How to print the answer
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = OutputFormat::Text)]
    pub output: OutputFormat,
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

/// How the bytes of a key are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum KeyEncoding {
    /// as they are
    Text,
    /// two hexadecimal digits a byte
    Hex,
    /// base64 with the standard alphabet
    Base64,
}

/// `pelton put`
#[derive(Args, Debug)]
pub struct PutArguments {
    /// The key
    #[arg(value_name = "KEY")]
    pub key: OsString,

    /// The value; `-`, or left out when standard input is a file or a pipe: read it from standard input
    #[arg(value_name = "VALUE", allow_negative_numbers = true)]
    pub value: Option<OsString>,

    /// Read the value from a file
    #[arg(long, value_name = "FILE", conflicts_with = "value")]
    pub file: Option<PathBuf>,

    /// Write only if the key is not there
    #[arg(long, conflicts_with_all = ["if_present", "if_version"])]
    pub if_absent: bool,

    /// Write only if the key is there
    #[arg(long, conflicts_with = "if_version")]
    pub if_present: bool,

    /// Write only if the key has this version; 0: only if it is not there
    #[arg(long, value_name = "VERSION")]
    pub if_version: Option<u64>,

    #[command(flatten)]
    pub database: DatabaseArguments,
}

/// `pelton get`
#[derive(Args, Debug)]
pub struct GetArguments {
    /// The key
    #[arg(value_name = "KEY")]
    pub key: OsString,

    #[command(flatten)]
    pub database: DatabaseArguments,
}

/// `pelton delete`
#[derive(Args, Debug)]
pub struct DeleteArguments {
    /// The key
    #[arg(value_name = "KEY")]
    pub key: OsString,

    /// Delete only if the key has this version
    #[arg(long, value_name = "VERSION", value_parser = value_parser!(u64).range(1..))]
    pub if_version: Option<u64>,

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

    /// End after this many entries
    #[arg(long, value_name = "NUMBER", value_parser = value_parser!(u64).range(1..))]
    pub limit: Option<u64>,

    /// Leave the values out
    #[arg(long)]
    pub keys_only: bool,

    #[command(flatten)]
    pub database: DatabaseArguments,
}

/// `pelton count`
#[derive(Args, Debug)]
pub struct CountArguments {
    #[command(flatten)]
    pub range: RangeArguments,

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
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = value_parser!(u32).range(1..=1_000_000))]
    pub count: u32,

    #[command(flatten)]
    pub connection: ConnectionArguments,
}

/// `pelton status`
#[derive(Args, Debug)]
pub struct StatusArguments {
    #[command(flatten)]
    pub connection: ConnectionArguments,
}
