//! Bytes that no honest peer sends: nothing panics, nothing grows without bound, every call ends
//! exactly once.
//!
//! `PELTON_FUZZ_ROUNDS` makes more rounds.

use crate::support::*;
use std::collections::HashSet;

use bytes::Bytes;
use wire::grpc::{Code, Deflater, Status};
use wire::http2::frame::{PREFACE, flag, kind};
use wire::{Config, Connection, ErrorCode, Event, RequestHead, Role, StreamKey};

/// A room above that does anything at any time.
struct Room {
    random: Random,
    role: Role,
    /// Streams that have begun and have not had their last call.
    alive: HashSet<StreamKey>,
    /// Of those, the ones that were cancelled or have finished.
    over: HashSet<StreamKey>,
}

impl Room {
    fn event(&mut self, connection: &mut Connection, seen: &Seen, out: &mut Vec<u8>) {
        let stream = stream_of(seen.event);
        match seen.event {
            Event::Request { .. } => {
                let head = connection.head();
                assert!(!head.method().is_empty() && head.fields().count() <= 64);
                assert!(self.alive.insert(stream), "begins once: {:?}", self.random);
            }
            // A stream that had its last call in the meantime may still be reported.
            Event::Cancelled { .. } | Event::Finished { .. } if self.alive.contains(&stream) => {
                assert!(self.over.insert(stream), "ends once: {:?}", self.random);
            }
            Event::Message { .. } | Event::Body { .. } if self.random.chance(80) => {
                connection.release(stream, out)
            }
            _ => {}
        }
        if self.random.chance(60) {
            self.something(connection, out);
        }
    }

    fn something(&mut self, connection: &mut Connection, out: &mut Vec<u8>) {
        if self.role == Role::Client && self.random.chance(30) {
            let head = RequestHead {
                gzip: true,
                ..RequestHead::call("here", "/a.B/C")
            };
            if let Ok(stream) = connection.open(out, &head) {
                self.alive.insert(stream);
            }
        }
        let mut alive: Vec<_> = self.alive.iter().copied().collect();
        alive.sort_by_key(|key| key.id);
        if alive.is_empty() {
            return;
        }
        let stream = alive[self.random.below(alive.len())];
        let length = [0, 10, 1_000, 40_000][self.random.below(4)];
        match self.random.below(12) {
            0 => connection.send_message(stream, out, |out| out.resize(out.len() + length, 1)),
            1 => {
                connection.send_shared(stream, out, |out| out.push(1), Bytes::from(vec![2; length]))
            }
            2 => connection.hold(stream, true),
            3 => connection.hold(stream, false),
            4 => connection.set_compress(stream, self.random.chance(50)),
            5 => connection.release(stream, out),
            6 => {
                connection.reset(stream, out, ErrorCode::Cancel);
                self.last(stream);
            }
            _ if self.over.contains(&stream) => {
                connection.forget(stream);
                self.last(stream);
            }
            7 | 8 if self.role == Role::Client => connection.close_send(stream, out),
            7 => {
                connection.respond(stream, out, |out| out.resize(out.len() + length, 3));
                self.last(stream);
            }
            8 => {
                connection.finish(stream, out, &Status::new(Code::Aborted, "enough"));
                self.last(stream);
            }
            _ => {}
        }
    }

    fn last(&mut self, stream: StreamKey) {
        self.alive.remove(&stream);
        self.over.remove(&stream);
    }
}

fn config(random: &mut Random, role: Role) -> Config {
    let base = if role == Role::Server {
        Config::server()
    } else {
        Config::client()
    };
    Config {
        max_streams: if role == Role::Server {
            [3, 50][random.below(2)]
        } else {
            50
        },
        max_message_bytes: 8_000 + random.below(10_000),
        max_gathered_bytes: 100_000,
        max_unsent_bytes: 200_000,
        output_bound_bytes: [300, 100_000][random.below(2)],
        stream_window: [None, Some(20_000)][random.below(2)],
        short_ways: random.chance(50),
        ..base
    }
}

