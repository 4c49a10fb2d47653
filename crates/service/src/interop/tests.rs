//! Each case of the public description that concerns the server, by its name there; then limits and
//! order.

use super::messages::*;
use super::*;
use crate::fake::{Fake, Headers, Sent, shared};
use crate::limits::*;
use crate::method::{Service, route};
use crate::status::Code;
use protobuf::writer;

/// What goes into the requests of the public cases.
#[derive(Default)]
struct Wanted<'a> {
    responses: &'a [Response],
    payload_bytes: usize,
    compressed: Option<bool>,
    expect_compressed: Option<bool>,
    status: Option<(u64, &'a str)>,
}

impl Wanted<'_> {
    fn simple(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let size = self
            .responses
            .first()
            .map_or(0, |response| response.payload_bytes);
        writer::uint64(&mut out, 2, size.into());
        self.payload(&mut out, 3);
        writer::bool(&mut out, 4, true);
        bool_message(&mut out, 6, self.compressed);
        self.status(&mut out);
        bool_message(&mut out, 8, self.expect_compressed);
        out
    }

    fn input(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.payload(&mut out, 1);
        bool_message(&mut out, 2, self.expect_compressed);
        out
    }

    fn output(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for response in self.responses {
            writer::message(&mut out, 2, |out| {
                writer::uint64(out, 1, response.payload_bytes.into());
                writer::uint64(out, 2, response.interval_us.into());
                bool_message(out, 3, response.compress.then_some(true));
            });
        }
        self.payload(&mut out, 3);
        self.status(&mut out);
        out
    }

    fn payload(&self, out: &mut Vec<u8>, field: u32) {
        let body = vec![0; self.payload_bytes];
        writer::message(out, field, |out| writer::bytes(out, 2, &body));
    }

    fn status(&self, out: &mut Vec<u8>) {
        if let Some((code, message)) = self.status {
            writer::message(out, 7, |out| {
                writer::uint64(out, 1, code);
                writer::bytes(out, 2, message.as_bytes());
            });
        }
    }
}

fn bool_message(out: &mut Vec<u8>, field: u32, value: Option<bool>) {
    if let Some(value) = value {
        writer::message(out, field, |out| writer::bool(out, 1, value));
    }
}

fn of_size(payload_bytes: u32) -> Response {
    Response {
        payload_bytes,
        ..Response::default()
    }
}

fn payload(length: usize) -> Vec<u8> {
    let mut out = Vec::new();
    writer::message(&mut out, 1, |out| writer::bytes(out, 2, &vec![0; length]));
    out
}

/// The answer to one unary request.
fn unary(method: Method, request: &[u8], was_compressed: bool) -> Fake {
    let shared = shared();
    let mut fake = Fake::new(method, &shared);
    fake.actions.message_was_compressed = was_compressed;
    fake.message(request, true, &shared);
    fake
}

#[test]
fn empty_unary() {
    let mut fake = unary(Method::InteropEmptyCall, &[], false);
    assert_eq!(fake.take_sent(), [Sent::Response(vec![])]);
}

#[test]
fn large_unary() {
    let wanted = Wanted {
        responses: &[of_size(314_159)],
        payload_bytes: 271_828,
        ..Wanted::default()
    };
    let mut fake = unary(Method::InteropUnaryCall, &wanted.simple(), false);
    assert_eq!(fake.take_sent(), [Sent::Response(payload(314_159))]);
    assert!(!fake.actions.is_compressing);
}

/// "pick_first_unary" of grpc-go's client: all answers name the same server.
#[test]
fn server_id_is_filled_when_it_is_asked_for() {
    let shared = shared();
    let mut expected = Vec::new();
    encode_server_id(&mut expected, shared.store.history_id());
    for _ in 0..2 {
        let mut fake = Fake::new(Method::InteropUnaryCall, &shared);
        fake.message(&[9 << 3, 1], true, &shared);
        let named = [&payload(0)[..], &expected].concat();
        assert_eq!(fake.take_sent(), [Sent::Response(named)]);
    }
    let mut fake = unary(Method::InteropUnaryCall, &[9 << 3, 0], false);
    assert_eq!(fake.take_sent(), [Sent::Response(payload(0))]);
}

