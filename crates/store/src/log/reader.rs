//! Reading one segment through a window.

use std::io;
use std::sync::Arc;

use super::group::{ALIGN_BYTES, Group, HEADER_BYTES, Header, NoGroup};
use super::limits;
use crate::disk::DiskFile;

/// Reads a segment piece by piece, mostly forwards.
#[derive(Debug)]
pub(super) struct SegmentReader {
    file: Arc<dyn DiskFile>,
    file_bytes: u64,
    window: Vec<u8>,
    window_start: u64,
}

impl SegmentReader {
    pub(super) fn new(file: Arc<dyn DiskFile>) -> io::Result<SegmentReader> {
        Ok(SegmentReader {
            file_bytes: file.len()?,
            file,
            window: Vec::new(),
            window_start: 0,
        })
    }

    pub(super) fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// The bytes at a place: as many as asked for, or fewer at the end of the file.
    pub(super) fn bytes(&mut self, offset: u64, count: usize) -> io::Result<&[u8]> {
        let window_end = self.window_start + self.window.len() as u64;
        let wanted_end = (offset + count as u64).min(self.file_bytes);
        if offset < self.window_start || wanted_end > window_end {
            let rest = self.file_bytes.saturating_sub(offset);
            let room = (count.max(limits::READ_BYTES) as u64).min(rest) as usize;
            self.window.resize(room, 0);
            let there = self.file.read_up_to(&mut self.window, offset)?;
            self.window.truncate(there);
            self.window_start = offset;
        }
        let start = ((offset - self.window_start) as usize).min(self.window.len());
        let end = (start + count).min(self.window.len());
        Ok(&self.window[start..end])
    }

    /// The header at a place, if it has the form of one and its group would fit the file.
    pub(super) fn header(&mut self, offset: u64) -> io::Result<Result<Header, NoGroup>> {
        let room = self.file_bytes.saturating_sub(offset);
        let header = Header::decode(self.bytes(offset, HEADER_BYTES)?);
        Ok(header.and_then(|header| match header.group_bytes() {
            Some(bytes) if bytes <= room => Ok(header),
            _ => Err(NoGroup::Other),
        }))
    }

    /// The group at a place that has this header, if its checksum is right.
    pub(super) fn group(&mut self, offset: u64, header: Header) -> io::Result<Option<Group<'_>>> {
        let count = header
            .group_bytes()
            .and_then(|bytes| usize::try_from(bytes).ok())
            .ok_or(io::ErrorKind::FileTooLarge)?;
        let bytes = self.bytes(offset, count)?;
        if bytes.len() < count {
            return Ok(None);
        }
        Ok(Group::check(header, bytes))
    }

    /// Whether there is nothing but zeros from a place on.
    pub(super) fn is_zero_from(&mut self, mut offset: u64) -> io::Result<bool> {
        while offset < self.file_bytes {
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
        if self.window.capacity() > 2 * limits::READ_BYTES {
            self.window = Vec::new();
            self.window_start = 0;
        }
    }
}

/// The next place at which a group may begin.
pub(super) fn next_place(offset: u64) -> u64 {
    offset + ALIGN_BYTES as u64
}
