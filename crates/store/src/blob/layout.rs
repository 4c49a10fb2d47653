//! A content file, from its first byte:
//!
//! - a page of [`HEAD_BYTES`]: whose upload it is, written once, and two *marks*, each in a sector
//!   of its own. A mark says that the content up to an offset is on the device, with the checksum
//!   up to there; the newer one that is whole counts.
//! - groups: a page of [`SUMS_BYTES`] with the CRC32C of each block of the group, and the blocks.
//!   All groups but the last have [`GROUP_BYTES`] of content, all blocks but the last
//!   [`limits::BLOCK_BYTES`].
//!
//! All numbers are little-endian.

use super::limits;

/// Bytes of the first page.
pub(crate) const HEAD_BYTES: u64 = 4096;

/// Bytes of the page with the checksums of a group.
pub(crate) const SUMS_BYTES: usize = 4 * limits::GROUP_BLOCKS;

/// Bytes of content of a whole group.
pub(crate) const GROUP_BYTES: u64 = (limits::BLOCK_BYTES * limits::GROUP_BLOCKS) as u64;

/// Where the two marks stand.
pub(crate) const MARK_PLACES: [u64; 2] = [2048, 3072];

const MAGIC: [u8; 8] = *b"pelblob1";
pub(crate) const MARK_BYTES: usize = 44;
const IDENTITY_BYTES: usize = 2048;

/// Where a byte of content stands in the file.
pub(crate) fn place_of(offset: u64) -> u64 {
    HEAD_BYTES + (offset / GROUP_BYTES + 1) * SUMS_BYTES as u64 + offset
}

/// Where the checksums of the group with a byte of content stand.
pub(crate) fn sums_place_of(offset: u64) -> u64 {
    HEAD_BYTES + (offset / GROUP_BYTES) * (SUMS_BYTES as u64 + GROUP_BYTES)
}

/// The name of a content file.
pub(crate) fn file_name(number: u64) -> String {
    format!("{number:020}.blob")
}

/// The number of a content file; `None`: the file is none.
pub(crate) fn number_of(name: &str) -> Option<u64> {
    let number = name.strip_suffix(".blob")?.parse().ok()?;
    (file_name(number) == name).then_some(number)
}

/// Whose upload a file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UploadOwner {
    pub(crate) number: u64,
    pub(crate) database: u32,
    pub(crate) name: String,
    pub(crate) upload_id: Vec<u8>,
}

/// Up to where the content is on the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DurableMark {
    /// Marks are counted, so that the newer one can be told.
    pub(crate) count: u64,
    pub(crate) offset: u64,
    /// CRC32C of the content up to there.
    pub(crate) crc32c: u32,
    /// CRC32C of what the last block has up to there; 0 at the beginning of a block.
    pub(crate) block_crc32c: u32,
    /// When it was written, in milliseconds since 1970.
    pub(crate) touched_ms: u64,
    /// The last thing of all, written *before* what it describes was on the device: it counts only
    /// with a description. Without one the file is nothing: it was sealed and not described, or
    /// deleted, which a loss of power took back.
    pub(crate) is_sealed: bool,
}

impl UploadOwner {
    /// The first page, without marks.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut page = Vec::with_capacity(HEAD_BYTES as usize);
        page.extend_from_slice(&MAGIC);
        page.extend_from_slice(&[0; 4]);
        page.extend_from_slice(&self.number.to_le_bytes());
        page.extend_from_slice(&self.database.to_le_bytes());
        for text in [self.name.as_bytes(), &self.upload_id] {
            page.extend_from_slice(&(text.len() as u16).to_le_bytes());
            page.extend_from_slice(text);
        }
        debug_assert!(page.len() <= IDENTITY_BYTES, "names and ids are bounded");
        page.resize(IDENTITY_BYTES, 0);
        let checksum = crc32c::crc32c(&page[12..]);
        page[8..12].copy_from_slice(&checksum.to_le_bytes());
        page.resize(HEAD_BYTES as usize, 0);
        page
    }

    /// `None`: the page is none of ours, or was never written whole.
    pub(crate) fn decode(page: &[u8]) -> Option<UploadOwner> {
        let page = page.get(..IDENTITY_BYTES)?;
        let checksum = crc32c::crc32c(&page[12..]).to_le_bytes();
        if page[..8] != MAGIC || page[8..12] != checksum {
            return None;
        }
        let text = |at: usize| {
            let len = u16::from_le_bytes([*page.get(at)?, *page.get(at + 1)?]);
            page.get(at + 2..at + 2 + usize::from(len))
        };
        let name = text(24)?;
        let upload_id = text(26 + name.len())?;
        Some(UploadOwner {
            number: u64_at(page, 12),
            database: u32_at(page, 20),
            name: String::from_utf8(name.to_vec()).ok()?,
            upload_id: upload_id.to_vec(),
        })
    }
}

