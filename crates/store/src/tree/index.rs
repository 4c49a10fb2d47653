//! A tree as all its users see it: readers, the writer, and those who flush and compact.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use lsm_tree::compaction::Leveled;
use lsm_tree::{AbstractTree, Memtable, Tree};
use parking_lot::{Mutex, RwLock};

use super::anew::{self, Anew};
use super::error::TreeError;
use super::figures::{TreeStatistics, Trouble};
use super::folder::{TreeConfig, Trees};
use super::generation::Generation;
use super::known::KnownTables;
use super::largest_blocks::LargestBlocks;
use super::leaving::LeavingMemtables;
use super::limits;
use super::numbers::{Counters, reads_at, sequence_of};
use super::opening;
use super::pace::Pressure;
use super::rows::TreeRows;
use super::table_figures::TableFigures;
use super::tickets::Tickets;
use super::visible_views::VisibleViews;

/// One generation of one database on the device. A handle: clones are the same tree.
#[derive(Clone)]
pub struct TreeIndex {
    pub(super) shared: Arc<SharedTree>,
}

/// What the handles share.
pub(super) struct SharedTree {
    /// Not there before the tree is [made](TreeIndex::make). It comes under the lock of the
    /// memtables.
    pub(super) engine: OnceLock<Tree>,
    /// Held by the one who makes it.
    pub(super) making: Mutex<()>,
    /// It takes the place of one that was given up.
    pub(super) begins_anew: OnceLock<Anew>,
    pub(super) trees: Trees,
    pub(super) folder: PathBuf,
    pub(super) generation: Generation,
    pub(super) config: TreeConfig,
    /// What was read lately.
    pub(super) rows: TreeRows,
    pub(super) counters: Counters,
    pub(super) visible: VisibleViews,
    pub(super) memtables: RwLock<Memtables>,
    /// Not 0: the engine does not know yet that the last sealed memtable is sealed, and does not
    /// know the active one. This is the sequence behind the last commit before that.
    pub(super) ahead_of: AtomicU64,
    /// What reads of its tables take.
    pub(super) largest_blocks: LargestBlocks,
    /// The last commit of all memtables that were sealed since the start: tables have nothing later
    /// than this.
    pub(super) sealed_through: AtomicU64,
    /// Held by the one who tells it.
    pub(super) handing_over: Mutex<()>,
    pub(super) leaving: LeavingMemtables,
    /// Held by the one who compacts.
    pub(super) compacting: Mutex<()>,
    pub(super) tables: TableFigures,
    /// Of all generations of the database.
    pub(super) tickets: Arc<Tickets>,
    /// What the folder has noted of its tables.
    pub(super) known_tables: Mutex<KnownTables>,
    /// The generation that this one goes back to by clears alone: whatever was in one of these
    /// before is gone.
    pub(super) lineage: Generation,
    /// The folder goes with the last handle.
    pub(super) discarded: AtomicBool,
    /// An entry with an expiry may be there that no walk has seen.
    may_expire: AtomicBool,
    /// Why the last attempt to bring something to the device has failed.
    trouble: AtomicU8,
    pub(super) stop: Arc<AtomicBool>,
    /// A flush or compaction has failed, and the folder may name another list of tables than the
    /// engine has.
    pub(super) is_unsettled: AtomicBool,
}

/// The memtables, for those who must not read the device.
pub(super) struct Memtables {
    pub(super) active: Arc<Memtable>,
    /// Oldest first.
    pub(super) sealed: Vec<SealedMemtable>,
    /// Those that are in tables too, and are kept for [tickets](Tickets). Oldest first, and older
    /// than the sealed ones.
    pub(super) flushed: Vec<SealedMemtable>,
}

/// A memtable that nothing more goes into.
#[derive(Clone)]
pub(super) struct SealedMemtable {
    pub(super) memtable: Arc<Memtable>,
    /// The first and the last commit that have put something into it.
    pub(super) first: u64,
    pub(super) last: u64,
}

impl TreeIndex {
    pub(super) fn new(shared: SharedTree) -> TreeIndex {
        TreeIndex {
            shared: Arc::new(shared),
        }
    }

    /// Which database this is, and since which commit.
    pub fn generation(&self) -> Generation {
        self.shared.generation
    }

    /// The generation that this one goes back to by clears alone: whatever was in one of these
    /// before is gone. A conversion begins with content, and another lineage.
    pub fn lineage(&self) -> Generation {
        self.shared.lineage
    }

