//! What databases on an engine elsewhere cannot do.

/// What a database on an engine elsewhere cannot do, with the reason and what to use instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Lack {
    /// Watching changes.
    #[error(
        "changes of a database on a storage engine cannot be watched: other servers write to it, \
         and there is no log; scan it from time to time, or use the engine's own change feed"
    )]
    Watch,
    /// Blobs.
    #[error(
        "a server whose databases are on a storage engine has no blobs; use values of up to \
         4000000 bytes, or a server with a data folder"
    )]
    Blobs,
    /// Backups of this server.
    #[error(
        "databases on a storage engine are not backed up by this server; use the engine's \
         snapshots, or `pelton export`"
    )]
    Backup,
    /// Replicas of this server.
    #[error(
        "a server whose databases are on a storage engine has no replicas: the engine replicates; \
         start another server beside it, on the same keyspace"
    )]
    Replicas,
    /// Tokens and roles that are made or changed while the server runs.
    #[error(
        "a server whose databases are on a storage engine keeps no tokens and roles: a change \
         would be lost with its end, and unknown to other servers on the keyspace; give all of \
         them the administrator's token by --admin-token-file, and others rights by \
         +anonymous= of --listen"
    )]
    Identities,
    /// Another kind for an existing database.
    #[error(
        "a database on a storage engine cannot be converted; export it, and import it into a \
         database of the other kind"
    )]
    Convert,
    /// Emptying a database in one commit.
    #[error(
        "a database on a storage engine cannot be cleared at once; drop it and make it anew, or \
         delete its keys"
    )]
    Clear,
    /// A commit as a whole over several buckets.
    #[error(
        "the keys of operations {first} and {other} are in different buckets of the database, and \
         a storage engine changes only one at once; nothing was done; send them in requests of \
         their own, or as INDEPENDENT, or use a database with one bucket"
    )]
    SeveralBuckets {
        /// An operation of the commit, counted from 0 over all its operations, compares first.
        first: u32,
        /// One whose key is in another bucket than that of `first`.
        other: u32,
    },
    /// A condition in a database that promises a quorum.
    #[error(
        "operation {operation} depends on what is stored, and this database promises only \
         `quorum`; use a database made with the promise `linearizable`"
    )]
    NeedsLinearizable {
        /// Which operation of the commit.
        operation: u32,
    },
}

impl Lack {
    /// Whether it is lacking for this request only: another form of it, or a database of another
    /// shape, can do it.
    pub fn is_of_request(self) -> bool {
        matches!(
            self,
            Lack::SeveralBuckets { .. } | Lack::NeedsLinearizable { .. }
        )
    }
}
