//! The client's side.

use crate::support::*;
use wire::grpc::{Code, Deflater, Metadata, Status};
use wire::http2::frame::{flag, kind};
use wire::{
    CancelCause, CloseReason, Config, ErrorCode, Event, RequestHead, StreamKey, StreamOpenError,
    limits,
};

const HEAD: [(&str, &str); 2] = [(":status", "200"), ("content-type", "application/grpc")];

fn client() -> Endpoint {
    Endpoint::client_with(&Config::client(), &[])
}

fn open(client: &mut Endpoint) -> StreamKey {
    client
        .connection
        .open(
            &mut client.output,
            &RequestHead::call("localhost", "/a.B/C"),
        )
        .expect("a stream")
}

fn ended(client: &Endpoint) -> (Code, String) {
    (
        client.connection.status().code(),
        client.connection.status().message().to_owned(),
    )
}

/// The last message carries the end of its stream if it goes out as one frame, be it empty; else a
/// frame of its own does.
#[test]
fn the_last_message_ends_its_stream_in_as_few_frames_as_it_can() {
    for (bytes, frames_expected) in [(0, 1), (1, 1), (16_000, 1), (20_000, 3)] {
        let mut client = client();
        for _ in 0..2 {
            let stream = open(&mut client);
            client.frames();
            let (connection, out) = (&mut client.connection, &mut client.output);
            connection.send_last_message(stream, out, |out| out.resize(out.len() + bytes, 7));
            let frames = client.frames();
            let ends: Vec<_> = frames.iter().map(Frame::ends_stream).collect();
            assert_eq!(frames.len(), frames_expected, "{bytes}");
            assert_eq!(ends.iter().filter(|ends| **ends).count(), 1, "{bytes}");
        }
    }
}

#[test]
fn a_unary_call() {
    let mut client = client();
    let mut metadata = Metadata::new();
    metadata.push_binary("x-bin", [1, 2]).expect("valid");
    let head = RequestHead {
        timeout_ns: Some(1_000_000_000),
        metadata: Some(&metadata),
        ..RequestHead::call("here", "/a.B/C")
    };
    let stream = client
        .connection
        .open(&mut client.output, &head)
        .expect("a stream");
    client
        .connection
        .send_last_message(stream, &mut client.output, |out| {
            out.extend_from_slice(b"question")
        });
    let frames = client.frames();
    let kinds: Vec<_> = frames.iter().map(|frame| frame.kind).collect();
    assert_eq!(kinds, [kind::HEADERS, kind::DATA]);
    let fields = client.decode(&frames[0]);
    for expected in [
        (":path", "/a.B/C"),
        (":authority", "here"),
        ("te", "trailers"),
        ("grpc-timeout", "1000000u"),
        ("x-bin", "AQI"),
    ] {
        assert!(
            fields
                .iter()
                .any(|(name, value)| (name.as_str(), value.as_str()) == expected),
            "{expected:?} in {fields:?}"
        );
    }
    assert_eq!(frames[1].payload, message(b"question"));
    assert!(frames[1].ends_stream());
    let answer = [
        headers(1, &HEAD, false),
        data(1, &message(b"answer"), false),
        headers(1, &[("grpc-status", "0"), ("x-last", "z")], true),
    ];
    let seen = client.feed(&answer.concat());
    let events: Vec<_> = seen.iter().map(|seen| seen.event).collect();
    assert_eq!(
        events,
        [
            Event::Response { stream, end: false },
            Event::Message {
                stream,
                last: false
            },
            Event::Finished { stream }
        ]
    );
    assert_eq!(seen[1].message, b"answer");
    assert!(client.connection.status().is_ok());
    assert_eq!(
        client
            .connection
            .status()
            .metadata()
            .and_then(|metadata| metadata.get("x-last")),
        Some(&b"z"[..])
    );
    client.connection.forget(stream);
    assert_eq!((client.frames(), client.connection.running()), (vec![], 0));
}

