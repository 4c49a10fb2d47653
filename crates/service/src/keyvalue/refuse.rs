//! What a caller is told when a request cannot be served: the status table at the top of
//! `kv.proto`.
//!
//! Every message says what was wrong, with what, and the numbers given and allowed.

use protobuf::FieldFault;
use store::remote::{Lack, RemoteError};
use store::tree::TreeError;
use store::{DatabaseId, Durability, Limit, PushError, Refusal};

use super::messages::{FieldRule, Invalid};
use crate::actions::Permissions;
use crate::call::Shared;
use crate::limits::ANSWER_BYTES_MAX;
use crate::limits::QUOTED_CHARACTERS;
use crate::method::Method;
use crate::permission;
use crate::redact::shortened_without_tokens;
use crate::rights::{DropIn, Right};
use crate::status::{Code, Status};

/// Returns the id of a database by its name, to those who have a right on its entries. It is looked
/// at first, so that a refusal does not tell whether there is such a database.
#[inline]
pub(crate) fn find_database(
    right: Right,
    name: &str,
    shared: &Shared,
    actions: &impl Permissions,
) -> Result<DatabaseId, Status> {
    permission::check_database(right, name, actions)?;
    find(name, shared)
}

/// The same for those who have a right on all blobs of the database whose names begin so.
pub(crate) fn find_database_of_blobs(
    right: Right,
    (name, prefix): (&str, &str),
    shared: &Shared,
    actions: &impl Permissions,
) -> Result<DatabaseId, Status> {
    permission::check_blobs(right, (name, prefix), actions)?;
    find(name, shared)
}

/// The same for a drop-in service, for which nobody else is asked who has it granted by its name.
pub(crate) fn find_database_of_drop_in(
    (service, right): (DropIn, Right),
    name: &str,
    shared: &Shared,
    actions: &impl Permissions,
) -> Result<DatabaseId, Status> {
    if !permission::has_drop_in(service, actions) {
        permission::check_database(right, name, actions)?;
    }
    if right != Right::Read
        && let Some(refusal) = shared.write_refusal()
    {
        return Err(refusal);
    }
    find(name, shared)
}

#[inline]
fn find(name: &str, shared: &Shared) -> Result<DatabaseId, Status> {
    let id = match name.is_empty() {
        true => DatabaseId::DEFAULT,
        false => (shared.store.database(name)).ok_or_else(|| unknown_database(name))?,
    };
    match shared.store.awaits_replicas() {
        true => after_start(id, shared),
        false => Ok(id),
    }
}

/// Returns a database right after a start, as long as too few followers hold what that has found.
#[cold]
fn after_start(id: DatabaseId, shared: &Shared) -> Result<DatabaseId, Status> {
    let config = shared.store.config(id);
    match config.is_some_and(|config| config.durability == Durability::Volatile) {
        true => Ok(id),
        false => Err(awaits_replicas(shared)),
    }
}

/// The end of a call that would see what too few followers hold.
#[cold]
pub(crate) fn awaits_replicas(shared: &Shared) -> Status {
    let state = shared.store.acknowledged();
    Status::new(
        Code::Unavailable,
        format!(
            "this server has just been started, and nothing is read or written before enough \
             replicas hold what its log has: --replicas-acked says {}, {} are connected; nothing \
             was done; start those that are missing, and try again; `pelton status` shows which \
             are here, and what they hold",
            state.required,
            state.followers.len()
        ),
    )
}

#[cold]
fn unknown_database(name: &str) -> Status {
    let (short, is_cut) = shortened_without_tokens(name, QUOTED_CHARACTERS);
    let dots = if is_cut { "…" } else { "" };
    Status::not_found(format!(
        "field database: there is no database {short:?}{dots}"
    ))
}

/// The end of a call whose database was dropped while it waited.
#[cold]
pub fn database_gone() -> Status {
    Status::not_found("field database: the database was dropped while the call waited")
}

/// The end of a call that read from a tree which cannot be read.
#[cold]
pub fn not_read(why: &TreeError) -> Status {
    match why.is_of_damage() {
        true => Status::new(Code::DataLoss, why.to_string()),
        false => Status::new(
            Code::Unavailable,
            format!("{why}; nothing was done, try again"),
        ),
    }
}

/// The end of a call that read from an engine elsewhere, which came to nothing.
#[cold]
pub fn not_read_elsewhere(why: RemoteError) -> Status {
    refusal(why.into())
}

/// The code of a request to an engine elsewhere that came to nothing, or to something unknown.
fn code_of_remote(error: RemoteError) -> Code {
    match error {
        RemoteError::OutcomeUnknown => Code::Unknown,
        RemoteError::Refused => Code::FailedPrecondition,
        RemoteError::Damaged => Code::DataLoss,
        // Nothing was done, and it is safe to try again.
        _ => Code::Unavailable,
    }
}

