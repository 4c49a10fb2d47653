//! Whose calls there are, and what becomes of them when somebody is revoked.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use api::keyvalue::PipeAnswers;
use net::Handler;
use service::Method;
use service::identities::{Identity, IssuedToken, LoopWaker, NEVER_MS, TOKEN_BYTES, Token};
use service::limits::AUTHORIZATION_BYTES_MAX;
use service::rights::{Grant, Rights};
use store::{Condition, Mode, Operation};
use testkit::keyvalue::{OperationRequest, encode_pipe};
use wire::grpc::Code;
use wire::{Event, StreamKey};

use super::path;
use crate::pair::Pair;

/// What [`Now`](crate::pair) says at the beginning.
pub(super) const BEGIN_MS: u64 = 1_000_000;

pub(super) fn rights(text: &str) -> Rights {
    Rights::new(vec![text.parse::<Grant>().expect("a right")])
}

pub(super) fn header(number: u8) -> String {
    format!("Bearer {}", *Token::new([number; TOKEN_BYTES]).text())
}

/// Makes these the identities of the server: the number of a token, a right, and when it expires.
pub(super) fn replace(pair: &Pair, all: &[(u8, &str, u64)]) {
    let identities = &pair.handler.shared().identities;
    let one = |&(number, right, expires_ms): &(u8, &str, u64)| {
        let issued = IssuedToken {
            hash: identities.key().hash(&Token::new([number; TOKEN_BYTES])),
            expires_ms: NEVER_MS,
        };
        let name = format!("n{number}");
        let made = Identity::new(&name, rights(right), expires_ms, vec![issued]);
        made.expect("a sound identity")
    };
    let now_ms = BEGIN_MS + pair.now_ns / 1_000_000;
    let replaced = identities.replace(all.iter().map(one).collect(), now_ms);
    replaced.expect("they differ");
}

/// Some turns; returns the code of the call if it has ended.
pub(super) fn end_of(pair: &mut Pair, call: StreamKey) -> Option<Code> {
    for _ in 0..4 {
        for event in pair.turn() {
            if event == (Event::Finished { stream: call }) {
                let code = pair.client.status().code();
                pair.client.forget(call);
                return Some(code);
            }
        }
    }
    None
}

pub(super) fn ask(pair: &mut Pair, method: Method, authorization: Option<&str>) -> Code {
    let call = pair.call_with((&path(method), authorization), b"", true);
    end_of(pair, call).expect("the call ends")
}

pub(super) fn increment() -> Vec<u8> {
    let operation = Operation::Increment {
        key: b"n",
        delta: 1,
        initial: 0,
        condition: Condition::None,
    };
    let mut message = Vec::new();
    let database = "";
    OperationRequest {
        database,
        operation,
    }
    .encode(&mut message);
    message
}

#[test]
fn without_a_token_a_call_has_what_its_listener_gives() {
    for (right, [get, put, health]) in [
        ("admin", [Code::Ok, Code::Ok, Code::Ok]),
        ("read", [Code::Ok, Code::PermissionDenied, Code::Ok]),
        (
            "write:other",
            [Code::PermissionDenied, Code::PermissionDenied, Code::Ok],
        ),
    ] {
        let mut pair = Pair::of(rights(right));
        for _ in 0..2 {
            assert_eq!(ask(&mut pair, Method::Get, None), get, "{right}");
            assert_eq!(ask(&mut pair, Method::Put, None), put, "{right}");
            assert_eq!(ask(&mut pair, Method::HealthCheck, None), health, "{right}");
        }
    }
    let mut pair = Pair::of(Rights::default());
    assert_eq!(ask(&mut pair, Method::Get, None), Code::Unauthenticated);
    assert_eq!(
        ask(&mut pair, Method::EchoUnary, None),
        Code::Unauthenticated
    );
    assert_eq!(ask(&mut pair, Method::HealthCheck, None), Code::Ok);
}

