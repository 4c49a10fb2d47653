//! What can be chosen for a connection.

use crate::limits;

/// Which side of the connection we are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Accepts streams.
    Server,
    /// Opens streams.
    Client,
}

/// The role, and the limits that can be chosen. Each default stands with its reason in
/// [`crate::limits`].
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// Which side we are.
    pub role: Role,
    /// Streams that the peer may have open at once, and calls that may run.
    /// [`limits::MAX_STREAMS`].
    pub max_streams: u32,
    /// The receive window of each stream, fixed; `None` lets it grow with the bandwidth-delay
    /// product.
    pub stream_window: Option<u32>,
    /// The receive window of the connection, fixed (at least 65 535); `None` lets it grow.
    pub connection_window: Option<u32>,
    /// The largest message that is received, in bytes. [`limits::MAX_MESSAGE_BYTES`].
    pub max_message_bytes: usize,
    /// What the status of a larger message adds: what to do about it.
    pub too_large_hint: &'static str,
    /// What the trailer `grpc-retry-pushback-ms` of a call says that ends since there is no memory
    /// ([`super::Connection::set_gather_bound`]), in milliseconds; 0: no such trailer.
    pub pushback_ms: u64,
    /// Bytes of unfinished messages over all streams. [`limits::MAX_GATHERED_BYTES`].
    pub max_gathered_bytes: usize,
    /// Bytes that wait to be sent or are set aside for it, above which nothing more is produced.
    /// [`limits::MAX_UNSENT_BYTES`].
    pub max_unsent_bytes: usize,
    /// Bytes that may wait on one stream before [`super::Connection::can_send`] says no.
    /// [`limits::STREAM_UNSENT_BYTES`].
    pub stream_unsent_bytes: usize,
    /// Size of the output at which the rest is kept back. [`limits::OUTPUT_BOUND_BYTES`].
    pub output_bound_bytes: usize,
    /// Silence after which a PING is sent, in milliseconds; 0 sends none. [`limits::KEEPALIVE_MS`].
    pub keepalive_ms: u64,
    /// How long waiting data may make no progress, in milliseconds.
    /// [`limits::NO_PROGRESS_TIMEOUT_MS`].
    pub no_progress_timeout_ms: u64,
    /// Resets at once. [`limits::RESET_BURST`].
    pub reset_burst: u32,
    /// Resets each second. [`limits::RESETS_PER_SECOND`].
    pub resets_per_second: u32,
    /// Whether repeated header blocks and the usual response headers take the short way. Only a
    /// test that compares it with the long way turns it off.
    pub short_ways: bool,
}

impl Config {
    /// A server with the defaults.
    pub fn server() -> Config {
        Config::new(Role::Server)
    }

    /// A client with the defaults.
    pub fn client() -> Config {
        Config::new(Role::Client)
    }

    fn new(role: Role) -> Config {
        Config {
            role,
            max_streams: limits::MAX_STREAMS,
            stream_window: None,
            connection_window: None,
            max_message_bytes: limits::MAX_MESSAGE_BYTES,
            too_large_hint: "",
            pushback_ms: 0,
            max_gathered_bytes: limits::MAX_GATHERED_BYTES,
            max_unsent_bytes: limits::MAX_UNSENT_BYTES,
            stream_unsent_bytes: limits::STREAM_UNSENT_BYTES,
            output_bound_bytes: limits::OUTPUT_BOUND_BYTES,
            keepalive_ms: limits::KEEPALIVE_MS,
            no_progress_timeout_ms: limits::NO_PROGRESS_TIMEOUT_MS,
            reset_burst: limits::RESET_BURST,
            resets_per_second: limits::RESETS_PER_SECOND,
            short_ways: true,
        }
    }
}
