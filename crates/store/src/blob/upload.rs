//! Uploads: from the first chunk to the description.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};

use super::blobs::{Blobs, UploadKey};
use super::error::UploadError;
use super::layout::{Identity, file_name};
use super::limits;
use super::sealed::Sealed;
use super::work::Chunk;
use super::writer::ContentWriter;
use crate::catalogue::DatabaseId;

/// How a stream of an upload begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begin {
    /// The database.
    pub database: DatabaseId,
    /// The name, which has been [checked](super::check_name).
    pub name: Box<str>,
    /// Names the upload; empty: it cannot be resumed.
    pub upload_id: Box<[u8]>,
    /// From where it goes on; 0: it begins anew.
    pub offset: u64,
    /// What all of it will have, if that is known.
    pub size_bytes: Option<u64>,
    /// For the description.
    pub content_type: Box<str>,
    /// When it is, in milliseconds since 1970.
    pub now_ms: u64,
}

/// What the end of an upload says of the whole content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// Its CRC32C.
    pub crc32c: Option<u32>,
    /// Its SHA-256.
    pub sha256: Option<[u8; 32]>,
}

/// A stream that uploads: told when another one goes on with its upload.
pub trait Owner: Send + Sync {
    /// Nothing that it sends is stored any more.
    fn taken_over(&self);
}

/// An upload that is not complete.
pub(super) struct Unfinished {
    pub(super) number: u64,
    pub(super) database: DatabaseId,
    /// `None`: it cannot be resumed.
    pub(super) key: Option<UploadKey>,
    pub(super) progress: Mutex<Progress>,
    /// Bytes of content that are written. Read without the lock, which may be held for long.
    stored_bytes: AtomicU64,
    /// A sync is under way beside the writes.
    is_syncing: AtomicBool,
}

/// How far an upload has come.
#[derive(Default)]
pub(super) struct Progress {
    /// Which stream has it: they are counted.
    turn: u64,
    pub(super) owner: Option<Arc<dyn Owner>>,
    /// While a stream has it.
    pub(super) writer: Option<ContentWriter>,
    touched_ms: u64,
    /// The name of its file is on the device.
    is_named: bool,
    /// It was completed or given up.
    pub(super) is_over: bool,
    /// All of it is durable, and its description is on its way: no other stream may have it, or the same file would be
    /// described twice, or removed under its description.
    pub(super) is_sealed: bool,
}

impl Unfinished {
    pub(super) fn new(
        number: u64,
        database: DatabaseId,
        key: Option<UploadKey>,
        touched_ms: u64,
    ) -> Arc<Unfinished> {
        let progress = Progress {
            touched_ms,
            ..Progress::default()
        };
        Arc::new(Unfinished {
            number,
            database,
            key,
            progress: Mutex::new(progress),
            stored_bytes: AtomicU64::new(0),
            is_syncing: AtomicBool::new(false),
        })
    }

    /// One of an earlier life.
    pub(super) fn found(
        number: u64,
        key: UploadKey,
        stored_bytes: u64,
        touched_ms: u64,
    ) -> Arc<Unfinished> {
        let found = Unfinished::new(number, key.database, Some(key), touched_ms);
        found.stored_bytes.store(stored_bytes, Ordering::Relaxed);
        found.progress.lock().is_named = true;
        found
    }

    pub(super) fn stored_bytes(&self) -> u64 {
        self.stored_bytes.load(Ordering::Acquire)
    }

    /// Whether nobody has gone on with it since a time.
    pub(super) fn is_abandoned(&self, since_ms: u64) -> bool {
        // Locked: somebody writes.
        (self.progress.try_lock())
            .is_some_and(|progress| progress.owner.is_none() && progress.touched_ms < since_ms)
    }
}

impl Progress {
    fn writer(&mut self) -> Result<&mut ContentWriter, UploadError> {
        self.writer.as_mut().ok_or(UploadError::Gone)
    }
}

/// A stream's hold on an upload. Dropped, the upload waits for another stream, or is gone if it cannot be resumed.
#[derive(Debug)]
pub struct Upload {
    pub(super) blobs: Arc<Blobs>,
    pub(super) unfinished: Arc<Unfinished>,
    turn: u64,
    size_bytes: Option<u64>,
    pub(super) content_type: Box<str>,
}

