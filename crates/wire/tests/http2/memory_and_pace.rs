//! What a peer can make us keep or do without sending much: memory that stays, work out of
//! proportion, slowness.

use crate::support::*;
use wire::grpc::{Deflater, Status};
use wire::http2::frame::{flag, kind};
use wire::{CancelCause, Config, ErrorCode, Event, StreamKey, limits};

/// A call whose messages are compressed, and one message that becomes `bytes` zeros.
fn bomb(stream: u32, bytes: usize) -> Vec<u8> {
    let mut packed = Vec::new();
    Deflater::new().gzip(&vec![0; bytes], &mut packed);
    let list = [&CALL[..], &[("grpc-encoding", "gzip")]].concat();
    let mut sent = headers(stream, &list, false);
    for piece in prefixed(1, &packed).chunks(limits::MAX_FRAME_BYTES) {
        sent.extend_from_slice(&data(stream, piece, false));
    }
    sent
}

/// Answers or forgets what came.
fn answer_all(server: &mut Endpoint, seen: &[Seen]) {
    for seen in seen {
        match seen.event {
            Event::Message { stream, .. } => {
                server
                    .connection
                    .finish(stream, &mut server.output, &Status::OK)
            }
            Event::Cancelled { stream, .. } => server.connection.forget(stream),
            _ => {}
        }
    }
    server.output.clear();
}

#[test]
fn a_bomb_leaves_no_memory_behind() {
    let config = Config {
        max_message_bytes: 1 << 20,
        ..Config::server()
    };
    let mut server = Endpoint::server_with(&config, &[]);
    let seen = server.feed(&bomb(1, 2 << 20));
    answer_all(&mut server, &seen);
    assert_eq!(server.connection.running(), 0);
    let bytes = server.connection.memory_bytes();
    assert!(bytes <= 64 << 10, "{bytes} bytes");
}

#[test]
fn repeated_bombs_end_the_connection() {
    const EACH: usize = 8 << 20;
    let attack = bomb(1, EACH);
    let mut server = Endpoint::server();
    let mut taken = 0_u32;
    while server.error().is_none() {
        let id = taken * 2 + 1;
        let mut bytes = attack.clone();
        // The same bytes on another stream: only the identifiers differ, in the fifth to eighth
        // byte of each frame.
        let mut at = 0;
        while at < bytes.len() {
            let length = number(&[0, bytes[at], bytes[at + 1], bytes[at + 2]]) as usize;
            bytes[at + 5..at + 9].copy_from_slice(&id.to_be_bytes());
            at += 9 + length;
        }
        let seen = server.feed(&bytes);
        if server.error().is_none() {
            answer_all(&mut server, &seen);
        }
        taken += 1;
        assert!(taken < 20, "64 MiB are free, these are more");
    }
    server.assert_closed(ErrorCode::EnhanceYourCalm);
}

#[test]
fn settings_that_move_many_windows_cost_more() {
    let mut server = Endpoint::server();
    let calls: Vec<_> = (0..limits::MAX_STREAMS)
        .flat_map(|at| call(at * 2 + 1))
        .collect();
    assert_eq!(requests(&server.feed(&calls)).len(), 4_096);
    let mut rounds = 0;
    while server.error().is_none() {
        rounds += 1;
        server.feed(&settings(&[(4, 1_000 + rounds)]));
        assert!(rounds < 100, "each walks over thousands of streams");
    }
    server.assert_closed(ErrorCode::EnhanceYourCalm);
    assert!(rounds > 20, "{rounds}: a few are honest");
}

