//! Files that are written or read from their beginning to their end, with a checksum over all of
//! it.

use std::io;
use std::sync::Arc;

use wal::disk::{Disk, DiskFile};

use super::file_entry::FileEntry;
use super::limits;

/// A file that grows at its end.
#[derive(Debug)]
pub(super) struct GrowingFile {
    file: Arc<dyn DiskFile>,
    entry: FileEntry,
    synced_bytes: u64,
}

impl GrowingFile {
    pub(super) fn create(disk: &dyn Disk, name: &str) -> io::Result<GrowingFile> {
        Ok(GrowingFile {
            file: disk.create(name)?,
            entry: FileEntry {
                name: name.into(),
                bytes: 0,
                checksum: 0,
            },
            synced_bytes: 0,
        })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.entry.bytes
    }

    pub(super) fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, self.entry.bytes)?;
        self.entry.checksum = crc32c::crc32c_append(self.entry.checksum, bytes);
        self.entry.bytes += bytes.len() as u64;
        if self.entry.bytes - self.synced_bytes >= limits::SYNC_BYTES {
            self.file.sync()?;
            self.synced_bytes = self.entry.bytes;
        }
        Ok(())
    }

    /// Makes it durable, but for its name.
    pub(super) fn finish(self) -> io::Result<FileEntry> {
        self.file.sync()?;
        Ok(self.entry)
    }
}

/// A file that is read to its end.
#[derive(Debug)]
pub(super) struct ReadFile {
    file: Arc<dyn DiskFile>,
    entry: FileEntry,
    buffer: Vec<u8>,
}

impl ReadFile {
    pub(super) fn open(disk: &dyn Disk, name: &str) -> io::Result<ReadFile> {
        Ok(ReadFile {
            file: disk.open(name)?,
            entry: FileEntry {
                name: name.into(),
                bytes: 0,
                checksum: 0,
            },
            buffer: vec![0; limits::COPY_BYTES],
        })
    }

    /// The next piece; an empty one at the end.
    pub(super) fn next(&mut self) -> io::Result<&[u8]> {
        let count = self.file.read_up_to(&mut self.buffer, self.entry.bytes)?;
        let piece = &self.buffer[..count];
        self.entry.checksum = crc32c::crc32c_append(self.entry.checksum, piece);
        self.entry.bytes += count as u64;
        Ok(piece)
    }

    /// What has been read so far.
    pub(super) fn entry(&self) -> &FileEntry {
        &self.entry
    }
}
