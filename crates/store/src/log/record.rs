//! What the log is made of: results of operations, one for each key that a commit changed.
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
use crate::catalogue::DatabaseId;
use crate::value::{Entry, Value};

/// Bytes of a record beside its key and value.
pub const RECORD_BYTES: usize = 32;

/// What a record says has happened.
///
/// Numbers from 32 on are set aside for request ids (32), leases (33), deleted ranges (34) and blobs (35 to 39). A reader
/// refuses what it does not know, since to pass over it would be to lose it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum RecordKind {
    /// The key has this value and expiry now.
    Set = 1,
    /// A commit removed the key.
    Delete = 2,
    /// The key's time had come; it is removed.
    Expire = 3,
    /// The database is empty now. Has no key.
    Clear = 4,
    /// A database was made: the key is its name, the value its configuration.
    DatabaseCreated = 5,
    /// A database is no more, nor anything in it. The key is its name.
    DatabaseDropped = 6,
    /// Nothing happened; only the sequence counts, to raise the bound on those that may be given out.
    Mark = 7,
    /// A database became one of another kind, with the same content: the key is its name, the value its configuration. On
    /// disk, the content stands in the tree of this commit; in memory, it came from the tree before it.
    DatabaseConverted = 8,
}

impl RecordKind {
    fn from_number(number: u8) -> Option<RecordKind> {
        use RecordKind::*;
        [
            Set,
            Delete,
            Expire,
            Clear,
            DatabaseCreated,
            DatabaseDropped,
            Mark,
            DatabaseConverted,
        ]
        .into_iter()
        .find(|&kind| kind as u8 == number)
    }
}

/// One record.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// The sequence of its commit; all records of a commit have the same one.
    pub sequence: u64,
    /// The database, by its number, which no later one gets.
    pub database: DatabaseId,
    /// The server on which the commit was made; 0: this one.
    pub origin: u32,
    /// What has happened.
    pub kind: RecordKind,
    /// When a key that was set expires, in milliseconds since 1970; 0: never.
    pub expires_ms: u64,
    /// The key; at most 65 535 bytes.
    pub key: &'a [u8],
    /// The value; fewer than 2^32 bytes.
    pub value: &'a [u8],
}

impl<'a> Record<'a> {
    /// Something that is only about a key: [`RecordKind::Delete`], [`RecordKind::Expire`],
    /// [`RecordKind::DatabaseDropped`], or with an empty key [`RecordKind::Clear`].
    pub fn of_key(
        kind: RecordKind,
        sequence: u64,
        database: DatabaseId,
        origin: u32,
        key: &'a [u8],
    ) -> Record<'a> {
        Record {
            sequence,
            database,
            origin,
            kind,
            expires_ms: 0,
            key,
            value: &[],
        }
    }

    /// An entry that was set; its version is the sequence of the commit.
    pub fn set(database: DatabaseId, origin: u32, entry: &Entry<'a>) -> Record<'a> {
        Record {
            sequence: entry.version,
            database,
            origin,
            kind: RecordKind::Set,
            expires_ms: entry.expires_ms,
            key: entry.key,
            value: entry.value.bytes(),
        }
    }

    /// A mark at a sequence.
    pub fn mark(sequence: u64) -> Record<'static> {
        Record::of_key(RecordKind::Mark, sequence, DatabaseId::DEFAULT, 0, &[])
    }

    /// The entry that a [`RecordKind::Set`] leaves in the index.
    pub fn entry(&self) -> Option<Entry<'a>> {
        (self.kind == RecordKind::Set).then_some(Entry {
            key: self.key,
            value: Value::Inline(self.value),
            version: self.sequence,
            expires_ms: self.expires_ms,
        })
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
        head[20..24].copy_from_slice(&self.database.0.to_le_bytes());
        head[24..28].copy_from_slice(&self.origin.to_le_bytes());
        head[28..30].copy_from_slice(&key_len.to_le_bytes());
        head[30] = self.kind as u8;
        out.extend_from_slice(&head);
        out.extend_from_slice(self.key);
    }

    /// Takes the first record off `bytes`, which are not empty.
    pub(super) fn decode(bytes: &mut &'a [u8]) -> Result<Record<'a>, RecordError> {
        let (head, rest) = bytes
            .split_at_checked(RECORD_BYTES)
            .ok_or(RecordError::CutShort)?;
        let kind = RecordKind::from_number(head[30]).ok_or(RecordError::Kind(head[30]))?;
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
        Ok(Record {
            sequence: u64_at(head, 0),
            expires_ms: u64_at(head, 8),
            database: DatabaseId(u32_at(head, 20)),
            origin: u32_at(head, 24),
            kind,
            key,
            value,
        })
    }
}

impl fmt::Debug for Record<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Record")
            .field("sequence", &self.sequence)
            .field("database", &self.database.0)
            .field("kind", &self.kind)
            .field("key", &self.key.escape_ascii().to_string())
            .field("value_bytes", &self.value.len())
            .field("expires_ms", &self.expires_ms)
            .finish_non_exhaustive()
    }
}

/// What is wrong with a record in a group whose checksum is right: it was written by another version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordError {
    /// A kind that this version does not know.
    Kind(u8),
    /// A byte that must be 0 is not.
    Reserved,
    /// It is longer than its group.
    CutShort,
    /// Its sequence is not among those of its group, or less than the one before.
    Sequence,
    /// There are more, or fewer, than the group says.
    Count,
}

impl fmt::Display for RecordError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordError::Kind(number) => write!(formatter, "a record of unknown kind {number}"),
            RecordError::Reserved => write!(formatter, "a record with an unknown mark"),
            RecordError::CutShort => write!(formatter, "a record longer than its group"),
            RecordError::Sequence => write!(formatter, "a record with a sequence out of order"),
            RecordError::Count => write!(formatter, "another number of records than announced"),
        }
    }
}

impl std::error::Error for RecordError {}
