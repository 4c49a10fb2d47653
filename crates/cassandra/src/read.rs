//! Reads of callers: keys, pages and counts.

use futures_util::stream::{self, StreamExt, TryStreamExt};
use store::Direction;
use store::Range;
use store::remote::{RemoteAnswer, RemoteRead, RemoteReadRequest};
use store::remote::{RemoteEntry, RemoteError};
use tokio::time::Instant;

use crate::caller_error::{BUSY, error_of_read};
use crate::engine::Engine;
use crate::limits;
use crate::page::{PageRequest, read_page};
use crate::partition::{BucketPartition, DatabasePlace};
use crate::rows::{entries_of, read_heads};
use crate::rows_at_once::RowsAtOnce;
use crate::scope::{ReadScope, RowsError};

/// Carries out a read and ends it.
pub(crate) async fn carry_out_read(engine: &Engine, read: RemoteRead, deadline: Instant) {
    let scope = ReadScope {
        engine,
        deadline,
        caller: Some(&read),
    };
    let reading = read_request(scope, &read).await;
    read.complete(reading.map_err(|error| remote_error(engine, &error)));
}

async fn read_request(scope: ReadScope<'_>, read: &RemoteRead) -> Result<RemoteAnswer, RowsError> {
    let place = DatabasePlace {
        database: read.database(),
        shape: read.shape(),
    };
    match read.request() {
        RemoteReadRequest::Keys { keys, value_bytes } => {
            let found = lookup(scope, place, &keys, value_bytes).await?;
            Ok(RemoteAnswer::Keys(found))
        }
        RemoteReadRequest::Page {
            range,
            passed,
            direction,
            keys_only,
            entries,
            bytes,
        } => {
            let request = PageRequest {
                range,
                passed,
                direction,
                keys_only,
                entries: usize::try_from(entries).unwrap_or(usize::MAX),
                bytes,
            };
            let (rows, end) = read_page(scope, place, request).await?;
            Ok(RemoteAnswer::Page(rows, end))
        }
        RemoteReadRequest::Count {
            range,
            may_estimate,
        } => {
            let estimate = may_estimate && place.shape.buckets > limits::SAMPLED_BUCKETS;
            let count = count(scope, place, (range, estimate)).await?;
            Ok(RemoteAnswer::Count {
                count,
                is_estimate: estimate,
            })
        }
    }
}

/// Reads keys of any buckets. Ends behind the entry with which the values come to more than
/// `value_bytes`.
async fn lookup(
    scope: ReadScope<'_>,
    place: DatabasePlace,
    keys: &[&[u8]],
    value_bytes: usize,
) -> Result<Vec<Option<RemoteEntry>>, RowsError> {
    let mut answer = Vec::with_capacity(keys.len());
    let mut bytes = 0_usize;
    // In steps, so that a request for many large values holds no more than it may return by far.
    for keys in keys.chunks(limits::BUCKETS_AT_ONCE) {
        let found = entries_of(scope, place, keys).await?;
        let now_ms = scope.engine.now_ms();
        for key in keys {
            let entry = found.get(*key);
            let entry = entry.filter(|entry| !crate::entry::is_expired(entry.expires_ms, now_ms));
            bytes = bytes.saturating_add(entry.map_or(0, |entry| entry.value.len()));
            answer.push(entry.cloned());
            if bytes > value_bytes {
                return Ok(answer);
            }
        }
    }
    Ok(answer)
}

/// Counts the entries of a range: all of them, or those of some buckets for an estimate.
pub(crate) async fn count(
    scope: ReadScope<'_>,
    place: DatabasePlace,
    (range, is_estimate): (Range<'_>, bool),
) -> Result<u64, RowsError> {
    let buckets = place.shape.buckets;
    let counted = match is_estimate {
        true => limits::SAMPLED_BUCKETS,
        false => buckets,
    };
    let counts = (0..counted).map(|index| {
        let bucket = u32::from(index) * u32::from(buckets) / u32::from(counted.max(1));
        let partition = place.partition(u16::try_from(bucket).unwrap_or(0));
        count_bucket(scope, partition, (range, u64::MAX))
    });
    let counts = stream::iter(counts).buffer_unordered(limits::BUCKETS_AT_ONCE);
    let sum = counts
        .try_fold(0_u64, |sum, count| async move { Ok(sum + count) })
        .await?;
    Ok(sum * u64::from(buckets) / u64::from(counted.max(1)))
}

/// Counts the entries of a range in a bucket. Ends once there are `enough`.
pub(crate) async fn count_bucket(
    scope: ReadScope<'_>,
    partition: BucketPartition,
    (range, enough): (Range<'_>, u64),
) -> Result<u64, RowsError> {
    let (mut count, mut passed) = (0, None::<Vec<u8>>);
    let mut rows = RowsAtOnce::default();
    loop {
        let rest = match &passed {
            Some(key) => range.beyond(key, Direction::Forward),
            None => range,
        };
        let walk = (rest, Direction::Forward);
        let most = rows.get(limits::BUCKET_ROWS);
        let page = read_heads(scope, partition, walk, most).await?;
        rows.note(&page);
        let now_ms = scope.engine.now_ms();
        let visible = page.rows.iter().filter(|row| row.head.is_visible(now_ms));
        count += visible.count() as u64;
        match page.rows.into_iter().next_back() {
            Some(last) if !page.is_last && count < enough => passed = Some(last.key),
            _ => return Ok(count),
        }
    }
}

/// Returns what an error is for the caller of a read, and writes damage to the log.
pub(crate) fn remote_error(engine: &Engine, error: &RowsError) -> RemoteError {
    match error {
        RowsError::Engine(failure) => error_of_read(failure),
        RowsError::Damaged(_) => {
            engine.log().note_damage(&error.to_string());
            RemoteError::Damaged
        }
        RowsError::NoRoom => BUSY,
        RowsError::Abandoned => RemoteError::TimedOut,
    }
}
