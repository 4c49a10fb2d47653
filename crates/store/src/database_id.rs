//! The names of databases inside the store.

use std::fmt;

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

    /// The hidden index of the identities that may call a server. Its keys and values are those of
    /// the layer above; no name leads to it. A store without a log has it in memory.
    pub const IDENTITIES: DatabaseId = DatabaseId(u32::MAX - 1);

    /// The hidden index of epochs and of the replicas that count, in a store with a log
    /// ([`ReplicaSet`](crate::ReplicaSet)); no name leads to it.
    pub const REPLICAS: DatabaseId = DatabaseId(u32::MAX - 2);

    /// A database of this number, which an engine elsewhere has given it. `None`: no database has
    /// it.
    pub fn of_number(number: u32) -> Option<DatabaseId> {
        let id = DatabaseId(number);
        (!id.is_hidden()).then_some(id)
    }

    /// Its number.
    pub fn number(self) -> u32 {
        self.0
    }

    /// The hidden indexes, in order. All other ids are below them.
    pub(crate) const HIDDEN: [DatabaseId; 3] = [
        DatabaseId::REPLICAS,
        DatabaseId::IDENTITIES,
        DatabaseId::BLOBS,
    ];

    /// Returns whether no name leads to it.
    pub(crate) fn is_hidden(self) -> bool {
        self >= DatabaseId::REPLICAS
    }

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
