//! When an event loop wants its next tick: asked for too late, something stands still; too early,
//! the loop turns for nothing.

use net::Handler;
use net::limits::DRAIN_MS;
use service::Method;
use store::{Condition, Expiry, Operation};
use testkit::keyvalue::OperationRequest;
use wire::grpc::Code;

use super::path;
use crate::limits;
use crate::pair::Pair;

const MILLISECOND_NS: u64 = 1_000_000;

/// EchoRequest: answer_bytes 1 000 000, after a delay of 10 ms.
const LARGE_LATER: &[u8] = &[0x10, 0xc0, 0x84, 0x3d, 0x18, 10];

/// After how many nanoseconds the next tick is wanted.
fn wait_ns(pair: &Pair) -> Option<u64> {
    let at_ns = pair.handler.next_deadline_ns()?;
    Some(at_ns - pair.now_ns)
}

fn put(pair: &mut Pair, expiry: Expiry) {
    let mut message = Vec::new();
    let request = OperationRequest {
        database: "",
        operation: Operation::Put {
            key: b"key",
            value: b"value",
            condition: Condition::None,
            expiry,
            want_previous: false,
        },
    };
    request.encode(&mut message);
    let call = pair.call(&path(Method::Put), &message);
    pair.turn();
    assert_eq!(pair.client.status().code(), Code::Ok);
    pair.client.forget(call);
}

#[test]
fn the_door_looks_each_second_whether_something_has_expired() {
    let mut pair = Pair::door();
    for step_ns in [0, 300, 2_500 * MILLISECOND_NS, MILLISECOND_NS] {
        pair.now_ns += step_ns;
        pair.turn();
        let expected_ns = limits::SWEEP_LOOK_MS * MILLISECOND_NS;
        assert_eq!(wait_ns(&pair), Some(expected_ns));
    }
}

#[test]
fn a_loop_ticks_when_an_entry_is_to_be_removed_and_one_with_a_single_connection_does_not() {
    let mut due_ns = 0;
    for (mut pair, sweeps) in [(Pair::open(), true), (Pair::alone(), false)] {
        pair.now_ns = 20_000 * MILLISECOND_NS;
        pair.turn();
        let idle_ns = wait_ns(&pair);
        put(&mut pair, Expiry::AfterMs(4_000));
        if sweeps {
            let due_ms = pair.handler.shared().store.sweep_due_ms();
            // The clock of the pair began at the 1000th second.
            due_ns = (due_ms - 1_000_000) * MILLISECOND_NS;
            assert!(due_ns > 24_000 * MILLISECOND_NS, "it is there until then");
            assert_eq!(wait_ns(&pair), Some(due_ns - pair.now_ns));
        } else {
            assert_eq!(wait_ns(&pair), idle_ns, "that is the part of the door");
        }
        let entries = |pair: &Pair| {
            let store = &pair.handler.shared().store;
            let view = store.view(store::DatabaseId::DEFAULT);
            view.expect("it is in memory").statistics().entries
        };
        for (now_ns, left) in [(due_ns - MILLISECOND_NS, 1), (due_ns, u64::from(!sweeps))] {
            pair.now_ns = now_ns;
            pair.turn();
            assert_eq!(entries(&pair), left);
        }
    }
}

#[test]
fn a_drain_ticks_when_its_idle_timeout_ends_and_when_its_last_calls_do() {
    const TIMEOUT_NS: u64 = limits::DRAIN_IDLE_MS * MILLISECOND_NS;
    for has_call in [false, true] {
        let mut pair = Pair::open();
        // The timer for the first bytes of the connection is over.
        pair.now_ns = 20_000 * MILLISECOND_NS;
        pair.turn();
        if has_call {
            // EchoRequest with a delay of 60 s.
            pair.call("/pelton.v1.Echo/Unary", &[0x18, 0xe0, 0xd4, 0x03]);
        }
        pair.turn();
        let stopped_ns = pair.now_ns;
        pair.stop();
        assert_eq!(wait_ns(&pair), Some(TIMEOUT_NS));
        pair.now_ns += TIMEOUT_NS;
        // The peer is silent.
        pair.sent.clear();
        pair.turn();
        let last_call_ns = (DRAIN_MS - limits::LAST_CALL_MS) * MILLISECOND_NS;
        // It looks now and then whether a peer has stopped to take its answer: nothing else tells.
        for (step_ms, wait_ms) in [(700, 500), (100, 400), (900, 500)] {
            pair.now_ns += step_ms * MILLISECOND_NS;
            pair.sent.clear();
            pair.turn();
            let expected_ns = wait_ms * MILLISECOND_NS;
            assert_eq!(wait_ns(&pair), Some(expected_ns), "{has_call}");
        }
        pair.now_ns = stopped_ns + last_call_ns - MILLISECOND_NS;
        pair.sent.clear();
        pair.turn();
        let last_wait_ns = match has_call {
            true => MILLISECOND_NS,
            false => TIMEOUT_NS,
        };
        assert_eq!(wait_ns(&pair), Some(last_wait_ns), "{has_call}");
        for (now_ns, calls) in [(last_call_ns - 1, usize::from(has_call)), (last_call_ns, 0)] {
            pair.now_ns = stopped_ns + now_ns;
            pair.sent.clear();
            pair.turn();
            assert_eq!(pair.handler.running(), calls);
        }
    }
}

