//! What only the second time shows, and what is counted without anybody feeling it.

use std::collections::HashSet;
use std::time::Duration;

use client::{
    CallError, HealthCheck, NotBegun, PoolAction, PoolCall, PoolEndpoint, PoolEngine, PoolOptions,
    PoolSize,
};

use crate::basics::{ECHO, call, fixed, simulated};
use crate::server::ServerBehavior;
use crate::simulated::{MS, SECOND};

#[test]
fn what_went_through_a_connection_counts_after_its_end() {
    let mut simulated = simulated(fixed(1), ServerBehavior::default());
    for round in 1..3 {
        simulated.run_for(2 * SECOND);
        for tag in 0..10 {
            simulated.echo(tag).expect("it is answered");
        }
        let before = simulated.statistics().traffic;
        simulated.cut_all();
        simulated.turn();
        let after = simulated.statistics().traffic;
        assert_eq!(
            (after.bytes_in, after.bytes_out, after.reads),
            (before.bytes_in, before.bytes_out, before.reads)
        );
        assert!(after.writes >= 10 * round, "{after:?}");
    }
}

#[test]
fn calls_that_wait_for_their_next_attempt_count_for_the_queue() {
    let options = PoolOptions {
        max_in_flight: 1,
        max_waiting: 1,
        ..fixed(1)
    };
    let mut simulated = simulated(options, ServerBehavior::default());
    simulated.run_for(SECOND);
    for _ in 0..2 {
        (
            simulated.behavior[0].push_back,
            simulated.behavior[0].push_back_ms,
        ) = (1, 5_000);
        simulated.begin(0, &call(ECHO)).expect("room");
        simulated.run_for(MS);
        assert_eq!(simulated.statistics().waiting_for_pause, 1);
        simulated.behavior[0].push_back = 0;
        simulated.begin(1, &call("/t.T/Silent")).expect("room");
        simulated.turn();
        let refused = simulated.begin(2, &call(ECHO)).expect_err("one waits");
        let CallError::NotBegun(NotBegun::QueueFull { limit: 1 }) = refused else {
            panic!("{refused}");
        };
        simulated.cut_all();
        simulated.run_for(20 * SECOND);
        assert_eq!(simulated.endings().len(), 2);
    }
}

#[test]
fn a_call_that_is_cancelled_while_it_waits_has_waited_until_then() {
    let options = PoolOptions {
        max_in_flight: 1,
        ..fixed(1)
    };
    let mut simulated = simulated(options, ServerBehavior::default());
    simulated.run_for(SECOND);
    simulated.begin(0, &call("/t.T/Silent")).expect("room");
    simulated.turn();
    for round in 1..3 {
        let now_ns = simulated.now_ns;
        let waiting = simulated.engine.begin(round, &call(ECHO), now_ns, |_| {});
        // Nobody turns the pool meanwhile.
        simulated.now_ns += 300 * MS;
        let waiting = waiting.expect("room");
        simulated.engine.cancel(waiting, simulated.now_ns);
        let times = simulated.statistics().wait_times;
        assert_eq!(times.permit_ns, round * 300 * MS);
    }
}

#[test]
fn connections_that_are_loaded_alike_take_turns() {
    let mut simulated = simulated(fixed(3), ServerBehavior::default());
    simulated.run_for(SECOND);
    for round in 1..3 {
        for tag in 0..3 {
            simulated.echo(tag).expect("it is answered");
        }
        let connections = simulated.statistics().connections;
        assert!(
            connections
                .iter()
                .all(|connection| connection.begun == round),
            "{connections:?}"
        );
    }
}

#[test]
fn pauses_between_health_checks_begin_anew_after_one_that_was_answered() {
    let options = PoolOptions {
        health: Some(HealthCheck {
            service: String::new(),
            interval: Some(Duration::from_secs(1)),
        }),
        ..fixed(1)
    };
    let silent = ServerBehavior {
        is_health_silent: true,
        is_serving: Some(true),
        ..ServerBehavior::default()
    };
    let mut simulated = simulated(options, silent);
    for _ in 0..2 {
        simulated.behavior[0].is_health_silent = true;
        let begun_ns = simulated.now_ns;
        let before = simulated.server_counts.requests;
        // Five seconds each, and pauses from 100 ms on, up to a second late.
        while simulated.server_counts.requests < before + 6 {
            assert!(simulated.step(u64::MAX));
        }
        let took_ns = simulated.now_ns - begun_ns;
        assert!(took_ns < 35 * SECOND, "{} ms", took_ns / MS);
        simulated.behavior[0].is_health_silent = false;
        simulated.run_for(60 * SECOND);
    }
}

