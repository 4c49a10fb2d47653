//! Which commits views of a tree show, and what the oldest one needs.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// The last commit that views show, and the views that there are.
#[derive(Default)]
pub(super) struct VisibleViews {
    last: AtomicU64,
    /// How many views there are of each sequence.
    views: Mutex<BTreeMap<u64, usize>>,
}

impl VisibleViews {
    /// Returns the last commit that views show.
    pub(super) fn last(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }

    /// Has views show this commit, from now on.
    pub(super) fn show(&self, sequence: u64) {
        self.last.fetch_max(sequence, Ordering::AcqRel);
    }

    /// Notes a view of what is visible now; returns the last commit that it shows.
    pub(super) fn enter(&self) -> u64 {
        let mut views = self.views.lock();
        // Under the lock, so that the watermark is never above a view.
        let sequence = self.last();
        *views.entry(sequence).or_default() += 1;
        sequence
    }

    /// Forgets a view.
    pub(super) fn leave(&self, sequence: u64) {
        let mut views = self.views.lock();
        if let Some(count) = views.get_mut(&sequence) {
            *count -= 1;
            if *count == 0 {
                views.remove(&sequence);
            }
        }
    }

    /// Returns the last commit that the oldest view shows: nobody reads what was before it.
    pub(super) fn oldest(&self) -> u64 {
        let views = self.views.lock();
        let oldest = views.keys().next().copied();
        oldest.unwrap_or_else(|| self.last())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_view_counts_as_long_as_there_is_one_of_its_commit() {
        let visible = VisibleViews::default();
        for round in [0, 10] {
            visible.show(round + 1);
            let first = [visible.enter(), visible.enter()];
            assert_eq!(first, [round + 1; 2]);
            visible.show(round + 5);
            visible.show(round + 3);
            assert_eq!((visible.last(), visible.enter()), (round + 5, round + 5));
            visible.leave(round + 1);
            assert_eq!(visible.oldest(), round + 1);
            visible.leave(round + 1);
            assert_eq!(visible.oldest(), round + 5);
            visible.leave(round + 5);
            assert_eq!(
                visible.oldest(),
                round + 5,
                "without a view: the last commit"
            );
        }
    }
}
