//! `pelton watch`

use api::keyvalue::{Change, ChangeKind, WatchRequest};
use serde_json::{Map, Value};
use service::limits::ANSWER_BYTES_MAX;

use super::range::RangeBytes;
use super::resumable_watch::{ChangeSink, CommitPart, ResumableWatch};
use super::{insert_entry, show_previous, unreadable};
use crate::arguments::{Point, WatchArguments};
use crate::encoding::{escape_into, insert_bytes, show_key};
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::output::{self, Output, counted, note, object};

/// Prints what is changed.
pub fn watch(arguments: &WatchArguments) -> Result<Exit, Failure> {
    let database = &arguments.database;
    let range = RangeBytes::new(&arguments.range, database)?;
    let interrupt = Interrupt::listen();
    let request = WatchRequest {
        database: &database.database,
        keys: range.keys(),
        keys_only: arguments.keys_only,
        with_previous: arguments.previous,
        max_answer_bytes: ANSWER_BYTES_MAX,
        ..WatchRequest::default()
    };
    let mut printing = ChangePrinting {
        arguments,
        interrupt: &interrupt,
        output: Output::new(database.connection.output),
        line: Vec::new(),
        commits: 0,
        printed: None,
    };
    ResumableWatch::new(&database.connection, request, arguments.from, &interrupt)
        .run(&mut printing)?;
    printing.output.end()?;
    Ok(Exit::Done)
}

/// Changes on their way to standard output.
struct ChangePrinting<'a> {
    arguments: &'a WatchArguments,
    interrupt: &'a Interrupt,
    output: Output,
    /// The line of a change, whose memory is used again.
    line: Vec<u8>,
    /// Commits that are complete.
    commits: u64,
    /// The last point that was printed.
    printed: Option<Point>,
}

impl ChangeSink for ChangePrinting<'_> {
    fn commit(&mut self, part: &CommitPart<'_>) -> Result<(), Failure> {
        match self.output.is_json() {
            true => self.object(part)?,
            false => {
                for change in part.changes {
                    self.line(part.sequence, change)?;
                }
            }
        }
        self.commits += u64::from(!part.is_continued);
        Ok(())
    }

    fn response(&mut self, point: Point) -> Result<(), Failure> {
        let is_first = self.printed.is_none();
        if self.output.is_json() {
            // Where nothing is changed, the point goes on all the same.
            if self.printed != Some(point) {
                let fields = [
                    ("changes", Value::Array(Vec::new())),
                    ("resume", point.to_string().into()),
                ];
                self.output.object(object(fields))?;
            }
        } else if is_first {
            note(format_args!("pelton: watching from {point} on"));
        }
        self.printed = Some(point);
        self.flush()
    }

    fn flush(&mut self) -> Result<(), Failure> {
        self.output.flush()
    }

    fn is_done(&self) -> bool {
        (self.arguments.limit).is_some_and(|limit| self.commits >= limit)
    }

    fn check_end(&self) -> Result<(), Failure> {
        if output::is_reader_gone() {
            return Err(Failure::BrokenPipe);
        }
        match self.interrupt.is_set() {
            true => Err(Failure::Interrupted(format!(
                "interrupted after {}",
                counted(self.commits, "commit", "commits")
            ))),
            false => Ok(()),
        }
    }
}

impl ChangePrinting<'_> {
    /// Prints a change as a line.
    fn line(&mut self, sequence: u64, change: &Change<'_>) -> Result<(), Failure> {
        let (line, encoding) = (&mut self.line, self.arguments.database.key_encoding);
        let (kind, entry) = (kind(change)?, change.entry.unwrap_or_default());
        line.clear();
        line.extend_from_slice(format!("{sequence}\t{}", name(kind)).as_bytes());
        if kind != ChangeKind::Clear {
            line.push(b'\t');
            line.extend_from_slice(show_key(entry.key, encoding).as_bytes());
        }
        if has_value(change, kind, self.arguments.keys_only) {
            line.push(b'\t');
            escape_into(line, entry.value);
        }
        if let Some(previous) = &change.previous {
            let shown = match self.arguments.keys_only {
                true => format!("before: version {}", previous.version),
                false => show_previous(Some(previous)),
            };
            line.push(b'\t');
            line.extend_from_slice(shown.as_bytes());
        }
        line.push(b'\n');
        self.output.bytes(line)
    }

    /// Prints a commit, or a part of it, as an object.
    fn object(&mut self, part: &CommitPart<'_>) -> Result<(), Failure> {
        let keys_only = self.arguments.keys_only;
        let changes = part.changes.iter();
        let changes = changes.map(|change| Ok(Value::Object(fields(change, keys_only)?)));
        let changes: Result<Vec<Value>, Failure> = changes.collect();
        let mut commit = object([
            ("sequence", part.sequence.into()),
            ("at_ms", part.at_ms.into()),
            ("changes", changes?.into()),
            ("resume", part.resume.to_string().into()),
        ]);
        if part.is_continued {
            commit.insert("continued".into(), true.into());
        }
        self.printed = Some(part.resume);
        self.output.object(commit)
    }
}

/// A change as an object.
fn fields(change: &Change<'_>, keys_only: bool) -> Result<Map<String, Value>, Failure> {
    let (kind, entry) = (kind(change)?, change.entry.unwrap_or_default());
    let mut fields = object([("kind", name(kind).into())]);
    if kind != ChangeKind::Clear {
        insert_bytes(&mut fields, "key", entry.key);
    }
    if kind == ChangeKind::Set {
        insert_entry(&mut fields, &entry);
        if !has_value(change, kind, keys_only) {
            remove_value(&mut fields);
        }
    }
    if change.value_left_out {
        fields.insert("value_left_out".into(), true.into());
    }
    if let Some(previous) = &change.previous {
        let mut before = Map::new();
        insert_entry(&mut before, previous);
        if keys_only {
            remove_value(&mut before);
        }
        fields.insert("previous".into(), Value::Object(before));
    }
    Ok(fields)
}

fn remove_value(fields: &mut Map<String, Value>) {
    fields.remove("value");
    fields.remove("value_encoding");
}

fn has_value(change: &Change<'_>, kind: ChangeKind, keys_only: bool) -> bool {
    kind == ChangeKind::Set && !change.value_left_out && !keys_only
}

/// What has become of the key. A server that knows more kinds is newer than this program.
fn kind(change: &Change<'_>) -> Result<ChangeKind, Failure> {
    let kind = ChangeKind::from_number(change.kind);
    kind.filter(|&kind| kind != ChangeKind::Unspecified)
        .ok_or_else(|| unreadable(format_args!("a change of the kind {}", change.kind)))
}

/// The same words as those of `pelton log inspect`.
fn name(kind: ChangeKind) -> &'static str {
    match kind {
        ChangeKind::Unspecified => "unspecified",
        ChangeKind::Set => "set",
        ChangeKind::Delete => "delete",
        ChangeKind::Expire => "expire",
        ChangeKind::Clear => "clear",
    }
}
