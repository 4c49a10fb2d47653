//! Calls, limits and ends, each state twice.

use client::{
    Bytes, CallError, ConnectionStatistics, NotBegun, PoolCall, PoolOptions, PoolSize,
    PoolStatistics, SendError, WaitedFor,
};

use crate::server::ServerBehavior;
use crate::simulated::{MS, Reported, SECOND, SimulatedPool};

pub fn call(path: &str) -> PoolCall<'_> {
    PoolCall {
        path,
        ..PoolCall::default()
    }
}

pub const ECHO: &str = "/t.T/Echo";

pub fn simulated(options: PoolOptions, behavior: ServerBehavior) -> SimulatedPool {
    SimulatedPool::new(options, vec![behavior], 7)
}

pub fn fixed(count: usize) -> PoolOptions {
    PoolOptions {
        size: PoolSize::Fixed(count),
        ..PoolOptions::default()
    }
}

impl SimulatedPool {
    pub fn begin(&mut self, tag: u64, call: &PoolCall<'_>) -> Result<(), CallError> {
        if self.done.len() <= tag as usize {
            self.done.resize(tag as usize + 1, 0);
        }
        let begun = self.engine.begin(tag, call, self.now_ns, |out| {
            out.extend_from_slice(&tag.to_le_bytes());
        });
        begun.map(|_| ())
    }

    /// Returns how the calls ended of which that was reported, by tag.
    pub fn endings(&mut self) -> Vec<(u64, Result<(), CallError>)> {
        let reported = self.take_reported().into_iter();
        let mut endings: Vec<_> = reported
            .filter_map(|(tag, _, reported)| match reported {
                Reported::Ended(result) => Some((tag, result)),
                _ => None,
            })
            .collect();
        endings.sort_by_key(|(tag, _)| *tag);
        endings
    }

    /// Begins a call that is answered, and returns how it ended.
    pub fn echo(&mut self, tag: u64) -> Result<(), CallError> {
        self.begin(tag, &call(ECHO))?;
        self.run_for(10 * SECOND);
        let (_, ending) = self.endings().pop().expect("it has ended");
        ending
    }

    pub fn statistics(&mut self) -> PoolStatistics {
        self.engine.statistics(self.now_ns)
    }

    pub fn assert_at_rest(&mut self) {
        let statistics = self.engine.statistics(self.now_ns);
        let waiting = statistics.waiting_for_connection
            + statistics.waiting_for_pause
            + statistics.waiting_for_permit
            + statistics.waiting_for_stream;
        assert_eq!((statistics.in_flight, waiting), (0, 0), "{statistics:?}");
        let in_flight: usize = statistics.connections.iter().map(|c| c.in_flight).sum();
        assert_eq!(in_flight, 0, "{statistics:?}");
        let counters = statistics.counters;
        assert_eq!(
            counters.begun,
            counters.succeeded + counters.failed + counters.cancelled,
            "{counters:?}"
        );
    }
}

#[test]
fn calls_that_begin_together_leave_in_one_write_and_are_answered() {
    let mut simulated = simulated(fixed(1), ServerBehavior::default());
    simulated.run_for(SECOND);
    for round in 0..2 {
        let writes = simulated.writes;
        for tag in 0..100 {
            simulated
                .begin(round * 100 + tag, &call(ECHO))
                .expect("there is room");
        }
        simulated.turn();
        assert_eq!(simulated.writes, writes + 1);
        simulated.run_for(SECOND);
        let endings = simulated.endings();
        assert_eq!(endings.len(), 100);
        assert!(
            endings.iter().all(|(_, result)| result.is_ok()),
            "{endings:?}"
        );
        simulated.assert_at_rest();
    }
}