/// An answer is sent on as long as its peer takes some of it, and no longer than calls may run.
#[test]
fn a_drain_waits_for_a_peer_as_long_as_it_takes_its_answer() {
    const TIMEOUT_NS: u64 = limits::DRAIN_IDLE_MS * MILLISECOND_NS;
    const LAST_CALL_NS: u64 = (DRAIN_MS - limits::LAST_CALL_MS) * MILLISECOND_NS;
    // When it takes some for the last time, and when it is waited for no more.
    for (taken_ns, end_ns) in [
        (0, TIMEOUT_NS),
        (300 * MILLISECOND_NS, TIMEOUT_NS + 300 * MILLISECOND_NS),
        (LAST_CALL_NS - 1, LAST_CALL_NS),
    ] {
        // Windows that do not grow: there is always something left.
        let config = wire::Config {
            stream_window: Some(65_535),
            connection_window: Some(65_535),
            ..wire::Config::client()
        };
        let mut pair = Pair::accepted(false);
        pair.client = wire::Connection::new(&config, 0);
        pair.greet();
        pair.now_ns = 20_000 * MILLISECOND_NS;
        // EchoRequest: answer_bytes 4 000 000.
        pair.call("/pelton.v1.Echo/Unary", &[0x10, 0x80, 0x92, 0xf4, 0x01]);
        pair.turn();
        let stopped_ns = pair.now_ns;
        pair.stop();
        for step_ns in (0..taken_ns).step_by(400_000_000).chain([taken_ns]) {
            pair.now_ns = stopped_ns + step_ns;
            pair.turn();
            assert!(!pair.handler.is_drained(), "{step_ns}");
        }
        // What the windows let out is gone.
        for _ in 0..5 {
            pair.sent.clear();
            pair.turn();
        }
        for (now_ns, is_drained) in [(end_ns - 1, false), (end_ns, true)] {
            pair.now_ns = stopped_ns + now_ns;
            pair.sent.clear();
            pair.turn();
            assert_eq!(pair.handler.is_drained(), is_drained, "{taken_ns} {now_ns}");
        }
    }
}

/// While others use up the memory, nothing but its timer brings a connection on that waits for
/// some.
#[test]
fn a_connection_that_waits_for_memory_looks_for_it_again() {
    let looks_ns = limits::WINDOWS_SHUT_MS * MILLISECOND_NS;
    let mut pair = Pair::open();
    for _ in 0..2 {
        pair.now_ns += 20_000 * MILLISECOND_NS;
        pair.turn();
        let call = pair.call("/pelton.v1.Echo/Unary", LARGE_LATER);
        pair.turn();
        assert_eq!(wait_ns(&pair), Some(10 * MILLISECOND_NS));
        // Its call goes on as its time has come, not as the peer says something.
        let others = pair.fill_account();
        pair.now_ns += 10 * MILLISECOND_NS;
        assert_eq!(pair.turn_of_loop(), []);
        assert_eq!(wait_ns(&pair), Some(looks_ns));
        pair.now_ns += looks_ns;
        assert_eq!(pair.turn_of_loop(), []);
        assert_eq!(wait_ns(&pair), Some(looks_ns), "and again");
        drop(others);
        pair.now_ns += looks_ns;
        for _ in 0..60 {
            pair.turn();
        }
        assert_eq!(pair.client.status().code(), Code::Ok);
        pair.client.forget(call);
    }
}

