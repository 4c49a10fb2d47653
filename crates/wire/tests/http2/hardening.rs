//! Attacks, each with the limit that stops it. One test for each row of the list of known attacks.

use crate::support::*;
use wire::hpack::{Encoder, Indexing};
use wire::http2::frame::{PREFACE, flag, kind};
use wire::{CancelCause, Config, ErrorCode, Event, limits};

/// Feeds what `attack` makes, round after round, and returns how many rounds it took to be cut off.
fn rounds_until_closed(
    server: &mut Endpoint,
    max: u32,
    mut attack: impl FnMut(u32) -> Vec<u8>,
) -> u32 {
    for round in 0..max {
        let seen = server.feed(&attack(round));
        for seen in seen {
            if let Event::Cancelled { stream, .. } = seen.event {
                server.connection.forget(stream);
            }
        }
        if server.connection.close_reason().is_some() {
            return round;
        }
        server.output.clear();
    }
    panic!("{max} rounds, and nothing happened");
}

#[test]
fn rapid_reset() {
    let mut server = Endpoint::server();
    let rounds = rounds_until_closed(&mut server, 5_000, |round| {
        [call(round * 2 + 1), rst(round * 2 + 1, ErrorCode::Cancel)].concat()
    });
    assert_eq!(rounds, limits::RESET_BURST);
    server.assert_closed(ErrorCode::EnhanceYourCalm);
}

#[test]
fn resets_that_cross_our_own_cost_nothing() {
    // A call that is answered before the client has sent all ends with RST_STREAM from both sides.
    let mut server = Endpoint::server();
    for round in 0..20_000 {
        let id = round * 2 + 1;
        let stream = requests(&server.feed(&call(id)))[0];
        server
            .connection
            .finish(stream, &mut server.output, &wire::grpc::Status::OK);
        server.output.clear();
        server.feed(&rst(id, ErrorCode::Cancel));
    }
    assert_eq!(server.error(), None);
}

#[test]
fn resets_at_a_modest_rate_go_on_forever() {
    let mut server = Endpoint::server();
    for round in 0..5_000 {
        server.advance_ms(1_000 / u64::from(limits::RESETS_PER_SECOND) + 1);
        let seen =
            server.feed(&[call(round * 2 + 1), rst(round * 2 + 1, ErrorCode::Cancel)].concat());
        server.connection.forget(requests(&seen)[0]);
    }
    assert_eq!(server.error(), None);
}

#[test]
fn running_work_counts_after_a_reset() {
    let config = Config {
        max_streams: 100,
        ..Config::server()
    };
    let mut server = Endpoint::server_with(&config, &[]);
    let mut begun = 0;
    for round in 0..500 {
        begun += requests(
            &server.feed(&[call(round * 2 + 1), rst(round * 2 + 1, ErrorCode::Cancel)].concat()),
        )
        .len();
        assert!(server.connection.running() <= 100);
    }
    // The handlers never ended, so that no more than the limit ever began.
    assert_eq!(begun, 100);
}

#[test]
fn made_you_reset() {
    // The server's own resets cost as much as the peer's. Six ways, of which four end the
    // connection at once.
    let mut server = Endpoint::server();
    let rounds = rounds_until_closed(&mut server, 5_000, |round| {
        [
            call(round * 2 + 1),
            frame(
                kind::WINDOW_UPDATE,
                0,
                round * 2 + 1,
                &0x7fff_ffff_u32.to_be_bytes(),
            ),
        ]
        .concat()
    });
    assert_eq!(rounds, limits::RESET_BURST);
    server.assert_closed(ErrorCode::EnhanceYourCalm);

    let mut server = Endpoint::server();
    let rounds = rounds_until_closed(&mut server, 5_000, |round| {
        let id = round * 2 + 1;
        [
            call(id),
            frame(
                kind::PRIORITY,
                0,
                id,
                &[&id.to_be_bytes()[..], &[0]].concat(),
            ),
        ]
        .concat()
    });
    assert_eq!(rounds, limits::RESET_BURST);

    for provoke in [
        window_update(1, 0),
        frame(kind::PRIORITY, 0, 1, &[0; 4]),
        data(1, b"", true),
        headers(1, &[("a", "b")], true),
    ] {
        let mut server = Endpoint::server();
        server.feed(&[unary(1, b"a"), provoke].concat());
        assert!(server.error().is_some(), "ends at once");
    }
}

