//! Commits: read, decide, write under the condition that nothing was written meanwhile.

use std::collections::HashMap;

use futures_util::future::try_join_all;
use scylla::deserialize::row::ColumnIterator;
use scylla::response::query_result::QueryResult;
use scylla::serialize::SerializationError;
use scylla::serialize::row::{RowSerializationContext, SerializeRow};
use scylla::serialize::writers::RowWriter;
use store::remote::{
    RemoteAfter, RemoteCommit, RemoteEffect, RemoteEntry, RemoteError, RemoteStep,
};
use tokio::time::{Instant, sleep_until};

use crate::caller_error::error_of_write;
use crate::clock;
use crate::engine::{Engine, Repeatable};
use crate::entry::{encode_cells, engine_ttl_s};
use crate::failure::EngineFailure;
use crate::limits;
use crate::partition::{BucketPartition, EntryTable};
use crate::read::remote_error;
use crate::rows::{read_keys, rows_of, unreadable};
use crate::statements::{StatementName, VersionCondition};

/// Carries out a commit and ends it.
pub(crate) async fn carry_out_commit(engine: &Engine, mut commit: RemoteCommit, deadline: Instant) {
    let partition = BucketPartition {
        table: EntryTable::of(commit.shape().promise),
        database: commit.database(),
        bucket: commit.bucket(),
    };
    let result = match partition.table {
        EntryTable::Linearizable => {
            commit_linearizable(engine, &mut commit, partition, deadline).await
        }
        EntryTable::Quorum => commit_quorum(engine, &mut commit, partition, deadline).await,
    };
    commit.complete(result);
}

/// Which keys of a commit are read before it is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeysRead {
    /// Those on which the decision depends.
    Needed,
    /// All. After a batch was refused, the condition is on what is really there for each key: an
    /// engine for which no version at all is not different from -1 would refuse it again.
    All,
}

async fn commit_linearizable(
    engine: &Engine,
    commit: &mut RemoteCommit,
    partition: BucketPartition,
    deadline: Instant,
) -> Result<(), RemoteError> {
    let _turn = engine.queues().turn(&partition, deadline).await?;
    if commit.is_abandoned() {
        // Nothing was sent yet.
        return Err(RemoteError::TimedOut);
    }
    let mut keys_read = KeysRead::Needed;
    for round in 0..limits::COMMIT_ROUNDS {
        let found = found_of(engine, commit, (partition, keys_read), deadline).await?;
        let Some(version) = decide(engine, commit, &found) else {
            let how = (partition, keys_read);
            match is_of_one_moment(engine, commit, (how, &found), deadline).await? {
                true => return Ok(()),
                false => continue,
            }
        };
        let written = BatchPlace { partition, version };
        match write_conditionally(engine, commit, (written, &found, keys_read), deadline).await {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(failure) if failure.may_have_happened => {
                return resolve(engine, commit, written, deadline).await;
            }
            Err(failure) => return Err(error_of_write(&failure)),
        }
        keys_read = KeysRead::All;
        let resume = Instant::now() + engine.pause(round);
        if resume >= deadline {
            // Every batch so far was refused: nothing was written.
            return Err(RemoteError::TimedOut);
        }
        sleep_until(resume).await;
    }
    Err(RemoteError::Contended)
}

async fn commit_quorum(
    engine: &Engine,
    commit: &mut RemoteCommit,
    partition: BucketPartition,
    deadline: Instant,
) -> Result<(), RemoteError> {
    let found = found_of(engine, commit, (partition, KeysRead::Needed), deadline).await?;
    let Some(version) = decide(engine, commit, &found) else {
        return Ok(());
    };
    let now_ms = engine.now_ms();
    let (mut names, mut rows) = (Vec::new(), Vec::new());
    for effect in commit.effects() {
        let (name, row) = QuorumRow::of(partition, &effect, version, now_ms);
        names.push(name);
        rows.push(row);
    }
    let how = (Some(partition), Repeatable::Yes);
    let written = engine.execute_batch((&names, &rows), how, deadline).await;
    written
        .map(drop)
        .map_err(|failure| error_of_write(&failure))
}

