//! Typed calls over the blocking channel, against a server that responds by what it was asked.

mod common;

use std::time::Duration;

use api::keyvalue::{
    AppendRequest, AppendResponse, Condition, CountRequest, CountResponse, DeleteRequest,
    DeleteResponse, Entry, Expiry, GetRequest, GetResponse, IncrementRefusal, IncrementRequest,
    IncrementResponse, Keys, PutRequest, PutResponse,
};
use api::rpc::Repetition;
use client::typed::{AppendOutcome, CountOutcome, KeyValue, StoredValue};
use client::{CallError, Code};
use common::serve;
use protobuf::Message;
use wire::{Connection, StreamKey};

const SOON: Duration = Duration::from_secs(20);

const ENTRY: Entry<'static> = Entry {
    key: b"",
    value: b"before",
    version: 3,
    expires_at_ms: 0,
};

fn respond<'a>(
    connection: &mut Connection,
    stream: StreamKey,
    out: &mut Vec<u8>,
    response: &impl Message<'a>,
) {
    connection.respond(stream, out, |out| response.encode(out));
}

/// Responds with what the request says, so that a test sees both ways.
fn mirror(
    connection: &mut Connection,
    stream: StreamKey,
    out: &mut Vec<u8>,
    path: &str,
    message: &[u8],
) {
    let done = "the request is valid";
    match path {
        "/pelton.v1.KeyValue/Get" => {
            let get = GetRequest::decode(message).expect(done);
            if get.key == b"broken" {
                return connection.respond(stream, out, |out| out.push(0xff));
            }
            let response = GetResponse {
                found: get.key != b"missing",
                value: get.database.as_bytes(),
                version: 3,
                expires_at_ms: 9,
            };
            respond(connection, stream, out, &response);
        }
        "/pelton.v1.KeyValue/Put" => {
            let put = PutRequest::decode(message).expect(done);
            let response = PutResponse {
                applied: put.condition != Some(Condition::IfExists(false)),
                version: match put.expiry {
                    Some(Expiry::TimeToLiveMs(ms)) => ms,
                    Some(Expiry::KeepTimeToLive(_)) => 1,
                    None => put.value.len() as u64,
                },
                previous: put.return_previous.then_some(ENTRY),
            };
            respond(connection, stream, out, &response);
        }
        "/pelton.v1.KeyValue/Delete" => {
            let delete = DeleteRequest::decode(message).expect(done);
            let response = DeleteResponse {
                deleted: delete.condition == Some(Condition::IfVersion(3)),
                version: 3,
                previous: delete.return_previous.then_some(ENTRY),
                sequence: 8,
            };
            respond(connection, stream, out, &response);
        }
        _ => mirror_numbers(connection, stream, out, path, message),
    }
}

/// The same for the methods whose responses hold nothing but numbers.
fn mirror_numbers(
    connection: &mut Connection,
    stream: StreamKey,
    out: &mut Vec<u8>,
    path: &str,
    message: &[u8],
) {
    let done = "the request is valid";
    match path {
        "/pelton.v1.KeyValue/Append" => {
            let append = AppendRequest::decode(message).expect(done);
            let response = AppendResponse {
                applied: append.condition == Some(Condition::IfValue(b"v")),
                version: 4,
                length: append.value.len() as u64,
            };
            respond(connection, stream, out, &response);
        }
        "/pelton.v1.KeyValue/Increment" => {
            let increment = IncrementRequest::decode(message).expect(done);
            let is_refused = increment.condition == Some(Condition::IfExists(true));
            let response = IncrementResponse {
                applied: !is_refused,
                value: increment.initial + increment.delta,
                version: 5,
                refusal: i32::from(is_refused),
            };
            respond(connection, stream, out, &response);
        }
        "/pelton.v1.KeyValue/Count" => {
            let count = CountRequest::decode(message).expect(done);
            let response = CountResponse {
                count: match count.keys {
                    None => 0,
                    Some(Keys::Prefix(prefix)) => prefix.len() as u64,
                    Some(Keys::Range(range)) => (range.start.len() + range.end.len()) as u64,
                },
                exact: count.precision == 0,
                ..CountResponse::default()
            };
            respond(connection, stream, out, &response);
        }
        _ => connection.send_plain(stream, out, 404, &[], b""),
    }
}