/// A `TestOrcaReport` as grpc-go's client sends it, with `names` entries in each map.
fn load_report(names: usize) -> (Vec<u8>, Vec<u8>) {
    let (mut asked, mut answered) = (Vec::new(), Vec::new());
    let entry = |out: &mut Vec<u8>, field, number: usize| {
        writer::message(out, field, |out| {
            writer::bytes(out, 1, format!("name {number}").as_bytes());
            writer::fixed64(out, 2, (number as f64 + 0.5).to_bits());
        });
    };
    for (field, value) in [(1, 0.8210_f64), (2, 0.5847)] {
        writer::fixed64(&mut asked, field, value.to_bits());
        writer::fixed64(&mut answered, field, value.to_bits());
    }
    for number in 0..names {
        entry(&mut asked, 3, number);
        entry(&mut answered, 4, number);
    }
    for number in 0..names {
        entry(&mut asked, 4, number);
        entry(&mut answered, 5, number);
    }
    (asked, answered)
}

#[test]
fn orca_per_rpc() {
    let (asked, answered) = load_report(2);
    let mut request = Vec::new();
    writer::bytes(&mut request, 11, &asked);
    let mut fake = unary(Method::InteropUnaryCall, &request, false);
    assert_eq!(fake.take_sent(), [Sent::Response(payload(0))]);
    let trailer = fake.actions.trailing.first(b"endpoint-load-metrics-bin");
    assert_eq!(trailer, Some(&orca::base64(&answered)[..]));

    let mut request = Vec::new();
    writer::bytes(&mut request, 11, &load_report(1_000).0);
    let mut fake = unary(Method::InteropUnaryCall, &request, false);
    let status = fake.take_status().expect("too large for trailers");
    assert_eq!(status.code(), Code::ResourceExhausted);
}

/// Its client waits for reports after the answer.
#[test]
fn orca_oob_is_refused_at_once() {
    let mut request = Vec::new();
    writer::message(&mut request, 2, |out| writer::uint64(out, 1, 1));
    writer::bytes(&mut request, 8, &load_report(1).0);
    let shared = shared();
    let mut fake = Fake::new(Method::InteropFullDuplexCall, &shared);
    fake.message(&request, false, &shared);
    let status = fake.take_status().expect("it is refused");
    assert_eq!(status.code(), Code::Unimplemented);
}

#[test]
fn cacheable_unary() {
    let mut fake = unary(Method::InteropCacheableUnaryCall, &[], false);
    let first = fake.take_sent();
    let digits = b"1700000000000001000";
    let mut expected = vec![0x0a, digits.len() as u8 + 2, 0x12, digits.len() as u8];
    expected.extend(digits);
    assert_eq!(first, [Sent::Response(expected)]);
    assert_eq!(
        fake.actions.initial.first(b"cache-control"),
        Some(&b"max-age=60, public"[..])
    );
}

#[test]
fn client_compressed_unary() {
    for (expect, was_compressed, is_fine) in [
        (Some(true), false, false),
        (Some(true), true, true),
        (Some(false), false, true),
        (None, true, true),
    ] {
        let wanted = Wanted {
            responses: &[of_size(9)],
            expect_compressed: expect,
            ..Wanted::default()
        };
        let mut fake = unary(Method::InteropUnaryCall, &wanted.simple(), was_compressed);
        if is_fine {
            assert_eq!(fake.take_sent(), [Sent::Response(payload(9))]);
        } else {
            let status = fake.take_status().expect("the call fails");
            assert_eq!(status.code(), Code::InvalidArgument);
        }
    }
}

#[test]
fn server_compressed_unary() {
    for compressed in [true, false] {
        let wanted = Wanted {
            responses: &[of_size(314_159)],
            compressed: Some(compressed),
            ..Wanted::default()
        };
        let mut fake = unary(Method::InteropUnaryCall, &wanted.simple(), false);
        assert_eq!(fake.take_sent(), [Sent::Response(payload(314_159))]);
        assert_eq!(fake.actions.is_compressing, compressed);
    }
}

