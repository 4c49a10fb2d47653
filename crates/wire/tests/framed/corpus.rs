//! The fuzz target `framed`: bytes of a client, for a server of baidu_std or SRPC.

use testkit::Random;
use wire::framed::{FramedProtocol, FramedServerConnection};
use wire::grpc::{Code, Status};
use wire::{Config, Event, Pause, StreamKey};

/// Bytes of any kind, for a server whose layer above does anything at any time. The first eight
/// bytes seed what the peer does not decide.
pub fn fuzz_framed(data: &[u8]) {
    if let Some((seed, bytes)) = data.split_first_chunk() {
        let seed = u64::from_le_bytes(*seed);
        for protocol in [FramedProtocol::BaiduStd, FramedProtocol::Srpc] {
            // The first bytes decide what a connection carries.
            let whole = [&protocol.magic()[..], bytes].concat();
            Conversation::new(protocol, seed).run(&whole);
            Conversation::new(protocol, seed).run(bytes);
        }
    }
}

/// The largest message.
const MESSAGE_BYTES: usize = 30_000;

/// What may wait for the peer.
const UNSENT_BYTES: usize = 20_000;

/// What a connection holds at most, beside what was sent to it and waits in the input: a message
/// that comes or is decompressed, with its attachment and what it was before, one that was put
/// back, responses, and one beyond the bound of each.
const HELD_BYTES: usize = 8 * MESSAGE_BYTES + 2 * UNSENT_BYTES + (64 << 10);

/// What the input holds at most before the driver reads no further.
const INPUT_BYTES: usize = 64 << 10;

fn config() -> Config {
    Config {
        max_message_bytes: MESSAGE_BYTES,
        max_unsent_bytes: UNSENT_BYTES,
        output_bound_bytes: 4_000,
        max_streams: 20,
        ..Config::server()
    }
}

/// A connection, and a layer above that answers at any time.
pub struct Conversation {
    connection: FramedServerConnection,
    random: Random,
    input: Vec<u8>,
    out: Vec<u8>,
    now_ns: u64,
    open: Vec<StreamKey>,
    waiting: Vec<StreamKey>,
    turns: u64,
    /// The turn in which it begins to drain, and whether the time for that is over.
    drains_in: u64,
    has_drained: bool,
}

impl Conversation {
    pub fn new(protocol: FramedProtocol, seed: u64) -> Conversation {
        Conversation {
            connection: FramedServerConnection::new(protocol, &config(), 0),
            random: Random::new(seed),
            input: Vec::new(),
            out: Vec::new(),
            now_ns: 0,
            open: Vec::new(),
            waiting: Vec::new(),
            turns: 0,
            // Of its own, so that inputs that were kept mean what they meant.
            drains_in: Random::new(!seed).below(64),
            has_drained: false,
        }
    }

    /// Sends bytes in pieces of any size, and then ends the connection in any way. Nothing is left
    /// of it.
    pub fn run(mut self, bytes: &[u8]) {
        let mut at = 0;
        let mut idle = 0;
        while at < bytes.len() && idle < 100 && self.connection.close_reason().is_none() {
            let room = INPUT_BYTES - self.input.len();
            let most = self.random.pick(&[1, 20, 500, 70_000]);
            let piece = (1 + self.random.below(most))
                .min(room)
                .min(bytes.len() - at);
            self.input.extend_from_slice(&bytes[at..at + piece]);
            at += piece;
            idle = if piece == 0 { idle + 1 } else { 0 };
            self.turn();
        }
        for _ in 0..3 {
            self.turn();
        }
        if self.random.once_in(2) {
            self.connection.drain(self.now_ns);
            self.now_ns += 1_000_000_000;
            self.connection.deadline_passed(self.now_ns);
        }
        self.connection.set_pause(Pause::No);
        while let Some(stream) = self.open.pop() {
            self.end(stream);
            self.take_output();
        }
        self.take_output();
        let connection = &self.connection;
        if connection.close_reason().is_none() {
            assert_eq!((connection.running(), connection.unsent_bytes()), (0, 0));
        }
        self.connection.peer_closed();
        self.poll();
        assert!(self.open.is_empty() && self.connection.close_reason().is_some());
        let connection = &self.connection;
        let held = [
            connection.running(),
            connection.unsent_bytes(),
            connection.held_bytes(),
            connection.buffered_bytes(),
            connection.expected_bytes(),
            self.input.len(),
        ];
        assert_eq!(held, [0; 6]);
        assert_eq!(connection.next_deadline_ns(), None);
    }

