//! Reads of databases on an engine elsewhere.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::life::RequestLife;
use super::room::{BUSY, RoomShare};
use super::sink::{RemoteDone, RemoteFetched, RemoteSink};
use crate::database_id::DatabaseId;
use crate::range::{Direction, Range};
use crate::remote_kind::{RemoteEntry, RemoteError, RemoteShape};
use crate::tree::{FromElsewhere, PlannedRequest, ReadPlan};

/// A read of one call, to be carried out by an engine.
pub struct RemoteRead {
    database: DatabaseId,
    shape: RemoteShape,
    life: RequestLife,
    plan: Arc<ReadPlan>,
    /// Which call of the plan it is for.
    call: usize,
    end: Option<ReadEnd>,
}

/// Where the answer of a read goes.
struct ReadEnd {
    sink: Arc<dyn RemoteSink>,
    share: RoomShare,
    /// Bytes of the answer that the share holds already.
    expected_bytes: usize,
    /// Bytes of the answer that the backend holds already.
    come_bytes: AtomicUsize,
}

/// What is to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemoteReadRequest<'a> {
    /// The entries of some keys, which may be in several buckets: with `linearizable` each by a
    /// serial read.
    Keys {
        /// The keys, in the order of the answer.
        keys: Vec<&'a [u8]>,
        /// Behind the entry with which the values come to more than so many bytes, the answer may
        /// end.
        value_bytes: usize,
    },
    /// Entries of a range in the order of the database: see [`RemoteOrder`](super::RemoteOrder).
    /// Each key that is there throughout comes once; no more is promised of what changes meanwhile.
    Page {
        /// The range.
        range: Range<'a>,
        /// The walk has passed this key, which is in the range: the page begins behind it, in its
        /// bucket and in those that follow where the order is
        /// [`Hash`](super::RemoteOrder::Hash).
        passed: Option<&'a [u8]>,
        /// From which end of the order.
        direction: Direction,
        /// Values are of no interest, and left empty.
        keys_only: bool,
        /// How many entries, at most.
        entries: u64,
        /// Bytes of keys and values, at most, unless the first entry alone has more.
        bytes: usize,
    },
    /// How many entries a range has.
    Count {
        /// The range.
        range: Range<'a>,
        /// An estimate will do.
        may_estimate: bool,
    },
}

/// What was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemoteAnswer {
    /// For each key of the request in its order, `None` where there is no entry. See
    /// `value_bytes` of [`RemoteReadRequest::Keys`] for how it may end early.
    Keys(Vec<Option<RemoteEntry>>),
    /// Entries in the order of the database, those that have expired left out, and how the page
    /// ended.
    Page(Vec<RemoteRow>, RemotePageEnd),
    /// How many entries there are.
    Count {
        /// The number.
        count: u64,
        /// Not all of them were looked at.
        is_estimate: bool,
    },
}

/// An entry of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteRow {
    /// Its key.
    pub key: Vec<u8>,
    /// What is there.
    pub entry: RemoteEntry,
}

/// How a page ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemotePageEnd {
    /// The range is walked to its end.
    Complete,
    /// There may be more behind this key. It need not have an entry, but is in the range.
    Passed(Vec<u8>),
}

impl RemoteRead {
    pub(super) fn new(
        (database, shape): (DatabaseId, RemoteShape),
        life: RequestLife,
        (plan, call): (Arc<ReadPlan>, usize),
        (sink, share, expected_bytes): (Arc<dyn RemoteSink>, RoomShare, usize),
    ) -> RemoteRead {
        RemoteRead {
            database,
            shape,
            life,
            plan,
            call,
            end: Some(ReadEnd {
                sink,
                share,
                expected_bytes,
                come_bytes: AtomicUsize::new(0),
            }),
        }
    }

    /// Returns the database.
    pub fn database(&self) -> DatabaseId {
        self.database
    }

    /// Returns the shape of the database.
    pub fn shape(&self) -> RemoteShape {
        self.shape
    }

    /// Returns within which time it is to be completed, from now on.
    pub fn timeout(&self) -> Duration {
        self.life.left(Instant::now())
    }

