//! Reads of a tree.

use std::borrow::Cow;
use std::fmt;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use lsm_tree::mvcc_stream::MvccStream;
use lsm_tree::{AbstractTree, Guard, InternalValue, Memtable, SeqNo, Slice, Tree, ValueType};

use super::arena::Arena;
use super::error::TreeError;
use super::estimate;
use super::index::{Shared, TreeIndex};
use super::key::{StoredBound, given, stored, stored_range};
use super::numbers::reads_at;
use super::tickets::Ticket;
use super::value::{OwnedValue, Stored};
use super::writer::entry;
use crate::range::{CountSlice, Direction, Range, ScanEnd};
use crate::value::Entry;

/// A tree between two commits. What it has lent stays in memory until it is dropped, so a view is
/// for one batch of reads with a bound. Reads may wait for the device.
pub struct TreeView {
    index: TreeIndex,
    sequence: u64,
    /// There was an engine when this began.
    has_engine: bool,
    /// What the engine did not know when this began.
    beside_engine: Option<Arc<Memtable>>,
    /// What was fetched: keys, or stored values.
    fetched: Arena<Slice>,
}

impl TreeIndex {
    /// What readers see now, held still until the view is dropped. Nobody waits for it meanwhile;
    /// but what was overwritten since stays on the device.
    pub fn view(&self) -> TreeView {
        TreeView::new(self.clone())
    }

    /// A view for somebody who reads what a commit rests on, and a [`Ticket`] to go with the
    /// commit.
    pub fn view_for_commit(&self) -> (TreeView, Ticket) {
        let shared = &self.shared;
        // Under the lock, so that no memtable goes of which this view does not see everything.
        let mut tickets = shared.tickets.lock();
        let view = self.view();
        let ticket = tickets.add(&shared.tickets, view.sequence(), shared.generation);
        (view, ticket)
    }
}

impl TreeView {
    pub(super) fn new(index: TreeIndex) -> TreeView {
        let sequence = index.shared.enter();
        // Later: so it has what the sequence shows, if the engine has not.
        let (engine, beside_engine) = index.shared.beside_engine();
        TreeView {
            sequence,
            has_engine: engine.is_some(),
            beside_engine,
            index,
            fetched: Arena::new(),
        }
    }

    /// The sequence of the last commit that this view shows.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The entry of a key, be it expired or not.
    pub fn find<'a>(&'a self, key: &'a [u8]) -> Result<Option<Entry<'a>>, TreeError> {
        let Some(found) = self.stored(key)? else {
            return Ok(None);
        };
        let stored = self.decode(self.fetched.keep(found))?;
        Ok(Some(entry(key, &stored)))
    }

    /// The engine, if it has something to do with this view.
    pub(super) fn engine(&self) -> Option<&Tree> {
        self.index.shared.engine.get().filter(|_| self.has_engine)
    }

    /// What is stored under a key.
    pub(super) fn stored(&self, key: &[u8]) -> Result<Option<Slice>, TreeError> {
        let shared = &self.index.shared;
        let (key, number) = (stored(key), reads_at(self.sequence));
        let beside_engine = self.beside_engine.as_ref();
        if let Some(newest) = beside_engine.and_then(|memtable| memtable.get(&key, number)) {
            return Ok((!newest.is_tombstone()).then_some(newest.value));
        }
        let Some(tree) = self.engine() else {
            return Ok(None);
        };
        let get = || {
            let found = tree.get(&key, number);
            found.map_err(|error| shared.error(error))
        };
        match get() {
            // The engine itself reads once.
            Err(error) if error.is_of_interruption() => get(),
            found => found,
        }
    }

    /// The same, owned.
    pub fn find_owned(&self, key: &[u8]) -> Result<Option<OwnedValue>, TreeError> {
        let Some(found) = self.stored(key)? else {
            return Ok(None);
        };
        OwnedValue::new(found)
            .map(Some)
            .ok_or_else(|| self.unknown_form())
    }

    /// Keeps a row that was read in the cache, for later reads.
    pub(super) fn remember(&self, key: &[u8], stored: &Slice) {
        self.index.shared.rows.remember(key, stored, self.sequence);
    }

