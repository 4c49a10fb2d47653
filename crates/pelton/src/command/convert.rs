//! `pelton database convert`

use api::admin::{ConvertDatabaseRequest, ConvertProgress, DatabaseKind};
use api::rpc::admin::ConvertDatabase;

use super::backup::{SILENCE, TaskWait, wait};
use super::database::is_meant_as_default;
use super::{Caller, say_miss, unreadable};
use crate::arguments::{ConvertDatabaseArguments, KindArgument};
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::output::{Output, entries, object};
use crate::progress::ProgressLine;

/// Has the server make a database one of another kind.
pub fn convert_database(arguments: &ConvertDatabaseArguments) -> Result<Exit, Failure> {
    let interrupt = Interrupt::listen();
    let mut caller = Caller::connect(&arguments.connection)?;
    let (kind, place) = match arguments.kind {
        KindArgument::Memory => (DatabaseKind::Memory, "in memory"),
        KindArgument::Disk => (DatabaseKind::Disk, "on disk"),
    };
    let name = &arguments.name;
    let kind = kind.number();
    let progress = ProgressLine::entries_of("converting");
    let mut end = None;
    let task_wait = TaskWait {
        longest: Some(SILENCE),
        interrupted: "interrupted; the server gives it up, unless it was just done: `pelton \
                      database list` tells",
    };
    wait::<ConvertDatabase>(
        &mut caller,
        &ConvertDatabaseRequest { name, kind },
        &task_wait,
        &interrupt,
        &mut |told: ConvertProgress| {
            progress.set_of(told.copied_entries, told.total_entries);
            end = told.complete.then_some(told);
            Ok(())
        },
    )
    .map_err(|failure| {
        let hint = match is_meant_as_default(name) {
            true => format!(
                "; the default database has the empty name: `pelton database convert --kind {}` \
                 converts it",
                arguments.kind
            ),
            false => String::new(),
        };
        let miss = format!(
            "nothing converted: there is no {}{hint}",
            which(name).replacen("the ", "", 1)
        );
        not_converted(&which(name), failure).or_miss(&miss)
    })?;
    drop(progress);
    let told = end.ok_or_else(|| unreadable("the end of the conversion is missing"))?;
    say_end(arguments, place, &told)
}

fn which(name: &str) -> String {
    match name {
        "" => "the default database".to_owned(),
        name => format!("the database `{name}`"),
    }
}

/// A volatile database cannot be on disk, and keeps its durability for good.
fn not_converted(which: &str, failure: Failure) -> Failure {
    match failure {
        Failure::Call(mut failure) if failure.what.contains("cannot be volatile") => {
            failure.what = format!(
                "{which} is volatile, and a database on disk cannot be: nothing was changed"
            );
            failure.hint = "a database keeps its durability; create one with --kind disk and copy \
                            with `pelton export` and `pelton import`"
                .into();
            Failure::Call(failure)
        }
        failure => failure,
    }
}

fn say_end(
    arguments: &ConvertDatabaseArguments,
    place: &str,
    told: &ConvertProgress,
) -> Result<Exit, Failure> {
    let which = which(&arguments.name);
    let mut output = Output::new(arguments.connection.output);
    if output.is_json() {
        output.object(object([
            ("converted", told.converted.into()),
            ("entries", told.copied_entries.into()),
            ("sequence", told.sequence.into()),
        ]))?;
    } else if told.converted {
        output.line(&format!(
            "{which} is {place} now: sequence {}, {}",
            told.sequence,
            entries(told.copied_entries)
        ))?;
    }
    output.end()?;
    if told.converted {
        return Ok(Exit::Done);
    }
    say_miss(
        arguments.connection.output,
        &format!("{which} is {place} already, nothing was changed"),
    );
    Ok(Exit::Miss)
}
