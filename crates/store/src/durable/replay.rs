//! Makes the state of the databases from a snapshot and the records of the log behind it.

use parking_lot::RawRwLock;
use parking_lot::lock_api::ArcRwLockWriteGuard;

use super::open::OpenError;
use crate::catalogue::{DatabaseConfig, DatabaseId, Durability, State};
use crate::log::{Record, RecordKind};
use crate::snapshot::{Header, Visitor};
use crate::store::Store;
use crate::value::Entry;

/// Applies a snapshot, and the records of the log behind it, to the indexes. What they take in memory is added up when all are there.
pub(super) struct Replay<'a> {
    store: &'a Store,
    /// Everything up to this sequence came with the snapshot.
    base_sequence: u64,
    /// The database of the last record, open for the next one.
    current: Option<(DatabaseId, ArcRwLockWriteGuard<RawRwLock, State>)>,
    problem: Option<ReplayError>,
}

impl<'a> Replay<'a> {
    pub(super) fn new(store: &'a Store) -> Replay<'a> {
        Replay {
            store,
            base_sequence: 0,
            current: None,
            problem: None,
        }
    }

    /// Brings what records with such hashes are going to change into the processor's caches.
    pub(super) fn warm(&mut self, database: DatabaseId, hashes: impl Iterator<Item = u64>) {
        if let Some(state) = self.state_of(database) {
            state.index.warm(hashes);
        }
    }

    /// Applies a record, unless it came with the snapshot.
    pub(super) fn apply(&mut self, record: &Record<'_>) {
        if record.sequence > self.base_sequence && self.problem.is_none() {
            self.problem = self.try_apply(record).err();
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
                let config = DatabaseConfig::decode(record.value);
                let config = config.ok_or(error("the configuration of a database"))?;
                let name = std::str::from_utf8(record.key);
                let name = name.map_err(|_| error("the name of a database"))?;
                let least = self.store.check_create(name, &config);
                if least.map_err(|_| error("a second database of a name"))? > record.database {
                    return Err(error("a database with the number of another one"));
                }
                self.store.insert_database(record.database, name, config);
                Ok(())
            }
            RecordKind::DatabaseDropped => {
                // Its lock is needed.
                self.current = None;
                let dropped = self.store.remove_database(record.database);
                dropped.map(drop).map_err(|_| error("an unknown database"))
            }
            RecordKind::Set | RecordKind::Delete | RecordKind::Expire | RecordKind::Clear => self
                .change(record)
                .ok_or(error("a change of an unknown database")),
        }
    }

    /// Applies a change of a database; `None`: there is no such database.
    fn change(&mut self, record: &Record<'_>) -> Option<()> {
        let state = self.state_of(record.database)?;
        match record.entry() {
            Some(entry) => {
                let hash = state.index.hash(record.key);
                state.index.load(hash, &entry);
            }
            None if record.kind == RecordKind::Clear => drop(state.index.take()),
            None => {
                let hash = state.index.hash(record.key);
                state.index.remove(record.key, hash);
            }
        }
        state.sequence = record.sequence;
        Some(())
    }

    fn state_of(&mut self, id: DatabaseId) -> Option<&mut State> {
        if self.current.as_ref().is_none_or(|(open, _)| *open != id) {
            self.current = None;
            let database = self.store.find(id)?;
            self.current = Some((id, database.state.write_arc()));
        }
        self.current.as_mut().map(|(_, state)| &mut **state)
    }

    pub(super) fn finish(mut self, default_durability: Durability) -> Result<(), OpenError> {
        if let Some(problem) = self.problem {
            return Err(OpenError::Replay(problem));
        }
        self.current = None;
        self.store.finish_loading();
        let database = self.store.find(DatabaseId::DEFAULT);
        let database = database.expect("the default database always exists");
        if default_durability == Durability::Volatile && database.state.read().index.len() > 0 {
            return Err(OpenError::DefaultHasContent);
        }
        Ok(())
    }
}

impl Visitor for Replay<'_> {
    fn header(&mut self, header: &Header) -> Result<(), &'static str> {
        self.base_sequence = header.sequence;
        for database in &header.databases {
            // The default one is as this start says.
            if database.id == DatabaseId::DEFAULT {
                continue;
            }
            let checked = self.store.check_create(&database.name, &database.config);
            checked.map_err(|_| "a database of its catalogue cannot be made")?;
            self.store
                .insert_database(database.id, &database.name, database.config);
        }
        self.store.skip_database_numbers(header.next_database);
        Ok(())
    }

    fn entry(&mut self, database: DatabaseId, entry: &Entry<'_>) -> Result<(), &'static str> {
        let state = self.state_of(database).ok_or("an unknown database")?;
        let hash = state.index.hash(entry.key);
        state.index.load(hash, entry);
        Ok(())
    }
}

/// A record that does not fit those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayError {
    /// Its sequence.
    pub sequence: u64,
    /// What does not fit.
    pub what: &'static str,
}
