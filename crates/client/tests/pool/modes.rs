//! How calls share connections, and how many there are.

use std::time::Duration;

use client::{
    Balancing, CallError, EndpointHealth, HealthCheck, NotBegun, PoolMode, PoolOptions, PoolSize,
};

use crate::basics::{ECHO, call, fixed, simulated};
use crate::server::ServerBehavior;
use crate::simulated::{MS, SECOND, SimulatedPool};

fn automatic(min: usize, max: usize) -> PoolOptions {
    PoolOptions {
        size: PoolSize::Automatic { min, max },
        idle_timeout: Duration::from_secs(10),
        ..PoolOptions::default()
    }
}

fn slow() -> ServerBehavior {
    ServerBehavior {
        slow: (1, 100 * MS),
        ..ServerBehavior::default()
    }
}

fn begin(simulated: &mut SimulatedPool, count: u64) {
    for tag in 0..count {
        simulated.begin(tag, &call(ECHO)).expect("there is room");
    }
    simulated.run_for(10 * MS);
}

fn finish(simulated: &mut SimulatedPool, count: usize) {
    simulated.run_for(5 * SECOND);
    let endings = simulated.endings();
    assert_eq!(endings.len(), count);
    assert!(
        endings.iter().all(|(_, result)| result.is_ok()),
        "{endings:?}"
    );
    simulated.assert_at_rest();
}

#[test]
fn another_connection_is_opened_when_calls_wait_for_a_stream_and_closed_when_idle() {
    let behavior = ServerBehavior {
        max_streams: Some(10),
        ..slow()
    };
    let mut simulated = simulated(automatic(1, 4), behavior);
    simulated.run_for(SECOND);
    for _ in 0..2 {
        assert_eq!(simulated.open_links(), 1);
        begin(&mut simulated, 25);
        assert_eq!(simulated.open_links(), 3);
        finish(&mut simulated, 25);
        begin(&mut simulated, 200);
        assert_eq!(simulated.open_links(), 4);
        assert_eq!(simulated.statistics().in_flight, 40);
        assert_eq!(simulated.statistics().waiting_for_stream, 160);
        finish(&mut simulated, 200);
        simulated.run_for(60 * SECOND);
    }
}

#[test]
fn another_connection_is_opened_when_one_saturates_a_core() {
    let mut simulated = simulated(automatic(1, 2), ServerBehavior::default());
    simulated.run_for(SECOND);
    for _ in 0..2 {
        assert_eq!(simulated.open_links(), 1);
        for percent in [80, 95] {
            for _ in 0..30 {
                let open = simulated
                    .engine
                    .statistics(simulated.now_ns)
                    .connections
                    .len();
                assert!(percent == 95 || open == 1);
                let keys = simulated.open_keys();
                simulated.engine.note_busy(keys[0], percent * MS);
                simulated.run_for(100 * MS);
            }
        }
        assert_eq!(simulated.open_links(), 2);
        simulated.run_for(60 * SECOND);
    }
}

#[test]
fn an_automatic_pool_may_have_no_connection_when_idle() {
    let mut simulated = simulated(automatic(0, 2), ServerBehavior::default());
    for _ in 0..2 {
        simulated.run_for(SECOND);
        assert_eq!(simulated.open_links(), 0);
        simulated.echo(1).expect("a connection is made");
        assert_eq!(simulated.open_links(), 1);
        simulated.run_for(60 * SECOND);
    }
}

#[test]
fn an_exclusive_connection_has_one_call_at_a_time() {
    let options = PoolOptions {
        mode: PoolMode::Exclusive,
        ..automatic(1, 3)
    };
    let mut simulated = simulated(options, slow());
    simulated.run_for(SECOND);
    for _ in 0..2 {
        begin(&mut simulated, 5);
        let statistics = simulated.statistics();
        assert!(statistics.connections.iter().all(|c| c.in_flight == 1));
        assert_eq!(
            (statistics.in_flight, statistics.waiting_for_stream),
            (3, 2)
        );
        finish(&mut simulated, 5);
    }
    assert_eq!(simulated.statistics().counters.dials, 3);
}

