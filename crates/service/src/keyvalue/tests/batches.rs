//! Batch.

use store::{Condition, Operation};

use super::single::put;
use super::*;
use crate::keyvalue::messages::*;
use crate::limits::{ANSWER_BYTES_MAX, TIME_TO_LIVE_MS_MAX};
use crate::protobuf::writer;

pub(super) fn get(key: &[u8]) -> Operation<'_> {
    Operation::Get { key }
}

pub(super) fn increment(key: &[u8]) -> Operation<'_> {
    Operation::Increment {
        key,
        delta: 1,
        initial: 0,
        condition: Condition::None,
    }
}

fn request(mode: Mode, max_answer_bytes: u64, operations: &[Operation<'_>]) -> Vec<u8> {
    let mut request = Vec::new();
    BatchRequest::encode(&mut request, "", mode, max_answer_bytes, operations);
    request
}

pub(super) fn results<'a>(response: &BatchResponse<'a>) -> Vec<OperationResult<'a>> {
    let known =
        |result: Result<Option<_>, _>| result.expect("it is a message").expect("it is known");
    response.results().map(known).collect()
}

pub(super) fn found<'a>(value: &'a [u8], version: u64) -> OperationResult<'a> {
    OperationResult::Get(GetResponse {
        found: true,
        value,
        version,
        expires_at_ms: 0,
    })
}

#[test]
pub(super) fn reads_come_from_one_view() {
    let mut bench = Bench::new();
    let a = bench.put(b"a", b"1");
    let large = vec![b'x'; 20_000];
    let b = bench.put(b"b", &large);
    for mode in [Mode::Atomic, Mode::Independent] {
        let ended = bench.call(
            Method::Batch,
            &request(mode, 0, &[get(b"b"), get(b"none"), get(b"a")]),
        );
        let response = BatchResponse::decode(ended.answer()).expect("it is a message");
        assert!(response.applied);
        let point = ResumePoint {
            history_id: HISTORY_ID,
            sequence: b,
        };
        assert_eq!(response.point, point);
        let missing = OperationResult::Get(GetResponse::default());
        assert_eq!(
            results(&response),
            [found(&large, b), missing, found(b"1", a)]
        );
    }
}

#[test]
fn an_empty_batch_is_answered() {
    let ended = Bench::new().call(Method::Batch, &[]);
    let response = BatchResponse::decode(ended.answer()).expect("it is a message");
    assert!(response.applied && results(&response).is_empty());
}

#[test]
fn an_atomic_batch_is_one_commit_and_sees_its_own_writes() {
    let mut bench = Bench::new();
    let operations = [
        put(b"a", b"1"),
        get(b"a"),
        increment(b"n"),
        increment(b"n"),
        get(b"none"),
    ];
    let ended = bench.call(Method::Batch, &request(Mode::Atomic, 0, &operations));
    let response = BatchResponse::decode(ended.answer()).expect("it is a message");
    assert_eq!(response.point.history_id, HISTORY_ID);
    let version = response.point.sequence;
    let counted = |value| {
        OperationResult::Increment(IncrementResponse {
            applied: true,
            value,
            version,
            refusal: None,
        })
    };
    let expected = [
        OperationResult::Put(PutResponse {
            applied: true,
            version,
            previous: None,
        }),
        found(b"1", version),
        counted(1),
        counted(2),
        OperationResult::Get(GetResponse::default()),
    ];
    assert!(response.applied);
    assert_eq!(results(&response), expected);
}

#[test]
fn an_atomic_batch_that_fails_does_nothing_and_says_where() {
    let mut bench = Bench::new();
    let version = bench.put(b"b", b"old");
    let guarded = Operation::Delete {
        key: b"b",
        condition: Condition::VersionIs(version + 9),
        want_previous: true,
    };
    let operations = [put(b"a", b"1"), guarded, put(b"c", b"1")];
    let ended = bench.call(Method::Batch, &request(Mode::Atomic, 0, &operations));
    let response = BatchResponse::decode(ended.answer()).expect("it is a message");
    assert!(!response.applied && results(&response).is_empty());
    assert_eq!(response.failed_operation, 1);
    let Some(OperationResult::Delete(failed)) = response.failed_result else {
        panic!("the delete failed")
    };
    assert_eq!((failed.deleted, failed.version), (false, version));
    assert_eq!(failed.previous.expect("it was wanted").value, b"old");

    let ended = bench.call(
        Method::Batch,
        &request(Mode::Atomic, 0, &[get(b"a"), get(b"c")]),
    );
    let response = BatchResponse::decode(ended.answer()).expect("it is a message");
    assert!(
        results(&response)
            .iter()
            .all(|result| *result == OperationResult::Get(GetResponse::default()))
    );
}

