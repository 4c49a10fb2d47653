//! How calls share connections, and how many there are.

use std::time::Duration;

use client::{
    Balancing, CallError, EndpointHealth, HealthCheck, NotBegun, PoolMode, PoolOptions, PoolSize,
};

use crate::basics::{ECHO, call, fixed, world};
use crate::server::Manners;
use crate::world::{MS, SECOND, World};

fn automatic(min: usize, max: usize) -> PoolOptions {
    PoolOptions {
        size: PoolSize::Automatic { min, max },
        idle_timeout: Duration::from_secs(10),
        ..PoolOptions::default()
    }
}

fn slow() -> Manners {
    Manners {
        slow: (1, 100 * MS),
        ..Manners::default()
    }
}

fn begin(world: &mut World, count: u64) {
    for tag in 0..count {
        world.begin(tag, &call(ECHO)).expect("there is room");
    }
    world.run_for(10 * MS);
}

fn finish(world: &mut World, count: usize) {
    world.run_for(5 * SECOND);
    let endings = world.endings();
    assert_eq!(endings.len(), count);
    assert!(
        endings.iter().all(|(_, result)| result.is_ok()),
        "{endings:?}"
    );
    world.assert_at_rest();
}

#[test]
fn another_connection_is_opened_when_calls_wait_for_a_stream_and_closed_when_idle() {
    let manners = Manners {
        max_streams: Some(10),
        ..slow()
    };
    let mut world = world(automatic(1, 4), manners);
    world.run_for(SECOND);
    for _ in 0..2 {
        assert_eq!(world.open_links(), 1);
        begin(&mut world, 25);
        assert_eq!(world.open_links(), 3);
        finish(&mut world, 25);
        begin(&mut world, 200);
        assert_eq!(world.open_links(), 4);
        assert_eq!(world.statistics().in_flight, 40);
        assert_eq!(world.statistics().waiting_for_stream, 160);
        finish(&mut world, 200);
        world.run_for(60 * SECOND);
    }
}

#[test]
fn another_connection_is_opened_when_one_saturates_a_core() {
    let mut world = world(automatic(1, 2), Manners::default());
    world.run_for(SECOND);
    for _ in 0..2 {
        assert_eq!(world.open_links(), 1);
        for percent in [80, 95] {
            for _ in 0..30 {
                let open = world.engine.statistics(world.now_ns).connections.len();
                assert!(percent == 95 || open == 1);
                let keys = world.open_keys();
                world.engine.note_busy(keys[0], percent * MS);
                world.run_for(100 * MS);
            }
        }
        assert_eq!(world.open_links(), 2);
        world.run_for(60 * SECOND);
    }
}

#[test]
fn an_automatic_pool_may_have_no_connection_when_idle() {
    let mut world = world(automatic(0, 2), Manners::default());
    for _ in 0..2 {
        world.run_for(SECOND);
        assert_eq!(world.open_links(), 0);
        world.echo(1).expect("a connection is made");
        assert_eq!(world.open_links(), 1);
        world.run_for(60 * SECOND);
    }
}

#[test]
fn an_exclusive_connection_has_one_call_at_a_time() {
    let options = PoolOptions {
        mode: PoolMode::Exclusive,
        ..automatic(1, 3)
    };
    let mut world = world(options, slow());
    world.run_for(SECOND);
    for _ in 0..2 {
        begin(&mut world, 5);
        let statistics = world.statistics();
        assert!(statistics.connections.iter().all(|c| c.in_flight == 1));
        assert_eq!(
            (statistics.in_flight, statistics.waiting_for_stream),
            (3, 2)
        );
        finish(&mut world, 5);
    }
    assert_eq!(world.statistics().counters.dials, 3);
}

#[test]
fn a_short_connection_has_one_call() {
    let options = PoolOptions {
        mode: PoolMode::Short,
        ..fixed(3)
    };
    let mut world = world(options, slow());
    world.run_for(SECOND);
    for round in 1..3 {
        assert_eq!(world.open_links(), 0);
        begin(&mut world, 5);
        assert_eq!(world.open_links(), 3);
        finish(&mut world, 5);
        assert_eq!(world.statistics().counters.dials, 5 * round);
        assert_eq!(world.closed, 5 * round);
    }
}

