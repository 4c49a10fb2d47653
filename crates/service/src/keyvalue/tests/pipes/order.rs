//! What is answered, in which order, and how a Pipe ends.

use super::super::batches::{found, get, increment, results};
use super::super::single::put;
use super::*;
use crate::limits::*;
use protobuf::writer;

#[test]
fn batches_see_those_before_them_and_are_answered_in_order() {
    let mut bench = Bench::new();
    let mut open = bench.open();
    open.send(&all(&[put(b"a", b"1")]));
    open.send(&all(&[get(b"a")]));
    open.send(&all(&[increment(b"n"), put(b"a", b"2")]));
    open.send(&all(&[get(b"a"), get(b"none")]));
    assert!(open.take().is_empty(), "nothing is committed yet");
    open.commit();
    let answers = open.take();
    let responses: Vec<_> = answers.iter().map(|answer| decode(answer)).collect();
    for (number, response) in (1..).zip(&responses) {
        assert_eq!((response.done, response.batch_number), (number, number));
        assert_eq!(response.failure, None);
        assert!(batch_of(response).applied);
    }
    let sequences: Vec<_> = responses.iter().map(|one| batch_of(one).sequence).collect();
    assert!(sequences.is_sorted_by(|one, other| one < other));
    assert_eq!(
        results(&batch_of(&responses[1])),
        [found(b"1", sequences[0])]
    );
    let nothing = ResultBody::Get(GetResponse::default());
    assert_eq!(
        results(&batch_of(&responses[3])),
        [found(b"2", sequences[2]), nothing]
    );
    open.half_close();
    assert_eq!(open.status(), &Status::OK);
    assert!(open.take().is_empty(), "all was answered");
}

#[test]
fn the_end_waits_for_what_is_under_way() {
    let mut bench = Bench::new();
    for ends_with_its_message in [true, false] {
        let mut open = bench.open();
        open.send_as(&all(&[put(b"a", b"1")]), ends_with_its_message);
        if !ends_with_its_message {
            open.half_close();
        }
        assert_eq!(open.room.status, None);
        open.commit();
        assert_eq!(open.take_done(), [1]);
        assert_eq!(open.status(), &Status::OK);
    }
    let mut open = bench.open();
    open.half_close();
    assert_eq!(open.status(), &Status::OK);
}

#[test]
fn a_batch_that_fails_does_not_hinder_those_after_it() {
    let mut bench = Bench::new();
    let mut open = bench.open();
    open.send(&all(&[put(b"a", b"1"), failing(b"a"), put(b"b", b"1")]));
    open.send(&all(&[get(b"a")]));
    open.commit();
    let answers = open.take();
    let failed = batch_of(&decode(&answers[0]));
    assert!(!failed.applied);
    assert_eq!(failed.failed_operation, 1);
    assert!(matches!(
        failed.failed_result.and_then(|failed| failed.result),
        Some(ResultBody::Delete(_))
    ));
    let nothing = ResultBody::Get(GetResponse::default());
    assert_eq!(results(&batch_of(&decode(&answers[1]))), [nothing]);
}

#[test]
fn a_refused_batch_keeps_its_place() {
    let mut bench = Bench::new();
    let mut open = bench.open();
    let mut broken = all(&[put(b"a", b"1")]);
    writer::message(&mut broken, 3, |_| {});
    open.send(&broken);
    // Nothing is before it: it is answered at once.
    let answers = open.take();
    let response = decode(&answers[0]);
    assert_eq!((response.done, response.batch_number), (1, 1));
    let failure = response.failure.expect("it was refused");
    assert_eq!(failure.code, Code::InvalidArgument as u32);
    assert!(
        failure.message.contains("Pipe: operations[1]"),
        "{}",
        failure.message
    );
    assert_eq!(response.batch, None);

    open.send(&all(&[get(b"a")]));
    open.send(&broken);
    open.send(&[0x10, 0x07]);
    open.send(&all(&[get(b"a")]));
    assert!(open.take().is_empty());
    open.commit();
    let answers = open.take();
    let outcomes: Vec<_> = answers
        .iter()
        .map(|answer| {
            let response = decode(answer);
            (response.batch_number, response.failure.is_some())
        })
        .collect();
    assert_eq!(outcomes, [(2, false), (3, true), (4, true), (5, false)]);
    let words = decode(&answers[2]).failure.expect("refused").message;
    assert!(words.contains("field mode"), "{words}");
    let nothing = ResultBody::Get(GetResponse::default());
    assert_eq!(results(&batch_of(&decode(&answers[3]))), [nothing]);
}

