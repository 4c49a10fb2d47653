//! A download, whatever protocol takes it: what its peer can take is read, and a little ahead of
//! that.

use std::sync::Arc;

use store::blob::{BlobNews, Content, ContentReadError, Description, Piece, Work};

use crate::actions::{BlobAccess, ResponseMemory, SendRoom};
use crate::call::Shared;
use crate::limits::{
    DOWNLOAD_AHEAD_BYTES, DOWNLOAD_FIRST_BYTES, DOWNLOAD_GROWTH, DOWNLOAD_HEAD_BYTES,
    DOWNLOAD_LEAST_ROOM_BYTES, DOWNLOAD_LITTLE_BYTES, DOWNLOAD_READ_BYTES,
};

/// A part of a content on its way out.
///
/// Nothing is read before the peer could take it: its windows have room, or it has taken something
/// since more was read ahead. What it cannot take after all is let go, and read again later. So a
/// download whose peer does not read holds no more than its windows let out once. For one who
/// reads, one piece is read while another is sent.
pub(crate) struct ContentReading {
    content: Arc<Content>,
    /// The next byte to send.
    next: u64,
    end: u64,
    /// How much is read next; more each time, up to `most_bytes`.
    step_bytes: usize,
    most_bytes: usize,
    /// Read, and not sent.
    piece: Option<Piece>,
    /// The piece that is there, or is being read, may wait for a peer that cannot take it yet.
    may_wait: bool,
    is_working: bool,
    /// The peer has taken something since a piece was read that it could not take yet.
    has_progress: bool,
}

/// Some of it that may be sent.
pub(crate) struct ReadPart {
    pub(crate) piece: Piece,
    /// Of the piece.
    pub(crate) range: std::ops::Range<usize>,
}

impl ReadPart {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.piece.bytes[self.range.clone()]
    }

    /// Whether it is the piece.
    pub(crate) fn is_whole(&self) -> bool {
        self.range.len() == self.piece.bytes.len()
    }
}

impl ContentReading {
    /// From `offset` to below `end`, both within the content. Call it while the view is held that
    /// shows the description: afterwards the content may go.
    pub(crate) fn open(
        description: &Description<'_>,
        offset: u64,
        end: u64,
        chunk_bytes: usize,
        shared: &Shared,
    ) -> ContentReading {
        let blobs = shared.store.blobs().expect("a view of its index was given");
        ContentReading {
            content: blobs.open_content(description),
            next: offset,
            end,
            step_bytes: DOWNLOAD_FIRST_BYTES,
            most_bytes: chunk_bytes.max(DOWNLOAD_READ_BYTES),
            piece: None,
            may_wait: false,
            is_working: false,
            has_progress: false,
        }
    }

    /// Whether all was taken.
    pub(crate) fn is_done(&self) -> bool {
        self.next == self.end
    }

    /// Takes at most so much of what is there and may be sent now. If there is nothing, it is read
    /// as soon as it can be sent; [`ContentReading::news`] or
    /// [`CallSteps::writable`](crate::CallSteps::writable) follows.
    pub(crate) fn take(
        &mut self,
        chunk_bytes: usize,
        actions: &mut (impl BlobAccess + SendRoom + ResponseMemory),
    ) -> Option<ReadPart> {
        self.has_progress |= actions.take_progress();
        let can_send = actions.can_send();
        if let Some(piece) = self.piece.take() {
            let room = match can_send && self.may_wait {
                true => usize::MAX,
                false => fitting(actions.send_room()),
            };
            match room {
                0 => self.keep(piece, actions),
                room => return Some(self.cut(piece, chunk_bytes.min(room))),
            }
        }
        if self.piece.is_none() && !self.is_working {
            self.read(can_send, actions);
        }
        None
    }

    /// Cuts off so much of a piece.
    fn cut(&mut self, piece: Piece, bytes: usize) -> ReadPart {
        let begin = (self.next - piece.offset) as usize;
        let behind = self.end.min(piece.offset + piece.bytes.len() as u64);
        let length = bytes.min((behind - self.next) as usize);
        self.next += length as u64;
        if self.next < behind {
            self.piece = Some(piece.clone());
        }
        ReadPart {
            piece,
            range: begin..begin + length,
        }
    }

    /// Keeps a piece for a peer that cannot take it yet, if it may wait and memory is not short.
    fn keep(&mut self, mut piece: Piece, actions: &mut (impl SendRoom + ResponseMemory)) {
        if self.may_wait && !is_short_of_memory(actions) {
            actions.hold_ready(piece.bytes.len());
            piece.permit = None;
            self.piece = Some(piece);
        } else {
            actions.promise_room(0);
            actions.hold_ready(0);
        }
    }

    /// Reads what comes next, if the peer can take it, or has taken something since more was read
    /// ahead.
    fn read(
        &mut self,
        can_send: bool,
        actions: &mut (impl BlobAccess + SendRoom + ResponseMemory),
    ) {
        let is_ahead = self.has_progress && !is_short_of_memory(actions);
        let room = match is_ahead {
            true => actions.window_room(),
            false => actions.send_room(),
        };
        let bytes = match (room, is_ahead) {
            (0, false) => return,
            (room, false) => self.step(room.min(actions.message_bytes())),
            (room, true) => self.step(room.saturating_add(DOWNLOAD_AHEAD_BYTES)),
        };
        if is_ahead && (room == 0 || !can_send) {
            self.has_progress = false;
        }
        self.step_bytes = self.most_bytes.min(DOWNLOAD_GROWTH * self.step_bytes);
        self.may_wait = is_ahead;
        self.is_working = true;
        if !is_ahead {
            actions.promise_room(bytes);
        }
        actions.blob(Work::Read {
            content: Arc::clone(&self.content),
            offset: self.next,
            bytes,
        });
    }

    /// Returns how much to read next for so much room: to the end of a block, since blocks are read
    /// as a whole.
    fn step(&self, room: usize) -> usize {
        const BLOCK: u64 = store::blob::limits::BLOCK_BYTES as u64;
        let first = self.next / BLOCK * BLOCK;
        let wanted = (self.step_bytes.min(room) as u64 / BLOCK * BLOCK).max(BLOCK);
        (self.end.min(first + wanted) - self.next) as usize
    }

    /// What was asked for is done.
    pub(crate) fn news(&mut self, news: BlobNews) -> Result<(), ContentReadError> {
        self.is_working = false;
        match news {
            BlobNews::Read(piece) => {
                // It may be less than was asked for.
                debug_assert!(self.piece.is_none(), "one piece is read ahead");
                self.piece = Some(piece);
                Ok(())
            }
            BlobNews::NotRead(error) => Err(error),
            _ => {
                debug_assert!(false, "nothing was to be stored");
                Ok(())
            }
        }
    }
}

/// Whether everybody is to hold little.
fn is_short_of_memory(actions: &impl ResponseMemory) -> bool {
    actions.message_bytes() != usize::MAX
}

/// How many bytes of data may be sent into so much room, with what is beside them in a message:
/// what would be left of it keeps all of its piece in memory. Into little room goes a little, which
/// is copied.
fn fitting(room: usize) -> usize {
    match room {
        0 => 0,
        1..DOWNLOAD_LEAST_ROOM_BYTES => DOWNLOAD_LITTLE_BYTES,
        room => room - DOWNLOAD_HEAD_BYTES,
    }
}