#[test]
fn a_token_is_good_until_it_is_revoked_and_again_when_it_was_made_again() {
    let mut pair = Pair::of(Rights::default());
    let header = header(1);
    for _ in 0..2 {
        for _ in 0..2 {
            let code = ask(&mut pair, Method::Get, Some(&header));
            assert_eq!(code, Code::Unauthenticated, "nobody has made it");
        }
        replace(&pair, &[(1, "read", NEVER_MS)]);
        for _ in 0..3 {
            assert_eq!(ask(&mut pair, Method::Get, Some(&header)), Code::Ok);
            assert_eq!(
                ask(&mut pair, Method::Put, Some(&header)),
                Code::PermissionDenied
            );
            assert_eq!(ask(&mut pair, Method::Get, None), Code::Unauthenticated);
        }
        replace(&pair, &[(1, "write", NEVER_MS)]);
        assert_eq!(ask(&mut pair, Method::Put, Some(&header)), Code::Ok);
        replace(&pair, &[]);
        assert_eq!(pair.handler.running(), 0);
    }
}

#[test]
fn calls_of_one_connection_are_those_of_whose_token_each_has() {
    let mut pair = Pair::of(Rights::default());
    replace(&pair, &[(1, "read", NEVER_MS), (2, "write", NEVER_MS)]);
    let (reader, writer, nobody) = (header(1), header(2), header(3));
    for _ in 0..3 {
        for (header, get, put) in [
            (Some(&*reader), Code::Ok, Code::PermissionDenied),
            (Some(&*writer), Code::Ok, Code::Ok),
            (None, Code::Unauthenticated, Code::Unauthenticated),
            (Some(&*nobody), Code::Unauthenticated, Code::Unauthenticated),
        ] {
            assert_eq!(ask(&mut pair, Method::Get, header), get);
            assert_eq!(ask(&mut pair, Method::Put, header), put);
        }
    }
}

/// A token that is wrong is never passed over, whatever others may do without one.
#[test]
fn what_is_no_token_is_not_a_call_without_one() {
    let mut pair = Pair::of(rights("admin"));
    let long = format!("Bearer {}", "x".repeat(AUTHORIZATION_BYTES_MAX));
    for value in ["", "Bearer", "Basic dXNlcjpwYXNz", &*long, &header(9)] {
        for _ in 0..2 {
            let code = ask(&mut pair, Method::Get, Some(value));
            assert_eq!(code, Code::Unauthenticated, "{value:?}");
            assert_eq!(ask(&mut pair, Method::Get, None), Code::Ok);
        }
    }
}

/// A Pipe of this token, or without one.
fn open_pipe(pair: &mut Pair, header: Option<&str>) -> StreamKey {
    let mut message = Vec::new();
    let operations = [Operation::Get { key: b"n" }];
    encode_pipe(
        &mut message,
        "",
        PipeAnswers::All,
        Mode::Atomic,
        0,
        &operations,
    );
    pair.call_with((&path(Method::Pipe), header), &message, false)
}

/// A Pipe and a call that watches, of this token, or without one.
pub(super) fn open_streams(pair: &mut Pair, header: Option<&str>) -> [StreamKey; 2] {
    let pipe = open_pipe(pair, header);
    let watch = pair.call_with((&path(Method::HealthWatch), header), b"", true);
    assert_eq!(end_of(pair, pipe), None);
    assert_eq!(pair.handler.running(), 2);
    [pipe, watch]
}

/// The codes of these calls, all of which end within one turn of the loop.
pub(super) fn ends(pair: &mut Pair, calls: [StreamKey; 2]) -> [Option<Code>; 2] {
    let mut codes = [None; 2];
    pair.tick_without_input();
    for _ in calls {
        let seen = &mut codes;
        pair.take_with(|client, event| {
            if let Event::Finished { stream } = event {
                let at = calls.iter().position(|&call| call == stream);
                seen[at.expect("one of these")] = Some(client.status().code());
            }
        });
    }
    codes
}

