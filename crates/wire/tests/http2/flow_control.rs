//! Windows of both directions. RFC 9113 sections 5.2 and 6.9.

use crate::support::*;
use bytes::Bytes;
use wire::grpc::Status;
use wire::http2::frame::{flag, kind};
use wire::{Config, ErrorCode, Event, StreamKey};

fn data_bytes(frames: &[Frame], stream: u32) -> usize {
    frames
        .iter()
        .filter(|frame| frame.kind == kind::DATA && frame.stream == stream)
        .map(|frame| frame.payload.len())
        .sum()
}

/// A server with unary calls that wait for their answers.
fn server_with_calls(entries: &[(u16, u32)], count: u32) -> (Endpoint, Vec<StreamKey>) {
    let mut server = Endpoint::server_with(&Config::server(), entries);
    let calls: Vec<_> = (0..count).flat_map(|at| unary(at * 2 + 1, b"a")).collect();
    let streams = requests(&server.feed(&calls));
    server.frames();
    (server, streams)
}

#[test]
fn an_answer_waits_for_the_window_of_its_stream() {
    let (mut server, streams) = server_with_calls(&[(4, 3)], 1);
    server
        .connection
        .respond(streams[0], &mut server.output, |out| {
            out.extend_from_slice(b"abcdef")
        });
    let mut frames = server.frames();
    for _ in 0..4 {
        server.feed(&window_update(1, 2));
        frames.extend(server.frames());
    }
    let sizes: Vec<_> = frames
        .iter()
        .filter(|frame| frame.kind == kind::DATA)
        .map(|frame| frame.payload.len())
        .collect();
    assert_eq!(sizes, [3, 2, 2, 2, 2]);
    let body: Vec<_> = frames
        .iter()
        .filter(|frame| frame.kind == kind::DATA)
        .flat_map(|frame| frame.payload.clone())
        .collect();
    assert_eq!(body, message(b"abcdef"));
    assert!(frames.last().expect("trailers").ends_stream());
    assert_eq!(server.connection.running(), 0);
}

#[test]
fn an_answer_waits_for_the_window_of_the_connection() {
    let (mut server, streams) = server_with_calls(&[(4, 1 << 20)], 2);
    for &stream in &streams {
        server
            .connection
            .respond(stream, &mut server.output, |out| {
                out.resize(out.len() + 50_000, 7)
            });
    }
    let frames = server.frames();
    assert_eq!(data_bytes(&frames, 1) + data_bytes(&frames, 3), 65_535);
    server.feed(&window_update(0, 40_000));
    let frames = server.frames();
    assert_eq!(
        data_bytes(&frames, 1) + data_bytes(&frames, 3),
        2 * 50_005 - 65_535
    );
    assert_eq!(server.connection.running(), 0);
}

/// However much of it the peer has taken: so much memory it takes. The output is no place for it,
/// since what waits there keeps all of its memory.
#[test]
fn a_large_answer_is_held_until_its_last_byte_is_out() {
    const BYTES: usize = 1 << 20;
    let body = |out: &mut Vec<u8>| out.resize(out.len() + BYTES, 7);
    for is_cancelled in [false, true] {
        let (mut server, streams) = server_with_calls(&[(4, 10_000)], 2);
        // Something waits in the output already.
        (server.connection).respond(streams[0], &mut server.output, |out| out.push(1));
        let waiting = server.output.clone();
        (server.connection).respond(streams[1], &mut server.output, body);
        assert!(
            server.output.capacity() < BYTES / 2,
            "{}",
            server.output.capacity()
        );
        assert!(server.output.starts_with(&waiting));
        server.frames();
        let held_bytes = server.connection.held_bytes();
        assert!((BYTES..BYTES + 1_000).contains(&held_bytes), "{held_bytes}");
        assert_eq!(server.connection.buffered_bytes(), held_bytes);
        server.feed(&window_update(0, BYTES as u32));
        let left = (BYTES - 10_000) as u32;
        server.feed(&window_update(3, left));
        while server.connection.wants_transmit() {
            server.connection.transmit(&mut server.output, 0);
            server.frames();
        }
        assert_eq!(
            server.connection.unsent_bytes(),
            5,
            "but for a prefix it has gone out"
        );
        assert_eq!(server.connection.held_bytes(), held_bytes);
        match is_cancelled {
            true => server.feed(&rst(3, ErrorCode::Cancel)),
            false => server.feed(&window_update(3, 5)),
        };
        assert_eq!(server.connection.held_bytes(), 0);
        assert_eq!(server.connection.buffered_bytes(), 0);
    }
}

