//! What was prefetched for calls, and the view of it that each call gets.

use std::cell::Cell;
use std::fmt;
use std::ops::{ControlFlow, Range as IndexRange};
use std::sync::Arc;

use bytes::Bytes;
use lsm_tree::Slice;

use super::plan::{PageRequest, PlannedRead, ReadPlan};
use crate::limits;
use crate::range::{Direction, Range, ScanEnd};
use crate::remote_kind::{RemoteEntry, RemoteError};
use crate::tree::error::TreeError;
use crate::tree::key::given;
use crate::tree::limits::{DETACHED_BYTES, KEY_BYTES, LARGE_BLOCK_BYTES};
use crate::tree::value::TreeValue;
use crate::tree::view::TreeView;
use crate::value::{Entry, Value};

/// What was prefetched for some calls.
pub struct Fetched {
    pub(super) plan: Arc<ReadPlan>,
    pub(super) sequence: u64,
    pub(super) history_id: u64,
    /// The first call that this is for.
    pub(super) first: usize,
    pub(super) calls: Vec<Prefetched>,
    /// `None`: there is no entry of that key.
    pub(super) entries: Vec<Option<FetchedEntry>>,
    pub(super) bytes: usize,
}

/// What was prefetched for a call.
pub(super) enum Prefetched {
    /// The call planned no read.
    Nothing,
    /// For its keys from the first on.
    Keys {
        first_key: usize,
        entries: IndexRange<usize>,
    },
    /// Live entries of its range, in order.
    Page {
        entries: IndexRange<usize>,
        end: PageEnd,
    },
    /// Entries of a part of its range.
    Count {
        count: u64,
        passed: Option<Box<[u8]>>,
        is_estimate: bool,
    },
    /// Nothing could be read.
    Failed(Arc<TreeError>),
    /// The engine that has the database came to nothing.
    Refused(RemoteError),
}

/// Where a page ends.
pub(super) enum PageEnd {
    /// At the end of the range.
    Complete,
    /// The walk has passed this key.
    Passed(Slice),
}

/// An entry on its way.
pub(crate) struct FetchedEntry {
    /// Empty if it was asked for by its key.
    key: Slice,
    value: FetchedValue,
    version: u64,
    pub(in crate::tree) expires_ms: u64,
}

enum FetchedValue {
    /// As it is stored, behind so many bytes of head.
    Stored { bytes: Slice, head: usize },
    /// Large: handed on without a copy by the loop.
    Shared(Bytes),
    /// As it came from elsewhere.
    Small(Bytes),
    /// Not planned: a page of keys only.
    LeftOut,
}

impl TreeView {
    /// The entry of a key, to be taken along.
    pub(super) fn fetch(&self, key: &[u8]) -> Result<Option<FetchedEntry>, TreeError> {
        if key.len() > KEY_BYTES {
            return Ok(None);
        }
        let Some(stored) = self.stored(key)? else {
            return Ok(None);
        };
        // Without its block, of which a small value may be a small part.
        let entry = FetchedEntry::of_key(match stored.len() {
            0..DETACHED_BYTES => Slice::new(&stored),
            _ => stored.clone(),
        });
        let entry = entry.ok_or_else(|| self.unknown_form())?;
        if entry.expires_ms == 0 {
            self.remember(key, &stored);
        }
        Ok(Some(entry))
    }
}

impl FetchedEntry {
    /// An entry that was asked for by its key. `None`: it has an unknown form.
    pub(crate) fn of_key(stored: Slice) -> Option<FetchedEntry> {
        let decoded = TreeValue::decode(&stored)?;
        let (version, expires_ms) = (decoded.version, decoded.expires_ms);
        let head = stored.len() - decoded.value.len();
        let value = if decoded.value.len() >= limits::SHARED_VALUE_BYTES {
            FetchedValue::Shared(shared_value(&stored, head))
        } else {
            FetchedValue::Stored {
                bytes: stored,
                head,
            }
        };
        Some(FetchedEntry {
            key: Slice::new(&[]),
            value,
            version,
            expires_ms,
        })
    }

