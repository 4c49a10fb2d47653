//! Why an operation is not taken into a commit.

use std::fmt;

#[cfg(doc)]
use crate::operation::{Mode, Operation};

/// Why an operation was not taken into a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PushError {
    /// Something is larger than the database allows.
    #[error(fmt = too_large)]
    TooLarge {
        /// Which limit.
        what: Limit,
        /// How much there was.
        amount: usize,
        /// How much is allowed.
        limit: usize,
    },
    /// Before its lists, a [`Mode::Transact`] commit takes only compares.
    #[error("only compares may stand before the lists of a transaction")]
    OnlyCompares,
    /// [`Operation::Clear`] must be the only operation of its commit.
    #[error("clearing a database cannot be combined with other operations")]
    ClearStandsAlone,
}

/// The limits that [`PushError::TooLarge`] names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Bytes of one key.
    KeyBytes,
    /// Bytes of one value.
    ValueBytes,
    /// Operations in one commit.
    CommitOperations,
    /// Bytes of keys and values in one commit.
    CommitBytes,
}

fn too_large(
    what: &Limit,
    amount: &usize,
    limit: &usize,
    formatter: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    match what {
        Limit::KeyBytes => {
            write!(
                formatter,
                "the key has {amount} bytes, at most {limit} are allowed"
            )
        }
        Limit::ValueBytes => {
            write!(
                formatter,
                "the value has {amount} bytes, at most {limit} are allowed"
            )
        }
        Limit::CommitOperations => {
            write!(formatter, "the request has more than {limit} operations")
        }
        Limit::CommitBytes => write!(
            formatter,
            "the request has {amount} bytes of keys and values or more, at most {limit} are allowed"
        ),
    }
}
