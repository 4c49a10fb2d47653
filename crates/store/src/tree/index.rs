//! A tree as all its users see it: readers, the writer, and those who flush and compact.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use lsm_tree::compaction::Leveled;
use lsm_tree::{AbstractTree, Memtable, SequenceNumberCounter, Tree};
use parking_lot::{Mutex, RwLock};

use super::error::TreeError;
use super::folder::{Generation, TreeConfig};
use super::limits;
use super::pace::Pressure;
use super::view::TreeView;

/// Numbers of the engine for each sequence, as a power of two.
const NUMBER_BITS: u32 = 10;

/// The engine's number for the entries of a commit.
pub(super) fn number_of(sequence: u64) -> u64 {
    assert!(
        sequence < 1 << (63 - NUMBER_BITS),
        "2^53 commits are for ever"
    );
    sequence << NUMBER_BITS
}

/// The number at which a read sees everything up to a sequence.
pub(super) fn reads_at(sequence: u64) -> u64 {
    number_of(sequence) + 1
}

/// One generation of one database on the device. A handle: clones are the same tree.
#[derive(Clone)]
pub struct TreeIndex {
    pub(super) shared: Arc<Shared>,
}

/// What the handles share.
pub(super) struct Shared {
    pub(super) tree: Tree,
    pub(super) folder: PathBuf,
    pub(super) generation: Generation,
    pub(super) config: TreeConfig,
    /// From which the engine takes the numbers of versions.
    pub(super) numbers: SequenceNumberCounter,
    /// Rises with each new version.
    versions: SequenceNumberCounter,
    /// The last commit that views show.
    visible: AtomicU64,
    /// How many views there are of each sequence.
    views: Mutex<BTreeMap<u64, usize>>,
    pub(super) memtables: RwLock<Memtables>,
    /// Held by the one who compacts.
    compacting: Mutex<()>,
    /// As it was after the last flush or compaction. To ask the engine would wait while it installs tables, and writers ask
    /// for each group.
    pub(super) first_level_runs: AtomicUsize,
    /// The folder goes with the last handle.
    discarded: AtomicBool,
    stop: Arc<AtomicBool>,
}

/// The memtables, for those who must not read the device.
pub(super) struct Memtables {
    pub(super) active: Arc<Memtable>,
    /// Oldest first.
    pub(super) sealed: Vec<Arc<Memtable>>,
}

/// Figures of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeStatistics {
    /// Entries, by estimate: overwritten ones that are not yet compacted away count, deleted ones too.
    pub entries: u64,
    /// Bytes of tables on the device.
    pub disk_bytes: u64,
    /// Bytes of memtables.
    pub memtable_bytes: u64,
    /// Memtables that wait to be flushed.
    pub sealed_memtables: usize,
    /// Tables on the device.
    pub tables: usize,
    /// Runs of tables in the first level: that many may be looked into for one read.
    pub first_level_runs: usize,
}

impl TreeIndex {
    pub(super) fn new(shared: Shared) -> TreeIndex {
        TreeIndex {
            shared: Arc::new(shared),
        }
    }

    /// Which database this is, and since which commit.
    pub fn generation(&self) -> Generation {
        self.shared.generation
    }

    /// The tree's folder.
    pub fn folder(&self) -> &Path {
        &self.shared.folder
    }

    /// What readers see now, held still until the view is dropped. Nobody waits for it meanwhile; but what was
    /// overwritten since stays on the device.
    pub fn view(&self) -> TreeView {
        TreeView::new(self.clone())
    }

    /// The last commit that views show.
    pub fn sequence(&self) -> u64 {
        self.shared.visible.load(Ordering::Acquire)
    }

    /// Up to here everything is in tables on the device: a replay begins behind it, and must give this tree no commit up
    /// to it. After compaction it can be lower than it was, if deletions have vanished together with what they deleted.
    pub fn persisted_sequence(&self) -> u64 {
        let highest = self.shared.tree.get_highest_persisted_seqno();
        let highest = highest.map_or(0, |number| number >> NUMBER_BITS);
        highest.max(self.shared.generation.sequence)
    }

    /// Whether a memtable waits to be flushed.
    pub fn wants_flush(&self) -> bool {
        !self.shared.memtables.read().sealed.is_empty()
    }

    /// Writes the sealed memtables to tables. `false`: there was none. Call it on a thread that may wait for the device.
    pub fn flush(&self) -> Result<bool, TreeError> {
        let shared = &*self.shared;
        let lock = shared.tree.get_flush_lock();
        let first = shared.tree.next_table_id();
        let flushed = shared.tree.flush(&lock, shared.watermark());
        if flushed.is_err() {
            shared.remove_tables(first..shared.tree.next_table_id());
        }
        drop(lock);
        let flushed = flushed.map_err(|error| shared.error(error))?;
        shared.note_runs();
        shared.memtables.write().forget_flushed(&shared.tree);
        Ok(flushed.is_some())
    }

