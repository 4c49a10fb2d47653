//! `pelton load tkrzw`

use std::time::Duration;

use lab::machine::OnMachine;
use lab::{
    Distribution, Length, LoadPlan, Report, TkrzwLoad, TkrzwOperation, TkrzwShape, TkrzwWorkload,
};

use super::database::check_filled;
use super::live_line::{LiveLine, LiveWork};
use super::run::{run, run_shown};
use super::services::{plan, target_credentials};
use super::{check_process, print, verdict};
use crate::arguments::{TkrzwLoadArguments, TkrzwLoadOperation, first_given};
use crate::command::load_machine::load_machine;
use crate::command::page_file::PageFile;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;

/// Records of one call while every key is stored once.
const FILL_RECORDS: u64 = 100;

/// Bytes of values that such a call has at most.
const FILL_BYTES: u64 = 1 << 20;

/// Calls at a time meanwhile.
const FILL_IN_FLIGHT: usize = 16;

/// Keys, and bytes of each, where nothing else is asked for.
const KEYS: u64 = 1_000_000;
const KEY_BYTES: usize = 8;

/// Loads Tkrzw-RPC. `is_token_named`: --token-file stands on the command line.
pub fn load_tkrzw(arguments: &TkrzwLoadArguments, is_token_named: bool) -> Result<Exit, Failure> {
    let load = load_of(arguments)?;
    let plan = plan_of(arguments, &load, is_token_named)?;
    let page = PageFile::check("--html", arguments.html.as_deref())?;
    let interrupt = Interrupt::listen();
    let machine = load_machine(&arguments.target.address);
    if arguments.fill {
        fill(&load, &plan, &interrupt)?;
    }
    let (seed, threads) = (arguments.seed, plan.threads);
    let make = |thread| TkrzwWorkload::new(load, seed, (thread, threads));
    let outcome = run(&plan, make, &interrupt)?;
    let operations = load.operations_per_call();
    let report = Report::new(words(&load), &plan, outcome, operations).on_machine(machine);
    page.write_and_print(|| report.html(), || print(&report, arguments.target.format))?;
    let ended = verdict(&report, &arguments.target.address, &interrupt);
    match load.shape {
        // A stream ends when all its messages are done, which may take longer than a load.
        TkrzwShape::Unanswered(_) if report.outcome().tally.ended == 0 => {
            ended.map_err(|failure| failure.with("fewer --messages end a stream earlier"))
        }
        _ => ended,
    }
}

/// Refuses flags that are about records of an Echo, which has none.
fn check_echo(arguments: &TkrzwLoadArguments) -> Result<(), Failure> {
    let flags = [
        ("--fill", arguments.fill),
        ("--index", arguments.index.is_some()),
        ("--keys", arguments.keys.is_some()),
        ("--key-size", arguments.key_size.is_some()),
        ("--distribution", arguments.distribution.is_some()),
    ];
    let is_echo = arguments.operation == TkrzwLoadOperation::Echo;
    match first_given(flags).filter(|_| is_echo) {
        None => Ok(()),
        Some(flag) => Err(Failure::Usage(format!(
            "{flag} goes only with --operation get and set"
        ))),
    }
}

fn load_of(arguments: &TkrzwLoadArguments) -> Result<TkrzwLoad, Failure> {
    check_echo(arguments)?;
    let load = TkrzwLoad {
        operation: match arguments.operation {
            TkrzwLoadOperation::Echo => TkrzwOperation::Echo,
            TkrzwLoadOperation::Get => TkrzwOperation::Get,
            TkrzwLoadOperation::Set => TkrzwOperation::Set,
        },
        shape: match (arguments.stream, arguments.omit_responses) {
            (true, true) => TkrzwShape::Unanswered(arguments.messages),
            (true, false) => TkrzwShape::Stream,
            (false, _) => arguments
                .records
                .map_or(TkrzwShape::Single, TkrzwShape::Multi),
        },
        database: arguments.index.unwrap_or(0),
        keys: arguments.keys.unwrap_or(KEYS),
        key_bytes: arguments.key_size.unwrap_or(KEY_BYTES),
        value_bytes: arguments.value_size,
        distribution: arguments.distribution.unwrap_or(Distribution::Sequential),
    };
    match load.problem() {
        Some(problem) => Err(Failure::Usage(problem)),
        None => Ok(load),
    }
}

