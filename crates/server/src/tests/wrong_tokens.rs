//! Calls with wrong tokens: refused at once, or later.

use service::identities::{Identity, IssuedToken, NEVER_MS, TOKEN_BYTES, Token};
use service::rights::{Grant, Rights};
use service::{Method, RefusedFor};
use wire::grpc::Code;
use wire::{ErrorCode, Event, StreamKey};

use super::path;
use crate::limits::{
    WAITING_REFUSALS, WAITING_REFUSALS_STREAMS_PERCENT, WRONG_TOKEN_INTERVAL_MS,
    WRONG_TOKENS_AT_ONCE,
};
use crate::pair::Pair;

/// Streams of a connection of [`Pair`].
const MAX_STREAMS: usize = 100;
const INTERVAL_NS: u64 = WRONG_TOKEN_INTERVAL_MS * 1_000_000;
/// As long as it takes until nothing is left of what was sent.
const LONG_NS: u64 = 1_000 * INTERVAL_NS;

fn header(number: u8) -> String {
    format!("Bearer {}", *Token::new([number; TOKEN_BYTES]).text())
}

fn rights(text: &str) -> Rights {
    Rights::new(vec![text.parse::<Grant>().expect("a right")])
}

/// A connection to a server that knows the token 1, which may read.
fn open() -> Pair {
    let pair = Pair::of(Rights::default());
    let identities = &pair.handler.shared().identities;
    let issued = IssuedToken {
        hash: identities.key().hash(&Token::new([1; TOKEN_BYTES])),
        expires_ms: NEVER_MS,
    };
    let made = Identity::new("n1", rights("read"), NEVER_MS, vec![issued]);
    let replaced = identities.replace(vec![made.expect("a sound identity")], 0);
    replaced.expect("it is one");
    pair
}

fn send(pair: &mut Pair, number: u8) -> StreamKey {
    pair.call_with((&path(Method::Get), Some(&header(number))), b"", true)
}

/// The calls that have ended after some turns, with their codes.
fn ended(pair: &mut Pair) -> Vec<(StreamKey, Code)> {
    let mut ended = Vec::new();
    for _ in 0..8 {
        pair.serve();
        for _ in 0..200 {
            let mut is_over = true;
            let found = &mut ended;
            pair.take_with(|client, event| {
                is_over = false;
                if let Event::Finished { stream } = event {
                    found.push((stream, client.status().code()));
                }
            });
            if is_over {
                break;
            }
        }
    }
    for (stream, _) in &ended {
        pair.client.forget(*stream);
    }
    ended
}

fn refused(pair: &Pair, reason: RefusedFor) -> u64 {
    let totals = pair.handler.shared().figures.totals();
    let found = totals.refused.iter().find(|(_, other)| *other == reason);
    found.expect("all reasons are there").0
}

/// What is left of wrong tokens before is gone, and those of this connection are refused at once.
fn send_what_is_refused_at_once(pair: &mut Pair) {
    pair.now_ns += LONG_NS;
    for _ in 0..WRONG_TOKENS_AT_ONCE {
        let call = send(pair, 9);
        assert_eq!(ended(pair), [(call, Code::Unauthenticated)]);
    }
}

#[test]
fn those_that_follow_wait_and_a_good_token_is_served_at_once() {
    let mut pair = open();
    for round in 1..=2 {
        send_what_is_refused_at_once(&mut pair);
        let waiting: Vec<_> = (0..5).map(|number| send(&mut pair, 10 + number)).collect();
        assert_eq!(ended(&mut pair), []);
        assert_eq!(
            pair.handler.running(),
            5,
            "each is a call of its connection"
        );
        for _ in 0..3 {
            let good = send(&mut pair, 1);
            assert_eq!(ended(&mut pair), [(good, Code::Ok)]);
        }
        for call in waiting {
            pair.now_ns += INTERVAL_NS - 1;
            assert_eq!(ended(&mut pair), []);
            pair.now_ns += 1;
            assert_eq!(ended(&mut pair), [(call, Code::Unauthenticated)]);
        }
        assert_eq!(pair.handler.running(), 0);
        let sent = round * (WRONG_TOKENS_AT_ONCE + 5);
        assert_eq!(refused(&pair, RefusedFor::TokenWrong), sent);
        let totals = pair.handler.shared().figures.totals();
        assert_eq!(
            totals.started,
            [(Method::Get, round * 3)],
            "no refused ones"
        );
        assert_eq!(totals.ended, [(Method::Get, Code::Ok, round * 3)]);
    }
}

