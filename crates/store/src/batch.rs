//! The write buffer of a loop: commits, as they will be decided.
//!
//! An operation is a fixed-size record and, in the payload of its [`Operations`], its key, its
//! value and the value it expects. This is the one copy of the bytes of a request on their way to
//! the committer; a small batch that waits there may be copied behind another one
//! ([`limits::JOINED_BATCH_BYTES`](crate::limits::JOINED_BATCH_BYTES)), and the log and the index
//! have copies of their own. In the steady state nothing is allocated but large values.

use std::fmt;
use std::ops::Range;

use bytes::Bytes;

use crate::database::{CreateError, DatabaseConfig, DatabaseLimits, Durability, Kind};
use crate::database_id::DatabaseId;
use crate::hash::KeyHasher;
use crate::limits;
use crate::log::ORIGIN;
use crate::operation::{Mode, Operation, TransactList};
use crate::operations::{Operations, OperationsEnd};
use crate::push_error::{Limit, PushError};
use crate::read_before::{ReadAhead, ReadBefore};
use crate::record::{
    Action, Check, CommitRecord, CommitRun, OperationParts, OperationRecord, Source, Whole,
};
use crate::store::Store;
use crate::value::Value;

/// Commits that wait for a [`VolatileCommitter`](crate::VolatileCommitter), and those of databases
/// with a log, which wait for [`durable`](crate::durable). Owns all its bytes, so that it can
/// travel.
pub struct WriteBatch {
    store: Store,
    hasher: KeyHasher,
    /// The database of the last commit.
    known: Option<(DatabaseId, KnownDatabase)>,
    commits: Vec<CommitRecord>,
    /// The commits of databases with a log.
    logged: Vec<CommitRecord>,
    operations: Operations,
    /// Some commit on a database on disk has to know what is there.
    wants_reads: bool,
    /// What was read for such commits.
    before: ReadBefore,
    /// Who asks for the commits to come.
    source: Source,
    /// The server on which the commits to come were made; 0: this one.
    origin: u32,
    /// What it held when it was submitted: commits that are done are taken out of it one by one.
    submitted_bytes: usize,
}

impl Store {
    /// A write buffer for one thread.
    pub fn write_batch(&self) -> WriteBatch {
        WriteBatch::new(self)
    }
}

impl WriteBatch {
    pub(crate) fn new(store: &Store) -> WriteBatch {
        WriteBatch {
            store: store.clone(),
            hasher: store.hasher().clone(),
            known: None,
            commits: Vec::new(),
            logged: Vec::new(),
            operations: Operations::default(),
            wants_reads: false,
            before: ReadBefore::default(),
            source: Source::default(),
            origin: ORIGIN,
            submitted_bytes: 0,
        }
    }

    /// Notes what it holds as it is submitted, and returns it.
    pub(crate) fn note_submitted(&mut self) -> usize {
        self.submitted_bytes = self.held_bytes();
        self.submitted_bytes
    }

    /// Returns what was noted, with what was added to it.
    pub(crate) fn submitted_bytes(&self) -> usize {
        self.submitted_bytes
    }

    /// Says who asks for the commits that begin from now on.
    #[inline]
    pub fn set_source(&mut self, source: Source) {
        self.source = source;
    }

    /// Says on which server the commits that begin from now on were made, by the number that their
    /// records in the log name; 0, and whenever the batch was submitted or cleared: on this one.
    pub fn set_origin(&mut self, origin: u32) {
        self.origin = origin;
    }