fn plan_of(
    arguments: &TkrzwLoadArguments,
    load: &TkrzwLoad,
    is_token_named: bool,
) -> Result<LoadPlan, Failure> {
    let (threads, connections) = (arguments.threads, arguments.connections);
    if threads > connections {
        return Err(Failure::Usage(format!(
            "--threads {threads} is more than --connections {connections}: each thread needs a \
             connection of its own"
        )));
    }
    arguments.server_pid.map_or(Ok(()), check_process)?;
    let credentials = target_credentials(&arguments.target, ("load tkrzw", is_token_named))?;
    // One stream without responses fills its connection.
    let in_flight = match load.shape {
        TkrzwShape::Unanswered(_) => 1,
        TkrzwShape::Single | TkrzwShape::Multi(_) | TkrzwShape::Stream => {
            arguments.in_flight.unwrap_or(1)
        }
    };
    let plan = plan(
        &arguments.target,
        (arguments.warm_up, arguments.duration),
        (connections, in_flight),
        (arguments.seed, credentials),
    )?;
    Ok(LoadPlan {
        threads,
        server_process: arguments.server_pid,
        ..plan
    })
}

/// Stores every key once.
fn fill(load: &TkrzwLoad, plan: &LoadPlan, interrupt: &Interrupt) -> Result<(), Failure> {
    let records = (FILL_BYTES / (load.value_bytes as u64).max(1)).clamp(1, FILL_RECORDS);
    let fill = load.fill(records as usize);
    let mut filling = plan.clone();
    filling.worker.in_flight = FILL_IN_FLIGHT;
    filling.warm_up = Duration::ZERO;
    // Each thread comes by every key of its share; what does not divide evenly is stored twice.
    let per_thread = load.keys.div_ceil(plan.threads as u64 * records);
    filling.length = Length::Calls(per_thread * plan.threads as u64);
    let make = |thread| TkrzwWorkload::new(fill, 0, (thread, plan.threads));
    let keys = load.keys;
    let line = LiveLine::new(LiveWork::Filling { records, keys });
    let outcome = run_shown(&filling, make, interrupt, line)?;
    check_filled(outcome, plan)
}

/// What is called, in words.
fn words(load: &TkrzwLoad) -> String {
    let operation = match load.operation {
        TkrzwOperation::Echo => "Echo",
        TkrzwOperation::Get => "Get",
        TkrzwOperation::Set => "Set",
    };
    let shape = match load.shape {
        TkrzwShape::Single => String::new(),
        TkrzwShape::Multi(records) => format!(" of {records} records"),
        TkrzwShape::Stream => " over a stream".into(),
        TkrzwShape::Unanswered(messages) => {
            format!(
                " over streams of {messages} messages without responses, of which those that were \
                 refused are not seen"
            )
        }
    };
    let keys = match load.operation {
        TkrzwOperation::Echo => String::new(),
        TkrzwOperation::Get | TkrzwOperation::Set => {
            format!(", {} keys of database {}", load.keys, load.database)
        }
    };
    format!("tkrzw_rpc.DBMService, {operation}{shape}{keys}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_called_is_in_the_words() {
        let echo = TkrzwLoad {
            operation: TkrzwOperation::Echo,
            shape: TkrzwShape::Single,
            database: 0,
            keys: 10,
            key_bytes: 8,
            value_bytes: 8,
            distribution: Distribution::Uniform,
        };
        assert_eq!(words(&echo), "tkrzw_rpc.DBMService, Echo");
        let set = TkrzwLoad {
            operation: TkrzwOperation::Set,
            shape: TkrzwShape::Unanswered(100),
            ..echo
        };
        let expected = "tkrzw_rpc.DBMService, Set over streams of 100 messages without responses, \
                        of which those that were refused are not seen, 10 keys of database 0";
        assert_eq!(words(&set), expected);
    }
}
