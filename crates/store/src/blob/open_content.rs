//! What those who read contents share: open files, and buffers.

use std::sync::{Arc, Weak};

use bytes::{Bytes, BytesMut};

use super::check_error::CheckError;
use super::limits;
use super::reader::ContentFile;
use crate::descriptor_budget::DescriptorPermit;

/// Those who read a content.
#[derive(Debug, Default)]
pub(super) struct Readers {
    count: u32,
    /// They share one file.
    file: Weak<OpenContent>,
}

impl Readers {
    /// One more reads.
    pub(super) fn enter(&mut self) {
        self.count += 1;
    }

    /// One reads no more; returns whether it was the last.
    pub(super) fn leave(&mut self) -> bool {
        self.count -= 1;
        self.count == 0
    }

    /// Returns the file that they share, if one of them has opened it.
    pub(super) fn file(&self) -> Option<Arc<OpenContent>> {
        self.file.upgrade()
    }

    /// Sets the file that they share.
    pub(super) fn set_file(&mut self, file: &Arc<OpenContent>) {
        self.file = Arc::downgrade(file);
    }
}

/// The file of a content, and the descriptor that it takes.
#[derive(Debug)]
pub(super) struct OpenContent {
    file: ContentFile,
    _permit: DescriptorPermit,
}

impl OpenContent {
    /// A content that is open, with the descriptor that it takes.
    pub(super) fn new(file: ContentFile, permit: DescriptorPermit) -> Arc<OpenContent> {
        Arc::new(OpenContent {
            file,
            _permit: permit,
        })
    }

    /// Fills the buffer from `offset` on: see [`ContentFile::read`].
    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), CheckError> {
        self.file.read(offset, buffer)
    }
}

/// Buffers for pieces of all contents. What everybody else has let go of is filled again: memory
/// that is given back at each piece costs more than the reading. Not more of it is kept than a few
/// downloads need: each would keep its own otherwise, for as long as its caller does not read.
#[derive(Debug, Default)]
pub(super) struct Buffers(Vec<Bytes>);

impl Buffers {
    /// Takes a buffer that nobody uses, with anything in it.
    pub(super) fn take(&mut self, bytes: usize) -> BytesMut {
        let is_fitting = |buffer: &Bytes| buffer.len() == bytes && buffer.is_unique();
        let place = self.0.iter().position(is_fitting);
        let buffer = place.and_then(|place| self.0.swap_remove(place).try_into_mut().ok());
        buffer.unwrap_or_else(|| BytesMut::zeroed(bytes))
    }

    /// Remembers a buffer, for when it is let go of.
    pub(super) fn put(&mut self, buffer: &Bytes) {
        if buffer.len() > limits::READ_BUFFER_BYTES {
            return;
        }
        if self.0.len() < limits::READ_BUFFERS {
            self.0.push(buffer.clone());
        } else if let Some(place) = self.0.iter().position(Bytes::is_unique) {
            // Nobody wants its length any more.
            self.0[place] = buffer.clone();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_of_pieces_are_used_again_but_not_those_of_large_ones() {
        let mut buffers = Buffers::default();
        let mut read = |bytes: usize| {
            let buffer = buffers.take(bytes);
            let place = buffer.as_ptr() as usize;
            buffers.put(&buffer.freeze());
            (place, buffers.0.len())
        };
        let most = limits::READ_BUFFER_BYTES;
        let first = read(most);
        assert_eq!(first.1, 1);
        for _ in 0..2 {
            assert_eq!(read(most + 1).1, 1, "it is let go of");
            assert_eq!(read(most), first, "it is used again");
        }
        for bytes in 1..=2 * limits::READ_BUFFERS {
            assert!(read(bytes).1 <= limits::READ_BUFFERS, "{bytes}");
        }
    }
}
