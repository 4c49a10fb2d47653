//! gRPC messages in DATA frames: split, joined, compressed, too large, wrong.

use crate::support::*;
use wire::grpc::{Deflater, Status};
use wire::http2::frame::{flag, kind};
use wire::{CancelCause, Config, ErrorCode, Event, limits};

/// The gRPC status in the frames that came out, and what it says.
fn status_of(server: &mut Endpoint) -> (String, String) {
    let frames = server.frames();
    let trailers = frames
        .iter()
        .rfind(|frame| frame.kind == kind::HEADERS && frame.ends_stream())
        .expect("trailers");
    let fields = server.decode(trailers);
    let value = |name: &str| {
        fields
            .iter()
            .find(|field| field.0 == name)
            .map(|field| field.1.clone())
            .unwrap_or_default()
    };
    (value("grpc-status"), value("grpc-message"))
}

#[test]
fn messages_split_at_every_byte() {
    let body = [
        message(b"first"),
        message(b""),
        message(b"the third message"),
        message(b"x"),
    ]
    .concat();
    let expected: [&[u8]; 4] = [b"first", b"", b"the third message", b"x"];
    for cut in 0..=body.len() {
        for second in cut..=body.len() {
            let mut server = Endpoint::server();
            let bytes = [
                call(1),
                data(1, &body[..cut], false),
                data(1, &body[cut..second], false),
                data(1, &body[second..], true),
            ];
            let seen = server.feed(&bytes.concat());
            assert_eq!(messages(&seen), expected, "cut at {cut} and {second}");
            let has_last = matches!(
                seen.last().expect("events").event,
                Event::Message { last: true, .. }
            );
            let half_closed =
                matches!(seen.last().expect("events").event, Event::HalfClosed { .. });
            assert!(
                if second == body.len() {
                    half_closed
                } else {
                    has_last
                },
                "cut at {cut} and {second}"
            );
            assert_eq!(server.connection.buffered_bytes(), 0);
        }
    }
}

#[test]
fn input_split_at_every_byte() {
    let bytes = [
        call(1),
        data(1, &[message(b"one"), message(b"two")].concat(), false),
        data(1, &message(b"three"), true),
    ]
    .concat();
    for cut in 0..=bytes.len() {
        let mut server = Endpoint::server();
        let mut seen = server.feed(&bytes[..cut]);
        seen.extend(server.feed(&bytes[cut..]));
        assert_eq!(
            messages(&seen),
            [&b"one"[..], b"two", b"three"],
            "cut at {cut}"
        );
    }
}

#[test]
fn every_message_byte_in_a_frame_of_its_own() {
    let body = [message(b"abc"), message(&[7; 300])].concat();
    // The budget for small frames is for more than this.
    assert!(body.len() < 400);
    let mut server = Endpoint::server();
    server.feed(&call(1));
    let mut all = Vec::new();
    for (at, byte) in body.iter().enumerate() {
        if at % 50 == 0 {
            server.advance_ms(1_000);
        }
        all.extend(messages(&server.feed(&data(1, &[*byte], false))));
    }
    assert_eq!(all, [b"abc".to_vec(), vec![7; 300]]);
}

#[test]
fn padded_data() {
    let mut server = Endpoint::server();
    let payload = [&[200][..], &message(b"abc"), &[0; 200]].concat();
    let seen = server.feed(
        &[
            call(1),
            frame(kind::DATA, flag::PADDED | flag::END_STREAM, 1, &payload),
        ]
        .concat(),
    );
    assert_eq!(messages(&seen), [b"abc"]);
    let only_padding = [&[7][..], &[0; 7]].concat();
    let seen = server.feed(
        &[
            call(3),
            frame(
                kind::DATA,
                flag::PADDED | flag::END_STREAM,
                3,
                &only_padding,
            ),
        ]
        .concat(),
    );
    assert!(matches!(seen[1].event, Event::HalfClosed { .. }));
}

