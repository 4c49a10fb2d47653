//! Makes the state of the databases from a snapshot and the records of the log behind it.

use std::ops::ControlFlow;

use parking_lot::RawRwLock;
use parking_lot::lock_api::ArcRwLockWriteGuard;

use super::conversion::Converted;
use super::open_error::{OpenError, ReplayError};
use super::replay_trees::ReplayTrees;
use crate::blob;
use crate::catalogue::State;
use crate::database::{DatabaseConfig, Durability, Kind};
use crate::database_id::DatabaseId;
use crate::log::{Record, RecordKind};
use crate::range::{Direction, Range, ScanEnd};
use crate::snapshot::{self, SnapshotHeader, Visitor};
use crate::store::Store;
use crate::tree::{Generation, TreeError, TreeIndex};
use crate::value::Entry;

/// Applies a snapshot, and the records of the log behind it, to the indexes. What they take in
/// memory is added up when all are there.
pub(super) struct Replay<'a> {
    store: &'a Store,
    /// Everything up to this sequence came with the snapshot.
    base_sequence: u64,
    /// The database of the last record, open for the next one.
    current: Option<(DatabaseId, ArcRwLockWriteGuard<RawRwLock, State>)>,
    trees: ReplayTrees<'a>,
    /// Contents of blobs that have no description any more.
    removed: blob::RemovedContents,
    problem: Option<ReplayError>,
}

impl<'a> Replay<'a> {
    pub(super) fn new(store: &'a Store, accept_loss: bool) -> Result<Replay<'a>, TreeError> {
        Ok(Replay {
            store,
            base_sequence: 0,
            current: None,
            trees: ReplayTrees::open(store.trees(), accept_loss)?,
            removed: blob::RemovedContents::default(),
            problem: None,
        })
    }

    /// Contents of blobs whose descriptions the log has replaced or removed.
    pub(super) fn take_removed(&mut self) -> blob::RemovedContents {
        std::mem::take(&mut self.removed)
    }

    /// The trees.
    pub(super) fn trees(&self) -> &ReplayTrees<'a> {
        &self.trees
    }

    /// Brings what records with such hashes are going to change into the processor's caches.
    pub(super) fn warm(&mut self, database: DatabaseId, hashes: impl Iterator<Item = u64>) {
        if let Some(state) = self.state_of(database) {
            state.index.memory().warm(hashes);
        }
    }

    /// Applies a record, unless it came with the snapshot, or is in a tree.
    pub(super) fn apply(&mut self, record: &Record<'_>) {
        if self.problem.is_some() {
            return;
        }
        if record.sequence > self.base_sequence {
            self.problem = self.try_apply(record).err();
        } else {
            self.apply_to_trees(record);
        }
    }

    /// Applies a record that came with the snapshot: a tree may lag behind that.
    fn apply_to_trees(&mut self, record: &Record<'_>) {
        match record.kind {
            RecordKind::Set | RecordKind::Delete | RecordKind::Expire => self.trees.change(record),
            RecordKind::DatabaseCreated | RecordKind::Clear => {
                self.trees.begins_in_log(generation_of(record));
            }
            _ => {}
        }
    }

    fn try_apply(&mut self, record: &Record<'_>) -> Result<(), ReplayError> {
        let error = |what| ReplayError {
            sequence: record.sequence,
            what,
        };
        match record.kind {
            RecordKind::Mark => Ok(()),
            RecordKind::DatabaseCreated => {
                let config = DatabaseConfig::decode_logged(record.value);
                let config = config.ok_or(error("the configuration of a database"))?;
                let name = std::str::from_utf8(record.key);
                let name = name.map_err(|_| error("the name of a database"))?;
                if config.kind == Kind::Disk && self.store.trees().is_none() {
                    return Err(error("a database on disk, for which there is no place"));
                }
                let least = self.store.check_create(name, &config);
                if least.map_err(|_| error("a second database of a name"))? > record.database {
                    return Err(error("a database with the number of another one"));
                }
                self.store
                    .insert_database(record.database, name, config, None, record.sequence);
                if config.kind == Kind::Disk {
                    let generation = generation_of(record);
                    self.trees.begin_empty(record.database, generation);
                }
                Ok(())
            }
            RecordKind::DatabaseConverted => {
                let converted = Converted::decode(record.value);
                let converted = converted.ok_or(error("the configuration of a database"))?;
                self.convert(record, &converted)
                    .ok_or(error("an unknown database"))
            }
            RecordKind::DatabaseDropped => {
                // Its lock is needed.
                self.current = None;
                self.trees.forget(record.database);
                let dropped = self.store.remove_database(record.database);
                dropped.map(drop).map_err(|_| error("an unknown database"))
            }
            RecordKind::Set | RecordKind::Delete | RecordKind::Expire | RecordKind::Clear => self
                .change(record)
                .ok_or(error("a change of an unknown database")),
        }
    }

    /// Makes a database one of another kind; `None`: there is no such database.
    fn convert(&mut self, record: &Record<'_>, converted: &Converted) -> Option<()> {
        self.current = None;
        let id = record.database;
        self.store.find(id)?;
        self.store.replace_empty(id, converted.config.kind);
        match converted.config.kind {
            Kind::Disk => {
                let generation = Generation {
                    database: id,
                    sequence: converted.tree_sequence.unwrap_or(record.sequence),
                };
                self.trees.expect(id, generation);
            }
            Kind::Memory | Kind::Remote(_) => {
                if let Some(tree) = self.trees.take(id, record.sequence)
                    && let Err(error) = self.load(id, &tree)
                    && self.trees.lose(id, error)
                    && let Some(state) = self.state_of(id)
                {
                    drop(state.index.memory_mut().take());
                }
            }
        }
        Some(())
    }

