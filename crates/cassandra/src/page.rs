//! Pages of a range: which keys come next, then their values.
//!
//! What comes next is read without values, so that a page knows how many bytes it will have before
//! it reads them. Then the values are read by their keys. An entry that was removed in between is
//! left out; one that was changed comes as it is now.

use store::remote::{RemoteEntry, RemoteOrder, RemotePageEnd, RemoteRow, RoomShare};
use store::{Direction, Range};

use crate::limits;
use crate::merge::Merge;
use crate::partition::DatabasePlace;
use crate::rows::{HeadRow, HeadsPage, entries_of, read_heads_of_all};
use crate::rows_at_once::RowsAtOnce;
use crate::scope::{ReadScope, RowsError};

/// What a page is to have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageRequest<'a> {
    pub(crate) range: Range<'a>,
    pub(crate) passed: Option<&'a [u8]>,
    pub(crate) direction: Direction,
    pub(crate) keys_only: bool,
    pub(crate) entries: usize,
    pub(crate) bytes: usize,
}

/// The keys of a page, as they are gathered.
#[derive(Debug)]
pub(crate) struct PageHeads {
    rows: Vec<HeadRow>,
    /// The last row that was looked at, also one that has expired.
    passed: Option<Vec<u8>>,
    entries: usize,
    bytes: usize,
    keys_only: bool,
    is_full: bool,
}

impl PageHeads {
    pub(crate) fn new(request: &PageRequest<'_>) -> PageHeads {
        PageHeads {
            rows: Vec::new(),
            passed: None,
            entries: request.entries,
            bytes: request.bytes,
            keys_only: request.keys_only,
            is_full: request.entries == 0,
        }
    }

    /// Whether no further row has a place.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Returns how many rows may be read for it.
    fn wanted(&self) -> usize {
        self.entries
            .saturating_sub(self.rows.len())
            .clamp(1, limits::BUCKET_ROWS)
    }

    /// Takes the next row, unless the page is full without it.
    pub(crate) fn take(&mut self, row: HeadRow, now_ms: u64) {
        if self.is_full {
            return;
        }
        if !row.head.is_visible(now_ms) {
            self.passed = Some(row.key);
            return;
        }
        let value_bytes = match self.keys_only {
            true => 0,
            false => usize::try_from(row.head.value_bytes).unwrap_or(usize::MAX),
        };
        let bytes = row.key.len().saturating_add(value_bytes);
        if bytes > self.bytes && !self.rows.is_empty() {
            self.is_full = true;
            return;
        }
        self.bytes = self.bytes.saturating_sub(bytes);
        self.passed = Some(row.key.clone());
        self.rows.push(row);
        self.is_full = self.bytes == 0 || self.rows.len() >= self.entries;
    }

    fn end(&self) -> RemotePageEnd {
        match (&self.passed, self.is_full) {
            (Some(passed), true) => RemotePageEnd::Passed(passed.clone()),
            _ => RemotePageEnd::Complete,
        }
    }
}

/// Reads one page.
pub(crate) async fn read_page(
    scope: ReadScope<'_>,
    place: DatabasePlace,
    request: PageRequest<'_>,
) -> Result<(Vec<RemoteRow>, RemotePageEnd), RowsError> {
    let mut heads = PageHeads::new(&request);
    match place.shape.order {
        RemoteOrder::Hash => walk_buckets(scope, place, &request, &mut heads).await?,
        RemoteOrder::Merged => walk_merged(scope, place, &request, &mut heads).await?,
    }
    let end = heads.end();
    let rows = match request.keys_only {
        true => heads.rows.into_iter().map(without_value).collect(),
        false => with_values(scope, place, heads.rows).await?,
    };
    Ok((rows, end))
}

/// Returns the buckets that a walk still has to visit, in its order.
fn buckets_left(place: DatabasePlace, request: &PageRequest<'_>) -> Vec<u16> {
    let buckets = place.shape.buckets;
    let at = request.passed.map(|key| place.shape.bucket_of(key));
    match request.direction {
        Direction::Forward => (at.unwrap_or(0)..buckets).collect(),
        Direction::Backward => {
            let end = at.map_or(buckets, |at| at.saturating_add(1).min(buckets));
            (0..end).rev().collect()
        }
    }
}