#[test]
fn how_calls_end() {
    let only = |fields: &[(&'static str, &'static str)]| headers(1, fields, true);
    for (bytes, code) in [
        (
            only(&[
                HEAD[0],
                HEAD[1],
                ("grpc-status", "5"),
                ("grpc-message", "no%20such"),
            ]),
            Code::NotFound,
        ),
        (only(&[HEAD[0], HEAD[1]]), Code::Unknown),
        (
            only(&[HEAD[0], HEAD[1], ("grpc-status", "77")]),
            Code::Unknown,
        ),
        (only(&[(":status", "503")]), Code::Unavailable),
        (
            headers(
                1,
                &[(":status", "404"), ("content-type", "text/html")],
                false,
            ),
            Code::Unimplemented,
        ),
        (
            headers(
                1,
                &[(":status", "200"), ("content-type", "text/html")],
                false,
            ),
            Code::Unknown,
        ),
        (
            headers(1, &[HEAD[0], HEAD[1], ("grpc-encoding", "snappy")], false),
            Code::Internal,
        ),
        (
            [headers(1, &HEAD, false), data(1, &message(b"a"), true)].concat(),
            Code::Internal,
        ),
        (
            [headers(1, &HEAD, false), data(1, b"", true)].concat(),
            Code::Internal,
        ),
    ] {
        let mut client = client();
        let stream = open(&mut client);
        let seen = client.feed(&bytes);
        assert_eq!(
            seen.last().map(|seen| seen.event),
            Some(Event::Finished { stream })
        );
        assert_eq!(ended(&client).0, code);
        assert_eq!(client.error(), None);
        client.connection.forget(stream);
        assert_eq!(client.connection.running(), 0);
    }
}

#[test]
fn a_server_that_answers_early_is_told_that_nothing_follows() {
    let mut client = client();
    let stream = open(&mut client);
    client.frames();
    let seen = client.feed(&headers(1, &[HEAD[0], HEAD[1], ("grpc-status", "8")], true));
    assert_eq!(seen[0].event, Event::Finished { stream });
    client.assert_reset(1, ErrorCode::Cancel);
    // The server's own RST_STREAM crosses it.
    assert_eq!(client.feed(&rst(1, ErrorCode::NoError)), []);
    client
        .connection
        .send_message(stream, &mut client.output, |_| panic!("goes nowhere"));
    assert!(client.connection.token(stream) == 0 && client.output.is_empty());
}

/// Nothing is left to be reset: the server would count it as a late frame, and with many calls
/// close the connection.
#[test]
fn a_call_that_ended_on_both_sides_is_not_reset() {
    for fields in [
        &[HEAD[0], HEAD[1], ("grpc-status", "5")][..],
        &[HEAD[0], HEAD[1]],
        &[(":status", "503")],
    ] {
        let mut client = client();
        let stream = open(&mut client);
        client
            .connection
            .send_last_message(stream, &mut client.output, |_| {});
        client.frames();
        let seen = client.feed(&headers(1, fields, true));
        assert_eq!(seen[0].event, Event::Finished { stream });
        client.connection.forget(stream);
        assert_eq!((client.frames(), client.connection.running()), (vec![], 0));
    }
}

#[test]
fn interim_responses_are_passed_over() {
    let mut client = client();
    let stream = open(&mut client);
    let seen = client.feed(
        &[
            headers(1, &[(":status", "103")], false),
            headers(1, &HEAD, false),
        ]
        .concat(),
    );
    assert_eq!(seen[0].event, Event::Response { stream, end: false });
    assert_eq!(seen.len(), 1);
}

