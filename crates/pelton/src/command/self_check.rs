//! `pelton self-check`

use std::path::Path;

use crate::arguments::{OutputFormat, SelfCheckArguments};
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::output::{Output, in_columns, object};
use crate::self_check::{Judgement, MachineFact, facts};

/// Prints what this machine gives a server; a miss if a part of it is a problem.
pub fn self_check(arguments: &SelfCheckArguments) -> Result<Exit, Failure> {
    // What was made is removed before the command ends.
    let interrupt = Interrupt::listen();
    let is_stopped = {
        let interrupt = interrupt.clone();
        move || interrupt.is_set()
    };
    let facts = facts(Path::new("/"), &arguments.data, &is_stopped);
    if interrupt.is_set() {
        return Err(Failure::Interrupted(
            "interrupted, nothing was left behind".into(),
        ));
    }
    let mut output = Output::new(arguments.output);
    match arguments.output {
        OutputFormat::Text => {
            for line in lines(&facts) {
                output.line(&line)?;
            }
        }
        OutputFormat::Json => {
            for fact in &facts {
                output.object(object([
                    ("name", fact.name.into()),
                    ("value", fact.value.as_str().into()),
                    ("judgement", fact.judgement.word().into()),
                    ("advice", fact.advice.as_str().into()),
                ]))?;
            }
        }
    }
    output.end()?;
    let is_problem = |fact: &MachineFact| fact.judgement == Judgement::Problem;
    match facts.iter().any(is_problem) {
        true => Ok(Exit::Miss),
        false => Ok(Exit::Done),
    }
}

fn lines(facts: &[MachineFact]) -> Vec<String> {
    let row = |fact: &MachineFact| {
        let told = match fact.advice.as_str() {
            "" => fact.value.clone(),
            advice => format!("{}: {advice}", fact.value),
        };
        [fact.judgement.word().to_owned(), fact.name.to_owned(), told]
    };
    in_columns(facts.iter().map(row).collect(), [false; 3])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_judgement_name_value_and_what_to_do() {
        let facts = [
            MachineFact::ok("memory", "2 GiB"),
            MachineFact::ok("clock", "hpet").note("choose tsc"),
            MachineFact::ok("descriptors", "10").problem("raise it"),
        ];
        assert_eq!(
            lines(&facts),
            [
                "ok       memory       2 GiB",
                "note     clock        hpet: choose tsc",
                "problem  descriptors  10: raise it",
            ]
        );
    }
}
