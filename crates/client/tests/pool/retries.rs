//! Which calls are made again, and what a caller hears of targets that fail.

use client::{CallError, NotBegun, PoolCall, PoolOptions, PoolSize, RetryOptions, limits};

use crate::basics::{ECHO, call, fixed, simulated};
use crate::server::ServerBehavior;
use crate::simulated::{MS, SECOND, SimulatedPool};

fn repeatable() -> PoolCall<'static> {
    PoolCall {
        is_repeatable: true,
        ..call(ECHO)
    }
}

fn ending(simulated: &mut SimulatedPool, call: &PoolCall<'_>) -> Result<(), CallError> {
    simulated.done.clear();
    simulated.begin(1, call)?;
    simulated.run_for(20 * SECOND);
    let (_, ending) = simulated.endings().pop().expect("it has ended");
    simulated.assert_at_rest();
    ending
}

#[test]
fn a_server_that_refuses_each_call_gets_so_many_attempts() {
    let refusing = ServerBehavior {
        refuse: 1,
        ..ServerBehavior::default()
    };
    let mut simulated = simulated(fixed(1), refusing);
    for round in 1..3 {
        let error = ending(&mut simulated, &call(ECHO)).expect_err("it is refused");
        assert!(
            matches!(error, CallError::NotBegun(NotBegun::Refused)),
            "{error}"
        );
        assert_eq!(
            (simulated.server_counts.refused, simulated.done[1]),
            (5 * round, 0)
        );
        assert_eq!(simulated.statistics().counters.retries, 4 * round);
        assert!(simulated.statistics().wait_times.pause_ns > 0);
    }
    simulated.behavior[0].refuse = 0;
    ending(&mut simulated, &call(ECHO)).expect("it is not refused any more");
}

/// Each is refused beside others, on one connection after the other, and none of those others ever
/// ends otherwise.
#[test]
fn a_server_that_refuses_all_of_many_calls_is_not_asked_for_ever() {
    const CALLS: u64 = 1_000;
    let options = PoolOptions {
        size: PoolSize::Automatic { min: 1, max: 64 },
        ..PoolOptions::default()
    };
    let refusing = ServerBehavior {
        refuse: 1,
        ..ServerBehavior::default()
    };
    let mut simulated = simulated(options, refusing);
    for round in 1..3 {
        for tag in 0..CALLS {
            simulated.begin(tag, &call(ECHO)).expect("there is room");
        }
        simulated.run_for(60 * SECOND);
        let endings = simulated.endings();
        assert_eq!(endings.len(), CALLS as usize);
        for (_, ending) in endings {
            let is_refused = matches!(ending, Err(CallError::NotBegun(NotBegun::Refused)));
            assert!(is_refused, "{ending:?}");
        }
        let most = CALLS * u64::from(limits::POOL_FIRST_FREE_REFUSALS + limits::POOL_ATTEMPTS);
        let refused = simulated.server_counts.refused;
        assert!((CALLS..=most).contains(&(refused / round)), "{refused}");
        simulated.assert_at_rest();
    }
}

/// It is done with each call at once, and so the least loaded: calls go elsewhere all the same.
#[test]
fn an_address_that_refuses_all_calls_costs_none_beside_one_that_serves() {
    let refusing = ServerBehavior {
        refuse: 1,
        ..ServerBehavior::default()
    };
    let serving = ServerBehavior {
        latency_ns: MS,
        ..ServerBehavior::default()
    };
    let mut simulated = SimulatedPool::new(fixed(1), vec![refusing, serving], 7);
    for round in 0..2_000 {
        for tag in 0..4 {
            simulated.begin(tag, &call(ECHO)).expect("there is room");
        }
        simulated.run_for(SECOND / 20);
        for (tag, ending) in simulated.endings() {
            ending.unwrap_or_else(|error| panic!("{round} {tag}: {error}"));
        }
    }
    simulated.run_for(SECOND);
    simulated.assert_at_rest();
}

