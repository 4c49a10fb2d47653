//! What once went wrong with pools, each with what shows it.

use client::{
    CallError, EndpointHealth, HealthCheck, PoolAction, PoolCall, PoolEndpoint, PoolEngine,
    PoolEvent, PoolMode, PoolOptions, PoolSize,
};
use wire::http2::frame;

use crate::basics::{ECHO, call, fixed, simulated};
use crate::server::ServerBehavior;
use crate::simulated::{MS, SECOND, SimulatedPool};

fn automatic(min: usize, max: usize) -> PoolOptions {
    PoolOptions {
        size: PoolSize::Automatic { min, max },
        ..PoolOptions::default()
    }
}

fn checked(options: PoolOptions) -> PoolOptions {
    PoolOptions {
        health: Some(HealthCheck {
            service: String::new(),
            interval: None,
        }),
        ..options
    }
}

fn serving() -> ServerBehavior {
    ServerBehavior {
        is_serving: Some(true),
        ..ServerBehavior::default()
    }
}

/// What a driver does before it waits.
fn flush(simulated: &mut SimulatedPool) {
    let now_ns = simulated.now_ns;
    while let Some(key) = simulated.engine.next_output(now_ns) {
        let count = simulated.engine.output(key).len();
        simulated.engine.written(key, count, false, now_ns);
    }
}

#[test]
fn the_permit_of_a_cancelled_call_goes_to_the_next_call_at_once() {
    let options = PoolOptions {
        max_in_flight: 1,
        ..fixed(1)
    };
    let mut simulated = simulated(options, ServerBehavior::default());
    simulated.run_for(SECOND);
    for _ in 0..2 {
        let now_ns = simulated.now_ns;
        let running = simulated
            .engine
            .begin(0, &call("/t.T/Silent"), now_ns, |_| {});
        let running = running.expect("room");
        simulated.begin(1, &call(ECHO)).expect("it may wait");
        simulated.turn();
        simulated.engine.cancel(running, now_ns);
        flush(&mut simulated);
        let due_ns = simulated.engine.next_deadline_ns().expect("it is open") - now_ns;
        assert!(
            simulated.engine.is_busy() || due_ns == 0,
            "a driver sleeps {} ms, and a call waits for a permit that is free",
            due_ns / MS
        );
        simulated.run_for(SECOND);
        assert_eq!(simulated.endings().len(), 1);
    }
}

#[test]
fn an_address_that_did_not_serve_is_asked_again_though_it_has_no_connection() {
    let mut simulated = simulated(checked(automatic(0, 2)), serving());
    for round in 0..2 {
        simulated.echo(1).expect("it serves");
        // As a server that is restarted.
        simulated.set_serving(0, false);
        simulated.run_for(SECOND);
        simulated.cut(0);
        simulated.run_for(SECOND);
        simulated.behavior[0].is_serving = Some(true);
        for _ in 0..60 {
            simulated.run_for(10 * SECOND);
            if simulated.begin(2, &call(ECHO)).is_ok() {
                break;
            }
        }
        simulated.run_for(10 * SECOND);
        let statistics = simulated.statistics();
        assert!(
            simulated.endings().iter().any(|(_, ended)| ended.is_ok()),
            "round {round}: it has served for 600 s: {:?} dials {}",
            statistics.endpoints,
            statistics.counters.dials
        );
    }
}

#[test]
fn a_health_check_of_a_short_connection_does_not_outlive_it() {
    let options = PoolOptions {
        mode: PoolMode::Short,
        ..checked(fixed(1))
    };
    let mut simulated = simulated(options, serving());
    simulated.echo(1).expect("it serves");
    // From here on the answer of a check is slower than that of a call.
    simulated.behavior[0].is_health_silent = true;
    simulated.echo(2).expect("it serves");
    let health = simulated.statistics().endpoints[0].health;
    assert_eq!(health, EndpointHealth::Healthy);
    simulated.behavior[0].is_health_silent = false;
    simulated.run_for(60 * SECOND);
    simulated.echo(3).expect("it serves");
}

#[test]
fn a_health_check_that_is_under_way_costs_no_further_connections() {
    for (is_health_silent, time_ns) in [(false, SECOND), (true, 4 * SECOND)] {
        let behavior = ServerBehavior {
            is_health_silent,
            ..serving()
        };
        let mut simulated = simulated(checked(automatic(1, 64)), behavior);
        simulated.fault_rates.latency_ns = 10 * MS;
        simulated.begin(1, &call(ECHO)).expect("it may wait");
        simulated.run_for(time_ns);
        let dials = simulated.statistics().counters.dials;
        assert_eq!(dials, 1, "for one call, silent: {is_health_silent}");
    }
}

