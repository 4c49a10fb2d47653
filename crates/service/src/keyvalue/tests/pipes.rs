//! Pipe: step by step, as the room above is in no hurry here to run the committer.

use store::{Condition, Operation};

use super::anything::Random;
use super::batches::{found, get, increment, results};
use super::single::put;
use super::*;
use crate::keyvalue::messages::*;
use crate::limits::*;
use crate::protobuf::writer;

/// An open Pipe and the room above it.
struct Open<'a> {
    call: Call,
    shared: &'a Shared,
    committer: &'a mut Committer,
    outcomes: &'a mut Outcomes,
    room: Room<'a>,
}

impl Bench {
    fn open(&mut self) -> Open<'_> {
        let mut room = Room {
            batch: &mut self.batch,
            read: None,
            messages: Vec::new(),
            status: None,
            room: self.room,
            now_ms: self.now_ms,
            now_ns: 1,
            is_held: false,
            wake_at_ns: None,
        };
        let head = CallHead {
            deadline_ns: u64::MAX,
            peer: PeerKind::Loopback,
            metadata: &NoMetadata,
        };
        let call = Call::started(Method::Pipe, &head, &self.shared, &mut room);
        Open {
            call,
            shared: &self.shared,
            committer: &mut self.committer,
            outcomes: &mut self.outcomes,
            room,
        }
    }
}

impl Open<'_> {
    fn send(&mut self, message: &[u8]) {
        self.send_as(message, false);
    }

    fn send_as(&mut self, message: &[u8], last: bool) {
        assert_eq!(self.room.status, None, "the call is over");
        assert!(!self.room.is_held, "a held call gets no message");
        self.call
            .message(message, last, self.shared, &mut self.room);
    }

    fn half_close(&mut self) {
        assert_eq!(self.room.status, None, "the call is over");
        self.call.half_closed(self.shared, &mut self.room);
    }

    fn commit(&mut self) {
        let mut clock = Now(self.room.now_ms);
        drop(
            self.committer
                .run(self.room.batch, &mut clock, self.outcomes),
        );
        for outcome in self.outcomes.iter() {
            if self.room.status.is_none() {
                self.call.committed(&outcome, self.shared, &mut self.room);
            }
        }
    }

    fn make_room(&mut self) {
        self.room.room = usize::MAX;
        self.call.writable(self.shared, &mut self.room);
    }

    fn wake(&mut self) {
        let at_ns = self.room.wake_at_ns.take().expect("an alarm is set");
        assert!(at_ns > self.room.now_ns);
        self.room.now_ns = at_ns;
        self.call.woken(self.shared, &mut self.room);
    }

    fn take(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.room.messages)
    }

    /// What the answers since the last time say of how much is done.
    fn take_done(&mut self) -> Vec<u64> {
        self.take()
            .iter()
            .map(|message| decode(message).done)
            .collect()
    }

    fn status(&self) -> &Status {
        self.room.status.as_ref().expect("the call is over")
    }
}

fn decode(message: &[u8]) -> PipeResponse<'_> {
    PipeResponse::decode(message).expect("it is a message")
}

fn batch_of<'a>(response: &PipeResponse<'a>) -> BatchResponse<'a> {
    response.batch.expect("it is about a batch")
}

fn message(answers: PipeAnswers, mode: Mode, operations: &[Operation<'_>]) -> Vec<u8> {
    let mut message = Vec::new();
    PipeRequest::encode(&mut message, "", answers, mode, 0, operations);
    message
}

fn all(operations: &[Operation<'_>]) -> Vec<u8> {
    message(PipeAnswers::All, Mode::Atomic, operations)
}

fn failures_only(operations: &[Operation<'_>]) -> Vec<u8> {
    message(PipeAnswers::FailuresOnly, Mode::Independent, operations)
}

fn failing(key: &[u8]) -> Operation<'_> {
    Operation::Delete {
        key,
        condition: Condition::ValueIs(b"something else"),
        want_previous: false,
    }
}

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
    let sequences: Vec<_> = responses
        .iter()
        .map(|one| batch_of(one).point.sequence)
        .collect();
    assert!(sequences.is_sorted_by(|one, other| one < other));
    assert_eq!(
        results(&batch_of(&responses[1])),
        [found(b"1", sequences[0])]
    );
    let nothing = OperationResult::Get(GetResponse::default());
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
        failed.failed_result,
        Some(OperationResult::Delete(_))
    ));
    let nothing = OperationResult::Get(GetResponse::default());
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
    let nothing = OperationResult::Get(GetResponse::default());
    assert_eq!(results(&batch_of(&decode(&answers[3]))), [nothing]);
}

