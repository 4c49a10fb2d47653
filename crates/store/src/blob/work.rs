//! Work that waits for a disk, in a form in which it can be handed over: what a call wants done, and what it is told.

use std::sync::Arc;

use super::blobs::Blobs;
use super::content::{Content, Piece};
use super::error::{ReadError, UploadError};
use super::sealed::Sealed;
use super::upload::{Begin, End, Owner, Upload};

/// A chunk among the bytes of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// How many of the bytes.
    pub bytes: usize,
    /// The checksum they were sent with.
    pub crc32c: Option<u32>,
}

/// What a call wants done.
#[derive(Debug)]
pub enum Work {
    /// Begin an upload.
    Begin(Box<Begin>),
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
        end: End,
        /// When it is, in milliseconds since 1970.
        now_ms: u64,
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
pub enum News {
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
    /// Another stream goes on with the upload.
    TakenOver,
    /// Content was read.
    Read(Piece),
    /// Content cannot be read.
    NotRead(ReadError),
}

impl Work {
    /// Does it. Waits for the disk.
    pub fn run(self, blobs: &Arc<Blobs>, owner: &Arc<dyn Owner>) -> News {
        match self {
            Work::Begin(begin) => match blobs.begin_upload(&begin, Arc::clone(owner)) {
                Ok(upload) => News::Begun(Box::new(upload)),
                Err(error) => News::NotStored(error),
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
                    News::Written {
                        upload,
                        bytes,
                        chunks,
                    }
                }
                Err(error) => News::NotStored(error),
            },
            Work::Finish {
                upload,
                end,
                now_ms,
            } => match upload.finish(&end, now_ms) {
                Ok(sealed) => News::Sealed(Box::new(sealed)),
                Err(error) => News::NotStored(error),
            },
            Work::Read {
                content,
                offset,
                bytes,
            } => match content.read(offset, bytes) {
                Ok(piece) => News::Read(piece),
                Err(error) => News::NotRead(error),
            },
        }
    }
}
