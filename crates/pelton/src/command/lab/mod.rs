//! `pelton lab`

mod client_command;
mod scenario;
mod tap;

use crate::arguments::LabCommand;
use crate::exit::{Exit, Failure};

/// Carries out a command of the lab.
pub fn lab(command: &LabCommand) -> Result<Exit, Failure> {
    match command {
        LabCommand::Tap(arguments) => tap::tap(arguments),
        LabCommand::Scenario(arguments) => scenario::scenario(arguments),
    }
}