#[test]
fn the_initial_window_changes_streams_that_exist_and_may_make_them_negative() {
    let (mut server, streams) = server_with_calls(&[(4, 5)], 1);
    server
        .connection
        .respond(streams[0], &mut server.output, |out| {
            out.extend_from_slice(b"abcdef")
        });
    assert_eq!(data_bytes(&server.frames(), 1), 5);
    server.feed(&settings(&[(4, 2)]));
    assert_eq!(data_bytes(&server.frames(), 1), 0);
    server.feed(&settings(&[(4, 5)]));
    assert_eq!(data_bytes(&server.frames(), 1), 0);
    server.feed(&settings(&[(4, 6)]));
    assert_eq!(data_bytes(&server.frames(), 1), 1);
    server.feed(&window_update(1, 100));
    assert_eq!(data_bytes(&server.frames(), 1), 5);
}

#[test]
fn windows_above_the_maximum() {
    let (mut server, _) = server_with_calls(&[], 1);
    server.feed(&window_update(1, 0x7fff_ffff));
    server.assert_reset(1, ErrorCode::FlowControlError);
    server.feed(&window_update(0, 0x7fff_ffff));
    server.assert_closed(ErrorCode::FlowControlError);
    let (mut server, _) = server_with_calls(&[], 1);
    server.feed(
        &[
            window_update(1, 0x7fff_ffff - 65_535),
            settings(&[(4, 65_536)]),
        ]
        .concat(),
    );
    server.assert_closed(ErrorCode::FlowControlError);
}

#[test]
fn an_increment_of_0_ends_the_connection() {
    for stream in [0, 1] {
        let (mut server, _) = server_with_calls(&[], 1);
        server.feed(&window_update(stream, 0));
        server.assert_closed(ErrorCode::ProtocolError);
    }
}

#[test]
fn data_beyond_a_window_end_the_connection() {
    let mut server = Endpoint::server();
    server.feed(&call(1));
    // Held, so that nothing is given back.
    server.connection.hold(StreamKey { slot: 0, id: 1 }, true);
    for _ in 0..3 {
        server.feed(&data(1, &[0; 16_384], false));
    }
    server.feed(&data(1, &[0; 16_383], false));
    assert_eq!(server.error(), None);
    server.feed(&data(1, &[0], false));
    server.assert_closed(ErrorCode::FlowControlError);

    // The window of the connection, over many streams.
    let config = Config {
        connection_window: Some(65_535),
        stream_window: Some(1 << 20),
        ..Config::server()
    };
    let mut server = Endpoint::server_with(&config, &[]);
    server.feed(&call(1));
    let mut bytes = Vec::new();
    for _ in 0..4 {
        bytes.extend(data(1, &[0; 16_384], false));
    }
    // Given back on receipt, so that only what has not been announced yet counts: never a whole
    // window.
    server.feed(&bytes);
    assert_eq!(server.error(), None);
}

#[test]
fn the_connections_window_is_given_back_on_receipt_and_the_streams_on_release() {
    let mut server = Endpoint::server();
    let body = message(&vec![1; 16_000]);
    let mut stream_updates = 0;
    let mut connection_updates = 0;
    server.feed(&call(1));
    for round in 0..400 {
        let seen = server.feed(&data(1, &body, false));
        assert_eq!(messages(&seen).len(), 1, "round {round}");
        let stream = stream_of(seen[0].event);
        server.connection.release(stream, &mut server.output);
        for update in server.frames_of_kind(kind::WINDOW_UPDATE) {
            if update.stream == 0 {
                connection_updates += number(&update.payload)
            } else {
                stream_updates += number(&update.payload)
            }
        }
    }
    let sent = 400 * body.len() as u32;
    assert!(
        (sent - connection_updates) <= 1 << 20,
        "{connection_updates}"
    );
    assert!((sent - stream_updates) <= 65_535, "{stream_updates}");
    assert_eq!(server.error(), None);
}

