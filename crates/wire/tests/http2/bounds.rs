//! Bounds that are met to the byte, and passed by one: what is allowed is all of it, and no more.

use crate::support::*;
use wire::grpc::{Code, Deflater, Metadata, Status};
use wire::http2::frame::{flag, kind};
use wire::{CancelCause, Config, ErrorCode, Event, Pause, StreamKey, limits};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    Deflater::new().gzip(bytes, &mut out);
    out
}

/// A call with one compressed message.
fn packed(id: u32, content: &[u8]) -> Vec<u8> {
    let fields = [&CALL[..], &[("grpc-encoding", "gzip")]].concat();
    let body = prefixed(1, &gzip(content));
    [headers(id, &fields, false), data(id, &body, true)].concat()
}

fn forget(server: &mut Endpoint, streams: &[StreamKey]) {
    for &stream in streams {
        let out = &mut server.output;
        server.connection.reset(stream, out, ErrorCode::Cancel);
    }
    assert_eq!(server.connection.buffered_bytes(), 0);
}

#[test]
fn unfinished_messages_may_fill_their_bound() {
    for (has_memory, expected) in [
        (true, CancelCause::TooMuchUnfinished),
        (false, CancelCause::NoMemory),
    ] {
        let config = Config {
            max_gathered_bytes: if has_memory { 100_000 } else { 1 << 20 },
            ..Config::server()
        };
        let mut server = Endpoint::server_with(&config, &[]);
        if !has_memory {
            server.connection.set_gather_bound(100_000);
        }
        for first in [1, 101] {
            let ids = (first..).step_by(2).take(10);
            let begun: Vec<u8> = ids
                .flat_map(|id| {
                    let body = prefixed(0, &[7; 50_000]);
                    [call(id), data(id, &body[..10_000], false)].concat()
                })
                .collect();
            let seen = server.feed(&begun);
            let streams = requests(&seen);
            assert_eq!((seen.len(), streams.len()), (10, 10), "none has ended");
            assert_eq!(server.connection.buffered_bytes(), 100_000);
            let stream = streams[4];
            let seen = server.feed(&data(stream.id, b"x", false));
            let cause = expected;
            assert_eq!(seen[0].event, Event::Cancelled { stream, cause });
            server.connection.forget(stream);
            assert_eq!(server.connection.buffered_bytes(), 90_000);
            forget(&mut server, &streams);
        }
        assert_eq!(server.error(), None);
    }
}

/// A stream whose window is bounded may fill it though there is no memory for others, up to the
/// bound that all share.
#[test]
fn a_bounded_stream_may_fill_the_bound_of_all() {
    let config = Config {
        max_gathered_bytes: 50_000,
        ..Config::server()
    };
    let mut server = Endpoint::server_with(&config, &[]);
    server.connection.set_gather_bound(10_000);
    for id in [1, 3] {
        let stream = requests(&server.feed(&call(id)))[0];
        let out = &mut server.output;
        server.connection.limit_window(stream, 65_535, out);
        let body = prefixed(0, &[7; 60_000]);
        for piece in body[..50_000].chunks(10_000) {
            assert_eq!(server.feed(&data(id, piece, false)), []);
        }
        assert_eq!(server.connection.buffered_bytes(), 50_000);
        let seen = server.feed(&data(id, b"x", false));
        let cause = CancelCause::TooMuchUnfinished;
        assert_eq!(seen[0].event, Event::Cancelled { stream, cause });
        forget(&mut server, &[stream]);
    }
}

#[test]
fn a_header_block_may_have_as_many_bytes_as_its_bound() {
    let half = [0; limits::MAX_COMPRESSED_BLOCK_BYTES / 2];
    let mut server = Endpoint::server();
    server.feed(&frame(kind::HEADERS, 0, 1, &half));
    server.feed(&frame(kind::CONTINUATION, 0, 1, &half));
    assert_eq!(server.error(), None);
    server.feed(&frame(kind::CONTINUATION, 0, 1, b"x"));
    server.assert_closed(ErrorCode::EnhanceYourCalm);
}

