//! Calls, limits and ends, each state twice.

use client::{
    Bytes, CallError, ConnectionStatistics, NotBegun, PoolCall, PoolOptions, PoolSize,
    PoolStatistics, SendError,
};

use crate::server::Manners;
use crate::world::{Heard, MS, SECOND, World};

pub fn call(path: &str) -> PoolCall<'_> {
    PoolCall {
        path,
        ..PoolCall::default()
    }
}

pub const ECHO: &str = "/t.T/Echo";

pub fn world(options: PoolOptions, manners: Manners) -> World {
    World::new(options, vec![manners], 7)
}

pub fn fixed(count: usize) -> PoolOptions {
    PoolOptions {
        size: PoolSize::Fixed(count),
        ..PoolOptions::default()
    }
}

impl World {
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
        let heard = self.take_heard().into_iter();
        let mut endings: Vec<_> = heard
            .filter_map(|(tag, _, heard)| match heard {
                Heard::Ended(result) => Some((tag, result)),
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
    let mut world = world(fixed(1), Manners::default());
    world.run_for(SECOND);
    for round in 0..2 {
        let writes = world.writes;
        for tag in 0..100 {
            world
                .begin(round * 100 + tag, &call(ECHO))
                .expect("there is room");
        }
        world.turn();
        assert_eq!(world.writes, writes + 1);
        world.run_for(SECOND);
        let endings = world.endings();
        assert_eq!(endings.len(), 100);
        assert!(
            endings.iter().all(|(_, result)| result.is_ok()),
            "{endings:?}"
        );
        world.assert_at_rest();
    }
}

#[test]
fn calls_above_the_permits_wait_and_above_the_queue_are_refused() {
    let options = PoolOptions {
        max_in_flight: 3,
        max_waiting: 2,
        ..fixed(1)
    };
    let slow = Manners {
        slow: (1, 100 * MS),
        ..Manners::default()
    };
    let mut world = world(options, slow);
    world.run_for(SECOND);
    for round in 0..2 {
        for tag in 0..5 {
            world
                .begin(round * 10 + tag, &call(ECHO))
                .expect("there is room");
        }
        let refused = world.begin(9, &call(ECHO));
        assert!(
            matches!(
                refused,
                Err(CallError::NotBegun(NotBegun::QueueFull { limit: 2 }))
            ),
            "{refused:?}"
        );
        let statistics = world.engine.statistics(world.now_ns);
        assert_eq!(
            (statistics.in_flight, statistics.waiting_for_permit),
            (3, 2)
        );
        world.run_for(SECOND);
        assert_eq!(world.endings().len(), 5);
        world.assert_at_rest();
        let times = world.engine.statistics(world.now_ns).wait_times;
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
    let mut world = world(options, Manners::default());
    world.run_for(SECOND);
    let writes = world.writes;
    let past = PoolCall {
        timeout_ns: Some(0),
        ..call(ECHO)
    };
    for _ in 0..2 {
        let refused = world.begin(1, &past);
        assert!(
            matches!(refused, Err(CallError::NotBegun(NotBegun::DeadlinePassed))),
            "{refused:?}"
        );
        let now_ns = world.now_ns;
        let refused = (world.engine).begin(1, &call(ECHO), now_ns, |out| out.resize(101, 0));
        assert!(
            matches!(refused, Err(CallError::BadRequest { .. })),
            "{refused:?}"
        );
        let chat = (world.engine).begin_streaming(2, &call("/t.T/Chat"), now_ns);
        let chat = chat.expect("there is room");
        let sent = world.engine.send(chat, false, |out| out.resize(101, 0));
        let limit_bytes = 100;
        let bytes = 101;
        assert_eq!(sent, Err(SendError::TooLarge { bytes, limit_bytes }));
        world.engine.cancel(chat, now_ns);
        let sent = world.engine.send(chat, false, |_| {});
        assert_eq!(sent, Err(SendError::Ended));
    }
    assert_eq!(world.writes, writes);
    world.assert_at_rest();
    world.echo(3).expect("the pool is as before");
}

#[test]
fn a_pool_that_was_closed_refuses_calls_and_ends_those_that_wait() {
    let options = PoolOptions {
        max_in_flight: 2,
        ..fixed(2)
    };
    let slow = Manners {
        slow: (1, 300 * MS),
        ..Manners::default()
    };
    for (grace_ns, finishes) in [(SECOND, true), (100 * MS, false)] {
        let mut world = world(options.clone(), slow.clone());
        world.run_for(SECOND);
        for tag in 0..3 {
            world.begin(tag, &call(ECHO)).expect("there is room");
        }
        world.turn();
        for _ in 0..2 {
            world.engine.close(grace_ns, world.now_ns);
            let refused = world.begin(9, &call(ECHO));
            assert!(
                matches!(refused, Err(CallError::NotBegun(NotBegun::PoolClosed))),
                "{refused:?}"
            );
        }
        world.run_for(grace_ns);
        let endings = world.endings();
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
        assert!(world.engine.is_closed());
        assert_eq!(
            (world.open_links(), world.engine.next_deadline_ns()),
            (0, None)
        );
        world.assert_at_rest();
    }
}

#[test]
fn deadlines_pass_for_calls_that_run_and_for_calls_that_wait() {
    let one = Manners {
        max_streams: Some(1),
        ..Manners::default()
    };
    let mut world = world(fixed(1), one);
    world.run_for(SECOND);
    for round in 0..2 {
        let silent = PoolCall {
            timeout_ns: Some(300 * MS),
            ..call("/t.T/Silent")
        };
        world.begin(0, &silent).expect("there is room");
        world.begin(1, &silent).expect("it may wait");
        let statistics = world.statistics();
        assert_eq!(
            (statistics.in_flight, statistics.waiting_for_stream),
            (1, 1)
        );
        world.run_for(299 * MS);
        assert!(world.endings().is_empty());
        world.run_for(MS);
        let endings = world.endings();
        let [(0, Err(CallError::DeadlineExceeded)), (1, Err(unsent))] = &endings[..] else {
            panic!("{endings:?}");
        };
        assert!(matches!(
            unsent,
            CallError::NotBegun(NotBegun::DeadlinePassed)
        ));
        assert_eq!(world.done[1], 0);
        assert_eq!(world.done[0], round + 1);
        world.assert_at_rest();
        assert_eq!(
            world.statistics().wait_times.stream_ns,
            (u64::from(round) + 1) * 300 * MS
        );
        world.echo(2).expect("its stream is free");
    }
}

#[test]
fn cancelled_calls_are_not_reported_and_make_room() {
    let options = PoolOptions {
        max_in_flight: 1,
        max_waiting: 1,
        ..fixed(1)
    };
    let mut world = world(options, Manners::default());
    world.run_for(SECOND);
    for _ in 0..200 {
        let now_ns = world.now_ns;
        let running = world.engine.begin(0, &call("/t.T/Silent"), now_ns, |_| {});
        let waiting = world.engine.begin(1, &call(ECHO), now_ns, |_| {});
        let (running, waiting) = (running.expect("room"), waiting.expect("room"));
        world.engine.cancel(waiting, now_ns);
        world.engine.cancel(waiting, now_ns);
        world.begin(2, &call(ECHO)).expect("there is room again");
        world.engine.cancel(running, now_ns);
        world.run_for(SECOND);
        let endings = world.endings();
        assert!(matches!(endings[..], [(2, Ok(()))]), "{endings:?}");
        world.assert_at_rest();
    }
    assert_eq!(world.statistics().counters.cancelled, 400);
}

#[test]
fn a_stream_takes_what_may_wait_and_goes_on_when_it_is_writable() {
    let mut world = world(fixed(1), Manners::default());
    for _ in 0..2 {
        let now_ns = world.now_ns;
        let chat = PoolCall {
            holds_messages: true,
            wants_head: true,
            ..call("/t.T/Chat")
        };
        let chat = world
            .engine
            .begin_streaming(5, &chat, now_ns)
            .expect("room");
        let (mut sent, mut received) = (0, 0);
        for _ in 0..1000 {
            while sent < 100 {
                let last = sent == 99;
                match world
                    .engine
                    .send(chat, last, |out| out.resize(100_000, sent))
                {
                    Ok(()) => sent += 1,
                    Err(error) => {
                        assert_eq!(error, SendError::NotWritable);
                        assert!(!world.engine.can_send(chat));
                        break;
                    }
                }
            }
            world.run_for(10 * MS);
            let heard = world.take_heard();
            for (_, _, what) in heard {
                match what {
                    Heard::Message(bytes) => {
                        assert_eq!(bytes, vec![received; 100_000]);
                        received += 1;
                        world.engine.release(chat);
                    }
                    Heard::Ended(result) => {
                        result.expect("it is answered");
                        assert_eq!((sent, received), (100, 100));
                    }
                    Heard::Head | Heard::Writable => {}
                }
            }
            if received == 100 {
                break;
            }
        }
        world.run_for(SECOND);
        world.take_heard();
        world.assert_at_rest();
        world.cut_all();
        world.run_for(SECOND);
    }
}

/// Begins a call with a large request, which is not copied.
fn upload(world: &mut World, tag: u64) {
    world.done.resize(10, 0);
    let now_ns = world.now_ns;
    let begun = world.engine.begin_shared(tag, &call(ECHO), now_ns, |out| {
        out.extend_from_slice(&tag.to_le_bytes());
        Some(Bytes::from(vec![0; 15 << 20]))
    });
    begun.expect("there is room");
}

#[test]
fn an_upload_delays_no_small_call_of_its_connection() {
    let mut world = world(fixed(1), Manners::default());
    world.weather.latency_ns = MS;
    world.run_for(SECOND);
    for _ in 0..2 {
        upload(&mut world, 0);
        world.run_for(10 * MS);
        for _ in 0..3 {
            world.begin(1, &call(ECHO)).expect("there is room");
            // One round trip for itself, and one for the window of the connection, which the
            // upload has used up.
            world.run_for(4 * MS);
            let endings = world.endings();
            assert!(matches!(endings[..], [(1, Ok(()))]), "{endings:?}");
        }
        assert_eq!(world.statistics().in_flight, 1, "the upload goes on");
        world.run_for(60 * SECOND);
        assert_eq!(world.endings().len(), 1);
        world.assert_at_rest();
    }
}

#[test]
fn small_calls_take_a_connection_that_is_not_held_up() {
    let mut world = world(fixed(2), Manners::default());
    world.weather.latency_ns = MS;
    world.run_for(SECOND);
    for _ in 0..2 {
        world.weather.block = 1;
        upload(&mut world, 0);
        world.turn();
        world.weather.block = 0;
        let held_up = |connection: &ConnectionStatistics| connection.waits_for_socket;
        assert_eq!(
            world
                .statistics()
                .connections
                .iter()
                .filter(|c| held_up(c))
                .count(),
            1
        );
        for tag in 1..5 {
            world.begin(tag, &call(ECHO)).expect("there is room");
        }
        for connection in world.statistics().connections {
            let expected = if held_up(&connection) { 1 } else { 4 };
            assert_eq!(connection.in_flight, expected);
        }
        world.run_for(60 * SECOND);
        assert_eq!(world.endings().len(), 5);
        let waited_ns = world.statistics().traffic.socket_wait_ns;
        assert!(waited_ns > 0 && world.statistics().traffic.window_wait_ns > 0);
    }
}

#[test]
fn messages_that_are_held_shut_the_window_of_their_server() {
    let mut world = world(fixed(1), Manners::default());
    world.run_for(SECOND);
    let now_ns = world.now_ns;
    let chat = PoolCall {
        holds_messages: true,
        ..call("/t.T/Chat")
    };
    let chat = world
        .engine
        .begin_streaming(5, &chat, now_ns)
        .expect("room");
    for _ in 0..100 {
        while world.engine.can_send(chat) {
            let sent = world.engine.send(chat, false, |out| out.resize(10_000, 0));
            sent.expect("it is writable");
        }
        world.run_for(10 * MS);
    }
    let held = |world: &mut World| {
        let heard = world.take_heard().into_iter();
        heard
            .filter(|(_, _, heard)| matches!(heard, Heard::Message(_)))
            .count()
    };
    let before = held(&mut world);
    assert!((1..100).contains(&before), "{before} messages of 10 kB");
    world.run_for(10 * SECOND);
    assert_eq!(held(&mut world), 0);
    world.engine.release(chat);
    world.run_for(SECOND);
    assert!(held(&mut world) > 0);
    world.echo(6).expect("others go on");
}
