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