#[test]
fn servers_that_break_rules_on_a_stream() {
    let response = headers(1, &HEAD, false);
    for bytes in [
        headers(1, &[("content-type", "application/grpc")], false),
        headers(1, &[(":status", "100")], true),
        headers(1, &[HEAD[0], HEAD[1], (":path", "/")], false),
        [response.clone(), headers(1, &[("grpc-status", "0")], false)].concat(),
        [response.clone(), headers(1, &HEAD, true)].concat(),
    ] {
        let mut client = client();
        let stream = open(&mut client);
        client.frames();
        let seen = client.feed(&bytes);
        assert_eq!(
            seen.last().map(|seen| seen.event),
            Some(Event::Cancelled {
                stream,
                cause: CancelCause::Violation(ErrorCode::ProtocolError)
            })
        );
        client.assert_reset(1, ErrorCode::ProtocolError);
    }
    for (body, cause) in [
        (&b"\x07\0\0\0\0"[..], CancelCause::BadMessage),
        (&[0, 255, 255, 255, 255], CancelCause::MessageTooLarge),
    ] {
        let mut client = client();
        let stream = open(&mut client);
        client.frames();
        let seen = client.feed(&[response.clone(), data(1, body, false)].concat());
        assert_eq!(seen[1].event, Event::Cancelled { stream, cause });
        client.assert_reset(1, ErrorCode::Cancel);
    }
}

#[test]
fn servers_that_break_rules_of_the_connection() {
    for (bytes, code) in [
        (data(1, b"", false), ErrorCode::ProtocolError),
        (headers(3, &HEAD, false), ErrorCode::ProtocolError),
        (headers(2, &HEAD, false), ErrorCode::ProtocolError),
        (
            frame(kind::PUSH_PROMISE, flag::END_HEADERS, 1, &[0, 0, 0, 2]),
            ErrorCode::ProtocolError,
        ),
        (settings(&[(2, 1)]), ErrorCode::ProtocolError),
        (window_update(3, 1), ErrorCode::ProtocolError),
        (
            [
                frame(kind::GOAWAY, 0, 0, &[0; 8]),
                frame(kind::GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0]),
            ]
            .concat(),
            ErrorCode::ProtocolError,
        ),
    ] {
        let mut client = client();
        let stream = open(&mut client);
        let seen = client.feed(&bytes);
        let cancels = |event| match event {
            Event::Cancelled { stream, .. } => Some(stream),
            _ => None,
        };
        let cancelled: Vec<_> = seen.iter().filter_map(|seen| cancels(seen.event)).collect();
        assert_eq!(cancelled, [stream]);
        if client.connection.close_reason() != Some(&CloseReason::Drained) {
            client.assert_closed(code);
        }
    }
}

#[test]
fn refused_streams_may_be_tried_again() {
    let mut client = client();
    let streams = [open(&mut client), open(&mut client), open(&mut client)];
    let seen = client.feed(&rst(1, ErrorCode::RefusedStream));
    assert_eq!(
        seen[0].event,
        Event::Cancelled {
            stream: streams[0],
            cause: CancelCause::Refused
        }
    );
    let seen = client.feed(&frame(kind::GOAWAY, 0, 0, &[0, 0, 0, 3, 0, 0, 0, 0]));
    assert_eq!(
        seen.iter().map(|seen| seen.event).collect::<Vec<_>>(),
        [Event::Cancelled {
            stream: streams[2],
            cause: CancelCause::Refused
        }]
    );
    let head = RequestHead::call("localhost", "/a.B/C");
    assert_eq!(
        client.connection.open(&mut client.output, &head),
        Err(StreamOpenError::GoingAway)
    );
    // Said once more it changes nothing.
    let again = client.feed(&frame(kind::GOAWAY, 0, 0, &[0, 0, 0, 3, 0, 0, 0, 0]));
    assert_eq!((again, client.error()), (vec![], None));
    // The one in the middle goes on.
    client.feed(&headers(3, &[HEAD[0], HEAD[1], ("grpc-status", "0")], true));
    for stream in streams {
        assert_eq!(client.connection.close_reason(), None);
        client.connection.forget(stream);
    }
    assert_eq!(
        client.connection.close_reason(),
        Some(&CloseReason::Drained)
    );
}

