//! What became of commits.
//!
//! Outcomes own all they carry: small values in one arena, large ones by a counted reference.
//! So they outlive the lock under which they were decided, and can travel.

use std::fmt;

use crate::database::{CreateError, DropError};
use crate::database_id::DatabaseId;
use crate::limits;
use crate::record::CommitRecord;
use crate::remote_kind::{Lack, RemoteError};
use crate::value::Value;
use bytes::Bytes;

/// The outcomes of the commits of one batch, in commit order. Reused from run to run.
#[derive(Debug, Default)]
pub struct Outcomes {
    commits: Vec<Decided>,
    operations: Vec<OperationResult>,
    arena: Vec<u8>,
    shared: Vec<Bytes>,
    sync_ns: u64,
}

impl Outcomes {
    /// An empty list.
    pub fn new() -> Outcomes {
        Outcomes::default()
    }

    /// How many commits have an outcome here.
    pub fn len(&self) -> usize {
        self.commits.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.commits.is_empty()
    }

    /// The outcome of the commit at `index`.
    ///
    /// # Panics
    ///
    /// If there are not so many.
    pub fn get(&self, index: usize) -> CommitOutcome<'_> {
        let decided = &self.commits[index];
        CommitOutcome {
            tag: decided.tag,
            database: decided.database,
            sequence: decided.sequence,
            decision: decided.verdict.decision,
            unmet_compare: decided.verdict.unmet_compare,
            operations: &self.operations[decided.first..decided.end],
            outcomes: self,
        }
    }

    /// All outcomes, in commit order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = CommitOutcome<'_>> {
        (0..self.len()).map(|index| self.get(index))
    }

    /// Returns how long the sync took that these outcomes have waited for, in nanoseconds; 0: they
    /// have not waited for one.
    pub fn sync_ns(&self) -> u64 {
        self.sync_ns
    }

    /// Notes that a sync was waited for, and for how long.
    pub(crate) fn set_sync_ns(&mut self, sync_ns: u64) {
        self.sync_ns = sync_ns;
    }

    /// Forgets all outcomes.
    pub fn clear(&mut self) {
        self.sync_ns = 0;
        self.commits.clear();
        self.operations.clear();
        self.arena.clear();
        self.shared.clear();
        self.commits
            .shrink_to(limits::KEPT_BYTES / size_of::<Decided>());
        self.operations
            .shrink_to(limits::KEPT_BYTES / size_of::<OperationResult>());
        self.arena.shrink_to(limits::KEPT_BYTES);
    }

    /// Turns every outcome into a refusal: `applied` for the commits that were to take effect, else
    /// `other`.
    pub(crate) fn refuse_all(&mut self, applied: Refusal, other: Refusal) {
        for decided in &mut self.commits {
            let refusal = match decided.verdict.decision {
                Decision::Applied => applied,
                _ => other,
            };
            decided.verdict = Decision::Refused(refusal).into();
            decided.end = decided.first;
        }
    }

    /// Refuses a commit of which nothing was decided.
    pub(crate) fn refuse(&mut self, commit: &CommitRecord, refusal: Refusal) {
        let verdict = Decision::Refused(refusal).into();
        self.finish(&self.mark(), commit, 0, verdict);
    }

    /// Where the outcomes of the next commit begin.
    pub(crate) fn mark(&self) -> OutcomesMark {
        OutcomesMark {
            operations: self.operations.len(),
            arena: self.arena.len(),
            shared: self.shared.len(),
        }
    }

    /// Adds the outcome of one operation of the commit that is being decided.
    #[inline]
    pub(crate) fn push(
        &mut self,
        status: OperationStatus,
        before: KeyState,
        after: KeyState,
        counter: i64,
        value: Option<Value<'_>>,
    ) {
        let value = match value {
            None => KeptResult::Nothing,
            Some(Value::Shared(bytes)) => {
                self.shared.push(bytes.clone());
                KeptResult::Shared(self.shared.len() - 1)
            }
            Some(Value::Inline(bytes)) => {
                let start = self.arena.len();
                self.arena.extend_from_slice(bytes);
                KeptResult::Inline(start, bytes.len())
            }
        };
        self.operations.push(OperationResult {
            status,
            before,
            after,
            counter,
            value,
        });
    }

    /// Takes back the outcomes since `mark`, but for the last one if `keep_last`.
    pub(crate) fn truncate(&mut self, mark: &OutcomesMark, keep_last: bool) {
        let last = if keep_last {
            self.operations.pop()
        } else {
            None
        };
        self.operations.truncate(mark.operations);
        match last {
            // The values stay where they are: the last one may be the failed operation's.
            Some(last) => self.operations.push(last),
            None => {
                self.arena.truncate(mark.arena);
                self.shared.truncate(mark.shared);
            }
        }
    }

    /// Adds the outcome of an operation that another list has.
    pub(crate) fn push_copy(&mut self, outcome: &OperationOutcome<'_>) {
        let &OperationOutcome {
            status,
            before,
            after,
            counter,
            value,
        } = outcome;
        self.push(status, before, after, counter, value);
    }

    /// Ends the outcomes of a commit.
    pub(crate) fn finish(
        &mut self,
        mark: &OutcomesMark,
        commit: &CommitRecord,
        sequence: u64,
        verdict: CommitVerdict,
    ) {
        self.commits.push(Decided {
            tag: commit.tag,
            database: commit.database,
            sequence,
            verdict,
            first: mark.operations,
            end: self.operations.len(),
        });
    }
}

