//! A load of one database: its keys are stored first where they are to be read.

use std::time::Duration;

use lab::{
    ConnectionMode, Length, LoadOutcome, LoadPlan, Pace, PeltonLoad, PeltonShape, PeltonWorkload,
    Report,
};

use super::live_line::{LiveLine, LiveWork};
use super::own_database::{OwnDatabase, check_existence, check_memory};
use super::plan::CLOSED_IN_FLIGHT;
use super::run::{run, run_shown};
use crate::arguments::LoadArguments;
use crate::exit::Failure;
use crate::interrupt::Interrupt;
use crate::output::note;

/// What to do where the database cannot be made because the server does not speak gRPC.
const NEEDS_GRPC: &str = "the database of a load is made over gRPC whatever --protocol says: a \
                          server of brpc or SRPC is loaded with --echo SIZE, or --method with \
                          --data-file";

/// Records of one Batch while every key is stored once: few enough that a batch of usual values
/// stays far below what a server takes.
const FILL_RECORDS: usize = 100;

/// Bytes of values that such a batch has at most.
const FILL_BYTES: usize = 1 << 20;

/// Loads the database that was named, or else one that is made for this run and removed after it,
/// however it ends.
pub(super) fn load_database(
    arguments: &LoadArguments,
    plan: &LoadPlan,
    interrupt: &Interrupt,
) -> Result<Report, Failure> {
    let load = pelton_load(arguments)?;
    // The default database is always there.
    if let Some(database) = arguments
        .database
        .as_deref()
        .filter(|name| !name.is_empty())
    {
        check_existence(arguments, database)?;
    }
    if will_fill(arguments, &load) {
        check_memory(arguments, arguments.database.as_deref())?;
    }
    if arguments.database.is_some() {
        return load_pelton(arguments, &load, plan, interrupt);
    }
    let own = OwnDatabase::create(arguments).map_err(|failure| match plan.framed {
        Some(_) => failure.with(NEEDS_GRPC),
        None => failure,
    })?;
    let load = PeltonLoad {
        database: own.name().to_owned(),
        ..load
    };
    let report = load_pelton(arguments, &load, plan, interrupt);
    let removed = own.remove();
    // What was measured is worth more than a word about what is left behind.
    if let (Ok(_), Err(failure)) = (&report, &removed) {
        note(format_args!("pelton: {failure}"));
    }
    match (report, removed) {
        (Err(failure), Err(left)) => Err(failure.with(&left.to_string())),
        (Err(failure), Ok(())) => Err(failure.with("the database that was made for it is removed")),
        (report, _) => report,
    }
}

fn pelton_load(arguments: &LoadArguments) -> Result<PeltonLoad, Failure> {
    let operations = arguments.batch.unwrap_or(1);
    let shape = match (arguments.pipe, arguments.batch) {
        (true, _) => PeltonShape::Pipe(operations),
        (false, Some(_)) => PeltonShape::Batch(operations),
        (false, None) => PeltonShape::Single,
    };
    let (mix, distribution) = arguments.operations();
    let load = PeltonLoad {
        mix,
        shape,
        database: arguments.database.clone().unwrap_or_default(),
        keys: arguments.keys,
        key_bytes: usize::from(arguments.key_size),
        distribution,
        values: arguments.value_size,
    };
    match load.problem() {
        Some(problem) => Err(Failure::Usage(problem)),
        None => Ok(load),
    }
}

fn load_pelton(
    arguments: &LoadArguments,
    load: &PeltonLoad,
    plan: &LoadPlan,
    interrupt: &Interrupt,
) -> Result<Report, Failure> {
    if will_fill(arguments, load) {
        fill(load, plan, interrupt)?;
    }
    let make = |thread| PeltonWorkload::new(load, arguments.seed, thread, plan.threads);
    let outcome = run(plan, make, interrupt)?;
    let operations = arguments.batch.unwrap_or(1);
    let sent = match load.shape {
        PeltonShape::Single => String::new(),
        PeltonShape::Batch(count) => format!(" in batches of {count}"),
        PeltonShape::Pipe(count) => format!(" in a Pipe, {count} a message"),
    };
    let place = match arguments.database.as_deref() {
        None => String::new(),
        Some("") => " in the default database".to_owned(),
        Some(name) => format!(" in the database `{name}`"),
    };
    let what = format!("{}{sent}, {} keys{place}", load.mix, load.keys);
    Ok(Report::new(what, plan, outcome, operations as u64))
}

