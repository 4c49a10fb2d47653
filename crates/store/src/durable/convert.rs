//! Conversion of a database between memory and disk, while everything else goes on.
//!
//! Writes to the database are refused meanwhile, reads go on. Its content is copied aside, as it is: with versions and
//! expiries. Then one record in the log puts the copy in its place. Before that record is durable nothing has happened.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Weak};

use super::committer::DurableCommitter;
use super::rounds::Rounds;
use super::thread::Durable;
use crate::catalogue::{CreateError, DatabaseConfig, DatabaseId, Kind};
use crate::committer::Clock;
use crate::hash::KeyHasher;
use crate::index::Index;
use crate::memory::{MemoryIndex, bytes_of};
use crate::outcome::Refusal;
use crate::range::{Direction, Range, ScanEnd};
use crate::snapshot::limits::SLICE_ROWS;
use crate::store::Store;
use crate::tree::{self, Generation, TreeError, TreeIndex, TreeWriter};
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

/// Keeps writes from a database until it is dropped.
#[derive(Debug)]
struct Freeze(Arc<()>);

/// A database to which nothing is written for as long as somebody holds the other end.
#[derive(Debug)]
pub(super) struct Frozen {
    id: DatabaseId,
    holder: Weak<()>,
}

impl Frozen {
    pub(super) fn is_frozen(&self, id: DatabaseId) -> bool {
        self.id == id && self.holder.strong_count() > 0
    }

    fn is_over(&self) -> bool {
        self.holder.strong_count() == 0
    }
}

/// A conversion in the making.
pub(super) struct Converting {
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
pub(super) struct Prepared {
    store: Store,
    generation: Generation,
}

/// A copy that is complete: the committer puts it in the place of the database.
pub(super) struct Ready {
    pub(super) id: DatabaseId,
    pub(super) config: DatabaseConfig,
    pub(super) content: ReadyContent,
    pub(super) entries: u64,
    answer: SyncSender<Result<ConvertReport, ConvertError>>,
    _freeze: Freeze,
}

pub(super) enum ReadyContent {
    Memory(Box<MemoryIndex>),
    /// Complete, and closed.
    Prepared(Prepared),
    /// It has its name. The log says soon that it is of use.
    Installed(Box<TreeWriter>),
}

impl Ready {
    /// Says what has become of it.
    pub(super) fn answer(self, answer: Result<u64, ConvertError>) {
        let entries = self.entries;
        let answer = answer.map(|sequence| ConvertReport { sequence, entries });
        // Whoever asked waits for it, or is gone.
        let _ = self.answer.send(answer);
    }

    /// Gives the prepared tree the name that goes with a commit.
    pub(super) fn install(&mut self, sequence: u64) -> Result<(), TreeError> {
        let ReadyContent::Prepared(prepared) = &self.content else {
            return Ok(());
        };
        let trees = prepared.store.trees().expect("it has a prepared tree");
        let generation = Generation {
            database: self.id,
            sequence,
        };
        let writer = trees.install(prepared.generation, generation, None)?;
        self.content = ReadyContent::Installed(Box::new(writer));
        Ok(())
    }

