//! Many calls through a pool over a bad network to bad servers: each call ends exactly once, with
//! its own answer, and nothing is done twice that may not be.
//!
//! `PELTON_SEED` repeats a run, `PELTON_POOL_CALLS` makes it longer.

use std::time::Duration;

use client::{
    Balancing, Bytes, CallError, HealthCheck, PoolCall, PoolCallKey, PoolMode, PoolOptions,
    PoolSize,
};
use testkit::{OnFailure, Random};

use crate::server::Manners;
use crate::world::{Heard, MS, SECOND, Weather, World, tag_of};

/// Of all runs of this file together, if the environment does not say otherwise.
const CALLS: u64 = 2_500_000;

fn from_environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is a number: {text}")),
    )
}

/// What the simulation knows of a call.
#[derive(Clone, Debug)]
struct Record {
    is_repeatable: bool,
    is_chat: bool,
    /// Bytes behind the tag.
    length: usize,
    has_answer: bool,
    is_over: bool,
    is_cancelled: bool,
    /// Messages of a chat that were sent, and that came back.
    sent: u64,
    received: u64,
    to_send: u64,
    key: Option<PoolCallKey>,
}

#[derive(Debug, Default)]
struct Tally {
    succeeded: u64,
    failed: u64,
    refused: u64,
    cancelled: u64,
    chats: u64,
    waited_for_stream: u64,
}

struct Run {
    world: World,
    records: Vec<Record>,
    open: u64,
    tally: Tally,
    random: Random,
}

impl Run {
    fn begin(&mut self) {
        let random = &mut self.random;
        let tag = self.records.len() as u64;
        let is_chat = random.once_in(50);
        let record = Record {
            is_repeatable: random.chance(30),
            is_chat,
            length: if random.once_in(500) {
                100_000
            } else {
                random.below(40)
            },
            has_answer: false,
            is_over: false,
            is_cancelled: false,
            sent: 0,
            received: 0,
            to_send: 1 + random.below(10_u64),
            key: None,
        };
        let call = PoolCall {
            path: if is_chat { "/t.T/Chat" } else { "/t.T/Echo" },
            timeout_ns: Some(SECOND + random.below(4 * SECOND)),
            is_repeatable: record.is_repeatable,
            waits_for_ready: random.chance(50),
            wants_head: random.once_in(10),
            holds_messages: is_chat && random.chance(50),
            ..PoolCall::default()
        };
        let length = record.length;
        self.records.push(record);
        self.world.done.push(0);
        let now_ns = self.world.now_ns;
        let engine = &mut self.world.engine;
        let begun = if is_chat {
            engine.begin_streaming(tag, &call, now_ns)
        } else {
            engine.begin_shared(tag, &call, now_ns, |out| {
                out.extend_from_slice(&tag.to_le_bytes());
                let rest = vec![tag as u8; length];
                if length > 1000 {
                    return Some(Bytes::from(rest));
                }
                out.extend_from_slice(&rest);
                None
            })
        };
        match begun {
            Ok(key) => {
                self.open += 1;
                self.records[tag as usize].key = Some(key);
                if is_chat {
                    self.tally.chats += 1;
                    self.send_on(tag);
                }
            }
            Err(error) => {
                assert!(!error.may_have_happened(), "{error}");
                assert!(matches!(error, CallError::NotBegun(_)), "{error}");
                self.records[tag as usize].is_over = true;
                self.tally.refused += 1;
            }
        }
    }

    /// Sends messages of a chat as long as they are taken.
    fn send_on(&mut self, tag: u64) {
        let record = &mut self.records[tag as usize];
        let Some(key) = record.key.filter(|_| !record.is_over) else {
            return;
        };
        while record.sent < record.to_send {
            let last = record.sent + 1 == record.to_send;
            let number = record.sent;
            let sent = self.world.engine.send(key, last, |out| {
                out.extend_from_slice(&tag.to_le_bytes());
                out.extend_from_slice(&number.to_le_bytes());
            });
            match sent {
                Ok(()) => record.sent += 1,
                Err(client::SendError::NotWritable) => return,
                Err(error) => panic!("{error}: {record:?}"),
            }
        }
    }

