//! Memtables between writer and engine: a writer never waits for the engine, and never frees what
//! takes long to free.
//!
//! The engine installs tables under a lock, and syncs files meanwhile, after a compaction as large
//! as a table. To seal a memtable takes that lock too. So the writer only notes that it has sealed
//! one, and goes on in the next, which the engine does not know yet: the tree is *ahead*. Views
//! that begin then look into that memtable beside the engine. Whoever may wait hands both memtables
//! over to the engine; that is done before the next one is sealed, so that no more than one is
//! unknown.
//!
//! While the tree is ahead, its commits do not raise the engine's counter of numbers. A version
//! that the engine makes then comes before all commits that it does not know, and becomes the one
//! into which the memtable is put that has them. So each view finds them: in the version that it
//! reads in, or beside it.
//!
//! A tree begins in the same way, before there is an engine: to make a folder takes syncs, and
//! whoever begins a tree, in a commit, must not wait for these. Until somebody who may wait has
//! *made* it, its only memtable has all of it, nothing is sealed, and the log keeps the commit that
//! began it: a start that finds no folder begins it anew. What fails is tried again, while the tree
//! goes on in memory, up to a bound.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use lsm_tree::{AbstractTree, Memtable, Tree};

use super::error::TreeError;
use super::index::{Memtables, SealedMemtable, SharedTree};
use super::numbers::reads_at;

impl SharedTree {
    /// Goes on in an empty memtable. Waits for the engine only if the one sealed before was not
    /// handed over yet. `None`: the tree is not made.
    pub(super) fn seal(&self, first: u64, last: u64) -> Option<Arc<Memtable>> {
        let tree = self.engine.get()?;
        self.hand_over();
        let next = Arc::new(Memtable::new(tree.memtable_id_counter.next()));
        // Before any of it can come into a table.
        self.sealed_through.fetch_max(last, Ordering::Release);
        let mut memtables = self.memtables.write();
        let memtable = std::mem::replace(&mut memtables.active, next.clone());
        memtables.sealed.push(SealedMemtable {
            memtable,
            first,
            last,
        });
        // Under the lock, so that a view that knows of the memtable knows of this too.
        let known = self.visible.last();
        self.ahead_of.store(known + 1, Ordering::Release);
        Some(next)
    }

    /// Tells the engine what was sealed, and what commits go into now. Waits while the engine
    /// installs tables.
    pub(super) fn hand_over(&self) {
        if !self.is_ahead() {
            return;
        }
        let _one = self.handing_over.lock();
        let Some(tree) = self.engine.get().filter(|_| self.is_ahead()) else {
            return;
        };
        // Nobody seals meanwhile: that begins with this.
        let active = self.memtables.read().active.clone();
        tree.rotate_memtable();
        self.set_active(tree, active);
        let memtables = self.memtables.write();
        self.ahead_of.store(0, Ordering::Release);
        drop(memtables);
    }

    /// Tells the engine in which memtable commits are.
    fn set_active(&self, tree: &Tree, active: Arc<Memtable>) {
        let mut versions = tree.get_version_history_lock();
        let mut latest = versions.latest_version();
        latest.active_memtable = active;
        versions.replace_latest_version(latest);
        // Before the next version draws its number.
        self.raise_numbers();
    }

    /// Makes the folder of a tree that has none, and opens it. `false`: it has one, or was
    /// discarded.
    pub(super) fn make(&self) -> Result<bool, TreeError> {
        let is_made = || self.engine.get().is_some() || self.discarded.load(Ordering::Acquire);
        if is_made() {
            return Ok(false);
        }
        let _one = self.making.lock();
        if is_made() {
            return Ok(false);
        }
        let begins_anew = self.begins_anew.get().copied();
        let (counters, stop) = (&self.counters, &self.stop);
        let tree = (self.trees).make(self.generation, begins_anew, counters, stop)?;
        // Nobody seals meanwhile: that needs an engine.
        let active = self.memtables.read().active.clone();
        self.set_active(&tree, active);
        let memtables = self.memtables.write();
        let is_first = self.engine.set(tree).is_ok();
        debug_assert!(is_first, "one at a time makes it");
        drop(memtables);
        Ok(true)
    }

