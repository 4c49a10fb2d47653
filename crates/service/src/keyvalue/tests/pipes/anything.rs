//! Random messages, whole and damaged.

use testkit::{OnFailure, Random};

use super::super::batches::{get, increment};
use super::super::single::put;
use super::*;
use protobuf::writer;

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
    encode_pipe(&mut out, "", answers, mode, max_answer_bytes, &operations);
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
        let _on_failure = OnFailure::of_seed(seed);
        let mut random = Random::new(seed);
        let answers = [PipeAnswers::All, PipeAnswers::FailuresOnly][(seed % 2) as usize];
        let messages: Vec<_> = (0..random.below(400))
            .map(|_| any_message(&mut random, answers))
            .collect();
        let one_by_one = run(&mut Bench::new(), &messages, || true);
        let together = run(&mut Bench::new(), &messages, || random.below(20) == 0);
        assert_eq!(one_by_one, together);
        let is_batch = |message: &&Vec<u8>| {
            PipeRequest::decode(message).is_ok_and(|request| !request.operations.is_empty())
        };
        let batches = messages.iter().filter(is_batch).count();
        assert_eq!(together.1, batches as u64);
    }
}

#[test]
fn damaged_messages_end_the_call_once_and_as_the_table_says() {
    let mut ended_well = 0;
    for seed in 1..4_000 {
        let _on_failure = OnFailure::of_seed(seed);
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
        match open.status().code() {
            Code::Ok => ended_well += 1,
            Code::InvalidArgument | Code::NotFound | Code::Unimplemented => {
                assert!(open.status().message().len() < 500);
            }
            code => panic!("the seed {seed} ends with {code:?}"),
        }
        for answer in open.take() {
            if let Some(failure) = decode(&answer).failure {
                let code = Code::ALL.get(failure.code as usize);
                assert!(matches!(
                    code,
                    Some(Code::InvalidArgument | Code::ResourceExhausted | Code::Unimplemented)
                ));
            }
        }
    }
    assert!(ended_well > 1_000, "{ended_well}");
}
