//! Databases: what they are made of, and which there are.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

use parking_lot::RwLock;

use crate::cache::CacheUses;
use crate::database::{CreateError, DatabaseConfig, DropError, Durability, Kind};
use crate::database_id::DatabaseId;
use crate::feed::{Feed, Feeds};
use crate::hash::KeyHasher;
use crate::index::Index;
use crate::limits;
use crate::memory::MemoryIndex;
use crate::tree::TreeIndex;

/// One database.
#[derive(Debug)]
pub(crate) struct Database {
    pub(crate) name: Box<str>,
    pub(crate) config: DatabaseConfig,
    pub(crate) state: Arc<RwLock<State>>,
    /// Where its changes are kept for those who watch, once somebody has.
    feed: OnceLock<Arc<Feed>>,
}

/// What the lock of a database guards: all that its readers see.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) index: Index,
    /// The sequence of the last commit published here.
    pub(crate) sequence: u64,
    /// What the entries take, by estimate.
    pub(crate) memory_bytes: u64,
    /// The database is not in the catalogue any more; who found it there before must not use it.
    pub(crate) dropped: bool,
    /// Of a database that drops what was not used for longest.
    pub(crate) cache: Option<Box<CacheUses>>,
}

impl Database {
    /// One that is in memory, and empty. A volatile one has no order until it is scanned.
    pub(crate) fn in_memory(name: &str, config: DatabaseConfig, hasher: &KeyHasher) -> Database {
        let index = match config.durability {
            Durability::Volatile => MemoryIndex::lazy(hasher.clone()),
            _ => MemoryIndex::new(hasher.clone()),
        };
        let index = Index::Memory(index);
        Database::new(name, config, index)
    }

    /// A hidden one, which is in memory, and empty.
    pub(crate) fn hidden(name: &str, config: DatabaseConfig, hasher: &KeyHasher) -> Database {
        let index = Index::Memory(MemoryIndex::new(hasher.clone()));
        Database::new(name, config, index)
    }

    pub(crate) fn new(name: &str, config: DatabaseConfig, index: Index) -> Database {
        let state = State {
            index,
            sequence: 0,
            memory_bytes: 0,
            dropped: false,
            cache: None,
        };
        Database {
            name: name.into(),
            config,
            state: Arc::new(RwLock::new(state)),
            feed: OnceLock::new(),
        }
    }

    /// Returns whether it is in memory, and nothing of it is in a log.
    pub(crate) fn is_volatile(&self) -> bool {
        self.config.kind == Kind::Memory && self.config.durability == Durability::Volatile
    }

    /// It was made by this commit: nothing that readers see of it is older. One of the same name
    /// that was there before is another one, whose points mean nothing here.
    pub(crate) fn begin_at(&self, sequence: u64) {
        self.state.write().sequence = sequence;
    }

    /// The feed, if commits are to be recorded. Asked under the lock of the database.
    #[inline]
    pub(crate) fn open_feed(&self) -> Option<&Feed> {
        let feed = self.feed.get()?;
        feed.is_open().then_some(feed)
    }

    /// The feed, which is made now if there is none.
    pub(crate) fn feed(&self, feeds: &Arc<Feeds>) -> &Arc<Feed> {
        self.feed.get_or_init(|| Feed::new(feeds))
    }

    /// Goes on with the feed of the database in whose place this one is put.
    pub(crate) fn take_over_feed(&self, older: &Database, feeds: &Arc<Feeds>) {
        let set = self.feed.set(Arc::clone(older.feed(feeds)));
        debug_assert!(set.is_ok(), "nobody knows this one yet");
    }

    /// The database is gone, and those who watch hear of it.
    pub(crate) fn end_feed(&self) {
        if let Some(feed) = self.feed.get() {
            feed.end();
        }
    }

    /// The tree of a database on disk, as it is now: a clear puts another one in its place. `None`:
    /// the database is in memory, or dropped.
    pub(crate) fn tree(&self) -> Option<TreeIndex> {
        if self.config.kind == Kind::Memory {
            return None;
        }
        let state = self.state.read();
        let tree = state.index.tree().filter(|_| !state.dropped);
        tree.cloned()
    }
}

/// Which databases there are.
#[derive(Debug)]
pub(crate) struct Catalogue {
    databases: BTreeMap<DatabaseId, Arc<Database>>,
    names: HashMap<Box<str>, DatabaseId>,
    next: u32,
}

impl Catalogue {
    /// A catalogue with a default database.
    pub(crate) fn new(default_database: Database) -> Catalogue {
        let name = default_database.name.clone();
        Catalogue {
            databases: BTreeMap::from([(DatabaseId::DEFAULT, Arc::new(default_database))]),
            names: HashMap::from([(name, DatabaseId::DEFAULT)]),
            next: 1,
        }
    }

