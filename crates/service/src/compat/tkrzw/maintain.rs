//! Methods that say something about a database, or would maintain the original's files.

use api::tkrzw::{
    ChangeMasterRequest, EchoRequest, EchoResponse, GetFileSizeRequest, GetFileSizeResponse,
    RebuildRequest, ShouldBeRebuiltRequest, SynchronizeRequest,
};
use api::tkrzw_before;
use store::Durability;

use super::decode::{decode, not_a_request};
use super::inspect::file_bytes;
use super::result::{RequestResult, ResultCode};
use super::target::target;
use super::{Package, TkrzwActions, TkrzwStep};
use crate::actions::{CallClock, Responses, Wakeups};
use crate::call::Shared;
use crate::limits::{TKRZW_MASTER_BYTES_MAX, TKRZW_SYNC_LOOK_MS};
use crate::method::Method;
use crate::rights::Right;
use crate::status::Status;

/// Parameters with which the original tunes its files: they are accepted, and mean nothing here.
pub const TUNING_PARAMETERS: &[&str] = &[
    "num_buckets",
    "align_pow",
    "offset_width",
    "update_mode",
    "record_crc_mode",
    "record_comp_mode",
    "record_comp_config",
    "restore_mode",
    "fbp_capacity",
    "min_read_size",
    "cache_buckets",
    "lock_mem_buckets",
    "max_page_size",
    "max_branches",
    "max_cached_pages",
    "page_update_mode",
    "key_comparator",
    "cap_rec_num",
    "cap_mem_size",
    "step_unit",
    "max_level",
    "sort_mem_size",
    "insert_in_order",
    "max_cached_records",
    "block_size",
    "access_options",
];

/// A database without a file has no size.
const NO_FILE: RequestResult = RequestResult {
    code: ResultCode::Precondition,
    words: "no file is associated",
};

/// A database without a file has no backup.
const NO_FILE_TO_COPY: RequestResult = RequestResult {
    code: ResultCode::Infeasible,
    words: "no file is associated",
};

/// Copies are made otherwise.
const NO_BACKUP: RequestResult = RequestResult {
    code: ResultCode::NotImplemented,
    words: "this server makes backups with pelton backup",
};

/// There is no such tuning parameter.
const UNKNOWN_PARAMETER: RequestResult = RequestResult {
    code: ResultCode::InvalidArgument,
    words: "unsupported parameter",
};

/// Nobody can tell when it is on the device.
const NEVER_SYNCED: RequestResult = RequestResult {
    code: ResultCode::NotImplemented,
    words: "a database of durability written is on the device when the system likes",
};

/// The log has failed.
const NOT_SYNCED: RequestResult = RequestResult {
    code: ResultCode::System,
    words: "the log of the server has failed",
};

/// Responds to a request at once.
pub(super) fn respond(
    method: Method,
    bytes: &[u8],
    shared: &Shared,
    actions: &mut impl TkrzwActions,
) -> Result<(), Status> {
    use Method as M;
    match method {
        M::TkrzwEcho | M::TkrzwBeforeEcho => echo(method, bytes, actions),
        M::TkrzwGetFileSize | M::TkrzwBeforeGetFileSize => {
            let request: GetFileSizeRequest = decode(method, bytes)?;
            let target = target(request.dbm_index, Right::Read, shared, actions)?;
            match target.database.path.is_empty() {
                true => actions.respond(|out| NO_FILE.encode(out)),
                false => {
                    let size = i64::try_from(file_bytes(target, shared)).unwrap_or(i64::MAX);
                    let response = GetFileSizeResponse {
                        file_size: size,
                        ..GetFileSizeResponse::default()
                    };
                    actions.respond(|out| {
                        RequestResult::SUCCESS.encode(out);
                        response.encode(out);
                    });
                }
            }
            Ok(())
        }
        M::TkrzwShouldBeRebuilt | M::TkrzwBeforeShouldBeRebuilt => {
            let request: ShouldBeRebuiltRequest = decode(method, bytes)?;
            target(request.dbm_index, Right::Read, shared, actions)?;
            // The field `tobe` is false.
            actions.respond(|out| RequestResult::SUCCESS.encode(out));
            Ok(())
        }
        M::TkrzwRebuild | M::TkrzwBeforeRebuild => rebuild(method, bytes, shared, actions),
        M::TkrzwChangeMaster | M::TkrzwBeforeChangeMaster => {
            change_master(method, bytes, shared, actions)
        }
        _ => Err(Status::unimplemented(method.path())),
    }
}

fn echo(method: Method, bytes: &[u8], actions: &mut impl Responses) -> Result<(), Status> {
    let request: EchoRequest<'_> = decode(method, bytes)?;
    let package = Package::of(method);
    actions.respond(|out| encode_echo(package, request.message, out));
    Ok(())
}

