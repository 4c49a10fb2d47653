//! The content of what is uploaded: read ahead, and summed up.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes read from a file at a time, or one chunk if that is more.
const READ_BYTES: usize = 256 * 1024;

/// What was read and not sent yet: small chunks are not read one by one.
pub(super) struct ReadChunks {
    buffer: Vec<u8>,
    from: usize,
    to: usize,
    chunk_bytes: usize,
}

impl ReadChunks {
    /// Has read nothing yet.
    pub(super) fn new(chunk_bytes: usize) -> ReadChunks {
        let chunks = (READ_BYTES / chunk_bytes).max(1);
        ReadChunks {
            buffer: vec![0; chunks * chunk_bytes],
            from: 0,
            to: 0,
            chunk_bytes,
        }
    }

    /// The next chunk, shorter only where no more could be read at once; empty: that was all.
    /// `read` is asked when all that was read before has been taken.
    pub(super) fn next(
        &mut self,
        read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<&[u8]> {
        if self.from == self.to {
            (self.from, self.to) = (0, read(&mut self.buffer)?);
        }
        let begin = self.from;
        self.from = self.to.min(begin + self.chunk_bytes);
        Ok(&self.buffer[begin..self.from])
    }
}

/// The checksum of the first bytes of a content.
#[derive(Default)]
pub(super) struct Summed {
    pub(super) bytes: u64,
    pub(super) crc32c: u32,
}

impl Summed {
    /// Adds what comes next.
    pub(super) fn add(&mut self, data: &[u8]) {
        self.crc32c = crc32c::crc32c_append(self.crc32c, data);
        self.bytes += data.len() as u64;
    }

    /// Makes it that of the first `bytes` bytes of a file.
    pub(super) fn up_to(&mut self, file: &File, bytes: u64) -> io::Result<()> {
        if self.bytes > bytes {
            *self = Summed::default();
        }
        let mut buffer = vec![0; 1 << 20];
        while self.bytes < bytes {
            let wanted = (bytes - self.bytes).min(buffer.len() as u64) as usize;
            match file.read_at(&mut buffer[..wanted], self.bytes)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => self.add(&buffer[..count]),
            }
        }
        Ok(())
    }
}
