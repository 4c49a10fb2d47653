//! Frames as real clients send them, and what a connection makes of them.

mod bodies;
mod draining;
mod responses;

use super::*;
use crate::framed::tests::hex;
use crate::grpc::{Code, Status};

/// A server that echoes what it is sent, and counts.
struct Echo {
    connection: FramedServerConnection,
    input: Vec<u8>,
    out: Vec<u8>,
    paths: Vec<String>,
    cancelled: usize,
    now_ns: u64,
    echoes: bool,
    open: Vec<(StreamKey, Vec<u8>)>,
}

impl Echo {
    fn new(protocol: FramedProtocol) -> Echo {
        Echo {
            connection: FramedServerConnection::new(protocol, &Config::server(), 0),
            input: Vec::new(),
            out: Vec::new(),
            paths: Vec::new(),
            cancelled: 0,
            now_ns: 0,
            echoes: true,
            open: Vec::new(),
        }
    }

    /// Takes all that is sent, as the driver does.
    fn take_all(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        while !self.out.is_empty() {
            all.extend(self.take());
            self.connection.transmit(&mut self.out, self.now_ns);
        }
        all
    }

    fn receive(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        let mut consumed = 0;
        loop {
            let (input, out) = (&self.input, &mut self.out);
            let connection = &mut self.connection;
            let Some(event) = connection.poll_event(input, &mut consumed, out, self.now_ns) else {
                break;
            };
            match event {
                Event::Request { stream, .. } => {
                    let path = connection.head().path().to_vec();
                    self.paths.push(String::from_utf8(path).expect("text"));
                    connection.echo_attachment(stream);
                }
                Event::Message { stream, .. } => {
                    let message = connection.take_message();
                    let body = message.bytes(input);
                    if self.echoes {
                        connection.respond(stream, out, |out| out.extend_from_slice(body));
                    } else {
                        self.open.push((stream, body.to_vec()));
                    }
                    connection.give_back(message);
                }
                Event::Refused => {}
                Event::Cancelled { stream, .. } => {
                    self.cancelled += 1;
                    connection.forget(stream);
                }
                other => panic!("{other:?}"),
            }
        }
        self.input.drain(..consumed);
    }

    fn answer(&mut self, at: usize) {
        let (stream, body) = self.open.remove(at);
        (self.connection).respond(stream, &mut self.out, |out| out.extend_from_slice(&body));
    }

    fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    /// What is answered to a frame on a connection of its own.
    fn to(protocol: FramedProtocol, request: &[u8]) -> Vec<u8> {
        let mut echo = Echo::new(protocol);
        echo.receive(request);
        assert_eq!(echo.connection.close_reason(), None);
        assert_eq!((echo.input.len(), echo.connection.running()), (0, 0));
        echo.take()
    }
}

const META: &str = "0a1d 0a13 6578616d706c652e4563686f53657276696365 1204 4563686f 1800";
/// compress_type, correlation_id, content_type, checksum_type, checksum_value.
const REST: &str = "1800 20a080808010 5000 5800 6200";
const HELLO: &str = "0a0b68656c6c6f20776f726c64";
/// The message of the request, and its length.
const HELLO_BYTES: usize = 13;

/// A frame of baidu_std.
fn frame(meta: &str, body: &str) -> Vec<u8> {
    frame_of(meta, &hex(body))
}

/// The same with a body of any bytes.
fn frame_of(meta: &str, body: &[u8]) -> Vec<u8> {
    let meta = hex(meta);
    let mut frame = b"PRPC".to_vec();
    frame.extend(((meta.len() + body.len()) as u32).to_be_bytes());
    frame.extend((meta.len() as u32).to_be_bytes());
    frame.extend(meta);
    frame.extend(body);
    frame
}

/// A frame of SRPC.
fn srpc_frame(meta: &str, body: &str) -> Vec<u8> {
    srpc_frame_of(meta, &hex(body))
}

/// The same with a body of any bytes.
fn srpc_frame_of(meta: &str, body: &[u8]) -> Vec<u8> {
    let meta = hex(meta);
    let mut frame = b"SRPC".to_vec();
    frame.extend((meta.len() as u32).to_be_bytes());
    frame.extend((body.len() as u32).to_be_bytes());
    frame.extend([0; 4]);
    frame.extend(meta);
    frame.extend(body);
    frame
}

/// Code and text of the error that a frame of baidu_std is.
fn error_of(frame: &[u8]) -> (i32, String) {
    let header = FramedProtocol::BaiduStd
        .read_header(frame)
        .expect("a header");
    assert_eq!(header.body_bytes, 0, "an error has no body");
    let meta = crate::framed::baidu_std::RpcMeta::decode(&frame[12..]).expect("metadata");
    let response = meta.response.expect("a response");
    let text = response.error_text.unwrap_or_default().to_owned();
    (response.error_code.unwrap_or(0), text)
}