#[test]
fn a_byte_a_minute_is_no_progress() {
    let mut server = Endpoint::server_with(&Config::server(), &[(4, 0)]);
    let stream = requests(&server.feed(&unary(1, b"a")))[0];
    server
        .connection
        .respond(stream, &mut server.output, |out| {
            out.resize(out.len() + (1 << 20), 0)
        });
    // At first as much as is due, then a little.
    server.advance_ms(59_000);
    server.feed(&window_update(1, 1 << 15));
    server.advance_ms(59_000);
    server.feed(&window_update(1, 1));
    server.tick();
    assert_eq!(server.error(), None);
    server.advance_ms(1_000);
    server.feed(&window_update(1, 1));
    server.tick();
    server.assert_closed(ErrorCode::EnhanceYourCalm);
}

#[test]
fn nothing_is_owed_on_a_stream_that_was_given_up() {
    let mut server = Endpoint::server_with(&Config::server(), &[(4, 0)]);
    let stream = requests(&server.feed(&unary(1, b"a")))[0];
    server
        .connection
        .respond(stream, &mut server.output, |out| out.push(1));
    server.advance_ms(30_000);
    server.feed(&rst(1, ErrorCode::Cancel));
    server.advance_ms(30_000);
    server.feed(&frame(kind::PING, 0, 0, &[0; 8]));
    server.tick();
    assert_eq!(server.error(), None);
    // And what waits next has all of its time.
    let stream = requests(&server.feed(&unary(3, b"a")))[0];
    server
        .connection
        .respond(stream, &mut server.output, |out| out.push(1));
    server.advance_ms(59_999);
    server.feed(&frame(kind::PING, 0, 0, &[0; 8]));
    server.tick();
    assert_eq!(server.error(), None);
}

#[test]
fn a_message_that_does_not_go_on_ends_its_call() {
    let mut server = Endpoint::server();
    let begun = |id| {
        [
            call(id),
            data(id, &prefixed(0, &[0; 50_000])[..10_000], false),
        ]
        .concat()
    };
    let seen = server.feed(&[begun(1_u32), call(3)].concat());
    let waiting = requests(&seen)[1];
    server.advance_ms(59_999);
    server.feed(&frame(kind::PING, 0, 0, &[0; 8]));
    server.tick();
    assert_eq!(server.feed(b""), []);
    server.advance_ms(1);
    server.tick();
    let seen = server.feed(b"");
    assert!(
        matches!(
            seen[..],
            [Seen {
                event: Event::Cancelled {
                    stream,
                    cause: CancelCause::TooMuchUnfinished
                },
                ..
            }] if stream.id == 1
        ),
        "{seen:?}"
    );
    assert_eq!(server.connection.buffered_bytes(), 0);
    assert!(
        server.connection.can_send(waiting),
        "a call between messages waits as long as it likes"
    );
    // One that goes on has all the time that it needs.
    let mut server = Endpoint::server();
    server.feed(&begun(1));
    for _ in 0..20 {
        server.advance_ms(50_000);
        server.feed(&data(1, &[0; 1_000], false));
        server.tick();
        assert_eq!(server.feed(b""), []);
    }
    // One that the layer above holds is not late.
    let mut server = Endpoint::server();
    let stream = requests(&server.feed(&begun(1)))[0];
    server.connection.hold(stream, true);
    for _ in 0..5 {
        server.advance_ms(50_000);
        server.feed(&frame(kind::PING, 0, 0, &[0; 8]));
        server.tick();
        assert_eq!(server.feed(b""), []);
    }
}

#[test]
fn many_streams_leave_little_memory_behind() {
    let mut server = Endpoint::server();
    let calls: Vec<_> = (0..limits::MAX_STREAMS)
        .flat_map(|at| call(at * 2 + 1))
        .collect();
    let streams = requests(&server.feed(&calls));
    assert!(server.connection.memory_bytes() > 512 << 10);
    for stream in streams {
        server
            .connection
            .finish(stream, &mut server.output, &Status::OK);
    }
    let bytes = server.connection.memory_bytes();
    assert!(bytes <= 128 << 10, "{bytes} bytes");
}