#[test]
fn open_streams_end_when_their_token_is_revoked_and_others_go_on() {
    let mut pair = Pair::of(Rights::default());
    let woken = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&woken);
    let waker: Arc<LoopWaker> = Arc::new(move || {
        counts.fetch_add(1, Ordering::Relaxed);
    });
    pair.handler.shared().identities.wake_on_change(&waker);
    let stays = (2, "write", NEVER_MS);
    for round in 1..=2 {
        replace(&pair, &[(1, "write", NEVER_MS), stays]);
        let others = open_streams(&mut pair, Some(&header(2)));
        pair.now_ns += 1_000_000;
        let gone = open_pipe(&mut pair, Some(&header(1)));
        assert_eq!(end_of(&mut pair, gone), None);
        assert_eq!(pair.handler.running(), 3);
        replace(&pair, &[stays]);
        assert_eq!(
            woken.load(Ordering::Relaxed),
            4 * round - 2,
            "a loop that sleeps is woken"
        );
        let codes = ends(&mut pair, [gone, gone]);
        assert_eq!(codes[0], Some(Code::Unauthenticated));
        assert_eq!(pair.handler.running(), 2, "those of the other go on");
        replace(&pair, &[]);
        assert_eq!(woken.load(Ordering::Relaxed), 4 * round - 1);
        assert_eq!(ends(&mut pair, others), [Some(Code::Unauthenticated); 2]);
        assert_eq!(pair.handler.running(), 0);
        replace(&pair, &[]);
    }
}

#[test]
fn open_streams_end_when_their_token_expires() {
    let mut pair = Pair::of(Rights::default());
    for round in 1..=2 {
        let at_ms = BEGIN_MS + round * 1_000;
        replace(&pair, &[(1, "write", at_ms)]);
        let calls = open_streams(&mut pair, Some(&header(1)));
        let wait_ms = at_ms - BEGIN_MS;
        let due_ns = pair.handler.next_deadline_ns().expect("it expires");
        assert!(
            due_ns <= wait_ms * 1_000_000,
            "the loop wakes by itself: {due_ns}"
        );
        pair.now_ns = due_ns - 1_000_000;
        pair.turn();
        assert_eq!(pair.handler.running(), 2, "not before its time");
        pair.now_ns = due_ns;
        assert_eq!(ends(&mut pair, calls), [Some(Code::Unauthenticated); 2]);
        assert_eq!(pair.handler.running(), 0);
        assert_eq!(
            ask(&mut pair, Method::Get, Some(&header(1))),
            Code::Unauthenticated
        );
    }
}

/// Counted of each by itself, and given back however a call ends.
#[test]
fn the_running_calls_of_an_identity_are_counted() {
    let mut pair = Pair::of(rights("read"));
    for _ in 0..2 {
        replace(&pair, &[(1, "write", NEVER_MS), (2, "write", NEVER_MS)]);
        let [pipe, watch] = open_streams(&mut pair, Some(&header(1)));
        let other = pair.call_with((&path(Method::HealthWatch), None), b"", true);
        assert_eq!(end_of(&mut pair, other), None);
        assert_eq!(pair.handler.calls_of_identities(), [1, 2]);
        assert_eq!(ask(&mut pair, Method::Get, Some(&header(2))), Code::Ok);
        assert_eq!(pair.handler.calls_of_identities(), [1, 2]);
        (pair.client).reset(pipe, &mut pair.sent, wire::ErrorCode::Cancel);
        pair.client.forget(pipe);
        pair.turn();
        assert_eq!(pair.handler.calls_of_identities(), [1, 1]);
        // Another one has the slot later, and none of its calls.
        replace(&pair, &[]);
        assert_eq!(end_of(&mut pair, watch), Some(Code::Unauthenticated));
        assert_eq!(pair.handler.calls_of_identities(), [1]);
        (pair.client).reset(other, &mut pair.sent, wire::ErrorCode::Cancel);
        pair.client.forget(other);
        pair.turn();
        assert!(pair.handler.calls_of_identities().is_empty());
    }
}

