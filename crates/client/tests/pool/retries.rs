//! Which calls are made again, and what a caller hears of targets that fail.

use client::{CallError, NotBegun, PoolCall, PoolOptions, RetryOptions};

use crate::basics::{ECHO, call, fixed, world};
use crate::server::Manners;
use crate::world::{MS, SECOND, World};

fn repeatable() -> PoolCall<'static> {
    PoolCall {
        is_repeatable: true,
        ..call(ECHO)
    }
}

fn ending(world: &mut World, call: &PoolCall<'_>) -> Result<(), CallError> {
    world.done.clear();
    world.begin(1, call)?;
    world.run_for(20 * SECOND);
    let (_, ending) = world.endings().pop().expect("it has ended");
    world.assert_at_rest();
    ending
}

#[test]
fn a_server_that_refuses_each_call_gets_so_many_attempts() {
    let refusing = Manners {
        refuse: 1,
        ..Manners::default()
    };
    let mut world = world(fixed(1), refusing);
    for round in 1..3 {
        let error = ending(&mut world, &call(ECHO)).expect_err("it is refused");
        assert!(
            matches!(error, CallError::NotBegun(NotBegun::Refused)),
            "{error}"
        );
        assert_eq!((world.deeds.refused, world.done[1]), (5 * round, 0));
        assert_eq!(world.statistics().counters.retries, 4 * round);
        assert!(world.statistics().wait_times.pause_ns > 0);
    }
    world.manners[0].refuse = 0;
    ending(&mut world, &call(ECHO)).expect("it is not refused any more");
}

#[test]
fn calls_beyond_the_last_of_a_goaway_are_made_again_elsewhere() {
    let mut world = world(fixed(1), Manners::default());
    world.run_for(SECOND);
    for round in 1..3 {
        world.manners[0].cut_off = 1;
        world.begin(1, &call(ECHO)).expect("there is room");
        world.turn();
        while world.deeds.cut_off < round {
            world.step(u64::MAX);
        }
        world.manners[0].cut_off = 0;
        world.run_for(10 * SECOND);
        let endings = world.endings();
        assert!(matches!(endings[..], [(1, Ok(()))]), "{endings:?}");
        assert_eq!(u64::from(world.done[1]), round);
        assert_eq!(world.statistics().counters.opened, 1 + round);
    }
}

#[test]
fn a_connection_that_drains_finishes_its_calls_while_another_takes_new_ones() {
    let slow = Manners {
        slow: (1, 500 * MS),
        ..Manners::default()
    };
    let mut world = world(fixed(1), slow);
    world.run_for(SECOND);
    for round in 1..3 {
        world.begin(1, &call(ECHO)).expect("there is room");
        world.run_for(10 * MS);
        world.drain(0);
        world.run_for(10 * MS);
        assert_eq!(world.open_links(), 2);
        world.begin(2, &call(ECHO)).expect("there is room");
        world.run_for(2 * SECOND);
        let endings = world.endings();
        assert!(
            matches!(endings[..], [(1, Ok(())), (2, Ok(()))]),
            "{endings:?}"
        );
        assert_eq!((world.open_links(), world.deeds.cancelled), (1, 0));
        assert_eq!(world.statistics().counters.dials, 1 + round);
    }
}

#[test]
fn a_pushback_is_waited_for_and_a_status_is_not_repeated_unless_it_may_be() {
    let busy = Manners {
        push_back: 1,
        ..Manners::default()
    };
    let mut world = world(fixed(1), busy);
    for round in 1..3 {
        let error = ending(&mut world, &call(ECHO)).expect_err("it is pushed back");
        assert!(!error.may_have_happened(), "{error}");
        assert_eq!(world.deeds.pushed_back, 5 * round);
        // The server asks for 20 ms each time.
        assert_eq!(world.statistics().wait_times.pause_ns, 4 * round * 20 * MS);
    }
    world.manners[0] = Manners {
        unavailable: 1,
        ..Manners::default()
    };
    for round in 1..3 {
        let error = ending(&mut world, &call(ECHO)).expect_err("it is unavailable");
        assert!(error.may_have_happened(), "{error}");
        assert_eq!(world.done[1], 1);
        let error = ending(&mut world, &repeatable()).expect_err("it is unavailable");
        assert!(error.may_have_happened(), "{error}");
        assert_eq!((world.done[1], world.deeds.unavailable), (5, 6 * round));
    }
}

#[test]
fn a_call_that_would_wait_too_long_for_its_next_attempt_ends_at_once() {
    for (push_back_ms, timeout_ns) in [(5_000, Some(4 * SECOND)), (60_000, None)] {
        let busy = Manners {
            push_back: 1,
            push_back_ms,
            ..Manners::default()
        };
        let mut world = world(fixed(1), busy);
        world.run_for(SECOND);
        for _ in 0..2 {
            let timed = PoolCall {
                timeout_ns,
                ..call(ECHO)
            };
            world.begin(1, &timed).expect("there is room");
            world.run_for(100 * MS);
            let (_, ending) = world.endings().pop().expect("it has ended");
            assert!(matches!(ending, Err(CallError::Status(_))), "{ending:?}");
        }
        assert_eq!(world.statistics().counters.retries, 0);
    }
}