#[test]
fn requests_of_a_brpc_client_are_answered_byte_by_byte_as_by_its_server() {
    let (smallest, with_foo) = (
        "0a1b 0a13 6578616d706c652e4563686f53657276696365 1204 4563686f",
        "2803",
    );
    let cases = [
        (
            format!("{META} {REST}"),
            HELLO.to_owned(),
            format!("12020800 {REST}"),
            HELLO.to_owned(),
        ),
        (
            format!("{META} 1800 20a080808010 {with_foo} 5000 5800 6200"),
            format!("{HELLO} 666f6f"),
            format!("12020800 1800 20a080808010 {with_foo} 5000 5800 6200"),
            format!("{HELLO} 666f6f"),
        ),
        (
            format!("{META} 1800 20a080808010 {with_foo} 5000 5801 6204d38cab46"),
            format!("{HELLO} 666f6f"),
            format!("12020800 1800 20a080808010 {with_foo} 5000 5800 6204d38cab46"),
            format!("{HELLO} 666f6f"),
        ),
        (
            format!("{smallest} 2007"),
            HELLO.to_owned(),
            "12020800180020075000 58006200".to_owned(),
            HELLO.to_owned(),
        ),
        (
            smallest.to_owned(),
            HELLO.to_owned(),
            "12020800180020005000 58006200".to_owned(),
            HELLO.to_owned(),
        ),
    ];
    for (meta, body, answer_meta, answer_body) in cases {
        let answer = Echo::to(FramedProtocol::BaiduStd, &frame(&meta, &body));
        assert_eq!(answer, frame(&answer_meta, &answer_body), "{meta}");
    }
}

#[test]
fn requests_of_an_srpc_client_are_answered_as_by_its_server() {
    let names = "0a0f 0a07 4578616d706c65 1204 4563686f";
    for rest in ["3800", "", "2000 3800"] {
        let request = srpc_frame(&format!("{names} {rest}"), HELLO);
        let answer = Echo::to(FramedProtocol::Srpc, &request);
        assert_eq!(answer, srpc_frame("12020801 3800", HELLO));
    }
    let unreadable = Echo::to(FramedProtocol::Srpc, &srpc_frame("0aff", HELLO));
    assert_eq!(unreadable, srpc_frame("12020804", ""));
    let json = Echo::to(
        FramedProtocol::Srpc,
        &srpc_frame(&format!("{names} 3802"), HELLO),
    );
    assert_eq!(json, srpc_frame("12020816 3800", ""));
    let lz4 = Echo::to(
        FramedProtocol::Srpc,
        &srpc_frame(&format!("{names} 2004"), HELLO),
    );
    assert_eq!(lz4, srpc_frame("12020808 3800", ""));
}

#[test]
fn what_is_not_supported_is_refused_with_its_reason_and_the_connection_goes_on() {
    let cases = [
        ("1803 2001", 1003, "compress_type 3"),
        ("1804 2001", 1003, "compress_type 4"),
        ("18ffffffffffffffffff01 2001", 1003, "compress_type -1"),
        (
            "2001 2864",
            1003,
            "attachment_size=100 is larger than request_size=13",
        ),
        ("2001 28ffffffffffffffffff01", 1003, "attachment_size=-1"),
        ("2001 3204 08011001", 1003, "chunks"),
        ("2001 4202 0801", 1003, "streaming"),
        ("2001 5001", 1003, "content_type 1"),
        ("2001 5802", 1003, "checksum_type 2"),
        ("2001 5801", 1003, "4 bytes"),
        ("2001 5801 6203d38cab", 1003, "4 bytes"),
        ("2001 5801 6205d38cab4600", 1003, "4 bytes"),
        ("2001 5801 6204d38cab47", 1003, "damaged"),
        ("1802 2001", 1003, "cannot be decompressed"),
        ("1801 2001", 1003, "cannot be decompressed"),
    ];
    let mut echo = Echo::new(FramedProtocol::BaiduStd);
    for (rest, code, text) in cases {
        echo.receive(&frame(&format!("{META} {rest}"), HELLO));
        let (found, shown) = error_of(&echo.take());
        assert_eq!(found, code, "{rest}");
        assert!(
            shown.contains(text) && shown.starts_with("[E1003]"),
            "{shown}"
        );
        echo.receive(&frame(&format!("{META} 2005"), HELLO));
        assert_eq!(echo.take(), frame("12020800180020055000 58006200", HELLO));
    }
    let (code, text) = error_of(&Echo::to(
        FramedProtocol::BaiduStd,
        &frame("12020800 2001", HELLO),
    ));
    assert_eq!((code, &*text), (1001, "[E1001]Fail to find service="));
    let (code, text) = error_of(&Echo::to(FramedProtocol::BaiduStd, &frame("2001", HELLO)));
    assert_eq!((code, &*text), (1001, "[E1001]Fail to find service="));
}

