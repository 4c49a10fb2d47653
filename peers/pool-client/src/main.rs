//! Pelton's own client in a closed loop, as its users would write it: see peers/README.md for its
//! flags and its line of JSON.
//!
//! `--face local` turns a `LocalPool` on one thread; `futures` has a task for each call in flight
//! over a `SharedPool`, on one executor of tokio for each thread; `blocking` has a thread for each.
//! No call has a deadline.

mod local;
mod shared;

use std::process::ExitCode;
use std::sync::Arc;
use std::{io, thread};

use client::{Address, LocalPoolOptions, PoolOptions, PoolSize};
use closed_loop::{Measurement, Options, Period};

type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// Of the YDB project's benchmark.
const PING_PATH: &str = "/Ydb.Debug.V1.DebugService/PingPlainGrpc";

fn pool_options(options: &Options) -> LocalPoolOptions {
    LocalPoolOptions {
        pool: PoolOptions {
            size: PoolSize::Fixed(options.channels),
            ..PoolOptions::default()
        },
        ..LocalPoolOptions::default()
    }
}

fn run(options: &Options) -> Result<bool, AnyError> {
    let address: Address = options.address.parse()?;
    let measurement = Arc::new(Measurement::default());
    let (recorder, period) = thread::scope(|scope| {
        let clock = scope.spawn(|| pass_time(&measurement, options));
        let recorder = match options.face.as_str() {
            "" | "local" => local::run(address, options, &measurement),
            "futures" => shared::run_futures(address, options, &measurement),
            "blocking" => shared::run_blocking(address, options, &measurement),
            face => Err(format!("neither local nor futures nor blocking: {face}").into()),
        }?;
        let period = clock.join().map_err(|_| "a thread panicked")??;
        Ok::<_, AnyError>((recorder, period))
    })?;
    Ok(recorder.print("Pelton", options, &period))
}

fn pass_time(measurement: &Measurement, options: &Options) -> io::Result<Period> {
    thread::sleep(options.warm_up);
    let begin = measurement.begin(options)?;
    thread::sleep(options.duration);
    measurement.end(options, &begin)
}

fn main() -> ExitCode {
    let outcome = closed_loop::parse()
        .map_err(AnyError::from)
        .and_then(|options| run(&options));
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("pool-client: {error}");
            ExitCode::from(2)
        }
    }
}