/// Those of gRPC's C core count a call for a while after its end. None of their refusals is a
/// failure, none uses up attempts or the budget, and few are provoked.
#[test]
fn a_server_that_counts_a_call_after_its_end_loses_none() {
    for (announced, at_once, latency_ns) in [
        (Some(4), 4, 10 * MS),
        (None, 4, 10 * MS),
        (Some(1), 1, MS),
        (Some(4), 4, 1),
    ] {
        let lingering = ServerBehavior {
            max_streams: announced,
            latency_ns,
            lingering: (at_once, 2 * MS),
            ..ServerBehavior::default()
        };
        // Neither attempts nor the budget.
        let options = PoolOptions {
            retry: RetryOptions {
                max_attempts: 2,
                budget_tokens: 1,
            },
            ..fixed(1)
        };
        let mut simulated = simulated(options, lingering);
        for round in 1..3 {
            for tag in 0..200 {
                simulated.begin(tag, &call(ECHO)).expect("there is room");
            }
            simulated.run_for(20 * SECOND);
            let endings = simulated.endings();
            assert_eq!(endings.len(), 200);
            for (tag, ending) in &endings {
                assert!(ending.is_ok(), "{tag}: {ending:?}");
            }
            let refused = simulated.server_counts.refused;
            assert!((1..=round * 800).contains(&refused), "{refused} refusals");
            assert_eq!(simulated.statistics().counters.retries, refused);
            simulated.assert_at_rest();
        }
    }
}

/// One call that the server's GOAWAY cuts off, for the `round`th time, and that is made again.
pub fn call_cut_off(simulated: &mut SimulatedPool, round: u64) {
    simulated.behavior[0].cut_off = 1;
    simulated.begin(1, &call(ECHO)).expect("there is room");
    simulated.turn();
    while simulated.server_counts.cut_off < round {
        simulated.step(u64::MAX);
    }
    simulated.behavior[0].cut_off = 0;
    simulated.run_for(10 * SECOND);
    let endings = simulated.endings();
    assert!(matches!(endings[..], [(1, Ok(()))]), "{endings:?}");
}

#[test]
fn calls_beyond_the_last_of_a_goaway_are_made_again_elsewhere() {
    let mut simulated = simulated(fixed(1), ServerBehavior::default());
    simulated.run_for(SECOND);
    for round in 1..3 {
        call_cut_off(&mut simulated, round);
        assert_eq!(u64::from(simulated.done[1]), round);
        assert_eq!(simulated.statistics().counters.opened, 1 + round);
    }
}

#[test]
fn a_connection_that_drains_finishes_its_calls_while_another_takes_new_ones() {
    let slow = ServerBehavior {
        slow: (1, 500 * MS),
        ..ServerBehavior::default()
    };
    let mut simulated = simulated(fixed(1), slow);
    simulated.run_for(SECOND);
    for round in 1..3 {
        simulated.begin(1, &call(ECHO)).expect("there is room");
        simulated.run_for(10 * MS);
        simulated.drain(0);
        simulated.run_for(10 * MS);
        assert_eq!(simulated.open_links(), 2);
        simulated.begin(2, &call(ECHO)).expect("there is room");
        simulated.run_for(2 * SECOND);
        let endings = simulated.endings();
        assert!(
            matches!(endings[..], [(1, Ok(())), (2, Ok(()))]),
            "{endings:?}"
        );
        assert_eq!(
            (simulated.open_links(), simulated.server_counts.cancelled),
            (1, 0)
        );
        assert_eq!(simulated.statistics().counters.dials, 1 + round);
    }
}

