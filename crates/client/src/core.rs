//! One connection without a socket: what all interfaces of this crate stand on.

use std::borrow::Cow;

use wire::grpc::{Code, Metadata, Status};
use wire::{
    CancelCause, CloseReason, Connection, ErrorCode, Event, RequestHead, SharedBytes, StreamKey,
    StreamOpenError,
};

use crate::error::{CallError, NotBegun};

/// How the client names itself to servers.
const USER_AGENT: &str = concat!("grpc-rust-pelton/", env!("CARGO_PKG_VERSION"));

/// What a call begins with.
#[derive(Clone, Copy, Debug)]
pub struct CallRequest<'a> {
    /// For gRPC `/package.Service/Method`.
    pub path: &'a str,
    /// For whom the server is to answer, usually `host:port`.
    pub authority: &'a str,
    /// The time that the server has, in nanoseconds from now.
    pub timeout_ns: Option<u64>,
    /// What goes with the request.
    pub metadata: Option<&'a Metadata>,
    /// Names gzip, so that [`Core::set_compress`] works. A server that does not know it ends the
    /// call.
    pub gzip: bool,
    /// Lets the server compress what it responds.
    pub accepts_gzip: bool,
}

/// Something happened to a call.
#[derive(Clone, Debug, PartialEq)]
pub struct CallEvent {
    /// To which call.
    pub call: StreamKey,
    /// What [`Core::set_token`] named it; 0 if it was not named.
    pub token: u32,
    /// What happened.
    pub kind: CallEventKind,
}

/// What happened to a call. The last five end it: nothing follows, and the call is forgotten.
#[derive(Clone, Debug, PartialEq)]
pub enum CallEventKind {
    /// The head of the answer is there.
    Head {
        /// 200 if all is well.
        http_status: u16,
    },
    /// A message, or a piece of a plain HTTP body: see [`Core::message`]. [`Core::release`] lets
    /// the server send on.
    Message,
    /// The call can take further messages, which it could not before.
    Writable,
    /// The server ended the call with this status; a plain HTTP answer that is complete is OK.
    Ended(Status),
    /// The server did not begin with the call: it is safe to try it again.
    NotBegun,
    /// The call ended without an answer; the server may have begun with it.
    Lost {
        /// What is known of the reason.
        reason: String,
    },
    /// A message of the answer is larger than the limit.
    AnswerTooLarge,
    /// What came back is no answer.
    BadAnswer {
        /// What is wrong with it.
        reason: Cow<'static, str>,
    },
}

/// One connection to a server, without its socket.
///
/// Bytes that were received go in by [`Core::received`], bytes to send lie in [`Core::output`].
/// After either, and after every call that begins, [`Core::poll`] says what happened until it
/// answers `None`.
#[derive(Debug)]
pub struct Core {
    connection: Connection,
    input: Vec<u8>,
    /// How much of the input the connection has taken since `poll` last answered `None`.
    consumed: usize,
    output: Vec<u8>,
    /// Something has come that was not polled to its end.
    has_unpolled: bool,
    /// Nothing more comes; what has come is still to be taken.
    is_disconnected: bool,
}

impl Core {
    /// A connection on which nothing has been sent. `now_ns` counts from any origin, and never goes
    /// back.
    pub fn new(config: &wire::Config, now_ns: u64) -> Core {
        debug_assert_eq!(
            config.role,
            wire::Role::Client,
            "a client's core has a client's role"
        );
        let mut connection = Connection::new(config, now_ns);
        let mut output = Vec::new();
        connection.start(&mut output);
        Core {
            connection,
            input: Vec::new(),
            consumed: 0,
            output,
            has_unpolled: false,
            is_disconnected: false,
        }
    }

    /// Begins a gRPC call. Its messages follow by [`Core::send`].
    ///
    /// # Errors
    /// If the connection takes no calls now, or the request cannot be sent.
    pub fn open(&mut self, request: &CallRequest<'_>) -> Result<StreamKey, CallError> {
        let head = RequestHead {
            user_agent: USER_AGENT,
            timeout_ns: request.timeout_ns,
            metadata: request.metadata,
            gzip: request.gzip,
            accepts_gzip: request.accepts_gzip,
            ..RequestHead::call(request.authority, request.path)
        };
        self.open_head(&head)
    }

