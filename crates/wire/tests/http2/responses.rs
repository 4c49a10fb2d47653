//! What a server sends.

use crate::support::*;
use bytes::Bytes;
use std::sync::Arc;
use wire::grpc::{Code, Inflater, Metadata, Status};
use wire::http2::frame::kind;
use wire::{BodyCharge, Config, ErrorCode, RequestHead, SentPart, SharedBytes, StreamKey};

fn shared(bytes: &[u8]) -> SharedBytes {
    SharedBytes::from(Bytes::copy_from_slice(bytes))
}

fn with_call() -> (Endpoint, StreamKey) {
    let mut server = Endpoint::server();
    let fields = [&CALL[..], &[("grpc-accept-encoding", "gzip")]].concat();
    let seen = server.feed(&[headers(1, &fields, false), data(1, &message(b"a"), true)].concat());
    server.frames();
    (server, requests(&seen)[0])
}

fn field<'a>(fields: &'a [(String, String)], name: &str) -> Option<&'a str> {
    fields
        .iter()
        .find(|field| field.0 == name)
        .map(|field| field.1.as_str())
}

#[test]
fn a_unary_answer_is_three_frames() {
    let (mut server, stream) = with_call();
    server
        .connection
        .respond(stream, &mut server.output, |out| {
            out.extend_from_slice(b"hello")
        });
    let frames = server.frames();
    assert_eq!(
        frames.iter().map(|frame| frame.kind).collect::<Vec<_>>(),
        [kind::HEADERS, kind::DATA, kind::HEADERS]
    );
    let head = server.decode(&frames[0]);
    assert_eq!(
        head,
        [
            (":status".into(), "200".into()),
            ("content-type".into(), "application/grpc".into())
        ]
    );
    assert_eq!(frames[1].payload, message(b"hello"));
    assert_eq!(
        server.decode(&frames[2]),
        [("grpc-status".into(), "0".into())]
    );
    assert!(frames[2].ends_stream() && !frames[0].ends_stream() && !frames[1].ends_stream());
    assert_eq!(server.connection.running(), 0);
}

#[test]
fn an_error_without_a_message_is_one_frame() {
    let (mut server, stream) = with_call();
    let mut metadata = Metadata::new();
    metadata.push_ascii("x-detail", "some text").expect("valid");
    metadata
        .push_binary("x-detail-bin", [0, 1, 255])
        .expect("valid");
    let status = Status::new(Code::NotFound, "no such thing: 100 %\n").with_metadata(metadata);
    server
        .connection
        .finish(stream, &mut server.output, &status);
    let frames = server.frames();
    assert_eq!(frames.len(), 1);
    assert!(frames[0].ends_stream());
    let fields = server.decode(&frames[0]);
    assert_eq!(field(&fields, ":status"), Some("200"));
    assert_eq!(field(&fields, "grpc-status"), Some("5"));
    assert_eq!(
        field(&fields, "grpc-message"),
        Some("no such thing: 100 %25%0A")
    );
    assert_eq!(field(&fields, "x-detail"), Some("some text"));
    assert_eq!(field(&fields, "x-detail-bin"), Some("AAH/"));
}

#[test]
fn initial_and_trailing_metadata() {
    let (mut server, stream) = with_call();
    server.connection.add_header(stream, b"x-first", b"1");
    server.connection.add_trailer(stream, b"x-last", b"2");
    server
        .connection
        .respond(stream, &mut server.output, |out| out.push(7));
    let frames = server.frames();
    assert_eq!(field(&server.decode(&frames[0]), "x-first"), Some("1"));
    let trailers = server.decode(&frames[2]);
    assert_eq!(
        (field(&trailers, "grpc-status"), field(&trailers, "x-last")),
        (Some("0"), Some("2"))
    );
}

