//! Threads and tasks over one `SharedPool`.

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use client::typed::{Futures, KeyValue};
use client::{Address, CallError, PoolCall, SharedPool};
use closed_loop::{Measurement, Method, Options, Phase, Random, Recorder, key};
use tokio::task::{JoinSet, LocalSet};

use crate::{AnyError, PING_PATH, pool_options};

/// What one task or thread calls.
struct Caller {
    pool: SharedPool,
    futures: Futures,
    method: Method,
    keys: u64,
    random: Random,
}

impl Caller {
    fn new(pool: &SharedPool, options: &Options, number: usize) -> Caller {
        Caller {
            pool: pool.clone(),
            futures: Futures::new(pool),
            method: options.method,
            keys: options.keys,
            random: Random::new(number as u64 + 1),
        }
    }

    fn key(&mut self) -> Vec<u8> {
        key(self.random.below(self.keys))
    }

    fn call(&mut self) -> Result<(), String> {
        match self.method {
            Method::Get => {
                let key = self.key();
                found(KeyValue::new(&mut self.pool).get(&key).send())
            }
            Method::Ping => pinged(self.pool.unary(&ping(), b"")),
        }
    }

    async fn call_future(&mut self) -> Result<(), String> {
        match self.method {
            Method::Get => {
                let key = self.key();
                found(KeyValue::new(&mut self.futures).get(&key).send().await)
            }
            Method::Ping => pinged(self.pool.unary_future(&ping(), b"").await),
        }
    }
}

fn ping() -> PoolCall<'static> {
    PoolCall {
        path: PING_PATH,
        ..PoolCall::default()
    }
}

fn found<V>(outcome: Result<Option<V>, CallError>) -> Result<(), String> {
    let value = outcome.map_err(|error| error.to_string())?;
    value.map(drop).ok_or("the key was not found".into())
}

fn pinged(outcome: Result<Vec<u8>, CallError>) -> Result<(), String> {
    outcome.map(drop).map_err(|error| error.to_string())
}

/// A thread for each call in flight, which waits for it.
pub fn run_blocking(
    address: Address,
    options: &Options,
    measurement: &Measurement,
) -> Result<Recorder, AnyError> {
    let pool = SharedPool::new(&[address], pool_options(options), 1)?;
    on_threads(options.in_flight, |number| {
        let (mut caller, mut recorder) = (Caller::new(&pool, options, number), Recorder::default());
        while measurement.phase() != Phase::Drain {
            let begun = Instant::now();
            let outcome = caller.call();
            recorder.record(measurement.phase(), begun, outcome);
        }
        Ok(recorder)
    })
}

/// A task for each call in flight, dealt out to `--threads` executors.
pub fn run_futures(
    address: Address,
    options: &Options,
    measurement: &Arc<Measurement>,
) -> Result<Recorder, AnyError> {
    let pool = SharedPool::new(&[address], pool_options(options), 1)?;
    on_threads(options.threads, |thread| {
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        let numbers = (thread..options.in_flight).step_by(options.threads);
        let callers = numbers.map(|number| Caller::new(&pool, options, number));
        LocalSet::new().block_on(&runtime, run_tasks(callers, Arc::clone(measurement)))
    })
}

async fn run_tasks(
    callers: impl Iterator<Item = Caller>,
    measurement: Arc<Measurement>,
) -> Result<Recorder, AnyError> {
    let mut tasks = JoinSet::new();
    for caller in callers {
        tasks.spawn_local(task(caller, Arc::clone(&measurement)));
    }
    let mut recorder = Recorder::default();
    while let Some(ended) = tasks.join_next().await {
        recorder.add(ended?);
    }
    Ok(recorder)
}

async fn task(mut caller: Caller, measurement: Arc<Measurement>) -> Recorder {
    let mut recorder = Recorder::default();
    while measurement.phase() != Phase::Drain {
        let begun = Instant::now();
        let outcome = caller.call_future().await;
        recorder.record(measurement.phase(), begun, outcome);
    }
    recorder
}

/// Runs on so many threads, and adds what they have seen.
fn on_threads(
    count: usize,
    run: impl Fn(usize) -> Result<Recorder, AnyError> + Sync,
) -> Result<Recorder, AnyError> {
    let mut recorder = Recorder::default();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..count)
            .map(|number| {
                scope.spawn({
                    let run = &run;
                    move || run(number)
                })
            })
            .collect();
        for thread in threads {
            recorder.add(thread.join().map_err(|_| "a thread panicked")??);
        }
        Ok(recorder)
    })
}
