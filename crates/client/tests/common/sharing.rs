//! A shared pool of a server that answers by path.

#![allow(dead_code, reason = "each test file uses its part")]

use std::thread;
use std::time::{Duration, Instant};

use client::{PoolCall, SharedPool};

use crate::common::{by_path, serve_all};
use crate::pooled::of;

pub const TIMEOUT_NS: u64 = 20_000_000_000;

pub fn call(path: &str) -> PoolCall<'_> {
    PoolCall {
        path,
        timeout_ns: Some(TIMEOUT_NS),
        ..PoolCall::default()
    }
}

pub fn pool(connections: usize) -> (SharedPool, thread::JoinHandle<()>) {
    let (address, server) = serve_all(by_path, connections);
    let pool = SharedPool::new(&[address], of(connections), 7).expect("the address is known");
    (pool, server)
}

/// All that was counted fits together, and nothing is left.
pub fn assert_nothing_left(pool: &SharedPool) {
    let until = Instant::now() + Duration::from_nanos(TIMEOUT_NS);
    loop {
        let statistics = pool.statistics();
        let counters = statistics.counters;
        let ended = counters.succeeded + counters.failed + counters.cancelled;
        if statistics.in_flight == 0 && counters.begun == ended {
            break;
        }
        assert!(Instant::now() < until, "{statistics:?}");
        thread::sleep(Duration::from_millis(1));
    } // No future counts that has ended or was dropped.
    let shown = format!("{pool:?}");
    assert!(shown.contains("futures: 0"), "{shown}");
}
