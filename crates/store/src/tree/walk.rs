//! Walks over a range of a tree. A walk has a bound for each thing that can take long: entries that
//! it visits, entries that it passes over (removed, overwritten, or newer than its view), and bytes
//! that it reads. Where one is used up, it ends between two keys, and the next one goes on behind.
//!
//! The engine's own iterator passes over removed entries within one call, so the memtables and
//! tables are merged here. The tables are those of now, which have dropped what was overwritten or
//! removed before: of that a view needs nothing as long as no table has anything later than the
//! view. Where one may have, since a memtable was sealed after the view began, the engine walks
//! through the tables of the view, and what it passes over is not bounded.

use std::iter;
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::Ordering;

use lsm_tree::{AbstractTree, Guard, InternalValue, Slice, Tree, ValueType};

use super::error::TreeError;
use super::key::{given, stored_range};
use super::limits;
use super::merge::{Ends, EntrySource, Merge, memtable_source, table_source};
use super::numbers::reads_at;
use super::view::TreeView;
use crate::range::{Direction, Range};

/// Is shown a key and a value as they are stored.
pub(super) type Visit<'a> = dyn FnMut(&Slice, &Slice) -> Result<ControlFlow<()>, TreeError> + 'a;

/// What a view shows, in the order of a walk.
type VisibleEntries = Box<dyn Iterator<Item = lsm_tree::Result<InternalValue>>>;

/// What a walk may do.
#[derive(Clone, Copy, Debug)]
pub(super) struct WalkBounds {
    /// Entries that it visits.
    pub(super) rows: u32,
    /// Entries that it passes over.
    pub(super) passed_over: u32,
    /// Bytes of keys and values that it reads.
    pub(super) bytes: usize,
}

impl WalkBounds {
    /// The usual ones, with so many entries that are visited.
    pub(super) fn of_rows(rows: u32) -> WalkBounds {
        WalkBounds {
            rows: rows.max(1),
            passed_over: limits::WALK_PASSED_OVER,
            bytes: limits::WALK_BYTES,
        }
    }
}

/// How a walk ends: with the key that it has passed, or at the end of its range.
type WalkStop = Option<Slice>;

impl TreeView {
    /// Visits what is stored in a range, at most `budget_rows` entries, but at least one if there
    /// is any within the bounds of what is passed over and read. Returns the last key that was
    /// passed if a bound was reached before the end.
    pub(super) fn walk(
        &self,
        range: &Range<'_>,
        direction: Direction,
        budget_rows: u32,
        visit: &mut Visit<'_>,
    ) -> Result<WalkStop, TreeError> {
        self.walk_within(range, direction, WalkBounds::of_rows(budget_rows), visit)
    }

    /// The same forward, whatever it reads: a sweeper rests between two walks, and would be slow if
    /// each ended behind a few large values.
    pub(super) fn walk_to_sweep(
        &self,
        range: &Range<'_>,
        budget_rows: u32,
        visit: &mut Visit<'_>,
    ) -> Result<WalkStop, TreeError> {
        let bounds = WalkBounds {
            bytes: usize::MAX,
            ..WalkBounds::of_rows(budget_rows)
        };
        self.walk_within(range, Direction::Forward, bounds, visit)
    }

    /// What the view shows of a range, from the engine.
    fn engine_entries(&self, ends: Ends, direction: Direction) -> VisibleEntries {
        let Some(tree) = self.engine() else {
            return Box::new(iter::empty());
        };
        let number = reads_at(self.sequence());
        let beside_engine = self.beside_engine().map(|memtable| (memtable, number));
        let entries = tree.range(ends, number, beside_engine);
        let entries = entries.map(|entry| {
            let (key, value) = entry.into_inner()?;
            Ok(InternalValue::from_components(
                key,
                value,
                0,
                ValueType::Value,
            ))
        });
        match direction {
            Direction::Forward => Box::new(entries),
            Direction::Backward => Box::new(entries.rev()),
        }
    }

    /// The same within other bounds.
    pub(super) fn walk_within(
        &self,
        range: &Range<'_>,
        direction: Direction,
        bounds: WalkBounds,
        visit: &mut Visit<'_>,
    ) -> Result<WalkStop, TreeError> {
        if range.is_empty() {
            return Ok(None);
        }
        let shared = self.shared();
        let ends = stored_ends(range);
        let mut walk = TreeWalk {
            view: self,
            number: reads_at(self.sequence()),
            visit,
            left: bounds,
            passed: None,
        };
        let memtables = match self.engine() {
            Some(_) => shared.memtables.read().in_memory(),
            None => self.beside_engine().into_iter().collect(),
        };
        // Later: so what is flushed meanwhile is in one of them, or in both.
        let version = self.engine().map(Tree::current_version);
        let sealed_through = shared.sealed_through.load(Ordering::Acquire);
        let ended = if version.is_some() && sealed_through > self.sequence() {
            walk.forward(self.engine_entries(ends, direction))
        } else {
            let in_memory = memtables.iter();
            let mut sources: Vec<EntrySource<'_>> = in_memory
                .map(|memtable| memtable_source(memtable, &ends, direction))
                .collect();
            let levels = version.iter().flat_map(|version| version.iter_levels());
            for run in levels.flat_map(|level| level.iter()) {
                if let Some((first, last)) = run.range_overlap_indexes(&ends) {
                    sources.push(table_source(&run[first..=last], ends.clone(), direction));
                }
            }
            let merged = Merge::new(sources, direction);
            match direction {
                Direction::Forward => walk.forward(merged),
                Direction::Backward => walk.backward(merged),
            }
        };
        // Without the block that the key is a part of.
        ended.map(|passed| passed.map(|key| Slice::new(&key)))
    }
}

