//! Pages: what a snapshot file is made of.
//!
//! The file begins with a prelude of 16 bytes: `PeltnSnp`, the version of the format (2 bytes),
//! zeros. Then pages, each a head of 40 bytes, all numbers little-endian, and a body:
//!
//! | at | bytes | |
//! |---|---|---|
//! | 0 | 4 | CRC32C over the 36 bytes that follow |
//! | 4 | 4 | CRC32C over the body |
//! | 8 | 4 | bytes of the body |
//! | 12 | 4 | the checksum at 0 of the page before; for the first page CRC32C over the prelude |
//! | 16 | 8 | number of the page, from 0 |
//! | 24 | 4 | database, for a page of entries |
//! | 28 | 4 | entries in it |
//! | 32 | 1 | kind: 1 first, 2 catalogue, 3 entries, 4 closing |
//! | 33 | 7 | 0 |
//!
//! An entry is 22 bytes (version 8, expiry 8, length of the value 4, length of the key 2), the key,
//! the value.

use crate::value::{Entry, Value};

/// The version of the format of snapshots with databases on disk: the catalogue says which list of
/// tables each had.
pub const FORMAT_VERSION: u16 = 2;

/// The version before, without these lists. It is read, and written where no database is on disk.
pub(super) const FORMAT_VERSION_1: u16 = 1;

pub(super) const PRELUDE_BYTES: usize = 16;
pub(super) const HEAD_BYTES: usize = 40;
pub(crate) const ENTRY_BYTES: usize = 22;

const MAGIC: [u8; 8] = *b"PeltnSnp";

/// What a page holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum PageKind {
    First = 1,
    Catalogue = 2,
    Entries = 3,
    Closing = 4,
}

impl PageKind {
    fn from_number(number: u8) -> Option<PageKind> {
        use PageKind::*;
        [First, Catalogue, Entries, Closing]
            .into_iter()
            .find(|&kind| kind as u8 == number)
    }
}

/// The head of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageHead {
    pub(super) body_checksum: u32,
    pub(super) body_bytes: u32,
    pub(super) previous_checksum: u32,
    pub(super) number: u64,
    pub(super) database: u32,
    pub(super) entries: u32,
    pub(super) kind: PageKind,
}

impl PageHead {
    /// The head as it is written, and its checksum, which the next page repeats.
    pub(super) fn encode(&self) -> ([u8; HEAD_BYTES], u32) {
        let mut bytes = [0; HEAD_BYTES];
        bytes[4..8].copy_from_slice(&self.body_checksum.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.body_bytes.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.previous_checksum.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.number.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.database.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.entries.to_le_bytes());
        bytes[32] = self.kind as u8;
        let checksum = crc32c::crc32c(&bytes[4..]);
        bytes[..4].copy_from_slice(&checksum.to_le_bytes());
        (bytes, checksum)
    }

    /// Reads a head whose checksum must be right; gives that too.
    pub(super) fn decode(bytes: &[u8; HEAD_BYTES]) -> Result<(PageHead, u32), &'static str> {
        let checksum = u32_at(bytes, 0);
        if crc32c::crc32c(&bytes[4..]) != checksum {
            return Err("the checksum of a page is wrong");
        }
        if bytes[33..].iter().any(|&byte| byte != 0) {
            return Err("a page has an unknown mark");
        }
        let kind = PageKind::from_number(bytes[32]).ok_or("a page is of an unknown kind")?;
        let head = PageHead {
            body_checksum: u32_at(bytes, 4),
            body_bytes: u32_at(bytes, 8),
            previous_checksum: u32_at(bytes, 12),
            number: u64_at(bytes, 16),
            database: u32_at(bytes, 24),
            entries: u32_at(bytes, 28),
            kind,
        };
        Ok((head, checksum))
    }
}

/// What every file begins with.
pub(super) fn prelude(version: u16) -> [u8; PRELUDE_BYTES] {
    let mut bytes = [0; PRELUDE_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..10].copy_from_slice(&version.to_le_bytes());
    bytes
}

/// Why some bytes are not the prelude of a file that this version reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoPrelude {
    Version(u16),
    Other,
}

/// Returns the version of the format of a file that begins so.
pub(super) fn check_prelude(bytes: &[u8]) -> Result<u16, NoPrelude> {
    if bytes.len() != PRELUDE_BYTES || bytes[..8] != MAGIC || bytes[10..] != [0; 6] {
        return Err(NoPrelude::Other);
    }
    match u16::from_le_bytes([bytes[8], bytes[9]]) {
        version @ (FORMAT_VERSION_1 | FORMAT_VERSION) => Ok(version),
        version => Err(NoPrelude::Version(version)),
    }
}

/// Adds all of an entry but the bytes of its value.
pub(super) fn encode_entry_head(entry: &Entry<'_>, out: &mut Vec<u8>) {
    let value_len =
        u32::try_from(entry.value.len()).expect("values are bounded by the store's limits");
    let key_len = u16::try_from(entry.key.len()).expect("keys are bounded by the store's limits");
    let mut head = [0; ENTRY_BYTES];
    head[0..8].copy_from_slice(&entry.version.to_le_bytes());
    head[8..16].copy_from_slice(&entry.expires_ms.to_le_bytes());
    head[16..20].copy_from_slice(&value_len.to_le_bytes());
    head[20..22].copy_from_slice(&key_len.to_le_bytes());
    out.extend_from_slice(&head);
    out.extend_from_slice(entry.key);
}

/// Takes the first entry off a body.
pub(super) fn decode_entry<'a>(bytes: &mut &'a [u8]) -> Option<Entry<'a>> {
    let (head, rest) = bytes.split_at_checked(ENTRY_BYTES)?;
    let (key_len, value_len) = (
        usize::from(u16::from_le_bytes([head[20], head[21]])),
        u32_at(head, 16) as usize,
    );
    let (key, rest) = rest.split_at_checked(key_len)?;
    let (value, rest) = rest.split_at_checked(value_len)?;
    *bytes = rest;
    Some(Entry {
        key,
        value: Value::Inline(value),
        version: u64_at(head, 0),
        expires_ms: u64_at(head, 8),
    })
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, at))
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N]
        .try_into()
        .expect("the slice was cut to this length")
}