/// Gathers the keys of a page bucket by bucket. Empty buckets are many in a small database, so more
/// and more are read at once, as long as they bring little.
async fn walk_buckets(
    scope: ReadScope<'_>,
    place: DatabasePlace,
    request: &PageRequest<'_>,
    heads: &mut PageHeads,
) -> Result<(), RowsError> {
    let mut left = buckets_left(place, request).into_iter().peekable();
    let mut passed = request.passed.map(<[u8]>::to_vec);
    let (mut at_once, mut rows) = (1, RowsAtOnce::default());
    while !heads.is_full() && left.peek().is_some() {
        let buckets: Vec<u16> = left.by_ref().take(at_once).collect();
        let own = passed.take();
        // Only the first bucket can have been begun.
        let range_of = |index: usize| match &own {
            Some(key) if index == 0 => request.range.beyond(key, request.direction),
            _ => request.range,
        };
        let parts = buckets.iter().enumerate();
        let parts = parts.map(|(index, &bucket)| (place.partition(bucket), range_of(index)));
        let how = (request.direction, rows.get(heads.wanted()));
        let pages = read_heads_of_all(scope, parts.collect(), how).await?;
        at_once = (2 * at_once).min(limits::BUCKETS_AT_ONCE);
        let now_ms = scope.engine.now_ms();
        for (bucket, page) in buckets.into_iter().zip(pages) {
            rows.note(&page);
            let rest = take_page(heads, page, now_ms);
            if heads.is_full() {
                return Ok(());
            }
            if let Some(key) = rest {
                // This bucket has more; those behind it are read again, after it.
                let resumed = PageRequest {
                    passed: Some(&key),
                    ..*request
                };
                left = buckets_left(place, &resumed).into_iter().peekable();
                debug_assert_eq!(left.peek(), Some(&bucket), "a key stays in its bucket");
                passed = Some(key);
                at_once = 1;
                break;
            }
        }
    }
    Ok(())
}

/// Takes the rows of a page. Returns its last key if there is more behind it.
fn take_page(heads: &mut PageHeads, page: HeadsPage, now_ms: u64) -> Option<Vec<u8>> {
    let last = page.rows.last().map(|row| row.key.clone());
    for row in page.rows {
        heads.take(row, now_ms);
    }
    last.filter(|_| !page.is_last)
}

/// Gathers the keys of a page in their order, from all buckets.
async fn walk_merged(
    scope: ReadScope<'_>,
    place: DatabasePlace,
    request: &PageRequest<'_>,
    heads: &mut PageHeads,
) -> Result<(), RowsError> {
    let buckets = usize::from(place.shape.buckets);
    let mut merge: Merge<HeadRow> = Merge::new(buckets, request.direction);
    let begin = request.passed.map(<[u8]>::to_vec);
    let mut passed = vec![begin; buckets];
    let part = heads.wanted().div_ceil(buckets.max(1)).saturating_mul(2);
    let mut rows = RowsAtOnce::default();
    // What each bucket has of the room, for the rows that were read of it last.
    let mut shares: Vec<Option<RoomShare>> = (0..buckets).map(|_| None).collect();
    loop {
        let now_ms = scope.engine.now_ms();
        while !heads.is_full()
            && let Some(row) = merge.take_next()
        {
            heads.take(row, now_ms);
        }
        let starving = merge.starving();
        if heads.is_full() || starving.is_empty() {
            return Ok(());
        }
        let parts = starving.iter().map(|&source| {
            let range = match passed.get(source) {
                Some(Some(key)) => request.range.beyond(key, request.direction),
                _ => request.range,
            };
            (place.partition(u16::try_from(source).unwrap_or(0)), range)
        });
        let how = (request.direction, rows.get(part.max(limits::FIRST_ROWS)));
        let pages = read_heads_of_all(scope, parts.collect(), how).await?;
        for (source, page) in starving.into_iter().zip(pages) {
            rows.note(&page);
            if let Some(share) = shares.get_mut(source) {
                *share = page.share;
            }
            if let (Some(place), Some(last)) = (passed.get_mut(source), page.rows.last()) {
                *place = Some(last.key.clone());
            }
            merge.push_page(source, page.rows, page.is_last);
        }
    }
}

fn without_value(row: HeadRow) -> RemoteRow {
    RemoteRow {
        key: row.key,
        entry: RemoteEntry {
            value: bytes::Bytes::new(),
            version: row.head.version,
            expires_ms: row.head.expires_ms,
        },
    }
}

