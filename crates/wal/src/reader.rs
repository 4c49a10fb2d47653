//! Reading one segment through a window.

use std::io;
use std::sync::Arc;

use super::group::{ALIGN_BYTES, GroupHeader, HEADER_BYTES, LogGroup, NoGroup};
use super::limits;
use crate::disk::{DiskFile, FileWindow};

/// Reads a segment piece by piece, mostly forwards.
#[derive(Debug)]
pub(super) struct SegmentReader {
    window: FileWindow,
}

impl SegmentReader {
    pub(super) fn new(file: Arc<dyn DiskFile>) -> io::Result<SegmentReader> {
        Ok(SegmentReader {
            window: FileWindow::new(file, limits::READ_BYTES)?,
        })
    }

    /// Reads no more at a time than is asked for: for a look at a header.
    pub(super) fn for_header(file: Arc<dyn DiskFile>) -> io::Result<SegmentReader> {
        Ok(SegmentReader {
            window: FileWindow::new(file, HEADER_BYTES)?,
        })
    }

    pub(super) fn file_bytes(&self) -> u64 {
        self.window.file_bytes()
    }

    /// The bytes at a place: as many as asked for, or fewer at the end of the file.
    pub(super) fn bytes(&mut self, offset: u64, count: usize) -> io::Result<&[u8]> {
        self.window.bytes(offset, count)
    }

    /// The header at a place, if it has the form of one and its group would fit the file.
    pub(super) fn header(&mut self, offset: u64) -> io::Result<Result<GroupHeader, NoGroup>> {
        let room = self.file_bytes().saturating_sub(offset);
        let header = GroupHeader::decode(self.bytes(offset, HEADER_BYTES)?);
        Ok(header.and_then(|header| match header.group_bytes() {
            Some(bytes) if bytes <= room => Ok(header),
            _ => Err(NoGroup::Other),
        }))
    }

    /// The group at a place that has this header, if its checksum is right.
    pub(super) fn group(
        &mut self,
        offset: u64,
        header: GroupHeader,
    ) -> io::Result<Option<LogGroup<'_>>> {
        let count = header
            .group_bytes()
            .and_then(|bytes| usize::try_from(bytes).ok())
            .ok_or(io::ErrorKind::FileTooLarge)?;
        let bytes = self.bytes(offset, count)?;
        if bytes.len() < count {
            return Ok(None);
        }
        Ok(LogGroup::check(header, bytes))
    }

    /// Whether there is nothing but zeros from a place on.
    pub(super) fn is_zero_from(&mut self, mut offset: u64) -> io::Result<bool> {
        while offset < self.file_bytes() {
            let bytes = self.bytes(offset, limits::READ_BYTES)?;
            // The file became shorter while it was read, or there is something in it.
            if bytes.is_empty() || bytes.iter().any(|&byte| byte != 0) {
                return Ok(false);
            }
            offset += bytes.len() as u64;
        }
        Ok(true)
    }

    /// Gives back the memory of a large group.
    pub(super) fn shrink(&mut self) {
        self.window.shrink(2);
    }
}

/// The next place at which a group may begin.
pub(super) fn next_place(offset: u64) -> u64 {
    offset + ALIGN_BYTES as u64
}
