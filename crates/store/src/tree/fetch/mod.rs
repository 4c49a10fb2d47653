//! Reads of a tree that are done ahead of the step that needs them, on a thread that may wait for
//! the device.
//!
//! A loop gathers the [`ReadPlan`] of its calls and makes a [`Fetch`] of them; somebody else runs
//! it; the loop shows each call what was [`Fetched`] for it. All of this owns its bytes and holds
//! no lock.

mod at_once;
mod fetched;
mod plan;

#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::{ControlFlow, Range as Place};
use std::sync::Arc;

use fetched::{Brought, End};
pub use fetched::{Fetched, FetchedCall, NotFetched};
pub(crate) use fetched::{FetchedEntry, FetchedView};
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
    /// The first call for which nothing was brought yet.
    next: usize,
}

impl Fetch {
    /// What these plan need. They are taken out.
    pub fn new(tree: TreeIndex, plan: &mut ReadPlan) -> Fetch {
        Fetch {
            tree,
            plan: Arc::new(std::mem::take(plan)),
            next: 0,
        }
    }

    /// What is wished.
    pub fn plan(&self) -> &ReadPlan {
        &self.plan
    }

    /// Whether something was brought for each call.
    pub fn is_done(&self) -> bool {
        self.next == self.plan.len()
    }

    /// Reads for the next calls, all from one view: at least for one call, and for no further one
    /// when what was brought has more than [`FETCHED_BYTES`](limits::FETCHED_BYTES). May wait for
    /// the device. The history is that of the view's sequence.
    pub(crate) fn run_in(&mut self, history_id: u64, clock_ms: impl FnOnce() -> u64) -> Fetched {
        let view = self.tree.view();
        // Behind the view, so that what had expired when one of its commits was decided does not
        // come back.
        let now_ms = clock_ms();
        let mut run = Run {
            plan: &self.plan,
            view: &view,
            now_ms,
            entries: Vec::with_capacity(self.plan.key_count()),
            bytes: 0,
        };
        let first = self.next;
        let mut calls = Vec::with_capacity(self.plan.len() - first);
        while self.next < self.plan.len() {
            calls.push(run.call(&self.plan.calls[self.next].wish));
            self.next += 1;
            if run.bytes > limits::FETCHED_BYTES {
                break;
            }
        }
        Fetched {
            entries: run.entries,
            bytes: run.bytes,
            plan: Arc::clone(&self.plan),
            sequence: view.sequence(),
            history_id,
            first,
            calls,
        }
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
    /// `None`: there is no entry of that key.
    entries: Vec<Option<FetchedEntry>>,
    bytes: usize,
}

impl Run<'_> {
    fn call(&mut self, wish: &PlannedRead) -> Brought {
        let first = self.entries.len();
        let brought = match wish {
            PlannedRead::Nothing => Ok(Brought::Nothing),
            PlannedRead::Keys { keys, value_bytes } => self.keys(keys.clone(), *value_bytes),
            PlannedRead::Page { range, page } => self.page(&self.plan.range(range), page),
            PlannedRead::Count {
                range,
                rows,
                may_estimate,
            } => self.count(&self.plan.range(range), *rows, *may_estimate),
        };
        brought.unwrap_or_else(|why| {
            self.entries.truncate(first);
            Brought::Failed(Arc::new(why))
        })
    }

    fn keys(&mut self, keys: Place<usize>, value_bytes: usize) -> Result<Brought, TreeError> {
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
        }
        Ok(Brought::Keys {
            first_key: keys.start,
            entries: first..self.entries.len(),
        })
    }

    fn page(&mut self, range: &Range<'_>, page: &Page) -> Result<Brought, TreeError> {
        let first = self.entries.len();
        let first_bytes = self.bytes;
        let (entries, bytes, now_ms) = (&mut self.entries, &mut self.bytes, self.now_ms);
        let mut last_walked = None;
        let mut is_cut = false;
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
                }
                last_walked = Some(key.clone());
                is_cut = (entries.len() - first) as u64 >= page.entries;
                Ok(if is_cut {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                })
            });
        let end = match (walked, last_walked) {
            (Err(why), None) => return Err(why),
            // What was walked before the damage is whole; the next page begins with the damage.
            (Err(_), Some(key)) => End::Passed(key),
            (Ok(_), Some(key)) if is_cut => End::Passed(key),
            (Ok(Some(key)), _) => End::Passed(key),
            (Ok(None), _) => End::Complete,
        };
        Ok(Brought::Page {
            entries: first..self.entries.len(),
            end,
        })
    }

    fn count(
        &mut self,
        range: &Range<'_>,
        rows: u32,
        may_estimate: bool,
    ) -> Result<Brought, TreeError> {
        let (counted, walked_rows) = self.view.count_rows(range, self.now_ms, rows)?;
        // Where a step ended earlier, among removed entries, there may be few others: an estimate
        // would be poor.
        let is_estimate = may_estimate && counted.passed.is_some() && walked_rows >= rows.max(1);
        Ok(if is_estimate {
            Brought::Count {
                count: self.view.estimate(range).max(counted.count),
                passed: None,
                is_estimate,
            }
        } else {
            Brought::Count {
                count: counted.count,
                passed: counted.passed.map(Into::into),
                is_estimate,
            }
        })
    }
}
