//! Conversion of a database between memory and disk, while everything else goes on.
//!
//! Writes to the database are refused meanwhile, reads go on. Its content is copied aside, as it
//! is: with versions and expiries. Then one record in the log puts the copy in its place. Before
//! that record is durable nothing has happened.
//!
//! The committer does what takes no time: it freezes the database, and later logs the record.
//! Folders are made, filled, named and opened by the thread that converts. So the name of a tree
//! cannot have the sequence of the record, which is drawn when it is logged: it has one that was
//! drawn when the database was frozen, and the record says which.

mod commit;
mod copy;
mod error;
mod record;

use std::fmt;
use std::ops::ControlFlow;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Weak};

use super::commit_loop::CommitLoop;
use super::committer::DurableCommitter;
use super::thread::Durable;
use crate::clock::Clock;
use crate::database::{CreateError, DatabaseConfig, Kind};
use crate::database_id::DatabaseId;
use crate::hash::KeyHasher;
use crate::memory::{MemoryIndex, bytes_of};
use crate::outcome::Refusal;
use crate::range::{Direction, Range};
use crate::store::Store;
use crate::tree::{Generation, TreeIndex, TreeWriter};
use crate::value::Entry;
pub(in crate::durable) use commit::Conversion;
use copy::{check_memory, copy_from_tree, copy_to_tree, flush, make_tree};
pub use error::ConvertError;
pub(in crate::durable) use record::Converted;

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

/// Keeps writes from a database until it is dropped.
#[derive(Debug)]
struct Freeze(Arc<()>);

/// A database to which nothing is written for as long as somebody holds the other end.
#[derive(Debug)]
pub(in crate::durable) struct Frozen {
    id: DatabaseId,
    holder: Weak<()>,
}

impl Frozen {
    pub(in crate::durable) fn is_frozen(&self, id: DatabaseId) -> bool {
        self.id == id && self.holder.strong_count() > 0
    }

    fn is_over(&self) -> bool {
        self.holder.strong_count() == 0
    }
}

/// A conversion that has begun: the database is frozen.
pub(in crate::durable) struct Begun {
    store: Store,
    id: DatabaseId,
    config: DatabaseConfig,
    /// Drawn after all commits on the database. What is copied is durable when this is.
    sequence: u64,
    freeze: Freeze,
}

/// A conversion in the making.
pub(in crate::durable) struct Converting {
    store: Store,
    id: DatabaseId,
    config: DatabaseConfig,
    content: Content,
    /// The last key that was copied.
    behind: Option<Box<[u8]>>,
    entries: u64,
    freeze: Freeze,
}

/// What it becomes.
enum Content {
    Memory {
        index: Box<MemoryIndex>,
        hasher: KeyHasher,
        bytes: u64,
        from: TreeIndex,
    },
    Tree {
        writer: Box<TreeWriter>,
        prepared: Prepared,
    },
}

/// A tree that has no name yet, and goes with this value.
pub(in crate::durable) struct Prepared {
    store: Store,
    generation: Generation,
}

/// A copy that is complete: the committer puts it in the place of the database.
pub(in crate::durable) struct Ready {
    pub(in crate::durable) id: DatabaseId,
    pub(in crate::durable) config: DatabaseConfig,
    pub(in crate::durable) content: ReadyContent,
    pub(in crate::durable) entries: u64,
    answer: SyncSender<Result<ConvertReport, ConvertError>>,
    _freeze: Freeze,
}

pub(in crate::durable) enum ReadyContent {
    /// With what its entries take in memory: to add that up takes as long as there are entries, and
    /// everybody waits for the committer.
    Memory { index: Box<MemoryIndex>, bytes: u64 },
    /// On the device, and named. The log says soon that it is of use.
    Tree(Box<TreeWriter>),
}

impl ReadyContent {
    /// The sequence in the name of the tree, if it is one.
    fn tree_sequence(&self) -> Option<u64> {
        match self {
            ReadyContent::Memory { .. } => None,
            ReadyContent::Tree(writer) => Some(writer.index().generation().sequence),
        }
    }
}