    /// The tree's folder.
    pub fn folder(&self) -> &Path {
        &self.shared.folder
    }

    /// The last commit that views show.
    pub fn sequence(&self) -> u64 {
        self.shared.visible.last()
    }

    /// Up to here everything is in tables on the device: a replay begins behind it, and must give
    /// this tree no commit up to it. After compaction it can be lower than it was, if deletions
    /// have vanished together with what they deleted.
    pub fn persisted_sequence(&self) -> u64 {
        let tree = self.shared.engine.get();
        let highest = tree.and_then(Tree::get_highest_persisted_seqno);
        let highest = highest.map_or(0, sequence_of);
        highest.max(self.shared.generation.sequence)
    }

    /// The number of a list of tables that the folder names, unless it names a later one. What was
    /// flushed before this is asked is in it. Never waits for the device.
    pub fn list(&self) -> u64 {
        self.shared.tables.list()
    }

    /// An error if the list of tables has a lower number than a snapshot of this base knows: what
    /// the log was shortened for is not in this folder. One that was
    /// [begun anew](TreeIndex::make_anew) later is right.
    pub(crate) fn check_list(&self, least: u64, base_sequence: u64) -> Result<(), TreeError> {
        let list = self.list();
        let folder = &self.shared.folder;
        let is_newer = || anew::noted(folder).is_some_and(|anew| base_sequence <= anew.behind);
        if list >= least || is_newer() {
            return Ok(());
        }
        Err(TreeError::Older {
            folder: folder.clone(),
            list,
            least,
        })
    }

    /// Makes the folder of a tree that was [begun](Trees::begin) without one, on the device.
    /// `false`: it has one. Call it on a thread that may wait for the device.
    pub fn make(&self) -> Result<bool, TreeError> {
        self.shared.make()
    }

    /// The same for a tree that takes the place of one that was given up: its folder says how it
    /// begins.
    pub(crate) fn make_anew(&self, anew: Anew) -> Result<bool, TreeError> {
        let _ = self.shared.begins_anew.set(anew);
        self.shared.make()
    }

    /// Up to here commits must not be put into it though they are not in tables: see
    /// [`Anew::empty_through`].
    pub(crate) fn empty_through(&self) -> u64 {
        anew::noted(&self.shared.folder).map_or(0, |anew| anew.empty_through)
    }

    /// The identity of the data folder, as this tree has noted it.
    pub(crate) fn noted_owner(&self) -> Option<u64> {
        self.shared.known_tables.lock().owner()
    }

    /// Whether it has a folder.
    pub fn is_made(&self) -> bool {
        self.shared.engine.get().is_some()
    }

    /// Whether a memtable waits to be flushed.
    pub fn wants_flush(&self) -> bool {
        !self.shared.memtables.read().sealed.is_empty()
    }

    /// Makes the tree if that was not done, and writes the sealed memtables to tables. `false`:
    /// there was nothing to do. Call it on a thread that may wait for the device.
    pub fn flush(&self) -> Result<bool, TreeError> {
        let flushed = self.make().and_then(|made| {
            let flushed = self.flush_memtables(self.shared.watermark())?;
            Ok(made || flushed)
        });
        let trouble = match &flushed {
            Ok(_) => Trouble::None,
            Err(error) if error.is_of_no_room() => Trouble::NoRoom,
            Err(_) => Trouble::Failed,
        };
        self.shared.trouble.store(trouble as u8, Ordering::Relaxed);
        flushed
    }

    /// The same for a tree that nobody reads yet and that is being
    /// [loaded](super::TreeWriter::load). The engine keeps what it had before for readers of
    /// commits, and no commit comes meanwhile: it would keep every memtable.
    pub(crate) fn flush_unread(&self) -> Result<bool, TreeError> {
        // Above the number that the version with the new tables draws.
        self.flush_memtables(self.shared.counters.numbers.get() + 1)
    }

    fn flush_memtables(&self, watermark: u64) -> Result<bool, TreeError> {
        let shared = &*self.shared;
        // A tree that was discarded before it was made has none.
        let Some(tree) = shared.engine.get() else {
            return Ok(false);
        };
        shared.trees.check_place()?;
        shared.hand_over();
        let lock = tree.get_flush_lock();
        shared.settle(tree)?;
        let first = tree.next_table_id();
        let flushed = tree.flush(&lock, watermark);
        if flushed.is_err() {
            shared.is_unsettled.store(true, Ordering::Release);
            shared.remove_tables(tree, first..tree.next_table_id());
        }
        drop(lock);
        let flushed = flushed.map_err(|error| shared.error(error))?;
        shared.note_tables(tree);
        shared.forget_flushed();
        let has_released = shared.release_memtables(tree);
        Ok(flushed.is_some() || has_released)
    }

