//! `pelton load kvstore` and `pelton load ping`

use std::time::Duration;

use client::Credentials;
use lab::machine::OnMachine;
use lab::{
    KeyUse, KvstoreDeletes, KvstoreLeft, KvstoreLoad, KvstoreReport, KvstoreWorkload, Length,
    LoadPlan, Ping, PingTable, Report, WorkerPlan,
};

use super::plan::{NO_DEADLINE, check_pin, foreign_credentials};
use super::run::run;
use super::{print, print_lines};
use crate::arguments::{
    KvstoreLoadArguments, LoadFormat, LoadKeys, LoadTarget, PingConnections, PingLoadArguments,
};
use crate::command::load_machine::load_machine;
use crate::command::page_file::PageFile;
use crate::command::tls::client_tls;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::output::note;
use crate::size::Span;

/// Calls at a time of the article's client.
const KVSTORE_IN_FLIGHT: usize = 100;

/// Loads the key-value example. `is_token_named`: --token-file stands on the command line.
pub fn load_kvstore(
    arguments: &KvstoreLoadArguments,
    is_token_named: bool,
) -> Result<Exit, Failure> {
    let credentials = target_credentials(&arguments.target, ("load kvstore", is_token_named))?;
    let in_flight = match arguments.blocking {
        true => 1,
        false => arguments.in_flight.unwrap_or(KVSTORE_IN_FLIGHT),
    };
    let seed = arguments.seed.unwrap_or_else(crate::randomness::random);
    let keys = match arguments.keys {
        LoadKeys::Shared => KeyUse::Shared,
        LoadKeys::Owned => KeyUse::Owned,
    };
    let load = KvstoreLoad {
        keys,
        key_mean_bytes: arguments.key_mean,
        value_mean_bytes: arguments.value_mean,
    };
    let plan = LoadPlan {
        stop_on_failure: arguments.stop_on_error,
        ..plan(
            &arguments.target,
            (arguments.warm_up, arguments.duration),
            (1, in_flight),
            (seed, credentials),
        )?
    };
    let left = KvstoreLeft::default();
    let make = |_| KvstoreWorkload::new(load, seed).leaving(&left);
    let page = PageFile::check("--html", arguments.html.as_deref())?;
    let interrupt = Interrupt::listen();
    let machine = load_machine(&arguments.target.address);
    let outcome = run(&plan, make, &interrupt);
    let timeout = arguments.target.timeout;
    let deleted = delete_left(&plan, timeout, left.take(load, seed));
    let outcome = match (outcome, deleted) {
        (Ok(outcome), deleted) => {
            // What was measured is worth more than a word about what is left behind.
            if let Err(failure) = deleted {
                note(format_args!("pelton: {failure}"));
            }
            outcome
        }
        (Err(failure), Ok(())) => return Err(failure),
        (Err(failure), Err(left)) => return Err(failure.with(&left.to_string())),
    };
    let name = match keys {
        KeyUse::Shared => "shared",
        KeyUse::Owned => "owned",
    };
    let what = format!("io.grpc.KeyValueService, keys {name}, seed {seed}");
    let report = Report::new(what, &plan, outcome, 1).on_machine(machine);
    let report = KvstoreReport::new(
        report,
        keys,
        in_flight,
        arguments.blocking,
        arguments.simulate.0,
    );
    page.write_and_print(|| report.html(), || print(&report, arguments.target.format))?;
    super::verdict(report.report(), &arguments.target.address, &interrupt)
}

/// Deletes the keys that a run has left behind, also one that was interrupted.
fn delete_left(
    run: &LoadPlan,
    timeout: Span,
    (deletes, count): (KvstoreDeletes, u64),
) -> Result<(), Failure> {
    if count == 0 {
        return Ok(());
    }
    let mut plan = run.clone();
    plan.warm_up = Duration::ZERO;
    plan.length = Length::Calls(count);
    plan.stop_on_failure = false;
    plan.worker.in_flight = KVSTORE_IN_FLIGHT;
    plan.worker.deadline_ns = Some(timeout.ms.saturating_mul(1_000_000));
    // A plan of this load has one thread.
    let why = match lab::run(&plan, |_| deletes.again(), &mut |_| true) {
        Err(error) => error.to_string(),
        Ok(outcome) => match outcome.tally.failures() + outcome.tally.unfinished {
            0 if !outcome.tally.is_server_gone => return Ok(()),
            0 => format!("the server at {} is gone", plan.address),
            failed => format!(
                "{failed} Deletes failed, the first: {}",
                outcome
                    .tally
                    .first_failure
                    .unwrap_or_else(|| "no answer in time".into())
            ),
        },
    };
    Err(Failure::Failed(format!(
        "up to {count} keys of this load are left in the database that --kvstore-database of the \
         server names: {why}"
    )))
}

