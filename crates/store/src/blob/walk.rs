//! A walk through a content that checks everything and may copy it.

use std::io;
use std::sync::Arc;

use super::layout::{HEAD_BYTES, Identity};
use super::limits;
use super::reader::ContentFile;
use super::writer::ContentWriter;
use crate::disk::DiskFile;

/// What is wrong with a content file.
#[derive(Debug)]
pub(crate) enum CheckError {
    /// It is not what was written.
    Damaged,
    /// The operating system refused.
    Device(io::Error),
}

impl From<io::Error> for CheckError {
    fn from(error: io::Error) -> CheckError {
        CheckError::Device(error)
    }
}

/// A walk from the first byte of a content to the last.
#[derive(Debug)]
pub(crate) struct Walk {
    source: ContentFile,
    size_bytes: u64,
    expected: u32,
    offset: u64,
    crc32c: u32,
    buffer: Vec<u8>,
    copy: Option<ContentWriter>,
}

impl Walk {
    /// Begins one through a file that must have this number, size and checksum, perhaps into an empty file.
    pub(crate) fn new(
        source: Arc<dyn DiskFile>,
        target: Option<Arc<dyn DiskFile>>,
        number: u64,
        size_bytes: u64,
        crc32c: u32,
    ) -> Result<Walk, CheckError> {
        let mut page = vec![0; HEAD_BYTES as usize];
        source.read_up_to(&mut page, 0)?;
        let identity = Identity::decode(&page).filter(|identity| identity.number == number);
        let identity = identity.ok_or(CheckError::Damaged)?;
        let begin = |target| ContentWriter::begin(target, &identity);
        Ok(Walk {
            source: ContentFile::new(source, size_bytes),
            size_bytes,
            expected: crc32c,
            offset: 0,
            crc32c: 0,
            buffer: vec![0; limits::CHECK_BYTES],
            copy: target.map(begin).transpose()?,
        })
    }

    /// Does a little. Answers of how many bytes, or `None` if everything is well and, where there is a copy, that is
    /// durable but for its name.
    pub(crate) fn step(&mut self) -> Result<Option<u64>, CheckError> {
        let left_bytes = self.size_bytes - self.offset;
        if left_bytes == 0 {
            return self.end();
        }
        let wanted = left_bytes.min(self.buffer.len() as u64) as usize;
        let piece = &mut self.buffer[..wanted];
        self.source.read(self.offset, piece)?;
        self.crc32c = crc32c::crc32c_append(self.crc32c, piece);
        self.offset += wanted as u64;
        if let Some(copy) = &mut self.copy {
            copy.append(piece)?;
            if copy.unmarked_bytes() >= limits::SYNC_BYTES {
                copy.checkpoint(0)?;
            }
        }
        Ok(Some(wanted as u64))
    }

    fn end(&mut self) -> Result<Option<u64>, CheckError> {
        if self.crc32c != self.expected {
            return Err(CheckError::Damaged);
        }
        if let Some(copy) = &mut self.copy {
            copy.seal(0)?;
        }
        Ok(None)
    }
}
