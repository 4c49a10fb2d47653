//! A client and a server talk over bytes that are split at random, and every call ends exactly once
//! as it should.

use crate::sent_frames::SentFrames;
use crate::support::*;
use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use wire::grpc::{Code, Status};
use wire::http2::frame::kind;
use wire::{
    CancelCause, CloseReason, Config, Connection, ErrorCode, Event, RequestHead, StreamKey,
    StreamOpenError,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The answer is all messages of the request in one.
    Unary,
    /// Each message comes back.
    Echo,
    /// The server ends the call with a status at the first message.
    Fail,
    /// The server resets the stream at the first message.
    Reset,
    /// The client gives up at some time.
    GivenUp,
}

const KINDS: [(Kind, &str); 5] = [
    (Kind::Unary, "/unary"),
    (Kind::Echo, "/echo"),
    (Kind::Fail, "/fail"),
    (Kind::Reset, "/reset"),
    (Kind::GivenUp, "/given-up"),
];

/// What the client knows of a call.
struct Asked {
    kind: Kind,
    to_send: VecDeque<Vec<u8>>,
    all: Vec<Vec<u8>>,
    closed: bool,
    received: Vec<Vec<u8>>,
}

/// What the server knows of a call.
struct Served {
    kind: Kind,
    got: Vec<Vec<u8>>,
    to_send: VecDeque<Vec<u8>>,
    ended: bool,
}