#[test]
fn a_stream_is_writable_below_its_share_and_again_at_half_of_it() {
    let config = Config {
        stream_unsent_bytes: 1_000,
        ..Config::server()
    };
    let mut server = Endpoint::server_with(&config, &[(4, 0)]);
    let stream = requests(&server.feed(&call(1)))[0];
    for _ in 0..2 {
        let (connection, out) = (&mut server.connection, &mut server.output);
        connection.send_message(stream, out, |out| out.resize(out.len() + 994, 7));
        assert_eq!(connection.unsent_bytes(), 999);
        assert!(connection.is_writable(stream) && connection.can_send(stream));
        assert_eq!(server.feed(&window_update(1, 999)), [], "nothing is owed");
        let (connection, out) = (&mut server.connection, &mut server.output);
        connection.send_message(stream, out, |out| out.resize(out.len() + 995, 7));
        assert!(!connection.is_writable(stream) && !connection.can_send(stream));
        assert_eq!(server.feed(&window_update(1, 499)), [], "501 bytes wait");
        assert!(!server.connection.is_writable(stream));
        let seen = server.feed(&window_update(1, 1));
        assert_eq!(seen[0].event, Event::Writable { stream });
        assert!(server.connection.is_writable(stream));
        assert_eq!(server.feed(&window_update(1, 500)), [], "it is told once");
    }
}

#[test]
fn a_call_waits_for_its_peer_in_any_of_these_ways() {
    let config = Config {
        stream_unsent_bytes: 1_000,
        ..Config::server()
    };
    let mut server = Endpoint::server_with(&config, &[(4, 100)]);
    let stream = requests(&server.feed(&call(1)))[0];
    assert!(server.connection.awaits_request(stream), "for its end");
    server.feed(&data(1, b"", true));
    assert!(!server.connection.awaits_request(stream));
    assert!(!server.connection.awaits_taking(stream));
    for _ in 0..2 {
        server.connection.set_pause(Pause::All);
        assert!(!server.connection.can_send(stream));
        assert!(server.connection.awaits_taking(stream), "for capacity");
        server.connection.set_pause(Pause::No);
        assert_eq!(server.feed(b"")[0].event, Event::Writable { stream });
        assert!(!server.connection.awaits_taking(stream));

        let (connection, out) = (&mut server.connection, &mut server.output);
        connection.send_message(stream, out, |out| out.resize(out.len() + 95, 7));
        assert_eq!(
            (connection.unsent_bytes(), connection.send_room(stream)),
            (0, 0)
        );
        assert!(connection.awaits_taking(stream), "for room");
        server.feed(&window_update(1, 100));
        assert!(!server.connection.awaits_taking(stream));

        let (connection, out) = (&mut server.connection, &mut server.output);
        connection.send_message(stream, out, |out| out.resize(out.len() + 1_095, 7));
        assert!(connection.awaits_taking(stream), "to take what waits");
        server.feed(&window_update(1, 1_100));
        assert!(!server.connection.awaits_taking(stream));
    }
    // A first message that is kept back.
    server.connection.set_pause(Pause::All);
    let deferred = requests(&server.feed(&unary(3, b"a")))[0];
    assert!(server.connection.awaits_taking(deferred));
    server.connection.set_pause(Pause::No);
    assert_eq!(messages(&server.feed(b"")), [b"a"]);
    assert!(!server.connection.awaits_taking(deferred));
    server.feed(&rst(1, ErrorCode::Cancel));
    assert!(
        server.connection.awaits_taking(stream),
        "it takes nothing more"
    );
}

#[test]
fn compressed_messages_are_made_at_once_up_to_a_bound_and_may_become_the_largest() {
    const MAX: usize = 200_000;
    let config = Config {
        max_message_bytes: MAX,
        ..Config::server()
    };
    let mut server = Endpoint::server_with(&config, &[]);
    server.connection.set_turn_allowance(0);
    for id in [1, 11] {
        let at_once = limits::UNPACKED_AT_ONCE_BYTES;
        let content: Vec<u8> = (0..=MAX).map(|at| (at / 100) as u8).collect();
        let seen = server.feed(&packed(id, &content[..at_once]));
        assert_eq!(messages(&seen), [&content[..at_once]]);
        let waits = server.feed(&packed(id + 2, &content[..at_once + 1]));
        assert_eq!((waits.len(), server.connection.waits_for_turn()), (1, true));
        // There has to be memory for all of it.
        let needed = server.connection.next_turn_bytes();
        assert!(needed > at_once);
        server.connection.set_turn_allowance(needed - 1);
        assert_eq!(server.feed(b""), []);
        assert!(server.connection.waits_for_turn());
        server.connection.set_turn_allowance(needed);
        assert_eq!(messages(&server.feed(b"")), [&content[..at_once + 1]]);

        server.connection.set_turn_allowance(usize::MAX);
        let largest = server.feed(&packed(id + 4, &content[..MAX]));
        assert_eq!(messages(&largest), [&content[..MAX]]);
        server.connection.set_turn_allowance(0);
        let larger = server.feed(&packed(id + 6, &content));
        let stream = stream_of(larger[1].event);
        let cause = CancelCause::MessageTooLarge;
        assert_eq!(larger[1].event, Event::Cancelled { stream, cause });
        let all = [seen, waits, largest, larger].concat();
        forget(&mut server, &requests(&all));
    }
}

