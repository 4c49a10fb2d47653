//! When a call is made again, and what is known of it then.

use client::{CallError, NotBegun, PoolCall, RetryOptions, limits};

use crate::basics::{ECHO, call, fixed, simulated};
use crate::server::ServerBehavior;
use crate::simulated::{MS, Reported, SECOND, SimulatedPool};

fn repeatable(path: &str) -> PoolCall<'_> {
    PoolCall {
        is_repeatable: true,
        ..call(path)
    }
}

fn only_ending(simulated: &mut SimulatedPool) -> Result<(), CallError> {
    let mut endings = simulated.endings();
    assert_eq!(endings.len(), 1, "{endings:?}");
    endings.remove(0).1
}

#[test]
fn a_call_whose_head_has_come_is_not_made_again() {
    for wants_head in [true, false] {
        let mut simulated = simulated(fixed(1), ServerBehavior::default());
        simulated.run_for(2 * SECOND);
        let call = PoolCall {
            wants_head,
            timeout_ns: Some(3 * SECOND),
            ..repeatable("/t.T/Head")
        };
        for tag in 0..2 {
            simulated.begin(tag, &call).expect("there is room");
            simulated.run_for(50 * MS);
            let reported = simulated.take_reported();
            let heads = reported
                .iter()
                .filter(|(.., one)| matches!(one, Reported::Head));
            assert_eq!(
                (heads.count(), reported.len()),
                (wants_head.into(), wants_head.into())
            );
            simulated.cut_all();
            simulated.run_for(5 * SECOND);
            let error = only_ending(&mut simulated).expect_err("it was cut");
            assert!(matches!(error, CallError::ConnectionLost { .. }), "{error}");
            assert_eq!(simulated.done[tag as usize], 1);
            simulated.assert_at_rest();
        }
    }
}

/// Returns how long it was between the attempts of a call, in milliseconds.
fn pauses_ms(simulated: &mut SimulatedPool, attempts: u64) -> Vec<u64> {
    let before = simulated.server_counts.requests;
    let begun_ns = simulated.now_ns;
    simulated
        .begin(1, &repeatable(ECHO))
        .expect("there is room");
    simulated.turn();
    let mut times_ns = Vec::new();
    for attempt in 1..=attempts {
        while simulated.server_counts.requests < before + attempt {
            assert!(simulated.step(begun_ns + 20 * SECOND));
        }
        times_ns.push(simulated.now_ns);
    }
    simulated.run_for(20 * SECOND);
    only_ending(simulated).expect_err("each attempt fails");
    assert_eq!(simulated.server_counts.requests, before + attempts);
    let pairs = times_ns.windows(2);
    pairs.map(|pair| (pair[1] - pair[0]) / MS).collect()
}

#[test]
fn pauses_between_attempts_begin_with_the_first_and_grow() {
    let refusing = ServerBehavior {
        refuse: 1,
        ..ServerBehavior::default()
    };
    let failing = ServerBehavior {
        unavailable: 1,
        ..ServerBehavior::default()
    };
    // Where nothing was done, the second attempt follows at once.
    for (behavior, expected) in [
        (refusing, [0, 100, 160, 256]),
        (failing, [100, 160, 256, 409]),
    ] {
        let mut simulated = simulated(fixed(1), behavior);
        simulated.run_for(2 * SECOND);
        for _ in 0..2 {
            let pauses = pauses_ms(&mut simulated, 5);
            for (pause, expected) in pauses.iter().zip(expected) {
                // A fifth in both directions.
                let range = expected * 4 / 5..=expected * 6 / 5 + 1;
                assert!(range.contains(pause), "{pauses:?}, not {expected}");
            }
        }
    }
}

#[test]
fn an_attempt_that_may_have_happened_is_not_forgotten_for_a_later_one_that_did_not() {
    let options = client::PoolOptions {
        retry: RetryOptions {
            max_attempts: 100,
            ..RetryOptions::default()
        },
        ..fixed(1)
    };
    let mut simulated = simulated(options, ServerBehavior::default());
    simulated.run_for(2 * SECOND);
    let call = PoolCall {
        timeout_ns: Some(SECOND),
        ..repeatable("/t.T/Silent")
    };
    for tag in 0..2 {
        simulated.behavior[0].refuse = 0;
        simulated.begin(tag, &call).expect("there is room");
        simulated.run_for(50 * MS);
        assert_eq!(simulated.done[tag as usize], 1);
        simulated.behavior[0].refuse = 1;
        simulated.cut_all();
        let refused = simulated.server_counts.refused;
        simulated.run_for(2 * SECOND);
        assert!(
            simulated.server_counts.refused > refused,
            "a later attempt was refused"
        );
        let error = only_ending(&mut simulated).expect_err("there was no answer");
        assert!(error.may_have_happened(), "{error}");
        simulated.assert_at_rest();
    }
}

#[test]
fn what_is_uncertain_of_a_call_is_not_taken_over_by_the_next_one() {
    let mut simulated = simulated(fixed(1), ServerBehavior::default());
    simulated.run_for(2 * SECOND);
    for tag in 0..2 {
        simulated.fault_rates.refuse_dial = 0;
        simulated.run_for(60 * SECOND);
        simulated
            .begin(tag, &repeatable("/t.T/Silent"))
            .expect("there is room");
        simulated.run_for(50 * MS);
        simulated.fault_rates.refuse_dial = 1;
        simulated.cut_all();
        simulated.run_for(20 * SECOND);
        let error = only_ending(&mut simulated).expect_err("nobody is there");
        assert!(error.may_have_happened(), "{error}");
        // It has the place of the one before in the table of calls.
        let patient = PoolCall {
            waits_for_ready: true,
            timeout_ns: Some(SECOND),
            ..call(ECHO)
        };
        simulated.begin(tag, &patient).expect("it waits");
        simulated.run_for(2 * SECOND);
        let error = only_ending(&mut simulated).expect_err("nobody is there");
        let is_certain = matches!(error, CallError::NotBegun(NotBegun::WaitedTooLong { .. }));
        assert!(is_certain, "{error}");
        simulated.assert_at_rest();
    }
}

#[test]
fn a_server_that_leaves_each_connection_and_ends_no_call_costs_so_many_connections() {
    let leaving = ServerBehavior {
        drain: 1,
        ..ServerBehavior::default()
    };
    let mut simulated = simulated(fixed(1), leaving);
    simulated.run_for(2 * SECOND);
    let most = limits::POOL_DRAINING as u64 + 1;
    let call = PoolCall {
        timeout_ns: Some(600 * SECOND),
        waits_for_ready: true,
        ..call("/t.T/Silent")
    };
    for round in 1..3 {
        let begun_ns = simulated.now_ns;
        for tag in 0..2 * most {
            simulated.begin(tag, &call).expect("it may wait");
            simulated.run_for(5 * SECOND);
        }
        assert_eq!(simulated.open_links() as u64, most);
        assert_eq!(simulated.statistics().in_flight as u64, most);
        assert_eq!(simulated.server_counts.drained, round * most);
        // Then there is room for others.
        simulated.behavior[0].drain = 0;
        simulated.run_for(begun_ns + 1_000 * SECOND - simulated.now_ns);
        assert_eq!(simulated.endings().len() as u64, 2 * most);
        simulated.echo(0).expect("a new connection takes it");
        assert_eq!(simulated.open_links(), 1);
        simulated.assert_at_rest();
        simulated.behavior[0].drain = 1;
    }
}
