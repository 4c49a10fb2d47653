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
