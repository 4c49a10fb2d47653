//! What may be loaded without asking.

use lab::MethodName;

use super::super::this_machine::is_on_this_machine;
use crate::arguments::DiagnoseArguments;
use crate::exit::Failure;
use crate::output::note;

/// Refuses to load a server of another machine without being told so.
pub(super) fn check_target(arguments: &DiagnoseArguments) -> Result<(), Failure> {
    if arguments.yes || is_on_this_machine(&arguments.target) {
        return Ok(());
    }
    Err(Failure::Usage(format!(
        "{} is on another machine, and would get up to {} calls a second; --yes if that is wanted, \
         --max-rate and --max-in-flight make it less",
        arguments.target, arguments.max_rate
    )))
}

/// Refuses to call a method again and again that may change something.
pub(super) fn check_method(
    arguments: &DiagnoseArguments,
    method: &MethodName,
    descriptors: &[u8],
) -> Result<(), Failure> {
    let is_declared = method.is_declared_repeatable(descriptors).unwrap_or(false);
    if arguments.repeat_safe || method.is_evidently_reading() || is_declared {
        return Ok(());
    }
    Err(Failure::Usage(format!(
        "{method} may change something, and would be called many thousand times; --repeat-safe if \
         it may be. Names such as Get, List and Check, and idempotency_level in the .proto file, \
         say so by themselves"
    )))
}

/// Says what it may do at most, before it does anything.
pub(super) fn note_ceiling(arguments: &DiagnoseArguments) {
    note(format_args!(
        "pelton lab diagnose: calls {} at most {} times a second, with at most {} calls in flight, \
         for at most {}; it ends earlier if 1 % of them fail or take ten times as long",
        arguments.target, arguments.max_rate, arguments.max_in_flight, arguments.max_time
    ));
}
