//! A local pool that keeps what it reported.

#![allow(dead_code, reason = "each test file uses its part")]

use client::{
    Address, CallError, LocalPool, LocalPoolOptions, PoolCall, PoolCallKey, PoolEvent, PoolOptions,
    PoolSize, PoolStatistics,
};

const TIMEOUT_NS: u64 = 20_000_000_000;

/// What was reported, without the borrowed parts.
#[derive(Debug)]
pub enum PoolReported {
    Message(u64, Vec<u8>),
    Writable(u64),
    Ended(u64, Result<(), CallError>),
}

pub struct Pooled {
    pub pool: LocalPool,
    pub reported: Vec<PoolReported>,
}

/// A pool with so many connections.
pub fn of(connections: usize) -> LocalPoolOptions {
    LocalPoolOptions {
        pool: PoolOptions {
            size: PoolSize::Fixed(connections),
            ..PoolOptions::default()
        },
        ..LocalPoolOptions::default()
    }
}

pub fn call(path: &str) -> PoolCall<'_> {
    PoolCall {
        path,
        ..PoolCall::default()
    }
}

impl Pooled {
    pub fn new(address: &Address, options: LocalPoolOptions) -> Pooled {
        let addresses = std::slice::from_ref(address);
        let pool = LocalPool::new(addresses, options, 7, Pooled::now_ns());
        Pooled {
            pool: pool.expect("the address is known"),
            reported: Vec::new(),
        }
    }

    pub fn now_ns() -> u64 {
        net::monotonic_ns()
    }

    /// Turns once, and waits no longer than this.
    pub fn turn(&mut self, wait_ns: u64) {
        self.pool.flush(Pooled::now_ns());
        let waited = self.pool.wait(Some(wait_ns), Pooled::now_ns());
        waited.expect("waiting works");
        let reported = &mut self.reported;
        self.pool
            .receive(Pooled::now_ns(), &mut |event| match event {
                PoolEvent::Head { .. } => {}
                PoolEvent::Message { tag, bytes, .. } => {
                    reported.push(PoolReported::Message(tag, bytes.to_vec()));
                }
                PoolEvent::Writable { tag, .. } => reported.push(PoolReported::Writable(tag)),
                PoolEvent::Ended { tag, result, .. } => {
                    reported.push(PoolReported::Ended(tag, result.map(|_| ())));
                }
            });
    }

    /// Turns until this is so.
    pub fn until(&mut self, mut is_so: impl FnMut(&mut Pooled) -> bool) {
        let until_ns = Pooled::now_ns() + TIMEOUT_NS;
        while !is_so(self) {
            assert!(
                Pooled::now_ns() < until_ns,
                "only reported {:?}",
                self.reported
            );
            self.turn(20_000_000);
        }
    }

    /// Turns until a call has ended, and returns how.
    pub fn ended(&mut self, tag: u64) -> Result<(), CallError> {
        let place = |pooled: &Pooled| {
            let is_it = |it: &PoolReported| matches!(it, PoolReported::Ended(of, _) if *of == tag);
            pooled.reported.iter().position(is_it)
        };
        self.until(|pooled| place(pooled).is_some());
        let place = place(self).expect("it has ended");
        match self.reported.remove(place) {
            PoolReported::Ended(_, result) => result,
            _ => unreachable!("found above"),
        }
    }

    pub fn begin(&mut self, tag: u64, path: &str, request: &[u8]) -> PoolCallKey {
        let engine = self.pool.engine();
        let begun = engine.begin(tag, &call(path), Pooled::now_ns(), |out| {
            out.extend_from_slice(request);
        });
        begun.expect("there is room")
    }

    pub fn statistics(&mut self) -> PoolStatistics {
        self.pool.engine().statistics(Pooled::now_ns())
    }

    /// The messages of a call.
    pub fn messages(&self, tag: u64) -> Vec<&[u8]> {
        let messages = self.reported.iter().filter_map(|reported| match reported {
            PoolReported::Message(of, bytes) if *of == tag => Some(&bytes[..]),
            _ => None,
        });
        messages.collect()
    }

    /// Closes the pool, and looks whether all goes.
    pub fn close(mut self) {
        self.pool.engine().close(0, Pooled::now_ns());
        self.until(|pooled| pooled.pool.engine().is_closed());
        let statistics = self.statistics();
        assert_eq!((statistics.in_flight, statistics.connections.len()), (0, 0));
        let counters = statistics.counters;
        let ended = counters.succeeded + counters.failed + counters.cancelled;
        assert_eq!(counters.begun, ended, "{counters:?}");
    }
}