#[test]
fn a_message_larger_than_every_window() {
    let mut server = Endpoint::server();
    let large: Vec<_> = (0..1_000_000_u32).map(|at| at as u8).collect();
    let body = message(&large);
    let (mut sent, mut window) = (0, 65_535);
    let mut seen = server.feed(&call(1));
    while sent < body.len() {
        assert!(
            window > 0,
            "the window must open while a message is gathered; sent {sent}"
        );
        let piece = window.min(16_384).min(body.len() - sent);
        let end = sent + piece == body.len();
        seen.extend(server.feed(&data(1, &body[sent..sent + piece], end)));
        sent += piece;
        window -= piece;
        for frame in server.frames() {
            if frame.kind == kind::WINDOW_UPDATE && frame.stream == 1 {
                window += number(&frame.payload) as usize;
            }
        }
    }
    assert_eq!(messages(&seen), [large]);
    assert_eq!(server.connection.buffered_bytes(), 0);
}

#[test]
fn a_message_above_the_limit_ends_the_call_before_anything_is_allocated() {
    let config = Config {
        max_message_bytes: 100,
        ..Config::server()
    };
    let mut server = Endpoint::server_with(&config, &[]);
    assert_eq!(messages(&server.feed(&unary(1, &[1; 100]))).len(), 1);
    server.frames();
    let before = server.connection.memory_bytes();
    let seen = server.feed(&[call(3), data(3, &[0, 0xff, 0xff, 0xff, 0xff, 1], false)].concat());
    let stream = requests(&seen)[0];
    assert_eq!(
        seen[1].event,
        Event::Cancelled {
            stream,
            cause: CancelCause::MessageTooLarge
        }
    );
    assert!(server.connection.memory_bytes() <= before + 4_096);
    let (status, text) = status_of(&mut server);
    assert_eq!(status, "8");
    assert!(text.contains("100"), "{text}");
    server.connection.forget(stream);
    assert_eq!(
        server.feed(&data(3, &[0; 1_000], true)),
        [],
        "what is on its way is dropped"
    );
}

#[test]
fn bodies_that_are_no_messages() {
    for (body, what) in [
        (&b"\x02\0\0\0\x01a"[..], "flag 2"),
        (b"\0\0\0", "cut prefix"),
        (b"\0\0\0\0\x02a", "cut message"),
    ] {
        let mut server = Endpoint::server();
        let seen = server.feed(&[call(1), data(1, body, true)].concat());
        let stream = requests(&seen)[0];
        assert_eq!(
            seen[1].event,
            Event::Cancelled {
                stream,
                cause: CancelCause::BadMessage
            },
            "{what}"
        );
        assert_eq!(status_of(&mut server).0, "13", "{what}");
        assert_eq!(server.error(), None);
    }
    let mut server = Endpoint::server();
    let seen = server.feed(
        &[
            call(1),
            data(1, b"\0\0\0\0\x02a", false),
            headers(1, &[("a", "b")], true),
        ]
        .concat(),
    );
    assert!(
        matches!(
            seen[1].event,
            Event::Cancelled {
                cause: CancelCause::BadMessage,
                ..
            }
        ),
        "trailers inside a message"
    );
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    Deflater::new().gzip(bytes, &mut out);
    out
}

#[test]
fn compressed_messages_whole_and_in_pieces() {
    let text = b"text that repeats, text that repeats, text that repeats".to_vec();
    let body = [
        prefixed(1, &gzip(&text)),
        message(b"plain"),
        prefixed(1, &gzip(b"")),
    ]
    .concat();
    let fields = [&CALL[..], &[("grpc-encoding", "gzip")]].concat();
    for cut in 0..=body.len() {
        let mut server = Endpoint::server();
        let bytes = [
            headers(1, &fields, false),
            data(1, &body[..cut], false),
            data(1, &body[cut..], true),
        ]
        .concat();
        let mut compressed = Vec::new();
        let seen = server.feed_with(&bytes, |connection, seen, _| {
            if matches!(seen.event, Event::Message { .. }) {
                compressed.push(connection.message_was_compressed());
            }
        });
        assert_eq!(
            messages(&seen),
            [text.clone(), b"plain".to_vec(), b"".to_vec()],
            "cut at {cut}"
        );
        assert_eq!(compressed, [true, false, true]);
    }
}