/// Some of each for every call are usual; without end they are a flood.
#[test]
fn interim_heads_and_late_resets_are_charged_beyond_some_for_each_call() {
    let interim = |id| headers(id, &[(":status", "103")], false);
    let finished = |id| headers(id, &[HEAD[0], HEAD[1], ("grpc-status", "0")], true);
    let late = |id| rst(id, ErrorCode::NoError);
    let mut usual = client();
    for _ in 0..20_000 {
        let stream = open(&mut usual);
        let bytes = [
            interim(stream.id),
            interim(stream.id),
            finished(stream.id),
            late(stream.id),
        ];
        usual.feed(&bytes.concat());
        usual.connection.forget(stream);
        usual.output.clear();
    }
    assert_eq!(usual.error(), None);
    type Flood = fn(&mut Endpoint, u32);
    let floods: [Flood; 2] = [
        |client, id| drop(client.feed(&headers(id, &[(":status", "103")], false))),
        |client, id| drop(client.feed(&rst(id, ErrorCode::NoError))),
    ];
    for (number, flood) in floods.into_iter().enumerate() {
        let mut client = client();
        let stream = open(&mut client);
        if number == 1 {
            client.feed(&finished(stream.id));
            client.connection.forget(stream);
        }
        for _ in 0..limits::FRAMES_BESIDE_CALL + limits::GLITCH_BURST {
            flood(&mut client, stream.id);
        }
        assert_eq!(client.error(), None, "{number}");
        flood(&mut client, stream.id);
        client.assert_closed(ErrorCode::EnhanceYourCalm);
    }
}

#[test]
fn a_stream_whose_response_has_begun_is_refused_too_late() {
    for begun in [
        headers(1, &HEAD, false),
        headers(1, &[(":status", "103")], false),
    ] {
        let goaway = frame(kind::GOAWAY, 0, 0, &[0; 8]);
        for refusal in [rst(1, ErrorCode::RefusedStream), goaway] {
            let mut client = client();
            let stream = open(&mut client);
            assert!(!client.connection.has_response_begun(stream));
            let seen = client.feed(&[begun.clone(), refusal].concat());
            assert!(client.connection.has_response_begun(stream));
            let cause = CancelCause::RefusedLate;
            let expected = Event::Cancelled { stream, cause };
            assert_eq!(seen.last().map(|seen| seen.event), Some(expected));
        }
    }
}

#[test]
fn any_number_of_calls_may_be_given_up_or_refused_at_once() {
    let mut client = client();
    let streams: Vec<_> = (0..3_000).map(|_| open(&mut client)).collect();
    for stream in &streams[..1_500] {
        client
            .connection
            .reset(*stream, &mut client.output, ErrorCode::Cancel);
    }
    for stream in streams {
        let answer = [
            headers(stream.id, &HEAD, false),
            data(stream.id, &message(b"late"), false),
            rst(stream.id, ErrorCode::RefusedStream),
        ];
        let bytes = if stream.id < 3_001 {
            answer.concat()
        } else {
            answer[2].clone()
        };
        for seen in client.feed(&bytes) {
            assert_eq!(
                seen.event,
                Event::Cancelled {
                    stream,
                    cause: CancelCause::Refused
                }
            );
            client.connection.forget(stream);
        }
    }
    assert_eq!((client.error(), client.connection.running()), (None, 0));
}

#[test]
fn what_is_no_request_is_not_sent() {
    let mut client = client();
    let call = |path| RequestHead::call("localhost", path);
    let mut check = |head: &RequestHead<'_>, expected| {
        let opened = client.connection.open(&mut client.output, head);
        assert_eq!(opened, Err(expected), "{head:?}");
        assert!(client.output.is_empty());
        assert_eq!(client.connection.running(), 0);
    };
    for path in [
        "",
        "t.T/Echo",
        "/a\r\nx: y",
        "/\n",
        "/\0",
        "/\u{e9}",
        "/a b",
        " /a",
        "/a\u{7f}",
    ] {
        check(&call(path), StreamOpenError::BadPath);
    }
    for authority in ["here\r\nx: y", "here\0", " here"] {
        check(
            &RequestHead::call(authority, "/"),
            StreamOpenError::BadAuthority,
        );
    }
    for name in [
        "connection",
        "keep-alive",
        "proxy-connection",
        "transfer-encoding",
        "upgrade",
        "te",
        "host",
        "content-type",
        "content-length",
        "grpc-timeout",
        "grpc-encoding",
        "grpc-accept-encoding",
    ] {
        let mut metadata = Metadata::new();
        metadata.push_ascii("x", "y").expect("valid");
        let pushed = metadata.push_received(name.as_bytes(), b"trailers");
        pushed.expect("it can be received");
        let head = RequestHead {
            metadata: Some(&metadata),
            ..call("/t.T/Echo")
        };
        check(&head, StreamOpenError::BadMetadata);
    }
    let stream = client.connection.open(&mut client.output, &call("/~!?%20"));
    assert_eq!(
        stream.map(|stream| stream.id),
        Ok(1),
        "no number was used up"
    );
}

