//! What a group has decided and readers do not see yet.

use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashTable;
use wal::GroupBuffer;

use crate::batch::WriteBatch;
use crate::catalogue::Database;
use crate::database::{DatabaseConfig, Durability};
use crate::database_id::DatabaseId;
use crate::decide::PendingState;
use crate::effects::Effects;
use crate::engine::CommitPlace;
use crate::limits;
use crate::log::{Record, RecordKind, push_entry};
use crate::memory::MemoryIndex;
use crate::outcome::Refusal;
use crate::read_before::Found;
use crate::tree::{Arena, InMemory, OwnedValue, TreeWriter};
use crate::value::{Entry, Value};

/// When the outcome of a commit may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishAfter {
    /// When its group is written.
    Written,
    /// When its group is synced.
    Synced,
}

impl PublishAfter {
    pub(super) const ALL: [PublishAfter; 2] = [PublishAfter::Written, PublishAfter::Synced];

    pub(super) fn of(durability: Durability) -> PublishAfter {
        match durability {
            Durability::Synced => PublishAfter::Synced,
            Durability::Interval { .. } | Durability::Written | Durability::Volatile => {
                PublishAfter::Written
            }
        }
    }
}

/// A small value stands behind its key in the records, as the log copies it there.
const _: () = assert!(limits::SHARED_VALUE_BYTES <= wal::limits::LARGE_VALUE_BYTES);

/// The commits of a group and their effects, as they will be applied, with the records that go to
/// the log. Owns all its bytes: keys and small values are those of the records.
#[derive(Debug, Default)]
pub(super) struct PendingGroup {
    commits: Vec<PendingCommit>,
    effects: Vec<PendingEffect>,
    records: GroupBuffer,
    /// Large values.
    large: Vec<Bytes>,
    /// When it was written, by the clock of the store.
    written_ms: u64,
}

/// A commit that is decided.
#[derive(Debug)]
pub(super) struct PendingCommit {
    pub(super) database: DatabaseId,
    pub(super) sequence: u64,
    pub(super) rule: PublishAfter,
    pub(super) what: PendingChange,
    /// By how much it changes the memory in use.
    pub(super) growth_bytes: i64,
}

impl PendingCommit {
    /// Whether it changes which databases there are.
    pub(super) fn is_of_catalogue(&self) -> bool {
        matches!(
            self.what,
            PendingChange::Create { .. } | PendingChange::Drop | PendingChange::Convert
        )
    }
}

/// What a commit does.
#[derive(Debug)]
pub(super) enum PendingChange {
    /// It changes keys: these effects of the group.
    Keys(Range<usize>),
    Clear,
    Create {
        name: Box<str>,
        config: Box<DatabaseConfig>,
    },
    Drop,
    /// It becomes a database of another kind. What it becomes is with the one who commits.
    Convert,
}

/// The result for one key.
#[derive(Debug)]
struct PendingEffect {
    hash: u64,
    sequence: u64,
    expires_ms: u64,
    /// In the bytes of the records.
    key_start: usize,
    key_len: usize,
    value: PendingValue,
}

#[derive(Clone, Copy, Debug)]
enum PendingValue {
    /// The key is removed by a request.
    Absent,
    /// The key is removed because its time had come.
    Expired,
    /// So many bytes behind the key.
    Small(usize),
    /// A place among the large ones.
    Large(usize),
}

impl PendingGroup {
    pub(super) fn is_empty(&self) -> bool {
        self.commits.is_empty()
    }

    pub(super) fn commits(&self) -> &[PendingCommit] {
        &self.commits
    }

    pub(super) fn push(&mut self, commit: PendingCommit) {
        self.commits.push(commit);
    }

    /// Whether it makes a database one of another kind. Then it does nothing else.
    pub(super) fn converts(&self) -> bool {
        (self.commits.iter()).any(|commit| matches!(commit.what, PendingChange::Convert))
    }

    /// The last commit on a database that has changed keys; 0: none has.
    pub(super) fn last_change(&self, id: DatabaseId) -> u64 {
        let changes = self.commits.iter().rev().filter(|commit| {
            commit.database == id
                && matches!(&commit.what, PendingChange::Keys(places) if !places.is_empty())
        });
        changes.map(|commit| commit.sequence).next().unwrap_or(0)
    }

    pub(super) fn clear(&mut self) {
        self.commits.clear();
        self.effects.clear();
        self.records.clear();
        self.large.clear();
        self.commits
            .shrink_to(limits::KEPT_BYTES / size_of::<PendingCommit>());
        self.effects
            .shrink_to(limits::KEPT_BYTES / size_of::<PendingEffect>());
    }

