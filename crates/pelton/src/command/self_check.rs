//! `pelton self-check`

use std::path::Path;

use serde_json::{Map, Value};

use crate::arguments::{OutputFormat, SelfCheckArguments};
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::output::{Output, in_columns, object};
use crate::self_check::service::{ServiceError, ServiceUnit};
use crate::self_check::{Judgement, MachineFact, facts};
use crate::settings::DEFAULT_FOLDER;

/// Prints what this machine gives a server; a miss if a part of it is a problem.
pub fn self_check(arguments: &SelfCheckArguments) -> Result<Exit, Failure> {
    if let Some(name) = &arguments.service {
        return as_service(name, arguments);
    }
    let data = arguments
        .data
        .as_deref()
        .unwrap_or(Path::new(DEFAULT_FOLDER));
    // What was made is removed before the command ends.
    let interrupt = Interrupt::listen();
    let is_stopped = {
        let interrupt = interrupt.clone();
        move || interrupt.is_set()
    };
    let facts = facts(Path::new("/"), data, &is_stopped);
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
                output.object(as_object(fact))?;
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

/// Has the same command print what it finds as the user of a service.
fn as_service(name: &str, arguments: &SelfCheckArguments) -> Result<Exit, Failure> {
    let failed = |error: ServiceError| Failure::Failed(error.to_string());
    let unit = ServiceUnit::read(name).map_err(failed)?;
    let data = match &arguments.data {
        Some(data) => data.clone(),
        None => unit.data().map_err(failed)?,
    };
    let (printed, code) = unit.check(&data, arguments.output).map_err(failed)?;
    let mut output = Output::new(arguments.output);
    for line in printed.lines() {
        output.line(line)?;
    }
    output.end()?;
    match code {
        0 => Ok(Exit::Done),
        1 => Ok(Exit::Miss),
        code => Err(failed(ServiceError::NotRun { code })),
    }
}

fn as_object(fact: &MachineFact) -> Map<String, Value> {
    let numbers = fact.numbers.iter();
    let numbers = numbers.map(|(name, value)| ((*name).to_owned(), value.clone()));
    object([
        ("name", fact.name.into()),
        ("value", fact.value.as_str().into()),
        ("judgement", fact.judgement.word().into()),
        ("advice", fact.advice.as_str().into()),
        ("numbers", Value::Object(numbers.collect())),
    ])
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
