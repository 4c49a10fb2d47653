//! The folder with the trees of all databases: a folder for each generation.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use lsm_tree::compaction::filter::Context;
use lsm_tree::compaction::{CompactionFilter, Factory, ItemAccessor, Verdict};
use lsm_tree::{AnyTree, Cache, Config, DescriptorTable, Tree};
use parking_lot::Mutex;
use wal::disk::check_place;

use super::anew::{self, Anew};
use super::check::not_opened;
use super::error::TreeError;
use super::generation::Generation;
use super::known::{self, Origin};
use super::limits;
use super::numbers::Counters;
use super::opening;
use super::rows::{Rows, TreeRows};
use crate::aside;

/// Behind the name of a folder that is in the making.
const UNFINISHED: &str = ".new";

/// Behind the name of a folder with the second names of the files of a tree.
const HELD: &str = ".held";

/// What trees are made with.
#[derive(Clone, Copy, Debug)]
pub struct TreeConfig {
    /// Bytes of a memtable at which it should be sealed.
    pub memtable_bytes: u64,
    /// Bytes of a table at which compaction begins the next one.
    pub table_bytes: u64,
    /// Bytes of blocks and of [rows](limits::ROWS_SHARE) that are kept in memory for all trees
    /// together.
    pub cache_bytes: u64,
    /// Files that all trees together keep open.
    pub open_files: usize,
    /// How long a clean stop goes on with removing folders that nobody needs, in milliseconds.
    pub stop_ms: u64,
}

impl Default for TreeConfig {
    fn default() -> TreeConfig {
        TreeConfig {
            memtable_bytes: limits::MEMTABLE_BYTES,
            table_bytes: limits::TABLE_BYTES,
            cache_bytes: limits::CACHE_BYTES,
            open_files: limits::OPEN_FILES,
            stop_ms: crate::limits::RECLAIM_STOP_MS,
        }
    }
}

/// The trees of a data folder, with what they share. A handle.
#[derive(Clone)]
pub struct Trees {
    folder: Arc<Path>,
    /// The same, open, as soon as it is there: the engine goes by paths, and must not work in a
    /// folder that came there instead.
    place: Arc<OnceLock<File>>,
    config: TreeConfig,
    cache: Arc<Cache>,
    rows: Arc<Rows>,
    descriptors: Arc<DescriptorTable>,
    /// The identity of the data folder; 0: it is not known.
    owner: Arc<AtomicU64>,
    /// Nothing is removed any more from then on: see [`close`](Trees::close).
    closes_at: Arc<Mutex<Option<Instant>>>,
}

impl Trees {
    /// The trees in a folder, which is made with the first of them if it is not there.
    pub fn open(folder: &Path, config: TreeConfig) -> Result<Trees, TreeError> {
        match fs::metadata(folder) {
            Ok(found) if !found.is_dir() => {
                return Err(TreeError::damaged(folder, "it is not a folder"));
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(TreeError::io(folder, error));
            }
            _ => {}
        }
        let place = Arc::new(OnceLock::new());
        if let Ok(folder) = File::open(folder) {
            let _ = place.set(folder);
        }
        let rows_bytes = config.cache_bytes / limits::ROWS_SHARE;
        let blocks_bytes = config.cache_bytes - rows_bytes;
        Ok(Trees {
            folder: folder.into(),
            place,
            config,
            cache: Arc::new(Cache::with_capacity_bytes(blocks_bytes)),
            rows: Arc::new(Rows::new(rows_bytes)),
            descriptors: Arc::new(DescriptorTable::new(config.open_files)),
            owner: Arc::default(),
            closes_at: Arc::default(),
        })
    }

    /// Says in which data folder this is: trees that were noted to be of another one are not
    /// opened.
    pub(crate) fn set_owner(&self, owner: u64) {
        self.owner.store(owner, Ordering::Relaxed);
    }

    pub(super) fn origin(&self, generation: Generation) -> Origin {
        Origin {
            generation,
            owner: self.owner.load(Ordering::Relaxed),
        }
    }

    /// The folder of all trees.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Makes the folder of all trees, on the device, if it is not there.
    pub(super) fn make_folder(&self) -> Result<(), TreeError> {
        let made = || -> io::Result<()> {
            if self.place.get().is_none() {
                fs::create_dir_all(&self.folder)?;
                sync_parent(&self.folder)?;
                let _ = self.place.set(File::open(&self.folder)?);
            }
            Ok(())
        };
        made().map_err(|error| self.error(error))
    }

    /// The generations that are there, in the order of databases and then of sequences.
    pub fn generations(&self) -> Result<Vec<Generation>, TreeError> {
        let names = self.names().map_err(|error| self.error(error))?;
        let mut found: Vec<_> = names
            .iter()
            .filter_map(|name| Generation::parse(name))
            .collect();
        found.sort_unstable();
        Ok(found)
    }

