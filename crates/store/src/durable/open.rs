//! The start of a durable store: claim the folder, replay the log.

use std::fmt;
use std::sync::Arc;

use parking_lot::RawRwLock;
use parking_lot::lock_api::ArcRwLockWriteGuard;

use super::committer::DurableCommitter;
use super::folder::{FolderError, claim};
use crate::catalogue::{CreateError, DatabaseConfig, DatabaseId, Durability, State};
use crate::disk::Disk;
use crate::log::{self, LogConfig, OpenLog, Record, RecordKind, Recovered};
use crate::store::{Store, StoreConfig};

/// A durable store that is open.
#[derive(Debug)]
pub struct Opened {
    /// For the loops.
    pub store: Store,
    /// For the one who runs the durable committer.
    pub committer: DurableCommitter,
    /// What the log held.
    pub recovered: Recovered,
}

impl Store {
    /// Opens the store in a folder, or makes one: every database that was created there, with all that is in the log.
    /// The default database is as `config` says, each time.
    ///
    /// An error means that nothing was changed, unless it says otherwise.
    pub fn open(
        config: StoreConfig,
        disk: Arc<dyn Disk>,
        log_config: &LogConfig,
    ) -> Result<Opened, OpenError> {
        let lock = claim(&*disk).map_err(OpenError::Folder)?;
        let store = Store::new(config, true).map_err(OpenError::Config)?;
        let mut replay = Replay::new(&store);
        let opened = log::open(disk, log_config, &mut |record| replay.apply(record));
        // A log that cannot be replayed may be damaged: then that is the better message.
        let OpenLog {
            log,
            stock,
            recovered,
        } = opened.map_err(OpenError::Log)?;
        replay.finish(config.default_database.durability)?;
        store.skip_sequences(recovered.next_sequence - 1);
        if !recovered.created {
            store.raise_views(recovered.next_sequence - 1);
        }
        store.clock_ms(recovered.wall_ms);
        store.set_history_id(recovered.history_id);
        let committer = DurableCommitter::new(&store, log, stock, lock);
        Ok(Opened {
            store,
            committer,
            recovered,
        })
    }
}

/// Applies the records of the log to the indexes. What they take in memory is added up when all are there.
struct Replay<'a> {
    store: &'a Store,
    /// The database of the last record, open for the next one.
    current: Option<(DatabaseId, ArcRwLockWriteGuard<RawRwLock, State>)>,
    problem: Option<ReplayError>,
}

impl<'a> Replay<'a> {
    fn new(store: &'a Store) -> Replay<'a> {
        Replay {
            store,
            current: None,
            problem: None,
        }
    }

    fn apply(&mut self, record: &Record<'_>) {
        if self.problem.is_none() {
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
                state.index.put(hash, &entry);
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

    fn finish(mut self, default_durability: Durability) -> Result<(), OpenError> {
        if let Some(problem) = self.problem {
            return Err(OpenError::Replay(problem));
        }
        self.current = None;
        self.store.count_memory();
        let database = self.store.find(DatabaseId::DEFAULT);
        let database = database.expect("the default database always exists");
        if default_durability == Durability::Volatile && database.state.read().index.len() > 0 {
            return Err(OpenError::DefaultHasContent);
        }
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

/// Why a durable store was not opened.
#[derive(Debug)]
pub enum OpenError {
    /// The folder cannot be used.
    Folder(FolderError),
    /// The configuration cannot be used.
    Config(CreateError),
    /// The log cannot be used.
    Log(log::OpenError),
    /// The log is whole and makes no sense.
    Replay(ReplayError),
    /// The default database was durable, and what is in it would come back after each restart.
    DefaultHasContent,
}

impl fmt::Display for OpenError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Folder(error) => error.fmt(formatter),
            OpenError::Config(error) => write!(formatter, "the default database: {error}"),
            OpenError::Log(error) => error.fmt(formatter),
            OpenError::Replay(ReplayError { sequence, what }) => write!(
                formatter,
                "the log does not fit together at sequence {sequence}: {what}; \
                 if another version wrote it, use that one"
            ),
            OpenError::DefaultHasContent => write!(
                formatter,
                "the default database in this data folder has content and cannot be volatile; \
                 choose another durability, or another folder"
            ),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            OpenError::Folder(error) => Some(error),
            OpenError::Config(error) => Some(error),
            OpenError::Log(error) => Some(error),
            OpenError::Replay(_) | OpenError::DefaultHasContent => None,
        }
    }
}