#[test]
fn a_short_connection_has_one_call() {
    let options = PoolOptions {
        mode: PoolMode::Short,
        ..fixed(3)
    };
    let mut simulated = simulated(options, slow());
    simulated.run_for(SECOND);
    for round in 1..3 {
        assert_eq!(simulated.open_links(), 0);
        begin(&mut simulated, 5);
        assert_eq!(simulated.open_links(), 3);
        finish(&mut simulated, 5);
        assert_eq!(simulated.statistics().counters.dials, 5 * round);
        assert_eq!(simulated.closed, 5 * round);
    }
}

#[test]
fn a_short_connection_that_no_call_took_is_closed() {
    let options = PoolOptions {
        mode: PoolMode::Short,
        idle_timeout: Duration::from_secs(10),
        ..fixed(3)
    };
    let mut simulated = simulated(options, ServerBehavior::default());
    for _ in 0..2 {
        let now_ns = simulated.now_ns;
        let unused = simulated.engine.begin(1, &call(ECHO), now_ns, |_| {});
        simulated.turn();
        simulated.engine.cancel(unused.expect("it waits"), now_ns);
        simulated.run_for(SECOND);
        assert_eq!(simulated.open_links(), 1);
        simulated.run_for(30 * SECOND);
        assert_eq!(simulated.open_links(), 0);
    }
}

#[test]
fn the_least_loaded_connection_takes_the_call() {
    let mut simulated = SimulatedPool::new(fixed(2), vec![slow(), slow()], 7);
    simulated.run_for(SECOND);
    for _ in 0..2 {
        begin(&mut simulated, 40);
        let statistics = simulated.statistics();
        assert!(
            statistics.connections.iter().all(|c| c.in_flight == 10),
            "{statistics:?}"
        );
        finish(&mut simulated, 40);
    }
}

#[test]
fn addresses_take_turns_also_when_one_has_more_connections_or_calls() {
    let options = PoolOptions {
        balancing: Balancing::RoundRobin,
        ..fixed(2)
    };
    let mut slower = slow();
    slower.slow = (1, SECOND);
    let mut simulated = SimulatedPool::new(options, vec![slow(), slower], 7);
    simulated.run_for(SECOND);
    for _ in 0..2 {
        for _ in 0..4 {
            begin(&mut simulated, 10);
            simulated.run_for(100 * MS);
        }
        let statistics = simulated.statistics();
        let begun = |endpoint| {
            let all = statistics.connections.iter();
            all.filter(|c| c.endpoint == endpoint)
                .map(|c| c.begun)
                .sum::<u64>()
        };
        assert_eq!(begun(0), begun(1));
        finish(&mut simulated, 40);
    }
}

#[test]
fn calls_go_to_the_other_address_when_one_is_gone() {
    let mut simulated = SimulatedPool::new(fixed(1), vec![slow(), slow()], 7);
    simulated.run_for(2 * SECOND);
    for tag in 0..2 {
        simulated.fault_rates.refuse_dial = 1;
        simulated.cut(0);
        simulated.run_for(SECOND);
        assert_eq!(simulated.open_links(), 1);
        simulated.echo(tag).expect("the other address serves");
        simulated.fault_rates.refuse_dial = 0;
        simulated.run_for(60 * SECOND);
        assert_eq!(simulated.open_links(), 2);
    }
}

/// Nothing is made anew by itself there: a call that comes when the pause is over finds out.
#[test]
fn a_pool_that_keeps_no_connection_finds_a_server_that_is_back() {
    let short = PoolOptions {
        mode: PoolMode::Short,
        ..PoolOptions::default()
    };
    for options in [short, automatic(0, 8)] {
        let mut simulated = SimulatedPool::new(options, vec![slow()], 7);
        simulated.echo(0).expect("it serves");
        for tag in 1..4 {
            simulated.fault_rates.refuse_dial = 1;
            if simulated.open_links() > 0 {
                simulated.cut(0);
            }
            for _ in 0..3 {
                simulated.run_for(SECOND);
                let gone = simulated.echo(tag).expect_err("nobody listens");
                let is_unreachable =
                    matches!(gone, CallError::NotBegun(NotBegun::Unreachable { .. }));
                assert!(is_unreachable, "{gone}");
            }
            simulated.fault_rates.refuse_dial = 0;
            simulated.run_for(SECOND);
            simulated.echo(tag).expect("it serves again");
        }
    }
}

