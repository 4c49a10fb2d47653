//! A download, whatever protocol takes it: the next pieces are read while one is sent.

use std::collections::VecDeque;
use std::sync::Arc;

use store::blob::{Content, Description, News, Piece, ReadError, Work};

use crate::call::{Actions, Shared};
use crate::limits::{DOWNLOAD_PIECES, DOWNLOAD_READ_BYTES};

/// A part of a content on its way out.
pub(crate) struct Reading {
    content: Arc<Content>,
    /// The next byte to send.
    next: u64,
    end: u64,
    /// The next byte to read.
    read_next: u64,
    read_bytes: usize,
    pieces: VecDeque<Piece>,
    is_working: bool,
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
            pieces: VecDeque::new(),
            is_working: false,
        }
    }

    /// Whether all was taken.
    pub(crate) fn is_done(&self) -> bool {
        self.next == self.end
    }

    /// Takes at most so much of what is there, and sees to it that more follows.
    pub(crate) fn take(&mut self, chunk_bytes: usize, actions: &mut impl Actions) -> Option<Part> {
        self.read_on(actions);
        let piece = self.pieces.front()?.clone();
        let begin = (self.next - piece.offset) as usize;
        let behind = self.end.min(piece.offset + piece.bytes.len() as u64);
        let length = chunk_bytes.min((behind - self.next) as usize);
        self.next += length as u64;
        if self.next == behind {
            self.pieces.pop_front();
        }
        self.read_on(actions);
        Some(Part {
            piece,
            range: begin..begin + length,
        })
    }

    fn read_on(&mut self, actions: &mut impl Actions) {
        if self.is_working || self.read_next == self.end || self.pieces.len() >= DOWNLOAD_PIECES {
            return;
        }
        self.is_working = true;
        let bytes = (self.read_bytes as u64).min(self.end - self.read_next);
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
                self.read_next = self.end.min(piece.offset + piece.bytes.len() as u64);
                self.pieces.push_back(piece);
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
