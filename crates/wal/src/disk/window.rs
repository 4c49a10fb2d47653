//! Reading a file piece by piece.

use std::io;
use std::sync::Arc;

use super::DiskFile;

/// Reads a file through a window that moves over it, mostly forwards.
#[derive(Debug)]
pub struct FileWindow {
    file: Arc<dyn DiskFile>,
    file_bytes: u64,
    /// Read at a time, unless more is asked for.
    read_bytes: usize,
    bytes: Vec<u8>,
    start: u64,
}

impl FileWindow {
    /// Reads `read_bytes` at a time, unless more is asked for.
    pub fn new(file: Arc<dyn DiskFile>, read_bytes: usize) -> io::Result<FileWindow> {
        Ok(FileWindow {
            file_bytes: file.len()?,
            file,
            read_bytes,
            bytes: Vec::new(),
            start: 0,
        })
    }

    /// Returns the length of the file when the window was made.
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// The bytes at a place: as many as asked for, or fewer at the end of the file.
    pub fn bytes(&mut self, offset: u64, count: usize) -> io::Result<&[u8]> {
        let window_end = self.start + self.bytes.len() as u64;
        let wanted_end = (offset + count as u64).min(self.file_bytes);
        if offset < self.start || wanted_end > window_end {
            let rest = self.file_bytes.saturating_sub(offset);
            let room = (count.max(self.read_bytes) as u64).min(rest) as usize;
            self.bytes.resize(room, 0);
            let there = self.file.read_up_to(&mut self.bytes, offset)?;
            self.bytes.truncate(there);
            self.start = offset;
        }
        let start = ((offset - self.start) as usize).min(self.bytes.len());
        let end = (start + count).min(self.bytes.len());
        Ok(&self.bytes[start..end])
    }

    /// Gives back the memory of something large, if there is room for more than `keep` reads.
    pub fn shrink(&mut self, keep: usize) {
        if self.bytes.capacity() > keep * self.read_bytes {
            self.bytes = Vec::new();
            self.start = 0;
        }
    }
}
