//! A content that somebody reads. It stays while it is read, whatever becomes of its description.

use std::sync::Arc;

use parking_lot::Mutex;

use super::blobs::Blobs;
use super::description::Description;
use super::error::ReadError;
use super::layout::{HEAD_BYTES, Identity, file_name};
use super::limits;
use super::reader::{ContentFile, aligned};
use super::walk::CheckError;

/// A content that is read. Dropped, it may go.
#[derive(Debug)]
pub struct Content {
    blobs: Arc<Blobs>,
    number: u64,
    size_bytes: u64,
    file: Mutex<Option<ContentFile>>,
    buffers: Mutex<Buffers>,
}

/// Room for pieces. What everybody else has let go of is filled again: memory that is given back at each piece costs more
/// than the reading.
#[derive(Debug, Default)]
struct Buffers(Vec<Arc<[u8]>>);

impl Buffers {
    /// Room that nobody uses, with anything in it.
    fn take(&mut self, bytes: usize) -> Arc<[u8]> {
        let is_free = |buffer: &mut Arc<[u8]>| Arc::get_mut(buffer).is_some();
        match self.0.iter_mut().position(is_free) {
            // Another length: the last piece, as a rule.
            Some(place) if self.0[place].len() != bytes => {
                self.0.swap_remove(place);
                new_buffer(bytes)
            }
            Some(place) => self.0.swap_remove(place),
            None => new_buffer(bytes),
        }
    }

    /// Remembers a piece, for when it is let go of.
    fn put(&mut self, buffer: &Arc<[u8]>) {
        if self.0.len() < limits::READ_BUFFERS {
            self.0.push(Arc::clone(buffer));
        }
    }
}

fn new_buffer(bytes: usize) -> Arc<[u8]> {
    std::iter::repeat_n(0, bytes).collect()
}

/// Some of a content: what was asked for, and what had to be read with it.
#[derive(Clone, Debug)]
pub struct Piece {
    /// Whole blocks.
    pub bytes: Arc<[u8]>,
    /// Where in the content they begin.
    pub offset: u64,
    /// Their CRC32C.
    pub crc32c: u32,
}

impl Blobs {
    /// Opens a content for reading. Call it while a view is held that shows the description: its content goes only
    /// after a later one is visible.
    pub fn open_content(self: &Arc<Blobs>, description: &Description<'_>) -> Arc<Content> {
        let mut state = self.state.lock();
        *state.readers.entry(description.number).or_insert(0) += 1;
        Arc::new(Content {
            blobs: Arc::clone(self),
            number: description.number,
            size_bytes: description.size_bytes,
            file: Mutex::new(None),
            buffers: Mutex::default(),
        })
    }
}

impl Content {
    /// Bytes of all of it.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Reads `bytes` from `offset` on, as far as there are so many, and checks them. Waits for the disk.
    pub fn read(&self, offset: u64, bytes: usize) -> Result<Piece, ReadError> {
        let (first, length) = aligned(offset, bytes, self.size_bytes);
        let mut buffer = self.buffers.lock().take(length);
        let target = Arc::get_mut(&mut buffer).expect("nobody else has it yet");
        let read = self.file().and_then(|file| file.read(first, target));
        read.map_err(|error| self.error(error))?;
        self.buffers.lock().put(&buffer);
        Ok(Piece {
            crc32c: crc32c::crc32c(&buffer),
            bytes: buffer,
            offset: first,
        })
    }

    fn file(&self) -> Result<ContentFile, CheckError> {
        let mut known = self.file.lock();
        if let Some(file) = &*known {
            return Ok(file.clone());
        }
        let file = self.blobs.disk.open(&file_name(self.number))?;
        let mut page = vec![0; HEAD_BYTES as usize];
        file.read_up_to(&mut page, 0)?;
        let identity = Identity::decode(&page);
        if identity.is_none_or(|identity| identity.number != self.number) {
            return Err(CheckError::Damaged);
        }
        let file = ContentFile::new(file, self.size_bytes);
        *known = Some(file.clone());
        Ok(file)
    }

    fn error(&self, error: CheckError) -> ReadError {
        let file = self.blobs.disk.describe(&file_name(self.number));
        match error {
            CheckError::Device(source) if source.kind() != std::io::ErrorKind::NotFound => {
                ReadError::Device { file, source }
            }
            _ => ReadError::Damaged { file },
        }
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        let mut state = self.blobs.state.lock();
        if let Some(readers) = state.readers.get_mut(&self.number) {
            *readers -= 1;
            if *readers == 0 {
                state.readers.remove(&self.number);
                self.blobs.remove_doomed(state, &[self.number]);
            }
        }
    }
}