    /// Begins a plain HTTP GET.
    ///
    /// # Errors
    /// As [`Core::open`].
    pub fn open_http_get(&mut self, authority: &str, path: &str) -> Result<StreamKey, CallError> {
        let head = RequestHead {
            user_agent: USER_AGENT,
            ..RequestHead::get(authority, path)
        };
        let call = self.open_head(&head)?;
        self.connection.close_send(call, &mut self.output);
        Ok(call)
    }

    /// Begins a plain HTTP POST. Its body follows by [`Core::send_body`], and ends with
    /// [`Core::close_send`].
    ///
    /// # Errors
    /// As [`Core::open`].
    pub fn open_http_post(
        &mut self,
        authority: &str,
        path: &str,
        metadata: Option<&Metadata>,
    ) -> Result<StreamKey, CallError> {
        self.open_head(&RequestHead {
            user_agent: USER_AGENT,
            metadata,
            ..RequestHead::post(authority, path)
        })
    }

    fn open_head(&mut self, head: &RequestHead<'_>) -> Result<StreamKey, CallError> {
        self.connection
            .open(&mut self.output, head)
            .map_err(|error| match error {
                StreamOpenError::TooManyStreams => CallError::NotBegun(NotBegun::TooManyCalls),
                StreamOpenError::GoingAway | StreamOpenError::IdsExhausted => {
                    let reason = self
                        .close_reason()
                        .map_or_else(|| error.to_string(), describe);
                    CallError::NotBegun(NotBegun::Closing { reason })
                }
                StreamOpenError::HeadTooLarge => CallError::MetadataTooLarge,
                StreamOpenError::BadPath
                | StreamOpenError::BadAuthority
                | StreamOpenError::BadMetadata => CallError::BadRequest {
                    reason: error.to_string(),
                },
            })
    }

    /// Names a call in the words of whoever keeps many of them: what happens to it carries the
    /// name.
    pub fn set_token(&mut self, call: StreamKey, token: u32) {
        self.connection.set_token(call, token);
    }

    /// The name of a call; 0 if it has none, or is over.
    pub fn token(&self, call: StreamKey) -> u32 {
        self.connection.token(call)
    }

    /// Whether the server has said what it allows.
    pub fn is_ready(&self) -> bool {
        self.connection.has_peer_settings()
    }

    /// Returns whether calls may still begin, now or when others have ended. If not, those that
    /// run go on to their ends.
    pub fn takes_calls(&self) -> bool {
        self.connection.takes_streams()
    }

    /// How many further calls the server allows now.
    pub fn calls_left(&self) -> usize {
        self.connection.streams_left()
    }

    /// Sends a message. `last`: the client's side ends with it.
    pub fn send(&mut self, call: StreamKey, message: &[u8], last: bool) {
        self.send_with(call, last, |out| out.extend_from_slice(message));
    }

    /// The same; `encode` appends the message to what it is given, which is the output itself where
    /// that is possible.
    pub fn send_with(&mut self, call: StreamKey, last: bool, encode: impl FnOnce(&mut Vec<u8>)) {
        if last {
            self.connection
                .send_last_message(call, &mut self.output, encode);
        } else {
            self.connection.send_message(call, &mut self.output, encode);
        }
    }

    /// Sends a message of `head` and then `body`, which is copied only as it goes out.
    pub fn send_shared(&mut self, call: StreamKey, last: bool, head: &[u8], body: SharedBytes) {
        self.connection.send_shared(
            call,
            &mut self.output,
            |out| out.extend_from_slice(head),
            body,
        );
        if last {
            self.close_send(call);
        }
    }

    /// Sends a piece of the body of a plain request.
    pub fn send_body(&mut self, call: StreamKey, piece: &[u8]) {
        self.connection
            .send_request_body(call, &mut self.output, piece);
    }

