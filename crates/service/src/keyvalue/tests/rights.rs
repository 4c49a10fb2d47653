//! What callers may do: several operations in one request need what the operations need.

use super::batches::{get, increment};
use super::single::put;
use super::*;
use api::keyvalue::*;
use testkit::keyvalue::*;

/// Requests of each method with several operations, which read only or do not.
fn requests(writes: bool) -> Vec<(Method, Vec<u8>)> {
    let mut requests = Vec::new();
    let mut add = |method, encode: &dyn Fn(&mut Vec<u8>)| {
        let mut request = Vec::new();
        encode(&mut request);
        requests.push((method, request));
    };
    let one = match writes {
        true => increment(b"n"),
        false => get(b"n"),
    };
    let both = [get(b"a"), one];
    for mode in [Mode::Atomic, Mode::Independent] {
        add(Method::Batch, &|out| encode_batch(out, "", mode, 0, &both));
        let answers = PipeAnswers::All;
        add(Method::Pipe, &|out| {
            encode_pipe(out, "", answers, mode, 0, &both)
        });
    }
    for lists in [[&both[..], &[]], [&[], &both], [&both[..1], &both[1..]]] {
        let encode = |out: &mut Vec<u8>| encode_transact(out, "", 0, &[], lists[0], lists[1]);
        add(Method::Transact, &encode);
    }
    requests
}

/// How a call ended: that of a Pipe ends well, and its batch was refused.
fn code(method: Method, ended: &Ended) -> (Code, String) {
    if method != Method::Pipe || ended.status != Status::OK {
        let status = &ended.status;
        return (status.code(), status.message().to_owned());
    }
    let [message] = &ended.messages[..] else {
        panic!("one batch has one answer: {ended:?}");
    };
    let response = PipeResponse::decode(message).expect("it is a message");
    let Some(failure) = response.failure else {
        return (Code::Ok, String::new());
    };
    let code = Code::ALL.iter().find(|&&code| code as u32 == failure.code);
    (*code.expect("a code"), failure.message.to_owned())
}

#[test]
fn several_operations_need_what_one_of_them_needs() {
    for (rights, reads, writes) in [
        (Some(&["read"][..]), Code::Ok, Code::PermissionDenied),
        (Some(&["read:default"]), Code::Ok, Code::PermissionDenied),
        (Some(&["write:default"]), Code::Ok, Code::Ok),
        (
            Some(&["write:small", "write:default/"]),
            Code::PermissionDenied,
            Code::PermissionDenied,
        ),
        (None, Code::Unauthenticated, Code::Unauthenticated),
    ] {
        let mut bench = Bench::new();
        bench.put(b"a", b"1");
        bench.identity = rights.map(caller);
        for (has_writes, expected) in [(false, reads), (true, writes)] {
            for (method, request) in requests(has_writes) {
                let ended = bench.call(method, &request);
                let (code, words) = code(method, &ended);
                assert_eq!(code, expected, "{rights:?} {method:?}: {words}");
                let needed = match has_writes && reads == Code::Ok {
                    true => "`write:default`",
                    false => "`read:default`",
                };
                let is_denied = expected == Code::PermissionDenied;
                assert!(!is_denied || words.contains(needed), "{method:?}: {words}");
            }
        }
    }
}

/// A batch of a Pipe that may not be is one of those that are refused by themselves.
#[test]
fn a_pipe_goes_on_behind_a_batch_that_may_not_be() {
    let mut bench = Bench::new();
    bench.identity = Some(caller(&["read"]));
    let batch = |operation| {
        let mut message = Vec::new();
        let answers = PipeAnswers::All;
        encode_pipe(&mut message, "", answers, Mode::Atomic, 0, &[operation]);
        message
    };
    let ended = bench.steps(Method::Pipe, |call, shared, room| {
        for operation in [get(b"a"), put(b"a", b"1"), get(b"a")] {
            room.bring(call, &batch(operation), false, shared);
        }
        call.half_closed(shared, room);
    });
    assert_eq!(ended.status, Status::OK);
    let failures: Vec<_> = (ended.messages.iter())
        .map(|message| {
            let response = PipeResponse::decode(message).expect("it is a message");
            response.failure.is_some()
        })
        .collect();
    assert_eq!(failures, [false, true, false]);
}

#[test]
fn a_single_operation_needs_its_own_right() {
    let mut bench = Bench::new();
    bench.put(b"a", b"1");
    let request = |operation| {
        let mut request = Vec::new();
        let database = "";
        OperationRequest {
            database,
            operation,
        }
        .encode(&mut request);
        request
    };
    for (method, operation, needed) in [
        (Method::Get, get(b"a"), "read"),
        (Method::Put, put(b"a", b"2"), "write"),
        (Method::Increment, increment(b"n"), "write"),
    ] {
        for rights in ["read:default", "write:default", "write:small"] {
            bench.identity = Some(caller(&[rights]));
            let ended = bench.call(method, &request(operation));
            let is_allowed = rights.starts_with("write:default")
                || rights.starts_with(needed) && rights.ends_with("default");
            let expected = match is_allowed {
                true => Code::Ok,
                false => Code::PermissionDenied,
            };
            assert_eq!(ended.status.code(), expected, "{rights} {method:?}");
        }
    }
}
