//! Commits, divided into what an engine carries out at once.

use hashbrown::HashTable;

use crate::batch::WriteBatch;
use crate::operation::{Expiry, Mode, TransactList};
use crate::record::{Action, Check, CommitRecord, OperationRecord, Whole};
use crate::remote_kind::{Lack, RemotePromise, RemoteShape};

/// Operations of a commit that are carried out at once.
pub(super) struct Part {
    /// These operations, and no commit.
    batch: WriteBatch,
    /// The commit of all of them.
    record: CommitRecord,
    keys: Vec<PartKey>,
    /// Places of the keys, by their hashes.
    table: HashTable<usize>,
    /// Where its operations stand in the commit.
    places: Vec<usize>,
}

/// A key of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteKey<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The decision depends on what is there.
    pub is_read: bool,
}

/// A key of a part.
struct PartKey {
    /// The first operation that has it.
    operation: usize,
    hash: u64,
    is_read: bool,
}

impl Part {
    /// Some operations of a commit, by their places in the batch.
    fn new(batch: &WriteBatch, commit: &CommitRecord, places: &[usize]) -> Part {
        let own = batch.with_operations(places);
        let record = CommitRecord {
            first: 0,
            end: places.len(),
            bytes: own.bytes(),
            ..*commit
        };
        let mut part = Part {
            batch: own,
            record,
            keys: Vec::new(),
            table: HashTable::new(),
            places: places.iter().map(|place| place - commit.first).collect(),
        };
        for operation in 0..places.len() {
            part.add_key(operation);
        }
        part
    }

    fn add_key(&mut self, operation: usize) {
        let record = self.batch.operation(operation);
        let (hash, is_read) = (record.hash, record.needs_state());
        match self.index_of(self.batch.key(record), hash) {
            Some(index) => self.keys[index].is_read |= is_read,
            None => {
                let keys = &mut self.keys;
                keys.push(PartKey {
                    operation,
                    hash,
                    is_read,
                });
                let last = keys.len() - 1;
                (self.table).insert_unique(hash, last, |&index| keys[index].hash);
            }
        }
    }

    /// Returns its operations.
    pub(super) fn batch(&self) -> &WriteBatch {
        &self.batch
    }

    /// Returns its commit.
    pub(super) fn record(&self) -> &CommitRecord {
        &self.record
    }

    /// Returns where its operations stand in the whole commit.
    pub(super) fn places(&self) -> &[usize] {
        &self.places
    }

    /// Returns its keys, each once.
    pub(super) fn keys(&self) -> impl ExactSizeIterator<Item = RemoteKey<'_>> {
        self.keys.iter().map(|key| RemoteKey {
            key: self.batch.key(self.batch.operation(key.operation)),
            is_read: key.is_read,
        })
    }

    /// Returns the key at a place among these.
    pub(super) fn key_at(&self, index: usize) -> Option<&[u8]> {
        let key = self.keys.get(index)?;
        Some(self.batch.key(self.batch.operation(key.operation)))
    }

    /// Returns the places of the keys that the Deletes of a quorum database remove.
    pub(super) fn deleted(&self) -> impl Iterator<Item = usize> {
        let records = self
            .record
            .operations()
            .map(|place| self.batch.operation(place));
        // A Transact without compares, as with the promise `quorum` all are, takes its first list.
        let taken = records.filter(|record| record.list != TransactList::Otherwise);
        let deletes = taken.filter(|record| matches!(record.action, Action::Delete));
        deletes.filter_map(|record| self.index_of(self.batch.key(record), record.hash))
    }

    /// Returns the place of a key among these.
    pub(super) fn index_of(&self, key: &[u8], hash: u64) -> Option<usize> {
        let is_it = |&index: &usize| {
            let found = &self.keys[index];
            found.hash == hash && self.batch.key(self.batch.operation(found.operation)) == key
        };
        self.table.find(hash, is_it).copied()
    }
}

/// Divides a commit, or says what of it an engine cannot do.
pub(super) fn divide(
    batch: &WriteBatch,
    commit: &CommitRecord,
    shape: RemoteShape,
) -> Result<Vec<Part>, Lack> {
    if commit.whole == Some(Whole::Clear) {
        return Err(Lack::Clear);
    }
    let places: Vec<usize> = commit.operations().collect();
    if shape.promise == RemotePromise::Quorum {
        check_quorum(batch, commit)?;
    }
    if commit.mode != Mode::Independent {
        check_buckets(batch, commit, shape)?;
        return Ok(vec![Part::new(batch, commit, &places)]);
    }
    let keys = places_by_key(batch, places);
    let parts = keys.iter().map(|places| Part::new(batch, commit, places));
    Ok(parts.collect())
}

/// The operations on each key, in their order; keys in the order of their first operations.
fn places_by_key(batch: &WriteBatch, places: Vec<usize>) -> Vec<Vec<usize>> {
    if let [_] = places[..] {
        return vec![places];
    }
    let mut keys: Vec<Vec<usize>> = Vec::new();
    let mut table: HashTable<usize> = HashTable::new();
    for place in places {
        let record = batch.operation(place);
        let key = batch.key(record);
        let is_it = |&index: &usize| {
            let other = batch.operation(keys[index][0]);
            other.hash == record.hash && batch.key(other) == key
        };
        match table.find(record.hash, is_it) {
            Some(&index) => keys[index].push(place),
            None => {
                keys.push(vec![place]);
                table.insert_unique(record.hash, keys.len() - 1, |&index| {
                    batch.operation(keys[index][0]).hash
                });
            }
        }
    }
    keys
}

/// Fails if the keys of a commit are in several buckets.
fn check_buckets(
    batch: &WriteBatch,
    commit: &CommitRecord,
    shape: RemoteShape,
) -> Result<(), Lack> {
    let bucket = |place| shape.bucket_of(batch.key(batch.operation(place)));
    let mut places = commit.operations();
    let Some(first) = places.next() else {
        return Ok(());
    };
    let first_bucket = bucket(first);
    match places.find(|&place| bucket(place) != first_bucket) {
        None => Ok(()),
        Some(other) => Err(Lack::SeveralBuckets {
            first: 0,
            other: number_of(commit, other),
        }),
    }
}

/// Fails if a commit depends on what is there: a quorum promises nothing for that. What a Delete
/// and a Get of its own report is what a quorum had just before.
fn check_quorum(batch: &WriteBatch, commit: &CommitRecord) -> Result<(), Lack> {
    let is_alone = commit.mode == Mode::Independent || commit.operations().len() == 1;
    let depends = |record: &OperationRecord| {
        let is_free = match record.action {
            Action::Put(expiry) => !matches!(expiry, Expiry::Keep),
            Action::Delete => true,
            Action::Get => is_alone,
            _ => false,
        };
        !is_free || !matches!(record.check, Check::None) || record.want_previous
    };
    let mut places = commit.operations();
    match places.find(|&place| depends(batch.operation(place))) {
        None => Ok(()),
        Some(place) => Err(Lack::NeedsLinearizable {
            operation: number_of(commit, place),
        }),
    }
}

/// Which operation of its commit stands at a place, counted from 0.
fn number_of(commit: &CommitRecord, place: usize) -> u32 {
    u32::try_from(place - commit.first).unwrap_or(u32::MAX)
}