    /// Whether the messages from here on are compressed; only in a call whose request names gzip.
    pub fn set_compress(&mut self, call: StreamKey, compress: bool) {
        self.connection.set_compress(call, compress);
    }

    /// Ends the client's side without a further message.
    pub fn close_send(&mut self, call: StreamKey) {
        self.connection.close_send(call, &mut self.output);
    }

    /// Whether a further message would be sent soon. If not, [`CallEventKind::Writable`] follows.
    pub fn can_send(&self, call: StreamKey) -> bool {
        self.connection.is_writable(call)
    }

    /// Gives a call up: the server is told, and nothing more happens to it.
    pub fn cancel(&mut self, call: StreamKey) {
        self.connection
            .reset(call, &mut self.output, ErrorCode::Cancel);
    }

    /// Takes bytes from the server.
    pub fn received(&mut self, bytes: &[u8]) {
        debug_assert_eq!(
            self.consumed, 0,
            "polled to the end before more is received"
        );
        self.input.extend_from_slice(bytes);
        self.has_unpolled = true;
    }

    /// The server has closed its side, or the socket is broken. Calls are lost when what came
    /// before has been polled: over TLS an answer and the end come in one read.
    pub fn disconnected(&mut self) {
        match self.has_unpolled {
            true => self.is_disconnected = true,
            false => self.connection.peer_closed(),
        }
    }

    /// What happened next.
    pub fn poll(&mut self, now_ns: u64) -> Option<CallEvent> {
        loop {
            let event = self.connection.poll_event(
                &self.input,
                &mut self.consumed,
                &mut self.output,
                now_ns,
            );
            let Some(event) = event else {
                self.input.drain(..self.consumed);
                self.consumed = 0;
                self.has_unpolled = false;
                if std::mem::take(&mut self.is_disconnected) {
                    self.connection.peer_closed();
                    continue;
                }
                return None;
            };
            if let Some(event) = self.translate(event) {
                return Some(event);
            }
        }
    }

    /// The bytes of the last [`CallEventKind::Message`], until the next `poll`.
    pub fn message(&self) -> &[u8] {
        self.connection.message(&self.input)
    }

    /// Whether that message came compressed.
    pub fn message_was_compressed(&self) -> bool {
        self.connection.message_was_compressed()
    }

    /// The metadata of the last [`CallEventKind::Head`], until the next `poll`.
    pub fn initial_metadata(&self) -> Metadata {
        let mut metadata = Metadata::new();
        for (name, value) in self.connection.head().metadata() {
            // What is no metadata cannot be handed on, and is no reason to lose the answer.
            let _ = metadata.push_received(name, value);
        }
        metadata
    }

    /// The HTTP status of the last head, in the same time.
    pub fn http_status(&self) -> u16 {
        self.connection.head().http_status()
    }

    /// The last message of the call was consumed: the server may send as much again.
    pub fn release(&mut self, call: StreamKey) {
        self.connection.release(call, &mut self.output);
    }

    /// What is to be sent. Whoever has sent bytes removes them from the front.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    /// Adds to the output what waited for room in it, or for the server's windows.
    pub fn transmit(&mut self, now_ns: u64) {
        self.connection.transmit(&mut self.output, now_ns);
    }

    /// Whether something waits for room in the output, or for the server's windows.
    pub fn wants_transmit(&self) -> bool {
        self.connection.wants_transmit()
    }

    /// Returns whether messages wait for room in the output, or for the server's windows.
    pub fn has_unsent(&self) -> bool {
        self.connection.queued_bytes() > 0
    }

    /// Whether [`Core::poll`] has something to report without further input.
    pub fn has_events(&self) -> bool {
        self.is_disconnected || self.connection.has_events()
    }

    /// When [`Core::deadline_passed`] is to be called, if nothing happens before.
    pub fn next_deadline_ns(&self) -> Option<u64> {
        self.connection.next_deadline_ns()
    }

    /// Does what is due by now.
    pub fn deadline_passed(&mut self, now_ns: u64) {
        self.connection.deadline_passed(&mut self.output, now_ns);
    }