/// Loads the service of pings, once for each number of pings in flight. `is_token_named`:
/// --token-file stands on the command line.
pub fn load_ping(arguments: &PingLoadArguments, is_token_named: bool) -> Result<Exit, Failure> {
    let credentials = target_credentials(&arguments.target, ("load ping", is_token_named))?;
    let interrupt = Interrupt::listen();
    let ping = Ping {
        streaming: arguments.streaming,
    };
    let mut table = PingTable::default();
    let mut exit = Exit::Done;
    for in_flight in arguments.in_flight.first..=arguments.in_flight.last {
        let plan = ping_plan(arguments, in_flight, credentials.clone())?;
        let outcome = run(&plan, |_| ping, &interrupt)?;
        table.add(in_flight, &outcome);
        let report = Report::new("pings".into(), &plan, outcome, 1);
        say(arguments, &table, plan.connections, &report);
        if report.has_failures() || report.outcome().was_stopped {
            exit = Exit::Miss;
            break;
        }
        if !report.void_reasons().is_empty() {
            exit = Exit::Miss;
        }
    }
    print_lines(&ping_result(arguments, &table))?;
    match interrupt.is_set() {
        true => Ok(Exit::of_signal()),
        false => Ok(exit),
    }
}

/// What goes to standard output.
fn ping_result(arguments: &PingLoadArguments, table: &PingTable) -> String {
    let lines = |rows: &mut dyn Iterator<Item = serde_json::Value>| {
        let rows: Vec<String> = rows.map(|row| row.to_string()).collect();
        rows.join("\n")
    };
    match (arguments.target.format, arguments.per_worker) {
        (LoadFormat::Text, false) => table.text(),
        (LoadFormat::Text, true) => table.workers_text(),
        (LoadFormat::Csv, false) => table.csv(),
        (LoadFormat::Csv, true) => table.workers_csv(),
        (LoadFormat::Json, false) => lines(&mut table.rows()),
        (LoadFormat::Json, true) => lines(&mut table.workers()),
    }
}

/// What proves who calls: other systems have these services too.
pub(super) fn target_credentials(
    target: &LoadTarget,
    named: (&str, bool),
) -> Result<Option<Credentials>, Failure> {
    foreign_credentials(&target.address, &target.tls, &target.credentials, named)
}

fn ping_plan(
    arguments: &PingLoadArguments,
    in_flight: usize,
    credentials: Option<Credentials>,
) -> Result<LoadPlan, Failure> {
    check_pin(arguments.pin.as_ref())?;
    if arguments.deadline.ms == 0 {
        return Err(Failure::Usage(NO_DEADLINE.into()));
    }
    let shape = match arguments.connections {
        PingConnections::One => (1, in_flight),
        PingConnections::PerWorker => (in_flight, 1),
    };
    let times = (arguments.warm_up, arguments.duration);
    let mut plan = plan(&arguments.target, times, shape, (1, credentials))?;
    plan.stop_on_failure = true;
    let pin = arguments.pin.as_ref();
    plan.pin = pin.map_or_else(Vec::new, |cpus| cpus.0.clone());
    if !arguments.streaming {
        plan.worker.deadline_ns = Some(arguments.deadline.ms.saturating_mul(1_000_000));
    }
    Ok(plan)
}

/// What a run has shown goes to standard error; the table stands alone on standard output.
fn say(arguments: &PingLoadArguments, table: &PingTable, connections: usize, report: &Report) {
    for reason in report.void_reasons() {
        note(format_args!("VOID: {reason}"));
    }
    let tally = &report.outcome().tally;
    if let Some(failure) = &tally.first_failure {
        note(format_args!(
            "a ping to {} failed: {failure}",
            arguments.target.address
        ));
    }
    note(table.last_run(connections, report.outcome()));
}

/// A closed loop by one thread.
pub(super) fn plan(
    target: &LoadTarget,
    (warm_up, duration): (Span, Span),
    (connections, in_flight): (usize, usize),
    (seed, credentials): (u64, Option<Credentials>),
) -> Result<LoadPlan, Failure> {
    if duration.ms == 0 {
        let text = "--duration 0 measures nothing; write 10s or so";
        return Err(Failure::Usage(text.into()));
    }
    let length = Length::Duration(Duration::from_millis(duration.ms));
    let connect_timeout = Duration::from_millis(target.timeout.ms);
    Ok(LoadPlan {
        tls: client_tls(&target.tls)?,
        connections,
        worker: WorkerPlan {
            credentials,
            seed,
            ..WorkerPlan::closed(in_flight)
        },
        warm_up: Duration::from_millis(warm_up.ms),
        ..LoadPlan::to(target.address.clone(), connect_timeout, length)
    })
}