/// Connections that end together are made together, and fail together.
#[test]
fn many_connections_that_fail_at_once_are_one_failure() {
    let mut simulated = SimulatedPool::new(fixed(32), vec![slow()], 7);
    simulated.run_for(2 * SECOND);
    for tag in 0..3 {
        simulated.echo(tag).expect("it serves");
        simulated.fault_rates.refuse_dial = 1;
        simulated.cut(0);
        simulated.run_for(SECOND / 20);
        simulated.fault_rates.refuse_dial = 0;
        simulated.run_for(SECOND);
        assert_eq!(simulated.open_links(), 32);
    }
}

fn checked(interval: Option<Duration>) -> PoolOptions {
    PoolOptions {
        health: Some(HealthCheck {
            service: "a.B".into(),
            interval,
        }),
        ..fixed(1)
    }
}

#[test]
fn an_address_that_does_not_serve_gets_no_calls() {
    for interval in [None, Some(Duration::from_secs(1))] {
        let serving = ServerBehavior {
            is_serving: Some(true),
            ..slow()
        };
        let mut simulated =
            SimulatedPool::new(checked(interval), vec![serving.clone(), serving], 7);
        simulated.run_for(2 * SECOND);
        for _ in 0..2 {
            begin(&mut simulated, 10);
            let begun = |simulated: &mut SimulatedPool| -> Vec<u64> {
                simulated
                    .statistics()
                    .connections
                    .iter()
                    .map(|c| c.begun)
                    .collect()
            };
            let before = begun(&mut simulated);
            finish(&mut simulated, 10);
            simulated.set_serving(0, false);
            simulated.run_for(2 * SECOND);
            let health = simulated.statistics().endpoints[0].health;
            assert_eq!(health, EndpointHealth::Unhealthy);
            begin(&mut simulated, 10);
            finish(&mut simulated, 10);
            let after = begun(&mut simulated);
            assert_eq!((after[0], after[1]), (before[0], before[1] + 10));
            simulated.set_serving(1, false);
            simulated.run_for(2 * SECOND);
            let refused = simulated.begin(1, &call(ECHO)).expect_err("nobody serves");
            assert!(
                matches!(&refused, CallError::NotBegun(NotBegun::Unreachable { reason })
                    if reason.contains("is not serving")),
                "{refused}"
            );
            simulated.set_serving(0, true);
            simulated.set_serving(1, true);
            simulated.run_for(2 * SECOND);
        }
    }
}

#[test]
fn a_server_without_health_checks_is_healthy() {
    let mut simulated = simulated(checked(None), ServerBehavior::default());
    for tag in 0..2 {
        simulated.run_for(2 * SECOND);
        let health = simulated.statistics().endpoints[0].health;
        assert_eq!(health, EndpointHealth::Healthy);
        simulated.echo(tag).expect("it serves");
        simulated.cut_all();
        simulated.turn();
    }
}

/// A window in which they were needed may have begun long before that.
#[test]
fn connections_stay_for_the_idle_time_after_they_were_needed_and_not_much_longer() {
    let behavior = ServerBehavior {
        max_streams: Some(10),
        ..slow()
    };
    for offset in 0..11 {
        let mut simulated = simulated(automatic(1, 4), behavior.clone());
        simulated.run_for(SECOND);
        for _ in 0..2 {
            let trickle = |simulated: &mut SimulatedPool, seconds: u64| {
                for _ in 0..2 * seconds {
                    simulated.begin(1, &call(ECHO)).expect("there is room");
                    simulated.run_for(SECOND / 2);
                    assert_eq!(simulated.endings().len(), 1);
                }
            };
            trickle(&mut simulated, offset);
            begin(&mut simulated, 25);
            simulated.run_for(SECOND);
            assert_eq!((simulated.endings().len(), simulated.open_links()), (25, 3));
            trickle(&mut simulated, 8);
            assert_eq!(simulated.open_links(), 3, "offset {offset}");
            trickle(&mut simulated, 14);
            assert_eq!(simulated.open_links(), 1, "offset {offset}");
        }
    }
}