    fn cancel_some(&mut self) {
        let count = self.records.len();
        let tag = count - 1 - self.random.below(count.min(300));
        let record = &mut self.records[tag];
        if let Some(key) = record.key.filter(|_| !record.is_over) {
            record.is_over = true;
            record.is_cancelled = true;
            self.world.engine.cancel(key, self.world.now_ns);
            self.open -= 1;
            self.tally.cancelled += 1;
        }
    }

    fn look(&mut self) {
        for (tag, key, heard) in self.world.take_heard() {
            let record = &mut self.records[tag as usize];
            assert_eq!(record.key, Some(key), "{tag}");
            assert!(
                !record.is_over,
                "{heard:?} after the end of {tag}: {record:?}"
            );
            match heard {
                Heard::Head => {}
                Heard::Message(bytes) => {
                    assert_eq!(tag_of(&bytes), Some(tag), "an answer of another call");
                    if record.is_chat {
                        let number = tag_of(&bytes[8..]);
                        assert_eq!(number, Some(record.received), "chat {tag}");
                        record.received += 1;
                        self.world.engine.release(key);
                    } else {
                        assert_eq!(bytes.len(), 8 + record.length);
                        assert!(bytes[8..].iter().all(|&byte| byte == tag as u8));
                        assert!(!record.has_answer, "two answers of {tag}");
                    }
                    record.has_answer = true;
                }
                Heard::Writable => self.send_on(tag),
                Heard::Ended(result) => self.end(tag, result),
            }
        }
    }

    fn end(&mut self, tag: u64, result: Result<(), CallError>) {
        let record = &mut self.records[tag as usize];
        record.is_over = true;
        self.open -= 1;
        match result {
            Ok(()) => {
                assert!(record.has_answer, "{tag} has none");
                assert!(!record.is_chat || record.received == record.to_send);
                self.tally.succeeded += 1;
            }
            Err(error) => {
                if !error.may_have_happened() && !record.is_repeatable {
                    let done = self.world.done[tag as usize];
                    assert_eq!(done, 0, "{tag} was done, and ended with {error}");
                }
                self.tally.failed += 1;
            }
        }
    }

    fn run(&mut self, calls: u64) {
        let mut target = 100;
        let mut check = 0;
        while (self.records.len() as u64) < calls {
            if self.random.once_in(200) {
                target = 1 + self.random.below(400_u64);
            }
            while self.open < target && (self.records.len() as u64) < calls {
                let before = self.open;
                self.begin();
                if self.open == before {
                    break;
                }
            }
            if self.random.once_in(20) {
                self.cancel_some();
            }
            self.world.turn();
            self.world.step(self.world.now_ns + SECOND);
            self.look();
            check += 1;
            if check % 64 == 0 {
                let statistics = self.world.engine.statistics(self.world.now_ns);
                self.tally.waited_for_stream += statistics.waiting_for_stream as u64;
            }
        }
        for _ in 0..100 {
            self.world.run_for(SECOND);
            self.look();
        }
        assert_eq!(self.open, 0, "calls that have not ended");
        for (tag, record) in self.records.iter().enumerate() {
            assert!(record.is_over, "{tag} {record:?}");
            let done = u64::from(self.world.done[tag]);
            let most = if record.is_chat { record.to_send } else { 1 };
            assert!(
                record.is_repeatable || done <= most,
                "{tag} was done {done} times: {record:?}"
            );
        }
        self.world.assert_at_rest();
    }