impl Blobs {
    /// Begins an upload, or goes on with one, which is then taken from the stream that has it. Waits for the disk.
    pub fn begin_upload(
        self: &Arc<Blobs>,
        begin: &Begin,
        owner: Arc<dyn Owner>,
    ) -> Result<Upload, UploadError> {
        self.check_room(begin.database, begin.rest_bytes())?;
        let due_ms = begin.now_ms + limits::COLLECT_MS;
        self.collect_due_ms.fetch_min(due_ms, Ordering::Relaxed);
        let unfinished = self.find_or_add(begin)?;
        let turn = unfinished.take(owner)?;
        self.streams.fetch_add(1, Ordering::Relaxed);
        let upload = Upload {
            blobs: Arc::clone(self),
            turn,
            unfinished,
            size_bytes: begin.size_bytes,
            content_type: begin.content_type.clone(),
        };
        let Err(error) = upload.open(begin) else {
            return Ok(upload);
        };
        if begin.offset == 0 && matches!(error, UploadError::Full { .. }) {
            // There is nothing to go on with.
            upload.throw_away();
        }
        Err(upload.failed(error))
    }

    fn find_or_add(self: &Arc<Blobs>, begin: &Begin) -> Result<Arc<Unfinished>, UploadError> {
        let key = begin.key();
        let mut state = self.state.lock();
        let found = key.as_ref().and_then(|key| state.uploads.get(key));
        if let Some(found) = found.cloned() {
            if begin.offset > 0 {
                return Ok(found);
            }
            // Begun anew: what was stored goes.
            drop(state);
            self.begin_anew(&found)?;
            state = self.state.lock();
        }
        if begin.offset > 0 {
            return Err(UploadError::Offset {
                stored_bytes: 0,
                offset: begin.offset,
            });
        }
        if state.unfinished() >= limits::UPLOADS as u64 {
            return Err(UploadError::TooMany);
        }
        state.used.entry(begin.database).or_default().unfinished += 1;
        let number = state.next_number;
        state.next_number += 1;
        let unfinished = Unfinished::new(number, begin.database, key.clone(), begin.now_ms);
        if let Some(key) = key {
            let before = state.uploads.insert(key, Arc::clone(&unfinished));
            if let Some(before) = before {
                // Another stream was faster. If it is being completed already, it is, and this one begins behind it.
                drop(state);
                let _ = self.begin_anew(&before);
            }
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
    fn begin_anew(self: &Arc<Blobs>, unfinished: &Arc<Unfinished>) -> Result<(), UploadError> {
        let progress = unfinished.progress.lock();
        if progress.is_sealed && !progress.is_over {
            return Err(UploadError::Completing);
        }
        self.give_up_locked(unfinished, progress);
        Ok(())
    }

    /// Throws an upload away.
    pub(super) fn give_up(self: &Arc<Blobs>, unfinished: &Arc<Unfinished>) {
        self.give_up_locked(unfinished, unfinished.progress.lock());
    }

    fn give_up_locked(
        self: &Arc<Blobs>,
        unfinished: &Arc<Unfinished>,
        mut progress: MutexGuard<'_, Progress>,
    ) {
        if std::mem::replace(&mut progress.is_over, true) {
            return;
        }
        let (owner, bytes) = (progress.owner.take(), unfinished.stored_bytes());
        progress.writer = None;
        drop(progress);
        if let Some(owner) = owner {
            owner.taken_over();
        }
        self.forget(unfinished);
        self.doom(unfinished.number, unfinished.database, bytes);
    }

    /// It is no unfinished upload any more.
    pub(super) fn forget(&self, unfinished: &Arc<Unfinished>) {
        let mut state = self.state.lock();
        state.take_back(unfinished.database, 1, |used| &mut used.unfinished);
        if let Some(key) = &unfinished.key
            && (state.uploads.get(key)).is_some_and(|known| Arc::ptr_eq(known, unfinished))
        {
            state.uploads.remove(key);
        }
    }
}

impl Unfinished {
    /// Takes it from whoever has it. Answers the turn.
    fn take(&self, owner: Arc<dyn Owner>) -> Result<u64, UploadError> {
        let mut progress = self.progress.lock();
        if progress.is_over {
            return Err(UploadError::Gone);
        }
        if progress.is_sealed {
            return Err(UploadError::Completing);
        }
        progress.turn += 1;
        let (turn, before) = (progress.turn, progress.owner.replace(owner));
        drop(progress);
        if let Some(before) = before {
            before.taken_over();
        }
        Ok(turn)
    }
}

impl Begin {
    fn key(&self) -> Option<UploadKey> {
        (!self.upload_id.is_empty()).then(|| UploadKey {
            database: self.database,
            name: self.name.clone(),
            upload_id: self.upload_id.clone(),
        })
    }

    fn rest_bytes(&self) -> u64 {
        self.size_bytes.unwrap_or(0).saturating_sub(self.offset)
    }
}

impl Upload {
    /// Opens the file where a stream begins.
    fn open(&self, begin: &Begin) -> Result<(), UploadError> {
        let mut progress = self.lock()?;
        if progress.writer.is_none() {
            let disk = &self.blobs.disk;
            let name = file_name(self.unfinished.number);
            let writer = match begin.offset {
                0 => disk
                    .create(&name)
                    .and_then(|file| ContentWriter::begin(file, &self.identity(begin))),
                _ => disk.open(&name).and_then(ContentWriter::resume),
            };
            let writer = writer.map_err(|error| self.blobs.device(error))?;
            debug_assert_eq!(writer.offset(), self.stored_bytes());
            progress.writer = Some(writer);
        }
        if begin.offset != self.stored_bytes() {
            return Err(UploadError::Offset {
                stored_bytes: self.stored_bytes(),
                offset: begin.offset,
            });
        }
        Ok(())
    }

    fn identity(&self, begin: &Begin) -> Identity {
        Identity {
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

    /// Stores chunks, one behind the other, up to the first that does not fit its checksum. Waits for the disk.
    pub fn write(&self, bytes: &[u8], chunks: &[Chunk], now_ms: u64) -> Result<(), UploadError> {
        let (sound_bytes, damage) = self.check(bytes, chunks);
        let written = self.append(&bytes[..sound_bytes], now_ms);
        let written = written.and_then(|()| damage.map_or(Ok(()), Err));
        written.map_err(|error| self.failed(error))?;
        self.sync_soon(now_ms)
    }

    /// How many of the bytes are what was sent, and what is wrong with the next chunk.
    fn check(&self, bytes: &[u8], chunks: &[Chunk]) -> (usize, Option<UploadError>) {
        let mut begin = 0;
        for chunk in chunks {
            let data = &bytes[begin..begin + chunk.bytes];
            if let Some(expected) = chunk.crc32c {
                let found = crc32c::crc32c(data);
                if found != expected {
                    let damage = UploadError::Chunk {
                        offset: self.stored_bytes() + begin as u64,
                        expected,
                        found,
                    };
                    return (begin, Some(damage));
                }
            }
            begin += chunk.bytes;
        }
        debug_assert_eq!(begin, bytes.len(), "all bytes are in chunks");
        (begin, None)
    }

    fn append(&self, data: &[u8], now_ms: u64) -> Result<(), UploadError> {
        let mut progress = self.lock()?;
        let bytes = self.stored_bytes() + data.len() as u64;
        if let Some(announced_bytes) = self.size_bytes.filter(|&size_bytes| bytes > size_bytes) {
            return Err(UploadError::Size {
                announced_bytes,
                bytes,
            });
        }
        let database = self.unfinished.database;
        self.blobs.book(database, data.len() as u64)?;
        if let Err(error) = progress.writer()?.append(data) {
            self.blobs.unbook(database, data.len() as u64);
            return Err(self.blobs.device(error));
        }
        progress.touched_ms = now_ms;
        self.unfinished.stored_bytes.store(bytes, Ordering::Release);
        Ok(())
    }

    /// Has what came made durable when there is enough of it, beside what follows; if the disk is too slow for that,
    /// what follows waits.
    fn sync_soon(&self, now_ms: u64) -> Result<(), UploadError> {
        let unmarked_bytes = self.lock()?.writer()?.unmarked_bytes();
        let (blobs, turn) = (Arc::clone(&self.blobs), self.turn);
        let sync_bytes = blobs.config.sync_bytes;
        if unmarked_bytes >= limits::UNSYNCED_SYNCS * sync_bytes {
            let synced = self.unfinished.sync(&blobs, turn, now_ms);
            return synced.map_err(|error| self.failed(error));
        }
        let unfinished = Arc::clone(&self.unfinished);
        if unmarked_bytes >= sync_bytes && !unfinished.is_syncing.swap(true, Ordering::AcqRel) {
            self.blobs.run(Box::new(move || {
                let synced = unfinished.sync(&blobs, turn, now_ms);
                unfinished.is_syncing.store(false, Ordering::Release);
                if let Err(UploadError::Device(_)) = synced {
                    blobs.give_up(&unfinished);
                }
            }));
        }
        Ok(())
    }

    /// Ends an upload: checks the whole and makes it durable. Waits for the disk. What comes back wants to be described.
    pub fn finish(self, end: &End, now_ms: u64) -> Result<Sealed, UploadError> {
        match self.seal(end, now_ms) {
            Ok((size_bytes, crc32c)) => Ok(Sealed {
                size_bytes,
                crc32c,
                created_ms: now_ms,
                sha256: end.sha256,
                upload: Some(self),
            }),
            Err(error) => Err(self.failed(error)),
        }
    }

    fn seal(&self, end: &End, now_ms: u64) -> Result<(u64, u32), UploadError> {
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
        writer.file().sync().map_err(UploadError::Device)?;
        if !is_named {
            (self.blobs.disk.sync_folder()).map_err(UploadError::Device)?;
            progress.is_named = true;
        }
        progress.is_sealed = true;
        Ok((bytes, crc32c))
    }

    /// What an error leaves of the upload.
    fn failed(&self, error: UploadError) -> UploadError {
        let is_worthless = match &error {
            UploadError::Content { .. } | UploadError::Device(_) => true,
            UploadError::Size {
                announced_bytes,
                bytes,
            } => bytes > announced_bytes,
            _ => false,
        };
        if is_worthless {
            self.throw_away();
        }
        error
    }

    fn throw_away(&self) {
        // This stream knows; nobody has taken anything from it.
        if let Ok(mut progress) = self.lock() {
            progress.owner = None;
        }
        self.blobs.give_up(&self.unfinished);
    }

    pub(super) fn lock(&self) -> Result<MutexGuard<'_, Progress>, UploadError> {
        self.unfinished.lock_turn(self.turn)
    }
}

impl Drop for Upload {
    /// May be called where nobody may wait for a disk.
    fn drop(&mut self) {
        self.blobs.streams.fetch_sub(1, Ordering::Relaxed);
        let (blobs, unfinished) = (Arc::clone(&self.blobs), Arc::clone(&self.unfinished));
        let turn = self.turn;
        self.blobs
            .run(Box::new(move || unfinished.leave(&blobs, turn)));
    }
}

impl Unfinished {
    fn lock_turn(&self, turn: u64) -> Result<MutexGuard<'_, Progress>, UploadError> {
        let progress = self.progress.lock();
        if progress.is_over {
            return Err(UploadError::Gone);
        }
        if progress.turn != turn {
            return Err(UploadError::TakenOver);
        }
        Ok(progress)
    }

    /// Makes what came durable, while more may come.
    fn sync(&self, blobs: &Blobs, turn: u64, now_ms: u64) -> Result<(), UploadError> {
        let device = |error| blobs.device(error);
        let mut progress = self.lock_turn(turn)?;
        let is_named = progress.is_named;
        let writer = progress.writer()?;
        let pending = writer.prepare_mark(now_ms).map_err(device)?;
        let file = writer.file();
        drop(progress);
        // Also where that says that the disk is full: what was written before is not to be trusted any more.
        file.sync().map_err(UploadError::Device)?;
        if !is_named {
            blobs.disk.sync_folder().map_err(UploadError::Device)?;
        }
        let mut progress = self.lock_turn(turn)?;
        progress.is_named = true;
        progress.writer()?.set_mark(pending).map_err(device)
    }

    /// A stream has ended. What is stored is made durable and waits for another one, or goes if it cannot be resumed.
    fn leave(self: &Arc<Unfinished>, blobs: &Arc<Blobs>, turn: u64) {
        let Ok(mut progress) = self.lock_turn(turn) else {
            return;
        };
        progress.owner = None;
        let (touched_ms, writer) = (progress.touched_ms, progress.writer.take());
        let is_named = std::mem::replace(&mut progress.is_named, true);
        let left = match writer {
            _ if self.key.is_none() => Err(io::ErrorKind::Interrupted.into()),
            None => Ok(()),
            Some(mut writer) => writer
                .checkpoint(touched_ms)
                .or_else(|error| self.go_back(blobs, &writer, error))
                // The mark too: there may be no later sync.
                .and_then(|()| writer.file().sync())
                .and_then(|()| match is_named {
                    true => Ok(()),
                    false => blobs.disk.sync_folder(),
                }),
        };
        drop(progress);
        if left.is_err() {
            blobs.give_up(self);
        }
    }

    /// Where there is no room even for a mark, the last one counts.
    fn go_back(&self, blobs: &Blobs, writer: &ContentWriter, error: io::Error) -> io::Result<()> {
        let is_full = error.kind() == io::ErrorKind::StorageFull;
        let marked_bytes = writer.marked_bytes().filter(|_| is_full).ok_or(error)?;
        let stored_bytes = self.stored_bytes.swap(marked_bytes, Ordering::AcqRel);
        blobs.unbook(self.database, stored_bytes - marked_bytes);
        Ok(())
    }
}

impl Blobs {
    pub(super) fn device(&self, error: io::Error) -> UploadError {
        if error.kind() == io::ErrorKind::StorageFull {
            return UploadError::Full {
                free_bytes: self.disk.free_bytes().unwrap_or(0),
                reserved_bytes: self.config.free_bytes,
            };
        }
        UploadError::Device(error)
    }
}

impl fmt::Debug for Unfinished {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Unfinished")
            .field("number", &self.number)
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}
