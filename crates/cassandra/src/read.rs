//! Reads of callers: keys, pages and counts.

use futures_util::stream::{self, StreamExt, TryStreamExt};
use store::Direction;
use store::Range;
use store::remote::{RemoteAnswer, RemoteRead, RemoteReadRequest};
use store::remote::{RemoteEntry, RemoteError};
use tokio::time::Instant;

use crate::caller_error::error_of_read;
use crate::engine::Engine;
use crate::limits;
use crate::page::{PageRequest, read_page};
use crate::partition::{BucketPartition, DatabasePlace};
use crate::rows::{RowsError, entries_of, read_heads};

/// Carries out a read and ends it.
pub(crate) async fn carry_out_read(engine: &Engine, read: RemoteRead, deadline: Instant) {
    let reading = read_request(engine, &read, deadline).await;
    read.complete(reading.map_err(|error| remote_error(engine, &error)));
}

async fn read_request(
    engine: &Engine,
    read: &RemoteRead,
    deadline: Instant,
) -> Result<RemoteAnswer, RowsError> {
    let place = DatabasePlace {
        database: read.database(),
        shape: read.shape(),
    };
    match read.request() {
        RemoteReadRequest::Keys { keys, value_bytes } => {
            let found = lookup(engine, place, &keys, value_bytes, deadline).await?;
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
            let (rows, end) = read_page(engine, place, request, deadline).await?;
            Ok(RemoteAnswer::Page(rows, end))
        }
        RemoteReadRequest::Count {
            range,
            may_estimate,
        } => {
            let estimate = may_estimate && place.shape.buckets > limits::SAMPLED_BUCKETS;
            let count = count(engine, place, (range, estimate), deadline).await?;
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
    engine: &Engine,
    place: DatabasePlace,
    keys: &[&[u8]],
    value_bytes: usize,
    deadline: Instant,
) -> Result<Vec<Option<RemoteEntry>>, RowsError> {
    let mut answer = Vec::with_capacity(keys.len());
    let mut bytes = 0_usize;
    // In steps, so that a request for many large values holds no more than it may return by far.
    for keys in keys.chunks(limits::BUCKETS_AT_ONCE) {
        let found = entries_of(engine, place, keys, deadline).await?;
        let now_ms = engine.now_ms();
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
async fn count(
    engine: &Engine,
    place: DatabasePlace,
    (range, is_estimate): (Range<'_>, bool),
    deadline: Instant,
) -> Result<u64, RowsError> {
    let buckets = place.shape.buckets;
    let counted = match is_estimate {
        true => limits::SAMPLED_BUCKETS,
        false => buckets,
    };
    let counts = (0..counted).map(|index| {
        let bucket = u32::from(index) * u32::from(buckets) / u32::from(counted.max(1));
        let partition = place.partition(u16::try_from(bucket).unwrap_or(0));
        count_bucket(engine, partition, range, deadline)
    });
    let counts = stream::iter(counts).buffer_unordered(limits::BUCKETS_AT_ONCE);
    let sum = counts
        .try_fold(0_u64, |sum, count| async move { Ok(sum + count) })
        .await?;
    Ok(sum * u64::from(buckets) / u64::from(counted.max(1)))
}

async fn count_bucket(
    engine: &Engine,
    partition: BucketPartition,
    range: Range<'_>,
    deadline: Instant,
) -> Result<u64, RowsError> {
    let (mut count, mut passed) = (0, None::<Vec<u8>>);
    loop {
        let rest = match &passed {
            Some(key) => range.beyond(key, Direction::Forward),
            None => range,
        };
        let walk = (rest, Direction::Forward);
        let page = read_heads(engine, partition, walk, limits::BUCKET_ROWS, deadline).await?;
        let now_ms = engine.now_ms();
        let visible = page.rows.iter().filter(|row| row.head.is_visible(now_ms));
        count += visible.count() as u64;
        match page.rows.into_iter().next_back() {
            Some(last) if !page.is_last => passed = Some(last.key),
            _ => return Ok(count),
        }
    }
}

/// Returns what an error is for the caller of a read, and writes damage to the log.
pub(crate) fn remote_error(engine: &Engine, error: &RowsError) -> RemoteError {
    match error {
        RowsError::Engine(failure) => error_of_read(failure),
        RowsError::Damaged(_) => {
            engine.log().note(&error.to_string());
            RemoteError::Damaged
        }
    }
}
