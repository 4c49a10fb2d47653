//! Frames as real servers send them, and what becomes of the calls.

use super::*;
use crate::framed::tests::{frame, hex};
use crate::framed::{StatusMeaning, baidu_std, checksum, srpc};
use crate::grpc::{Metadata, compression};
use crate::limits;

const HELLO: &[u8] = b"\x0a\x0bhello world";

/// A connection of a client, and what came to it.
struct Client {
    connection: FramedClientConnection,
    input: Vec<u8>,
    out: Vec<u8>,
    /// Messages and attachments of responses that were reported.
    responses: Vec<(StreamKey, Vec<u8>, Vec<u8>)>,
    /// Calls that ended otherwise.
    failures: Vec<(StreamKey, FramedCallEnd)>,
}

impl Client {
    fn new(protocol: FramedProtocol) -> Client {
        Client::with(protocol, &Config::client())
    }

    fn with(protocol: FramedProtocol, config: &Config) -> Client {
        Client {
            connection: FramedClientConnection::new(protocol, config),
            input: Vec::new(),
            out: Vec::new(),
            responses: Vec::new(),
            failures: Vec::new(),
        }
    }

    fn begin(&mut self) -> StreamKey {
        let begun = self.try_begin(&ECHO);
        begun.expect("a call may begin")
    }

    fn try_begin(&mut self, head: &FramedCallHead<'_>) -> Result<StreamKey, BeginError> {
        let out = &mut self.out;
        (self.connection).begin(out, head, |out| out.extend_from_slice(HELLO))
    }

    /// What is sent for a call.
    fn sent(&mut self, head: &FramedCallHead<'_>) -> Vec<u8> {
        self.try_begin(head).expect("a call may begin");
        std::mem::take(&mut self.out)
    }

    fn receive(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        let mut consumed = 0;
        while let Some(event) = self.connection.poll_event(&self.input, &mut consumed) {
            match event.end {
                FramedCallEnd::Response => {
                    let message = self.connection.message(&self.input).to_vec();
                    let attachment = self.connection.attachment(&self.input).to_vec();
                    self.responses.push((event.call, message, attachment));
                }
                end => self.failures.push((event.call, end)),
            }
        }
        self.input.drain(..consumed);
    }

    /// Returns the reason for which the connection was ended.
    fn violation(&self) -> Option<&'static str> {
        match self.connection.close_reason() {
            Some(CloseReason::Error { why, .. }) => Some(why),
            _ => None,
        }
    }
}

const ECHO: FramedCallHead<'static> = FramedCallHead {
    service: "example.EchoService",
    method: "Echo",
    timeout_ns: None,
    metadata: None,
    gzip: false,
    attachment: b"",
};

/// A response of baidu_std with these metadata.
fn response(meta: &baidu_std::RpcMeta<'_>, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    meta.encode(&mut bytes);
    frame(FramedProtocol::BaiduStd, &bytes, body)
}

fn ok_meta<'a>(call: StreamKey) -> baidu_std::RpcMeta<'a> {
    baidu_std::RpcMeta {
        response: Some(baidu_std::RpcResponseMeta::default()),
        correlation_id: Some(calls::correlation_id(call)),
        ..baidu_std::RpcMeta::default()
    }
}

fn ok_response(call: StreamKey, body: &[u8]) -> Vec<u8> {
    response(&ok_meta(call), body)
}

#[test]
fn requests_are_those_of_brpcs_client_byte_by_byte() {
    let mut client = Client::new(FramedProtocol::BaiduStd);
    let sent = client.sent(&ECHO);
    // As it was seen, but for the number that the client chose: 0x10000.
    let seen = hex(
        "50525043 00000038 0000002b 0a1d 0a13 6578616d706c652e4563686f53657276696365 1204 4563686f
         1800 1800 20808004 5000 5800 6200 0a0b68656c6c6f20776f726c64",
    );
    assert_eq!(sent, seen);
    let attached = client.sent(&FramedCallHead {
        attachment: b"foo",
        timeout_ns: Some(1_500_001),
        ..ECHO
    });
    let seen = hex(
        "50525043 0000003f 0000002f 0a1f 0a13 6578616d706c652e4563686f53657276696365 1204 4563686f
         1800 4002 1800 20818008 2803 5000 5800 6200 0a0b68656c6c6f20776f726c64 666f6f",
    );
    assert_eq!(attached, seen);
}

