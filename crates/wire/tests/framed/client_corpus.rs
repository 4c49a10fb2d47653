//! The fuzz target `framed_client`: bytes of a server of baidu_std or SRPC, for a client.

use testkit::Random;
use wire::framed::{
    BeginError, FramedCallEnd, FramedCallEvent, FramedCallHead, FramedClientConnection,
    FramedProtocol,
};
use wire::{Config, StreamKey};

/// Bytes of any kind, for a client that begins calls and gives them up at any time. The first eight
/// bytes seed what the peer does not decide.
pub fn fuzz_framed_client(data: &[u8]) {
    if let Some((seed, bytes)) = data.split_first_chunk() {
        let seed = u64::from_le_bytes(*seed);
        for protocol in [FramedProtocol::BaiduStd, FramedProtocol::Srpc] {
            let whole = [&protocol.magic()[..], bytes].concat();
            ClientConversation::new(protocol, seed).run(&whole);
            ClientConversation::new(protocol, seed).run(bytes);
        }
    }
}

/// The largest message.
const MESSAGE_BYTES: usize = 30_000;

/// Calls at once.
const CALLS: u32 = 20;

/// What a connection holds at most beside its input: a message that was decompressed, and its calls
/// with those that are about to be reported.
const HELD_BYTES: usize = MESSAGE_BYTES + (8 << 10);

/// A connection of a client, and what it knows of its calls.
pub struct ClientConversation {
    connection: FramedClientConnection,
    random: Random,
    input: Vec<u8>,
    /// What was sent and not taken by [`ClientConversation::take_output`].
    out: Vec<u8>,
    /// Calls that run, with their messages.
    open: Vec<(StreamKey, Vec<u8>)>,
    begun: u32,
    given_up: u32,
    /// Calls that ended, and those of them that ended with their own message.
    ended: u32,
    echoed: u32,
}

impl ClientConversation {
    pub fn new(protocol: FramedProtocol, seed: u64) -> ClientConversation {
        let config = Config {
            max_message_bytes: MESSAGE_BYTES,
            max_streams: CALLS,
            ..Config::client()
        };
        ClientConversation {
            connection: FramedClientConnection::new(protocol, &config),
            random: Random::new(seed),
            input: Vec::new(),
            out: Vec::new(),
            open: Vec::new(),
            begun: 0,
            given_up: 0,
            ended: 0,
            echoed: 0,
        }
    }

    /// Takes bytes in pieces of any size, and then the end of the connection. Nothing is left of
    /// it.
    pub fn run(mut self, bytes: &[u8]) {
        let mut at = 0;
        while at < bytes.len() && !self.is_closed() {
            let most = self.random.pick(&[1, 20, 500, 70_000]);
            let piece = (1 + self.random.below(most)).min(bytes.len() - at);
            self.begin_some();
            self.receive(&bytes[at..at + piece]);
            at += piece;
        }
        self.finish();
    }

    /// The transport ends.
    pub fn finish(&mut self) {
        self.connection.peer_closed();
        self.receive(b"");
        assert!(self.open.is_empty() && self.is_closed());
        assert_eq!(self.ended + self.given_up, self.begun);
        assert_eq!((self.connection.running(), self.input.len()), (0, 0));
        assert!(!self.connection.has_events());
    }

    #[allow(dead_code, reason = "the fuzz target does without it")]
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    #[allow(dead_code, reason = "the fuzz target does without it")]
    pub fn counts(&self) -> (u32, u32, u32) {
        (self.begun, self.given_up, self.echoed)
    }

    pub fn is_closed(&self) -> bool {
        self.connection.close_reason().is_some()
    }

    /// Begins calls, and gives some up.
    pub fn begin_some(&mut self) {
        for _ in 0..self.random.below(4_u64) {
            let bytes = self.random.pick(&[0, 5, 60, 3_000]);
            let mut message = vec![self.begun as u8; bytes];
            message.extend(self.begun.to_be_bytes());
            let attachment = match self.connection.protocol() {
                FramedProtocol::BaiduStd if self.random.once_in(4) => &message[..],
                _ => b"",
            };
            let head = FramedCallHead {
                service: "example.EchoService",
                method: "Echo",
                gzip: self.random.once_in(4),
                attachment,
                ..FramedCallHead::default()
            };
            let (before, left) = (self.out.len(), self.connection.calls_left());
            let encode = |out: &mut Vec<u8>| out.extend_from_slice(&message);
            let call = match self.connection.begin(&mut self.out, &head, encode) {
                Ok(call) => call,
                Err(BeginError::TooManyCalls) if left == 0 => break,
                Err(BeginError::Closing) if !self.connection.takes_calls() => break,
                Err(error) => panic!("{error}"),
            };
            assert!(left > 0 && self.out.len() > before);
            self.begun += 1;
            self.connection.set_token(call, self.begun);
            self.open.push((call, message));
        }
        if !self.open.is_empty() && self.random.once_in(8) {
            let at = self.random.below(self.open.len());
            let (call, _) = self.open.swap_remove(at);
            self.connection.cancel(call);
            self.given_up += 1;
        }
    }

    /// Takes what the server sent.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        let mut consumed = 0;
        while let Some(event) = self.connection.poll_event(&self.input, &mut consumed) {
            assert!(consumed <= self.input.len());
            self.event(&event);
        }
        assert!(consumed <= self.input.len());
        self.input.drain(..consumed);
        assert_eq!(self.connection.running(), self.open.len());
        let held = self.connection.memory_bytes();
        assert!(held < HELD_BYTES, "{held}");
    }

    /// A call ends: it runs, and is known by its name.
    fn event(&mut self, event: &FramedCallEvent) {
        let at = self.open.iter().position(|open| open.0 == event.call);
        let (_, message) = self.open.swap_remove(at.expect("the call runs"));
        let number = message[message.len() - 4..].try_into().expect("4 bytes");
        assert_eq!(event.token, u32::from_be_bytes(number) + 1);
        assert_eq!(self.connection.token(event.call), 0);
        self.ended += 1;
        if event.end == FramedCallEnd::Response {
            let found = self.connection.message(&self.input);
            assert!(found.len() <= MESSAGE_BYTES);
            self.echoed += u32::from(found == message);
        }
    }
}
