//! Heads and trailers. RFC 9113 sections 4.3, 6.2, 6.10 and 8.

use crate::support::*;
use wire::http2::frame::{flag, kind};
use wire::{CancelCause, Config, ErrorCode, Event, RequestHead};

#[test]
fn a_head_can_be_read() {
    let mut server = Endpoint::server();
    let fields = [
        &CALL[..],
        &[
            ("grpc-timeout", "100m"),
            ("x-trace-bin", "AAE"),
            ("authorization", "secret"),
        ],
    ]
    .concat();
    let seen = server.feed_with(&headers(1, &fields, false), |connection, _, _| {
        let head = connection.head();
        assert!(head.is_grpc());
        assert_eq!(
            (head.path(), head.authority()),
            (&b"/test.Service/Method"[..], &b"localhost"[..])
        );
        assert_eq!(head.timeout_ns(), Some(100_000_000));
        assert_eq!(head.get(b"authorization"), Some(&b"secret"[..]));
        let metadata: Vec<_> = head.metadata().collect();
        assert_eq!(
            metadata,
            [
                (&b"x-trace-bin"[..], &b"AAE"[..]),
                (&b"authorization"[..], &b"secret"[..])
            ]
        );
    });
    assert!(matches!(seen[0].event, Event::Request { end: false, .. }));
}

/// Tokens are in heads, and so in what a connection remembers of them.
#[test]
fn nothing_of_a_head_is_shown() {
    let mut server = Endpoint::server();
    let fields = [&CALL[..], &[("authorization", "zzzzzzzzz")]].concat();
    for stream in [1, 3, 5] {
        // The last one is not complete.
        let mut frames = headers(stream, &fields, true);
        if stream == 5 {
            frames[4] &= !flag::END_HEADERS;
        }
        server.feed_with(&frames, |connection, _, _| {
            assert_eq!(connection.head().authorization(), Some(&b"zzzzzzzzz"[..]));
        });
        let shown = format!("{:?}", server.connection);
        let bytes = format!("{:?}", b"zzz").replace(['[', ']'], "");
        assert!(!shown.contains(&bytes), "{shown}");
    }
}

/// Who asks is found in one place, or in none: of two values nobody knows which one counts.
#[test]
fn there_is_one_authorization_or_none() {
    let one = ("authorization", "Bearer a");
    for (more, expected) in [
        (&[][..], None),
        (&[one][..], Some(&b"Bearer a"[..])),
        (&[one, one], Some(b"")),
        (
            &[one, ("x", "y"), ("authorization", "Bearer b"), one],
            Some(b""),
        ),
        (&[("authorization", "")], Some(b"")),
        (&[("proxy-authorization", "Bearer a")], None),
    ] {
        let mut server = Endpoint::server();
        for stream in [1, 3] {
            let fields = [&CALL[..], more].concat();
            let mut seen = None;
            server.feed_with(&headers(stream, &fields, true), |connection, _, _| {
                seen = Some(connection.head().authorization().map(<[u8]>::to_vec));
            });
            assert_eq!(seen, Some(expected.map(<[u8]>::to_vec)), "{more:?}");
        }
    }
}

#[test]
fn a_block_may_come_in_pieces() {
    let whole = block(&CALL);
    for cut in 0..=whole.len() {
        let mut server = Endpoint::server();
        let bytes = [
            frame(kind::HEADERS, flag::END_STREAM, 1, &whole[..cut]),
            frame(kind::CONTINUATION, 0, 1, &[]),
            frame(kind::CONTINUATION, flag::END_HEADERS, 1, &whole[cut..]),
        ];
        let seen = server.feed(&bytes.concat());
        assert!(
            matches!(seen[0].event, Event::Request { end: true, .. }),
            "cut at {cut}"
        );
    }
}

