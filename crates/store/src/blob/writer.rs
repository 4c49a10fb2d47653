//! Writing a content file, so that it can be gone on with after a crash at any time.

use std::io;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use wal::disk::DiskFile;

use super::layout::{
    GROUP_BYTES, HEAD_BYTES, Identity, MARK_PLACES, Mark, SUMS_BYTES, place_of, sums_place_of,
    u32_at,
};
use super::limits;
use super::reader::ContentFile;
use super::walk::CheckError;
use crate::descriptors::DescriptorPermit;

/// A content file that grows.
#[derive(Debug)]
pub(super) struct ContentWriter {
    file: Arc<dyn DiskFile>,
    /// Up to here everything is written.
    offset: u64,
    crc32c: u32,
    /// CRC32C of what the last block has; 0 at the beginning of a block.
    block_crc32c: u32,
    /// The checksums of the group that is written.
    sums: Box<[u8]>,
    /// The last mark.
    mark: Mark,
    is_sealed: bool,
    /// A mark that sealed and does not count any more is still to be overwritten.
    has_old_seal: bool,
    /// What was before a chunk that is written and not complete: it may turn out not to be what was sent.
    open: Option<Box<OpenChunk>>,
    /// For its descriptor.
    permit: Option<DescriptorPermit>,
}

/// A chunk of which some is written.
#[derive(Debug)]
struct OpenChunk {
    /// Its own, as far as it is written.
    crc32c: u32,
    /// The others are what [`ContentWriter`] had where it begins.
    before: Place,
    sums: Box<[u8]>,
}

/// How far content is written.
#[derive(Clone, Copy, Debug)]
struct Place {
    offset: u64,
    crc32c: u32,
    block_crc32c: u32,
}

/// What is on the device once the file is synced.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending(Mark);

impl ContentWriter {
    /// Begins an empty file.
    pub(super) fn begin(file: Arc<dyn DiskFile>, identity: &Identity) -> io::Result<ContentWriter> {
        // With the page for the checksums of the first group.
        let mut head = identity.encode();
        head.resize(head.len() + SUMS_BYTES, 0);
        file.write_all_at(&head, 0)?;
        Ok(ContentWriter {
            file,
            offset: 0,
            crc32c: 0,
            block_crc32c: 0,
            sums: vec![0; SUMS_BYTES].into(),
            mark: Mark::default(),
            is_sealed: false,
            has_old_seal: false,
            open: None,
            permit: None,
        })
    }

    /// Goes on where the last mark stands.
    pub(super) fn resume(file: Arc<dyn DiskFile>) -> io::Result<ContentWriter> {
        let mut page = vec![0; HEAD_BYTES as usize];
        file.read_up_to(&mut page, 0)?;
        let mark = Mark::newest_in(&page).filter(|mark| !mark.is_sealed);
        let mark = mark.ok_or(io::ErrorKind::InvalidData)?;
        let mut sums = vec![0; SUMS_BYTES];
        // At the end of a group the next page of checksums has not been begun.
        if !mark.offset.is_multiple_of(GROUP_BYTES) {
            file.read_up_to(&mut sums, sums_place_of(mark.offset))?;
        }
        Ok(ContentWriter {
            file,
            offset: mark.offset,
            crc32c: mark.crc32c,
            block_crc32c: mark.block_crc32c,
            sums: sums.into(),
            mark,
            is_sealed: false,
            has_old_seal: false,
            open: None,
            permit: None,
        })
    }