impl Ready {
    /// Says what has become of it. Gives back what is not of use any more: to free it takes time.
    fn answer(self, answer: Result<u64, ConvertError>) -> ReadyContent {
        let entries = self.entries;
        let answer = answer.map(|sequence| ConvertReport { sequence, entries });
        // Whoever asked waits for it, or is gone.
        let _ = self.answer.send(answer);
        self.content
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        if let Some(trees) = self.store.trees() {
            trees.remove_prepared(self.generation);
        }
    }
}

impl DurableCommitter {
    /// Begins a conversion, between two groups. From now on writes to the database are refused.
    fn begin_conversion(&mut self, id: DatabaseId, kind: Kind) -> Result<Begun, ConvertError> {
        let store = self.store().clone();
        let older = store.config(id).ok_or(ConvertError::Unknown)?;
        if older.kind == kind {
            return Err(ConvertError::IsOfKind);
        }
        let config = older.of_kind(kind);
        config
            .check(true, store.trees().is_some())
            .map_err(ConvertError::NotPossible)?;
        if self.is_converting() {
            return Err(ConvertError::Busy);
        }
        if self.has_failed() {
            return Err(ConvertError::LogFailed);
        }
        let sequence = store.next_sequence();
        let sequence = sequence.ok_or(ConvertError::Refused(Refusal::LogBehind))?;
        // So that the log has this sequence, and what is copied is durable: what is on disk must
        // never have what the log can lose.
        self.ask_for_mark();
        let freeze = Freeze(Arc::default());
        *self.frozen() = Some(Frozen {
            id,
            holder: Arc::downgrade(&freeze.0),
        });
        Ok(Begun {
            store,
            id,
            config,
            sequence,
            freeze,
        })
    }

    /// Whether a database is being converted.
    pub(in crate::durable) fn is_converting(&mut self) -> bool {
        let frozen = self.frozen().as_ref();
        frozen.is_some_and(|frozen| !frozen.is_over())
    }

    /// What a database on disk becomes in memory, once the log is durable.
    fn begin_in_memory(&mut self, id: DatabaseId) -> Result<Content, ConvertError> {
        let hasher = self.store().hasher().clone();
        let durable_sequence = self.log().durable().sequence;
        let writer = self.trees().get_mut(id).ok_or(ConvertError::Unknown)?;
        writer.seal(durable_sequence);
        Ok(Content::Memory {
            index: Box::new(MemoryIndex::new(hasher.clone())),
            hasher,
            bytes: 0,
            from: writer.index().clone(),
        })
    }
}

