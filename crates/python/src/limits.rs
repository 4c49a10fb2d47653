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

/// How often a channel looks whether none of its addresses can be reached, and then looks up its
/// names anew: servers that have moved are found again, and a resolver is not asked for each call.
pub const LOOKUP_PERIOD: Duration = Duration::from_secs(10);

/// After what pause a call that waits until its server is ready has a name looked up again that is
/// not known.
pub const LOOKUP_PAUSE: Duration = Duration::from_secs(1);

/// The longest time in seconds that is waited for in one go: a timeout beyond it is none.
pub const LONGEST_TIMEOUT_S: f64 = 1e9;
