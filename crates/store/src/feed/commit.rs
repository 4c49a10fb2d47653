//! What one commit has changed, as it is kept for those who watch.

use bytes::Bytes;

use crate::value::{Entry, Value};

/// What has become of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// It was written.
    Set,
    /// It was deleted by a request.
    Delete,
    /// It was removed because its time had come.
    Expire,
    /// All keys of the database were removed at once; there is none.
    Clear,
}

/// What a commit has done to one key.
#[derive(Clone, Copy, Debug)]
pub struct FeedChange<'a> {
    /// What has become of it.
    pub kind: ChangeKind,
    /// The key; empty for [`ChangeKind::Clear`].
    pub key: &'a [u8],
    /// For [`ChangeKind::Set`]: its entry now.
    pub entry: Option<Entry<'a>>,
    /// The entry before, as far as it is known, if somebody wanted that when it was published.
    pub previous: Option<Entry<'a>>,
}

/// What one commit has changed: each key at most once. Owns all its bytes.
#[derive(Debug)]
pub struct FeedCommit {
    sequence: u64,
    at_ms: u64,
    /// Changes before these, which are not here.
    passed_changes: usize,
    /// Changes follow that are not here.
    is_cut: bool,
    records: Vec<ChangeRecord>,
    /// Keys and small values.
    bytes: Vec<u8>,
    /// Large values: those of the index.
    large: Vec<Bytes>,
    large_bytes: usize,
}

#[derive(Debug)]
struct ChangeRecord {
    kind: ChangeKind,
    key_start: usize,
    key_len: usize,
    entry: Option<EntryRecord>,
    previous: Option<EntryRecord>,
}

/// An entry without its key.
#[derive(Debug)]
struct EntryRecord {
    version: u64,
    expires_ms: u64,
    value: ValuePlace,
}

#[derive(Debug)]
enum ValuePlace {
    /// In the bytes of the commit.
    Small { start: usize, len: usize },
    /// Among its large values.
    Large(usize),
}

impl FeedCommit {
    /// The commit.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// When it was written, by the clock of the store, in milliseconds since 1970.
    pub fn at_ms(&self) -> u64 {
        self.at_ms
    }

    /// Returns how many changes of the commit are left out before the first one here: of one that
    /// is read in parts.
    pub fn passed_changes(&self) -> usize {
        self.passed_changes
    }

    /// Returns whether changes of the commit are left out behind the last one here.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// How many changes it has.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether it has changed nothing.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// What it takes of memory, in bytes, with values that others may hold too.
    pub(super) fn held_bytes(&self) -> usize {
        size_of::<FeedCommit>()
            + self.records.capacity() * size_of::<ChangeRecord>()
            + self.bytes.capacity()
            + self.large.capacity() * size_of::<Bytes>()
            + self.large_bytes
    }

    /// Returns the change at a place.
    pub fn change(&self, place: usize) -> Option<FeedChange<'_>> {
        let record = self.records.get(place)?;
        let key = &self.bytes[record.key_start..][..record.key_len];
        let entry = |entry: &EntryRecord| Entry {
            key,
            value: self.value(&entry.value),
            version: entry.version,
            expires_ms: entry.expires_ms,
        };
        Some(FeedChange {
            kind: record.kind,
            key,
            entry: record.entry.as_ref().map(entry),
            previous: record.previous.as_ref().map(entry),
        })
    }

    /// Its changes, in the order in which they were recorded.
    pub fn changes(&self) -> impl Iterator<Item = FeedChange<'_>> {
        self.changes_from(0).map(|(_, change)| change)
    }

    /// Returns its changes from a place on, each with its place.
    pub fn changes_from(&self, place: usize) -> impl Iterator<Item = (usize, FeedChange<'_>)> {
        (place..self.len()).filter_map(|place| Some((place, self.change(place)?)))
    }

    fn value(&self, place: &ValuePlace) -> Value<'_> {
        match *place {
            ValuePlace::Small { start, len } => Value::Inline(&self.bytes[start..][..len]),
            ValuePlace::Large(place) => Value::Shared(&self.large[place]),
        }
    }
}