#[test]
fn a_pushback_is_waited_for_and_a_status_is_not_repeated_unless_it_may_be() {
    let busy = ServerBehavior {
        push_back: 1,
        ..ServerBehavior::default()
    };
    let mut simulated = simulated(fixed(1), busy);
    for round in 1..3 {
        let error = ending(&mut simulated, &call(ECHO)).expect_err("it is pushed back");
        assert!(!error.may_have_happened(), "{error}");
        assert_eq!(simulated.server_counts.pushed_back, 5 * round);
        // The server asks for 20 ms each time.
        assert_eq!(
            simulated.statistics().wait_times.pause_ns,
            4 * round * 20 * MS
        );
    }
    simulated.behavior[0] = ServerBehavior {
        unavailable: 1,
        ..ServerBehavior::default()
    };
    for round in 1..3 {
        let error = ending(&mut simulated, &call(ECHO)).expect_err("it is unavailable");
        assert!(error.may_have_happened(), "{error}");
        assert_eq!(simulated.done[1], 1);
        let error = ending(&mut simulated, &repeatable()).expect_err("it is unavailable");
        assert!(error.may_have_happened(), "{error}");
        assert_eq!(
            (simulated.done[1], simulated.server_counts.unavailable),
            (5, 6 * round)
        );
    }
}

#[test]
fn a_call_that_would_wait_too_long_for_its_next_attempt_ends_at_once() {
    for (push_back_ms, timeout_ns) in [(5_000, Some(4 * SECOND)), (60_000, None)] {
        let busy = ServerBehavior {
            push_back: 1,
            push_back_ms,
            ..ServerBehavior::default()
        };
        let mut simulated = simulated(fixed(1), busy);
        simulated.run_for(SECOND);
        for _ in 0..2 {
            let timed = PoolCall {
                timeout_ns,
                ..call(ECHO)
            };
            simulated.begin(1, &timed).expect("there is room");
            simulated.run_for(100 * MS);
            let (_, ending) = simulated.endings().pop().expect("it has ended");
            assert!(matches!(ending, Err(CallError::Status(_))), "{ending:?}");
        }
        assert_eq!(simulated.statistics().counters.retries, 0);
    }
}

#[test]
fn a_lost_connection_ends_a_call_unless_it_may_be_repeated() {
    let slow = ServerBehavior {
        slow: (1, 100 * MS),
        ..ServerBehavior::default()
    };
    let mut simulated = simulated(fixed(2), slow);
    simulated.run_for(2 * SECOND);
    for round in 1..3 {
        simulated.begin(1, &call(ECHO)).expect("there is room");
        simulated.begin(2, &repeatable()).expect("there is room");
        simulated.run_for(50 * MS);
        simulated.cut_all();
        simulated.run_for(5 * SECOND);
        let endings = simulated.endings();
        let [(1, Err(lost)), (2, Ok(()))] = &endings[..] else {
            panic!("{endings:?}");
        };
        assert!(matches!(lost, CallError::ConnectionLost { .. }), "{lost}");
        assert!(lost.to_string().contains("it was reset"), "{lost}");
        assert_eq!((simulated.done[1], simulated.done[2]), (round, 2 * round));
    }
}

#[test]
fn a_budget_stops_retries_when_all_fails() {
    let options = PoolOptions {
        retry: RetryOptions {
            budget_tokens: 20,
            max_attempts: 3,
        },
        ..fixed(1)
    };
    let broken = ServerBehavior {
        unavailable: 1,
        ..ServerBehavior::default()
    };
    let mut simulated = simulated(options, broken);
    simulated.run_for(SECOND);
    for tag in 0..100 {
        simulated.begin(tag, &repeatable()).expect("there is room");
    }
    simulated.run_for(20 * SECOND);
    assert_eq!(simulated.endings().len(), 100);
    assert_eq!(simulated.statistics().counters.retries, 9);
    simulated.behavior[0].unavailable = 0;
    for tag in 0..200 {
        simulated.echo(tag).expect("it works again");
    }
    simulated.behavior[0].unavailable = 1;
    ending(&mut simulated, &repeatable()).expect_err("it is unavailable");
    assert_eq!(simulated.statistics().counters.retries, 11);
}

