//! Queues, and calls that wait.

use api::tkrzw::*;
use store::DatabaseId;

use super::super::wait::Waiter;
use super::*;
use crate::actions::CallClock;
use crate::fake::Fake;
use crate::limits::TKRZW_RETRY_MS;
use crate::tkrzw_state::{Claims, WaitTopic};

use Method as M;

const NS: f64 = 1e9;

impl Bench {
    fn push(&mut self, value: &[u8], wtime: f64) {
        let request = PushLastRequest {
            value,
            wtime,
            notify: true,
            ..PushLastRequest::default()
        };
        assert_eq!(self.code(M::TkrzwPushLast, &request), 0);
    }

    fn pop(&mut self) -> (i32, Vec<u8>, Vec<u8>) {
        let response = self.tkrzw(M::TkrzwPopFirst, &PopFirstRequest::default());
        let response = PopFirstResponse::decode(&response).expect("it is sound");
        let code = response.status.expect("there is one").code;
        (code, response.key.to_vec(), response.value.to_vec())
    }
}

#[test]
fn records_are_pushed_at_the_end_and_popped_from_the_front() {
    let mut bench = bench();
    assert_eq!(bench.pop().0, 7);
    for value in [&b"a"[..], b"b", b"c"] {
        bench.push(value, 0.0);
    }
    bench.push(b"later", 2.5);
    // Keys of another length are no numbers, and in the way of none.
    bench.set(b"\0\0\0\0\0\0\0\x01x", b"other");
    for (key, value) in [
        (0_u64.to_be_bytes().to_vec(), &b"a"[..]),
        (1_u64.to_be_bytes().to_vec(), b"b"),
        (b"\0\0\0\0\0\0\0\x01x".to_vec(), b"other"),
        (2_u64.to_be_bytes().to_vec(), b"c"),
        (250_000_000_u64.to_be_bytes().to_vec(), b"later"),
    ] {
        assert_eq!(bench.pop(), (0, key, value.to_vec()));
    }
    assert_eq!(bench.pop().0, 7);
    // The clock of the server, in microseconds, makes keys of 10 ns.
    bench.push(b"now", -1.0);
    let now = bench.now_ms * 1_000 * 100;
    assert_eq!(
        bench.pop(),
        (0, now.to_be_bytes().to_vec(), b"now".to_vec())
    );
}

#[test]
fn the_first_gap_behind_a_long_row_of_keys_is_found() {
    let mut bench = bench();
    for number in (0..1_000_u64).filter(|&number| number != 700) {
        bench.set(&number.to_be_bytes(), b"");
    }
    bench.push(b"gap", 0.0);
    bench.push(b"end", 0.0);
    assert_eq!(bench.value(&700_u64.to_be_bytes()), Some(b"gap".to_vec()));
    assert_eq!(bench.value(&1_000_u64.to_be_bytes()), Some(b"end".to_vec()));
}

#[test]
fn a_pop_may_leave_out_key_and_value() {
    let mut bench = bench();
    for (omit_key, omit_value) in [(false, true), (true, false), (true, true)] {
        bench.push(b"v", 0.0);
        let request = PopFirstRequest {
            omit_key,
            omit_value,
            ..PopFirstRequest::default()
        };
        let response = bench.tkrzw(M::TkrzwPopFirst, &request);
        let response = PopFirstResponse::decode(&response).expect("it is sound");
        assert_eq!(
            (response.key.is_empty(), response.value.is_empty()),
            (omit_key, omit_value)
        );
        assert_eq!(bench.pop().0, 7, "it is gone all the same");
    }
}

/// The record that it has passed has changed, or one has come before it: it begins anew.
#[test]
fn a_pop_that_was_overtaken_or_woken_looks_from_the_beginning() {
    fn put(key: &'static [u8], value: &'static [u8]) -> impl FnOnce(&mut store::WriteBatch) {
        move |batch| {
            let mode = store::Mode::Independent;
            let mut commit = batch.begin(0, DatabaseId::DEFAULT, mode);
            let pushed = commit.push(&super::super::single::put(
                key,
                value,
                store::Condition::None,
            ));
            assert_eq!(pushed, Ok(()));
            commit.submit();
        }
    }
    let popped = |ended: Ended| {
        let response = PopFirstResponse::decode(ended.answer()).expect("it is sound");
        (response.key.to_vec(), response.value.to_vec())
    };
    for times in 1..3 {
        let mut bench = bench();
        bench.set(b"b", b"before");
        bench.set(b"c", b"later");
        let request = encoded(&PopFirstRequest::default());
        let ended = bench.steps(M::TkrzwPopFirst, |call, shared, room| {
            for _ in 0..times {
                room.others_write(put(b"b", b"changed"));
            }
            room.bring(call, &request, true, shared);
        });
        assert_eq!(popped(ended), (b"b".to_vec(), b"changed".to_vec()));
        let request = encoded(&PopFirstRequest {
            retry_wait: 100.0,
            ..PopFirstRequest::default()
        });
        assert_eq!(bench.pop().2, b"later");
        let ended = bench.steps(M::TkrzwPopFirst, |call, shared, room| {
            for _ in 1..times {
                room.others_write(|batch| {
                    // Something else, of which it is not told.
                    let mode = store::Mode::Independent;
                    let mut commit = batch.begin(0, DatabaseId::DEFAULT, mode);
                    assert_eq!(commit.push(&store::Operation::Clear), Ok(()));
                    commit.submit();
                });
            }
            room.others_write(put(b"a", b"new"));
            room.bring(call, &request, true, shared);
        });
        assert_eq!(popped(ended), (b"a".to_vec(), b"new".to_vec()));
        assert_eq!(bench.shared.settings.tkrzw.state.claims.len(), 0);
    }
}