    /// Notes when it was written, by the clock of the store.
    pub(super) fn set_written_ms(&mut self, now_ms: u64) {
        self.written_ms = now_ms;
    }

    /// When it was written.
    pub(super) fn written_ms(&self) -> u64 {
        self.written_ms
    }

    /// What goes to the log.
    pub(super) fn records(&self) -> &GroupBuffer {
        &self.records
    }

    /// The same, to add to it or to write it.
    pub(super) fn records_mut(&mut self) -> &mut GroupBuffer {
        &mut self.records
    }

    /// Takes over the effects of a commit as records, and lists them in the overlay of its
    /// database. Returns their places.
    pub(super) fn add(
        &mut self,
        effects: &Effects,
        place: &CommitPlace<'_>,
        overlay: &mut Overlay,
    ) -> Range<usize> {
        let (batch, sequence) = (place.batch, place.sequence);
        let (database, origin) = (place.commit.database, place.commit.origin);
        let first = self.effects.len();
        for effect in effects.iter() {
            let key = effect.key(batch);
            let (key_start, value, expires_ms) = match effect.entry(batch, sequence) {
                Some(entry) => {
                    let (key_start, value) = self.add_entry((database, origin), entry);
                    (key_start, value, entry.expires_ms)
                }
                None => {
                    let (kind, value) = match effect.is_expiry() {
                        true => (RecordKind::Expire, PendingValue::Expired),
                        false => (RecordKind::Delete, PendingValue::Absent),
                    };
                    let record = Record::of_key(kind, sequence, database, origin, key).raw();
                    (self.records.push(&record), value, 0)
                }
            };
            self.effects.push(PendingEffect {
                hash: effect.hash(),
                sequence,
                expires_ms,
                key_start,
                key_len: key.len(),
                value,
            });
            overlay.set(self, self.effects.len() - 1);
        }
        first..self.effects.len()
    }

    /// Takes over a record of a key as it is, and lists it in the overlay of its database. Returns
    /// its place.
    pub(super) fn add_record(
        &mut self,
        record: &Record<'_>,
        hash: u64,
        overlay: &mut Overlay,
    ) -> usize {
        let (key_start, value) = match record.entry() {
            Some(entry) => self.add_entry((record.database, record.origin), entry),
            None => {
                let value = match record.kind {
                    RecordKind::Expire => PendingValue::Expired,
                    _ => PendingValue::Absent,
                };
                (self.records.push(&record.raw()), value)
            }
        };
        self.effects.push(PendingEffect {
            hash,
            sequence: record.sequence,
            expires_ms: record.expires_ms,
            key_start,
            key_len: record.key.len(),
            value,
        });
        let place = self.effects.len() - 1;
        overlay.set(self, place);
        place
    }

    /// Adds the record of an entry of a database from a server; returns where its key stands, and
    /// its value.
    fn add_entry(
        &mut self,
        (database, origin): (DatabaseId, u32),
        entry: Entry<'_>,
    ) -> (usize, PendingValue) {
        let value_bytes = entry.value.len();
        // The index keeps a large one in this form: it is copied no more.
        let shared = (value_bytes >= limits::SHARED_VALUE_BYTES).then(|| entry.value.to_shared());
        let value = shared.as_ref().map_or(entry.value, Value::Shared);
        let entry = Entry { value, ..entry };
        let key_start = push_entry(&mut self.records, database, origin, &entry);
        let Some(shared) = shared else {
            return (key_start, PendingValue::Small(value_bytes));
        };
        self.large.push(shared);
        (key_start, PendingValue::Large(self.large.len() - 1))
    }

    pub(super) fn hash(&self, place: usize) -> u64 {
        self.effects[place].hash
    }

    /// The hashes of some effects, of which the last need not exist.
    pub(super) fn hashes(&self, places: Range<usize>) -> impl Iterator<Item = u64> {
        let end = places.end.min(self.effects.len());
        self.effects[places.start.min(end)..end]
            .iter()
            .map(|effect| effect.hash)
    }

    pub(super) fn key(&self, place: usize) -> &[u8] {
        let effect = &self.effects[place];
        &self.records.bytes()[effect.key_start..][..effect.key_len]
    }

    /// Whether an effect removes a key because its time had come.
    pub(super) fn is_expiry(&self, place: usize) -> bool {
        matches!(self.effects[place].value, PendingValue::Expired)
    }