/// A place in [`Outcomes`].
pub(crate) struct OutcomesMark {
    operations: usize,
    arena: usize,
    shared: usize,
}

#[derive(Clone, Copy, Debug)]
struct Decided {
    tag: u64,
    database: DatabaseId,
    sequence: u64,
    verdict: CommitVerdict,
    first: usize,
    end: usize,
}

/// What was decided of a commit as a whole.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommitVerdict {
    pub(crate) decision: Decision,
    pub(crate) unmet_compare: Option<usize>,
}

impl From<Decision> for CommitVerdict {
    fn from(decision: Decision) -> CommitVerdict {
        CommitVerdict {
            decision,
            unmet_compare: None,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct OperationResult {
    status: OperationStatus,
    before: KeyState,
    after: KeyState,
    counter: i64,
    value: KeptResult,
}

#[derive(Clone, Copy, Debug)]
enum KeptResult {
    Nothing,
    Inline(usize, usize),
    Shared(usize),
}

/// What became of one commit.
#[derive(Clone, Copy)]
pub struct CommitOutcome<'a> {
    /// The tag it was begun with.
    pub tag: u64,
    /// Its database.
    pub database: DatabaseId,
    /// Its sequence, also if it changed nothing; 0 if its database is not known.
    pub sequence: u64,
    /// Whether it took effect.
    pub decision: Decision,
    /// [`Mode::Transact`](crate::Mode::Transact): which compare, counted from 0, was the first that
    /// did not hold, so that the list [`Otherwise`](crate::TransactList::Otherwise) was taken.
    /// `None`: all held, and the list [`Then`](crate::TransactList::Then) was taken.
    pub unmet_compare: Option<usize>,
    operations: &'a [OperationResult],
    outcomes: &'a Outcomes,
}

impl<'a> CommitOutcome<'a> {
    /// Returns how long the sync took that it has waited for, in nanoseconds; 0: there was none.
    pub fn sync_ns(&self) -> u64 {
        self.outcomes.sync_ns()
    }

    /// The outcomes of its operations, in the order pushed; in
    /// [`Mode::Transact`](crate::Mode::Transact), of those of the list that was applied. After
    /// [`Decision::Failed`], only that of the operation that failed; after [`Decision::Refused`],
    /// none.
    pub fn operations(&self) -> impl ExactSizeIterator<Item = OperationOutcome<'a>> + use<'a> {
        let outcomes = self.outcomes;
        self.operations
            .iter()
            .map(move |result| outcomes.operation(result))
    }

    /// The outcome of the first operation: for requests that have only one.
    pub fn first(&self) -> Option<OperationOutcome<'a>> {
        self.operations
            .first()
            .map(|result| self.outcomes.operation(result))
    }
}

impl fmt::Debug for CommitOutcome<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("CommitOutcome")
            .field("tag", &self.tag)
            .field("sequence", &self.sequence)
            .field("decision", &self.decision)
            .field("operations", &self.operations().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

impl Outcomes {
    fn operation(&self, result: &OperationResult) -> OperationOutcome<'_> {
        let value = match result.value {
            KeptResult::Nothing => None,
            KeptResult::Inline(start, len) => Some(Value::Inline(&self.arena[start..start + len])),
            KeptResult::Shared(index) => Some(Value::Shared(&self.shared[index])),
        };
        let &OperationResult {
            status,
            before,
            after,
            counter,
            ..
        } = result;
        OperationOutcome {
            status,
            before,
            after,
            counter,
            value,
        }
    }
}

/// Whether a commit took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Yes; in an independent commit, each operation as its outcome says.
    Applied,
    /// An operation of an atomic commit or of a transaction's list failed: nothing was done.
    Failed {
        /// Which, counted from 0 within the commit, or within the list.
        index: usize,
        /// Why.
        status: OperationStatus,
    },
    /// The commit as a whole was refused: nothing was done.
    Refused(Refusal),
}