    /// Begins a commit. `tag` comes back with its outcome and means nothing here.
    pub fn begin(&mut self, tag: u64, database: DatabaseId, mode: Mode) -> Commit<'_> {
        let known = self.know(database);
        let limits = known.limits;
        let record = CommitRecord {
            tag,
            database,
            mode,
            first: self.operations.len(),
            end: self.operations.len(),
            whole: None,
            answer_bytes: limits
                .value_bytes
                .saturating_add(limits::COMMIT_BYTES_BESIDE_LARGEST)
                .max(limits::ANSWER_BYTES),
            source: self.source,
            origin: self.origin,
            rewrites: false,
            wants_reads: false,
            is_abandoned: false,
            bytes: 0,
        };
        let start = self.operations.end();
        let bytes_before = self.operations.bytes();
        Commit {
            batch: self,
            known,
            record,
            list: TransactList::Compares,
            start,
            bytes_before,
            submitted: false,
            message: None,
        }
    }

    /// Adds a commit that makes an empty database. Its outcome names the new database, or says why
    /// there is none ([`Refusal::NotCreated`](crate::Refusal::NotCreated)).
    pub fn create_database(&mut self, tag: u64, name: &str, config: &DatabaseConfig) {
        let config = config.encode();
        self.change_catalogue(tag, DatabaseId::DEFAULT, Whole::Create, name, &config);
    }

    /// Adds a commit that drops a database with all it holds, or says why not
    /// ([`Refusal::NotDropped`](crate::Refusal::NotDropped)).
    pub fn drop_database(&mut self, tag: u64, database: DatabaseId) {
        self.change_catalogue(tag, database, Whole::Drop, "", &[]);
    }

    /// The same if the database is empty when the commit is decided; else it is refused with
    /// [`DropError::NotEmpty`](crate::DropError::NotEmpty).
    ///
    /// In a store with a log, what others put into a volatile database while its drop is logged
    /// goes with it.
    pub fn drop_empty_database(&mut self, tag: u64, database: DatabaseId) {
        self.change_catalogue(tag, database, Whole::DropEmpty, "", &[]);
    }

    fn change_catalogue(
        &mut self,
        tag: u64,
        database: DatabaseId,
        whole: Whole,
        name: &str,
        config: &[u8],
    ) {
        // What is longer than any name is refused, be it whole or not.
        let name = &name.as_bytes()[..name.len().min(limits::KEY_BYTES)];
        let first = self.operations.len();
        let bytes_before = self.operations.bytes();
        // What is in it is looked up beforehand.
        let wants_reads = whole == Whole::DropEmpty && self.know(database).is_outside_memory;
        self.wants_reads |= wants_reads;
        let parts = OperationParts {
            key: name,
            value: config,
            expected: &[],
            action: Action::Whole,
            check: Check::None,
            want_previous: false,
        };
        self.operations
            .push(&parts, 0, TransactList::Compares, None);
        let record = CommitRecord {
            tag,
            database,
            mode: Mode::Atomic,
            first,
            end: first + 1,
            whole: Some(whole),
            answer_bytes: limits::ANSWER_BYTES,
            source: self.source,
            origin: self.origin,
            rewrites: false,
            wants_reads,
            is_abandoned: false,
            bytes: self.operations.bytes() - bytes_before,
        };
        // Which databases there are is logged for all of them, or known by the engine that has all.
        self.submit(record, self.store.has_log() || self.store.is_remote());
    }

    fn submit(&mut self, record: CommitRecord, is_logged: bool) {
        if is_logged {
            self.logged.push(record);
        } else {
            self.commits.push(record);
        }
    }

    /// Whether no commit waits.
    pub fn is_empty(&self) -> bool {
        self.commits.is_empty() && self.logged.is_empty()
    }

    /// How many commits wait.
    pub fn len(&self) -> usize {
        self.commits.len() + self.logged.len()
    }

    /// How many of them are on databases with a log.
    pub fn logged_len(&self) -> usize {
        self.logged.len()
    }

    /// How many bytes of keys and values wait.
    pub fn bytes(&self) -> usize {
        self.operations.bytes()
    }

    /// How many bytes the commits that wait take, with their keys and values: of many short
    /// operations in one request, much more than these.
    #[inline]
    pub fn held_bytes(&self) -> usize {
        self.operations.held_bytes() + self.len() * size_of::<CommitRecord>()
    }

    /// Whether a database is on disk or elsewhere, as far as it is known: it may have been
    /// converted just now.
    #[inline]
    pub fn is_outside_memory(&mut self, database: DatabaseId) -> bool {
        self.know(database).is_outside_memory
    }

    /// Whether some of the commits have to know what is on the device before they can be decided.
    /// Then [`read_ahead`](WriteBatch::read_ahead) is called before the batch is submitted.
    pub fn wants_reads(&self) -> bool {
        self.wants_reads
    }

    /// Reads what the commits have to know, and keeps it: on a thread that may wait for the device.
    /// A batch for which this was not done may be submitted all the same; the commits that lack
    /// something are refused ([`Refusal::NotReadAhead`](crate::Refusal::NotReadAhead)), and so are
    /// those for which a read has failed ([`Refusal::Damaged`](crate::Refusal::Damaged)). Returns
    /// the first such failure.
    ///
    /// What is added to the batch afterwards is not read. Until the batch is decided or
    /// [cleared](WriteBatch::clear), what others write to these databases stays in memory. What is
    /// read has its room in memory, which all batches share: the answer says for how many commits
    /// there was some.
    pub fn read_ahead(&mut self) -> ReadAhead {
        let mut before = std::mem::take(&mut self.before);
        before.clear();
        let done = match self.wants_reads {
            true => before.read_all(&self.store, &self.operations, &self.logged),
            false => ReadAhead {
                commits: self.logged.len(),
                failure: None,
            },
        };
        self.before = before;
        done
    }

    /// Makes an empty batch of the same store.
    pub fn next_batch(&self) -> WriteBatch {
        WriteBatch::new(&self.store)
    }

    /// Forgets what was read ahead, and gives its room back.
    pub fn forget_reads(&mut self) {
        self.before.clear();
    }

    /// Moves the commits from the given one on into `rest`, which is empty; what was read for those
    /// before it stays.
    pub fn split_off(&mut self, commits: usize, rest: &mut WriteBatch) {
        debug_assert!(rest.is_empty() && self.commits.is_empty());
        let Some(first) = self.logged.get(commits).map(|commit| commit.first) else {
            return;
        };
        rest.logged
            .extend(self.logged.drain(commits..).map(|commit| CommitRecord {
                first: commit.first - first,
                end: commit.end - first,
                ..commit
            }));
        self.operations.split_off(first, &mut rest.operations);
        rest.wants_reads = self.wants_reads;
    }

    /// Returns the commits in runs of one connection, in order.
    pub fn runs(&self) -> impl Iterator<Item = CommitRun> {
        let mut first = 0;
        let runs = self.logged.chunk_by(CommitRecord::goes_with);
        runs.map(move |run| {
            let commits = first..first + run.len();
            first = commits.end;
            CommitRun {
                connection: run[0].source.connection,
                wants_reads: run[0].wants_reads,
                commits,
            }
        })
    }

    /// Adds some commits of another batch behind its own. What was read for them is not taken over.
    pub fn append_some(&mut self, other: &WriteBatch, commits: Range<usize>) {
        for commit in &other.logged[commits] {
            let first = self.operations.len();
            (self.operations).append_some(&other.operations, commit.operations());
            self.wants_reads |= commit.wants_reads;
            self.logged.push(CommitRecord {
                first,
                end: self.operations.len(),
                ..*commit
            });
        }
    }

    /// The key of the last operation.
    pub(crate) fn last_key(&self) -> Option<&[u8]> {
        self.operations.last().map(|last| self.key(last))
    }

    /// What was read for the commits.
    pub(crate) fn before(&self) -> &ReadBefore {
        &self.before
    }

    /// Forgets all commits.
    pub fn clear(&mut self) {
        self.wants_reads = false;
        self.origin = ORIGIN;
        self.before.begin_anew();
        self.submitted_bytes = 0;
        self.commits.clear();
        self.logged.clear();
        self.operations.clear();
        self.commits
            .shrink_to(limits::KEPT_BYTES / size_of::<CommitRecord>());
        self.logged
            .shrink_to(limits::KEPT_BYTES / size_of::<CommitRecord>());
    }

    /// The commits of databases without a log.
    pub(crate) fn commits(&self) -> &[CommitRecord] {
        &self.commits
    }

    /// The commits of databases with a log.
    pub(crate) fn logged(&self) -> &[CommitRecord] {
        &self.logged
    }

    /// Marks commits from the given one on whose caller has left: nothing is read for them, and
    /// they are refused ([`Refusal::Abandoned`](crate::Refusal::Abandoned)). Those on hidden
    /// indexes, and those about databases as a whole, are finished all the same: others wait for
    /// what comes of them. `tags` is in order.
    pub fn abandon(&mut self, from: usize, tags: &[u64]) {
        self.before.forget_lack();
        for commit in self.logged.iter_mut().skip(from) {
            commit.is_abandoned |= is_abandoned(commit, tags);
        }
    }

    /// Removes the commits whose caller has left, as [`WriteBatch::abandon`] would mark them: they
    /// have no outcome. For a batch of which nothing was submitted and read. `tags` is in order.
    pub fn remove_abandoned(&mut self, tags: &[u64]) {
        self.commits.retain(|commit| !is_abandoned(commit, tags));
        self.logged.retain(|commit| !is_abandoned(commit, tags));
        if self.is_empty() {
            self.clear();
        }
    }

    /// Puts commits that were passed over in front of those from `next` on, and forgets the others.
    pub(crate) fn keep_logged(&mut self, held: &mut Vec<CommitRecord>, next: usize) {
        self.logged.splice(..next, held.drain(..));
    }

    /// Forgets the commits of databases without a log.
    pub(crate) fn clear_unlogged(&mut self) {
        if self.logged.is_empty() {
            self.clear();
        } else {
            self.commits.clear();
        }
    }

    /// Takes over the commits of another batch, behind its own.
    pub(crate) fn append(&mut self, other: &mut WriteBatch) {
        let operations = self.operations.len();
        let moved = |commit: &CommitRecord| CommitRecord {
            first: commit.first + operations,
            end: commit.end + operations,
            ..*commit
        };
        self.commits.extend(other.commits.iter().map(moved));
        self.logged.extend(other.logged.iter().map(moved));
        self.operations.append(&mut other.operations);
        self.wants_reads |= other.wants_reads;
        self.before.append(&mut other.before, operations);
        self.submitted_bytes += other.submitted_bytes;
        other.clear();
    }

    /// The name and the configuration of a database that a commit is to make.
    pub(crate) fn database_to_create(
        &self,
        commit: &CommitRecord,
    ) -> Result<(&str, DatabaseConfig), CreateError> {
        let operation = self.operation(commit.first);
        let config = DatabaseConfig::decode(&self.value(operation));
        let config = config.ok_or(CreateError::BadConfig)?;
        let name = std::str::from_utf8(self.key(operation));
        Ok((name.map_err(|_| CreateError::BadName)?, config))
    }

    /// Makes a batch of some operations of this one, by their places, that belong to no commit
    /// there.
    pub(crate) fn with_operations(&self, places: &[usize]) -> WriteBatch {
        let mut part = self.next_batch();
        for &place in places {
            (part.operations).append_some(&self.operations, place..place + 1);
        }
        part
    }

    /// The operations of all commits.
    pub(crate) fn operations(&self) -> &Operations {
        &self.operations
    }

    #[inline]
    pub(crate) fn operation(&self, place: usize) -> &OperationRecord {
        self.operations.get(place)
    }

    /// The hashes of the keys of some operations, of which the last need not exist.
    pub(crate) fn hashes(&self, operations: Range<usize>) -> impl Iterator<Item = u64> {
        self.operations.hashes(operations)
    }

    #[inline]
    pub(crate) fn key(&self, operation: &OperationRecord) -> &[u8] {
        self.operations.key(operation)
    }

    #[inline]
    pub(crate) fn value(&self, operation: &OperationRecord) -> Value<'_> {
        self.operations.value(operation)
    }

    #[inline]
    pub(crate) fn expected_value(&self, operation: &OperationRecord) -> &[u8] {
        self.operations.expected_value(operation)
    }

    /// What does not change about a database. The commits of an unknown one are refused by whoever
    /// decides which databases there are: they are for the log, if there is one.
    fn know(&mut self, id: DatabaseId) -> KnownDatabase {
        let conversions = self.store.conversions();
        if let Some((known_id, known)) = self.known
            && known_id == id
            && known.conversions == conversions
        {
            return known;
        }
        let Some(config) = self.store.config(id) else {
            return KnownDatabase {
                is_logged: self.store.has_log(),
                ..KnownDatabase::default()
            };
        };
        let known = KnownDatabase {
            limits: config.limits,
            is_logged: config.durability != Durability::Volatile,
            is_outside_memory: config.kind != Kind::Memory,
            conversions,
        };
        self.known = Some((id, known));
        known
    }
}