    /// Renames an unfinished tree. If there is one of that name, it goes: it can only be from an
    /// attempt of which the log does not know.
    pub(super) fn finish_folder(
        &self,
        generation: Generation,
        folder: &Path,
    ) -> Result<(), TreeError> {
        self.check_place()?;
        self.remove_if_there(folder)?;
        fs::rename(self.unfinished(generation), folder)
            .and_then(|()| sync_parent(folder))
            .map_err(|error| TreeError::io(folder, error))
    }

    /// Removes a prepared tree. What cannot be removed now goes at the next start.
    pub fn remove_prepared(&self, prepared: Generation) {
        self.discard_folder(&self.unfinished(prepared));
    }

    /// Makes the folder of an empty tree, on the device, and opens it with these counters. It says
    /// of itself if it takes the place of one that was given up.
    pub(super) fn make(
        &self,
        generation: Generation,
        begins_anew: Option<Anew>,
        counters: &Counters,
        stop: &Arc<AtomicBool>,
    ) -> Result<Tree, TreeError> {
        self.check_place()?;
        let unfinished = self.unfinished(generation);
        self.make_folder()?;
        self.remove_if_there(&unfinished)?;
        drop(self.engine(&unfinished, &Counters::default(), stop)?);
        if let Some(anew) = begins_anew {
            anew::note(&unfinished, anew).map_err(|error| TreeError::io(&unfinished, error))?;
        }
        let folder = self.path_of(generation);
        self.finish_folder(generation, &folder)?;
        self.engine(&folder, counters, stop)
    }

    /// Moves a tree that is given up out of the way; returns where it is now. `None`: it is not
    /// there.
    pub(crate) fn give_up(
        &self,
        generation: Generation,
        now_ms: u64,
    ) -> Result<Option<PathBuf>, TreeError> {
        self.check_place()?;
        let name = generation.name();
        if fs::symlink_metadata(self.folder.join(&name))
            .is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        {
            return Ok(None);
        }
        let moved = aside::keep_folder(&self.folder, &name, now_ms);
        moved.map_err(|error| TreeError::io(&self.folder.join(name), error))
    }

    /// Removes the folder of a discarded tree, file by file. What cannot be removed now, or not
    /// before the [end](Trees::close), goes at the next start.
    pub(super) fn discard_folder(&self, folder: &Path) {
        if self.check_place().is_ok() {
            let _ = self.remove_files(folder);
        }
    }

    /// An error if the folder of all trees is no longer where it was opened. Ask before anything is
    /// written: the paths of the engine may lead into the folder of another server.
    pub(crate) fn check_place(&self) -> Result<(), TreeError> {
        match self.place.get() {
            Some(place) => check_place(place, &self.folder).map_err(|error| self.error(error)),
            None => Ok(()),
        }
    }

    /// Leaves what is not ours; the next start sets that aside. Last goes what says of which tree
    /// this is: should there be no time for all of it, a start still knows that the rest may go.
    fn remove_files(&self, folder: &Path) -> io::Result<()> {
        self.remove_named(&folder.join(opening::TABLES), &opening::is_table)?;
        self.remove_named(folder, &|name| {
            opening::is_ours(name) && name != known::NAME
        })?;
        if self.is_closed() {
            return Ok(());
        }
        match fs::remove_file(folder.join(known::NAME)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => fs::remove_dir(folder),
        }
    }

