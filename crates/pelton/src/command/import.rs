//! `pelton import`

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use api::keyvalue::{Expiry, PipeAnswers, PipeRequest};
use service::limits::TIME_TO_LIVE_MS_MAX;

use super::import_tkrzw::import_tkrzw;
use super::pipe::{self, GROUP_BYTES, GROUP_OPERATIONS, GroupOutcome, PipeGroup};
use super::results::failure_text;
use super::{Caller, unreadable};
use crate::arguments::ImportArguments;
use crate::exit::{Exit, Failure};
use crate::export_format::{ExportEntry, ExportReader};
use crate::input::{self, NamedInput};
use crate::interrupt::Interrupt;
use crate::json::OwnedOperation;
use crate::output::{self, Output, object};
use crate::progress::ProgressLine;

/// Writes all entries of an export into a database.
pub fn import(arguments: &ImportArguments) -> Result<Exit, Failure> {
    if let Some(original) = &arguments.tkrzw {
        return import_tkrzw(arguments, original);
    }
    let interrupt = Interrupt::listen();
    let file = arguments.file.as_deref();
    let input = input::open(file)?;
    let (input, total) = match input.file_bytes {
        Some(_) if file.is_some() => {
            let entries = check(input, &interrupt)?;
            (input::open(file)?, Some(entries))
        }
        _ => (input, None),
    };
    let reader = ExportReader::begin(input.source, &input.name)
        .map_err(|failure| failure.with("nothing was written"))?;
    // Behind the first bytes of the input, for which a pipe may wait long: until then nobody would
    // look at the connection.
    let mut caller = Caller::connect(&arguments.connection)?;
    let progress = ProgressLine::entries("importing", total);
    let unit = reader.unit();
    let expired = Arc::new(AtomicU64::new(0));
    let read = Arc::new(AtomicU64::new(0));
    let request = PipeRequest {
        database: &arguments.database,
        answers: PipeAnswers::FailuresOnly.number(),
        ..PipeRequest::default()
    };
    let groups = pipe::read_ahead(grouped(Arc::clone(&expired), Arc::clone(&read), reader))?;
    let (mut entries, mut last_place) = (0, None);
    let ended = pipe::run(
        &mut caller,
        request,
        &groups,
        &interrupt,
        &mut |places: &[u64], outcome| {
            entries += written(places, &outcome, unit)?;
            last_place = places.last().copied();
            progress.set(entries);
            Ok(())
        },
    );
    drop(progress);
    ended.map_err(|failure| {
        if read.load(Ordering::Relaxed) == 0 || failure.is_about_nothing() {
            return failure.with("nothing was written");
        }
        failure.with(&how_far(entries, last_place, unit))
    })?;
    say(
        arguments,
        entries,
        expired.load(Ordering::Relaxed),
        &input.name,
    )?;
    Ok(Exit::Done)
}

/// Reads a file to its end, so that a wrong or damaged one is found before anything is written.
/// Returns how many entries it has.
fn check(input: NamedInput, interrupt: &Interrupt) -> Result<u64, Failure> {
    let progress = ProgressLine::entries("checking", None);
    let nothing = |failure: Failure| failure.with("nothing was written");
    let mut reader = ExportReader::begin(input.source, &input.name).map_err(nothing)?;
    let mut entries = 0;
    while reader.next_entry().map_err(nothing)?.is_some() {
        entries += 1;
        progress.set(entries);
        if interrupt.is_set() {
            return Err(nothing(Failure::Interrupted("interrupted".into())));
        }
    }
    Ok(entries)
}

/// Makes groups of Puts: what has been read by now, up to the bounds of a group. Counts those that
/// had `expired`, and those that were `read` and may have been sent.
fn grouped(
    expired: Arc<AtomicU64>,
    read: Arc<AtomicU64>,
    mut reader: ExportReader<impl Read>,
) -> impl FnMut() -> Result<Option<PipeGroup<u64>>, Failure> {
    let (mut failed, mut is_over) = (None, false);
    move || {
        if let Some(failure) = failed.take() {
            return Err(failure);
        }
        let (mut places, mut group) = (Vec::new(), Vec::new());
        let mut bytes = 0;
        while !is_over && group.len() < GROUP_OPERATIONS && bytes < GROUP_BYTES {
            if !group.is_empty() && reader.may_wait() {
                break;
            }
            match reader.next_entry() {
                Ok(Some((number, entry))) => match expiry(entry.expires_at_ms, now_ms()) {
                    Some(expiry) => {
                        bytes += entry.key.len() + entry.value.len() + 64;
                        let ExportEntry { key, value, .. } = entry;
                        places.push(number);
                        group.push(OwnedOperation::put(key, value, expiry));
                    }
                    None => drop(expired.fetch_add(1, Ordering::Relaxed)),
                },
                Ok(None) => is_over = true,
                // What stands before it is still to be written.
                Err(failure) if !group.is_empty() => {
                    failed = Some(failure);
                    break;
                }
                Err(failure) => return Err(failure),
            }
        }
        if group.is_empty() {
            return Ok(None);
        }
        read.fetch_add(group.len() as u64, Ordering::Relaxed);
        Ok(Some(PipeGroup {
            operations: group,
            places,
        }))
    }
}

/// The time to live that is left of an expiry, if there is one; `None` if it has passed.
fn expiry(expires_at_ms: u64, now_ms: u64) -> Option<Option<Expiry>> {
    match expires_at_ms.checked_sub(now_ms) {
        _ if expires_at_ms == 0 => Some(None),
        None | Some(0) => None,
        Some(left) => Some(Some(Expiry::TimeToLiveMs(left.min(TIME_TO_LIVE_MS_MAX)))),
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

/// How many entries of a group are written: all of them, or it is an error.
fn written(places: &[u64], outcome: &GroupOutcome<'_>, unit: &str) -> Result<u64, Failure> {
    match outcome {
        GroupOutcome::Done => Ok(places.len() as u64),
        GroupOutcome::Refused(failure) => Err(Failure::Failed(format!(
            "{unit}s {} to {} were refused: {}",
            places[0],
            places[places.len() - 1],
            failure_text(failure)
        ))),
        GroupOutcome::Answered(..) => Err(unreadable("a Put without a condition failed")),
    }
}

/// What a failed import has done, and how to go on.
fn how_far(entries: u64, last_place: Option<u64>, unit: &str) -> String {
    let done = match last_place {
        Some(place) => format!("{entries} entries are written, all up to {unit} {place}"),
        None => "no entry is known to be written".into(),
    };
    format!(
        "{done}, and some behind may be; when the cause is removed, import the file again: it \
         writes all of them anew, which does no harm unless they were changed meanwhile"
    )
}

fn say(arguments: &ImportArguments, entries: u64, expired: u64, name: &str) -> Result<(), Failure> {
    let mut output = Output::new(arguments.connection.output);
    let left_out = match expired {
        0 => String::new(),
        count => format!("; {count} had expired and were left out"),
    };
    let written = output::entries(entries);
    output.either(&format!("{written} written from {name}{left_out}"), || {
        object([("entries", entries.into()), ("expired", expired.into())])
    })?;
    output.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expiry_becomes_what_is_left_of_it() {
        assert_eq!(expiry(0, 5), Some(None));
        assert_eq!(expiry(6, 5), Some(Some(Expiry::TimeToLiveMs(1))));
        assert_eq!(expiry(5, 5), None);
        assert_eq!(expiry(4, 5), None);
        assert_eq!(
            expiry(u64::MAX, 5),
            Some(Some(Expiry::TimeToLiveMs(TIME_TO_LIVE_MS_MAX)))
        );
    }
}