    /// Reads what the last mark speaks of, and fails with [`io::ErrorKind::InvalidData`] unless it is what was written.
    pub(super) fn verify(file: &Arc<dyn DiskFile>) -> io::Result<()> {
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, "what was stored is damaged");
        let mut page = vec![0; HEAD_BYTES as usize];
        file.read_up_to(&mut page, 0)?;
        let mark = Mark::newest_in(&page).ok_or_else(damaged)?;
        let in_block = (mark.offset % limits::BLOCK_BYTES as u64) as usize;
        let whole_bytes = mark.offset - in_block as u64;
        let content = ContentFile::new(Arc::clone(file), whole_bytes);
        let mut buffer = vec![0; limits::CHECK_BYTES];
        let (mut offset, mut crc32c) = (0, 0);
        while offset < whole_bytes {
            let wanted = (whole_bytes - offset).min(buffer.len() as u64) as usize;
            let piece = &mut buffer[..wanted];
            content.read(offset, piece).map_err(|error| match error {
                CheckError::Damaged => damaged(),
                CheckError::Device(source) => source,
            })?;
            crc32c = crc32c::crc32c_append(crc32c, piece);
            offset += wanted as u64;
        }
        // The checksum of this block in the file may be that of more of it.
        let piece = &mut buffer[..in_block];
        let count = file.read_up_to(piece, place_of(offset))?;
        let is_whole = count == in_block
            && crc32c::crc32c(piece) == mark.block_crc32c
            && crc32c::crc32c_append(crc32c, piece) == mark.crc32c;
        is_whole.then_some(()).ok_or_else(damaged)
    }

    /// Charges its descriptor for as long as it lives.
    pub(super) fn charge(mut self, permit: DescriptorPermit) -> ContentWriter {
        self.permit = Some(permit);
        self
    }

    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Up to where whole chunks are written.
    pub(super) fn settled_offset(&self) -> u64 {
        self.settled().offset
    }

    /// The checksum of the chunk of which some is written; `None`: all are whole.
    pub(super) fn open_crc32c(&self) -> Option<u32> {
        self.open.as_ref().map(|open| open.crc32c)
    }

    /// Adds some of a chunk, to be settled or taken back. Otherwise as [`ContentWriter::append`].
    pub(super) fn append_open(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.open.is_none() {
            self.open = Some(Box::new(OpenChunk {
                crc32c: 0,
                before: self.settled(),
                sums: self.sums.clone(),
            }));
        }
        self.append(bytes)?;
        if let Some(open) = &mut self.open {
            open.crc32c = crc32c::crc32c_append(open.crc32c, bytes);
        }
        Ok(())
    }

    /// What is written is whole.
    pub(super) fn settle(&mut self) {
        self.open = None;
    }

    /// Forgets what is written of a chunk that is not whole; returns how many bytes.
    pub(super) fn take_back(&mut self) -> u64 {
        let Some(open) = self.open.take() else {
            return 0;
        };
        let OpenChunk { before, sums, .. } = *open;
        let bytes = self.offset - before.offset;
        self.offset = before.offset;
        self.crc32c = before.crc32c;
        self.block_crc32c = before.block_crc32c;
        self.sums = sums;
        bytes
    }

    fn settled(&self) -> Place {
        let written = Place {
            offset: self.offset,
            crc32c: self.crc32c,
            block_crc32c: self.block_crc32c,
        };
        self.open.as_ref().map_or(written, |open| open.before)
    }

    pub(super) fn crc32c(&self) -> u32 {
        self.crc32c
    }

    /// Bytes of whole chunks behind the last mark.
    pub(super) fn unmarked_bytes(&self) -> u64 {
        self.settled_offset() - self.mark.offset
    }

    /// Adds content. After an error everything is as before, and it can be tried again.
    ///
    /// What a mark needs has its room in the file before the content that it speaks of: on a full disk what was stored can
    /// still be marked.
    pub(super) fn append(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            if self.offset > 0 && self.offset.is_multiple_of(GROUP_BYTES) {
                (self.file).write_all_at(&[0; SUMS_BYTES], sums_place_of(self.offset))?;
            }
            let in_group = usize::try_from(GROUP_BYTES - self.offset % GROUP_BYTES).expect("small");
            let (piece, rest) = bytes.split_at(bytes.len().min(in_group));
            let mut place = place_of(self.offset);
            for part in piece.chunks(limits::WRITE_BYTES) {
                self.file.write_all_at(part, place)?;
                place += part.len() as u64;
            }
            let before = (self.offset, self.crc32c, self.block_crc32c);
            self.count(piece);
            if self.offset.is_multiple_of(GROUP_BYTES)
                && let Err(error) =
                    (self.file).write_all_at(&self.sums, sums_place_of(self.offset - 1))
            {
                (self.offset, self.crc32c, self.block_crc32c) = before;
                return Err(error);
            }
            bytes = rest;
        }
        Ok(())
    }

    /// Takes a piece of a group into the checksums.
    fn count(&mut self, piece: &[u8]) {
        let mut rest = piece;
        while !rest.is_empty() {
            let in_block = (self.offset % limits::BLOCK_BYTES as u64) as usize;
            let (part, behind) = rest.split_at(rest.len().min(limits::BLOCK_BYTES - in_block));
            self.block_crc32c = crc32c::crc32c_append(self.block_crc32c, part);
            let block = (self.offset % GROUP_BYTES) as usize / limits::BLOCK_BYTES;
            self.sums[4 * block..][..4].copy_from_slice(&self.block_crc32c.to_le_bytes());
            self.offset += part.len() as u64;
            if self.offset.is_multiple_of(limits::BLOCK_BYTES as u64) {
                self.block_crc32c = 0;
            }
            rest = behind;
        }
        self.crc32c = crc32c::crc32c_append(self.crc32c, piece);
    }

    /// Writes what a mark needs beside the content. After a sync of the [file](ContentWriter::file) that begins now or
    /// later, [`set_mark`](ContentWriter::set_mark) may follow.
    pub(super) fn prepare_mark(&mut self, now_ms: u64) -> io::Result<Pending> {
        self.write_sums()?;
        Ok(Pending(self.next_mark(now_ms)))
    }

    pub(super) fn file(&self) -> Arc<dyn DiskFile> {
        Arc::clone(&self.file)
    }

    /// Marks what is on the device. The mark itself need not be: without it the one before counts.
    pub(super) fn set_mark(&mut self, Pending(mark): Pending) -> io::Result<()> {
        // Another one may have been faster, and a sealed file is complete.
        if self.is_sealed || mark.offset < self.mark.offset {
            return Ok(());
        }
        let mark = Mark {
            count: self.mark.count + 1,
            ..mark
        };
        self.write_mark(&mark)?;
        self.mark = mark;
        self.has_old_seal = false;
        Ok(())
    }

    /// Makes everything durable, and marks it.
    pub(super) fn checkpoint(&mut self, now_ms: u64) -> io::Result<()> {
        if self.unmarked_bytes() == 0 && self.mark.count > 0 && !self.has_old_seal {
            return Ok(());
        }
        let pending = self.prepare_mark(now_ms)?;
        // Not to be taken for a write that found no room, behind which what was written before is as it was.
        self.file.sync().map_err(io::Error::other)?;
        self.set_mark(pending)
    }

    /// Up to where it could be gone on with without a further mark.
    pub(super) fn marked_bytes(&self) -> Option<u64> {
        (self.mark.count > 0 && !self.has_old_seal).then_some(self.mark.offset)
    }

    /// Makes the whole file durable. Only with a description does that count.
    pub(super) fn seal(&mut self, now_ms: u64) -> io::Result<()> {
        self.prepare_seal(now_ms)?;
        self.file.sync()
    }

    /// Writes what makes the file whole; the [file](ContentWriter::file) is to be synced behind it.
    pub(super) fn prepare_seal(&mut self, now_ms: u64) -> io::Result<()> {
        debug_assert!(self.open.is_none(), "an end follows whole chunks");
        self.write_sums()?;
        let mark = Mark {
            is_sealed: true,
            ..self.next_mark(now_ms)
        };
        // In the place of the older one: the one that counts until then stays.
        self.write_mark(&mark)?;
        self.is_sealed = true;
        Ok(())
    }

    /// It was not to be: more may follow.
    pub(super) fn unseal(&mut self) {
        self.is_sealed = false;
        self.has_old_seal = true;
    }

    /// SHA-256 of everything, read again.
    pub(super) fn sha256(&self) -> io::Result<[u8; 32]> {
        let mut hasher = Sha256::new();
        let mut buffer = vec![0; limits::CHECK_BYTES];
        let mut offset = 0;
        while offset < self.offset {
            let in_group = GROUP_BYTES - offset % GROUP_BYTES;
            let wanted = in_group.min(self.offset - offset).min(buffer.len() as u64) as usize;
            let count = self
                .file
                .read_up_to(&mut buffer[..wanted], place_of(offset))?;
            if count < wanted {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            hasher.update(&buffer[..count]);
            offset += count as u64;
        }
        Ok(hasher.finalize().into())
    }

    fn write_sums(&self) -> io::Result<()> {
        // Those of a whole group are written.
        if self.offset.is_multiple_of(GROUP_BYTES) {
            return Ok(());
        }
        let block = ((self.offset - 1) % GROUP_BYTES) as usize / limits::BLOCK_BYTES;
        let sums = &self.sums[..4 * (block + 1)];
        self.file.write_all_at(sums, sums_place_of(self.offset))
    }

    fn next_mark(&self, now_ms: u64) -> Mark {
        let settled = self.settled();
        Mark {
            count: self.mark.count + 1,
            offset: settled.offset,
            crc32c: settled.crc32c,
            block_crc32c: settled.block_crc32c,
            touched_ms: now_ms,
            is_sealed: false,
        }
    }

    fn write_mark(&self, mark: &Mark) -> io::Result<()> {
        let place = MARK_PLACES[(mark.count % 2) as usize];
        self.file.write_all_at(&mark.encode(), place)
    }
}

/// The checksum of a block.
pub(super) fn sum_of(sums: &[u8], block: usize) -> u32 {
    u32_at(sums, 4 * block)
}