    /// Closes the pool, and looks whether all goes.
    fn close(&mut self) {
        self.world.engine.close(SECOND, self.world.now_ns);
        self.world.run_for(2 * SECOND);
        assert!(self.world.engine.is_closed(), "{:?}", self.world.engine);
        assert_eq!(self.world.open_links(), 0);
        let statistics = self.world.engine.statistics(self.world.now_ns);
        assert!(statistics.connections.is_empty());
        let counters = statistics.counters;
        assert_eq!(counters.succeeded, self.tally.succeeded, "{counters:?}");
        assert_eq!(counters.failed, self.tally.failed, "{counters:?}");
        assert_eq!(counters.cancelled, self.tally.cancelled, "{counters:?}");
        assert_eq!(counters.refused, self.tally.refused, "{counters:?}");
        assert_eq!(counters.dials, self.world.closed, "{counters:?}");
    }
}

fn options(mode: PoolMode, random: &mut Random) -> PoolOptions {
    let check = |interval| {
        Some(HealthCheck {
            service: String::new(),
            interval,
        })
    };
    PoolOptions {
        health: random.pick(&[None, check(None), check(Some(Duration::from_secs(1)))]),
        mode,
        size: match random.chance(50) {
            true => PoolSize::Fixed(1 + random.below(6_usize)),
            false => PoolSize::Automatic {
                min: random.below(2_usize),
                max: 8,
            },
        },
        balancing: random.pick(&[Balancing::LeastLoaded, Balancing::RoundRobin]),
        max_in_flight: random.pick(&[50, 200, 65_536]),
        max_waiting: random.pick(&[100, 65_536]),
        connect_timeout: Duration::from_secs(1),
        ..PoolOptions::default()
    }
}

fn bad_manners(random: &mut Random) -> Manners {
    Manners {
        max_streams: Some(random.pick(&[2, 7, 30, 100])),
        is_serving: random.pick(&[None, Some(true)]),
        latency_ns: 5 * MS,
        slow: (300, 3 * SECOND),
        refuse: 300,
        drain: 500,
        cut_off: 500,
        push_back: 300,
        unavailable: 400,
        ..Manners::default()
    }
}

fn simulate(mode: PoolMode, calls: u64, seed: u64) -> Run {
    let _on_failure = OnFailure::of_seed(seed);
    let mut random = Random::new(seed);
    let options = options(mode, &mut random);
    let manners = (0..4).map(|_| bad_manners(&mut random)).collect();
    let mut world = World::new(options, manners, seed);
    world.weather = Weather {
        cut: 400,
        half_open: 400,
        block: 50,
        refuse_dial: 8,
        lose_dial: 12,
        latency_ns: MS / 2,
    };
    let mut run = Run {
        world,
        records: Vec::new(),
        open: 0,
        tally: Tally::default(),
        random,
    };
    run.run(calls);
    run.close();
    run
}

#[test]
fn each_call_ends_once_and_nothing_is_done_twice() {
    let first_seed = from_environment("PELTON_SEED").unwrap_or(1);
    let calls = from_environment("PELTON_POOL_CALLS").unwrap_or(CALLS);
    let rounds = 20;
    let (mut begun, mut faults) = (0, [0; 12]);
    for round in 0..rounds {
        let mode = match round % 10 {
            0 => PoolMode::Exclusive,
            1 => PoolMode::Short,
            _ => PoolMode::Multiplexed,
        };
        let run = simulate(mode, calls / rounds, first_seed + round);
        let (deeds, weather) = (run.world.deeds, run.world.weather_counts);
        let counts = [
            deeds.refused,
            deeds.drained,
            deeds.cut_off,
            deeds.pushed_back,
            deeds.unavailable,
            deeds.slow,
            weather.cut,
            weather.half_open,
            weather.block,
            weather.refused_dials,
            weather.lost_dials,
            run.tally.waited_for_stream,
        ];
        begun += run.tally.succeeded + run.tally.failed + run.tally.cancelled;
        for (sum, count) in faults.iter_mut().zip(counts) {
            *sum += count;
        }
    }
    println!("{begun} calls, faults: {faults:?}");
    assert!(
        calls < CALLS || begun >= 1_000_000 && faults.iter().all(|&count| count >= 1000),
        "too few: {begun} calls, faults {faults:?}"
    );
}
