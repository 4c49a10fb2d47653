//! Backup, Snapshot and ConvertDatabase: calls that have a task done and wait for it.

use store::{Kind, Store};

use super::{invalid, set_audited_database};
use crate::actions::{Administration, Permissions, Responses, SendRoom};
use crate::keyvalue::messages::Invalid;
use crate::limits::BACKUP_NAME_BYTES;
use crate::method::Method;
use crate::permission;
use crate::rights::Right;
use crate::status::{Status, quoted};
use crate::task::{Task, TaskNews, TaskRefusal};
use api::admin::{
    BackupRequest, ConvertDatabaseRequest, ConvertProgress, DatabaseKind, SnapshotRequest,
};

pub(super) fn begin_backup(bytes: &[u8], actions: &mut impl Administration) -> Result<(), Status> {
    let request = BackupRequest::decode(bytes);
    let name = request
        .map_err(|error| invalid(Method::AdminBackup, error))?
        .name;
    actions.set_audited(name, "");
    check_name(name)?;
    let task = Task::Backup { name: name.into() };
    actions.start_task(task).map_err(TaskRefusal::status)
}

pub(super) fn begin_snapshot(
    bytes: &[u8],
    actions: &mut impl Administration,
) -> Result<(), Status> {
    SnapshotRequest::decode(bytes).map_err(|error| invalid(Method::AdminSnapshot, error))?;
    actions
        .start_task(Task::Snapshot)
        .map_err(TaskRefusal::status)
}

pub(super) fn begin_convert(
    bytes: &[u8],
    store: &Store,
    actions: &mut (impl Administration + Permissions + Responses + SendRoom),
) -> Result<(), Status> {
    let request = ConvertDatabaseRequest::decode(bytes)
        .map_err(|error| invalid(Method::AdminConvertDatabase, error))?;
    let detail = match DatabaseKind::from_number(request.kind) {
        Some(DatabaseKind::Memory) => "to memory",
        Some(DatabaseKind::Disk) => "to disk",
        Some(DatabaseKind::Unspecified | DatabaseKind::Remote) | None => "",
    };
    set_audited_database(request.name, detail, actions);
    permission::check_database(Right::Admin, request.name, actions)?;
    // Unlike elsewhere the kind must be given: nobody converts to a default by chance.
    let kind = match DatabaseKind::from_number(request.kind) {
        Some(DatabaseKind::Memory) => Kind::Memory,
        Some(DatabaseKind::Disk) => Kind::Disk,
        Some(DatabaseKind::Unspecified | DatabaseKind::Remote) | None => {
            let broken = Invalid::rule("kind", "must be MEMORY or DISK");
            return Err(invalid(Method::AdminConvertDatabase, broken));
        }
    };
    let found = store.database(request.name);
    let config = found.and_then(|id| Some((id, store.config(id)?)));
    let (database, config) = config.ok_or_else(|| unknown_database(request.name))?;
    if config.kind == kind {
        answer(&TaskNews::Converted(ConvertProgress::NOTHING_DONE), actions);
        return Ok(());
    }
    let task = Task::Convert { database, kind };
    actions.start_task(task).map_err(TaskRefusal::status)
}

#[cold]
fn unknown_database(name: &str) -> Status {
    Status::not_found(format!("field name: there is no database {}", quoted(name)))
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
    let name = quoted(name);
    Err(Status::invalid_argument(format!(
        "field name is {name}; a backup's name has 1 to {BACKUP_NAME_BYTES} letters, digits, \
         '-', '_' or '.', and \
         does not begin with '.'"
    )))
}

/// Tells the caller.
pub(super) fn answer(news: &TaskNews<'_>, actions: &mut (impl Responses + SendRoom)) {
    match news {
        // A caller who does not read gets the next one instead.
        TaskNews::BackingUp(_) | TaskNews::Converting(_) if !actions.can_send() => {}
        TaskNews::BackingUp(progress) => actions.message(|out| progress.encode(out)),
        TaskNews::Converting(progress) => actions.message(|out| progress.encode(out)),
        TaskNews::BackedUp(progress) => {
            actions.message(|out| progress.encode(out));
            actions.finish(Status::OK);
        }
        TaskNews::Copied(_) => debug_assert!(false, "no method here asks for a copy"),
        TaskNews::SnapshotMade(response) => actions.respond(|out| response.encode(out)),
        TaskNews::Converted(progress) => {
            actions.message(|out| progress.encode(out));
            actions.finish(Status::OK);
        }
        TaskNews::Failed(failure) => actions.finish(failure.status()),
    }
}