/// Between the change and the tick that ends its calls, nothing new begins with a token that was
/// revoked, also in a loop that slept.
#[test]
fn a_revoked_token_begins_nothing_in_a_loop_that_slept() {
    let mut pair = Pair::of(Rights::default());
    for _ in 0..2 {
        replace(&pair, &[(1, "write", NEVER_MS)]);
        assert_eq!(ask(&mut pair, Method::Get, Some(&header(1))), Code::Ok);
        replace(&pair, &[]);
        let call = pair.call_with(
            (&path(Method::Increment), Some(&header(1))),
            &increment(),
            true,
        );
        pair.serve();
        assert_eq!(pair.handler.write_bytes(), (0, 0));
        assert_eq!(end_of(&mut pair, call), Some(Code::Unauthenticated));
    }
}

/// What was sent to a caller whose window is shut goes nowhere when the caller is revoked: neither
/// the answer of a call that has ended, nor the messages of one that runs.
#[test]
fn what_waits_for_a_shut_window_ends_with_its_token() {
    // EchoRequest: answer_bytes 1 000 000.
    let large = [0x10, 0xc0, 0x84, 0x3d];
    let stays = (2, "write", NEVER_MS);
    for (method, ends, runs) in [(Method::EchoUnary, true, 0), (Method::EchoStream, false, 1)] {
        let mut pair = Pair::of(Rights::default());
        for _ in 0..2 {
            let expires_ms = BEGIN_MS + pair.now_ns / 1_000_000 + 1_000;
            for (all, waits_ns) in [
                (&[(1, "write", NEVER_MS), stays][..], 0),
                (&[(1, "write", expires_ms), stays], 1_000_000_000),
            ] {
                replace(&pair, all);
                let before = pair.handler.account().charged_bytes();
                let call = pair.call_with((&path(method), Some(&header(1))), &large, ends);
                pair.turn();
                pair.sent.clear();
                let waiting = pair.handler.account().charged_bytes() - before;
                assert!(waiting > 900_000, "{waiting}");
                assert_eq!(pair.handler.running(), runs);
                assert!(pair.handler.awaits_wake());
                if waits_ns == 0 {
                    replace(&pair, &[stays]);
                } else {
                    let due_ns = pair.handler.next_deadline_ns().expect("it expires");
                    assert!(due_ns <= pair.now_ns + waits_ns, "the loop wakes by itself");
                    pair.now_ns += waits_ns;
                }
                let codes = self::ends(&mut pair, [call, call]);
                assert_eq!(codes[0], Some(Code::Unauthenticated), "{method:?}");
                pair.client.forget(call);
                pair.turn();
                assert_eq!(pair.handler.account().charged_bytes(), before);
                assert!(!pair.handler.awaits_wake(), "nothing is left to end");
                assert_eq!(ask(&mut pair, Method::Get, Some(&header(2))), Code::Ok);
            }
        }
    }
}

/// An answer that others have asked for, or that nobody can be revoked for, goes on waiting.
#[test]
fn what_waits_for_others_goes_on_when_somebody_is_revoked() {
    // EchoRequest: answer_bytes 1 000 000.
    let large = [0x10, 0xc0, 0x84, 0x3d];
    let echo = path(Method::EchoUnary);
    let mut pair = Pair::of(rights("read"));
    for other in [None, Some(header(2))] {
        for _ in 0..2 {
            replace(&pair, &[(1, "write", NEVER_MS), (2, "write", NEVER_MS)]);
            let gone = pair.call_with((&echo, Some(&header(1))), &large, true);
            let stays = pair.call_with((&echo, other.as_deref()), &large, true);
            pair.turn();
            let opened = std::mem::take(&mut pair.sent);
            replace(&pair, &[(2, "write", NEVER_MS)]);
            let codes = ends(&mut pair, [gone, stays]);
            assert_eq!(codes, [Some(Code::Unauthenticated), None]);
            pair.client.forget(gone);
            assert!(pair.handler.awaits_wake(), "an answer waits");
            pair.sent = [opened, std::mem::take(&mut pair.sent)].concat();
            let mut code = None;
            for _ in 0..40 {
                code = code.or_else(|| end_of(&mut pair, stays));
            }
            assert_eq!(code, Some(Code::Ok));
            assert!(!pair.handler.awaits_wake(), "nothing waits any more");
        }
    }
}
