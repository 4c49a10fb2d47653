//! Reads ahead in the log that is replayed, so that waits for memory overlap.

use super::replay::Replay;
use crate::hash::KeyHasher;
use crate::limits;
use crate::log::{Record, RecordKind};

/// Records on their way to the indexes. A record changes a place in memory that is seldom in the
/// processor's caches; so the places of several are looked up together before the first of them is
/// changed.
pub(super) struct RecordsAhead {
    hasher: KeyHasher,
    waiting: Vec<WaitingRecord>,
    /// Their keys and values, one behind the other.
    bytes: Vec<u8>,
}

/// A record but for its key and value, which are copied: they cannot stay where they were read.
struct WaitingRecord {
    record: Record<'static>,
    hash: u64,
    key_bytes: usize,
    value_bytes: usize,
}

impl RecordsAhead {
    pub(super) fn new(hasher: KeyHasher) -> RecordsAhead {
        RecordsAhead {
            hasher,
            waiting: Vec::with_capacity(limits::WARM_OPERATIONS),
            bytes: Vec::new(),
        }
    }

    /// Takes the next record, in the order of the log.
    pub(super) fn add(&mut self, record: &Record<'_>, replay: &mut Replay<'_>) {
        let changes_key = matches!(
            record.kind,
            RecordKind::Set | RecordKind::Delete | RecordKind::Expire
        );
        if !changes_key || record.value.len() >= limits::SHARED_VALUE_BYTES {
            self.flush(replay);
            return replay.apply(record);
        }
        let is_full = self.waiting.len() == limits::WARM_OPERATIONS;
        let first = self.waiting.first();
        if is_full || first.is_some_and(|first| first.record.database != record.database) {
            self.flush(replay);
        }
        self.bytes.extend_from_slice(record.key);
        self.bytes.extend_from_slice(record.value);
        self.waiting.push(WaitingRecord {
            record: Record {
                key: &[],
                value: &[],
                ..*record
            },
            hash: self.hasher.hash(record.key),
            key_bytes: record.key.len(),
            value_bytes: record.value.len(),
        });
    }

    /// Applies those that wait.
    pub(super) fn flush(&mut self, replay: &mut Replay<'_>) {
        if let Some(first) = self.waiting.first() {
            let hashes = self.waiting.iter().map(|waiting| waiting.hash);
            replay.warm(first.record.database, hashes);
        }
        let mut rest = &self.bytes[..];
        for waiting in self.waiting.drain(..) {
            let (key, behind) = rest.split_at(waiting.key_bytes);
            let (value, behind) = behind.split_at(waiting.value_bytes);
            rest = behind;
            replay.apply(&Record {
                key,
                value,
                ..waiting.record
            });
        }
        self.bytes.clear();
    }
}