#[test]
fn independent_operations_fail_alone() {
    let mut bench = Bench::new();
    bench.put(b"n", b"no number");
    let operations = [put(b"a", b"1"), increment(b"n"), put(b"b", b"2")];
    let ended = bench.call(Method::Batch, &request(Mode::Independent, 0, &operations));
    let response = BatchResponse::decode(ended.answer()).expect("it is a message");
    assert!(response.applied);
    let results = results(&response);
    assert!(matches!(
        results[0],
        OperationResult::Put(PutResponse { applied: true, .. })
    ));
    let OperationResult::Increment(refused) = results[1] else {
        panic!("an increment")
    };
    assert_eq!(refused.refusal, Some(IncrementRefusal::NotANumber));
    assert!(matches!(
        results[2],
        OperationResult::Put(PutResponse { applied: true, .. })
    ));
}

#[test]
fn a_value_grown_too_large_is_a_failure_in_words() {
    let mut bench = Bench::new();
    let append = Operation::Append {
        key: b"k",
        value: &[b'x'; 60],
        condition: Condition::None,
    };
    let mut request = Vec::new();
    BatchRequest::encode(
        &mut request,
        "small",
        Mode::Independent,
        0,
        &[append, append],
    );
    let ended = bench.call(Method::Batch, &request);
    let response = BatchResponse::decode(ended.answer()).expect("it is a message");
    let results = results(&response);
    assert!(matches!(
        results[0],
        OperationResult::Append(AppendResponse {
            applied: true,
            length: 60,
            ..
        })
    ));
    let OperationResult::Failure(failure) = results[1] else {
        panic!("a failure")
    };
    assert_eq!(failure.code, Code::ResourceExhausted as u32);
    assert!(
        failure.message.contains("120") && failure.message.contains("100"),
        "{}",
        failure.message
    );
}

/// A server with little memory allows less than the caller can receive, and does not refuse what fits.
#[test]
fn an_answer_is_no_larger_than_the_memory_of_the_server_allows() {
    let mut bench = Bench::new();
    bench.put(b"a", &[b'x'; 2_000]);
    bench.shared.answer_bytes_max = 4_200;
    for operations in [
        &[get(b"a"), get(b"a"), get(b"a")][..],
        &[put(b"b", b"1"), get(b"a"), get(b"a"), get(b"a")],
    ] {
        let asked = request(Mode::Atomic, ANSWER_BYTES_MAX, operations);
        let ended = bench.call(Method::Batch, &asked);
        let words = ended.refusal(Code::ResourceExhausted);
        assert!(
            words.contains("4200") && words.contains("--memory-limit"),
            "{words}"
        );
        let fits = request(
            Mode::Atomic,
            ANSWER_BYTES_MAX,
            &operations[..operations.len() - 1],
        );
        let ended = bench.call(Method::Batch, &fits);
        assert!(ended.answer().len() <= 4_200);
    }
    // What is shared with the database counts once, but what a write brings back is copied.
    let large_bytes = store::limits::SHARED_VALUE_BYTES;
    bench.shared.answer_bytes_max += large_bytes as u64;
    bench.put(b"large", &vec![b'x'; large_bytes]);
    bench.put(b"other", &vec![b'y'; large_bytes]);
    let reads = [get(b"large"), get(b"large"), get(b"a"), get(b"other")];
    let asked = |count| request(Mode::Atomic, ANSWER_BYTES_MAX, &reads[..count]);
    let ended = bench.call(Method::Batch, &asked(3));
    assert!(ended.answer().len() > 2 * large_bytes);
    let ended = bench.call(Method::Batch, &asked(4));
    ended.refusal(Code::ResourceExhausted);
    bench.shared.answer_bytes_max = 4_200;
    let with_write = [put(b"b", b"1"), get(b"large")];
    let asked = request(Mode::Atomic, ANSWER_BYTES_MAX, &with_write);
    bench
        .call(Method::Batch, &asked)
        .refusal(Code::ResourceExhausted);
    let too_much = request(Mode::Atomic, ANSWER_BYTES_MAX + 1, &[get(b"a")]);
    let ended = bench.call(Method::Batch, &too_much);
    ended.refusal(Code::InvalidArgument);
}

