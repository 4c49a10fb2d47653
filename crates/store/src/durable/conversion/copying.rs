//! The copy of a database that is converted, as the thread that converts has it.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::mpsc::SyncSender;

use super::copy::{check_memory, copy_from_tree, copy_to_tree, flush};
use super::error::ConvertError;
use super::freeze::Freeze;
use crate::database::{CreateError, DatabaseConfig};
use crate::database_id::DatabaseId;
use crate::hash::KeyHasher;
use crate::memory::{MemoryIndex, bytes_of};
use crate::outcome::Refusal;
use crate::range::{Direction, Range};
use crate::store::Store;
use crate::tree::{Generation, TreeIndex, TreeWriter};
use crate::value::Entry;

/// Whoever wants a conversion: told how many entries are copied, and may give it up.
pub type ConvertWatch<'a> = &'a mut dyn FnMut(u64) -> ControlFlow<()>;

/// What a conversion came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvertReport {
    /// The commit that did it.
    pub sequence: u64,
    /// Entries that were copied, with those that have expired and are not swept.
    pub entries: u64,
}

/// A conversion that has begun: the database is frozen.
pub(in crate::durable) struct BegunConversion {
    store: Store,
    id: DatabaseId,
    config: DatabaseConfig,
    /// Drawn after all commits on the database. What is copied is durable when this is.
    sequence: u64,
    freeze: Freeze,
}

/// A conversion in the making.
pub(in crate::durable) struct ConvertingCopy {
    store: Store,
    id: DatabaseId,
    config: DatabaseConfig,
    content: ConversionContent,
    /// The last key that was copied.
    behind: Option<Box<[u8]>>,
    entries: u64,
    freeze: Freeze,
}

/// What it becomes.
pub(in crate::durable) enum ConversionContent {
    Memory {
        index: Box<MemoryIndex>,
        hasher: KeyHasher,
        bytes: u64,
        from: TreeIndex,
    },
    Tree {
        writer: Box<TreeWriter>,
        prepared: PreparedTree,
    },
}

/// A tree that has no name yet, and goes with this value.
pub(in crate::durable) struct PreparedTree {
    store: Store,
    generation: Generation,
}

/// A copy that is complete: the committer puts it in the place of the database.
pub(in crate::durable) struct ReadyCopy {
    id: DatabaseId,
    config: DatabaseConfig,
    content: ReadyContent,
    entries: u64,
    answer: SyncSender<Result<ConvertReport, ConvertError>>,
    _freeze: Freeze,
}

pub(super) enum ReadyContent {
    /// With what its entries take in memory: to add that up takes as long as there are entries, and
    /// everybody waits for the committer.
    Memory { index: Box<MemoryIndex>, bytes: u64 },
    /// On the device, and named. The log says soon that it is of use.
    Tree(Box<TreeWriter>),
}

impl ReadyCopy {
    /// Returns the database.
    pub(super) fn id(&self) -> DatabaseId {
        self.id
    }

    /// Returns what the database is made with from now on.
    pub(super) fn config(&self) -> DatabaseConfig {
        self.config
    }

    /// Returns the sequence in the name of the tree, if it is one.
    pub(super) fn tree_sequence(&self) -> Option<u64> {
        match &self.content {
            ReadyContent::Memory { .. } => None,
            ReadyContent::Tree(writer) => Some(writer.index().generation().sequence),
        }
    }

    /// Takes the copy out.
    pub(super) fn take_content(&mut self, hasher: &KeyHasher) -> ReadyContent {
        let empty = ReadyContent::Memory {
            index: Box::new(MemoryIndex::new(hasher.clone())),
            bytes: 0,
        };
        std::mem::replace(&mut self.content, empty)
    }

    /// Says what has become of it. Gives back what is not of use any more: to free it takes time.
    pub(super) fn answer(self, answer: Result<u64, ConvertError>) -> ReadyContent {
        let entries = self.entries;
        let answer = answer.map(|sequence| ConvertReport { sequence, entries });
        // Whoever asked waits for it, or is gone.
        let _ = self.answer.send(answer);
        self.content
    }
}

impl Drop for PreparedTree {
    fn drop(&mut self) {
        if let Some(trees) = self.store.trees() {
            trees.remove_prepared(self.generation);
        }
    }
}

impl BegunConversion {
    /// A conversion of a database to which nothing is written any more. `sequence` was drawn after
    /// all commits on it.
    pub(in crate::durable) fn new(
        store: Store,
        id: DatabaseId,
        config: DatabaseConfig,
        sequence: u64,
        freeze: Freeze,
    ) -> BegunConversion {
        BegunConversion {
            store,
            id,
            config,
            sequence,
            freeze,
        }
    }

    /// Returns the store.
    pub(in crate::durable) fn store(&self) -> &Store {
        &self.store
    }

    /// Whether what is to be copied is durable, if the log is so far.
    pub(in crate::durable) fn check_durable(
        &self,
        durable_sequence: Option<u64>,
    ) -> Result<(), ConvertError> {
        match durable_sequence {
            None => Err(ConvertError::LogFailed),
            Some(durable) if durable < self.sequence => Err(self.not_durable()),
            Some(_) => Ok(()),
        }
    }

    /// Why the log has taken nothing, though no write of it has failed before.
    fn not_durable(&self) -> ConvertError {
        match self.store.log_statistics() {
            Some(log) if log.has_failed => ConvertError::LogFailed,
            Some(log) if log.is_full => ConvertError::Refused(Refusal::LogFull),
            _ => ConvertError::Refused(Refusal::LogNotReady),
        }
    }

