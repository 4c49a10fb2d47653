//! What can go wrong with uploads and reads.

use std::fmt;
use std::io;
use std::sync::Arc;

/// Why an upload does not go on. What was stored before stays, unless it says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum UploadError {
    /// It does not go on from where it was to.
    #[error(
        "field begin.offset is {offset}, and the upload has {stored_bytes} stored bytes; go on \
         from there, or begin anew from 0"
    )]
    Offset {
        /// From where it could.
        stored_bytes: u64,
        /// From where it was to.
        offset: u64,
    },
    /// Another stream goes on with it.
    #[error("another call goes on with this upload")]
    TakenOver,
    /// It was removed to make room for others.
    #[error(
        "the upload was removed to make room for those of others: its address had most, and it was \
         the oldest that nobody went on with; upload it again"
    )]
    Evicted,
    /// Somebody has discarded it.
    #[error("the upload was discarded by somebody who may (pelton blob uploads)")]
    Discarded,
    /// It was collected, or completed by another stream.
    #[error(
        "the upload is not there any more: it was abandoned for too long, or completed by another \
         call"
    )]
    Gone,
    /// Another stream has sent all of it, and its description is on its way.
    #[error(
        "another call has sent all of this upload, and it is being completed; ask again soon what \
         became of it"
    )]
    Completing,
    /// A chunk is not what was sent. The chunks before it are stored.
    #[error(
        "the chunk at {offset} does not fit its checksum (CRC32C {expected:08x} was sent, the \
         bytes have {found:08x}); what came before it is stored: go on from there"
    )]
    Chunk {
        /// Where it begins.
        offset: u64,
        /// The checksum that it was sent with.
        expected: u32,
        /// The one it has.
        found: u32,
    },
    /// What was stored of it by an earlier run of the server is not what was written; it was thrown
    /// away.
    #[error(
        "what was stored of the upload is damaged on the disk of the server, and was thrown away; \
         upload it again"
    )]
    Stored,
    /// The content as a whole is not what was sent; it was thrown away.
    #[error("the content does not fit its {what} and was thrown away; upload it again")]
    Content {
        /// Which checksum.
        what: &'static str,
    },
    /// There is more or less of it than was announced; it was thrown away if there is more.
    #[error("the content was announced with {announced_bytes} bytes, and {bytes} came")]
    Size {
        /// What was announced.
        announced_bytes: u64,
        /// What came.
        bytes: u64,
    },
    /// The blobs of the database would exceed their quota.
    #[error(
        "the blobs of a database may have {quota_bytes} bytes (--blob-quota); {used_bytes} are \
         there, with unfinished uploads, and {added_bytes} would be added; delete some"
    )]
    Quota {
        /// The quota.
        quota_bytes: u64,
        /// What they have.
        used_bytes: u64,
        /// What would be added.
        added_bytes: u64,
    },
    /// There is no room on the disk.
    #[error(
        "the disk of the data folder is full: {free_bytes} bytes are free, and {reserved_bytes} \
         are kept free for the log"
    )]
    Full {
        /// What is free.
        free_bytes: u64,
        /// What is left free for other purposes.
        reserved_bytes: u64,
    },
    /// The file of the content may not be so large.
    #[error(
        "the content is larger than the server may make a file; raise that limit (`ulimit -f`, \
         `LimitFSIZE=` of systemd) and restart the server"
    )]
    FileSize,
    /// There are too many unfinished uploads, and none of them makes room.
    #[error(fmt = too_many)]
    TooMany {
        /// How many there may be.
        uploads: usize,
        /// Whose bound it is.
        of: UploadBound,
    },
    /// As many uploads are open as may be, or as one peer may have.
    #[error(fmt = no_descriptor)]
    Descriptors {
        /// How many may be open.
        limit: usize,
        /// How many of them the peer may have open now.
        allowed: usize,
    },
    /// The operating system has refused something before anything was written.
    #[error("{what}: {source}; what is stored of the upload stays, try again")]
    System {
        /// What happened.
        what: &'static str,
        /// What it said.
        source: io::Error,
    },
    /// The disk has refused, or a sync has found no room; the upload was thrown away.
    #[error("the content cannot be written and was thrown away: {0}")]
    Device(Arc<io::Error>),
}

/// Whose bound of unfinished uploads is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UploadBound {
    /// Of one database.
    Database,
    /// Of all databases together.
    Server,
    /// Of the open uploads of one peer in one database.
    Peer,
}

impl UploadError {
    pub(super) fn device(source: io::Error) -> UploadError {
        UploadError::Device(Arc::new(source))
    }
}

/// Why content cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ContentReadError {
    /// It is not what was written.
    #[error(
        "{file}: the content of the blob is damaged; restore it from a backup, or delete the blob"
    )]
    Damaged {
        /// The file, as a user would name it.
        file: String,
    },
    /// Its file is not there.
    #[error(
        "{file}: the content of the blob is missing; put the file back, restore it from a backup, \
         or delete the blob"
    )]
    Missing {
        /// The file, as a user would name it.
        file: String,
    },
    /// As many contents are read from at this moment as may be open.
    #[error(
        "{limit} blobs are read at this moment, as many as may be open: OPEN_CONTENTS, or a share \
         of the server's limit on open files (ulimit -n); try again"
    )]
    Descriptors {
        /// How many.
        limit: usize,
    },
    /// The disk has refused.
    #[error("{file}: the content cannot be read: {source}")]
    Device {
        /// The file, as a user would name it.
        file: String,
        /// What the operating system said.
        source: io::Error,
    },
}

fn too_many(uploads: &usize, of: &UploadBound, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
    let whose = match of {
        UploadBound::Peer => {
            return write!(
                formatter,
                "calls from this address have {uploads} uploads open in this database, as many as \
                 one address may have now: half of the places that others leave; wait until some \
                 have ended"
            );
        }
        UploadBound::Server => "all databases together have",
        UploadBound::Database => "this database has",
    };
    write!(
        formatter,
        "{whose} {uploads} unfinished uploads, as many as there may be, and none of them makes \
         room: they are open, or belong to addresses with fewer than this one; try again later, or \
         discard some (pelton blob uploads)"
    )
}

fn no_descriptor(
    limit: &usize,
    allowed: &usize,
    formatter: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    if allowed < limit {
        return write!(
            formatter,
            "calls from this address have {allowed} uploads open, as many as one address may have \
             now of the {limit} that the server's limit on open files allows (ulimit -n); nothing \
             was done, try again when some have ended"
        );
    }
    write!(
        formatter,
        "{limit} uploads are open, as many as the server's limit on open files allows (ulimit \
         -n); nothing was done, try again"
    )
}