    /// Whether its call has ended, by its deadline or otherwise: nobody waits for the answer.
    pub fn is_abandoned(&self) -> bool {
        self.life.is_abandoned()
    }

    /// Charges bytes of the answer that have come, before the rest does. Returns whether there is
    /// room for them: else it should end as [`RemoteError::Busy`].
    pub fn grow(&self, bytes: usize) -> bool {
        let Some(end) = &self.end else {
            return false;
        };
        let before = end.come_bytes.fetch_add(bytes, Ordering::Relaxed);
        let beyond = |come: usize| come.saturating_sub(end.expected_bytes);
        let more = beyond(before.saturating_add(bytes)) - beyond(before);
        end.share.grow(more)
    }

    /// Charges bytes that are no part of the answer, for as long as the share is kept. `None`:
    /// there is no room.
    pub fn hold(&self, bytes: usize) -> Option<RoomShare> {
        self.end.as_ref()?.share.take_beside(bytes)
    }

    /// Returns what is to be read.
    pub fn request(&self) -> RemoteReadRequest<'_> {
        match self.plan.request(self.call) {
            PlannedRequest::Keys { keys, value_bytes } => {
                RemoteReadRequest::Keys { keys, value_bytes }
            }
            PlannedRequest::Page {
                range,
                passed,
                page,
            } => RemoteReadRequest::Page {
                range,
                passed,
                direction: page.direction,
                keys_only: page.keys_only,
                // More than it walks in a step it would read once more.
                entries: page.entries.min(page.rows.max(1).into()),
                bytes: page.bytes,
            },
            PlannedRequest::Count {
                range,
                may_estimate,
            } => RemoteReadRequest::Count {
                range,
                may_estimate,
            },
        }
    }

    /// Ends it: with what was read, or the reason why nothing was.
    pub fn complete(mut self, result: Result<RemoteAnswer, RemoteError>) {
        self.end(result);
    }

    fn end(&mut self, result: Result<RemoteAnswer, RemoteError>) {
        let Some(mut end) = self.end.take() else {
            return;
        };
        let bytes = result.as_ref().map_or(0, RemoteAnswer::bytes);
        let charged_bytes = end.expected_bytes.max(*end.come_bytes.get_mut());
        let more_bytes = bytes.saturating_sub(charged_bytes);
        let result = match end.share.grow(more_bytes) {
            true => result.and_then(RemoteAnswer::into_fetched),
            false => Err(BUSY),
        };
        if let Err(error) = result {
            end.share.room().count_failed(error);
        }
        end.share.end_request();
        let fetched = RemoteFetched::new(&self.plan, self.call, result, Some(end.share));
        end.sink.put(RemoteDone::Read(fetched));
    }
}

impl RemoteAnswer {
    /// Bytes of keys and values.
    fn bytes(&self) -> usize {
        match self {
            RemoteAnswer::Keys(found) => {
                let values = found.iter().flatten().map(|entry| entry.value.len());
                values.sum()
            }
            RemoteAnswer::Page(rows, _) => {
                let row = |row: &RemoteRow| row.key.len() + row.entry.value.len();
                rows.iter().map(row).sum()
            }
            RemoteAnswer::Count { .. } => 0,
        }
    }

    fn into_fetched(self) -> Result<FromElsewhere, RemoteError> {
        Ok(match self {
            RemoteAnswer::Keys(found) => FromElsewhere::Keys(found),
            RemoteAnswer::Page(rows, end) => FromElsewhere::Page {
                rows: rows.into_iter().map(|row| (row.key, row.entry)).collect(),
                passed: match end {
                    RemotePageEnd::Complete => None,
                    RemotePageEnd::Passed(key) => Some(key),
                },
            },
            RemoteAnswer::Count { count, is_estimate } => {
                FromElsewhere::Count { count, is_estimate }
            }
        })
    }
}

impl Drop for RemoteRead {
    fn drop(&mut self) {
        self.end(Err(RemoteError::TimedOut));
    }
}

impl fmt::Debug for RemoteRead {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("RemoteRead")
            .field("database", &self.database)
            .field("request", &self.request())
            .finish_non_exhaustive()
    }
}
