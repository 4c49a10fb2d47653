//! An upload that is not complete, with or without a stream that has it.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use wal::disk::{NoRoom, is_full};

use super::blobs::{Blobs, EndedUpload, UploadKey};
use super::error::UploadError;
use super::limits;
use super::peer::UploadPeer;
use super::upload::{Begin, Owner};
use super::writer::ContentWriter;
use crate::database_id::DatabaseId;

/// An upload that is not complete.
pub(super) struct Unfinished {
    pub(super) number: u64,
    pub(super) database: DatabaseId,
    pub(super) name: Box<str>,
    /// Empty: it cannot be resumed.
    pub(super) upload_id: Box<[u8]>,
    pub(super) progress: Mutex<Progress>,
    /// Bytes of content that are written. Read without the lock, which may be held for long; so are
    /// the next three.
    stored_bytes: AtomicU64,
    /// A stream has it.
    has_stream: AtomicBool,
    /// When something of it came last, or a stream began to go on with it.
    touched_ms: AtomicU64,
    /// When its stream had last brought [`limits::UPLOAD_PACE_BYTES`], or began to go on with it.
    paced_ms: AtomicU64,
    /// What was stored then.
    paced_bytes: AtomicU64,
    /// From where its last stream came.
    peer: Mutex<UploadPeer>,
    /// An earlier run of the server has stored what is there, and nobody has read it since.
    pub(super) is_unverified: AtomicBool,
    /// A sync beside the writes is asked for.
    pub(super) is_syncing: AtomicBool,
    /// Held while what came is made durable beside the writes. Taken before `progress`.
    pub(super) syncing: Mutex<()>,
}

/// How far an upload has come.
#[derive(Default)]
pub(super) struct Progress {
    /// Which stream has it: they are counted.
    pub(super) turn: u64,
    /// While a stream has it.
    pub(super) owner: Option<Arc<dyn Owner>>,
    /// While a stream has it.
    pub(super) writer: Option<ContentWriter>,
    /// The name of its file is on the device.
    pub(super) is_named: bool,
    /// Why it is no unfinished upload any more.
    pub(super) over: Option<Over>,
    /// All of it is durable, and its description is on its way: no other stream may have it, or the
    /// same file would be described twice, or removed under its description.
    pub(super) is_sealed: bool,
}

/// Why an upload is over.
#[derive(Clone, Debug)]
pub(super) enum Over {
    /// It is described, or only a restart can show whether it is.
    Settled,
    /// It was abandoned for too long, or cannot be resumed and its stream has ended, or its
    /// description was not wanted.
    Gone,
    /// Its sender has begun it anew.
    BegunAnew,
    /// Others needed its room.
    Evicted,
    /// Somebody has discarded it.
    Discarded,
    /// What is stored of it cannot be trusted, or is not what was to be stored: its stream was
    /// told.
    Worthless,
    /// The disk has failed while no stream waited for it.
    Failed(Arc<io::Error>),
}

impl Over {
    /// What a stream is told that still goes on with it.
    fn error(&self) -> UploadError {
        match self {
            Over::Settled | Over::Gone | Over::Worthless => UploadError::Gone,
            Over::BegunAnew => UploadError::TakenOver,
            Over::Evicted => UploadError::Evicted,
            Over::Discarded => UploadError::Discarded,
            Over::Failed(source) => UploadError::Device(Arc::clone(source)),
        }
    }
}

impl Unfinished {
    pub(super) fn new(number: u64, begin: &Begin, peer: UploadPeer) -> Arc<Unfinished> {
        Arc::new(Unfinished {
            number,
            database: begin.database,
            name: begin.name.clone(),
            upload_id: begin.upload_id.clone(),
            progress: Mutex::default(),
            stored_bytes: AtomicU64::new(0),
            // It is made for one.
            has_stream: AtomicBool::new(true),
            touched_ms: AtomicU64::new(begin.now_ms),
            paced_ms: AtomicU64::new(begin.now_ms),
            paced_bytes: AtomicU64::new(0),
            peer: Mutex::new(peer),
            is_unverified: AtomicBool::new(false),
            is_syncing: AtomicBool::new(false),
            syncing: Mutex::new(()),
        })
    }