/// Whether a commit is for nobody any more if the callers with these tags have left: others wait
/// for one on a hidden index, or about a database as a whole.
fn is_abandoned(commit: &CommitRecord, tags: &[u64]) -> bool {
    let is_finished = commit.whole.is_some() || commit.database.is_hidden();
    !is_finished && tags.binary_search(&commit.tag).is_ok()
}

/// What a batch knows of a database.
#[derive(Clone, Copy, Debug, Default)]
struct KnownDatabase {
    limits: DatabaseLimits,
    is_logged: bool,
    is_outside_memory: bool,
    /// How many databases had been converted by then.
    conversions: u64,
}

impl fmt::Debug for WriteBatch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("WriteBatch")
            .field("commits", &self.commits.len())
            .field("logged", &self.logged.len())
            .field("operations", &self.operations.len())
            .field("bytes", &self.operations.bytes())
            .finish_non_exhaustive()
    }
}

/// A commit that is being put together: push operations, then submit. Dropped unsubmitted, it takes
/// everything back.
#[derive(Debug)]
pub struct Commit<'a> {
    batch: &'a mut WriteBatch,
    known: KnownDatabase,
    record: CommitRecord,
    list: TransactList,
    /// Where the batch ended before.
    start: OperationsEnd,
    bytes_before: usize,
    submitted: bool,
    /// What brought the operations.
    message: Option<&'a Bytes>,
}

