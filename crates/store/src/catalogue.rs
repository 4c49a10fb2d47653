//! Databases: what they are made of, and which there are.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::hash::KeyHasher;
use crate::limits;
use crate::memory::MemoryIndex;

/// Names one database for as long as the store lives. Never reused, so that an id kept by a slow caller cannot
/// mean a later database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DatabaseId(pub(crate) u32);

impl DatabaseId {
    /// The database with the empty name, which always exists.
    pub const DEFAULT: DatabaseId = DatabaseId(0);

    /// The one after it, whether or not there is such a database.
    pub(crate) fn next(self) -> DatabaseId {
        DatabaseId(self.0.wrapping_add(1))
    }
}

impl fmt::Display for DatabaseId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.0)
    }
}

/// Where the index of a database lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// In memory.
    #[default]
    Memory,
}

/// When a write to a database counts as done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// When it is on the device.
    Synced,
    /// When it is handed to the operating system, which is told to sync every so many milliseconds.
    Interval {
        /// The longest time between two syncs.
        ms: u64,
    },
    /// When it is handed to the operating system: survives a kill, not a power loss.
    Written,
    /// When it is in memory: survives nothing.
    #[default]
    Volatile,
}

/// The bounds of one database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatabaseLimits {
    /// Bytes of one key, at most [`limits::KEY_BYTES`].
    pub key_bytes: usize,
    /// Bytes of one value, at most [`limits::VALUE_BYTES_MAX`].
    pub value_bytes: usize,
    /// Operations of one commit.
    pub commit_operations: usize,
    /// Bytes of keys and values of one commit.
    pub commit_bytes: usize,
    /// Bytes of existing values that the Appends of one commit may copy.
    pub rewritten_bytes: usize,
    /// Bytes of memory, by estimate; beyond it, commits that grow the database are refused.
    pub memory_bytes: u64,
}

impl DatabaseLimits {
    /// The default limits for values of at most `value_bytes`.
    pub fn for_values(value_bytes: usize) -> DatabaseLimits {
        DatabaseLimits {
            key_bytes: limits::KEY_BYTES,
            value_bytes,
            commit_operations: limits::COMMIT_OPERATIONS,
            commit_bytes: limits::commit_bytes(value_bytes),
            rewritten_bytes: limits::REWRITTEN_BYTES.max(value_bytes),
            memory_bytes: u64::MAX,
        }
    }
}

impl Default for DatabaseLimits {
    fn default() -> DatabaseLimits {
        DatabaseLimits::for_values(limits::VALUE_BYTES)
    }
}

/// What a database is made with. Stays as it is for the database's life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatabaseConfig {
    /// Where its index lives.
    pub kind: Kind,
    /// When its writes count as done.
    pub durability: Durability,
    /// Its bounds.
    pub limits: DatabaseLimits,
}

impl DatabaseConfig {
    pub(crate) fn check(&self) -> Result<(), CreateError> {
        if self.durability != Durability::Volatile {
            return Err(CreateError::DurabilityNotSupported(self.durability));
        }
        if self.limits.key_bytes > limits::KEY_BYTES {
            return Err(CreateError::LimitTooLarge {
                name: "key_bytes",
                max: limits::KEY_BYTES,
            });
        }
        if self.limits.value_bytes > limits::VALUE_BYTES_MAX {
            return Err(CreateError::LimitTooLarge {
                name: "value_bytes",
                max: limits::VALUE_BYTES_MAX,
            });
        }
        Ok(())
    }
}

/// One database.
#[derive(Debug)]
pub(crate) struct Database {
    pub(crate) name: Box<str>,
    pub(crate) config: DatabaseConfig,
    pub(crate) state: Arc<RwLock<State>>,
}

/// What the lock of a database guards: all that its readers see.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) index: MemoryIndex,
    /// The sequence of the last commit published here.
    pub(crate) sequence: u64,
    /// What the entries take, by estimate.
    pub(crate) memory_bytes: u64,
    /// The database is not in the catalogue any more; who found it there before must not use it.
    pub(crate) dropped: bool,
}

