//! What streams share, and what must be the same again afterwards: each case goes through its state
//! twice.

use crate::support::*;
use bytes::Bytes;
use wire::grpc::Status;
use wire::http2::frame::kind;
use wire::{Config, ErrorCode, Event, SharedBytes, StreamKey};

/// HTTP/2's own window of a connection, which SETTINGS do not change (RFC 9113 section 6.9.2).
const WINDOW: usize = 65_535;

fn data_bytes(frames: &[Frame]) -> usize {
    let data = frames.iter().filter(|frame| frame.kind == kind::DATA);
    data.map(|frame| frame.payload.len()).sum()
}

fn bytes_of(frames: &[Frame], stream: u32) -> Vec<u8> {
    let data = frames
        .iter()
        .filter(|frame| frame.kind == kind::DATA && frame.stream == stream);
    data.flat_map(|frame| frame.payload.clone()).collect()
}

/// Nothing is left of what was.
#[track_caller]
fn assert_settled(endpoint: &Endpoint, what: &dyn std::fmt::Debug) {
    let connection = &endpoint.connection;
    assert_eq!(connection.running(), 0, "{what:?}");
    assert_eq!(connection.buffered_bytes(), 0, "{what:?}");
    assert!(!connection.wants_transmit(), "{what:?}");
}

#[test]
fn streams_that_exhaust_the_window_of_the_connection_get_every_byte() {
    let mut server = Endpoint::server_with(&Config::server(), &[(4, 1 << 20)]);
    let streams_count = 5;
    let mut owed_window = WINDOW;
    for round in 0..2 {
        let first = round * 2 * streams_count;
        let ids: Vec<u32> = (0..streams_count).map(|at| first + at * 2 + 1).collect();
        let calls: Vec<u8> = ids.iter().flat_map(|&id| unary(id, b"a")).collect();
        let streams = requests(&server.feed(&calls));
        for stream in &streams {
            let value = stream.id as u8;
            server
                .connection
                .respond(*stream, &mut server.output, |out| {
                    out.resize(out.len() + 40_000, value)
                });
        }
        let mut frames = server.frames();
        assert_eq!(
            data_bytes(&frames),
            owed_window,
            "all that the window allows"
        );
        // One that was given up leaves its share to the others.
        let given_up = ids[4];
        server.feed(&rst(given_up, ErrorCode::Cancel));
        let mut given = 0;
        while server.connection.wants_transmit() || server.connection.running() > 0 {
            assert!(given < 10 * WINDOW, "round {round}: it must end");
            server.feed(&window_update(0, 7_001));
            given += 7_001;
            let more = server.frames();
            assert!(data_bytes(&frames) + data_bytes(&more) <= owed_window + given);
            frames.extend(more);
        }
        for id in &ids[..4] {
            let expected = message(&[*id as u8; 40_000]);
            assert!(
                bytes_of(&frames, *id) == expected,
                "round {round}, stream {id}"
            );
        }
        assert!(bytes_of(&frames, given_up).len() < 40_005);
        assert_settled(&server, &round);
        owed_window = owed_window + given - data_bytes(&frames);
    }
}

#[test]
fn a_peer_that_shuts_its_windows_and_falls_silent_is_ended_and_nothing_is_left() {
    for shuts_connection in [false, true] {
        let window = if shuts_connection { 1 << 20 } else { 0 };
        let mut server = Endpoint::server_with(&Config::server(), &[(4, window)]);
        let calls: Vec<u8> = (0..3).flat_map(|at| unary(at * 2 + 1, b"a")).collect();
        let streams = requests(&server.feed(&calls));
        for stream in &streams {
            server
                .connection
                .respond(*stream, &mut server.output, |out| {
                    out.resize(out.len() + 100_000, 1)
                });
        }
        let sent = data_bytes(&server.frames());
        assert_eq!(sent, if shuts_connection { WINDOW } else { 0 });
        assert!(server.connection.buffered_bytes() > 100_000);
        // It is alive as far as pings tell, and takes nothing.
        while server.error().is_none() {
            assert!(server.now_ns < 300_000 * MS, "it is waited for without end");
            server.advance_ms(10_000);
            server.tick();
            for ping in server.frames_of_kind(kind::PING) {
                let ack = wire::http2::frame::flag::ACK;
                server.feed(&frame(kind::PING, ack, 0, &ping.payload));
            }
        }
        assert_eq!(server.error(), Some(ErrorCode::EnhanceYourCalm));
        server.connection.peer_closed();
        server.feed_with(b"", |connection, seen, _| {
            if let Event::Cancelled { stream, .. } = seen.event {
                connection.forget(stream);
            }
        });
        assert_settled(&server, &shuts_connection);
    }
}

