//! Many calls through a pool over a bad network to bad servers: each call ends exactly once, with
//! its own answer, and nothing is done twice that may not be.
//!
//! `PELTON_SEED` repeats a run, `PELTON_POOL_CALLS` makes it longer.

use std::time::Duration;

use client::{
    Balancing, Bytes, CallError, EndpointHealth, HealthCheck, PoolCall, PoolCallKey, PoolMode,
    PoolOptions, PoolSize,
};
use testkit::{OnFailure, Random};

use crate::server::ServerBehavior;
use crate::simulated::{FaultRates, MS, Reported, SECOND, SimulatedPool, tag_of};

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
    not_serving: u64,
}

struct Run {
    simulated: SimulatedPool,
    records: Vec<Record>,
    open: u64,
    tally: Tally,
    random: Random,
    /// Servers that allow one stream at a time.
    single_servers: u64,
    max_in_flight: usize,
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
        self.simulated.done.push(0);
        let now_ns = self.simulated.now_ns;
        let engine = &mut self.simulated.engine;
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
            let sent = self.simulated.engine.send(key, last, |out| {
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
            self.simulated.engine.cancel(key, self.simulated.now_ns);
            self.open -= 1;
            self.tally.cancelled += 1;
        }
    }

    /// A server says that it serves, or that it does not, if it says anything about that.
    fn change_health(&mut self) {
        let endpoint = self.random.below(self.simulated.behavior.len());
        if self.simulated.behavior[endpoint].is_serving.is_some() {
            let is_serving = self.random.chance(50);
            self.simulated.set_serving(endpoint, is_serving);
            self.tally.not_serving += u64::from(!is_serving);
        }
    }

    fn look_for_free_permits(&mut self) {
        let statistics = self.simulated.engine.statistics(self.simulated.now_ns);
        assert!(
            statistics.waiting_for_permit == 0 || statistics.in_flight == self.max_in_flight,
            "calls wait for permits that are free: {statistics:?}"
        );
    }

    /// All servers serve, and the network is a good one: calls succeed after a while.
    fn serve_again(&mut self) {
        self.simulated.fault_rates = FaultRates::default();
        for endpoint in 0..self.simulated.behavior.len() {
            let behavior = &mut self.simulated.behavior[endpoint];
            *behavior = ServerBehavior {
                max_streams: behavior.max_streams,
                // Else what a stream is answered now would overtake what it was answered before.
                latency_ns: behavior.latency_ns,
                is_serving: behavior.is_serving,
                health_latency_ns: behavior.health_latency_ns,
                ..ServerBehavior::default()
            };
            if behavior.is_serving.is_some() {
                self.simulated.set_serving(endpoint, true);
            }
        }
        for _ in 0..100 {
            self.simulated.run_for(SECOND);
            self.look();
        }
        for _ in 0..20 {
            let before = self.tally.succeeded;
            self.begin();
            self.simulated.run_for(5 * SECOND);
            self.look();
            assert_eq!(
                self.tally.succeeded,
                before + 1,
                "all serve: {:?}",
                self.simulated.engine.statistics(self.simulated.now_ns)
            );
        }
        self.simulated.run_for(20 * SECOND);
        let endpoints = self
            .simulated
            .engine
            .statistics(self.simulated.now_ns)
            .endpoints;
        let mut healths = endpoints.iter().map(|endpoint| endpoint.health);
        let is_serving = healths.all(|health| health != EndpointHealth::Unhealthy);
        assert!(is_serving, "all serve: {endpoints:?}");
    }

    fn look(&mut self) {
        for (tag, key, reported) in self.simulated.take_reported() {
            let record = &mut self.records[tag as usize];
            assert_eq!(record.key, Some(key), "{tag}");
            assert!(
                !record.is_over,
                "{reported:?} after the end of {tag}: {record:?}"
            );
            match reported {
                Reported::Head => {}
                Reported::Message(bytes) => {
                    assert_eq!(tag_of(&bytes), Some(tag), "an answer of another call");
                    if record.is_chat {
                        let number = tag_of(&bytes[8..]);
                        assert_eq!(number, Some(record.received), "chat {tag}");
                        record.received += 1;
                        self.simulated.engine.release(key);
                    } else {
                        assert_eq!(bytes.len(), 8 + record.length);
                        assert!(bytes[8..].iter().all(|&byte| byte == tag as u8));
                        assert!(!record.has_answer, "two answers of {tag}");
                    }
                    record.has_answer = true;
                }
                Reported::Writable => self.send_on(tag),
                Reported::Ended(result) => self.end(tag, result),
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
                    let done = self.simulated.done[tag as usize];
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
                self.simulated.turn();
                self.look_for_free_permits();
            }
            if self.random.once_in(500) {
                self.change_health();
            }
            self.simulated.turn();
            self.simulated.step(self.simulated.now_ns + SECOND);
            self.look();
            check += 1;
            if check % 64 == 0 {
                let statistics = self.simulated.engine.statistics(self.simulated.now_ns);
                self.tally.waited_for_stream += statistics.waiting_for_stream as u64;
            }
        }
        self.serve_again();
        for _ in 0..100 {
            self.simulated.run_for(SECOND);
            self.look();
        }
        assert_eq!(self.open, 0, "calls that have not ended");
        for (tag, record) in self.records.iter().enumerate() {
            assert!(record.is_over, "{tag} {record:?}");
            let done = u64::from(self.simulated.done[tag]);
            let most = if record.is_chat { record.to_send } else { 1 };
            assert!(
                record.is_repeatable || done <= most,
                "{tag} was done {done} times: {record:?}"
            );
        }
        self.simulated.assert_at_rest();
    }