    /// Merges some tables, if that is due. `false`: it was not. Call it on a thread that may wait for the device.
    pub fn compact(&self) -> Result<bool, TreeError> {
        let shared = &*self.shared;
        let _one = shared.compacting.lock();
        let used = shared.numbers.get() - reads_at(self.sequence()).min(shared.numbers.get());
        if used >= limits::CHANGES_PER_COMMIT {
            return Ok(false);
        }
        let before = shared.versions.get();
        let strategy = Leveled::default().with_table_target_size(shared.config.table_bytes);
        let compacted = shared.tree.compact(Arc::new(strategy), shared.watermark());
        shared.note_runs();
        match compacted {
            Err(_) if shared.stop.load(Ordering::Acquire) => Ok(false),
            Err(error) => Err(shared.error(error)),
            Ok(()) => Ok(shared.versions.get() != before),
        }
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
        let first_level_runs = self.shared.first_level_runs.load(Ordering::Relaxed);
        Pressure::of(sealed, active_share, first_level_runs)
    }

    /// Figures, at the cost of a walk over the list of tables.
    pub fn statistics(&self) -> TreeStatistics {
        let tree = &self.shared.tree;
        let memtables = self.shared.memtables.read();
        let sealed_bytes: u64 = memtables.sealed.iter().map(|sealed| sealed.size()).sum();
        TreeStatistics {
            entries: tree.approximate_len() as u64,
            disk_bytes: tree.disk_space(),
            memtable_bytes: memtables.active.size() + sealed_bytes,
            sealed_memtables: memtables.sealed.len(),
            tables: tree.table_count(),
            first_level_runs: tree.l0_run_count(),
        }
    }

    /// Removes the folder when the last handle, view and writer of this tree is gone. That takes a while: let it happen
    /// on a thread that may pause.
    pub fn discard(&self) {
        self.stop_compaction();
        self.shared.discarded.store(true, Ordering::Release);
    }
}

impl Shared {
    pub(super) fn new(
        tree: Tree,
        generation: Generation,
        config: TreeConfig,
        numbers: SequenceNumberCounter,
        versions: SequenceNumberCounter,
        stop: Arc<AtomicBool>,
    ) -> Shared {
        let active = tree.active_memtable();
        Shared {
            folder: tree.tree_config().path.clone(),
            first_level_runs: AtomicUsize::new(tree.l0_run_count()),
            tree,
            generation,
            config,
            numbers,
            versions,
            visible: AtomicU64::new(0),
            views: Mutex::default(),
            memtables: RwLock::new(Memtables {
                active,
                sealed: Vec::new(),
            }),
            compacting: Mutex::default(),
            discarded: AtomicBool::new(false),
            stop,
        }
    }

    pub(super) fn error(&self, error: lsm_tree::Error) -> TreeError {
        TreeError::engine(&self.folder, error)
    }

    fn note_runs(&self) {
        let runs = self.tree.l0_run_count();
        self.first_level_runs.store(runs, Ordering::Relaxed);
    }

    /// A commit is in the memtable as a whole: from now on views show it.
    pub(super) fn show(&self, sequence: u64) {
        // Versions that come from now on are later than views of this commit.
        self.numbers.fetch_max(reads_at(sequence));
        self.visible.fetch_max(sequence, Ordering::AcqRel);
    }

    /// Notes a view of what is visible now.
    pub(super) fn enter(&self) -> u64 {
        let mut views = self.views.lock();
        // Under the lock, so that the watermark is never above a view.
        let sequence = self.visible.load(Ordering::Acquire);
        *views.entry(sequence).or_default() += 1;
        sequence
    }

    pub(super) fn leave(&self, sequence: u64) {
        let mut views = self.views.lock();
        if let Some(count) = views.get_mut(&sequence) {
            *count -= 1;
            if *count == 0 {
                views.remove(&sequence);
            }
        }
    }

    /// The number below which nobody reads any more.
    fn watermark(&self) -> u64 {
        let views = self.views.lock();
        let oldest = views.keys().next().copied();
        reads_at(oldest.unwrap_or_else(|| self.visible.load(Ordering::Acquire)))
    }

    /// Removes what a failed flush has left: without it, each attempt on a full disk would leave more. Those of a
    /// compaction that goes on meanwhile are among these numbers, so then nothing is removed before the next start.
    fn remove_tables(&self, ids: std::ops::Range<u64>) {
        let Some(_nobody_compacts) = self.compacting.try_lock() else {
            return;
        };
        let version = self.tree.current_version();
        for id in ids {
            if version.iter_tables().all(|table| table.id() != id) {
                // What cannot be removed now goes at the next start.
                let _ = std::fs::remove_file(self.folder.join("tables").join(id.to_string()));
            }
        }
    }
}

impl Memtables {
    /// Lets go those that are in tables now. Nobody seals meanwhile, since this is under the lock.
    fn forget_flushed(&mut self, tree: &Tree) {
        let left = tree.sealed_memtable_count();
        self.sealed.drain(..self.sealed.len().saturating_sub(left));
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.discarded.load(Ordering::Acquire) {
            // What cannot be removed now goes at the next start.
            let _ = std::fs::remove_dir_all(&self.folder);
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