#[test]
fn messages_that_make_the_server_end_calls_cost_as_resets() {
    let mut server = Endpoint::server();
    let rounds = rounds_until_closed(&mut server, 5_000, |round| {
        [
            call(round * 2 + 1),
            data(round * 2 + 1, b"\x07\0\0\0\0", false),
        ]
        .concat()
    });
    assert_eq!(rounds, limits::RESET_BURST);
}

#[test]
fn malformed_requests_cost_as_resets() {
    let mut server = Endpoint::server();
    let rounds = rounds_until_closed(&mut server, 5_000, |round| {
        headers(round * 2 + 1, &[("a", "b")], true)
    });
    assert_eq!(rounds, limits::RESET_BURST);
}

#[test]
fn continuation_flood() {
    let mut server = Endpoint::server();
    server.feed(&frame(kind::HEADERS, 0, 1, &[]));
    let rounds = rounds_until_closed(&mut server, 100, |_| frame(kind::CONTINUATION, 0, 1, &[]));
    assert_eq!(rounds, limits::MAX_CONTINUATION_FRAMES);
    server.assert_closed(ErrorCode::EnhanceYourCalm);

    // By bytes.
    let mut server = Endpoint::server();
    server.feed(&frame(kind::HEADERS, 0, 1, &[0; 16_384]));
    server.feed(&frame(kind::CONTINUATION, 0, 1, &[0; 16_384]));
    assert_eq!(server.error(), None);
    server.feed(&frame(kind::CONTINUATION, 0, 1, &[0]));
    server.assert_closed(ErrorCode::EnhanceYourCalm);

    // By time.
    let mut server = Endpoint::server();
    server.feed(&frame(kind::HEADERS, 0, 1, &[]));
    server.advance_ms(limits::HEADER_BLOCK_TIMEOUT_MS);
    server.tick();
    server.assert_closed(ErrorCode::EnhanceYourCalm);
}

#[test]
fn hpack_bomb() {
    // One large entry, then many one-byte references to it.
    let mut block_bytes = Vec::new();
    let mut encoder = Encoder::new();
    encoder.field(
        b"x",
        &[b'a'; 3_000],
        Indexing::Incremental,
        &mut block_bytes,
    );
    block_bytes.extend_from_slice(&[0xbe; 10]);
    let mut server = Endpoint::server();
    server.feed(&frame(kind::HEADERS, flag::END_HEADERS, 1, &block_bytes));
    server.assert_closed(ErrorCode::EnhanceYourCalm);
}

#[test]
fn http2_bomb() {
    // Thousands of references to a tiny entry, or crumbs of a cookie.
    for field in [("a", "b"), ("cookie", "a=b")] {
        let list: Vec<_> = CALL
            .into_iter()
            .chain(std::iter::repeat_n(field, limits::MAX_FIELDS - CALL.len()))
            .collect();
        let mut server = Endpoint::server();
        assert_eq!(requests(&server.feed(&headers(1, &list, true))).len(), 1);
        let list: Vec<_> = list.into_iter().chain([field]).collect();
        server.feed(&headers(3, &list, true));
        server.assert_closed(ErrorCode::EnhanceYourCalm);
    }
}

#[test]
fn over_limit_blocks_end_the_connection_and_are_never_skipped() {
    let list: Vec<_> = CALL
        .into_iter()
        .chain([("x", "v")].into_iter().cycle().take(100))
        .collect();
    let mut server = Endpoint::server();
    // Also where the stream itself would be ignored: on a stream that was reset, as trailers.
    let stream = requests(&server.feed(&call(1)))[0];
    server
        .connection
        .reset(stream, &mut server.output, ErrorCode::Cancel);
    server.feed(&headers(1, &list, true));
    server.assert_closed(ErrorCode::EnhanceYourCalm);
}

