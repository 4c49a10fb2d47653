//! What a call is told of, and what statistics say of a connection.

use client::{Bytes, CallError, NotBegun, PoolCall, PoolOptions, SendError, WaitedFor};

use crate::basics::{ECHO, call, fixed, simulated};
use crate::server::ServerBehavior;
use crate::simulated::{MS, Reported, SECOND};

#[test]
fn a_stream_that_was_not_writable_is_told_when_it_is_after_another_attempt() {
    let mut simulated = simulated(fixed(1), ServerBehavior::default());
    simulated.fault_rates.latency_ns = MS;
    simulated.run_for(SECOND);
    simulated.done.resize(100, 0);
    let now_ns = simulated.now_ns;
    // They take the window of the connection.
    for tag in 0..20_u64 {
        let begun = simulated
            .engine
            .begin_shared(tag + 10, &call(ECHO), now_ns, |out| {
                out.extend_from_slice(&tag.to_le_bytes());
                Some(Bytes::from(vec![0; 1 << 20]))
            });
        begun.expect("room");
    }
    simulated.run_for(MS / 10);
    let chat = PoolCall {
        timeout_ns: None,
        ..call("/t.T/Chat")
    };
    let now_ns = simulated.now_ns;
    let chat = simulated
        .engine
        .begin_streaming(5, &chat, now_ns)
        .expect("room");
    simulated
        .engine
        .send(chat, false, |out| out.resize(320_000, 0))
        .expect("room");
    simulated.turn();
    assert_eq!(
        simulated.engine.send(chat, true, |out| out.push(1)),
        Err(SendError::NotWritable)
    );
    simulated.run_for(MS * 93 / 100);
    simulated.behavior[0].cut_off = 1;
    simulated.run_for(MS / 5);
    assert_eq!(simulated.server_counts.cut_off, 1);
    simulated.behavior[0].cut_off = 0;
    simulated.run_for(60 * SECOND);
    let reported = simulated.take_reported();
    let writable = reported
        .iter()
        .any(|(tag, _, what)| *tag == 5 && matches!(what, Reported::Writable));
    let ended = reported
        .iter()
        .any(|(tag, _, what)| *tag == 5 && matches!(what, Reported::Ended(_)));
    assert!(writable || ended, "the caller waits for ever");
}

#[test]
fn a_server_that_accepts_and_says_goaway_is_not_called_without_end() {
    let mut simulated = simulated(fixed(1), ServerBehavior::default());
    simulated.fault_rates.latency_ns = MS;
    for _ in 0..10_000 {
        simulated.run_for(MS);
        simulated.drain(0);
    }
    let counters = simulated.statistics().counters;
    assert!(counters.dials < 30, "{} dials in 10 s", counters.dials);
}

#[test]
fn room_of_an_exclusive_connection_with_a_call_is_none() {
    let options = client::PoolOptions {
        mode: client::PoolMode::Exclusive,
        ..fixed(1)
    };
    let mut simulated = simulated(options, ServerBehavior::default());
    simulated.run_for(SECOND);
    simulated.begin(1, &call("/t.T/Silent")).expect("room");
    simulated.turn();
    let connections = simulated.statistics().connections;
    assert_eq!((connections[0].in_flight, connections[0].room), (1, 0));
}

/// What a call waited for until its deadline passed.
fn waited_for(error: &CallError) -> Option<WaitedFor> {
    match error {
        CallError::NotBegun(NotBegun::WaitedTooLong { waited_for }) => Some(*waited_for),
        _ => None,
    }
}

#[test]
fn a_call_that_waited_until_its_deadline_says_what_for() {
    let one_permit = PoolOptions {
        max_in_flight: 1,
        ..fixed(1)
    };
    let mute = ServerBehavior {
        is_mute: true,
        ..ServerBehavior::default()
    };
    let usual = ServerBehavior::default;
    for (options, behavior, is_lost, expected) in [
        (one_permit, usual(), false, WaitedFor::Permit),
        (fixed(1), mute, false, WaitedFor::Settings),
        (fixed(1), usual(), true, WaitedFor::Connection),
    ] {
        let mut simulated = simulated(options, behavior);
        simulated.fault_rates.lose_dial = is_lost.into();
        simulated.run_for(SECOND);
        let long = PoolCall {
            timeout_ns: Some(5 * SECOND),
            waits_for_ready: true,
            ..call("/t.T/Silent")
        };
        let short = PoolCall {
            timeout_ns: Some(150 * MS),
            ..long
        };
        simulated.begin(0, &long).expect("there is room");
        simulated.begin(1, &short).expect("there is room");
        simulated.run_for(SECOND);
        let endings = simulated.endings();
        let found = endings.iter().find(|(tag, _)| *tag == 1);
        let (_, Err(error)) = found.expect("its deadline has passed") else {
            panic!("{endings:?}");
        };
        assert_eq!(waited_for(error), Some(expected), "{error}");
    }
}

#[test]
fn a_pool_of_nothing_has_one_of_each() {
    let options = PoolOptions {
        max_in_flight: 0,
        max_calls_per_connection: 0,
        ..fixed(0)
    };
    let mut simulated = simulated(options, ServerBehavior::default());
    for tag in 0..2 {
        simulated.echo(tag).expect("there is one of each");
    }
}