    /// Removes the files of these names in a folder, and then the folder if it is that of tables
    /// and nothing is left in it.
    fn remove_named(&self, folder: &Path, is_ours: &dyn Fn(&str) -> bool) -> io::Result<()> {
        let files = match fs::read_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            files => files?,
        };
        for file in files {
            if self.is_closed() {
                return Ok(());
            }
            let file = file?;
            let is_ours = file.file_name().to_str().is_some_and(is_ours);
            if is_ours && !file.file_type()?.is_dir() {
                fs::remove_file(file.path())?;
            }
        }
        match folder.ends_with(opening::TABLES) {
            true => fs::remove_dir(folder),
            false => Ok(()),
        }
    }

    /// Removes no folder any more: what is discarded stays until the next start, which may begin as
    /// soon as the data folder is unlocked.
    pub(crate) fn close(&self) {
        self.close_within(Duration::ZERO);
    }

    /// The same after the [time](TreeConfig::stop_ms) that a clean stop has, in which what is
    /// discarded is removed as ever.
    pub(crate) fn close_cleanly(&self) {
        self.close_within(Duration::from_millis(self.config.stop_ms));
    }

    fn close_within(&self, time: Duration) {
        let at = Instant::now() + time;
        let mut closes_at = self.closes_at.lock();
        *closes_at = Some(closes_at.map_or(at, |earlier| earlier.min(at)));
    }

    fn is_closed(&self) -> bool {
        (*self.closes_at.lock()).is_some_and(|at| Instant::now() >= at)
    }

    /// The error for a tree that should be there.
    pub(crate) fn missing(&self, generation: Generation) -> TreeError {
        TreeError::Missing {
            folder: self.folder.join(generation.name()),
        }
    }

    /// Returns where the folder of a tree is.
    pub(super) fn path_of(&self, generation: Generation) -> PathBuf {
        self.folder.join(generation.name())
    }

    /// Returns where the second names of its files are.
    pub(super) fn held(&self, generation: Generation) -> PathBuf {
        self.folder.join(generation.name() + HELD)
    }

    /// Returns where its folder is while it is in the making.
    pub(super) fn unfinished(&self, generation: Generation) -> PathBuf {
        self.folder.join(generation.name() + UNFINISHED)
    }

    /// Removes what a drop, a clear or a crash has left, and sets aside what may be something else:
    /// trees of which `fate` knows nothing, and whatever has files in it that are not ours; returns
    /// how many. Call it at a start, when the log is replayed.
    pub(crate) fn clear_away(
        &self,
        fate: &dyn Fn(Generation) -> Fate,
        now_ms: u64,
    ) -> Result<u64, TreeError> {
        self.make_folder()?;
        let mut unknown = Vec::new();
        for name in self.names().map_err(|error| self.error(error))? {
            let unfinished = (name.strip_suffix(UNFINISHED)).or_else(|| name.strip_suffix(HELD));
            let generation = Generation::parse(unfinished.unwrap_or(&name));
            // A name that is not ours is left alone.
            let Some(generation) = generation else {
                continue;
            };
            let folder = self.folder.join(&name);
            let is_over = match fate(generation) {
                _ if unfinished.is_some() => true,
                Fate::Needed => continue,
                Fate::Ended => true,
                Fate::Unnamed => known::is_noted(&folder, self.origin(generation)),
                Fate::Unknown => false,
            };
            let only_ours = || opening::has_only_ours(&folder);
            if is_over && only_ours().map_err(|error| TreeError::io(&folder, error))? {
                self.remove_if_there(&folder)?;
            } else {
                unknown.push(name);
            }
        }
        aside::take_folders(&self.folder, &unknown, now_ms).map_err(|error| self.error(error))
    }

    /// Removes a folder, if it is there.
    pub(super) fn remove_if_there(&self, folder: &Path) -> Result<(), TreeError> {
        match fs::remove_dir_all(folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(TreeError::io(folder, error))
            }
            _ => Ok(()),
        }
    }

    /// The open files of tables.
    pub(super) fn descriptors(&self) -> Arc<DescriptorTable> {
        self.descriptors.clone()
    }

    pub(super) fn config(&self) -> TreeConfig {
        self.config
    }

    /// The rows of a tree.
    pub(super) fn rows(&self) -> TreeRows {
        TreeRows::new(self.rows.clone())
    }

    /// Opens the engine in the folder of a tree.
    pub(super) fn engine(
        &self,
        folder: &Path,
        counters: &Counters,
        stop: &Arc<AtomicBool>,
    ) -> Result<Tree, TreeError> {
        let opened = Config::new(folder, counters.numbers.clone(), counters.versions.clone())
            .use_cache(self.cache.clone())
            .use_descriptor_table(Some(self.descriptors.clone()))
            .with_compaction_filter_factory(Some(Arc::new(StopFilter(stop.clone()))))
            .open();
        match opened.map_err(|error| not_opened(folder, error))? {
            AnyTree::Standard(tree) => Ok(tree),
            AnyTree::Blob(_) => Err(TreeError::damaged(folder, "it is of another kind")),
        }
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        let files = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(names),
            files => files?,
        };
        for file in files {
            names.extend(file?.file_name().into_string());
        }
        Ok(names)
    }

    fn error(&self, error: io::Error) -> TreeError {
        TreeError::io(&self.folder, error)
    }
}

/// What a start knows of a tree that it finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// A database is in it.
    Needed,
    /// No database is in it any more: it was dropped, cleared or converted.
    Ended,
    /// Neither the snapshot nor the log names it, and it began before that snapshot: it was
    /// dropped, cleared or converted if it is ours.
    Unnamed,
    /// Neither the snapshot nor the log names it, and it began later than the snapshot.
    Unknown,
}

/// Keeps everything, and ends a compaction that nobody wants any more: the engine itself looks
/// rarely.
struct StopFilter(Arc<AtomicBool>);

impl Factory for StopFilter {
    fn name(&self) -> &str {
        "stop"
    }

    fn make_filter(&self, _: &Context) -> Box<dyn CompactionFilter> {
        Box::new(StopFilter(self.0.clone()))
    }
}

impl CompactionFilter for StopFilter {
    fn filter_item(&mut self, _: ItemAccessor<'_>, _: &Context) -> lsm_tree::Result<Verdict> {
        if self.0.load(Ordering::Relaxed) {
            let stopped = io::Error::new(io::ErrorKind::Interrupted, "compaction was stopped");
            return Err(stopped.into());
        }
        Ok(Verdict::Keep)
    }
}

/// Brings the entry of a folder in the folder above it to the device.
fn sync_parent(folder: &Path) -> io::Result<()> {
    match folder.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => File::open(parent)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}

impl fmt::Debug for Trees {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Trees")
            .field("folder", &self.folder)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}
