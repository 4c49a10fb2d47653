//! A download, whatever protocol takes it: the next piece is read while one is sent.

use std::sync::Arc;

use store::blob::{Content, Description, News, Piece, ReadError, Work};

use crate::call::{Actions, Shared};
use crate::limits::DOWNLOAD_READ_BYTES;

/// A part of a content on its way out.
pub(crate) struct Reading {
    content: Arc<Content>,
    /// The next byte to send.
    next: u64,
    end: u64,
    /// The next byte to read.
    read_next: u64,
    read_bytes: usize,
    /// Read, and not sent: one at most, beside what is being read.
    piece: Option<Piece>,
    is_working: bool,
    /// Something that was sent has gone out since something was read ahead.
    has_moved: bool,
}

/// Some of it that may be sent.
pub(crate) struct Part {
    pub(crate) piece: Piece,
    /// Of the piece.
    pub(crate) range: std::ops::Range<usize>,
}

impl Part {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.piece.bytes[self.range.clone()]
    }

    /// Whether it is the piece.
    pub(crate) fn is_whole(&self) -> bool {
        self.range.len() == self.piece.bytes.len()
    }
}

impl Reading {
    /// From `offset` to below `end`, both within the content. Call it while the view is held that shows the description:
    /// afterwards the content may go.
    pub(crate) fn open(
        description: &Description<'_>,
        offset: u64,
        end: u64,
        chunk_bytes: usize,
        shared: &Shared,
    ) -> Reading {
        let blobs = shared.store.blobs().expect("a view of its index was given");
        Reading {
            content: blobs.open_content(description),
            next: offset,
            end,
            read_next: offset,
            read_bytes: chunk_bytes.max(DOWNLOAD_READ_BYTES),
            piece: None,
            is_working: false,
            has_moved: false,
        }
    }

    /// Whether all was taken.
    pub(crate) fn is_done(&self) -> bool {
        self.next == self.end
    }

    /// Takes at most so much of what is there. If nothing is, it is asked for: only now, when it can be sent at once.
    pub(crate) fn take(&mut self, chunk_bytes: usize, actions: &mut impl Actions) -> Option<Part> {
        let Some(piece) = self.piece.take() else {
            self.read(actions);
            return None;
        };
        let begin = (self.next - piece.offset) as usize;
        let behind = self.end.min(piece.offset + piece.bytes.len() as u64);
        let length = chunk_bytes.min((behind - self.next) as usize);
        self.next += length as u64;
        if self.next < behind {
            self.piece = Some(piece.clone());
        }
        Some(Part {
            piece,
            range: begin..begin + length,
        })
    }

    /// The caller has taken something of what was sent: what comes next is read meanwhile. For one that takes nothing,
    /// nothing is read ahead.
    pub(crate) fn moved(&mut self) {
        self.has_moved = true;
    }

    /// Reads ahead what cannot be sent yet, if the caller moves.
    pub(crate) fn read_ahead(&mut self, actions: &mut impl Actions) {
        if self.piece.is_none() && std::mem::take(&mut self.has_moved) {
            self.read(actions);
        }
    }

    fn read(&mut self, actions: &mut impl Actions) {
        if self.is_working || self.read_next == self.end {
            return;
        }
        self.is_working = true;
        // Less while memory for answers is short.
        let read_bytes = self.read_bytes.min(actions.message_bytes());
        let bytes = (read_bytes as u64).min(self.end - self.read_next);
        actions.reserve(bytes as usize);
        actions.blob(Work::Read {
            content: Arc::clone(&self.content),
            offset: self.read_next,
            bytes: bytes as usize,
        });
    }

    /// What was asked for is done.
    pub(crate) fn news(&mut self, news: News) -> Result<(), ReadError> {
        self.is_working = false;
        match news {
            News::Read(piece) => {
                // It may be less than was asked for.
                self.read_next = self.end.min(piece.offset + piece.bytes.len() as u64);
                debug_assert!(self.piece.is_none(), "one piece is read ahead");
                self.piece = Some(piece);
                Ok(())
            }
            News::NotRead(error) => Err(error),
            _ => {
                debug_assert!(false, "nothing was to be stored");
                Ok(())
            }
        }
    }
}
