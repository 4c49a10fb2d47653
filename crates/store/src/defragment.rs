//! Defragmentation of databases in memory: their entries are allocated anew, a slice at a time, so
//! that they lie together and the allocator can give back what was between them.
//!
//! Nothing changes for readers and writers but when they get the lock: a slice holds that of one
//! database for [`SLICE_NS`](limits::SLICE_NS), as a writer does. A pass that meets changes may
//! leave out some entries, or move some twice.

use parking_lot::RwLockWriteGuard;

use crate::clock::Clock;
use crate::database::Kind;
use crate::database_id::DatabaseId;
use crate::index::Index;
use crate::limits;
use crate::memory::{DefragmentCursor, DefragmentStep};
use crate::store::Store;

/// One pass through all databases in memory, from its beginning.
#[derive(Debug, Default)]
pub struct Defragmentation {
    /// The databases that are to be moved, the next one last; `None`: it has not begun.
    databases: Option<Vec<DatabaseId>>,
    cursor: DefragmentCursor,
}

impl Store {
    /// Moves entries of a database in memory for one slice. Returns whether the pass has more to
    /// do; then the lock is to be left to others for a while.
    ///
    /// The calling thread must hold no [`View`](crate::View).
    pub fn defragment(&self, pass: &mut Defragmentation, clock: &mut dyn Clock) -> bool {
        let databases =
            (pass.databases).get_or_insert_with(|| self.database_ids_from(DatabaseId::DEFAULT));
        while let Some(&id) = databases.last() {
            let database = self.find(id);
            let in_memory = database.filter(|database| database.config.kind == Kind::Memory);
            if let Some(database) = in_memory {
                let mut state = database.state.write();
                let is_complete = match &mut state.index {
                    Index::Memory(index) => {
                        let step = || index.defragment(&mut pass.cursor);
                        is_complete_after_slice(step, clock)
                    }
                    Index::Tree(_) | Index::Remote(_) => true,
                };
                RwLockWriteGuard::unlock_fair(state);
                if !is_complete {
                    return true;
                }
            }
            databases.pop();
            pass.cursor = DefragmentCursor::default();
            if !databases.is_empty() {
                return true;
            }
        }
        *pass = Defragmentation::default();
        false
    }
}

/// Takes steps until the time of a slice is up; returns whether there are no more.
fn is_complete_after_slice(
    mut step: impl FnMut() -> DefragmentStep,
    clock: &mut dyn Clock,
) -> bool {
    let start_ns = clock.now_ns();
    let mut work = 0;
    loop {
        match step() {
            DefragmentStep::Moved(more) => work += more,
            DefragmentStep::Complete => return true,
        }
        if work >= limits::SLICE_WORK {
            work = 0;
            if clock.now_ns().saturating_sub(start_ns) >= limits::SLICE_NS {
                return false;
            }
        }
    }
}
