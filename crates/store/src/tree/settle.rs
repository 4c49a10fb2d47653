//! After a failure: which list of tables counts.
//!
//! The engine (3.1.10) changes its set of tables in these steps: it writes a new list, renames a
//! file over `current` that names the list, and syncs the folder. An error behind the rename leaves
//! a folder that names the new list, while the engine goes on with the one before. Were the tables
//! of the new one removed then, as after any flush that failed, no start could open the tree any
//! more; and the engine's next list has the same number and is written over it.
//!
//! So after an error the tree is *unsettled*: no table is removed, and nothing is flushed or
//! compacted, until `current` names, on the device, the list that the engine has. Whichever of the
//! two it names when the process ends, all its tables are there, and the log has what only one of
//! them holds.

use std::sync::atomic::Ordering;

use lsm_tree::{AbstractTree, Tree};

use super::error::TreeError;
use super::index::SharedTree;
use super::manifest;

impl SharedTree {
    /// Has the folder name the list of tables that the engine has, if that is not certain: before
    /// the set of tables is changed. The caller holds the flush lock; a compaction that goes on is
    /// waited for.
    pub(super) fn settle(&self, tree: &Tree) -> Result<(), TreeError> {
        if !self.is_unsettled.load(Ordering::Acquire) {
            return Ok(());
        }
        let _nobody_compacts = self.compacting.lock();
        self.settle_alone(tree)
    }

    /// The same for one who keeps away both flushes and compactions.
    pub(super) fn settle_alone(&self, tree: &Tree) -> Result<(), TreeError> {
        manifest::name(&self.folder, tree.current_version().id())?;
        self.is_unsettled.store(false, Ordering::Release);
        Ok(())
    }
}