#[test]
fn a_frame_that_lies_about_itself_ends_the_connection_and_gets_no_answer() {
    let long_meta = format!("{META} 3a{}", "80".repeat(20_000));
    let cases = [
        (
            FramedProtocol::BaiduStd,
            hex("50525043 00000005 00000006 0102030405"),
        ),
        (FramedProtocol::BaiduStd, hex("50525043 04100000 00000010")),
        (FramedProtocol::BaiduStd, hex("50525043 ffffffff 00000010")),
        (FramedProtocol::BaiduStd, hex("58525043")),
        (FramedProtocol::BaiduStd, hex("5052504358")[..5].to_vec()),
        (FramedProtocol::BaiduStd, frame("0aff", HELLO)),
        (FramedProtocol::BaiduStd, frame(&long_meta, "")),
        (FramedProtocol::Srpc, hex("58525043")),
        (
            FramedProtocol::Srpc,
            hex("53525043 00000010 04100000 00000000"),
        ),
        (
            FramedProtocol::Srpc,
            hex("53525043 00010000 00000010 00000000"),
        ),
    ];
    for (at, (protocol, bytes)) in cases.into_iter().enumerate() {
        let mut echo = Echo::new(protocol);
        if at == 4 {
            // A header that begins well is waited for.
            echo.receive(&bytes);
            assert_eq!(echo.connection.close_reason(), None);
            continue;
        }
        echo.receive(&bytes);
        assert!(echo.connection.close_reason().is_some(), "{bytes:02x?}");
        assert!(echo.take().is_empty() && echo.input.is_empty());
    }
}

#[test]
fn answers_may_overtake_each_other_and_each_has_the_id_of_its_request() {
    let mut echo = Echo::new(FramedProtocol::BaiduStd);
    echo.echoes = false;
    let requests = [1, 2, 3].map(|id| frame(&format!("{META} 200{id}"), HELLO));
    echo.receive(&requests.concat());
    assert_eq!(echo.open.len(), 3);
    let mut expected = Vec::new();
    for (at, id) in [(1, 2), (1, 3), (0, 1)] {
        echo.answer(at);
        expected.extend(frame(&format!("12020800 1800 200{id} 500058006200"), HELLO));
    }
    assert_eq!(echo.take(), expected);
    assert_eq!(echo.connection.running(), 0);
}

#[test]
fn requests_without_an_id_are_taken_one_at_a_time_and_in_order() {
    let mut echo = Echo::new(FramedProtocol::BaiduStd);
    echo.echoes = false;
    let without_id = frame(META, HELLO);
    let with_id = frame(&format!("{META} 2009"), HELLO);
    for _ in 0..2 {
        let requests = [&with_id[..], &without_id, &without_id, &with_id].concat();
        echo.receive(&requests);
        for left in (0..4).rev() {
            assert_eq!(echo.open.len(), 1);
            assert!(!echo.connection.has_events());
            echo.answer(0);
            assert_eq!(echo.connection.has_events(), left > 0);
            echo.receive(&[]);
        }
        assert_eq!((echo.open.len(), echo.input.len()), (0, 0));
        let ids =
            [9, 0, 0, 9].map(|id| frame(&format!("12020800 1800 200{id} 500058006200"), HELLO));
        assert_eq!(echo.take(), ids.concat());
    }
}

#[test]
fn a_second_request_before_the_answer_ends_a_connection_of_srpc() {
    let request = srpc_frame("0a0f 0a07 4578616d706c65 1204 4563686f", HELLO);
    for (first, second) in [
        (2 * request.len(), 0),
        (request.len(), 1),
        (request.len() + 1, 0),
    ] {
        let mut echo = Echo::new(FramedProtocol::Srpc);
        echo.echoes = false;
        let both = request.repeat(2);
        echo.receive(&both[..first]);
        echo.receive(&both[first..first + second]);
        assert!(echo.connection.close_reason().is_some());
        assert!(echo.take().is_empty());
        assert_eq!(echo.cancelled, echo.paths.len());
        assert_eq!(echo.connection.running(), 0);
    }
}

#[test]
fn the_parts_of_a_frame_may_come_in_any_pieces() {
    let request = frame(&format!("{META} {REST}"), HELLO).repeat(2);
    let whole = Echo::to(FramedProtocol::BaiduStd, &request);
    for piece in 1..request.len() {
        let mut echo = Echo::new(FramedProtocol::BaiduStd);
        for part in request.chunks(piece) {
            echo.receive(part);
        }
        assert_eq!(echo.take(), whole);
    }
}

