//! Bytes that no honest peer sends: nothing panics, nothing grows without bound, every call ends exactly once.
//!
//! `PELTON_FUZZ_ROUNDS` makes more rounds.

use crate::support::*;
use std::collections::HashSet;
use std::sync::Arc;
use wire::grpc::{Code, Status};
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
            Event::Cancelled { .. } | Event::Finished { .. } => {
                // A stream that had its last call in the meantime may still be reported.
                if self.alive.contains(&stream) {
                    assert!(self.over.insert(stream), "ends once: {:?}", self.random);
                }
            }
            Event::Message { .. } | Event::Body { .. } if self.random.chance(80) => connection.release(stream, out),
            _ => {}
        }
        if self.random.chance(60) {
            self.something(connection, out);
        }
    }

    fn something(&mut self, connection: &mut Connection, out: &mut Vec<u8>) {
        if self.role == Role::Client && self.random.chance(30) {
            let head = RequestHead { gzip: true, ..RequestHead::call("here", "/a.B/C") };
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
            1 => connection.send_shared(stream, out, |out| out.push(1), Arc::from(vec![2; length])),
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
    let base = if role == Role::Server { Config::server() } else { Config::client() };
    Config {
        max_streams: [2, 50][random.below(2)],
        max_message_bytes: 30_000,
        max_gathered_bytes: 100_000,
        max_unsent_bytes: 200_000,
        output_bound_bytes: [300, 100_000][random.below(2)],
        stream_window: [None, Some(3_000)][random.below(2)],
        short_ways: random.chance(50),
        ..base
    }
}

/// A conversation as an honest peer would have it.
fn honest(random: &mut Random, role: Role) -> Vec<u8> {
    let mut bytes = settings(&[(4, [10, 65_535, 1 << 20][random.below(3)])]);
    bytes.extend(frame(kind::SETTINGS, flag::ACK, 0, &[]));
    for at in 0..1 + random.below(8) as u32 {
        let id = at * 2 + 1;
        let body = vec![at as u8; [0, 5, 2_000, 20_000][random.below(4)]];
        let head = if role == Role::Server { CALL.to_vec() } else { vec![CALL[4], (":status", "200")] };
        let mut head = head;
        head.sort_by_key(|field| !field.0.starts_with(':'));
        if random.chance(30) {
            head.push(("grpc-encoding", "gzip"));
        }
        bytes.extend(headers(id, &head, random.chance(5)));
        for piece in message(&body).chunks(1 + random.below(16_000)) {
            if random.chance(20) {
                let padded = [&[3][..], piece, &[0; 3]].concat();
                bytes.extend(frame(kind::DATA, flag::PADDED, id, &padded[..padded.len().min(16_384)]));
            } else {
                bytes.extend(data(id, piece, false));
            }
        }
        match random.below(6) {
            0 => bytes.extend(headers(id, &[("grpc-status", "0")], true)),
            1 => bytes.extend(rst(id, ErrorCode::Cancel)),
            2 => bytes.extend(window_update(id, 1_000)),
            3 => bytes.extend(frame(kind::PING, 0, 0, &[1; 8])),
            4 => bytes.extend(frame(kind::GOAWAY, 0, 0, &[0, 0, 0, 9, 0, 0, 0, 0])),
            _ => bytes.extend(data(id, b"", true)),
        }
    }
    bytes
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
            1 => bytes[at] = random.next() as u8,
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
        let payload: Vec<_> = (0..length).map(|_| random.next() as u8 & [0xff, 0x03][random.below(2)]).collect();
        bytes.extend(frame(random.below(11) as u8, random.next() as u8, random.below(8) as u32, &payload));
    }
    bytes
}

fn noise(random: &mut Random) -> Vec<u8> {
    (0..random.below(500)).map(|_| random.next() as u8).collect()
}

fn round(seed: u64, role: Role) {
    let mut random = Random::new(seed);
    let mut endpoint = Endpoint::new(&config(&mut random, role));
    let mut room = Room { random: random.clone(), role, alive: HashSet::new(), over: HashSet::new() };
    if role == Role::Client {
        for _ in 0..5 {
            room.something(&mut endpoint.connection, &mut endpoint.output);
        }
    }
    let mut bytes = if role == Role::Server { PREFACE.to_vec() } else { Vec::new() };
    let kind = random.below(4);
    let mut rest = match kind {
        0 => noise(&mut random),
        1 => [settings(&[]), random_frames(&mut random)].concat(),
        _ => honest(&mut random, role),
    };
    if kind == 3 {
        rest.extend(random_frames(&mut random));
    }
    mutate(&mut random, &mut rest);
    bytes.extend(rest);

    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let most = [1, 50, 20_000][random.below(3)].min(rest.len());
        let (piece, after) = rest.split_at(1 + random.below(most));
        rest = after;
        endpoint.feed_with(piece, |connection, seen, out| room.event(connection, seen, out));
        assert!(endpoint.input.len() <= 16_384 + 9 + piece.len(), "{random:?}");
        check_bounds(&endpoint, &random);
        if random.chance(70) {
            endpoint.output.clear();
        }
        if random.chance(20) {
            endpoint.advance_ms([1, 1_000, 70_000][random.below(3)]);
            endpoint.tick();
        }
        let now_ns = endpoint.now_ns;
        endpoint.connection.transmit(&mut endpoint.output, now_ns);
    }
    finish(endpoint, room);
}

fn check_bounds(endpoint: &Endpoint, random: &Random) {
    // What is gathered, what waits with one message on top, and what a hundred streams and their heads need.
    let memory = endpoint.connection.memory_bytes();
    assert!(memory < (100_000 + 30_000) + (200_000 + 50_000) + (1 << 20), "{memory} bytes: {random:?}");
    assert!(endpoint.connection.buffered_bytes() < 400_000, "{random:?}");
}

/// The transport ends: whatever lives is cancelled once, and nothing is left.
fn finish(mut endpoint: Endpoint, mut room: Room) {
    endpoint.connection.peer_closed();
    endpoint.output.clear();
    for seen in endpoint.feed(b"") {
        let stream = stream_of(seen.event);
        if matches!(seen.event, Event::Cancelled { .. } | Event::Finished { .. }) && room.alive.contains(&stream) {
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
    for seed in 0..rounds(1_500) {
        round(seed, Role::Server);
    }
}

#[test]
fn a_client_survives_anything() {
    for seed in 0..rounds(1_500) {
        round(seed, Role::Client);
    }
}