#[test]
fn compressed_messages_that_cannot_be_read() {
    let large = gzip(&[0; 10_000]);
    let gzip_call = [&CALL[..], &[("grpc-encoding", "gzip")]].concat();
    let config = Config {
        max_message_bytes: 5_000,
        ..Config::server()
    };
    for (fields, body, cause, expected) in [
        (
            &CALL[..],
            prefixed(1, &gzip(b"a")),
            CancelCause::BadMessage,
            "13",
        ),
        (
            &gzip_call[..],
            prefixed(1, b"not gzip"),
            CancelCause::BadMessage,
            "13",
        ),
        (
            &gzip_call[..],
            prefixed(1, &large),
            CancelCause::MessageTooLarge,
            "8",
        ),
    ] {
        let mut server = Endpoint::server_with(&config, &[]);
        let seen = server.feed(&[headers(1, fields, false), data(1, &body, true)].concat());
        let stream = requests(&seen)[0];
        assert_eq!(seen[1].event, Event::Cancelled { stream, cause });
        assert_eq!(status_of(&mut server).0, expected);
    }
}

#[test]
fn an_unknown_encoding_is_answered_with_those_that_are_known() {
    let mut server = Endpoint::server();
    let seen = server.feed(
        &[
            headers(
                1,
                &[&CALL[..], &[("grpc-encoding", "snappy")]].concat(),
                false,
            ),
            data(1, b"abc", true),
        ]
        .concat(),
    );
    assert_eq!(seen, [], "the caller does not hear of it");
    let frames = server.frames();
    let fields = server.decode(&frames[0]);
    assert!(fields.contains(&("grpc-status".into(), "12".into())));
    assert!(fields.contains(&("grpc-accept-encoding".into(), "identity,gzip".into())));
    assert_eq!(
        (frames[1].kind, frames[1].code()),
        (kind::RST_STREAM, ErrorCode::NoError)
    );
    assert_eq!(server.connection.running(), 0);
}

#[test]
fn a_timeout_that_cannot_be_read_ends_the_call() {
    let mut server = Endpoint::server();
    assert_eq!(
        server.feed(&headers(
            1,
            &[&CALL[..], &[("grpc-timeout", "soon")]].concat(),
            true
        )),
        []
    );
    assert_eq!(status_of(&mut server).0, "13");
}

#[test]
fn held_messages_wait_and_keep_their_order() {
    let body = [message(b"one"), message(b"two"), message(&[3; 50])].concat();
    for cut in 0..=body.len() {
        let mut server = Endpoint::server();
        let bytes = [
            call(1),
            data(1, &body[..cut], false),
            data(1, &body[cut..], true),
        ]
        .concat();
        let mut taken = Vec::new();
        // The layer above takes one message at a time.
        let hold = |connection: &mut wire::Connection, seen: &Seen, _: &mut Vec<u8>| {
            if let Event::Message { stream, .. } = seen.event {
                connection.hold(stream, true);
            }
        };
        let mut seen = server.feed_with(&bytes, hold);
        let stream = requests(&seen)[0];
        loop {
            assert!(messages(&seen).len() <= 1, "cut at {cut}");
            let is_over = seen.iter().any(|seen| {
                matches!(
                    seen.event,
                    Event::Message { last: true, .. } | Event::HalfClosed { .. }
                )
            });
            taken.extend(messages(&seen));
            if is_over {
                break;
            }
            assert_eq!(
                server.feed_with(b"", hold),
                [],
                "nothing comes while it is held"
            );
            server.connection.hold(stream, false);
            seen = server.feed_with(b"", hold);
        }
        assert_eq!(
            taken,
            [b"one".to_vec(), b"two".to_vec(), vec![3; 50]],
            "cut at {cut}"
        );
        assert_eq!(server.connection.buffered_bytes(), 0);
    }
}

#[test]
fn a_held_stream_gives_no_window_back() {
    let mut server = Endpoint::server();
    let stream = requests(&server.feed(&call(1)))[0];
    server.connection.hold(stream, true);
    server.frames();
    for _ in 0..4 {
        assert_eq!(server.feed(&data(1, &message(&[0; 10_000]), false)), []);
    }
    assert!(
        server
            .frames_of_kind(kind::WINDOW_UPDATE)
            .iter()
            .all(|frame| frame.stream == 0)
    );
    assert_eq!(server.connection.buffered_bytes(), 4 * 10_005);
    server.connection.hold(stream, false);
    assert_eq!(messages(&server.feed(b"")).len(), 4);
    server.connection.release(stream, &mut server.output);
    assert_eq!(server.frames_of_kind(kind::WINDOW_UPDATE).len(), 1);
    assert_eq!(server.connection.buffered_bytes(), 0);
}

