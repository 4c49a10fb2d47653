//! What a commit that is being decided will change: each key at most once, with its last result.
//!
//! Nothing of it is in the index yet, so that a commit can still fail as a whole; its own later
//! operations see it. These results are also what a log stores.

use hashbrown::HashTable;

use crate::batch::WriteBatch;
use crate::limits;
use crate::memory::entry_bytes;
use crate::record::OperationRecord;
use crate::value::{Entry, Value};

/// Up to this many effects a search by walking is faster than a table.
const WALKED: usize = 8;

/// The effects of one commit. Reused from commit to commit.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    list: Vec<Effect>,
    /// Places in the list, by hash of the key; empty while the list is short.
    table: HashTable<usize>,
    /// By how much the commit changes the memory in use.
    growth_bytes: i64,
    /// By how much it changes the number of entries.
    growth_entries: i64,
    /// Bytes that were copied to append to them, also where nothing came of it.
    rewritten_bytes: usize,
}

/// The result for one key.
#[derive(Debug)]
pub(crate) struct Effect {
    /// The operation in the batch whose key it is.
    operation: usize,
    hash: u64,
    after: After,
    new_bytes: u64,
}

/// What a commit leaves under a key.
#[derive(Debug)]
pub(crate) enum After {
    Absent,
    /// Nothing either, because its time had come: for a reader of changes that is another thing
    /// than a deletion.
    Expired,
    Present {
        value: NewValue,
        expires_ms: u64,
    },
}

/// Where a value comes from.
#[derive(Debug)]
pub(crate) enum NewValue {
    /// The value of this operation in the batch.
    Given(usize),
    Counter([u8; 8]),
    Built(Vec<u8>),
}

impl NewValue {
    #[inline]
    fn value<'a>(&'a self, batch: &'a WriteBatch) -> Value<'a> {
        match self {
            NewValue::Given(operation) => batch.value(batch.operation(*operation)),
            NewValue::Counter(bytes) => Value::Inline(bytes),
            NewValue::Built(bytes) => Value::Inline(bytes),
        }
    }
}

impl Effect {
    /// The key of this effect.
    pub(crate) fn key<'a>(&self, batch: &'a WriteBatch) -> &'a [u8] {
        batch.key(batch.operation(self.operation))
    }

    /// Whether the key is removed because its time had come.
    pub(crate) fn is_expiry(&self) -> bool {
        matches!(self.after, After::Expired)
    }

    /// The hash of the key.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// The entry that this effect leaves; `None`: the key is removed.
    pub(crate) fn entry<'a>(&'a self, batch: &'a WriteBatch, sequence: u64) -> Option<Entry<'a>> {
        match &self.after {
            After::Absent | After::Expired => None,
            &After::Present {
                ref value,
                expires_ms,
            } => Some(Entry {
                key: self.key(batch),
                value: value.value(batch),
                version: sequence,
                expires_ms,
            }),
        }
    }
}

impl Effects {
    /// Begins the effects of another commit.
    pub(crate) fn begin(&mut self) {
        self.clear();
        self.rewritten_bytes = 0;
    }

    /// Counts bytes that are copied to append to them.
    pub(crate) fn count_rewritten(&mut self, bytes: usize) {
        self.rewritten_bytes += bytes;
    }

    /// Bytes that this commit has copied to append to them, also one that was refused or has
    /// failed.
    pub(crate) fn rewritten_bytes(&self) -> usize {
        self.rewritten_bytes
    }

    /// Takes all effects back.
    pub(crate) fn clear(&mut self) {
        self.list.clear();
        self.list.shrink_to(limits::KEPT_EFFECTS);
        if self.table.capacity() > limits::KEPT_EFFECTS {
            self.table = HashTable::new();
        } else if !self.table.is_empty() {
            self.table.clear();
        }
        self.growth_bytes = 0;
        self.growth_entries = 0;
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Effect> {
        self.list.iter()
    }

    pub(crate) fn growth_bytes(&self) -> i64 {
        self.growth_bytes
    }

    pub(crate) fn growth_entries(&self) -> i64 {
        self.growth_entries
    }

    pub(crate) fn get(&self, place: usize) -> &Effect {
        &self.list[place]
    }

    /// The place of the effect on an operation's key, if there is one.
    pub(crate) fn find(&self, batch: &WriteBatch, operation: &OperationRecord) -> Option<usize> {
        let key = batch.key(operation);
        let same = |place: usize| {
            let effect = &self.list[place];
            effect.hash == operation.hash && effect.key(batch) == key
        };
        if self.table.is_empty() {
            (0..self.list.len()).find(|&place| same(place))
        } else {
            self.table
                .find(operation.hash, |&place| same(place))
                .copied()
        }
    }

    /// Sets the result for the key of `operation`, which has its effect at `place`, or none yet;
    /// then `base_bytes` is what the key takes now.
    pub(crate) fn set(
        &mut self,
        batch: &WriteBatch,
        operation: usize,
        place: Option<usize>,
        base_bytes: u64,
        after: After,
    ) {
        let record = batch.operation(operation);
        let new_bytes = match &after {
            After::Absent | After::Expired => 0,
            After::Present { value, expires_ms } => entry_bytes(
                batch.key(record).len(),
                value.value(batch).len(),
                *expires_ms,
            ),
        };
        let old_bytes = match place {
            Some(place) => {
                let effect = &mut self.list[place];
                effect.after = after;
                std::mem::replace(&mut effect.new_bytes, new_bytes)
            }
            None => {
                self.list.push(Effect {
                    operation,
                    hash: record.hash,
                    after,
                    new_bytes,
                });
                self.list_in_table();
                base_bytes
            }
        };
        self.growth_bytes += new_bytes as i64 - old_bytes as i64;
        self.growth_entries += i64::from(new_bytes != 0) - i64::from(old_bytes != 0);
    }

    /// Whether the value at `place` was built in this commit, so that more can be added without a
    /// copy.
    pub(crate) fn is_built(&self, place: usize) -> bool {
        matches!(
            self.list[place].after,
            After::Present {
                value: NewValue::Built(_),
                ..
            }
        )
    }

    /// Takes the value at `place` out, to build on; a new one must be [`set`](Effects::set) there.
    pub(crate) fn take_value(&mut self, batch: &WriteBatch, place: usize) -> Vec<u8> {
        match &mut self.list[place].after {
            After::Absent | After::Expired => Vec::new(),
            After::Present {
                value: NewValue::Built(bytes),
                ..
            } => std::mem::take(bytes),
            After::Present { value, .. } => value.value(batch).to_vec(),
        }
    }

    fn list_in_table(&mut self) {
        let last = self.list.len() - 1;
        let first = match last {
            0..WALKED => return,
            WALKED => 0,
            _ => last,
        };
        let list = &self.list;
        for place in first..=last {
            self.table
                .insert_unique(list[place].hash, place, |&place| list[place].hash);
        }
    }
}
