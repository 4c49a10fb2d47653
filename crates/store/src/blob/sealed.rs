//! An upload whose content is complete: until its description is settled.

use std::sync::Arc;

use super::description::{Description, key};
use super::error::UploadError;
use super::stream::ContentEnd;
use super::unfinished::Over;
use super::upload::Upload;
use crate::operation::{Condition, Expiry, Operation};

/// A content that is complete and durable, and is not described yet. Dropped before its operation
/// was shown, it is an unfinished upload again, or goes if that cannot be resumed.
#[derive(Debug)]
pub struct Sealed {
    upload: Option<Upload>,
    size_bytes: u64,
    crc32c: u32,
    created_ms: u64,
    sha256: Option<[u8; 32]>,
    /// Its operation was shown.
    is_submitted: bool,
}

impl Upload {
    /// Ends an upload: checks the whole and makes it durable. Waits for the disk. What comes back
    /// wants to be described.
    pub fn finish(self, end: &ContentEnd, now_ms: u64) -> Result<Sealed, UploadError> {
        match self.seal(end, now_ms) {
            Ok((size_bytes, crc32c)) => Ok(Sealed {
                size_bytes,
                crc32c,
                created_ms: now_ms,
                sha256: end.sha256,
                is_submitted: false,
                upload: Some(self),
            }),
            Err(error) => Err(self.failed(error)),
        }
    }
}

impl Sealed {
    /// What the description says.
    ///
    /// # Panics
    /// If it was settled.
    pub fn description(&self) -> Description<'_> {
        let upload = self.upload.as_ref().expect("it is not settled");
        Description {
            database: upload.unfinished.database,
            number: upload.unfinished.number,
            size_bytes: self.size_bytes,
            crc32c: self.crc32c,
            created_ms: self.created_ms,
            sha256: self.sha256,
            content_type: &upload.content_type,
        }
    }

    /// Shows the operation that describes it, for a commit on [`DatabaseId::BLOBS`]. From then on
    /// the log may hold it: if nobody [settles](Sealed::settle) it, the content stays, and the next
    /// start knows whether it is described.
    ///
    /// # Panics
    /// If it was settled.
    pub fn with_operation<R>(
        &mut self,
        name: &str,
        condition: Condition<'_>,
        show: impl FnOnce(&Operation<'_>) -> R,
    ) -> R {
        self.is_submitted = true;
        let mut value = Vec::new();
        let description = self.description();
        description.encode(&mut value);
        show(&Operation::Put {
            key: &key(description.database, name),
            value: &value,
            condition,
            expiry: Expiry::None,
            want_previous: true,
        })
    }

    /// Notes what became of the description.
    pub fn settle(mut self, settled: Settled) {
        if let Some(upload) = self.upload.take() {
            settle(upload, settled);
        }
    }
}

fn settle(upload: Upload, settled: Settled) {
    let (blobs, unfinished) = (Arc::clone(&upload.blobs), Arc::clone(&upload.unfinished));
    match settled {
        // It is complete, or the next start will know; until then nothing may touch it.
        Settled::Described | Settled::Unknown => {
            let mut progress = unfinished.progress.lock();
            progress.over = Some(Over::Settled);
            progress.writer = None;
            progress.owner = None;
            drop(progress);
            blobs.forget(&unfinished);
        }
        // The calling thread may be one that must not wait for the disk.
        Settled::NotWanted => blobs.run(Box::new({
            let blobs = Arc::clone(&blobs);
            move || {
                let mut progress = unfinished.progress.lock();
                progress.owner = None;
                blobs.end_upload(&unfinished, progress, Over::Gone);
            }
        })),
        Settled::Refused => {
            if let Ok(mut progress) = upload.lock() {
                progress.is_sealed = false;
                if let Some(writer) = &mut progress.writer {
                    writer.unseal();
                }
            }
        }
    }
}

impl Drop for Sealed {
    fn drop(&mut self) {
        if let Some(upload) = self.upload.take() {
            let settled = match self.is_submitted {
                true => Settled::Unknown,
                false => Settled::Refused,
            };
            settle(upload, settled);
        }
    }
}

/// What became of a description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It is visible.
    Described,
    /// Its condition was not met.
    NotWanted,
    /// The log does not hold it. It can be tried again when there is room, or after a restart.
    Refused,
    /// The log may hold it, or not.
    Unknown,
}