#[test]
fn what_the_committer_refuses_is_a_failure_too() {
    let mut bench = Bench::new();
    bench.put(b"a", &[b'x'; 2_000]);
    let mut open = bench.open();
    let mut bounded = Vec::new();
    PipeRequest::encode(
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
    PipeRequest::encode(
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
    let nothing = OperationResult::Get(GetResponse::default());
    assert_eq!(results(&batch_of(&decode(&answers[2]))), [nothing]);
}

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
fn only_failures_are_answered_if_so_wished() {
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
    assert_eq!(response.result_indexes(), Ok(vec![1, 3]));
    let failed = results(&batch_of(&response));
    let [OperationResult::Delete(one), OperationResult::Delete(other)] = failed[..] else {
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
    // The alarm was set by the first of these, so that nothing waits for longer than it takes.
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
        assert_eq!(open.status().code, code);
        let said = &open.status().message;
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
        assert_eq!(open.status().code, code);
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
    assert_eq!(open.status().code, Code::NotFound);
    assert!(open.status().message.contains("dropped"));
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

/// A message of a Pipe: mostly a batch, now and then a question or something broken.
fn any_message(random: &mut Random, answers: PipeAnswers) -> Vec<u8> {
    let keys = [&b"a"[..], b"b", b"c"];
    let count = random.below(5) as usize;
    let operations: Vec<_> = (0..count)
        .map(|_| {
            let key = keys[random.below(3) as usize];
            match random.below(4) {
                0 => get(key),
                1 => put(key, b"value"),
                2 => increment(key),
                _ => failing(key),
            }
        })
        .collect();
    let mode = [Mode::Atomic, Mode::Independent][random.below(2) as usize];
    let mut out = Vec::new();
    let max_answer_bytes = [0, 100, 1_000][random.below(3) as usize];
    PipeRequest::encode(&mut out, "", answers, mode, max_answer_bytes, &operations);
    if random.below(10) == 0 {
        writer::message(&mut out, 3, |_| {});
    }
    out
}

/// All answers about batches, and the last word on what is done.
fn run(
    bench: &mut Bench,
    messages: &[Vec<u8>],
    mut commits_now: impl FnMut() -> bool,
) -> (Vec<Vec<u8>>, u64) {
    let mut open = bench.open();
    for message in messages {
        while open.room.is_held {
            open.commit();
        }
        open.send(message);
        if commits_now() {
            open.commit();
        }
    }
    open.half_close();
    open.commit();
    assert_eq!(open.status(), &Status::OK);
    let answers = open.take();
    let done: Vec<_> = answers.iter().map(|answer| decode(answer).done).collect();
    assert!(done.is_sorted());
    let about_batches = answers
        .into_iter()
        .filter(|answer| decode(answer).batch_number > 0)
        .collect();
    (about_batches, done.last().copied().unwrap_or(0))
}

#[test]
fn how_many_are_under_way_changes_no_answer() {
    for seed in 1..300 {
        let mut random = Random::new(seed);
        let answers = [PipeAnswers::All, PipeAnswers::FailuresOnly][(seed % 2) as usize];
        let messages: Vec<_> = (0..random.below(400))
            .map(|_| any_message(&mut random, answers))
            .collect();
        let one_by_one = run(&mut Bench::new(), &messages, || true);
        let together = run(&mut Bench::new(), &messages, || random.below(20) == 0);
        assert_eq!(one_by_one, together);
        let is_batch = |message: &&Vec<u8>| {
            BatchRequest::decode(message).is_ok_and(|request| request.operation_count > 0)
        };
        let batches = messages.iter().filter(is_batch).count();
        assert_eq!(together.1, batches as u64);
    }
}

#[test]
fn damaged_messages_end_the_call_once_and_as_the_table_says() {
    let mut ended_well = 0;
    for seed in 1..4_000 {
        let mut random = Random::new(seed);
        let mut bench = Bench::new();
        bench.room = 3;
        let mut open = bench.open();
        for _ in 0..random.below(12) {
            if open.room.is_held || open.room.status.is_some() {
                break;
            }
            let mut message = any_message(&mut random, PipeAnswers::All);
            if random.below(6) == 0 {
                let at = random.below(message.len() as u64 + 1) as usize;
                match random.below(3) {
                    0 => message.truncate(at),
                    1 => message.insert(at, random.below(256) as u8),
                    _ => message.extend_from_within(at..),
                }
            }
            open.send(&message);
            if random.below(3) == 0 {
                open.commit();
            }
            if random.below(3) == 0 && open.room.status.is_none() {
                open.make_room();
            }
        }
        if open.room.status.is_none() {
            open.half_close();
            if open.room.status.is_none() {
                open.commit();
            }
        }
        match open.status().code {
            Code::Ok => ended_well += 1,
            Code::InvalidArgument | Code::NotFound | Code::Unimplemented => {
                assert!(open.status().message.len() < 500);
            }
            code => panic!("the seed {seed} ends with {code:?}"),
        }
        for answer in open.take() {
            if let Some(failure) = decode(&answer).failure {
                let code = Code::from_number(u64::from(failure.code));
                assert!(matches!(
                    code,
                    Some(Code::InvalidArgument | Code::ResourceExhausted | Code::Unimplemented)
                ));
            }
        }
    }
    assert!(ended_well > 1_000, "{ended_well}");
}