impl DurableMark {
    pub(crate) fn encode(&self) -> [u8; MARK_BYTES] {
        let mut bytes = [0; MARK_BYTES];
        bytes[4..12].copy_from_slice(&self.count.to_le_bytes());
        bytes[12..20].copy_from_slice(&self.offset.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.crc32c.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.block_crc32c.to_le_bytes());
        bytes[28..36].copy_from_slice(&self.touched_ms.to_le_bytes());
        bytes[36] = u8::from(self.is_sealed);
        let checksum = crc32c::crc32c(&bytes[4..]);
        bytes[..4].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<DurableMark> {
        let checksum = crc32c::crc32c(&bytes[4..MARK_BYTES]);
        let mark = DurableMark {
            count: u64_at(bytes, 4),
            offset: u64_at(bytes, 12),
            crc32c: u32_at(bytes, 20),
            block_crc32c: u32_at(bytes, 24),
            touched_ms: u64_at(bytes, 28),
            is_sealed: bytes[36] != 0,
        };
        (u32_at(bytes, 0) == checksum && mark.count > 0).then_some(mark)
    }

    /// The newer of the marks of a first page that are whole.
    pub(crate) fn newest_in(page: &[u8]) -> Option<DurableMark> {
        let mark_at =
            |place: u64| DurableMark::decode(page.get(place as usize..)?.get(..MARK_BYTES)?);
        let marks = MARK_PLACES.into_iter().filter_map(mark_at);
        marks.max_by_key(|mark| mark.count)
    }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(
        bytes[at..at + 8]
            .try_into()
            .expect("the slice has this length"),
    )
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(
        bytes[at..at + 4]
            .try_into()
            .expect("the slice has this length"),
    )
}

/// The checksum of a block.
pub(super) fn sum_of(sums: &[u8], block: usize) -> u32 {
    u32_at(sums, 4 * block)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> UploadOwner {
        UploadOwner {
            number: 42,
            database: 7,
            name: "n".repeat(limits::NAME_BYTES),
            upload_id: vec![9; limits::UPLOAD_ID_BYTES],
        }
    }

    #[test]
    fn a_first_page_reads_as_it_was_written_and_no_changed_byte_goes_unseen() {
        let mut page = identity().encode();
        assert_eq!(page.len() as u64, HEAD_BYTES);
        assert_eq!(UploadOwner::decode(&page), Some(identity()));
        assert_eq!(DurableMark::newest_in(&page), None);
        let mark = |count, is_sealed| DurableMark {
            count,
            offset: 1 << 33,
            crc32c: 5,
            block_crc32c: 6,
            touched_ms: 7,
            is_sealed,
        };
        for (place, mark) in MARK_PLACES.into_iter().zip([mark(8, false), mark(9, true)]) {
            page[place as usize..][..MARK_BYTES].copy_from_slice(&mark.encode());
        }
        assert_eq!(DurableMark::newest_in(&page), Some(mark(9, true)));
        for at in 0..IDENTITY_BYTES {
            page[at] ^= 1;
            assert_eq!(UploadOwner::decode(&page), None, "byte {at}");
            page[at] ^= 1;
        }
        for at in 0..MARK_BYTES {
            page[MARK_PLACES[1] as usize + at] ^= 1;
            assert_eq!(
                DurableMark::newest_in(&page),
                Some(mark(8, false)),
                "byte {at}"
            );
            page[MARK_PLACES[1] as usize + at] ^= 1;
        }
    }

    #[test]
    fn groups_follow_each_other() {
        assert_eq!(sums_place_of(0), 4096);
        assert_eq!(place_of(0), 8192);
        assert_eq!(place_of(GROUP_BYTES - 1) + 1, sums_place_of(GROUP_BYTES));
        assert_eq!(place_of(GROUP_BYTES), sums_place_of(GROUP_BYTES) + 4096);
        assert_eq!(number_of("00000000000000000042.blob"), Some(42));
        for other in [
            "42.blob",
            "00000000000000000042.log",
            "-0000000000000000042.blob",
        ] {
            assert_eq!(number_of(other), None, "{other}");
        }
    }
}
