//! The handle to all databases.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::lock_api::ArcRwLockReadGuard;
use parking_lot::{Mutex, RawRwLock, RwLock};

use crate::acknowledged::Acknowledgements;
use crate::blob::{BlobConfig, BlobStore, BlobUse};
use crate::catalogue::{
    BLOBS_NAME, Catalogue, Database, IDENTITIES_NAME, REPLICAS_NAME, State, hidden_config,
};
use crate::database::{CreateError, DatabaseConfig, DatabaseLimits, DropError, Kind};
use crate::database_id::DatabaseId;
use crate::feed::{Feeds, LogTail};
use crate::garbage::Garbage;
use crate::hash::KeyHasher;
use crate::index::Index;
use crate::keep_log::KeepLog;
use crate::log_statistics::LogStatistics;
use crate::memory::MemoryIndex;
use crate::read_room::ReadRoom;
use crate::reserve::Reserve;
use crate::secret::FolderSecret;
use crate::sweep_schedule::{SweepSchedule, TreeSweepSchedule};
use crate::tree::{Generation, TreeIndex, Trees};
use crate::view::{IndexView, View};

/// What a store is made with.
#[derive(Clone, Copy, Debug)]
pub struct StoreConfig {
    /// The secret of the key hash. A server draws it at random; a test fixes it.
    pub hash_seed: u64,
    /// Names the history of commits in a store without a log, which begins anew with each start. A
    /// server draws it at random. A log has an id of its own.
    pub history_id: u64,
    /// Bytes of memory that all databases together may take, by estimate. Loops commit to different
    /// databases at the same time, and each looks at the sum before it adds to it: so the sum may
    /// pass the bound by one commit of each loop, at most
    /// [`COMMIT_BYTES`](crate::limits::commit_bytes) with what the index needs for its entries.
    pub memory_bytes: u64,
    /// The default database.
    pub default_database: DatabaseConfig,
    /// The bounds of blobs.
    pub blobs: BlobConfig,
    /// What is kept of the log for those who watch, beside what a start needs.
    pub keep_log: KeepLog,
    /// What [`Store::secret`] becomes if there is none yet. A server draws it at random.
    pub secret: FolderSecret,
}

impl StoreConfig {
    /// A default database with default limits, and no bound on memory.
    pub fn new(hash_seed: u64) -> StoreConfig {
        StoreConfig {
            hash_seed,
            history_id: 0,
            memory_bytes: u64::MAX,
            default_database: DatabaseConfig::default(),
            blobs: BlobConfig::default(),
            keep_log: KeepLog::NONE,
            secret: FolderSecret::NONE,
        }
    }
}

/// All databases of a server. A handle: clones are the same store.
#[derive(Clone, Debug)]
pub struct Store {
    shared: Arc<SharedStore>,
}

#[derive(Debug)]
struct SharedStore {
    hasher: KeyHasher,
    catalogue: RwLock<Catalogue>,
    /// The last commit sequence given out, of whatever database.
    sequence: AtomicU64,
    /// The latest wall clock seen.
    clock_ms: Arc<AtomicU64>,
    memory_bytes: AtomicU64,
    memory_limit_bytes: u64,
    /// What the process takes, if that is more than it may; else 0.
    excessive_process_bytes: AtomicU64,
    /// For what commits on disk must know.
    read_room: Arc<ReadRoom>,
    /// Commits refused since the store was full.
    memory_refusals: AtomicU64,
    sweep_schedule: SweepSchedule,
    tree_sweep_schedule: TreeSweepSchedule,
    reserve: Reserve,
    has_log: bool,
    /// All databases that have names are on an engine elsewhere.
    is_remote: bool,
    /// Where databases on disk are.
    trees: Option<Trees>,
    /// Entries that wait to be freed.
    reclaiming_entries: AtomicU64,
    /// How many databases were converted since the start.
    conversions: AtomicU64,
    history_id: AtomicU64,
    log_statistics: Mutex<LogStatistics>,
    log_tail: Arc<LogTail>,
    acknowledgements: Arc<Acknowledgements>,
    /// Another server gives out the sequences.
    follows: AtomicBool,
    feeds: Arc<Feeds>,
    blobs: OnceLock<Arc<BlobStore>>,
    secret: OnceLock<FolderSecret>,
}

