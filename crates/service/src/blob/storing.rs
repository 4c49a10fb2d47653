//! An upload, whatever protocol brings it: chunks are gathered while others are being stored.

use store::blob::{
    Begin, BlobInterest, BlobNews, Chunk, ContentEnd, Description, UploadError, Work,
};
use store::{CommitOutcome, Condition, Decision, OperationStatus};

use crate::actions::{BlobAccess, CallClock, RequestFlow};
use crate::keyvalue::refusal;
use crate::limits::{
    UPLOAD_GATHERED_BYTES, UPLOAD_GATHERED_SHARE, UPLOAD_WINDOW_BYTES, UPLOAD_WINDOW_BYTES_MAX,
    UPLOAD_WINDOWS_BYTES,
};
use crate::status::Status;

/// An upload in progress.
pub(crate) struct Storing {
    name: Box<str>,
    if_version: Option<u64>,
    /// Until it has begun, this is what says that it still should.
    _interest: BlobInterest,
    /// Here while nothing is done with it.
    upload: Option<Box<store::blob::Upload>>,
    gathered: GatheredChunks,
    /// Room to use again.
    spare: GatheredChunks,
    is_held: bool,
    /// What the window may grow to.
    window_bytes: u32,
    end: Option<UploaderEnd>,
}

#[derive(Default)]
struct GatheredChunks {
    bytes: Vec<u8>,
    chunks: Vec<Chunk>,
}

/// How the caller has ended its side.
#[derive(Clone, Copy, Debug)]
enum UploaderEnd {
    Whole(ContentEnd),
    /// Without an end.
    Cut,
    /// All of it is durable, and the description is with the committer.
    Committing,
}

/// What an upload has come to.
pub(crate) enum StoringProgress {
    /// It goes on.
    GoesOn,
    /// The caller has ended its side without an end.
    Cut {
        /// What can be gone on from.
        stored_bytes: u64,
    },
    /// It failed.
    Failed(UploadError),
}

/// A blob as it is now, or as it was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlobFound {
    pub(crate) applied: bool,
    pub(crate) version: u64,
    /// The encoded [`Description`].
    pub(crate) description: Vec<u8>,
}

