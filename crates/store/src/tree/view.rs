//! Reads of a tree.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use lsm_tree::{AbstractTree, Memtable, Slice, Tree};

use super::arena::Arena;
use super::error::TreeError;
use super::estimate;
use super::index::{SharedTree, TreeIndex};
use super::key::{given, stored};
use super::numbers::reads_at;
use super::tickets::Ticket;
use super::value::{OwnedValue, TreeValue};
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

    /// Visits the live entries of a range in order, walking at most `budget_rows` entries. It may
    /// end earlier, also without having visited any, where much is passed over or read.
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

    /// Whether there is no entry, not even one that has expired. Goes on until it knows: removed
    /// entries are passed over.
    pub fn is_empty(&self) -> Result<bool, TreeError> {
        let (mut is_empty, mut rest) = (true, Range::ALL);
        loop {
            // No time has come for an entry to expire.
            let end = self.scan(&rest, Direction::Forward, 0, 1, &mut |_| {
                is_empty = false;
                ControlFlow::Break(())
            })?;
            match end {
                ScanEnd::BudgetSpent(passed) => rest = rest.beyond(passed, Direction::Forward),
                ScanEnd::Stopped | ScanEnd::Complete => return Ok(is_empty),
            }
        }
    }

    /// Counts the live entries of a range exactly, walking at most `budget_rows` entries; less
    /// where much is passed over or read.
    pub fn count(
        &self,
        range: &Range<'_>,
        now_ms: u64,
        budget_rows: u32,
    ) -> Result<CountSlice<'_>, TreeError> {
        let (slice, _) = self.count_rows(range, now_ms, budget_rows)?;
        Ok(slice)
    }

    /// The same, with the entries that it has walked.
    pub(super) fn count_rows(
        &self,
        range: &Range<'_>,
        now_ms: u64,
        budget_rows: u32,
    ) -> Result<(CountSlice<'_>, u32), TreeError> {
        let (mut count, mut rows) = (0, 0);
        let passed = self.walk(range, Direction::Forward, budget_rows, &mut |_, stored| {
            rows += 1;
            let has_expired = crate::value::is_expired(self.decode(stored)?.expires_ms, now_ms);
            count += u64::from(!has_expired);
            Ok(ControlFlow::Continue(()))
        })?;
        let passed = passed.map(|key| given(self.fetched.keep(key)));
        Ok((CountSlice { count, passed }, rows))
    }

    /// Visits the keys of a range that have expired and are still there, with the bytes that are
    /// stored under each, walking at most `budget_rows` entries: work for a sweeper. Returns the
    /// key that the walk has passed; `None`: it is at the end.
    pub fn expired<'a>(
        &'a self,
        range: &Range<'_>,
        now_ms: u64,
        budget_rows: u32,
        visit: &mut dyn FnMut(&[u8], usize),
    ) -> Result<Option<&'a [u8]>, TreeError> {
        let passed = self.walk_to_sweep(range, budget_rows, &mut |key, stored| {
            let expires_ms = self.decode(stored)?.expires_ms;
            if expires_ms != 0 {
                self.index.shared.note_expiry();
            }
            if crate::value::is_expired(expires_ms, now_ms) {
                visit(given(key), stored.len());
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(passed.map(|key| given(self.fetched.keep(key))))
    }

    /// About how many entries a range has, without a look into tables. What was overwritten or
    /// removed counts until compaction has dropped it.
    pub fn estimate(&self, range: &Range<'_>) -> u64 {
        let version = self.engine().map(Tree::current_version);
        version.map_or(0, |version| estimate::entries(version.iter_tables(), range))
    }

    /// What the engine did not know when this began.
    pub(super) fn beside_engine(&self) -> Option<Arc<Memtable>> {
        self.beside_engine.clone()
    }

    pub(super) fn shared(&self) -> &SharedTree {
        &self.index.shared
    }

    pub(super) fn decode<'a>(&self, bytes: &'a [u8]) -> Result<TreeValue<'a>, TreeError> {
        TreeValue::decode(bytes).ok_or_else(|| self.unknown_form())
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