#[test]
fn a_short_connection_that_no_call_took_is_closed() {
    let options = PoolOptions {
        mode: PoolMode::Short,
        idle_timeout: Duration::from_secs(10),
        ..fixed(3)
    };
    let mut world = world(options, Manners::default());
    for _ in 0..2 {
        let now_ns = world.now_ns;
        let unused = world.engine.begin(1, &call(ECHO), now_ns, |_| {});
        world.turn();
        world.engine.cancel(unused.expect("it waits"), now_ns);
        world.run_for(SECOND);
        assert_eq!(world.open_links(), 1);
        world.run_for(30 * SECOND);
        assert_eq!(world.open_links(), 0);
    }
}

#[test]
fn the_least_loaded_connection_takes_the_call() {
    let mut world = World::new(fixed(2), vec![slow(), slow()], 7);
    world.run_for(SECOND);
    for _ in 0..2 {
        begin(&mut world, 40);
        let statistics = world.statistics();
        assert!(
            statistics.connections.iter().all(|c| c.in_flight == 10),
            "{statistics:?}"
        );
        finish(&mut world, 40);
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
    let mut world = World::new(options, vec![slow(), slower], 7);
    world.run_for(SECOND);
    for _ in 0..2 {
        for _ in 0..4 {
            begin(&mut world, 10);
            world.run_for(100 * MS);
        }
        let statistics = world.statistics();
        let begun = |endpoint| {
            let all = statistics.connections.iter();
            all.filter(|c| c.endpoint == endpoint)
                .map(|c| c.begun)
                .sum::<u64>()
        };
        assert_eq!(begun(0), begun(1));
        finish(&mut world, 40);
    }
}

#[test]
fn calls_go_to_the_other_address_when_one_is_gone() {
    let mut world = World::new(fixed(1), vec![slow(), slow()], 7);
    world.run_for(2 * SECOND);
    for tag in 0..2 {
        world.weather.refuse_dial = 1;
        world.cut(0);
        world.run_for(SECOND);
        assert_eq!(world.open_links(), 1);
        world.echo(tag).expect("the other address serves");
        world.weather.refuse_dial = 0;
        world.run_for(60 * SECOND);
        assert_eq!(world.open_links(), 2);
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
        let serving = Manners {
            is_serving: Some(true),
            ..slow()
        };
        let mut world = World::new(checked(interval), vec![serving.clone(), serving], 7);
        world.run_for(2 * SECOND);
        for _ in 0..2 {
            begin(&mut world, 10);
            let begun = |world: &mut World| -> Vec<u64> {
                world
                    .statistics()
                    .connections
                    .iter()
                    .map(|c| c.begun)
                    .collect()
            };
            let before = begun(&mut world);
            finish(&mut world, 10);
            world.set_serving(0, false);
            world.run_for(2 * SECOND);
            let health = world.statistics().endpoints[0].health;
            assert_eq!(health, EndpointHealth::Unhealthy);
            begin(&mut world, 10);
            finish(&mut world, 10);
            let after = begun(&mut world);
            assert_eq!((after[0], after[1]), (before[0], before[1] + 10));
            world.set_serving(1, false);
            world.run_for(2 * SECOND);
            let refused = world.begin(1, &call(ECHO)).expect_err("nobody serves");
            assert!(
                matches!(&refused, CallError::NotBegun(NotBegun::Unreachable { reason })
                    if reason.contains("is not serving")),
                "{refused}"
            );
            world.set_serving(0, true);
            world.set_serving(1, true);
            world.run_for(2 * SECOND);
        }
    }
}

#[test]
fn a_server_without_health_checks_is_healthy() {
    let mut world = world(checked(None), Manners::default());
    for tag in 0..2 {
        world.run_for(2 * SECOND);
        let health = world.statistics().endpoints[0].health;
        assert_eq!(health, EndpointHealth::Healthy);
        world.echo(tag).expect("it serves");
        world.cut_all();
        world.turn();
    }
}
