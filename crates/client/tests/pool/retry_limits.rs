//! What bounds retries beside their number: the budget, the calls that wait, the pauses; and what
//! one call leaves for the next one in its slot.

use client::{CallError, NotBegun, PoolCallKey, PoolOptions, RetryOptions, limits};

use crate::basics::{ECHO, call, fixed, simulated};
use crate::retries::call_cut_off;
use crate::server::ServerBehavior;
use crate::simulated::{MS, Reported, SECOND, SimulatedPool};

fn refusing() -> ServerBehavior {
    ServerBehavior {
        refuse: 1,
        ..ServerBehavior::default()
    }
}

fn is_refused(ending: &Result<(), CallError>) -> bool {
    matches!(ending, Err(CallError::NotBegun(NotBegun::Refused)))
}

/// A pool whose connection is open.
fn open(options: PoolOptions, behavior: ServerBehavior) -> SimulatedPool {
    let mut simulated = simulated(options, behavior);
    simulated.run_for(5 * SECOND);
    simulated
}

#[test]
fn a_goaway_and_a_first_refusal_take_nothing_from_the_budget_and_a_second_one_does() {
    let options = PoolOptions {
        retry: RetryOptions {
            budget_tokens: 4,
            max_attempts: 5,
        },
        ..fixed(1)
    };
    let mut simulated = open(options, ServerBehavior::default());
    for round in 1..5 {
        call_cut_off(&mut simulated, round);
    }
    // Of four tokens one can be taken while more than two are left.
    let before = simulated.statistics().counters.retries;
    simulated.behavior[0].refuse = 1;
    for retries in [2, 3] {
        simulated.begin(1, &call(ECHO)).expect("there is room");
        simulated.run_for(10 * SECOND);
        let (_, ending) = simulated.endings().pop().expect("it has ended");
        assert!(is_refused(&ending), "{ending:?}");
        assert_eq!(simulated.statistics().counters.retries, before + retries);
    }
}

#[test]
fn a_call_that_would_wait_beside_as_many_as_may_is_not_made_again() {
    let options = PoolOptions {
        max_in_flight: 1,
        max_waiting: 1,
        ..fixed(1)
    };
    let mut simulated = open(options, refusing());
    for round in 1..3 {
        for tag in 0..2 {
            simulated
                .begin(tag, &call(ECHO))
                .expect("one runs, one waits");
        }
        simulated.run_for(20 * SECOND);
        let endings = simulated.endings();
        let tags: Vec<u64> = endings.iter().map(|(tag, _)| *tag).collect();
        assert_eq!(tags, [0, 1]);
        assert!(endings.iter().all(|(_, ending)| is_refused(ending)));
        // The other one had the queue for itself.
        assert_eq!(simulated.server_counts.refused, 6 * round);
        assert_eq!(simulated.statistics().counters.retries, 4 * round);
    }
}

/// Sends more messages than are kept, and gives the call up.
fn outgrow(simulated: &mut SimulatedPool) -> PoolCallKey {
    let now_ns = simulated.now_ns;
    let engine = &mut simulated.engine;
    let begun = engine.begin_streaming(9, &call("/t.T/Silent"), now_ns);
    let key = begun.expect("there is room");
    for _ in 0..=limits::POOL_KEPT_MESSAGES {
        engine.send(key, false, |out| out.push(b'x')).expect("room");
    }
    engine.cancel(key, now_ns);
    key
}

#[test]
fn a_call_is_kept_whatever_the_one_before_it_in_its_slot_was() {
    let mut simulated = open(fixed(1), refusing());
    for _ in 0..2 {
        outgrow(&mut simulated);
        simulated.run_for(SECOND);
        let before = simulated.statistics().counters.retries;
        simulated.begin(1, &call(ECHO)).expect("there is room");
        simulated.run_for(20 * SECOND);
        let (_, ending) = simulated.endings().pop().expect("it has ended");
        assert!(is_refused(&ending), "{ending:?}");
        assert_eq!(simulated.statistics().counters.retries, before + 4);
    }
}

#[test]
fn the_longest_pushback_is_waited_for_and_one_that_is_longer_is_not() {
    let longest_ms = limits::POOL_LONGEST_BACKOFF.as_millis() as u64;
    for (push_back_ms, retries) in [(longest_ms, 1), (longest_ms + 1, 0)] {
        let busy = ServerBehavior {
            push_back: 1,
            push_back_ms,
            ..ServerBehavior::default()
        };
        let mut simulated = open(fixed(1), busy);
        for round in 1..3 {
            simulated.begin(1, &call(ECHO)).expect("there is room");
            simulated.run_for(SECOND);
            assert_eq!(simulated.endings().len(), 1 - retries, "{push_back_ms} ms");
            assert_eq!(
                simulated.statistics().counters.retries,
                (retries * round) as u64
            );
            simulated.behavior[0].push_back = 0;
            simulated.run_for(31 * SECOND);
            assert_eq!(simulated.endings().len(), retries, "{push_back_ms} ms");
            simulated.behavior[0].push_back = 1;
        }
    }
}

