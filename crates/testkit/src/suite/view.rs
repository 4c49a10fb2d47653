//! What readers see of a database of either kind, with one face.

use std::ops::ControlFlow;

use store::tree::TreeView;
use store::{DatabaseId, Direction, Entry, Range, ScanEnd, Store, View};

/// A view of a database, in memory or on disk. A read that fails is a failed test.
#[allow(clippy::large_enum_variant, reason = "there is one at a time")]
pub enum SuiteView<'a> {
    /// In memory.
    Memory(View<'a>),
    /// On disk.
    Tree(TreeView),
}

impl<'a> SuiteView<'a> {
    /// The view of a database, whose keys are in order; `None`: there is no such database.
    pub fn of(store: &'a Store, id: DatabaseId) -> Option<SuiteView<'a>> {
        store.order_keys(id, &mut || true);
        let tree = store.tree(id).map(|tree| SuiteView::Tree(tree.view()));
        tree.or_else(|| store.view(id).map(SuiteView::Memory))
    }

    /// The last commit that it shows.
    pub fn sequence(&self) -> u64 {
        match self {
            SuiteView::Memory(view) => view.sequence(),
            SuiteView::Tree(view) => view.sequence(),
        }
    }

    /// The entry of a key, unless it has expired.
    pub fn get<'b>(&'b self, key: &'b [u8], hash: u64, now_ms: u64) -> Option<Entry<'b>> {
        match self {
            SuiteView::Memory(view) => view.get(key, hash, now_ms),
            SuiteView::Tree(view) => view.get(key, now_ms).expect("the tree is whole"),
        }
    }

    /// Visits the live entries of a range in order.
    pub fn scan<'b>(
        &'b self,
        range: &Range<'_>,
        direction: Direction,
        now_ms: u64,
        budget_rows: u32,
        visit: &mut dyn FnMut(&Entry<'b>) -> ControlFlow<()>,
    ) -> ScanEnd<'b> {
        match self {
            SuiteView::Memory(view) => view.scan(range, direction, now_ms, budget_rows, visit),
            SuiteView::Tree(view) => view
                .scan(range, direction, now_ms, budget_rows, visit)
                .expect("the tree is whole"),
        }
    }

    /// Counts the live entries of a range.
    pub fn count(&self, range: &Range<'_>, now_ms: u64, budget_rows: u32) -> store::CountSlice<'_> {
        match self {
            SuiteView::Memory(view) => view.count(range, now_ms, budget_rows),
            SuiteView::Tree(view) => view
                .count(range, now_ms, budget_rows)
                .expect("the tree is whole"),
        }
    }

    /// The keys that have expired and are still there; in no order.
    pub fn expired(&self, now_ms: u64) -> Vec<Vec<u8>> {
        match self {
            SuiteView::Memory(view) => view.expired(now_ms).map(<[u8]>::to_vec).collect(),
            SuiteView::Tree(view) => {
                let mut keys = Vec::new();
                let walked = view.expired(&Range::ALL, now_ms, u32::MAX, &mut |key, _| {
                    keys.push(key.to_vec());
                });
                walked.expect("the tree is whole");
                keys
            }
        }
    }

    /// How many entries there are, with those that have expired.
    pub fn entries(&self) -> u64 {
        match self {
            SuiteView::Memory(view) => view.statistics().entries,
            // At time 0 nothing has expired.
            SuiteView::Tree(_) => self.count(&Range::ALL, 0, u32::MAX).count,
        }
    }

    /// The view of a database in memory.
    pub fn memory(&self) -> Option<&View<'a>> {
        match self {
            SuiteView::Memory(view) => Some(view),
            SuiteView::Tree(_) => None,
        }
    }
}
