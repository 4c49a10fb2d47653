//! What calls have taken of an account before it is charged.

use std::sync::atomic::{AtomicU64, Ordering};

/// The bytes that are claimed, below, and how many claims there ever were, above: who has looked at
/// what is charged before takes nothing if a claim has come and gone meanwhile, though the sum is
/// the same again. That a claim goes need not be counted: the sum is not the same again before
/// another one has come.
#[derive(Debug, Default)]
pub(super) struct ClaimedBytes(pub(super) AtomicU64);

impl ClaimedBytes {
    /// One claim. Above a TiB of bytes; it may overflow.
    const ONE: u64 = 1 << 40;

    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        ClaimedBytes::of(self.0.load(Ordering::Acquire))
    }

    fn of(packed: u64) -> usize {
        (packed % ClaimedBytes::ONE) as usize
    }

    /// Adds bytes if `may` says so of those that are claimed, and nothing has changed while it
    /// looked.
    pub fn add_if(&self, bytes: usize, may: impl Fn(usize) -> bool) -> bool {
        let add = |packed: u64| {
            let changed = packed.wrapping_add(ClaimedBytes::ONE + bytes as u64);
            may(ClaimedBytes::of(packed)).then_some(changed)
        };
        let added = (self.0).fetch_update(Ordering::AcqRel, Ordering::Acquire, add);
        added.is_ok()
    }

    pub fn add(&self, bytes: usize) {
        (self.0).fetch_add(ClaimedBytes::ONE + bytes as u64, Ordering::AcqRel);
    }

    pub fn subtract(&self, bytes: usize) {
        (self.0).fetch_sub(bytes as u64, Ordering::AcqRel);
    }
}
