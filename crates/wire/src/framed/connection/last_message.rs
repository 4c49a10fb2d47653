//! The message that the layer above is told of, until the next one.

use std::ops::Range;

use crate::http2::TakenMessage;

/// The last message that was reported.
#[derive(Debug, Default)]
pub(super) struct FramedLastMessage {
    range: Option<Range<usize>>,
    buffer: Vec<u8>,
    pub(super) was_compressed: bool,
    pub(super) unpacked_bytes: usize,
}

impl FramedLastMessage {
    /// Takes a message that lies by itself.
    pub(super) fn set(&mut self, message: Vec<u8>) {
        *self = FramedLastMessage {
            buffer: message,
            ..FramedLastMessage::default()
        };
    }

    /// Takes one that lies in the input.
    #[inline]
    pub(super) fn set_range(&mut self, range: Range<usize>) {
        self.range = Some(range);
        self.was_compressed = false;
        self.unpacked_bytes = 0;
    }

    /// Takes it out.
    #[inline]
    pub(super) fn take(&mut self) -> TakenMessage {
        match self.range.take() {
            Some(range) => TakenMessage::Input(range),
            None => TakenMessage::owned(std::mem::take(&mut self.buffer)),
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.buffer.capacity()
    }
}