#[test]
fn padding_is_given_back_at_once() {
    let config = Config {
        stream_window: Some(65_535),
        connection_window: Some(1 << 20),
        ..Config::server()
    };
    let mut server = Endpoint::server_with(&config, &[]);
    server.feed(&call(1));
    let mut sent = 0_u32;
    let mut given = 0_u32;
    for _ in 0..2_000 {
        // One byte of a plain message in 257.
        let payload = [&[255][..], &[0], &[0; 255]].concat();
        server.feed(&frame(kind::DATA, flag::PADDED, 1, &payload));
        sent += 257;
        given += server
            .frames_of_kind(kind::WINDOW_UPDATE)
            .iter()
            .filter(|frame| frame.stream == 1)
            .map(|frame| number(&frame.payload))
            .sum::<u32>();
        let messages = sent / 257 / 5 * 5;
        assert!(sent - given <= 65_535, "sent {sent}, given back {given}");
        // Whole messages (five zero bytes) wait for their release, all else is given back when half
        // a window is due.
        assert!(given >= (sent - messages).saturating_sub(32_768 + 257));
    }
    assert_eq!(server.error(), None);
}

#[test]
fn data_that_nobody_wants_still_count() {
    let mut server = Endpoint::server();
    let stream = requests(&server.feed(&call(1)))[0];
    server
        .connection
        .reset(stream, &mut server.output, ErrorCode::Cancel);
    server.frames();
    let mut given = 0;
    for _ in 0..200 {
        server.feed(&data(1, &[0; 16_384], false));
        given += server
            .frames_of_kind(kind::WINDOW_UPDATE)
            .iter()
            .map(|frame| number(&frame.payload))
            .sum::<u32>();
    }
    assert!(200 * 16_384 - given <= 1 << 20);
    assert_eq!(server.error(), None);
}

#[test]
fn streams_take_turns() {
    let (mut server, streams) = server_with_calls(&[(4, 1 << 30)], 3);
    server.feed(&window_update(0, 1 << 30));
    let body: Bytes = vec![9; 1 << 20].into();
    for &stream in &streams {
        server
            .connection
            .send_shared(stream, &mut server.output, |out| out.push(1), body.clone());
        server
            .connection
            .finish(stream, &mut server.output, &Status::OK);
    }
    let mut frames = server.frames();
    while server.connection.wants_transmit() {
        server.connection.transmit(&mut server.output, 0);
        assert!(
            server.output.len() <= (256 << 10) + 16_384 + 100,
            "the output has a bound"
        );
        frames.extend(server.frames());
    }
    // Once all three are waiting, none gets two frames before the others have one.
    let order: Vec<_> = frames
        .iter()
        .filter(|frame| frame.kind == kind::DATA)
        .map(|frame| frame.stream)
        .collect();
    let all_wait = order
        .iter()
        .position(|&stream| stream == 5)
        .expect("the third is served");
    for turn in order[all_wait..].windows(3).take(100) {
        assert!(
            turn[0] != turn[1] && turn[1] != turn[2] && turn[0] != turn[2],
            "{turn:?}"
        );
    }
    for stream in [1, 3, 5] {
        assert_eq!(data_bytes(&frames, stream), 5 + 1 + (1 << 20));
    }
    assert_eq!(server.connection.buffered_bytes(), 0);
    assert!(body.is_unique());
}

#[test]
fn can_send_until_a_streams_share_waits_and_writable_when_it_is_gone() {
    let (mut server, streams) = server_with_calls(&[(4, 100)], 1);
    let stream = streams[0];
    assert!(server.connection.can_send(stream));
    while server.connection.can_send(stream) {
        server
            .connection
            .send_message(stream, &mut server.output, |out| {
                out.resize(out.len() + 10_000, 1)
            });
        assert!(server.connection.buffered_bytes() < 300 << 10);
    }
    server
        .connection
        .send_message(stream, &mut server.output, |out| out.push(1));
    let mut events = Vec::new();
    for _ in 0..30 {
        events.extend(server.feed(&[window_update(1, 10_000), window_update(0, 10_000)].concat()));
        server.frames();
        assert_eq!(server.connection.can_send(stream), !events.is_empty());
    }
    assert_eq!(
        events.iter().map(|seen| seen.event).collect::<Vec<_>>(),
        [Event::Writable { stream }]
    );
}