    /// Tells the engine of a memtable that was sealed. A flush does that too. Call it on a thread
    /// that may wait for the device.
    pub fn hand_over(&self) {
        self.shared.hand_over();
    }

    /// Lets go the memtables that are on the device and that no [ticket](Tickets) keeps any more;
    /// whether there were such. They are freed by the next flush or compaction, also one that finds
    /// nothing to do.
    pub fn trim(&self) -> bool {
        self.shared.trim()
    }

    /// Whether memtables are kept although they are on the device.
    pub fn keeps_flushed(&self) -> bool {
        !self.shared.memtables.read().flushed.is_empty()
    }

    /// Whether memtables can be freed by a flush that were still in use when the last one ended.
    pub fn wants_release(&self) -> bool {
        self.shared.leaving.may_be_free(|| self.shared.watermark())
    }

    /// Bytes of memtables, with those that are kept although they are on the device too.
    pub fn memtable_bytes(&self) -> u64 {
        self.shared.memtables.read().bytes()
    }

    /// The same with those that views or older versions of the engine still have: what is in
    /// memory.
    #[cfg(test)]
    pub(crate) fn held_bytes(&self) -> u64 {
        let memtables = self.shared.memtables.read();
        memtables.bytes() + self.shared.leaving.bytes()
    }

    /// Bytes of tables, as they were after the last flush or compaction.
    pub fn disk_bytes(&self) -> u64 {
        self.shared.tables.disk_bytes()
    }

    /// About how many entries there are: those in memtables, and those in tables as they were after
    /// the last flush or compaction. What is overwritten counts until it is merged. Never waits for
    /// the device.
    pub fn entries(&self) -> u64 {
        let in_memory = {
            let memtables = self.shared.memtables.read();
            let sealed = memtables.sealed.iter().map(|sealed| sealed.memtable.len());
            memtables.active.len() + sealed.sum::<usize>()
        };
        in_memory as u64 + self.shared.tables.entries()
    }

    /// Merges some tables, if that is due. `false`: it was not. Call it on a thread that may wait
    /// for the device.
    pub fn compact(&self) -> Result<bool, TreeError> {
        let shared = &*self.shared;
        let Some(tree) = shared.engine.get() else {
            return Ok(false);
        };
        if shared.is_unsettled.load(Ordering::Acquire) {
            let _nobody_flushes = tree.get_flush_lock();
            shared.settle(tree)?;
        }
        let _one = shared.compacting.lock();
        if shared.drawn_numbers() >= limits::CHANGES_PER_COMMIT {
            return Ok(false);
        }
        shared.trees.check_place()?;
        let before = shared.counters.versions.get();
        let strategy = Leveled::default().with_table_target_size(shared.config.table_bytes);
        let compacted = tree.compact(Arc::new(strategy), shared.watermark());
        if compacted.is_err() {
            // The next flush or compaction begins with settling that.
            shared.is_unsettled.store(true, Ordering::Release);
        }
        shared.note_tables(tree);
        shared.free_memtables();
        match compacted {
            Err(_) if shared.stop.load(Ordering::Acquire) => Ok(false),
            Err(error) => Err(shared.error(error)),
            Ok(()) => Ok(shared.counters.versions.get() != before),
        }
    }

    /// Notes in the folder what tells its tables from others of the same name, where an earlier
    /// version or a restore has left a folder without. For a start that is not refused any more.
    pub(crate) fn note_tables(&self) {
        if let Some(tree) = self.shared.engine.get() {
            self.shared.note_known_tables(tree);
        }
    }

