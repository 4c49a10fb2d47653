//! `pelton lab`

mod client_command;
mod compare;
mod histogram;
mod scenario;
mod sweep;
mod tap;

use clap::ArgMatches;

use crate::arguments::LabCommand;
use crate::exit::{Exit, Failure};

/// Carries out a command of the lab.
/// `matches`: the whole command line.
pub fn lab(command: &LabCommand, matches: &ArgMatches) -> Result<Exit, Failure> {
    match command {
        LabCommand::Histogram(arguments) => histogram::histogram(arguments),
        LabCommand::Tap(arguments) => tap::tap(arguments),
        LabCommand::Sweep(arguments) => sweep::sweep(arguments, matches),
        LabCommand::Compare(arguments) => compare::compare(arguments),
        LabCommand::Scenario(arguments) => scenario::scenario(arguments),
    }
}
