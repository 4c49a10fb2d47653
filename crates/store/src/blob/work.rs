//! Work that waits for a disk, in a form in which it can be handed over: what a call wants done,
//! and what it is told.

use std::sync::Arc;

use super::blobs::BlobStore;
use super::content::{Content, Piece};
use super::error::{ContentReadError, UploadError};
use super::limits::BLOCK_BYTES;
use super::listing::UploadState;
use super::permit::BlobPermit;
use super::reader::aligned;
use super::sealed::Sealed;
use super::stream::{Begin, Chunk, ContentEnd, Owner};
use super::upload::Upload;
use crate::database_id::DatabaseId;

/// Shows whether somebody still waits for what he asked for: he keeps one, and what he asked for
/// has a clone of it.
#[derive(Clone, Debug, Default)]
pub struct BlobInterest(Arc<()>);

impl BlobInterest {
    /// Whether the other one is gone.
    pub fn is_lost(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

/// What a call wants done.
#[derive(Debug)]
pub enum Work {
    /// Begin an upload.
    Begin {
        /// Which.
        begin: Box<Begin>,
        /// Lost if its stream ends before: then it is not begun.
        interest: BlobInterest,
    },
    /// Store chunks.
    Write {
        /// Of this upload.
        upload: Box<Upload>,
        /// Their bytes.
        bytes: Vec<u8>,
        /// Their lengths and checksums.
        chunks: Vec<Chunk>,
        /// When it is, in milliseconds since 1970.
        now_ms: u64,
    },
    /// End an upload.
    Finish {
        /// Which.
        upload: Box<Upload>,
        /// What is known of the whole.
        end: ContentEnd,
        /// When it is, in milliseconds since 1970.
        now_ms: u64,
    },
    /// List the unfinished uploads of a database.
    ListUploads {
        /// Of which.
        database: DatabaseId,
    },
    /// Discard unfinished uploads.
    DiscardUploads {
        /// Of this database.
        database: DatabaseId,
        /// Of this name.
        name: Box<str>,
        /// With this id.
        upload_id: Box<[u8]>,
    },
    /// Read content.
    Read {
        /// Which.
        content: Arc<Content>,
        /// From where.
        offset: u64,
        /// How much at most.
        bytes: usize,
    },
}

/// What has become of it.
#[derive(Debug)]
pub enum BlobNews {
    /// An upload has begun.
    Begun(Box<Upload>),
    /// Chunks are stored.
    Written {
        /// For the next ones.
        upload: Box<Upload>,
        /// Room that can be used again, empty.
        bytes: Vec<u8>,
        /// The same.
        chunks: Vec<Chunk>,
    },
    /// An upload is complete, and wants to be described.
    Sealed(Box<Sealed>),
    /// An upload does not go on.
    NotStored(UploadError),
    /// Unfinished uploads, by name.
    Uploads(Vec<UploadState>),
    /// So many uploads were discarded.
    Discarded(u64),
    /// Content was read.
    Read(Piece),
    /// Content cannot be read.
    NotRead(ContentReadError),
}

impl Work {
    /// The bytes that are to be read, whole blocks as they are read; `None`: it reads nothing.
    pub fn read_bytes(&self) -> Option<usize> {
        match self {
            Work::Read {
                content,
                offset,
                bytes,
            } => Some(aligned(*offset, *bytes, content.size_bytes()).1),
            _ => None,
        }
    }

    /// Whether nobody is left who wants it: the call that asked for it is gone. What changes an
    /// upload that has begun is done all the same.
    pub fn is_forsaken(&self) -> bool {
        match self {
            Work::Begin { interest, .. } => interest.is_lost(),
            Work::Read { content, .. } => Arc::strong_count(content) == 1,
            _ => false,
        }
    }

    /// Does a read, as far as it is granted. Waits for the disk.
    pub fn run_granted(
        mut self,
        blobs: &Arc<BlobStore>,
        owner: &Arc<dyn Owner>,
        grant: Option<(usize, BlobPermit)>,
    ) -> BlobNews {
        let permit = grant.map(|(granted, permit)| {
            if let Work::Read { offset, bytes, .. } = &mut self {
                *bytes = granted_bytes(*offset, granted).min(*bytes);
            }
            Arc::new(permit)
        });
        match self.run(blobs, owner) {
            BlobNews::Read(piece) => BlobNews::Read(Piece { permit, ..piece }),
            news => news,
        }
    }

    /// Does it. Waits for the disk.
    pub fn run(self, blobs: &Arc<BlobStore>, owner: &Arc<dyn Owner>) -> BlobNews {
        match self {
            Work::Begin { begin, .. } => match blobs.begin_upload(&begin, Arc::clone(owner)) {
                Ok(upload) => BlobNews::Begun(Box::new(upload)),
                Err(error) => BlobNews::NotStored(error),
            },
            Work::Write {
                upload,
                mut bytes,
                mut chunks,
                now_ms,
            } => match upload.write(&bytes, &chunks, now_ms) {
                Ok(()) => {
                    bytes.clear();
                    chunks.clear();
                    BlobNews::Written {
                        upload,
                        bytes,
                        chunks,
                    }
                }
                Err(error) => BlobNews::NotStored(error),
            },
            Work::Finish {
                upload,
                end,
                now_ms,
            } => match upload.finish(&end, now_ms) {
                Ok(sealed) => BlobNews::Sealed(Box::new(sealed)),
                Err(error) => BlobNews::NotStored(error),
            },
            Work::ListUploads { database } => BlobNews::Uploads(blobs.uploads(database)),
            Work::DiscardUploads {
                database,
                name,
                upload_id,
            } => BlobNews::Discarded(blobs.discard_uploads(database, &name, &upload_id)),
            Work::Read {
                content,
                offset,
                bytes,
            } => match content.read(offset, bytes) {
                Ok(piece) => BlobNews::Read(piece),
                Err(error) => BlobNews::NotRead(error),
            },
        }
    }
}

/// How much may be read from `offset` on if so many bytes of whole blocks are granted: a block, if
/// it is less.
fn granted_bytes(offset: u64, granted: usize) -> usize {
    let into = (offset % BLOCK_BYTES as u64) as usize;
    (granted / BLOCK_BYTES).max(1) * BLOCK_BYTES - into
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_blocks_are_granted_from_wherever_a_read_begins() {
        for begin in [0, 7 * BLOCK_BYTES] {
            for (into, blocks, bytes) in [
                (0, 0, BLOCK_BYTES),
                (0, 1, BLOCK_BYTES),
                (1, 1, BLOCK_BYTES - 1),
                (BLOCK_BYTES - 1, 1, 1),
                (5, 3, 3 * BLOCK_BYTES - 5),
            ] {
                let offset = (begin + into) as u64;
                let granted = blocks * BLOCK_BYTES;
                assert_eq!(granted_bytes(offset, granted), bytes, "{offset} {blocks}");
                assert_eq!(granted_bytes(offset, granted + 1), bytes, "{offset}");
            }
        }
    }
}
