//! `pelton backup` and `pelton snapshot`: tasks of the server that are waited for.

use std::time::{Duration, Instant};

use api::admin::{BackupProgress, BackupRequest, SnapshotRequest, SnapshotResponse};
use api::rpc::Rpc;
use api::rpc::admin::{Backup, Snapshot};
use client::{CallOptions, StreamStep};

use super::{Caller, call_failure, unreadable};
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
    let name = &arguments.name;
    let progress = ProgressLine::bytes("copying");
    let mut output = Output::new(arguments.connection.output).optional();
    let mut is_complete = false;
    let task_wait = TaskWait {
        longest: Some(SILENCE),
        interrupted: "interrupted; the server gives it up",
    };
    wait::<Backup>(
        &mut caller,
        &BackupRequest { name },
        &task_wait,
        &interrupt,
        &mut |told: BackupProgress<'_>| {
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
    wait::<Snapshot>(
        &mut caller,
        &SnapshotRequest {},
        &task_wait,
        &interrupt,
        &mut |told: SnapshotResponse| {
            made = Some(told);
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
pub(super) fn wait<M: Rpc>(
    caller: &mut Caller,
    request: &M::Request<'_>,
    task_wait: &TaskWait,
    interrupt: &Interrupt,
    visit: &mut impl FnMut(M::Response<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let (address, called) = (&caller.address, M::METHOD.path);
    let failed = |error| call_failure(address, called, &error);
    let call = caller.channel.call_streaming::<M>(&CallOptions::default());
    let mut call = call.map_err(failed)?;
    call.send(request);
    call.close_send();
    let mut last = Instant::now();
    loop {
        if interrupt.is_set() {
            // The call is given up, which the server notices.
            return Err(Failure::Interrupted(task_wait.interrupted.into()));
        }
        match call.poll(LOOK).map_err(failed)? {
            StreamStep::Message(reply) => {
                last = Instant::now();
                visit(reply.message())?;
            }
            StreamStep::Ended => return Ok(()),
            StreamStep::Nothing
                if task_wait
                    .longest
                    .is_some_and(|longest| last.elapsed() >= longest) =>
            {
                return Err(Failure::Failed(format!(
                    "{called} on {address}: the server has said nothing for {SILENCE:.0?}"
                )));
            }
            StreamStep::Nothing => {}
        }
    }
}
