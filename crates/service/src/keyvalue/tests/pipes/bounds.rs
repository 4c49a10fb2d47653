//! Bounds of a batch, of what is under way, and of the answers.

use super::super::batches::{get, results};
use super::super::single::put;
use super::*;
use crate::limits::*;

#[test]
fn limits_of_a_batch_are_limits_in_a_pipe() {
    let mut bench = Bench::new();
    let mut open = bench.open();
    let in_small = |operations: &[Operation<'_>]| {
        let mut message = Vec::new();
        PipeRequest::encode(
            &mut message,
            "small",
            PipeAnswers::All,
            Mode::Independent,
            0,
            operations,
        );
        message
    };
    let append = Operation::Append {
        key: b"k",
        value: &[b'x'; 60],
        condition: Condition::None,
    };
    open.send(&in_small(&[get(b"a"); 6]));
    open.send(&in_small(&[put(b"a", &[0; 101])]));
    open.send(&in_small(&[append, append]));
    open.commit();
    let answers = open.take();
    let words = decode(&answers[0]).failure.expect("refused").message;
    assert!(words.contains("6 operations, at most 5"), "{words}");
    let words = decode(&answers[1]).failure.expect("refused").message;
    assert!(
        words.contains("101") && words.contains("at most 100"),
        "{words}"
    );
    let results = results(&batch_of(&decode(&answers[2])));
    assert!(
        matches!(results[1], OperationResult::Failure(failure) if failure.message.contains("120"))
    );
}

#[test]
fn too_many_batches_under_way_hold_the_caller() {
    let mut bench = Bench::new();
    let mut open = bench.open();
    for number in 0..PIPE_BATCHES {
        assert!(!open.room.is_held, "held after {number}");
        open.send(&all(&[put(b"a", b"1")]));
    }
    assert!(open.room.is_held);
    open.commit();
    assert!(!open.room.is_held);
    assert_eq!(open.take().len(), PIPE_BATCHES);
}

#[test]
fn too_many_bytes_under_way_hold_the_caller() {
    let mut bench = Bench::new();
    let mut open = bench.open();
    let large = vec![b'x'; PIPE_REQUEST_BYTES / 4];
    let mut count = 0;
    while !open.room.is_held {
        open.send(&failures_only(&[put(b"a", &large)]));
        count += 1;
    }
    assert_eq!(count, 4);
    open.commit();
    assert!(!open.room.is_held);

    // Values that may be read count as large as they could be, within what the caller can receive.
    let mut open = bench.open();
    let mut count = 0;
    while !open.room.is_held {
        open.send(&all(&[get(b"a"), get(b"a")]));
        count += 1;
    }
    assert_eq!(count, PIPE_ANSWER_BYTES / ANSWER_BYTES);
    open.commit();
    assert!(!open.room.is_held);

    // Where only failures are answered, what is read goes nowhere.
    let mut open = bench.open();
    let mut count = 0;
    while !open.room.is_held {
        open.send(&failures_only(&[get(b"a"), get(b"a")]));
        count += 1;
    }
    assert_eq!(count, PIPE_BATCHES);
    open.commit();
    assert!(!open.room.is_held);
}

#[test]
fn a_caller_who_does_not_read_is_held() {
    let mut bench = Bench::new();
    bench.room = 2;
    let mut open = bench.open();
    open.send(&all(&[put(b"a", b"1")]));
    open.commit();
    assert!(!open.room.is_held);
    open.send(&all(&[put(b"a", b"1")]));
    open.commit();
    assert!(open.room.is_held);
    open.make_room();
    assert!(!open.room.is_held);
    assert_eq!(open.take_done(), [1, 2]);
}

#[test]
fn answers_keep_to_their_bounds() {
    let wants = Operation::Put {
        key: b"a",
        value: &[b'y'; 300],
        condition: Condition::ValueIs(b"never"),
        expiry: store::Expiry::AfterMs(TIME_TO_LIVE_MS_MAX),
        want_previous: true,
    };
    let append = Operation::Append {
        key: b"k",
        value: &[b'x'; 60],
        condition: Condition::None,
    };
    let mut served = 0;
    for answers in [PipeAnswers::All, PipeAnswers::FailuresOnly] {
        for bound in 1..2_000 {
            for (database, operations) in [
                ("", &[get(b"a"), get(b"a"), wants][..]),
                ("", &[wants, wants]),
                ("small", &[append; 5]),
            ] {
                let mut bench = Bench::new();
                bench.put(b"a", &[b'x'; 300]);
                let mut open = bench.open();
                let mut message = Vec::new();
                PipeRequest::encode(
                    &mut message,
                    database,
                    answers,
                    Mode::Independent,
                    bound,
                    operations,
                );
                open.send(&message);
                open.commit();
                for answer in open.take() {
                    if decode(&answer).failure.is_none() {
                        served += 1;
                        assert!(answer.len() as u64 <= bound, "{bound}: {}", answer.len());
                    }
                }
            }
        }
    }
    assert!(served > 5_000, "{served}");
}
