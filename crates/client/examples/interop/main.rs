//! The interoperability cases of the gRPC project with this client, against any server of them:
//! <https://github.com/grpc/grpc/blob/master/doc/interop-test-descriptions.md>.
//!
//! `interop HOST:PORT [CASE ...]` runs the cases named, or all, a line for each, each on a
//! connection of its own. The exit code is 1 if one has failed.

mod cases;
mod messages;

use std::process::ExitCode;
use std::time::Instant;

use client::{Address, Channel, ChannelOptions};

use cases::{ALL, Case};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((address, names)) = arguments.split_first() else {
        eprintln!("usage: interop HOST:PORT [CASE ...]");
        return ExitCode::from(2);
    };
    let is_known = |name: &String| ALL.iter().any(|(known, _)| known == name);
    if let Some(unknown) = names.iter().find(|name| !is_known(name)) {
        eprintln!("there is no case `{unknown}`");
        return ExitCode::from(2);
    }
    let chosen = ALL
        .iter()
        .filter(|(name, _)| names.is_empty() || names.iter().any(|wanted| wanted == name));
    let failures = chosen.filter(|(name, case)| !run(address, name, *case));
    match failures.count() {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

fn run(address: &str, name: &str, case: Case) -> bool {
    let begin = Instant::now();
    let outcome = connect(address).and_then(|mut channel| case(&mut channel));
    let status = if outcome.is_ok() { "ok" } else { "FAILED" };
    let seconds = begin.elapsed().as_secs_f64();
    println!("{status:6} pelton   {name} ({seconds:.2} s)");
    if let Err(trouble) = &outcome {
        println!("       {trouble}");
    }
    outcome.is_ok()
}

fn connect(address: &str) -> Result<Channel, cases::Trouble> {
    let address: Address = address.parse()?;
    Ok(Channel::connect(&address, &ChannelOptions::default())?)
}
