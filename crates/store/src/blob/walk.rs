//! A walk through a content that checks everything and may copy it.

use std::sync::Arc;

use wal::disk::DiskFile;

use super::check_error::CheckError;
use super::layout::{
    DurableMark, GROUP_BYTES, HEAD_BYTES, MARK_BYTES, MARK_PLACES, SUMS_BYTES, UploadOwner,
    sums_place_of,
};
use super::limits;
use super::reader::ContentFile;
use super::writer::ContentWriter;

/// Fails unless a file that was written in one go has nothing but its head, its checksums and the
/// content, each in its place. The content itself is for a [walk](ContentWalk).
pub(crate) fn check_form(
    file: &dyn DiskFile,
    number: u64,
    size_bytes: u64,
    crc32c: u32,
) -> Result<(), CheckError> {
    let mut head = vec![0; HEAD_BYTES as usize];
    let is_whole = file.read_up_to(&mut head, 0)? == head.len();
    let identity =
        UploadOwner::decode(&head).filter(|identity| is_whole && identity.number == number);
    let identity = identity.ok_or(CheckError::Damaged)?;
    let seal = DurableMark::newest_in(&head)
        .filter(|mark| mark.is_sealed && (mark.offset, mark.crc32c) == (size_bytes, crc32c));
    seal.ok_or(CheckError::Damaged)?;
    // Whatever is neither the identity nor a mark is zero.
    let mut expected = identity.encode();
    for place in MARK_PLACES {
        let place = place as usize..place as usize + MARK_BYTES;
        let mark = &head[place.clone()];
        if DurableMark::decode(mark).is_some() {
            expected[place].copy_from_slice(mark);
        }
    }
    let in_group = match size_bytes % GROUP_BYTES {
        0 if size_bytes > 0 => GROUP_BYTES,
        in_group => in_group,
    };
    let blocks = in_group.div_ceil(limits::BLOCK_BYTES as u64) as usize;
    let mut sums = vec![0; SUMS_BYTES];
    let sums_place = sums_place_of(size_bytes.saturating_sub(1));
    let has_sums = file.read_up_to(&mut sums, sums_place)? == sums.len();
    let is_zero = sums[4 * blocks..].iter().all(|&byte| byte == 0);
    let end = sums_place + SUMS_BYTES as u64 + in_group;
    match head == expected && has_sums && is_zero && file.len()? == end {
        true => Ok(()),
        false => Err(CheckError::Damaged),
    }
}

/// A walk from the first byte of a content to the last.
#[derive(Debug)]
pub(crate) struct ContentWalk {
    source: ContentFile,
    size_bytes: u64,
    expected: u32,
    offset: u64,
    crc32c: u32,
    buffer: Vec<u8>,
    copy: Option<ContentWriter>,
}

impl ContentWalk {
    /// Begins one through a file that must have this number, size and checksum, perhaps into an
    /// empty file.
    pub(crate) fn new(
        source: Arc<dyn DiskFile>,
        target: Option<Arc<dyn DiskFile>>,
        number: u64,
        size_bytes: u64,
        crc32c: u32,
    ) -> Result<ContentWalk, CheckError> {
        let mut page = vec![0; HEAD_BYTES as usize];
        source.read_up_to(&mut page, 0)?;
        let identity = UploadOwner::decode(&page).filter(|identity| identity.number == number);
        let identity = identity.ok_or(CheckError::Damaged)?;
        let begin = |target| ContentWriter::begin(target, &identity);
        Ok(ContentWalk {
            source: ContentFile::new(source, size_bytes),
            size_bytes,
            expected: crc32c,
            offset: 0,
            crc32c: 0,
            buffer: vec![0; limits::CHECK_BYTES],
            copy: target.map(begin).transpose()?,
        })
    }

    /// Does a little. Answers of how many bytes, or `None` if everything is well and, where there
    /// is a copy, that is durable but for its name.
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