#[test]
fn windows_can_be_fixed() {
    let config = Config {
        stream_window: Some(1_000),
        connection_window: Some(200_000),
        ..Config::server()
    };
    let mut server = Endpoint::new(&config);
    let frames = server.frames();
    assert!(
        frames[0]
            .payload
            .chunks(6)
            .any(|entry| entry[..2] == [0, 4] && number(&entry[2..]) == 1_000)
    );
    assert_eq!(number(&frames[1].payload), 200_000 - 65_535);
    // Before it has seen our SETTINGS the client may use the default window; then it is smaller by
    // the difference.
    let body = message(&[0; 2_000]);
    let start = [
        &wire::http2::frame::PREFACE[..],
        &settings(&[]),
        &call(1),
        &data(1, &body, false),
    ]
    .concat();
    for is_released in [false, true] {
        let mut server = Endpoint::new(&config);
        let stream = requests(&server.feed(&start))[0];
        if is_released {
            server.connection.release(stream, &mut server.output);
        }
        server.frames();
        server.feed(&frame(kind::SETTINGS, flag::ACK, 0, &[]));
        // What was given back before, and was too little to be announced, is much for the smaller
        // window.
        let given: u32 = server
            .frames_of_kind(kind::WINDOW_UPDATE)
            .iter()
            .map(|frame| number(&frame.payload))
            .sum();
        assert_eq!(given, if is_released { 2_005 } else { 0 });
        server.feed(&data(1, &body[..1_000], false));
        assert_eq!(
            server.error(),
            if is_released {
                None
            } else {
                Some(ErrorCode::FlowControlError)
            }
        );
    }
}

#[test]
fn windows_grow_for_a_stream_that_receives_much() {
    for (config, grows) in [
        (Config::server(), true),
        (
            Config {
                stream_window: Some(65_535),
                connection_window: Some(1 << 20),
                ..Config::server()
            },
            false,
        ),
    ] {
        let mut server = Endpoint::server_with(&config, &[]);
        let stream = requests(&server.feed(&call(1)))[0];
        let (mut window, mut largest) = (65_535_i64, 0);
        let body = data(1, &message(&[0; 15_995]), false);
        // Each round is a round trip: the sender uses its window, and hears at the end of it what
        // it may send next.
        for _ in 0..20 {
            largest = largest.max(window);
            while window >= 16_000 {
                window -= 16_000;
                assert_eq!(server.feed(&body).len(), 1);
                server.connection.release(stream, &mut server.output);
            }
            for heard in server.frames() {
                match heard.kind {
                    kind::PING => {
                        server.feed(&frame(kind::PING, flag::ACK, 0, &heard.payload));
                    }
                    kind::WINDOW_UPDATE if heard.stream == 1 => {
                        window += i64::from(number(&heard.payload))
                    }
                    _ => {}
                }
            }
        }
        assert_eq!(server.error(), None);
        assert_eq!(largest > 1 << 20, grows, "{largest}");
        assert!(largest <= 8 << 20);
    }
}

#[test]
fn small_calls_cause_no_pings() {
    let mut server = Endpoint::server();
    for at in 0..5_000 {
        let stream = requests(&server.feed(&unary(at * 2 + 1, &[0; 500])))[0];
        server
            .connection
            .respond(stream, &mut server.output, |out| out.push(1));
        assert_eq!(server.frames_of_kind(kind::PING), []);
        server.feed(&window_update(0, 6));
    }
}