#[test]
fn requests_are_those_of_srpcs_client_byte_by_byte() {
    let mut client = Client::new(FramedProtocol::Srpc);
    let head = FramedCallHead {
        service: "Example",
        ..ECHO
    };
    let seen = hex(
        "53525043 00000013 0000000d 00000000 0a0f 0a07 4578616d706c65 1204 4563686f 3800
         0a0b68656c6c6f20776f726c64",
    );
    assert_eq!(client.sent(&head), seen);
}

#[test]
fn responses_of_a_brpc_server_are_understood() {
    let mut client = Client::new(FramedProtocol::BaiduStd);
    let calls: Vec<StreamKey> = (0..3).map(|_| client.begin()).collect();
    let types = "5000 5800 6200";
    let plain = format!("505250430000001d00000010 12020800 1800 20808004 {types}");
    client.receive(&hex(&format!("{plain} 0a0b68656c6c6f20776f726c64")));
    let attached = format!("505250430000002200000012 12020800 1800 20818008 2803 {types}");
    client.receive(&hex(&format!(
        "{attached} 0a0b68656c6c6f20776f726c64 666f6f"
    )));
    let echoed = "505250430000002100000014 12020800 1800 2082800c 5000 5800 6204d38cab47";
    client.receive(&hex(&format!("{echoed} 0a0b68656c6c6f20776f726c64")));
    let expected = [
        (calls[0], HELLO.to_vec(), Vec::new()),
        (calls[1], HELLO.to_vec(), b"foo".to_vec()),
        // The value of the request's checksum, with type 0.
        (calls[2], HELLO.to_vec(), Vec::new()),
    ];
    assert_eq!(client.responses, expected);
    assert_eq!((client.connection.running(), client.input.len()), (0, 0));
}

#[test]
fn responses_of_an_srpc_server_are_understood() {
    let mut client = Client::new(FramedProtocol::Srpc);
    let fine = client.begin();
    assert_eq!(client.try_begin(&ECHO), Err(BeginError::TooManyCalls));
    assert_eq!(client.connection.calls_left(), 0);
    client.receive(&hex(
        "53525043 00000006 00000009 00000000 12020801 3800 0a074869206261636b",
    ));
    let missing = client.begin();
    client.receive(&hex("53525043 00000006 00000000 00000000 12020802 3800"));
    let unreadable = client.begin();
    client.receive(&hex("53525043 00000004 00000000 00000000 12020804"));
    let hi = hex("0a074869206261636b");
    assert_eq!(client.responses, [(fine, hi, Vec::new())]);
    let error = |number| FramedCallEnd::Error {
        status: FramedStatus::srpc(number),
        text: String::new(),
    };
    assert_eq!(
        client.failures,
        [(missing, error(2)), (unreadable, error(4))]
    );
    assert_eq!(client.connection.calls_left(), 1);
}

#[test]
fn responses_are_matched_by_their_ids_in_any_order() {
    let mut client = Client::new(FramedProtocol::BaiduStd);
    let calls: Vec<StreamKey> = (0..5).map(|_| client.begin()).collect();
    for (token, call) in (1..).zip(&calls) {
        client.connection.set_token(*call, token);
    }
    for at in [3, 0, 4, 2, 1] {
        client.receive(&ok_response(calls[at], &[at as u8]));
    }
    let order: Vec<u8> = client.responses.iter().map(|one| one.1[0]).collect();
    assert_eq!(order, [3, 0, 4, 2, 1]);
    assert!(
        client
            .responses
            .iter()
            .all(|one| one.0 == calls[one.1[0] as usize])
    );
    assert_eq!(client.connection.running(), 0);
}