struct World {
    random: Random,
    client: Endpoint,
    server: Endpoint,
    asked: HashMap<StreamKey, Asked>,
    served: HashMap<StreamKey, Served>,
    to_open: usize,
    finished: usize,
    client_sent: SentFrames,
    server_sent: SentFrames,
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = Random::new(seed);
        let config = |random: &mut Random, config: Config| Config {
            max_streams: [1, 3, 100][random.below(3)],
            stream_window: [None, Some(100), Some(70_000)][random.below(3)],
            connection_window: [None, Some(65_535)][random.below(2)],
            output_bound_bytes: [200, 5_000, 256 << 10][random.below(3)],
            stream_unsent_bytes: [100, 256 << 10][random.below(2)],
            short_ways: random.chance(80),
            // Small pieces and small windows cost control frames; what they cost is tested
            // elsewhere.
            ..config
        };
        let client = Endpoint::new(&config(&mut random, Config::client()));
        let server = Endpoint::new(&config(&mut random, Config::server()));
        let (client_sent, server_sent) = (SentFrames::of_client(), SentFrames::of_server());
        let to_open = 1 + random.below(60);
        World {
            random,
            client,
            server,
            asked: HashMap::new(),
            served: HashMap::new(),
            to_open,
            finished: 0,
            client_sent,
            server_sent,
        }
    }

    fn is_over(&self) -> bool {
        self.to_open == 0 && self.asked.is_empty() && self.served.is_empty()
    }

    fn step(&mut self) {
        // Time goes on so that budgets refill; keepalives come and are answered.
        for side in [&mut self.client, &mut self.server] {
            side.advance_ms(30);
            side.tick();
        }
        match self.random.below(5) {
            0 => self.open(),
            1 => self.client_sends(),
            2 => self.server_sends(),
            3 => self.server_receives(),
            _ => self.client_receives(),
        }
        for side in [&mut self.client, &mut self.server] {
            let now_ns = side.now_ns;
            side.connection.transmit(&mut side.output, now_ns);
        }
    }

    fn open(&mut self) {
        if self.to_open == 0 {
            return;
        }
        let (kind, path) = KINDS[self.random.below(KINDS.len())];
        let head = RequestHead {
            gzip: self.random.chance(30),
            ..RequestHead::call("here", path)
        };
        match self.client.connection.open(&mut self.client.output, &head) {
            Ok(stream) => {
                let all: Vec<_> = (0..1 + self.random.below(5))
                    .map(|_| random_message(&mut self.random))
                    .collect();
                let asked = Asked {
                    kind,
                    to_send: all.clone().into(),
                    all,
                    closed: false,
                    received: Vec::new(),
                };
                self.asked.insert(stream, asked);
                self.to_open -= 1;
            }
            Err(error) => assert_eq!(error, StreamOpenError::TooManyStreams, "{:?}", self.random),
        }
    }

    fn client_sends(&mut self) {
        let Some(stream) = any(&mut self.random, &self.asked) else {
            return;
        };
        let asked = self.asked.get_mut(&stream).expect("chosen from it");
        let (connection, out) = (&mut self.client.connection, &mut self.client.output);
        if asked.kind == Kind::GivenUp && self.random.chance(30) {
            connection.reset(stream, out, ErrorCode::Cancel);
            self.asked.remove(&stream);
            self.finished += 1;
            return;
        }
        if !connection.can_send(stream) || asked.closed {
            return;
        }
        connection.set_compress(stream, self.random.chance(50));
        if asked.to_send.len() == 1 && self.random.chance(50) {
            let bytes = asked.to_send.pop_front().expect("one");
            connection.send_last_message(stream, out, |out| out.extend_from_slice(&bytes));
            asked.closed = true;
        } else if let Some(bytes) = asked.to_send.pop_front() {
            send(connection, stream, out, &bytes, self.random.chance(50));
        } else {
            connection.close_send(stream, out);
            asked.closed = true;
        }
    }

    fn server_sends(&mut self) {
        let Some(stream) = any(&mut self.random, &self.served) else {
            return;
        };
        let served = self.served.get_mut(&stream).expect("chosen from it");
        let (connection, out) = (&mut self.server.connection, &mut self.server.output);
        if self.random.chance(20) {
            let hold = self.random.chance(50);
            connection.hold(stream, hold);
        }
        let is_over = match served.kind {
            Kind::Fail if !served.got.is_empty() => {
                connection.finish(stream, out, &Status::new(Code::Aborted, "as asked"));
                true
            }
            Kind::Reset if !served.got.is_empty() => {
                connection.reset(stream, out, ErrorCode::InternalError);
                true
            }
            Kind::Unary if served.ended => {
                let answer = served.got.concat();
                connection.respond(stream, out, |out| out.extend_from_slice(&answer));
                true
            }
            Kind::Echo | Kind::GivenUp if connection.can_send(stream) => {
                match served.to_send.pop_front() {
                    Some(bytes) => {
                        send(connection, stream, out, &bytes, self.random.chance(50));
                        false
                    }
                    None if served.ended => {
                        connection.finish(stream, out, &Status::OK);
                        true
                    }
                    None => false,
                }
            }
            _ => false,
        };
        if is_over {
            self.served.remove(&stream);
        }
    }

    fn server_receives(&mut self) {
        let bytes = take_some(&mut self.random, &mut self.client.output);
        self.client_sent.check(&bytes);
        let served = &mut self.served;
        let seen = self.server.feed_with(&bytes, |connection, seen, _| {
            if let Event::Request { stream, .. } = seen.event {
                let kind = KINDS
                    .iter()
                    .find(|kind| kind.1.as_bytes() == connection.head().path())
                    .expect("a known path")
                    .0;
                connection.set_token(stream, stream.id);
                served.insert(
                    stream,
                    Served {
                        kind,
                        got: Vec::new(),
                        to_send: VecDeque::new(),
                        ended: false,
                    },
                );
            }
        });
        for seen in seen {
            let stream = stream_of(seen.event);
            match seen.event {
                Event::Request { end, .. } => assert!(!end),
                Event::Message { last, .. } => {
                    if let Some(served) = self.served.get_mut(&stream) {
                        assert!(!served.ended);
                        served.got.push(seen.message.clone());
                        served.to_send.push_back(seen.message);
                        served.ended = last;
                        assert_eq!(self.server.connection.token(stream), stream.id);
                    }
                    self.server
                        .connection
                        .release(stream, &mut self.server.output);
                }
                Event::HalfClosed { .. } => {
                    if let Some(served) = self.served.get_mut(&stream) {
                        assert!(!std::mem::replace(&mut served.ended, true));
                    }
                }
                Event::Cancelled { cause, .. } => {
                    assert_eq!(
                        cause,
                        CancelCause::Reset(ErrorCode::Cancel),
                        "{:?}",
                        self.random
                    );
                    assert!(
                        self.served.remove(&stream).is_some(),
                        "cancelled once: {:?}",
                        self.random
                    );
                    self.server.connection.forget(stream);
                }
                Event::Writable { .. } => {}
                other => panic!("{other:?} in a server: {:?}", self.random),
            }
        }
    }

    fn client_receives(&mut self) {
        let bytes = take_some(&mut self.random, &mut self.server.output);
        self.server_sent.check(&bytes);
        let random = self.random.clone();
        let mut statuses = Vec::new();
        let seen = self.client.feed_with(&bytes, |connection, seen, _| {
            if let Event::Finished { .. } = seen.event {
                statuses.push(connection.status().clone());
            }
        });
        let mut statuses = statuses.into_iter();
        for seen in seen {
            let stream = stream_of(seen.event);
            match seen.event {
                Event::Message { last, .. } => {
                    assert!(!last);
                    if let Some(asked) = self.asked.get_mut(&stream) {
                        asked.received.push(seen.message);
                    }
                    self.client
                        .connection
                        .release(stream, &mut self.client.output);
                }
                Event::Finished { .. } => {
                    let asked = self
                        .asked
                        .remove(&stream)
                        .unwrap_or_else(|| panic!("ended twice: {random:?}"));
                    self.finished += 1;
                    check(&asked, &statuses.next().expect("one for each"), &random);
                    self.client.connection.forget(stream);
                }
                Event::Cancelled { cause, .. } => {
                    let asked = self
                        .asked
                        .remove(&stream)
                        .unwrap_or_else(|| panic!("ended twice: {random:?}"));
                    self.finished += 1;
                    // More than the server allows, before its SETTINGS had arrived, is refused.
                    let is_expected = cause == CancelCause::Refused
                        || (asked.kind == Kind::Reset
                            && cause == CancelCause::Reset(ErrorCode::InternalError));
                    assert!(
                        is_expected,
                        "{:?} ended by {cause:?}: {random:?}",
                        asked.kind
                    );
                    self.client.connection.forget(stream);
                }
                Event::Response { .. } | Event::Writable { .. } => {}
                other => panic!("{other:?} in a client: {random:?}"),
            }
        }
    }
}