#[test]
fn client_streaming() {
    for ends_with_last in [true, false] {
        let shared = shared();
        let mut fake = Fake::new(Method::InteropStreamingInputCall, &shared);
        for payload_bytes in [27_182, 8, 1828, 45_904] {
            let last = ends_with_last && payload_bytes == 45_904;
            let request = Wanted {
                payload_bytes,
                ..Wanted::default()
            }
            .input();
            fake.message(&request, last, &shared);
        }
        if !ends_with_last {
            assert_eq!(fake.take_sent(), []);
            fake.half_closed(&shared);
        }
        let mut expected = Vec::new();
        writer::uint64(&mut expected, 1, 74_922);
        assert_eq!(fake.take_sent(), [Sent::Response(expected)]);
    }
}

#[test]
fn client_compressed_streaming() {
    let shared = shared();
    let request = |payload_bytes, expect| {
        Wanted {
            payload_bytes,
            expect_compressed: Some(expect),
            ..Wanted::default()
        }
        .input()
    };
    let mut probe = Fake::new(Method::InteropStreamingInputCall, &shared);
    probe.message(&request(27_182, true), false, &shared);
    assert_eq!(
        probe.take_status().expect("fails").code(),
        Code::InvalidArgument
    );

    let mut fake = Fake::new(Method::InteropStreamingInputCall, &shared);
    fake.actions.message_was_compressed = true;
    fake.message(&request(27_182, true), false, &shared);
    fake.actions.message_was_compressed = false;
    fake.message(&request(45_904, false), false, &shared);
    fake.half_closed(&shared);
    let mut expected = Vec::new();
    writer::uint64(&mut expected, 1, 73_086);
    assert_eq!(fake.take_sent(), [Sent::Response(expected)]);
}

#[test]
fn server_streaming() {
    let shared = shared();
    let sizes = [31_415, 9, 2653, 58_979];
    let mut fake = Fake::new(Method::InteropStreamingOutputCall, &shared);
    let wanted = Wanted {
        responses: &sizes.map(of_size),
        ..Wanted::default()
    };
    fake.message(&wanted.output(), false, &shared);
    let mut expected: Vec<Sent> = sizes
        .iter()
        .map(|&size| Sent::Message(payload(size as usize)))
        .collect();
    expected.push(Sent::Status(Status::OK));
    assert_eq!(fake.take_sent(), expected);
}

#[test]
fn server_compressed_streaming() {
    let shared = shared();
    let responses = [
        Response {
            compress: true,
            ..of_size(31_415)
        },
        Response {
            compress: false,
            ..of_size(92_653)
        },
    ];
    let mut fake = Fake::new(Method::InteropStreamingOutputCall, &shared);
    let wanted = Wanted {
        responses: &responses,
        ..Wanted::default()
    };
    fake.message(&wanted.output(), true, &shared);
    let expected = [
        Sent::Compressed(payload(31_415)),
        Sent::Message(payload(92_653)),
        Sent::Status(Status::OK),
    ];
    assert_eq!(fake.take_sent(), expected);
}

#[test]
fn ping_pong() {
    let shared = shared();
    let mut fake = Fake::new(Method::InteropFullDuplexCall, &shared);
    for (size, payload_bytes) in [(31_415, 27_182), (9, 8), (2653, 1828), (58_979, 45_904)] {
        let wanted = Wanted {
            responses: &[of_size(size)],
            payload_bytes,
            ..Wanted::default()
        };
        fake.message(&wanted.output(), false, &shared);
        assert_eq!(fake.take_sent(), [Sent::Message(payload(size as usize))]);
        assert!(!fake.actions.is_held);
    }
    fake.half_closed(&shared);
    assert_eq!(fake.take_sent(), [Sent::Status(Status::OK)]);
}

#[test]
fn empty_stream() {
    let shared = shared();
    for method in [Method::InteropFullDuplexCall, Method::InteropHalfDuplexCall] {
        let mut fake = Fake::new(method, &shared);
        fake.half_closed(&shared);
        assert_eq!(fake.take_sent(), [Sent::Status(Status::OK)]);
    }
}

#[test]
fn custom_metadata() {
    let shared = shared();
    let pair = |name: &[u8], value: &[u8]| (name.to_vec(), value.to_vec());
    let initial = pair(b"x-grpc-test-echo-initial", b"test_initial_metadata_value");
    let trailing = pair(b"x-grpc-test-echo-trailing-bin", b"q6ur");
    let sent = Headers(vec![
        pair(b"other", b"x"),
        initial.clone(),
        trailing.clone(),
    ]);
    for method in [Method::InteropUnaryCall, Method::InteropFullDuplexCall] {
        let fake = Fake::with_metadata(method, &sent, &shared);
        assert_eq!(fake.actions.initial, Headers(vec![initial.clone()]));
        assert_eq!(fake.actions.trailing, Headers(vec![trailing.clone()]));
    }
    let fake = Fake::new(Method::InteropUnaryCall, &shared);
    assert_eq!(fake.actions.initial, Headers::default());
    assert_eq!(fake.actions.trailing, Headers::default());
}

