//! Rows of entries: reading them by key, or without their values by range.

use std::collections::HashMap;
use std::ops::Bound;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use scylla::response::query_result::{QueryResult, QueryRowsResult};
use scylla::serialize::SerializationError;
use scylla::serialize::row::{RowSerializationContext, SerializeRow};
use scylla::serialize::writers::RowWriter;
use store::remote::{RemoteEntry, RoomShare};
use store::{Direction, Range};
use tokio::time::Instant;

use crate::engine::{Engine, Repeatable};
use crate::entry::{EntryError, EntryHead, decode_cells, decode_head, kept_value};
use crate::failure::{EngineFailure, FailureCause};
use crate::limits;
use crate::merge::HasKey;
use crate::partition::{BucketPartition, DatabasePlace, EntryTable};
use crate::scope::{ReadScope, RowsError};
use crate::statements::{HeadBounds, StatementName};

/// A key and what is known of its entry without the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeadRow {
    pub(crate) key: Vec<u8>,
    pub(crate) head: EntryHead,
}

impl HasKey for HeadRow {
    fn key(&self) -> &[u8] {
        &self.key
    }
}

/// Rows of a range of a bucket.
#[derive(Debug)]
pub(crate) struct HeadsPage {
    pub(crate) rows: Vec<HeadRow>,
    /// There is nothing behind them.
    pub(crate) is_last: bool,
    /// What they have of the room.
    pub(crate) share: Option<RoomShare>,
}

impl HeadsPage {
    /// Returns what its rows take.
    pub(crate) fn bytes(&self) -> usize {
        let row = |row: &HeadRow| row.key.len() + limits::ROW_BYTES;
        self.rows.iter().map(row).sum()
    }
}

/// A key and its entry.
pub(crate) type EntryRow = (Vec<u8>, RemoteEntry);

/// Reads the entries of some keys of one bucket, all at one moment, in any order; those that are
/// not there are left out.
pub(crate) async fn read_keys(
    engine: &Engine,
    partition: BucketPartition,
    keys: &[&[u8]],
    deadline: Instant,
) -> Result<Vec<EntryRow>, RowsError> {
    let (database, bucket) = partition.key();
    let name = StatementName::ReadKeys(partition.table);
    let how = (Some(partition), Repeatable::Yes);
    let values = (database, bucket, keys);
    let result = engine.execute(name, &values, how, deadline).await?;
    let mut found = Vec::new();
    read_entries(partition.table, result, &mut found)?;
    Ok(found)
}

/// Reads keys of any buckets, those of a bucket as one, the buckets beside each other. Entries that
/// have expired are among them.
///
/// Values are charged as they come.
pub(crate) async fn entries_of(
    scope: ReadScope<'_>,
    place: DatabasePlace,
    keys: &[&[u8]],
) -> Result<HashMap<Vec<u8>, RemoteEntry>, RowsError> {
    let mut by_partition: HashMap<BucketPartition, Vec<&[u8]>> = HashMap::new();
    for &key in keys {
        by_partition
            .entry(place.partition_of(key))
            .or_default()
            .push(key);
    }
    let mut reads = Vec::with_capacity(by_partition.len());
    for (partition, mut keys) in by_partition {
        keys.sort_unstable();
        keys.dedup();
        reads.push(async move {
            let found = read_keys(scope.engine, partition, &keys, scope.deadline).await?;
            scope.grow(found.iter().map(|(_, entry)| entry.value.len()).sum())?;
            Ok::<_, RowsError>(found)
        });
    }
    let reads = stream::iter(reads).buffer_unordered(limits::BUCKETS_AT_ONCE);
    let found: Vec<_> = reads.try_collect().await?;
    Ok(found.into_iter().flatten().collect())
}

fn read_entries(
    table: EntryTable,
    result: QueryResult,
    found: &mut Vec<EntryRow>,
) -> Result<(), RowsError> {
    let result = rows_of(result)?;
    let is_alone = result.rows_num() == 1;
    match table {
        EntryTable::Linearizable => {
            type Row<'a> = (&'a [u8], Option<Bytes>, Option<i64>, Option<i64>);
            for row in result.rows::<Row<'_>>().map_err(unreadable)? {
                let (key, value, version, expires_ms) = row.map_err(unreadable)?;
                // A row of which nothing is left but a marker.
                let Some(version) = version else { continue };
                let value = value.ok_or(EntryError::Missing("value"))?;
                let entry = RemoteEntry {
                    value: kept_value(&value, 0, is_alone),
                    version: version.cast_unsigned(),
                    expires_ms: expires_ms.unwrap_or(0).cast_unsigned(),
                };
                found.push((key.to_vec(), entry));
            }
        }
        EntryTable::Quorum => {
            type Row<'a> = (&'a [u8], Option<&'a [u8]>, Option<Bytes>);
            for row in result.rows::<Row<'_>>().map_err(unreadable)? {
                let (key, head, entry) = row.map_err(unreadable)?;
                let Some(head) = head else { continue };
                let entry = entry.ok_or(EntryError::Missing("entry"))?;
                found.push((key.to_vec(), decode_cells(head, &entry, is_alone)?));
            }
        }
    }
    Ok(())
}