/// A record that others are about to remove is left to them, and afterwards free again.
#[test]
fn a_pop_passes_over_what_others_have_claimed() {
    let mut bench = bench();
    bench.push(b"a", 0.0);
    bench.push(b"b", 0.0);
    let claims = bench.shared.settings.tkrzw.state.claims.clone();
    let first = 0_u64.to_be_bytes();
    let claim = claims.claim(DatabaseId::DEFAULT, &first);
    assert!(claim.is_some() && claims.claim(DatabaseId::DEFAULT, &first).is_none());
    assert_eq!(bench.pop().2, b"b");
    drop(claim);
    assert_eq!(bench.pop().2, b"a");
    assert_eq!(claims.len(), 0);
    let claims = Claims::default();
    let other = claims.claim(DatabaseId::DEFAULT, b"");
    assert_eq!(
        (other.as_ref().map(|one| one.key().len()), claims.len()),
        (Some(0), 1)
    );
}

#[test]
fn a_call_waits_as_long_as_it_says_and_looks_again_now_and_then() {
    let mut bench = bench();
    let pop = encoded(&PopFirstRequest {
        retry_wait: 12.0,
        ..PopFirstRequest::default()
    });
    let exchange = encoded(&CompareExchangeRequest {
        key: b"k",
        expected_existence: true,
        expect_any_value: true,
        retry_wait: 12.0,
        ..CompareExchangeRequest::default()
    });
    for (method, request, code) in [
        (M::TkrzwPopFirst, pop, 7),
        (M::TkrzwCompareExchange, exchange, 9),
    ] {
        let ended = bench.call(method, &request);
        assert_eq!(code_of(ended.answer()), code);
        assert!(ended.waited_ns as f64 >= 12.0 * NS && (ended.waited_ns as f64) < 12.1 * NS);
        assert_eq!(bench.shared.waiting.count(), 0);
        assert_eq!(bench.shared.settings.tkrzw.state.waiting.len(), 0);
    }
    for seconds in [0.0, -1.0, f64::NAN, f64::NEG_INFINITY] {
        let request = encoded(&PopFirstRequest {
            retry_wait: seconds,
            ..PopFirstRequest::default()
        });
        assert_eq!(bench.call(M::TkrzwPopFirst, &request).waited_ns, 0);
    }
}

/// Whether it waits for long, for a moment or, whatever it says, not at all.
#[test]
fn each_try_of_an_exchange_takes_memory_for_the_value_that_it_returns() {
    for seconds in [0.0, -1.0, f64::NAN, 1e-9, 12.0, f64::INFINITY] {
        for refusals in [0, 2] {
            let mut bench = bench();
            bench.set(b"k", b"actual");
            bench.refuse_memory(refusals);
            let request = encoded(&CompareExchangeRequest {
                key: b"k",
                expected_existence: false,
                get_actual: true,
                retry_wait: seconds,
                ..CompareExchangeRequest::default()
            });
            // `bring` has the request put back once, before anything is done.
            let ended = match seconds.is_infinite() {
                false => bench.call(M::TkrzwCompareExchange, &request),
                true => bench.steps(M::TkrzwCompareExchange, |call, shared, room| {
                    room.bring(call, &request, true, shared);
                    shared.health.stop();
                }),
            };
            let most = store::DatabaseLimits::default().value_bytes;
            let tries = match seconds {
                12.0 => 4,
                1e-9 => 2,
                _ => 1,
            };
            let mut tried: Vec<_> = [most, 0].repeat(tries);
            if seconds.is_infinite() {
                // It ended before it gave anything back.
                tried.pop();
            }
            assert_eq!(ended.reserved(), tried, "{seconds}");
            if seconds.is_infinite() {
                assert_eq!(ended.status.code(), Code::Unavailable);
                continue;
            }
            let again = if tries > 1 { refusals + tries - 1 } else { 0 };
            assert_eq!(ended.claims(), vec![most; again], "{seconds}");
            let response = CompareExchangeResponse::decode(ended.answer()).expect("it is sound");
            assert_eq!(response.actual, b"actual");
        }
    }
}

