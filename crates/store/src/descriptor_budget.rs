//! A number of file descriptors that are given out by permits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A number of descriptors of which permits are given out. Clones are the same budget.
#[derive(Clone, Debug)]
pub struct DescriptorBudget {
    limit: usize,
    used: Arc<AtomicUsize>,
}

/// One descriptor of a budget, until it is dropped.
#[derive(Debug)]
pub struct DescriptorPermit(Arc<AtomicUsize>);

impl DescriptorBudget {
    /// A budget with so many.
    pub fn new(limit: usize) -> DescriptorBudget {
        DescriptorBudget {
            limit,
            used: Arc::default(),
        }
    }

    /// Returns how many there are.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Returns how many are given out.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Acquires one; `None`: all are given out.
    pub fn acquire(&self) -> Option<DescriptorPermit> {
        let more = |used| (used < self.limit).then_some(used + 1);
        // Relaxed: the number guards nothing.
        let taken = (self.used).fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.ok().map(|_| DescriptorPermit(Arc::clone(&self.used)))
    }
}

impl Drop for DescriptorPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_are_given_back_when_they_are_dropped() {
        let budget = DescriptorBudget::new(2);
        for _ in 0..2 {
            let permits = [budget.acquire(), budget.clone().acquire()];
            assert!(permits.iter().all(Option::is_some));
            assert!(budget.acquire().is_none());
            assert_eq!(budget.used(), 2);
            drop(permits);
            assert_eq!(budget.used(), 0);
        }
    }
}