#[test]
fn calls_above_the_permits_wait_and_above_the_queue_are_refused() {
    let options = PoolOptions {
        max_in_flight: 3,
        max_waiting: 2,
        ..fixed(1)
    };
    let slow = ServerBehavior {
        slow: (1, 100 * MS),
        ..ServerBehavior::default()
    };
    let mut simulated = simulated(options, slow);
    simulated.run_for(SECOND);
    for round in 0..2 {
        for tag in 0..5 {
            simulated
                .begin(round * 10 + tag, &call(ECHO))
                .expect("there is room");
        }
        let refused = simulated.begin(9, &call(ECHO));
        assert!(
            matches!(
                refused,
                Err(CallError::NotBegun(NotBegun::QueueFull { limit: 2 }))
            ),
            "{refused:?}"
        );
        let statistics = simulated.engine.statistics(simulated.now_ns);
        assert_eq!(
            (statistics.in_flight, statistics.waiting_for_permit),
            (3, 2)
        );
        simulated.run_for(SECOND);
        assert_eq!(simulated.endings().len(), 5);
        simulated.assert_at_rest();
        let times = simulated.engine.statistics(simulated.now_ns).wait_times;
        let expected_ns = (round + 1) * 2 * 100 * MS;
        assert_eq!((times.permit_ns, times.stream_ns), (expected_ns, 0));
    }
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_sent() {
    let options = PoolOptions {
        max_request_bytes: 100,
        ..fixed(1)
    };
    let mut simulated = simulated(options, ServerBehavior::default());
    simulated.run_for(SECOND);
    let writes = simulated.writes;
    let past = PoolCall {
        timeout_ns: Some(0),
        ..call(ECHO)
    };
    for _ in 0..2 {
        let refused = simulated.begin(1, &past);
        assert!(
            matches!(refused, Err(CallError::NotBegun(NotBegun::DeadlinePassed))),
            "{refused:?}"
        );
        let now_ns = simulated.now_ns;
        let refused = (simulated.engine).begin(1, &call(ECHO), now_ns, |out| out.resize(101, 0));
        let too_large = CallError::RequestTooLarge {
            bytes: 101,
            limit_bytes: 100,
        };
        let refused = refused.map_err(|error| error.to_string());
        assert_eq!(refused, Err(too_large.to_string()));
        let chat = (simulated.engine).begin_streaming(2, &call("/t.T/Chat"), now_ns);
        let chat = chat.expect("there is room");
        let sent = simulated.engine.send(chat, false, |out| out.resize(101, 0));
        let limit_bytes = 100;
        let bytes = 101;
        assert_eq!(sent, Err(SendError::TooLarge { bytes, limit_bytes }));
        simulated.engine.cancel(chat, now_ns);
        let sent = simulated.engine.send(chat, false, |_| {});
        assert_eq!(sent, Err(SendError::Ended));
    }
    assert_eq!(simulated.writes, writes);
    simulated.assert_at_rest();
    simulated.echo(3).expect("the pool is as before");
}

#[test]
fn a_pool_that_was_closed_refuses_calls_and_ends_those_that_wait() {
    let options = PoolOptions {
        max_in_flight: 2,
        ..fixed(2)
    };
    let slow = ServerBehavior {
        slow: (1, 300 * MS),
        ..ServerBehavior::default()
    };
    for (grace_ns, finishes) in [(SECOND, true), (100 * MS, false)] {
        let mut simulated = simulated(options.clone(), slow.clone());
        simulated.run_for(SECOND);
        for tag in 0..3 {
            simulated.begin(tag, &call(ECHO)).expect("there is room");
        }
        simulated.turn();
        for _ in 0..2 {
            simulated.engine.close(grace_ns, simulated.now_ns);
            let refused = simulated.begin(9, &call(ECHO));
            assert!(
                matches!(refused, Err(CallError::NotBegun(NotBegun::PoolClosed))),
                "{refused:?}"
            );
        }
        simulated.run_for(grace_ns);
        let endings = simulated.endings();
        assert_eq!(endings.len(), 3, "{endings:?}");
        for (tag, ending) in endings {
            match (tag, finishes) {
                (2, _) => {
                    let error = ending.expect_err("it waited");
                    assert!(matches!(error, CallError::NotBegun(NotBegun::PoolClosed)));
                }
                (_, true) => ending.expect("it had time"),
                (_, false) => {
                    let error = ending.expect_err("it had no time");
                    assert!(error.may_have_happened(), "{error}");
                }
            }
        }
        assert!(simulated.engine.is_closed());
        assert_eq!(
            (simulated.open_links(), simulated.engine.next_deadline_ns()),
            (0, None)
        );
        simulated.assert_at_rest();
    }
}

#[test]
fn deadlines_pass_for_calls_that_run_and_for_calls_that_wait() {
    let one = ServerBehavior {
        max_streams: Some(1),
        ..ServerBehavior::default()
    };
    let mut simulated = simulated(fixed(1), one);
    simulated.run_for(SECOND);
    for round in 0..2 {
        let silent = PoolCall {
            timeout_ns: Some(300 * MS),
            ..call("/t.T/Silent")
        };
        simulated.begin(0, &silent).expect("there is room");
        simulated.begin(1, &silent).expect("it may wait");
        let statistics = simulated.statistics();
        assert_eq!(
            (statistics.in_flight, statistics.waiting_for_stream),
            (1, 1)
        );
        simulated.run_for(299 * MS);
        assert!(simulated.endings().is_empty());
        simulated.run_for(MS);
        let endings = simulated.endings();
        let [(0, Err(CallError::DeadlineExceeded)), (1, Err(unsent))] = &endings[..] else {
            panic!("{endings:?}");
        };
        let waited_for = WaitedFor::Stream;
        let expected = NotBegun::WaitedTooLong { waited_for };
        assert!(matches!(unsent, CallError::NotBegun(found) if *found == expected));
        assert_eq!(simulated.done[1], 0);
        assert_eq!(simulated.done[0], round + 1);
        simulated.assert_at_rest();
        assert_eq!(
            simulated.statistics().wait_times.stream_ns,
            (u64::from(round) + 1) * 300 * MS
        );
        simulated.echo(2).expect("its stream is free");
    }
}

#[test]
fn cancelled_calls_are_not_reported_and_make_room() {
    let options = PoolOptions {
        max_in_flight: 1,
        max_waiting: 1,
        ..fixed(1)
    };
    let mut simulated = simulated(options, ServerBehavior::default());
    simulated.run_for(SECOND);
    for _ in 0..200 {
        let now_ns = simulated.now_ns;
        let running = simulated
            .engine
            .begin(0, &call("/t.T/Silent"), now_ns, |_| {});
        let waiting = simulated.engine.begin(1, &call(ECHO), now_ns, |_| {});
        let (running, waiting) = (running.expect("room"), waiting.expect("room"));
        simulated.engine.cancel(waiting, now_ns);
        simulated.engine.cancel(waiting, now_ns);
        simulated
            .begin(2, &call(ECHO))
            .expect("there is room again");
        simulated.engine.cancel(running, now_ns);
        simulated.run_for(SECOND);
        let endings = simulated.endings();
        assert!(matches!(endings[..], [(2, Ok(()))]), "{endings:?}");
        simulated.assert_at_rest();
    }
    assert_eq!(simulated.statistics().counters.cancelled, 400);
}

#[test]
fn a_stream_takes_what_may_wait_and_goes_on_when_it_is_writable() {
    let mut simulated = simulated(fixed(1), ServerBehavior::default());
    for _ in 0..2 {
        let now_ns = simulated.now_ns;
        let chat = PoolCall {
            holds_messages: true,
            wants_head: true,
            ..call("/t.T/Chat")
        };
        let chat = simulated
            .engine
            .begin_streaming(5, &chat, now_ns)
            .expect("room");
        let (mut sent, mut received) = (0, 0);
        for _ in 0..1000 {
            while sent < 100 {
                let last = sent == 99;
                match simulated
                    .engine
                    .send(chat, last, |out| out.resize(100_000, sent))
                {
                    Ok(()) => sent += 1,
                    Err(error) => {
                        assert_eq!(error, SendError::NotWritable);
                        assert!(!simulated.engine.can_send(chat));
                        break;
                    }
                }
            }
            simulated.run_for(10 * MS);
            let reported = simulated.take_reported();
            for (_, _, what) in reported {
                match what {
                    Reported::Message(bytes) => {
                        assert_eq!(bytes, vec![received; 100_000]);
                        received += 1;
                        simulated.engine.release(chat);
                    }
                    Reported::Ended(result) => {
                        result.expect("it is answered");
                        assert_eq!((sent, received), (100, 100));
                    }
                    Reported::Head | Reported::Writable => {}
                }
            }
            if received == 100 {
                break;
            }
        }
        simulated.run_for(SECOND);
        simulated.take_reported();
        simulated.assert_at_rest();
        simulated.cut_all();
        simulated.run_for(SECOND);
    }
}

/// Begins a call with a large request, which is not copied.
fn upload(simulated: &mut SimulatedPool, tag: u64) {
    simulated.done.resize(10, 0);
    let now_ns = simulated.now_ns;
    let begun = simulated
        .engine
        .begin_shared(tag, &call(ECHO), now_ns, |out| {
            out.extend_from_slice(&tag.to_le_bytes());
            Some(Bytes::from(vec![0; 15 << 20]))
        });
    begun.expect("there is room");
}

#[test]
fn an_upload_delays_no_small_call_of_its_connection() {
    let mut simulated = simulated(fixed(1), ServerBehavior::default());
    simulated.fault_rates.latency_ns = MS;
    simulated.run_for(SECOND);
    for _ in 0..2 {
        upload(&mut simulated, 0);
        simulated.run_for(10 * MS);
        for _ in 0..3 {
            simulated.begin(1, &call(ECHO)).expect("there is room");
            // One round trip for itself, and one for the window of the connection, which the
            // upload has used up.
            simulated.run_for(4 * MS);
            let endings = simulated.endings();
            assert!(matches!(endings[..], [(1, Ok(()))]), "{endings:?}");
        }
        assert_eq!(simulated.statistics().in_flight, 1, "the upload goes on");
        simulated.run_for(60 * SECOND);
        assert_eq!(simulated.endings().len(), 1);
        simulated.assert_at_rest();
    }
}

#[test]
fn small_calls_take_a_connection_that_is_not_held_up() {
    let mut simulated = simulated(fixed(2), ServerBehavior::default());
    simulated.fault_rates.latency_ns = MS;
    simulated.run_for(SECOND);
    for _ in 0..2 {
        simulated.fault_rates.block = 1;
        upload(&mut simulated, 0);
        simulated.turn();
        simulated.fault_rates.block = 0;
        let held_up = |connection: &ConnectionStatistics| connection.waits_for_socket;
        assert_eq!(
            simulated
                .statistics()
                .connections
                .iter()
                .filter(|c| held_up(c))
                .count(),
            1
        );
        for tag in 1..5 {
            simulated.begin(tag, &call(ECHO)).expect("there is room");
        }
        for connection in simulated.statistics().connections {
            let expected = if held_up(&connection) { 1 } else { 4 };
            assert_eq!(connection.in_flight, expected);
        }
        simulated.run_for(60 * SECOND);
        assert_eq!(simulated.endings().len(), 5);
        let waited_ns = simulated.statistics().traffic.socket_wait_ns;
        assert!(waited_ns > 0 && simulated.statistics().traffic.window_wait_ns > 0);
    }
}

#[test]
fn messages_that_are_held_shut_the_window_of_their_server() {
    let mut simulated = simulated(fixed(1), ServerBehavior::default());
    simulated.run_for(SECOND);
    let now_ns = simulated.now_ns;
    let chat = PoolCall {
        holds_messages: true,
        ..call("/t.T/Chat")
    };
    let chat = simulated
        .engine
        .begin_streaming(5, &chat, now_ns)
        .expect("room");
    for _ in 0..100 {
        while simulated.engine.can_send(chat) {
            let sent = simulated
                .engine
                .send(chat, false, |out| out.resize(10_000, 0));
            sent.expect("it is writable");
        }
        simulated.run_for(10 * MS);
    }
    let held = |simulated: &mut SimulatedPool| {
        let reported = simulated.take_reported().into_iter();
        reported
            .filter(|(_, _, reported)| matches!(reported, Reported::Message(_)))
            .count()
    };
    let before = held(&mut simulated);
    assert!((1..100).contains(&before), "{before} messages of 10 kB");
    simulated.run_for(10 * SECOND);
    assert_eq!(held(&mut simulated), 0);
    simulated.engine.release(chat);
    simulated.run_for(SECOND);
    assert!(held(&mut simulated) > 0);
    simulated.echo(6).expect("others go on");
}