/// The ends of a range. What lies behind a key begins with the next one that there can be: a table
/// would read the block of the first one too, which may be large.
pub(super) fn stored_ends(range: &Range<'_>) -> Ends {
    let (start, end) = stored_range(range);
    let start = match start {
        Bound::Excluded(key) if key.len() <= limits::KEY_BYTES => {
            Bound::Included(Slice::from([&key[..], &[0]].concat()))
        }
        start => start.map(|key| Slice::new(&key)),
    };
    (start, end.map(|key| Slice::new(&key)))
}

/// A walk under way.
struct TreeWalk<'w, 'v> {
    view: &'w TreeView,
    /// It sees what has a lower number.
    number: u64,
    visit: &'w mut Visit<'v>,
    left: WalkBounds,
    /// The last key of which everything was seen.
    passed: Option<Slice>,
}

impl TreeWalk<'_, '_> {
    /// The newest version of a key comes first.
    fn forward(
        &mut self,
        entries: impl Iterator<Item = lsm_tree::Result<InternalValue>>,
    ) -> Result<WalkStop, TreeError> {
        for entry in entries {
            let entry = entry.map_err(|error| self.view.shared().error(error))?;
            let is_older = (self.passed.as_ref()).is_some_and(|key| *key == entry.key.user_key);
            if is_older || entry.key.seqno >= self.number {
                self.pass_over(&entry);
            } else if let ControlFlow::Break(ended) = self.settle(entry)? {
                return Ok(ended);
            }
            if self.is_spent() && self.passed.is_some() {
                return Ok(self.passed.take());
            }
        }
        Ok(None)
    }

    /// The newest version of a key comes last.
    fn backward(
        &mut self,
        entries: impl Iterator<Item = lsm_tree::Result<InternalValue>>,
    ) -> Result<WalkStop, TreeError> {
        let mut newest: Option<InternalValue> = None;
        for entry in entries {
            let entry = entry.map_err(|error| self.view.shared().error(error))?;
            if let Some(whole) = newest.take_if(|newest| newest.key.user_key != entry.key.user_key)
                && let ControlFlow::Break(ended) = self.settle(whole)?
            {
                return Ok(ended);
            }
            if self.is_spent() && self.passed.is_some() {
                return Ok(self.passed.take());
            }
            if entry.key.seqno >= self.number {
                self.pass_over(&entry);
                continue;
            }
            if let Some(older) = newest.replace(entry) {
                self.pass_over(&older);
            }
            if self.is_spent()
                && self.passed.is_none()
                && let Some(key) = newest.take().map(|newest| newest.key.user_key)
            {
                return self.cut_short(key);
            }
        }
        match newest.map(|last| self.settle(last)).transpose()? {
            Some(ControlFlow::Break(ended)) => Ok(ended),
            _ => Ok(None),
        }
    }

    /// Ends a walk backward among the versions of a key: the newest is looked up.
    fn cut_short(&mut self, key: Slice) -> Result<WalkStop, TreeError> {
        if let Some(stored) = self.view.stored(given(&key))?
            && (self.visit)(&key, &stored)?.is_break()
        {
            return Ok(None);
        }
        Ok(Some(key))
    }

    /// Takes up the version of a key that the view sees. Breaks where the walk ends.
    fn settle(&mut self, entry: InternalValue) -> Result<ControlFlow<WalkStop>, TreeError> {
        if entry.is_tombstone() {
            self.pass_over(&entry);
            self.passed = Some(entry.key.user_key);
            return Ok(ControlFlow::Continue(()));
        }
        if self.left.rows == 0 {
            return Ok(ControlFlow::Break(self.passed.take()));
        }
        self.left.rows -= 1;
        self.read(&entry);
        if (self.visit)(&entry.key.user_key, &entry.value)?.is_break() {
            return Ok(ControlFlow::Break(None));
        }
        self.passed = Some(entry.key.user_key);
        Ok(ControlFlow::Continue(()))
    }

    fn pass_over(&mut self, entry: &InternalValue) {
        self.left.passed_over = self.left.passed_over.saturating_sub(1);
        self.read(entry);
    }

    fn read(&mut self, entry: &InternalValue) {
        let bytes = entry.key.user_key.len() + entry.value.len();
        self.left.bytes = self.left.bytes.saturating_sub(bytes);
    }

    /// Whether it has passed over, or read, as much as it may.
    fn is_spent(&self) -> bool {
        self.left.passed_over == 0 || self.left.bytes == 0
    }
}