    /// Set once the connection has ended: the output is to be written, and the socket closed.
    pub fn close_reason(&self) -> Option<&CloseReason> {
        self.connection.close_reason()
    }

    /// What the server said by GOAWAY when it ended the connection for an error.
    pub fn server_reason(&self) -> Option<String> {
        self.close_reason()
            .filter(|reason| matches!(reason, CloseReason::Refused { .. }))
            .map(CloseReason::to_string)
    }

    /// An event of the connection in the words of a call, `None` for what no caller needs to know.
    fn translate(&mut self, event: Event) -> Option<CallEvent> {
        let (call, kind, over) = match event {
            Event::Response { stream, .. } => (
                stream,
                CallEventKind::Head {
                    http_status: self.http_status(),
                },
                false,
            ),
            Event::Message { stream, .. } | Event::Body { stream, .. } => {
                (stream, CallEventKind::Message, false)
            }
            Event::Writable { stream } => (stream, CallEventKind::Writable, false),
            Event::Finished { stream } => {
                let status = self.connection.status().clone();
                (stream, self.ended(stream, status), true)
            }
            Event::Cancelled { stream, cause } => (stream, self.cancelled(stream, cause), true),
            // No client asks for parts.
            Event::HalfClosed { .. }
            | Event::Request { .. }
            | Event::Part { .. }
            | Event::Refused => return None,
        };
        let token = self.connection.token(call);
        if over {
            self.connection.forget(call);
        }
        Some(CallEvent { call, token, kind })
    }

    /// The end of a call with a status.
    fn ended(&self, call: StreamKey, status: Status) -> CallEventKind {
        let is_late = !status.is_ok() && self.connection.has_response_begun(call);
        CallEventKind::Ended(match is_late {
            true => status.after_response(),
            false => status,
        })
    }

    fn cancelled(&self, call: StreamKey, cause: CancelCause) -> CallEventKind {
        let reason = match cause {
            CancelCause::Refused => return CallEventKind::NotBegun,
            CancelCause::Reset(code) => return self.ended(call, reset_status(code)),
            CancelCause::RefusedLate => "the server refused the call after it had begun to answer",
            CancelCause::ConnectionClosed => {
                let reason = self
                    .close_reason()
                    .map_or_else(|| "it was closed".into(), describe);
                return CallEventKind::Lost { reason };
            }
            CancelCause::MessageTooLarge => return CallEventKind::AnswerTooLarge,
            CancelCause::MessageTooDense => {
                "messages become too many times what was sent when they are decompressed"
            }
            CancelCause::NoMemory => "there is no memory for more of its messages",
            CancelCause::TooMuchUnfinished => "too many bytes of unfinished messages wait",
            CancelCause::UnknownEncoding => "it is compressed in a way that was not offered",
            CancelCause::BadMessage | CancelCause::DamagedRequest => {
                "its bytes are not gRPC messages, or not the gzip that they claim to be"
            }
            CancelCause::Violation(_) => {
                let rule = self.connection.status().message();
                let reason = format!("it breaks the rules of HTTP/2: {rule}").into();
                return CallEventKind::BadAnswer { reason };
            }
        };
        CallEventKind::BadAnswer {
            reason: reason.into(),
        }
    }
}

/// Why a connection has ended, for the caller.
pub(crate) fn describe(reason: &CloseReason) -> String {
    match reason {
        CloseReason::Drained => {
            "the server ended it: it is stopping, or has as many connections as it takes".into()
        }
        other => other.to_string(),
    }
}

/// What an RST_STREAM means for a call (gRPC over HTTP/2, "Errors").
fn reset_status(code: ErrorCode) -> Status {
    let grpc = match code {
        ErrorCode::Cancel => Code::Cancelled,
        ErrorCode::EnhanceYourCalm => Code::ResourceExhausted,
        ErrorCode::InadequateSecurity => Code::PermissionDenied,
        _ => Code::Internal,
    };
    let status = Status::new(grpc, format!("the server reset the call ({code:?})"));
    // The code is ours: it says nothing of what the server has done.
    status.after_response()
}
