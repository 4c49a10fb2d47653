//! A content that somebody reads. It stays while it is read, whatever becomes of its description.

use std::sync::{Arc, Weak};

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;

use super::blobs::Blobs;
use super::description::Description;
use super::error::ReadError;
use super::layout::{HEAD_BYTES, Identity, file_name};
use super::limits;
use super::reader::{ContentFile, aligned};
use super::walk::CheckError;
use super::work::Permit;
use crate::descriptor_budget::DescriptorPermit;

/// A content that is read. Dropped, it may go.
#[derive(Debug)]
pub struct Content {
    blobs: Arc<Blobs>,
    number: u64,
    size_bytes: u64,
    file: Mutex<Option<Arc<OpenContent>>>,
}

/// Those who read a content.
#[derive(Debug, Default)]
pub(super) struct Readers {
    count: u32,
    /// They share one file.
    file: Weak<OpenContent>,
}

/// The file of a content, and the descriptor that it takes.
#[derive(Debug)]
struct OpenContent {
    file: ContentFile,
    _permit: DescriptorPermit,
}

/// Buffers for pieces of all contents. What everybody else has let go of is filled again: memory
/// that is given back at each piece costs more than the reading. Not more of it is kept than a few
/// downloads need: each would keep its own otherwise, for as long as its caller does not read.
#[derive(Debug, Default)]
pub(super) struct Buffers(Vec<Bytes>);

impl Buffers {
    /// Takes a buffer that nobody uses, with anything in it.
    fn take(&mut self, bytes: usize) -> BytesMut {
        let is_fitting = |buffer: &Bytes| buffer.len() == bytes && buffer.is_unique();
        let place = self.0.iter().position(is_fitting);
        let buffer = place.and_then(|place| self.0.swap_remove(place).try_into_mut().ok());
        buffer.unwrap_or_else(|| BytesMut::zeroed(bytes))
    }

    /// Remembers a buffer, for when it is let go of.
    fn put(&mut self, buffer: &Bytes) {
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

/// Some of a content: what was asked for, and what had to be read with it.
#[derive(Clone, Debug)]
pub struct Piece {
    /// Whole blocks.
    pub bytes: Bytes,
    /// Where in the content they begin.
    pub offset: u64,
    /// Their CRC32C.
    pub crc32c: u32,
    /// What they take of a bound, for as long as somebody has them.
    pub permit: Option<Arc<Permit>>,
}

impl Blobs {
    /// Opens a content for reading. Call it while a view is held that shows the description: its
    /// content goes only after a later one is visible.
    pub fn open_content(self: &Arc<Blobs>, description: &Description<'_>) -> Arc<Content> {
        let mut state = self.state.lock();
        state.readers.entry(description.number).or_default().count += 1;
        Arc::new(Content {
            blobs: Arc::clone(self),
            number: description.number,
            size_bytes: description.size_bytes,
            file: Mutex::new(None),
        })
    }
}

impl Content {
    /// Bytes of all of it.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Reads `bytes` from `offset` on, as far as there are so many, and checks them. Waits for the
    /// disk.
    pub fn read(&self, offset: u64, bytes: usize) -> Result<Piece, ReadError> {
        let read = self.try_read(offset, bytes);
        if let Err(error @ (ReadError::Damaged { .. } | ReadError::Missing { .. })) = &read {
            self.blobs.report_unreadable(self.number, error);
        }
        read
    }

    fn try_read(&self, offset: u64, bytes: usize) -> Result<Piece, ReadError> {
        let (first, length) = aligned(offset, bytes, self.size_bytes);
        let mut buffer = self.blobs.buffers.lock().take(length);
        let file = self.file()?;
        let read = file.file.read(first, &mut buffer);
        read.map_err(|error| self.error(error))?;
        let buffer = buffer.freeze();
        self.blobs.buffers.lock().put(&buffer);
        Ok(Piece {
            crc32c: crc32c::crc32c(&buffer),
            bytes: buffer,
            offset: first,
            permit: None,
        })
    }

    fn file(&self) -> Result<Arc<OpenContent>, ReadError> {
        let mut known = self.file.lock();
        if let Some(file) = &*known {
            return Ok(Arc::clone(file));
        }
        let shared = {
            let state = self.blobs.state.lock();
            state
                .readers
                .get(&self.number)
                .and_then(|readers| readers.file.upgrade())
        };
        let file = match shared {
            Some(file) => file,
            None => {
                let file = self.open()?;
                let mut state = self.blobs.state.lock();
                if let Some(readers) = state.readers.get_mut(&self.number) {
                    readers.file = Arc::downgrade(&file);
                }
                file
            }
        };
        *known = Some(Arc::clone(&file));
        Ok(file)
    }

    fn open(&self) -> Result<Arc<OpenContent>, ReadError> {
        let descriptors = &self.blobs.content_descriptors;
        let permit = descriptors
            .acquire()
            .ok_or_else(|| ReadError::Descriptors {
                limit: descriptors.limit(),
            })?;
        let opened = self.blobs.disk.open(&file_name(self.number));
        let file = opened.map_err(|error| self.error(error.into()))?;
        let mut page = vec![0; HEAD_BYTES as usize];
        let read = file.read_up_to(&mut page, 0);
        read.map_err(|error| self.error(error.into()))?;
        let identity = Identity::decode(&page);
        if identity.is_none_or(|identity| identity.number != self.number) {
            return Err(self.error(CheckError::Damaged));
        }
        Ok(Arc::new(OpenContent {
            file: ContentFile::new(file, self.size_bytes),
            _permit: permit,
        }))
    }

    fn error(&self, error: CheckError) -> ReadError {
        let file = self.blobs.disk.describe(&file_name(self.number));
        match error {
            CheckError::Device(source) if source.kind() == std::io::ErrorKind::NotFound => {
                ReadError::Missing { file }
            }
            CheckError::Device(source) => ReadError::Device { file, source },
            CheckError::Damaged => ReadError::Damaged { file },
        }
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        let mut state = self.blobs.state.lock();
        if let Some(readers) = state.readers.get_mut(&self.number) {
            readers.count -= 1;
            if readers.count == 0 {
                state.readers.remove(&self.number);
                self.blobs.remove_doomed(state, &[self.number]);
            }
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
