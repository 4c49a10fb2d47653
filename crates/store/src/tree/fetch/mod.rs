//! Reads of a tree that are done ahead of the step that needs them, on a thread that may wait for
//! the device.
//!
//! A loop gathers the [`ReadPlan`] of its calls and makes a [`Fetch`] of them; somebody else runs
//! it; the loop shows each call what was [`Fetched`] for it. All of this owns its bytes and holds
//! no lock.

mod cached;
mod elsewhere;
mod fetched;
mod plan;

#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::{ControlFlow, Range as IndexRange};
use std::sync::Arc;

pub(crate) use elsewhere::FromElsewhere;
pub use fetched::{Fetched, FetchedCall, NotFetched, ReadFailure};
pub(crate) use fetched::{FetchedEntry, FetchedView};
use fetched::{PageEnd, Prefetched};
pub(crate) use plan::PlannedRequest;
use plan::{PageRequest as Page, PlannedRead};
pub use plan::{PageRequest, ReadPlan};

use super::error::TreeError;
use super::index::TreeIndex;
use super::limits;
use super::view::TreeView;
use crate::range::Range;
use crate::value::is_expired;

/// Reads of one tree for several calls.
pub struct Fetch {
    tree: TreeIndex,
    plan: Arc<ReadPlan>,
    /// The first call for which nothing was prefetched yet.
    next: usize,
}

impl Fetch {
    /// Begins to read what these calls plan. They are taken out of the plan.
    pub fn new(tree: TreeIndex, plan: &mut ReadPlan) -> Fetch {
        Fetch {
            tree,
            plan: Arc::new(std::mem::take(plan)),
            next: 0,
        }
    }

    /// Returns the planned reads.
    pub fn plan(&self) -> &ReadPlan {
        &self.plan
    }

    /// Whether something was prefetched for each call.
    pub fn is_done(&self) -> bool {
        self.next == self.plan.len()
    }

    /// Reads for the next calls, all from one view: at least for one call, and for no further one
    /// when what was prefetched has more than [`FETCHED_BYTES`](limits::FETCHED_BYTES), or would
    /// need more than `most_bytes`. May wait for the device. The history is that of the view's
    /// sequence.
    ///
    /// # Errors
    /// If already the first call needs more than `most_bytes`: then nothing was prefetched.
    pub(crate) fn run_in(
        &mut self,
        history_id: u64,
        clock_ms: impl FnOnce() -> u64,
        most_bytes: usize,
    ) -> Result<Fetched, NeedsBytes> {
        let view = self.tree.view();
        // Behind the view, so that what had expired when one of its commits was decided does not
        // come back.
        let now_ms = clock_ms();
        let mut run = Run {
            plan: &self.plan,
            view: &view,
            now_ms,
            has_large: view.has_large_blocks(),
            most_bytes,
            entries: Vec::with_capacity(self.plan.key_count()),
            bytes: 0,
        };
        let first = self.next;
        let mut calls = Vec::with_capacity(self.plan.len() - first);
        while self.next < self.plan.len() {
            match run.call(&self.plan.calls[self.next].read) {
                Ok(prefetched) => calls.push(prefetched),
                Err(needs) if calls.is_empty() => return Err(needs),
                // It is the first one of the next run.
                Err(_) => break,
            }
            self.next += 1;
            if run.bytes > limits::FETCHED_BYTES {
                break;
            }
        }
        Ok(Fetched {
            entries: run.entries,
            bytes: run.bytes,
            plan: Arc::clone(&self.plan),
            sequence: view.sequence(),
            history_id,
            first,
            calls,
        })
    }
}

/// A call needs more bytes than its fetch may prefetch: at least so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeedsBytes(pub usize);

/// Why nothing is prefetched for a call.
enum PrefetchError {
    Needs(NeedsBytes),
    Failed(TreeError),
}

impl From<TreeError> for PrefetchError {
    fn from(error: TreeError) -> PrefetchError {
        PrefetchError::Failed(error)
    }
}

impl fmt::Debug for Fetch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Fetch")
            .field("tree", &self.tree)
            .field("calls", &self.plan.len())
            .field("next", &self.next)
            .finish()
    }
}

/// A fetch at work.
struct Run<'a> {
    plan: &'a ReadPlan,
    view: &'a TreeView,
    now_ms: u64,
    /// Some table has blocks that are charged before they are read.
    has_large: bool,
    /// What may be prefetched.
    most_bytes: usize,
    /// `None`: there is no entry of that key.
    entries: Vec<Option<FetchedEntry>>,
    bytes: usize,
}

