//! Bounds of a batch, of what is under way, and of the answers.

use super::super::batches::{get, results};
use super::super::single::put;
use super::*;
use crate::limits::*;
use protobuf::writer;

#[test]
fn limits_of_a_batch_are_limits_in_a_pipe() {
    let mut bench = Bench::new();
    let mut open = bench.open();
    let in_small = |operations: &[Operation<'_>]| {
        let mut message = Vec::new();
        encode_pipe(
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
    assert!(matches!(results[1], ResultBody::Failure(failure) if failure.message.contains("120")));
}

#[test]
fn too_many_batches_under_way_hold_the_caller_each_time() {
    let mut bench = Bench::new();
    let mut open = bench.open();
    for round in 0..3 {
        for number in 0..PIPE_BATCHES {
            assert!(!open.room.is_held, "{round}: held after {number}");
            open.send(&all(&[put(b"a", b"1")]));
        }
        assert!(open.room.is_held, "{round}");
        open.commit();
        assert!(!open.room.is_held, "{round}");
        assert_eq!(open.take().len(), PIPE_BATCHES);
    }
}

/// Sends a batch until the caller is held, and has all committed; returns how many were sent.
fn send_until_held(open: &mut Open<'_>, batch: &[u8]) -> usize {
    let mut count = 0;
    while !open.room.is_held {
        assert!(count < PIPE_BATCHES, "the caller is not held");
        open.send(batch);
        count += 1;
    }
    open.commit();
    assert!(!open.room.is_held);
    count
}

#[test]
fn too_many_bytes_under_way_hold_the_caller_each_time() {
    let mut bench = Bench::new();
    let mut open = bench.open();
    let large = vec![b'x'; PIPE_REQUEST_BYTES / 4];
    for _ in 0..3 {
        assert_eq!(
            send_until_held(&mut open, &failures_only(&[put(b"a", &large)])),
            4
        );
    }
    bench.put(b"a", b"");

    // Values that may be read count as large as they could be, within what the caller can receive.
    let mut open = bench.open();
    let most = (PIPE_ANSWER_BYTES / ANSWER_BYTES) as usize;
    for _ in 0..3 {
        assert_eq!(
            send_until_held(&mut open, &all(&[get(b"a"), get(b"a")])),
            most
        );
        assert_eq!(open.room.reserved_bytes, 0, "all is answered");
    }

    // Where only failures are answered, what is read goes nowhere.
    let mut open = bench.open();
    for _ in 0..3 {
        let batch = failures_only(&[get(b"a"), get(b"a")]);
        assert_eq!(send_until_held(&mut open, &batch), PIPE_BATCHES);
    }
}

/// What an answer may come to is the sum of what its results may, by the kind of each.
#[test]
fn what_an_answer_may_come_to_is_set_aside() {
    let mut bench = Bench::new();
    let limits = bench.shared.store.limits(DatabaseId::DEFAULT);
    let value_bytes = limits.expect("it is there").value_bytes as u64;
    let wants = Operation::Put {
        key: b"a",
        value: b"1",
        condition: Condition::None,
        expiry: store::Expiry::None,
        want_previous: true,
    };
    let append = Operation::Append {
        key: b"a",
        value: b"2",
        condition: Condition::None,
    };
    let each = store::limits::ANSWER_BYTES_PER_OPERATION as u64;
    for (answers, operations, expected) in [
        (PipeAnswers::All, &[wants][..], each + value_bytes),
        (
            PipeAnswers::All,
            &[wants, get(b"a"), append],
            3 * each + 2 * value_bytes + FAILURE_BYTES,
        ),
        (
            PipeAnswers::FailuresOnly,
            &[wants, get(b"a"), append],
            3 * each + value_bytes + FAILURE_BYTES + 3 * PIPE_INDEX_BYTES,
        ),
    ] {
        let mut open = bench.open();
        let (mut message, mode) = (Vec::new(), Mode::Independent);
        encode_pipe(
            &mut message,
            "",
            answers,
            mode,
            ANSWER_BYTES_MAX,
            operations,
        );
        for _ in 0..2 {
            open.send(&message);
            let expected = (PIPE_FRAME_BYTES + expected) as usize;
            assert_eq!(open.room.reserved_bytes, expected);
            open.send(&message);
            assert_eq!(open.room.reserved_bytes, 2 * expected);
            open.commit();
            // With `FAILURES_ONLY` nothing is sent, and what is set aside is what is under way.
            open.room.reserved_bytes = 0;
        }
    }
}

#[test]
fn requests_that_come_to_the_bound_exactly_hold_the_caller() {
    let mut bench = Bench::new();
    let mut open = bench.open();
    let of_length = |bytes: usize| {
        let value = vec![b'x'; bytes];
        failures_only(&[put(b"a", &value)])
    };
    let quarter = PIPE_REQUEST_BYTES / 4;
    let beside_value = of_length(quarter).len() - quarter;
    let exact = of_length(quarter - beside_value);
    assert_eq!(exact.len(), quarter);
    let shorter = of_length(quarter - beside_value - 1);
    for _ in 0..2 {
        assert_eq!(send_until_held(&mut open, &exact), 4);
        assert_eq!(send_until_held(&mut open, &shorter), 5);
    }
}

#[test]
fn only_answers_that_may_be_large_have_room_set_aside() {
    let mut bench = Bench::new();
    for (most_bytes, reserved_bytes) in [
        (LARGE_ANSWER_BYTES, 0),
        (LARGE_ANSWER_BYTES + 1, LARGE_ANSWER_BYTES + 1),
    ] {
        let mut open = bench.open();
        let mut message = Vec::new();
        let (answers, mode) = (PipeAnswers::All, Mode::Atomic);
        let operations = [get(b"a")];
        encode_pipe(
            &mut message,
            "",
            answers,
            mode,
            most_bytes as u64,
            &operations,
        );
        for _ in 0..2 {
            open.send(&message);
            assert_eq!(open.room.reserved_bytes, reserved_bytes);
            open.commit();
            assert_eq!(open.room.reserved_bytes, 0);
        }
    }
}

/// What the answers could have come to is given back however a batch ends.
#[test]
fn batches_that_fail_or_are_refused_leave_nothing_behind() {
    let mut bench = Bench::new();
    bench.put(b"a", &vec![b'x'; 3_000_000]);
    let mut open = bench.open();
    let answered = all(&[get(b"a")]);
    let failing = all(&[get(b"a"), get(b"b"), failing(b"a")]);
    let refused = all(&[get(b"a"), get(b"a")]);
    let broken = {
        let mut broken = all(&[get(b"a")]);
        writer::message(&mut broken, 3, |_| {});
        broken
    };
    let sent = [&answered, &failing, &refused, &broken];
    let rounds = 2 * PIPE_ANSWER_BYTES / ANSWER_BYTES;
    for round in 0..rounds {
        for batch in sent {
            open.send(batch);
        }
        assert!(
            open.room.reserved_bytes > 0,
            "{round}: set aside for what is under way"
        );
        open.commit();
        assert!(!open.room.is_held, "{round}");
        assert_eq!(open.room.reserved_bytes, 0, "{round}");
        let answers = open.take();
        let ends: Vec<_> = answers.iter().map(|answer| decode(answer)).collect();
        assert_eq!(ends.len(), sent.len());
        assert!(batch_of(&ends[0]).applied && !batch_of(&ends[1]).applied);
        assert!(ends[2].failure.is_some() && ends[3].failure.is_some());
    }
    // As many may be under way as at first.
    let most = (PIPE_ANSWER_BYTES / ANSWER_BYTES) as usize;
    assert_eq!(send_until_held(&mut open, &refused), most);
}

#[test]
fn a_caller_who_does_not_read_is_held_each_time() {
    let mut bench = Bench::new();
    bench.room = 2;
    let mut open = bench.open();
    for _ in 0..3 {
        open.room.room = 2;
        open.send(&all(&[put(b"a", b"1")]));
        open.commit();
        assert!(!open.room.is_held);
        open.send(&all(&[put(b"a", b"1")]));
        open.commit();
        assert!(open.room.is_held);
        open.make_room();
        assert!(!open.room.is_held);
    }
    assert_eq!(open.take_done(), [1, 2, 3, 4, 5, 6]);
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
                encode_pipe(
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