    /// Closes the pool, and looks whether all goes.
    fn close(&mut self) {
        self.simulated.engine.close(SECOND, self.simulated.now_ns);
        self.simulated.run_for(2 * SECOND);
        assert!(
            self.simulated.engine.is_closed(),
            "{:?}",
            self.simulated.engine
        );
        assert_eq!(self.simulated.open_links(), 0);
        let statistics = self.simulated.engine.statistics(self.simulated.now_ns);
        assert!(statistics.connections.is_empty());
        let counters = statistics.counters;
        assert_eq!(counters.succeeded, self.tally.succeeded, "{counters:?}");
        assert_eq!(counters.failed, self.tally.failed, "{counters:?}");
        assert_eq!(counters.cancelled, self.tally.cancelled, "{counters:?}");
        assert_eq!(counters.refused, self.tally.refused, "{counters:?}");
        assert_eq!(counters.dials, self.simulated.closed, "{counters:?}");
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

/// `may_be_single`: it may allow one stream at a time.
fn bad_manners(random: &mut Random, may_be_single: bool) -> ServerBehavior {
    let max_streams = match may_be_single && random.chance(30) {
        true => 1,
        false => random.pick(&[2, 7, 30, 100]),
    };
    ServerBehavior {
        max_streams: Some(max_streams),
        is_serving: random.pick(&[None, Some(true)]),
        health_latency_ns: random.pick(&[0, 10 * MS]),
        latency_ns: 5 * MS,
        slow: (300, 3 * SECOND),
        refuse: 300,
        drain: 500,
        cut_off: 500,
        push_back: 300,
        unavailable: 400,
        ..ServerBehavior::default()
    }
}

fn simulate(mode: PoolMode, calls: u64, seed: u64) -> Run {
    let _on_failure = OnFailure::of_seed(seed);
    let mut random = Random::new(seed);
    let options = options(mode, &mut random);
    // A health check that stays open would take the only stream.
    let watches = options.health.as_ref();
    let may_be_single = watches.is_none_or(|check| check.interval.is_some());
    let behavior: Vec<_> = (0..4)
        .map(|_| bad_manners(&mut random, may_be_single))
        .collect();
    let singles = behavior
        .iter()
        .filter(|it| it.max_streams == Some(1))
        .count();
    let max_in_flight = options.max_in_flight;
    let mut simulated = SimulatedPool::new(options, behavior, seed);
    simulated.fault_rates = FaultRates {
        cut: 400,
        half_open: 400,
        block: 50,
        refuse_dial: 8,
        lose_dial: 12,
        latency_ns: MS / 2,
    };
    let mut run = Run {
        simulated,
        records: Vec::new(),
        open: 0,
        tally: Tally::default(),
        random,
        single_servers: singles as u64,
        max_in_flight,
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
    let (mut begun, mut faults, mut single_servers) = (0, [0; 13], 0);
    for round in 0..rounds {
        let mode = match round % 10 {
            0 => PoolMode::Exclusive,
            1 => PoolMode::Short,
            _ => PoolMode::Multiplexed,
        };
        let run = simulate(mode, calls / rounds, first_seed + round);
        let (server_counts, fault_rates) =
            (run.simulated.server_counts, run.simulated.fault_counts);
        let counts = [
            server_counts.refused,
            server_counts.drained,
            server_counts.cut_off,
            server_counts.pushed_back,
            server_counts.unavailable,
            server_counts.slow,
            fault_rates.cut,
            fault_rates.half_open,
            fault_rates.block,
            fault_rates.refused_dials,
            fault_rates.lost_dials,
            run.tally.waited_for_stream,
            run.tally.not_serving,
        ];
        single_servers += run.single_servers;
        begun += run.tally.succeeded + run.tally.failed + run.tally.cancelled;
        for (sum, count) in faults.iter_mut().zip(counts) {
            *sum += count;
        }
    }
    println!("{begun} calls, faults: {faults:?}, {single_servers} servers of one stream");
    assert!(calls < CALLS || single_servers >= 10, "{single_servers}");
    assert!(
        calls < CALLS || begun >= 1_000_000 && faults.iter().all(|&count| count >= 1000),
        "too few: {begun} calls, faults {faults:?}"
    );
}