#[test]
pub(super) fn an_answer_that_could_be_too_large_is_refused_before_anything_happens() {
    let mut bench = Bench::new();
    bench.put(b"a", &[b'x'; 2_000]);
    for operations in [
        &[get(b"a"), get(b"a")][..],
        &[put(b"b", b"1"), get(b"a"), get(b"a")],
    ] {
        let ended = bench.call(Method::Batch, &request(Mode::Atomic, 4_000, operations));
        let words = ended.refusal(Code::ResourceExhausted);
        assert!(
            words.contains("max_answer_bytes") && words.contains("4000"),
            "{words}"
        );
        let ended = bench.call(Method::Batch, &request(Mode::Atomic, 4_200, operations));
        let answer = ended.answer();
        assert!(answer.len() <= 4_200);
    }
    let reads = request(Mode::Atomic, 0, &[get(b"b"); 1]);
    let ended = bench.call(Method::Batch, &reads);
    let response = BatchResponse::decode(ended.answer()).expect("it is a message");
    assert!(matches!(
        results(&response)[0],
        OperationResult::Get(GetResponse { found: true, .. })
    ));
    // Two values of 2.5 MB do not fit into the 4 MiB that a default client takes.
    bench.put(b"a", &vec![b'x'; 2_500_000]);
    let ended = bench.call(
        Method::Batch,
        &request(Mode::Atomic, 0, &[get(b"a"), get(b"a")]),
    );
    assert!(ended.refusal(Code::ResourceExhausted).contains("4194304"));
    let ended = bench.call(
        Method::Batch,
        &request(Mode::Atomic, 6_000_000, &[get(b"a"), get(b"a")]),
    );
    assert!(ended.answer().len() > 5_000_000);
}

#[test]
pub(super) fn the_answer_keeps_to_its_bound_at_every_bound() {
    let mut bench = Bench::new();
    bench.put(b"a", &[b'x'; 300]);
    let wants = Operation::Put {
        key: b"a",
        value: &[b'y'; 300],
        condition: Condition::None,
        expiry: store::Expiry::AfterMs(TIME_TO_LIVE_MS_MAX),
        want_previous: true,
    };
    for bound in 1..1_000 {
        for operations in [
            &[get(b"a"), get(b"a")][..],
            &[wants, wants],
            &[wants],
            &[get(b"a")],
        ] {
            let ended = bench.call(Method::Batch, &request(Mode::Atomic, bound, operations));
            if ended.status == Status::OK {
                assert!(
                    ended.messages[0].len() as u64 <= bound,
                    "{bound}: {}",
                    ended.messages[0].len()
                );
            }
        }
    }
}

#[test]
fn failures_in_words_count_for_the_answer() {
    let append = Operation::Append {
        key: b"k",
        value: &[b'x'; 60],
        condition: Condition::None,
    };
    let mut served = 0;
    for bound in 1..2_000 {
        let mut bench = Bench::new();
        let mut request = Vec::new();
        BatchRequest::encode(
            &mut request,
            "small",
            Mode::Independent,
            bound,
            &[append; 5],
        );
        let ended = bench.call(Method::Batch, &request);
        if ended.status == Status::OK {
            assert!(
                ended.messages[0].len() as u64 <= bound,
                "{bound}: {}",
                ended.messages[0].len()
            );
            served += 1;
        }
    }
    assert!(served > 1_000);
}

#[test]
fn limits_are_named() {
    let mut bench = Bench::new();
    let words = |ended: &Ended, code| ended.refusal(code).to_string();
    let ended = bench.call(
        Method::Batch,
        &request(Mode::Atomic, ANSWER_BYTES_MAX + 1, &[]),
    );
    let text = words(&ended, Code::InvalidArgument);
    assert!(
        text.contains("max_answer_bytes is 67108865, at most 67108864"),
        "{text}"
    );

    for operation in [get(b"a"), put(b"a", b"")] {
        let mut request = Vec::new();
        BatchRequest::encode(&mut request, "small", Mode::Atomic, 0, &[operation; 6]);
        let text = words(
            &bench.call(Method::Batch, &request),
            Code::ResourceExhausted,
        );
        assert!(
            text.contains("operations: there are 6 operations, at most 5"),
            "{text}"
        );
    }
    let mut request = Vec::new();
    let key = [b'k'; 900];
    BatchRequest::encode(
        &mut request,
        "small",
        Mode::Independent,
        0,
        &[put(&key, b""), put(&key, b"")],
    );
    let text = words(
        &bench.call(Method::Batch, &request),
        Code::ResourceExhausted,
    );
    assert!(
        text.contains("1800 bytes") && text.contains("at most 1000"),
        "{text}"
    );
}

#[test]
fn broken_operations_are_named_and_nothing_is_done() {
    let mut bench = Bench::new();
    let mut broken = request(Mode::Independent, 0, &[put(b"a", b"1")]);
    writer::message(&mut broken, 3, |_| {});
    let ended = bench.call(Method::Batch, &broken);
    let words = ended.refusal(Code::InvalidArgument);
    assert!(
        words.contains("operations[1]: field operation is not set"),
        "{words}"
    );
    let ended = bench.call(Method::Batch, &request(Mode::Atomic, 0, &[get(b"a")]));
    let response = BatchResponse::decode(ended.answer()).expect("it is a message");
    assert_eq!(
        results(&response),
        [OperationResult::Get(GetResponse::default())]
    );

    let ended = bench.call(Method::Batch, &[0x10, 0x03]);
    let words = ended.refusal(Code::InvalidArgument);
    assert!(words.contains("field mode is not a BatchMode"), "{words}");
}
