//! What those who read contents share: open files, and buffers.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::check_error::CheckError;
use super::limits;
use super::reader::ContentFile;
use crate::descriptor_budget::{DescriptorBudget, DescriptorPermit};

/// The file of a content, and the descriptor that it takes.
#[derive(Debug)]
pub(super) struct OpenContent {
    file: ContentFile,
    permit: DescriptorPermit,
}

impl OpenContent {
    /// A content that is open, with the descriptor that it takes.
    pub(super) fn new(file: ContentFile, permit: DescriptorPermit) -> Arc<OpenContent> {
        Arc::new(OpenContent { file, permit })
    }

    /// Fills the buffer from `offset` on: see [`ContentFile::read`].
    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), CheckError> {
        self.file.read(offset, buffer)
    }
}

/// The files of contents that are read, each shared by all who read its content. One that nobody
/// reads from at this moment is closed for another one if there are as many as there may be, and
/// opened again when its turn comes: who has stopped to take a blob keeps nobody from theirs. It
/// is the same content then: it stays as long as somebody reads it, and its number is never used
/// again.
#[derive(Debug)]
pub(super) struct OpenContents {
    descriptors: DescriptorBudget,
    /// By the number of their content.
    files: HashMap<u64, UsedFile>,
    uses: u64,
}

#[derive(Debug)]
struct UsedFile {
    file: Arc<OpenContent>,
    last_use: u64,
}

/// A descriptor for a file that is to be opened.
#[derive(Debug)]
pub(super) struct FreeDescriptor {
    pub(super) permit: DescriptorPermit,
    /// The file that is to be closed before.
    pub(super) closed: Option<ContentFile>,
}

impl OpenContents {
    /// None, and there may be so many.
    pub(super) fn new(limit: usize) -> OpenContents {
        OpenContents {
            descriptors: DescriptorBudget::new(limit),
            files: HashMap::new(),
            uses: 0,
        }
    }

    /// Returns how many there may be.
    pub(super) fn limit(&self) -> usize {
        self.descriptors.limit()
    }

    /// Returns the file of a content, if it is open.
    pub(super) fn get(&mut self, number: u64) -> Option<Arc<OpenContent>> {
        self.uses += 1;
        let used = self.files.get_mut(&number)?;
        used.last_use = self.uses;
        Some(Arc::clone(&used.file))
    }

    /// Keeps the file of a content, unless somebody else has opened it meanwhile. Returns the one
    /// that is kept.
    pub(super) fn keep(&mut self, number: u64, file: Arc<OpenContent>) -> Arc<OpenContent> {
        self.get(number).unwrap_or_else(|| {
            let used = UsedFile {
                file: Arc::clone(&file),
                last_use: self.uses,
            };
            self.files.insert(number, used);
            file
        })
    }

    /// Takes out the file of a content that nobody reads any more.
    pub(super) fn remove(&mut self, number: u64) -> Option<Arc<OpenContent>> {
        self.files.remove(&number).map(|used| used.file)
    }

    /// Acquires a descriptor: a free one, or that of the file that was used least lately. `None`:
    /// all are read from at this moment.
    pub(super) fn acquire(&mut self) -> Option<FreeDescriptor> {
        if let Some(permit) = self.descriptors.acquire() {
            let closed = None;
            return Some(FreeDescriptor { permit, closed });
        }
        let is_unused = |used: &UsedFile| Arc::strong_count(&used.file) == 1;
        let unused = self.files.iter().filter(|(_, used)| is_unused(used));
        let (&number, _) = unused.min_by_key(|(_, used)| used.last_use)?;
        let OpenContent { file, permit } = Arc::into_inner(self.remove(number)?)?;
        let closed = Some(file);
        Some(FreeDescriptor { permit, closed })
    }
}

/// Buffers for pieces of all contents. What everybody else has let go of is filled again: memory
/// that is given back at each piece costs more than the reading. Not more of it is kept than a few
/// downloads need: each would keep its own otherwise, for as long as its caller does not read.
#[derive(Debug, Default)]
pub(super) struct ContentBuffers(Vec<Bytes>);

impl ContentBuffers {
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
        let mut buffers = ContentBuffers::default();
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
