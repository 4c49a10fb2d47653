//! Memtables between writer and engine: a writer never waits for the engine, and never frees what takes long to free.
//!
//! The engine installs tables under a lock, and syncs files meanwhile, after a compaction as large as a table. To seal a
//! memtable takes that lock too. So the writer only notes that it has sealed one, and goes on in the next, which the
//! engine does not know yet: the tree is *ahead*. Views that begin then look into that memtable beside the engine. Whoever
//! may wait hands both memtables over to the engine; that is done before the next one is sealed, so that no more than one
//! is unknown.
//!
//! While the tree is ahead, its commits do not raise the engine's counter of numbers. A version that the engine makes
//! then comes before all commits that it does not know, and becomes the one into which the memtable is put that has them.
//! So each view finds them: in the version that it reads in, or beside it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use lsm_tree::{AbstractTree, Memtable};

use super::index::{Memtables, Sealed, Shared, reads_at};

impl Shared {
    /// Goes on in an empty memtable. Waits for the engine only if the one sealed before was not handed over yet.
    pub(super) fn seal(&self, first: u64, last: u64) -> Arc<Memtable> {
        self.hand_over();
        let next = Arc::new(Memtable::new(self.tree.memtable_id_counter.next()));
        let mut memtables = self.memtables.write();
        let memtable = std::mem::replace(&mut memtables.active, next.clone());
        memtables.sealed.push(Sealed {
            memtable,
            first,
            last,
        });
        // Under the lock, so that a view that knows of the memtable knows of this too.
        let known = self.visible.load(Ordering::Acquire);
        self.ahead_of.store(known + 1, Ordering::Release);
        next
    }

    /// Tells the engine what was sealed, and what commits go into now. Waits while the engine installs tables.
    pub(super) fn hand_over(&self) {
        if !self.is_ahead() {
            return;
        }
        let _one = self.handing_over.lock();
        if !self.is_ahead() {
            return;
        }
        // Nobody seals meanwhile: that begins with this.
        let active = self.memtables.read().active.clone();
        self.tree.rotate_memtable();
        let mut versions = self.tree.get_version_history_lock();
        let mut latest = versions.latest_version();
        latest.active_memtable = active;
        versions.replace_latest_version(latest);
        // Before the next version draws its number.
        self.raise_numbers();
        drop(versions);
        let memtables = self.memtables.write();
        self.ahead_of.store(0, Ordering::Release);
        drop(memtables);
    }

    /// Whether the engine knows the memtable that commits go into not yet.
    pub(super) fn is_ahead(&self) -> bool {
        self.ahead_of.load(Ordering::Acquire) != 0
    }

    /// How many numbers the engine has drawn since the last commit that it knows. The two are not of one moment: the
    /// sequence may have gone on.
    pub(super) fn drawn_numbers(&self) -> u64 {
        let known = match self.ahead_of.load(Ordering::Acquire) {
            0 => self.visible.load(Ordering::Acquire),
            behind => behind - 1,
        };
        self.numbers.get().saturating_sub(reads_at(known))
    }

    /// What a view that begins now must look into beside the engine.
    pub(super) fn beside_engine(&self) -> Option<Arc<Memtable>> {
        let memtables: &Memtables = &self.memtables.read();
        self.is_ahead().then(|| memtables.active.clone())
    }

    /// The numbers that the engine draws from now on are later than all that is visible.
    pub(super) fn raise_numbers(&self) {
        let visible = self.visible.load(Ordering::Acquire);
        self.numbers.fetch_max(reads_at(visible));
    }

    /// Puts those sealed memtables aside that are in tables now.
    pub(super) fn forget_flushed(&self) {
        {
            let _as_handed_over = self.handing_over.lock();
            let left = self.tree.sealed_memtable_count();
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

    /// Lets memtables go that nobody needs any more; whether there were such. They are not freed by that.
    pub(super) fn trim(&self) -> bool {
        // Whoever takes a ticket later sees everything that is in them.
        let tickets = self.tickets.lock();
        let oldest = tickets.oldest();
        let mut memtables = self.memtables.write();
        let is_kept = |flushed: &Sealed| oldest.is_some_and(|oldest| flushed.last > oldest);
        let first_kept = memtables.flushed.iter().position(is_kept);
        let gone = first_kept.unwrap_or(memtables.flushed.len());
        let gone = memtables.flushed.drain(..gone);
        let gone = gone.map(|sealed| sealed.memtable);
        let mut leaving = self.leaving.lock();
        let had = leaving.len();
        leaving.extend(gone);
        leaving.len() > had
    }

    /// Frees the memtables that have left, on a thread for which that may take a while, and without a lock. Older versions
    /// of the engine have them too for a time: were these the last, they would be freed while a new version is installed.
    pub(super) fn free_memtables(&self) {
        let is_free = |memtable: &mut Arc<Memtable>| Arc::strong_count(memtable) == 1;
        let free: Vec<_> = self.leaving.lock().extract_if(.., is_free).collect();
        drop(free);
    }
}
