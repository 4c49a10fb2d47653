//! Writes pages into a file.

use std::io;
use std::sync::Arc;

use wal::disk::DiskFile;

use super::limits;
use super::page::{self, HEAD_BYTES, PageHead, PageKind};
use bytes::Bytes;

/// A file that grows page by page. It is on the device after [`sync`](FileWriter::sync).
#[derive(Debug)]
pub(super) struct FileWriter {
    file: Arc<dyn DiskFile>,
    /// What is not written yet.
    buffer: Vec<u8>,
    written_bytes: u64,
    synced_bytes: u64,
    next_number: u64,
    previous_checksum: u32,
}

/// The body of a page: bytes, and perhaps a large value behind them that is not copied.
#[derive(Debug, Default)]
pub(super) struct PageBody {
    pub(super) bytes: Vec<u8>,
    pub(super) large: Option<Bytes>,
    pub(super) database: u32,
    pub(super) entries: u32,
}

impl PageBody {
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.large = None;
        (self.database, self.entries) = (0, 0);
    }
}

impl FileWriter {
    pub(super) fn new(file: Arc<dyn DiskFile>, version: u16) -> FileWriter {
        let prelude = page::prelude(version);
        FileWriter {
            file,
            previous_checksum: crc32c::crc32c(&prelude),
            buffer: prelude.to_vec(),
            written_bytes: 0,
            synced_bytes: 0,
            next_number: 0,
        }
    }

    /// Bytes of the file when all is written.
    pub(super) fn bytes(&self) -> u64 {
        self.written_bytes + self.buffer.len() as u64
    }

    /// Adds a page. Writes when enough has gathered, and syncs when enough is written.
    pub(super) fn page(&mut self, kind: PageKind, body: &PageBody) -> io::Result<()> {
        let large = body.large.as_deref().unwrap_or_default();
        let body_bytes = body.bytes.len() + large.len();
        assert!(
            body_bytes <= limits::BODY_BYTES_MAX,
            "a page ends before it is too large"
        );
        let checksum = crc32c::crc32c(&body.bytes);
        let head = PageHead {
            body_checksum: crc32c::crc32c_append(checksum, large),
            body_bytes: u32::try_from(body_bytes).expect("it is bounded"),
            previous_checksum: self.previous_checksum,
            number: self.next_number,
            database: body.database,
            entries: body.entries,
            kind,
        };
        let (head, checksum) = head.encode();
        debug_assert_eq!(head.len(), HEAD_BYTES);
        self.previous_checksum = checksum;
        self.next_number += 1;
        self.buffer.extend_from_slice(&head);
        self.buffer.extend_from_slice(&body.bytes);
        if large.len() < limits::WRITE_BYTES {
            self.buffer.extend_from_slice(large);
        } else {
            self.flush()?;
            self.write(large)?;
        }
        if self.buffer.len() >= limits::WRITE_BYTES {
            self.flush()?;
        }
        if self.written_bytes - self.synced_bytes >= limits::SYNC_BYTES {
            self.sync_written()?;
        }
        Ok(())
    }

    /// Writes what is left and syncs all of it.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        self.flush()?;
        self.sync_written()
    }

    fn flush(&mut self) -> io::Result<()> {
        let buffer = std::mem::take(&mut self.buffer);
        self.write(&buffer)?;
        self.buffer = buffer;
        self.buffer.clear();
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, self.written_bytes)?;
        self.written_bytes += bytes.len() as u64;
        Ok(())
    }

    fn sync_written(&mut self) -> io::Result<()> {
        self.file.sync()?;
        self.synced_bytes = self.written_bytes;
        Ok(())
    }
}