#[test]
fn window_stall() {
    let mut server = Endpoint::server_with(&Config::server(), &[(4, 0)]);
    let stream = requests(&server.feed(&unary(1, b"a")))[0];
    server
        .connection
        .respond(stream, &mut server.output, |out| out.push(1));
    // The peer is not silent; it only opens no window.
    for _ in 0..5 {
        server.advance_ms(10_000);
        server.feed(&frame(kind::PING, 0, 0, &[0; 8]));
        server.tick();
        assert_eq!(server.error(), None);
    }
    server.advance_ms(10_000);
    server.tick();
    server.assert_closed(ErrorCode::EnhanceYourCalm);
    assert!(
        matches!(server.feed(b"").as_slice(), []),
        "the call had ended; there is nobody to tell"
    );
    assert_eq!(
        (
            server.connection.running(),
            server.connection.buffered_bytes()
        ),
        (0, 0)
    );
}

#[test]
fn slow_reading_that_makes_progress_is_no_stall() {
    let mut server = Endpoint::server_with(&Config::server(), &[(4, 0)]);
    let stream = requests(&server.feed(&unary(1, b"a")))[0];
    server
        .connection
        .respond(stream, &mut server.output, |out| {
            out.resize(out.len() + 20, 0)
        });
    for _ in 0..25 {
        server.advance_ms(50_000);
        server.feed(&window_update(1, 1));
        server.tick();
    }
    assert_eq!((server.error(), server.connection.running()), (None, 0));
}

#[test]
fn ping_flood() {
    // By rate.
    let mut server = Endpoint::server();
    let rounds = rounds_until_closed(&mut server, 10_000, |_| frame(kind::PING, 0, 0, &[0; 8]));
    assert!(rounds <= limits::CONTROL_BURST, "{rounds}");
    server.assert_closed(ErrorCode::EnhanceYourCalm);

    // By answers that are not read: the output is full and stays full.
    let config = Config {
        output_bound_bytes: 100,
        ..Config::server()
    };
    let mut server = Endpoint::server_with(&config, &[]);
    let mut sent = 0;
    while server.error().is_none() {
        server.feed(&frame(kind::PING, 0, 0, &[0; 8]));
        sent += 1;
        assert!(sent < 200);
    }
    assert!(
        (limits::MAX_PENDING_ACKS..limits::MAX_PENDING_ACKS + 10).contains(&(sent as usize)),
        "{sent}"
    );
    server.assert_closed(ErrorCode::EnhanceYourCalm);
}

#[test]
fn pending_acknowledgements_go_out_when_the_output_is_read() {
    let config = Config {
        output_bound_bytes: 100,
        ..Config::server()
    };
    let mut server = Endpoint::server_with(&config, &[]);
    server.feed(
        &[frame(kind::PING, 0, 0, &[1; 8]), settings(&[])]
            .concat()
            .repeat(10),
    );
    let mut frames = server.frames();
    while server.connection.wants_transmit() {
        server.connection.transmit(&mut server.output, 0);
        frames.extend(server.frames());
    }
    assert_eq!(
        frames
            .iter()
            .filter(|frame| frame.kind == kind::PING)
            .count(),
        10
    );
    assert_eq!(
        frames
            .iter()
            .filter(|frame| frame.kind == kind::SETTINGS)
            .count(),
        10
    );
}

#[test]
fn settings_flood() {
    let mut server = Endpoint::server();
    let rounds = rounds_until_closed(&mut server, 10_000, |_| settings(&[(4, 100)]));
    assert!(rounds <= limits::CONTROL_BURST);
    let mut server = Endpoint::server();
    server.feed(&settings(&[(3, 1); limits::MAX_SETTINGS_ENTRIES + 1]));
    server.assert_closed(ErrorCode::EnhanceYourCalm);
}