    /// The entry of a key, unless it has expired.
    pub fn get<'a>(&'a self, key: &'a [u8], now_ms: u64) -> Result<Option<Entry<'a>>, TreeError> {
        let found = self.find(key)?;
        Ok(found.filter(|entry| !entry.is_expired(now_ms)))
    }

    /// Visits the live entries of a range in order, walking at most `budget_rows` entries, but at
    /// least one.
    pub fn scan<'a>(
        &'a self,
        range: &Range<'_>,
        direction: Direction,
        now_ms: u64,
        budget_rows: u32,
        visit: &mut dyn FnMut(&Entry<'a>) -> ControlFlow<()>,
    ) -> Result<ScanEnd<'a>, TreeError> {
        let mut is_stopped = false;
        let passed = self.walk(range, direction, budget_rows, &mut |key, stored| {
            if crate::value::is_expired(self.decode(stored)?.expires_ms, now_ms) {
                return Ok(ControlFlow::Continue(()));
            }
            let (key, stored) = (
                self.fetched.keep(key.clone()),
                self.fetched.keep(stored.clone()),
            );
            let flow = visit(&entry(given(key), &self.decode(stored)?));
            is_stopped = flow.is_break();
            Ok(flow)
        })?;
        Ok(match passed {
            _ if is_stopped => ScanEnd::Stopped,
            Some(key) => ScanEnd::BudgetSpent(given(self.fetched.keep(key))),
            None => ScanEnd::Complete,
        })
    }

    /// Counts the live entries of a range exactly, walking at most `budget_rows` entries, but at
    /// least one.
    pub fn count(
        &self,
        range: &Range<'_>,
        now_ms: u64,
        budget_rows: u32,
    ) -> Result<CountSlice<'_>, TreeError> {
        let mut count = 0;
        let passed = self.walk(range, Direction::Forward, budget_rows, &mut |_, stored| {
            let has_expired = crate::value::is_expired(self.decode(stored)?.expires_ms, now_ms);
            count += u64::from(!has_expired);
            Ok(ControlFlow::Continue(()))
        })?;
        let passed = passed.map(|key| given(self.fetched.keep(key)));
        Ok(CountSlice { count, passed })
    }

    /// Visits the keys of a range that have expired and are still there, with the bytes that are
    /// stored under each, walking at most `budget_rows` entries, but at least one: work for a
    /// sweeper. Returns the key that the walk has passed; `None`: it is at the end.
    pub fn expired<'a>(
        &'a self,
        range: &Range<'_>,
        now_ms: u64,
        budget_rows: u32,
        visit: &mut dyn FnMut(&[u8], usize),
    ) -> Result<Option<&'a [u8]>, TreeError> {
        let passed = self.walk(
            range,
            Direction::Forward,
            budget_rows,
            &mut |key, stored| {
                let expires_ms = self.decode(stored)?.expires_ms;
                if expires_ms != 0 {
                    self.index.shared.note_expiry();
                }
                if crate::value::is_expired(expires_ms, now_ms) {
                    visit(given(key), stored.len());
                }
                Ok(ControlFlow::Continue(()))
            },
        )?;
        Ok(passed.map(|key| given(self.fetched.keep(key))))
    }

    /// About how many entries a range has, without a look into tables. What was overwritten or
    /// removed counts until compaction has dropped it.
    pub fn estimate(&self, range: &Range<'_>) -> u64 {
        let version = self.engine().map(Tree::current_version);
        version.map_or(0, |version| estimate::entries(version.iter_tables(), range))
    }

    /// Visits what is stored in a range; returns the last key if the budget was spent before the
    /// end.
    pub(super) fn walk(
        &self,
        range: &Range<'_>,
        direction: Direction,
        budget_rows: u32,
        visit: &mut Visit<'_>,
    ) -> Result<Option<Slice>, TreeError> {
        if range.is_empty() {
            return Ok(None);
        }
        let shared = &self.index.shared;
        let bounds = stored_range(range);
        let number = reads_at(self.sequence);
        let beside_engine = self.beside_engine.clone();
        let mut entries: Entries<'_> = match (self.engine(), &self.beside_engine) {
            (Some(tree), _) => {
                let beside_engine = beside_engine.map(|memtable| (memtable, number));
                let entries = tree.range(bounds, number, beside_engine);
                Box::new(entries.map(|entry| entry.into_inner()))
            }
            (None, Some(memtable)) => Box::new(memtable_entries(memtable, bounds, number)),
            (None, None) => return Ok(None),
        };
        let mut passed = None;
        let mut rows_left = budget_rows.max(1);
        loop {
            let next = match direction {
                Direction::Forward => entries.next(),
                Direction::Backward => entries.next_back(),
            };
            let Some(next) = next else {
                return Ok(None);
            };
            if rows_left == 0 {
                return Ok(passed);
            }
            rows_left -= 1;
            let (key, stored) = next.map_err(|error| shared.error(error))?;
            if visit(&key, &stored)?.is_break() {
                return Ok(None);
            }
            passed = Some(key);
        }
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.index.shared
    }

    pub(super) fn decode<'a>(&self, bytes: &'a [u8]) -> Result<Stored<'a>, TreeError> {
        Stored::decode(bytes).ok_or_else(|| self.unknown_form())
    }

    pub(super) fn unknown_form(&self) -> TreeError {
        TreeError::damaged(&self.index.shared.folder, "a value has an unknown form")
    }
}

