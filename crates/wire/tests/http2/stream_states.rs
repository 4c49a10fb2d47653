//! Frames in every state of a stream. RFC 9113 section 5.1.

use crate::support::*;
use wire::grpc::Status;
use wire::http2::frame::{flag, kind};
use wire::{CancelCause, Config, ErrorCode, Event, RequestHead};

#[test]
fn frames_on_idle_streams_end_the_connection() {
    for bytes in [
        data(1, b"abc", true),
        rst(1, ErrorCode::Cancel),
        window_update(1, 1),
        frame(kind::CONTINUATION, flag::END_HEADERS, 1, &block(&GET)),
        data(2, b"abc", true),
        rst(2, ErrorCode::Cancel),
        frame(kind::PUSH_PROMISE, flag::END_HEADERS, 1, &[0, 0, 0, 2]),
    ] {
        let mut server = Endpoint::server();
        server.feed(&bytes);
        server.assert_closed(ErrorCode::ProtocolError);
    }
}

#[test]
fn frames_on_stream_0_that_need_a_stream() {
    for kind in [
        kind::DATA,
        kind::HEADERS,
        kind::PRIORITY,
        kind::RST_STREAM,
        kind::CONTINUATION,
    ] {
        let mut server = Endpoint::server();
        let payload: &[u8] = if kind == kind::RST_STREAM {
            &[0; 4]
        } else {
            &[0; 5]
        };
        server.feed(&frame(kind, flag::END_HEADERS, 0, payload));
        server.assert_closed(ErrorCode::ProtocolError);
    }
}

/// SETTINGS and PING are about the connection also if they acknowledge.
#[test]
fn frames_of_the_connection_on_a_stream() {
    for (kind, flags, payload) in [
        (kind::SETTINGS, 0, &[][..]),
        (kind::SETTINGS, 0, &[0, 4, 0, 0, 0, 1]),
        (kind::SETTINGS, flag::ACK, &[]),
        (kind::PING, 0, &[0; 8]),
        (kind::PING, flag::ACK, &[0; 8]),
        (kind::GOAWAY, 0, &[0; 8]),
    ] {
        // One that is open, one that is idle, and one that a client never opens.
        for stream in [1, 3, 2] {
            let mut server = Endpoint::server();
            server.feed(&call(1));
            server.feed(&frame(kind, flags, stream, payload));
            server.assert_closed(ErrorCode::ProtocolError);

            let mut client = Endpoint::client_with(&Config::client(), &[]);
            let head = RequestHead::call("here", "/a.B/C");
            let opened = client.connection.open(&mut client.output, &head);
            assert_eq!(opened.map(|stream| stream.id), Ok(1));
            client.feed(&frame(kind, flags, stream, payload));
            client.assert_closed(ErrorCode::ProtocolError);
        }
    }
}

#[test]
fn priority_is_checked_and_dropped() {
    let mut server = Endpoint::server();
    server.feed(&frame(kind::PRIORITY, 0, 1, &[0, 0, 0, 3, 16]));
    assert_eq!(server.frames(), []);
    server.feed(&call(3));
    let seen = server.feed(&frame(kind::PRIORITY, 0, 3, &[0x80, 0, 0, 3, 16]));
    assert!(matches!(
        seen[0].event,
        Event::Cancelled {
            cause: CancelCause::Violation(ErrorCode::ProtocolError),
            ..
        }
    ));
    server.assert_reset(3, ErrorCode::ProtocolError);
    server.feed(&frame(kind::PRIORITY, 0, 3, &[0; 4]));
    server.assert_closed(ErrorCode::FrameSizeError);
}

/// Only a stream that is open is reset for a priority that names itself.
#[test]
fn no_stream_is_reset_that_is_idle_or_closed() {
    let on_itself = |id: u8| frame(kind::PRIORITY, 0, u32::from(id), &[0, 0, 0, id, 16]);
    for idle in [1, 2, 5] {
        let mut server = Endpoint::server();
        assert_eq!(server.feed(&on_itself(idle)), []);
        assert_eq!(server.error(), Some(ErrorCode::ProtocolError));
        assert_eq!(server.frames_of_kind(kind::RST_STREAM), []);
    }
    let mut server = Endpoint::server();
    let streams = requests(&server.feed(&[unary(1, b"a"), unary(3, b"b")].concat()));
    for stream in &streams {
        let (connection, out) = (&mut server.connection, &mut server.output);
        connection.respond(*stream, out, |_| {});
    }
    server.frames();
    for id in [1, 3, 1] {
        assert_eq!(server.feed(&on_itself(id)), []);
        assert_eq!((server.frames(), server.error()), (vec![], None));
    }
    assert_eq!(server.connection.running(), 0);
}