#[test]
fn what_cannot_be_opened() {
    let mut client = Endpoint::client_with(&Config::client(), &[(3, 1), (6, 2_000)]);
    let mut metadata = Metadata::new();
    metadata.push_ascii("x", "y".repeat(3_000)).expect("valid");
    let large = RequestHead {
        metadata: Some(&metadata),
        ..RequestHead::call("localhost", "/")
    };
    assert_eq!(
        client.connection.open(&mut client.output, &large),
        Err(StreamOpenError::HeadTooLarge)
    );
    assert!(client.output.is_empty());
    let stream = open(&mut client);
    let head = RequestHead::call("localhost", "/");
    assert_eq!(
        client.connection.open(&mut client.output, &head),
        Err(StreamOpenError::TooManyStreams)
    );
    client
        .connection
        .reset(stream, &mut client.output, ErrorCode::Cancel);
    assert!(client.connection.open(&mut client.output, &head).is_ok());
    client.connection.drain(&mut client.output, 0);
    assert_eq!(
        client.connection.open(&mut client.output, &head),
        Err(StreamOpenError::GoingAway)
    );
}

/// What frames carry, one behind the other.
fn payload_of(frames: &[Frame]) -> Vec<u8> {
    frames
        .iter()
        .flat_map(|frame| frame.payload.clone())
        .collect()
}

/// Each piece is a DATA frame of its own where the windows allow it, and the rest follows when they
/// do.
#[test]
fn pieces_of_a_request_body_are_frames_until_the_window_is_empty() {
    let mut client = client();
    let stream = client
        .connection
        .open(&mut client.output, &RequestHead::post("here", "/upload"))
        .expect("a stream");
    let frames = client.frames();
    let fields = client.decode(&frames[0]);
    assert!(fields.contains(&(":method".into(), "POST".into())));
    assert!(fields.iter().all(|(name, _)| name != "te"), "{fields:?}");

    let (connection, out) = (&mut client.connection, &mut client.output);
    for piece in [&b"one"[..], b"", b"three"] {
        connection.send_request_body(stream, out, piece);
    }
    let frames = client.frames();
    let payloads: Vec<_> = frames.iter().map(|frame| &frame.payload[..]).collect();
    assert_eq!(payloads, [&b"one"[..], b"three"], "an empty one is none");

    let large: Vec<u8> = (0..70_000_u32).map(|at| at as u8).collect();
    let (connection, out) = (&mut client.connection, &mut client.output);
    connection.send_request_body(stream, out, &large);
    connection.close_send(stream, out);
    let first = payload_of(&client.frames());
    assert_eq!(first.len(), 65_535 - 8, "what the window has");
    assert_eq!(client.connection.queued_bytes(), 70_000 - first.len());
    let more = [window_update(0, 100_000), window_update(1, 100_000)].concat();
    client.feed(&more);
    client.connection.transmit(&mut client.output, 0);
    let frames = client.frames();
    assert!(frames.last().expect("a frame").ends_stream());
    assert!([first, payload_of(&frames)].concat() == large);

    let (connection, out) = (&mut client.connection, &mut client.output);
    connection.send_request_body(stream, out, b"after its end");
    assert!(client.frames().is_empty());
}

