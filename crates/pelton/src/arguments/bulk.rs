//! The commands that take or give many entries at once.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use net::Address;

use super::number;
use super::server_address::server_address;
use super::store::{ConnectionArguments, DatabaseArguments};

/// `pelton batch`
#[derive(Args, Debug)]
pub struct BatchArguments {
    /// The file with the operations; `-`, or left out when standard input is a file or a pipe:
    /// standard input
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,

    /// How the operations belong together
    #[arg(long, value_name = "MODE", value_enum, default_value_t = BatchModeArgument::Atomic)]
    pub mode: BatchModeArgument,

    /// Print only what failed
    #[arg(long)]
    pub failures_only: bool,

    #[command(flatten)]
    pub database: DatabaseArguments,
}

/// How the operations of a batch belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BatchModeArgument {
    /// all or nothing, as one commit
    Atomic,
    /// each for itself, in order
    Independent,
}

/// `pelton transact`
#[derive(Args, Debug)]
pub struct TransactArguments {
    /// The file with the JSON object; `-`, or left out when standard input is a file or a pipe:
    /// standard input
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,

    #[command(flatten)]
    pub database: DatabaseArguments,
}

/// `pelton export`
#[derive(Args, Debug)]
pub struct ExportArguments {
    /// The file; `-`, or left out: standard output
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,

    /// In which form
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = ExportFormat::Jsonl)]
    pub format: ExportFormat,

    /// Replace a file that is there
    #[arg(long)]
    pub force: bool,

    #[command(flatten)]
    pub connection: ConnectionArguments,

    /// The database; empty: the default database
    #[arg(long, value_name = "NAME", env = "PELTON_DATABASE", default_value = "")]
    pub database: String,
}

/// In which form a database is exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// one JSON object a line
    Jsonl,
    /// compact, with a checksum
    Binary,
}

/// `pelton import`
#[derive(Args, Debug)]
pub struct ImportArguments {
    /// The file; `-`, or left out when standard input is a file or a pipe: standard input
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,

    #[command(flatten)]
    pub connection: ConnectionArguments,

    /// The database, which must exist; empty: the default database
    #[arg(long, value_name = "NAME", env = "PELTON_DATABASE", default_value = "")]
    pub database: String,

    /// Read from this running tkrzw_server instead of a file: host:port, [ipv6]:port or unix:/path
    ///
    /// What is written is counted and read once more on both sides. How far it has come is kept in
    /// the file of --note: the same command goes on from there.
    #[arg(
        long,
        value_name = "ADDRESS",
        conflicts_with = "file",
        value_parser = server_address
    )]
    pub tkrzw: Option<Address>,

    /// The database of tkrzw_server, by its place in its command line
    #[arg(
        long,
        value_name = "NUMBER",
        requires = "tkrzw",
        default_value = "0",
        value_parser = number::setting::<i32>(0, 199)
    )]
    pub index: i32,

    /// Where it is kept how far the import from a tkrzw_server has come [default: the file
    /// pelton-import-ADDRESS-NUMBER.note of this folder]
    #[arg(long, value_name = "FILE", requires = "tkrzw")]
    pub note: Option<PathBuf>,
}