#[test]
fn a_connection_of_use_that_ends_is_made_anew_at_once_whatever_failed_before() {
    let mut simulated = simulated(fixed(1), ServerBehavior::default());
    for round in 0..2 {
        simulated.fault_rates.refuse_dial = 1;
        simulated.cut_all();
        simulated.run_for(20 * SECOND);
        simulated.fault_rates.refuse_dial = 0;
        while simulated.open_links() == 0 {
            assert!(simulated.step(u64::MAX));
        }
        simulated.begin(1, &call(ECHO)).expect("room");
        simulated.run_for(MS);
        assert!(simulated.statistics().endpoints[0].failures == 0, "{round}");
        simulated.cut_all();
        simulated.run_for(MS);
        assert_eq!(simulated.open_links(), 1, "{round}");
        simulated.endings();
    }
}

/// They began before the time in which it is looked at how many connections are needed.
#[test]
fn connections_with_calls_that_last_are_needed() {
    let options = PoolOptions {
        size: PoolSize::Automatic { min: 1, max: 4 },
        ..PoolOptions::default()
    };
    let behavior = ServerBehavior {
        max_streams: Some(10),
        ..ServerBehavior::default()
    };
    let mut simulated = simulated(options, behavior);
    for tag in 0..25 {
        simulated
            .begin(tag, &call("/t.T/Silent"))
            .expect("it may wait");
    }
    for _ in 0..4 {
        simulated.run_for(40 * SECOND);
        let connections = simulated.statistics().endpoints[0].connections;
        assert_eq!((connections, simulated.open_links()), (3, 3));
    }
}

#[test]
fn a_pool_that_is_closed_again_ends_at_the_earlier_of_both_times() {
    for graces_ns in [[10 * SECOND, SECOND], [SECOND, 10 * SECOND]] {
        let mut simulated = simulated(fixed(1), ServerBehavior::default());
        simulated.run_for(SECOND);
        simulated.begin(1, &call("/t.T/Silent")).expect("room");
        simulated.turn();
        for grace_ns in graces_ns {
            simulated.engine.close(grace_ns, simulated.now_ns);
        }
        simulated.run_for(SECOND / 2);
        assert_eq!(simulated.endings().len(), 0, "{graces_ns:?}");
        simulated.run_for(SECOND);
        assert_eq!(simulated.endings().len(), 1, "{graces_ns:?}");
    }
}

/// Clients that lose a server together do not come back together.
#[test]
fn pauses_of_pools_with_other_seeds_differ() {
    let second_dial_ns = |seed| {
        let endpoint = PoolEndpoint {
            name: "a:1".into(),
            authority: "a:1".into(),
        };
        let mut engine = PoolEngine::new(vec![endpoint], fixed(1), seed, 0);
        let (mut dials, mut now_ns) = (0, 0);
        loop {
            engine.poll(now_ns, &mut |_| {});
            while let Some(action) = engine.next_action() {
                if let PoolAction::Dial { connection, .. } = action {
                    engine.disconnected(connection, "nobody listens", now_ns);
                    dials += 1;
                }
            }
            if dials == 2 {
                return now_ns;
            }
            now_ns += MS;
            assert!(now_ns < SECOND, "{dials} dials");
        }
    };
    let times: HashSet<_> = (1..9).map(second_dial_ns).collect();
    assert!(times.len() > 2, "{times:?}");
}

#[test]
fn a_call_that_was_sent_and_then_finds_no_server_may_have_happened() {
    let mut simulated = simulated(fixed(1), ServerBehavior::default());
    simulated.run_for(SECOND);
    let silent = PoolCall {
        is_repeatable: true,
        ..call("/t.T/Silent")
    };
    simulated.begin(1, &silent).expect("room");
    simulated.run_for(SECOND);
    simulated.fault_rates.refuse_dial = 1;
    simulated.cut_all();
    simulated.run_for(5 * SECOND);
    let endings = simulated.endings();
    let [(1, Err(error))] = &endings[..] else {
        panic!("{endings:?}");
    };
    assert!(error.may_have_happened(), "{error}");
}