#[test]
fn a_lost_connection_ends_a_call_unless_it_may_be_repeated() {
    let slow = Manners {
        slow: (1, 100 * MS),
        ..Manners::default()
    };
    let mut world = world(fixed(2), slow);
    world.run_for(2 * SECOND);
    for round in 1..3 {
        world.begin(1, &call(ECHO)).expect("there is room");
        world.begin(2, &repeatable()).expect("there is room");
        world.run_for(50 * MS);
        world.cut_all();
        world.run_for(5 * SECOND);
        let endings = world.endings();
        let [(1, Err(lost)), (2, Ok(()))] = &endings[..] else {
            panic!("{endings:?}");
        };
        assert!(matches!(lost, CallError::ConnectionLost { .. }), "{lost}");
        assert!(lost.to_string().contains("it was reset"), "{lost}");
        assert_eq!((world.done[1], world.done[2]), (round, 2 * round));
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
    let broken = Manners {
        unavailable: 1,
        ..Manners::default()
    };
    let mut world = world(options, broken);
    world.run_for(SECOND);
    for tag in 0..100 {
        world.begin(tag, &repeatable()).expect("there is room");
    }
    world.run_for(20 * SECOND);
    assert_eq!(world.endings().len(), 100);
    assert_eq!(world.statistics().counters.retries, 9);
    world.manners[0].unavailable = 0;
    for tag in 0..200 {
        world.echo(tag).expect("it works again");
    }
    world.manners[0].unavailable = 1;
    ending(&mut world, &repeatable()).expect_err("it is unavailable");
    assert_eq!(world.statistics().counters.retries, 11);
}

#[test]
fn a_target_that_is_not_there_is_an_error_at_once_unless_the_call_waits_for_it() {
    let mut world = world(fixed(1), Manners::default());
    world.weather.refuse_dial = 1;
    world.run_for(SECOND);
    for _ in 0..2 {
        let refused = world.begin(1, &call(ECHO)).expect_err("it is not there");
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
        world.begin(2, &patient).expect("it waits");
        world.run_for(10 * SECOND);
        assert!(world.endings().is_empty());
        assert_eq!(world.statistics().waiting_for_connection, 1);
        world.weather.refuse_dial = 0;
        world.run_for(40 * SECOND);
        let endings = world.endings();
        assert!(matches!(endings[..], [(2, Ok(()))]), "{endings:?}");
        world.assert_at_rest();
        world.weather.refuse_dial = 1;
        world.cut_all();
        world.run_for(SECOND);
    }
}

#[test]
fn pauses_between_attempts_to_connect_grow() {
    let mut world = world(fixed(1), Manners::default());
    world.weather.refuse_dial = 1;
    world.run_for(SECOND);
    let first = world.statistics().counters.dials;
    assert!((4..=7).contains(&first), "{first} in the first second");
    world.run_for(600 * SECOND);
    world.engine.next_deadline_ns().expect("it goes on");
    let before = world.statistics().counters.failed_dials;
    world.run_for(300 * SECOND);
    let in_five_minutes = world.statistics().counters.failed_dials - before;
    assert!((8..=13).contains(&in_five_minutes), "{in_five_minutes}");
}

#[test]
fn a_server_that_says_nothing_is_given_up_in_time() {
    let mute = Manners {
        is_mute: true,
        ..Manners::default()
    };
    let mut world = world(fixed(1), mute);
    for _ in 0..2 {
        world
            .begin(1, &call(ECHO))
            .expect("it waits for the first attempt");
        world.run_for(11 * SECOND);
        let (_, ending) = world.endings().pop().expect("it has ended");
        let error = ending.expect_err("nothing was said").to_string();
        assert!(
            error.contains("did not begin with HTTP/2 in time"),
            "{error}"
        );
        world.assert_at_rest();
        world.manners[0].is_mute = false;
        world.run_for(20 * SECOND);
        world.echo(2).expect("it speaks now");
        world.manners[0].is_mute = true;
        world.cut_all();
        world.turn();
    }
}

#[test]
fn a_half_open_connection_is_replaced_after_the_first_call_that_hears_nothing() {
    let mut world = world(fixed(1), Manners::default());
    world.run_for(2 * SECOND);
    for _ in 0..2 {
        world.weather.half_open = 1;
        let timed = PoolCall {
            timeout_ns: Some(2 * SECOND),
            ..call(ECHO)
        };
        world.begin(1, &timed).expect("there is room");
        world.turn();
        world.weather.half_open = 0;
        world.run_for(3 * SECOND);
        let endings = world.endings();
        assert!(
            matches!(endings[..], [(1, Err(CallError::DeadlineExceeded))]),
            "{endings:?}"
        );
        world
            .echo(2)
            .expect("another connection has taken its place");
        world.run_for(200 * SECOND);
        assert_eq!(world.open_links(), 1);
    }
}