#[test]
fn plain_requests() {
    let mut client = client();
    let stream = client
        .connection
        .open(&mut client.output, &RequestHead::get("here", "/"))
        .expect("a stream");
    client.connection.close_send(stream, &mut client.output);
    let seen = client.feed(
        &[
            headers(1, &[(":status", "200"), ("content-length", "5")], false),
            data(1, b"hello", true),
        ]
        .concat(),
    );
    let events: Vec<_> = seen.iter().map(|seen| seen.event).collect();
    assert_eq!(
        events,
        [
            Event::Response { stream, end: false },
            Event::Body {
                stream,
                last: false
            },
            Event::Finished { stream }
        ]
    );
    assert_eq!(seen[1].message, b"hello");
}

#[test]
fn held_answers_come_before_their_end() {
    let mut client = client();
    let stream = open(&mut client);
    client.feed(&headers(1, &HEAD, false));
    client.connection.hold(stream, true);
    let rest = [
        data(1, &message(b"a"), false),
        data(1, &message(b"b"), false),
        headers(1, &[("grpc-status", "9")], true),
    ];
    assert_eq!(client.feed(&rest.concat()), []);
    client.connection.hold(stream, false);
    let seen = client.feed(b"");
    assert_eq!(messages(&seen), [b"a", b"b"]);
    assert_eq!(
        seen.last().map(|seen| seen.event),
        Some(Event::Finished { stream })
    );
    assert_eq!(ended(&client).0, Code::FailedPrecondition);
    assert_ne!(client.connection.status(), &Status::OK);
}

#[test]
fn the_authority_is_sent_without_user_information() {
    let mut client = client();
    for (authority, sent) in [
        ("here:1", "here:1"),
        ("user:secret@here:1", "here:1"),
        ("user@here", "here"),
        ("a@b@here", "here"),
        ("user:secret@here:1", "here:1"),
    ] {
        let head = RequestHead::call(authority, "/a.B/C");
        let opened = client.connection.open(&mut client.output, &head);
        opened.expect("a stream");
        let frames = client.frames();
        let fields = client.decode(&frames[0]);
        let mut found = fields.iter().filter(|(name, _)| name == ":authority");
        assert_eq!(found.next().map(|(_, value)| value.as_str()), Some(sent));
        assert_eq!(found.next(), None);
    }
}

/// The same head again and again, others in between, changes of the table size: what a decoder
/// reads is always what was asked for, and a head that is repeated is a few bytes.
#[test]
fn repeated_heads_are_remembered_and_stay_true() {
    let mut client = client();
    let mut lengths = Vec::new();
    for round in 0..60_u32 {
        let paths = ["/a.B/C", "/a.B/D", "/a.B/E", "/a.B/F", "/a.B/G", "/a.B/H"];
        let path = paths[round as usize % (1 + round as usize / 10)];
        let head = RequestHead {
            timeout_ns: (round % 3 == 0).then_some(u64::from(round + 1) * 1_000_000),
            user_agent: "test/1",
            ..RequestHead::call("here", path)
        };
        client
            .connection
            .open(&mut client.output, &head)
            .expect("a stream");
        let frames = client.frames();
        lengths.push(frames[0].payload.len());
        let fields = client.decode(&frames[0]);
        let value = |name: &str| {
            let field = fields.iter().find(|(field, _)| field == name);
            field.map(|(_, value)| value.as_str())
        };
        assert_eq!(value(":path"), Some(path), "round {round}");
        assert_eq!(value(":authority"), Some("here"));
        assert_eq!(value("user-agent"), Some("test/1"));
        assert_eq!(value("grpc-timeout").is_some(), round % 3 == 0);
        if round == 25 {
            // SETTINGS_HEADER_TABLE_SIZE: room for two or three entries.
            client.feed(&frame(kind::SETTINGS, 0, 0, &[0, 1, 0, 0, 0, 120]));
            client.frames();
        }
    }
    assert!(lengths[1] < 12, "{lengths:?}");
    assert_eq!(lengths[1], lengths[2]);
}