    /// Visits the files that make the tree as it is between two changes of its set of tables, until
    /// the visitor answers `false`. What else is in the folder is left out: temporary files, what
    /// others put there, and what a change that failed has left, which the next one writes over.
    /// Waits for a flush or compaction that goes on, and these wait for it: for something that is
    /// quick, such as links. What is sealed in memory and not flushed is not among them.
    pub fn visit_files(&self, visit: &mut dyn FnMut(&TreeFile) -> bool) -> Result<(), TreeError> {
        self.make()?;
        let shared = &*self.shared;
        let Some(tree) = shared.engine.get() else {
            return Ok(());
        };
        let _nobody_flushes = tree.get_flush_lock();
        let _nobody_compacts = shared.compacting.lock();
        if shared.is_unsettled.load(Ordering::Acquire) {
            shared.settle_alone(tree)?;
        }
        let version = tree.current_version();
        let lists = [opening::CURRENT.into(), format!("v{}", version.id())];
        let tables = version.iter_tables().map(|table| table.id().to_string());
        let lists = lists.map(|name| (PathBuf::from(name), false));
        let tables = tables.map(|name| (Path::new(opening::TABLES).join(name), true));
        for (path, is_table) in lists.into_iter().chain(tables) {
            let place = shared.folder.join(&path);
            if !visit(&TreeFile {
                path,
                place,
                is_table,
            }) {
                break;
            }
        }
        Ok(())
    }

    /// Ends a compaction that is going on, and all later ones.
    pub fn stop_compaction(&self) {
        self.shared.stop.store(true, Ordering::Release);
    }

    /// How much writers should be held back.
    pub fn pressure(&self) -> Pressure {
        let memtables = self.shared.memtables.read();
        let active_share =
            memtables.active.size() as f64 / self.shared.config.memtable_bytes as f64;
        let sealed = memtables.sealed.len();
        drop(memtables);
        if self.shared.engine.get().is_none() {
            return Pressure::of_unmade(active_share);
        }
        let first_level_runs = self.shared.tables.first_level_runs();
        Pressure::of(sealed, active_share, first_level_runs)
    }

    /// Why the last attempt to bring something to the device has failed, if it has.
    pub fn trouble(&self) -> Trouble {
        Trouble::of(self.shared.trouble.load(Ordering::Relaxed))
    }

    /// Whether so much waits for the device that even commits that grow nothing must be refused:
    /// each takes a little memory, and nothing frees any.
    pub fn is_overfull(&self) -> bool {
        let bound = (limits::SEALED_MEMTABLES_MAX as u64 + 2) * self.shared.config.memtable_bytes;
        self.memtable_bytes() > bound
    }

    /// Figures, at the cost of a walk over the list of tables.
    pub fn statistics(&self) -> TreeStatistics {
        let tree = self.shared.engine.get();
        let (_, beside_engine) = self.shared.beside_engine();
        let beside_engine = beside_engine.map_or(0, |memtable| memtable.len());
        let entries = tree.map_or(0, Tree::approximate_len) + beside_engine;
        let (memtable_bytes, sealed_memtables) = {
            let memtables = self.shared.memtables.read();
            (memtables.bytes(), memtables.sealed.len())
        };
        TreeStatistics {
            entries: entries as u64,
            disk_bytes: tree.map_or(0, Tree::disk_space),
            memtable_bytes,
            sealed_memtables,
            tables: tree.map_or(0, Tree::table_count),
            first_level_runs: tree.map_or(0, Tree::l0_run_count),
        }
    }

    /// Begins a walk that looks for entries with an expiry; `false`: there can be none. What the
    /// walk sees, and what is put meanwhile, is [noted](TreeIndex::note_expiry) again.
    pub(crate) fn begin_expiry_walk(&self) -> bool {
        self.shared.may_expire.swap(false, Ordering::Relaxed)
    }

    /// Notes that there can be an entry with an expiry.
    pub(crate) fn note_expiry(&self) {
        self.shared.note_expiry();
    }

    /// Removes the folder when the last handle, view and writer of this tree is gone. That takes a
    /// while: let it happen on a thread that may pause.
    pub fn discard(&self) {
        self.stop_compaction();
        self.shared.discarded.store(true, Ordering::Release);
    }
}

/// A file of a tree, as [`TreeIndex::visit_files`] shows it.
#[derive(Debug)]
pub struct TreeFile {
    /// Its path within the folder of the tree.
    pub path: PathBuf,
    /// Where it is.
    pub place: PathBuf,
    /// It is a table: nothing changes it for as long as it has a name.
    pub is_table: bool,
}

