//! What the store writes to its log: results of operations, one for each key that a commit changed.
//!
//! The log carries a [`RawRecord`], and knows of it the sequence and the lengths. What the numbers
//! in it mean is said here, and nowhere else.

use std::fmt;

use bytes::{Buf, Bytes};
use wal::{GroupBuffer, LogGroup, RawRecord, RecordError, Records};

use crate::database_id::DatabaseId;
use crate::value::{Entry, Value};

/// The number of this server in the records.
pub const ORIGIN: u32 = 0;

/// What a record says has happened.
///
/// Numbers from 32 on are set aside for request ids (32), leases (33), deleted ranges (34) and
/// blobs (35 to 39). A reader refuses what it does not know, since to pass over it would be to lose
/// it.
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
    /// Nothing happened; only the sequence counts, to raise the bound on those that may be given
    /// out.
    Mark = RawRecord::MARK,
    /// A database became one of another kind, with the same content: the key is its name, the value
    /// its configuration. On disk, the content stands in the tree of this commit; in memory, it
    /// came from the tree before it.
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

/// One record, as the store means it.
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

    /// The numbers and bytes that the log carries.
    pub fn raw(&self) -> RawRecord<'a> {
        RawRecord {
            sequence: self.sequence,
            expires_ms: self.expires_ms,
            database: self.database.0,
            origin: self.origin,
            kind: self.kind as u8,
            key: self.key,
            value: self.value,
        }
    }
}

impl<'a> TryFrom<RawRecord<'a>> for Record<'a> {
    type Error = RecordError;

    fn try_from(raw: RawRecord<'a>) -> Result<Record<'a>, RecordError> {
        Ok(Record {
            sequence: raw.sequence,
            database: DatabaseId(raw.database),
            origin: raw.origin,
            kind: RecordKind::from_number(raw.kind).ok_or(RecordError::Kind(raw.kind))?,
            expires_ms: raw.expires_ms,
            key: raw.key,
            value: raw.value,
        })
    }
}

/// The records of a group, each checked as it comes. After an error of the log nothing more comes.
pub fn records<'a>(
    group: &LogGroup<'a>,
) -> impl Iterator<Item = Result<Record<'a>, RecordError>> + use<'a> {
    group.records().map(|raw| raw?.try_into())
}

/// A group of the log of a leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FollowedGroup {
    /// The first sequence that it covers.
    pub first_sequence: u64,
    /// The last sequence that it covers.
    pub last_sequence: u64,
    /// The wall clock when it was written, in milliseconds since 1970.
    pub wall_ms: u64,
    /// How many records are in it.
    pub records: u32,
    /// Its records, as they are in the log.
    pub body: Bytes,
}

impl FollowedGroup {
    /// Reads its records, each checked.
    pub fn read(&self) -> Result<Vec<Record<'_>>, RecordError> {
        let covered = (self.first_sequence, self.last_sequence);
        let records = Records::of(&self.body, self.records, covered);
        records.map(|raw| raw?.try_into()).collect()
    }

    /// Reads its first record, with the bytes that it takes; `None`: there is none (any more).
    ///
    /// # Errors
    /// If that is not one that this version knows.
    pub fn first(&self) -> Result<Option<(Record<'_>, usize)>, RecordError> {
        let covered = (self.first_sequence, self.last_sequence);
        let Some(raw) = Records::of(&self.body, self.records, covered).next() else {
            return Ok(None);
        };
        let raw = raw?;
        Ok(Some((raw.try_into()?, raw.encoded_bytes())))
    }

    /// Forgets its first record, which takes so many bytes: [`FollowedGroup::first`] says it.
    pub fn pass_first(&mut self, bytes: usize) {
        self.body.advance(bytes.min(self.body.len()));
        self.records = self.records.saturating_sub(1);
    }
}

/// Adds the record of an entry that was set to a group. A large value that is shared is not copied.
/// Returns where its key stands in the bytes of the group.
pub(crate) fn push_entry(
    group: &mut GroupBuffer,
    database: DatabaseId,
    origin: u32,
    entry: &Entry<'_>,
) -> usize {
    let record = Record::set(database, origin, entry).raw();
    match entry.value {
        Value::Shared(value) => group.push_shared(&record, value),
        Value::Inline(_) => group.push(&record),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn set() -> Record<'static> {
        let entry = Entry {
            key: b"key",
            value: Value::Inline(b"value"),
            version: 9,
            expires_ms: 7,
        };
        Record::set(DatabaseId(3), 4, &entry)
    }

    #[test]
    fn records_and_entries_are_the_same_thing() {
        let record = set();
        let entry = record.entry().expect("a value was set");
        assert_eq!((entry.version, &*entry.value), (9, &b"value"[..]));
        assert_eq!(Record::set(DatabaseId(3), 4, &entry), record);
        let gone = Record::of_key(RecordKind::Delete, 9, DatabaseId::DEFAULT, 0, b"key");
        assert_eq!(gone.entry(), None);
    }

    #[test]
    fn a_record_is_what_its_raw_form_says() {
        let record = set();
        assert_eq!(Record::try_from(record.raw()), Ok(record));
        for kind in 1..=8 {
            let raw = RawRecord {
                kind,
                ..record.raw()
            };
            let read = Record::try_from(raw).expect("the kind is known");
            assert_eq!((read.kind as u8, read.raw()), (kind, raw));
        }
        assert_eq!(Record::mark(5).raw(), RawRecord::mark(5));
    }

    #[test]
    fn a_kind_that_is_not_known_is_refused() {
        for kind in [0, 9, 32, 33, 34, 35, 39, 255] {
            let raw = RawRecord {
                kind,
                ..set().raw()
            };
            assert_eq!(Record::try_from(raw), Err(RecordError::Kind(kind)));
        }
    }
}