    /// The log has nothing of it, and never will.
    pub(super) fn discard(&self) {
        if let ReadyContent::Installed(writer) = &self.content {
            writer.index().discard();
        }
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
    fn begin_conversion(&mut self, id: DatabaseId, kind: Kind) -> Result<Converting, ConvertError> {
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
        // What is copied is durable, so that what is on disk never has what the log can lose.
        self.sync();
        if self.has_failed() {
            return Err(ConvertError::LogFailed);
        }
        let content = match kind {
            Kind::Disk => self.begin_on_disk(&store, id)?,
            Kind::Memory => self.begin_in_memory(&store, id)?,
        };
        let freeze = Freeze(Arc::default());
        *self.frozen() = Some(Frozen {
            id,
            holder: Arc::downgrade(&freeze.0),
        });
        Ok(Converting {
            store,
            id,
            config,
            content,
            behind: None,
            entries: 0,
            freeze,
        })
    }

    /// Whether a database is being converted.
    pub(super) fn is_converting(&mut self) -> bool {
        let frozen = self.frozen().as_ref();
        frozen.is_some_and(|frozen| !frozen.is_over())
    }

    fn begin_on_disk(&self, store: &Store, id: DatabaseId) -> Result<Content, ConvertError> {
        let trees = store.trees().expect("it was checked");
        let prepared = Prepared {
            store: store.clone(),
            generation: Generation {
                database: id,
                sequence: self.log().written().sequence,
            },
        };
        let writer = trees.prepare_open(prepared.generation);
        Ok(Content::Tree {
            writer: Box::new(writer.map_err(ConvertError::Tree)?),
            prepared,
        })
    }

    fn begin_in_memory(&mut self, store: &Store, id: DatabaseId) -> Result<Content, ConvertError> {
        let durable_sequence = self.log().durable().sequence;
        let trees = self.trees();
        let writer = trees.get_mut(id).expect("each database on disk has a tree");
        writer.seal(durable_sequence);
        let hasher = store.hasher().clone();
        Ok(Content::Memory {
            index: Box::new(MemoryIndex::new(hasher.clone())),
            hasher,
            bytes: 0,
            from: writer.index().clone(),
        })
    }
}

impl Converting {
    /// Copies some entries; answers whether these were the last.
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
                mut index, from, ..
            } => {
                index.finish_loading();
                // A start before the next snapshot makes it from there again.
                while from.flush().map_err(ConvertError::Tree)? {}
                ReadyContent::Memory(index)
            }
            Content::Tree {
                mut writer,
                prepared,
            } => {
                flush(&mut writer)?;
                // It is opened again under its name.
                drop(writer);
                ReadyContent::Prepared(prepared)
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

/// Copies a page of a database in memory; answers the last key, if there may be more.
fn copy_to_tree(
    store: &Store,
    id: DatabaseId,
    range: &Range<'_>,
    writer: &mut TreeWriter,
    entries: &mut u64,
) -> Result<Option<Box<[u8]>>, ConvertError> {
    let database = store.find(id).ok_or(ConvertError::Unknown)?;
    let state = database.state.read();
    let (mut last, mut too_long) = (None, false);
    let end = (state.index.memory()).scan(range, Direction::Forward, 0, SLICE_ROWS, &mut |entry| {
        if entry.key.len() > tree::limits::KEY_BYTES {
            too_long = true;
            return ControlFlow::Break(());
        }
        writer.load(entry);
        *entries += 1;
        ControlFlow::Continue(())
    });
    if let ScanEnd::BudgetSpent(key) = end {
        last = Some(key.into());
    }
    drop(state);
    if too_long {
        return Err(ConvertError::KeyTooLong);
    }
    if writer.wants_seal() {
        flush(writer)?;
    }
    Ok(last)
}

/// Copies a page of a tree; answers the last key, if there may be more.
fn copy_from_tree(
    from: &TreeIndex,
    range: &Range<'_>,
    entries: &mut u64,
    load: &mut dyn FnMut(&Entry<'_>),
) -> Result<Option<Box<[u8]>>, ConvertError> {
    let view = from.view();
    let end = view.scan(range, Direction::Forward, 0, SLICE_ROWS, &mut |entry| {
        load(entry);
        *entries += 1;
        ControlFlow::Continue(())
    });
    Ok(match end.map_err(ConvertError::Tree)? {
        ScanEnd::BudgetSpent(key) => Some(key.into()),
        _ => None,
    })
}

fn flush(writer: &mut TreeWriter) -> Result<(), ConvertError> {
    // What is in it is durable in the log, or in the snapshot.
    writer.seal(u64::MAX);
    while writer.index().flush().map_err(ConvertError::Tree)? {}
    Ok(())
}

fn check_memory(store: &Store, config: &DatabaseConfig, bytes: u64) -> Result<(), ConvertError> {
    let limit_bytes = config.limits.memory_bytes;
    if bytes > limit_bytes {
        return Err(ConvertError::TooLarge { limit_bytes });
    }
    let limit_bytes = store.memory_limit_bytes();
    if store.memory_bytes().saturating_add(bytes) > limit_bytes {
        return Err(ConvertError::TooLarge { limit_bytes });
    }
    Ok(())
}

impl Rounds {
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
        let mut converting = self.committer().begin_conversion(id, kind)?;
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
    /// Makes a database one of another kind, while everything goes on but writes to it, which are refused with
    /// [`Refusal::Converting`]. All or nothing, also if the process dies. Takes as long as it takes, on the thread that calls.
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
        let begun = hub.errands.send(&hub.signal, begin);
        let mut converting = begun.ok_or(ConvertError::Stopping)??;
        converting.run(watch)?;
        let (answer, answered) = sync_channel(1);
        let ready = converting.complete(answer)?;
        let give = move |committer: &mut DurableCommitter, _: &mut dyn Clock| {
            committer.set_ready(ready);
        };
        (hub.errands.send(&hub.signal, give)).ok_or(ConvertError::Stopping)?;
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

/// Why a database was not converted. Nothing was done, unless it says otherwise.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConvertError {
    /// There is no such database.
    Unknown,
    /// It is of that kind already.
    IsOfKind,
    /// A database of that kind cannot be as this one is.
    NotPossible(CreateError),
    /// Another one is being converted, or a backup is made.
    Busy,
    /// It has a key that is too long for a database on disk.
    KeyTooLong,
    /// It does not fit into memory.
    TooLarge {
        /// The limit, of the database or of the server.
        limit_bytes: u64,
    },
    /// A tree could not be read or written.
    Tree(TreeError),
    /// A write or sync of the log had failed before.
    LogFailed,
    /// The commit was refused. With [`Refusal::OutcomeUnknown`] only a restart shows whether it took effect.
    Refused(Refusal),
    /// It was given up by whoever wanted it.
    Cancelled,
    /// The server stops.
    Stopping,
}

impl fmt::Display for ConvertError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConvertError::Unknown => write!(formatter, "there is no such database"),
            ConvertError::IsOfKind => write!(formatter, "the database is of that kind already"),
            ConvertError::NotPossible(error) => error.fmt(formatter),
            ConvertError::Busy => write!(
                formatter,
                "another database is being converted, or a backup is made; try again when that is done"
            ),
            ConvertError::KeyTooLong => write!(
                formatter,
                "the database has a key of more than {} bytes, the longest that one on disk can have",
                tree::limits::KEY_BYTES
            ),
            ConvertError::TooLarge { limit_bytes } => write!(
                formatter,
                "the database does not fit into memory: with it more than {limit_bytes} bytes would be in use"
            ),
            ConvertError::Tree(error) => error.fmt(formatter),
            ConvertError::LogFailed => Refusal::LogFailed.fmt(formatter),
            ConvertError::Refused(refusal) => refusal.fmt(formatter),
            ConvertError::Cancelled => write!(formatter, "the conversion was given up"),
            ConvertError::Stopping => write!(formatter, "the server stops"),
        }
    }
}

impl std::error::Error for ConvertError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ConvertError::Tree(error) => Some(error),
            _ => None,
        }
    }
}

