//! What a call may ask of the layer above it, and what that returns.

use api::admin::{
    ConvertDatabaseRequest, CreateDatabaseRequest, DatabaseDescription, DatabaseKind,
    DropDatabaseRequest, DropDatabaseResponse, DurabilityMode,
};
use protobuf::{Reader, writer};
use service::Method;
use store::{Condition, Expiry, Mode, Operation};
use testkit::keyvalue::{OperationRequest, encode_batch};
use wire::grpc::Code;
use wire::http2::frame::{self, FrameHeader, kind};
use wire::{Event, RequestHead, StreamKey};

use super::path;
use crate::event_loop::large_output_bytes;
use crate::limits;
use crate::pair::Pair;

/// Some turns; returns the code and the message of the call if it has ended.
fn end_of(pair: &mut Pair, call: StreamKey) -> Option<(Code, String)> {
    for _ in 0..10 {
        for event in pair.turn() {
            if event == (Event::Finished { stream: call }) {
                let status = pair.client.status();
                let end = (status.code(), status.message().to_owned());
                pair.client.forget(call);
                return Some(end);
            }
        }
    }
    None
}

fn batch(operations: &[Operation<'_>]) -> Vec<u8> {
    let mut message = Vec::new();
    encode_batch(&mut message, "", Mode::Atomic, 0, operations);
    message
}

#[test]
fn an_answer_for_which_others_have_taken_the_memory_waits_for_it() {
    const COUNT: usize = 300;
    let mut pair = Pair::open();
    let keys: Vec<_> = (0..COUNT).map(|number| format!("key {number}")).collect();
    let puts: Vec<_> = (keys.iter())
        .map(|key| Operation::Put {
            key: key.as_bytes(),
            value: &[b'v'; 1_000],
            condition: Condition::None,
            expiry: Expiry::None,
            want_previous: false,
        })
        .collect();
    let stored = pair.call(&path(Method::Batch), &batch(&puts));
    assert_eq!(end_of(&mut pair, stored).map(|end| end.0), Some(Code::Ok));
    let gets: Vec<_> = (keys.iter())
        .map(|key| Operation::Get {
            key: key.as_bytes(),
        })
        .collect();
    let account = std::sync::Arc::clone(pair.handler.account());
    for round in 0..3 {
        let taken_bytes = account.limit_bytes();
        account.claim_little(taken_bytes);
        pair.messages.clear();
        let call = pair.call(&path(Method::Batch), &batch(&gets));
        for _ in 0..3 {
            assert_eq!(end_of(&mut pair, call), None, "{round}: there is no memory");
            pair.now_ns += limits::CLAIM_RETRY_MS * 1_000_000;
        }
        account.end_claim(taken_bytes);
        pair.now_ns += limits::CLAIM_RETRY_MS * 1_000_000;
        let end = end_of(&mut pair, call).map(|end| end.0);
        assert_eq!(end, Some(Code::Ok), "{round}: there is memory again");
        let [(_, answer)] = &pair.messages[..] else {
            panic!("{round}: {} messages", pair.messages.len());
        };
        assert!(answer.len() > COUNT * 1_000, "{round}");
        // As long as something is claimed, nobody may exceed what is left.
        let whole = account.claim(taken_bytes);
        assert_eq!(whole, Some(taken_bytes), "{round}: its claim has ended");
        account.end_claim(taken_bytes);
    }
}

#[test]
fn output_counts_as_large_above_what_is_usually_written_at_once() {
    let mut io = net::Io::new();
    let most = net::limits::OUTPUT_LOW_WATER_BYTES;
    for (bytes, large) in [(0, 0), (most - 1, 0), (most, 0), (most + 1, most + 1)] {
        io.output.resize(bytes, 0);
        assert_eq!(large_output_bytes(&io), large, "{bytes} bytes");
    }
}

#[test]
fn plain_answers_have_a_type_and_only_that_of_a_wrong_method_lists_others() {
    let mut pair = Pair::open();
    for (method, path, status, allow) in [
        ("GET", "/", 200, None),
        ("GET", "/nothing", 404, None),
        ("POST", "/pelton.v1.KeyValue/Get", 415, None),
        (
            "PATCH",
            "/blob/a",
            405,
            Some(service::http::ALLOWED_METHODS),
        ),
    ] {
        let head = RequestHead {
            method,
            ..RequestHead::get("test", path)
        };
        let Pair { client, sent, .. } = &mut pair;
        let stream = client.open(sent, &head).expect("a stream is free");
        client.close_send(stream, sent);
        assert!(pair.turn().contains(&Event::Finished { stream }));
        let head = pair.client.head();
        assert_eq!(head.http_status(), status, "{path}");
        let text = Some(&b"text/plain; charset=utf-8"[..]);
        assert_eq!(head.get(b"content-type"), text, "{path}");
        assert_eq!(head.get(b"allow"), allow.map(str::as_bytes), "{path}");
        pair.client.forget(stream);
    }
}

/// RFC 9110 section 10.1.1: who waits for it with a body gets an interim answer, and nobody else
/// does.
#[test]
fn a_client_that_waits_before_its_body_is_told_to_go_on() {
    for (expect, has_body, goes_on) in [
        ("100-continue", true, true),
        ("100-Continue", true, true),
        ("100-continue", false, false),
        ("something", true, false),
    ] {
        let mut pair = Pair::open();
        let mut metadata = wire::grpc::Metadata::new();
        metadata.push_ascii("expect", expect).expect("it is text");
        let head = RequestHead {
            method: "POST",
            metadata: Some(&metadata),
            ..RequestHead::get("test", "/nothing")
        };
        let Pair { client, sent, .. } = &mut pair;
        let stream = client.open(sent, &head).expect("a stream is free");
        if !has_body {
            // Our own client says so in a frame that follows.
            assert_eq!(sent[3], kind::HEADERS);
            sent[4] |= frame::flag::END_STREAM;
        }
        pair.serve();
        // The only HEADERS so far: 100 where it is waited for, 404 where nothing is to come.
        let mut rest = &pair.io.output[..];
        let mut heads = 0;
        while let Some(header) = rest.first_chunk() {
            let header = FrameHeader::parse(header);
            heads += usize::from(header.kind == kind::HEADERS);
            rest = &rest[frame::HEADER_BYTES + header.length as usize..];
        }
        assert_eq!(heads, usize::from(goes_on || !has_body), "{expect}");
        pair.take();
        if has_body {
            let Pair { client, sent, .. } = &mut pair;
            client.close_send(stream, sent);
            pair.serve();
        }
        pair.take();
        assert_eq!(pair.client.head().http_status(), 404, "{expect}");
    }
}

#[test]
fn a_server_that_keeps_nothing_refuses_to_copy_it() {
    let name = |text: &str| {
        let mut message = Vec::new();
        writer::bytes(&mut message, 1, text.as_bytes());
        message
    };
    let mut convert = Vec::new();
    let request = ConvertDatabaseRequest {
        name: "",
        kind: DatabaseKind::Disk.number(),
    };
    request.encode(&mut convert);
    let mut pair = Pair::open();
    for _ in 0..2 {
        for (method, message, why) in [
            (Method::AdminSnapshot, Vec::new(), "nothing to copy"),
            (Method::AdminBackup, name("copy"), "nothing to copy"),
            (
                Method::AdminConvertDatabase,
                convert.clone(),
                "start it with --data DIR",
            ),
        ] {
            let call = pair.call(&path(method), &message);
            let (code, words) = end_of(&mut pair, call).expect("it is refused at once");
            assert_eq!(code, Code::FailedPrecondition, "{words}");
            assert!(words.contains(why), "{words}");
        }
    }
}

/// Without its name once more, only an empty database is dropped.
#[test]
fn a_database_is_dropped_without_confirmation_while_it_is_empty() {
    let mut pair = Pair::open();
    let mut create = Vec::new();
    let request = CreateDatabaseRequest {
        database: Some(DatabaseDescription {
            name: "other",
            durability: DurabilityMode::Volatile.number(),
            ..DatabaseDescription::default()
        }),
    };
    request.encode(&mut create);
    let mut drop_it = Vec::new();
    let request = DropDatabaseRequest {
        name: "other",
        confirm_name: "",
    };
    request.encode(&mut drop_it);
    let mut stored = Vec::new();
    let request = OperationRequest {
        database: "other",
        operation: Operation::Put {
            key: b"key",
            value: b"value",
            condition: Condition::None,
            expiry: Expiry::None,
            want_previous: false,
        },
    };
    request.encode(&mut stored);
    let mut code_of = |method, message: &[u8]| {
        pair.messages.clear();
        let call = pair.call(&path(method), message);
        let (code, words) = end_of(&mut pair, call).expect("it ends");
        let dropped = pair.messages.pop().is_some_and(|(_, answer)| {
            method == Method::AdminDropDatabase
                && (DropDatabaseResponse::decode(&answer)).is_ok_and(|answer| answer.dropped)
        });
        assert_eq!(
            words.contains("confirm_name"),
            code == Code::InvalidArgument
        );
        (code, dropped)
    };
    for is_empty in [true, false, true] {
        assert_eq!(code_of(Method::AdminCreateDatabase, &create).0, Code::Ok);
        if is_empty {
            let dropped = code_of(Method::AdminDropDatabase, &drop_it);
            assert_eq!(dropped, (Code::Ok, true));
            let again = code_of(Method::AdminDropDatabase, &drop_it);
            assert_eq!(again, (Code::Ok, false), "it is gone");
            continue;
        }
        assert_eq!(code_of(Method::Put, &stored).0, Code::Ok);
        let refused = code_of(Method::AdminDropDatabase, &drop_it);
        assert_eq!(refused, (Code::InvalidArgument, false));
        let mut confirmed = drop_it.clone();
        writer::bytes(&mut confirmed, 2, b"other");
        let dropped = code_of(Method::AdminDropDatabase, &confirmed);
        assert_eq!(dropped, (Code::Ok, true));
    }
}

#[test]
fn a_call_reads_the_wall_clock_to_the_microsecond_that_is_known() {
    let mut pair = Pair::open();
    let path = path(Method::YdbPingStream);
    let head = RequestHead::call("test", &path);
    let call = (pair.client.open(&mut pair.sent, &head)).expect("a stream is free");
    for round in 0..3_u64 {
        pair.now_ns = round * 2_500_000;
        pair.client.send_message(call, &mut pair.sent, |_| {});
        for _ in 0..3 {
            pair.turn();
        }
        let (_, message) = pair.messages.remove(0);
        let mut found_us = None;
        let fields = Reader::new(&message).for_each(|number, value| {
            if number == 1 {
                found_us = Some(value.varint()?);
            }
            Ok(())
        });
        assert_eq!(fields, Ok(()));
        // The clock of the pair has whole milliseconds, and began at the 1000th second.
        let expected_ms = 1_000_000 + round * 5 / 2;
        assert_eq!(found_us, Some(expected_ms * 1_000), "{round}");
    }
}