#[test]
fn nothing_may_stand_inside_a_block() {
    for inside in [
        frame(kind::PRIORITY, 0, 1, &[0; 5]),
        frame(kind::PING, 0, 0, &[0; 8]),
        frame(0x16, 0, 1, b"unknown"),
        headers(3, &GET, true),
        frame(kind::CONTINUATION, flag::END_HEADERS, 3, &[]),
    ] {
        let mut server = Endpoint::server();
        server.feed(&[frame(kind::HEADERS, 0, 1, &block(&GET)), inside].concat());
        server.assert_closed(ErrorCode::ProtocolError);
    }
}

#[test]
fn continuation_without_a_block() {
    let continuation = frame(kind::CONTINUATION, flag::END_HEADERS, 1, &block(&GET));
    for before in [
        headers(1, &GET, true),
        [call(1), data(1, b"", true)].concat(),
    ] {
        let mut server = Endpoint::server();
        server.feed(&[before, continuation.clone()].concat());
        server.assert_closed(ErrorCode::ProtocolError);
    }
}

#[test]
fn padding_and_priority_of_headers() {
    let mut server = Endpoint::server();
    let payload = [&[4, 0, 0, 0, 0, 16][..], &block(&GET), &[0; 4]].concat();
    let flags = flag::END_HEADERS | flag::PADDED | flag::PRIORITY | flag::END_STREAM;
    assert_eq!(
        requests(&server.feed(&frame(kind::HEADERS, flags, 1, &payload))).len(),
        1
    );
    let payload = [&[0, 0, 0, 3, 16][..], &block(&GET)].concat();
    let flags = flag::END_HEADERS | flag::PRIORITY | flag::END_STREAM;
    assert_eq!(server.feed(&frame(kind::HEADERS, flags, 3, &payload)), []);
    server.assert_reset(3, ErrorCode::ProtocolError);
}

#[test]
fn malformed_requests_end_their_stream_only() {
    let mut server = Endpoint::server();
    let lists: [&[(&str, &str)]; 8] = [
        &[("connection", "close")],
        &[("te", "gzip")],
        &[(":status", "200")],
        &[(":other", "a")],
        &[("content-length", "a")],
        &[("a", "b"), (":path", "/")],
        &[("Upper", "b")],
        &[(":method", "GET")],
    ];
    for (at, wrong) in lists.into_iter().enumerate() {
        let id = at as u32 * 2 + 1;
        assert_eq!(
            server.feed(&headers(id, &[&CALL[..], wrong].concat(), true)),
            [],
            "{wrong:?}"
        );
        server.assert_reset(id, ErrorCode::ProtocolError);
    }
    assert_eq!(requests(&server.feed(&headers(99, &GET, true))).len(), 1);
}

#[test]
fn the_table_survives_a_malformed_request() {
    // The second request refers to what the first, which is refused, put into the table.
    let mut encoder = wire::hpack::Encoder::new();
    let mut blocks = [Vec::new(), Vec::new()];
    for (at, out) in blocks.iter_mut().enumerate() {
        for (name, value) in CALL {
            encoder.field(
                name.as_bytes(),
                value.as_bytes(),
                wire::hpack::Indexing::Incremental,
                out,
            );
        }
        if at == 0 {
            encoder.field(
                b"connection",
                b"close",
                wire::hpack::Indexing::Incremental,
                out,
            );
        }
    }
    let mut server = Endpoint::server();
    assert_eq!(
        server.feed(&frame(kind::HEADERS, flag::END_HEADERS, 1, &blocks[0])),
        []
    );
    assert_eq!(
        requests(&server.feed(&frame(kind::HEADERS, flag::END_HEADERS, 3, &blocks[1]))).len(),
        1
    );
}

#[test]
fn a_block_that_cannot_be_decoded_ends_the_connection() {
    let mut server = Endpoint::server();
    server.feed(&frame(kind::HEADERS, flag::END_HEADERS, 1, &[0x80]));
    server.assert_closed(ErrorCode::CompressionError);
}

