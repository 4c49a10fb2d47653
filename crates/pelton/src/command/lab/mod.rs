//! `pelton lab`

mod client_command;
mod diagnose;
mod tap;

use crate::arguments::LabCommand;
use crate::exit::{Exit, Failure};

/// Carries out a command of the lab. `is_token_named`: --token-file stands on the command line.
pub fn lab(command: &LabCommand, is_token_named: bool) -> Result<Exit, Failure> {
    match command {
        LabCommand::Tap(arguments) => tap::tap(arguments),
        LabCommand::Diagnose(arguments) => diagnose::diagnose(arguments, is_token_named),
    }
}
