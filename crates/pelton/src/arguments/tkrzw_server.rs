//! `pelton tkrzw-server`: the command line of tkrzw_server.

use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, ValueEnum};

use super::database::KindArgument;
use super::number;
use super::serve::LogLevel;
use crate::durability::DurabilityArgument;
use crate::size::{KeptAmount, MemoryLimit, Size};

/// The command line of tkrzw_server, and a few flags beside it.
#[derive(Args, Clone, Debug)]
pub struct TkrzwServerArguments {
    /// Databases: `PATH#NAME=VALUE,…`, as tkrzw_server takes them, at most 200 [default: one in
    /// memory]
    ///
    /// The extension of the path says the class (tkh, tkt, tks, tkmt, tkmb, tkmc, tksh, tkst), or
    /// the parameter `dbm`. A database without a path is in memory and lost at the end; the others
    /// are kept in the folder that --data names. Parameters that tune files have no effect.
    #[arg(value_name = "DATABASE")]
    pub databases: Vec<String>,

    /// Where to listen: host:port, [ipv6]:port or unix:/path
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:1978")]
    pub address: String,

    /// TLS, and clients must show a certificate: ssl:key=FILE,cert=FILE,root=FILE [default: no TLS]
    #[arg(long, value_name = "CONFIG")]
    pub auth: Option<String>,

    /// Event loops, instead of a thread for each connection
    #[arg(long = "async")]
    pub is_async: bool,