/// What nobody waits for ends the connection, and each call that runs with it, once.
#[test]
fn a_response_for_no_call_is_a_connection_error() {
    const NO_CALL: &str = "a response has the correlation id of no call that waits for one";
    type Make = fn(StreamKey) -> Vec<u8>;
    let cases: [Make; 4] = [
        // Repeated.
        |call| ok_response(call, HELLO).repeat(2),
        // The place of a call with another number.
        |call| {
            ok_response(
                StreamKey {
                    id: call.id + 9,
                    ..call
                },
                HELLO,
            )
        },
        |call| {
            let correlation_id = Some(0);
            response(
                &baidu_std::RpcMeta {
                    correlation_id,
                    ..ok_meta(call)
                },
                HELLO,
            )
        },
        |call| {
            let correlation_id = None;
            response(
                &baidu_std::RpcMeta {
                    correlation_id,
                    ..ok_meta(call)
                },
                HELLO,
            )
        },
    ];
    for (at, make) in cases.into_iter().enumerate() {
        let mut client = Client::new(FramedProtocol::BaiduStd);
        let (first, second) = (client.begin(), client.begin());
        client.receive(&make(first));
        assert_eq!(client.violation(), Some(NO_CALL), "{at}");
        let answered = usize::from(at == 0);
        assert_eq!(client.responses.len(), answered);
        let lost = [(first, FramedCallEnd::Lost), (second, FramedCallEnd::Lost)];
        assert_eq!(client.failures, lost[answered..]);
        assert_eq!(client.try_begin(&ECHO), Err(BeginError::Closing));
        assert!(client.out.len() > 4, "only what was sent before");
        client.receive(&ok_response(second, HELLO));
        assert_eq!(client.failures.len() + client.responses.len(), 2);
        assert_eq!((client.connection.running(), client.input.len()), (0, 0));
    }
    let mut client = Client::new(FramedProtocol::Srpc);
    client.receive(&hex("53525043 00000006 00000000 00000000 12020801 3800"));
    assert_eq!(
        client.violation(),
        Some("a response came that nobody waits for")
    );
}

#[test]
fn a_frame_that_lies_about_itself_ends_the_connection() {
    let long_meta = [&[0x3a, 0x80, 0x9c, 1][..], &[0; 20_000]].concat();
    let cases = [
        (FramedProtocol::BaiduStd, hex("58525043")),
        (
            FramedProtocol::BaiduStd,
            b"HTTP/1.1 400 Bad Request".to_vec(),
        ),
        (
            FramedProtocol::BaiduStd,
            hex("50525043 00000005 00000006 01"),
        ),
        (FramedProtocol::BaiduStd, hex("50525043 ffffffff 00000010")),
        (
            FramedProtocol::BaiduStd,
            frame(FramedProtocol::BaiduStd, &hex("0aff"), HELLO),
        ),
        (
            FramedProtocol::BaiduStd,
            frame(FramedProtocol::BaiduStd, &long_meta, b""),
        ),
        // A request.
        (
            FramedProtocol::BaiduStd,
            frame(FramedProtocol::BaiduStd, &hex("0a00 2001"), HELLO),
        ),
        (
            FramedProtocol::Srpc,
            hex("53525043 00010000 00000010 00000000"),
        ),
        (
            FramedProtocol::Srpc,
            frame(FramedProtocol::Srpc, &hex("0aff"), HELLO),
        ),
        (
            FramedProtocol::Srpc,
            frame(FramedProtocol::Srpc, &hex("3800"), HELLO),
        ),
    ];
    for (protocol, bytes) in cases {
        let mut client = Client::new(protocol);
        let call = client.begin();
        client.receive(&bytes);
        assert!(client.violation().is_some(), "{bytes:02x?}");
        assert_eq!(client.failures, [(call, FramedCallEnd::Lost)]);
    }
}

#[test]
fn errors_come_with_their_code_its_meaning_and_their_text() {
    let mut client = Client::new(FramedProtocol::BaiduStd);
    let cases = [
        (1002, StatusMeaning::UnknownMethod),
        (2004, StatusMeaning::Overloaded),
        (-1, StatusMeaning::Unknown),
    ];
    for (number, meaning) in cases {
        let call = client.begin();
        let error = baidu_std::RpcMeta {
            response: Some(baidu_std::RpcResponseMeta {
                error_code: Some(number),
                error_text: Some("why"),
            }),
            ..ok_meta(call)
        };
        // A body beside an error is thrown away.
        client.receive(&response(&error, HELLO));
        let (found, end) = client.failures.pop().expect("it failed");
        let FramedCallEnd::Error { status, text } = end else {
            panic!("{end:?}")
        };
        assert_eq!((found, status.number(), &*text), (call, number, "why"));
        assert_eq!(status.meaning(), meaning);
    }
    assert_eq!((client.connection.running(), client.input.len()), (0, 0));
}

