//! Transact.

use store::{Condition, Operation};

use super::batches::{found, get, increment, results};
use super::single::put;
use super::*;
use crate::limits::{ANSWER_BYTES_MAX, FAILURE_BYTES, TRANSACT_FRAME_BYTES};
use api::keyvalue::*;
use protobuf::writer;
use testkit::keyvalue::*;

type Comparison<'a> = (&'a [u8], Condition<'a>);

fn request(
    comparisons: &[Comparison<'_>],
    when_met: &[Operation<'_>],
    when_unmet: &[Operation<'_>],
) -> Vec<u8> {
    bounded("", 0, comparisons, when_met, when_unmet)
}

fn bounded(
    database: &str,
    max_answer_bytes: u64,
    comparisons: &[Comparison<'_>],
    when_met: &[Operation<'_>],
    when_unmet: &[Operation<'_>],
) -> Vec<u8> {
    let mut request = Vec::new();
    encode_transact(
        &mut request,
        database,
        max_answer_bytes,
        comparisons,
        when_met,
        when_unmet,
    );
    request
}

fn decode(ended: &Ended) -> TransactResponse<'_> {
    TransactResponse::decode(ended.answer()).expect("it is a message")
}

/// What became of the chosen list.
fn batch<'a>(response: &TransactResponse<'a>) -> BatchResponse<'a> {
    response.batch.expect("each answer has it")
}

/// As much as the list needs that needs more.
#[test]
fn memory_is_taken_for_the_values_of_either_list() {
    let one = &[get(b"a")][..];
    let two = &[get(b"a"), get(b"b")][..];
    let none = &[put(b"a", b"1")][..];
    for (when_met, when_unmet, count) in [
        (none, none, 0),
        (one, none, 1),
        (none, one, 1),
        (one, two, 2),
        (two, one, 2),
    ] {
        let request = bounded("small", 0, &[], when_met, when_unmet);
        let values_bytes = count * SMALL_VALUE_BYTES;
        takes_memory_for_values(Method::Transact, &request, values_bytes);
    }
}

/// An Append in either list may be answered with a failure in words.
#[test]
fn answers_come_up_to_their_bounds() {
    let mut bench = Bench::new();
    bench.put(b"a", &[b'x'; 300]);
    let append = Operation::Append {
        key: b"b",
        value: b"1",
        condition: Condition::None,
    };
    let each = store::limits::ANSWER_BYTES_PER_OPERATION as u64;
    for (when_met, when_unmet, results_bytes) in [
        (&[get(b"a")][..], &[][..], each + 300),
        (&[get(b"a")], &[append], each + 300 + FAILURE_BYTES),
        (
            &[get(b"a"), append, append],
            &[append],
            3 * each + 300 + FAILURE_BYTES,
        ),
    ] {
        let most = TRANSACT_FRAME_BYTES + results_bytes;
        let request = |bound| bounded("", bound, &[], when_met, when_unmet);
        bench.call(Method::Transact, &request(most)).answer();
        let ended = bench.call(Method::Transact, &request(most - 1));
        ended.refusal(Code::ResourceExhausted);
    }
}

#[test]
fn comparisons_choose_the_list() {
    let mut bench = Bench::new();
    let version = bench.put(b"a", b"1");
    let met: [Comparison<'_>; 6] = [
        (b"a", Condition::VersionIs(version)),
        (b"none", Condition::VersionIs(0)),
        (b"a", Condition::Present),
        (b"none", Condition::Absent),
        (b"a", Condition::ValueIs(b"1")),
        (b"a", Condition::ValueIs(b"1")),
    ];
    let unmet: [Comparison<'_>; 6] = [
        (b"a", Condition::VersionIs(version + 1)),
        (b"none", Condition::VersionIs(version)),
        (b"a", Condition::Absent),
        (b"none", Condition::Present),
        (b"a", Condition::ValueIs(b"2")),
        (b"none", Condition::ValueIs(b"")),
    ];
    for place in 0..=unmet.len() {
        // All are met but the one at `place`.
        let mut comparisons = met;
        if place < unmet.len() {
            comparisons[place] = unmet[place];
        }
        let request = request(
            &comparisons,
            &[get(b"a")],
            &[get(b"none"), increment(b"unmet")],
        );
        let ended = bench.call(Method::Transact, &request);
        let response = decode(&ended);
        assert!(batch(&response).applied && batch(&response).sequence > version);
        assert_eq!(response.met, place == unmet.len());
        let results = results(&batch(&response));
        if response.met {
            assert_eq!(response.unmet_comparison, 0);
            assert_eq!(results, [found(b"1", version)]);
        } else {
            assert_eq!(response.unmet_comparison, place as u32);
            let counted = ResultBody::Increment(IncrementResponse {
                applied: true,
                value: place as i64 + 1,
                version: batch(&response).sequence,
                refusal: 0,
            });
            assert_eq!(results, [ResultBody::Get(GetResponse::default()), counted]);
        }
    }
}

#[test]
fn parts_may_be_missing() {
    let mut bench = Bench::new();
    let ended = bench.call(Method::Transact, b"");
    let response = decode(&ended);
    assert!(response.met && batch(&response).applied);
    assert!(results(&batch(&response)).is_empty());
    let request = request(&[(b"a", Condition::Present)], &[get(b"a")], &[]);
    let ended = bench.call(Method::Transact, &request);
    let response = decode(&ended);
    assert!(!response.met && batch(&response).applied);
    assert!(results(&batch(&response)).is_empty());
}

#[test]
fn the_chosen_list_is_applied_whole_or_not_at_all() {
    let mut bench = Bench::new();
    let version = bench.put(b"a", b"1");
    let guarded = Operation::Delete {
        key: b"a",
        condition: Condition::VersionIs(version + 1),
        want_previous: true,
    };
    let lists = [put(b"b", b"1"), guarded, put(b"c", b"1")];
    for comparison in [Condition::Present, Condition::Absent] {
        let request = request(&[(b"a", comparison)], &lists, &lists);
        let ended = bench.call(Method::Transact, &request);
        let response = decode(&ended);
        assert_eq!(response.met, comparison == Condition::Present);
        assert!(!batch(&response).applied);
        assert_eq!(batch(&response).failed_operation, 1);
        let previous = Entry {
            value: b"1",
            version,
            ..Entry::default()
        };
        let expected = ResultBody::Delete(DeleteResponse {
            deleted: false,
            version,
            previous: Some(previous),
            sequence: 0,
        });
        assert_eq!(batch(&response).failed_result, Some(expected.into()));
        let reads = request_of_reads(&[b"b", b"c"]);
        let ended = bench.call(Method::Transact, &reads);
        let nothing = ResultBody::Get(GetResponse::default());
        assert_eq!(results(&batch(&decode(&ended))), [nothing, nothing]);
    }
}

fn request_of_reads(keys: &[&[u8]]) -> Vec<u8> {
    let reads: Vec<_> = keys.iter().map(|key| get(key)).collect();
    request(&[], &reads, &[])
}

#[test]
fn an_append_that_grows_too_large_fails_in_words() {
    let append = Operation::Append {
        key: b"k",
        value: &[b'x'; 60],
        condition: Condition::None,
    };
    let mut served = 0;
    for bound in 1..600 {
        let mut bench = Bench::new();
        let request = bounded(
            "small",
            bound,
            &[(b"k", Condition::Present)],
            &[],
            &[append, append],
        );
        let ended = bench.call(Method::Transact, &request);
        if ended.status != Status::OK {
            ended.refusal(Code::ResourceExhausted);
            continue;
        }
        served += 1;
        assert!(ended.messages[0].len() as u64 <= bound, "{bound}");
        let response = decode(&ended);
        assert_eq!(batch(&response).failed_operation, 1);
        let failed = batch(&response).failed_result;
        let Some(ResultBody::Failure(failure)) = failed.and_then(|failed| failed.result) else {
            panic!("a failure")
        };
        assert_eq!(failure.code, Code::ResourceExhausted as u32);
        assert!(failure.message.contains("120"), "{}", failure.message);
    }
    assert!(served > 100);
}

#[test]
fn the_answer_keeps_to_its_bound_and_is_refused_before_anything_happens() {
    let mut bench = Bench::new();
    bench.put(b"a", &[b'x'; 300]);
    let mut refused = 0;
    for bound in 1..1_200 {
        let request = bounded(
            "",
            bound,
            &[],
            &[get(b"a"), increment(b"n"), get(b"a")],
            &[],
        );
        let ended = bench.call(Method::Transact, &request);
        if ended.status == Status::OK {
            assert!(ended.messages[0].len() as u64 <= bound, "{bound}");
        } else {
            let words = ended.refusal(Code::ResourceExhausted);
            assert!(words.contains("max_answer_bytes"), "{words}");
            refused += 1;
        }
    }
    let ended = bench.call(Method::Transact, &request(&[], &[increment(b"n")], &[]));
    let ResultBody::Increment(counted) = results(&batch(&decode(&ended)))[0] else {
        panic!("an increment")
    };
    assert_eq!(counted.value, 1_199 - refused + 1);
    assert!((600..1_000).contains(&refused));
}

#[test]
fn what_is_wrong_is_named_and_nothing_is_done() {
    let mut bench = Bench::new();
    let mut expect = |request: &[u8], code, parts: &[&str]| {
        let ended = bench.call(Method::Transact, request);
        let words = ended.refusal(code);
        for part in parts {
            assert!(words.contains(part), "{part:?} is missing in {words:?}");
        }
    };
    let mut without_condition = request(&[], &[put(b"a", b"1")], &[]);
    writer::message(&mut without_condition, 2, |out| {
        writer::bytes(out, 1, b"key")
    });
    expect(
        &without_condition,
        Code::InvalidArgument,
        &["comparisons[0]", "version, exists, value"],
    );
    for (field, list) in [(3, "when_met[1]"), (4, "when_unmet[1]")] {
        let mut broken = request(&[], &[put(b"a", b"1")], &[put(b"a", b"1")]);
        writer::message(&mut broken, field, |_| {});
        expect(
            &broken,
            Code::InvalidArgument,
            &[list, "operation is not set"],
        );
    }
    let many: [Comparison<'_>; 2] = [(b"a", Condition::Present); 2];
    expect(
        &bounded("small", 0, &many, &[get(b"a"); 2], &[get(b"a"); 2]),
        Code::ResourceExhausted,
        &["when_unmet", "there are 6", "at most 5"],
    );
    expect(
        &bounded("", ANSWER_BYTES_MAX + 1, &[], &[], &[]),
        Code::InvalidArgument,
        &["max_answer_bytes is 67108865"],
    );
    let long = vec![b'v'; 101];
    expect(
        &bounded("small", 0, &[(b"a", Condition::ValueIs(&long))], &[], &[]),
        Code::ResourceExhausted,
        &["101", "100"],
    );
    let ended = bench.call(
        Method::Transact,
        &request(&[(b"a", Condition::Absent)], &[], &[]),
    );
    assert!(decode(&ended).met, "nothing was done");
}