impl Storing {
    pub(crate) fn begin(
        begin: Box<Begin>,
        if_version: Option<u64>,
        actions: &mut (impl BlobAccess + RequestFlow),
    ) -> Storing {
        let interest = BlobInterest::default();
        let storing = Storing {
            name: begin.name.clone(),
            if_version,
            _interest: interest.clone(),
            upload: None,
            gathered: GatheredChunks::default(),
            spare: GatheredChunks::default(),
            is_held: false,
            window_bytes: UPLOAD_WINDOW_BYTES,
            end: None,
        };
        actions.limit_window(UPLOAD_WINDOW_BYTES);
        actions.blob(Work::Begin { begin, interest });
        storing
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether nothing may follow.
    pub(crate) fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// Some of a chunk has come; [`Storing::end_chunk`] follows when it is complete.
    pub(crate) fn add_part(
        &mut self,
        data: &[u8],
        actions: &mut (impl BlobAccess + RequestFlow + CallClock),
    ) {
        debug_assert!(!self.has_ended());
        if data.is_empty() {
            return;
        }
        self.gathered.bytes.extend_from_slice(data);
        match self.gathered.chunks.last_mut() {
            Some(last) if last.is_open => last.bytes += data.len(),
            _ => self.gathered.chunks.push(Chunk {
                bytes: data.len(),
                crc32c: None,
                is_open: true,
            }),
        }
        self.go_on(actions);
    }

    /// A chunk of which there were parts is complete.
    pub(crate) fn end_chunk(
        &mut self,
        crc32c: Option<u32>,
        actions: &mut (impl BlobAccess + RequestFlow + CallClock),
    ) {
        match self.gathered.chunks.last_mut() {
            Some(last) if last.is_open => (last.crc32c, last.is_open) = (crc32c, false),
            // All that came of it is being stored.
            _ => self.gathered.chunks.push(Chunk {
                bytes: 0,
                crc32c,
                is_open: false,
            }),
        }
        self.go_on(actions);
    }

    /// A chunk has come.
    pub(crate) fn add(
        &mut self,
        data: &[u8],
        crc32c: Option<u32>,
        actions: &mut (impl BlobAccess + RequestFlow + CallClock),
    ) {
        debug_assert!(!self.has_ended());
        if !data.is_empty() {
            self.gathered.bytes.extend_from_slice(data);
            match self.gathered.chunks.last_mut() {
                // Pieces without checksums are one.
                Some(last) if last.crc32c.is_none() && crc32c.is_none() => last.bytes += data.len(),
                _ => self.gathered.chunks.push(Chunk {
                    bytes: data.len(),
                    crc32c,
                    is_open: false,
                }),
            }
        }
        self.go_on(actions);
    }

    /// The caller has ended with it.
    pub(crate) fn end(
        &mut self,
        end: ContentEnd,
        actions: &mut (impl BlobAccess + RequestFlow + CallClock),
    ) {
        self.end = Some(UploaderEnd::Whole(end));
        self.go_on(actions);
    }

    /// The caller has ended without an end.
    pub(crate) fn cut(
        &mut self,
        actions: &mut (impl BlobAccess + RequestFlow + CallClock),
    ) -> StoringProgress {
        self.end = Some(UploaderEnd::Cut);
        self.go_on(actions);
        self.progress()
    }

    /// What was asked for is done.
    pub(crate) fn news(
        &mut self,
        news: BlobNews,
        actions: &mut (impl BlobAccess + RequestFlow + CallClock),
    ) -> StoringProgress {
        match news {
            BlobNews::Begun(upload) => self.take_back(upload, actions),
            BlobNews::Written {
                upload,
                bytes,
                chunks,
            } => {
                self.take_back(upload, actions);
                self.spare = GatheredChunks { bytes, chunks };
            }
            BlobNews::Sealed(sealed) => {
                self.end = Some(UploaderEnd::Committing);
                let condition = self
                    .if_version
                    .map_or(Condition::None, Condition::VersionIs);
                actions.describe_blob(&self.name, sealed, condition);
                return StoringProgress::GoesOn;
            }
            BlobNews::NotStored(error) => return StoringProgress::Failed(error),
            BlobNews::Read(_)
            | BlobNews::NotRead(_)
            | BlobNews::Uploads(_)
            | BlobNews::Discarded(_) => {
                debug_assert!(false, "nothing else was asked for");
            }
        }
        self.go_on(actions);
        self.progress()
    }

    /// Nothing is done with the upload now. All that streams have share the memory for what waits.
    fn take_back(&mut self, upload: Box<store::blob::Upload>, actions: &mut impl RequestFlow) {
        let share = UPLOAD_WINDOWS_BYTES / upload.streams().max(1);
        let window_bytes = share.clamp(
            UPLOAD_WINDOW_BYTES as usize,
            UPLOAD_WINDOW_BYTES_MAX as usize,
        );
        let window_bytes = u32::try_from(window_bytes).expect("at most UPLOAD_WINDOW_BYTES_MAX");
        if window_bytes != self.window_bytes {
            self.window_bytes = window_bytes;
            actions.limit_window(window_bytes);
        }
        self.upload = Some(upload);
    }

    /// Bytes that are gathered before the caller is held.
    fn gathered_bytes(&self) -> usize {
        (self.window_bytes as usize / UPLOAD_GATHERED_SHARE).min(UPLOAD_GATHERED_BYTES)
    }

    fn progress(&self) -> StoringProgress {
        match (&self.end, &self.upload) {
            (Some(UploaderEnd::Cut), Some(upload)) => StoringProgress::Cut {
                stored_bytes: upload.stored_bytes(),
            },
            _ => StoringProgress::GoesOn,
        }
    }

    /// Has done what can be done, and holds the caller if too much waits.
    fn go_on(&mut self, actions: &mut (impl BlobAccess + RequestFlow + CallClock)) {
        if !self.gathered.chunks.is_empty() {
            if self.is_worth_storing()
                && let Some(upload) = self.upload.take()
            {
                let GatheredChunks { bytes, chunks } =
                    std::mem::replace(&mut self.gathered, std::mem::take(&mut self.spare));
                let now_ms = actions.now_ms();
                actions.blob(Work::Write {
                    upload,
                    bytes,
                    chunks,
                    now_ms,
                });
            }
        } else if let Some(UploaderEnd::Whole(end)) = self.end
            && let Some(upload) = self.upload.take()
        {
            let now_ms = actions.now_ms();
            actions.blob(Work::Finish {
                upload,
                end,
                now_ms,
            });
        }
        let is_full = self.gathered.bytes.len() >= self.gathered_bytes();
        if is_full != self.is_held {
            self.is_held = is_full;
            match is_full {
                true => actions.hold(),
                false => actions.resume(),
            }
        }
    }

    /// Whether what is gathered is to be stored now: a chunk that is not complete waits until it
    /// is, or until there is enough of it, as each hand-over costs something.
    fn is_worth_storing(&self) -> bool {
        let is_open = self.gathered.chunks.last().is_some_and(|last| last.is_open);
        !is_open || self.gathered.bytes.len() >= self.gathered_bytes()
    }

    /// What became of the description.
    pub(crate) fn committed(&self, outcome: &CommitOutcome<'_>) -> Result<BlobFound, Status> {
        if let Decision::Refused(why) = outcome.decision {
            return Err(refusal(why));
        }
        let operation = outcome.first();
        let operation = operation.ok_or_else(|| Status::internal("a commit without an outcome"))?;
        let applied = operation.status == OperationStatus::Done;
        if applied {
            return Ok(BlobFound {
                applied,
                version: operation.after.version,
                description: Vec::new(),
            });
        }
        let value = operation.value.map(|value| value.bytes().to_vec());
        Ok(BlobFound {
            applied,
            version: operation.before.version,
            description: value.unwrap_or_default(),
        })
    }
}

/// Shows a stored description as a message.
pub(crate) fn with_description<R>(
    name: &str,
    version: u64,
    description: &Description<'_>,
    show: impl FnOnce(api::blob::BlobDescription<'_>) -> R,
) -> R {
    let sha256 = description.sha256;
    show(api::blob::BlobDescription {
        name,
        size_bytes: description.size_bytes,
        crc32c: description.crc32c,
        sha256: sha256.as_ref().map_or(&[], |sha256| &sha256[..]),
        content_type: description.content_type,
        version,
        created_at_ms: description.created_ms,
    })
}
