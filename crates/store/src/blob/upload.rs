//! Uploads: from the first chunk to the description.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;
use wal::disk;

use super::blobs::BlobStore;
use super::bounds::RoomRequest;
use super::error::UploadError;
use super::layout::{UploadOwner, file_name};
use super::limits;
use super::stream::{Begin, Chunk, ContentEnd, Owner, UploadKey};
use super::unfinished::{IncompleteUpload, Over, UploadProgress};
use super::writer::ContentWriter;
use crate::database_id::DatabaseId;
use crate::descriptor_budget::DescriptorPermit;

/// A stream's hold on an upload. Dropped, the upload waits for another stream, or is gone if it
/// cannot be resumed.
#[derive(Debug)]
pub struct Upload {
    pub(super) blobs: Arc<BlobStore>,
    pub(super) unfinished: Arc<IncompleteUpload>,
    owner_generation: u64,
    size_bytes: Option<u64>,
    pub(super) content_type: Box<str>,
}

impl BlobStore {
    /// Begins an upload, or goes on with one, which is then taken from the stream that has it.
    /// Waits for the disk.
    pub fn begin_upload(
        self: &Arc<BlobStore>,
        begin: &Begin,
        owner: Arc<dyn Owner>,
    ) -> Result<Upload, UploadError> {
        let known = self.find(begin);
        let asking = RoomRequest {
            peer: owner.peer(),
            now_ms: begin.now_ms,
            number: known.as_ref().map(|known| known.number),
        };
        // One that a stream has is open.
        let is_open = known.as_ref().is_some_and(|known| known.has_stream());
        let permit = match is_open && begin.offset > 0 {
            true => None,
            false => Some(self.make_upload_permit(asking)?),
        };
        self.check_room(begin.database, begin.rest_bytes(), asking)?;
        let unfinished = self.go_on_or_add(begin, known, asking)?;
        self.collect_within(begin.now_ms);
        let owner_generation = unfinished.take(owner, begin.now_ms)?;
        self.streams.fetch_add(1, Ordering::Relaxed);
        let upload = Upload {
            blobs: Arc::clone(self),
            owner_generation,
            unfinished,
            size_bytes: begin.size_bytes,
            content_type: begin.content_type.clone(),
        };
        let Err(error) = upload.open(begin, permit) else {
            return Ok(upload);
        };
        let is_full = matches!(error, UploadError::Full { .. });
        if begin.offset == 0 && (is_full || matches!(error, UploadError::System { .. })) {
            // There is nothing to go on with.
            upload.throw_away(&error);
        }
        Err(upload.failed(error))
    }

    fn upload_permit(&self) -> Result<DescriptorPermit, UploadError> {
        let descriptors = &self.upload_descriptors;
        descriptors
            .acquire()
            .ok_or_else(|| UploadError::Descriptors {
                limit: descriptors.limit(),
                allowed: descriptors.limit(),
            })
    }

    /// The upload that can be gone on with.
    fn find(&self, begin: &Begin) -> Option<Arc<IncompleteUpload>> {
        let key = begin.key()?;
        self.state.lock().uploads.get(&key).cloned()
    }

    fn go_on_or_add(
        self: &Arc<BlobStore>,
        begin: &Begin,
        known: Option<Arc<IncompleteUpload>>,
        asking: RoomRequest,
    ) -> Result<Arc<IncompleteUpload>, UploadError> {
        match known {
            Some(known) if begin.offset > 0 => {
                self.claim_upload(&known, asking)?;
                return Ok(known);
            }
            // Begun anew: what was stored goes.
            Some(known) => self.begin_anew(&known)?,
            None if begin.offset > 0 => {
                return Err(UploadError::Offset {
                    stored_bytes: 0,
                    offset: begin.offset,
                });
            }
            None => {}
        }
        let (unfinished, before) = self.add_upload(begin, asking)?;
        if let Some(before) = before {
            // Another stream was faster. If it is being completed already, it is, and this one
            // begins behind it.
            let _ = self.begin_anew(&before);
        }
        Ok(unfinished)
    }