impl Database {
    pub(crate) fn new(name: &str, config: DatabaseConfig, hasher: &KeyHasher) -> Database {
        let state = State {
            index: MemoryIndex::new(hasher.clone()),
            sequence: 0,
            memory_bytes: 0,
            dropped: false,
        };
        Database {
            name: name.into(),
            config,
            state: Arc::new(RwLock::new(state)),
        }
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

    pub(crate) fn insert(&mut self, database: Database) -> Result<DatabaseId, CreateError> {
        check_name(&database.name)?;
        if self.find(&database.name).is_some() {
            return Err(CreateError::Exists);
        }
        if self.databases.len() >= limits::DATABASES {
            return Err(CreateError::TooMany);
        }
        let id = DatabaseId(self.next);
        self.next = self.next.checked_add(1).ok_or(CreateError::TooMany)?;
        self.names.insert(database.name.clone(), id);
        self.databases.insert(id, Arc::new(database));
        Ok(id)
    }

    pub(crate) fn remove(&mut self, id: DatabaseId) -> Result<Arc<Database>, DropError> {
        if id == DatabaseId::DEFAULT {
            return Err(DropError::IsDefault);
        }
        let database = self.databases.remove(&id).ok_or(DropError::Unknown)?;
        self.names.remove(&database.name);
        Ok(database)
    }
}

/// Names are for shells, file names and URLs: letters, digits, `-`, `_` and `.`, with no `.` in front.
fn check_name(name: &str) -> Result<(), CreateError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let well_formed = !name.is_empty()
        && name.len() <= limits::DATABASE_NAME_BYTES
        && !name.starts_with('.')
        && name.bytes().all(is_plain);
    if well_formed {
        Ok(())
    } else {
        Err(CreateError::BadName)
    }
}

/// Why a database was not created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CreateError {
    /// There is one of this name.
    Exists,
    /// The name is empty, too long, or has other characters than letters, digits, `-`, `_` and `.`.
    BadName,
    /// There are [`limits::DATABASES`] already.
    TooMany,
    /// This store cannot do that.
    DurabilityNotSupported(Durability),
    /// A limit is set higher than it can be.
    LimitTooLarge {
        /// The field of [`DatabaseLimits`].
        name: &'static str,
        /// The highest it can be.
        max: usize,
    },
}

impl fmt::Display for CreateError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CreateError::Exists => write!(formatter, "a database of this name exists"),
            CreateError::BadName => write!(
                formatter,
                "a database's name has 1 to {} letters, digits, '-', '_' or '.', and does not begin with '.'",
                limits::DATABASE_NAME_BYTES
            ),
            CreateError::TooMany => write!(
                formatter,
                "there are {} databases; drop one first",
                limits::DATABASES
            ),
            CreateError::DurabilityNotSupported(durability) => {
                write!(
                    formatter,
                    "durability {durability} is not supported by this version; use volatile"
                )
            }
            CreateError::LimitTooLarge { name, max } => {
                write!(formatter, "the limit {name} can be at most {max}")
            }
        }
    }
}

impl std::error::Error for CreateError {}

impl fmt::Display for Durability {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Durability::Synced => write!(formatter, "synced"),
            Durability::Interval { ms } => write!(formatter, "interval={ms}ms"),
            Durability::Written => write!(formatter, "written"),
            Durability::Volatile => write!(formatter, "volatile"),
        }
    }
}

/// Why a database was not dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropError {
    /// There is no such database.
    Unknown,
    /// The default database cannot be dropped; it can be cleared.
    IsDefault,
}

impl fmt::Display for DropError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DropError::Unknown => write!(formatter, "there is no such database"),
            DropError::IsDefault => write!(
                formatter,
                "the default database cannot be dropped; clear it instead"
            ),
        }
    }
}

impl std::error::Error for DropError {}