/// The trailers of a good answer are remembered by their bytes, and mean something else when the
/// table has changed.
#[test]
fn repeated_trailers_are_remembered_and_stay_true() {
    // The first entry of the dynamic table: RFC 7541 sections 2.3.3 and 6.1.
    const NEWEST: &[u8] = &[0x80 | 62];
    // A literal with incremental indexing and a new name: RFC 7541 section 6.2.1.
    let indexed = |value: &[u8]| [b"\x40\x0bgrpc-status", &[value.len() as u8][..], value].concat();
    let mut client = client();
    let mut call = |trailers: &[u8]| {
        let stream = open(&mut client);
        client.connection.close_send(stream, &mut client.output);
        let answer = [
            headers(stream.id, &HEAD, false),
            data(stream.id, &message(b"answer"), false),
            frame(
                kind::HEADERS,
                flag::END_HEADERS | flag::END_STREAM,
                stream.id,
                trailers,
            ),
        ];
        let seen = client.feed(&answer.concat());
        let last = seen.last().map(|seen| seen.event);
        assert_eq!(last, Some(Event::Finished { stream }));
        client.connection.forget(stream);
        client.connection.status().code()
    };
    assert_eq!(call(&indexed(b"0")), Code::Ok);
    for _ in 0..3 {
        assert_eq!(call(NEWEST), Code::Ok);
    }
    assert_eq!(call(&indexed(b"5")), Code::NotFound);
    for _ in 0..3 {
        assert_eq!(call(NEWEST), Code::NotFound, "the same bytes");
    }
    assert_eq!(call(&indexed(b"0")), Code::Ok);
    assert_eq!(call(&[NEWEST, b"\x00\x01x\x01y"].concat()), Code::Ok);
    assert_eq!(call(NEWEST), Code::Ok);
}

/// The smaller of both sides' limits, less what is open; never below zero when the server allows
/// less later.
#[test]
fn streams_are_left_up_to_the_smaller_limit() {
    let config = Config {
        max_streams: 3,
        ..Config::client()
    };
    for (allowed, least) in [(2, 2), (3, 3), (100, 3)] {
        let mut client = Endpoint::client_with(&config, &[(3, allowed)]);
        for _ in 0..2 {
            let mut streams = Vec::new();
            for open_now in 0..least {
                assert_eq!(client.connection.streams_left(), least - open_now);
                streams.push(open(&mut client));
            }
            assert_eq!(client.connection.streams_left(), 0);
            client.feed(&settings(&[(3, 1)]));
            assert_eq!(client.connection.streams_left(), 0);
            client.feed(&settings(&[(3, allowed)]));
            for stream in streams {
                let (connection, out) = (&mut client.connection, &mut client.output);
                connection.reset(stream, out, ErrorCode::Cancel);
            }
        }
    }
}

/// Returns the longest path with which a head is opened, to a server that takes lists of
/// 2,000 bytes.
fn longest_path(head: RequestHead<'_>) -> usize {
    const MAX: u32 = 2_000;
    let mut client = Endpoint::client_with(&Config::client(), &[(6, MAX)]);
    let path = "/".repeat(MAX as usize);
    let fits = |&length: &usize| {
        let path = &path[..length];
        let (connection, out) = (&mut client.connection, &mut client.output);
        let opened = connection.open(out, &RequestHead { path, ..head });
        let frames = client.frames();
        let Ok(stream) = opened else {
            assert_eq!(
                (opened, frames),
                (Err(StreamOpenError::HeadTooLarge), vec![])
            );
            return false;
        };
        let fields = client.decode(&frames[0]);
        let bytes: usize = fields
            .iter()
            .map(|(name, value)| name.len() + value.len() + 32)
            .sum();
        assert!(
            bytes <= MAX as usize,
            "{bytes} bytes are more than is taken"
        );
        let (connection, out) = (&mut client.connection, &mut client.output);
        connection.reset(stream, out, ErrorCode::Cancel);
        client.frames();
        true
    };
    (1..MAX as usize).take_while(fits).count()
}