/// What is left of a call that waits for its refusal is nothing, whoever ends it.
#[test]
fn a_refusal_that_waits_ends_with_its_call_and_with_its_connection() {
    let mut pair = open();
    for _ in 0..2 {
        send_what_is_refused_at_once(&mut pair);
        let calls: Vec<_> = (0..4).map(|_| send(&mut pair, 9)).collect();
        assert_eq!(ended(&mut pair), []);
        (pair.client).reset(calls[0], &mut pair.sent, ErrorCode::Cancel);
        pair.client.forget(calls[0]);
        assert_eq!(ended(&mut pair), []);
        assert_eq!(pair.handler.running(), 3);
        // Its place is not that of the next one, which could be reset as well.
        pair.now_ns += INTERVAL_NS;
        assert_eq!(ended(&mut pair), []);
        pair.now_ns += INTERVAL_NS;
        assert_eq!(ended(&mut pair), [(calls[1], Code::Unauthenticated)]);
        // Another table of identities leaves them as they are.
        let identities = &pair.handler.shared().identities;
        identities.replace(Vec::new(), 0).expect("none is sound");
        assert_eq!(ended(&mut pair), []);
        assert_eq!(pair.handler.running(), 2);
        pair.close();
        assert_eq!(pair.handler.running(), 0);
        assert_eq!(pair.handler.account().charged_bytes(), 0);
        pair = open();
    }
}

/// What a caller sends whose refusal waits is not gathered beyond its window.
#[test]
fn what_comes_for_a_call_that_waits_for_its_refusal_is_charged_and_given_back() {
    let mut pair = open();
    for _ in 0..2 {
        send_what_is_refused_at_once(&mut pair);
        let get = (&*path(Method::Pipe), Some(&*header(9)));
        let call = pair.call_with(get, &[0; 1000], false);
        for _ in 0..20 {
            pair.client.send_message(call, &mut pair.sent, |out| {
                out.extend_from_slice(&[0; 1000]);
            });
            assert_eq!(ended(&mut pair), []);
        }
        assert_eq!(pair.handler.running(), 1);
        assert!(pair.messages.is_empty());
        pair.now_ns += INTERVAL_NS;
        assert_eq!(ended(&mut pair), [(call, Code::Unauthenticated)]);
        assert_eq!(pair.handler.running(), 0);
        assert_eq!(pair.handler.account().charged_bytes(), 0);
    }
}

/// As many wait as may for their own turns, and then `more` for the turn of the last of them.
fn send_more_than_have_a_turn(pair: &mut Pair, more: u64) {
    send_what_is_refused_at_once(pair);
    for _ in 0..WAITING_REFUSALS + more {
        send(pair, 9);
    }
    assert_eq!(ended(pair), []);
    assert_eq!(pair.handler.running() as u64, WAITING_REFUSALS + more);
}

fn check_health(pair: &mut Pair) {
    let call = pair.call_with((&path(Method::HealthCheck), None), b"", true);
    assert_eq!(ended(pair), [(call, Code::Ok)]);
}

