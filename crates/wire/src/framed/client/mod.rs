//! The client's side of a connection that carries baidu_std or SRPC.
//!
//! `request` makes frames of calls, `receive` finds out which call a response is of and what it
//! says, `calls` has the calls.

mod calls;
mod receive;
mod request;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::ops::Range;

use super::FramedProtocol;
use super::status::FramedStatus;
use crate::http2::{CloseReason, Config, ErrorCode, StreamKey};
use calls::AwaitedCalls;
use receive::IncomingResponse;
pub use request::FramedCallHead;

/// One connection of a client that carries baidu_std or SRPC.
///
/// Calls and bytes go in, bytes and [`FramedCallEvent`]s come out. Each call that begins ends with
/// exactly one event, unless it is given up before. Calls of baidu_std are pipelined, and their
/// responses come in any order; SRPC has one call at a time.
///
/// What has come of a response stays in the input until all of it is there: the bytes that a server
/// can make a client hold are those that it has sent of one response, of a size that was checked
/// before, and what that becomes when it is decompressed.
#[derive(Debug)]
pub struct FramedClientConnection {
    protocol: FramedProtocol,
    max_message_bytes: usize,
    max_calls: usize,
    closed: Option<CloseReason>,
    /// The transport has ended; what came before is still to be looked at.
    is_ending: bool,
    calls: AwaitedCalls,
    /// A hash of the token that went with a call last, so as to keep no token.
    sent_token: Option<u64>,
    incoming: IncomingResponse,
    /// Calls that the end of the connection took with it.
    lost: VecDeque<StreamKey>,
    response: LastResponse,
}

/// A call has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FramedCallEvent {
    /// Which.
    pub call: StreamKey,
    /// What [`FramedClientConnection::set_token`] named it; 0 if it was not named.
    pub token: u32,
    /// How.
    pub end: FramedCallEnd,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FramedCallEnd {
    /// By a response: see [`FramedClientConnection::message`] and
    /// [`FramedClientConnection::attachment`].
    Response,
    /// By an error of the server.
    Error {
        /// What it says.
        status: FramedStatus,
        /// The same in words; SRPC has none.
        text: String,
    },
    /// By a response that cannot be used, for this reason.
    BadResponse(&'static str),
    /// With the connection. The server may have done what was asked for.
    Lost,
}

/// Why a call cannot begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BeginError {
    /// As many calls run as may, or wait for the response to one that was given up.
    #[error("as many calls run on the connection as may")]
    TooManyCalls,
    /// The connection takes no further calls.
    #[error("the connection takes no further calls")]
    Closing,
    /// Names and metadata have more than
    /// [`FRAMED_META_BYTES`](crate::limits::FRAMED_META_BYTES) together.
    #[error("names and metadata of the call are larger than a frame can carry")]
    MetadataTooLarge,
    /// The request has more than
    /// [`FRAMED_REQUEST_BYTES`](crate::limits::FRAMED_REQUEST_BYTES).
    #[error("the request is larger than a frame can carry")]
    MessageTooLarge,
    /// Metadata with a binary value: the protocols have text alone.
    #[error("metadata with a binary value cannot be sent")]
    BinaryMetadata,
    /// SRPC has no attachments.
    #[error("SRPC has no attachments")]
    NoAttachments,
}

/// The last response that was reported.
#[derive(Debug, Default)]
struct LastResponse {
    /// The message as it lies in the input; `None`: in the buffer.
    message: Option<Range<usize>>,
    /// A message that was decompressed.
    buffer: Vec<u8>,
    attachment: Range<usize>,
    was_compressed: bool,
}

impl FramedClientConnection {
    /// Returns a connection on which nothing has been sent. Of the configuration
    /// `max_message_bytes` holds for each message of a response, and `max_streams` for the calls at
    /// once.
    pub fn new(protocol: FramedProtocol, config: &Config) -> FramedClientConnection {
        FramedClientConnection {
            protocol,
            max_message_bytes: config.max_message_bytes,
            max_calls: Self::bounded_calls(protocol, config.max_streams as usize),
            closed: None,
            is_ending: false,
            calls: AwaitedCalls::default(),
            sent_token: None,
            incoming: IncomingResponse::Between,
            lost: VecDeque::new(),
            response: LastResponse::default(),
        }
    }

    /// Returns which protocol it carries.
    pub fn protocol(&self) -> FramedProtocol {
        self.protocol
    }