/// Reads up to `rows` rows of a range of one bucket, without values.
pub(crate) async fn read_heads(
    scope: ReadScope<'_>,
    partition: BucketPartition,
    (range, direction): (Range<'_>, Direction),
    rows: usize,
) -> Result<HeadsPage, RowsError> {
    scope.check()?;
    if range.is_empty() {
        return Ok(HeadsPage {
            rows: Vec::new(),
            is_last: true,
            share: None,
        });
    }
    let name = StatementName::ReadHeads(partition.table, HeadBounds::of(&range, direction));
    let values = HeadValues {
        partition: partition.key(),
        start: bound_key(range.start),
        end: bound_key(range.end),
        limit: i32::try_from(rows).unwrap_or(i32::MAX),
    };
    let how = (Some(partition), Repeatable::Yes);
    let (engine, deadline) = (scope.engine, scope.deadline);
    let result = rows_of(engine.execute(name, &values, how, deadline).await?)?;
    // Counted before those are left out that are no entries.
    let is_last = result.rows_num() < rows;
    let rows = head_rows(partition.table, &result)?;
    let mut page = HeadsPage {
        rows,
        is_last,
        share: None,
    };
    page.share = scope.hold(page.bytes())?;
    Ok(page)
}

fn head_rows(table: EntryTable, result: &QueryRowsResult) -> Result<Vec<HeadRow>, RowsError> {
    let mut rows = Vec::with_capacity(result.rows_num());
    match table {
        EntryTable::Linearizable => {
            type Row<'a> = (&'a [u8], Option<i64>, Option<i64>, Option<i32>);
            for row in result.rows::<Row<'_>>().map_err(unreadable)? {
                let (key, version, expires_ms, bytes) = row.map_err(unreadable)?;
                let head = EntryHead {
                    version: version.unwrap_or(0).cast_unsigned(),
                    expires_ms: expires_ms.unwrap_or(0).cast_unsigned(),
                    value_bytes: u64::try_from(bytes.unwrap_or(0)).unwrap_or(0),
                };
                let key = key.to_vec();
                rows.push(HeadRow { key, head });
            }
        }
        EntryTable::Quorum => {
            type Row<'a> = (&'a [u8], Option<&'a [u8]>);
            for row in result.rows::<Row<'_>>().map_err(unreadable)? {
                let (key, head) = row.map_err(unreadable)?;
                // A row of which nothing is left but a marker: no entry, and still to be passed.
                let head = head.map_or(Ok(NO_ENTRY), decode_head)?;
                let key = key.to_vec();
                rows.push(HeadRow { key, head });
            }
        }
    }
    Ok(rows)
}

/// What is known of a row without an entry.
const NO_ENTRY: EntryHead = EntryHead {
    version: 0,
    expires_ms: 0,
    value_bytes: 0,
};

impl EntryHead {
    /// Whether it is an entry that a reader sees.
    pub(crate) fn is_visible(&self, now_ms: u64) -> bool {
        self.version != 0 && !self.is_expired(now_ms)
    }
}

/// Reads heads of several ranges of buckets at once, in the order of `parts`.
pub(crate) async fn read_heads_of_all(
    scope: ReadScope<'_>,
    parts: Vec<(BucketPartition, Range<'_>)>,
    (direction, rows): (Direction, usize),
) -> Result<Vec<HeadsPage>, RowsError> {
    let mut reads = Vec::with_capacity(parts.len());
    for (partition, range) in parts {
        reads.push(read_heads(scope, partition, (range, direction), rows));
    }
    let pages = stream::iter(reads).buffered(limits::BUCKETS_AT_ONCE);
    pages.try_collect().await
}

/// Values of a statement that reads heads.
struct HeadValues<'a> {
    partition: (i32, i32),
    start: Option<&'a [u8]>,
    end: Option<&'a [u8]>,
    limit: i32,
}

impl SerializeRow for HeadValues<'_> {
    fn serialize(
        &self,
        context: &RowSerializationContext<'_>,
        writer: &mut RowWriter<'_>,
    ) -> Result<(), SerializationError> {
        let ((database, bucket), limit) = (self.partition, self.limit);
        match (self.start, self.end) {
            (None, None) => (database, bucket, limit).serialize(context, writer),
            (Some(key), None) | (None, Some(key)) => {
                (database, bucket, key, limit).serialize(context, writer)
            }
            (Some(start), Some(end)) => {
                (database, bucket, start, end, limit).serialize(context, writer)
            }
        }
    }

    fn is_empty(&self) -> bool {
        false
    }
}

fn bound_key(bound: Bound<&[u8]>) -> Option<&[u8]> {
    match bound {
        Bound::Unbounded => None,
        Bound::Included(key) | Bound::Excluded(key) => Some(key),
    }
}

/// Returns the rows of a result.
pub(crate) fn rows_of(result: QueryResult) -> Result<QueryRowsResult, EngineFailure> {
    result.into_rows_result().map_err(unreadable)
}

/// A result that the driver cannot read: another schema, or another protocol. Another node may do
/// better.
pub(crate) fn unreadable(error: impl std::fmt::Display) -> EngineFailure {
    EngineFailure {
        cause: FailureCause::Failed,
        may_have_happened: true,
        message: error.to_string(),
    }
}