#[test]
fn buffers_that_are_kept_have_a_bound_together() {
    let mut server = Endpoint::server();
    let piece = |id, at: usize| data(id, &prefixed(0, &[0; 50_000])[at..at + 10_001], false);
    let ids: Vec<u32> = (0..20).map(|at| at * 2 + 1).collect();
    for &id in &ids {
        server.feed(&call(id));
    }
    for at in 0..5 {
        for &id in &ids {
            let seen = server.feed(&piece(id, at * 10_001));
            answer_all(&mut server, &seen);
        }
    }
    assert_eq!(server.connection.running(), 0);
    let bytes = server.connection.memory_bytes();
    assert!(bytes <= 128 << 10, "{bytes} bytes");
}

#[test]
fn short_blocks_that_stand_for_much_are_not_remembered() {
    let mut server = Endpoint::server();
    let mut encoder = wire::hpack::Encoder::new();
    let mut list = block(&GET);
    let indexing = wire::hpack::Indexing::Incremental;
    encoder.field(b"x", &[b'a'; 3_000], indexing, &mut list);
    server.feed(&frame(
        kind::HEADERS,
        flag::END_HEADERS | flag::END_STREAM,
        1,
        &list,
    ));
    for at in 1..=limits::MEMO_ENTRIES as u32 {
        let own = format!("/{at}");
        let mut fields = GET;
        fields[2].1 = &own;
        let list = [block(&fields), vec![0xbe; 5]].concat();
        let bytes = frame(
            kind::HEADERS,
            flag::END_HEADERS | flag::END_STREAM,
            at * 2 + 1,
            &list,
        );
        assert_eq!(requests(&server.feed(&bytes)).len(), 1);
    }
    let bytes = server.connection.memory_bytes();
    assert!(bytes <= 64 << 10, "{bytes} bytes");
}

#[test]
fn windows_stay_shut_and_lose_nothing() {
    let mut server = Endpoint::server();
    assert!(!server.connection.windows_are_shut());
    server.connection.set_windows_shut(true, &mut server.output);
    assert!(server.connection.windows_are_shut());
    let stream = requests(&server.feed(&call(1)))[0];
    let body = message(&[1; 15_995]);
    for _ in 0..4 {
        assert_eq!(messages(&server.feed(&data(1, &body, false))).len(), 1);
        server.connection.release(stream, &mut server.output);
    }
    assert_eq!(server.frames_of_kind(kind::WINDOW_UPDATE), []);
    server
        .connection
        .set_windows_shut(false, &mut server.output);
    let updates = server.frames_of_kind(kind::WINDOW_UPDATE);
    let given: Vec<_> = updates
        .iter()
        .map(|frame| (frame.stream, number(&frame.payload)))
        .collect();
    assert_eq!(given, [(1, 64_000)], "the connection's is not half used up");
    assert!(!server.connection.windows_are_shut());
}

#[test]
fn streams_that_were_ended_early_are_not_remembered_without_end() {
    let mut server = Endpoint::server();
    for at in 0..20_000 {
        for stream in requests(&server.feed(&call(at * 2 + 1))) {
            server
                .connection
                .finish(stream, &mut server.output, &Status::OK);
        }
        server.output.clear();
    }
    assert_eq!(server.error(), None);
    let bytes = server.connection.memory_bytes();
    assert!(bytes <= 128 << 10, "{bytes} bytes");
}

