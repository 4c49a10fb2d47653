//! Commits and operations as they lie in a write batch: fixed-size records beside one run of bytes.

use std::ops::Range;

use crate::blob::UploadPeer;
use crate::database_id::DatabaseId;
use crate::operation::{Condition, Expiry, Mode, Operation, TransactList};
use crate::payload::PayloadPlace;

/// A submitted commit: a run of operations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommitRecord {
    pub(crate) tag: u64,
    pub(crate) database: DatabaseId,
    pub(crate) mode: Mode,
    pub(crate) first: usize,
    pub(crate) end: usize,
    /// It is about the database as a whole, and has one operation.
    pub(crate) whole: Option<Whole>,
    pub(crate) answer_bytes: usize,
    pub(crate) source: Source,
    /// The server on which it was made; 0: this one.
    pub(crate) origin: u32,
    /// Some operation may copy an existing value.
    pub(crate) rewrites: bool,
    /// It is on a database on disk, and has to know what is there.
    pub(crate) wants_reads: bool,
    /// Whoever asked for it has left.
    pub(crate) is_abandoned: bool,
    /// Bytes of its keys and values.
    pub(crate) bytes: usize,
}

/// Who asks for commits: what is scarce is shared among addresses, and the commits of one
/// connection stay in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Source {
    /// Where it is: all connections from there share with each other.
    pub address: UploadPeer,
    /// Names the connection among those of one mailbox.
    pub connection: u64,
}

/// Commits of a batch that stand together and are of one connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitRun {
    /// What [`Source`] says of them.
    pub connection: u64,
    /// Whether they have to know what is on the device before they can be decided.
    pub wants_reads: bool,
    /// Which commits of the batch they are.
    pub commits: Range<usize>,
}

impl CommitRecord {
    /// Where the commit's operations lie in the batch.
    pub(crate) fn operations(&self) -> Range<usize> {
        self.first..self.end
    }

    /// Whether it changes which databases there are.
    pub(crate) fn is_of_catalogue(&self) -> bool {
        self.whole
            .is_some_and(|whole| whole == Whole::Create || whole.is_drop())
    }

    /// Whether both are of one connection, and wait for the device or not.
    pub(crate) fn goes_with(&self, other: &CommitRecord) -> bool {
        self.source.connection == other.source.connection && self.wants_reads == other.wants_reads
    }

    /// Whether both are on one database, and leave it where it is.
    pub(crate) fn is_alike(&self, other: &CommitRecord) -> bool {
        self.database == other.database && !self.is_of_catalogue() && !other.is_of_catalogue()
    }
}

/// What a commit does to a database as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whole {
    /// Empties it.
    Clear,
    /// Makes it. The key of its operation is the name, the value the encoded configuration.
    Create,
    /// Drops it.
    Drop,
    /// Drops it if there is nothing in it.
    DropEmpty,
}

impl Whole {
    /// Whether it drops the database.
    pub(crate) fn is_drop(self) -> bool {
        matches!(self, Whole::Drop | Whole::DropEmpty)
    }
}

/// An operation without its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OperationRecord {
    pub(crate) hash: u64,
    pub(crate) place: PayloadPlace,
    pub(crate) action: Action,
    pub(crate) check: Check,
    pub(crate) list: TransactList,
    pub(crate) want_previous: bool,
}

impl OperationRecord {
    /// Whether what it does or answers depends on what is there. If not, it is a plain Put.
    #[inline]
    pub(crate) fn needs_state(&self) -> bool {
        match self.action {
            Action::Put(expiry) => {
                !matches!(self.check, Check::None)
                    || self.want_previous
                    || matches!(expiry, Expiry::Keep)
            }
            Action::Whole => false,
            _ => true,
        }
    }
}

/// What an operation does; its key and value lie in the batch.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    Get,
    Put(Expiry),
    Delete,
    Append,
    Increment {
        delta: i64,
        initial: i64,
    },
    WrappingIncrement {
        delta: i64,
        initial: i64,
    },
    Compare,
    Expire,
    /// What [`CommitRecord::whole`] says.
    Whole,
}

/// A [`Condition`]; an expected value lies in the batch.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Check {
    None,
    Absent,
    Present,
    VersionIs(u64),
    ValueIs,
}

/// An [`Operation`] taken apart.
pub(crate) struct OperationParts<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
    pub(crate) expected: &'a [u8],
    pub(crate) action: Action,
    pub(crate) check: Check,
    pub(crate) want_previous: bool,
}

impl<'a> OperationParts<'a> {
    pub(crate) fn of(operation: &Operation<'a>) -> OperationParts<'a> {
        let parts = |key, value, condition, action, want_previous| {
            let (check, expected) = take_apart(condition);
            OperationParts {
                key,
                value,
                expected,
                action,
                check,
                want_previous,
            }
        };
        match *operation {
            Operation::Get { key } => parts(key, &[], Condition::None, Action::Get, false),
            Operation::Put {
                key,
                value,
                condition,
                expiry,
                want_previous,
            } => parts(key, value, condition, Action::Put(expiry), want_previous),
            Operation::Delete {
                key,
                condition,
                want_previous,
            } => parts(key, &[], condition, Action::Delete, want_previous),
            Operation::Append {
                key,
                value,
                condition,
            } => parts(key, value, condition, Action::Append, false),
            Operation::Increment {
                key,
                delta,
                initial,
                condition,
            } => parts(
                key,
                &[],
                condition,
                Action::Increment { delta, initial },
                false,
            ),
            Operation::WrappingIncrement {
                key,
                delta,
                initial,
            } => parts(
                key,
                &[],
                Condition::None,
                Action::WrappingIncrement { delta, initial },
                false,
            ),
            Operation::Compare { key, condition } => {
                parts(key, &[], condition, Action::Compare, false)
            }
            Operation::Expire { key } => parts(key, &[], Condition::None, Action::Expire, false),
            Operation::Clear => parts(&[], &[], Condition::None, Action::Whole, false),
        }
    }
}

fn take_apart(condition: Condition<'_>) -> (Check, &[u8]) {
    match condition {
        Condition::None => (Check::None, &[]),
        Condition::Absent => (Check::Absent, &[]),
        Condition::Present => (Check::Present, &[]),
        Condition::VersionIs(version) => (Check::VersionIs(version), &[]),
        Condition::ValueIs(value) => (Check::ValueIs, value),
    }
}
