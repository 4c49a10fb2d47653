//! The preface, SETTINGS, PING and GOAWAY. RFC 9113 sections 3.4, 6.5, 6.7 and 6.8.

use crate::support::*;
use wire::grpc::Status;
use wire::http2::frame::{PREFACE, flag, kind};
use wire::{CloseReason, Config, ErrorCode, Event};

#[test]
fn the_first_bytes_of_both_sides() {
    let mut server = Endpoint::new(&Config::server());
    let frames = server.frames();
    assert_eq!(frames[0].kind, kind::SETTINGS);
    assert_eq!(
        (frames[1].kind, frames[1].stream, number(&frames[1].payload)),
        (kind::WINDOW_UPDATE, 0, (1 << 20) - 65_535)
    );
    let client = Endpoint::new(&Config::client());
    assert!(client.output.starts_with(PREFACE));
    assert_eq!(
        frames_of(&client.output[PREFACE.len()..])[0].kind,
        kind::SETTINGS
    );
}

#[test]
fn the_preface_may_come_byte_by_byte() {
    let mut server = Endpoint::new(&Config::server());
    server.output.clear();
    for byte in [&PREFACE[..], &settings(&[]), &headers(1, &GET, true)].concat() {
        server.feed(&[byte]);
    }
    let frames = server.frames();
    assert_eq!(
        (frames[0].kind, frames[0].flags),
        (kind::SETTINGS, flag::ACK)
    );
    assert_eq!(server.connection.running(), 1);
}

#[test]
fn a_wrong_preface_ends_the_connection_at_its_first_wrong_byte() {
    for at in 0..PREFACE.len() {
        let mut server = Endpoint::new(&Config::server());
        let mut preface = PREFACE[..=at].to_vec();
        preface[at] ^= 1;
        server.feed(&preface);
        server.assert_closed(ErrorCode::ProtocolError);
    }
}

#[test]
fn the_first_frame_must_be_settings() {
    for first in [
        frame(kind::PING, 0, 0, &[0; 8]),
        frame(kind::SETTINGS, flag::ACK, 0, &[]),
        headers(1, &GET, true),
    ] {
        let mut server = Endpoint::new(&Config::server());
        assert_eq!(server.feed(&[&PREFACE[..], &first].concat()), []);
        server.assert_closed(ErrorCode::ProtocolError);
    }
}

#[test]
fn the_first_frame_of_a_server_must_be_settings() {
    for first in [
        frame(kind::PING, 0, 0, &[0; 8]),
        frame(kind::SETTINGS, flag::ACK, 0, &[]),
        frame(kind::GOAWAY, 0, 0, &[0; 8]),
        frame(0x16, 0, 0, b"whatever"),
        window_update(0, 1),
    ] {
        let mut client = Endpoint::new(&Config::client());
        client.output.clear();
        assert_eq!(client.feed(&[first, settings(&[])].concat()), []);
        client.assert_closed(ErrorCode::ProtocolError);
        assert!(!client.connection.has_peer_settings());
    }
}

#[test]
fn settings_with_errors_end_the_connection() {
    for (bytes, code) in [
        (
            frame(kind::SETTINGS, flag::ACK, 0, &[0; 6]),
            ErrorCode::FrameSizeError,
        ),
        (
            frame(kind::SETTINGS, 0, 0, &[0; 5]),
            ErrorCode::FrameSizeError,
        ),
        (frame(kind::SETTINGS, 0, 1, &[]), ErrorCode::ProtocolError),
        (settings(&[(2, 2)]), ErrorCode::ProtocolError),
        (settings(&[(4, 1 << 31)]), ErrorCode::FlowControlError),
        (settings(&[(5, 1)]), ErrorCode::ProtocolError),
    ] {
        let mut server = Endpoint::server();
        server.feed(&bytes);
        server.assert_closed(code);
    }
}

#[test]
fn ping_is_answered_with_its_bytes() {
    let mut server = Endpoint::server();
    server.feed(&frame(kind::PING, 0, 0, b"12345678"));
    assert_eq!(
        server.frames(),
        [Frame {
            kind: kind::PING,
            flags: flag::ACK,
            stream: 0,
            payload: b"12345678".to_vec()
        }]
    );
    server.feed(&frame(kind::PING, flag::ACK, 0, b"12345678"));
    assert_eq!(server.frames(), []);
    for (bytes, code) in [
        (frame(kind::PING, 0, 1, &[0; 8]), ErrorCode::ProtocolError),
        (frame(kind::PING, 0, 0, &[0; 7]), ErrorCode::FrameSizeError),
    ] {
        let mut server = Endpoint::server();
        server.feed(&bytes);
        server.assert_closed(code);
    }
}

