//! Where the bytes of the last message lie, and how they are taken out of a connection.

use std::ops::Range;

use bytes::Bytes;

use super::pool::BufferPool;
use super::streams::Streams;
use crate::limits;

/// A message that was taken out of its connection.
#[derive(Debug)]
pub enum TakenMessage {
    /// It lies in the input.
    Input(Range<usize>),
    /// It was gathered or decompressed.
    Owned(Vec<u8>),
    /// It was gathered or decompressed, and is large: parts of it may be kept.
    Shared(Bytes),
}

impl TakenMessage {
    /// The bytes. `input` is the same slice that `poll_event` was given.
    #[inline]
    pub fn bytes<'a>(&'a self, input: &'a [u8]) -> &'a [u8] {
        match self {
            TakenMessage::Input(range) => &input[range.clone()],
            TakenMessage::Owned(bytes) => bytes,
            TakenMessage::Shared(bytes) => bytes,
        }
    }

    /// The bytes of a large message, parts of which may be kept.
    #[inline]
    pub fn shared(&self) -> Option<&Bytes> {
        match self {
            TakenMessage::Shared(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// What was gathered: to be shared if whoever keeps it keeps little memory beside it.
    pub(crate) fn owned(bytes: Vec<u8>) -> TakenMessage {
        let spare = bytes.capacity() - bytes.len();
        let is_kept_whole = spare <= bytes.len() / limits::SHARED_MESSAGE_SPARE_PART;
        match bytes.len() >= limits::SHARED_MESSAGE_BYTES && is_kept_whole {
            true => TakenMessage::Shared(Bytes::from(bytes)),
            false => TakenMessage::Owned(bytes),
        }
    }

    /// Gives the buffer of a message back, to be used again.
    #[inline]
    pub(crate) fn give_back(self, pool: &mut BufferPool) {
        match self {
            TakenMessage::Input(_) => {}
            TakenMessage::Owned(buffer) => pool.give(buffer),
            // Without a copy, where nobody keeps any of it.
            TakenMessage::Shared(bytes) if bytes.is_unique() => pool.give(bytes.into()),
            TakenMessage::Shared(_) => {}
        }
    }
}

/// Where the last message lies.
#[derive(Debug, Clone, PartialEq, Eq)]
enum MessageAt {
    Nowhere,
    Input(Range<usize>),
    /// In the deframer of the stream in this slot.
    Gathered(u32),
    /// In the buffer: decompressed, or copied out of a backlog.
    Buffer,
}

/// The last message, piece of a body, or part of a message that was reported.
#[derive(Debug)]
pub(crate) struct LastMessage {
    at: MessageAt,
    buffer: Vec<u8>,
    was_compressed: bool,
    /// What it took to decompress what is in the buffer, if that is more than its bytes.
    unpack_work_bytes: usize,
}

impl LastMessage {
    /// Returns that there is none.
    pub(crate) fn new() -> LastMessage {
        LastMessage {
            at: MessageAt::Nowhere,
            buffer: Vec::new(),
            was_compressed: false,
            unpack_work_bytes: 0,
        }
    }

    /// It lies in the input, or else was gathered by the stream in a slot.
    #[inline]
    pub(crate) fn set(&mut self, whole: Option<Range<usize>>, slot: u32) {
        self.at = whole.map_or(MessageAt::Gathered(slot), MessageAt::Input);
    }

    /// It lies in the input.
    #[inline]
    pub(crate) fn set_input(&mut self, range: Range<usize>) {
        self.at = MessageAt::Input(range);
    }

    /// Copies it. The buffer is one of the pool, unless there is one already: a message may be
    /// large.
    pub(crate) fn copy_message(&mut self, message: &[u8], pool: &mut BufferPool) {
        if self.buffer.capacity() == 0 {
            self.buffer = pool.take();
        }
        self.copy_piece(message);
    }

    /// Copies it. A piece is small: the buffers of the pool are for what is not.
    pub(crate) fn copy_piece(&mut self, piece: &[u8]) {
        self.buffer.clear();
        self.buffer.extend_from_slice(piece);
        self.unpack_work_bytes = 0;
        self.at = MessageAt::Buffer;
    }

    /// It is one that was decompressed.
    pub(crate) fn set_inflated(&mut self, inflated: Vec<u8>, pool: &mut BufferPool) {
        pool.give(std::mem::replace(&mut self.buffer, inflated));
        self.at = MessageAt::Buffer;
        self.unpack_work_bytes = 0;
    }

    /// Notes what it took to decompress it, in bytes.
    pub(crate) fn set_unpack_work(&mut self, work_bytes: usize) {
        self.unpack_work_bytes = work_bytes;
    }

    /// Notes whether it came compressed.
    #[inline]
    pub(crate) fn set_compressed(&mut self, was_compressed: bool) {
        self.was_compressed = was_compressed;
    }

    /// Returns whether it came compressed.
    pub(crate) fn was_compressed(&self) -> bool {
        self.was_compressed
    }

    /// Returns what it took to decompress it, in bytes, and at least what it became; 0 if it was
    /// not compressed.
    #[inline]
    pub(crate) fn unpack_work_bytes(&self) -> usize {
        match self.at {
            MessageAt::Buffer if self.was_compressed => {
                self.buffer.len().max(self.unpack_work_bytes)
            }
            _ => 0,
        }
    }

    /// Returns its bytes.
    #[inline]
    pub(crate) fn bytes<'a>(&'a self, input: &'a [u8], streams: &'a Streams) -> &'a [u8] {
        match &self.at {
            MessageAt::Nowhere => &[],
            MessageAt::Input(range) => &input[range.clone()],
            MessageAt::Gathered(slot) => streams[*slot].inbound.gathered(),
            MessageAt::Buffer => &self.buffer,
        }
    }

    /// Takes it out.
    #[inline]
    pub(crate) fn take(&mut self, streams: &mut Streams) -> TakenMessage {
        match std::mem::replace(&mut self.at, MessageAt::Nowhere) {
            MessageAt::Nowhere => TakenMessage::Owned(Vec::new()),
            MessageAt::Input(range) => TakenMessage::Input(range),
            MessageAt::Gathered(slot) => TakenMessage::owned(streams[slot].inbound.take_gathered()),
            MessageAt::Buffer => TakenMessage::owned(std::mem::take(&mut self.buffer)),
        }
    }

    /// Forgets it if it was gathered by the stream in this slot, which forgets what it has.
    #[inline]
    pub(crate) fn forget_gathered(&mut self, slot: u32) {
        if self.at == MessageAt::Gathered(slot) {
            self.at = MessageAt::Nowhere;
        }
    }

    /// Gives the buffer back if it is large, as the message was consumed.
    #[inline]
    pub(crate) fn release(&mut self, pool: &mut BufferPool) {
        if self.buffer.capacity() > limits::POOLED_BYTES {
            pool.give(std::mem::take(&mut self.buffer));
        }
    }

    /// Forgets it, and gives the memory back.
    pub(crate) fn trim(&mut self) {
        self.at = MessageAt::Nowhere;
        self.buffer = Vec::new();
    }

    /// Returns the bytes of memory that it holds.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.buffer.capacity()
    }