    /// What a visit of the layer above does.
    fn turn(&mut self) {
        self.now_ns += self.random.below(100_000_000_u64);
        let pause = match self.random.below(10_u64) {
            0 => Pause::All,
            1 => Pause::Large,
            _ => Pause::No,
        };
        self.connection.set_pause(pause);
        self.connection.set_windows_shut(pause != Pause::No);
        let allowance = self.random.pick(&[0, 10_000, usize::MAX]);
        self.connection.set_turn_allowance(allowance);
        let allowance = self.random.pick(&[0, 1, 1_000, usize::MAX]);
        self.connection.set_unpack_allowance(allowance);
        self.poll();
        if self.connection.waits_for_turn() && self.random.once_in(3) {
            self.connection.force_turn();
            assert!(self.connection.has_turn());
        }
        if self.random.once_in(3) {
            self.take_output();
        }
        if !self.open.is_empty() && self.random.once_in(2) {
            let at = self.random.below(self.open.len());
            let stream = self.open.swap_remove(at);
            self.end(stream);
        }
        if let Some(due_ns) = self.connection.next_deadline_ns()
            && due_ns <= self.now_ns
        {
            self.connection.deadline_passed(self.now_ns);
        }
        self.cut_off_some();
        self.drain_in_its_turn();
        let held = self.connection.memory_bytes();
        assert!(held < HELD_BYTES, "{held}");
        assert!(self.connection.held_bytes() <= held);
    }

    /// Nothing keeps a connection open whose drain is over.
    fn drain_in_its_turn(&mut self) {
        let connection = &mut self.connection;
        if self.turns == self.drains_in {
            connection.drain(self.now_ns);
            self.now_ns += wire::limits::FRAMED_DRAIN_MS * 1_000_000;
            connection.deadline_passed(self.now_ns);
            self.has_drained = true;
        }
        self.turns += 1;
        let is_over = connection.running() == 0 && !connection.wants_transmit();
        if self.has_drained && is_over {
            assert!(connection.close_reason().is_some());
        }
    }

    fn poll(&mut self) {
        let mut consumed = 0;
        loop {
            let Conversation { input, out, .. } = self;
            let next = self
                .connection
                .poll_event(input, &mut consumed, out, self.now_ns);
            let Some(event) = next else {
                break;
            };
            self.event(event);
        }
        assert!(consumed <= self.input.len());
        self.input.drain(..consumed);
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Request { stream, .. } => {
                assert!(self.connection.head().is_grpc());
                self.open.push(stream);
                self.connection.set_token(stream, stream.id);
                if self.random.once_in(2) {
                    self.connection.echo_attachment(stream);
                }
                if self.random.once_in(8) {
                    self.open.retain(|open| *open != stream);
                    self.end(stream);
                }
            }
            Event::Message { stream, last } => {
                assert!(last && self.open.contains(&stream));
                assert_eq!(self.connection.token(stream), stream.id);
                let message = self.connection.take_message();
                assert!(message.bytes(&self.input).len() <= MESSAGE_BYTES);
                if self.random.once_in(6) {
                    return self.connection.put_back(stream, message, &self.input);
                }
                if self.random.once_in(2) {
                    self.open.retain(|open| *open != stream);
                    let bytes = message.bytes(&self.input).to_vec();
                    let out = &mut self.out;
                    (self.connection).respond(stream, out, |out| out.extend_from_slice(&bytes));
                    self.waiting.push(stream);
                }
                self.connection.give_back(message);
            }
            Event::Cancelled { stream, .. } => {
                // One that was ended before it was told of is not there any more.
                let is_open = self.open.contains(&stream);
                assert_eq!(is_open, self.connection.token(stream) == stream.id);
                self.open.retain(|open| *open != stream);
                self.connection.forget(stream);
            }
            Event::Writable { .. } | Event::Refused => {}
            other => panic!("{other:?}"),
        }
    }

    /// Ends a call in some way.
    fn end(&mut self, stream: StreamKey) {
        let (connection, out) = (&mut self.connection, &mut self.out);
        connection.reserve_send(stream, 100);
        connection.hold_request(stream, 50);
        self.waiting.push(stream);
        match self.random.below(5_u64) {
            0 => connection.finish(stream, out, &Status::OK),
            1 => connection.finish(stream, out, &Status::new(Code::NotFound, "no")),
            2 => connection.finish_unknown(stream, out, true),
            3 => {
                connection.can_send_large(stream);
                connection.send_shared(
                    stream,
                    |out| out.extend_from_slice(b"head"),
                    bytes::Bytes::from(vec![7; 5_000]).into(),
                );
                connection.finish(stream, out, &Status::OK);
            }
            _ => connection.respond(stream, out, |out| out.extend_from_slice(&[1; 300])),
        }
    }

    /// Takes all that is sent.
    fn take_output(&mut self) {
        while self.connection.wants_transmit() {
            self.out.clear();
            let before = self.connection.queued_bytes();
            self.connection.transmit(&mut self.out, self.now_ns);
            assert!(self.connection.queued_bytes() < before);
            assert!(self.out.len() <= 4_000);
        }
        self.out.clear();
    }

    /// Somebody is revoked whose response waits.
    fn cut_off_some(&mut self) {
        let connection = &mut self.connection;
        self.waiting.retain(|stream| connection.has_unsent(*stream));
        if !self.waiting.is_empty() && self.random.once_in(20) {
            let stream = self.waiting[0];
            connection.cut_off(stream, &Status::new(Code::Unauthenticated, "ended"));
        }
    }
}