    /// Whether the engine knows the memtable that commits go into not yet.
    pub(super) fn is_ahead(&self) -> bool {
        self.ahead_of.load(Ordering::Acquire) != 0
    }

    /// How many numbers the engine has drawn since the last commit that it knows. The two are not
    /// of one moment: the sequence may have gone on.
    pub(super) fn drawn_numbers(&self) -> u64 {
        let known = match self.ahead_of.load(Ordering::Acquire) {
            0 => self.visible.last(),
            behind => behind - 1,
        };
        self.counters.numbers.get().saturating_sub(reads_at(known))
    }

    /// What a view that begins now must look into: the engine if there is one, and a memtable that
    /// it does not know.
    pub(super) fn beside_engine(&self) -> (Option<&Tree>, Option<Arc<Memtable>>) {
        let memtables: &Memtables = &self.memtables.read();
        // Under the lock: so either the engine has the memtable of a tree that is being made, or
        // the view has it.
        let tree = self.engine.get();
        let is_beside = tree.is_none() || self.is_ahead();
        (tree, is_beside.then(|| memtables.active.clone()))
    }

    /// The numbers that the engine draws from now on are later than all that is visible.
    pub(super) fn raise_numbers(&self) {
        let visible = self.visible.last();
        self.counters.numbers.fetch_max(reads_at(visible));
    }

    /// Puts those sealed memtables aside that are in tables now.
    pub(super) fn forget_flushed(&self) {
        {
            let _as_handed_over = self.handing_over.lock();
            let left = self.engine.get().map_or(0, Tree::sealed_memtable_count);
            let mut memtables = self.memtables.write();
            let handed_over = memtables.sealed.len() - usize::from(self.is_ahead());
            let flushed = handed_over.saturating_sub(left);
            let Memtables {
                sealed,
                flushed: kept,
                ..
            } = &mut *memtables;
            kept.extend(sealed.drain(..flushed));
        }
        self.trim();
    }

    /// Lets memtables go that nobody needs any more; whether there were such. They are not freed by
    /// that.
    pub(super) fn trim(&self) -> bool {
        // Whoever takes a ticket later sees everything that is in them.
        let tickets = self.tickets.lock();
        let oldest = tickets.oldest();
        let mut memtables = self.memtables.write();
        let is_kept = |flushed: &SealedMemtable| oldest.is_some_and(|oldest| flushed.last > oldest);
        let first_kept = memtables.flushed.iter().position(is_kept);
        let gone = first_kept.unwrap_or(memtables.flushed.len());
        let gone = memtables.flushed.drain(..gone);
        let gone = gone.map(|sealed| sealed.memtable);
        self.leaving.add(gone)
    }

    /// Has the engine forget the versions that nobody reads in, and frees the memtables that were
    /// in these alone; returns whether there were such. The engine itself does so only when it
    /// makes a version or looks for something to merge, and the one that it made last is not read
    /// in before the next commit: memtables would stay till the flush behind that, and a merge can
    /// take minutes.
    pub(super) fn release_memtables(&self, tree: &Tree) -> bool {
        if !self.leaving.has_some() {
            return false;
        }
        let watermark = self.watermark();
        self.leaving.note_try(watermark);
        // A list of tables that cannot be removed stays, with its version, for the next time.
        let _ = (tree.get_version_history_lock()).maintenance(&self.folder, watermark);
        self.free_memtables()
    }

    /// Frees the memtables that have left, on a thread for which that may take a while, and without
    /// a lock; returns whether there were such. Older versions of the engine have them too for a
    /// time: were these the last, they would be freed while a new version is installed.
    pub(super) fn free_memtables(&self) -> bool {
        self.leaving.free()
    }
}
