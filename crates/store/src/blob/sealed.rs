//! An upload whose content is complete: until its description is settled.

use super::description::{Description, key};
use super::upload::Upload;
use crate::operation::{Condition, Expiry, Operation};

/// A content that is complete and durable, and is not described yet. Dropped, it is an unfinished upload again, or goes
/// if that cannot be resumed.
#[derive(Debug)]
pub struct Sealed {
    pub(super) upload: Option<Upload>,
    pub(super) size_bytes: u64,
    pub(super) crc32c: u32,
    pub(super) created_ms: u64,
    pub(super) sha256: Option<[u8; 32]>,
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

    /// Shows the operation that describes it, for a commit on [`DatabaseId::BLOBS`].
    pub fn with_operation<R>(
        &self,
        name: &str,
        condition: Condition<'_>,
        show: impl FnOnce(&Operation<'_>) -> R,
    ) -> R {
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

    /// What became of the description.
    pub fn settle(mut self, settled: Settled) {
        let upload = self.upload.take().expect("it is settled once");
        let blobs = &upload.blobs;
        match settled {
            Settled::Described => {
                let mut progress = upload.unfinished.progress.lock();
                progress.is_over = true;
                progress.writer = None;
                progress.owner = None;
                drop(progress);
                blobs.forget(&upload.unfinished);
            }
            Settled::NotWanted => blobs.give_up(&upload.unfinished),
            Settled::Unknown => {
                // The next start will know. Until then nothing may touch it.
                upload.unfinished.progress.lock().is_over = true;
                blobs.forget(&upload.unfinished);
            }
        }
    }
}

impl Drop for Sealed {
    fn drop(&mut self) {
        if let Some(upload) = &self.upload
            && let Ok(mut progress) = upload.lock()
        {
            progress.is_sealed = false;
            if let Some(writer) = &mut progress.writer {
                writer.unseal();
            }
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
    /// The log may hold it, or not.
    Unknown,
}
