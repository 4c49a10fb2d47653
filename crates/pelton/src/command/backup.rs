//! `pelton backup` and `pelton snapshot`: tasks of the server that are waited for.

use std::time::{Duration, Instant};

use api::admin::{BackupProgress, BackupRequest, SnapshotResponse};
use client::{CallOptions, StreamStep};
use service::Method;

use super::{Caller, call_failure, path, unreadable};
use crate::arguments::{BackupArguments, SnapshotArguments};
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::output::{Output, bytes, databases, entries_and_blobs, object};
use crate::progress::ProgressLine;

/// How long to wait for a message before the user is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// How long a server that makes a backup or converts a database may say nothing. It tells several
/// times a second how far it has come, but a device may take long for a sync.
pub(super) const SILENCE: Duration = Duration::from_secs(60);

/// Has the server copy everything into a new folder.
pub fn backup(arguments: &BackupArguments) -> Result<Exit, Failure> {
    let interrupt = Interrupt::listen();
    let mut caller = Caller::connect(&arguments.connection)?;
    let mut request = Vec::new();
    let name = &arguments.name;
    BackupRequest { name }.encode(&mut request);
    let progress = ProgressLine::bytes("copying");
    let mut output = Output::new(arguments.connection.output).optional();
    let mut is_complete = false;
    let task_wait = TaskWait {
        longest: Some(SILENCE),
        interrupted: "interrupted; the server gives it up",
    };
    wait(
        &mut caller,
        Method::AdminBackup,
        &request,
        &task_wait,
        &interrupt,
        &mut |answer| {
            let told = BackupProgress::decode(answer).map_err(unreadable)?;
            progress.set_of(told.written_bytes, told.total_bytes);
            if told.complete {
                is_complete = true;
                say_complete(&mut output, &told)?;
            }
            Ok(())
        },
    )?;
    if !is_complete {
        return Err(unreadable("the end of the backup is missing"));
    }
    drop(progress);
    output.end()?;
    Ok(Exit::Done)
}

fn say_complete(output: &mut Output, told: &BackupProgress<'_>) -> Result<(), Failure> {
    let volatile = match told.volatile_databases {
        0 => String::new(),
        1 => "; of 1 volatile database only the description is in it".into(),
        many => format!("; of {many} volatile databases only the descriptions are in it"),
    };
    let text = format!(
        "backup complete in {}: sequence {}, {}, {}{volatile}",
        told.path,
        told.sequence,
        bytes(told.written_bytes),
        databases(told.databases)
    );
    output.either(&text, || {
        object([
            ("path", told.path.into()),
            ("sequence", told.sequence.into()),
            ("bytes", told.written_bytes.into()),
            ("databases", told.databases.into()),
            ("volatile_databases", told.volatile_databases.into()),
        ])
    })
}

/// Has the server write a snapshot.
pub fn snapshot(arguments: &SnapshotArguments) -> Result<Exit, Failure> {
    let interrupt = Interrupt::listen();
    let mut caller = Caller::connect(&arguments.connection)?;
    let progress = ProgressLine::waiting("writing a snapshot");
    let mut made = None;
    let task_wait = TaskWait {
        longest: None,
        interrupted: "interrupted; the server goes on with it",
    };
    wait(
        &mut caller,
        Method::AdminSnapshot,
        b"",
        &task_wait,
        &interrupt,
        &mut |answer| {
            made = Some(SnapshotResponse::decode(answer).map_err(unreadable)?);
            Ok(())
        },
    )?;
    drop(progress);
    let made = made.ok_or_else(|| unreadable("there is no answer in it"))?;
    let mut output = Output::new(arguments.connection.output);
    let text = format!(
        "snapshot written: sequence {}, {}, {}",
        made.sequence,
        entries_and_blobs(made.entries),
        bytes(made.bytes)
    );
    output.either(&text, || {
        object([
            ("sequence", made.sequence.into()),
            ("entries", made.entries.into()),
            ("bytes", made.bytes.into()),
        ])
    })?;
    output.end()?;
    Ok(Exit::Done)
}

/// How long a task is waited for.
pub(super) struct TaskWait {
    /// How long the server may say nothing; `None`: as long as it takes.
    pub(super) longest: Option<Duration>,
    /// What the user is told who has enough of it.
    pub(super) interrupted: &'static str,
}

/// Calls a method and shows its answers to `visit` until it ends, or the user has enough of it.
pub(super) fn wait(
    caller: &mut Caller,
    method: Method,
    request: &[u8],
    task_wait: &TaskWait,
    interrupt: &Interrupt,
    visit: &mut dyn FnMut(&[u8]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let address = caller.address.clone();
    let failed = |error| call_failure(&address, method.path(), &error);
    let mut call = caller
        .channel
        .streaming(&path(method), &CallOptions::default())
        .map_err(failed)?;
    call.send(request);
    call.close_send();
    let mut last = Instant::now();
    loop {
        if interrupt.is_set() {
            // The call is given up, which the server notices.
            return Err(Failure::Interrupted(task_wait.interrupted.into()));
        }
        match call.poll(LOOK).map_err(failed)? {
            StreamStep::Message(answer) => {
                last = Instant::now();
                visit(&answer)?;
            }
            StreamStep::Ended => return Ok(()),
            StreamStep::Nothing
                if task_wait
                    .longest
                    .is_some_and(|longest| last.elapsed() >= longest) =>
            {
                return Err(Failure::Failed(format!(
                    "{} on {address}: the server has said nothing for {SILENCE:.0?}",
                    method.path()
                )));
            }
            StreamStep::Nothing => {}
        }
    }
}
