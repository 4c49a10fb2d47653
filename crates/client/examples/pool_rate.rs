//! Calls a second through a shared pool: `pool_rate ADDRESS PATH THREADS SECONDS`, with one
//! connection and one call at a time in each thread. Pin it with `taskset` to compare numbers of
//! threads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use client::{LocalPoolOptions, PoolCall, PoolOptions, PoolSize, SharedPool};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, path, threads, seconds] = arguments.as_slice() else {
        return Err("usage: pool_rate ADDRESS PATH THREADS SECONDS".into());
    };
    let (threads, seconds): (usize, u64) = (threads.parse()?, seconds.parse()?);
    let options = LocalPoolOptions {
        pool: PoolOptions {
            size: PoolSize::Fixed(1),
            ..PoolOptions::default()
        },
        ..LocalPoolOptions::default()
    };
    let pool = SharedPool::new(&[address.parse()?], options, 1)?;
    let is_over = AtomicBool::new(false);
    let run = || {
        let call = PoolCall {
            path,
            timeout_ns: Some(10_000_000_000),
            ..PoolCall::default()
        };
        let (mut answer, mut calls) = (Vec::new(), 0_u64);
        while !is_over.load(Ordering::Relaxed) {
            pool.unary_into(&call, b"", &mut answer)?;
            calls += 1;
        }
        Ok::<u64, client::CallError>(calls)
    };
    thread::scope(|scope| {
        let callers: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        thread::sleep(Duration::from_secs(seconds));
        is_over.store(true, Ordering::Relaxed);
        let mut total = 0;
        for caller in callers {
            total += caller.join().map_err(|_| "a thread panicked")??;
        }
        println!("{threads} threads: {} calls/s", total / seconds);
        Ok(())
    })
}