/// Reads keys of a commit, up to [`limits::LOOKUP_KEYS`] of them as one. Returns an entry for each
/// key, also one that has expired.
async fn found_of(
    engine: &Engine,
    commit: &RemoteCommit,
    (partition, keys_read): (BucketPartition, KeysRead),
    deadline: Instant,
) -> Result<Vec<Option<RemoteEntry>>, RemoteError> {
    let keys: Vec<&[u8]> = keys_to_read(commit, keys_read).collect();
    let mut found = vec![None; commit.keys().len()];
    if keys.is_empty() {
        return Ok(found);
    }
    let parts = keys.chunks(limits::LOOKUP_KEYS);
    let reads = parts.map(|part| read_keys(engine, partition, part, deadline));
    let rows = try_join_all(reads).await;
    let rows = rows.map_err(|error| remote_error(engine, &error))?;
    let rows: HashMap<Vec<u8>, RemoteEntry> = rows.into_iter().flatten().collect();
    for (place, key) in found.iter_mut().zip(commit.keys()) {
        *place = rows.get(key.key).cloned();
    }
    Ok(found)
}

/// Whether what was read for a commit that writes nothing was there at one moment. That of a commit
/// that writes is: its batch takes effect only then.
///
/// More keys than one statement may name are read by several. If a second look at them finds the
/// same versions, which are never given out twice, nothing has changed between the two.
async fn is_of_one_moment(
    engine: &Engine,
    commit: &RemoteCommit,
    (how, found): ((BucketPartition, KeysRead), &[Option<RemoteEntry>]),
    deadline: Instant,
) -> Result<bool, RemoteError> {
    if keys_to_read(commit, how.1).count() <= limits::LOOKUP_KEYS {
        return Ok(true);
    }
    let again = found_of(engine, commit, how, deadline).await?;
    Ok(again
        .iter()
        .map(version_of)
        .eq(found.iter().map(version_of)))
}

/// Returns the keys of a commit that are to be read.
fn keys_to_read(commit: &RemoteCommit, keys_read: KeysRead) -> impl Iterator<Item = &[u8]> {
    let keys = commit.keys();
    let read = keys.filter(move |key| key.is_read || keys_read == KeysRead::All);
    read.map(|key| key.key)
}

/// Decides a commit. Returns the version that it writes; `None`: it writes nothing.
fn decide(
    engine: &Engine,
    commit: &mut RemoteCommit,
    found: &[Option<RemoteEntry>],
) -> Option<u64> {
    let versions = found.iter().flatten().map(|entry| entry.version);
    let version = engine.version(versions);
    match commit.decide(version, engine.now_ms(), found) {
        RemoteStep::Nothing => None,
        RemoteStep::Write => Some(version),
    }
}

/// What a batch writes, and where.
#[derive(Clone, Copy, Debug)]
struct BatchPlace {
    partition: BucketPartition,
    version: u64,
}

/// Writes the effects of a commit as one conditional batch. Returns whether its conditions held.
async fn write_conditionally(
    engine: &Engine,
    commit: &RemoteCommit,
    (place, found, keys_read): (BatchPlace, &[Option<RemoteEntry>], KeysRead),
    deadline: Instant,
) -> Result<bool, EngineFailure> {
    let BatchPlace { partition, version } = place;
    let now_ms = engine.now_ms();
    let (mut names, mut rows) = (Vec::new(), Vec::new());
    let mut push = |(name, row)| {
        names.push(name);
        rows.push(row);
    };
    let reads: Vec<bool> = commit.keys().map(|key| key.is_read).collect();
    let mut is_written = vec![false; found.len()];
    for effect in commit.effects() {
        let is_read = reads.get(effect.index).is_some_and(|&is_read| is_read);
        let expected = found.get(effect.index).and_then(version_of);
        let expected = (is_read || keys_read == KeysRead::All).then_some(expected);
        push(ConditionalRow::of(
            partition,
            &effect,
            (expected, version),
            now_ms,
        ));
        if let Some(written) = is_written.get_mut(effect.index) {
            *written = true;
        }
    }
    for ((key, found), is_written) in commit.keys().zip(found).zip(is_written) {
        if key.is_read && !is_written {
            push(ConditionalRow::guard(partition, key.key, version_of(found)));
        }
    }
    let how = (Some(partition), Repeatable::No);
    let result = engine.execute_batch((&names, &rows), how, deadline).await?;
    is_applied(result)
}