#[test]
fn status_code_and_message() {
    let shared = shared();
    let special = "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n";
    for message in ["test status message", special] {
        let wanted = Wanted {
            responses: &[of_size(9)],
            status: Some((2, message)),
            ..Wanted::default()
        };
        let expected = Some(Status::new(Code::Unknown, message));
        let mut fake = unary(Method::InteropUnaryCall, &wanted.simple(), false);
        assert_eq!(fake.take_status(), expected);
        for method in [
            Method::InteropFullDuplexCall,
            Method::InteropHalfDuplexCall,
            Method::InteropStreamingOutputCall,
        ] {
            let mut fake = Fake::new(method, &shared);
            fake.message(&wanted.output(), false, &shared);
            assert_eq!(fake.take_status(), expected, "{method:?}");
        }
    }
}

#[test]
fn status_zero_is_none_and_unknown_codes_are_refused() {
    let wanted = Wanted {
        status: Some((0, "fine")),
        ..Wanted::default()
    };
    let mut fake = unary(Method::InteropUnaryCall, &wanted.simple(), false);
    assert_eq!(fake.take_sent(), [Sent::Response(payload(0))]);
    for code in [17, u64::MAX] {
        let wanted = Wanted {
            status: Some((code, "")),
            ..Wanted::default()
        };
        let mut fake = unary(Method::InteropUnaryCall, &wanted.simple(), false);
        assert_eq!(
            fake.take_status().expect("refused").code(),
            Code::InvalidArgument
        );
    }
}

#[test]
fn unimplemented_method_and_service() {
    assert_eq!(route(b"/grpc.testing.TestService/UnimplementedCall"), None);
    assert_eq!(
        route(b"/grpc.testing.UnimplementedService/UnimplementedCall"),
        None
    );
}

#[test]
fn nothing_is_served_without_the_flag() {
    let mut shared = shared();
    shared.settings.interop = false;
    for &method in Method::ALL
        .iter()
        .filter(|method| method.service() == Service::Interop)
    {
        let mut fake = Fake::new(method, &shared);
        assert_eq!(
            fake.take_status().expect("refused").code(),
            Code::Unimplemented
        );
    }
}

#[test]
fn timeout_on_sleeping_server_finds_a_call_that_waits() {
    let shared = shared();
    let mut fake = Fake::new(Method::InteropFullDuplexCall, &shared);
    fake.message(
        &Wanted {
            payload_bytes: 27_182,
            ..Wanted::default()
        }
        .output(),
        false,
        &shared,
    );
    assert_eq!(fake.take_sent(), []);
    assert!(!fake.actions.is_over);
}

#[test]
fn half_duplex_answers_after_the_end() {
    let shared = shared();
    for ends_with_last in [true, false] {
        let mut fake = Fake::new(Method::InteropHalfDuplexCall, &shared);
        let request = |size| {
            Wanted {
                responses: &[of_size(size)],
                ..Wanted::default()
            }
            .output()
        };
        fake.message(&request(1), false, &shared);
        fake.message(&request(2), ends_with_last, &shared);
        if !ends_with_last {
            assert_eq!(fake.take_sent(), []);
            fake.half_closed(&shared);
        }
        let expected = [
            Sent::Message(payload(1)),
            Sent::Message(payload(2)),
            Sent::Status(Status::OK),
        ];
        assert_eq!(fake.take_sent(), expected);
    }
}