    /// Looks at the input for the next call that has ended.
    ///
    /// To be called with the same `input`, and `consumed` at 0 at first, until it returns `None`;
    /// then the first `consumed` bytes are to be dropped. What is left is looked at again with what
    /// follows; the input must be able to hold a whole response.
    pub fn poll_event(&mut self, input: &[u8], consumed: &mut usize) -> Option<FramedCallEvent> {
        loop {
            if let Some(call) = self.lost.pop_front() {
                // One that was given up meanwhile is not there any more.
                match self.end(call, FramedCallEnd::Lost) {
                    Some(event) => return Some(event),
                    None => continue,
                }
            }
            if self.closed.is_some() {
                *consumed = input.len();
                return None;
            }
            match self.receive(input, consumed) {
                ReceiveStep::Event(event) => return Some(event),
                ReceiveStep::Again => {}
                ReceiveStep::Wait if self.is_ending => self.close(CloseReason::PeerGone),
                ReceiveStep::Wait => return None,
            }
        }
    }

    /// Takes a call out, and returns its event, unless it was given up.
    fn end(&mut self, call: StreamKey, end: FramedCallEnd) -> Option<FramedCallEvent> {
        let found = self.calls.remove(call)?;
        let token = found.token;
        (!found.is_abandoned).then_some(FramedCallEvent { call, token, end })
    }

    /// Returns the message of the last response, as long as `input` is that of the event.
    pub fn message<'a>(&'a self, input: &'a [u8]) -> &'a [u8] {
        match &self.response.message {
            Some(range) => input.get(range.clone()).unwrap_or_default(),
            None => &self.response.buffer,
        }
    }

    /// Returns what followed behind it, in the same time.
    pub fn attachment<'a>(&self, input: &'a [u8]) -> &'a [u8] {
        let range = self.response.attachment.clone();
        input.get(range).unwrap_or_default()
    }

    /// Returns whether that message came compressed.
    pub fn message_was_compressed(&self) -> bool {
        self.response.was_compressed
    }

    /// Names a call in the words of whoever keeps many of them.
    #[inline]
    pub fn set_token(&mut self, call: StreamKey, token: u32) {
        if let Some(found) = self.calls.get_mut(call) {
            found.token = token;
        }
    }

    /// Returns the name of a call; 0 if it has none, or is over.
    #[inline]
    pub fn token(&self, call: StreamKey) -> u32 {
        let found = self.calls.get(call).filter(|call| !call.is_abandoned);
        found.map_or(0, |call| call.token)
    }

    /// Gives a call up: nothing more is heard of it. The server is not told, as the protocols have
    /// no word for it; the place of the call is free again when the response has come, which is
    /// thrown away.
    pub fn cancel(&mut self, call: StreamKey) {
        if self.calls.abandon(call) && self.closed.is_some() {
            self.calls.remove(call);
        }
    }

    /// Returns how many calls run.
    pub fn running(&self) -> usize {
        self.calls.len() - self.calls.abandoned()
    }

    /// The transport has ended. [`FramedClientConnection::poll_event`] then reports the responses
    /// that came before, and each call that the end took with it.
    pub fn peer_closed(&mut self) {
        self.is_ending = true;
    }

    /// Returns why the connection has ended, once it has.
    pub fn close_reason(&self) -> Option<&CloseReason> {
        self.closed.as_ref()
    }

    /// Returns whether [`FramedClientConnection::poll_event`] has something to report without
    /// further input.
    pub fn has_events(&self) -> bool {
        !self.lost.is_empty() || (self.is_ending && self.closed.is_none())
    }

    /// Returns the bytes of memory that the connection holds, nearly, beside its input.
    pub fn memory_bytes(&self) -> usize {
        size_of::<FramedClientConnection>()
            + self.calls.memory_bytes()
            + self.lost.capacity() * size_of::<StreamKey>()
            + self.response.buffer.capacity()
    }

    /// The server broke a rule: nothing that follows can be understood.
    #[cold]
    fn fail(&mut self, why: &'static str) -> ReceiveStep {
        let code = ErrorCode::ProtocolError;
        self.close(CloseReason::Error { code, why });
        ReceiveStep::Again
    }

    fn close(&mut self, reason: CloseReason) {
        if self.closed.is_some() {
            return;
        }
        self.closed = Some(reason);
        self.incoming = IncomingResponse::Between;
        self.lost.extend(self.calls.keys());
    }
}

/// What became of some input.
enum ReceiveStep {
    Event(FramedCallEvent),
    /// Something was taken, and there may be more.
    Again,
    /// Nothing is to be done before more comes.
    Wait,
}
