//! Memtables that are in tables and have left those that readers look into. They are to be freed
//! when the engine has forgotten them too.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lsm_tree::Memtable;
use parking_lot::Mutex;

/// See the module.
#[derive(Default)]
pub(super) struct LeavingMemtables {
    memtables: Mutex<Vec<Arc<Memtable>>>,
    /// Whether there are some: it is asked for more often than there are.
    has_some: AtomicBool,
    /// The number below which nobody read when it was last tried to free them.
    tried_below: AtomicU64,
}

impl LeavingMemtables {
    /// Adds some; returns whether there were such. They are not freed by that.
    pub(super) fn add(&self, gone: impl Iterator<Item = Arc<Memtable>>) -> bool {
        let mut memtables = self.memtables.lock();
        let had = memtables.len();
        memtables.extend(gone);
        self.has_some
            .store(!memtables.is_empty(), Ordering::Release);
        memtables.len() > had
    }

    /// Returns whether there are some.
    pub(super) fn has_some(&self) -> bool {
        self.has_some.load(Ordering::Acquire)
    }

    /// Notes that it is tried to free them, when nobody reads below this number any more.
    pub(super) fn note_try(&self, watermark: u64) {
        self.tried_below.store(watermark, Ordering::Release);
    }

    /// Returns whether some may be free that were not when it was tried last.
    pub(super) fn may_be_free(&self, watermark: impl FnOnce() -> u64) -> bool {
        self.has_some() && watermark() > self.tried_below.load(Ordering::Acquire)
    }

    /// Frees those that nobody else has any more, without the lock; returns whether there were
    /// such.
    pub(super) fn free(&self) -> bool {
        let is_free = |memtable: &mut Arc<Memtable>| Arc::strong_count(memtable) == 1;
        let mut memtables = self.memtables.lock();
        let free: Vec<_> = memtables.extract_if(.., is_free).collect();
        self.has_some
            .store(!memtables.is_empty(), Ordering::Release);
        drop(memtables);
        !free.is_empty()
    }

    /// Returns their bytes.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> u64 {
        let memtables = self.memtables.lock();
        memtables.iter().map(|memtable| memtable.size()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memtable_is_freed_when_nobody_else_has_it() {
        let leaving = LeavingMemtables::default();
        for round in 1..=2 {
            assert!(!leaving.has_some() && !leaving.add(std::iter::empty()));
            let memtables = [0, 1].map(|id| Arc::new(Memtable::new(id)));
            assert!(leaving.add(memtables.iter().cloned()));
            assert!(leaving.has_some() && !leaving.free(), "both are in use");
            let [first, second] = memtables;
            drop(first);
            assert!(leaving.free() && leaving.has_some(), "one is still in use");
            leaving.note_try(round);
            assert!(!leaving.may_be_free(|| round));
            assert!(leaving.may_be_free(|| round + 1));
            drop(second);
            assert!(leaving.free() && !leaving.has_some());
            assert!(!leaving.may_be_free(|| round + 1));
        }
    }
}