#[test]
fn a_stream_of_messages() {
    let (mut server, stream) = with_call();
    for byte in 0..3 {
        server
            .connection
            .send_message(stream, &mut server.output, |out| out.push(byte));
    }
    server.connection.finish(
        stream,
        &mut server.output,
        &Status::new(Code::Aborted, "enough"),
    );
    let frames = server.frames();
    let payloads: Vec<_> = frames
        .iter()
        .filter(|frame| frame.kind == kind::DATA)
        .map(|frame| frame.payload.clone())
        .collect();
    assert_eq!(payloads, [message(&[0]), message(&[1]), message(&[2])]);
    server.decode(&frames[0]);
    assert_eq!(
        field(&server.decode(&frames[4]), "grpc-message"),
        Some("enough")
    );
}

#[test]
fn shared_bodies_are_one_message() {
    let (mut server, stream) = with_call();
    let body: Bytes = vec![5; 20_000].into();
    server.connection.send_shared(
        stream,
        &mut server.output,
        |out| out.extend_from_slice(b"head"),
        body,
    );
    server
        .connection
        .finish(stream, &mut server.output, &Status::OK);
    let frames = server.frames();
    let payload: Vec<_> = frames
        .iter()
        .filter(|frame| frame.kind == kind::DATA)
        .flat_map(|frame| frame.payload.clone())
        .collect();
    assert_eq!(payload, message(&[&b"head"[..], &[5; 20_000]].concat()));
    assert!(frames.last().expect("trailers").ends_stream());
}

#[test]
fn compressed_answers() {
    let (mut server, stream) = with_call();
    server.connection.set_compress(stream, true);
    server
        .connection
        .send_message(stream, &mut server.output, |out| {
            out.extend_from_slice(&[1; 1_000])
        });
    server.connection.set_compress(stream, false);
    server
        .connection
        .send_message(stream, &mut server.output, |out| {
            out.extend_from_slice(b"plain")
        });
    server.connection.set_compress(stream, true);
    server.connection.send_shared(
        stream,
        &mut server.output,
        |out| out.push(2),
        Bytes::from(vec![3; 500]),
    );
    server
        .connection
        .finish(stream, &mut server.output, &Status::OK);
    let frames = server.frames();
    assert_eq!(
        field(&server.decode(&frames[0]), "grpc-encoding"),
        Some("gzip")
    );
    let bodies: Vec<_> = frames
        .iter()
        .filter(|frame| frame.kind == kind::DATA)
        .map(|frame| frame.payload.clone())
        .collect();
    let unzip = |payload: &[u8]| {
        assert_eq!(payload[0], 1);
        let mut out = Vec::new();
        Inflater::new()
            .gunzip(&payload[5..], 10_000, &mut out)
            .expect("gzip");
        out
    };
    assert_eq!(unzip(&bodies[0]), [1; 1_000]);
    assert_eq!(bodies[1], message(b"plain"));
    assert_eq!(unzip(&bodies[2]), [&[2][..], &[3; 500]].concat());
}

#[test]
fn a_peer_that_does_not_read_gzip_gets_none() {
    let mut server = Endpoint::server();
    let stream = requests(&server.feed(&unary(1, b"a")))[0];
    server.connection.set_compress(stream, true);
    server
        .connection
        .respond(stream, &mut server.output, |out| out.push(1));
    let frames = server.frames_of_kind(kind::DATA);
    assert_eq!(frames[0].payload, message(&[1]));
}

/// A list may come in several fields (RFC 9110 section 5.3): whatever one of them names, the peer
/// reads.
#[test]
fn a_peer_reads_gzip_if_any_of_its_fields_says_so() {
    for (values, reads_gzip) in [
        (&["gzip", "identity"][..], true),
        (&["identity", "gzip"], true),
        (&["gzip", "identity, gzip"], true),
        (&["gzip", "gzip", "gzip", "gzip"], true),
        (&["identity", "deflate"], false),
    ] {
        let mut server = Endpoint::server();
        let mut fields = CALL.to_vec();
        fields.extend(values.iter().map(|value| ("grpc-accept-encoding", *value)));
        let stream = requests(&server.feed(&headers(1, &fields, true)))[0];
        let (connection, out) = (&mut server.connection, &mut server.output);
        connection.set_compress(stream, true);
        connection.send_message(stream, out, |out| out.push(1));
        let frames = server.frames_of_kind(kind::DATA);
        assert_eq!(frames[0].payload[0], u8::from(reads_gzip), "{values:?}");
    }
}

