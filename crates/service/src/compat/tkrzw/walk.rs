//! A walk over the keys of a database, cut into steps that each have a view of their own.

use std::ops::{Bound, ControlFlow};

use store::tree::{NotFetched, PageRequest, ReadPlan};
use store::{DatabaseId, Direction, Entry, Range, ReadView, ScanEnd};

use crate::actions::DatabaseAccess;
use crate::limits::{SCAN_PAGE_BYTES, SCAN_PAGE_ROWS};

/// What is still to be walked.
#[derive(Clone, Debug)]
pub(super) struct Walk {
    pub(super) database: DatabaseId,
    start: Bound<Vec<u8>>,
    end: Bound<Vec<u8>>,
    direction: Direction,
    keys_only: bool,
    /// Entries that a step looks at, at most.
    entries: u64,
    /// The keys of the database are in the order of their hashes: the range stays as it is.
    pub(super) is_by_hash: bool,
    /// With that, the key that the walk has passed.
    passed: Option<Vec<u8>>,
}

/// How a step of a walk has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WalkEnd {
    /// There is nothing more.
    Complete,
    /// Whoever looks has seen enough.
    Stopped,
    /// There may be more: another step is needed.
    Paused,
}

impl Walk {
    /// Begins a walk over a range.
    pub(super) fn new(database: DatabaseId, range: &Range<'_>, direction: Direction) -> Walk {
        Walk {
            database,
            start: range.start.map(<[u8]>::to_vec),
            end: range.end.map(<[u8]>::to_vec),
            direction,
            keys_only: false,
            entries: u64::MAX,
            is_by_hash: false,
            passed: None,
        }
    }

    /// The same in a database whose keys may be in the order of their hashes.
    pub(super) fn by_hash(self, is_by_hash: bool) -> Walk {
        Walk { is_by_hash, ..self }
    }

    /// The same behind a key, for a database whose keys are in the order of their hashes.
    pub(super) fn behind(self, passed: Option<&[u8]>) -> Walk {
        let passed = passed.map(<[u8]>::to_vec);
        Walk { passed, ..self }
    }

    /// The same without values.
    pub(super) fn keys_only(self) -> Walk {
        Walk {
            keys_only: true,
            ..self
        }
    }

    /// The same, of which a step looks at so many entries at most.
    pub(super) fn of_entries(self, entries: u64) -> Walk {
        Walk { entries, ..self }
    }

    fn range(&self) -> Range<'_> {
        fn borrowed(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
            bound.as_ref().map(Vec::as_slice)
        }
        Range {
            start: borrowed(&self.start),
            end: borrowed(&self.end),
        }
    }

    /// Says what the next step will look at.
    pub(super) fn plan_reads(&self, plan: &mut ReadPlan) {
        let page = PageRequest {
            direction: self.direction,
            keys_only: self.keys_only,
            rows: SCAN_PAGE_ROWS,
            entries: self.entries,
            bytes: SCAN_PAGE_BYTES,
        };
        plan.page_behind(&self.range(), self.passed.as_deref(), page);
    }

    /// Asks for a view for the next step.
    pub(super) fn ask(&self, actions: &mut impl DatabaseAccess) {
        actions.read_long(self.database);
    }

    /// Takes a step: `visit` is shown entries until it has seen enough.
    ///
    /// # Errors
    /// If this was not planned.
    pub(super) fn step<'v>(
        &mut self,
        view: &'v ReadView<'_>,
        now_ms: u64,
        visit: &mut dyn FnMut(&Entry<'v>) -> ControlFlow<()>,
    ) -> Result<WalkEnd, NotFetched> {
        let (mut passed, mut seen) = (None, 0);
        let entries = self.entries;
        let end = view.scan(
            &self.range(),
            self.direction,
            now_ms,
            SCAN_PAGE_ROWS,
            &mut |entry| {
                passed = Some(entry.key);
                seen += 1;
                match visit(entry).is_break() || seen == entries {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            },
        )?;
        let walked = match end {
            ScanEnd::Complete => WalkEnd::Complete,
            ScanEnd::Stopped => WalkEnd::Stopped,
            ScanEnd::BudgetSpent(key) => {
                passed = Some(key);
                WalkEnd::Paused
            }
        };
        if let Some(key) = passed {
            self.pass(key);
        }
        Ok(walked)
    }

    fn pass(&mut self, key: &[u8]) {
        if self.is_by_hash {
            let passed = self.passed.get_or_insert_default();
            passed.clear();
            passed.extend_from_slice(key);
            return;
        }
        let bound = match self.direction {
            Direction::Forward => &mut self.start,
            Direction::Backward => &mut self.end,
        };
        match bound {
            // The room of the last key is used again.
            Bound::Excluded(passed) => {
                passed.clear();
                passed.extend_from_slice(key);
            }
            _ => *bound = Bound::Excluded(key.to_vec()),
        }
    }
}
