//! `pelton log inspect|verify`

use std::path::Path;

use serde_json::{Map, Value};
use store::durable::{self, NamedTrees, TREES_FOLDER, TreeVerdict};
use store::log::{Record, RecordKind, records as records_of};
use store::snapshot::{self, SnapshotHeader, Summary};
use store::{DatabaseId, DatabaseInfo};
use wal::disk::{Disk, FolderLock, RealDisk};
use wal::{KnownLog, LogEnding, LogGroup, LogPlace, LogReport, verify_known};

use crate::arguments::{InspectLogArguments, LogArguments};
use crate::encoding::{escape, insert_bytes};
use crate::exit::{Exit, Failure};
use crate::output::{Output, bytes, counted, databases, entries_and_blobs, object};
use crate::settings::FORMAT_FILE;

/// Bytes of a value that are shown of a record.
const SHOWN_BYTES: usize = 64;

/// Prints the groups of a log.
pub fn inspect_log(arguments: &InspectLogArguments) -> Result<Exit, Failure> {
    let mut output = Output::new(arguments.log.output);
    let mut failed = None;
    let verdict = read(&arguments.log, &mut |place, group| {
        if failed.is_none() {
            failed = print_group(&mut output, place, group, arguments.records).err();
        }
    });
    if let Some(failure) = failed {
        return Err(failure);
    }
    end(output, verdict?, &arguments.log.folder)
}

/// Checks a log.
pub fn verify_log(arguments: &LogArguments) -> Result<Exit, Failure> {
    let mut contents = read(arguments, &mut |_, _| {})?;
    let trees = arguments.folder.join(TREES_FOLDER);
    contents.trees = contents.named.verify(&trees, contents.owner);
    end(Output::new(arguments.output), contents, &arguments.folder)
}

/// What is in a data folder.
struct FolderContents {
    /// Oldest first.
    snapshots: Vec<Summary>,
    log: LogReport,
    /// The identity of the data folder.
    owner: u64,
    /// The databases on disk that the newest snapshot and the log name.
    named: NamedTrees,
    /// What was found of these, if they were looked at.
    trees: Vec<TreeVerdict>,
}

