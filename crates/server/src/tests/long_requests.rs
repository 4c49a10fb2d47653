//! Requests with many operations, which are taken up in turns, and those that are taken back.

use std::sync::Arc;

use service::Method;
use store::{Condition, DatabaseId, Expiry, Mode, Operation};
use testkit::keyvalue::encode_batch;
use wire::grpc::Code;
use wire::{ErrorCode, Event, RequestHead, StreamKey};

use super::path;
use super::stop::Bench;
use crate::limits::{
    CLAIM_RETRY_MS, LONG_READS_PER_TICK_US, LONG_REQUEST_BYTES, LONG_REQUESTS_UNDER_WAY_BYTES,
};
use crate::pair::Pair;

/// Puts of so many values of 100 bytes in one request.
fn puts(name: &str, count: usize, want_previous: bool) -> Vec<u8> {
    let keys: Vec<_> = (0..count)
        .map(|number| format!("{name} {number}"))
        .collect();
    let puts: Vec<_> = (keys.iter())
        .map(|key| Operation::Put {
            key: key.as_bytes(),
            value: &[b'v'; 100],
            condition: Condition::None,
            expiry: Expiry::None,
            want_previous,
        })
        .collect();
    let mut message = Vec::new();
    encode_batch(&mut message, "", Mode::Atomic, 0, &puts);
    message
}

/// A request that waits for its turn.
fn long(name: &str) -> Vec<u8> {
    let message = puts(name, 200, false);
    assert!(message.len() > LONG_REQUEST_BYTES);
    message
}

/// How many entries there are.
fn entries(pair: &Pair) -> u64 {
    let view = pair.handler.shared().store.view(DatabaseId::DEFAULT);
    view.expect("it is in memory").statistics().entries
}

/// Begins a Batch with a message that is not said to be the last.
fn open(pair: &mut Pair, message: &[u8]) -> StreamKey {
    let path = path(Method::Batch);
    let head = RequestHead::call("test", &path);
    let Pair { client, sent, .. } = pair;
    let stream = client.open(sent, &head).expect("a stream is free");
    client.send_message(stream, sent, |out| out.extend_from_slice(message));
    stream
}

/// Some turns; returns how the call ended, if it did.
fn end_of(pair: &mut Pair, call: StreamKey) -> Option<Code> {
    for _ in 0..5 {
        if pair.turn().contains(&Event::Finished { stream: call }) {
            let code = pair.client.status().code();
            pair.client.forget(call);
            return Some(code);
        }
    }
    None
}

#[test]
fn nothing_is_done_for_a_call_that_is_taken_back_behind_its_request() {
    let mut pair = Pair::open();
    for round in 0..2 {
        for message in [long("a"), puts("b", 3, false)] {
            let call = pair.call(&path(Method::Batch), &message);
            pair.client.reset(call, &mut pair.sent, ErrorCode::Cancel);
            for _ in 0..3 {
                pair.turn();
            }
            let database = pair.handler.shared().store.view(DatabaseId::DEFAULT);
            let sequence = database.expect("it is in memory").sequence();
            assert_eq!((entries(&pair), sequence), (0, 0), "round {round}");
            assert_eq!(pair.handler.account().charged_bytes(), 0, "round {round}");
        }
    }
}

/// What others submitted in the same tick is done.
#[test]
fn only_what_is_taken_back_is_left_out() {
    let mut pair = Pair::open();
    for round in 0..2 {
        let names = ["a", "b", "c"].map(|name| format!("{name}{round}"));
        let calls = names.each_ref().map(|name| {
            let message = puts(name, 3, false);
            pair.call(&path(Method::Batch), &message)
        });
        pair.client
            .reset(calls[1], &mut pair.sent, ErrorCode::Cancel);
        for call in [calls[0], calls[2]] {
            assert_eq!(end_of(&mut pair, call), Some(Code::Ok), "round {round}");
        }
        assert_eq!(entries(&pair), 6 * (round + 1));
    }
}

#[test]
fn what_follows_a_long_request_waits_behind_it() {
    let mut pair = Pair::open();
    for round in 0..2 {
        let ended = open(&mut pair, &long("a"));
        pair.client.close_send(ended, &mut pair.sent);
        assert_eq!(end_of(&mut pair, ended), Some(Code::Ok), "round {round}");
        assert_eq!(entries(&pair), 200);
        let second = open(&mut pair, &long("a"));
        let Pair { client, sent, .. } = &mut pair;
        client.send_last_message(second, sent, |out| out.extend_from_slice(&[]));
        assert_eq!(end_of(&mut pair, second), Some(Code::Ok), "round {round}");
        assert_eq!(pair.handler.account().charged_bytes(), 0, "round {round}");
    }
}