impl Store {
    /// A store in memory, with an empty default database.
    pub fn in_memory(config: StoreConfig) -> Result<Store, CreateError> {
        Store::new(config, false, None)
    }

    pub(crate) fn new(
        config: StoreConfig,
        has_log: bool,
        trees: Option<Trees>,
    ) -> Result<Store, CreateError> {
        // The default database begins in memory.
        config.default_database.check(has_log, false)?;
        let hasher = KeyHasher::new(config.hash_seed);
        let mut catalogue =
            Catalogue::new(Database::in_memory("", config.default_database, &hasher));
        if has_log {
            let blobs = Database::hidden(BLOBS_NAME, hidden_config(true), &hasher);
            catalogue.add_hidden(DatabaseId::BLOBS, blobs);
            let replicas = Database::hidden(REPLICAS_NAME, hidden_config(true), &hasher);
            catalogue.add_hidden(DatabaseId::REPLICAS, replicas);
        }
        let identities = Database::hidden(IDENTITIES_NAME, hidden_config(has_log), &hasher);
        catalogue.add_hidden(DatabaseId::IDENTITIES, identities);
        let clock_ms = Arc::default();
        let shared = SharedStore {
            hasher,
            catalogue: RwLock::new(catalogue),
            sequence: AtomicU64::new(0),
            feeds: Feeds::new(config.memory_bytes, &clock_ms),
            clock_ms,
            memory_bytes: AtomicU64::new(0),
            memory_limit_bytes: config.memory_bytes,
            excessive_process_bytes: AtomicU64::new(0),
            read_room: ReadRoom::new(config.memory_bytes),
            memory_refusals: AtomicU64::new(0),
            sweep_schedule: SweepSchedule::new(),
            tree_sweep_schedule: TreeSweepSchedule::new(trees.is_some()),
            reserve: Reserve::unbounded(),
            has_log,
            is_remote: false,
            trees,
            reclaiming_entries: AtomicU64::new(0),
            conversions: AtomicU64::new(0),
            history_id: AtomicU64::new(config.history_id),
            log_statistics: Mutex::default(),
            log_tail: Arc::default(),
            acknowledgements: Arc::default(),
            follows: AtomicBool::new(false),
            blobs: OnceLock::new(),
            secret: OnceLock::new(),
        };
        let store = Store {
            shared: Arc::new(shared),
        };
        if !has_log {
            store.set_secret(config.secret);
        }
        Ok(store)
    }

    /// Whether its databases are on an engine elsewhere.
    #[inline]
    pub fn is_remote(&self) -> bool {
        self.shared.is_remote
    }

