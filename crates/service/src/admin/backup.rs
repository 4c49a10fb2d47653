//! Backup and Snapshot: calls that have a task done and wait for it.

use super::invalid;
use super::messages::{decode_backup, decode_nothing};
use crate::call::Actions;
use crate::limits::{BACKUP_NAME_BYTES, QUOTED_CHARACTERS};
use crate::method::Method;
use crate::status::Status;
use crate::task::{Task, TaskNews, TaskRefusal};

pub(super) fn begin_backup(bytes: &[u8], actions: &mut impl Actions) -> Result<(), Status> {
    let name = decode_backup(bytes).map_err(|error| invalid(Method::AdminBackup, error))?;
    check_name(name)?;
    let task = Task::Backup { name: name.into() };
    actions.start_task(task).map_err(TaskRefusal::status)
}

pub(super) fn begin_snapshot(bytes: &[u8], actions: &mut impl Actions) -> Result<(), Status> {
    decode_nothing(bytes).map_err(|error| invalid(Method::AdminSnapshot, error))?;
    actions
        .start_task(Task::Snapshot)
        .map_err(TaskRefusal::status)
}

/// The name becomes that of a folder: nothing in it may lead elsewhere.
fn check_name(name: &str) -> Result<(), Status> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let is_sound = (1..=BACKUP_NAME_BYTES).contains(&name.len())
        && !name.starts_with('.')
        && name.bytes().all(is_plain);
    if is_sound {
        return Ok(());
    }
    let short: String = name.chars().take(QUOTED_CHARACTERS).collect();
    Err(Status::invalid_argument(format!(
        "field name is {short:?}; a backup's name has 1 to {BACKUP_NAME_BYTES} letters, digits, '-', '_' or '.', and \
         does not begin with '.'"
    )))
}

/// Tells the caller.
pub(super) fn answer(news: &TaskNews<'_>, actions: &mut impl Actions) {
    match news {
        // A caller who does not read gets the next one instead.
        TaskNews::Progress(_) if !actions.can_send() => {}
        TaskNews::Progress(progress) => actions.message(|out| progress.encode(out)),
        TaskNews::BackedUp(progress) => {
            actions.message(|out| progress.encode(out));
            actions.finish(Status::OK);
        }
        TaskNews::SnapshotMade(response) => actions.respond(|out| response.encode(out)),
        TaskNews::Failed(failure) => actions.finish(failure.status()),
    }
}