impl SharedTree {
    /// A tree of the engine that is open; `None`: one that is not made, with nothing in it.
    pub(super) fn new(
        trees: &Trees,
        folder: PathBuf,
        generation: Generation,
        (lineage, tickets): (Generation, Arc<Tickets>),
        engine: Option<(Tree, Counters, Arc<AtomicBool>)>,
    ) -> SharedTree {
        let (engine, counters, stop) = match engine {
            Some((tree, counters, stop)) => (OnceLock::from(tree), counters, stop),
            None => Default::default(),
        };
        let tree = engine.get();
        // The engine's first one has this number too.
        let active = tree.map_or_else(|| Arc::new(Memtable::new(0)), Tree::active_memtable);
        SharedTree {
            folder,
            tables: TableFigures::of(tree),
            engine,
            making: Mutex::default(),
            begins_anew: OnceLock::new(),
            known_tables: Mutex::new(KnownTables::none(trees.origin(generation))),
            generation,
            config: trees.config(),
            rows: trees.rows(),
            trees: trees.clone(),
            counters,
            visible: VisibleViews::default(),
            memtables: RwLock::new(Memtables {
                active,
                sealed: Vec::new(),
                flushed: Vec::new(),
            }),
            ahead_of: AtomicU64::new(0),
            largest_blocks: LargestBlocks::default(),
            sealed_through: AtomicU64::new(0),
            handing_over: Mutex::default(),
            leaving: LeavingMemtables::default(),
            tickets,
            lineage,
            compacting: Mutex::default(),
            discarded: AtomicBool::new(false),
            // Nobody knows yet what was there before.
            may_expire: AtomicBool::new(true),
            trouble: AtomicU8::new(Trouble::None as u8),
            stop,
            is_unsettled: AtomicBool::new(false),
        }
    }

    /// There is an entry with an expiry.
    #[inline]
    pub(super) fn note_expiry(&self) {
        self.may_expire.store(true, Ordering::Relaxed);
    }

    pub(super) fn error(&self, error: lsm_tree::Error) -> TreeError {
        TreeError::engine(&self.folder, error)
    }

    fn note_tables(&self, tree: &Tree) {
        self.tables.note(tree);
        self.note_known_tables(tree);
    }

    /// Notes in the folder what tells its tables from others of the same name.
    fn note_known_tables(&self, tree: &Tree) {
        // Under the lock, so that no older set of tables takes the place of a newer one.
        let mut known = self.known_tables.lock();
        let origin = self.trees.origin(self.generation);
        // Without it a start reads more. The next one tries again.
        let _ = known.note(&self.folder, origin, tree);
    }

    /// A commit is in the memtable as a whole: from now on views show it.
    pub(super) fn show(&self, sequence: u64) {
        self.visible.show(sequence);
        // Versions that come from now on are later than views of this commit, if they have what it
        // is in.
        if !self.is_ahead() {
            self.raise_numbers();
        }
    }

    /// Notes a view of what is visible now.
    pub(super) fn enter(&self) -> u64 {
        self.visible.enter()
    }

    pub(super) fn leave(&self, sequence: u64) {
        self.visible.leave(sequence);
    }

    /// The number below which nobody reads any more.
    pub(super) fn watermark(&self) -> u64 {
        reads_at(self.visible.oldest())
    }

    /// Removes what a failed flush has left: without it, each attempt on a full disk would leave
    /// more. Those of a compaction that goes on meanwhile are among these numbers, so then nothing
    /// is removed before the next start.
    fn remove_tables(&self, tree: &Tree, ids: std::ops::Range<u64>) {
        let Some(_nobody_compacts) = self.compacting.try_lock() else {
            return;
        };
        // The folder may name a list that has them.
        if self.settle_alone(tree).is_err() {
            return;
        }
        let version = tree.current_version();
        for id in ids {
            if version.iter_tables().all(|table| table.id() != id) {
                // What cannot be removed now goes at the next start.
                let _ = std::fs::remove_file(self.folder.join("tables").join(id.to_string()));
            }
        }
    }
}

impl Memtables {
    /// Those that hold what is in no table yet.
    pub(super) fn in_memory(&self) -> Vec<Arc<Memtable>> {
        let sealed = self.sealed.iter().map(|sealed| sealed.memtable.clone());
        sealed.chain([self.active.clone()]).collect()
    }

    fn bytes(&self) -> u64 {
        let sealed = self.sealed.iter().chain(&self.flushed);
        self.active.size() + sealed.map(|sealed| sealed.memtable.size()).sum::<u64>()
    }
}

impl Drop for SharedTree {
    fn drop(&mut self) {
        if self.discarded.load(Ordering::Acquire) {
            self.trees.discard_folder(&self.folder);
            if self.engine.get().is_none() {
                self.trees.remove_prepared(self.generation);
            }
        }
    }
}

impl fmt::Debug for TreeIndex {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("TreeIndex")
            .field("folder", &self.shared.folder)
            .field("sequence", &self.sequence())
            .finish_non_exhaustive()
    }
}