#[test]
fn what_the_committer_refuses_is_a_failure_too() {
    let mut bench = Bench::new();
    bench.put(b"a", &[b'x'; 2_000]);
    let mut open = bench.open();
    let mut bounded = Vec::new();
    encode_pipe(
        &mut bounded,
        "",
        PipeAnswers::All,
        Mode::Atomic,
        1_000,
        &[put(b"b", b"1"), get(b"a")],
    );
    open.send(&bounded);
    let too_much = ANSWER_BYTES_MAX + 1;
    let mut unbounded = Vec::new();
    encode_pipe(
        &mut unbounded,
        "",
        PipeAnswers::All,
        Mode::Atomic,
        too_much,
        &[get(b"a")],
    );
    open.send(&unbounded);
    open.send(&all(&[get(b"b")]));
    open.commit();
    let answers = open.take();
    let failure = decode(&answers[0]).failure.expect("refused");
    assert_eq!(failure.code, Code::ResourceExhausted as u32);
    assert!(
        failure.message.contains("max_answer_bytes") && failure.message.contains("1000"),
        "{}",
        failure.message
    );
    let failure = decode(&answers[1]).failure.expect("refused");
    assert_eq!(failure.code, Code::InvalidArgument as u32);
    let nothing = ResultBody::Get(GetResponse::default());
    assert_eq!(results(&batch_of(&decode(&answers[2]))), [nothing]);
}

#[test]
fn only_failures_are_answered_if_asked_for() {
    let mut bench = Bench::new();
    let mut open = bench.open();
    open.send(&failures_only(&[put(b"a", b"1"), get(b"a")]));
    open.send(&failures_only(&[
        put(b"b", b"1"),
        failing(b"b"),
        get(b"none"),
        failing(b"none"),
    ]));
    // What the first message says of the answers holds, whatever later ones say.
    open.send(&all(&[put(b"c", b"1")]));
    open.send(&all(&[put(b"c", b"2"), failing(b"c")]));
    open.send(&failures_only(&[get(b"c")]));
    open.commit();
    let answers = open.take();
    assert_eq!(answers.len(), 2);
    let response = decode(&answers[0]);
    assert_eq!((response.done, response.batch_number), (2, 2));
    assert!(batch_of(&response).applied);
    assert_eq!(response.result_indexes, (&[1, 3]).into());
    let failed = results(&batch_of(&response));
    let [ResultBody::Delete(one), ResultBody::Delete(other)] = failed[..] else {
        panic!("two deletes")
    };
    assert!(!one.deleted && one.version > 0 && !other.deleted && other.version == 0);
    let response = decode(&answers[1]);
    assert_eq!((response.done, response.batch_number), (4, 4));
    assert!(!batch_of(&response).applied);
    assert_eq!(batch_of(&response).failed_operation, 1);
    // What is done since then is said at the end.
    open.half_close();
    assert_eq!(open.take_done(), [5]);
    assert_eq!(open.status(), &Status::OK);
}

#[test]
fn what_is_done_is_said_when_asked_now_and_then_and_in_time() {
    let mut bench = Bench::new();
    let mut open = bench.open();
    let question = failures_only(&[]);
    open.send(&question);
    assert_eq!(open.take_done(), [0], "nothing has to be waited for");
    open.send(&failures_only(&[put(b"a", b"1")]));
    open.send(&question);
    open.send(&failures_only(&[put(b"a", b"2")]));
    assert!(open.take().is_empty());
    open.commit();
    assert_eq!(open.take_done(), [1]);
    // The second is said when its time has come.
    open.wake();
    assert_eq!(open.take_done(), [2]);
    assert_eq!(open.room.wake_at_ns, None);

    for _ in 0..PIPE_ACKNOWLEDGE_BATCHES + 1 {
        open.send(&failures_only(&[put(b"a", b"1")]));
        open.commit();
    }
    assert_eq!(open.take_done(), [2 + PIPE_ACKNOWLEDGE_BATCHES]);
    // The timer was set by the first of these, so that nothing waits for longer than it takes.
    let at_ns = open.room.wake_at_ns.expect("something is not said yet");
    assert_eq!(at_ns, open.room.now_ns + PIPE_ACKNOWLEDGE_MS * 1_000_000);
    open.room.room = 0;
    open.wake();
    assert!(open.take().is_empty(), "there is no room");
    open.make_room();
    assert_eq!(open.take_done(), [3 + PIPE_ACKNOWLEDGE_BATCHES]);
    open.half_close();
    assert!(open.take().is_empty(), "all is known");
}