#[test]
fn the_head_of_a_call_has_path_token_and_metadata() {
    let mut echo = Echo::new(FramedProtocol::BaiduStd);
    let token = "3a05 746f6b656e";
    let entry = "4a0d 0a05 582d4b6579 1204 76616c31";
    for (rest, authorization, key) in [
        ("2001", None, None),
        (token, Some("Bearer token"), None),
        ("2001", Some("Bearer token"), None),
        (entry, Some("Bearer token"), Some("val1")),
        ("2001", Some("Bearer token"), None),
        ("3a0c 62656172657220 6f74686572", Some("bearer other"), None),
    ] {
        echo.receive(&frame(&format!("{META} {rest}"), HELLO));
        let head = echo.connection.head();
        let text =
            |value: Option<&[u8]>| value.map(|value| String::from_utf8_lossy(value).into_owned());
        assert_eq!(head.path(), b"/example.EchoService/Echo");
        assert!(head.is_grpc());
        assert_eq!(text(head.authorization()).as_deref(), authorization);
        assert_eq!(text(head.get(b"x-key")).as_deref(), key);
        assert_eq!(head.timeout_ns(), None);
    }
    // A route is that of one head.
    echo.connection.set_head_route(7);
    echo.receive(&frame(&format!("{META} 2001"), HELLO));
    assert_eq!(echo.connection.head_route(), Some(7));
    let other = META.replace("6578", "6579");
    echo.receive(&frame(&format!("{other} 2001"), HELLO));
    assert_eq!(echo.connection.head_route(), None);
    // timeout_ms stands in the request.
    let timed = "0a1e 0a13 6578616d706c652e4563686f53657276696365 1204 4563686f 40c801 2001";
    echo.receive(&frame(timed, HELLO));
    assert_eq!(echo.connection.head().timeout_ns(), Some(200_000_000));
}

/// Whoever sends it has sent it: a client does not send the same one again.
#[test]
fn the_proof_of_a_refused_request_stands_for_those_that_follow() {
    let plain = |echo: &mut Echo, expected: &str| {
        echo.receive(&frame(&format!("{META} 2001"), HELLO));
        let found = echo.connection.head().authorization();
        assert_eq!(
            found.map(String::from_utf8_lossy).as_deref(),
            Some(expected)
        );
    };
    // The compression is unknown; the attachment and the checksum cannot be; no service is named.
    for refused in [
        format!("{META} 1803 2001"),
        format!("{META} 287f 2001"),
        format!("{META} 2001 5801 6203 616263"),
        "2001".into(),
    ] {
        let mut echo = Echo::new(FramedProtocol::BaiduStd);
        for _ in 0..2 {
            echo.receive(&frame(&format!("{META} 2001 3a01 61"), HELLO));
            plain(&mut echo, "Bearer a");
            let served = echo.open.len();
            echo.receive(&frame(&format!("{refused} 3a01 62"), HELLO));
            assert_eq!(echo.open.len(), served, "{refused} is refused");
            plain(&mut echo, "Bearer b");
        }
        let mut echo = Echo::new(FramedProtocol::BaiduStd);
        echo.receive(&frame(&format!("{refused} 3a01 62"), HELLO));
        plain(&mut echo, "Bearer b");
    }
}

#[test]
fn a_call_has_one_proof_of_who_calls() {
    let entry = |name: &str, value: &str| {
        let digits =
            |text: &str| -> String { text.bytes().map(|byte| format!("{byte:02x}")).collect() };
        let (key_bytes, value_bytes) = (name.len(), value.len());
        let bytes = 4 + key_bytes + value_bytes;
        let (key, value) = (digits(name), digits(value));
        format!("4a{bytes:02x} 0a{key_bytes:02x}{key} 12{value_bytes:02x}{value}")
    };
    let (b, c) = (
        entry("authorization", "Bearer b"),
        entry("Authorization", "Bearer c"),
    );
    let data = "3a01 61";
    let broken = entry("authorization", "Bearer\nb");
    for requests in [
        // Two prove nobody, whichever they are.
        vec![(format!("{b} {c}"), Some("")), ("2001".into(), None)],
        vec![
            (format!("{b} {b}"), Some("")),
            (b.clone(), Some("Bearer b")),
        ],
        vec![(c.clone(), Some("Bearer c")), (b.clone(), Some("Bearer b"))],
        vec![
            (format!("{data} {b}"), Some("")),
            (b.clone(), Some("")),
            ("2001".into(), Some("Bearer a")),
        ],
        vec![
            (format!("{b} {data} {c}"), Some("")),
            ("2001".into(), Some("Bearer a")),
        ],
        // `authentication_data` twice: until others come.
        vec![
            (format!("{data} 3a01 62"), Some("")),
            ("2001".into(), Some("")),
            (b.clone(), Some("")),
            ("3a01 62".into(), Some("Bearer b")),
            (format!("{data} {data}"), Some("")),
            ("2001".into(), Some("")),
        ],
        vec![
            (format!("{data} 3a00"), Some("")),
            (format!("3a00 {data}"), Some("Bearer a")),
            ("3a00".into(), Some("Bearer a")),
        ],
        // What is no text is not as if nothing had come.
        vec![(broken, Some("")), ("2001".into(), None)],
        vec![
            (b.clone(), Some("Bearer b")),
            (data.into(), Some("Bearer a")),
        ],
    ] {
        let mut echo = Echo::new(FramedProtocol::BaiduStd);
        for (rest, expected) in requests {
            echo.receive(&frame(&format!("{META} 2001 {rest}"), HELLO));
            let head = echo.connection.head();
            let found = head.authorization().map(String::from_utf8_lossy);
            assert_eq!(found.as_deref(), expected, "{rest}");
            let fields = head.fields().filter(|(name, _)| *name == b"authorization");
            assert!(fields.count() <= 1, "{rest}");
        }
    }
}