/// Reads the values of rows, a part of [`limits::LOOKUP_KEYS`] at a time.
async fn with_values(
    scope: ReadScope<'_>,
    place: DatabasePlace,
    heads: Vec<HeadRow>,
) -> Result<Vec<RemoteRow>, RowsError> {
    let mut rows = Vec::with_capacity(heads.len());
    for part in heads.chunks(limits::LOOKUP_KEYS) {
        let keys: Vec<&[u8]> = part.iter().map(|row| row.key.as_slice()).collect();
        let mut found = entries_of(scope, place, &keys).await?;
        let now_ms = scope.engine.now_ms();
        for key in keys {
            let entry = found.remove_entry(key);
            let visible =
                entry.filter(|(_, entry)| !crate::entry::is_expired(entry.expires_ms, now_ms));
            rows.extend(visible.map(|(key, entry)| RemoteRow { key, entry }));
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use store::DatabaseId;
    use store::remote::{RemotePromise, RemoteShape};

    use super::*;
    use crate::entry::EntryHead;

    fn row(key: &[u8], value_bytes: u64, expires_ms: u64) -> HeadRow {
        HeadRow {
            key: key.to_vec(),
            head: EntryHead {
                version: 1,
                expires_ms,
                value_bytes,
            },
        }
    }

    fn request(entries: usize, bytes: usize) -> PageRequest<'static> {
        PageRequest {
            range: Range::ALL,
            passed: None,
            direction: Direction::Forward,
            keys_only: false,
            entries,
            bytes,
        }
    }

    #[test]
    fn a_page_ends_with_its_entries() {
        let mut heads = PageHeads::new(&request(2, 1000));
        heads.take(row(b"a", 1, 0), 5);
        assert_eq!(heads.end(), RemotePageEnd::Complete);
        heads.take(row(b"b", 1, 0), 5);
        assert!(heads.is_full());
        heads.take(row(b"c", 1, 0), 5);
        assert_eq!(heads.rows.len(), 2);
        assert_eq!(heads.end(), RemotePageEnd::Passed(b"b".to_vec()));
    }

    #[test]
    fn a_page_ends_with_its_bytes_but_has_one_entry() {
        let mut heads = PageHeads::new(&request(10, 100));
        heads.take(row(b"a", 1000, 0), 5);
        assert!(heads.is_full());
        assert_eq!(heads.rows.len(), 1);
        let mut heads = PageHeads::new(&request(10, 100));
        heads.take(row(b"a", 50, 0), 5);
        heads.take(row(b"b", 50, 0), 5);
        assert_eq!(heads.end(), RemotePageEnd::Passed(b"a".to_vec()));
    }

    #[test]
    fn without_values_only_keys_count() {
        let mut keys_only = request(10, 3);
        keys_only.keys_only = true;
        let mut heads = PageHeads::new(&keys_only);
        for key in [b"a", b"b", b"c", b"d"] {
            heads.take(row(key, 1000, 0), 5);
        }
        assert_eq!(heads.rows.len(), 3);
    }

    #[test]
    fn what_has_expired_is_passed_and_not_shown() {
        let mut heads = PageHeads::new(&request(1, 100));
        heads.take(row(b"a", 1, 5), 5);
        heads.take(row(b"b", 1, 6), 5);
        assert_eq!(heads.rows, [row(b"b", 1, 6)]);
        assert_eq!(heads.end(), RemotePageEnd::Passed(b"b".to_vec()));
    }

    #[test]
    fn a_walk_goes_on_in_the_bucket_of_the_key_that_it_has_passed() {
        let shape = RemoteShape {
            buckets: 8,
            ..RemoteShape::new(RemotePromise::Quorum, RemoteOrder::Hash)
        };
        let place = DatabasePlace {
            database: DatabaseId::DEFAULT,
            shape,
        };
        let mut request = request(1, 1);
        assert_eq!(buckets_left(place, &request), (0..8).collect::<Vec<_>>());
        let at = shape.bucket_of(b"key");
        request.passed = Some(b"key");
        assert_eq!(buckets_left(place, &request), (at..8).collect::<Vec<_>>());
        request.direction = Direction::Backward;
        assert_eq!(
            buckets_left(place, &request),
            (0..=at).rev().collect::<Vec<_>>()
        );
    }
}