/// The last identifier may be used once; none is left behind it.
#[test]
fn no_stream_follows_the_last_identifier() {
    const LAST: u32 = 0x7fff_ffff;
    for (next, code) in [
        (LAST, ErrorCode::StreamClosed),
        (LAST - 2, ErrorCode::ProtocolError),
        (1, ErrorCode::ProtocolError),
    ] {
        let mut server = Endpoint::server();
        let stream = requests(&server.feed(&unary(LAST, b"a")))[0];
        let (connection, out) = (&mut server.connection, &mut server.output);
        connection.respond(stream, out, |_| {});
        server.frames();
        assert_eq!(server.feed(&headers(next, &CALL, false)), []);
        server.assert_closed(code);
        assert_eq!(server.connection.running(), 0);
    }
}

#[test]
fn half_closed_remote_takes_only_control_frames() {
    for bytes in [data(1, b"", true), headers(1, &[("a", "b")], true)] {
        let mut server = Endpoint::server();
        server.feed(&unary(1, b"a"));
        server.feed(&bytes);
        server.assert_closed(ErrorCode::StreamClosed);
    }
    let mut server = Endpoint::server();
    server.feed(&unary(1, b"a"));
    server.feed(&[window_update(1, 1), frame(kind::PRIORITY, 0, 1, &[0; 5])].concat());
    assert_eq!(server.connection.close_reason(), None);
    let seen = server.feed(&rst(1, ErrorCode::Cancel));
    assert!(matches!(
        seen[0].event,
        Event::Cancelled {
            cause: CancelCause::Reset(ErrorCode::Cancel),
            ..
        }
    ));
}

#[test]
fn closed_by_both_sides() {
    let closed = || {
        let mut server = Endpoint::server();
        let stream = requests(&server.feed(&unary(1, b"a")))[0];
        server
            .connection
            .respond(stream, &mut server.output, |_| {});
        server.frames();
        server
    };
    let mut server = closed();
    server.feed(&data(1, b"late", true));
    server.assert_reset(1, ErrorCode::StreamClosed);
    server.feed(
        &[
            window_update(1, 1),
            rst(1, ErrorCode::Cancel),
            frame(kind::PRIORITY, 0, 1, &[0; 5]),
        ]
        .concat(),
    );
    assert_eq!(
        (server.frames(), server.connection.close_reason()),
        (vec![], None)
    );
    let mut server = closed();
    server.feed(&headers(1, &GET, true));
    server.assert_closed(ErrorCode::StreamClosed);
}

#[test]
fn closed_by_the_peers_reset() {
    let mut server = Endpoint::server();
    server.feed(&call(1));
    server.feed(&[rst(1, ErrorCode::Cancel), data(1, b"abc", true)].concat());
    server.assert_reset(1, ErrorCode::StreamClosed);
    server.feed(&headers(1, &GET, true));
    server.assert_closed(ErrorCode::StreamClosed);
}

#[test]
fn closed_by_our_reset_late_frames_are_dropped() {
    let mut server = Endpoint::server();
    let stream = requests(&server.feed(&call(1)))[0];
    server
        .connection
        .reset(stream, &mut server.output, ErrorCode::Cancel);
    server.assert_reset(1, ErrorCode::Cancel);
    let late = [
        data(1, b"abc", false),
        window_update(1, 1),
        headers(1, &[("a", "b")], true),
        rst(1, ErrorCode::Cancel),
    ];
    assert_eq!(server.feed(&late.concat()), []);
    assert_eq!(
        (server.frames(), server.connection.close_reason()),
        (vec![], None)
    );
    assert_eq!(server.connection.running(), 0);
}