#[test]
fn a_miss_is_an_outcome_and_a_broken_response_an_error() {
    let (mut channel, server) = serve(mirror);
    let mut kv = KeyValue::of(&mut channel, "people");
    for _ in 0..2 {
        let found = kv.get(b"k").timeout(SOON).send().expect("answered");
        let expected = StoredValue {
            value: b"people".to_vec(),
            version: 3,
            expires_at_ms: Some(9),
        };
        assert_eq!(found, Some(expected));
        let missing = kv.get(b"missing").timeout(SOON).send();
        assert_eq!(missing.expect("answered"), None);
        let broken = kv.get(b"broken").timeout(SOON).send();
        let Err(CallError::BadAnswer { reason }) = broken else {
            panic!("{broken:?}");
        };
        assert!(reason.contains("pelton.v1.GetResponse"), "{reason}");
    }
    drop(channel);
    server.join().expect("the server ends with its client");
}

#[test]
fn conditions_and_options_of_writes_go_to_the_server() {
    let (mut channel, _server) = serve(mirror);
    let mut kv = KeyValue::new(&mut channel);
    let put = kv.put(b"k", b"four").timeout(SOON).send().expect("done");
    assert_eq!((put.applied, put.version, put.previous), (true, 4, None));
    let put = kv.put(b"k", b"v").if_absent().return_previous();
    let put = put.time_to_live(Duration::from_nanos(1_000_001)).send();
    let put = put.expect("done");
    assert_eq!((put.applied, put.version), (false, 2), "rounded up");
    let before = put.previous.expect("it was asked for");
    assert_eq!(
        (&before.value[..], before.expires_at_ms),
        (&b"before"[..], None)
    );
    let put = kv.put(b"k", b"long").keep_time_to_live().send();
    assert_eq!(put.expect("done").version, 1);

    let delete = kv.delete(b"k").if_version(3).send().expect("done");
    assert_eq!((delete.deleted, delete.sequence), (true, 8));
    let delete = kv.delete(b"k").return_previous().send().expect("done");
    assert!(!delete.deleted && delete.previous.is_some());

    let append = kv.append(b"k", b"abc").if_value(b"v").send();
    let expected = AppendOutcome {
        applied: true,
        version: 4,
        length: 3,
    };
    assert_eq!(append.expect("done"), expected);

    let sum = kv.increment(b"n", -5).initial(2).send().expect("done");
    assert_eq!((sum.applied, sum.value, sum.refusal), (true, -3, None));
    let sum = kv.increment(b"n", 1).if_exists().send().expect("done");
    assert_eq!(sum.refusal, Some(IncrementRefusal::Condition));
}

#[test]
fn a_count_is_of_a_database_a_prefix_or_a_range() {
    let (mut channel, _server) = serve(mirror);
    let mut kv = KeyValue::new(&mut channel);
    let outcome = |count, exact| CountOutcome { count, exact };
    let all = kv.count().send().expect("done");
    assert_eq!(all, outcome(0, true));
    let some = kv.count().prefix(b"abc").estimate().send().expect("done");
    assert_eq!(some, outcome(3, false));
    let some = kv.count().range(b"a", b"bcd").send().expect("done");
    assert_eq!(some, outcome(4, true));
}

#[test]
fn a_call_says_what_a_repetition_does_before_it_is_made() {
    let (mut channel, _server) = serve(mirror);
    let mut kv = KeyValue::new(&mut channel);
    assert_eq!(kv.get(b"k").repetition(), Repetition::Harmless);
    assert_eq!(kv.put(b"k", b"v").repetition(), Repetition::MayRepeat);
    let put = kv.put(b"k", b"v").if_version(3);
    assert_eq!(put.repetition(), Repetition::AtMostOnce);
}

#[test]
fn a_typed_call_ends_with_the_status_of_the_server() {
    fn refuse(
        connection: &mut Connection,
        stream: StreamKey,
        out: &mut Vec<u8>,
        _path: &str,
        _message: &[u8],
    ) {
        let status = client::Status::new(Code::PermissionDenied, "no");
        connection.finish(stream, out, &status);
    }
    let (mut channel, _server) = serve(refuse);
    let error = KeyValue::new(&mut channel)
        .get(b"k")
        .send()
        .expect_err("refused");
    assert!(!error.may_have_happened());
    let CallError::Status(status) = error else {
        panic!("{error}");
    };
    assert_eq!(status.code(), Code::PermissionDenied);
}
