//! What happens by time.

use crate::support::*;
use wire::http2::frame::{PREFACE, flag, kind};
use wire::{Config, ErrorCode, Event, RequestHead, limits};

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

/// gRPC over HTTP/2, "Timeout": a server assumes an infinite one.
#[test]
fn a_call_without_a_timeout_may_take_any_time() {
    let mut server = Endpoint::server();
    for id in [1, 3] {
        let mut timeout_ns = Some(0);
        let seen = server.feed_with(&unary(id, b"a"), |connection, seen, _| {
            if matches!(seen.event, Event::Request { .. }) {
                timeout_ns = connection.head().timeout_ns();
            }
        });
        assert_eq!(timeout_ns, None);
        let stream = requests(&seen)[0];
        for _ in 0..1_000 {
            let deadline_ns = server.connection.next_deadline_ns().expect("a keepalive");
            server.now_ns = deadline_ns.max(server.now_ns);
            server.tick();
            for ping in server.frames_of_kind(kind::PING) {
                let ack = frame(kind::PING, flag::ACK, 0, &ping.payload);
                assert_eq!(server.feed(&ack), []);
            }
        }
        assert!(
            server.now_ns > u64::from(id) * 3_600_000 * MS,
            "hours passed"
        );
        let (connection, out) = (&mut server.connection, &mut server.output);
        connection.respond(stream, out, |out| out.push(7));
        let frames = server.frames();
        assert!(frames.last().expect("trailers").ends_stream());
        assert_eq!((server.error(), server.connection.running()), (None, 0));
    }
}

/// What a silent connection gives back is not what it must know: a stream may have been reset a
/// moment before.
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

#[test]
fn who_sends_on_after_the_answer_to_a_plain_request_is_told_later_to_stop() {
    let mut put = GET;
    put[0].1 = "PUT";
    let answered = |server: &mut Endpoint, id: u32| {
        let stream = requests(&server.feed(&headers(id, &put, false)))[0];
        let out = &mut server.output;
        server.connection.send_plain(stream, out, 507, &[], b"full");
        let frames = server.frames();
        assert!(frames.last().is_some_and(Frame::ends_stream));
        assert!(frames.iter().all(|frame| frame.kind != kind::RST_STREAM));
    };
    let mut server = Endpoint::server();
    for id in [1, 3, 5] {
        answered(&mut server, id);
    }
    // One goes on, one ends, one is given up.
    server.feed(&data(1, &[0; 10_000], false));
    server.feed(&data(3, &[0; 10_000], true));
    server.feed(&rst(5, ErrorCode::Cancel));
    server.advance_ms(999);
    server.tick();
    assert_eq!(server.frames_of_kind(kind::RST_STREAM), []);
    server.advance_ms(1);
    server.tick();
    let resets = server.frames_of_kind(kind::RST_STREAM);
    let told: Vec<_> = resets.iter().map(|one| (one.stream, one.code())).collect();
    assert_eq!(told, [(1, ErrorCode::NoError)]);
    // What it sent meanwhile is let go.
    server.feed(&data(1, &[0; 10_000], true));
    assert_eq!((server.frames(), server.error()), (vec![], None));
}

#[test]
fn of_many_plain_requests_that_go_on_the_last_are_told_at_once() {
    let mut put = GET;
    put[0].1 = "PUT";
    let mut server = Endpoint::server();
    let mut told_at_once = 0;
    for id in (1..).step_by(2).take(limits::LINGERING_STREAMS + 3) {
        let stream = requests(&server.feed(&headers(id, &put, false)))[0];
        let out = &mut server.output;
        server.connection.send_plain(stream, out, 507, &[], b"full");
        told_at_once += server.frames_of_kind(kind::RST_STREAM).len();
    }
    assert_eq!(told_at_once, 3);
    server.advance_ms(limits::LINGER_MS);
    server.tick();
    let resets = server.frames_of_kind(kind::RST_STREAM);
    assert_eq!(resets.len(), limits::LINGERING_STREAMS);
}

/// A connection without keepalive, so that the next deadline is what it waits for.
fn without_keepalive(config: Config) -> Config {
    Config {
        keepalive_ms: 0,
        ..config
    }
}