#[test]
fn empty_data_flood() {
    let mut server = Endpoint::server();
    server.feed(&call(1));
    let rounds = rounds_until_closed(&mut server, 10_000, |_| data(1, b"", false));
    assert!(
        rounds <= limits::SMALL_DATA_BUDGET / limits::SMALL_DATA_BYTES + 1,
        "{rounds}"
    );
    server.assert_closed(ErrorCode::EnhanceYourCalm);
}

#[test]
fn tiny_data_flood() {
    let mut server = Endpoint::server();
    server.feed(&[call(1), data(1, &[0, 0, 1, 0, 0], false)].concat());
    rounds_until_closed(&mut server, 1_000, |_| data(1, b"x", false));
    server.assert_closed(ErrorCode::EnhanceYourCalm);
}

#[test]
fn streams_of_small_messages_are_welcome() {
    let mut server = Endpoint::server();
    let stream = requests(&server.feed(&call(1)))[0];
    for _ in 0..20_000 {
        server.feed(&data(1, &message(b"key"), false));
        server.connection.release(stream, &mut server.output);
        server.output.clear();
    }
    assert_eq!(server.error(), None);
}

#[test]
fn small_messages_of_a_held_stream_are_welcome() {
    let mut server = Endpoint::server();
    let stream = requests(&server.feed(&call(1)))[0];
    for _ in 0..20 {
        server.connection.hold(stream, true);
        for _ in 0..1_000 {
            assert_eq!(server.feed(&data(1, &message(b"key"), false)), []);
        }
        server.connection.hold(stream, false);
        assert_eq!(messages(&server.feed(b"")).len(), 1_000);
        server.connection.release(stream, &mut server.output);
        server.output.clear();
    }
    assert_eq!(server.error(), None);
    // Frames without anything in them cost no window, and are a flood here too.
    server.connection.hold(stream, true);
    rounds_until_closed(&mut server, 1_000, |_| data(1, b"", false));
    server.assert_closed(ErrorCode::EnhanceYourCalm);
}

#[test]
fn priority_flood() {
    let mut server = Endpoint::server();
    let rounds = rounds_until_closed(&mut server, 20_000, |_| {
        frame(kind::PRIORITY, 0, 1, &[0; 5])
    });
    assert_eq!(rounds, limits::GLITCH_BURST);
    server.assert_closed(ErrorCode::EnhanceYourCalm);
}

#[test]
fn unknown_frame_flood() {
    let mut server = Endpoint::server();
    assert_eq!(
        rounds_until_closed(&mut server, 20_000, |_| frame(0x77, 0, 0, &[])),
        limits::GLITCH_BURST
    );
}

#[test]
fn window_update_flood() {
    let mut server = Endpoint::server();
    let rounds = rounds_until_closed(&mut server, 10_000, |_| window_update(0, 1));
    assert!(rounds <= limits::CONTROL_BURST, "{rounds}");
    server.assert_closed(ErrorCode::EnhanceYourCalm);
}

#[test]
fn window_updates_that_answer_data_are_welcome() {
    let mut server = Endpoint::server();
    for round in 0..20_000 {
        let id = round * 2 + 1;
        let stream = requests(&server.feed(&unary(id, b"a")))[0];
        server
            .connection
            .respond(stream, &mut server.output, |out| out.push(1));
        server.output.clear();
        server.feed(&[window_update(0, 6), window_update(id, 6)].concat());
    }
    assert_eq!(server.error(), None);
}

