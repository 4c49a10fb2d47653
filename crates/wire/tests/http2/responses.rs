//! What a server sends.

use crate::support::*;
use std::sync::Arc;
use wire::grpc::{Code, Inflater, Metadata, Status};
use wire::http2::frame::kind;
use wire::{Config, SharedBytes, StreamKey};

fn shared(bytes: &[u8]) -> SharedBytes {
    SharedBytes::from(Arc::from(bytes))
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
    let body: Arc<[u8]> = vec![5; 20_000].into();
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
        Arc::from(vec![3; 500]),
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
    // A peer that shrinks the table has to be told by the next block (RFC 7541 section 4.2), so that it is not constant.
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