#[test]
fn who_waits_to_send_a_body_is_told_to_go_on() {
    let mut server = Endpoint::server();
    let mut put = GET;
    put[0].1 = "PUT";
    let stream = requests(&server.feed(&headers(1, &put, false)))[0];
    server.frames();
    (server.connection).send_continue(stream, &mut server.output);
    let frames = server.frames();
    let fields = server.decode(&frames[0]);
    assert_eq!(fields, [(":status".into(), "100".into())]);
    assert_eq!((frames.len(), frames[0].ends_stream()), (1, false));
    (server.connection).send_plain_headers(stream, &mut server.output, 200, &[], false);
    assert_eq!(server.frames().len(), 1);
    // The answer has begun, so that it says nothing any more.
    (server.connection).send_continue(stream, &mut server.output);
    assert_eq!(server.frames().len(), 0);
}

#[test]
fn plain_answers() {
    let mut server = Endpoint::server();
    let stream = requests(&server.feed(&headers(1, &GET, true)))[0];
    server.connection.send_plain(
        stream,
        &mut server.output,
        404,
        &[("content-type", "text/plain")],
        b"nothing here",
    );
    let frames = server.frames();
    let fields = server.decode(&frames[frames.len() - 2]);
    assert_eq!(
        (field(&fields, ":status"), field(&fields, "content-length")),
        (Some("404"), Some("12"))
    );
    assert_eq!(
        frames
            .last()
            .map(|frame| (frame.payload.as_slice(), frame.ends_stream())),
        Some((&b"nothing here"[..], true))
    );

    let mut head = GET;
    head[0].1 = "HEAD";
    let stream = requests(&server.feed(&headers(3, &head, true)))[0];
    server
        .connection
        .send_plain(stream, &mut server.output, 200, &[], b"not for HEAD");
    let frames = server.frames();
    assert_eq!((frames.len(), frames[0].ends_stream()), (1, true));
    let fields = server.decode(&frames[0]);
    assert_eq!(
        (field(&fields, ":status"), field(&fields, "content-length")),
        (Some("200"), Some("12")),
        "as long as the answer to GET"
    );

    let stream = requests(&server.feed(&headers(5, &GET, true)))[0];
    server
        .connection
        .send_plain_headers(stream, &mut server.output, 200, &[], false);
    server
        .connection
        .send_body(stream, &mut server.output, shared(b"one"));
    server
        .connection
        .send_body(stream, &mut server.output, shared(&[2; 5000]));
    server.connection.end_body(stream, &mut server.output, b"");
    let frames = server.frames();
    assert_eq!(
        frames
            .iter()
            .map(|frame| frame.payload.clone())
            .collect::<Vec<_>>()[1..],
        [&b"one"[..], &[2; 5000], b""]
    );
    assert!(frames[3].ends_stream());
    assert_eq!(server.connection.running(), 0);
}

#[test]
fn the_encoders_table_follows_the_peer() {
    // A peer that shrinks the table has to be told by the next block (RFC 7541 section 4.2), so
    // that it is not constant.
    let mut server = Endpoint::server_with(&Config::server(), &[(1, 0)]);
    let stream = requests(&server.feed(&unary(1, b"a")))[0];
    server
        .connection
        .respond(stream, &mut server.output, |out| out.push(1));
    let frames = server.frames();
    assert_eq!(frames[0].payload[0], 0x20);
    for frame in [&frames[0], &frames[2]] {
        server.decode(frame);
    }
    let stream = requests(&server.feed(&unary(3, b"a")))[0];
    server
        .connection
        .respond(stream, &mut server.output, |out| out.push(1));
    assert_eq!(server.frames()[0].payload[0], 0x88);
}