/// A stream that brings much keeps the buffer of its last long message for the next one. It is
/// counted, and goes with the stream, or when memory is short.
#[test]
fn buffers_of_long_messages_are_counted_and_go() {
    const LONG: usize = 256 << 10;
    let feed = |server: &mut Endpoint, stream: StreamKey| {
        let sent = prefixed(0, &vec![7; LONG]);
        for piece in sent.chunks(limits::MAX_FRAME_BYTES) {
            server.feed(&data(stream.id, piece, false));
            server.connection.release(stream, &mut server.output);
        }
        server.output.clear();
    };
    let mut server = Endpoint::server();
    let usual = requests(&server.feed(&call(1)))[0];
    feed(&mut server, usual);
    assert_eq!(server.connection.buffered_bytes(), 0, "nobody asked for it");

    let bulk = requests(&server.feed(&call(3)))[0];
    server
        .connection
        .limit_window(bulk, 1 << 20, &mut server.output);
    feed(&mut server, bulk);
    let kept = server.connection.buffered_bytes();
    assert!(kept > LONG / 2, "{kept} bytes");
    feed(&mut server, bulk);
    assert_eq!(server.connection.buffered_bytes(), kept, "it is used again");

    server.connection.set_windows_shut(true, &mut server.output);
    assert_eq!(server.connection.buffered_bytes(), 0);
    server
        .connection
        .set_windows_shut(false, &mut server.output);
    server
        .connection
        .limit_window(bulk, 1 << 20, &mut server.output);
    feed(&mut server, bulk);
    assert_eq!(server.connection.buffered_bytes(), kept);

    server.feed(&rst(3, ErrorCode::Cancel));
    server.connection.forget(bulk);
    assert_eq!(server.connection.buffered_bytes(), 0);
}

/// A stream of which it is known that it brings much need not find out by steps.
#[test]
fn some_of_the_window_of_much_is_open_at_once() {
    let mut server = Endpoint::server();
    let stream = requests(&server.feed(&call(1)))[0];
    server.output.clear();
    server
        .connection
        .limit_window(stream, 8 << 20, &mut server.output);
    let updates = server.frames_of_kind(kind::WINDOW_UPDATE);
    let opened: Vec<_> = updates
        .iter()
        .map(|update| (update.stream, number(&update.payload)))
        .collect();
    assert_eq!(
        opened,
        [(1, limits::BULK_WINDOW_BYTES - limits::STREAM_WINDOW_BYTES)]
    );
    server
        .connection
        .limit_window(stream, 8 << 20, &mut server.output);
    assert_eq!(server.frames_of_kind(kind::WINDOW_UPDATE), []);

    // Not of one that brings no more, and not while memory is short.
    let ended = requests(&server.feed(&headers(3, &PLAIN, true)))[0];
    server
        .connection
        .limit_window(ended, 8 << 20, &mut server.output);
    let held_up = requests(&server.feed(&call(5)))[0];
    server.connection.set_windows_shut(true, &mut server.output);
    server
        .connection
        .limit_window(held_up, 8 << 20, &mut server.output);
    assert_eq!(server.frames_of_kind(kind::WINDOW_UPDATE), []);
    server
        .connection
        .set_windows_shut(false, &mut server.output);
    let updates = server.frames_of_kind(kind::WINDOW_UPDATE);
    assert_eq!(
        updates
            .iter()
            .map(|update| update.stream)
            .collect::<Vec<_>>(),
        [5]
    );
}

/// However small a limit is, a window stays as large as the protocol's default, so that a stream
/// goes on.
#[test]
fn a_small_limit_of_a_window_starves_nobody() {
    let mut server = Endpoint::server();
    let stream = requests(&server.feed(&call(1)))[0];
    server
        .connection
        .limit_window(stream, 1, &mut server.output);
    let window = limits::STREAM_WINDOW_BYTES as usize;
    let sent = prefixed(0, &vec![7; window / 2 + 1]);
    let mut given_back = 0;
    for piece in sent.chunks(limits::MAX_FRAME_BYTES) {
        server.feed(&data(1, piece, false));
        server.connection.release(stream, &mut server.output);
        let updates = server.frames_of_kind(kind::WINDOW_UPDATE);
        let of_stream = updates.iter().filter(|update| update.stream == 1);
        given_back += of_stream
            .map(|update| number(&update.payload) as usize)
            .sum::<usize>();
    }
    assert!(given_back > window / 2, "{given_back} bytes");
}

