//! The blocking interface: one connection, and the thread that calls does the work.

mod http;
mod server_streaming;
mod streaming;
mod tracing;

pub use http::{HttpAnswer, HttpPost};
pub use server_streaming::ServerStreaming;
pub use streaming::{StreamStep, Streaming};

use std::time::{Duration, Instant};

use net::Address;
use net::tls::ClientTls;
use wire::StreamKey;
use wire::grpc::{Code, Metadata};

use crate::core::{CallEventKind, CallRequest, Core, describe};
use crate::credentials::Credentials;
use crate::error::{CallError, ConnectError, NotBegun, bad_answer, only_message};
use crate::limits;
use crate::line::ChannelLine;
use crate::socket::SocketWait;
use crate::spans::Tracer;
use tracing::ChannelTracing;

/// How a channel is to be.
#[derive(Clone, Debug)]
pub struct ChannelOptions {
    /// How long connecting may take. [`limits::CONNECT_TIMEOUT`].
    pub connect_timeout: Duration,
    /// The largest message that is received, in bytes. [`limits::MAX_MESSAGE_BYTES`].
    pub max_message_bytes: usize,
    /// TLS, with [`APPLICATION`](crate::APPLICATION) in ALPN; `None`: plain.
    pub tls: Option<ClientTls>,
    /// What proves who calls. It goes with each gRPC call; a call that has metadata `authorization`
    /// of its own has both.
    pub credentials: Option<Credentials>,
    /// Makes a span of each gRPC call; `None`: there are none.
    pub tracer: Option<Tracer>,
}

impl Default for ChannelOptions {
    fn default() -> ChannelOptions {
        ChannelOptions {
            connect_timeout: limits::CONNECT_TIMEOUT,
            max_message_bytes: limits::MAX_MESSAGE_BYTES,
            tls: None,
            credentials: None,
            tracer: None,
        }
    }
}

/// What a single call may be given.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallOptions<'a> {
    /// When the caller gives up. The server is told how long it has.
    pub deadline: Option<Instant>,
    /// What goes with the request.
    pub metadata: Option<&'a Metadata>,
    /// Whether the messages of the client are compressed with gzip, which the server has to know.
    /// Messages of the server may always be.
    pub compress: bool,
    /// Whether the initial metadata of a stream are wanted. A [`Channel`] has them in any case.
    pub wants_head: bool,
}

/// What came with the answer of a call, beside its messages and its status.
#[derive(Clone, Debug, Default)]
pub struct CallInfo {
    /// What stood before the messages.
    pub initial_metadata: Metadata,
    /// What stood behind them.
    pub trailing_metadata: Metadata,
    /// Whether the last message came compressed.
    pub message_was_compressed: bool,
}

/// One connection to a server, for one call at a time.
///
/// The thread that makes a call sends and receives; between calls nobody does. After a
/// [`CallError::ConnectionLost`], or [`NotBegun::Closing`], a new channel is needed.
#[derive(Debug)]
pub struct Channel {
    pub(crate) core: Core,
    line: ChannelLine,
    authority: String,
    credentials: Option<Credentials>,
    /// The origin of the core's time.
    origin: Instant,
    buffer: Box<[u8]>,
    has_received: bool,
    /// Why the socket can no longer be used.
    broken: Option<String>,
    info: CallInfo,
    /// The head of the answer to the last call has come.
    has_head: bool,
    tracing: Option<Box<ChannelTracing>>,
}

impl Channel {
    /// Connects to a server.
    ///
    /// # Errors
    /// If there is no connection; says to where, and why.
    pub fn connect(address: &Address, options: &ChannelOptions) -> Result<Channel, ConnectError> {
        if let Some(credentials) = &options.credentials {
            credentials.check(address, options.tls.is_some())?;
        }
        let line = ChannelLine::connect(address, options.tls.as_ref(), options.connect_timeout)?;
        let config = wire::Config {
            max_message_bytes: options.max_message_bytes,
            // A caller's own messages and answers are all that waits here: their size is the
            // caller's business.
            max_gathered_bytes: usize::MAX,
            max_unsent_bytes: usize::MAX,
            stream_window: Some(limits::WINDOW_BYTES),
            connection_window: Some(limits::WINDOW_BYTES),
            ..wire::Config::client()
        };
        Ok(Channel {
            core: Core::new(&config, 0),
            line,
            authority: authority(address),
            credentials: options.credentials.clone(),
            origin: Instant::now(),
            buffer: vec![0; limits::READ_BYTES].into_boxed_slice(),
            has_received: false,
            broken: None,
            info: CallInfo::default(),
            has_head: false,
            tracing: (options.tracer.as_ref()).map(|tracer| ChannelTracing::new(tracer, address)),
        })
    }