/// Somebody who waits: what its call would be asked, without the call.
struct Sleeper {
    fake: Fake,
    waiter: Waiter,
}

impl Sleeper {
    fn new(topic: &WaitTopic, shared: &crate::Shared) -> Sleeper {
        let mut fake = Fake::new(M::HealthWatch, shared);
        let entered = Waiter::enter(topic.clone(), 10.0, shared, &mut fake.actions);
        let waiter = entered.expect("there is a place").expect("it wants to");
        Sleeper { fake, waiter }
    }

    fn sleep(&mut self, shared: &crate::Shared) {
        assert_eq!(self.waiter.sleep(shared, &mut self.fake.actions), Ok(true));
    }

    /// How long its timer takes from now, in nanoseconds.
    fn rings_after_ns(&self) -> u64 {
        let actions = &self.fake.actions;
        actions.wake_at_ns.expect("it has one") - actions.now_ns()
    }

    /// How often it was told.
    fn told(&self) -> u64 {
        let news = self.fake.actions.watched.as_ref();
        news.expect("it is woken by others").changes()
    }
}

#[test]
fn the_first_that_waits_for_a_record_is_told_and_passes_on_what_it_does_not_take() {
    let shared = crate::fake::shared();
    let lists = shared.settings.tkrzw.state.waiting.clone();
    let topic = WaitTopic::Queue(DatabaseId::DEFAULT);
    lists.wake_first(&topic);
    for _ in 0..2 {
        let mut all = [0, 1, 2].map(|_| Sleeper::new(&topic, &shared));
        all.iter_mut().for_each(|one| one.sleep(&shared));
        lists.wake_first(&topic);
        assert_eq!(all.each_ref().map(Sleeper::told), [1, 0, 0]);
        // It looks, finds nothing, and keeps its place in the order.
        assert!(all[0].waiter.wake() && !all[0].waiter.wake());
        all[0].sleep(&shared);
        lists.wake_first(&topic);
        assert_eq!(all.each_ref().map(Sleeper::told), [2, 0, 0]);
        // It leaves: the next one is told of the record that it has not taken.
        let [first, second, third] = all;
        drop(first);
        assert_eq!([second.told(), third.told()], [1, 0]);
        drop(second);
        assert_eq!(third.told(), 1);
        drop(third);
        assert_eq!((lists.len(), shared.waiting.count()), (0, 0));
    }
}

/// What it looked at may have been older than what it was told of.
#[test]
fn a_call_that_is_woken_while_it_looks_looks_again_at_once() {
    let shared = crate::fake::shared();
    let lists = shared.settings.tkrzw.state.waiting.clone();
    for topic in [
        WaitTopic::Queue(DatabaseId::DEFAULT),
        WaitTopic::Record(DatabaseId::DEFAULT, b"k"[..].into()),
    ] {
        let mut one = Sleeper::new(&topic, &shared);
        for _ in 0..2 {
            lists.wake_all(&topic);
            assert!(!one.waiter.wake(), "it looks");
            one.sleep(&shared);
            assert_eq!(one.rings_after_ns(), 0);
            assert!(one.waiter.wake());
            one.sleep(&shared);
            assert_eq!(one.rings_after_ns(), TKRZW_RETRY_MS * 1_000_000);
            assert!(one.waiter.wake());
        }
        drop(one);
        assert_eq!(lists.len(), 0);
    }
}

#[test]
fn all_that_wait_for_a_state_of_a_record_are_told() {
    let shared = crate::fake::shared();
    let lists = shared.settings.tkrzw.state.waiting.clone();
    let topic = |key: &[u8]| WaitTopic::Record(DatabaseId::DEFAULT, key.into());
    let all = [&b"a"[..], b"a", b"b"].map(|key| Sleeper::new(&topic(key), &shared));
    lists.wake_all(&topic(b"a"));
    lists.wake_all(&topic(b"c"));
    assert_eq!(all.each_ref().map(Sleeper::told), [1, 1, 0]);
    drop(all);
    assert_eq!(lists.len(), 0);
}

#[test]
fn a_call_that_waits_ends_when_the_server_stops() {
    let shared = crate::fake::shared();
    let mut one = Sleeper::new(&WaitTopic::Queue(DatabaseId::DEFAULT), &shared);
    shared.health.stop();
    let slept = one.waiter.sleep(&shared, &mut one.fake.actions);
    assert_eq!(
        slept.map_err(|status| status.code()),
        Err(Code::Unavailable)
    );
}
