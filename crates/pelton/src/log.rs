//! The log: what is said on standard error. Everything that a server says goes through `tracing`,
//! and so through here.

mod repeated;

use std::io::{self, IsTerminal};

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::reload;
use tracing_subscriber::{Registry, fmt};

use crate::arguments::{LogFormat, LogLevel};
use repeated::RepeatedLines;

/// The target of the lines of the audit trail: they are there at each level, and have bounds of
/// their own.
pub const AUDIT_TARGET: &str = "audit";

/// The target of the lines of the slow-call log, of which the same is true.
pub const SLOW_CALL_TARGET: &str = "slow-call";

/// The target of the driver of Cassandra. What it says of each connection is for those who look for
/// a fault of it: what it means for the server, the server says.
const DRIVER_TARGET: &str = "scylla";

/// Changes what is logged while the server runs.
#[derive(Clone)]
pub struct Level(reload::Handle<Targets, Registry>);

/// Starts the log: from now on everything at `level` or above goes to standard error, one line
/// each.
pub fn start(level: LogLevel, format: LogFormat) -> Level {
    let (filter, handle) = reload::Layer::new(filter(level));
    let lines = fmt::layer().with_target(false).with_writer(io::stderr);
    let lines = match format {
        LogFormat::Text => lines.with_ansi(io::stderr().is_terminal()).boxed(),
        LogFormat::Json => lines
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false)
            .boxed(),
    };
    let subscriber = Registry::default()
        .with(filter)
        .with(RepeatedLines::default())
        .with(lines);
    tracing::subscriber::set_global_default(subscriber).expect("the log is started once");
    Level(handle)
}

impl Level {
    /// From now on everything at `level` or above.
    pub fn set(&self, level: LogLevel) {
        self.0
            .reload(filter(level))
            .expect("the log is never taken down");
    }
}

fn filter(level: LogLevel) -> Targets {
    let level = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    // At least what audit lines and slow calls have, whatever else is left out.
    let of_audit = level.max(LevelFilter::INFO);
    Targets::new()
        .with_default(level)
        .with_target(DRIVER_TARGET, of_driver(level))
        .with_target(AUDIT_TARGET, of_audit)
        .with_target(SLOW_CALL_TARGET, of_audit)
}

fn of_driver(level: LevelFilter) -> LevelFilter {
    match level {
        LevelFilter::DEBUG => LevelFilter::WARN,
        LevelFilter::TRACE => LevelFilter::TRACE,
        _ => LevelFilter::OFF,
    }
}