    /// How much of an upload is stored; `None`: there is no such upload.
    pub fn stored_bytes(&self, database: DatabaseId, name: &str, upload_id: &[u8]) -> Option<u64> {
        let key = UploadKey {
            database,
            name: name.into(),
            upload_id: upload_id.into(),
        };
        let state = self.state.lock();
        Some(state.uploads.get(&key)?.stored_bytes())
    }

    /// Throws an upload away whose sender wants to begin it anew.
    fn begin_anew(
        self: &Arc<BlobStore>,
        unfinished: &Arc<IncompleteUpload>,
    ) -> Result<(), UploadError> {
        let progress = unfinished.progress.lock();
        if progress.is_sealed && progress.over.is_none() {
            return Err(UploadError::Completing);
        }
        self.end_upload(unfinished, progress, Over::BegunAnew);
        Ok(())
    }
}

impl Upload {
    /// Opens the file where a stream begins.
    fn open(&self, begin: &Begin, permit: Option<DescriptorPermit>) -> Result<(), UploadError> {
        if begin.offset > 0 && begin.offset == self.stored_bytes() {
            self.verify()?;
        }
        let mut progress = self.lock()?;
        // Of the stream that it was taken from.
        self.take_back(&mut progress);
        if progress.writer.is_none() {
            let permit = permit.map_or_else(|| self.blobs.upload_permit(), Ok)?;
            let disk = &self.blobs.disk;
            let name = file_name(self.unfinished.number);
            let writer = match begin.offset {
                0 => disk
                    .create(&name)
                    .and_then(|file| ContentWriter::begin(file, &self.identity(begin))),
                _ => disk.open(&name).and_then(ContentWriter::resume),
            };
            let writer = writer.map_err(|error| self.not_opened(error))?;
            debug_assert_eq!(writer.offset(), self.stored_bytes());
            progress.writer = Some(writer.charge(permit));
        }
        if begin.offset != self.stored_bytes() {
            return Err(UploadError::Offset {
                stored_bytes: self.stored_bytes(),
                offset: begin.offset,
            });
        }
        Ok(())
    }