#[test]
fn compressed_messages_are_decompressed_and_attachments_stay_as_they_are() {
    let mut gzipped = Vec::new();
    crate::grpc::compression::gzip(&hex(HELLO), &mut gzipped);
    let snapped = snap::raw::Encoder::new()
        .compress_vec(&hex(HELLO))
        .expect("fits");
    for (compress_type, packed) in [(2, gzipped), (1, snapped)] {
        let mut body = packed.clone();
        body.extend(b"foo");
        let digits: String = body.iter().map(|byte| format!("{byte:02x}")).collect();
        let request = frame(&format!("{META} 180{compress_type} 2001 2803"), &digits);
        let answer = frame(
            "12020800 1800 2001 2803 500058006200",
            &format!("{HELLO} 666f6f"),
        );
        assert_eq!(Echo::to(FramedProtocol::BaiduStd, &request), answer);
    }
    assert_eq!(hex(HELLO).len(), HELLO_BYTES);
}

#[test]
fn the_rest_of_a_request_whose_call_has_ended_is_thrown_away() {
    for end_at in [70, 40_000] {
        let mut echo = Echo::new(FramedProtocol::BaiduStd);
        let long = frame(&format!("{META} 2001"), &"78".repeat(50_000));
        let stream = StreamKey { slot: 0, id: 1 };
        echo.receive(&long[..end_at]);
        echo.connection.respond(stream, &mut echo.out, |_| {});
        echo.receive(&long[end_at..]);
        echo.receive(&frame(&format!("{META} 2002"), HELLO));
        let answers = [
            frame("12020800 1800 2001 500058006200", ""),
            frame("12020800 1800 2002 500058006200", HELLO),
        ];
        assert_eq!(echo.take(), answers.concat());
        assert_eq!(echo.connection.held_bytes(), 0);
    }
}

#[test]
fn what_is_larger_than_a_message_may_be_is_thrown_away_and_the_next_is_served() {
    let mut echo = Echo::new(FramedProtocol::BaiduStd);
    echo.connection.config.max_message_bytes = 20;
    for _ in 0..2 {
        echo.receive(&frame(&format!("{META} 2001"), &"00".repeat(21)));
        let (code, text) = error_of(&echo.take());
        assert_eq!(code, 2004);
        assert!(
            text.contains("21 bytes") && text.contains("20 is the limit"),
            "{text}"
        );
        echo.receive(&frame(&format!("{META} 2002"), HELLO));
        assert_eq!(echo.take(), frame("12020800 1800 2002 500058006200", HELLO));
    }
    let mut packed = Vec::new();
    crate::grpc::compression::gzip(&[0; 21], &mut packed);
    echo.connection.config.max_message_bytes = packed.len().max(20);
    let zeros = vec![0; packed.len().max(20) + 1];
    packed.clear();
    crate::grpc::compression::gzip(&zeros, &mut packed);
    let digits: String = packed.iter().map(|byte| format!("{byte:02x}")).collect();
    echo.receive(&frame(&format!("{META} 1802 2001"), &digits));
    let (code, text) = error_of(&echo.take());
    assert_eq!((code, echo.cancelled), (2004, 1));
    assert!(text.contains("when decompressed"), "{text}");
}

#[test]
fn a_large_message_is_charged_before_it_is_gathered_and_waits_for_its_turn() {
    const BYTES: usize = 200_000;
    let mut echo = Echo::new(FramedProtocol::BaiduStd);
    let long = frame(&format!("{META} 2001"), &"78".repeat(BYTES));
    for _ in 0..2 {
        echo.connection.set_turn_allowance(BYTES - 1);
        echo.receive(&long[..60_000]);
        let connection = &mut echo.connection;
        assert!(connection.waits_for_turn() && !connection.has_turn());
        assert_eq!(connection.next_turn_bytes(), BYTES);
        assert_eq!(
            (connection.held_bytes(), connection.expected_bytes()),
            (0, 0)
        );
        // The driver has room for so much, and what came stays there.
        assert!(echo.input.len() > 59_000);
        connection.force_turn();
        assert!(connection.has_events() && connection.has_turn());
        echo.receive(&[]);
        assert!(echo.input.is_empty() && !echo.connection.has_events());
        let connection = &echo.connection;
        assert_eq!(connection.held_bytes(), BYTES);
        assert!(connection.expected_bytes() < BYTES - 59_000);
        echo.receive(&long[60_000..]);
        assert!(echo.take().ends_with(&long[long.len() - BYTES..]));
        assert_eq!(
            (echo.connection.held_bytes(), echo.connection.running()),
            (0, 0)
        );
    }
}

