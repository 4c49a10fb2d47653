//! Writing a content file, so that it can be gone on with after a crash at any time.

use std::io;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use wal::disk::DiskFile;

use super::check_error::CheckError;
use super::layout::{
    DurableMark, GROUP_BYTES, HEAD_BYTES, MARK_PLACES, SUMS_BYTES, UploadOwner, place_of,
    sums_place_of,
};
use super::limits;
use super::reader::ContentFile;
use crate::descriptor_budget::DescriptorPermit;

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
    mark: DurableMark,
    is_sealed: bool,
    /// A mark that sealed and does not count any more is still to be overwritten.
    has_old_seal: bool,
    /// What was before a chunk that is written and not complete: it may turn out not to be what was
    /// sent.
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
    before: WritePosition,
    sums: Box<[u8]>,
}

/// How far content is written.
#[derive(Clone, Copy, Debug)]
struct WritePosition {
    offset: u64,
    crc32c: u32,
    block_crc32c: u32,
}

impl WritePosition {
    /// Puts the checksum of a block that is not full among those of its group.
    fn note_last_block(&self, sums: &mut [u8]) {
        if !self.offset.is_multiple_of(limits::BLOCK_BYTES as u64) {
            let block = (self.offset % GROUP_BYTES) as usize / limits::BLOCK_BYTES;
            sums[4 * block..][..4].copy_from_slice(&self.block_crc32c.to_le_bytes());
        }
    }
}

/// What is on the device once the file is synced.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingMark(DurableMark);

impl ContentWriter {
    /// Begins an empty file.
    pub(super) fn begin(
        file: Arc<dyn DiskFile>,
        identity: &UploadOwner,
    ) -> io::Result<ContentWriter> {
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
            mark: DurableMark::default(),
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
        let mark = DurableMark::newest_in(&page).filter(|mark| !mark.is_sealed);
        let mark = mark.ok_or(io::ErrorKind::InvalidData)?;
        let mut sums = vec![0; SUMS_BYTES];
        // At the end of a group the next page of checksums has not been begun.
        if !mark.offset.is_multiple_of(GROUP_BYTES) {
            file.read_up_to(&mut sums, sums_place_of(mark.offset))?;
        }
        let place = WritePosition {
            offset: mark.offset,
            crc32c: mark.crc32c,
            block_crc32c: mark.block_crc32c,
        };
        // In the file it may be that of more of the block: of a chunk that was not complete.
        place.note_last_block(&mut sums);
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

    /// Reads what the last mark describes, and fails with [`io::ErrorKind::InvalidData`] unless it
    /// is what was written.
    pub(super) fn verify(file: &Arc<dyn DiskFile>) -> io::Result<()> {
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, "what was stored is damaged");
        let mut page = vec![0; HEAD_BYTES as usize];
        file.read_up_to(&mut page, 0)?;
        let mark = DurableMark::newest_in(&page).ok_or_else(damaged)?;
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
        self.go_back_to(before, sums);
        bytes
    }

    fn written(&self) -> WritePosition {
        WritePosition {
            offset: self.offset,
            crc32c: self.crc32c,
            block_crc32c: self.block_crc32c,
        }
    }

    fn settled(&self) -> WritePosition {
        (self.open.as_ref()).map_or_else(|| self.written(), |open| open.before)
    }

    fn go_back_to(&mut self, place: WritePosition, sums: Box<[u8]>) {
        self.offset = place.offset;
        self.crc32c = place.crc32c;
        self.block_crc32c = place.block_crc32c;
        self.sums = sums;
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
    /// What a mark needs has its room in the file before the content that it describes: on a full
    /// disk what was stored can still be marked.
    pub(super) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let in_group = GROUP_BYTES - self.offset % GROUP_BYTES;
        if (bytes.len() as u64) < in_group {
            // Nothing is counted before it is written.
            return self.append_in_group(bytes);
        }
        let (before, sums) = (self.written(), self.sums.clone());
        let appended = self.append_groups(bytes);
        if appended.is_err() {
            self.go_back_to(before, sums);
        }
        appended
    }