fn health(simulated: &mut SimulatedPool) -> EndpointHealth {
    simulated.statistics().endpoints[0].health
}

#[test]
fn a_health_check_that_was_answered_does_not_time_out() {
    for (interval, is_serving, requests) in [
        (None, Some(true), 1),
        (None, None, 1),
        (Some(Duration::from_secs(20)), Some(true), 3),
        (Some(Duration::from_secs(20)), None, 1),
    ] {
        let behavior = ServerBehavior {
            is_serving,
            ..ServerBehavior::default()
        };
        let mut simulated = simulated(checked(interval), behavior);
        simulated.run_for(SECOND);
        for _ in 0..500 {
            assert_eq!(health(&mut simulated), EndpointHealth::Healthy);
            simulated.run_for(SECOND / 10);
        }
        assert_eq!(
            simulated.server_counts.requests, requests,
            "{interval:?} {is_serving:?}"
        );
    }
}

#[test]
fn a_health_check_that_is_not_answered_fails_once_and_is_made_again() {
    let silent = ServerBehavior {
        is_health_silent: true,
        is_serving: Some(true),
        ..ServerBehavior::default()
    };
    for interval in [None, Some(Duration::from_secs(1))] {
        let mut simulated = simulated(checked(interval), silent.clone());
        simulated.run_for(4 * SECOND);
        assert_eq!(health(&mut simulated), EndpointHealth::Unknown);
        simulated.run_for(2 * SECOND);
        assert_eq!(health(&mut simulated), EndpointHealth::Unhealthy);
        // Five seconds each, and pauses of 100 ms and more.
        simulated.run_for(20 * SECOND);
        assert!(
            (4..=5).contains(&simulated.server_counts.requests),
            "{:?}",
            simulated.server_counts
        );
        simulated.behavior[0].is_health_silent = false;
        simulated.run_for(7 * SECOND);
        assert_eq!(health(&mut simulated), EndpointHealth::Healthy);
    }
}

#[test]
fn a_health_check_does_not_time_out_for_a_connection_that_is_gone() {
    let silent = ServerBehavior {
        is_health_silent: true,
        ..ServerBehavior::default()
    };
    let mut simulated = simulated(checked(None), silent);
    for _ in 0..2 {
        simulated.run_for(2 * SECOND);
        simulated.fault_rates.refuse_dial = 1;
        simulated.drain(0);
        simulated.run_for(20 * SECOND);
        assert_eq!(simulated.open_links(), 0);
        assert_eq!(health(&mut simulated), EndpointHealth::Unknown);
        simulated.fault_rates.refuse_dial = 0;
        while simulated.open_links() == 0 {
            assert!(simulated.step(u64::MAX));
        }
    }
}

/// Each of its messages is work for all: it is not asked for a while, and then again.
#[test]
fn an_address_that_changes_its_mind_without_end_does_not_serve() {
    let serving = ServerBehavior {
        is_serving: Some(true),
        ..slow()
    };
    let mut simulated = SimulatedPool::new(checked(None), vec![serving], 7);
    simulated.run_for(2 * SECOND);
    let health = |simulated: &mut SimulatedPool| simulated.statistics().endpoints[0].health;
    for _ in 0..2 {
        for change in 0..20 {
            simulated.set_serving(0, change % 2 == 1);
            simulated.run_for(50 * MS);
        }
        assert_eq!(health(&mut simulated), EndpointHealth::Healthy);
        for change in 0..200 {
            simulated.set_serving(0, change % 2 == 1);
            simulated.run_for(MS);
        }
        simulated.run_for(SECOND);
        assert_eq!(health(&mut simulated), EndpointHealth::Unhealthy);
        simulated.run_for(20 * SECOND);
        assert_eq!(health(&mut simulated), EndpointHealth::Healthy);
    }
}