#[test]
fn a_target_that_is_not_there_is_an_error_at_once_unless_the_call_waits_for_it() {
    let mut simulated = simulated(fixed(1), ServerBehavior::default());
    simulated.fault_rates.refuse_dial = 1;
    simulated.run_for(SECOND);
    for _ in 0..2 {
        let refused = simulated
            .begin(1, &call(ECHO))
            .expect_err("it is not there");
        let CallError::NotBegun(NotBegun::Unreachable { reason }) = &refused else {
            panic!("{refused}");
        };
        assert!(
            reason.contains("server-0") && reason.contains("nobody listens"),
            "{reason}"
        );
        let patient = PoolCall {
            waits_for_ready: true,
            timeout_ns: Some(60 * SECOND),
            ..call(ECHO)
        };
        simulated.begin(2, &patient).expect("it waits");
        simulated.run_for(10 * SECOND);
        assert!(simulated.endings().is_empty());
        assert_eq!(simulated.statistics().waiting_for_connection, 1);
        simulated.fault_rates.refuse_dial = 0;
        simulated.run_for(40 * SECOND);
        let endings = simulated.endings();
        assert!(matches!(endings[..], [(2, Ok(()))]), "{endings:?}");
        simulated.assert_at_rest();
        simulated.fault_rates.refuse_dial = 1;
        simulated.cut_all();
        simulated.run_for(SECOND);
    }
}

#[test]
fn pauses_between_attempts_to_connect_grow() {
    let mut simulated = simulated(fixed(1), ServerBehavior::default());
    simulated.fault_rates.refuse_dial = 1;
    simulated.run_for(SECOND);
    let first = simulated.statistics().counters.dials;
    assert!((4..=7).contains(&first), "{first} in the first second");
    simulated.run_for(600 * SECOND);
    simulated.engine.next_deadline_ns().expect("it goes on");
    let before = simulated.statistics().counters.failed_dials;
    simulated.run_for(300 * SECOND);
    let in_five_minutes = simulated.statistics().counters.failed_dials - before;
    assert!((8..=13).contains(&in_five_minutes), "{in_five_minutes}");
}

#[test]
fn a_server_that_says_nothing_is_given_up_in_time() {
    let mute = ServerBehavior {
        is_mute: true,
        ..ServerBehavior::default()
    };
    let mut simulated = simulated(fixed(1), mute);
    for _ in 0..2 {
        simulated
            .begin(1, &call(ECHO))
            .expect("it waits for the first attempt");
        simulated.run_for(11 * SECOND);
        let (_, ending) = simulated.endings().pop().expect("it has ended");
        let error = ending.expect_err("nothing was said").to_string();
        assert!(
            error.contains("did not begin with HTTP/2 in time"),
            "{error}"
        );
        simulated.assert_at_rest();
        simulated.behavior[0].is_mute = false;
        simulated.run_for(20 * SECOND);
        simulated.echo(2).expect("it speaks now");
        simulated.behavior[0].is_mute = true;
        simulated.cut_all();
        simulated.turn();
    }
}

#[test]
fn a_half_open_connection_is_replaced_after_the_first_call_that_hears_nothing() {
    let mut simulated = simulated(fixed(1), ServerBehavior::default());
    simulated.run_for(2 * SECOND);
    for _ in 0..2 {
        simulated.fault_rates.half_open = 1;
        let timed = PoolCall {
            timeout_ns: Some(2 * SECOND),
            ..call(ECHO)
        };
        simulated.begin(1, &timed).expect("there is room");
        simulated.turn();
        simulated.fault_rates.half_open = 0;
        simulated.run_for(3 * SECOND);
        let endings = simulated.endings();
        assert!(
            matches!(endings[..], [(1, Err(CallError::DeadlineExceeded))]),
            "{endings:?}"
        );
        simulated
            .echo(2)
            .expect("another connection has taken its place");
        simulated.run_for(200 * SECOND);
        assert_eq!(simulated.open_links(), 1);
    }
}
