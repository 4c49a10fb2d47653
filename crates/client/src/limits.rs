//! Every bound of this crate: its name, its default, and what it stops.

use std::time::Duration;

/// How long connecting may take by default. Longer than the first retransmissions of a lost SYN,
/// shorter than a person likes to wait.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// One message that is received, by default: what a server can be set to store at most, and room
/// beside it. A client that was asked to read something wants to read it; the memory is only taken
/// when the message is really there.
pub const MAX_MESSAGE_BYTES: usize = (1 << 30) + (1 << 20);

/// Bytes taken from the socket in one read: several frames of the largest size.
pub const READ_BYTES: usize = 64 << 10;

/// The receive window of each call of a channel, and of its connection, from the beginning: some 3
/// GB a second through a round trip of 5 ms, as a window is given back by halves. It costs no
/// memory, since what is not looked at stays in the socket, whose buffers are the bound; only
/// messages that are taken are gathered.
pub const WINDOW_BYTES: u32 = 16 << 20;

/// Bytes of small messages of a call that are gathered before they are written to the socket.
pub const GATHERED_BYTES: usize = 64 << 10;

/// How long a write may wait for room before the answers are read that the server may want to be
/// rid of first.
pub const WRITE_TIMEOUT: Duration = Duration::from_millis(20);

/// The most that is waited for in one go when nothing else sets an end, so that a deadline that is
/// far away still fits into what sockets take.
pub const LONGEST_WAIT: Duration = Duration::from_secs(3_600);

/// The body of a plain HTTP answer that is kept. Stops a server that never ends.
pub const HTTP_BODY_BYTES: usize = 1 << 20;

// --- The local face ------------------------------------------------------------------------------

/// Connections of one local face, by default. What most systems let a process open, and a slip of
/// the finger does not reach.
pub const LOCAL_CHANNELS: usize = 65_536;

/// Calls in flight on one connection of a local face, by default: far more than servers allow.
/// Keeps the table of calls bounded where a server names no limit.
pub const LOCAL_CALLS_PER_CHANNEL: usize = 65_536;

/// Bytes that a local face takes from a socket in one read: the answers of some thousand small
/// calls.
pub const LOCAL_READ_BYTES: usize = 256 << 10;

/// How often a local face looks whether a connection attempt or a deadline of the protocol has
/// passed, which are seconds long: looking at each connection in each turn would cost more than the
/// calls.
pub const LOCAL_TIMER_GRAIN: Duration = Duration::from_millis(100);

/// Bytes that are sealed with TLS ahead of a socket.
pub const SEAL_BYTES: usize = 256 << 10;

/// Unsent bytes that a buffer of a local face keeps when it is empty again; a larger one is freed.
pub const LOCAL_KEPT_OUTPUT_BYTES: usize = 512 << 10;