    /// Makes the folder that the content of a database in memory goes into.
    pub(in crate::durable) fn begin_on_disk(&self) -> Result<ConversionContent, ConvertError> {
        let generation = Generation {
            database: self.id,
            sequence: self.sequence,
        };
        let trees = self.store.trees();
        let trees = trees.ok_or(ConvertError::NotPossible(CreateError::KindNotSupported))?;
        let prepared = PreparedTree {
            store: self.store.clone(),
            generation,
        };
        let writer = trees.prepare(generation).map_err(ConvertError::Tree)?;
        Ok(ConversionContent::Tree {
            writer: Box::new(writer),
            prepared,
        })
    }

    pub(in crate::durable) fn with(self, content: ConversionContent) -> ConvertingCopy {
        ConvertingCopy {
            store: self.store,
            id: self.id,
            config: self.config,
            content,
            behind: None,
            entries: 0,
            freeze: self.freeze,
        }
    }
}

impl ConversionContent {
    /// What a database on disk becomes in memory.
    pub(in crate::durable) fn in_memory(hasher: &KeyHasher, from: TreeIndex) -> ConversionContent {
        ConversionContent::Memory {
            index: Box::new(MemoryIndex::new(hasher.clone())),
            hasher: hasher.clone(),
            bytes: 0,
            from,
        }
    }
}

impl ConvertingCopy {
    /// Copies some entries; returns whether these were the last.
    fn step(&mut self) -> Result<bool, ConvertError> {
        let behind = self.behind.take();
        let range = match &behind {
            None => Range::ALL,
            Some(key) => Range::ALL.beyond(key, Direction::Forward),
        };
        let last = match &mut self.content {
            ConversionContent::Tree { writer, .. } => {
                copy_to_tree(&self.store, self.id, &range, writer, &mut self.entries)?
            }
            ConversionContent::Memory {
                index,
                hasher,
                bytes,
                from,
            } => {
                let mut load = |entry: &Entry<'_>| {
                    *bytes += bytes_of(entry);
                    index.load(hasher.hash(entry.key), entry);
                };
                let last = copy_from_tree(from, &range, &mut self.entries, &mut load)?;
                check_memory(&self.store, &self.config, *bytes)?;
                last
            }
        };
        self.behind = last;
        Ok(self.behind.is_none())
    }

    /// Everything is copied: brings it to the device.
    pub(in crate::durable) fn complete(
        self,
        answer: SyncSender<Result<ConvertReport, ConvertError>>,
    ) -> Result<ReadyCopy, ConvertError> {
        let content = match self.content {
            ConversionContent::Memory {
                mut index,
                bytes,
                from,
                ..
            } => {
                index.finish_loading();
                // A start before the next snapshot makes it from there again.
                while from.flush().map_err(ConvertError::Tree)? {}
                ReadyContent::Memory { index, bytes }
            }
            ConversionContent::Tree {
                mut writer,
                prepared,
            } => {
                flush(&mut writer)?;
                // It is opened again under its name.
                drop(writer);
                let trees = self.store.trees();
                let trees =
                    trees.ok_or(ConvertError::NotPossible(CreateError::KindNotSupported))?;
                let named = trees.name(prepared.generation);
                ReadyContent::Tree(Box::new(named.map_err(ConvertError::Tree)?))
            }
        };
        Ok(ReadyCopy {
            id: self.id,
            config: self.config,
            content,
            entries: self.entries,
            answer,
            _freeze: self.freeze,
        })
    }

    /// Copies everything.
    pub(in crate::durable) fn run(&mut self, watch: ConvertWatch<'_>) -> Result<(), ConvertError> {
        while !self.step()? {
            if watch(self.entries).is_break() {
                return Err(ConvertError::Cancelled);
            }
        }
        Ok(())
    }
}

impl fmt::Debug for ReadyCopy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ReadyCopy")
            .field("id", &self.id)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
impl ReadyCopy {
    /// A copy in memory of the default database, with one entry.
    pub(super) fn with_one_entry(
        store: &Store,
        answer: SyncSender<Result<ConvertReport, ConvertError>>,
        freeze: Freeze,
    ) -> ReadyCopy {
        let mut index = MemoryIndex::new(store.hasher().clone());
        let entry = Entry {
            key: b"key",
            value: crate::value::Value::Inline(b"value"),
            version: 1,
            expires_ms: 0,
        };
        index.put(index.hash(entry.key), &entry);
        ReadyCopy {
            id: DatabaseId::DEFAULT,
            config: store.config(DatabaseId::DEFAULT).unwrap_or_default(),
            content: ReadyContent::Memory {
                index: Box::new(index),
                bytes: bytes_of(&entry),
            },
            entries: 1,
            answer,
            _freeze: freeze,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::StoreConfig;

    #[test]
    fn what_is_copied_must_be_durable() {
        let store = Store::in_memory(StoreConfig::new(1)).expect("the limits make sense");
        let begun = BegunConversion {
            store,
            id: DatabaseId::DEFAULT,
            config: DatabaseConfig::default(),
            sequence: 7,
            freeze: Freeze::default(),
        };
        for (durable, may_go_on) in [
            (None, false),
            (Some(6), false),
            (Some(7), true),
            (Some(8), true),
        ] {
            let checked = begun.check_durable(durable);
            assert_eq!(checked.is_ok(), may_go_on, "{durable:?}: {checked:?}");
        }
    }
}