fn version_of(found: &Option<RemoteEntry>) -> Option<u64> {
    found.as_ref().map(|entry| entry.version)
}

/// Returns whether a conditional write was applied, which is the first column of its answer.
pub(crate) fn is_applied(result: QueryResult) -> Result<bool, EngineFailure> {
    let rows = rows_of(result)?;
    let mut rows = rows.rows::<ColumnIterator<'_, '_>>().map_err(unreadable)?;
    let row = rows
        .next()
        .ok_or_else(|| unreadable("a conditional write without an answer"))?;
    let mut columns = row.map_err(unreadable)?;
    let first = columns
        .next()
        .ok_or_else(|| unreadable("an answer without columns"))?;
    let applied = first.map_err(unreadable)?.slice;
    Ok(applied.is_some_and(|cell| cell.as_slice() == [1]))
}

/// Looks what became of a write that was not answered. A serial read ends what is half done, so if
/// the version of this write is there, it took effect. If it is not there, it may have been
/// replaced, or may still come: nobody knows.
async fn resolve(
    engine: &Engine,
    commit: &RemoteCommit,
    BatchPlace { partition, version }: BatchPlace,
    deadline: Instant,
) -> Result<(), RemoteError> {
    let is_present = |effect: &RemoteEffect<'_>| effect.after != RemoteAfter::Absent;
    let Some(key) = commit.effects().find(is_present).map(|effect| effect.key) else {
        return Err(RemoteError::OutcomeUnknown);
    };
    if Instant::now() >= deadline {
        return Err(RemoteError::OutcomeUnknown);
    }
    let read = read_keys(engine, partition, &[key], deadline).await;
    let rows = read.map_err(|_| RemoteError::OutcomeUnknown)?;
    match rows.iter().any(|(_, entry)| entry.version == version) {
        true => Ok(()),
        false => Err(RemoteError::OutcomeUnknown),
    }
}

/// Values of one statement of a conditional batch.
#[derive(Clone, Copy, Debug)]
enum ConditionalRow<'a> {
    Put {
        partition: (i32, i32),
        key: &'a [u8],
        ttl_s: i32,
        value: &'a [u8],
        version: i64,
        expires_ms: i64,
        /// `None`: there is no condition on the version.
        expected: Option<Option<i64>>,
    },
    Remove {
        partition: (i32, i32),
        key: &'a [u8],
        expected: Option<Option<i64>>,
    },
}

impl<'a> ConditionalRow<'a> {
    fn of(
        partition: BucketPartition,
        effect: &RemoteEffect<'a>,
        (expected, version): (Option<Option<u64>>, u64),
        now_ms: u64,
    ) -> (StatementName, ConditionalRow<'a>) {
        let condition = match expected {
            Some(_) => VersionCondition::Same,
            None => VersionCondition::Any,
        };
        let expected = expected.map(|version| version.map(u64::cast_signed));
        let (partition, key) = (partition.key(), effect.key);
        match effect.after {
            RemoteAfter::Absent => {
                let row = ConditionalRow::Remove {
                    partition,
                    key,
                    expected,
                };
                (StatementName::Delete(condition), row)
            }
            RemoteAfter::Present { value, expires_ms } => {
                let row = ConditionalRow::Put {
                    partition,
                    key,
                    ttl_s: engine_ttl_s(now_ms, expires_ms),
                    value,
                    version: version.cast_signed(),
                    expires_ms: expires_ms.cast_signed(),
                    expected,
                };
                (StatementName::Put(condition), row)
            }
        }
    }