#[cfg(any(test, feature = "hooks"))]
impl TreeIndex {
    /// Until what this answers is dropped, reads wait, as if the device did not answer.
    pub fn hold_reads(&self) -> impl Sized + '_ {
        let tree = self.shared.engine.get();
        tree.map(AbstractTree::get_version_history_lock)
    }
}

/// Keys and values as they are stored, from either end.
type Entries<'a> = Box<dyn DoubleEndedIterator<Item = lsm_tree::Result<(Slice, Slice)>> + 'a>;

/// The newest entries below a number in one memtable.
fn memtable_entries<'a>(
    memtable: &'a Memtable,
    (start, end): (StoredBound<'_>, StoredBound<'_>),
    number: SeqNo,
) -> impl DoubleEndedIterator<Item = lsm_tree::Result<(Slice, Slice)>> + 'a {
    // Entries of a key are in the order of falling numbers.
    let place = |key: Cow<'_, [u8]>, number| {
        let (key, value) = (Slice::new(&key), Slice::new(&[]));
        InternalValue::from_components(key, value, number, ValueType::Value).key
    };
    let start = match start {
        Bound::Included(key) => Bound::Included(place(key, SeqNo::MAX)),
        Bound::Excluded(key) => Bound::Excluded(place(key, 0)),
        Bound::Unbounded => Bound::Unbounded,
    };
    let end = match end {
        Bound::Included(key) => Bound::Included(place(key, 0)),
        Bound::Excluded(key) => Bound::Excluded(place(key, SeqNo::MAX)),
        Bound::Unbounded => Bound::Unbounded,
    };
    let entries = memtable
        .items
        .range((start, end))
        .map(|entry| InternalValue {
            key: entry.key().clone(),
            value: entry.value().clone(),
        });
    let seen = entries.filter(move |entry| entry.key.seqno < number);
    let newest = MvccStream::new(seen.map(Ok));
    newest.filter_map(|entry| match entry {
        Ok(entry) if entry.is_tombstone() => None,
        entry => Some(entry.map(|entry| (entry.key.user_key, entry.value))),
    })
}

/// Is shown a key and a value as they are stored.
pub(super) type Visit<'a> = dyn FnMut(&Slice, &Slice) -> Result<ControlFlow<()>, TreeError> + 'a;

impl Drop for TreeView {
    fn drop(&mut self) {
        self.index.shared.leave(self.sequence);
    }
}

impl fmt::Debug for TreeView {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("TreeView")
            .field("index", &self.index)
            .field("sequence", &self.sequence)
            .finish_non_exhaustive()
    }
}