/// A commit that is being recorded.
#[derive(Debug)]
pub(super) struct Recorder {
    commit: FeedCommit,
    wants_previous: bool,
}

impl Recorder {
    pub(super) fn new(sequence: u64, at_ms: u64, wants_previous: bool) -> Recorder {
        Recorder {
            commit: FeedCommit {
                sequence,
                at_ms,
                passed_changes: 0,
                is_cut: false,
                records: Vec::new(),
                bytes: Vec::new(),
                large: Vec::new(),
                large_bytes: 0,
            },
            wants_previous,
        }
    }

    /// Begins to record a commit behind its first changes, as it was written at `at_ms`.
    pub(super) fn behind(passed_changes: usize, (sequence, at_ms): (u64, u64)) -> Recorder {
        let mut recorder = Recorder::new(sequence, at_ms, false);
        recorder.commit.passed_changes = passed_changes;
        recorder
    }

    /// What is recorded so far, of a commit that has more.
    pub(super) fn cut(mut self) -> FeedCommit {
        self.commit.is_cut = true;
        self.finish()
    }

    /// The commit as far as it is recorded.
    pub(super) fn commit(&self) -> &FeedCommit {
        &self.commit
    }

    pub(super) fn wants_previous(&self) -> bool {
        self.wants_previous
    }

    pub(super) fn sequence(&self) -> u64 {
        self.commit.sequence
    }

    /// Records what becomes of a key: `entry` is there now, or it is removed, because its time had
    /// come (`is_expiry`) or not. `previous` was there before, as far as it is known; one whose
    /// time had come was nothing.
    pub(super) fn change(
        &mut self,
        key: &[u8],
        entry: Option<&Entry<'_>>,
        is_expiry: bool,
        previous: Option<Entry<'_>>,
    ) {
        let kind = match entry {
            Some(_) => ChangeKind::Set,
            None if is_expiry => ChangeKind::Expire,
            None => ChangeKind::Delete,
        };
        let at_ms = self.commit.at_ms;
        let is_there = |previous: &Entry<'_>| {
            is_expiry || previous.expires_ms == 0 || previous.expires_ms > at_ms
        };
        let previous = previous.filter(is_there);
        let key_start = self.commit.bytes.len();
        self.commit.bytes.extend_from_slice(key);
        let record = ChangeRecord {
            kind,
            key_start,
            key_len: key.len(),
            entry: entry.map(|entry| self.keep(entry)),
            previous: previous.map(|entry| self.keep(&entry)),
        };
        self.commit.records.push(record);
    }

    /// Records that all keys are removed.
    pub(super) fn clear(&mut self) {
        self.commit.records.push(ChangeRecord {
            kind: ChangeKind::Clear,
            key_start: 0,
            key_len: 0,
            entry: None,
            previous: None,
        });
    }

    fn keep(&mut self, entry: &Entry<'_>) -> EntryRecord {
        let commit = &mut self.commit;
        let value = match entry.value {
            Value::Inline(bytes) => {
                let start = commit.bytes.len();
                commit.bytes.extend_from_slice(bytes);
                ValuePlace::Small {
                    start,
                    len: bytes.len(),
                }
            }
            Value::Shared(bytes) => {
                commit.large_bytes += bytes.len();
                commit.large.push(bytes.clone());
                ValuePlace::Large(commit.large.len() - 1)
            }
        };
        EntryRecord {
            version: entry.version,
            expires_ms: entry.expires_ms,
            value,
        }
    }

    pub(super) fn finish(mut self) -> FeedCommit {
        self.commit.records.shrink_to_fit();
        self.commit.bytes.shrink_to_fit();
        self.commit
    }
}
