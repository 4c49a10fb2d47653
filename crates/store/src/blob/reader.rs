//! Reading content, each block against its checksum.

use std::sync::Arc;

use wal::disk::DiskFile;

use super::check_error::CheckError;
use super::layout::{GROUP_BYTES, SUMS_BYTES, place_of, sum_of, sums_place_of};
use super::limits;

/// A content file that is complete.
#[derive(Clone, Debug)]
pub(super) struct ContentFile {
    file: Arc<dyn DiskFile>,
    size_bytes: u64,
}

impl ContentFile {
    pub(super) fn new(file: Arc<dyn DiskFile>, size_bytes: u64) -> ContentFile {
        ContentFile { file, size_bytes }
    }

    /// Fills the buffer from `offset` on, which is the beginning of a block. The buffer ends with a
    /// block, or with the content.
    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), CheckError> {
        debug_assert!(offset.is_multiple_of(limits::BLOCK_BYTES as u64));
        let end = offset + buffer.len() as u64;
        debug_assert!(end.is_multiple_of(limits::BLOCK_BYTES as u64) || end == self.size_bytes);
        let (mut offset, mut rest) = (offset, buffer);
        while !rest.is_empty() {
            let in_group = usize::try_from(GROUP_BYTES - offset % GROUP_BYTES).expect("small");
            let (piece, behind) = rest.split_at_mut(in_group.min(rest.len()));
            self.read_in_group(offset, piece)?;
            offset += piece.len() as u64;
            rest = behind;
        }
        Ok(())
    }

    fn read_in_group(&self, offset: u64, piece: &mut [u8]) -> Result<(), CheckError> {
        let first = (offset % GROUP_BYTES) as usize / limits::BLOCK_BYTES;
        let blocks = piece.len().div_ceil(limits::BLOCK_BYTES);
        let mut sums = [0; SUMS_BYTES];
        let sums = &mut sums[..4 * blocks];
        self.fill(sums, sums_place_of(offset) + 4 * first as u64)?;
        self.fill(piece, place_of(offset))?;
        for (place, block) in piece.chunks(limits::BLOCK_BYTES).enumerate() {
            if crc32c::crc32c(block) != sum_of(sums, place) {
                return Err(CheckError::Damaged);
            }
        }
        Ok(())
    }

    fn fill(&self, buffer: &mut [u8], place: u64) -> Result<(), CheckError> {
        let count = self.file.read_up_to(buffer, place);
        match count.map_err(CheckError::Device)? {
            count if count == buffer.len() => Ok(()),
            _ => Err(CheckError::Damaged),
        }
    }
}

/// The block-aligned piece of content to read for `bytes` from `offset` on: where it begins, and
/// its length.
pub(super) fn aligned(offset: u64, bytes: usize, size_bytes: u64) -> (u64, usize) {
    let block = limits::BLOCK_BYTES as u64;
    let first = offset / block * block;
    let end = (offset.saturating_add(bytes as u64))
        .min(size_bytes)
        .next_multiple_of(block)
        .min(size_bytes);
    (first, end.saturating_sub(first) as usize)
}
