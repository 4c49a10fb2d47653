//! The interoperability cases of the gRPC project with this client, against any server of them:
//! <https://github.com/grpc/grpc/blob/master/doc/interop-test-descriptions.md>.
//!
//! `interop HOST:PORT [CASE ...]` runs the cases named, or all, a line for each, each on a
//! connection of its own. `interop --pool N HOST:PORT [CASE ...]` runs each in several threads at
//! once over one pool of N connections, half of them by futures, and looks whether the pool has
//! used all its connections and has nothing left in the end. The exit code is 1 if one has failed.

mod caller;
mod cases;
mod messages;

use std::process::ExitCode;
use std::time::Instant;

use client::{
    Address, CallInfo, Channel, ChannelOptions, LocalPoolOptions, PoolOptions, PoolSize, SharedPool,
};

use caller::Caller;
use cases::{ALL, Case, Outcome, Trouble};

const USAGE: &str = "usage: interop [--pool CONNECTIONS] HOST:PORT [CASE ...]";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).peekable();
    let connections = match arguments.next_if(|first| first == "--pool") {
        None => None,
        Some(_) => match arguments.next().and_then(|count| count.parse().ok()) {
            Some(count) if count > 0 => Some(count),
            _ => return usage(USAGE),
        },
    };
    let Some(address) = arguments.next() else {
        return usage(USAGE);
    };
    let names: Vec<String> = arguments.collect();
    let is_known = |name: &String| ALL.iter().any(|(known, _)| known == name);
    if let Some(unknown) = names.iter().find(|name| !is_known(name)) {
        return usage(&format!("there is no case `{unknown}`"));
    }
    let chosen = ALL
        .iter()
        .filter(|(name, _)| names.is_empty() || names.iter().any(|wanted| wanted == name));
    let is_well = match connections {
        None => run_all(chosen, "pelton  ", |case| case(&mut connect(&address)?)),
        Some(connections) => match pool(&address, connections) {
            Ok(pool) => {
                let name = format!("pool/{connections}  ");
                let is_well = run_all(chosen, &name, |case| run_at_once(&pool, connections, case));
                let left = nothing_left(&pool, connections);
                report("pool", &name, Instant::now(), &left) && is_well
            }
            Err(trouble) => return usage(&trouble.to_string()),
        },
    };
    match is_well {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn usage(text: &str) -> ExitCode {
    eprintln!("{text}");
    ExitCode::from(2)
}

fn run_all<'a>(
    chosen: impl Iterator<Item = &'a (&'static str, Case)>,
    client: &str,
    run: impl Fn(Case) -> Outcome,
) -> bool {
    let failures = chosen.filter(|(name, case)| {
        let begin = Instant::now();
        let outcome = run(*case);
        !report(name, client, begin, &outcome)
    });
    failures.count() == 0
}

fn report(name: &str, client: &str, begin: Instant, outcome: &Outcome) -> bool {
    let status = if outcome.is_ok() { "ok" } else { "FAILED" };
    let seconds = begin.elapsed().as_secs_f64();
    println!("{status:6} {client} {name} ({seconds:.2} s)");
    if let Err(trouble) = outcome {
        println!("       {trouble}");
    }
    outcome.is_ok()
}

fn connect(address: &str) -> Result<Caller, Trouble> {
    let address: Address = address.parse()?;
    let channel = Channel::connect(&address, &ChannelOptions::default())?;
    Ok(Caller::Channel(Box::new(channel)))
}

fn pool(address: &str, connections: usize) -> Result<SharedPool, Trouble> {
    let options = LocalPoolOptions {
        pool: PoolOptions {
            size: PoolSize::Fixed(connections),
            ..PoolOptions::default()
        },
        ..LocalPoolOptions::default()
    };
    Ok(SharedPool::new(&[address.parse()?], options, 1)?)
}

/// Runs a case twice for each connection, in as many threads.
fn run_at_once(pool: &SharedPool, connections: usize, case: Case) -> Outcome {
    let run = |number: usize| {
        let mut caller = Caller::Pool {
            pool: pool.clone(),
            is_async: number % 2 == 1,
            info: CallInfo::default(),
        };
        case(&mut caller).map_err(|trouble| format!("thread {number}: {trouble}"))
    };
    std::thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (0..2 * connections)
            .map(|number| scope.spawn(move || run(number)))
            .collect();
        for thread in threads {
            thread.join().map_err(|_| "a thread panicked")??;
        }
        Ok(())
    })
}

/// Looks whether each connection has had calls, and no call is left.
fn nothing_left(pool: &SharedPool, connections: usize) -> Outcome {
    let statistics = pool.statistics();
    let counters = statistics.counters;
    let ended = counters.succeeded + counters.failed + counters.cancelled;
    let used = statistics.connections.iter().filter(|it| it.begun > 0);
    match (statistics.in_flight, counters.begun - ended, used.count()) {
        (0, 0, used) if used == connections => Ok(()),
        _ => Err(format!("{statistics:#?}").into()),
    }
}