    /// Calls a unary method.
    ///
    /// # Errors
    /// If the call ends with another status than OK, or without one.
    pub fn unary(
        &mut self,
        path: &str,
        request: &[u8],
        options: &CallOptions<'_>,
    ) -> Result<Vec<u8>, CallError> {
        self.unary_with(path, |out| out.extend_from_slice(request), options)
    }

    /// The same; `encode` appends the request to what is to be sent, so that a large one is there
    /// once.
    pub(crate) fn unary_with(
        &mut self,
        path: &str,
        encode: impl FnOnce(&mut Vec<u8>),
        options: &CallOptions<'_>,
    ) -> Result<Vec<u8>, CallError> {
        let mut answers = self.server_streaming_with(path, encode, options)?;
        only_message(answers.next_message()?, answers.next_message()?)
    }

    /// Calls a method that answers with any number of messages.
    ///
    /// # Errors
    /// If the call cannot begin.
    pub fn server_streaming(
        &mut self,
        path: &str,
        request: &[u8],
        options: &CallOptions<'_>,
    ) -> Result<ServerStreaming<'_>, CallError> {
        self.server_streaming_with(path, |out| out.extend_from_slice(request), options)
    }

    /// The same, as [`Channel::unary_with`].
    pub(crate) fn server_streaming_with(
        &mut self,
        path: &str,
        encode: impl FnOnce(&mut Vec<u8>),
        options: &CallOptions<'_>,
    ) -> Result<ServerStreaming<'_>, CallError> {
        let call = self.begin(path, options)?;
        self.core.send_with(call, true, encode);
        Ok(ServerStreaming::new(self, call, options.deadline))
    }

    /// Calls a method to which any number of messages go, and which answers with any number of
    /// messages.
    ///
    /// # Errors
    /// If the call cannot begin.
    pub fn streaming(
        &mut self,
        path: &str,
        options: &CallOptions<'_>,
    ) -> Result<Streaming<'_>, CallError> {
        let call = self.begin(path, options)?;
        Ok(Streaming::new(self, call, options.deadline))
    }

    /// What came with the last call, as far as it was looked at.
    pub fn last_call(&self) -> &CallInfo {
        &self.info
    }

    fn begin(&mut self, path: &str, options: &CallOptions<'_>) -> Result<StreamKey, CallError> {
        self.catch_up();
        let timeout = options
            .deadline
            .map(|deadline| deadline.saturating_duration_since(Instant::now()));
        (self.info, self.has_head) = (CallInfo::default(), false);
        if timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err(CallError::NotBegun(NotBegun::DeadlinePassed));
        }
        let traced = self.begin_span(path, options.metadata);
        let given = traced.as_ref().or(options.metadata);
        let both = match (given, &self.credentials) {
            (Some(metadata), Some(credentials)) => {
                let mut metadata = metadata.clone();
                credentials.push_to(&mut metadata);
                Some(metadata)
            }
            _ => None,
        };
        let of_credentials = self.credentials.as_ref().map(Credentials::metadata);
        let opened = self.core.open(&CallRequest {
            path,
            authority: &self.authority,
            timeout_ns: timeout
                .map(|timeout| u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX)),
            metadata: both.as_ref().or(given).or(of_credentials),
            gzip: options.compress,
            accepts_gzip: true,
        });
        let call = opened.map_err(|error| {
            self.end_span(Code::Unavailable);
            self.with_reason(error)
        })?;
        self.core.set_compress(call, options.compress);
        Ok(call)
    }

    /// A call that cannot begin since the connection has ended: the socket may know more than the
    /// protocol.
    fn with_reason(&self, error: CallError) -> CallError {
        match (error, &self.broken) {
            (CallError::NotBegun(NotBegun::Closing { .. }), Some(reason)) => {
                let reason = reason.clone();
                CallError::NotBegun(NotBegun::Closing { reason })
            }
            (error, _) => error,
        }
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).expect("584 years have not passed")
    }

    /// Between two calls nobody looks at the connection: takes what has come meanwhile, before a
    /// deadline of the protocol is taken for missed, or a call is begun on a connection that is
    /// closing.
    fn catch_up(&mut self) {
        while self.core.poll(self.now_ns()).is_some() {}
        self.receive(Duration::ZERO);
        while self.core.poll(self.now_ns()).is_some() {}
    }

    /// What happens next to `call` before the deadline, at which the call is given up.
    fn next(
        &mut self,
        call: StreamKey,
        deadline: Option<Instant>,
    ) -> Result<CallEventKind, CallError> {
        self.next_until(call, deadline).ok_or_else(|| {
            self.end_span(Code::DeadlineExceeded);
            self.cancel(call);
            CallError::DeadlineExceeded
        })
    }

    /// What happens next to `call`, `None` if nothing does until then; what has come by now is seen
    /// in any case. What happens to other calls, which were given up, is passed over.
    pub(crate) fn next_until(
        &mut self,
        call: StreamKey,
        until: Option<Instant>,
    ) -> Option<CallEventKind> {
        let (mut has_looked, mut has_flushed) = (false, false);
        loop {
            while let Some(event) = self.core.poll(self.now_ns()) {
                if event.call == call {
                    self.note(&event.kind);
                    if self.core.close_reason().is_some() {
                        // The server is to learn why, and nobody may look at this connection again.
                        self.send();
                    }
                    return Some(event.kind);
                }
            }
            if let Some(reason) = self.core.close_reason() {
                let reason = describe(reason);
                self.send();
                self.end_span(Code::Unavailable);
                return Some(CallEventKind::Lost { reason });
            }
            // What goes out now may make the call writable, which is to be told before anything is
            // waited for.
            if !std::mem::replace(&mut has_flushed, true) {
                self.flush();
                continue;
            }
            if has_looked && until.is_some_and(|until| Instant::now() >= until) {
                return None;
            }
            self.await_some(until);
            (has_looked, has_flushed) = (true, false);
        }
    }

    fn note(&mut self, kind: &CallEventKind) {
        self.note_span(kind);
        match kind {
            CallEventKind::Head { .. } => {
                self.info.initial_metadata = self.core.initial_metadata();
                self.has_head = true;
            }
            CallEventKind::Message => {
                self.info.message_was_compressed = self.core.message_was_compressed()
            }
            CallEventKind::Ended(status) => {
                if let Some(metadata) = status.metadata() {
                    self.info.trailing_metadata = metadata.clone();
                }
            }
            CallEventKind::Writable
            | CallEventKind::NotBegun
            | CallEventKind::Lost { .. }
            | CallEventKind::AnswerTooLarge
            | CallEventKind::BadAnswer { .. } => {}
        }
    }

    /// Gives a call up.
    pub(crate) fn cancel(&mut self, call: StreamKey) {
        self.end_span(Code::Cancelled);
        self.core.cancel(call);
        self.send();
    }

    /// Sends what waits, as far as the server takes it.
    fn flush(&mut self) {
        self.core.transmit(self.now_ns());
        self.send();
    }

    /// Waits for something from the server, or for what is due by time.
    fn await_some(&mut self, deadline: Option<Instant>) {
        let wait = if self.core.output().is_empty() && !self.line.has_unsent() {
            self.longest_wait(deadline)
        } else {
            limits::WRITE_TIMEOUT
        };
        // What came in time may be what a deadline of the protocol waits for: it is looked at
        // first.
        if !self.receive(wait) {
            self.core.deadline_passed(self.now_ns());
        }
    }

    fn longest_wait(&self, deadline: Option<Instant>) -> Duration {
        let for_caller =
            deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let for_protocol = self
            .core
            .next_deadline_ns()
            .map(|at_ns| Duration::from_nanos(at_ns.saturating_sub(self.now_ns())));
        [for_caller, for_protocol]
            .into_iter()
            .flatten()
            .fold(limits::LONGEST_WAIT, Duration::min)
    }

    /// Sends what the socket takes. A socket that takes nothing for a while is no error: the server
    /// may want its own answers read first.
    pub(crate) fn send(&mut self) {
        while !self.core.output().is_empty() || self.line.has_unsent() {
            match self.line.send(self.core.output(), limits::WRITE_TIMEOUT) {
                Ok(0) => return,
                Ok(count) => drop(self.core.output().drain(..count)),
                Err(error) => {
                    // The server may have said why before it closed: what it sent is still to be
                    // read.
                    self.broken.get_or_insert(error.to_string());
                    self.core.output().clear();
                    return;
                }
            }
            self.core.transmit(self.now_ns());
        }
    }

    /// Takes what comes within `wait`, and returns whether anything came.
    fn receive(&mut self, wait: Duration) -> bool {
        let (core, has_received) = (&mut self.core, &mut self.has_received);
        let mut foreign = None;
        let received = self.line.receive(&mut self.buffer, wait, &mut |bytes| {
            if !std::mem::replace(has_received, true) {
                foreign = foreign_greeting(bytes);
            }
            if foreign.is_none() {
                core.received(bytes);
            }
        });
        match received {
            Ok(SocketWait::Nothing) => return false,
            Ok(SocketWait::Bytes(_)) => {
                if let Some(reason) = foreign {
                    self.end(reason.into());
                }
            }
            Ok(SocketWait::End) => self.end(SERVER_CLOSED.into()),
            Err(error) => self.end(error.to_string()),
        }
        true
    }

    fn end(&mut self, reason: String) {
        self.core.disconnected();
        let reason = self.core.server_reason().unwrap_or(reason);
        self.broken.get_or_insert(reason);
    }

    /// The error that the end of a call with this deadline stands for.
    pub(crate) fn error_of(&self, end: CallEventKind, deadline: Option<Instant>) -> CallError {
        match end {
            // A server that keeps the deadline may reset the call at it, before anybody here has
            // looked at the clock.
            CallEventKind::Ended(status)
                if status.code() == Code::Cancelled
                    && deadline.is_some_and(|deadline| Instant::now() >= deadline) =>
            {
                CallError::DeadlineExceeded
            }
            CallEventKind::Ended(status) => CallError::Status(status),
            CallEventKind::NotBegun => CallError::NotBegun(NotBegun::Refused),
            CallEventKind::Lost { reason } => CallError::ConnectionLost {
                reason: self.broken.clone().unwrap_or(reason),
            },
            CallEventKind::AnswerTooLarge => CallError::AnswerTooLarge,
            CallEventKind::BadAnswer { reason } => bad_answer(reason),
            CallEventKind::Head { .. } | CallEventKind::Message | CallEventKind::Writable => {
                unreachable!("only what ends a call is asked about")
            }
        }
    }
}