/// What no database on an engine elsewhere can do.
#[cold]
pub(crate) fn lack(lack: Lack) -> Status {
    let code = match lack.is_of_request() {
        true => Code::FailedPrecondition,
        false => Code::Unimplemented,
    };
    Status::new(code, lack.to_string())
}

/// The end of a call for which there was no place among those that wait for the device.
#[cold]
pub fn reads_wait() -> Status {
    Status::new(
        Code::Unavailable,
        "too many calls wait for databases on disk; nothing was done, try again later",
    )
}

/// The end of a call for which the system gave no thread to read what it plans to.
#[cold]
pub fn no_reader() -> Status {
    Status::new(
        Code::Unavailable,
        "the system gives the server no thread to read databases on disk with, as the server's \
         log says; nothing was done, \
         try again later",
    )
}

/// The end of a call that looked at what was not fetched for it.
#[cold]
pub(crate) fn not_fetched() -> Status {
    Status::new(
        Code::Internal,
        "internal error: the server used something that it had not read before; please report it",
    )
}

/// Refuses keys that no database can hold. The committer looks at those of writes; this is for
/// reads.
#[inline]
pub(crate) fn check_key(key: &[u8]) -> Result<(), Status> {
    if key.len() <= store::limits::KEY_BYTES {
        Ok(())
    } else {
        Err(key_too_long(key.len()))
    }
}

#[cold]
fn key_too_long(bytes: usize) -> Status {
    let allowed = store::limits::KEY_BYTES;
    Status::resource_exhausted(format!(
        "field key: the key has {bytes} bytes, at most {allowed} are allowed"
    ))
}

/// A field is wrong.
#[cold]
pub(crate) fn invalid(method: Method, invalid: Invalid) -> Status {
    Status::new(code_of(invalid), format!("{}: {invalid}", method.path()))
}

/// A field of one of several operations is wrong.
#[cold]
pub(super) fn invalid_operation(
    method: Method,
    list: &str,
    index: usize,
    invalid: Invalid,
) -> Status {
    Status::new(
        code_of(invalid),
        format!("{}: {list}[{index}]: {invalid}", method.path()),
    )
}

fn code_of(invalid: Invalid) -> Code {
    match invalid.rule {
        FieldRule::NotServed => Code::Unimplemented,
        FieldRule::Malformed(FieldFault::TooManyFields) => Code::ResourceExhausted,
        FieldRule::Malformed(_) | FieldRule::Broken(_) => Code::InvalidArgument,
    }
}

/// An operation does not fit into a commit.
#[cold]
pub(crate) fn push_error(method: Method, error: PushError) -> Status {
    let code = match error {
        PushError::TooLarge { .. } => Code::ResourceExhausted,
        _ => Code::InvalidArgument,
    };
    let flag = match error {
        PushError::TooLarge {
            what: Limit::ValueBytes,
            ..
        } => MAX_VALUE,
        _ => "",
    };
    Status::new(code, format!("{}: {error}{flag}", method.path()))
}

/// Where the longest value is set, and what takes longer ones.
const MAX_VALUE: &str = " (--max-value of the server or of the database); a blob can have any size";

/// The committer refused a commit as a whole.
#[cold]
pub(crate) fn refusal(refusal: Refusal) -> Status {
    let code = match refusal {
        Refusal::UnknownDatabase => return database_gone(),
        Refusal::LogFailed | Refusal::Replica | Refusal::Superseded => Code::FailedPrecondition,
        Refusal::OutcomeUnknown | Refusal::NotAcknowledged => Code::Unknown,
        Refusal::LogBehind
        | Refusal::ReplicasMissing
        | Refusal::LogNotReady
        | Refusal::NotReadAhead
        | Refusal::DiskBehind
        | Refusal::DiskFailed
        | Refusal::NotRead
        | Refusal::NoFolder
        | Refusal::Converting => Code::Unavailable,
        Refusal::Abandoned => Code::Cancelled,
        Refusal::Damaged => Code::DataLoss,
        Refusal::Remote(error) => code_of_remote(error),
        Refusal::Lacks(what) => return lack(what),
        _ => Code::ResourceExhausted,
    };
    Status::new(code, refusal.to_string())
}

#[cfg(test)]
#[test]
fn a_name_that_was_cut_short_says_so() {
    for (name, is_cut) in [
        ("ä".repeat(QUOTED_CHARACTERS), false),
        ("ä".repeat(QUOTED_CHARACTERS + 1), true),
    ] {
        let status = unknown_database(&name);
        let words = status.message();
        assert_eq!(words.ends_with('…'), is_cut, "{words}");
        assert_eq!(words.matches('ä').count(), QUOTED_CHARACTERS);
    }
}

