//! What the log is made of: records of numbers and bytes. Only their sequences and lengths mean
//! something here.
//!
//! A record is 32 bytes, all numbers little-endian, then its key, then its value:
//!
//! | at | bytes | |
//! |---|---|---|
//! | 0 | 8 | sequence of the commit |
//! | 8 | 8 | expiry, in milliseconds since 1970; 0: none |
//! | 16 | 4 | length of the value |
//! | 20 | 4 | database |
//! | 24 | 4 | server from which the commit comes |
//! | 28 | 2 | length of the key |
//! | 30 | 1 | kind |
//! | 31 | 1 | 0 |

use std::fmt;

use super::bytes::{u16_at, u32_at, u64_at};

/// Bytes of a record beside its key and value.
pub const RECORD_BYTES: usize = 32;

/// One record: numbers and bytes, whose meaning is the caller's.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RawRecord<'a> {
    /// The sequence of its commit; all records of a commit have the same one.
    pub sequence: u64,
    /// The number of a database.
    pub database: u32,
    /// The server on which the commit was made; 0: this one.
    pub origin: u32,
    /// The number of what has happened. The log itself writes [marks](RawRecord::MARK).
    pub kind: u8,
    /// When a key that was set expires, in milliseconds since 1970; 0: never.
    pub expires_ms: u64,
    /// The key; at most 65 535 bytes.
    pub key: &'a [u8],
    /// The value; fewer than 2^32 bytes.
    pub value: &'a [u8],
}

impl<'a> RawRecord<'a> {
    /// The kind of a record with nothing but a sequence, which the log writes itself.
    pub const MARK: u8 = 7;

    /// A mark at a sequence: nothing happened, and the bound on sequences that may be given out
    /// rises.
    pub fn mark(sequence: u64) -> RawRecord<'static> {
        RawRecord {
            sequence,
            database: 0,
            origin: 0,
            kind: RawRecord::MARK,
            expires_ms: 0,
            key: &[],
            value: &[],
        }
    }

    /// Bytes it takes in the log.
    pub fn encoded_bytes(&self) -> usize {
        RECORD_BYTES + self.key.len() + self.value.len()
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.reserve(self.encoded_bytes());
        self.encode_head(out);
        out.extend_from_slice(self.value);
    }

    /// Appends all but the value.
    pub(super) fn encode_head(&self, out: &mut Vec<u8>) {
        let key_len =
            u16::try_from(self.key.len()).expect("keys are bounded by the store's limits");
        let value_len =
            u32::try_from(self.value.len()).expect("values are bounded by the store's limits");
        let mut head = [0; RECORD_BYTES];
        head[0..8].copy_from_slice(&self.sequence.to_le_bytes());
        head[8..16].copy_from_slice(&self.expires_ms.to_le_bytes());
        head[16..20].copy_from_slice(&value_len.to_le_bytes());
        head[20..24].copy_from_slice(&self.database.to_le_bytes());
        head[24..28].copy_from_slice(&self.origin.to_le_bytes());
        head[28..30].copy_from_slice(&key_len.to_le_bytes());
        head[30] = self.kind;
        out.extend_from_slice(&head);
        out.extend_from_slice(self.key);
    }

    /// Takes the first record off `bytes`, which are not empty.
    pub(super) fn decode(bytes: &mut &'a [u8]) -> Result<RawRecord<'a>, RecordError> {
        let (head, rest) = bytes
            .split_at_checked(RECORD_BYTES)
            .ok_or(RecordError::CutShort)?;
        if head[31] != 0 {
            return Err(RecordError::Reserved);
        }
        let (key_len, value_len) = (u16_at(head, 28) as usize, u32_at(head, 16) as usize);
        let (key, rest) = rest
            .split_at_checked(key_len)
            .ok_or(RecordError::CutShort)?;
        let (value, rest) = rest
            .split_at_checked(value_len)
            .ok_or(RecordError::CutShort)?;
        *bytes = rest;
        Ok(RawRecord {
            sequence: u64_at(head, 0),
            expires_ms: u64_at(head, 8),
            database: u32_at(head, 20),
            origin: u32_at(head, 24),
            kind: head[30],
            key,
            value,
        })
    }
}

impl fmt::Debug for RawRecord<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("RawRecord")
            .field("sequence", &self.sequence)
            .field("database", &self.database)
            .field("kind", &self.kind)
            .field("key", &self.key.escape_ascii().to_string())
            .field("value_bytes", &self.value.len())
            .field("expires_ms", &self.expires_ms)
            .finish_non_exhaustive()
    }
}

/// What is wrong with a record in a group whose checksum is right: it was written by another
/// version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// A kind that the reader does not know.
    #[error("a record of unknown kind {0}")]
    Kind(u8),
    /// A byte that must be 0 is not.
    #[error("a record with an unknown mark")]
    Reserved,
    /// It is longer than its group.
    #[error("a record longer than its group")]
    CutShort,
    /// Its sequence is not among those of its group, or less than the one before.
    #[error("a record with a sequence out of order")]
    Sequence,
    /// There are more, or fewer, than the group says.
    #[error("another number of records than announced")]
    Count,
}