/// The block that tells the peer so is whichever comes next, be it the trailers of a call whose
/// head has gone.
#[test]
fn trailers_may_have_to_tell_the_size_of_the_table() {
    let mut server = Endpoint::server();
    for (id, is_told) in [(1, true), (3, false)] {
        let stream = requests(&server.feed(&unary(id, b"a")))[0];
        let (connection, out) = (&mut server.connection, &mut server.output);
        connection.send_message(stream, out, |out| out.push(1));
        server.feed(&settings(&[(1, 0)]));
        server.frames();
        let (connection, out) = (&mut server.connection, &mut server.output);
        connection.finish(stream, out, &Status::OK);
        let frames = server.frames();
        assert_eq!(frames[0].payload[0] == 0x20, is_told, "stream {id}");
        let trailers = server.decode(&frames[0]);
        assert_eq!(trailers, [("grpc-status".into(), "0".into())]);
    }
}

/// Neither on a stream that the peer has given up, nor behind our own end, whether that has gone
/// out or waits.
#[test]
fn nothing_is_sent_behind_the_end_of_a_stream() {
    let mut server = Endpoint::server();
    for id in [1, 3] {
        let stream = requests(&server.feed(&call(id)))[0];
        server.feed(&rst(id, ErrorCode::Cancel));
        server.frames();
        let (connection, out) = (&mut server.connection, &mut server.output);
        connection.send_message(stream, out, |out| out.push(1));
        connection.send_shared(stream, out, |_| {}, shared(&[1; 10_000]));
        connection.send_parts(stream, out, [SentPart::Own(b"a")].into_iter());
        assert_eq!(server.frames(), []);
        assert_eq!(server.connection.buffered_bytes(), 0);
        server.connection.forget(stream);
    }
    let mut client = Endpoint::client_with(&Config::client(), &[(4, 10)]);
    for (bytes, waits) in [(0, false), (100, true), (1, false), (200, true)] {
        let head = RequestHead::call("localhost", "/a.B/C");
        let (connection, out) = (&mut client.connection, &mut client.output);
        let stream = connection.open(out, &head).expect("a stream");
        connection.send_message(stream, out, |out| out.resize(out.len() + bytes, 7));
        connection.close_send(stream, out);
        let unsent = connection.unsent_bytes();
        assert_eq!(unsent > 0, waits);
        client.frames();
        for _ in 0..2 {
            let (connection, out) = (&mut client.connection, &mut client.output);
            connection.send_message(stream, out, |out| out.push(1));
            connection.close_send(stream, out);
            assert_eq!(client.connection.unsent_bytes(), unsent);
            assert_eq!(client.frames(), []);
        }
        client.feed(&window_update(stream.id, 1_000));
        let ends: Vec<_> = client.frames().iter().map(Frame::ends_stream).collect();
        assert_eq!(ends, if waits { vec![true] } else { vec![] });
    }
}

/// What is held in charge of a shared part counts itself.
#[derive(Debug)]
struct Counted {
    _count: Arc<()>,
}

impl BodyCharge for Counted {}