#[cfg(test)]
#[test]
fn what_the_log_refuses_has_the_status_of_the_table() {
    let code = |given| refusal(given).code();
    assert_eq!(code(Refusal::LogFull), Code::ResourceExhausted);
    assert_eq!(code(Refusal::LogNotReady), Code::Unavailable);
    assert_eq!(code(Refusal::DiskFull), Code::ResourceExhausted);
    assert_eq!(code(Refusal::DiskBehind), Code::Unavailable);
    assert_eq!(code(Refusal::DiskFailed), Code::Unavailable);
    assert_eq!(code(Refusal::LogFailed), Code::FailedPrecondition);
    assert_eq!(code(Refusal::OutcomeUnknown), Code::Unknown);
    assert_eq!(code(Refusal::NotAcknowledged), Code::Unknown);
    assert_eq!(code(Refusal::ReplicasMissing), Code::Unavailable);
    assert_eq!(code(Refusal::LogBehind), Code::Unavailable);
    assert_eq!(code(Refusal::Converting), Code::Unavailable);
    assert_eq!(code(Refusal::Damaged), Code::DataLoss);
    assert_eq!(code(Refusal::NotRead), Code::Unavailable);
    assert_eq!(code(Refusal::NotReadAhead), Code::Unavailable);
    assert_eq!(code(Refusal::NoFolder), Code::Unavailable);
    assert_eq!(code(Refusal::Abandoned), Code::Cancelled);
    assert_eq!(code(Refusal::UnknownDatabase), Code::NotFound);
    for (error, expected) in [
        (RemoteError::Busy { retry_ms: 1 }, Code::Unavailable),
        (RemoteError::NoQuorum, Code::Unavailable),
        (RemoteError::TimedOut, Code::Unavailable),
        (RemoteError::Contended, Code::Unavailable),
        (RemoteError::OutcomeUnknown, Code::Unknown),
        (RemoteError::Refused, Code::FailedPrecondition),
        (RemoteError::Damaged, Code::DataLoss),
        (RemoteError::UnknownDatabase, Code::NotFound),
    ] {
        assert_eq!(code(error.into()), expected, "{error}");
        assert_eq!(not_read_elsewhere(error).code(), expected, "{error}");
    }
    let parts = Lack::SeveralBuckets { first: 0, other: 1 };
    assert_eq!(code(Refusal::Lacks(parts)), Code::FailedPrecondition);
    assert_eq!(code(Refusal::Lacks(Lack::Clear)), Code::Unimplemented);
    let limit_bytes = 1;
    let too_much = Refusal::ReadsTooMuch { limit_bytes };
    assert_eq!(code(too_much), Code::ResourceExhausted);
}

/// An append would make a value too large.
#[cold]
pub(super) fn grown_too_large(bytes: u64, allowed: usize) -> Status {
    Status::resource_exhausted(format!(
        "field value: with what is appended the value would have {bytes} bytes, at most {allowed} \
         are allowed{MAX_VALUE}"
    ))
}

/// More operations than a request may have.
#[cold]
pub(super) fn too_many_operations(method: Method, given: usize, allowed: usize) -> Status {
    Status::resource_exhausted(format!(
        "{}: field operations: there are {given} operations, at most {allowed} are allowed",
        method.path()
    ))
}

/// More comparisons and operations than a request may have.
#[cold]
pub(super) fn too_many_parts(method: Method, given: usize, allowed: usize) -> Status {
    Status::resource_exhausted(format!(
        "{}: fields comparisons, when_met and when_unmet: there are {given} comparisons and \
         operations, \
         at most {allowed} are allowed together",
        method.path()
    ))
}

/// The bound on the answer is above what any answer may be.
#[cold]
pub(super) fn answer_bound_too_large(method: Method, given: u64) -> Status {
    Status::invalid_argument(format!(
        "{}: field max_answer_bytes is {given}, at most {ANSWER_BYTES_MAX} are allowed",
        method.path()
    ))
}

/// A message of a Pipe names another database than the first one.
#[cold]
pub(super) fn other_database(method: Method) -> Status {
    Status::invalid_argument(format!(
        "{}: field database: it is not the database that the first message named; leave it out, \
         or open another call",
        method.path()
    ))
}

/// The answer would be larger than the caller said it can receive.
#[cold]
pub(super) fn answer_too_large(method: Method, allowed: u64) -> Status {
    Status::resource_exhausted(format!(
        "{}: field max_answer_bytes: the answer could exceed the {allowed} bytes allowed; nothing \
         was done. \
         Ask for fewer values at once, or raise max_answer_bytes and the client's limit for \
         received messages; \
         a server allows at most an eighth of its --memory-limit",
        method.path()
    ))
}

#[cfg(test)]
#[test]
fn what_cannot_be_read_now_is_not_what_is_lost() {
    use std::io;
    let folder = || "trees/1-2".into();
    let io = |code| TreeError::Io {
        folder: folder(),
        source: io::Error::from_raw_os_error(code),
    };
    const EIO: i32 = 5;
    const EMFILE: i32 = 24;
    assert_eq!(not_read(&io(EIO)).code(), Code::Unavailable);
    assert_eq!(not_read(&io(EMFILE)).code(), Code::Unavailable);
    let missing = TreeError::Missing { folder: folder() };
    assert_eq!(not_read(&missing).code(), Code::DataLoss);
}