/// Calls of every kind are begun, half sent, held, answered, given up, with small and shut windows,
/// in any order; then all of them end.
#[test]
fn counters_return_to_zero_after_any_mixture_of_calls() {
    for seed in 0..rounds(150) {
        let mut random = Random::new(seed);
        let window = [0, 1, 100, 65_535, 1 << 20][random.below(5)];
        let mut server = Endpoint::server_with(&Config::server(), &[(4, window)]);
        let shared: Bytes = vec![7; 30_000].into();
        let (mut open, mut next) = (Vec::<StreamKey>::new(), 1);
        for _ in 0..200 {
            if server.error().is_some() {
                break;
            }
            let seen = mixture(&mut server, &mut random, &open, &mut next, &shared);
            note(&mut server, &mut open, &seen);
        }
        // Everybody ends, each with its one last call.
        for stream in open.drain(..) {
            let unavailable = Status::new(wire::grpc::Code::Unavailable, "");
            let connection = &mut server.connection;
            connection.finish(stream, &mut server.output, &unavailable);
        }
        server.connection.peer_closed();
        let seen = server.feed(b"");
        note(&mut server, &mut open, &seen);
        assert!(open.is_empty(), "{random:?}");
        assert_settled(&server, &random);
    }
}

/// One step of either side.
fn mixture(
    server: &mut Endpoint,
    random: &mut Random,
    open: &[StreamKey],
    next: &mut u32,
    shared: &Bytes,
) -> Vec<Seen> {
    let some = (!open.is_empty()).then(|| open[random.below(open.len().max(1))]);
    match (random.below(9), some) {
        (0 | 1, _) => {
            let id = std::mem::replace(next, *next + 2);
            let bytes = vec![1; random.below(3_000)];
            let whole = [call(id), data(id, &message(&bytes), random.chance(50))].concat();
            let half = whole.len() - random.below(bytes.len() + 1);
            match random.chance(70) {
                true => server.feed(&whole),
                // The frame is whole, the message is not.
                false => {
                    let part = &message(&bytes)[..(half - call(id).len() - 9).max(1)];
                    server.feed(&[call(id), data(id, part, false)].concat())
                }
            }
        }
        (2, Some(stream)) => server.feed(&rst(stream.id, ErrorCode::Cancel)),
        (3, Some(stream)) => {
            let by = 1 + random.below(50_000) as u32;
            server.feed(&[window_update(0, by), window_update(stream.id, by)].concat())
        }
        (4, Some(stream)) => {
            let size = random.below(20_000);
            let connection = &mut server.connection;
            connection.send_message(stream, &mut server.output, |out| {
                out.resize(out.len() + size, 2)
            });
            Vec::new()
        }
        (5, Some(stream)) => {
            let end = random.below(shared.len());
            let body = SharedBytes::part(shared.clone(), 0..end);
            let connection = &mut server.connection;
            connection.send_shared(stream, &mut server.output, |out| out.push(1), body);
            Vec::new()
        }
        (6, Some(stream)) => {
            let is_held = random.chance(50);
            server.connection.hold(stream, is_held);
            server.feed(b"")
        }
        (7, Some(stream)) => {
            server.connection.release(stream, &mut server.output);
            Vec::new()
        }
        (8, _) => {
            let is_shut = random.chance(50);
            server
                .connection
                .set_windows_shut(is_shut, &mut server.output);
            server.advance_ms(10);
            server.tick();
            server.feed(b"")
        }
        _ => Vec::new(),
    }
}

/// Keeps track of what was begun and has ended.
fn note(server: &mut Endpoint, open: &mut Vec<StreamKey>, seen: &[Seen]) {
    for one in seen {
        match one.event {
            Event::Request { stream, .. } => open.push(stream),
            Event::Cancelled { stream, .. } => {
                open.retain(|one| *one != stream);
                server.connection.forget(stream);
            }
            _ => {}
        }
    }
}

/// Whoever has no memory for a connection ends it, once: with all of its calls, and with a reason
/// for the peer.
#[test]
fn a_connection_may_be_given_up() {
    let mut server = Endpoint::server();
    let streams = requests(&server.feed(&[call(1), call(3)].concat()));
    for _ in 0..2 {
        server.connection.abort("no memory", &mut server.output);
    }
    let goaway = server.frames_of_kind(kind::GOAWAY);
    assert_eq!(goaway.len(), 1);
    assert_eq!(goaway[0].code(), ErrorCode::EnhanceYourCalm);
    assert!(goaway[0].payload.ends_with(b"no memory"));
    assert_eq!(server.error(), Some(ErrorCode::EnhanceYourCalm));
    let ended: Vec<_> = server
        .feed(b"")
        .iter()
        .map(|seen| stream_of(seen.event))
        .collect();
    assert_eq!(ended, streams);
}