/// Reads all snapshots and the whole log, and nothing of databases on disk.
fn read(
    arguments: &LogArguments,
    visit: &mut dyn FnMut(LogPlace, &LogGroup<'_>),
) -> Result<FolderContents, Failure> {
    let folder = arguments.folder.display();
    let (disk, _lock) = open(&arguments.folder)?;
    let snapshots = snapshot::verify(&disk).map_err(|error| {
        Failure::Failed(format!(
            "{error}; put a whole copy of the file back, or restore a backup"
        ))
    })?;
    let known = snapshots.last().map_or(KnownLog::default(), Summary::known);
    // What the folder itself says of its log.
    let known = durable::known(&disk, known).map_err(|error| Failure::Failed(error.to_string()))?;
    let owner = durable::owner(&disk).map_err(|error| Failure::Failed(error.to_string()))?;
    let mut named = NamedTrees::of_snapshot(snapshots.last().map(|newest| &newest.header));
    let log = verify_known(&disk, &known, &mut |place, group| {
        for record in records_of(group) {
            named.record(&record?);
        }
        visit(place, group);
        Ok(())
    });
    let log = log.map_err(|error| Failure::Failed(format!("{folder}: {error}")))?;
    Ok(FolderContents {
        snapshots,
        log,
        owner,
        named,
        trees: Vec::new(),
    })
}

/// Opens and locks a data folder: what a server writes meanwhile would look like damage.
fn open(folder: &Path) -> Result<(RealDisk, FolderLock), Failure> {
    let name = folder.display();
    let failed = |error: std::io::Error| {
        Failure::Failed(format!("cannot read the data folder {name}: {error}"))
    };
    let disk = RealDisk::open_read_only(folder).map_err(failed)?;
    if folder.join(store::backup::MANIFEST_NAME).is_file() {
        return Err(Failure::Failed(format!(
            "{name} is a backup; `pelton restore {name} --verify-only` checks it"
        )));
    }
    if !folder.join(FORMAT_FILE).is_file() {
        return Err(Failure::Failed(format!(
            "{name} is no data folder: there is no file {FORMAT_FILE} in it"
        )));
    }
    match disk.lock().map_err(failed)? {
        Some(lock) => Ok((disk, lock)),
        None => Err(Failure::Failed(format!(
            "a server uses the data folder {name}: stop it first"
        ))),
    }
}

// --- groups and records

fn print_group(
    output: &mut Output,
    place: LogPlace,
    group: &LogGroup<'_>,
    with_records: bool,
) -> Result<(), Failure> {
    let header = &group.header;
    output.either(
        &format!(
            "group {} in {place}: {}, {}{}{}",
            header.number,
            records(
                header.records.into(),
                header.first_sequence,
                header.last_sequence
            ),
            bytes(header.body_bytes),
            if header.closing { ", clean stop" } else { "" },
            if header.new_history {
                ", new history"
            } else {
                ""
            },
        ),
        || {
            object([
                ("group", header.number.into()),
                ("segment", place.segment.into()),
                ("offset", place.offset.into()),
                ("first_sequence", header.first_sequence.into()),
                ("last_sequence", header.last_sequence.into()),
                ("durable_sequence", header.durable.sequence.into()),
                ("wall_ms", header.wall_ms.into()),
                ("records", header.records.into()),
                ("body_bytes", header.body_bytes.into()),
                ("closing", header.closing.into()),
                ("new_history", header.new_history.into()),
            ])
        },
    )?;
    if with_records {
        for record in records_of(group) {
            // What cannot be read is told by the verdict on the whole.
            let Ok(record) = record else { break };
            print_record(output, &record)?;
        }
    }
    Ok(())
}

/// How many records there are, and where: none stands between two sequences, and nowhere.
fn records(count: u64, first: u64, last: u64) -> String {
    let count = counted(count, "record", "records");
    match first {
        first if first > last => count,
        first if first == last => format!("{count}, sequence {first}"),
        first => format!("{count}, sequences {first} to {last}"),
    }
}

fn print_record(output: &mut Output, record: &Record<'_>) -> Result<(), Failure> {
    if output.is_json() {
        let mut fields = object([
            ("sequence", record.sequence.into()),
            ("database", record.database.to_string().into()),
            ("record", kind(record.kind).into()),
        ]);
        insert_bytes(&mut fields, "key", record.key);
        if record.kind == RecordKind::Set {
            insert_bytes(&mut fields, "value", record.value);
            fields.insert("expires_at_ms".into(), record.expires_ms.into());
        }
        return output.object(fields);
    }
    let mut text = format!(
        "  sequence {}, database {}: {} {}",
        record.sequence,
        record.database,
        kind(record.kind),
        escape(record.key)
    );
    if record.kind == RecordKind::Set {
        let shown = &record.value[..record.value.len().min(SHOWN_BYTES)];
        let rest = match record.value.len() - shown.len() {
            0 => String::new(),
            more => format!(" and {} more", bytes(more as u64)),
        };
        text.push_str(&format!(" = {}{rest}", escape(shown)));
        if record.expires_ms != 0 {
            text.push_str(&format!(", expires at {} ms", record.expires_ms));
        }
    }
    output.line(&text)
}

fn kind(kind: RecordKind) -> &'static str {
    match kind {
        RecordKind::Set => "set",
        RecordKind::Delete => "delete",
        RecordKind::Expire => "expire",
        RecordKind::Clear => "clear",
        RecordKind::DatabaseCreated => "database created",
        RecordKind::DatabaseDropped => "database dropped",
        RecordKind::DatabaseConverted => "database converted",
        RecordKind::Mark => "mark",
    }
}

// --- the whole

/// Prints what the snapshots and the whole log hold and how it ends.
fn end(mut output: Output, contents: FolderContents, folder: &Path) -> Result<Exit, Failure> {
    if output.is_json() {
        output.object(summary(&contents))?;
    } else {
        for snapshot in &contents.snapshots {
            output.line(&format!(
                "{}: {} of {} up to sequence {}, {}, whole",
                snapshot::file_name(snapshot.header.sequence),
                entries_and_blobs(snapshot.totals.entries),
                databases(named_databases(&snapshot.header)),
                snapshot.header.sequence,
                bytes(snapshot.file_bytes)
            ))?;
        }
        print_log(&mut output, &contents.log)?;
        for verdict in &contents.trees {
            print_tree(&mut output, verdict)?;
        }
    }
    output.end()?;
    let folder = folder.display();
    match (contents.log.ending, contents.log.misfit) {
        (LogEnding::Damaged(damage), _) => Err(Failure::Failed(format!(
            "{folder}: {damage}; `pelton serve --accept-loss` starts with what is whole"
        ))),
        (_, Some(misfit)) => Err(Failure::Failed(format!("{folder}: {misfit}"))),
        _ => match first_damage(&contents.trees) {
            Some(damage) => Err(Failure::Failed(damage)),
            None => Ok(Exit::Done),
        },
    }
}