#[test]
fn intervals_add_up() {
    let shared = shared();
    let mut fake = Fake::new(Method::InteropFullDuplexCall, &shared);
    let began_ns = fake.actions.now_ns;
    let after = |interval_us| Response {
        interval_us,
        ..of_size(1)
    };
    let responses = [after(100), after(0), after(50)];
    fake.message(
        &Wanted {
            responses: &responses,
            ..Wanted::default()
        }
        .output(),
        false,
        &shared,
    );
    assert_eq!(fake.take_sent(), []);
    assert!(
        fake.actions.is_held,
        "the next request waits until this one is answered"
    );
    // Woken by something else, too early.
    fake.woken(&shared);
    assert_eq!(fake.take_sent(), []);
    fake.wake_in_time(&shared);
    assert_eq!(fake.actions.now_ns - began_ns, 100_000);
    assert_eq!(fake.take_sent().len(), 2);
    fake.half_closed(&shared);
    fake.wake_in_time(&shared);
    assert_eq!(fake.actions.now_ns - began_ns, 150_000);
    assert_eq!(
        fake.take_sent(),
        [Sent::Message(payload(1)), Sent::Status(Status::OK)]
    );
    assert_eq!(fake.actions.wake_at_ns, None, "it waits for nothing more");
}

#[test]
fn answers_wait_for_room() {
    let shared = shared();
    let mut fake = Fake::new(Method::InteropFullDuplexCall, &shared);
    fake.actions.can_send = false;
    let responses = [of_size(1), of_size(2)];
    fake.message(
        &Wanted {
            responses: &responses,
            ..Wanted::default()
        }
        .output(),
        false,
        &shared,
    );
    assert_eq!(fake.take_sent(), []);
    assert!(fake.actions.is_held);
    fake.actions.can_send = true;
    fake.writable(&shared);
    assert_eq!(fake.take_sent().len(), 2);
    assert!(!fake.actions.is_held);
}

#[test]
fn what_is_asked_for_is_limited() {
    let shared = shared();
    let too_large = of_size(INTEROP_PAYLOAD_BYTES_MAX + 1);
    let too_long = Response {
        interval_us: INTEROP_INTERVAL_US_MAX + 1,
        ..of_size(1)
    };
    let too_many = vec![of_size(0); INTEROP_RESPONSES_MAX + 1];
    for (responses, word) in [
        (&[too_large][..], "size"),
        (&[too_long], "interval_us"),
        (&too_many, "10000"),
    ] {
        let wanted = Wanted {
            responses,
            ..Wanted::default()
        };
        let mut fake = Fake::new(Method::InteropHalfDuplexCall, &shared);
        fake.message(&wanted.output(), false, &shared);
        let status = fake.take_status().expect("refused");
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert!(status.message().contains(word), "{}", status.message());
    }
    let wanted = Wanted {
        responses: &[too_large],
        ..Wanted::default()
    };
    let mut fake = unary(Method::InteropUnaryCall, &wanted.simple(), false);
    assert_eq!(
        fake.take_status().expect("refused").code(),
        Code::ResourceExhausted
    );
    let mut negative = Vec::new();
    writer::int64(&mut negative, 2, -1);
    let mut fake = unary(Method::InteropUnaryCall, &negative, false);
    assert_eq!(
        fake.take_status().expect("refused").code(),
        Code::InvalidArgument
    );
}

#[test]
fn malformed_requests_and_wrong_numbers_of_them() {
    let shared = shared();
    for &method in Method::ALL
        .iter()
        .filter(|method| method.service() == Service::Interop)
    {
        if !matches!(
            method,
            Method::InteropEmptyCall | Method::InteropCacheableUnaryCall
        ) {
            let mut fake = Fake::new(method, &shared);
            fake.message(&[0x1a, 0x7f, 0x3a, 0x7f], true, &shared);
            assert_eq!(
                fake.take_status().expect("refused").code(),
                Code::InvalidArgument
            );
        }
    }
    for method in [Method::InteropUnaryCall, Method::InteropStreamingOutputCall] {
        let mut fake = Fake::new(method, &shared);
        fake.half_closed(&shared);
        assert_eq!(
            fake.take_status().expect("refused").code(),
            Code::Unimplemented
        );
    }
    let mut fake = Fake::new(Method::InteropStreamingOutputCall, &shared);
    let later = [Response {
        interval_us: 5,
        ..of_size(1)
    }];
    let request = Wanted {
        responses: &later,
        ..Wanted::default()
    }
    .output();
    fake.message(&request, false, &shared);
    fake.actions.is_held = false;
    fake.message(&request, true, &shared);
    assert_eq!(
        fake.take_status().expect("refused").code(),
        Code::Unimplemented
    );
}
