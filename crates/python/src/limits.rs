//! Every bound of this crate: its name, its default, and what it stops.

use std::time::Duration;

/// The largest message that is received, by default: that of gRPC's own clients, so that a program
/// that changes its channel meets the same limit.
pub const RECEIVED_MESSAGE_BYTES: usize = 4 << 20;

/// Calls in flight on one connection; further ones take another connection. Servers bound what the
/// unfinished messages of one connection hold, and the client sends large requests in turns: a
/// thousand at once would be refused.
pub const CALLS_PER_CONNECTION: usize = 256;

/// How often the main thread looks for signals while it waits: as the client does for a call.
pub const SIGNAL_PERIOD: Duration = Duration::from_millis(100);

/// How often a channel whose connections fail has its names looked up anew, at most, and one whose
/// names are not known, at least: servers that have moved are found again, and a resolver is not
/// asked for each connection.
pub const LOOKUP_PERIOD: Duration = Duration::from_secs(10);

/// After what pause a name that is not known is looked up again; twice as long each time, up to
/// [`LOOKUP_PERIOD`].
pub const LOOKUP_PAUSE: Duration = Duration::from_secs(1);

/// Threads that look up names at once: some that take long hold up no others, and thousands of
/// channels do not start thousands of threads.
pub const RESOLVER_THREADS: usize = 4;

/// Channels that are registered, to be closed at the end of the interpreter, before it is looked
/// whether they still exist.
pub const REGISTERED_CHANNELS: usize = 64;

/// A message of so many bytes is copied and sent without the lock of the interpreter: that takes a
/// tenth of a millisecond, for which other threads would stand still. To take the lock again beside
/// a busy thread takes some milliseconds, so smaller ones keep it.
pub const LARGE_MESSAGE_BYTES: usize = 256 << 10;

/// The same of a message that is compressed, which takes many times as long.
pub const LARGE_COMPRESSED_BYTES: usize = 16 << 10;

/// The longest time in seconds that is waited for in one go: a timeout beyond it is none.
pub const LONGEST_TIMEOUT_S: f64 = 1e9;
