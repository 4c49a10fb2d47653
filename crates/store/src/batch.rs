//! The write buffer of a loop: commits, as they will be decided.
//!
//! An operation is a fixed-size record and, in one piece, its key, its value and the value it expects.
//! The bytes of a request are copied once, into this buffer; nothing is allocated in the steady state.

use std::fmt;
use std::ops::Range;

use crate::catalogue::{DatabaseId, DatabaseLimits};
use crate::hash::KeyHasher;
use crate::limits;
use crate::operation::{List, Mode, Operation};
use crate::record::{CommitRecord, OperationRecord, Parts};
use crate::store::Store;

/// Commits that wait for a [`Committer`](crate::Committer). Owns all its bytes, so that it can travel.
pub struct WriteBatch {
    store: Store,
    hasher: KeyHasher,
    /// The database of the last commit, with its limits.
    known: Option<(DatabaseId, DatabaseLimits)>,
    commits: Vec<CommitRecord>,
    operations: Vec<OperationRecord>,
    bytes: Vec<u8>,
}

impl WriteBatch {
    pub(crate) fn new(store: &Store) -> WriteBatch {
        WriteBatch {
            store: store.clone(),
            hasher: store.hasher().clone(),
            known: None,
            commits: Vec::new(),
            operations: Vec::new(),
            bytes: Vec::new(),
        }
    }

    /// Begins a commit. `tag` comes back with its outcome and means nothing here.
    pub fn begin(&mut self, tag: u64, database: DatabaseId, mode: Mode) -> Commit<'_> {
        let limits = self.limits_of(database);
        let record = CommitRecord {
            tag,
            database,
            mode,
            first: self.operations.len(),
            end: self.operations.len(),
            clear: false,
            answer_bytes: limits
                .value_bytes
                .saturating_add(limits::COMMIT_BYTES_BESIDE_LARGEST)
                .max(limits::ANSWER_BYTES),
        };
        let bytes_start = self.bytes.len();
        Commit {
            batch: self,
            limits,
            record,
            list: List::Compares,
            bytes_start,
            submitted: false,
        }
    }

    /// Whether no commit waits.
    pub fn is_empty(&self) -> bool {
        self.commits.is_empty()
    }

    /// How many commits wait.
    pub fn len(&self) -> usize {
        self.commits.len()
    }

    /// How many bytes of keys and values wait.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Forgets all commits.
    pub fn clear(&mut self) {
        self.commits.clear();
        self.operations.clear();
        self.bytes.clear();
        self.commits
            .shrink_to(limits::KEPT_BYTES / size_of::<CommitRecord>());
        self.operations
            .shrink_to(limits::KEPT_BYTES / size_of::<OperationRecord>());
        self.bytes.shrink_to(limits::KEPT_BYTES);
    }

    pub(crate) fn commits(&self) -> &[CommitRecord] {
        &self.commits
    }

    pub(crate) fn operation(&self, index: usize) -> &OperationRecord {
        &self.operations[index]
    }

    /// Bytes of keys and values of a commit.
    pub(crate) fn bytes_of(&self, commit: &CommitRecord) -> usize {
        let start_of = |place: usize| {
            self.operations
                .get(place)
                .map_or(self.bytes.len(), |operation| operation.start)
        };
        start_of(commit.end) - start_of(commit.first)
    }

    /// The hashes of the keys of some operations, of which the last need not exist.
    pub(crate) fn hashes(&self, operations: Range<usize>) -> impl Iterator<Item = u64> {
        let end = operations.end.min(self.operations.len());
        self.operations[operations.start..end]
            .iter()
            .map(|operation| operation.hash)
    }

    #[inline]
    pub(crate) fn key(&self, operation: &OperationRecord) -> &[u8] {
        &self.bytes[operation.start..][..operation.key_len as usize]
    }

    #[inline]
    pub(crate) fn value(&self, operation: &OperationRecord) -> &[u8] {
        &self.bytes[operation.start + operation.key_len as usize..][..operation.value_len as usize]
    }

    #[inline]
    pub(crate) fn expected_value(&self, operation: &OperationRecord) -> &[u8] {
        let start = operation.start + operation.key_len as usize + operation.value_len as usize;
        &self.bytes[start..][..operation.expected_len as usize]
    }

    /// The limits of a database; those of an unknown one, whose commits will be refused, are the default.
    fn limits_of(&mut self, database: DatabaseId) -> DatabaseLimits {
        match self.known {
            Some((known, limits)) if known == database => limits,
            _ => {
                let limits = self.store.limits(database).unwrap_or_default();
                self.known = Some((database, limits));
                limits
            }
        }
    }
}

impl fmt::Debug for WriteBatch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("WriteBatch")
            .field("commits", &self.commits.len())
            .field("operations", &self.operations.len())
            .field("bytes", &self.bytes.len())
            .finish_non_exhaustive()
    }
}

/// A commit that is being put together: push operations, then submit. Dropped unsubmitted, it takes everything back.
#[derive(Debug)]
pub struct Commit<'a> {
    batch: &'a mut WriteBatch,
    limits: DatabaseLimits,
    record: CommitRecord,
    list: List,
    bytes_start: usize,
    submitted: bool,
}