/// A peer that reads in steps answers what was sent in a burst when all of it was sent.
#[test]
fn window_updates_that_answer_a_burst_are_welcome_and_no_more() {
    let mut server = Endpoint::server();
    let id = 1;
    let stream = requests(&server.feed(&call(id)))[0];
    let burst = 5 * limits::CONTROL_BURST;
    for _ in 0..2 {
        for _ in 0..burst {
            let (connection, out) = (&mut server.connection, &mut server.output);
            connection.send_message(stream, out, |out| out.push(1));
        }
        server.output.clear();
        let pair = [window_update(0, 6), window_update(id, 6)].concat();
        server.feed(&pair.repeat(2 * burst as usize));
        assert_eq!(server.error(), None);
    }
    server.feed(&window_update(0, 1).repeat(limits::CONTROL_BURST as usize));
    assert_eq!(server.error(), None);
    server.feed(&window_update(0, 1));
    server.assert_closed(ErrorCode::EnhanceYourCalm);
}

/// Whether a frame goes out at once or has to wait for its window: it earns what it may be answered
/// with, and what is earned for other frames has a bound.
#[test]
fn each_frame_that_is_sent_earns_some_window_updates() {
    for waits in [false, true] {
        let first_window = if waits { 0 } else { 60_000 };
        let mut server = Endpoint::server_with(&Config::server(), &[(4, first_window)]);
        let stream = requests(&server.feed(&call(1)))[0];
        let updates = |count: u32| window_update(0, 1).repeat(count as usize);
        for _ in 0..limits::CONTROL_BURST {
            let (connection, out) = (&mut server.connection, &mut server.output);
            connection.send_message(stream, out, |out| out.push(1));
            let more = limits::CONTROLS_PER_DATA_SENT - 1;
            server.feed(&[window_update(1, 6), updates(more)].concat());
            assert_eq!(
                (server.error(), server.connection.unsent_bytes()),
                (None, 0)
            );
            server.output.clear();
        }
        server.feed(&updates(
            limits::CONTROL_BURST - limits::CONTROLS_PER_DATA_SENT,
        ));
        assert_eq!(server.error(), None);
        server.feed(&updates(limits::CONTROLS_PER_DATA_SENT));
        server.assert_closed(ErrorCode::EnhanceYourCalm);
    }
}

#[test]
fn header_table_growth_and_churn() {
    // Whatever the peer offers, our table stays small; two size updates may begin a block, not
    // three.
    let mut server = Endpoint::server_with(&Config::server(), &[(1, u32::MAX)]);
    let update = |count| [vec![0x20; count], block(&GET)].concat();
    let bytes = frame(
        kind::HEADERS,
        flag::END_HEADERS | flag::END_STREAM,
        1,
        &update(2),
    );
    let stream = requests(&server.feed(&bytes))[0];
    server
        .connection
        .send_plain(stream, &mut server.output, 200, &[], b"");
    let frames = server.frames_of_kind(kind::HEADERS);
    server.decode(&frames[0]);
    server.feed(&frame(kind::HEADERS, flag::END_HEADERS, 3, &update(3)));
    server.assert_closed(ErrorCode::EnhanceYourCalm);
}

#[test]
fn streams_above_the_limit() {
    // Before the client has seen our SETTINGS it cannot know better: refused one by one, and
    // nothing is charged.
    let config = Config {
        max_streams: 10,
        ..Config::server()
    };
    let mut server = Endpoint::new(&config);
    server.feed(&[&PREFACE[..], &settings(&[])].concat());
    let calls: Vec<_> = (0..3_000).flat_map(|at| unary(at * 2 + 1, b"a")).collect();
    let seen = server.feed(&calls);
    assert_eq!(requests(&seen).len(), 10);
    let refused = server.frames_of_kind(kind::RST_STREAM);
    assert_eq!(refused.len(), 2_990);
    assert!(
        refused
            .iter()
            .all(|frame| frame.code() == ErrorCode::RefusedStream)
    );
    assert_eq!(server.error(), None);
    // Afterwards it costs.
    server.feed(&frame(kind::SETTINGS, flag::ACK, 0, &[]));
    let rounds = rounds_until_closed(&mut server, 5_000, |round| {
        headers(10_001 + round * 2, &GET, true)
    });
    assert_eq!(rounds, limits::RESET_BURST);
}