/// Who announces much and sends nothing keeps no memory from others.
#[test]
fn a_large_message_has_its_turn_only_while_it_comes() {
    const BYTES: usize = 200_000;
    const PROBE: usize = limits::PROBE_BYTES as usize;
    let mut echo = Echo::new(FramedProtocol::BaiduStd);
    let long = frame(&format!("{META} 2001"), &"78".repeat(BYTES));
    let head = long.len() - BYTES;
    for _ in 0..2 {
        echo.receive(&long[..head + PROBE - 1]);
        assert!(!echo.connection.waits_for_turn() && !echo.connection.has_turn());
        assert_eq!(echo.connection.held_bytes(), 0);
        let mut sent = head + PROBE - 1;
        for lapsed in 0..3 {
            let due_ns = echo.connection.next_deadline_ns().expect("a timer");
            assert!(due_ns > echo.now_ns + limits::TURN_LAPSE_MS * NS_PER_MS);
            echo.receive(&long[sent..sent + PROBE]);
            sent += PROBE;
            let connection = &mut echo.connection;
            assert!(connection.has_turn(), "{lapsed} times before");
            assert_eq!(connection.expected_bytes(), long.len() - sent);
            assert_eq!(connection.held_bytes(), BYTES);
            let due_ns = connection.next_deadline_ns().expect("a timer");
            assert_eq!(due_ns, echo.now_ns + limits::TURN_LAPSE_MS * NS_PER_MS);
            // What is less than a frame is no progress.
            echo.now_ns += 1_000;
            echo.receive(&long[sent..sent + PROBE - 1]);
            sent += PROBE - 1;
            assert_eq!(echo.connection.next_deadline_ns(), Some(due_ns));
            echo.connection.deadline_passed(due_ns - 1);
            assert!(echo.connection.has_turn());
            echo.now_ns = due_ns;
            echo.connection.deadline_passed(due_ns);
            let connection = &mut echo.connection;
            assert!(!connection.has_turn() && !connection.waits_for_turn());
            let held = (connection.held_bytes(), connection.expected_bytes());
            assert_eq!(held, (sent - head, 0));
            // Nothing but the rest is asked for.
            connection.set_turn_allowance(long.len() - sent - 1);
            echo.receive(&long[sent..sent + PROBE]);
            let connection = &mut echo.connection;
            assert!(connection.waits_for_turn());
            assert_eq!(connection.next_turn_bytes(), long.len() - sent);
            connection.set_turn_allowance(long.len() - sent);
            sent += PROBE;
            echo.receive(&long[sent..sent + 1]);
            sent += 1;
            assert!(echo.connection.has_turn());
            echo.now_ns += limits::TURN_LAPSE_MS * NS_PER_MS;
            echo.connection.deadline_passed(echo.now_ns);
            assert!(!echo.connection.has_turn());
            echo.connection.set_turn_allowance(usize::MAX);
        }
        // The last bytes are less than a probe.
        echo.receive(&long[sent..]);
        assert!(echo.take().ends_with(&long[head..]));
        let connection = &echo.connection;
        assert_eq!((connection.held_bytes(), connection.running()), (0, 0));
        assert_eq!(connection.next_deadline_ns(), None);
    }
}

/// Many that have begun do not keep each other from their end: the first may go beyond the limit.
#[test]
fn a_turn_lets_in_some_of_a_message_and_one_beyond_the_limit_all_of_one_that_has_begun() {
    const STEP: usize = limits::FRAMED_TURN_BYTES;
    let mut echo = Echo::new(FramedProtocol::BaiduStd);
    let long = frame(&format!("{META} 2001"), &"78".repeat(3 * STEP));
    let body = long.len() - 3 * STEP;
    for _ in 0..2 {
        echo.connection.set_turn_allowance(STEP);
        echo.receive(&long[..body + 20_000]);
        let connection = &echo.connection;
        assert_eq!(
            (connection.next_turn_bytes(), connection.held_bytes()),
            (0, STEP)
        );
        assert_eq!(connection.expected_bytes(), STEP - 20_000);
        echo.receive(&long[body + 20_000..body + STEP + 20_000]);
        let connection = &echo.connection;
        assert!(connection.waits_for_turn() && !connection.has_turn());
        assert_eq!(
            (connection.next_turn_bytes(), connection.held_bytes()),
            (STEP, STEP)
        );
        echo.connection.force_turn();
        echo.receive(&[]);
        let connection = &echo.connection;
        assert_eq!(connection.held_bytes(), 3 * STEP);
        assert_eq!(connection.expected_bytes(), 2 * STEP - 20_000);
        echo.receive(&long[body + STEP + 20_000..]);
        assert!(echo.take_all().ends_with(&long[body..]));
        assert_eq!(echo.connection.held_bytes(), 0);
        // One that has brought less has no more than others.
        echo.connection.set_turn_allowance(0);
        echo.receive(&long[..body + 20_000]);
        echo.connection.force_turn();
        echo.receive(&[]);
        assert_eq!(echo.connection.held_bytes(), STEP);
        echo.connection.set_turn_allowance(usize::MAX);
        echo.receive(&long[body + 20_000..]);
        assert!(echo.take_all().ends_with(&long[body..]));
    }
}