/// gRPC over HTTP/2, "Custom-Metadata": of a request as it is received, and of one that is sent.
#[test]
fn the_values_of_a_key_keep_their_order() {
    let fields = [("x-a", "1"), ("x-b", "2"), ("x-a", "3"), ("x-a", "1")];
    let mut server = Endpoint::server();
    for id in [1, 3] {
        let request = headers(id, &[&CALL[..], &fields].concat(), false);
        server.feed_with(&request, |connection, _, _| {
            let head = connection.head();
            let received: Vec<_> = head.metadata().collect();
            let expected = fields.map(|(key, value)| (key.as_bytes(), value.as_bytes()));
            assert_eq!(received, expected);
        });
    }
    assert_eq!(server.connection.running(), 2);

    let mut metadata = wire::grpc::Metadata::new();
    for (key, value) in fields {
        metadata.push_ascii(key, value).expect("valid");
    }
    let mut client = Endpoint::client_with(&Config::client(), &[]);
    for _ in 0..2 {
        let head = RequestHead {
            metadata: Some(&metadata),
            ..RequestHead::call("here", "/a.B/C")
        };
        let opened = client.connection.open(&mut client.output, &head);
        opened.expect("a stream");
        let frames = client.frames();
        let mut sent = client.decode(&frames[0]);
        sent.retain(|(key, _)| key.starts_with("x-"));
        let expected = fields.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(sent, expected);
    }
}

#[test]
fn content_length_has_to_agree() {
    let length = |length| [&CALL[..], &[("content-length", length)]].concat();
    let ok = [
        headers(1, &length("8"), false),
        data(1, &message(b"a"), false),
        data(1, b"\0\0", false),
    ]
    .concat();
    for (end, is_wrong) in [
        (data(1, b"", true), false),
        (data(1, b"\0", true), true),
        (headers(1, &[("a", "b")], true), false),
    ] {
        let mut server = Endpoint::server();
        let seen = server.feed(&[ok.clone(), end].concat());
        let violations = seen.iter().filter(|seen| {
            matches!(
                seen.event,
                Event::Cancelled {
                    cause: CancelCause::Violation(_),
                    ..
                }
            )
        });
        assert_eq!(violations.count(), usize::from(is_wrong));
    }
    for short in [
        data(1, &message(b""), true),
        headers(1, &[("a", "b")], true),
    ] {
        let mut server = Endpoint::server();
        server.feed(&[headers(1, &length("6"), false), short].concat());
        server.assert_reset(1, ErrorCode::ProtocolError);
    }
    let mut server = Endpoint::server();
    assert_eq!(server.feed(&headers(1, &length("6"), true)), []);
    server.assert_reset(1, ErrorCode::ProtocolError);
}

#[test]
fn trailers_end_the_request() {
    let mut server = Endpoint::server();
    let seen = server.feed(
        &[
            call(1),
            data(1, &message(b"a"), false),
            headers(1, &[("x-checksum", "1")], true),
        ]
        .concat(),
    );
    assert!(matches!(seen[1].event, Event::Message { last: false, .. }));
    assert!(matches!(seen[2].event, Event::HalfClosed { .. }));
    for wrong in [
        headers(3, &[("x", "1")], false),
        headers(3, &[(":path", "/")], true),
        headers(3, &[("te", "\n")], true),
    ] {
        let mut server = Endpoint::server();
        server.feed(&[call(3), wrong].concat());
        server.assert_reset(3, ErrorCode::ProtocolError);
    }
}

#[test]
fn the_memo_keeps_what_the_caller_noted() {
    let mut server = Endpoint::server();
    let mut routes = Vec::new();
    for id in [1, 3, 5] {
        server.feed_with(&call(id), |connection, _, _| {
            routes.push(connection.head_route());
            connection.set_head_route(42);
        });
    }
    server.feed_with(&headers(7, &GET, true), |connection, _, _| {
        routes.push(connection.head_route())
    });
    assert_eq!(routes, [None, Some(42), Some(42), None]);
}
