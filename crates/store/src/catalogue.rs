//! Databases: what they are made of, and which there are.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::blob::BlobUse;
use crate::hash::KeyHasher;
use crate::index::Index;
use crate::limits;
use crate::memory::MemoryIndex;
use crate::tree::{self, TreeIndex};

/// Names one database for as long as the store lives. Never reused, so that an id kept by a slow
/// caller cannot mean a later database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DatabaseId(pub(crate) u32);

impl DatabaseId {
    /// The database with the empty name, which always exists.
    pub const DEFAULT: DatabaseId = DatabaseId(0);

    /// The hidden index of all blobs, in a store with a log. Its keys and values are those of
    /// [`blob`](crate::blob); no name leads to it.
    pub const BLOBS: DatabaseId = DatabaseId(u32::MAX);

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
    /// On disk, in a tree, with a cache in memory. Never [volatile](Durability::Volatile).
    Disk,
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
    /// Bytes of memory, or of disk for [`Kind::Disk`], by estimate; beyond it, commits that grow
    /// the database are refused.
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
    /// Bytes of an encoded configuration.
    pub(crate) const ENCODED_BYTES: usize = CONFIG_BYTES;

    /// The same for a database of another kind, with the limits that it can have.
    pub fn of_kind(self, kind: Kind) -> DatabaseConfig {
        let mut limits = self.limits;
        if kind == Kind::Disk {
            limits.key_bytes = limits.key_bytes.min(tree::limits::KEY_BYTES);
        }
        DatabaseConfig {
            kind,
            limits,
            ..self
        }
    }