/// The first batch that is not said to be done sets the timer, and those behind it do not put it
/// off.
#[test]
fn a_timer_is_set_once_and_only_for_what_is_not_said() {
    let mut bench = Bench::new();
    let mut open = bench.open();
    for round in 1..3 {
        open.send(&failures_only(&[put(b"a", b"1")]));
        open.commit();
        let at_ns = open.room.wake_at_ns;
        assert!(at_ns.is_some());
        open.room.now_ns += 1_000;
        open.send(&failures_only(&[put(b"a", b"1")]));
        open.commit();
        assert_eq!(open.room.wake_at_ns, at_ns);
        open.wake();
        assert_eq!(open.take_done(), [3 * round - 1]);
        // A failure is told at once, so that nothing is left to be said.
        open.send(&failures_only(&[failing(b"a")]));
        open.commit();
        assert_eq!((open.take().len(), open.room.wake_at_ns), (1, None));
        open.send(&failures_only(&[]));
        assert_eq!((open.take().len(), open.room.wake_at_ns), (1, None));
    }
}

#[test]
fn with_all_answers_a_question_is_answered_too() {
    let mut bench = Bench::new();
    let mut open = bench.open();
    open.send(&all(&[put(b"a", b"1")]));
    open.send(b"");
    open.commit();
    assert_eq!(open.take_done(), [1, 1]);
}

#[test]
fn a_broken_rule_ends_the_call_after_what_came_before() {
    let mut unknown = Vec::new();
    writer::bytes(&mut unknown, 1, b"nowhere");
    let mut other = Vec::new();
    writer::bytes(&mut other, 1, b"small");
    let mut reserved = all(&[]);
    writer::uint64_always(&mut reserved, 13, 1);
    let garbage = [0x0a, 0x05, b'x'];
    let answers = [0x28, 0x03];
    let mode = [0x10, 0x03];
    for (first, code, words) in [
        (&unknown[..], Code::NotFound, "\"nowhere\""),
        (&garbage, Code::InvalidArgument, "field database"),
        (&reserved, Code::Unimplemented, "durability"),
        (&answers, Code::InvalidArgument, "answers"),
        (&mode, Code::InvalidArgument, "mode"),
    ] {
        let mut bench = Bench::new();
        let mut open = bench.open();
        open.send(first);
        assert_eq!(open.status().code(), code);
        let said = open.status().message();
        assert!(said.contains(words), "{said}");
        assert!(open.take().is_empty());
    }
    for (later, code) in [
        (&other[..], Code::InvalidArgument),
        (&unknown, Code::InvalidArgument),
        (&garbage, Code::InvalidArgument),
        (&reserved, Code::Unimplemented),
    ] {
        let mut bench = Bench::new();
        let mut open = bench.open();
        open.send(&failures_only(&[put(b"a", b"1")]));
        open.send(later);
        assert!(open.room.is_held, "nothing more is taken");
        assert_eq!(open.room.status, None);
        open.half_close();
        open.commit();
        assert_eq!(open.take_done(), [1]);
        assert_eq!(open.status().code(), code);
    }
    let mut bench = Bench::new();
    let mut open = bench.open();
    let mut named = other.clone();
    writer::message(&mut named, 3, |out| encode_operation(&get(b"a"), out));
    open.send(&other);
    open.send(&named);
    open.send(&all(&[get(b"a")]));
    open.commit();
    assert_eq!(open.take_done(), [0, 1, 2], "named again, or left out");
}

#[test]
fn a_dropped_database_ends_the_call() {
    let mut bench = Bench::new();
    let store = bench.shared.store.clone();
    let small = store.database("small").expect("it is there");
    let mut open = bench.open();
    let mut message = Vec::new();
    writer::bytes(&mut message, 1, b"small");
    writer::message(&mut message, 3, |out| encode_operation(&get(b"a"), out));
    open.send(&message);
    change(&store, |batch| batch.drop_database(0, small));
    open.send(&message);
    open.commit();
    assert!(open.take().is_empty());
    assert_eq!(open.status().code(), Code::NotFound);
    assert!(open.status().message().contains("dropped"));
}