    /// An entry of a page.
    pub(super) fn of(
        view: &TreeView,
        key: &Slice,
        stored: &Slice,
        page: &PageRequest,
    ) -> Result<FetchedEntry, TreeError> {
        let decoded = view.decode(stored)?;
        let value = if page.keys_only {
            FetchedValue::LeftOut
        } else if decoded.value.len() >= page.bytes {
            // It fills a page by itself.
            let head = stored.len() - decoded.value.len();
            FetchedValue::Shared(shared_value(stored, head))
        } else {
            FetchedValue::Stored {
                head: stored.len() - decoded.value.len(),
                bytes: stored.clone(),
            }
        };
        // Where nothing else keeps the block, which may be large, its key does not either.
        let key = match value {
            FetchedValue::Stored { .. } => key.clone(),
            FetchedValue::Shared(_) | FetchedValue::Small(_) | FetchedValue::LeftOut => {
                Slice::new(key)
            }
        };
        Ok(FetchedEntry {
            key,
            value,
            version: decoded.version,
            expires_ms: decoded.expires_ms,
        })
    }

    /// An entry that was read elsewhere. A value is handed on without a copy from so many bytes on.
    pub(super) fn from_elsewhere(key: &[u8], entry: RemoteEntry, shared_bytes: usize) -> Self {
        let value = match entry.value.len() >= shared_bytes {
            true => FetchedValue::Shared(entry.value),
            false => FetchedValue::Small(entry.value),
        };
        FetchedEntry {
            key: Slice::new(key),
            value,
            version: entry.version,
            expires_ms: entry.expires_ms,
        }
    }

    /// Lets go of the block that a small entry is a part of, which may be a large one.
    pub(super) fn detach(&mut self) {
        if let FetchedValue::Stored { bytes, .. } = &mut self.value
            && bytes.len() < DETACHED_BYTES
        {
            *bytes = Slice::new(bytes);
        }
        self.key = Slice::new(&self.key);
    }

    fn value(&self) -> Value<'_> {
        match &self.value {
            FetchedValue::Stored { bytes, head } => Value::Inline(&bytes[*head..]),
            FetchedValue::Shared(bytes) => Value::Shared(bytes),
            FetchedValue::Small(bytes) => Value::Inline(bytes),
            FetchedValue::LeftOut => Value::Inline(&[]),
        }
    }

    /// Bytes of its value.
    pub(super) fn bytes(&self) -> usize {
        self.value().len()
    }

    fn entry<'a>(&'a self, key: &'a [u8]) -> Entry<'a> {
        Entry {
            key,
            value: self.value(),
            version: self.version,
            expires_ms: self.expires_ms,
        }
    }
}

/// The stored bytes of a large value, to be shared by all that send it.
struct OwnedBytes(Slice);

impl AsRef<[u8]> for OwnedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Returns what stands behind the head: without a copy if its block or memtable entry is little
/// more than the value.
fn shared_value(stored: &Slice, head: usize) -> Bytes {
    match stored.len() {
        0..LARGE_BLOCK_BYTES => Bytes::copy_from_slice(&stored[head..]),
        _ => Bytes::from_owner(OwnedBytes(stored.clone())).slice(head..),
    }
}

impl Fetched {
    /// What was prefetched, call by call.
    pub fn calls(&self) -> impl Iterator<Item = FetchedCall<'_>> {
        (0..self.calls.len()).map(|place| FetchedCall {
            fetched: self,
            place,
        })
    }

    /// Bytes of keys and values that were prefetched.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl fmt::Debug for Fetched {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Fetched")
            .field("sequence", &self.sequence)
            .field("calls", &self.calls.len())
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

/// What was prefetched for one call.
#[derive(Clone, Copy, Debug)]
pub struct FetchedCall<'a> {
    fetched: &'a Fetched,
    place: usize,
}

impl<'a> FetchedCall<'a> {
    /// As given to [`ReadPlan::begin`].
    pub fn tag(&self) -> u64 {
        self.fetched.plan.calls[self.fetched.first + self.place].tag
    }