/// Each of them goes when what it waits for has come, and stands again with the next: everything
/// twice.
#[test]
fn a_deadline_stands_exactly_while_something_is_awaited() {
    let config = without_keepalive(Config::server());
    let mut server = Endpoint::new(&config);
    let next_ms = |server: &Endpoint| {
        let deadline_ns = server.connection.next_deadline_ns()?;
        Some((deadline_ns - server.now_ns) / MS)
    };
    assert_eq!(next_ms(&server), Some(limits::PREFACE_TIMEOUT_MS));
    server.advance_ms(7);
    server.feed(PREFACE);
    assert_eq!(next_ms(&server), Some(limits::SETTINGS_ACK_TIMEOUT_MS));
    let ack = frame(kind::SETTINGS, flag::ACK, 0, &[]);
    server.feed(&[settings(&[(4, 10)]), ack].concat());
    assert_eq!(next_ms(&server), None);
    for id in [1, 3] {
        server.advance_ms(100_000);
        let head = block(&CALL);
        server.feed(&frame(kind::HEADERS, 0, id, &head[..3]));
        assert_eq!(next_ms(&server), Some(limits::HEADER_BLOCK_TIMEOUT_MS));
        let rest = frame(kind::CONTINUATION, flag::END_HEADERS, id, &head[3..]);
        let stream = requests(&server.feed(&rest))[0];
        assert_eq!(next_ms(&server), None);

        let body = message(&[7; 100_000]);
        server.feed(&data(id, &body[..16_000], false));
        // Its turn comes, which lapses; then the rest is awaited for longer.
        assert_eq!(next_ms(&server), Some(limits::TURN_LAPSE_MS));
        server.advance_ms(limits::TURN_LAPSE_MS);
        server.tick();
        let awaited_ms = limits::NO_PROGRESS_TIMEOUT_MS - limits::TURN_LAPSE_MS;
        assert_eq!(next_ms(&server), Some(awaited_ms));
        for piece in body[16_000..].chunks(16_000) {
            server.feed(&data(id, piece, false));
        }
        assert_eq!(next_ms(&server), None);

        // Ten bytes fit into the window.
        let (connection, out) = (&mut server.connection, &mut server.output);
        connection.send_message(stream, out, |out| out.extend_from_slice(&[8; 100]));
        assert_eq!(next_ms(&server), Some(limits::NO_PROGRESS_TIMEOUT_MS));
        server.feed(&window_update(id, 95));
        assert_eq!(next_ms(&server), None);
    }
    let mut put = GET;
    put[0].1 = "PUT";
    for id in [5, 7] {
        let stream = requests(&server.feed(&headers(id, &put, false)))[0];
        let (connection, out) = (&mut server.connection, &mut server.output);
        connection.send_plain(stream, out, 507, &[], b"");
        assert_eq!(next_ms(&server), Some(limits::LINGER_MS));
        server.advance_ms(limits::LINGER_MS);
        server.tick();
        assert_eq!(next_ms(&server), None);
    }
    server.frames();
    let (connection, out) = (&mut server.connection, &mut server.output);
    connection.drain(out, server.now_ns);
    assert_eq!(next_ms(&server), Some(limits::DRAIN_PING_TIMEOUT_MS));
    let ping = server.frames_of_kind(kind::PING);
    server.feed(&frame(kind::PING, flag::ACK, 0, &ping[0].payload));
    assert_eq!(next_ms(&server), None);
}

#[test]
fn a_block_that_ended_in_time_is_not_late_afterwards() {
    let mut server = Endpoint::server();
    let head = block(&CALL);
    for id in [1, 3] {
        server.feed(&frame(kind::HEADERS, 0, id, &head[..3]));
        server.advance_ms(limits::HEADER_BLOCK_TIMEOUT_MS - 1);
        server.tick();
        let rest = frame(kind::CONTINUATION, flag::END_HEADERS, id, &head[3..]);
        assert_eq!(requests(&server.feed(&rest)).len(), 1);
        server.advance_ms(1);
        server.tick();
        assert_eq!(server.error(), None);
    }
    server.feed(&frame(kind::HEADERS, 0, 5, &head[..3]));
    server.advance_ms(limits::HEADER_BLOCK_TIMEOUT_MS);
    server.tick();
    server.assert_closed(ErrorCode::EnhanceYourCalm);
}

#[test]
fn without_keepalive_silence_may_last_forever() {
    let mut server = Endpoint::server_with(&without_keepalive(Config::server()), &[]);
    for _ in 0..3 {
        assert_eq!(server.connection.next_deadline_ns(), None);
        server.advance_ms(1_000_000_000);
        // Asked although nothing is due.
        (server.connection).deadline_passed(&mut server.output, server.now_ns);
        assert_eq!((server.frames(), server.error()), (vec![], None));
    }
}