#[test]
fn finishing_before_the_peer_has_ended_asks_it_to_stop() {
    let mut server = Endpoint::server();
    let stream = requests(&server.feed(&call(1)))[0];
    server
        .connection
        .finish(stream, &mut server.output, &Status::OK);
    let frames = server.frames();
    assert!(frames[0].ends_stream());
    assert_eq!(
        (frames[1].kind, frames[1].code()),
        (kind::RST_STREAM, ErrorCode::NoError)
    );
    assert_eq!(server.feed(&data(1, &message(b"late"), true)), []);
    assert_eq!(server.frames(), []);
}

#[test]
fn identifiers_go_up_and_are_odd() {
    let mut server = Endpoint::server();
    server.feed(&headers(2, &GET, true));
    server.assert_closed(ErrorCode::ProtocolError);
    let mut server = Endpoint::server();
    server.feed(&[headers(5, &GET, true), headers(3, &GET, true)].concat());
    server.assert_closed(ErrorCode::ProtocolError);
}

#[test]
fn frame_sizes_are_checked() {
    for (bytes, code) in [
        (
            frame(kind::RST_STREAM, 0, 1, &[0; 3]),
            ErrorCode::FrameSizeError,
        ),
        (
            frame(kind::WINDOW_UPDATE, 0, 1, &[0; 5]),
            ErrorCode::FrameSizeError,
        ),
        (
            frame(kind::GOAWAY, 0, 0, &[0; 7]),
            ErrorCode::FrameSizeError,
        ),
        (frame(kind::GOAWAY, 0, 1, &[0; 8]), ErrorCode::ProtocolError),
        (
            frame(kind::DATA, 0, 1, &[0; 16_385]),
            ErrorCode::FrameSizeError,
        ),
        (
            frame(kind::HEADERS, flag::PADDED, 3, &[]),
            ErrorCode::FrameSizeError,
        ),
        (
            frame(kind::HEADERS, flag::PRIORITY, 3, &[0; 4]),
            ErrorCode::FrameSizeError,
        ),
        (
            frame(kind::DATA, flag::PADDED, 1, &[]),
            ErrorCode::FrameSizeError,
        ),
        (
            frame(kind::DATA, flag::PADDED, 1, &[3, 0, 0]),
            ErrorCode::ProtocolError,
        ),
        (
            frame(kind::HEADERS, flag::PADDED, 3, &[3, 0, 0]),
            ErrorCode::ProtocolError,
        ),
    ] {
        let mut server = Endpoint::server();
        server.feed(&call(1));
        server.feed(&bytes);
        server.assert_closed(code);
    }
}

#[test]
fn a_cancelled_call_counts_until_its_last_call() {
    let config = Config {
        max_streams: 2,
        ..Config::server()
    };
    let mut server = Endpoint::server_with(&config, &[]);
    let seen = server.feed(
        &[
            call(1),
            rst(1, ErrorCode::Cancel),
            call(3),
            rst(3, ErrorCode::Cancel),
        ]
        .concat(),
    );
    let streams = requests(&seen);
    server.frames();
    server.feed(&call(5));
    server.assert_reset(5, ErrorCode::RefusedStream);
    // Each of the last calls will do, and does nothing else.
    server.connection.forget(streams[0]);
    server
        .connection
        .respond(streams[1], &mut server.output, |_| {
            panic!("nothing is encoded for a dead stream")
        });
    assert_eq!(server.frames(), []);
    assert_eq!(server.connection.running(), 0);
    assert_eq!(requests(&server.feed(&call(7))).len(), 1);
}

#[test]
fn calls_on_streams_that_are_gone_do_nothing() {
    let mut server = Endpoint::server();
    let stream = requests(&server.feed(&unary(1, b"a")))[0];
    server
        .connection
        .respond(stream, &mut server.output, |_| {});
    server.frames();
    let out = &mut server.output;
    server.connection.respond(stream, out, |_| panic!("gone"));
    server
        .connection
        .send_message(stream, out, |_| panic!("gone"));
    server.connection.finish(stream, out, &Status::OK);
    server.connection.reset(stream, out, ErrorCode::Cancel);
    server.connection.send_plain(stream, out, 200, &[], b"a");
    server.connection.release(stream, out);
    server.connection.hold(stream, true);
    server.connection.forget(stream);
    server.connection.set_token(stream, 1);
    assert_eq!(
        (
            server.connection.token(stream),
            server.connection.can_send(stream)
        ),
        (0, false)
    );
    assert_eq!(server.frames(), []);
}
