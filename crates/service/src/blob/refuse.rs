//! What a caller is told when a blob cannot be served: the statuses at the top of `blob.proto`.

use std::sync::Arc;

use store::blob::{BlobStore, ContentReadError, NameError, UploadError, check_name, limits};
use store::remote::Lack;
use store::{DatabaseId, Durability};
use wal::disk::is_full;

use crate::actions::Permissions;
use crate::call::Shared;
use crate::keyvalue::find_database_of_blobs;
use crate::keyvalue::messages::Invalid;
use crate::method::Method;
use crate::rights::Right;
use crate::status::{Code, Status};

/// Returns the database of a request, if it can have blobs, to those who have a right on all of
/// them whose names begin so.
pub(crate) fn database(
    right: Right,
    (name, prefix): (&str, &str),
    shared: &Shared,
    actions: &impl Permissions,
) -> Result<(DatabaseId, Arc<BlobStore>), Status> {
    let database = find_database_of_blobs(right, (name, prefix), shared, actions)?;
    with_blobs(database, shared)
}

/// Returns a database, if it can have blobs.
pub(crate) fn with_blobs(
    database: DatabaseId,
    shared: &Shared,
) -> Result<(DatabaseId, Arc<BlobStore>), Status> {
    let config = shared.store.config(database);
    let is_volatile = config.is_none_or(|config| config.durability == Durability::Volatile);
    match shared.store.blobs() {
        Some(blobs) if !is_volatile => Ok((database, Arc::clone(blobs))),
        Some(_) => Err(Status::new(
            Code::FailedPrecondition,
            "field database: the database is volatile, and blobs are kept in databases that last",
        )),
        None if shared.store.is_remote() => Err(Status::unimplemented(Lack::Blobs.to_string())),
        None => Err(Status::new(
            Code::FailedPrecondition,
            "this server keeps nothing (--durability volatile without --data), and blobs need a \
             data folder: \
             start it with --data DIR",
        )),
    }
}

/// The name of a blob.
pub(crate) fn name(field: &str, name: &str) -> Result<(), Status> {
    check_name(name).map_err(|error| bad_name(field, error))
}

#[cold]
fn bad_name(field: &str, error: NameError) -> Status {
    Status::invalid_argument(format!("field {field} {error}"))
}

#[cold]
pub(crate) fn invalid(method: Method, invalid: impl Into<Invalid>) -> Status {
    crate::keyvalue::invalid(method, invalid.into())
}

#[cold]
pub(crate) fn chunk_too_large(bytes: usize) -> Status {
    Status::resource_exhausted(format!(
        "field chunk.data has {bytes} bytes, at most {} are allowed; send the content in several \
         chunks",
        limits::CHUNK_BYTES
    ))
}

#[cold]
pub(crate) fn not_stored(error: &UploadError) -> Status {
    let code = match error {
        UploadError::Offset { .. } => Code::OutOfRange,
        UploadError::TakenOver
        | UploadError::Gone
        | UploadError::Evicted
        | UploadError::Discarded => Code::Aborted,
        UploadError::Chunk { .. } | UploadError::Content { .. } | UploadError::Stored => {
            Code::DataLoss
        }
        UploadError::Size { .. } => Code::InvalidArgument,
        UploadError::Quota { .. }
        | UploadError::Full { .. }
        | UploadError::FileSize
        | UploadError::TooMany { .. } => Code::ResourceExhausted,
        UploadError::Completing | UploadError::System { .. } | UploadError::Descriptors { .. } => {
            Code::Unavailable
        }
        UploadError::Device(source) if is_full(source) => Code::ResourceExhausted,
        UploadError::Device(_) => Code::Internal,
    };
    Status::new(code, error.to_string())
}

#[cold]
pub(crate) fn not_read(error: &ContentReadError) -> Status {
    let code = match error {
        ContentReadError::Damaged { .. } | ContentReadError::Missing { .. } => Code::DataLoss,
        ContentReadError::Descriptors { .. } | ContentReadError::Device { .. } => Code::Unavailable,
    };
    Status::new(code, error.to_string())
}

/// The description of a blob makes no sense.
#[cold]
pub(crate) fn unreadable() -> Status {
    Status::new(
        Code::DataLoss,
        "the description of the blob cannot be read; another version of the server may have \
         written it",
    )
}

#[cfg(test)]
#[test]
fn an_upload_that_is_wrong_or_gone_has_the_status_of_the_table() {
    for (error, code) in [
        (
            UploadError::Offset {
                stored_bytes: 1,
                offset: 2,
            },
            Code::OutOfRange,
        ),
        (UploadError::TakenOver, Code::Aborted),
        (UploadError::Gone, Code::Aborted),
        (UploadError::Evicted, Code::Aborted),
        (UploadError::Discarded, Code::Aborted),
        (
            UploadError::Chunk {
                offset: 0,
                expected: 1,
                found: 2,
            },
            Code::DataLoss,
        ),
        (UploadError::Content { what: "CRC32C" }, Code::DataLoss),
        (UploadError::Stored, Code::DataLoss),
        (
            UploadError::Size {
                announced_bytes: 1,
                bytes: 2,
            },
            Code::InvalidArgument,
        ),
    ] {
        assert_eq!(not_stored(&error).code(), code, "{error:?}");
    }
}

#[cfg(test)]
#[test]
fn an_upload_for_which_there_is_no_room_has_the_status_of_the_table() {
    use std::io;
    use std::sync::Arc;
    use store::blob::UploadBound;
    const EIO: i32 = 5;
    const ENOSPC: i32 = 28;
    let device = |code| UploadError::Device(Arc::new(io::Error::from_raw_os_error(code)));
    let too_many = |of| UploadError::TooMany { uploads: 1, of };
    for (error, code) in [
        (
            UploadError::Quota {
                quota_bytes: 1,
                used_bytes: 1,
                added_bytes: 1,
            },
            Code::ResourceExhausted,
        ),
        (
            UploadError::Full {
                free_bytes: 1,
                reserved_bytes: 1,
            },
            Code::ResourceExhausted,
        ),
        (UploadError::FileSize, Code::ResourceExhausted),
        (too_many(UploadBound::Database), Code::ResourceExhausted),
        (too_many(UploadBound::Peer), Code::ResourceExhausted),
        (UploadError::Completing, Code::Unavailable),
        (
            UploadError::System {
                what: "open",
                source: io::Error::from_raw_os_error(EIO),
            },
            Code::Unavailable,
        ),
        (
            UploadError::Descriptors {
                limit: 1,
                allowed: 1,
            },
            Code::Unavailable,
        ),
        (device(ENOSPC), Code::ResourceExhausted),
        (device(EIO), Code::Internal),
    ] {
        assert_eq!(not_stored(&error).code(), code, "{error:?}");
    }
}

#[cfg(test)]
#[test]
fn what_cannot_be_read_now_is_not_what_is_lost() {
    let file = || "blobs/1".to_owned();
    let device = |code| ContentReadError::Device {
        file: file(),
        source: std::io::Error::from_raw_os_error(code),
    };
    const EIO: i32 = 5;
    const EMFILE: i32 = 24;
    assert_eq!(not_read(&device(EIO)).code(), Code::Unavailable);
    assert_eq!(not_read(&device(EMFILE)).code(), Code::Unavailable);
    assert_eq!(
        not_read(&ContentReadError::Missing { file: file() }).code(),
        Code::DataLoss
    );
    assert_eq!(
        not_read(&ContentReadError::Damaged { file: file() }).code(),
        Code::DataLoss
    );
}