fn check(asked: &Asked, status: &Status, random: &Random) {
    match asked.kind {
        Kind::Fail => assert_eq!(
            (status.code(), status.message()),
            (Code::Aborted, "as asked"),
            "{random:?}"
        ),
        Kind::Unary => {
            assert!(status.is_ok(), "{status} {random:?}");
            assert_eq!(asked.received, [asked.all.concat()], "{random:?}");
        }
        Kind::Echo | Kind::GivenUp => {
            assert!(status.is_ok(), "{status} {random:?}");
            assert_eq!(asked.received, asked.all, "{random:?}");
        }
        Kind::Reset => panic!("a status from a call that is reset: {random:?}"),
    }
}

fn send(
    connection: &mut Connection,
    stream: StreamKey,
    out: &mut Vec<u8>,
    bytes: &[u8],
    shared: bool,
) {
    if shared {
        let (head, body) = bytes.split_at(bytes.len() / 2);
        connection.send_shared(
            stream,
            out,
            |out| out.extend_from_slice(head),
            Bytes::copy_from_slice(body),
        );
    } else {
        connection.send_message(stream, out, |out| out.extend_from_slice(bytes));
    }
}

fn random_message(random: &mut Random) -> Vec<u8> {
    let longest = [1, 20, 1_000, 100_000][random.below(4)];
    let byte = random.number() as u8;
    vec![byte; random.below(longest)]
}

/// Any of the keys, in an order that depends on the seed only.
fn any<V>(random: &mut Random, map: &HashMap<StreamKey, V>) -> Option<StreamKey> {
    let mut keys: Vec<_> = map.keys().copied().collect();
    keys.sort_by_key(|key| key.id);
    if keys.is_empty() {
        None
    } else {
        Some(keys[random.below(keys.len())])
    }
}

/// The first bytes of an output: a few, or all.
fn take_some(random: &mut Random, output: &mut Vec<u8>) -> Vec<u8> {
    let most = [3, 100, 20_000, usize::MAX][random.below(4)].min(output.len());
    let count = if most == output.len() {
        most
    } else {
        random.below(most + 1)
    };
    output.drain(..count).collect()
}

#[test]
fn every_call_ends_exactly_once() {
    for seed in 0..rounds(150) {
        let mut world = World::new(seed);
        let calls = world.to_open;
        for step in 0.. {
            if world.is_over() {
                break;
            }
            world.step();
            let stuck = (&world.client.connection, &world.server.connection);
            assert!(
                step < 2_000_000,
                "nothing moves any more: {:?} {stuck:?}",
                world.random
            );
            assert_eq!(
                (world.client.error(), world.server.error()),
                (None, None),
                "{:?} {stuck:?}",
                world.random
            );
        }
        assert_eq!(world.finished, calls, "{:?}", world.random);
        finish(&mut world);
        world
            .client_sent
            .assert_sent(&[kind::SETTINGS, kind::HEADERS]);
        world
            .server_sent
            .assert_sent(&[kind::SETTINGS, kind::GOAWAY]);
    }
}

/// Nothing is left over, and both sides come to an end together.
fn finish(world: &mut World) {
    let now_ns = world.server.now_ns;
    world
        .server
        .connection
        .drain(&mut world.server.output, now_ns);
    while !(world.client.output.is_empty() && world.server.output.is_empty()) {
        world.server_receives();
        world.client_receives();
    }
    // A client without calls goes at the first GOAWAY; its server does not wait for it.
    world.server.advance_ms(1_000);
    world.server.tick();
    for side in [&world.client, &world.server] {
        assert_eq!(side.connection.running(), 0, "{:?}", world.random);
        assert_eq!(side.connection.buffered_bytes(), 0, "{:?}", world.random);
        assert_eq!(
            side.connection.close_reason(),
            Some(&CloseReason::Drained),
            "{:?}",
            world.random
        );
    }
}