const PLAIN: [(&str, &str); 3] = [(":method", "PUT"), (":scheme", "http"), (":path", "/")];

/// A server with a stream of a plain body that is held, and has brought so much.
fn held_body(server: &mut Endpoint, body: &[u8]) -> StreamKey {
    let stream = requests(&server.feed(&headers(1, &PLAIN, false)))[0];
    server.connection.hold(stream, true);
    let (rest, last) = body.split_at(body.len() - 1);
    for piece in rest.chunks(limits::MAX_FRAME_BYTES) {
        assert_eq!(server.feed(&data(1, piece, false)), []);
    }
    assert_eq!(server.feed(&data(1, last, true)), []);
    stream
}

/// Whoever takes a whole window in one step lets everybody else wait.
#[test]
fn a_body_that_was_kept_back_comes_in_pieces() {
    let config = Config {
        stream_window: Some(1 << 20),
        ..Config::server()
    };
    let mut server = Endpoint::server_with(&config, &[]);
    let body: Vec<u8> = (0..300_000_u32).map(|at| (at % 251) as u8).collect();
    let stream = held_body(&mut server, &body);
    server.connection.hold(stream, false);
    let seen = server.feed(b"");
    let is_last = |seen: &Seen| matches!(seen.event, Event::Body { last: true, .. });
    let pieces: Vec<_> = seen.iter().map(|seen| &seen.message[..]).collect();
    assert_eq!(pieces.concat(), body);
    assert!(
        pieces
            .iter()
            .all(|piece| piece.len() <= limits::BACKLOG_PIECE_BYTES)
    );
    assert_eq!(seen.iter().position(is_last), Some(seen.len() - 1));
    assert_eq!(server.connection.buffered_bytes(), 0);
}

/// Each byte of a body is given back once: the peer may send as much again, and no more.
#[test]
fn what_was_kept_back_of_a_body_is_given_back_in_full() {
    const WINDOW: usize = 400_000;
    let config = Config {
        stream_window: Some(WINDOW as u32),
        ..Config::server()
    };
    let mut server = Endpoint::server_with(&config, &[]);
    let stream = requests(&server.feed(&headers(1, &PLAIN, false)))[0];
    let mut given_back = 0;
    for round in 1..=3 {
        server.connection.hold(stream, true);
        for piece in [7; WINDOW / 2].chunks(limits::MAX_FRAME_BYTES) {
            assert_eq!(server.feed(&data(1, piece, false)), []);
        }
        server.connection.hold(stream, false);
        let seen = server.feed_with(b"", |connection, seen, out| {
            connection.release(stream_of(seen.event), out);
        });
        assert!(seen.len() > 1, "it comes in pieces");
        let updates = server.frames_of_kind(kind::WINDOW_UPDATE);
        let of_stream = updates.iter().filter(|update| update.stream == 1);
        given_back += of_stream
            .map(|update| number(&update.payload) as usize)
            .sum::<usize>();
        assert_eq!(given_back, round * WINDOW / 2);
    }
}

/// A buffer that grew by and by would be copied each time.
#[test]
fn what_is_kept_back_gets_room_for_a_window_at_once() {
    const WINDOW: usize = 300_000;
    let config = Config {
        stream_window: Some(WINDOW as u32),
        ..Config::server()
    };
    let mut server = Endpoint::server_with(&config, &[]);
    let stream = requests(&server.feed(&headers(1, &PLAIN, false)))[0];
    server
        .connection
        .limit_window(stream, WINDOW as u32, &mut server.output);
    server.connection.hold(stream, true);
    server.feed(&data(1, &[7; 10_000], false));
    server.connection.hold(stream, false);
    assert_eq!(server.feed(b"").len(), 1);
    // The buffer is kept, and what is beyond the usual number of bytes is counted.
    let kept = server.connection.buffered_bytes();
    assert_eq!(kept, WINDOW - limits::POOLED_BYTES);
}