    #[cfg(test)]
    pub(crate) fn reserve(&mut self, bytes: usize) {
        self.buffer.reserve_exact(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grpc::DeframeStep;
    use crate::http2::headers::BodyKind;

    type Place = fn(&mut LastMessage, &mut BufferPool, u32);

    #[test]
    fn a_message_is_taken_once_from_wherever_it_lies() {
        let (mut last, mut pool) = (LastMessage::new(), BufferPool::default());
        let mut streams = Streams::default();
        let slot = streams.insert(1, BodyKind::Grpc, 10, 10);
        let input = b"..\0\0\0\0\x03abc";
        for _ in 0..2 {
            let inbound = &mut streams[slot].inbound;
            for (frame, is_whole) in [(&input[2..8], false), (&input[8..], true)] {
                let step = inbound.find_message(frame, &mut 0, 10);
                assert_eq!(
                    matches!(step, Ok(DeframeStep::Message { whole: None, .. })),
                    is_whole
                );
            }
            let places: [(&str, Place); 5] = [
                ("in the input", |last, _, _| last.set_input(7..10)),
                ("whole in the input", |last, _, slot| {
                    last.set(Some(7..10), slot)
                }),
                ("gathered", |last, _, slot| last.set(None, slot)),
                ("a copy", |last, pool, _| last.copy_message(b"abc", pool)),
                ("decompressed", |last, pool, _| {
                    last.set_inflated(b"abc".to_vec(), pool)
                }),
            ];
            for (place, set) in places {
                set(&mut last, &mut pool, slot);
                assert_eq!(last.bytes(input, &streams), b"abc", "{place}");
                let taken = last.take(&mut streams);
                assert_eq!(taken.bytes(input), b"abc", "{place}");
                taken.give_back(&mut pool);
                assert_eq!(last.bytes(input, &streams), b"", "{place}");
            }
        }
    }

    #[test]
    fn only_a_message_that_was_decompressed_has_become_larger() {
        let (mut last, mut pool) = (LastMessage::new(), BufferPool::default());
        last.set_compressed(true);
        assert_eq!(last.unpack_work_bytes(), 0);
        last.set_inflated(vec![7; 100], &mut pool);
        assert_eq!(last.unpack_work_bytes(), 100);
        last.set_compressed(false);
        last.copy_piece(&[7; 50]);
        assert_eq!(last.unpack_work_bytes(), 0);
    }

    #[test]
    fn a_large_buffer_goes_back_to_the_pool_when_it_is_released() {
        let (mut last, mut pool) = (LastMessage::new(), BufferPool::new(1 << 20));
        for bytes in [limits::POOLED_BYTES, limits::POOLED_BYTES + 1] {
            last.set_inflated(Vec::with_capacity(bytes), &mut pool);
            last.release(&mut pool);
            let is_kept = bytes <= limits::POOLED_BYTES;
            assert_eq!(
                (last.memory_bytes() > 0, pool.is_empty()),
                (is_kept, is_kept)
            );
        }
    }
}