    /// Whether a store with or without a log, and with or without trees, can have such a database.
    pub(crate) fn check(&self, has_log: bool, has_trees: bool) -> Result<(), CreateError> {
        if self.kind == Kind::Disk {
            self.check_disk(has_trees)?;
        }
        if self.durability != Durability::Volatile && !has_log {
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

    fn check_disk(&self, has_trees: bool) -> Result<(), CreateError> {
        if self.durability == Durability::Volatile {
            return Err(CreateError::VolatileOnDisk);
        }
        if !has_trees {
            return Err(CreateError::KindNotSupported);
        }
        if self.limits.key_bytes > tree::limits::KEY_BYTES {
            return Err(CreateError::LimitTooLarge {
                name: "key_bytes",
                max: tree::limits::KEY_BYTES,
            });
        }
        Ok(())
    }

    /// As it is logged: a version, kind and durability, a byte each, five zeros; then, as
    /// little-endian numbers of eight bytes, the interval and the limits in the order of their
    /// fields.
    pub(crate) fn encode(&self) -> [u8; CONFIG_BYTES] {
        let (durability, interval_ms) = match self.durability {
            Durability::Volatile => (0, 0),
            Durability::Written => (1, 0),
            Durability::Interval { ms } => (2, ms),
            Durability::Synced => (3, 0),
        };
        let kind = match self.kind {
            Kind::Memory => 0,
            Kind::Disk => 1,
        };
        let limits = &self.limits;
        let numbers = [
            interval_ms,
            limits.key_bytes as u64,
            limits.value_bytes as u64,
            limits.commit_operations as u64,
            limits.commit_bytes as u64,
            limits.rewritten_bytes as u64,
            limits.memory_bytes,
        ];
        let mut bytes = [0; CONFIG_BYTES];
        bytes[..3].copy_from_slice(&[CONFIG_VERSION, kind, durability]);
        for (place, number) in numbers.iter().enumerate() {
            bytes[8 + 8 * place..][..8].copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// `None`: this is not a configuration that this version knows.
    pub(crate) fn decode(bytes: &[u8]) -> Option<DatabaseConfig> {
        let bytes: &[u8; CONFIG_BYTES] = bytes.try_into().ok()?;
        let mut numbers = bytes[8..].chunks_exact(8).map(|number| {
            u64::from_le_bytes(number.try_into().expect("the chunks have this length"))
        });
        let mut number = || numbers.next().expect("there are as many as were encoded");
        let interval_ms = number();
        let [CONFIG_VERSION, kind, durability, 0, 0, 0, 0, 0] = bytes[..8] else {
            return None;
        };
        let kind = match kind {
            0 => Kind::Memory,
            1 => Kind::Disk,
            _ => return None,
        };
        let durability = match durability {
            0 => Durability::Volatile,
            1 => Durability::Written,
            2 => Durability::Interval { ms: interval_ms },
            3 => Durability::Synced,
            _ => return None,
        };
        let limits = DatabaseLimits {
            key_bytes: usize::try_from(number()).ok()?,
            value_bytes: usize::try_from(number()).ok()?,
            commit_operations: usize::try_from(number()).ok()?,
            commit_bytes: usize::try_from(number()).ok()?,
            rewritten_bytes: usize::try_from(number()).ok()?,
            memory_bytes: number(),
        };
        Some(DatabaseConfig {
            kind,
            durability,
            limits,
        })
    }
}

/// Bytes of an encoded configuration.
const CONFIG_BYTES: usize = 64;

/// The version of its encoding.
const CONFIG_VERSION: u8 = 1;

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
    pub(crate) index: Index,
    /// The sequence of the last commit published here.
    pub(crate) sequence: u64,
    /// What the entries take, by estimate.
    pub(crate) memory_bytes: u64,
    /// The database is not in the catalogue any more; who found it there before must not use it.
    pub(crate) dropped: bool,
}

impl Database {
    /// One that is in memory, and empty.
    pub(crate) fn in_memory(name: &str, config: DatabaseConfig, hasher: &KeyHasher) -> Database {
        let index = Index::Memory(MemoryIndex::new(hasher.clone()));
        Database::new(name, config, index)
    }

    pub(crate) fn new(name: &str, config: DatabaseConfig, index: Index) -> Database {
        let state = State {
            index,
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

    /// Adds the hidden index of blobs.
    pub(crate) fn add_blobs(&mut self, database: Database) {
        self.databases.insert(DatabaseId::BLOBS, Arc::new(database));
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
        check_name(name)?;
        if self.find(name).is_some() {
            return Err(CreateError::Exists);
        }
        if self.names.len() >= limits::DATABASES || self.next == u32::MAX {
            return Err(CreateError::TooMany);
        }
        Ok(DatabaseId(self.next))
    }

    /// Adds a database under an id that comes from [`check_insert`](Catalogue::check_insert), now
    /// or in an previous run. Ids grow.
    pub(crate) fn insert(&mut self, id: DatabaseId, database: Database) {
        debug_assert!(id.0 >= self.next, "ids are not reused");
        self.next = id.0 + 1;
        self.names.insert(database.name.clone(), id);
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
        if self.databases.contains_key(&id) && id != DatabaseId::BLOBS {
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

/// Names are for shells, file names and URLs: letters, digits, `-`, `_` and `.`, with no `.` in
/// front.
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
    /// This store has no log.
    DurabilityNotSupported(Durability),
    /// This store has no place for databases on disk.
    KindNotSupported,
    /// A database on disk is never volatile.
    VolatileOnDisk,
    /// The configuration cannot be read.
    BadConfig,
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
                    "durability {durability} needs a data folder, and this server has none; use volatile"
                )
            }
            CreateError::KindNotSupported => write!(
                formatter,
                "a database on disk needs a data folder, and this server has none; use memory"
            ),
            CreateError::VolatileOnDisk => write!(
                formatter,
                "a database on disk cannot be volatile; choose another durability, or memory"
            ),
            CreateError::BadConfig => write!(formatter, "the configuration cannot be read"),
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
    /// There is something in it, and it was to be dropped only if not.
    NotEmpty {
        /// How many entries.
        entries: u64,
        /// How many blobs, with those that are being uploaded.
        blobs: u64,
        /// Bytes of them.
        blob_bytes: u64,
    },
}

impl DropError {
    /// What is in it.
    pub fn not_empty(entries: u64, used: BlobUse) -> DropError {
        DropError::NotEmpty {
            entries,
            blobs: used.blobs + used.unfinished,
            blob_bytes: used.bytes,
        }
    }
}

/// How many of what: `1 entry`, `2 entries`.
struct Counted(u64, &'static str, &'static str);

impl fmt::Display for Counted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counted(count, one, many) = self;
        write!(
            formatter,
            "{count} {}",
            if *count == 1 { one } else { many }
        )
    }
}

impl fmt::Display for DropError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DropError::Unknown => write!(formatter, "there is no such database"),
            DropError::IsDefault => write!(
                formatter,
                "the default database cannot be dropped; delete its keys instead"
            ),
            DropError::NotEmpty {
                entries,
                blobs: 0,
                blob_bytes: 0,
            } => {
                let entries = Counted(*entries, "entry", "entries");
                write!(
                    formatter,
                    "the database holds {entries}, and was to be dropped only if it were empty"
                )
            }
            DropError::NotEmpty {
                entries,
                blobs,
                blob_bytes,
            } => {
                let entries = Counted(*entries, "entry", "entries");
                let blobs = Counted(*blobs, "blob", "blobs");
                write!(
                    formatter,
                    "the database holds {entries} and {blobs} with {blob_bytes} bytes, also unfinished ones, and was to be \
                     dropped only if it were empty"
                )
            }
        }
    }
}

impl std::error::Error for DropError {}