impl Commit<'_> {
    /// Adds an operation. After an error the commit should be dropped.
    pub fn push(&mut self, operation: &Operation<'_>) -> Result<(), PushError> {
        let parts = Parts::of(operation);
        self.check(operation, &parts)?;
        let batch = &mut *self.batch;
        let record = OperationRecord {
            hash: batch.hasher.hash(parts.key),
            start: batch.bytes.len(),
            // The lengths were checked against limits that fit in 32 bits.
            key_len: parts.key.len() as u32,
            value_len: parts.value.len() as u32,
            expected_len: parts.expected.len() as u32,
            action: parts.action,
            check: parts.check,
            list: self.list,
            want_previous: parts.want_previous,
        };
        batch.bytes.extend_from_slice(parts.key);
        batch.bytes.extend_from_slice(parts.value);
        batch.bytes.extend_from_slice(parts.expected);
        batch.operations.push(record);
        self.record.clear |= matches!(operation, Operation::Clear);
        Ok(())
    }

    /// In a [`Mode::Transact`] commit: what is pushed from now on belongs to this list. Lists come in the order
    /// compares, then, otherwise; each may be empty.
    pub fn list(&mut self, list: List) {
        debug_assert!(
            self.record.mode == Mode::Transact,
            "only Transact has lists"
        );
        debug_assert!(list as u8 >= self.list as u8, "lists come in order");
        self.list = list;
    }

    /// Refuses the commit whole if the values in its answer, with
    /// [`ANSWER_BYTES_PER_OPERATION`](limits::ANSWER_BYTES_PER_OPERATION) for each operation, come to more than this.
    pub fn limit_answer(&mut self, bytes: usize) {
        self.record.answer_bytes = bytes;
    }

    /// Hands the commit to the batch.
    pub fn submit(mut self) {
        self.submitted = true;
        self.record.end = self.batch.operations.len();
        self.batch.commits.push(self.record);
    }

    fn check(&self, operation: &Operation<'_>, parts: &Parts<'_>) -> Result<(), PushError> {
        let count = self.batch.operations.len() - self.record.first;
        let bytes = self.batch.bytes.len() - self.bytes_start;
        let added = parts.key.len() + parts.value.len() + parts.expected.len();
        let too_large = |what, amount, limit| {
            if amount > limit {
                Err(PushError::TooLarge {
                    what,
                    amount,
                    limit,
                })
            } else {
                Ok(())
            }
        };
        too_large(Limit::KeyBytes, parts.key.len(), self.limits.key_bytes)?;
        too_large(
            Limit::ValueBytes,
            parts.value.len(),
            self.limits.value_bytes,
        )?;
        too_large(
            Limit::ValueBytes,
            parts.expected.len(),
            self.limits.value_bytes,
        )?;
        too_large(
            Limit::CommitOperations,
            count + 1,
            self.limits.commit_operations,
        )?;
        too_large(Limit::CommitBytes, bytes + added, self.limits.commit_bytes)?;
        let is_compare = matches!(operation, Operation::Compare { .. });
        if self.record.mode == Mode::Transact && self.list == List::Compares && !is_compare {
            return Err(PushError::OnlyCompares);
        }
        if self.record.clear || (matches!(operation, Operation::Clear) && count > 0) {
            return Err(PushError::ClearStandsAlone);
        }
        Ok(())
    }
}

impl Drop for Commit<'_> {
    fn drop(&mut self) {
        if !self.submitted {
            self.batch.operations.truncate(self.record.first);
            self.batch.bytes.truncate(self.bytes_start);
        }
    }
}

/// Why an operation was not taken into a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PushError {
    /// Something is larger than the database allows.
    TooLarge {
        /// Which limit.
        what: Limit,
        /// How much there was.
        amount: usize,
        /// How much is allowed.
        limit: usize,
    },
    /// Before its lists, a [`Mode::Transact`] commit takes only compares.
    OnlyCompares,
    /// [`Operation::Clear`] must be the only operation of its commit.
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

impl fmt::Display for PushError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            PushError::TooLarge {
                what,
                amount,
                limit,
            } => match what {
                Limit::KeyBytes => write!(
                    formatter,
                    "the key has {amount} bytes, at most {limit} are allowed"
                ),
                Limit::ValueBytes => write!(
                    formatter,
                    "the value has {amount} bytes, at most {limit} are allowed"
                ),
                Limit::CommitOperations => {
                    write!(formatter, "the request has more than {limit} operations")
                }
                Limit::CommitBytes => write!(
                    formatter,
                    "the request has {amount} bytes of keys and values or more, at most {limit} are allowed"
                ),
            },
            PushError::OnlyCompares => write!(
                formatter,
                "only compares may stand before the lists of a transaction"
            ),
            PushError::ClearStandsAlone => write!(
                formatter,
                "clearing a database cannot be combined with other operations"
            ),
        }
    }
}

impl std::error::Error for PushError {}
