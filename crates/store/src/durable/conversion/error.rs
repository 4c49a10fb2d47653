//! Why a database is not converted.

use std::fmt;

use crate::database::CreateError;
use crate::outcome::Refusal;
use crate::tree::{self, TreeError};

/// Why a database was not converted. Nothing was done, unless it says otherwise.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConvertError {
    /// There is no such database.
    Unknown,
    /// It is of that kind already.
    IsOfKind,
    /// A database of that kind cannot be as this one is.
    NotPossible(CreateError),
    /// Another one is being converted, or a backup is made.
    Busy,
    /// It has a key that is too long for a database on disk.
    KeyTooLong,
    /// It does not fit into memory.
    TooLarge {
        /// The limit, of the database or of the server.
        limit_bytes: u64,
    },
    /// A tree could not be read or written.
    Tree(TreeError),
    /// A write or sync of the log had failed before.
    LogFailed,
    /// The commit was refused. With [`Refusal::OutcomeUnknown`] only a restart shows whether it
    /// took effect.
    Refused(Refusal),
    /// It was given up by whoever wanted it.
    Cancelled,
    /// The server stops.
    Stopping,
}

impl fmt::Display for ConvertError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConvertError::Unknown => write!(formatter, "there is no such database"),
            ConvertError::IsOfKind => write!(formatter, "the database is of that kind already"),
            ConvertError::NotPossible(error) => error.fmt(formatter),
            ConvertError::Busy => write!(
                formatter,
                "another database is being converted, or a backup is made; try again when that is \
                 done"
            ),
            ConvertError::KeyTooLong => write!(
                formatter,
                "the database has a key of more than {} bytes, the longest that one on disk can \
                 have",
                tree::limits::KEY_BYTES
            ),
            ConvertError::TooLarge { limit_bytes } => write!(
                formatter,
                "the database does not fit into memory: with it more than {limit_bytes} bytes \
                 would be in use"
            ),
            ConvertError::Tree(error) => error.fmt(formatter),
            ConvertError::LogFailed => Refusal::LogFailed.fmt(formatter),
            ConvertError::Refused(refusal) => refusal.fmt(formatter),
            ConvertError::Cancelled => write!(formatter, "the conversion was given up"),
            ConvertError::Stopping => write!(formatter, "the server stops"),
        }
    }
}

impl std::error::Error for ConvertError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ConvertError::Tree(error) => Some(error),
            _ => None,
        }
    }
}