#[test]
fn one_call_needs_one_of_several_addresses_to_be_asked_whether_it_serves() {
    let slow = ServerBehavior {
        health_latency_ns: SECOND / 2,
        ..serving()
    };
    let behavior = vec![slow; 4];
    let mut simulated = SimulatedPool::new(checked(automatic(0, 64)), behavior, 7);
    simulated.fault_rates.latency_ns = 10 * MS;
    for _ in 0..2 {
        simulated.echo(1).expect("it serves");
        assert_eq!(simulated.statistics().counters.dials, 1);
    }
}

#[test]
fn a_server_that_allows_no_stream_costs_no_further_connections() {
    for (mode, most) in [(PoolMode::Multiplexed, 1), (PoolMode::Exclusive, 2)] {
        let options = PoolOptions {
            mode,
            ..automatic(1, 64)
        };
        let behavior = ServerBehavior {
            max_streams: Some(0),
            ..ServerBehavior::default()
        };
        let mut simulated = simulated(options, behavior);
        for tag in 0..2 {
            simulated.begin(tag, &call(ECHO)).expect("it may wait");
            simulated.run_for(5 * SECOND);
        }
        let dials = simulated.statistics().counters.dials;
        assert!(dials <= most, "{dials} for {mode:?}");
    }
}

#[test]
fn calls_have_a_connection_beside_a_watch_that_takes_the_only_stream() {
    let behavior = ServerBehavior {
        max_streams: Some(1),
        ..serving()
    };
    let mut simulated = simulated(checked(automatic(1, 4)), behavior);
    simulated.run_for(SECOND);
    for tag in 0..2 {
        simulated.echo(tag).expect("it serves");
        assert_eq!(simulated.statistics().counters.dials, 2);
    }
}

#[test]
fn connections_are_closed_though_a_call_begins_now_and_then() {
    let behavior = ServerBehavior {
        max_streams: Some(10),
        latency_ns: 100 * MS,
        ..ServerBehavior::default()
    };
    let mut simulated = simulated(automatic(1, 4), behavior);
    simulated.run_for(SECOND);
    for _ in 0..2 {
        for tag in 0..25 {
            simulated.begin(tag, &call(ECHO)).expect("room");
        }
        simulated.run_for(SECOND);
        assert_eq!(simulated.open_links(), 3);
        for _ in 0..60 {
            simulated.run_for(5 * SECOND);
            simulated.begin(1, &call(ECHO)).expect("room");
        }
        assert_eq!(simulated.open_links(), 1, "300 s with a call each 5 s");
    }
}

#[test]
fn an_earlier_attempt_is_not_forgotten_for_a_head_that_is_too_large() {
    let endpoint = |number: u32| PoolEndpoint {
        name: number.to_string(),
        authority: number.to_string(),
    };
    let options = fixed(1);
    let mut engine = PoolEngine::new(vec![endpoint(0), endpoint(1)], options, 1, 0);
    let mut ended = Vec::new();
    let mut poll = |engine: &mut PoolEngine, now_ns: u64| {
        while let Some(key) = engine.next_output(now_ns) {
            let count = engine.output(key).len();
            engine.written(key, count, false, now_ns);
        }
        engine.poll(now_ns, &mut |event| {
            if let PoolEvent::Ended { result, .. } = event {
                ended.push(result.map(|_| ()));
            }
        });
        ended.pop()
    };
    poll(&mut engine, 0);
    let mut dialed = Vec::new();
    while let Some(action) = engine.next_action() {
        if let PoolAction::Dial { connection, .. } = action {
            dialed.push(connection);
        }
    }
    let greet = |engine: &mut PoolEngine, number: usize, settings: &[(u16, u32)], now_ns| {
        let mut bytes = Vec::new();
        frame::write_settings(&mut bytes, settings);
        engine.connected(dialed[number], now_ns);
        engine.received(dialed[number], &bytes, now_ns);
    };
    greet(&mut engine, 0, &[], MS);
    poll(&mut engine, MS);
    let repeatable = PoolCall {
        is_repeatable: true,
        ..call(ECHO)
    };
    engine.begin(1, &repeatable, MS, |_| {}).expect("room");
    assert!(poll(&mut engine, MS).is_none());
    greet(&mut engine, 1, &[(6, 100)], 2 * MS);
    assert!(poll(&mut engine, 2 * MS).is_none());
    engine.disconnected(dialed[0], "it is gone", 3 * MS);
    assert!(poll(&mut engine, 3 * MS).is_none(), "made again");
    let ended = poll(&mut engine, SECOND).or_else(|| poll(&mut engine, 2 * SECOND));
    let error: CallError = ended.expect("it has ended").expect_err("it fails");
    assert!(
        error.may_have_happened(),
        "the first attempt may: {error:?}"
    );
}