/// The reason of a lost connection if a plain client came to a port with TLS.
pub const SERVER_SPEAKS_TLS: &str = "the server speaks TLS";

/// The reason of a lost connection if the server closed it.
pub(crate) const SERVER_CLOSED: &str = "the server closed it";

/// The reason of a lost connection if the server speaks HTTP/1.1.
pub(crate) const SERVER_SPEAKS_HTTP1: &str =
    "the server speaks HTTP/1.1 and not HTTP/2; is the port right?";

/// What the first bytes of a server say if it does not speak HTTP/2 without TLS.
pub(crate) fn foreign_greeting(bytes: &[u8]) -> Option<&'static str> {
    if bytes.starts_with(b"HTTP/1") {
        return Some(SERVER_SPEAKS_HTTP1);
    }
    // The record of an alert or a handshake: RFC 8446 section 5.1.
    if let [0x15 | 0x16, 0x03, ..] = bytes {
        return Some(SERVER_SPEAKS_TLS);
    }
    // Redis Serialization Protocol: the preface of HTTP/2 is no command.
    if bytes.starts_with(b"-ERR") || bytes.starts_with(b"-NOAUTH") || bytes.starts_with(b"-DENIED")
    {
        return Some("the server speaks the protocol of Redis and not HTTP/2; is the port right?");
    }
    if is_text(bytes) {
        return Some("the server does not speak HTTP/2: it sent text; is the port right?");
    }
    // Binary protocols, such as that of MySQL: no server begins with a frame that no client has
    // allowed yet.
    if let [high, middle, low, ..] = *bytes
        && u32::from_be_bytes([0, high, middle, low]) > FIRST_FRAME_BYTES
    {
        return Some("the server does not speak HTTP/2; is the port right?");
    }
    None
}

/// Whether the first bytes of a server are text, as of SSH, SMTP or a database. HTTP/2 begins with
/// a SETTINGS frame, whose first byte is 0: that of its length (RFC 9113 section 3.4).
fn is_text(bytes: &[u8]) -> bool {
    let is_plain = |byte: &u8| matches!(byte, b' '..=b'~' | b'\t' | b'\r' | b'\n');
    bytes.len() >= GREETING_TEXT_BYTES && bytes[..GREETING_TEXT_BYTES].iter().all(is_plain)
}

/// The longest frame before any SETTINGS: RFC 9113 section 6.5.2, SETTINGS_MAX_FRAME_SIZE.
const FIRST_FRAME_BYTES: u32 = 16_384;

/// Bytes that have to be text before a server is taken for one that sends text: as many as a
/// frame's header has.
const GREETING_TEXT_BYTES: usize = 9;

/// For whom the server is to answer (`:authority`).
pub(crate) fn authority(address: &Address) -> String {
    match address {
        Address::Tcp { .. } => address.to_string(),
        Address::Unix(_) => "localhost".into(),
    }
}
