//! Every bound of this crate: name, default, and what it stops.

/// Threads that answer scrapes of metrics, one connection each at a time. Others wait in the listener's queue. Some, so
/// that slow scrapers do not hold up the others.
pub const METRICS_THREADS: usize = 4;

/// Bytes that the request of a scrape may have; a longer one is refused. Real ones have some hundred.
pub const METRICS_REQUEST_BYTES: usize = 8_192;

/// How long a scrape may take from its connection to the last byte of its answer, in milliseconds. Stops connections that
/// are opened and left.
pub const METRICS_CONNECTION_MS: u64 = 5_000;

/// Pause after a connection of a scrape could not be accepted, for want of file descriptors or memory, in milliseconds.
pub const METRICS_ACCEPT_BACKOFF_MS: u64 = 100;

/// Lines that one place in the program may log in [`LOG_PERIOD_MS`] at level info or above; more are left out, and counted.
/// Stops what others can cause at will (scanners, broken clients) from filling the disk and hiding the rest.
pub const LOG_LINES_PER_PERIOD: u64 = 10;

/// The period for [`LOG_LINES_PER_PERIOD`], in milliseconds.
pub const LOG_PERIOD_MS: u64 = 60_000;

/// How often at least the service manager is given a sign of life, if it wants one: so many times in the span that it allows.
pub const SIGNS_OF_LIFE_PER_SPAN: u32 = 4;
