//! The bounds on memory.

use crate::database::DatabaseLimits;
use crate::outcome::Refusal;
use crate::store::Store;

/// Memory in use when a commit is decided.
pub(crate) struct MemoryUse {
    pub(crate) database_bytes: u64,
    pub(crate) store_bytes: u64,
}

impl MemoryUse {
    /// Refuses effects that grow the memory in use beyond a limit. What shrinks it, or leaves it,
    /// always goes.
    pub(crate) fn check_growth(
        &self,
        growth_bytes: i64,
        limits: &DatabaseLimits,
        store: &Store,
    ) -> Result<(), Refusal> {
        let Ok(added_bytes @ 1..) = u64::try_from(growth_bytes) else {
            return Ok(());
        };
        let (used_bytes, limit_bytes) = (self.database_bytes, limits.memory_bytes);
        if used_bytes.saturating_add(added_bytes) > limit_bytes {
            return Err(Refusal::DatabaseFull {
                limit_bytes,
                used_bytes,
                added_bytes,
            });
        }
        let (used_bytes, limit_bytes) = (self.store_bytes, store.memory_limit_bytes());
        if used_bytes.saturating_add(added_bytes) > limit_bytes {
            store.count_memory_refusal();
            return Err(Refusal::StoreFull {
                limit_bytes,
                used_bytes,
                added_bytes,
            });
        }
        Ok(())
    }

    /// Refuses effects that grow a database in memory while the process takes more than it may. One
    /// on disk grows only until its memtables are flushed, which are large and come in one piece.
    pub(crate) fn check_process(&self, growth_bytes: i64, store: &Store) -> Result<(), Refusal> {
        match store.excessive_process_bytes() {
            Some(process_bytes) if growth_bytes > 0 => {
                store.count_memory_refusal();
                Err(Refusal::ProcessFull {
                    process_bytes,
                    used_bytes: self.store_bytes,
                    limit_bytes: store.memory_limit_bytes(),
                })
            }
            _ => Ok(()),
        }
    }
}