/// Whether every key is stored before: in a database that was just made nothing but misses would be
/// read.
fn will_fill(arguments: &LoadArguments, load: &PeltonLoad) -> bool {
    arguments.fill || (arguments.database.is_none() && load.mix.has_reads())
}

/// Stores every key once.
fn fill(load: &PeltonLoad, plan: &LoadPlan, interrupt: &Interrupt) -> Result<(), Failure> {
    let records = (FILL_BYTES / load.values.max_bytes().max(1)).clamp(1, FILL_RECORDS);
    let fill = load.fill(records);
    let mut filling = plan.clone();
    // Whatever is measured: it fills several places of a connection, which SRPC has not.
    filling.framed = None;
    filling.worker.mode = ConnectionMode::Multiplexed;
    filling.worker.in_flight = CLOSED_IN_FLIGHT;
    filling.worker.pace = Pace::Closed;
    filling.worker.deadline_ns = None;
    filling.warm_up = Duration::ZERO;
    // Each thread comes by every key of its share; what does not divide evenly is stored twice.
    let per_thread = load.keys.div_ceil((plan.threads * records) as u64);
    filling.length = Length::Calls(per_thread * plan.threads as u64);
    let make = |thread| PeltonWorkload::new(&fill, 0, thread, plan.threads);
    let line = LiveLine::new(LiveWork::Filling {
        records: records as u64,
        keys: load.keys,
    });
    let outcome = run_shown(&filling, make, interrupt, line)?;
    check_filled(outcome, plan)
}

/// Fails if a run has not stored all that it was to store.
pub(super) fn check_filled(outcome: LoadOutcome, plan: &LoadPlan) -> Result<(), Failure> {
    let tally = outcome.tally;
    let failures = tally.failures() + tally.unfinished;
    if outcome.was_stopped {
        return Err(Failure::Interrupted(
            "interrupted before every key was stored".into(),
        ));
    }
    let why = match (failures, tally.is_server_gone) {
        (0, false) => return Ok(()),
        (0, true) => "the server went before all were stored".to_owned(),
        (failures, _) => {
            let reason = tally.first_failure;
            let reason = reason.unwrap_or_else(|| "no answer in time".into());
            format!("{failures} batches failed, the first: {reason}")
        }
    };
    Err(Failure::Failed(format!(
        "cannot store the keys on {}: {why}",
        plan.address
    )))
}

#[cfg(test)]
mod tests {
    use client::LocalCounters;
    use lab::Tally;
    use net::Address;

    use super::*;

    #[test]
    fn a_server_that_went_has_not_stored_every_key() {
        let address = Address::Tcp {
            host: "127.0.0.1".into(),
            port: 1,
        };
        let plan = LoadPlan::to(address, Duration::ZERO, Length::Calls(1));
        let filled = |is_server_gone, unfinished| {
            let outcome = LoadOutcome {
                tally: Tally {
                    is_server_gone,
                    unfinished,
                    ..Tally::default()
                },
                elapsed_ns: 1,
                own_cpu_ns: 0,
                server_cpu_ns: None,
                busiest_percent: None,
                from_ns: 0,
                stalls: None,
                counters: LocalCounters::default(),
                tcp: None,
                intervals: Vec::new(),
                was_stopped: false,
            };
            check_filled(outcome, &plan).map_err(|failure| failure.to_string())
        };
        assert_eq!(filled(false, 0), Ok(()));
        let gone = filled(true, 0).expect_err("not all are there");
        assert!(gone.contains("127.0.0.1:1: the server went"), "{gone}");
        let failed = filled(true, 2).expect_err("not all are there");
        assert!(failed.contains("2 batches failed"), "{failed}");
    }
}