#[test]
fn slow_calls_beside_streams_that_last_take_no_pool_out_of_use() {
    let mut simulated = simulated(fixed(1), ServerBehavior::default());
    simulated.run_for(SECOND);
    let slow = PoolCall {
        timeout_ns: Some(2 * SECOND),
        ..call("/t.T/Silent")
    };
    for tag in 0..40 {
        // A stream that says nothing for long, as one that watches.
        simulated.begin(tag, &call("/t.T/Silent")).expect("room");
        simulated.run_for(SECOND);
        simulated.begin(100 + tag, &slow).expect("room");
        simulated.run_for(4 * SECOND);
    }
    simulated.endings();
    simulated.begin(1000, &call(ECHO)).expect("room");
    simulated.run_for(100 * SECOND);
    let ended = simulated.endings();
    let statistics = simulated.statistics();
    assert!(
        ended
            .iter()
            .any(|(tag, ended)| *tag == 1000 && ended.is_ok()),
        "the server answers, and the pool does not ask it: {} connections, waiting {}, {ended:?}",
        statistics.connections.len(),
        statistics.waiting_for_connection
    );
}

#[test]
fn a_call_that_waits_for_an_address_to_serve_does_not_count_as_waiting_for_a_stream() {
    let mut simulated = simulated(checked(fixed(1)), serving());
    simulated.run_for(SECOND);
    simulated.set_serving(0, false);
    simulated.run_for(SECOND);
    let patient = PoolCall {
        waits_for_ready: true,
        ..call(ECHO)
    };
    simulated.begin(1, &patient).expect("it may wait");
    simulated.run_for(SECOND);
    assert_eq!(simulated.statistics().waiting_for_stream, 0);
}

#[test]
fn times_of_waiting_for_a_socket_never_shrink() {
    let mut simulated = simulated(fixed(1), ServerBehavior::default());
    simulated.run_for(SECOND);
    for _ in 0..2 {
        let now_ns = simulated.now_ns;
        let key = simulated.open_keys()[0];
        simulated.begin(1, &call("/t.T/Silent")).expect("room");
        let named = simulated.engine.next_output(now_ns);
        assert_eq!(named, Some(key));
        simulated.engine.written(key, 1, true, now_ns);
        assert_eq!(simulated.engine.next_output(now_ns), None);
        let before_ns = simulated
            .engine
            .statistics(now_ns + SECOND)
            .traffic
            .socket_wait_ns;
        simulated.now_ns += SECOND;
        simulated.cut(0);
        simulated.turn();
        let after_ns = simulated.statistics().traffic.socket_wait_ns;
        assert!(after_ns >= before_ns, "{after_ns} after {before_ns}");
        simulated.run_for(SECOND);
        simulated.endings();
    }
}

#[test]
fn an_address_that_says_nothing_keeps_no_other_one_from_more_connections() {
    let good = ServerBehavior {
        max_streams: Some(1),
        slow: (1, SECOND),
        ..ServerBehavior::default()
    };
    let mute = ServerBehavior {
        is_mute: true,
        ..ServerBehavior::default()
    };
    for mode in [PoolMode::Multiplexed, PoolMode::Exclusive] {
        let options = PoolOptions {
            mode,
            ..automatic(1, 16)
        };
        let mut simulated = SimulatedPool::new(options, vec![good.clone(), mute.clone()], 7);
        for tag in 0..8 {
            simulated.begin(tag, &call(ECHO)).expect("it may wait");
        }
        simulated.run_for(5 * SECOND);
        let ended = simulated.endings().len();
        let endpoints = simulated.statistics().endpoints;
        let connections: Vec<_> = endpoints.iter().map(|state| state.connections).collect();
        assert_eq!(
            ended, 8,
            "of 1 s each in 5 s, {mode:?}, connections {connections:?}"
        );
    }
}

#[test]
fn a_connection_keeps_its_label_when_another_one_ends() {
    let behavior = ServerBehavior::default();
    let mut simulated = SimulatedPool::new(fixed(1), vec![behavior.clone(), behavior], 7);
    simulated.run_for(SECOND);
    for tag in 0..2 {
        simulated
            .begin(tag, &call("/t.T/Silent"))
            .expect("there is room");
    }
    simulated.turn();
    let before = simulated.statistics().connections;
    assert_eq!(before.len(), 2);
    // A pool that was closed replaces none.
    simulated.engine.close(10 * SECOND, simulated.now_ns);
    simulated.cut(before[0].endpoint);
    simulated.turn();
    let after = simulated.statistics();
    assert_eq!(after.connections.len(), 1);
    let label = format!("connection=\"{}\"", before[1].slot);
    assert!(after.prometheus("orders").contains(&label), "{label}");
}
