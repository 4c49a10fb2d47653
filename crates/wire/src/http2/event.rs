//! What a connection tells the layer above.

use super::error::CancelCause;
use super::stream_key::StreamKey;

/// Something happened. Nothing in it borrows; see [`super::Connection::head`] and
/// [`super::Connection::message`].
///
/// The layer above ends every stream of which it has heard with exactly one last call: `respond`,
/// `finish`, `send_plain`, `reset`, or, for a stream that is dead or finished, `forget`. Until then
/// the stream counts as running work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Server: a request began; its head is complete.
    Request {
        /// The new stream.
        stream: StreamKey,
        /// No body follows.
        end: bool,
    },
    /// Client: the head of the response is complete. Not for a response that is only trailers.
    Response {
        /// The stream.
        stream: StreamKey,
        /// No body follows.
        end: bool,
    },
    /// One whole gRPC message, decompressed.
    Message {
        /// The stream.
        stream: StreamKey,
        /// The peer has ended its side with it.
        last: bool,
    },
    /// Some of a gRPC message, as it came, of a stream that takes parts
    /// ([`super::Connection::take_parts`]). The next one goes on where it ends; behind the last, at
    /// which nothing is left, the message is complete.
    Part {
        /// The stream.
        stream: StreamKey,
        /// The bytes of the message that are still to come.
        left: u32,
        /// The peer has ended its side with it; then nothing is left.
        last: bool,
    },
    /// A piece of a body that is not gRPC.
    Body {
        /// The stream.
        stream: StreamKey,
        /// The peer has ended its side with it.
        last: bool,
    },
    /// Server, baidu_std and SRPC: the peer has sent a frame that is no call, and was told why.
    /// There is nothing to be done for it, but it takes time as a call does.
    Refused,
    /// The peer has ended its side, without a further message.
    HalfClosed {
        /// The stream.
        stream: StreamKey,
    },
    /// Client: the response is complete; see [`super::Connection::status`]. Nothing follows for
    /// this stream.
    Finished {
        /// The stream.
        stream: StreamKey,
    },
    /// The stream is dead. Nothing follows for it, and nothing that is sent on it goes anywhere.
    Cancelled {
        /// The stream.
        stream: StreamKey,
        /// Why.
        cause: CancelCause,
    },
    /// `can_send` was false and is true again.
    Writable {
        /// The stream.
        stream: StreamKey,
    },
}
