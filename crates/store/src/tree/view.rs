//! Reads of a tree.

use std::fmt;
use std::ops::ControlFlow;

use lsm_tree::{AbstractTree, Guard, Slice};

use super::arena::Arena;
use super::error::TreeError;
use super::index::{TreeIndex, reads_at};
use super::key::{given, stored, stored_range};
use super::value::Stored;
use super::writer::entry;
use crate::range::{CountSlice, Direction, Range, ScanEnd};
use crate::value::Entry;

/// A tree between two commits. What it has lent stays in memory until it is dropped, so a view is for one batch of reads
/// with a bound. Reads may wait for the device.
pub struct TreeView {
    index: TreeIndex,
    sequence: u64,
    /// What was fetched: keys, or stored values.
    fetched: Arena<Slice>,
}

impl TreeView {
    pub(super) fn new(index: TreeIndex) -> TreeView {
        TreeView {
            sequence: index.shared.enter(),
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
        let shared = &self.index.shared;
        let found = shared.tree.get(stored(key), reads_at(self.sequence));
        let Some(found) = found.map_err(|error| shared.error(error))? else {
            return Ok(None);
        };
        let stored = self.decode(self.fetched.keep(found))?;
        Ok(Some(entry(key, &stored)))
    }

    /// The entry of a key, unless it has expired.
    pub fn get<'a>(&'a self, key: &'a [u8], now_ms: u64) -> Result<Option<Entry<'a>>, TreeError> {
        let found = self.find(key)?;
        Ok(found.filter(|entry| !entry.is_expired(now_ms)))
    }

    /// Visits the live entries of a range in order, walking at most `budget_rows` entries, but at least one.
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

    /// Counts the live entries of a range exactly, walking at most `budget_rows` entries, but at least one.
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

    /// Visits the keys of a range that have expired and are still there, walking at most `budget_rows` entries, but at
    /// least one: work for a sweeper. Answers the key that the walk has passed; `None`: it is at the end.
    pub fn expired<'a>(
        &'a self,
        range: &Range<'_>,
        now_ms: u64,
        budget_rows: u32,
        visit: &mut dyn FnMut(&[u8]),
    ) -> Result<Option<&'a [u8]>, TreeError> {
        let passed = self.walk(
            range,
            Direction::Forward,
            budget_rows,
            &mut |key, stored| {
                if crate::value::is_expired(self.decode(stored)?.expires_ms, now_ms) {
                    visit(given(key));
                }
                Ok(ControlFlow::Continue(()))
            },
        )?;
        Ok(passed.map(|key| given(self.fetched.keep(key))))
    }

    /// Visits what is stored in a range; answers the last key if the budget was spent before the end.
    fn walk(
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
        let mut entries = shared.tree.range(bounds, reads_at(self.sequence), None);
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
            let (key, stored) = next.into_inner().map_err(|error| shared.error(error))?;
            if visit(&key, &stored)?.is_break() {
                return Ok(None);
            }
            passed = Some(key);
        }
    }

    fn decode<'a>(&self, bytes: &'a [u8]) -> Result<Stored<'a>, TreeError> {
        Stored::decode(bytes).ok_or_else(|| {
            TreeError::damaged(&self.index.shared.folder, "a value has an unknown form")
        })
    }
}

/// Is shown a key and a value as they are stored.
type Visit<'a> = dyn FnMut(&Slice, &Slice) -> Result<ControlFlow<()>, TreeError> + 'a;

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