impl<'a> Commit<'a> {
    /// The same commit for operations whose keys and values lie in a message: a value that is
    /// nearly all of it is kept where it is, and not copied.
    #[inline]
    pub fn keeping(mut self, message: Option<&'a Bytes>) -> Commit<'a> {
        self.message = message;
        self
    }

    /// Adds an operation. After an error the commit should be dropped.
    pub fn push(&mut self, operation: &Operation<'_>) -> Result<(), PushError> {
        let parts = OperationParts::of(operation);
        self.check(operation, &parts)?;
        let batch = &mut *self.batch;
        let hash = batch.hasher.hash(parts.key);
        // The lengths were checked against limits that fit in 32 bits.
        let record = (batch.operations).push(&parts, hash, self.list, self.message);
        self.record.wants_reads |= self.known.is_outside_memory && record.needs_state();
        self.record.rewrites |= matches!(record.action, Action::Append);
        if matches!(operation, Operation::Clear) {
            self.record.whole = Some(Whole::Clear);
        }
        Ok(())
    }

    /// In a [`Mode::Transact`] commit: what is pushed from now on belongs to this list. Lists come
    /// in the order compares, then, otherwise; each may be empty.
    pub fn list(&mut self, list: TransactList) {
        debug_assert!(
            self.record.mode == Mode::Transact,
            "only Transact has lists"
        );
        debug_assert!(list as u8 >= self.list as u8, "lists come in order");
        self.list = list;
    }

    /// Refuses the commit whole if the values in its answer, with
    /// [`ANSWER_BYTES_PER_OPERATION`](limits::ANSWER_BYTES_PER_OPERATION) for each operation, come
    /// to more than this.
    pub fn limit_answer(&mut self, bytes: usize) {
        self.record.answer_bytes = bytes;
    }

    /// Hands the commit to the batch.
    pub fn submit(mut self) {
        self.submitted = true;
        self.record.end = self.batch.operations.len();
        self.record.bytes = self.bytes();
        self.batch.wants_reads |= self.record.wants_reads;
        self.batch.submit(self.record, self.known.is_logged);
    }

    /// Bytes of its keys and values.
    #[inline]
    fn bytes(&self) -> usize {
        self.batch.operations.bytes() - self.bytes_before
    }

    fn check(
        &self,
        operation: &Operation<'_>,
        parts: &OperationParts<'_>,
    ) -> Result<(), PushError> {
        let count = self.batch.operations.len() - self.record.first;
        let bytes = self.bytes();
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
        too_large(
            Limit::KeyBytes,
            parts.key.len(),
            self.known.limits.key_bytes,
        )?;
        too_large(
            Limit::ValueBytes,
            parts.value.len(),
            self.known.limits.value_bytes,
        )?;
        too_large(
            Limit::ValueBytes,
            parts.expected.len(),
            self.known.limits.value_bytes,
        )?;
        too_large(
            Limit::CommitOperations,
            count + 1,
            self.known.limits.commit_operations,
        )?;
        too_large(
            Limit::CommitBytes,
            bytes + added,
            self.known.limits.commit_bytes,
        )?;
        let is_compare = matches!(operation, Operation::Compare { .. });
        if self.record.mode == Mode::Transact && self.list == TransactList::Compares && !is_compare
        {
            return Err(PushError::OnlyCompares);
        }
        if self.record.whole.is_some() || (matches!(operation, Operation::Clear) && count > 0) {
            return Err(PushError::ClearStandsAlone);
        }
        Ok(())
    }
}

impl Drop for Commit<'_> {
    fn drop(&mut self) {
        if !self.submitted {
            self.batch.operations.truncate(self.start);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::{Condition, Expiry};
    use crate::store::StoreConfig;

    /// Uploads wait for what becomes of descriptions, and everybody for which databases there are.
    #[test]
    fn commits_that_others_wait_for_are_not_abandoned() {
        let mut config = StoreConfig::new(1);
        config.default_database.durability = Durability::Synced;
        let store = Store::new(config, true, None).expect("the configuration is well");
        let mut batch = store.write_batch();
        let put = Operation::Put {
            key: b"key",
            value: b"value",
            condition: Condition::None,
            expiry: Expiry::None,
            want_previous: false,
        };
        for _ in 0..2 {
            batch.create_database(1, "name", &DatabaseConfig::default());
            batch.drop_database(2, DatabaseId::DEFAULT);
            batch.drop_empty_database(3, DatabaseId::DEFAULT);
            for (tag, database, operation) in [
                (4, DatabaseId::BLOBS, put),
                (5, DatabaseId::DEFAULT, Operation::Clear),
                (6, DatabaseId::DEFAULT, put),
                (7, DatabaseId::DEFAULT, put),
                (8, DatabaseId::DEFAULT, put),
            ] {
                let mut commit = batch.begin(tag, database, Mode::Atomic);
                commit.push(&operation).expect("it fits");
                commit.submit();
            }
            // The last one has the tag of a caller that has not left; 6 was decided before.
            batch.abandon(6, &[1, 2, 3, 4, 5, 6, 7]);
            let abandoned = |batch: &WriteBatch| -> Vec<u64> {
                let commits = batch.logged().iter();
                let abandoned = commits.filter(|commit| commit.is_abandoned);
                abandoned.map(|commit| commit.tag).collect()
            };
            assert_eq!(abandoned(&batch), [7]);
            batch.abandon(0, &[1, 2, 3, 4, 5, 6]);
            assert_eq!(abandoned(&batch), [6, 7]);
            batch.clear();
            assert!(batch.is_empty() && batch.bytes() == 0);
        }
    }

    /// What is left has its operations, wherever they stand.
    #[test]
    fn commits_that_are_removed_leave_the_others_whole() {
        let mut config = StoreConfig::new(1);
        config.default_database.durability = Durability::Synced;
        let store = Store::new(config, true, None).expect("the configuration is well");
        let mut batch = store.write_batch();
        for round in 0..2 {
            for tag in 1..=3_u8 {
                let mut commit = batch.begin(tag.into(), DatabaseId::DEFAULT, Mode::Atomic);
                let put = Operation::Put {
                    key: &[tag],
                    value: b"value",
                    condition: Condition::None,
                    expiry: Expiry::None,
                    want_previous: false,
                };
                commit.push(&put).expect("it fits");
                commit.submit();
            }
            batch.remove_abandoned(&[0, 2]);
            let keys = batch.logged().iter().map(|commit| {
                let operation = batch.operation(commit.first);
                (commit.tag, batch.key(operation).to_vec())
            });
            let expected = [1, 3].map(|tag| (u64::from(tag), vec![tag]));
            assert!(keys.eq(expected), "round {round}");
            batch.drop_database(4, DatabaseId::DEFAULT);
            batch.remove_abandoned(&[1, 3, 4]);
            assert_eq!(batch.len(), 1, "others wait for a drop");
            batch.clear();
            assert_eq!((batch.len(), batch.bytes()), (0, 0));
        }
    }
}
