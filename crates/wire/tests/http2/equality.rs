//! The short ways (header memo, constant response headers) against the long ones: the same traffic
//! through both.

use crate::support::*;
use wire::grpc::{Code, Status};
use wire::hpack::{Encoder, Indexing};
use wire::http2::frame::{PREFACE, flag, kind};
use wire::{Config, Connection, Event};

/// A client that indexes as it likes, and often repeats itself.
struct Traffic {
    random: Random,
    encoder: Encoder,
    next_id: u32,
}

impl Traffic {
    fn next(&mut self) -> Vec<u8> {
        match self.random.below(20) {
            0 => {
                // Another table size: the next block tells of it.
                self.encoder
                    .set_peer_table_bytes([0, 100, 4_096][self.random.below(3)]);
                Vec::new()
            }
            1 => settings(&[(1, [0, 200, 4_096][self.random.below(3)])]),
            2 => settings(&[(4, [20, 65_535][self.random.below(2)])]),
            3 => window_update(0, 1_000),
            _ => self.request(),
        }
    }

    fn request(&mut self) -> Vec<u8> {
        let id = self.next_id;
        self.next_id += 2;
        let mut block = Vec::new();
        self.encoder.begin_block(&mut block);
        let indexing = [Indexing::Incremental, Indexing::Without][self.random.below(2)];
        let timeout = format!("{}m", 1 + self.random.below(3));
        let trace = format!("{:x}", self.random.number());
        let mut list = CALL.to_vec();
        match self.random.below(6) {
            0 => list.push(("grpc-timeout", &timeout)),
            1 => list.push(("traceparent", &trace)),
            2 => list.push(("grpc-accept-encoding", "gzip")),
            3 if self.random.chance(20) => list.push(("connection", "close")),
            4 => list[2].1 = "/test.Service/Other",
            _ => {}
        }
        for (name, value) in list {
            self.encoder
                .field(name.as_bytes(), value.as_bytes(), indexing, &mut block);
        }
        let body = message(&vec![7; self.random.below(300)]);
        [
            frame(kind::HEADERS, flag::END_HEADERS, id, &block),
            data(id, &body, true),
        ]
        .concat()
    }
}

/// What the layer above does with an event, and what it saw. The same for the same seed.
fn act(
    random: &mut Random,
    log: &mut Vec<String>,
    connection: &mut Connection,
    seen: &Seen,
    out: &mut Vec<u8>,
) {
    log.push(format!("{:?} {:?}", seen.event, seen.message));
    let stream = stream_of(seen.event);
    match seen.event {
        Event::Request { .. } => {
            let head = connection.head();
            let fields: Vec<_> = head
                .fields()
                .map(|(name, value)| (name.to_vec(), value.to_vec()))
                .collect();
            log.push(format!(
                "{fields:?} {:?} {:?}",
                head.path(),
                head.timeout_ns()
            ));
            if let Some(route) = connection.head_route() {
                assert_eq!(
                    route as usize,
                    head.path().len(),
                    "the route of another head"
                );
            }
            connection.set_head_route(connection.head().path().len() as u64);
        }
        Event::Message { .. } => match random.below(6) {
            0 => connection.finish(stream, out, &Status::new(Code::NotFound, "not here")),
            1 => {
                connection.send_message(stream, out, |out| out.extend_from_slice(b"one"));
                connection.send_message(stream, out, |out| out.extend_from_slice(b"two"));
                connection.finish(stream, out, &Status::OK);
            }
            2 => {
                connection.add_header(stream, b"x-header", b"1");
                connection.add_trailer(stream, b"x-trailer", b"2");
                connection.respond(stream, out, |out| out.push(1));
            }
            3 => {
                connection.set_compress(stream, true);
                connection.respond(stream, out, |out| out.extend_from_slice(&[1; 100]));
            }
            _ => {
                let length = random.below(100);
                connection.respond(stream, out, |out| out.resize(out.len() + length, 5));
            }
        },
        Event::Cancelled { .. } => connection.forget(stream),
        _ => {}
    }
}

/// The events and the frames, with header blocks decoded, of one seed.
fn run(seed: u64, short_ways: bool) -> (Vec<String>, usize) {
    let mut traffic = Traffic {
        random: Random::new(seed),
        encoder: Encoder::new(),
        next_id: 1,
    };
    let mut acting = Random::new(!seed);
    let mut log = Vec::new();
    let mut server = Endpoint::new(&Config {
        short_ways,
        ..Config::server()
    });
    let ack = frame(kind::SETTINGS, flag::ACK, 0, &[]);
    server.feed(&[&PREFACE[..], &settings(&[]), &ack].concat());
    let mut constant = 0;
    for _ in 0..150 {
        let bytes = traffic.next();
        server.advance_ms(1);
        server.feed_with(&bytes, |connection, seen, out| {
            act(&mut acting, &mut log, connection, seen, out)
        });
        for frame in server.frames() {
            let shown = if frame.kind == kind::HEADERS {
                constant += usize::from(frame.payload.ends_with(b"application/grpc"));
                format!(
                    "{} {:#x} {:?}",
                    frame.stream,
                    frame.flags,
                    server.decode(&frame)
                )
            } else {
                format!("{frame:?}")
            };
            log.push(shown);
        }
    }
    log.push(format!(
        "{:?} {}",
        server.connection.close_reason(),
        server.connection.running()
    ));
    (log, constant)
}

#[test]
fn both_ways_lead_to_the_same() {
    let mut constant = (0, 0);
    for seed in 0..rounds(60) {
        let (short, long) = (run(seed, true), run(seed, false));
        for (at, (one, other)) in short.0.iter().zip(&long.0).enumerate() {
            assert_eq!(one, other, "seed {seed}, line {at}");
        }
        assert_eq!(short.0.len(), long.0.len(), "seed {seed}");
        constant = (constant.0 + short.1, constant.1 + long.1);
    }
    assert!(
        constant.0 > 0 && constant.1 == 0,
        "the ways differ: {constant:?}"
    );
}