/// Why a commit was refused whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// There is no such database (any more).
    #[error("there is no such database")]
    UnknownDatabase,
    /// The commit grows the database beyond its memory limit.
    #[error(
        "the database has no room for it: {used_bytes} bytes of its quota of {limit_bytes} are in \
         use, and the request would add {added_bytes}; deletes and reads go on"
    )]
    DatabaseFull {
        /// The limit.
        limit_bytes: u64,
        /// What is in use, by estimate.
        used_bytes: u64,
        /// What the commit would add.
        added_bytes: u64,
    },
    /// The commit grows all databases together beyond the store's memory limit.
    #[error(
        "the server is full: {used_bytes} bytes of its memory limit of {limit_bytes} are in use, \
         and the request would add {added_bytes}; deletes and reads go on"
    )]
    StoreFull {
        /// The limit.
        limit_bytes: u64,
        /// What is in use, by estimate.
        used_bytes: u64,
        /// What the commit would add.
        added_bytes: u64,
    },
    /// The commit grows the databases while the process takes more memory than it may beside them
    /// ([`Store::note_process_bytes`](crate::Store::note_process_bytes)).
    #[error(
        "the server is full: its process takes {process_bytes} bytes, though only {used_bytes} of \
         its memory limit of {limit_bytes} are in use: entries that were removed have left memory \
         in pieces, which are being moved together; deletes and reads go on, try again in a while"
    )]
    ProcessFull {
        /// What the process takes.
        process_bytes: u64,
        /// What is in use for entries, by estimate.
        used_bytes: u64,
        /// The limit for that.
        limit_bytes: u64,
    },
    /// The answer would be larger than the commit allows.
    #[error("the answer would be larger than {limit_bytes} bytes; nothing was done")]
    AnswerTooLarge {
        /// The limit.
        limit_bytes: usize,
    },
    /// Its Appends would copy more bytes of existing values than one commit may.
    #[error(
        "the appends of the request would copy more than {limit_bytes} bytes of existing values; \
         nothing was done; send them in several requests, or put the whole values"
    )]
    RewritesTooMuch {
        /// The limit.
        limit_bytes: usize,
    },
    /// The database was not made.
    #[error("{0}")]
    NotCreated(CreateError),
    /// The database was not dropped.
    #[error("{0}")]
    NotDropped(DropError),
    /// There is no room on the disk for more of the log.
    #[error(
        "the disk has no room for the next file of the log, whose size --log-segment says; nothing \
         was done; free some space there; reads go on"
    )]
    LogFull,
    /// No more of the log can be made ready, for another reason than want of room.
    #[error(
        "the next file of the log cannot be made ready; nothing was done; the server's log says \
         why; reads go on, and it is tried again"
    )]
    LogNotReady,
    /// A write or a sync of the log has failed. Writes are refused until a restart; reads go on.
    #[error(
        "read-only: a write or sync of the log has failed, or the data folder is gone from its \
         place (the server's log says which), and nothing was done; reads go on; restart the \
         server when that is mended"
    )]
    LogFailed,
    /// The write or sync of the log that was to cover this commit has failed: only a restart will
    /// show whether it took effect. The one refusal after which something may have been done.
    #[error("outcome unknown: the write or sync of the log for this request has failed")]
    OutcomeUnknown,
    /// Too few followers have said in time that they hold the commit.
    #[error(
        "outcome unknown: too few replicas have said in time that they hold the write \
         (--replicas-acked, --replicas-acked-timeout); it is in the log of this server, and may \
         still take effect: it becomes visible when enough replicas hold it"
    )]
    NotAcknowledged,
    /// A commit before this one waits in vain for followers.
    #[error(
        "too few replicas hold the writes before this one (--replicas-acked); nothing was done; \
         start those that are missing, and try again; `pelton status` shows which are here, and \
         what they hold"
    )]
    ReplicasMissing,
    /// This server follows another one, which alone decides.
    #[error(
        "this server is a replica, and only its leader takes writes; nothing was done; `pelton \
         status` says which server that is"
    )]
    Replica,
    /// A replica has taken the place of this leader.
    #[error(
        "a replica was promoted, and takes the writes now, while this server takes none any more; \
         nothing was done; `pelton status` says where it is, if that is known"
    )]
    Superseded,
    /// The log is so slow that no commit sequence can be given out at the moment.
    #[error("the log is far behind; nothing was done; try again")]
    LogBehind,
    /// The commit is on a database on disk, and what it has to know was not read before: the
    /// database was converted meanwhile, say.
    #[error(
        "what the request has to know was not read: the database was changed meanwhile, or the \
         server had no room or no thread to read it; nothing was done; try again"
    )]
    NotReadAhead,
    /// What the commit has to know of a database on disk is damaged.
    #[error(
        "the database is damaged, and what the request has to know cannot be read; nothing was \
         done; see the server's log; restore a backup"
    )]
    Damaged,
    /// What the commit has to know of a database on disk could not be read just now.
    #[error(
        "what the request has to know could not be read from the disk; nothing was done; the \
         server's log says why; try again"
    )]
    NotRead,
    /// The commit has to know more bytes of existing entries than one commit may.
    #[error(
        "the operations of the request need more than {limit_bytes} bytes of existing values; send \
         them in several requests"
    )]
    ReadsTooMuch {
        /// The limit.
        limit_bytes: usize,
    },
    /// The device is so far behind with a database on disk that it takes no more at the moment.
    #[error("the disk is far behind with this database; nothing was done; try again")]
    DiskBehind,
    /// There is no room on the device for more of a database on disk.
    #[error(
        "the disk has no room for more of this database; nothing was done; free some space there; \
         reads go on"
    )]
    DiskFull,
    /// What is in memory of a database on disk cannot be brought there, and it is so much that no
    /// more is taken.
    #[error(
        "the disk refuses to take what was written to this database; nothing was done, and nothing \
         is lost; see the server's log; reads go on, and writes when the disk takes them again"
    )]
    DiskFailed,
    /// The folder of a database on disk could not be made.
    #[error(
        "a folder for the database could not be made on the disk; nothing was done; see the \
         server's log"
    )]
    NoFolder,
    /// The database is being converted.
    #[error("the database is being converted; nothing was done; try again")]
    Converting,
    /// The engine elsewhere that has the database came to nothing, or to something unknown.
    #[error("{0}")]
    Remote(RemoteError),
    /// The database is on an engine elsewhere, which cannot do it.
    #[error("{0}")]
    Lacks(Lack),
    /// Whoever asked for it left before it was decided: nothing was done.
    #[error("the caller left before the request was carried out; nothing was done")]
    Abandoned,
}