#[test]
fn unknown_frames_and_settings_are_ignored() {
    let mut server = Endpoint::server();
    server.feed(
        &[
            frame(0x16, 0xff, 7, b"whatever"),
            settings(&[(0x99, 1)]),
            frame(kind::PING, 0, 0, &[1; 8]),
        ]
        .concat(),
    );
    assert_eq!(
        server.frames().last().map(|frame| frame.kind),
        Some(kind::PING)
    );
}

#[test]
fn the_goaway_of_a_client_lets_its_calls_end() {
    let mut server = Endpoint::server();
    let seen = server.feed(&unary(1, b"a"));
    server.feed(&frame(kind::GOAWAY, 0, 0, &[0, 0, 0, 0, 0, 0, 0, 0x77]));
    let stream = requests(&seen)[0];
    server
        .connection
        .respond(stream, &mut server.output, |out| out.push(1));
    assert_eq!(
        server
            .frames()
            .iter()
            .filter(|frame| frame.ends_stream())
            .count(),
        1
    );
    server.feed(&frame(kind::PING, 0, 0, &[0; 8]));
    assert_eq!(server.frames_of_kind(kind::PING).len(), 1);
}

#[test]
fn draining_takes_what_is_on_its_way_and_nothing_more() {
    let mut server = Endpoint::server();
    let first = requests(&server.feed(&unary(1, b"a")))[0];
    server.connection.drain(&mut server.output, 0);
    server.connection.drain(&mut server.output, 0);
    let frames = server.frames();
    assert_eq!(frames.len(), 2, "once: {frames:?}");
    assert_eq!(
        (frames[0].kind, number(&frames[0].payload)),
        (kind::GOAWAY, 0x7fff_ffff)
    );
    let ping = frames[1].clone();

    // Sent before the client heard of it.
    let second = requests(&server.feed(&unary(3, b"b")))[0];
    server.feed(&frame(kind::PING, flag::ACK, 0, &ping.payload));
    let goaway = server.frames();
    assert_eq!(
        (goaway[0].kind, goaway[0].code(), number(&goaway[0].payload)),
        (kind::GOAWAY, ErrorCode::NoError, 3)
    );

    // A stream above it is ignored, also its DATA and trailers.
    assert_eq!(
        server.feed(&[unary(5, b"c"), headers(5, &[("a", "b")], true)].concat()),
        []
    );
    assert_eq!(server.frames(), []);
    assert_eq!(server.connection.close_reason(), None);
    for stream in [first, second] {
        server
            .connection
            .finish(stream, &mut server.output, &Status::OK);
    }
    assert_eq!(
        server.connection.close_reason(),
        Some(&CloseReason::Drained)
    );
}

#[test]
fn draining_does_not_wait_for_a_silent_client() {
    let mut server = Endpoint::server();
    server.connection.drain(&mut server.output, 0);
    server.frames();
    server.advance_ms(1_000);
    server.tick();
    assert_eq!(server.frames_of_kind(kind::GOAWAY).len(), 1);
    assert_eq!(
        server.connection.close_reason(),
        Some(&CloseReason::Drained)
    );
}

#[test]
fn a_closed_transport_cancels_every_call_once() {
    let mut server = Endpoint::server();
    let seen = server.feed(&[unary(1, b"a"), unary(3, b"b"), call(5)].concat());
    let streams = requests(&seen);
    server
        .connection
        .respond(streams[0], &mut server.output, |_| {});
    server.connection.peer_closed();
    let seen = server.feed(b"what comes now is not looked at");
    assert_eq!(seen.len(), 2);
    assert!(
        seen.iter()
            .all(|seen| matches!(seen.event, Event::Cancelled { .. }))
    );
    for seen in &seen {
        server.connection.forget(stream_of(seen.event));
    }
    assert_eq!(server.connection.running(), 0);
    assert_eq!(
        server.connection.close_reason(),
        Some(&CloseReason::PeerGone)
    );
    assert!(server.input.is_empty());
}