    /// Adds a hidden index.
    pub(crate) fn add_hidden(&mut self, id: DatabaseId, database: Database) {
        debug_assert!(id.is_hidden());
        self.databases.insert(id, Arc::new(database));
    }

    /// The number that the next database gets.
    pub(crate) fn next_number(&self) -> u32 {
        self.next
    }

    /// Numbers below this one were given out in previous runs.
    pub(crate) fn skip_numbers(&mut self, next: u32) {
        self.next = self.next.max(next);
    }

    pub(crate) fn get(&self, id: DatabaseId) -> Option<&Arc<Database>> {
        self.databases.get(&id)
    }

    pub(crate) fn find(&self, name: &str) -> Option<DatabaseId> {
        self.names.get(name).copied()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (DatabaseId, &Arc<Database>)> {
        self.databases.iter().map(|(&id, database)| (id, database))
    }

    /// All ids, beginning with `first` or what comes after it, and around.
    pub(crate) fn ids_from(&self, first: DatabaseId) -> Vec<DatabaseId> {
        let (before, after) = (self.databases.range(..first), self.databases.range(first..));
        after.chain(before).map(|(&id, _)| id).collect()
    }

    /// The id of the next database, if it can have this name.
    pub(crate) fn check_insert(&self, name: &str) -> Result<DatabaseId, CreateError> {
        if !is_database_name(name) {
            return Err(CreateError::BadName);
        }
        if self.find(name).is_some() {
            return Err(CreateError::Exists);
        }
        if self.names.len() >= limits::DATABASES || DatabaseId(self.next).is_hidden() {
            return Err(CreateError::TooMany);
        }
        Ok(DatabaseId(self.next))
    }

    /// Adds a database under an id that comes from [`check_insert`](Catalogue::check_insert), now
    /// or in a previous run. Ids grow.
    pub(crate) fn insert(&mut self, id: DatabaseId, database: Database) {
        debug_assert!(id.0 >= self.next, "ids are not reused");
        self.next = id.0 + 1;
        self.names.insert(database.name.clone(), id);
        self.databases.insert(id, Arc::new(database));
    }

    /// Adds a database under an id that somebody else has given it, or puts it in the place of the
    /// one that has the id or the name.
    pub(crate) fn put(&mut self, id: DatabaseId, database: Database) {
        if let Some(older) = self.databases.get(&id) {
            self.names.remove(&older.name);
        }
        self.next = self.next.max(id.0.saturating_add(1));
        if let Some(other) = self.names.insert(database.name.clone(), id)
            && other != id
        {
            self.databases.remove(&other);
        }
        self.databases.insert(id, Arc::new(database));
    }

    /// Puts another one in the place of a database, of the same name.
    pub(crate) fn replace(&mut self, id: DatabaseId, database: Database) {
        debug_assert_eq!(self.find(&database.name), Some(id));
        self.databases.insert(id, Arc::new(database));
    }

    /// Whether a database can be dropped.
    pub(crate) fn check_remove(&self, id: DatabaseId) -> Result<(), DropError> {
        if id == DatabaseId::DEFAULT {
            return Err(DropError::IsDefault);
        }
        if self.databases.contains_key(&id) && !id.is_hidden() {
            Ok(())
        } else {
            Err(DropError::Unknown)
        }
    }

    pub(crate) fn remove(&mut self, id: DatabaseId) -> Result<Arc<Database>, DropError> {
        self.check_remove(id)?;
        let database = self.databases.remove(&id).ok_or(DropError::Unknown)?;
        self.names.remove(&database.name);
        Ok(database)
    }
}

/// The hidden index of blobs in lists of databases. No database can have this name.
pub(crate) const BLOBS_NAME: &str = ".blobs";

/// The hidden index of identities, likewise.
pub(crate) const IDENTITIES_NAME: &str = ".identities";

/// The hidden index of epochs and of the replicas that count, likewise.
pub(crate) const REPLICAS_NAME: &str = ".replicas";

/// A blob is there when it is on the device, whatever its database promises for other writes; and
/// an identity is gone when its removal is.
pub(crate) fn hidden_config(has_log: bool) -> DatabaseConfig {
    DatabaseConfig {
        durability: match has_log {
            true => Durability::Synced,
            false => Durability::Volatile,
        },
        ..DatabaseConfig::default()
    }
}

/// Returns whether a database can have the name. Names are for shells, file names and URLs:
/// letters, digits, `-`, `_` and `.`, with no `.` in front.
pub fn is_database_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !name.is_empty()
        && name.len() <= limits::DATABASE_NAME_BYTES
        && !name.starts_with('.')
        && name.bytes().all(is_plain)
}