/// A conversation as an honest peer would have it, frame by frame; the streams are mixed.
fn honest(random: &mut Random, role: Role) -> Vec<Vec<u8>> {
    let mut streams: Vec<_> = (0..1 + random.below(12) as u32)
        .map(|at| honest_stream(random, role, at * 2 + 1))
        .collect();
    let mut frames = vec![
        settings(&[(4, [10, 65_535, 1 << 20][random.below(3)])]),
        frame(kind::SETTINGS, flag::ACK, 0, &[]),
    ];
    let mut begun = 0;
    while streams.iter().any(|stream| !stream.is_empty()) {
        // Streams begin in their order; those that have begun go on in any.
        let is_next = begun < streams.len()
            && (random.chance(30) || streams[..begun].iter().all(Vec::is_empty));
        begun += usize::from(is_next);
        let at = if is_next {
            begun - 1
        } else {
            random.below(begun)
        };
        if !streams[at].is_empty() {
            frames.push(streams[at].remove(0));
        }
        match random.below(20) {
            0 => frames.push(frame(kind::PING, 0, 0, &[1; 8])),
            1 => frames.push(window_update(0, 10_000)),
            2 => frames.push(settings(&[(4, random.below(100_000) as u32)])),
            _ => {}
        }
    }
    if random.chance(10) {
        frames.push(frame(kind::GOAWAY, 0, 0, &[0, 0, 0, 9, 0, 0, 0, 0]));
    }
    frames
}

fn honest_stream(random: &mut Random, role: Role, id: u32) -> Vec<Vec<u8>> {
    let mut head = if role == Role::Server {
        CALL.to_vec()
    } else {
        vec![(":status", "200"), CALL[4]]
    };
    let gzip = random.chance(30);
    if gzip {
        head.push(("grpc-encoding", "gzip"));
    }
    let mut frames = vec![headers(id, &head, random.chance(5))];
    let mut body = Vec::new();
    for _ in 0..random.below(4) {
        let bytes = vec![id as u8; [0, 5, 700, 9_000][random.below(4)]];
        let mut zipped = Vec::new();
        Deflater::new().gzip(&bytes, &mut zipped);
        body.extend(if gzip {
            prefixed(1, &zipped)
        } else {
            message(&bytes)
        });
    }
    for piece in body.chunks(1 + random.below(16_000)).take(30) {
        if random.chance(20) {
            frames.push(frame(
                kind::DATA,
                flag::PADDED,
                id,
                &[&[3][..], piece, &[0; 3]].concat(),
            ));
        } else {
            frames.push(data(id, piece, false));
        }
        if random.chance(20) {
            frames.push(window_update(id, 1_000));
        }
    }
    frames.push(match random.below(4) {
        0 => headers(id, &[("grpc-status", "0")], true),
        1 => rst(id, ErrorCode::Cancel),
        _ => data(id, b"", true),
    });
    frames
}

/// Changes that leave the frames whole: their order, their number, their headers, single bytes of
/// their payloads.
fn mutate_frames(random: &mut Random, frames: &mut Vec<Vec<u8>>) {
    for _ in 0..random.below(5) {
        let (at, other) = (random.below(frames.len()), random.below(frames.len()));
        let byte = random.below(frames[at].len());
        match random.below(7) {
            0 => frames.swap(at, other),
            1 => frames.insert(other, frames[at].clone()),
            2 if frames.len() > 1 => drop(frames.remove(at)),
            // The type, the flags, the last byte of the stream.
            3 => frames[at][3] = random.below(11) as u8,
            4 => frames[at][4] ^= 1 << random.below(8),
            5 => frames[at][8] = random.below(24) as u8,
            _ if byte >= 9 => frames[at][byte] = random.number() as u8,
            _ => {}
        }
    }
}

fn mutate(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..random.below(6) {
        if bytes.is_empty() {
            return;
        }
        let at = random.below(bytes.len());
        let end = (at + 1 + random.below(40)).min(bytes.len());
        match random.below(5) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.number() as u8,
            2 => drop(bytes.drain(at..end)),
            3 => {
                let copy = bytes[at..end].to_vec();
                let to = random.below(bytes.len());
                bytes.splice(to..to, copy);
            }
            _ => bytes.truncate(at),
        }
    }
}

/// Frames that are well-formed as frames and random otherwise.
fn random_frames(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..random.below(60) {
        let length = [0, 4, 5, 6, 8, 30][random.below(6)];
        let payload: Vec<_> = (0..length)
            .map(|_| random.number() as u8 & [0xff, 0x03][random.below(2)])
            .collect();
        bytes.extend(frame(
            random.below(11) as u8,
            random.number() as u8,
            random.below(8) as u32,
            &payload,
        ));
    }
    bytes
}

