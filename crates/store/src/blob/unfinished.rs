//! An upload that is not complete, with or without a stream that has it.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};

use super::error::UploadError;
use super::limits;
use super::peer::UploadPeer;
use super::stream::{Begin, Owner, UploadKey};
use super::writer::ContentWriter;
use crate::database_id::DatabaseId;

/// An upload that is not complete.
pub(super) struct IncompleteUpload {
    pub(super) number: u64,
    pub(super) database: DatabaseId,
    pub(super) name: Box<str>,
    /// Empty: it cannot be resumed.
    pub(super) upload_id: Box<[u8]>,
    pub(super) progress: Mutex<UploadProgress>,
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
pub(super) struct UploadProgress {
    /// Counts the streams that have had it. An [`Upload`](super::Upload) of an earlier one is
    /// refused as taken over.
    pub(super) owner_generation: u64,
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
    pub(super) fn error(&self) -> UploadError {
        match self {
            Over::Settled | Over::Gone | Over::Worthless => UploadError::Gone,
            Over::BegunAnew => UploadError::TakenOver,
            Over::Evicted => UploadError::Evicted,
            Over::Discarded => UploadError::Discarded,
            Over::Failed(source) => UploadError::Device(Arc::clone(source)),
        }
    }
}

impl IncompleteUpload {
    pub(super) fn new(number: u64, begin: &Begin, peer: UploadPeer) -> Arc<IncompleteUpload> {
        Arc::new(IncompleteUpload {
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
    ) -> Arc<IncompleteUpload> {
        let progress = UploadProgress {
            is_named: true,
            ..UploadProgress::default()
        };
        Arc::new(IncompleteUpload {
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
    /// [`IncompleteUpload::take`] follows.
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

    /// Its stream has ended.
    pub(super) fn release(&self) {
        self.has_stream.store(false, Ordering::Release);
    }

    /// Only so much of it counts as stored. Returns what did before.
    pub(super) fn go_back_to(&self, bytes: u64) -> u64 {
        self.stored_bytes.swap(bytes, Ordering::AcqRel)
    }

    /// Takes it from whoever has it. Returns the generation of the new owner.
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
        progress.owner_generation += 1;
        *self.peer.lock() = owner.peer();
        self.touched_ms.store(now_ms, Ordering::Relaxed);
        self.has_stream.store(true, Ordering::Release);
        let (owner_generation, before) = (progress.owner_generation, progress.owner.replace(owner));
        drop(progress);
        if let Some(before) = before {
            before.lost(UploadError::TakenOver);
        }
        Ok(owner_generation)
    }

    /// Locks how far it has come, for the stream that has it.
    pub(super) fn lock_for_owner(
        &self,
        owner_generation: u64,
    ) -> Result<MutexGuard<'_, UploadProgress>, UploadError> {
        let progress = self.progress.lock();
        if progress.owner_generation != owner_generation {
            return Err(UploadError::TakenOver);
        }
        match &progress.over {
            Some(over) => Err(over.error()),
            None => Ok(progress),
        }
    }
}

impl UploadProgress {
    pub(super) fn writer(&mut self) -> Result<&mut ContentWriter, UploadError> {
        self.writer.as_mut().ok_or(UploadError::Gone)
    }
}

impl fmt::Debug for IncompleteUpload {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Unfinished")
            .field("number", &self.number)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