/// Appends the response to an Echo.
pub(super) fn encode_echo(package: Package, echo: &str, out: &mut Vec<u8>) {
    match package {
        Package::Before => tkrzw_before::EchoResponse { echo }.encode(out),
        Package::Present => {
            let status = Some(RequestResult::SUCCESS.proto());
            EchoResponse { status, echo }.encode(out);
        }
    }
}

fn change_master(
    method: Method,
    bytes: &[u8],
    shared: &Shared,
    actions: &mut impl Responses,
) -> Result<(), Status> {
    let request: ChangeMasterRequest<'_> = decode(method, bytes)?;
    let settings = &shared.settings.tkrzw;
    let Some(orders) = &settings.master else {
        let words = "this server follows no other: pelton tkrzw-server does";
        return Err(Status::unimplemented(words));
    };
    if request.master.len() > TKRZW_MASTER_BYTES_MAX {
        return Err(Status::invalid_argument(format!(
            "ChangeMasterRequest.master has {} bytes, at most {TKRZW_MASTER_BYTES_MAX} are allowed",
            request.master.len()
        )));
    }
    if settings.is_read_only {
        actions.respond(|out| RequestResult::READ_ONLY.encode(out));
        return Ok(());
    }
    orders.change(request.master, request.timestamp_skew);
    // The original leaves the status out.
    actions.respond(|_| ());
    Ok(())
}

fn rebuild(
    method: Method,
    bytes: &[u8],
    shared: &Shared,
    actions: &mut impl TkrzwActions,
) -> Result<(), Status> {
    let request: RebuildRequest<'_> = decode(method, bytes)?;
    target(request.dbm_index, Right::Write, shared, actions)?;
    let mut result = match shared.settings.tkrzw.is_read_only {
        true => RequestResult::READ_ONLY,
        false => RequestResult::SUCCESS,
    };
    for given in request.params.iter() {
        let name = given.map_err(|error| not_a_request(method, error))?.first;
        if result.is_success() && !TUNING_PARAMETERS.contains(&name) {
            result = UNKNOWN_PARAMETER;
        }
    }
    actions.respond(|out| result.encode(out));
    Ok(())
}

/// A Synchronize that waits until the log is on the device.
pub(super) struct Synchronize {
    /// Up to where it must be.
    sequence: u64,
}

impl Synchronize {
    /// Takes up a request.
    pub(super) fn begin(
        method: Method,
        bytes: &[u8],
        shared: &Shared,
        actions: &mut impl TkrzwActions,
    ) -> Result<Option<TkrzwStep>, Status> {
        let request: SynchronizeRequest<'_> = decode(method, bytes)?;
        let target = target(request.dbm_index, Right::Read, shared, actions)?;
        let mut wants_backup = false;
        for given in request.params.iter() {
            let given = given.map_err(|error| not_a_request(method, error))?;
            wants_backup |= given.first == "make_backup";
        }
        let has_file = !target.database.path.is_empty();
        let durability = shared
            .store
            .config(target.id)
            .unwrap_or_default()
            .durability;
        let result = match (wants_backup, has_file, durability) {
            (true, false, _) => NO_FILE_TO_COPY,
            (true, true, _) => NO_BACKUP,
            // A write is answered when it is where these say.
            (_, _, Durability::Volatile | Durability::Synced) => RequestResult::SUCCESS,
            (_, _, Durability::Written | Durability::Interval { .. }) if !request.hard => {
                RequestResult::SUCCESS
            }
            (_, _, Durability::Written) => NEVER_SYNCED,
            (_, _, Durability::Interval { .. }) => {
                let log = shared.store.log_statistics().unwrap_or_default();
                let mut waiting = Synchronize {
                    sequence: log.written_sequence,
                };
                waiting.go_on(shared, actions);
                return Ok(Some(TkrzwStep::Synchronize(Box::new(waiting))));
            }
        };
        actions.respond(|out| result.encode(out));
        Ok(None)
    }

    /// Responds if the log is there, and looks again soon if not.
    pub(super) fn go_on(
        &mut self,
        shared: &Shared,
        actions: &mut (impl Responses + Wakeups + CallClock),
    ) {
        let log = shared.store.log_statistics().unwrap_or_default();
        if log.has_failed {
            actions.respond(|out| NOT_SYNCED.encode(out));
        } else if log.durable_sequence >= self.sequence {
            actions.respond(|out| RequestResult::SUCCESS.encode(out));
        } else {
            actions.wake_at_ns(actions.now_ns() + TKRZW_SYNC_LOOK_MS * 1_000_000);
        }
    }
}
