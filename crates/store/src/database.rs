//! What databases are made with, and why one is not made or not dropped.

use std::fmt;

use crate::blob::BlobUse;
use crate::limits;
use crate::remote_kind::{self, RemoteShape, ShapeError};
use crate::tree;

/// Where the index of a database lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// In memory.
    #[default]
    Memory,
    /// On disk, in a tree, with a cache in memory. Never [volatile](Durability::Volatile).
    Disk,
    /// On an engine elsewhere ([`remote`](crate::remote)), which has a durability of its own. In a
    /// store of only such databases.
    Remote(RemoteShape),
}

impl Kind {
    /// How the database is made on an engine elsewhere. `None`: it is here.
    pub fn remote(self) -> Option<RemoteShape> {
        match self {
            Kind::Remote(shape) => Some(shape),
            Kind::Memory | Kind::Disk => None,
        }
    }
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
        match kind {
            Kind::Memory => {}
            Kind::Disk => limits.key_bytes = limits.key_bytes.min(tree::limits::KEY_BYTES),
            Kind::Remote(_) => {
                limits.value_bytes = limits.value_bytes.min(remote_kind::limits::VALUE_BYTES);
                limits.commit_bytes = limits.commit_bytes.min(remote_kind::limits::COMMIT_BYTES);
                limits.key_bytes = limits.key_bytes.min(remote_kind::limits::KEY_BYTES);
            }
        }
        DatabaseConfig {
            kind,
            limits,
            ..self
        }
    }

    /// Whether a store with or without a log, and with or without trees, can have such a database.
    pub(crate) fn check(&self, has_log: bool, has_trees: bool) -> Result<(), CreateError> {
        match self.kind {
            Kind::Memory => {}
            Kind::Disk => self.check_disk(has_trees)?,
            Kind::Remote(_) => return Err(CreateError::RemoteNotSupported),
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

    /// Whether a store of databases on an engine elsewhere can have such a database.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn check_remote(&self) -> Result<(), CreateError> {
        let Kind::Remote(shape) = self.kind else {
            return Err(CreateError::OnlyRemote);
        };
        shape.check().map_err(CreateError::BadShape)?;
        // Its commits go the way of those that last.
        if self.durability == Durability::Volatile {
            return Err(CreateError::BadConfig);
        }
        let limits = &self.limits;
        let bounds = [
            (
                "key_bytes",
                limits.key_bytes,
                remote_kind::limits::KEY_BYTES,
            ),
            (
                "value_bytes",
                limits.value_bytes,
                remote_kind::limits::VALUE_BYTES,
            ),
            (
                "commit_bytes",
                limits.commit_bytes,
                remote_kind::limits::COMMIT_BYTES,
            ),
        ];
        match bounds.into_iter().find(|&(_, given, max)| given > max) {
            None => Ok(()),
            Some((name, _, max)) => Err(CreateError::LimitTooLarge { name, max }),
        }
    }

    /// As it is logged: a version, kind and durability, a byte each, five zeros, of which an
    /// engine elsewhere has the shape of a database in the first four; then, as
    /// little-endian numbers of eight bytes, the interval and the limits in the order of their
    /// fields.
    pub fn encode(&self) -> [u8; CONFIG_BYTES] {
        let (durability, interval_ms) = match self.durability {
            Durability::Volatile => (0, 0),
            Durability::Written => (1, 0),
            Durability::Interval { ms } => (2, ms),
            Durability::Synced => (3, 0),
        };
        let kind = match self.kind {
            Kind::Memory => 0,
            Kind::Disk => 1,
            Kind::Remote(_) => 2,
        };
        let shape = self.kind.remote().map_or([0; 4], |shape| shape.encode());
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
        bytes[3..7].copy_from_slice(&shape);
        for (place, number) in numbers.iter().enumerate() {
            bytes[8 + 8 * place..][..8].copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// The same for one that was logged: of a database that is here.
    pub(crate) fn decode_logged(bytes: &[u8]) -> Option<DatabaseConfig> {
        DatabaseConfig::decode(bytes).filter(|config| config.kind.remote().is_none())
    }

    /// `None`: this is not a configuration that this version knows.
    pub fn decode(bytes: &[u8]) -> Option<DatabaseConfig> {
        let bytes: &[u8; CONFIG_BYTES] = bytes.try_into().ok()?;
        let mut numbers = bytes[8..].chunks_exact(8).map(|number| {
            u64::from_le_bytes(number.try_into().expect("the chunks have this length"))
        });
        let mut number = || numbers.next().expect("there are as many as were encoded");
        let interval_ms = number();
        let [CONFIG_VERSION, kind, durability, ref shape @ .., 0] = bytes[..8] else {
            return None;
        };
        let shape: [u8; 4] = shape.try_into().ok()?;
        let kind = match kind {
            0 if shape == [0; 4] => Kind::Memory,
            1 if shape == [0; 4] => Kind::Disk,
            2 => Kind::Remote(RemoteShape::decode(shape)?),
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

/// Why a database was not created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// There is one of this name.
    #[error("a database of this name exists")]
    Exists,
    /// The name is empty, too long, or has other characters than letters, digits, `-`, `_` and `.`.
    #[error(
        "a database's name has 1 to {} letters, digits, '-', '_' or '.', and does not begin with \
         '.'",
        limits::DATABASE_NAME_BYTES
    )]
    BadName,
    /// There are [`limits::DATABASES`] already.
    #[error("there are {} databases; drop one first", limits::DATABASES)]
    TooMany,
    /// This store has no log.
    #[error(
        "durability {0} needs a data folder, and this server has none; use volatile \
         (--durability volatile)"
    )]
    DurabilityNotSupported(Durability),
    /// This store has no place for databases on disk.
    #[error(
        "a database on disk needs a data folder, and this server has none; use memory \
         (--kind memory)"
    )]
    KindNotSupported,
    /// A database on disk is never volatile.
    #[error("a database on disk cannot be volatile; choose another durability, or memory")]
    VolatileOnDisk,
    /// This store keeps its databases itself.
    #[error(
        "a database on a storage engine needs a server that was started for one, and this server \
         keeps its databases itself; use memory or disk (--kind memory, --kind disk)"
    )]
    RemoteNotSupported,
    /// This store has its databases on an engine elsewhere.
    #[error(
        "this server has all its databases on a storage engine, and none in memory or on disk of \
         its own; use remote (--kind remote)"
    )]
    OnlyRemote,
    /// No database on an engine elsewhere can be like this.
    #[error("{0}")]
    BadShape(ShapeError),
    /// The configuration cannot be read.
    #[error("the configuration cannot be read")]
    BadConfig,
    /// A limit is set higher than it can be.
    #[error("the limit {name} can be at most {max}")]
    LimitTooLarge {
        /// The field of [`DatabaseLimits`].
        name: &'static str,
        /// The highest it can be.
        max: usize,
    },
}

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DropError {
    /// There is no such database.
    #[error("there is no such database")]
    Unknown,
    /// The default database cannot be dropped; it can be cleared.
    #[error("the default database cannot be dropped; delete its keys instead")]
    IsDefault,
    /// There is something in it, and it was to be dropped only if not.
    #[error(fmt = not_empty)]
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
struct CountOf(u64, &'static str, &'static str);

impl fmt::Display for CountOf {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CountOf(count, one, many) = self;
        write!(
            formatter,
            "{count} {}",
            if *count == 1 { one } else { many }
        )
    }
}

fn not_empty(
    entries: &u64,
    blobs: &u64,
    blob_bytes: &u64,
    formatter: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    let entries = CountOf(*entries, "entry", "entries");
    write!(formatter, "the database holds {entries}")?;
    if (*blobs, *blob_bytes) != (0, 0) {
        let blobs = CountOf(*blobs, "blob", "blobs");
        write!(
            formatter,
            " and {blobs} with {blob_bytes} bytes, also unfinished ones"
        )?;
    }
    write!(formatter, ", and was to be dropped only if it were empty")
}
