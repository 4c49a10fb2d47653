//! A peer made of frames, for scripts.

pub use testkit::Random;
pub use testkit::frames::*;
use wire::hpack::{Decoder, FieldLimits, Fields};
use wire::http2::frame::{PREFACE, flag, kind};
use wire::{CloseReason, Config, Connection, ErrorCode, Event, StreamKey};

pub const MS: u64 = 1_000_000;

/// How many rounds a random test makes: `PELTON_FUZZ_ROUNDS`, or what is quick.
pub fn rounds(quick: u64) -> u64 {
    std::env::var("PELTON_FUZZ_ROUNDS")
        .ok()
        .and_then(|rounds| rounds.parse().ok())
        .unwrap_or(quick)
}

/// An event, with its message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub event: Event,
    pub message: Vec<u8>,
}

/// A connection under test, and what the script knows of it.
pub struct Endpoint {
    pub connection: Connection,
    pub input: Vec<u8>,
    pub output: Vec<u8>,
    pub now_ns: u64,
    decoder: Decoder,
}

impl Endpoint {
    /// A connection that has sent its first bytes, which are thrown away.
    pub fn new(config: &Config) -> Endpoint {
        let mut connection = Connection::new(config, 0);
        let mut output = Vec::new();
        connection.start(&mut output);
        Endpoint {
            connection,
            input: Vec::new(),
            output,
            now_ns: 0,
            decoder: Decoder::new(4096),
        }
    }

    /// A server whose client has sent its preface, these SETTINGS, and the acknowledgement of ours.
    pub fn server_with(config: &Config, entries: &[(u16, u32)]) -> Endpoint {
        let mut server = Endpoint::new(config);
        let ack = frame(kind::SETTINGS, flag::ACK, 0, &[]);
        let seen = server.feed(&[&PREFACE[..], &settings(entries), &ack].concat());
        assert_eq!(seen, []);
        server.output.clear();
        server
    }

    pub fn server() -> Endpoint {
        Endpoint::server_with(&Config::server(), &[])
    }

    /// A client whose server has sent these SETTINGS, and the acknowledgement of ours.
    pub fn client_with(config: &Config, entries: &[(u16, u32)]) -> Endpoint {
        let mut client = Endpoint::new(config);
        let ack = frame(kind::SETTINGS, flag::ACK, 0, &[]);
        assert_eq!(client.feed(&[settings(entries), ack].concat()), []);
        client.output.clear();
        client
    }

    /// Feeds bytes and collects the events.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<Seen> {
        self.feed_with(bytes, |_, _, _| {})
    }

    /// Feeds bytes; `act` sees each event before the next is asked for.
    pub fn feed_with(
        &mut self,
        bytes: &[u8],
        mut act: impl FnMut(&mut Connection, &Seen, &mut Vec<u8>),
    ) -> Vec<Seen> {
        self.input.extend_from_slice(bytes);
        let (mut consumed, mut all) = (0, Vec::new());
        while let Some(event) =
            self.connection
                .poll_event(&self.input, &mut consumed, &mut self.output, self.now_ns)
        {
            let message = match event {
                Event::Message { .. } | Event::Part { .. } | Event::Body { .. } => {
                    self.connection.message(&self.input).to_vec()
                }
                _ => Vec::new(),
            };
            let seen = Seen { event, message };
            act(&mut self.connection, &seen, &mut self.output);
            all.push(seen);
        }
        self.input.drain(..consumed);
        all
    }

    /// What came out since the last time.
    pub fn frames(&mut self) -> Vec<Frame> {
        frames_of(&std::mem::take(&mut self.output))
    }

    /// The frames of one kind among what came out.
    pub fn frames_of_kind(&mut self, kind: u8) -> Vec<Frame> {
        self.frames()
            .into_iter()
            .filter(|frame| frame.kind == kind)
            .collect()
    }

    /// Decodes the header block of a frame. All blocks have to be decoded in their order.
    pub fn decode(&mut self, frame: &Frame) -> Vec<(String, String)> {
        let mut fields = Fields::new();
        self.decoder
            .decode(&frame.payload, &FieldLimits::default(), &mut fields)
            .expect("a valid block");
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
        fields
            .iter()
            .map(|(name, value)| (text(name), text(value)))
            .collect()
    }

    pub fn advance_ms(&mut self, ms: u64) {
        self.now_ns += ms * MS;
    }

    /// Lets the connection's deadlines pass that are due.
    pub fn tick(&mut self) {
        if self
            .connection
            .next_deadline_ns()
            .is_some_and(|deadline_ns| deadline_ns <= self.now_ns)
        {
            self.connection
                .deadline_passed(&mut self.output, self.now_ns);
        }
    }

    /// What the connection was closed with, if it was.
    pub fn error(&self) -> Option<ErrorCode> {
        match self.connection.close_reason() {
            Some(CloseReason::Error { code, .. }) => Some(*code),
            _ => None,
        }
    }

    /// Asserts that the connection ended with this error and said so.
    #[track_caller]
    pub fn assert_closed(&mut self, code: ErrorCode) {
        assert_eq!(
            self.error(),
            Some(code),
            "{:?}",
            self.connection.close_reason()
        );
        let frames = self.frames();
        let last = frames.last().expect("a GOAWAY");
        assert_eq!((last.kind, last.code()), (kind::GOAWAY, code));
        assert_eq!(self.connection.next_deadline_ns(), None);
    }

    /// Asserts that the stream was reset with this error, and that the connection lives.
    #[track_caller]
    pub fn assert_reset(&mut self, stream: u32, code: ErrorCode) {
        assert_eq!(self.connection.close_reason(), None);
        let frames = self.frames_of_kind(kind::RST_STREAM);
        let resets: Vec<_> = frames
            .iter()
            .map(|frame| (frame.stream, frame.code()))
            .collect();
        assert_eq!(resets, [(stream, code)]);
    }
}

/// The stream of an event.
pub fn stream_of(event: Event) -> StreamKey {
    match event {
        Event::Request { stream, .. }
        | Event::Response { stream, .. }
        | Event::Message { stream, .. }
        | Event::Part { stream, .. }
        | Event::Body { stream, .. }
        | Event::HalfClosed { stream }
        | Event::Finished { stream }
        | Event::Cancelled { stream, .. }
        | Event::Writable { stream } => stream,
        Event::Refused => panic!("HTTP/2 has no frames that are refused without a stream"),
    }
}

/// The streams of the requests among the events.
pub fn requests(seen: &[Seen]) -> Vec<StreamKey> {
    seen.iter()
        .filter(|seen| matches!(seen.event, Event::Request { .. }))
        .map(|seen| stream_of(seen.event))
        .collect()
}

/// The messages among the events.
pub fn messages(seen: &[Seen]) -> Vec<Vec<u8>> {
    seen.iter()
        .filter(|seen| matches!(seen.event, Event::Message { .. }))
        .map(|seen| seen.message.clone())
        .collect()
}