/// Whatever part of a head is longer by some bytes, another has to be as much shorter.
#[test]
fn every_part_of_a_head_counts_towards_what_the_server_takes() {
    let metadata = |name: usize, value: usize| {
        let mut metadata = Metadata::new();
        let pushed = metadata.push_ascii("n".repeat(name), "v".repeat(value));
        pushed.expect("valid");
        metadata
    };
    let (few, longer_name, longer_value) = (metadata(10, 30), metadata(17, 30), metadata(10, 60));
    let head = RequestHead {
        user_agent: "agent",
        metadata: Some(&few),
        ..RequestHead::call("localhost", "/")
    };
    let usual = longest_path(head);
    assert!(usual > 1_000, "{usual}");
    let longer = [
        (
            "scheme",
            RequestHead {
                scheme: "https",
                ..head
            },
            1,
        ),
        (
            "authority",
            RequestHead {
                authority: "localhost:4317",
                ..head
            },
            5,
        ),
        (
            "user agent",
            RequestHead {
                user_agent: "agent/1.0",
                ..head
            },
            4,
        ),
        (
            "name",
            RequestHead {
                metadata: Some(&longer_name),
                ..head
            },
            7,
        ),
        // As much as base64 would take.
        (
            "value",
            RequestHead {
                metadata: Some(&longer_value),
                ..head
            },
            40,
        ),
    ];
    for (part, head, bytes) in longer {
        assert_eq!(longest_path(head), usual - bytes, "{part}");
    }
    let without = RequestHead {
        metadata: None,
        ..head
    };
    assert_eq!(longest_path(without), usual + 10 + 40 + 36);
}

/// Until the server's SETTINGS have come it is not known how many streams it allows.
#[test]
fn the_settings_of_the_server_are_awaited() {
    let mut client = Endpoint::new(&Config::client());
    let ack = frame(kind::SETTINGS, flag::ACK, 0, &[]);
    let bytes = [settings(&[(3, 7)]), ack].concat();
    assert!(!client.connection.has_peer_settings());
    assert_eq!(client.feed(&bytes[..14]), [], "but for the last byte");
    assert!(!client.connection.has_peer_settings());
    assert_eq!(client.feed(&bytes[14..]), []);
    assert!(client.connection.has_peer_settings());
    assert_eq!(client.connection.streams_left(), 7);
}

/// Answers that become far more than was sent end their calls, and nothing else.
#[test]
fn bombs_of_a_server_end_their_calls_alone() {
    let zeros = |stream: StreamKey, mebibytes: usize| {
        let mut packed = Vec::new();
        Deflater::new().gzip(&vec![0; mebibytes << 20], &mut packed);
        let list = [&HEAD[..], &[("grpc-encoding", "gzip")]].concat();
        let mut sent = headers(stream.id, &list, false);
        for piece in prefixed(1, &packed).chunks(limits::MAX_FRAME_BYTES) {
            sent.extend_from_slice(&data(stream.id, piece, false));
        }
        sent
    };
    let config = Config {
        stream_window: Some(64 << 20),
        connection_window: Some(64 << 20),
        max_message_bytes: 1 << 30,
        ..Config::client()
    };
    let mut client = Endpoint::client_with(&config, &[]);
    let waiting = open(&mut client);
    let answer = |client: &mut Endpoint, mebibytes| {
        let stream = open(client);
        let seen = client.feed(&zeros(stream, mebibytes));
        let is_dense = seen.iter().any(|seen| match &seen.event {
            Event::Cancelled { stream: of, cause } => {
                assert_eq!((*of, *cause), (stream, CancelCause::MessageTooDense));
                true
            }
            _ => false,
        });
        match is_dense {
            true => client.connection.forget(stream),
            false => {
                let (connection, out) = (&mut client.connection, &mut client.output);
                connection.reset(stream, out, ErrorCode::Cancel);
            }
        }
        client.output.clear();
        assert_eq!(client.error(), None);
        is_dense
    };
    for _ in 0..2 {
        assert!(answer(&mut client, 100), "alone it is too dense");
        // What was refused costs nothing; what was taken does, until time has passed.
        let taken = (0..20).take_while(|_| !answer(&mut client, 8)).count();
        assert!((8..12).contains(&taken), "{taken}");
        assert!(answer(&mut client, 8), "nothing is left");
        client.now_ns += 10_000_000_000;
    }
    let seen = client.feed(&zeros(waiting, 1));
    let is_message = |seen: &Seen| matches!(seen.event, Event::Message { .. });
    assert!(seen.iter().any(is_message));
}