    /// Adds content that ends a group or more. An error leaves a part of it.
    fn append_groups(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let in_group = usize::try_from(GROUP_BYTES - self.offset % GROUP_BYTES).expect("small");
            let (piece, rest) = bytes.split_at(bytes.len().min(in_group));
            self.append_in_group(piece)?;
            if self.offset.is_multiple_of(GROUP_BYTES) {
                (self.file).write_all_at(&self.sums, sums_place_of(self.offset - 1))?;
            }
            bytes = rest;
        }
        Ok(())
    }

    /// Adds content of which all is in one group.
    fn append_in_group(&mut self, piece: &[u8]) -> io::Result<()> {
        if self.offset > 0 && self.offset.is_multiple_of(GROUP_BYTES) {
            (self.file).write_all_at(&[0; SUMS_BYTES], sums_place_of(self.offset))?;
        }
        let mut place = place_of(self.offset);
        for part in piece.chunks(limits::WRITE_BYTES) {
            self.file.write_all_at(part, place)?;
            place += part.len() as u64;
        }
        self.count(piece);
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

    /// Writes what a mark needs beside the content. After a sync of the [file](ContentWriter::file)
    /// that begins now or later, [`set_mark`](ContentWriter::set_mark) may follow.
    pub(super) fn prepare_mark(&mut self, now_ms: u64) -> io::Result<PendingMark> {
        self.write_sums()?;
        Ok(PendingMark(self.next_mark(now_ms)))
    }

    pub(super) fn file(&self) -> Arc<dyn DiskFile> {
        Arc::clone(&self.file)
    }

    /// Marks what is on the device. The mark itself need not be: without it the one before counts.
    pub(super) fn set_mark(&mut self, PendingMark(mark): PendingMark) -> io::Result<()> {
        // Another one may have been faster, and a sealed file is complete.
        if self.is_sealed || mark.offset < self.mark.offset {
            return Ok(());
        }
        let mark = DurableMark {
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
        // Not to be taken for a write that found no room, behind which what was written before is
        // as it was.
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
        let mark = DurableMark {
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

    fn next_mark(&self, now_ms: u64) -> DurableMark {
        let settled = self.settled();
        DurableMark {
            count: self.mark.count + 1,
            offset: settled.offset,
            crc32c: settled.crc32c,
            block_crc32c: settled.block_crc32c,
            touched_ms: now_ms,
            is_sealed: false,
        }
    }

    fn write_mark(&self, mark: &DurableMark) -> io::Result<()> {
        let place = MARK_PLACES[(mark.count % 2) as usize];
        self.file.write_all_at(&mark.encode(), place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::simulated_disk;
    use wal::disk::{Disk as _, Fault, SimulatedDisk, Step};

    const MIB: usize = 1 << 20;

    fn begin(disk: &SimulatedDisk) -> (Arc<dyn DiskFile>, ContentWriter) {
        let file = disk.create("content").expect("an empty disk");
        let identity = UploadOwner {
            number: 1,
            database: 0,
            name: "name".into(),
            upload_id: b"id".to_vec(),
        };
        let writer = ContentWriter::begin(Arc::clone(&file), &identity).expect("there is room");
        (file, writer)
    }

    /// Seals the file and reads all of it.
    fn read_sealed(mut writer: ContentWriter, file: Arc<dyn DiskFile>) -> Vec<u8> {
        writer.seal(2).expect("the disk is whole");
        let mut content = vec![0; writer.offset() as usize];
        let reader = ContentFile::new(file, writer.offset());
        for (number, piece) in content.chunks_mut(MIB).enumerate() {
            let read = reader.read((number * MIB) as u64, piece);
            read.unwrap_or_else(|_| panic!("piece {number} is damaged"));
        }
        content
    }

    /// Each write of the call fails once: of the content, the checksums of the group that ends,
    /// those of the next, and what is behind; twice, and then it succeeds.
    #[test]
    fn an_append_that_fails_behind_the_end_of_a_group_leaves_nothing() {
        let group = GROUP_BYTES as usize;
        let content: Vec<u8> = (0..group + 3 * MIB).map(|at| (at / 1000) as u8).collect();
        let first = group - 1000;
        for (is_open, failing_writes) in [(false, 0..4), (true, 0..4)] {
            let disk = simulated_disk(1);
            let (file, mut writer) = begin(&disk);
            for piece in content[..first].chunks(MIB) {
                writer.append(piece).expect("there is room");
            }
            writer.settle();
            let last = &content[first..first + 5000];
            for write in failing_writes {
                let (before, sums) = (writer.written(), writer.sums.clone());
                disk.plan_next(Step::Write, write, Fault::Full);
                let appended = match is_open {
                    true => writer.append_open(last),
                    false => writer.append(last),
                };
                appended.expect_err("planned");
                assert_eq!(writer.offset(), before.offset, "write {write}");
                assert_eq!(writer.crc32c(), before.crc32c, "write {write}");
                assert_eq!(writer.sums, sums, "write {write}");
                assert_eq!(writer.take_back(), 0, "write {write}");
                writer.checkpoint(1).expect("it has its room");
            }
            for piece in content[first..].chunks(4000) {
                writer.append(piece).expect("there is room");
            }
            assert!(read_sealed(writer, file) == content);
        }
    }

    /// The checksums in the file are those of a chunk that was taken back since.
    #[test]
    fn an_upload_goes_on_behind_a_chunk_that_was_not_complete() {
        for whole_bytes in [1, 1000, limits::BLOCK_BYTES, limits::BLOCK_BYTES + 1] {
            let disk = simulated_disk(1);
            let (file, mut writer) = begin(&disk);
            let mut content = vec![1; whole_bytes];
            writer.append(&content).expect("there is room");
            writer.settle();
            for _ in 0..2 {
                writer.append_open(&[2; 500]).expect("there is room");
                let pending = writer.prepare_mark(1).expect("there is room");
                writer.file().sync().expect("the disk is whole");
                writer.set_mark(pending).expect("it has its room");
                assert_eq!(writer.take_back(), 500);
                writer.checkpoint(1).expect("it has its room");
                drop(writer);
                ContentWriter::verify(&file).expect("it is what was written");
                writer = ContentWriter::resume(Arc::clone(&file)).expect("there is a mark");
                assert_eq!(writer.offset(), content.len() as u64);
            }
            // Sealed as it stands, and with more behind.
            if whole_bytes == 1000 {
                writer.append(&[3; 10]).expect("there is room");
                content.extend([3; 10]);
            }
            assert!(read_sealed(writer, file) == content, "{whole_bytes}");
        }
    }
}