#[test]
fn the_parts_of_a_message_are_sent_in_order_and_charged_while_they_wait() {
    // Below 2 KiB a part is copied, and the other one is shared.
    let (large, small): (Bytes, Bytes) = (vec![1; 5_000].into(), vec![2; 10].into());
    let whole = message(&[&b"own"[..], &large, &small, b"last", &large].concat());
    for compressed in [false, true] {
        let mut server = Endpoint::server_with(&Config::server(), &[(4, 0)]);
        let fields = [&CALL[..], &[("grpc-accept-encoding", "gzip")]].concat();
        for id in [1, 3] {
            let charged = Arc::new(());
            let charge = |_: &Bytes| -> Box<dyn BodyCharge> {
                Box::new(Counted {
                    _count: Arc::clone(&charged),
                })
            };
            let parts = [
                SentPart::Own(b"own"),
                SentPart::Shared(&large, &charge),
                SentPart::Shared(&small, &charge),
                SentPart::Own(b"last"),
                SentPart::Shared(&large, &charge),
            ];
            let stream = requests(&server.feed(&headers(id, &fields, true)))[0];
            let (connection, out) = (&mut server.connection, &mut server.output);
            connection.set_compress(stream, compressed);
            connection.send_parts(stream, out, parts.into_iter());
            if compressed {
                assert!(server.connection.unsent_bytes() < 1_000, "all is packed");
            } else {
                assert_eq!(server.connection.unsent_bytes(), whole.len());
                let owned = whole.len() - 2 * large.len();
                assert_eq!(server.connection.buffered_bytes(), owned);
                assert_eq!(server.connection.held_bytes(), whole.len());
                assert_eq!(Arc::strong_count(&charged), 3, "the large ones");
            }
            server.frames();
            server.feed(&window_update(id, 20_000));
            let sent: Vec<_> = (server.frames().into_iter())
                .flat_map(|frame| frame.payload)
                .collect();
            if compressed {
                let mut plain = Vec::new();
                let unzipped = Inflater::new().gunzip(&sent[5..], 20_000, &mut plain);
                assert_eq!((unzipped, sent[0]), (Ok(()), 1));
                assert_eq!(plain, whole[5..]);
            } else {
                assert_eq!(sent, whole);
            }
            assert_eq!(Arc::strong_count(&charged), 1);
            let (connection, out) = (&mut server.connection, &mut server.output);
            connection.finish(stream, out, &Status::OK);
            assert_eq!(server.connection.buffered_bytes(), 0);
        }
    }
}

#[test]
fn an_answer_that_is_more_than_the_connection_may_hold_is_sent_whole() {
    let config = Config {
        max_unsent_bytes: 100_000,
        ..Config::server()
    };
    let mut server = Endpoint::server_with(&config, &[(4, 0)]);
    let streams = requests(&server.feed(&[unary(1, b"a"), unary(3, b"b")].concat()));
    server.frames();
    for stream in &streams {
        server
            .connection
            .respond(*stream, &mut server.output, |out| {
                out.resize(out.len() + 200_000, 7)
            });
    }
    let mut received = [0, 0];
    for _ in 0..50 {
        let updates = [1, 3].map(|id| window_update(id, 10_000));
        server.feed(&[&updates.concat()[..], &window_update(0, 20_000)].concat());
        for frame in server.frames() {
            if frame.kind == wire::http2::frame::kind::DATA {
                received[frame.stream as usize / 2] += frame.payload.len();
            }
        }
    }
    assert_eq!(received, [200_005; 2]);
    assert_eq!(server.connection.buffered_bytes(), 0);
}

/// Metadata of an answer is there until its stream has ended, and counts until then, also if the
/// peer takes nothing.
#[test]
fn metadata_of_answers_counts_as_buffered() {
    for is_reset in [false, true] {
        let (mut server, stream) = with_call();
        let before = server.connection.buffered_bytes();
        server
            .connection
            .add_header(stream, b"x-first", &[b'1'; 3_000]);
        server
            .connection
            .add_trailer(stream, b"x-last", &[b'2'; 4_000]);
        let buffered = server.connection.buffered_bytes() - before;
        assert!((4_000..8_000).contains(&buffered), "{buffered}");
        if is_reset {
            server.feed(&rst(1, ErrorCode::Cancel));
            assert!(server.connection.buffered_bytes() >= 4_000);
            server.connection.forget(stream);
        } else {
            let status = Status::new(Code::Ok, "");
            (server.connection).finish(stream, &mut server.output, &status);
        }
        assert_eq!(server.connection.buffered_bytes(), 0, "{is_reset}");
    }
}