impl DurableCommitter {
    /// Takes over a copy that is complete: the next group puts it in the place of its database.
    fn set_ready(&mut self, ready: Ready) {
        *self.conversion() = Some(Conversion::Ready(ready));
    }

    /// Adds a conversion that waits to the group, which is complete with it.
    pub(super) fn decide_conversion(&mut self) {
        let Some(Conversion::Ready(mut ready)) = self.conversion().take() else {
            return;
        };
        match self.begin_commit(&mut ready) {
            Ok(sequence) => *self.conversion() = Some(Conversion::Logged { ready, sequence }),
            Err(error) => ready.answer(Err(error)),
        }
    }

    fn begin_commit(&mut self, ready: &mut Ready) -> Result<u64, ConvertError> {
        let database = self.store().find(ready.id).ok_or(ConvertError::Unknown)?;
        if self.has_failed() {
            return Err(ConvertError::LogFailed);
        }
        let sequence = self.store().next_sequence();
        let sequence = sequence.ok_or(ConvertError::Refused(Refusal::LogBehind))?;
        ready.install(sequence).map_err(ConvertError::Tree)?;
        self.add_conversion(ready.id, &database.name, &ready.config, sequence);
        Ok(sequence)
    }

    /// The group is durable: what was converted takes its place.
    pub(super) fn publish_conversion(&mut self) {
        let Some(Conversion::Logged {
            mut ready,
            sequence,
        }) = self.conversion().take()
        else {
            return;
        };
        let store = self.store().clone();
        let id = ready.id;
        let empty = ReadyContent::Memory(Box::new(MemoryIndex::new(store.hasher().clone())));
        let older = match std::mem::replace(&mut ready.content, empty) {
            ReadyContent::Installed(writer) => {
                let index = Index::Tree(writer.index().clone());
                self.trees().insert(id, *writer);
                store.convert_database(id, ready.config, index, sequence)
            }
            ReadyContent::Memory(index) => {
                self.trees().remove(id);
                let index = Index::Memory(*index);
                store.convert_database(id, ready.config, index, sequence)
            }
            ReadyContent::Prepared(_) => unreachable!("it was installed before it was logged"),
        };
        self.retire_index(older, sequence);
        ready.answer(Ok(sequence));
    }

    /// The group with the conversion is refused.
    pub(super) fn refuse_conversion(&mut self, refusal: Refusal) {
        let Some(conversion) = self.conversion().take() else {
            return;
        };
        match conversion {
            Conversion::Ready(ready) => *self.conversion() = Some(Conversion::Ready(ready)),
            Conversion::Logged { ready, .. } => {
                // Otherwise the next start finds out whether the log knows of it.
                if refusal != Refusal::OutcomeUnknown {
                    ready.discard();
                }
                ready.answer(Err(ConvertError::Refused(refusal)));
            }
        }
    }
}

/// A conversion on its way through the committer.
#[derive(Debug)]
pub(super) enum Conversion {
    /// It waits for a group.
    Ready(Ready),
    /// It is in the group that is under way.
    Logged { ready: Ready, sequence: u64 },
}