    /// Notes that its databases are on an engine elsewhere: nobody else has the store yet.
    pub(crate) fn set_remote(&mut self) {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.is_remote = true;
        }
    }

    /// What decides which databases there are.
    pub(crate) fn catalogue(&self) -> &RwLock<Catalogue> {
        &self.shared.catalogue
    }

    /// The database of a name; the default one has the empty name.
    pub fn database(&self, name: &str) -> Option<DatabaseId> {
        self.shared.catalogue.read().find(name)
    }

    /// All databases, in the order of their creation.
    pub fn databases(&self) -> Vec<DatabaseInfo> {
        let mut databases = self.all_databases();
        databases.retain(|database| !database.id.is_hidden());
        databases
    }

    /// The same with the hidden indexes, which come last.
    pub(crate) fn all_databases(&self) -> Vec<DatabaseInfo> {
        let catalogue = self.shared.catalogue.read();
        let info = |(id, database): (DatabaseId, &Arc<Database>)| DatabaseInfo {
            id,
            name: database.name.to_string(),
            config: database.config,
            tree: database.tree().map(|tree| tree.generation()),
        };
        catalogue.iter().map(info).collect()
    }

    /// Checks and makes a database in one step, as there may be several committers: for a store
    /// without a log.
    pub(crate) fn create_unlogged(
        &self,
        name: &str,
        config: DatabaseConfig,
        sequence: u64,
    ) -> Result<DatabaseId, CreateError> {
        debug_assert!(!self.has_log(), "what is logged is made when it is durable");
        config.check(false, false)?;
        let mut catalogue = self.shared.catalogue.write();
        let id = catalogue.check_insert(name)?;
        let database = Database::in_memory(name, config, &self.shared.hasher);
        database.begin_at(sequence);
        catalogue.insert(id, database);
        Ok(id)
    }

    /// The id that a database of this name and configuration would get now.
    pub(crate) fn check_create(
        &self,
        name: &str,
        config: &DatabaseConfig,
    ) -> Result<DatabaseId, CreateError> {
        config.check(self.has_log(), self.shared.trees.is_some())?;
        self.shared.catalogue.read().check_insert(name)
    }

    pub(crate) fn check_drop(&self, id: DatabaseId) -> Result<(), DropError> {
        self.shared.catalogue.read().check_remove(id)
    }

    /// Makes a database that was checked, now or in a previous run. One on disk comes with its
    /// tree.
    pub(crate) fn insert_database(
        &self,
        id: DatabaseId,
        name: &str,
        config: DatabaseConfig,
        tree: Option<TreeIndex>,
        sequence: u64,
    ) {
        let database = match tree {
            None => Database::in_memory(name, config, &self.shared.hasher),
            Some(tree) => Database::new(name, config, Index::Tree(tree)),
        };
        database.begin_at(sequence);
        self.shared.catalogue.write().insert(id, database);
    }

    /// Gives a database its tree at a start: it was in the catalogue without.
    pub(crate) fn set_tree(&self, id: DatabaseId, tree: TreeIndex) {
        if let Some(database) = self.find(id) {
            database.state.write().index = Index::Tree(tree);
        }
    }

    /// Makes a database one of another kind at a start, empty for now.
    pub(crate) fn replace_empty(&self, id: DatabaseId, kind: Kind) {
        let older = self.find(id).expect("it was just found");
        let config = older.config.of_kind(kind);
        let database = Database::in_memory(&older.name, config, self.hasher());
        self.shared.catalogue.write().replace(id, database);
    }

    /// Makes a database one of another kind, under the same id, with this index in the place of
    /// what it was in.
    pub(crate) fn convert_database(
        &self,
        id: DatabaseId,
        config: DatabaseConfig,
        index: Index,
        memory_bytes: u64,
        sequence: u64,
    ) -> Index {
        let older = self.find(id).expect("nobody drops what is converted");
        let database = Database::new(&older.name, config, index);
        database.take_over_feed(&older, &self.shared.feeds);
        {
            let mut state = database.state.write();
            state.sequence = sequence;
            state.memory_bytes = memory_bytes;
        }
        self.change_memory(0, memory_bytes);
        database.feed(&self.shared.feeds).pass(sequence);
        self.shared.catalogue.write().replace(id, database);
        // Whoever found the older one before must look again.
        let mut state = older.state.write();
        state.dropped = true;
        self.change_memory(state.memory_bytes, 0);
        state.memory_bytes = 0;
        self.shared.conversions.fetch_add(1, Ordering::Release);
        // What expires has not been looked for there.
        self.sweep_schedule().expect(0);
        std::mem::replace(
            &mut state.index,
            Index::Memory(MemoryIndex::new(self.hasher().clone())),
        )
    }

    /// Where databases on disk are, if this store can have any.
    pub(crate) fn trees(&self) -> Option<&Trees> {
        self.shared.trees.as_ref()
    }

    /// How many databases were converted since the start: what is known of a database does not
    /// change but by that.
    #[inline]
    pub(crate) fn conversions(&self) -> u64 {
        self.shared.conversions.load(Ordering::Acquire)
    }

    /// The tree of a database on disk, as it is now: a clear puts another one in its place. `None`:
    /// there is no such database (any more), or it is in memory.
    pub fn tree(&self, id: DatabaseId) -> Option<TreeIndex> {
        self.read_state(id)?.index.tree().cloned()
    }

    /// The number that the next database gets.
    pub(crate) fn next_database_number(&self) -> u32 {
        self.shared.catalogue.read().next_number()
    }

    /// Databases with numbers below this one were made in previous runs.
    pub(crate) fn skip_database_numbers(&self, next: u32) {
        self.shared.catalogue.write().skip_numbers(next);
    }

    /// Drops a database with all it holds. Calls that still name it find it unknown.
    pub(crate) fn remove_database(&self, id: DatabaseId) -> Result<Garbage, DropError> {
        self.remove_database_if(id, |_| true)
    }

    /// Drops a database if it is empty.
    pub(crate) fn remove_empty_database(&self, id: DatabaseId) -> Result<Garbage, DropError> {
        self.remove_database_if(id, |entries| entries == 0)
    }

    /// Drops a database if so many entries may go. Looks under the lock under which it is emptied,
    /// and takes the lock of the catalogue only behind it: whoever reads a database may look
    /// something up there.
    fn remove_database_if(
        &self,
        id: DatabaseId,
        may_go: impl FnOnce(u64) -> bool,
    ) -> Result<Garbage, DropError> {
        self.check_drop(id)?;
        let database = self.find(id).ok_or(DropError::Unknown)?;
        let mut state = database.state.write();
        if state.dropped {
            return Err(DropError::Unknown);
        }
        let entries = state.index.entries();
        if !may_go(entries) {
            return Err(DropError::not_empty(entries, BlobUse::default()));
        }
        state.dropped = true;
        self.change_memory(state.memory_bytes, 0);
        state.memory_bytes = 0;
        let content = match &mut state.index {
            Index::Memory(index) => Garbage::of(index.take()),
            Index::Tree(tree) => Garbage::of_tree(tree.clone()),
            Index::Remote(_) => Garbage::default(),
        };
        drop(state);
        database.end_feed();
        self.shared.catalogue.write().remove(id)?;
        if let Some(blobs) = self.blobs() {
            blobs.database_dropped(id);
        }
        Ok(content)
    }

    /// Where the changes of databases are kept that are watched.
    pub(crate) fn feeds(&self) -> &Arc<Feeds> {
        &self.shared.feeds
    }

    /// The limits of a database.
    pub fn limits(&self, id: DatabaseId) -> Option<DatabaseLimits> {
        self.config(id).map(|config| config.limits)
    }

    /// Names the history that all commit sequences of this store belong to: with another one they
    /// mean nothing. It is that of the log, which is another one after a part of the log was given
    /// up or a backup restored, and else that of [`StoreConfig::history_id`].
    pub fn history_id(&self) -> u64 {
        self.shared.history_id.load(Ordering::Relaxed)
    }

    pub(crate) fn set_history_id(&self, history_id: u64) {
        self.shared.history_id.store(history_id, Ordering::Relaxed);
    }

    /// Figures of the log, as they were after its last write or sync; `None` if there is no log.
    pub fn log_statistics(&self) -> Option<LogStatistics> {
        self.has_log().then(|| *self.shared.log_statistics.lock())
    }

    pub(crate) fn set_log_statistics(&self, statistics: LogStatistics) {
        *self.shared.log_statistics.lock() = statistics;
    }

    /// Whether it repeats what another server decides: a replica.
    #[inline]
    pub fn follows(&self) -> bool {
        self.shared.follows.load(Ordering::Relaxed)
    }

    pub(crate) fn set_follows(&self, follows: bool) {
        self.shared.follows.store(follows, Ordering::Relaxed);
    }

    pub(crate) fn acknowledgements(&self) -> &Arc<Acknowledgements> {
        &self.shared.acknowledgements
    }

    /// What of the log can be read; `None`: there is none.
    pub(crate) fn log_tail(&self) -> Option<&Arc<LogTail>> {
        self.has_log().then_some(&self.shared.log_tail)
    }

    /// The blobs of a store with a log that is open.
    pub fn blobs(&self) -> Option<&Arc<BlobStore>> {
        self.shared.blobs.get()
    }

    /// What a database has of blobs; nothing in a store without them.
    pub fn blob_use(&self, database: DatabaseId) -> BlobUse {
        let blobs = self.blobs();
        blobs.map_or_else(BlobUse::default, |blobs| blobs.used(database))
    }

    pub(crate) fn set_blobs(&self, blobs: Arc<BlobStore>) {
        let set = self.shared.blobs.set(blobs);
        debug_assert!(set.is_ok(), "a store is opened once");
    }

    /// The secret of the data folder, or of this run where nothing is kept. `None`: there was no
    /// room on the disk to note one, which is tried again at each start.
    pub fn secret(&self) -> Option<&FolderSecret> {
        self.shared.secret.get()
    }

    pub(crate) fn set_secret(&self, secret: FolderSecret) {
        if !secret.is_none() {
            let set = self.shared.secret.set(secret);
            debug_assert!(set.is_ok(), "a store is opened once");
        }
    }

    /// What a database was made with.
    pub fn config(&self, id: DatabaseId) -> Option<DatabaseConfig> {
        let catalogue = self.shared.catalogue.read();
        catalogue.get(id).map(|database| database.config)
    }

    /// Whether there is a log, so that databases can be durable.
    pub fn has_log(&self) -> bool {
        self.shared.has_log
    }

    /// What readers of a database in memory see, held still until the view is dropped: `None` if
    /// there is no such database (any more). Writers wait meanwhile, so a loop takes one view per
    /// tick and drops it with the tick's reads.
    ///
    /// A thread that holds a view must neither take another one of the same database nor run a
    /// committer.
    pub fn view(&self, id: DatabaseId) -> Option<View<'_>> {
        match self.index_view(id) {
            IndexView::Memory(view) => Some(view),
            IndexView::Disk(_) | IndexView::Remote(_) | IndexView::Gone => None,
        }
    }

    /// Where the entries of a database are to be looked for now. The kind of a database can change
    /// while it is there.
    pub fn index_view(&self, id: DatabaseId) -> IndexView<'_> {
        let Some(state) = self.read_state(id) else {
            return IndexView::Gone;
        };
        match &state.index {
            Index::Memory(_) => IndexView::Memory(View::new(state, self.history_id())),
            Index::Tree(tree) => IndexView::Disk(tree.clone()),
            Index::Remote(remote) => IndexView::Remote(remote.shape),
        }
    }

    /// What readers of a database see.
    fn read_state(&self, id: DatabaseId) -> Option<ArcRwLockReadGuard<RawRwLock, State>> {
        loop {
            let state = Arc::clone(&self.shared.catalogue.read().get(id)?.state);
            let state = state.read_arc();
            if !state.dropped {
                return Some(state);
            }
            // It was dropped, or converted, just now: then the catalogue has, or will have in a
            // moment, nothing or another.
            drop(state);
            std::thread::yield_now();
        }
    }

    /// The hash of keys in this store.
    pub fn hasher(&self) -> &KeyHasher {
        &self.shared.hasher
    }

    /// The store's clock, which never goes back: the latest of the wall clocks shown to it. Reads
    /// should be given this time, so that what had expired for one stays so for all.
    pub fn clock_ms(&self, wall_ms: u64) -> u64 {
        // A load first: nearly always somebody has seen this millisecond already, and a load is
        // shared, a read-modify-write is not.
        let seen_ms = self.shared.clock_ms.load(Ordering::Relaxed);
        if wall_ms <= seen_ms {
            seen_ms
        } else {
            self.shared
                .clock_ms
                .fetch_max(wall_ms, Ordering::Relaxed)
                .max(wall_ms)
        }
    }

    /// What all entries take, in bytes, by estimate.
    pub fn memory_bytes(&self) -> u64 {
        self.shared.memory_bytes.load(Ordering::Relaxed)
    }

    /// Returns how many commits were refused since [`Store::memory_bytes`] would have passed its
    /// bound.
    pub fn memory_refusals(&self) -> u64 {
        self.shared.memory_refusals.load(Ordering::Relaxed)
    }

    pub(crate) fn count_memory_refusal(&self) {
        self.shared.memory_refusals.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read_room(&self) -> &Arc<ReadRoom> {
        &self.shared.read_room
    }

    /// Bytes of existing entries that were read for commits that are not decided yet.
    pub fn read_before_bytes(&self) -> usize {
        self.shared.read_room.held_bytes()
    }

    /// Notes how many bytes the process takes, if that is more than it may beside its data; `None`:
    /// it does not. Until it is told otherwise, the store refuses what grows: entries of one size
    /// that were removed can leave memory in pieces that entries of another size do not fit into,
    /// so that [`Store::memory_bytes`] says little of what is left.
    pub fn note_process_bytes(&self, excessive_bytes: Option<u64>) {
        let bytes = excessive_bytes.unwrap_or(0);
        (self.shared.excessive_process_bytes).store(bytes, Ordering::Relaxed);
    }

    /// What the process takes, if that is more than it may.
    pub(crate) fn excessive_process_bytes(&self) -> Option<u64> {
        let bytes = self.shared.excessive_process_bytes.load(Ordering::Relaxed);
        (bytes > 0).then_some(bytes)
    }

    /// The bound on [`Store::memory_bytes`].
    pub fn memory_limit_bytes(&self) -> u64 {
        self.shared.memory_limit_bytes
    }

    pub(crate) fn find(&self, id: DatabaseId) -> Option<Arc<Database>> {
        self.shared.catalogue.read().get(id).cloned()
    }

    pub(crate) fn tree_sweep_schedule(&self) -> &TreeSweepSchedule {
        &self.shared.tree_sweep_schedule
    }

    pub(crate) fn sweep_schedule(&self) -> &SweepSchedule {
        &self.shared.sweep_schedule
    }

    pub(crate) fn database_ids_from(&self, first: DatabaseId) -> Vec<DatabaseId> {
        self.shared.catalogue.read().ids_from(first)
    }

    /// The next commit sequence. Call it under the lock of the commit's database, so that the order
    /// of sequences is the order of decisions there. `None`: the counter is as far past the log as
    /// it may be.
    #[inline]
    pub(crate) fn next_sequence(&self) -> Option<u64> {
        let sequence = self.shared.sequence.fetch_add(1, Ordering::Relaxed) + 1;
        self.shared.reserve.admits(sequence).then_some(sequence)
    }

    /// The last commit sequence given out; more, if some were not admitted.
    pub(crate) fn last_sequence(&self) -> u64 {
        self.shared.sequence.load(Ordering::Relaxed)
    }

    /// Sequences up to this one were given out in previous runs.
    pub(crate) fn skip_sequences(&self, through: u64) {
        self.shared.sequence.fetch_max(through, Ordering::Relaxed);
    }

    /// Lets the views of all databases say that they show everything up to a sequence. What was
    /// answered in a previous run may have had a later sequence than the last change, and for
    /// nobody shall time go back.
    pub(crate) fn raise_views(&self, sequence: u64) {
        for (_, database) in self.shared.catalogue.read().iter() {
            let mut state = database.state.write();
            state.sequence = state.sequence.max(sequence);
        }
    }

    /// Puts the keys of all databases in order, and adds up what all entries take, after a start
    /// that did neither.
    pub(crate) fn finish_loading(&self) {
        for (_, database) in self.shared.catalogue.read().iter() {
            let mut state = database.state.write();
            let state = &mut *state;
            let Index::Memory(index) = &mut state.index else {
                continue;
            };
            index.finish_loading();
            let memory_bytes = index.memory_bytes();
            self.change_memory(state.memory_bytes, memory_bytes);
            state.memory_bytes = memory_bytes;
        }
    }

    pub(crate) fn reserve(&self) -> &Reserve {
        &self.shared.reserve
    }

    /// Entries of dropped, cleared and converted databases that are not freed yet.
    pub fn reclaiming_entries(&self) -> u64 {
        self.shared.reclaiming_entries.load(Ordering::Relaxed)
    }

    pub(crate) fn add_reclaiming(&self, entries: u64) {
        self.shared
            .reclaiming_entries
            .fetch_add(entries, Ordering::Relaxed);
    }

    pub(crate) fn sub_reclaiming(&self, entries: u64) {
        self.shared
            .reclaiming_entries
            .fetch_sub(entries, Ordering::Relaxed);
    }

    /// Books the change of one database's memory.
    pub(crate) fn change_memory(&self, old_bytes: u64, new_bytes: u64) {
        if new_bytes != old_bytes {
            self.shared
                .memory_bytes
                .fetch_add(new_bytes.wrapping_sub(old_bytes), Ordering::Relaxed);
        }
    }
}

/// What is known of a database without looking into it.
#[derive(Clone, Debug)]
pub struct DatabaseInfo {
    /// Its id.
    pub id: DatabaseId,
    /// Its name; empty for the default one.
    pub name: String,
    /// What it was made with.
    pub config: DatabaseConfig,
    /// On disk: the tree that it is in.
    pub tree: Option<Generation>,
}