/// A proxy opens its connection with whatever its users send first. A health check, which needs no
/// identity, makes no difference.
#[test]
fn a_connection_that_nobody_was_let_in_on_is_slowed_and_not_ended_when_too_many_wait() {
    for has_checks in [false, true] {
        let mut pair = open();
        for _ in 0..2 {
            if has_checks {
                check_health(&mut pair);
            }
            send_more_than_have_a_turn(&mut pair, 3);
            if has_checks {
                check_health(&mut pair);
                send(&mut pair, 9);
                assert_eq!(ended(&mut pair), [], "a check is no good call");
            }
            let waiting = pair.handler.running();
            pair.now_ns += WAITING_REFUSALS * INTERVAL_NS - 1;
            let before = ended(&mut pair).len();
            assert_eq!(before as u64, WAITING_REFUSALS - 1);
            pair.now_ns += 1;
            assert_eq!(before + ended(&mut pair).len(), waiting);
            assert_eq!(pair.handler.running(), 0);
            assert!(!pair.io.is_closing());
        }
        // The first good call of the connection, while others wait.
        send_more_than_have_a_turn(&mut pair, 1);
        let good = send(&mut pair, 1);
        assert_eq!(ended(&mut pair), [(good, Code::Ok)]);
        let call = send(&mut pair, 9);
        assert_eq!(ended(&mut pair), [(call, Code::Unauthenticated)]);
        pair.close();
        assert_eq!(pair.handler.running(), 0);
        assert_eq!(pair.handler.account().charged_bytes(), 0);
    }
}

#[test]
fn what_waits_for_its_refusal_leaves_streams_of_its_connection_to_others() {
    let mut pair = open();
    let share = MAX_STREAMS * WAITING_REFUSALS_STREAMS_PERCENT / 100;
    for _ in 0..2 {
        send_more_than_have_a_turn(&mut pair, share as u64 - WAITING_REFUSALS);
        for _ in 0..MAX_STREAMS {
            let call = send(&mut pair, 9);
            assert_eq!(ended(&mut pair), [(call, Code::Unauthenticated)]);
        }
        pair.now_ns += WAITING_REFUSALS * INTERVAL_NS;
        assert_eq!(ended(&mut pair).len(), share);
        assert_eq!(pair.handler.running(), 0);
    }
}

#[test]
fn a_connection_that_others_use_is_not_ended_when_too_many_wait() {
    let mut pair = open();
    let good = send(&mut pair, 1);
    assert_eq!(ended(&mut pair), [(good, Code::Ok)]);
    for _ in 0..2 {
        send_what_is_refused_at_once(&mut pair);
        for _ in 0..WAITING_REFUSALS {
            send(&mut pair, 9);
        }
        assert_eq!(ended(&mut pair), []);
        for _ in 0..3 {
            let call = send(&mut pair, 9);
            assert_eq!(ended(&mut pair), [(call, Code::Unauthenticated)]);
            let good = send(&mut pair, 1);
            assert_eq!(ended(&mut pair), [(good, Code::Ok)]);
        }
        pair.now_ns += WAITING_REFUSALS * INTERVAL_NS;
        assert_eq!(ended(&mut pair).len() as u64, WAITING_REFUSALS);
        assert_eq!(pair.handler.running(), 0);
        assert!(!pair.io.is_closing());
    }
}

/// Those who ask without a token cost no look-up, and are told at once that they need one.
#[test]
fn calls_without_a_token_are_refused_at_once() {
    let mut pair = open();
    for round in 1..=2 {
        for _ in 0..10 * WRONG_TOKENS_AT_ONCE {
            let call = pair.call_with((&path(Method::Get), None), b"", true);
            assert_eq!(ended(&mut pair), [(call, Code::Unauthenticated)]);
        }
        let sent = round * 10 * WRONG_TOKENS_AT_ONCE;
        assert_eq!(refused(&pair, RefusedFor::TokenMissing), sent);
    }
}

#[test]
fn what_waits_for_its_refusal_does_not_hold_up_a_stop() {
    let mut pair = open();
    send_what_is_refused_at_once(&mut pair);
    for _ in 0..WAITING_REFUSALS {
        send(&mut pair, 9);
    }
    assert_eq!(ended(&mut pair), []);
    pair.stop();
    pair.now_ns += crate::limits::DRAIN_IDLE_MS * 1_000_000;
    let ended = ended(&mut pair);
    assert_eq!(ended.len() as u64, WAITING_REFUSALS);
    assert_eq!(pair.handler.running(), 0);
}
