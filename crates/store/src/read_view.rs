//! The read view of one call: the index in memory itself, or what was prefetched for the call.

use std::ops::ControlFlow;

use crate::range::{Direction, Range, ScanEnd};
use crate::store::Store;
use crate::tree::{
    Fetch, Fetched, FetchedCall, FetchedView, NeedsBytes, NotFetched, ReadFailure, ReadPlan,
    TreeIndex,
};
use crate::value::Entry;
use crate::view::View;

/// One database between two commits, as one call is shown it. All that it answers comes from one
/// view.
///
/// Of a database on disk there is only what the call said beforehand that it would look at
/// ([`ReadPlan`](crate::tree::ReadPlan)); the rest is [`NotFetched`], which a database in memory
/// never answers.
pub struct ReadView<'a>(ViewSource<'a>);

enum ViewSource<'a> {
    Memory(&'a View<'a>),
    Fetched(FetchedView<'a>),
}

/// One part of a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted<'a> {
    /// Entries in the part of the range that was walked.
    pub count: u64,
    /// `None`: the range is counted to its end. Otherwise the count has passed this key; go on with
    /// [`Range::beyond`], forward.
    pub passed: Option<&'a [u8]>,
    /// Not all of it was walked.
    pub is_estimate: bool,
}

impl<'a> ReadView<'a> {
    /// The index in memory.
    #[inline]
    pub fn memory(view: &'a View<'a>) -> ReadView<'a> {
        ReadView(ViewSource::Memory(view))
    }

    /// What was fetched for a call.
    ///
    /// # Errors
    /// If it could not be, as the tree is damaged, or the device or an engine refused.
    pub fn fetched(call: &FetchedCall<'a>) -> Result<ReadView<'a>, ReadFailure<'a>> {
        Ok(ReadView(ViewSource::Fetched(call.view()?)))
    }

    /// The sequence of the last commit that this shows (0: none).
    pub fn sequence(&self) -> u64 {
        match &self.0 {
            ViewSource::Memory(view) => view.sequence(),
            ViewSource::Fetched(view) => view.sequence(),
        }
    }

    /// The history that the sequence belongs to ([`Store::history_id`](crate::Store::history_id)).
    pub fn history_id(&self) -> u64 {
        match &self.0 {
            ViewSource::Memory(view) => view.history_id(),
            ViewSource::Fetched(view) => view.history_id(),
        }
    }

    /// See [`View::get`].
    ///
    /// # Errors
    /// If the call had not planned this key.
    #[inline]
    pub fn get(&self, key: &[u8], hash: u64, now_ms: u64) -> Result<Option<Entry<'_>>, NotFetched> {
        match &self.0 {
            ViewSource::Memory(view) => Ok(view.get(key, hash, now_ms)),
            ViewSource::Fetched(view) => view.get(key, now_ms),
        }
    }

    /// See [`View::touch`]. A database on disk drops nothing.
    #[inline]
    pub fn touch(&self, hash: u64) {
        if let ViewSource::Memory(view) = &self.0 {
            view.touch(hash);
        }
    }

    /// See [`View::scan`]. Of a fetched page no more can be walked than was fetched.
    ///
    /// # Errors
    /// If the call had not planned this range in this direction.
    pub fn scan<'v>(
        &'v self,
        range: &Range<'_>,
        direction: Direction,
        now_ms: u64,
        budget_rows: u32,
        visit: &mut dyn FnMut(&Entry<'v>) -> ControlFlow<()>,
    ) -> Result<ScanEnd<'v>, NotFetched> {
        match &self.0 {
            ViewSource::Memory(view) => Ok(view.scan(range, direction, now_ms, budget_rows, visit)),
            ViewSource::Fetched(view) => view.scan(range, direction, now_ms, budget_rows, visit),
        }
    }

    /// See [`View::count`].
    ///
    /// # Errors
    /// If the call had not planned this range to be counted.
    pub fn count(
        &self,
        range: &Range<'_>,
        now_ms: u64,
        budget_rows: u32,
    ) -> Result<Counted<'_>, NotFetched> {
        let (count, passed, is_estimate) = match &self.0 {
            ViewSource::Memory(view) => {
                let slice = view.count(range, now_ms, budget_rows);
                (slice.count, slice.passed, false)
            }
            ViewSource::Fetched(view) => view.count(range)?,
        };
        Ok(Counted {
            count,
            passed,
            is_estimate,
        })
    }
}

impl Fetch {
    /// Reads for the next calls, all from one view: at least for one call, and for no further one
    /// when what was fetched has more than
    /// [`FETCHED_BYTES`](crate::tree::limits::FETCHED_BYTES), or would come to more than
    /// `most_bytes`, large blocks before they are read. May wait for the device.
    ///
    /// # Errors
    /// If already the next call needs more: then nothing was fetched.
    pub fn run(&mut self, store: &Store, most_bytes: usize) -> Result<Fetched, NeedsBytes> {
        self.run_in(store.history_id(), || store.clock_ms(0), most_bytes)
    }
}

impl Fetched {
    /// Takes out of a plan the reads of calls that look at single keys, all of which were read
    /// lately and have not changed since. `None`: there are none. Never waits for the device.
    pub fn from_cache(tree: &TreeIndex, plan: &mut ReadPlan, store: &Store) -> Option<Fetched> {
        Fetched::from_cache_in(tree, plan, store.history_id())
    }
}