impl Begun {
    /// Whether what is to be copied is durable, if the log is so far.
    fn check_durable(&self, durable_sequence: Option<u64>) -> Result<(), ConvertError> {
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
    fn begin_on_disk(&self) -> Result<Content, ConvertError> {
        let generation = Generation {
            database: self.id,
            sequence: self.sequence,
        };
        let trees = self.store.trees();
        let trees = trees.ok_or(ConvertError::NotPossible(CreateError::KindNotSupported))?;
        let prepared = Prepared {
            store: self.store.clone(),
            generation,
        };
        let writer = trees.prepare(generation).map_err(ConvertError::Tree)?;
        Ok(Content::Tree {
            writer: Box::new(writer),
            prepared,
        })
    }

    fn with(self, content: Content) -> Converting {
        Converting {
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

impl Converting {
    /// Copies some entries; returns whether these were the last.
    fn step(&mut self) -> Result<bool, ConvertError> {
        let behind = self.behind.take();
        let range = match &behind {
            None => Range::ALL,
            Some(key) => Range::ALL.beyond(key, Direction::Forward),
        };
        let last = match &mut self.content {
            Content::Tree { writer, .. } => {
                copy_to_tree(&self.store, self.id, &range, writer, &mut self.entries)?
            }
            Content::Memory {
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
    fn complete(
        self,
        answer: SyncSender<Result<ConvertReport, ConvertError>>,
    ) -> Result<Ready, ConvertError> {
        let content = match self.content {
            Content::Memory {
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
            Content::Tree {
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
        Ok(Ready {
            id: self.id,
            config: self.config,
            content,
            entries: self.entries,
            answer,
            _freeze: self.freeze,
        })
    }

    /// Copies everything.
    fn run(&mut self, watch: ConvertWatch<'_>) -> Result<(), ConvertError> {
        while !self.step()? {
            if watch(self.entries).is_break() {
                return Err(ConvertError::Cancelled);
            }
        }
        Ok(())
    }
}

impl CommitLoop {
    /// Makes a database one of another kind, on this thread, between two rounds.
    pub fn convert(
        &mut self,
        id: DatabaseId,
        kind: Kind,
        clock: &mut dyn Clock,
    ) -> Result<ConvertReport, ConvertError> {
        if self.hub().holds.is_held() {
            return Err(ConvertError::Busy);
        }
        let begun = self.committer().begin_conversion(id, kind)?;
        while self.round(clock) {}
        let durable_sequence = self.committer().log().durable().sequence;
        begun.check_durable((!self.has_failed()).then_some(durable_sequence))?;
        make_tree(&begun.store, id)?;
        let content = match kind {
            Kind::Disk => begun.begin_on_disk()?,
            Kind::Memory => self.committer().begin_in_memory(id)?,
        };
        let mut converting = begun.with(content);
        converting.run(&mut |_| ControlFlow::Continue(()))?;
        let (answer, answered) = sync_channel(1);
        let ready = converting.complete(answer)?;
        self.committer().set_ready(ready);
        while self.round(clock) {}
        answered
            .try_recv()
            .unwrap_or(Err(ConvertError::Refused(Refusal::LogBehind)))
    }
}

impl Durable {
    /// Makes a database one of another kind, while everything goes on but writes to it, which are
    /// refused with [`Refusal::Converting`]. All or nothing, also if the process dies. Takes as
    /// long as it takes, on the thread that calls.
    pub fn convert(
        &self,
        id: DatabaseId,
        kind: Kind,
        watch: ConvertWatch<'_>,
    ) -> Result<ConvertReport, ConvertError> {
        let hub = self.hub();
        let holder = hub.clone();
        let begin = move |committer: &mut DurableCommitter, _: &mut dyn Clock| {
            // A backup has the trees as they were when it began, and the log behind.
            if holder.holds.is_held() {
                return Err(ConvertError::Busy);
            }
            committer.begin_conversion(id, kind)
        };
        let begun = hub.jobs.send(&hub.signal, begin);
        let begun = begun.ok_or(ConvertError::Stopping)??;
        begun.check_durable(hub.sync())?;
        make_tree(&begun.store, id)?;
        let content = match kind {
            Kind::Disk => begun.begin_on_disk()?,
            Kind::Memory => {
                let begin = move |committer: &mut DurableCommitter, _: &mut dyn Clock| {
                    committer.begin_in_memory(id)
                };
                let begun = hub.jobs.send(&hub.signal, begin);
                begun.ok_or(ConvertError::Stopping)??
            }
        };
        let mut converting = begun.with(content);
        converting.run(watch)?;
        let (answer, answered) = sync_channel(1);
        let ready = converting.complete(answer)?;
        let give = move |committer: &mut DurableCommitter, _: &mut dyn Clock| {
            committer.set_ready(ready);
        };
        (hub.jobs.send(&hub.signal, give)).ok_or(ConvertError::Stopping)?;
        answered.recv().unwrap_or(Err(ConvertError::Stopping))
    }
}

impl fmt::Debug for Ready {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Ready")
            .field("id", &self.id)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::StoreConfig;

    #[test]
    fn what_is_copied_must_be_durable() {
        let store = Store::in_memory(StoreConfig::new(1)).expect("the limits make sense");
        let begun = Begun {
            store,
            id: DatabaseId::DEFAULT,
            config: DatabaseConfig::default(),
            sequence: 7,
            freeze: Freeze(Arc::default()),
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