    /// One of an earlier run.
    pub(super) fn found(
        number: u64,
        key: &UploadKey,
        stored_bytes: u64,
        touched_ms: u64,
    ) -> Arc<Unfinished> {
        let progress = Progress {
            is_named: true,
            ..Progress::default()
        };
        Arc::new(Unfinished {
            number,
            database: key.database,
            name: key.name.clone(),
            upload_id: key.upload_id.clone(),
            progress: Mutex::new(progress),
            stored_bytes: AtomicU64::new(stored_bytes),
            has_stream: AtomicBool::new(false),
            touched_ms: AtomicU64::new(touched_ms),
            paced_ms: AtomicU64::new(touched_ms),
            paced_bytes: AtomicU64::new(stored_bytes),
            peer: Mutex::default(),
            is_unverified: AtomicBool::new(true),
            is_syncing: AtomicBool::new(false),
            syncing: Mutex::new(()),
        })
    }

    /// Names it, if it can be resumed.
    pub(super) fn key(&self) -> Option<UploadKey> {
        (!self.upload_id.is_empty()).then(|| UploadKey {
            database: self.database,
            name: self.name.clone(),
            upload_id: self.upload_id.clone(),
        })
    }

    pub(super) fn stored_bytes(&self) -> u64 {
        self.stored_bytes.load(Ordering::Acquire)
    }

    pub(super) fn touched_ms(&self) -> u64 {
        self.touched_ms.load(Ordering::Relaxed)
    }

    pub(super) fn has_stream(&self) -> bool {
        self.has_stream.load(Ordering::Acquire)
    }

    pub(super) fn peer(&self) -> UploadPeer {
        *self.peer.lock()
    }

    /// Since when nothing, or too little, of it has come.
    pub(super) fn idle_since_ms(&self) -> u64 {
        match self.has_stream() {
            true => self.paced_ms.load(Ordering::Relaxed),
            false => self.touched_ms(),
        }
    }

    /// Whether no stream has it, or one that has brought next to nothing for so long.
    pub(super) fn is_idle(&self, now_ms: u64, stalled_ms: u64) -> bool {
        let paced_ms = self.paced_ms.load(Ordering::Relaxed);
        !self.has_stream() || paced_ms.saturating_add(stalled_ms) <= now_ms
    }

    /// A stream begins to go on with what is stored.
    fn begin_pace(&self, now_ms: u64) {
        self.paced_ms.store(now_ms, Ordering::Relaxed);
        (self.paced_bytes).store(self.stored_bytes(), Ordering::Relaxed);
    }

    /// A stream of a peer is about to go on with it, and it counts as open for it.
    /// [`Unfinished::take`] follows.
    pub(super) fn claim(&self, peer: UploadPeer, now_ms: u64) {
        *self.peer.lock() = peer;
        self.begin_pace(now_ms);
        self.has_stream.store(true, Ordering::Release);
    }

    /// Something was stored.
    pub(super) fn grew_to(&self, bytes: u64, now_ms: u64) {
        self.touched_ms.store(now_ms, Ordering::Relaxed);
        self.stored_bytes.store(bytes, Ordering::Release);
        let paced_bytes = self.paced_bytes.load(Ordering::Relaxed);
        if bytes.saturating_sub(paced_bytes) >= limits::UPLOAD_PACE_BYTES {
            self.begin_pace(now_ms);
        }
    }

    /// Takes it from whoever has it. Returns the turn.
    pub(super) fn take(&self, owner: Arc<dyn Owner>, now_ms: u64) -> Result<u64, UploadError> {
        let mut progress = self.progress.lock();
        let refused = match &progress.over {
            // It was thrown away between two looks at it: it is not there for this stream.
            Some(Over::BegunAnew) => Some(UploadError::Gone),
            Some(over) => Some(over.error()),
            None => progress.is_sealed.then_some(UploadError::Completing),
        };
        if let Some(refused) = refused {
            // Whoever has it counts for it again.
            if let Some(owner) = &progress.owner {
                *self.peer.lock() = owner.peer();
            }
            let has_stream = progress.owner.is_some();
            self.has_stream.store(has_stream, Ordering::Release);
            return Err(refused);
        }
        progress.turn += 1;
        *self.peer.lock() = owner.peer();
        self.touched_ms.store(now_ms, Ordering::Relaxed);
        self.has_stream.store(true, Ordering::Release);
        let (turn, before) = (progress.turn, progress.owner.replace(owner));
        drop(progress);
        if let Some(before) = before {
            before.lost(UploadError::TakenOver);
        }
        Ok(turn)
    }

