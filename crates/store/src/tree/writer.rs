//! The one who puts commits into a tree.

use std::fmt;
use std::sync::Arc;

use lsm_tree::{InternalValue, Memtable, SeqNo, Slice, ValueType};

use super::index::TreeIndex;
use super::key::stored;
use super::numbers::number_of;
use super::value::{OwnedValue, TreeValue};
use crate::value::{Entry, Value};

/// Puts commits into a tree. There is one for each: the type has no clones.
pub struct TreeWriter {
    index: TreeIndex,
    /// The memtable that commits go into.
    active: Arc<Memtable>,
    /// The last commit that is whole.
    sequence: u64,
    /// Something of a later commit is there.
    is_open: bool,
    /// The first and the last commit that have put something into the active memtable.
    first_in_active: u64,
    last_in_active: u64,
    buffer: Vec<u8>,
}

/// What memtables know of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InMemory {
    /// Its newest entry.
    Entry(OwnedValue),
    /// It was removed.
    Removed,
    /// Nothing: what it is stands in the tables.
    Unknown,
}

impl TreeWriter {
    pub(super) fn new(index: &TreeIndex) -> TreeWriter {
        TreeWriter {
            active: index.shared.memtables.read().active.clone(),
            sequence: index.sequence(),
            index: index.clone(),
            is_open: false,
            first_in_active: 0,
            last_in_active: 0,
            buffer: Vec::new(),
        }
    }

    /// The tree.
    pub fn index(&self) -> &TreeIndex {
        &self.index
    }

    /// Puts an entry, as a part of the commit that is its version. No view shows it before the
    /// [end](TreeWriter::end_commit) of the commit. A commit names each key once.
    pub fn put(&mut self, entry: &Entry<'_>) {
        let value = self.encode(entry);
        self.insert(entry.version, entry.key, value, ValueType::Value);
    }

    fn encode(&mut self, entry: &Entry<'_>) -> Slice {
        if entry.expires_ms != 0 {
            self.index.shared.note_expiry();
        }
        let stored = TreeValue {
            version: entry.version,
            expires_ms: entry.expires_ms,
            value: entry.value.bytes(),
        };
        let mut buffer = std::mem::take(&mut self.buffer);
        stored.encode(&mut buffer);
        let value = Slice::new(&buffer);
        // The buffer is kept for values of the usual sizes only.
        if buffer.capacity() <= crate::limits::SHARED_VALUE_BYTES {
            self.buffer = buffer;
        }
        value
    }

    /// Removes a key, as a part of a commit.
    pub fn remove(&mut self, sequence: u64, key: &[u8]) {
        self.insert(sequence, key, Slice::new(&[]), ValueType::Tombstone);
    }

    fn insert(&mut self, sequence: u64, key: &[u8], value: Slice, kind: ValueType) {
        assert!(
            sequence > self.sequence,
            "commits come in order, and none twice: it would stand before later ones"
        );
        self.index.shared.rows.forget(key, sequence);
        self.insert_at(sequence, key, value, kind);
        self.is_open = true;
    }

    fn insert_at(&mut self, sequence: u64, key: &[u8], value: Slice, kind: ValueType) {
        let key = Slice::new(&stored(key));
        let number = number_of(sequence);
        if self.active.is_empty() {
            self.first_in_active = sequence;
        }
        self.active
            .insert(InternalValue::from_components(key, value, number, kind));
        self.last_in_active = sequence;
    }

    /// Puts an entry of whatever version, as if it had always been there. For a tree that nobody
    /// reads yet, and each key once.
    pub fn load(&mut self, entry: &Entry<'_>) {
        let value = self.encode(entry);
        self.insert_at(self.sequence, entry.key, value, ValueType::Value);
    }

    /// The commit is whole: from now on views show it. Also for commits that change nothing here,
    /// so that views say that they show them.
    pub fn end_commit(&mut self, sequence: u64) {
        debug_assert!(sequence >= self.sequence, "commits come in order");
        self.sequence = sequence;
        self.is_open = false;
        self.index.shared.show(sequence);
    }

    /// Whether the memtable is full, so that it should be [sealed](TreeWriter::seal). That of a
    /// tree that is not made cannot be.
    pub fn wants_seal(&self) -> bool {
        let is_full = self.active.size() >= self.index.shared.config.memtable_bytes;
        is_full && self.index.is_made()
    }

    /// Bytes of the memtable that commits go into.
    pub fn active_bytes(&self) -> u64 {
        self.active.size()
    }

    /// Whether there is something that can be sealed as soon as it is durable in the log.
    pub fn can_seal(&self) -> bool {
        !self.active.is_empty() && self.index.is_made()
    }

    /// Seals the memtable, so that it can be flushed, and begins the next one. `false`: nothing was
    /// done, since it is empty, or not all of it is durable in the log: a flush would put on the
    /// device what a power loss can take from the log. Nor is anything sealed in a tree that is not
    /// [made](TreeIndex::make).
    ///
    /// # Panics
    ///
    /// In the midst of a commit.
    pub fn seal(&mut self, durable_sequence: u64) -> bool {
        assert!(!self.is_open, "a memtable holds whole commits");
        if self.active.is_empty() || self.last_in_active > durable_sequence {
            return false;
        }
        let shared = &self.index.shared;
        let next = shared.seal(self.first_in_active, self.last_in_active);
        let Some(next) = next else {
            return false;
        };
        self.active = next;
        true
    }

    /// The first commit that is not on the device, be it the one that has begun the tree; `None`:
    /// all are.
    pub fn unflushed_from(&self) -> Option<u64> {
        if !self.index.is_made() {
            return Some(self.index.generation().sequence);
        }
        let memtables = self.index.shared.memtables.read();
        match memtables.sealed.first() {
            Some(sealed) => Some(sealed.first),
            None => (!self.active.is_empty()).then_some(self.first_in_active),
        }
    }

    /// The last commit that has changed something since the tree was opened; 0: none has.
    pub(crate) fn last_change(&self) -> u64 {
        self.last_in_active
    }

    /// What memtables know of a key, without a look at the device: the newest commit, ended or not.
    /// It may have expired. They know of everything that came later than the oldest
    /// [`Ticket`](super::Ticket).
    pub fn find_in_memory(&self, key: &[u8]) -> InMemory {
        let key = stored(key);
        let memtables = self.index.shared.memtables.read();
        let newest_first = (memtables.sealed.iter().rev()).chain(memtables.flushed.iter().rev());
        let newest_first = newest_first.map(|sealed| &sealed.memtable);
        let found = std::iter::once(&self.active)
            .chain(newest_first)
            .find_map(|memtable| memtable.get(&key, SeqNo::MAX));
        match found {
            None => InMemory::Unknown,
            Some(found) if found.is_tombstone() => InMemory::Removed,
            Some(found) => InMemory::Entry(
                OwnedValue::new(found.value).expect("it was encoded by this writer"),
            ),
        }
    }
}

/// An entry that borrows its parts.
pub(super) fn entry<'a>(key: &'a [u8], stored: &TreeValue<'a>) -> Entry<'a> {
    Entry {
        key,
        value: Value::Inline(stored.value),
        version: stored.version,
        expires_ms: stored.expires_ms,
    }
}

impl fmt::Debug for TreeWriter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("TreeWriter")
            .field("index", &self.index)
            .field("sequence", &self.sequence)
            .finish_non_exhaustive()
    }
}
