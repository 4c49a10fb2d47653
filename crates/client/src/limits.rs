//! Every bound of this crate: its name, its default, and what it stops.

use std::time::Duration;

/// How long connecting may take by default. Longer than the first retransmissions of a lost SYN, shorter than the
/// patience of a person.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// One message that is received, by default: what a server can be set to store at most, and room beside it. A client
/// that was asked to read something wants to read it; the memory is only taken when the message is really there.
pub const MAX_MESSAGE_BYTES: usize = (1 << 30) + (1 << 20);

/// Bytes taken from the socket in one read: several frames of the largest size.
pub const READ_BYTES: usize = 64 << 10;

/// How long a write may wait for room before the answers are read that the server may want to be rid of first.
pub const WRITE_PATIENCE: Duration = Duration::from_millis(20);

/// The most that is waited for in one go when nothing else sets an end, so that a deadline that is far away still
/// fits into what sockets take.
pub const LONGEST_WAIT: Duration = Duration::from_secs(3_600);

/// The body of a plain HTTP answer that is kept. Stops a server that never ends.
pub const HTTP_BODY_BYTES: usize = 1 << 20;

/// All bounds with their values and what they are for, for documentation.
pub fn table() -> Vec<(&'static str, String, &'static str)> {
    vec![
        (
            "CONNECT_TIMEOUT",
            format!("{} s", CONNECT_TIMEOUT.as_secs()),
            "how long connecting may take by default",
        ),
        (
            "MAX_MESSAGE_BYTES",
            MAX_MESSAGE_BYTES.to_string(),
            "one message that is received",
        ),
        (
            "READ_BYTES",
            READ_BYTES.to_string(),
            "bytes taken from the socket in one read",
        ),
        (
            "WRITE_PATIENCE",
            format!("{} ms", WRITE_PATIENCE.as_millis()),
            "how long a write waits before reading again",
        ),
        (
            "LONGEST_WAIT",
            format!("{} s", LONGEST_WAIT.as_secs()),
            "the most that is waited for in one go",
        ),
        (
            "HTTP_BODY_BYTES",
            HTTP_BODY_BYTES.to_string(),
            "the body of a plain HTTP answer that is kept",
        ),
    ]
}
