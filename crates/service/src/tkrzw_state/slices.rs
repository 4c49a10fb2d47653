//! How many slices of large requests are with the committer: it takes commits in the order in which
//! they come, so a small write would wait for a slice of each large request that there is.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::limits::TKRZW_SLICES_UNDER_WAY;

/// The places of slices.
#[derive(Clone, Debug, Default)]
pub(crate) struct SlicePlaces(Arc<AtomicUsize>);

/// The place of one slice; free again when dropped.
#[derive(Debug)]
pub(crate) struct SlicePlace(Arc<AtomicUsize>);

impl SlicePlaces {
    /// Takes a place; `None`: all are taken.
    pub(crate) fn take(&self) -> Option<SlicePlace> {
        let taken = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
                (taken < TKRZW_SLICES_UNDER_WAY).then_some(taken + 1)
            });
        taken.ok().map(|_| SlicePlace(Arc::clone(&self.0)))
    }

    /// Returns how many are taken.
    #[cfg(test)]
    pub(crate) fn taken(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for SlicePlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded_and_free_again_when_dropped() {
        let places = SlicePlaces::default();
        for _ in 0..2 {
            let taken: Vec<_> = std::iter::from_fn(|| places.take()).collect();
            assert_eq!(taken.len(), TKRZW_SLICES_UNDER_WAY);
            assert!(places.take().is_none());
            drop(taken);
            assert_eq!(places.taken(), 0);
        }
    }
}