    /// Loads a database into memory from the tree that it was in.
    fn load(&mut self, id: DatabaseId, tree: &TreeIndex) -> Result<(), TreeError> {
        let Some(state) = self.state_of(id) else {
            return Ok(());
        };
        let index = state.index.memory_mut();
        let mut behind: Option<Vec<u8>> = None;
        loop {
            // What a view has lent is in memory until it goes: page by page.
            let view = tree.view();
            let range = match &behind {
                None => Range::ALL,
                Some(key) => Range::ALL.beyond(key, Direction::Forward),
            };
            let rows = snapshot::limits::SLICE_ROWS;
            let end = view.scan(&range, Direction::Forward, 0, rows, &mut |entry| {
                let hash = index.hash(entry.key);
                index.load(hash, entry);
                ControlFlow::Continue(())
            })?;
            match end {
                ScanEnd::BudgetSpent(key) => behind = Some(key.to_vec()),
                _ => return Ok(()),
            }
        }
    }

    /// Applies a change of a database; `None`: there is no such database.
    fn change(&mut self, record: &Record<'_>) -> Option<()> {
        if self.trees.has(record.database) {
            if record.kind == RecordKind::Clear {
                let generation = generation_of(record);
                self.trees.begin_empty(record.database, generation);
            } else {
                self.trees.change(record);
            }
            return Some(());
        }
        if record.kind == RecordKind::Clear {
            // Nothing that came out of a tree is left.
            self.trees.forget(record.database);
        }
        if record.database == DatabaseId::BLOBS {
            self.note_removed(record);
        }
        let state = self.state_of(record.database)?;
        let index = state.index.memory_mut();
        match record.entry() {
            Some(entry) => {
                let hash = index.hash(record.key);
                index.load(hash, &entry);
            }
            None if record.kind == RecordKind::Clear => drop(index.take()),
            None => {
                let hash = index.hash(record.key);
                index.remove(record.key, hash);
            }
        }
        state.sequence = record.sequence;
        Some(())
    }

    fn note_removed(&mut self, record: &Record<'_>) {
        let mut removed = std::mem::take(&mut self.removed);
        if let Some(state) = self.state_of(record.database) {
            let index = state.index.memory();
            if let Some(entry) = index.find(record.key, index.hash(record.key)) {
                removed.note(entry.value.bytes());
            }
        }
        self.removed = removed;
    }

    fn state_of(&mut self, id: DatabaseId) -> Option<&mut State> {
        if self.current.as_ref().is_none_or(|(open, _)| *open != id) {
            self.current = None;
            let database = self.store.find(id)?;
            self.current = Some((id, database.state.write_arc()));
        }
        self.current.as_mut().map(|(_, state)| &mut **state)
    }

    /// Ends the replay, and changes nothing in the folder: what is left to do is to
    /// [finish](ReplayTrees::finish) the trees.
    pub(super) fn finish(
        mut self,
        default_durability: Durability,
    ) -> Result<ReplayTrees<'a>, OpenError> {
        if let Some(problem) = self.problem {
            return Err(OpenError::Replay(problem));
        }
        self.current = None;
        self.store.finish_loading();
        let mut problems = self.trees.take_problems().into_iter();
        if let Some((id, error)) = problems.next() {
            let name_of = |id| {
                self.store
                    .find(id)
                    .map(|database| database.name.to_string())
            };
            return Err(match name_of(id) {
                Some(name) => OpenError::Database {
                    name,
                    error,
                    others: problems.filter_map(|(id, _)| name_of(id)).collect(),
                },
                None => OpenError::Tree(error),
            });
        }
        let is_on_disk = self.trees.has(DatabaseId::DEFAULT);
        let database = self.store.find(DatabaseId::DEFAULT);
        let database = database.expect("the default database always exists");
        let has_content = is_on_disk || database.state.read().index.entries() > 0;
        if default_durability == Durability::Volatile && has_content {
            return Err(OpenError::DefaultHasContent);
        }
        Ok(self.trees)
    }
}

impl Visitor for Replay<'_> {
    fn header(&mut self, header: &SnapshotHeader) -> Result<(), &'static str> {
        self.base_sequence = header.sequence;
        self.trees.has_snapshot(header.sequence);
        for database in &header.databases {
            if let Some(generation) = database.tree {
                if self.store.trees().is_none() {
                    return Err("a database on disk, for which there is no place");
                }
                let least = header.tree_lists.get(&generation).copied();
                (self.trees).expect_list(database.id, generation, least.unwrap_or(0));
            }
            // Hidden indexes are as this version says.
            if database.id.is_hidden() {
                continue;
            }
            // The default one is as this start says, but for its kind.
            if database.id == DatabaseId::DEFAULT {
                self.store.replace_empty(database.id, database.config.kind);
                continue;
            }
            let checked = self.store.check_create(&database.name, &database.config);
            checked.map_err(|_| "a database of its catalogue cannot be made")?;
            self.store
                .insert_database(database.id, &database.name, database.config, None, 0);
        }
        self.store.skip_database_numbers(header.next_database);
        Ok(())
    }

    fn entry(&mut self, database: DatabaseId, entry: &Entry<'_>) -> Result<(), &'static str> {
        let state = self.state_of(database).ok_or("an unknown database")?;
        let index = state.index.memory_mut();
        let hash = index.hash(entry.key);
        index.load(hash, entry);
        Ok(())
    }
}

/// The tree that begins with a record.
fn generation_of(record: &Record<'_>) -> Generation {
    Generation {
        database: record.database,
        sequence: record.sequence,
    }
}