    pub(super) fn lock_turn(&self, turn: u64) -> Result<MutexGuard<'_, Progress>, UploadError> {
        let progress = self.progress.lock();
        if progress.turn != turn {
            return Err(UploadError::TakenOver);
        }
        match &progress.over {
            Some(over) => Err(over.error()),
            None => Ok(progress),
        }
    }

    /// Makes what came durable, while more may come. After an error of the device the upload is
    /// over before its stream can seal it. `is_told`: the stream waits for what is returned.
    pub(super) fn sync(
        self: &Arc<Unfinished>,
        blobs: &Arc<Blobs>,
        turn: u64,
        now_ms: u64,
        is_told: bool,
    ) -> Result<(), UploadError> {
        let _syncing = self.syncing.lock();
        let synced = self.sync_and_mark(blobs, turn, now_ms);
        if let Err(UploadError::Device(source)) = &synced {
            let mut progress = self.progress.lock();
            if is_told && progress.turn == turn {
                progress.owner = None;
            }
            blobs.end_upload(self, progress, Over::Failed(Arc::clone(source)));
        }
        synced
    }

    fn sync_and_mark(&self, blobs: &Blobs, turn: u64, now_ms: u64) -> Result<(), UploadError> {
        let device = |error| blobs.device(error);
        let mut progress = self.lock_turn(turn)?;
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
        let mut progress = self.lock_turn(turn)?;
        progress.is_named = true;
        progress.writer()?.set_mark(pending).map_err(device)
    }

    /// A stream has ended. What is stored is made durable and waits for another one, or goes if it
    /// cannot be resumed.
    pub(super) fn leave(self: &Arc<Unfinished>, blobs: &Arc<Blobs>, turn: u64) {
        let Ok(mut progress) = self.lock_turn(turn) else {
            return;
        };
        progress.owner = None;
        self.has_stream.store(false, Ordering::Release);
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
    fn go_back(&self, blobs: &Blobs, writer: &ContentWriter, error: io::Error) -> io::Result<()> {
        let is_full = is_full(&error);
        let marked_bytes = writer.marked_bytes().filter(|_| is_full).ok_or(error)?;
        let stored_bytes = self.stored_bytes.swap(marked_bytes, Ordering::AcqRel);
        blobs.unbook(self.database, stored_bytes - marked_bytes);
        Ok(())
    }
}

impl Progress {
    pub(super) fn writer(&mut self) -> Result<&mut ContentWriter, UploadError> {
        self.writer.as_mut().ok_or(UploadError::Gone)
    }
}

impl Blobs {
    /// Ends an upload that was never described, notifies the stream that has it, and removes what
    /// is stored. Returns whether it was not over before. Waits for the disk.
    pub(super) fn end_upload(
        self: &Arc<Blobs>,
        unfinished: &Arc<Unfinished>,
        progress: MutexGuard<'_, Progress>,
        over: Over,
    ) -> bool {
        let ended = self.end_and_keep(unfinished, progress, over);
        self.remove_ended(ended.as_slice());
        ended.is_some()
    }

    /// The same, but leaves what is stored to the caller, which [removes](Blobs::remove_ended)
    /// several at once. Returns `None` if it was over before.
    pub(super) fn end_and_keep(
        self: &Arc<Blobs>,
        unfinished: &Arc<Unfinished>,
        mut progress: MutexGuard<'_, Progress>,
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
    pub(super) fn forget(&self, unfinished: &Arc<Unfinished>) {
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

impl fmt::Debug for Unfinished {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Unfinished")
            .field("number", &self.number)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