    /// The entry that an effect leaves; `None`: the key is removed.
    pub(super) fn entry(&self, place: usize) -> Option<Entry<'_>> {
        let effect = &self.effects[place];
        let value = match effect.value {
            PendingValue::Absent | PendingValue::Expired => return None,
            PendingValue::Small(len) => {
                let start = effect.key_start + effect.key_len;
                Value::Inline(&self.records.bytes()[start..][..len])
            }
            PendingValue::Large(place) => Value::Shared(&self.large[place]),
        };
        Some(Entry {
            key: self.key(place),
            value,
            version: effect.sequence,
            expires_ms: effect.expires_ms,
        })
    }
}

/// For each key that a group changes in one database, the place of its last effect.
#[derive(Debug, Default)]
pub(super) struct Overlay {
    table: HashTable<usize>,
}

impl Overlay {
    fn set(&mut self, group: &PendingGroup, place: usize) {
        let (key, hash) = (group.key(place), group.hash(place));
        let same = |&other: &usize| group.hash(other) == hash && group.key(other) == key;
        match self.table.find_mut(hash, same) {
            Some(listed) => *listed = place,
            None => {
                self.table
                    .insert_unique(hash, place, |&place| group.hash(place));
            }
        }
    }

    fn find(&self, group: &PendingGroup, key: &[u8], hash: u64) -> Option<usize> {
        let same = |&place: &usize| group.hash(place) == hash && group.key(place) == key;
        self.table.find(hash, same).copied()
    }

    fn clear(&mut self) {
        if self.table.capacity() > limits::KEPT_OVERLAY {
            self.table = HashTable::new();
        } else {
            self.table.clear();
        }
    }
}

/// One database with what a group has changed in it.
#[derive(Debug)]
pub(super) struct PendingDatabase {
    pub(super) database: Arc<Database>,
    pub(super) overlay: Overlay,
    /// The group has cleared it: what is in the index counts no more.
    pub(super) is_cleared: bool,
    pub(super) growth_bytes: i64,
    pub(super) growth_entries: i64,
}

impl PendingDatabase {
    pub(super) fn new(database: Arc<Database>) -> PendingDatabase {
        PendingDatabase {
            database,
            overlay: Overlay::default(),
            is_cleared: false,
            growth_bytes: 0,
            growth_entries: 0,
        }
    }

    /// Everything is gone, in the group and in the index.
    pub(super) fn clear(&mut self) {
        self.overlay.clear();
        self.is_cleared = true;
    }

    /// The group is over.
    pub(super) fn reset(&mut self) {
        self.overlay.clear();
        self.is_cleared = false;
        self.growth_bytes = 0;
        self.growth_entries = 0;
    }
}

/// The state that a commit on a database in memory is decided against: the overlay before the
/// index.
pub(super) struct PendingView<'a> {
    pub(super) overlay: &'a Overlay,
    pub(super) is_cleared: bool,
    pub(super) group: &'a PendingGroup,
    pub(super) index: &'a MemoryIndex,
}

impl PendingState for PendingView<'_> {
    const IS_IN_MEMORY: bool = true;

    #[inline]
    fn find<'a>(&'a self, key: &'a [u8], hash: u64) -> Option<Entry<'a>> {
        match self.overlay.find(self.group, key, hash) {
            Some(place) => self.group.entry(place),
            None if self.is_cleared => None,
            None => self.index.find(key, hash),
        }
    }
}

/// The same for a database on disk: the overlay, then the memtables, then what was read ahead. If
/// the memtables know nothing of a key, what was read ahead is how it is: they know all that came
/// later.
pub(super) struct PendingTree<'a> {
    pub(super) overlay: &'a Overlay,
    pub(super) group: &'a PendingGroup,
    pub(super) tree: &'a TreeWriter,
    pub(super) batch: &'a WriteBatch,
    /// What is found is kept here, since memtables lend nothing.
    pub(super) found: Arena<OwnedValue>,
    /// Why the commit cannot be decided.
    pub(super) problem: Cell<Option<Refusal>>,
}

impl PendingState for PendingTree<'_> {
    const IS_IN_MEMORY: bool = false;

    fn find<'a>(&'a self, key: &'a [u8], hash: u64) -> Option<Entry<'a>> {
        if let Some(place) = self.overlay.find(self.group, key, hash) {
            return self.group.entry(place);
        }
        match self.tree.find_in_memory(key) {
            InMemory::Entry(value) => return Some(self.found.keep(value).entry(key)),
            InMemory::Removed => return None,
            InMemory::Unknown => {}
        }
        let refusal =
            match self
                .batch
                .before()
                .find(self.batch.operations(), self.tree.index(), key, hash)
            {
                Some(Found::Absent) => return None,
                Some(Found::Entry(value)) => return Some(value.entry(key)),
                Some(Found::Not(refusal)) => *refusal,
                None => Refusal::NotReadAhead,
            };
        self.problem.set(Some(refusal));
        None
    }
}