fn noise(random: &mut Random) -> Vec<u8> {
    (0..random.below(500))
        .map(|_| random.number() as u8)
        .collect()
}

fn round(seed: u64, role: Role) {
    let mut random = Random::new(seed);
    let (endpoint, room) = begin(&mut random, role);
    let bytes = peer(&mut random, role);
    converse(endpoint, room, random, role, &bytes);
}

/// A connection whose peer sends these bytes (a client its preface before them); all else is
/// decided by the seed.
pub fn conversation(seed: u64, role: Role, bytes: &[u8]) {
    let mut random = Random::new(seed);
    let (endpoint, room) = begin(&mut random, role);
    converse(endpoint, room, random, role, bytes);
}

fn begin(random: &mut Random, role: Role) -> (Endpoint, Room) {
    let mut endpoint = Endpoint::new(&config(random, role));
    let mut room = Room {
        random: random.clone(),
        role,
        alive: HashSet::new(),
        over: HashSet::new(),
    };
    if role == Role::Client {
        for _ in 0..40 {
            room.something(&mut endpoint.connection, &mut endpoint.output);
        }
    }
    (endpoint, room)
}

/// Bytes of a peer, without the preface.
fn peer(random: &mut Random, role: Role) -> Vec<u8> {
    match random.below(10) {
        0 => noise(random),
        1 => [settings(&[]), random_frames(random)].concat(),
        kind => {
            let mut frames = honest(random, role);
            mutate_frames(random, &mut frames);
            let mut bytes = frames.concat();
            if kind == 2 {
                mutate(random, &mut bytes);
            }
            bytes
        }
    }
}

fn converse(mut endpoint: Endpoint, mut room: Room, mut random: Random, role: Role, peer: &[u8]) {
    let preface: &[u8] = match role {
        Role::Server => PREFACE,
        Role::Client => b"",
    };
    let bytes = [preface, peer].concat();
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let most = [1, 50, 20_000][random.below(3)].min(rest.len());
        let (piece, after) = rest.split_at(1 + random.below(most));
        rest = after;
        endpoint.feed_with(piece, |connection, seen, out| {
            room.event(connection, seen, out)
        });
        assert!(
            endpoint.input.len() <= 16_384 + 9 + piece.len(),
            "{random:?}"
        );
        check_bounds(&endpoint, &random);
        if random.chance(70) {
            endpoint.output.clear();
        }
        if random.chance(20) {
            let is_long = random.chance(2);
            endpoint.advance_ms(if is_long {
                [1_000, 70_000][random.below(2)]
            } else {
                1
            });
            endpoint.tick();
        }
        let now_ns = endpoint.now_ns;
        endpoint.connection.transmit(&mut endpoint.output, now_ns);
    }
    finish(endpoint, room);
}

fn check_bounds(endpoint: &Endpoint, random: &Random) {
    // What is gathered, what waits with one message on top, and what a hundred streams and their
    // heads need.
    let memory = endpoint.connection.memory_bytes();
    assert!(
        memory < (100_000 + 30_000) + (200_000 + 50_000) + (1 << 20),
        "{memory} bytes: {random:?}"
    );
    assert!(endpoint.connection.buffered_bytes() < 400_000, "{random:?}");
}

/// The transport ends: whatever lives is cancelled once, and nothing is left.
fn finish(mut endpoint: Endpoint, mut room: Room) {
    endpoint.connection.peer_closed();
    endpoint.output.clear();
    for seen in endpoint.feed(b"") {
        let stream = stream_of(seen.event);
        if matches!(seen.event, Event::Cancelled { .. } | Event::Finished { .. })
            && room.alive.contains(&stream)
        {
            assert!(room.over.insert(stream), "ends once: {:?}", room.random);
        }
    }
    assert_eq!(endpoint.output, b"");
    assert_eq!(room.alive, room.over, "every call ended: {:?}", room.random);
    for stream in room.alive {
        endpoint.connection.forget(stream);
    }
    assert_eq!(endpoint.connection.running(), 0, "{:?}", room.random);
    assert_eq!(endpoint.connection.buffered_bytes(), 0, "{:?}", room.random);
}

#[test]
fn a_server_survives_anything() {
    for seed in 0..rounds(800) {
        round(seed, Role::Server);
    }
}

#[test]
fn a_client_survives_anything() {
    for seed in 0..rounds(800) {
        round(seed, Role::Client);
    }
}