#[test]
fn no_byte_of_random_padded_data_is_lost_from_a_window() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let config = Config {
            stream_window: Some(65_535),
            connection_window: Some(100_000),
            ..Config::server()
        };
        let mut server = Endpoint::server_with(&config, &[]);
        server.feed(&call(1));
        let body: Vec<_> = (0..400)
            .flat_map(|at| message(&vec![at as u8; random.below(3_000)]))
            .collect();
        let (mut rest, mut sent, mut given) = (&body[..], 0, [0; 2]);
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rest.len().min(random.below(5_000)));
            rest = after;
            let padding = random.below(256);
            let payload = [&[padding as u8][..], piece, &vec![0; padding]].concat();
            sent += payload.len();
            for seen in server.feed(&frame(kind::DATA, flag::PADDED, 1, &payload)) {
                assert!(matches!(seen.event, Event::Message { .. }));
                server
                    .connection
                    .release(stream_of(seen.event), &mut server.output);
            }
            for update in server.frames_of_kind(kind::WINDOW_UPDATE) {
                given[update.stream as usize] += number(&update.payload) as usize;
            }
            // Less than half of a window may wait to be announced.
            assert!(
                sent - given[0] < 50_000 && sent - given[1] < 32_768,
                "{sent} {given:?} {random:?}"
            );
            server.advance_ms(10);
        }
        assert_eq!(server.error(), None);
    }
}

/// What a peer counts that holds its windows as it has announced them: its SETTINGS from their
/// acknowledgement on.
struct StrictPeer {
    connection: i64,
    initial: i64,
    unacknowledged: std::collections::VecDeque<i64>,
    streams: std::collections::HashMap<u32, i64>,
}

impl StrictPeer {
    fn take(&mut self, frame: &Frame, random: &Random) {
        if frame.kind == kind::SETTINGS && frame.flags & flag::ACK != 0 {
            self.initial = self.unacknowledged.pop_front().expect("one is awaited");
        }
        if frame.kind == kind::DATA {
            let bytes = frame.payload.len() as i64;
            let stream = self.streams.entry(frame.stream).or_default();
            *stream -= bytes;
            self.connection -= bytes;
            assert!(
                self.connection >= 0 && self.initial + *stream >= 0,
                "{random:?}: {bytes} bytes on stream {} overflow a window: {} and {}",
                frame.stream,
                self.connection,
                self.initial + *stream
            );
        }
    }
}

/// The output is full and read in pieces, the peer's initial window goes up and down, and calls
/// answer at any time: no byte needs SETTINGS that are not acknowledged before it.
#[test]
fn data_never_comes_before_the_acknowledgement_of_the_settings_that_it_needs() {
    for seed in 0..rounds(300) {
        let mut random = Random::new(seed);
        let config = Config {
            output_bound_bytes: [60, 300, 5_000][random.below(3)],
            ..Config::server()
        };
        let first = random.below(200) as u32;
        let mut server = Endpoint::server_with(&config, &[(4, first)]);
        let mut peer = StrictPeer {
            connection: 65_535,
            initial: i64::from(first),
            unacknowledged: Default::default(),
            streams: Default::default(),
        };
        let (mut next_id, mut open) = (1, Vec::new());
        for _ in 0..150 {
            match random.below(6) {
                0 if next_id < 41 => {
                    open.extend(requests(&server.feed(&unary(next_id, b"a"))));
                    next_id += 2;
                }
                1 if !open.is_empty() => {
                    let stream = open[random.below(open.len())];
                    let bytes = random.below(400);
                    let out = &mut server.output;
                    server
                        .connection
                        .send_message(stream, out, |out| out.resize(out.len() + bytes, 7));
                }
                2 => {
                    let window = random.below(3_000) as u32;
                    peer.unacknowledged.push_back(i64::from(window));
                    server.feed(&settings(&[(4, window)]));
                }
                3 if next_id > 1 => {
                    let id = 2 * random.below(next_id as usize / 2) as u32 + 1;
                    let increment = 1 + random.below(300) as u32;
                    *peer.streams.entry(id).or_default() += i64::from(increment);
                    peer.connection += i64::from(increment);
                    server.feed(
                        &[window_update(id, increment), window_update(0, increment)].concat(),
                    );
                }
                4 => server.connection.transmit(&mut server.output, 0),
                // Read without a transmit: a driver may look at the input first.
                _ => (server.frames().iter()).for_each(|frame| peer.take(frame, &random)),
            }
            assert_eq!(server.error(), None, "{random:?}");
        }
        while server.connection.wants_transmit() {
            (server.frames().iter()).for_each(|frame| peer.take(frame, &random));
            server.connection.transmit(&mut server.output, 0);
        }
        (server.frames().iter()).for_each(|frame| peer.take(frame, &random));
        assert!(
            peer.unacknowledged.is_empty(),
            "{random:?}: all are acknowledged"
        );
    }
}
