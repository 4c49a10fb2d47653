//! How uploads become durable, wait for another stream, or end without a description.

use std::io;
use std::sync::Arc;

use parking_lot::MutexGuard;
use wal::disk::{NoRoom, is_full};

use super::blobs::{BlobStore, EndedUpload};
use super::error::UploadError;
use super::unfinished::{IncompleteUpload, Over, UploadProgress};
use super::writer::ContentWriter;

impl IncompleteUpload {
    /// Makes what came durable, while more may come. After an error of the device the upload is
    /// over before its stream can seal it. `is_told`: the stream waits for what is returned.
    pub(super) fn sync(
        self: &Arc<IncompleteUpload>,
        blobs: &Arc<BlobStore>,
        owner_generation: u64,
        now_ms: u64,
        is_told: bool,
    ) -> Result<(), UploadError> {
        let _syncing = self.syncing.lock();
        let synced = self.sync_and_mark(blobs, owner_generation, now_ms);
        if let Err(UploadError::Device(source)) = &synced {
            let mut progress = self.progress.lock();
            if is_told && progress.owner_generation == owner_generation {
                progress.owner = None;
            }
            blobs.end_upload(self, progress, Over::Failed(Arc::clone(source)));
        }
        synced
    }

    fn sync_and_mark(
        &self,
        blobs: &BlobStore,
        owner_generation: u64,
        now_ms: u64,
    ) -> Result<(), UploadError> {
        let device = |error| blobs.device(error);
        let mut progress = self.lock_for_owner(owner_generation)?;
        if progress.is_sealed {
            // All of it is durable.
            return Ok(());
        }
        let is_named = progress.is_named;
        let writer = progress.writer()?;
        let pending = writer.prepare_mark(now_ms).map_err(device)?;
        let file = writer.file();
        drop(progress);
        // Also where that says that the disk is full: what was written before is not to be trusted
        // any more.
        file.sync().map_err(UploadError::device)?;
        if !is_named {
            blobs.disk.sync_folder().map_err(UploadError::device)?;
        }
        let mut progress = self.lock_for_owner(owner_generation)?;
        progress.is_named = true;
        progress.writer()?.set_mark(pending).map_err(device)
    }

    /// A stream has ended. What is stored is made durable and waits for another one, or goes if it
    /// cannot be resumed.
    pub(super) fn leave(
        self: &Arc<IncompleteUpload>,
        blobs: &Arc<BlobStore>,
        owner_generation: u64,
    ) {
        let Ok(mut progress) = self.lock_for_owner(owner_generation) else {
            return;
        };
        progress.owner = None;
        self.release();
        if self.upload_id.is_empty() {
            blobs.end_upload(self, progress, Over::Gone);
            return;
        }
        let touched_ms = self.touched_ms();
        let Some(mut writer) = progress.writer.take() else {
            return;
        };
        blobs.unbook(self.database, writer.take_back());
        let is_named = std::mem::replace(&mut progress.is_named, true);
        let left = writer
            .checkpoint(touched_ms)
            .or_else(|error| self.go_back(blobs, &writer, error))
            // The mark too: there may be no later sync.
            .and_then(|()| writer.file().sync())
            .and_then(|()| match is_named {
                true => Ok(()),
                false => blobs.disk.sync_folder(),
            });
        match left {
            Err(error) => {
                blobs.end_upload(self, progress, Over::Failed(Arc::new(error)));
            }
            Ok(()) => {
                drop(progress);
                blobs.bound_idle_bytes(self.database, touched_ms);
            }
        }
    }

    /// Where there is no room even for a mark, the last one counts.
    fn go_back(
        &self,
        blobs: &BlobStore,
        writer: &ContentWriter,
        error: io::Error,
    ) -> io::Result<()> {
        let is_full = is_full(&error);
        let marked_bytes = writer.marked_bytes().filter(|_| is_full).ok_or(error)?;
        let stored_bytes = self.go_back_to(marked_bytes);
        blobs.unbook(self.database, stored_bytes - marked_bytes);
        Ok(())
    }
}

impl BlobStore {
    /// Ends an upload that was never described, notifies the stream that has it, and removes what
    /// is stored. Returns whether it was not over before. Waits for the disk.
    pub(super) fn end_upload(
        self: &Arc<BlobStore>,
        unfinished: &Arc<IncompleteUpload>,
        progress: MutexGuard<'_, UploadProgress>,
        over: Over,
    ) -> bool {
        let ended = self.end_and_keep(unfinished, progress, over);
        self.remove_ended(ended.as_slice());
        ended.is_some()
    }

    /// The same, but leaves what is stored to the caller, which [removes](Blobs::remove_ended)
    /// several at once. Returns `None` if it was over before.
    pub(super) fn end_and_keep(
        self: &Arc<BlobStore>,
        unfinished: &Arc<IncompleteUpload>,
        mut progress: MutexGuard<'_, UploadProgress>,
        over: Over,
    ) -> Option<EndedUpload> {
        if progress.over.is_some() {
            return None;
        }
        let (error, lost) = (over.error(), over.clone());
        progress.over = Some(over);
        let open_bytes = progress
            .writer
            .take()
            .map_or(0, |mut writer| writer.take_back());
        let owner = progress.owner.take();
        let ended = EndedUpload {
            number: unfinished.number,
            database: unfinished.database,
            bytes: unfinished.stored_bytes() + open_bytes,
            // A start does not resume one whose seal is on the device.
            is_resumable: !unfinished.upload_id.is_empty() && !progress.is_sealed,
        };
        drop(progress);
        self.note_lost(unfinished, &lost);
        if let Some(owner) = owner {
            owner.lost(error);
        }
        self.forget(unfinished);
        Some(ended)
    }

    /// It is no unfinished upload any more.
    pub(super) fn forget(&self, unfinished: &Arc<IncompleteUpload>) {
        let mut state = self.state.lock();
        if state.unfinished.remove(&unfinished.number).is_none() {
            return;
        }
        state.take_back(unfinished.database, 1, |used| &mut used.unfinished);
        if let Some(key) = unfinished.key()
            && (state.uploads.get(&key)).is_some_and(|known| Arc::ptr_eq(known, unfinished))
        {
            state.uploads.remove(&key);
        }
    }

    pub(super) fn device(&self, error: io::Error) -> UploadError {
        match NoRoom::of(&error) {
            Some(NoRoom::FileSize) => UploadError::FileSize,
            Some(NoRoom::Disk | NoRoom::Quota) => UploadError::Full {
                free_bytes: self.disk.free_bytes().unwrap_or(0),
                reserved_bytes: self.config.free_bytes,
            },
            None => UploadError::device(error),
        }
    }
}