    fn guard(
        partition: BucketPartition,
        key: &'a [u8],
        expected: Option<u64>,
    ) -> (StatementName, ConditionalRow<'a>) {
        let row = ConditionalRow::Remove {
            partition: partition.key(),
            key,
            expected: Some(expected.map(u64::cast_signed)),
        };
        (StatementName::Guard, row)
    }
}

impl SerializeRow for ConditionalRow<'_> {
    fn serialize(
        &self,
        context: &RowSerializationContext<'_>,
        writer: &mut RowWriter<'_>,
    ) -> Result<(), SerializationError> {
        match *self {
            ConditionalRow::Put {
                partition: (database, bucket),
                key,
                ttl_s,
                value,
                version,
                expires_ms,
                expected,
            } => {
                let bytes = i32::try_from(value.len()).unwrap_or(i32::MAX);
                match expected {
                    Some(expected) => (
                        ttl_s, value, version, expires_ms, bytes, database, bucket, key, expected,
                    )
                        .serialize(context, writer),
                    None => (
                        ttl_s, value, version, expires_ms, bytes, database, bucket, key,
                    )
                        .serialize(context, writer),
                }
            }
            ConditionalRow::Remove {
                partition: (database, bucket),
                key,
                expected,
            } => match expected {
                Some(expected) => (database, bucket, key, expected).serialize(context, writer),
                None => (database, bucket, key).serialize(context, writer),
            },
        }
    }

    fn is_empty(&self) -> bool {
        false
    }
}

/// Values of one statement of a batch of a quorum database.
#[derive(Clone, Debug)]
enum QuorumRow<'a> {
    Put {
        partition: (i32, i32),
        key: &'a [u8],
        head: Vec<u8>,
        entry: Vec<u8>,
        ttl_s: i32,
        timestamp_us: i64,
    },
    Delete {
        partition: (i32, i32),
        key: &'a [u8],
        timestamp_us: i64,
    },
}

impl<'a> QuorumRow<'a> {
    fn of(
        partition: BucketPartition,
        effect: &RemoteEffect<'a>,
        version: u64,
        now_ms: u64,
    ) -> (StatementName, QuorumRow<'a>) {
        let (partition, key) = (partition.key(), effect.key);
        let timestamp_us = clock::microseconds(version).cast_signed();
        match effect.after {
            RemoteAfter::Absent => {
                let row = QuorumRow::Delete {
                    partition,
                    key,
                    timestamp_us,
                };
                (StatementName::DeleteQuorum, row)
            }
            RemoteAfter::Present { value, expires_ms } => {
                let (head, entry) = encode_cells(version, expires_ms, value);
                let row = QuorumRow::Put {
                    partition,
                    key,
                    head,
                    entry,
                    ttl_s: engine_ttl_s(now_ms, expires_ms),
                    timestamp_us,
                };
                (StatementName::PutQuorum, row)
            }
        }
    }
}

impl SerializeRow for QuorumRow<'_> {
    fn serialize(
        &self,
        context: &RowSerializationContext<'_>,
        writer: &mut RowWriter<'_>,
    ) -> Result<(), SerializationError> {
        match self {
            QuorumRow::Put {
                partition: (database, bucket),
                key,
                head,
                entry,
                ttl_s,
                timestamp_us,
            } => {
                (database, bucket, key, head, entry, ttl_s, timestamp_us).serialize(context, writer)
            }
            QuorumRow::Delete {
                partition: (database, bucket),
                key,
                timestamp_us,
            } => (timestamp_us, database, bucket, key).serialize(context, writer),
        }
    }

    fn is_empty(&self) -> bool {
        false
    }
}
