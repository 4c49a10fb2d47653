//! Walks over the memory index: scans, counts, and what has expired.

use std::ops::{Bound, ControlFlow};

use super::{EntryKey, MemoryIndex};
use crate::limits::COUNT_ROWS_PER_LOOKUP;
use crate::range::{CountSlice, Direction, Range, ScanEnd};
use crate::value::{Entry, is_expired};

/// The expiry and the key of an entry that a walk over what expires has passed.
pub(crate) type PassedExpiry = (u64, Box<[u8]>);

impl MemoryIndex {
    /// Visits the live entries of a range, walking at most `budget_rows` entries.
    pub(crate) fn scan<'a>(
        &'a self,
        range: &Range<'_>,
        direction: Direction,
        now_ms: u64,
        budget_rows: u32,
        visit: &mut dyn FnMut(&Entry<'a>) -> ControlFlow<()>,
    ) -> ScanEnd<'a> {
        if range.is_empty() {
            return ScanEnd::Complete;
        }
        if !self.is_ordered() {
            return self.scan_unordered(range, direction, now_ms, budget_rows, visit);
        }
        let keys = self.ordered.range::<[u8]>((range.start, range.end));
        match direction {
            Direction::Forward => self.scan_keys(keys, now_ms, budget_rows, visit),
            Direction::Backward => self.scan_keys(keys.rev(), now_ms, budget_rows, visit),
        }
    }

    fn scan_keys<'a>(
        &'a self,
        keys: impl Iterator<Item = &'a EntryKey>,
        now_ms: u64,
        budget_rows: u32,
        visit: &mut dyn FnMut(&Entry<'a>) -> ControlFlow<()>,
    ) -> ScanEnd<'a> {
        let mut passed = None;
        for (rows, key) in keys.enumerate() {
            if rows >= budget_rows as usize
                && let Some(passed) = passed
            {
                return ScanEnd::BudgetSpent(passed);
            }
            passed = Some(key.bytes());
            let entry = self.entry_of(key);
            if !entry.is_expired(now_ms) && visit(&entry).is_break() {
                return ScanEnd::Stopped;
            }
        }
        ScanEnd::Complete
    }

    /// Counts the live entries of a range, walking at most `budget_rows` entries (less where their
    /// expiry must be looked up). All entries of a database in which nothing has expired are
    /// counted at once.
    pub(crate) fn count(&self, range: &Range<'_>, now_ms: u64, budget_rows: u32) -> CountSlice<'_> {
        if range.is_empty() {
            return CountSlice {
                count: 0,
                passed: None,
            };
        }
        if !self.is_ordered() {
            return CountSlice {
                count: self.count_unordered(range, now_ms),
                passed: None,
            };
        }
        // While nothing has expired there is nothing to look up.
        let all_live = self
            .expiring
            .first()
            .is_none_or(|&(expires_ms, _)| !is_expired(expires_ms, now_ms));
        if all_live && *range == Range::ALL {
            return CountSlice {
                count: self.entries as u64,
                passed: None,
            };
        }
        let cost = if all_live { 1 } else { COUNT_ROWS_PER_LOOKUP };
        let (mut count, mut spent, mut passed) = (0, 0u32, None);
        for key in self.ordered.range::<[u8]>((range.start, range.end)) {
            if spent >= budget_rows && passed.is_some() {
                return CountSlice { count, passed };
            }
            spent = spent.saturating_add(cost);
            passed = Some(key.bytes());
            count += u64::from(all_live || !self.entry_of(key).is_expired(now_ms));
        }
        CountSlice {
            count,
            passed: None,
        }
    }

    /// Visits the keys that have expired, those that expired first at first.
    pub(crate) fn expired(&self, now_ms: u64) -> impl Iterator<Item = &[u8]> {
        self.expired_after(now_ms, None).map(|(_, key)| key)
    }

    /// The same, with their expiries, beginning behind the entry `passed`.
    pub(crate) fn expired_after(
        &self,
        now_ms: u64,
        passed: Option<&PassedExpiry>,
    ) -> impl Iterator<Item = (u64, &[u8])> {
        let start = match passed {
            Some((expires_ms, key)) => Bound::Excluded((*expires_ms, EntryKey::new(key))),
            None => Bound::Unbounded,
        };
        self.expiring
            .range((start.as_ref(), Bound::Unbounded))
            .take_while(move |(expires_ms, _)| is_expired(*expires_ms, now_ms))
            .map(|(expires_ms, key)| (*expires_ms, key.bytes()))
    }

    /// When the next entry expires that has not expired yet.
    pub(crate) fn next_expiry_ms(&self, now_ms: u64) -> Option<u64> {
        let first = (now_ms.checked_add(1)?, EntryKey::new(b""));
        let (expires_ms, _) = (self.expiring)
            .range((Bound::Included(&first), Bound::Unbounded))
            .next()?;
        Some(*expires_ms)
    }

    fn entry_of(&self, key: &EntryKey) -> Entry<'_> {
        let hash = self.hasher.hash(key.bytes());
        self.find(key.bytes(), hash)
            .expect("every key of the ordered index is in a table")
    }
}