/// A turn that goes on has no end but that of its message.
#[test]
fn a_turn_lasts_as_long_as_frames_come() {
    const PROBE: usize = limits::PROBE_BYTES as usize;
    let mut echo = Echo::new(FramedProtocol::BaiduStd);
    let long = frame(&format!("{META} 2001"), &"78".repeat(10 * PROBE));
    let (first, rest) = long.split_at(long.len() - 9 * PROBE);
    echo.receive(first);
    for part in rest.chunks(PROBE) {
        assert!(echo.connection.has_turn());
        echo.now_ns += limits::TURN_LAPSE_MS * NS_PER_MS - 1;
        echo.connection.deadline_passed(echo.now_ns);
        assert!(echo.connection.has_turn());
        echo.receive(part);
    }
    assert!(echo.take().ends_with(rest));
}

/// They take a share of a connection's turn.
#[test]
fn a_frame_that_is_no_call_is_an_event() {
    for protocol in [FramedProtocol::BaiduStd, FramedProtocol::Srpc] {
        let mut connection = FramedServerConnection::new(protocol, &Config::server(), 0);
        let empty = [&protocol.magic()[..], &vec![0; protocol.header_bytes() - 4]].concat();
        for _ in 0..2 {
            let (mut consumed, mut out) = (0, Vec::new());
            let event = connection.poll_event(&empty, &mut consumed, &mut out, 0);
            assert_eq!(event, Some(Event::Refused));
            assert!(out.starts_with(protocol.magic()));
            let next = connection.poll_event(&empty, &mut consumed, &mut out, 0);
            assert_eq!((next, consumed), (None, empty.len()));
        }
    }
}

#[test]
fn a_peer_that_does_not_read_gets_no_further_requests_read() {
    let mut echo = Echo::new(FramedProtocol::BaiduStd);
    echo.connection.config.max_unsent_bytes = 50_000;
    echo.connection.config.output_bound_bytes = 10_000;
    let request = frame(&format!("{META} 2001"), &"78".repeat(4_000));
    echo.receive(&request.repeat(100));
    assert!(echo.input.len() > 80 * request.len());
    assert!(echo.connection.unsent_bytes() < 50_000 + 5_000);
    assert!(echo.connection.wants_transmit() && !echo.connection.has_events());
    let mut all = echo.take();
    while echo.connection.wants_transmit() || echo.connection.has_events() {
        (echo.connection).transmit(&mut echo.out, 0);
        all.extend(echo.take());
        echo.receive(&[]);
    }
    all.extend(echo.take());
    let answer = frame("12020800 1800 2001 500058006200", &"78".repeat(4_000));
    assert_eq!(all, answer.repeat(100));
    assert_eq!(echo.connection.sent_bytes() > 0, echo.input.is_empty());
}

/// So much memory it takes. The output is no place for it, since what waits there keeps all of its
/// memory.
#[test]
fn a_large_response_goes_out_in_parts_and_is_held_until_its_last_byte_is_out() {
    const BYTES: usize = 300_000;
    for protocol in [FramedProtocol::BaiduStd, FramedProtocol::Srpc] {
        let mut echo = Echo::new(protocol);
        echo.connection.config.output_bound_bytes = 10_000;
        let long = match protocol {
            FramedProtocol::BaiduStd => frame(&format!("{META} 2001"), &"78".repeat(BYTES)),
            FramedProtocol::Srpc => {
                srpc_frame("0a0d 0a05 4563686f58 1204 4563686f", &"78".repeat(BYTES))
            }
        };
        for round in 0..2 {
            // Something waits in the output already.
            echo.out = vec![round; 100];
            echo.receive(&long);
            assert!(echo.out.len() == 10_000 && echo.out.capacity() < BYTES / 2);
            assert!(echo.out.starts_with(&[round; 100]));
            let held_bytes = echo.connection.held_bytes();
            let most = BYTES + limits::QUEUED_RESPONSE_BYTES + 200;
            assert!((BYTES..most).contains(&held_bytes), "{held_bytes}");
            let mut all = echo.take().split_off(100);
            while echo.connection.wants_transmit() {
                assert_eq!(echo.connection.held_bytes(), held_bytes);
                assert_eq!(echo.connection.buffered_bytes(), held_bytes);
                echo.connection.transmit(&mut echo.out, 0);
                all.extend(echo.take());
            }
            assert!(all.len() > BYTES && all.ends_with(&[0x78; BYTES]));
            let header = protocol.read_header(&all).expect("a header");
            let frame_bytes = protocol.header_bytes() + header.meta_bytes + header.body_bytes;
            assert_eq!((frame_bytes, header.body_bytes), (all.len(), BYTES));
            assert_eq!(
                (echo.connection.held_bytes(), echo.connection.running()),
                (0, 0)
            );
        }
    }
}