#[test]
fn a_turn_needs_an_allowance_for_all_that_its_message_lacks_and_uses_it_up() {
    const BYTES: usize = 3 << 20;
    let mut server = Endpoint::server();
    for id in [1, 5] {
        server.connection.set_turn_allowance(0);
        let body = message(&vec![7; BYTES]);
        let begun = |id| [call(id), data(id, &body[..limits::MAX_FRAME_BYTES], false)].concat();
        let streams = requests(&server.feed(&[begun(id), begun(id + 2)].concat()));
        let missing = BYTES + 5 - limits::MAX_FRAME_BYTES;
        assert_eq!(server.connection.next_turn_bytes(), missing);
        server.connection.set_turn_allowance(missing - 1);
        server.feed(b"");
        assert!(server.connection.waits_for_turn() && !server.connection.has_turn());
        server.connection.set_turn_allowance(missing);
        server.feed(b"");
        assert!(server.connection.has_turn());
        let counted = 2 * limits::MAX_FRAME_BYTES + missing;
        assert_eq!(server.connection.buffered_bytes(), counted);
        // It ends, and nothing is left for the second.
        let out = &mut server.output;
        (server.connection).reset(streams[0], out, ErrorCode::Cancel);
        server.feed(b"");
        assert!(server.connection.waits_for_turn() && !server.connection.has_turn());
        assert_eq!(server.connection.next_turn_bytes(), missing);
        forget(&mut server, &streams);
        assert!(!server.connection.waits_for_turn());
        assert_eq!(server.connection.next_turn_bytes(), 0);
    }
}

/// What a block has no room for is left out, and the rest of it is sent.
#[test]
fn metadata_are_sent_as_far_as_a_block_may_be_long() {
    let most = |peer_bytes: u32| {
        let mut server = Endpoint::server_with(&Config::server(), &[(6, peer_bytes)]);
        let mut id = 1;
        let mut is_sent = |bytes: usize| {
            let stream = requests(&server.feed(&unary(id, b"a")))[0];
            id += 2;
            server.frames();
            let mut metadata = Metadata::new();
            let value = "~".repeat(bytes);
            metadata.push_ascii("x-long", value).expect("valid");
            metadata.push_ascii("x-short", "1").expect("valid");
            let status = Status::new(Code::NotFound, "nothing").with_metadata(metadata);
            let (connection, out) = (&mut server.connection, &mut server.output);
            connection.finish(stream, out, &status);
            let frames = server.frames();
            assert_eq!((frames.len(), frames[0].flags & flag::END_HEADERS), (1, 4));
            assert!(frames[0].payload.len() <= limits::MAX_SENT_BLOCK_BYTES);
            let fields = server.decode(&frames[0]);
            let has = |name: &str| fields.iter().any(|field| field.0 == name);
            assert!(has("grpc-status") && has("grpc-message"), "{bytes}");
            if bytes < 1_000 {
                assert!(has("x-short"));
            }
            has("x-long")
        };
        let (mut sent, mut not_sent) = (0, limits::MAX_SENT_BLOCK_BYTES);
        while not_sent - sent > 1 {
            let bytes = (sent + not_sent) / 2;
            if is_sent(bytes) {
                sent = bytes;
            } else {
                not_sent = bytes;
            }
        }
        // As if it were in base64, and with some room for the fields before it.
        sent * 4 / 3
    };
    for (peer_bytes, bound) in [
        (u32::MAX, limits::MAX_SENT_BLOCK_BYTES),
        (
            2 * limits::MAX_SENT_BLOCK_BYTES as u32 + 2,
            limits::MAX_SENT_BLOCK_BYTES,
        ),
        (8_192, 4_096),
    ] {
        let most = most(peer_bytes);
        assert!(most < bound && most > bound - 120, "{most} of {bound}");
    }
}