/// What is wrong with the first database on disk that cannot be read, and what helps.
fn first_damage(trees: &[TreeVerdict]) -> Option<String> {
    trees.iter().find_map(|verdict| {
        let error = verdict.found.as_ref().err()?;
        let advice = match error.can_be_given_up() {
            true => {
                ", or where the server refuses to start, `pelton serve --accept-loss` starts \
                 without what is in it"
            }
            false => "",
        };
        Some(format!("{}: {error}{advice}", verdict.database))
    })
}

/// How many databases there are, as `pelton database list` counts them: not that in which the
/// descriptions of blobs are.
fn named_databases(header: &SnapshotHeader) -> u64 {
    let named = |database: &&DatabaseInfo| database.id != DatabaseId::BLOBS;
    header.databases.iter().filter(named).count() as u64
}

fn print_tree(output: &mut Output, verdict: &TreeVerdict) -> Result<(), Failure> {
    let database = &verdict.database;
    output.line(&match &verdict.found {
        Ok(Some(report)) => format!(
            "{database}, on disk: {}, {}, whole",
            counted(report.tables, "table", "tables"),
            bytes(report.bytes)
        ),
        Ok(None) => format!("{database}, on disk: all of it is in the log"),
        Err(error) => format!("{database}, on disk: {error}"),
    })
}

fn tree_object(verdict: &TreeVerdict) -> Value {
    let mut fields = object([("database", verdict.name.as_str().into())]);
    match &verdict.found {
        Ok(report) => {
            let (tables, bytes) = report.map_or((0, 0), |report| (report.tables, report.bytes));
            fields.insert("tables".into(), tables.into());
            fields.insert("bytes".into(), bytes.into());
        }
        Err(error) => {
            fields.insert("error".into(), error.to_string().into());
        }
    }
    Value::Object(fields)
}

fn print_log(output: &mut Output, report: &LogReport) -> Result<(), Failure> {
    for segment in &report.segments {
        let sequences = segment
            .sequences
            .map_or("nothing that counts".into(), |(first, last)| {
                format!("sequences {first} to {last}")
            });
        output.line(&format!(
            "{}: {} of {} used, {}, {sequences}",
            segment.file,
            segment.used_bytes,
            bytes(segment.bytes),
            counted(segment.groups, "group", "groups")
        ))?;
    }
    let words = match &report.ending {
        LogEnding::Empty => "there is nothing in it",
        LogEnding::Closed => "it ends with a clean stop",
        LogEnding::Open => "it ends without a clean stop; all that was durable is there",
        LogEnding::Damaged(_) => "it is damaged",
    };
    output.line(&format!(
        "{}, {}: {words}",
        counted(report.groups, "group", "groups"),
        records(report.records, report.first_sequence, report.last_sequence)
    ))
}

fn summary(contents: &FolderContents) -> Map<String, Value> {
    let report = &contents.log;
    let ending = match &report.ending {
        LogEnding::Empty => "empty",
        LogEnding::Closed => "closed",
        LogEnding::Open => "open",
        LogEnding::Damaged(_) => "damaged",
    };
    let history_id = report
        .history_id
        .map_or(Value::Null, |id| format!("{id:016x}").into());
    let newest = contents.snapshots.last();
    let snapshot = newest.map_or(Value::Null, |newest| newest.header.sequence.into());
    object([
        ("ending", ending.into()),
        ("history_id", history_id),
        ("snapshot_sequence", snapshot),
        ("segments", report.segments.len().into()),
        ("groups", report.groups.into()),
        ("records", report.records.into()),
        ("first_sequence", report.first_sequence.into()),
        ("last_sequence", report.last_sequence.into()),
        ("wall_ms", report.wall_ms.into()),
        (
            "databases_on_disk",
            contents.trees.iter().map(tree_object).collect(),
        ),
    ])
}
