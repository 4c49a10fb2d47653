//! A request that waits for its turn among long work.

use bytes::Bytes;

/// The request of a call that has not taken it up.
pub(crate) struct WaitingRequest {
    /// The message.
    pub bytes: Bytes,
    /// Nothing follows it on its stream.
    pub last: bool,
}