/// Another thread makes a large answer: when it is done it tells nobody.
#[test]
fn a_call_whose_memory_others_have_taken_tries_again_soon() {
    let mut pair = Pair::open();
    let account = std::sync::Arc::clone(pair.handler.account());
    for _ in 0..2 {
        pair.now_ns += 20_000 * MILLISECOND_NS;
        pair.turn();
        account.claim_little(account.limit_bytes());
        let call = pair.call("/pelton.v1.Echo/Unary", LARGE_LATER);
        pair.turn();
        pair.now_ns += 10 * MILLISECOND_NS;
        for _ in 0..2 {
            pair.turn();
            let retry_ns = limits::CLAIM_RETRY_MS * MILLISECOND_NS;
            assert_eq!(wait_ns(&pair), Some(retry_ns));
            pair.now_ns += retry_ns;
        }
        account.end_claim(account.limit_bytes());
        for _ in 0..60 {
            pair.turn();
        }
        assert_eq!(pair.client.status().code(), Code::Ok);
        pair.client.forget(call);
    }
}

/// Other loops give memory back, and tell nobody.
#[test]
fn a_connection_without_memory_for_its_large_message_looks_for_it_soon() {
    let retry_ns = limits::TURN_RETRY_MS * MILLISECOND_NS;
    let mut pair = Pair::open();
    let account = std::sync::Arc::clone(pair.handler.account());
    for _ in 0..2 {
        pair.now_ns += 20_000 * MILLISECOND_NS;
        pair.turn();
        let others = pair.fill_account();
        // Somebody else receives a message beyond the limit.
        assert!(account.try_overdraft(false));
        let call = pair.call("/pelton.v1.KeyValue/Get", &[0xff; 1 << 20]);
        for _ in 0..3 {
            pair.turn();
        }
        for _ in 0..3 {
            assert_eq!(wait_ns(&pair), Some(retry_ns));
            pair.now_ns += retry_ns;
            pair.turn();
        }
        drop(others);
        account.end_overdraft();
        pair.now_ns += limits::WINDOWS_SHUT_MS * MILLISECOND_NS;
        let mut events = Vec::new();
        for _ in 0..60 {
            events.extend(pair.turn());
        }
        assert!(events.contains(&wire::Event::Finished { stream: call }));
        pair.client.forget(call);
    }
}

/// Each as often as if it were alone would be all that the server does, above all where each has a
/// thread.
#[test]
fn connections_that_wait_look_the_less_often_the_more_of_them_there_are() {
    const OTHERS: u64 = 500;
    let mut pair = Pair::open();
    let account = std::sync::Arc::clone(pair.handler.account());
    let wake: crate::SharedWaker = std::sync::Arc::new(|| {});
    let full = pair.fill_account();
    assert!(account.try_overdraft(false));
    pair.call("/pelton.v1.KeyValue/Get", &[0xff; 1 << 20]);
    for _ in 0..3 {
        pair.turn();
    }
    assert_eq!(wait_ns(&pair), Some(limits::TURN_RETRY_MS * MILLISECOND_NS));
    for _ in 0..2 {
        let mut others = Vec::new();
        for _ in 0..OTHERS {
            let mut other = account.open(&net::PeerAddress::Simulated(9), &wake);
            other.next_look_ns(limits::TURN_RETRY_MS, pair.now_ns);
            others.push(other);
        }
        // It looks again, and then behind them.
        pair.now_ns += 2 * limits::WINDOWS_SHUT_MS * MILLISECOND_NS;
        pair.turn();
        let wait_ms = wait_ns(&pair).map(|ns| ns / MILLISECOND_NS);
        let round_ms = OTHERS * limits::LOOK_SPACING_MS;
        let is_behind = |ms: u64| (round_ms / 2..=round_ms).contains(&ms);
        assert!(wait_ms.is_some_and(is_behind), "{wait_ms:?}");
        // They are gone, and nobody waits for them.
        drop(others);
        pair.now_ns += round_ms * MILLISECOND_NS;
        pair.turn();
        assert_eq!(wait_ns(&pair), Some(limits::TURN_RETRY_MS * MILLISECOND_NS));
    }
    drop(full);
}
