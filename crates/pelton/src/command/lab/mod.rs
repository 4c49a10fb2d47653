//! `pelton lab`

mod agent;
mod client_command;
mod compare;
mod diagnose;
mod histogram;
mod listen_tls;
mod process;
mod scenario;
mod started;
mod sweep;
mod tap;
mod this_machine;

use clap::ArgMatches;
use serde_json::{Map, Value};

use crate::arguments::{LabCommand, ReportOutput, is_on_command_line};
use crate::exit::{Exit, Failure};
use crate::output::Output;

/// Carries out a command of the lab.
/// `matches`: the whole command line.
pub fn lab(command: &LabCommand, matches: &ArgMatches) -> Result<Exit, Failure> {
    match command {
        LabCommand::Histogram(arguments) => histogram::histogram(arguments),
        LabCommand::Tap(arguments) => tap::tap(arguments),
        LabCommand::Sweep(arguments) => sweep::sweep(arguments, matches),
        LabCommand::Compare(arguments) => compare::compare(arguments),
        LabCommand::Scenario(arguments) => scenario::scenario(arguments),
        LabCommand::Agent(arguments) => agent::agent(arguments),
        LabCommand::Diagnose(arguments) => {
            let is_token_named = is_on_command_line(matches, "token_file");
            diagnose::diagnose(arguments, is_token_named)
        }
    }
}

/// Prints what a command comes to.
fn print_report(
    wanted: ReportOutput,
    text: &str,
    fields: impl FnOnce() -> Map<String, Value>,
) -> Result<(), Failure> {
    let mut output = Output::new(wanted.format);
    output.either(text, fields)?;
    output.end()
}
