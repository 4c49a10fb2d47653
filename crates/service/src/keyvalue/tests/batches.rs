//! Batch.

use store::{Condition, Operation};

use super::single::put;
use super::*;
use crate::limits::{
    ANSWER_BYTES_MAX, ANSWER_FRAME_BYTES, FAILURE_BYTES, LARGE_ANSWER_BYTES, TIME_TO_LIVE_MS_MAX,
};
use api::keyvalue::*;
use protobuf::writer;
use testkit::keyvalue::*;

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
    encode_batch(&mut request, "", mode, max_answer_bytes, operations);
    request
}

pub(super) fn results<'a>(response: &BatchResponse<'a>) -> Vec<ResultBody<'a>> {
    let known = |result: Result<OperationResult<'a>, _>| {
        let result = result.expect("it is a message").result;
        result.expect("it is known")
    };
    response.results.iter().map(known).collect()
}

pub(super) fn found<'a>(value: &'a [u8], version: u64) -> ResultBody<'a> {
    ResultBody::Get(GetResponse {
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
        assert_eq!(api::history_id(response.history_id), HISTORY_ID);
        assert_eq!(response.sequence, b);
        let missing = ResultBody::Get(GetResponse::default());
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
    assert_eq!(api::history_id(response.history_id), HISTORY_ID);
    let version = response.sequence;
    let counted = |value| {
        ResultBody::Increment(IncrementResponse {
            applied: true,
            value,
            version,
            refusal: 0,
        })
    };
    let expected = [
        ResultBody::Put(PutResponse {
            applied: true,
            version,
            previous: None,
        }),
        found(b"1", version),
        counted(1),
        counted(2),
        ResultBody::Get(GetResponse::default()),
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
    let failed = response.failed_result.and_then(|failed| failed.result);
    let Some(ResultBody::Delete(failed)) = failed else {
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
            .all(|result| *result == ResultBody::Get(GetResponse::default()))
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
        ResultBody::Put(PutResponse { applied: true, .. })
    ));
    let ResultBody::Increment(refused) = results[1] else {
        panic!("an increment")
    };
    assert_eq!(refused.refusal, IncrementRefusal::NotANumber.number());
    assert!(matches!(
        results[2],
        ResultBody::Put(PutResponse { applied: true, .. })
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
    encode_batch(
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
        ResultBody::Append(AppendResponse {
            applied: true,
            length: 60,
            ..
        })
    ));
    let ResultBody::Failure(failure) = results[1] else {
        panic!("a failure")
    };
    assert_eq!(failure.code, Code::ResourceExhausted as u32);
    assert!(
        failure.message.contains("120") && failure.message.contains("100"),
        "{}",
        failure.message
    );
}

/// A server with little memory allows less than the caller can receive, and does not refuse what
/// fits.
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

/// An answer is refused from one byte beyond its bound on: of what each read may come to, and of
/// what is kept for it.
#[test]
fn answers_to_reads_come_up_to_their_bounds() {
    let mut bench = Bench::new();
    let large_bytes = store::limits::SHARED_VALUE_BYTES;
    bench.put(b"a", &[b'x'; 300]);
    bench.put(b"large", &vec![b'x'; large_bytes]);
    let frame_bytes = bench.call(Method::Batch, &[]).answer().len();
    for (key, bytes) in [(&b"a"[..], 300), (b"large", large_bytes)] {
        let most = frame_bytes + bytes + store::limits::ANSWER_BYTES_PER_OPERATION;
        let asked = |bound: usize| request(Mode::Atomic, bound as u64, &[get(key)]);
        bench.call(Method::Batch, &asked(most)).answer();
        let ended = bench.call(Method::Batch, &asked(most - 1));
        ended.refusal(Code::ResourceExhausted);
    }
    for (keys, twice_bytes) in [
        (&[&b"a"[..]][..], 0),
        (&[b"large"], 0),
        (&[b"large", b"a"], 0),
        // What is shared counts once.
        (&[b"large", b"large"], large_bytes),
    ] {
        let reads: Vec<_> = keys.iter().map(|key| get(key)).collect();
        let asked = request(Mode::Atomic, 0, &reads);
        bench.shared.answer_bytes_max = ANSWER_BYTES_MAX;
        let bytes = bench.call(Method::Batch, &asked).answer().len() - twice_bytes;
        bench.shared.answer_bytes_max = bytes as u64;
        bench.call(Method::Batch, &asked).answer();
        bench.shared.answer_bytes_max -= 1;
        let ended = bench.call(Method::Batch, &asked);
        ended.refusal(Code::ResourceExhausted);
    }
}

/// What a batch with a write may come to is the sum of what its results may, with words for each
/// Append.
#[test]
fn answers_to_writes_come_up_to_their_bounds() {
    let mut bench = Bench::new();
    bench.put(b"a", &[b'x'; 300]);
    let append = Operation::Append {
        key: b"b",
        value: b"1",
        condition: Condition::None,
    };
    let each = store::limits::ANSWER_BYTES_PER_OPERATION as u64;
    for (operations, results_bytes) in [
        (&[put(b"b", b"1"), get(b"a")][..], 2 * each + 300),
        (
            &[append, get(b"a"), append],
            3 * each + 300 + 2 * FAILURE_BYTES,
        ),
    ] {
        let most = ANSWER_FRAME_BYTES + results_bytes;
        let ended = bench.call(Method::Batch, &request(Mode::Atomic, most, operations));
        ended.answer();
        let ended = bench.call(Method::Batch, &request(Mode::Atomic, most - 1, operations));
        ended.refusal(Code::ResourceExhausted);
    }
}

#[test]
fn a_batch_of_writes_takes_memory_for_the_values_in_its_answer() {
    let write = put(b"b", b"1");
    let previous = Operation::Delete {
        key: b"a",
        condition: Condition::None,
        want_previous: true,
    };
    for (bound, operations, values_bytes) in [
        (0, &[write, increment(b"n")][..], 0),
        (0, &[write, get(b"a")], SMALL_VALUE_BYTES),
        (0, &[write, get(b"a"), previous], 2 * SMALL_VALUE_BYTES),
        (170, &[write, get(b"a"), get(b"a")], 170),
    ] {
        let mut request = Vec::new();
        encode_batch(&mut request, "small", Mode::Atomic, bound, operations);
        takes_memory_for_values(Method::Batch, &request, values_bytes);
        let mut request = Vec::new();
        let answers = PipeAnswers::All;
        encode_pipe(
            &mut request,
            "small",
            answers,
            Mode::Atomic,
            bound,
            operations,
        );
        takes_memory_for_values(Method::Pipe, &request, values_bytes);
    }
}

/// Memory for all that it may copy is taken once, when it has copied much, and the answer waits for
/// it.
#[test]
fn an_answer_that_copies_much_takes_memory_for_it() {
    let mut bench = Bench::new();
    let each = store::limits::SHARED_VALUE_BYTES + store::limits::ANSWER_BYTES_PER_OPERATION;
    let inline_bytes = store::limits::SHARED_VALUE_BYTES - 1;
    bench.put(b"a", &vec![b'x'; inline_bytes]);
    bench.put(b"large", &vec![b'x'; 4 * LARGE_ANSWER_BYTES]);
    let count = LARGE_ANSWER_BYTES / inline_bytes - 1;
    let mut reads = vec![get(b"a"); count];
    reads.push(get(b"rest"));
    let mut met = Vec::new();
    // From a little below what needs no memory to a little beyond.
    let before = bench.call(Method::Batch, &request(Mode::Atomic, 0, &reads));
    let left = LARGE_ANSWER_BYTES.saturating_sub(before.answer().len());
    for bytes in left.saturating_sub(40)..=left + 1 {
        bench.put(b"rest", &vec![b'x'; bytes]);
        let ended = bench.call(Method::Batch, &request(Mode::Atomic, 0, &reads));
        let length = ended.answer().len();
        met.push(length);
        match length > LARGE_ANSWER_BYTES {
            true => assert_eq!(ended.claims, [(count + 1) * each]),
            false => assert_eq!(ended.claims, []),
        }
    }
    assert!(met.contains(&LARGE_ANSWER_BYTES) && met.contains(&(LARGE_ANSWER_BYTES + 1)));

    // It takes no more than its answer may have, and waits as often as there is none.
    reads.extend([get(b"a"); 4]);
    let bound = (count as u64 + 6) * each as u64 - 1;
    reads.push(get(b"rest"));
    for refusals in [0, 2] {
        bench.memory.refusals = refusals;
        let ended = bench.call(Method::Batch, &request(Mode::Atomic, bound, &reads));
        assert!(ended.answer().len() > LARGE_ANSWER_BYTES);
        assert_eq!(ended.claims, vec![bound as usize; refusals + 1]);
        bench.shared.answer_bytes_max = bound;
        bench.memory.refusals = refusals;
        let ended = bench.call(Method::Batch, &request(Mode::Atomic, bound + 9, &reads));
        assert_eq!(ended.claims, vec![bound as usize; refusals + 1]);
        bench.shared.answer_bytes_max = ANSWER_BYTES_MAX;
    }
    // What is shared is not copied.
    bench.memory = PLENTY;
    let ended = bench.call(Method::Batch, &request(Mode::Atomic, 0, &[get(b"large")]));
    assert_eq!(ended.shared_bytes, 4 * LARGE_ANSWER_BYTES);
    assert_eq!(ended.claims, []);
}

/// A batch of reads that may not send yet looks at its view later, as often as that happens.
#[test]
fn a_batch_of_reads_waits_until_it_may_send() {
    let mut bench = Bench::new();
    bench.put(b"a", b"1");
    let asked = request(Mode::Atomic, 0, &[get(b"a")]);
    let ended = bench.steps(Method::Batch, |call, shared, room| {
        room.room = 0;
        room.bring(call, &asked, true, shared);
        assert_eq!(room.reserved_bytes, asked.len(), "its request is kept");
    });
    ended.answer();
    assert_eq!(ended.ticks, 3, "a view, a wait, and a view");
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
        ResultBody::Get(GetResponse { found: true, .. })
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
        encode_batch(
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
        encode_batch(&mut request, "small", Mode::Atomic, 0, &[operation; 6]);
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
    encode_batch(
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
        [ResultBody::Get(GetResponse::default())]
    );

    let ended = bench.call(Method::Batch, &[0x10, 0x03]);
    let words = ended.refusal(Code::InvalidArgument);
    assert!(words.contains("field mode is not a BatchMode"), "{words}");
}

/// Tiny fields by the hundred thousand would keep the decoder busy long before they are counted.
#[test]
fn a_request_with_far_too_many_fields_is_refused_before_it_is_read_to_its_end() {
    use protobuf::limits::{MESSAGE_FIELDS_MAX, REQUEST_FIELDS_MAX};
    // Key and operations, empty.
    let (key, operation) = ([0x12, 0], [0x1a, 0]);
    for (method, field, allowed) in [
        (Method::Get, key, MESSAGE_FIELDS_MAX),
        (Method::Batch, operation, REQUEST_FIELDS_MAX),
        (Method::Transact, operation, REQUEST_FIELDS_MAX),
    ] {
        for round in 0..2 {
            let mut bench = Bench::new();
            let mut message = field.repeat(allowed as usize);
            let usual = bench.call(method, &message).status;
            assert!(
                !usual.message().contains("too many fields"),
                "{round}: {usual:?}"
            );
            message.extend(field);
            // What follows is not looked at: it is no field.
            message.push(0x07);
            let refused = bench.call(method, &message).status;
            assert_eq!(
                refused.code(),
                Code::ResourceExhausted,
                "{round}: {refused:?}"
            );
            assert!(refused.message().contains("too many fields"), "{refused:?}");
        }
    }
}
