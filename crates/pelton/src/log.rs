//! What is said on standard error.

use std::io;

use drive::Notice;
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
        .with_ansi(io::IsTerminal::is_terminal(&io::stderr()))
        .with_writer(io::stderr)
        .init();
}

/// Brings what the drivers have to say into the log.
pub struct LogNotices;

impl drive::Notices for LogNotices {
    fn notice(&self, notice: &Notice) {
        match notice {
            Notice::AcceptWorks { .. } | Notice::Stopping { .. } => tracing::info!("{notice}"),
            _ => tracing::warn!("{notice}"),
        }
    }
}
