//! A content that somebody reads. It stays while it is read, whatever becomes of its description.

use std::sync::Arc;

use bytes::Bytes;

use super::blobs::BlobStore;
use super::check_error::CheckError;
use super::description::Description;
use super::error::ContentReadError;
use super::layout::{HEAD_BYTES, UploadOwner, file_name};
use super::open_content::OpenContent;
use super::permit::BlobPermit;
use super::reader::{ContentFile, aligned};

/// A content that is read. Dropped, it may go.
#[derive(Debug)]
pub struct Content {
    blobs: Arc<BlobStore>,
    number: u64,
    size_bytes: u64,
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
    pub permit: Option<Arc<BlobPermit>>,
}

impl BlobStore {
    /// Opens a content for reading. Call it while a view is held that shows the description: its
    /// content goes only after a later one is visible.
    pub fn open_content(self: &Arc<BlobStore>, description: &Description<'_>) -> Arc<Content> {
        let mut state = self.state.lock();
        *state.readers.entry(description.number).or_default() += 1;
        Arc::new(Content {
            blobs: Arc::clone(self),
            number: description.number,
            size_bytes: description.size_bytes,
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
    pub fn read(&self, offset: u64, bytes: usize) -> Result<Piece, ContentReadError> {
        let read = self.try_read(offset, bytes);
        if let Err(error @ (ContentReadError::Damaged { .. } | ContentReadError::Missing { .. })) =
            &read
        {
            self.blobs.report_unreadable(self.number, error);
        }
        read
    }

    fn try_read(&self, offset: u64, bytes: usize) -> Result<Piece, ContentReadError> {
        let (first, length) = aligned(offset, bytes, self.size_bytes);
        let mut buffer = self.blobs.buffers.lock().take(length);
        let file = self.file()?;
        let read = file.read(first, &mut buffer);
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

    /// The file, which may have been closed for others since the last piece.
    fn file(&self) -> Result<Arc<OpenContent>, ContentReadError> {
        if let Some(file) = self.blobs.open_contents.lock().get(self.number) {
            return Ok(file);
        }
        let file = self.open()?;
        Ok(self.blobs.open_contents.lock().keep(self.number, file))
    }

    fn open(&self) -> Result<Arc<OpenContent>, ContentReadError> {
        let free = {
            let mut contents = self.blobs.open_contents.lock();
            let limit = contents.limit();
            (contents.acquire()).ok_or(ContentReadError::Descriptors { limit })?
        };
        drop(free.closed);
        let opened = self.blobs.disk.open(&file_name(self.number));
        let file = opened.map_err(|error| self.error(error.into()))?;
        let mut page = vec![0; HEAD_BYTES as usize];
        let read = file.read_up_to(&mut page, 0);
        read.map_err(|error| self.error(error.into()))?;
        let identity = UploadOwner::decode(&page);
        if identity.is_none_or(|identity| identity.number != self.number) {
            return Err(self.error(CheckError::Damaged));
        }
        let file = ContentFile::new(file, self.size_bytes);
        Ok(OpenContent::new(file, free.permit))
    }

    fn error(&self, error: CheckError) -> ContentReadError {
        let file = self.blobs.disk.describe(&file_name(self.number));
        match error {
            CheckError::Device(source) if source.kind() == std::io::ErrorKind::NotFound => {
                ContentReadError::Missing { file }
            }
            CheckError::Device(source) => ContentReadError::Device { file, source },
            CheckError::Damaged => ContentReadError::Damaged { file },
        }
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        let mut state = self.blobs.state.lock();
        let Some(readers) = state.readers.get_mut(&self.number) else {
            return;
        };
        *readers -= 1;
        if *readers == 0 {
            state.readers.remove(&self.number);
            let file = self.blobs.open_contents.lock().remove(self.number);
            self.blobs.remove_orphans(state, &[self.number]);
            drop(file);
        }
    }
}