/// Not from the last time on at which times were summed up.
#[test]
fn only_its_pause_counts_for_the_time_that_a_call_has_waited() {
    let busy = ServerBehavior {
        push_back: 1,
        push_back_ms: 1_000,
        ..ServerBehavior::default()
    };
    let mut simulated = open(fixed(1), busy);
    for round in 1..4 {
        simulated.run_for(5 * SECOND);
        simulated.behavior[0].push_back = 1;
        simulated.begin(1, &call(ECHO)).expect("there is room");
        simulated.run_for(500 * MS);
        simulated.behavior[0].push_back = 0;
        simulated.run_for(5 * SECOND);
        assert!(matches!(simulated.endings()[..], [(1, Ok(()))]));
        let times = simulated.statistics().wait_times;
        let expected_ns = round * SECOND..=round * (SECOND + 10 * MS);
        assert!(expected_ns.contains(&times.pause_ns), "{times:?}");
        assert_eq!((times.permit_ns, times.stream_ns), (0, 0));
    }
}

/// The calls that have ended, in the order of their ends.
fn tags(simulated: &mut SimulatedPool) -> Vec<u64> {
    let reported = simulated.take_reported().into_iter();
    let ended = |(tag, _, reported)| match reported {
        Reported::Ended(ending) => {
            ending.expect("the server answers");
            Some(tag)
        }
        _ => None,
    };
    reported.filter_map(ended).collect()
}

/// A server that takes one call at a time, and takes its time for it.
fn slow() -> ServerBehavior {
    ServerBehavior {
        max_streams: Some(1),
        slow: (1, 2 * SECOND),
        ..ServerBehavior::default()
    }
}

#[test]
fn calls_that_wait_for_a_stream_begin_in_their_order() {
    let mut simulated = open(fixed(1), slow());
    for _ in 0..2 {
        for tag in 0..6 {
            simulated.begin(tag, &call(ECHO)).expect("it may wait");
        }
        // Each look at the queue finds no room.
        for _ in 0..30 {
            simulated.run_for(SECOND / 2);
        }
        assert_eq!(tags(&mut simulated), [0, 1, 2, 3, 4, 5]);
    }
}

#[test]
fn a_call_whose_pause_is_over_comes_before_those_that_wait() {
    let busy = ServerBehavior {
        push_back: 1,
        push_back_ms: 1_000,
        ..slow()
    };
    let mut simulated = open(fixed(1), busy);
    for _ in 0..2 {
        simulated.behavior[0].push_back = 1;
        simulated.begin(0, &call(ECHO)).expect("there is room");
        simulated.run_for(100 * MS);
        simulated.behavior[0].push_back = 0;
        for tag in 1..4 {
            simulated.begin(tag, &call(ECHO)).expect("it may wait");
        }
        simulated.run_for(20 * SECOND);
        assert_eq!(tags(&mut simulated), [1, 0, 2, 3]);
    }
}

/// Also in the moment in which a call was given up and nobody has looked at the queue.
#[test]
fn a_new_call_does_not_overtake_those_that_wait() {
    let options = PoolOptions {
        max_in_flight: 1,
        ..fixed(1)
    };
    let mut simulated = open(options, ServerBehavior::default());
    for _ in 0..2 {
        let now_ns = simulated.now_ns;
        let silent = call("/t.T/Silent");
        let running = simulated.engine.begin(9, &silent, now_ns, |_| {});
        simulated.begin(0, &call(ECHO)).expect("it may wait");
        let engine = &mut simulated.engine;
        engine.cancel(running.expect("there is room"), now_ns);
        simulated.begin(1, &call(ECHO)).expect("it may wait");
        simulated.run_for(SECOND);
        assert_eq!(tags(&mut simulated), [0, 1]);
    }
}

/// An upload that has used up the server's window delays no call that can go elsewhere.
#[test]
fn small_calls_avoid_a_connection_whose_window_is_shut() {
    let mut simulated = open(fixed(2), ServerBehavior::default());
    simulated.fault_rates.latency_ns = 50 * MS;
    for _ in 0..2 {
        let now_ns = simulated.now_ns;
        let upload = simulated
            .engine
            .begin(9, &call("/t.T/Silent"), now_ns, |out| {
                out.resize(out.len() + (1 << 20), 0);
            });
        simulated.turn();
        for tag in 0..4 {
            simulated.begin(tag, &call(ECHO)).expect("there is room");
        }
        let connections = simulated.statistics().connections;
        let mut in_flight: Vec<_> = connections.iter().map(|it| it.in_flight).collect();
        in_flight.sort_unstable();
        assert_eq!(in_flight, [1, 4]);
        simulated.run_for(SECOND);
        assert_eq!(tags(&mut simulated).len(), 4);
        let now_ns = simulated.now_ns;
        simulated
            .engine
            .cancel(upload.expect("there is room"), now_ns);
        simulated.run_for(SECOND);
    }
}