/// The first takes all the time that a tick has for long work; a small call waits for none of the
/// others.
#[test]
fn long_requests_of_a_tick_leave_time_to_others() {
    let mut pair = Pair::open();
    pair.take_time(LONG_READS_PER_TICK_US * 1_000);
    for round in 0..2 {
        let calls = [
            (path(Method::Batch), long("a")),
            (path(Method::Batch), long("b")),
            (path(Method::Batch), puts("c", 1, false)),
        ];
        let calls = calls.map(|(path, message)| pair.call(&path, &message));
        // One of the long ones and the small one have ended, then the other one.
        for running in [1, 0] {
            pair.serve();
            assert_eq!(pair.handler.running(), running, "round {round}");
        }
        for _ in calls {
            pair.take();
        }
        for call in calls {
            pair.client.forget(call);
        }
        assert_eq!(entries(&pair), 401);
    }
}

/// A request whose answer needs memory that others have taken comes once more, and waits again.
#[test]
fn a_long_request_waits_for_memory_for_its_answer() {
    let mut pair = Pair::open();
    let message = puts("a", 300, true);
    let account = Arc::clone(pair.handler.account());
    for round in 0..3 {
        let taken_bytes = account.limit_bytes();
        account.claim_little(taken_bytes);
        let call = pair.call(&path(Method::Batch), &message);
        for _ in 0..3 {
            assert_eq!(end_of(&mut pair, call), None, "round {round}: no memory");
            pair.now_ns += CLAIM_RETRY_MS * 1_000_000;
        }
        account.end_claim(taken_bytes);
        pair.now_ns += CLAIM_RETRY_MS * 1_000_000;
        assert_eq!(end_of(&mut pair, call), Some(Code::Ok), "round {round}");
    }
}

/// Begins five calls whose requests are each more than half of what may be under way.
fn begin_five(bench: &mut Bench) -> ([StreamKey; 5], usize) {
    let names = ["a", "b", "c", "d", "e"];
    let messages = names.map(|name| puts(name, 800, false));
    let bytes = messages[0].len();
    assert!((LONG_REQUESTS_UNDER_WAY_BYTES / 2..LONG_REQUESTS_UNDER_WAY_BYTES).contains(&bytes));
    let calls = messages.map(|message| bench.pair.call(&path(Method::Batch), &message));
    for _ in 0..5 {
        bench.turn();
    }
    (calls, bytes)
}

/// The committer takes what it has got before.
#[test]
fn a_small_write_waits_only_for_large_requests_that_are_under_way() {
    let mut bench = Bench::new();
    for round in 0..2 {
        let (calls, bytes) = begin_five(&mut bench);
        assert_eq!(bench.pair.handler.long_requests(), (3, 2 * bytes));
        assert!(
            !bench.pair.handler.has_work(),
            "nothing is to be done before these have ended"
        );
        let small = bench
            .pair
            .call(&path(Method::Batch), &puts("small", 1, false));
        bench.turn();
        assert_eq!(bench.pair.handler.running(), 6);
        bench.commit();
        let ended: Vec<_> = bench
            .ended
            .drain(..)
            .map(|(call, code, _)| (call, code))
            .collect();
        let expected = [calls[0], calls[1], small].map(|call| (call, Code::Ok));
        assert_eq!(ended, expected, "round {round}");
        assert_eq!(bench.pair.handler.long_requests(), (1, 2 * bytes));
        bench.commit();
        assert_eq!(bench.pair.handler.long_requests(), (0, bytes));
        bench.commit();
        let ended = bench.ended.drain(..).map(|(call, ..)| call);
        assert!(ended.eq(calls[2..].iter().copied()), "round {round}");
        assert_eq!(bench.pair.handler.long_requests(), (0, 0));
    }
}

/// However it ends.
#[test]
fn a_large_request_is_under_way_until_its_call_ends() {
    let mut bench = Bench::new();
    for _ in 0..2 {
        let (calls, bytes) = begin_five(&mut bench);
        let Pair { client, sent, .. } = &mut bench.pair;
        client.reset(calls[0], sent, ErrorCode::Cancel);
        bench.turn();
        assert_eq!(bench.pair.handler.long_requests(), (2, 2 * bytes));
        // One that waits, and has taken nothing up.
        let Pair { client, sent, .. } = &mut bench.pair;
        client.reset(calls[4], sent, ErrorCode::Cancel);
        bench.turn();
        assert_eq!(bench.pair.handler.long_requests(), (2, 2 * bytes));
        for _ in 0..3 {
            bench.commit();
        }
        let ended = bench.ended.drain(..).map(|(call, ..)| call);
        assert!(ended.eq(calls[1..4].iter().copied()));
        assert_eq!(bench.pair.handler.long_requests(), (0, 0));
        for call in [calls[0], calls[4]] {
            bench.pair.client.forget(call);
        }
    }
}