/// The smallest frame that is answered at all: what waits takes many times the bytes of it.
#[test]
fn refusals_that_nobody_takes_are_charged_and_bounded() {
    const FRAMES: usize = 1_000;
    let mut echo = Echo::new(FramedProtocol::BaiduStd);
    echo.connection.config.output_bound_bytes = 500;
    let empty = b"PRPC\0\0\0\0\0\0\0\0";
    for _ in 0..2 {
        echo.receive(&empty.repeat(FRAMES));
        assert!(echo.out.len() < 700, "{}", echo.out.len());
        // What was read was answered, and the rest is not read.
        assert!(echo.input.len() > empty.len() * (FRAMES - 80));
        let held_bytes = echo.connection.held_bytes();
        assert!(
            held_bytes >= limits::MAX_PENDING_REFUSALS * limits::QUEUED_RESPONSE_BYTES,
            "{held_bytes}"
        );
        assert!(echo.connection.memory_bytes() < held_bytes + 40_000);
        let mut all = Vec::new();
        while !echo.out.is_empty() {
            all.extend(echo.take());
            echo.connection.transmit(&mut echo.out, 0);
            echo.receive(&[]);
        }
        let answers = all.windows(4).filter(|bytes| bytes == b"PRPC").count();
        assert_eq!((answers, echo.input.len()), (FRAMES, 0));
        assert_eq!(echo.connection.held_bytes(), 0);
    }
}

#[test]
fn an_attachment_that_is_kept_is_charged() {
    let mut echo = Echo::new(FramedProtocol::BaiduStd);
    echo.echoes = false;
    let with_foo = frame(&format!("{META} 2001 2803"), &format!("{HELLO} 666f6f"));
    for is_answered in [true, false, true] {
        for kept in 0..3 {
            assert_eq!(echo.connection.held_bytes(), 3 * kept);
            echo.receive(&with_foo);
        }
        while !echo.open.is_empty() {
            match is_answered {
                true => echo.answer(0),
                false => {
                    let (stream, _) = echo.open.remove(0);
                    echo.connection.forget(stream);
                }
            }
        }
        assert_eq!(echo.connection.held_bytes(), 0);
    }
}

/// A byte a minute is no progress, whoever wants what comes.
#[test]
fn a_body_that_comes_by_the_byte_ends_its_connection_also_if_nobody_wants_it() {
    const BYTES: usize = 300_000;
    let minute_ns = limits::NO_PROGRESS_TIMEOUT_MS * NS_PER_MS;
    let unwanted = format!("{META} 2001 1863");
    for (meta, is_wanted) in [(&format!("{META} 2001"), true), (&unwanted, false)] {
        for (part, goes_on) in [(1, false), (BYTES / limits::PROGRESS_SHARE, true)] {
            let mut echo = Echo::new(FramedProtocol::BaiduStd);
            let long = frame(meta, &"78".repeat(BYTES));
            let mut sent = long.len() - BYTES;
            echo.receive(&long[..sent]);
            assert_eq!(echo.take().is_empty(), is_wanted);
            for _ in 0..3 {
                echo.now_ns += minute_ns - 1;
                echo.connection.deadline_passed(echo.now_ns);
                echo.receive(&long[sent..sent + part]);
                sent += part;
            }
            let is_open = echo.connection.close_reason().is_none();
            assert_eq!(is_open, goes_on, "{part} bytes, {is_wanted}");
        }
    }
}

#[test]
fn the_rest_of_a_frame_has_its_time() {
    let request = frame(&format!("{META} 2001"), HELLO);
    for (part, due_ms) in [
        (1, limits::HEADER_BLOCK_TIMEOUT_MS),
        (20, limits::HEADER_BLOCK_TIMEOUT_MS),
        (request.len() - 1, limits::NO_PROGRESS_TIMEOUT_MS),
    ] {
        let mut echo = Echo::new(FramedProtocol::BaiduStd);
        for _ in 0..2 {
            assert_eq!(echo.connection.next_deadline_ns(), None);
            echo.receive(&request[..part]);
            let due_ns = echo.now_ns + due_ms * NS_PER_MS;
            assert_eq!(echo.connection.next_deadline_ns(), Some(due_ns));
            echo.connection.deadline_passed(due_ns - 1);
            assert_eq!(echo.connection.close_reason(), None);
            echo.receive(&request[part..]);
            echo.now_ns += 1_000;
        }
        echo.receive(&request[..part]);
        let due_ns = echo.connection.next_deadline_ns().expect("a timer");
        echo.connection.deadline_passed(due_ns);
        assert!(echo.connection.close_reason().is_some());
    }
}
