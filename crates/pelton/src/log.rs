//! The log: what is said on standard error.

use std::io::{self, IsTerminal};

use tracing_subscriber::filter::LevelFilter;

use crate::arguments::LogLevel;

/// Starts the log: from now on everything at `level` or above goes to standard error, one line each.
pub fn start(level: LogLevel) {
    let level = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_target(false)
        .with_ansi(io::stderr().is_terminal())
        .with_writer(io::stderr)
        .init();
}