/// Makes a response of one that is fine.
type ChangeMeta = fn(baidu_std::RpcMeta<'static>) -> baidu_std::RpcMeta<'static>;

/// Responses that cannot be used, how many bytes their bodies have, and what is wrong with them.
const UNUSABLE: [(ChangeMeta, usize, &str); 8] = [
    (|meta| meta, 101, "larger"),
    (
        |meta| baidu_std::RpcMeta {
            attachment_size: Some(3),
            ..meta
        },
        104,
        "larger",
    ),
    (
        |meta| baidu_std::RpcMeta {
            attachment_size: Some(11),
            ..meta
        },
        10,
        "attachment",
    ),
    (
        |meta| baidu_std::RpcMeta {
            attachment_size: Some(-1),
            ..meta
        },
        10,
        "attachment",
    ),
    (
        |meta| baidu_std::RpcMeta {
            content_type: Some(1),
            ..meta
        },
        10,
        "content_type",
    ),
    (
        |meta| baidu_std::RpcMeta {
            compress_type: Some(3),
            ..meta
        },
        10,
        "compressed",
    ),
    (
        |meta| baidu_std::RpcMeta {
            compress_type: Some(2),
            ..meta
        },
        10,
        "decompressed",
    ),
    (
        |meta| baidu_std::RpcMeta {
            checksum_type: Some(1),
            checksum_value: Some(b"1234"),
            ..meta
        },
        10,
        "checksum",
    ),
];

#[test]
fn a_response_that_cannot_be_used_ends_its_call_alone() {
    let config = Config {
        max_message_bytes: 100,
        ..Config::client()
    };
    let mut client = Client::with(FramedProtocol::BaiduStd, &config);
    for (change, bytes, says) in UNUSABLE {
        let call = client.begin();
        client.receive(&response(&change(ok_meta(call)), &vec![0xff; bytes]));
        let (found, end) = client.failures.pop().expect("it failed");
        let FramedCallEnd::BadResponse(why) = end else {
            panic!("{end:?}")
        };
        assert!(found == call && why.contains(says), "{why}");
        // The connection goes on.
        let next = client.begin();
        client.receive(&ok_response(next, &[7; 100]));
        assert_eq!(client.responses.pop().map(|one| one.0), Some(next));
    }
    assert_eq!(client.violation(), None);
}

#[test]
fn compressed_responses_are_decompressed_up_to_the_limit() {
    let config = Config {
        max_message_bytes: 1_000,
        ..Config::client()
    };
    let pack = |compress_type: i32, message: &[u8]| match compress_type {
        baidu_std::compress::GZIP => {
            let mut out = Vec::new();
            compression::gzip(message, &mut out);
            out
        }
        _ => snap::raw::Encoder::new()
            .compress_vec(message)
            .expect("fits"),
    };
    let mut client = Client::with(FramedProtocol::BaiduStd, &config);
    for compress_type in [baidu_std::compress::GZIP, baidu_std::compress::SNAPPY] {
        for bytes in [0, 1, 1_000, 1_001] {
            let (call, text) = (client.begin(), vec![b'x'; bytes]);
            let mut body = pack(compress_type, &text);
            let summed = checksum::masked(crc32c::crc32c(&body));
            body.extend_from_slice(b"foo");
            let meta = baidu_std::RpcMeta {
                compress_type: Some(compress_type),
                attachment_size: Some(3),
                checksum_type: Some(baidu_std::CHECKSUM_CRC32C),
                checksum_value: Some(&summed),
                ..ok_meta(call)
            };
            client.receive(&response(&meta, &body));
            if bytes <= 1_000 {
                let expected = (call, text, b"foo".to_vec());
                assert_eq!(client.responses.pop(), Some(expected));
                assert!(client.connection.message_was_compressed());
            } else {
                let end = client.failures.pop().map(|one| one.1);
                assert_eq!(end, Some(FramedCallEnd::BadResponse(receive::TOO_LARGE)));
            }
        }
    }
    let call = client.begin();
    client.receive(&ok_response(call, HELLO));
    assert!(!client.connection.message_was_compressed());
}

#[test]
fn compressed_requests_become_the_message_again() {
    let mut client = Client::new(FramedProtocol::Srpc);
    let sent = client.sent(&FramedCallHead { gzip: true, ..ECHO });
    let header = FramedProtocol::Srpc.read_header(&sent).expect("a header");
    let body = &sent[srpc::HEADER_BYTES + header.meta_bytes..];
    let meta = srpc::RpcMeta::decode(&sent[srpc::HEADER_BYTES..][..header.meta_bytes]);
    let compress_type = meta.expect("a message").compress_type;
    assert_eq!(compress_type, Some(baidu_std::compress::GZIP));
    let mut message = Vec::new();
    compression::gunzip(body, 1_000, 1_000, &mut message).expect("it is gzip");
    assert_eq!((message, body.len()), (HELLO.to_vec(), header.body_bytes));
}

/// The response to a call that was given up is no response to nobody.
#[test]
fn a_call_that_was_given_up_keeps_its_place_until_its_response_comes() {
    for protocol in [FramedProtocol::BaiduStd, FramedProtocol::Srpc] {
        let config = Config {
            max_streams: 1,
            ..Config::client()
        };
        let mut client = Client::with(protocol, &config);
        let given_up = client.begin();
        client.connection.set_token(given_up, 7);
        client.connection.cancel(given_up);
        client.connection.cancel(given_up);
        assert_eq!(client.connection.token(given_up), 0);
        assert_eq!(client.connection.running(), 0);
        // It says so when one is begun.
        assert!(!client.connection.takes_calls() && client.connection.calls_left() == 1);
        assert_eq!(client.try_begin(&ECHO), Err(BeginError::Closing));
        let late = match protocol {
            FramedProtocol::BaiduStd => ok_response(given_up, HELLO),
            FramedProtocol::Srpc => frame(protocol, &hex("12020801"), HELLO),
        };
        // Also if it is given up while its response comes, or does not end well.
        client.receive(&late);
        assert!(client.connection.takes_calls());
        let halfway = client.begin();
        let late = match protocol {
            FramedProtocol::BaiduStd => ok_response(halfway, HELLO),
            FramedProtocol::Srpc => late,
        };
        client.receive(&late[..late.len() - 1]);
        client.connection.cancel(halfway);
        client.receive(&late[late.len() - 1..]);
        assert_eq!((client.responses.len(), client.failures.len()), (0, 0));
        assert_eq!(client.connection.calls_left(), 1);
        let lost = client.begin();
        client.connection.cancel(lost);
        client.connection.peer_closed();
        client.receive(b"");
        assert_eq!((client.responses.len(), client.failures.len()), (0, 0));
        assert_eq!((client.violation(), client.input.len()), (None, 0));
    }
}

/// A read can bring the last response and the end together.
#[test]
fn a_response_that_came_before_the_end_is_reported() {
    for _ in 0..2 {
        let mut client = Client::new(FramedProtocol::BaiduStd);
        let (first, second) = (client.begin(), client.begin());
        client.input = ok_response(first, HELLO);
        client.connection.peer_closed();
        assert!(client.connection.has_events() && !client.connection.takes_calls());
        client.receive(b"");
        assert_eq!(client.responses.len(), 1);
        assert_eq!(client.responses[0].0, first);
        assert_eq!(client.failures, [(second, FramedCallEnd::Lost)]);
        assert_eq!(
            client.connection.close_reason(),
            Some(&CloseReason::PeerGone)
        );
        assert!(!client.connection.has_events());
    }
}

#[test]
fn the_token_of_another_caller_goes_again() {
    let head_of = |token: &str| {
        let mut metadata = Metadata::new();
        (metadata.push_ascii("authorization", token)).expect("text");
        metadata
    };
    let (one, other) = (head_of("Bearer one"), head_of("other"));
    let calls = [
        (None, None),
        (Some(&one), Some(&b"one"[..])),
        (Some(&one), None),
        (Some(&other), Some(b"other")),
        (None, None),
        (Some(&other), None),
        (Some(&one), Some(b"one")),
    ];
    let mut client = Client::new(FramedProtocol::BaiduStd);
    for (metadata, expected) in calls {
        let sent = client.sent(&FramedCallHead { metadata, ..ECHO });
        let header = FramedProtocol::BaiduStd
            .read_header(&sent)
            .expect("a header");
        let meta = &sent[baidu_std::HEADER_BYTES..][..header.meta_bytes];
        let meta = baidu_std::RpcMeta::decode(meta).expect("a message");
        assert_eq!(meta.authentication_data, expected);
    }
}

#[test]
fn a_token_goes_with_the_first_call_of_a_connection_of_baidu_std_and_with_each_of_srpc() {
    let mut metadata = Metadata::new();
    metadata
        .push_ascii("authorization", "Bearer secret")
        .expect("text");
    metadata.push_ascii("x-trace", "7").expect("text");
    let head = FramedCallHead {
        metadata: Some(&metadata),
        ..ECHO
    };
    let mut client = Client::new(FramedProtocol::BaiduStd);
    for expected in [Some(&b"secret"[..]), None] {
        let sent = client.sent(&head);
        let header = FramedProtocol::BaiduStd
            .read_header(&sent)
            .expect("a header");
        let meta = &sent[baidu_std::HEADER_BYTES..][..header.meta_bytes];
        let meta = baidu_std::RpcMeta::decode(meta).expect("a message");
        assert_eq!(meta.authentication_data, expected);
        let fields = meta.user_fields.iter().flatten();
        let fields: Vec<_> = fields.map(|field| (field.key, field.value)).collect();
        assert_eq!(fields, [("x-trace", "7")]);
    }
    let mut client = Client::new(FramedProtocol::Srpc);
    for _ in 0..2 {
        let sent = client.sent(&head);
        let header = FramedProtocol::Srpc.read_header(&sent).expect("a header");
        let meta = &sent[srpc::HEADER_BYTES..][..header.meta_bytes];
        let meta = srpc::RpcMeta::decode(meta).expect("a message");
        let fields = meta.trans_info.iter().flatten();
        let fields: Vec<_> = fields.map(|field| (field.key, field.str_value)).collect();
        let expected = [
            ("authorization", Some("Bearer secret")),
            ("x-trace", Some("7")),
        ];
        assert_eq!(fields, expected);
        client.receive(&frame(FramedProtocol::Srpc, &hex("12020801"), b""));
    }
}

#[test]
fn a_call_that_cannot_begin_sends_nothing() {
    let (mut long, mut binary) = (Metadata::new(), Metadata::new());
    long.push_ascii("x", "y".repeat(limits::FRAMED_META_BYTES))
        .expect("text");
    binary.push_binary("x-bin", vec![0xff]).expect("bytes");
    let metadata = |metadata| FramedCallHead {
        metadata: Some(metadata),
        ..ECHO
    };
    let attachment = FramedCallHead {
        attachment: b"foo",
        ..ECHO
    };
    let cases = [
        (
            FramedProtocol::BaiduStd,
            metadata(&long),
            BeginError::MetadataTooLarge,
        ),
        (
            FramedProtocol::Srpc,
            metadata(&long),
            BeginError::MetadataTooLarge,
        ),
        (
            FramedProtocol::BaiduStd,
            metadata(&binary),
            BeginError::BinaryMetadata,
        ),
        (FramedProtocol::Srpc, attachment, BeginError::NoAttachments),
    ];
    for (protocol, head, error) in cases {
        let mut client = Client::new(protocol);
        client.out.push(7);
        assert_eq!(client.try_begin(&head), Err(error));
        assert_eq!(
            (&client.out[..], client.connection.running()),
            (&[7][..], 0)
        );
        client.begin();
    }
    let config = Config {
        max_streams: 2,
        ..Config::client()
    };
    let mut client = Client::with(FramedProtocol::BaiduStd, &config);
    let first = client.begin();
    client.begin();
    assert_eq!(client.connection.calls_left(), 0);
    assert_eq!(client.try_begin(&ECHO), Err(BeginError::TooManyCalls));
    client.receive(&ok_response(first, HELLO));
    client.begin();
}
