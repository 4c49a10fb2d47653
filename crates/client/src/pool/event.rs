//! What a pool is asked for, and what it reports.

use wire::grpc::{Metadata, Status};

use crate::error::CallError;

/// An address that a pool connects to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolEndpoint {
    /// How statistics name it.
    pub name: String,
    /// For whom the server is to answer (`:authority`), usually `host:port`.
    pub authority: String,
}

/// Names one connection of a pool. Its slot is used again, the name is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolConnectionKey {
    /// Small and dense: good as an index.
    pub slot: u32,
    /// Counts the connections that had this slot before.
    pub generation: u32,
}

/// Names one call of a pool. Its slot is used again, the name is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolCallKey {
    /// Small and dense: good as an index.
    pub slot: u32,
    /// Counts the calls that had this slot before.
    pub generation: u32,
}

/// What a call begins with.
#[derive(Clone, Copy, Debug, Default)]
pub struct PoolCall<'a> {
    /// `/package.Service/Method`.
    pub path: &'a str,
    /// What goes with the request.
    pub metadata: Option<&'a Metadata>,
    /// How long the call may take, waiting included. 0 is a deadline in the past. `None`: the
    /// default of the pool.
    pub timeout_ns: Option<u64>,
    /// The call may be done twice: it is also made again where the server may have done it.
    pub is_repeatable: bool,
    /// The call waits for a connection until its deadline, also while no address can be reached;
    /// otherwise it fails when each address has failed.
    pub waits_for_ready: bool,
    /// The initial metadata of the answer is wanted: [`PoolEvent::Head`].
    pub wants_head: bool,
    /// The server may send on only when messages are released ([`super::PoolEngine::release`]);
    /// otherwise a message counts as consumed when it has been reported.
    pub holds_messages: bool,
    /// Messages of the client are compressed with gzip, which the server has to know; of a stream,
    /// as long as nothing else is set ([`super::PoolEngine::set_compress`]).
    pub compress: bool,
}

/// What a driver is asked to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolAction {
    /// Connect to an endpoint, with TLS if there is to be TLS. [`super::PoolEngine::connected`] or
    /// [`super::PoolEngine::disconnected`] is the answer.
    Dial {
        /// The new connection.
        connection: PoolConnectionKey,
        /// The number of the endpoint.
        endpoint: usize,
    },
    /// Close a connection, or stop to connect. Nothing more is reported of it, and what is reported
    /// of it is ignored.
    Close {
        /// Which.
        connection: PoolConnectionKey,
        /// To be written before, as far as the socket takes it at once: it tells the server why.
        unsent: Vec<u8>,
        /// Calls could begin on it. If not, and its name stands for several endpoints, another one
        /// of them may be better.
        was_open: bool,
    },
}

/// Something happened to a call. `tag` is what the caller named it.
#[derive(Debug)]
pub enum PoolEvent<'a> {
    /// The answer has begun. Only for calls that want it, and not for answers that are only a
    /// status.
    Head {
        /// The call.
        call: PoolCallKey,
        /// Its tag.
        tag: u64,
        /// The initial metadata.
        metadata: &'a Metadata,
    },
    /// A message of the answer.
    Message {
        /// The call.
        call: PoolCallKey,
        /// Its tag.
        tag: u64,
        /// The message.
        bytes: &'a [u8],
        /// Whether it came compressed.
        compressed: bool,
    },
    /// A call that took no further messages takes them again.
    Writable {
        /// The call.
        call: PoolCallKey,
        /// Its tag.
        tag: u64,
    },
    /// The call has ended: nothing follows. Reported exactly once for each call that began and was
    /// not cancelled by its caller.
    Ended {
        /// The call.
        call: PoolCallKey,
        /// Its tag.
        tag: u64,
        /// Status OK with its trailing metadata, or why not. Another status is
        /// [`CallError::Status`].
        result: Result<&'a Status, CallError>,
        /// Messages of the answer.
        messages: u64,
    },
}

/// Why a message of a streaming call is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// As many bytes as may wait on the call do: [`PoolEvent::Writable`] follows.
    #[error("as many bytes as may wait on this call do; wait until it is writable")]
    NotWritable,
    /// It is larger than the limit.
    #[error("the message has {bytes} bytes, and at most {limit_bytes} are sent")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        limit_bytes: usize,
    },
    /// The call has ended, or its caller has ended its side.
    #[error("the call takes no messages: it has ended, or its last message was sent")]
    Ended,
}