impl Run<'_> {
    fn call(&mut self, read: &PlannedRead) -> Result<Prefetched, NeedsBytes> {
        let (first, bytes) = (self.entries.len(), self.bytes);
        let prefetched = match read {
            PlannedRead::Nothing => Ok(Prefetched::Nothing),
            PlannedRead::Keys { keys, value_bytes } => self.keys(keys.clone(), *value_bytes),
            PlannedRead::Page { range, page, .. } => self.page(&self.plan.range(range), page),
            PlannedRead::Count {
                range,
                rows,
                may_estimate,
            } => self.count(&self.plan.range(range), *rows, *may_estimate),
        };
        prefetched.or_else(|why| {
            self.entries.truncate(first);
            self.bytes = bytes;
            match why {
                PrefetchError::Needs(needs) => Err(needs),
                PrefetchError::Failed(why) => Ok(Prefetched::Failed(Arc::new(why))),
            }
        })
    }

    /// Looks whether so much more may be read.
    fn admit(&self, read_bytes: usize) -> Result<(), PrefetchError> {
        let needed_bytes = self.bytes.saturating_add(read_bytes);
        match needed_bytes <= self.most_bytes {
            true => Ok(()),
            false => Err(PrefetchError::Needs(NeedsBytes(needed_bytes))),
        }
    }

    /// The same for a walk over a range: each source holds a block at a time.
    fn admit_walk(&self, range: &Range<'_>) -> Result<(), PrefetchError> {
        if !self.has_large {
            return Ok(());
        }
        match self.view.walk_block_bytes(range) {
            0 => Ok(()),
            block_bytes => self.admit(limits::WALK_BYTES.saturating_add(block_bytes)),
        }
    }

    /// Returns what reads of these keys take as far as their blocks are large, up to the one with
    /// which they come to more than `value_bytes`.
    fn needed_bytes(&self, keys: IndexRange<usize>, value_bytes: usize) -> usize {
        let mut needed_bytes = 0;
        for place in keys {
            needed_bytes += self.view.read_bytes(self.plan.key_at(place));
            if needed_bytes > value_bytes {
                break;
            }
        }
        needed_bytes
    }

    fn keys(
        &mut self,
        keys: IndexRange<usize>,
        value_bytes: usize,
    ) -> Result<Prefetched, PrefetchError> {
        if self.has_large {
            self.admit(self.needed_bytes(keys.clone(), value_bytes))?;
        }
        let first = self.entries.len();
        let mut left = Some(value_bytes);
        for place in keys.clone() {
            // Beyond its bytes the call does not look.
            let Some(bytes_left) = left else { break };
            let found = self.view.fetch(self.plan.key_at(place))?;
            let bytes = found.as_ref().map_or(0, FetchedEntry::bytes);
            self.bytes += bytes;
            left = bytes_left.checked_sub(bytes);
            self.entries.push(found);
            // Many of them: what is prefetched beyond the claim is one value below a large one.
            self.admit(0)?;
        }
        Ok(Prefetched::Keys {
            first_key: keys.start,
            entries: first..self.entries.len(),
        })
    }

    fn page(&mut self, range: &Range<'_>, page: &Page) -> Result<Prefetched, PrefetchError> {
        self.admit_walk(range)?;
        let first = self.entries.len();
        let first_bytes = self.bytes;
        let (entries, bytes, now_ms) = (&mut self.entries, &mut self.bytes, self.now_ms);
        let mut last_walked = None;
        let (mut is_cut, mut expired_bytes) = (false, 0);
        let walked = self
            .view
            .walk(range, page.direction, page.rows, &mut |key, stored| {
                let entry = FetchedEntry::of(self.view, key, stored, page)?;
                if !is_expired(entry.expires_ms, now_ms) {
                    let more = key.len() + entry.bytes();
                    let has_some = entries.len() > first;
                    if has_some && *bytes - first_bytes + more > page.bytes {
                        is_cut = true;
                        return Ok(ControlFlow::Break(()));
                    }
                    *bytes += more;
                    entries.push(Some(entry));
                } else {
                    expired_bytes += key.len() + stored.len();
                }
                last_walked = Some(key.clone());
                is_cut = (entries.len() - first) as u64 >= page.entries;
                Ok(if is_cut {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                })
            });
        // They are kept without what is beside them, where that may be much more.
        if self.has_large || expired_bytes > limits::LARGE_BLOCK_BYTES {
            self.entries[first..]
                .iter_mut()
                .flatten()
                .for_each(FetchedEntry::detach);
        }
        let end = match (walked, last_walked) {
            (Err(why), None) => return Err(why.into()),
            // What was walked before the damage is whole; the next page begins with the damage.
            (Err(_), Some(key)) => PageEnd::Passed(key),
            (Ok(_), Some(key)) if is_cut => PageEnd::Passed(key),
            (Ok(Some(key)), _) => PageEnd::Passed(key),
            (Ok(None), _) => PageEnd::Complete,
        };
        Ok(Prefetched::Page {
            entries: first..self.entries.len(),
            end,
        })
    }

    fn count(
        &mut self,
        range: &Range<'_>,
        rows: u32,
        may_estimate: bool,
    ) -> Result<Prefetched, PrefetchError> {
        self.admit_walk(range)?;
        let (counted, walked_rows) = self.view.count_rows(range, self.now_ms, rows)?;
        // Where a step ended earlier, among removed entries, there may be few others: an estimate
        // would be poor.
        let is_estimate = may_estimate && counted.passed.is_some() && walked_rows >= rows.max(1);
        Ok(if is_estimate {
            Prefetched::Count {
                count: self.view.estimate(range).max(counted.count),
                passed: None,
                is_estimate,
            }
        } else {
            Prefetched::Count {
                count: counted.count,
                passed: counted.passed.map(Into::into),
                is_estimate,
            }
        })
    }
}