impl From<RemoteError> for Refusal {
    fn from(error: RemoteError) -> Refusal {
        match error {
            RemoteError::UnknownDatabase => Refusal::UnknownDatabase,
            other => Refusal::Remote(other),
        }
    }
}

/// What became of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationOutcome<'a> {
    /// Whether it did what it should.
    pub status: OperationStatus,
    /// The key before the operation.
    pub before: KeyState,
    /// The key after it; the same as before if the operation changed nothing.
    pub after: KeyState,
    /// Increment: the number after it, which is the old one after an overflow; 0 if there is no
    /// number or the condition failed. Clear and Expire: how many entries were removed. Otherwise
    /// 0.
    pub counter: i64,
    /// Get: the value. With `want_previous`: the value before, whether or not the condition held.
    /// `None` if there is none, or none was wanted.
    pub value: Option<Value<'a>>,
}

impl OperationOutcome<'_> {
    /// Whether the key had a value before the operation.
    pub fn existed(&self) -> bool {
        self.before.version != 0
    }
}

/// What is known of a key without its value. All zero: it has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyState {
    /// The sequence of the commit that last wrote it; 0: the key has no value.
    pub version: u64,
    /// Milliseconds since 1970 from which on it counts as absent; 0: never.
    pub expires_ms: u64,
    /// Bytes of its value.
    pub value_bytes: u64,
}

/// Whether an operation did what it should. All but `Done` changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationStatus {
    /// It did. (To read or delete a key that is not there is no failure.)
    Done,
    /// Its condition did not hold.
    ConditionFailed,
    /// Increment: the value is not 8 bytes long.
    WrongLength,
    /// Increment: the sum does not fit in a signed 64-bit number.
    Overflow,
    /// Append: the value would become longer than the database allows.
    TooLarge,
}
