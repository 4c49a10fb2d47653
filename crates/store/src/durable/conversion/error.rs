//! Why a database is not converted.

use crate::database::CreateError;
use crate::outcome::Refusal;
use crate::tree::{self, TreeError};

/// Why a database was not converted. Nothing was done, unless it says otherwise.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConvertError {
    /// There is no such database.
    #[error("there is no such database")]
    Unknown,
    /// It is of that kind already.
    #[error("the database is of that kind already")]
    IsOfKind,
    /// A database of that kind cannot be as this one is.
    #[error("{0}")]
    NotPossible(CreateError),
    /// Another one is being converted, or a backup is made.
    #[error(
        "another database is being converted, or a backup is made; try again when that is done"
    )]
    Busy,
    /// It has a key that is too long for a database on disk.
    #[error(
        "the database has a key of more than {} bytes, the longest that one on disk can have",
        tree::limits::KEY_BYTES
    )]
    KeyTooLong,
    /// It does not fit into memory.
    #[error(
        "the database does not fit into memory: with it more than {limit_bytes} bytes would be in \
         use"
    )]
    TooLarge {
        /// The limit, of the database or of the server.
        limit_bytes: u64,
    },
    /// A tree could not be read or written.
    #[error("{0}")]
    Tree(#[source] TreeError),
    /// A write or sync of the log had failed before.
    #[error("{}", Refusal::LogFailed)]
    LogFailed,
    /// The commit was refused. With [`Refusal::OutcomeUnknown`] only a restart shows whether it
    /// took effect.
    #[error("{0}")]
    Refused(Refusal),
    /// It was given up by whoever wanted it.
    #[error("the conversion was given up")]
    Cancelled,
    /// The server stops.
    #[error("the server stops")]
    Stopping,
}