#[test]
fn a_call_that_ends_inside_a_frame_leaves_the_rest() {
    let mut server = Endpoint::server();
    let body = [message(b"one"), message(b"two"), b"\xffgarbage".to_vec()].concat();
    let seen = server.feed_with(
        &[call(1), data(1, &body, true), unary(3, b"next")].concat(),
        |connection, seen, out| {
            if seen.message == b"one" {
                connection.finish(stream_of(seen.event), out, &Status::OK);
            }
        },
    );
    assert_eq!(messages(&seen), [&b"one"[..], b"next"]);
}

#[test]
fn a_message_can_be_taken_out() {
    let mut server = Endpoint::server();
    server.input = [
        call(1),
        data(1, &message(b"whole"), false),
        data(1, &message(b"cut")[..6], false),
        data(1, b"ut", true),
    ]
    .concat();
    let mut consumed = 0;
    let mut taken = Vec::new();
    while let Some(event) =
        server
            .connection
            .poll_event(&server.input, &mut consumed, &mut server.output, 0)
    {
        if let Event::Message { .. } = event {
            let message = server.connection.take_message();
            taken.push(message.bytes(&server.input).to_vec());
            server.connection.give_back(message);
        }
    }
    assert_eq!(taken, [&b"whole"[..], b"cut"]);
}

/// While a message is looked at, other streams may come to their ends, be they in the midst of
/// theirs.
#[test]
fn the_end_of_another_stream_leaves_the_last_message_where_it_is() {
    let mut server = Endpoint::server();
    for first in [1, 5] {
        let body = message(b"in pieces");
        let unfinished = [call(first), data(first, &body[..8], false)].concat();
        let other = requests(&server.feed(&unfinished))[0];
        let cut = [
            call(first + 2),
            data(first + 2, &body[..7], false),
            data(first + 2, &body[7..], false),
        ];
        let mut looked_at = 0;
        let seen = server.feed_with(&cut.concat(), |connection, seen, out| {
            if let Event::Message { stream, .. } = seen.event {
                connection.reset(other, out, wire::ErrorCode::Cancel);
                assert_eq!(connection.message(&[]), b"in pieces");
                connection.reset(stream, out, wire::ErrorCode::Cancel);
                assert_eq!(connection.message(&[]), b"");
                looked_at += 1;
            }
        });
        assert_eq!((seen.len(), looked_at), (2, 1));
        assert_eq!(server.connection.running(), 0);
        assert_eq!(server.connection.buffered_bytes(), 0);
    }
}

#[test]
fn plain_bodies() {
    let mut server = Endpoint::server();
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/"),
        ("content-type", "text/plain"),
    ];
    let seen = server.feed(
        &[
            headers(1, &fields, false),
            data(1, b"abc", false),
            data(1, b"", false),
            data(1, b"def", true),
        ]
        .concat(),
    );
    let bodies: Vec<_> = seen[1..]
        .iter()
        .map(|seen| {
            (
                seen.message.clone(),
                matches!(seen.event, Event::Body { last: true, .. }),
            )
        })
        .collect();
    assert_eq!(bodies, [(b"abc".to_vec(), false), (b"def".to_vec(), true)]);
    let seen = server.feed(&[headers(3, &fields, false), data(3, b"", true)].concat());
    assert!(matches!(seen[1].event, Event::HalfClosed { .. }));
}

/// Programs write bodies in pieces as small as they like; frames without any content are a flood
/// all the same.
#[test]
fn small_pieces_of_a_plain_body_are_no_flood() {
    let fields = [(":method", "PUT"), (":scheme", "http"), (":path", "/")];
    let pieces = 10 * limits::SMALL_DATA_BUDGET / limits::SMALL_DATA_BYTES;
    for (content, is_fine) in [(&b"a"[..], true), (b"", false)] {
        let mut server = Endpoint::server();
        let mut received = 0;
        let stream = requests(&server.feed(&headers(1, &fields, false)))[0];
        for _ in 0..pieces {
            received += server.feed(&data(1, content, false)).len();
            server.connection.release(stream, &mut server.output);
        }
        if is_fine {
            assert_eq!(received, pieces as usize);
            assert_eq!(server.error(), None);
        } else {
            server.assert_closed(ErrorCode::EnhanceYourCalm);
        }
    }
}