    /// As given to [`ReadPlan::begin`].
    pub fn kept(&self) -> &'a [u8] {
        self.fetched.plan.kept(self.fetched.first + self.place)
    }

    /// What the call is shown.
    ///
    /// # Errors
    /// If the tree is damaged, or the device or an engine refused.
    pub(crate) fn view(&self) -> Result<FetchedView<'a>, ReadFailure<'a>> {
        let prefetched = &self.fetched.calls[self.place];
        match prefetched {
            Prefetched::Failed(why) => return Err(ReadFailure::Tree(why)),
            Prefetched::Refused(why) => return Err(ReadFailure::Remote(*why)),
            _ => {}
        }
        Ok(FetchedView {
            fetched: self.fetched,
            read: &self.fetched.plan.calls[self.fetched.first + self.place].read,
            prefetched,
            next: Cell::new(0),
        })
    }
}

/// Why nothing was fetched for a call.
#[derive(Clone, Copy, Debug)]
pub enum ReadFailure<'a> {
    /// The tree is damaged, or the device refused.
    Tree(&'a TreeError),
    /// The engine that has the database came to nothing.
    Remote(RemoteError),
}

/// A call looked at something that it had not planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotFetched;

/// One call's sight of a tree, made of what was prefetched for it.
pub(crate) struct FetchedView<'a> {
    fetched: &'a Fetched,
    read: &'a PlannedRead,
    prefetched: &'a Prefetched,
    /// The key that is looked at next, if keys are looked at in the order in which they were
    /// planned.
    next: Cell<usize>,
}

impl<'a> FetchedView<'a> {
    pub(crate) fn sequence(&self) -> u64 {
        self.fetched.sequence
    }

    pub(crate) fn history_id(&self) -> u64 {
        self.fetched.history_id
    }

    pub(crate) fn get(&self, key: &[u8], now_ms: u64) -> Result<Option<Entry<'a>>, NotFetched> {
        let Prefetched::Keys { first_key, entries } = self.prefetched else {
            return Err(NotFetched);
        };
        let key_at = |place: usize| self.fetched.plan.key_at(first_key + place);
        let len = entries.len();
        let next = self.next.get();
        // In their order from the next one on, and around.
        let place = (next..len).chain(0..next.min(len));
        let place = place.into_iter().find(|&place| key_at(place) == key);
        let place = place.ok_or(NotFetched)?;
        self.next.set(place + 1);
        let entry = self.fetched.entries[entries.start + place].as_ref();
        let entry = entry.map(|entry| entry.entry(key_at(place)));
        Ok(entry.filter(|entry| !entry.is_expired(now_ms)))
    }

    pub(crate) fn scan(
        &self,
        range: &Range<'_>,
        direction: Direction,
        now_ms: u64,
        budget_rows: u32,
        visit: &mut dyn FnMut(&Entry<'a>) -> ControlFlow<()>,
    ) -> Result<ScanEnd<'a>, NotFetched> {
        let (
            Prefetched::Page { entries, end },
            PlannedRead::Page {
                range: planned,
                page,
                ..
            },
        ) = (self.prefetched, self.read)
        else {
            return Err(NotFetched);
        };
        if self.fetched.plan.range(planned) != *range || page.direction != direction {
            return Err(NotFetched);
        }
        let mut rows_left = budget_rows.max(1);
        let mut passed: &[u8] = &[];
        for entry in self.fetched.entries[entries.clone()].iter().flatten() {
            if rows_left == 0 {
                return Ok(ScanEnd::BudgetSpent(passed));
            }
            rows_left -= 1;
            let entry = entry.entry(given(&entry.key));
            passed = entry.key;
            if !entry.is_expired(now_ms) && visit(&entry).is_break() {
                return Ok(ScanEnd::Stopped);
            }
        }
        Ok(match end {
            PageEnd::Complete => ScanEnd::Complete,
            PageEnd::Passed(key) => ScanEnd::BudgetSpent(given(key)),
        })
    }

    /// How many entries there are in a part of a range; which key the count has passed, if not all
    /// was counted; whether it is an estimate.
    pub(crate) fn count(
        &self,
        range: &Range<'_>,
    ) -> Result<(u64, Option<&'a [u8]>, bool), NotFetched> {
        match (self.prefetched, self.read) {
            (
                Prefetched::Count {
                    count,
                    passed,
                    is_estimate,
                },
                PlannedRead::Count { range: planned, .. },
            ) if self.fetched.plan.range(planned) == *range => {
                Ok((*count, passed.as_deref(), *is_estimate))
            }
            _ => Err(NotFetched),
        }
    }
}