#[test]
fn unfinished_messages_have_a_bound_together() {
    let config = Config {
        max_gathered_bytes: 100_000,
        ..Config::server()
    };
    let mut server = Endpoint::server_with(&config, &[]);
    let mut ended = 0;
    for at in 0..50 {
        let id = at * 2 + 1;
        let seen = server.feed(
            &[
                call(id),
                data(id, &prefixed(0, &[0; 50_000])[..10_000], false),
            ]
            .concat(),
        );
        for seen in seen {
            if let Event::Cancelled { stream, cause } = seen.event {
                assert_eq!(cause, CancelCause::TooMuchUnfinished);
                server.connection.forget(stream);
                ended += 1;
            }
        }
        assert!(server.connection.buffered_bytes() <= 100_000);
    }
    assert_eq!((ended, server.error()), (40, None));
}

#[test]
fn tiny_peer_header_list() {
    let mut server = Endpoint::server_with(&Config::server(), &[(6, 100)]);
    assert_eq!(
        server.feed(&unary(1, b"a")),
        [],
        "no work for a peer that cannot read an answer"
    );
    server.assert_reset(1, ErrorCode::RefusedStream);
    // One that can read little gets little.
    let mut server = Endpoint::server_with(
        &Config::server(),
        &[(6, limits::MIN_PEER_HEADER_LIST_BYTES)],
    );
    let stream = requests(&server.feed(&unary(1, b"a")))[0];
    let status = wire::grpc::Status::new(wire::grpc::Code::NotFound, "x".repeat(500));
    server
        .connection
        .finish(stream, &mut server.output, &status);
    let frames = server.frames_of_kind(kind::HEADERS);
    let fields = server.decode(&frames[0]);
    let size: usize = fields
        .iter()
        .map(|(name, value)| name.len() + value.len() + 32)
        .sum();
    assert!(
        size <= limits::MIN_PEER_HEADER_LIST_BYTES as usize,
        "{size}"
    );
}

#[test]
fn empty_header_names() {
    let mut server = Endpoint::server();
    let mut list = block(&GET);
    list.extend_from_slice(&[0, 0, 1, b'a']);
    assert_eq!(
        server.feed(&frame(kind::HEADERS, flag::END_HEADERS, 1, &list)),
        []
    );
    server.assert_reset(1, ErrorCode::ProtocolError);
}

#[test]
fn a_call_without_te_is_taken() {
    // `te: trailers` tells of broken intermediaries; its absence harms nobody here.
    let mut server = Endpoint::server();
    let mut seen_grpc = false;
    server.feed_with(&headers(1, &CALL[..5], true), |connection, _, _| {
        seen_grpc = connection.head().is_grpc()
    });
    assert!(seen_grpc);
}

#[test]
fn timeouts_are_clamped() {
    let mut server = Endpoint::server();
    server.feed_with(
        &headers(
            1,
            &[&CALL[..], &[("grpc-timeout", "99999999H")]].concat(),
            true,
        ),
        |connection, _, _| {
            assert_eq!(connection.head().timeout_ns(), Some(limits::MAX_TIMEOUT_NS));
        },
    );
}

#[test]
fn no_limit_is_so_wide_that_it_is_none() {
    const {
        assert!(limits::MAX_FIELDS <= 64 && limits::MAX_FIELD_LIST_BYTES <= 16 << 10);
        assert!(
            limits::MAX_CONTINUATION_FRAMES <= 8 && limits::MAX_COMPRESSED_BLOCK_BYTES <= 32 << 10
        );
        assert!(
            limits::MAX_ENCODER_TABLE_BYTES <= 4_096 && limits::MAX_DECODER_TABLE_BYTES <= 4_096
        );
        assert!(limits::MAX_PENDING_ACKS <= 64 && limits::MAX_SETTINGS_ENTRIES <= 32);
        assert!(limits::MAX_REMEMBERED_RESETS >= limits::RESET_BURST as usize);
    }
}