/// What an echo of everything answers to pieces of a whole, and why the connection was closed.
#[allow(dead_code, reason = "the fuzz target does without it")]
pub fn talk<'a>(
    protocol: FramedProtocol,
    pieces: impl Iterator<Item = &'a [u8]>,
) -> (Vec<u8>, Option<String>) {
    let mut config = config();
    config.output_bound_bytes = usize::MAX;
    let mut connection = FramedServerConnection::new(protocol, &config, 0);
    let (mut input, mut out) = (Vec::new(), Vec::new());
    for piece in pieces {
        input.extend_from_slice(piece);
        let mut consumed = 0;
        while let Some(event) = connection.poll_event(&input, &mut consumed, &mut out, 0) {
            match event {
                Event::Request { stream, .. } => connection.echo_attachment(stream),
                Event::Message { stream, .. } => {
                    let message = connection.take_message();
                    let bytes = message.bytes(&input);
                    connection.respond(stream, &mut out, |out| out.extend_from_slice(bytes));
                    connection.give_back(message);
                }
                Event::Cancelled { stream, .. } => connection.forget(stream),
                Event::Refused => {}
                other => panic!("{other:?}"),
            }
        }
        input.drain(..consumed);
    }
    let reason = connection.close_reason().map(ToString::to_string);
    (out, reason)
}

/// A server that echoes messages and attachments in any order, as its user says.
#[allow(dead_code, reason = "the fuzz target does without it")]
pub struct Echo {
    connection: FramedServerConnection,
    input: Vec<u8>,
    out: Vec<u8>,
    open: Vec<(StreamKey, Vec<u8>)>,
}

#[allow(dead_code, reason = "the fuzz target does without it")]
impl Echo {
    pub fn new(protocol: FramedProtocol) -> Echo {
        let config = Config {
            output_bound_bytes: usize::MAX,
            ..config()
        };
        Echo {
            connection: FramedServerConnection::new(protocol, &config, 0),
            input: Vec::new(),
            out: Vec::new(),
            open: Vec::new(),
        }
    }

    pub fn is_closed(&self) -> bool {
        self.connection.close_reason().is_some()
    }

    /// Takes what a client sent.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        let mut consumed = 0;
        let Echo { input, out, .. } = self;
        while let Some(event) = self.connection.poll_event(input, &mut consumed, out, 0) {
            match event {
                Event::Request { stream, .. } => self.connection.echo_attachment(stream),
                Event::Message { stream, .. } => {
                    let message = self.connection.take_message();
                    self.open.push((stream, message.bytes(input).to_vec()));
                    self.connection.give_back(message);
                }
                Event::Cancelled { stream, .. } => {
                    self.open.retain(|open| open.0 != stream);
                    self.connection.forget(stream);
                }
                Event::Refused => {}
                other => panic!("{other:?}"),
            }
        }
        self.input.drain(..consumed);
    }

    /// Answers some of the calls that run, or all, and returns what is sent.
    pub fn answer_some(&mut self, random: &mut Random, all: bool) -> Vec<u8> {
        while !self.open.is_empty() && (all || random.once_in(2)) {
            let at = random.below(self.open.len());
            let (stream, message) = self.open.swap_remove(at);
            let out = &mut self.out;
            (self.connection).respond(stream, out, |out| out.extend_from_slice(&message));
            // One that waited for others to end.
            self.receive(b"");
        }
        std::mem::take(&mut self.out)
    }
}