    /// Reads what an earlier run has stored, once: its checksum would be taken for that of what is
    /// there. Nobody waits for that but this stream: what is read does not change.
    fn verify(&self) -> Result<(), UploadError> {
        let unfinished = &self.unfinished;
        if !unfinished.is_unverified.load(Ordering::Acquire) {
            return Ok(());
        }
        let opened = self.blobs.disk.open(&file_name(unfinished.number));
        let verified = opened.and_then(|file| ContentWriter::verify(&file));
        verified.map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => UploadError::Stored,
            _ => self.not_opened(error),
        })?;
        unfinished.is_unverified.store(false, Ordering::Release);
        Ok(())
    }

    /// A file that cannot be opened or read now may be later, unless it is not what it was.
    fn not_opened(&self, source: io::Error) -> UploadError {
        match source.kind() {
            io::ErrorKind::InvalidData | io::ErrorKind::NotFound => UploadError::device(source),
            _ if disk::is_full(&source) => self.blobs.device(source),
            _ => UploadError::System {
                what: "the file of the upload cannot be opened",
                source,
            },
        }
    }

    fn identity(&self, begin: &Begin) -> UploadOwner {
        UploadOwner {
            number: self.unfinished.number,
            database: begin.database.0,
            name: begin.name.to_string(),
            upload_id: begin.upload_id.to_vec(),
        }
    }

    /// Bytes that are stored.
    pub fn stored_bytes(&self) -> u64 {
        self.unfinished.stored_bytes()
    }

    /// How many streams have an upload at this moment, this one included: they share memory.
    pub fn streams(&self) -> usize {
        // Relaxed: the number guards nothing.
        self.blobs.streams.load(Ordering::Relaxed)
    }

    /// Stores chunks, one behind the other, up to the first that does not fit its checksum. Waits
    /// for the disk.
    ///
    /// What comes of a chunk before its end is written, and counts as stored only with the end.
    pub fn write(&self, bytes: &[u8], chunks: &[Chunk], now_ms: u64) -> Result<(), UploadError> {
        let written = self.write_chunks(bytes, chunks, now_ms);
        written.map_err(|error| self.failed(error))?;
        self.sync_soon(now_ms)
    }

    fn write_chunks(&self, bytes: &[u8], chunks: &[Chunk], now_ms: u64) -> Result<(), UploadError> {
        let (open, whole) = match chunks.split_last() {
            Some((last, whole)) if last.is_open => (Some(last), whole),
            _ => (None, chunks),
        };
        let open_bytes = open.map_or(0, |open| open.bytes);
        let (whole_data, open_data) = bytes.split_at(bytes.len() - open_bytes);
        let (sound_chunks, sound_bytes, damage) = self.check(whole_data, whole)?;
        if sound_chunks > 0 {
            self.append(&whole_data[..sound_bytes], false, now_ms)?;
        }
        match damage {
            Some(damage) => {
                // Nothing of it is left, also of what was written before.
                self.take_back(&mut *self.lock()?);
                Err(damage)
            }
            None if open_bytes > 0 => self.append(open_data, true, now_ms),
            None => Ok(()),
        }
    }

    /// How many of the chunks, and of the bytes, are what was sent, and what is wrong with the next
    /// chunk.
    fn check(
        &self,
        bytes: &[u8],
        chunks: &[Chunk],
    ) -> Result<(usize, usize, Option<UploadError>), UploadError> {
        let (mut sum, mut offset, written_bytes) = {
            let mut progress = self.lock()?;
            let writer = progress.writer()?;
            let sum = writer.open_crc32c().unwrap_or(0);
            (sum, writer.settled_offset(), writer.offset())
        };
        let mut begin = 0;
        for (number, chunk) in chunks.iter().enumerate() {
            let data = &bytes[begin..begin + chunk.bytes];
            if let Some(expected) = chunk.crc32c {
                let found = crc32c::crc32c_append(sum, data);
                if found != expected {
                    let damage = UploadError::Chunk {
                        offset,
                        expected,
                        found,
                    };
                    return Ok((number, begin, Some(damage)));
                }
            }
            begin += chunk.bytes;
            (sum, offset) = (0, written_bytes + begin as u64);
        }
        debug_assert_eq!(begin, bytes.len(), "all bytes are in chunks");
        Ok((chunks.len(), begin, None))
    }

    /// Takes back what is written of a chunk that is not whole.
    fn take_back(&self, progress: &mut UploadProgress) {
        let bytes = progress.writer.as_mut().map_or(0, ContentWriter::take_back);
        self.blobs.unbook(self.unfinished.database, bytes);
    }

    /// Adds whole chunks, or the end of one and whole ones; or, if it `is_open`, some of one.
    fn append(&self, data: &[u8], is_open: bool, now_ms: u64) -> Result<(), UploadError> {
        let mut progress = self.lock()?;
        let bytes = progress.writer()?.offset() + data.len() as u64;
        if let Some(announced_bytes) = self.size_bytes.filter(|&size_bytes| bytes > size_bytes) {
            return Err(UploadError::Size {
                announced_bytes,
                bytes,
            });
        }
        let database = self.unfinished.database;
        let asking = RoomRequest {
            peer: self.unfinished.peer(),
            now_ms,
            number: Some(self.unfinished.number),
        };
        self.blobs.book(database, data.len() as u64, asking)?;
        let writer = progress.writer()?;
        let written = match is_open {
            true => writer.append_open(data),
            false => writer.append(data),
        };
        if let Err(error) = written {
            self.blobs.unbook(database, data.len() as u64);
            return Err(self.blobs.device(error));
        }
        if !is_open {
            writer.settle();
            self.unfinished.grew_to(bytes, now_ms);
        }
        Ok(())
    }

    /// Has what came made durable when there is enough of it, beside what follows; if the disk is
    /// too slow for that, what follows waits.
    fn sync_soon(&self, now_ms: u64) -> Result<(), UploadError> {
        let unmarked_bytes = self.lock()?.writer()?.unmarked_bytes();
        let (blobs, owner_generation) = (Arc::clone(&self.blobs), self.owner_generation);
        let sync_bytes = blobs.config.sync_bytes;
        if unmarked_bytes >= limits::UNSYNCED_SYNCS * sync_bytes {
            return self.unfinished.sync(&blobs, owner_generation, now_ms, true);
        }
        let unfinished = Arc::clone(&self.unfinished);
        if unmarked_bytes >= sync_bytes && !unfinished.is_syncing.swap(true, Ordering::AcqRel) {
            self.blobs.run(Box::new(move || {
                // If it fails, the stream is told why.
                let _ = unfinished.sync(&blobs, owner_generation, now_ms, false);
                unfinished.is_syncing.store(false, Ordering::Release);
            }));
        }
        Ok(())
    }

    /// Checks the whole and makes it durable. Returns its bytes and its CRC32C.
    pub(super) fn seal(&self, end: &ContentEnd, now_ms: u64) -> Result<(u64, u32), UploadError> {
        // What a sync beside the writes finds is known before the whole is taken for durable.
        let _synced = self.unfinished.syncing.lock();
        let mut progress = self.lock()?;
        let is_named = progress.is_named;
        let writer = progress.writer()?;
        let (bytes, crc32c) = (writer.offset(), writer.crc32c());
        if let Some(announced_bytes) = self.size_bytes.filter(|&announced| announced != bytes) {
            return Err(UploadError::Size {
                announced_bytes,
                bytes,
            });
        }
        if end.crc32c.is_some_and(|expected| expected != crc32c) {
            return Err(UploadError::Content { what: "CRC32C" });
        }
        let device = |error| self.blobs.device(error);
        if let Some(expected) = end.sha256
            && writer.sha256().map_err(device)? != expected
        {
            return Err(UploadError::Content { what: "SHA-256" });
        }
        writer.prepare_seal(now_ms).map_err(device)?;
        writer.file().sync().map_err(UploadError::device)?;
        if !is_named {
            (self.blobs.disk.sync_folder()).map_err(UploadError::device)?;
            progress.is_named = true;
        }
        progress.is_sealed = true;
        Ok((bytes, crc32c))
    }

    /// What an error leaves of the upload.
    pub(super) fn failed(&self, error: UploadError) -> UploadError {
        let is_worthless = match &error {
            UploadError::Content { .. } | UploadError::Stored | UploadError::Device(_) => true,
            UploadError::Size {
                announced_bytes,
                bytes,
            } => bytes > announced_bytes,
            _ => false,
        };
        if is_worthless {
            self.throw_away(&error);
        }
        error
    }

    /// This stream knows why; nobody has taken anything from it.
    fn throw_away(&self, error: &UploadError) {
        let Ok(mut progress) = self.lock() else {
            return;
        };
        progress.owner = None;
        let over = match error {
            UploadError::Device(source) => Over::Failed(Arc::clone(source)),
            UploadError::Stored => Over::Failed(Arc::new(io::Error::new(
                io::ErrorKind::InvalidData,
                "what was stored is not what was written",
            ))),
            _ => Over::Worthless,
        };
        self.blobs.end_upload(&self.unfinished, progress, over);
    }

    pub(super) fn lock(&self) -> Result<MutexGuard<'_, UploadProgress>, UploadError> {
        self.unfinished.lock_for_owner(self.owner_generation)
    }
}

impl Drop for Upload {
    /// May be called where nobody may wait for a disk.
    fn drop(&mut self) {
        self.blobs.streams.fetch_sub(1, Ordering::Relaxed);
        let (blobs, unfinished) = (Arc::clone(&self.blobs), Arc::clone(&self.unfinished));
        let owner_generation = self.owner_generation;
        self.blobs
            .run(Box::new(move || unfinished.leave(&blobs, owner_generation)));
    }
}
