//! What a `Local` is asked for, and what it reports.

use net::tls::ClientTls;
use wire::StreamKey;
use wire::framed::{FramedProtocol, FramedStatus};
use wire::grpc::{Metadata, Status};

use crate::error::ConnectError;
use crate::limits;

/// The options of a [`Local`](crate::Local).
#[derive(Clone, Debug)]
pub struct LocalOptions {
    /// Connections at once. [`limits::LOCAL_CHANNELS`].
    pub max_channels: usize,
    /// Calls in flight on one connection. [`limits::LOCAL_CALLS_PER_CHANNEL`].
    pub max_calls_per_channel: usize,
    /// How long connecting may take, the server's first word included. [`limits::CONNECT_TIMEOUT`].
    pub connect_timeout_ns: u64,
    /// The largest message that is received, in bytes. [`limits::MAX_MESSAGE_BYTES`].
    pub max_message_bytes: usize,
    /// For whom the server is to answer; `None`: the address.
    pub authority: Option<String>,
    /// TLS, with [`APPLICATION`](crate::APPLICATION) in ALPN; `None`: plain.
    pub tls: Option<ClientTls>,
    /// Calls are made over this protocol instead of gRPC. It has unary calls alone, and no
    /// authority. What metadata of the name `authorization` have proves who calls.
    pub framed: Option<FramedProtocol>,
    /// Lets the server compress what it responds, unless calls are made over another protocol.
    pub accepts_gzip: bool,
}

impl Default for LocalOptions {
    fn default() -> LocalOptions {
        LocalOptions {
            max_channels: limits::LOCAL_CHANNELS,
            max_calls_per_channel: limits::LOCAL_CALLS_PER_CHANNEL,
            connect_timeout_ns: limits::CONNECT_TIMEOUT.as_nanos() as u64,
            max_message_bytes: limits::MAX_MESSAGE_BYTES,
            authority: None,
            tls: None,
            framed: None,
            accepts_gzip: true,
        }
    }
}

/// Names one connection. Its place is used again when it is closed, the name is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChannelKey {
    /// Small and dense: good as an index.
    pub slot: u32,
    /// Counts the connections that had this place before.
    pub generation: u32,
}

/// Names one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallKey {
    /// Its connection.
    pub channel: ChannelKey,
    pub(super) stream: StreamKey,
}

/// What a call begins with.
#[derive(Clone, Copy, Debug)]
pub struct CallStart<'a> {
    /// `/package.Service/Method`.
    pub path: &'a str,
    /// How long the call may take. The server is told, unless the connection carries SRPC, and the
    /// call ends here when it has passed.
    pub timeout_ns: Option<u64>,
    /// What goes with the request.
    pub metadata: Option<&'a Metadata>,
}

/// Something happened. `tag` is what the caller named the call.
#[derive(Debug)]
pub enum Happened<'a> {
    /// The connection stands, and the server has said how many calls it allows: they may begin.
    Connected {
        /// Which.
        channel: ChannelKey,
    },
    /// There is no connection, or none any more. All its calls have ended before, and its name is
    /// forgotten.
    Disconnected {
        /// Which.
        channel: ChannelKey,
        /// Why.
        error: &'a ConnectError,
    },
    /// A message of the answer. A unary call has one, and ends after it.
    Message {
        /// The call.
        tag: u64,
        /// The message.
        bytes: &'a [u8],
    },
    /// A call that took no further messages does again.
    Writable {
        /// The call.
        tag: u64,
    },
    /// The call has ended: nothing more happens to it.
    Ended {
        /// The call.
        tag: u64,
        /// Its connection.
        channel: ChannelKey,
        /// How.
        ending: Ending<'a>,
    },
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ending<'a> {
    /// The server ended it with this status, after so many messages.
    Status {
        /// The status.
        status: &'a Status,
        /// Messages of the answer.
        messages: u64,
    },
    /// The server ended it with this error of baidu_std or SRPC.
    FramedError {
        /// Its number.
        status: FramedStatus,
        /// What the server says; SRPC has no word for it.
        text: &'a str,
    },
    /// The time given to it has passed.
    DeadlineExceeded,
    /// The server did not begin with it: it is safe to try it again.
    NotBegun,
    /// The connection ended. The server may have done what was asked.
    ConnectionLost {
        /// What is known of the reason.
        reason: &'a str,
    },
    /// What came back is no answer.
    BadAnswer {
        /// What is wrong with it.
        reason: &'a str,
    },
}

/// What a [`Local`](crate::Local) has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LocalCounters {
    /// Calls begun.
    pub begun: u64,
    /// Calls ended, in any way.
    pub ended: u64,
    /// System calls that read, wrote and waited.
    pub reads: u64,
    /// See `reads`.
    pub writes: u64,
    /// See `reads`.
    pub waits: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Connections begun.
    pub dials: u64,
    /// How long sockets took nothing, though there was something to write, summed up over the
    /// connections.
    pub socket_wait_ns: u64,
    /// How long something waited for the server's flow-control windows, and for nothing else.
    pub window_wait_ns: u64,
}
