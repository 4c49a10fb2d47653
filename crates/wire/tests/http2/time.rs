//! What happens by time.

use crate::support::*;
use wire::http2::frame::{PREFACE, flag, kind};
use wire::{Config, ErrorCode, RequestHead};

#[test]
fn the_preface_and_the_acknowledgement_have_a_time() {
    let mut server = Endpoint::new(&Config::server());
    server.feed(&PREFACE[..10]);
    server.advance_ms(9_999);
    server.tick();
    assert_eq!(server.error(), None);
    server.advance_ms(1);
    server.tick();
    server.assert_closed(ErrorCode::ProtocolError);

    let mut server = Endpoint::new(&Config::server());
    server.advance_ms(5_000);
    server.feed(&[&PREFACE[..], &settings(&[])].concat());
    server.advance_ms(9_999);
    server.tick();
    assert_eq!(server.error(), None);
    server.advance_ms(1);
    server.tick();
    server.assert_closed(ErrorCode::SettingsTimeout);
}

#[test]
fn silence_is_followed_by_a_ping_and_then_by_the_end() {
    let mut server = Endpoint::server();
    server.advance_ms(59_999);
    server.tick();
    assert_eq!(server.frames(), []);
    server.advance_ms(1);
    server.tick();
    let ping = server.frames_of_kind(kind::PING);
    assert_eq!(ping.len(), 1);
    server.advance_ms(19_000);
    server.feed(&frame(kind::PING, flag::ACK, 0, &ping[0].payload));
    server.advance_ms(59_999);
    server.tick();
    assert_eq!(server.frames(), []);
    server.advance_ms(1);
    server.tick();
    server.advance_ms(20_000);
    server.tick();
    server.assert_closed(ErrorCode::NoError);
}

#[test]
fn a_frame_that_never_ends_is_silence() {
    let mut server = Endpoint::server();
    let bytes = data(1, &[0; 10_000], false);
    for byte in &bytes[..80] {
        server.feed(&[*byte]);
        server.advance_ms(1_000);
        server.tick();
    }
    server.assert_closed(ErrorCode::NoError);
}

#[test]
fn calls_to_which_nothing_is_owed_may_wait_forever() {
    let mut server = Endpoint::server();
    server.feed(&call(1));
    for _ in 0..100 {
        server.advance_ms(60_000);
        server.tick();
        for ping in server.frames_of_kind(kind::PING) {
            server.feed(&frame(kind::PING, flag::ACK, 0, &ping.payload));
        }
    }
    assert_eq!((server.error(), server.connection.running()), (None, 1));
}

/// What a silent connection gives back is not what it must know: a stream may have been reset a moment before.
#[test]
fn a_late_answer_is_dropped_also_after_a_silence() {
    let mut client = Endpoint::client_with(&Config::client(), &[]);
    client.advance_ms(59_999);
    let head = RequestHead::call("localhost", "/a.B/C");
    let stream = client
        .connection
        .open(&mut client.output, &head)
        .expect("a stream");
    client
        .connection
        .reset(stream, &mut client.output, ErrorCode::Cancel);
    client.advance_ms(1);
    client.tick();
    assert_eq!(client.frames_of_kind(kind::PING).len(), 1);
    let fields = [(":status", "200"), ("content-type", "application/grpc")];
    assert_eq!(client.feed(&headers(stream.id, &fields, false)), []);
    assert_eq!(client.error(), None);
}

#[test]
fn a_connection_that_idles_is_small() {
    let mut server = Endpoint::server();
    for round in 0..200 {
        let bytes: Vec<_> = (0..20)
            .flat_map(|at| unary((round * 20 + at) * 2 + 1, &[1; 1_000]))
            .collect();
        for stream in requests(&server.feed(&bytes)) {
            server
                .connection
                .respond(stream, &mut server.output, |out| {
                    out.resize(out.len() + 1_000, 0)
                });
        }
        server.output.clear();
        server.feed(&window_update(0, 20 * 1_005));
    }
    server.advance_ms(60_000);
    server.tick();
    let bytes = server.connection.memory_bytes();
    assert!(bytes <= 8 << 10, "{bytes} bytes");
    assert_eq!(
        requests(&server.feed(&unary(99_999, b"a"))).len(),
        1,
        "and goes on"
    );
}
