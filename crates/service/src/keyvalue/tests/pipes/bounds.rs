//! Bounds of a batch, of what is under way, and of the answers.

use super::super::batches::{get, results};
use super::super::single::put;
use super::*;
use crate::limits::*;
use crate::protobuf::writer;

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