    /// With --async event loops; else calls that run at once, of any number of connections: those
    /// that wait do not count
    #[arg(
        long,
        value_name = "NUMBER",
        default_value = "1",
        value_parser = number::setting::<usize>(1, net::limits::MAX_THREADS as i128)
    )]
    pub threads: usize,

    /// Append the log to this file, which is opened anew on SIGHUP [default: standard error]
    #[arg(long = "log_file", value_name = "FILE", value_parser = file())]
    pub log_file: Option<PathBuf>,

    /// Least level of what is logged
    #[arg(
        long = "log_level",
        value_name = "LEVEL",
        value_enum,
        ignore_case = true,
        default_value = "info"
    )]
    pub log_level: TkrzwLogLevel,

    /// Has no effect: the log has one form of dates
    #[arg(long = "log_date", value_name = "FORMAT")]
    pub log_date: Option<String>,

    /// Has no effect: the log is in UTC
    #[arg(long = "log_td", value_name = "SECONDS", allow_hyphen_values = true)]
    pub log_td: Option<String>,

    /// Number of this server among those that follow each other, another one for each
    #[arg(
        long = "server_id",
        value_name = "NUMBER",
        default_value = "1",
        value_parser = number::whole::<i32>(1, i32::MAX as i128)
    )]
    pub server_id: i32,

    /// Let others follow this server: all databases are kept in its log, also those without a path
    ///
    /// No files of this name are made. Where no database has a path, all are kept in the folder
    /// PREFIX.pelton, or in that of --data. --keep-log says how much of the log is kept for those
    /// who follow.
    #[arg(long = "ulog_prefix", value_name = "PREFIX")]
    pub ulog_prefix: Option<String>,

    /// Has no effect: --keep-log says how much is kept of the log
    #[arg(long = "ulog_max_file_size", value_name = "SIZE")]
    pub ulog_max_file_size: Option<String>,

    /// Follow this server: host:port, [ipv6]:port or unix:/path [default: none]
    #[arg(long = "repl_master", value_name = "ADDRESS")]
    pub repl_master: Option<String>,

    /// Keep in this file from which time on the master is followed after a start [default: one in
    /// the data folder]
    #[arg(long = "repl_ts_file", value_name = "FILE", value_parser = file())]
    pub repl_ts_file: Option<PathBuf>,

    /// Has no effect: the time is kept in the data folder
    #[arg(long = "repl_ts_from_dbm")]
    pub repl_ts_from_dbm: bool,

    /// Add so much to the time from which on the master is followed
    #[arg(
        long = "repl_ts_skew",
        value_name = "MILLISECONDS",
        default_value = "0",
        allow_negative_numbers = true
    )]
    pub repl_ts_skew: i64,

    /// Have the master say after so many seconds that nothing has come
    #[arg(
        long = "repl_wait",
        value_name = "SECONDS",
        default_value = "1",
        allow_negative_numbers = true,
        value_parser = number::seconds
    )]
    pub repl_wait: f64,

    /// Write the number of the process into this file, which is removed at the end
    #[arg(long = "pid_file", value_name = "FILE", value_parser = file())]
    pub pid_file: Option<PathBuf>,

    /// Refused: leave it to a service manager (docs/operations.md) to run the server behind
    #[arg(long)]
    pub daemon: bool,

    /// Seconds that running calls may take to end after SIGTERM, SIGINT or SIGQUIT; below 0 none
    #[arg(
        long = "shutdown_wait",
        value_name = "SECONDS",
        default_value = "60",
        allow_negative_numbers = true,
        value_parser = number::seconds
    )]
    pub shutdown_wait: f64,

    /// Refuse writes
    #[arg(long = "read_only")]
    pub read_only: bool,

    /// When a write to a database with a path is answered: synced, interval=TIME, written or
    /// volatile
    #[arg(long, value_name = "DURABILITY", default_value = "interval=100ms")]
    pub durability: DurabilityArgument,

    /// Folder in which databases with a path are kept [default: the first path with `.pelton`
    /// behind it]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,

    /// How much of the log is kept for those who follow: a size, or what was written within a time,
    /// such as 1h; 0 for nothing [default: 1GiB with --ulog_prefix]
    #[arg(long, value_name = "SIZE|TIME")]
    pub keep_log: Option<KeptAmount>,

    /// Where databases with a path have their index when they are made [default: memory]
    #[arg(long, value_name = "KIND", value_enum)]
    pub kind: Option<KindArgument>,

    /// What callers may do: `none`, or rights as behind +anonymous= of pelton serve [default: all
    /// that this service does, and everything for programs of this machine where only they can
    /// call]
    #[arg(long, value_name = "RIGHTS")]
    pub anonymous: Option<String>,

    /// Memory that keys and values may take: a size, or a share of what this process may use
    /// [default: 70%]
    #[arg(long, value_name = "SIZE|SHARE")]
    pub memory_limit: Option<MemoryLimit>,

    /// Largest value, at most 1GiB [default: 4MB]
    #[arg(long, value_name = "SIZE")]
    pub max_value: Option<Size>,

    /// Open connections; more are refused [default: 10000]
    #[arg(
        long,
        value_name = "NUMBER",
        value_parser = number::setting::<usize>(1, 1 << 20)
    )]
    pub max_connections: Option<usize>,

    /// Open connections from one address of the network; 0: as many as --max-connections [default:
    /// 1024]
    #[arg(
        long,
        value_name = "NUMBER",
        value_parser = number::setting::<usize>(0, 1 << 20)
    )]
    pub max_connections_per_address: Option<usize>,
}

/// How much is logged, in the words of tkrzw_server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lowercase")]
pub enum TkrzwLogLevel {
    /// also each connection, and calls that are refused
    Debug,
    /// also start, stop and settings
    Info,
    /// also what an operator should look at
    Warn,
    /// nothing but what ends the server
    Error,
    /// the same
    Fatal,
}

impl From<TkrzwLogLevel> for LogLevel {
    fn from(level: TkrzwLogLevel) -> LogLevel {
        match level {
            TkrzwLogLevel::Debug => LogLevel::Debug,
            TkrzwLogLevel::Info => LogLevel::Info,
            TkrzwLogLevel::Warn => LogLevel::Warn,
            TkrzwLogLevel::Error | TkrzwLogLevel::Fatal => LogLevel::Error,
        }
    }
}

/// Reads a file, also an empty name: as for the original, that is the same as no flag.
fn file() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}
