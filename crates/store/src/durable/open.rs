//! The start of a durable store: claim the folder, replay the log.

use std::path::PathBuf;
use std::sync::Arc;

use wal::disk::Disk;
use wal::{KnownLog, LogConfig, OpenLog, ReadLog, Recovered};

use super::ahead::RecordsAhead;
use super::committer::{CommitterParts, DurableCommitter};
use super::folder::{self, Claimed, FolderFile, FolderState, claim};
use super::open_error::OpenError;
use super::replay::Replay;
use super::replay_trees::{LostTree, ReplayTrees, ReplayedTrees};
use super::snapshot_plan::SnapshotPlan;
use crate::aside::{ClocksAtStart, SetAside};
use crate::blob::{self, FoundBlobs};
use crate::blob_index::read_descriptions;
use crate::database_id::DatabaseId;
use crate::log::Record;
use crate::secret::FolderSecret;
use crate::snapshot::{self, Summary};
use crate::store::{Store, StoreConfig};
use crate::tree::{TreeConfig, Trees};

/// The folder of databases on disk within a data folder.
pub const TREES_FOLDER: &str = "trees";

/// Where databases on disk are.
#[derive(Clone, Debug)]
pub struct TreePlace {
    /// A folder of their own, within the data folder or elsewhere.
    pub folder: PathBuf,
    /// What they are made with.
    pub config: TreeConfig,
}

/// A durable store that is open.
#[derive(Debug)]
pub struct Opened {
    /// For the loops.
    pub store: Store,
    /// For the one who runs the durable committer.
    pub committer: DurableCommitter,
    /// What the log held.
    pub recovered: Recovered,
    /// The snapshot that was loaded before it.
    pub snapshot: Option<Summary>,
    /// What the folder of blobs held.
    pub blobs: FoundBlobs,
    /// Folders of databases on disk that nothing names, which were set aside.
    pub trees_set_aside: u64,
    /// Tables in folders of databases on disk that no list of tables named, such as a crash leaves:
    /// they were removed.
    pub trees_strays: Vec<PathBuf>,
    /// Databases on disk that were damaged, and were begun anew.
    pub trees_lost: Vec<LostTree>,
}

impl Store {
    /// Opens the store in a folder, or makes one: every database that was created there, with all
    /// that is in the log. The default database is as `config` says, each time.
    ///
    /// An error means that nothing was changed, unless it says otherwise.
    pub fn open(
        config: StoreConfig,
        disk: Arc<dyn Disk>,
        log_config: &LogConfig,
    ) -> Result<Opened, OpenError> {
        Store::open_with_trees(config, disk, log_config, None)
    }

    /// The same with a place for databases on disk, which is made if it is not there. Without one
    /// there can be none.
    pub fn open_with_trees(
        config: StoreConfig,
        disk: Arc<dyn Disk>,
        log_config: &LogConfig,
        trees: Option<&TreePlace>,
    ) -> Result<Opened, OpenError> {
        let (drawn, accept_loss) = (log_config.new_log_id, log_config.accept_loss);
        let claimed = claim(&disk, drawn, config.secret, accept_loss);
        let claimed = claimed.map_err(OpenError::Folder)?;
        Store::open_locked(config, disk, log_config, trees, claimed)
    }

    /// Opens the store in a folder that was filled from a backup, and is not marked as a data
    /// folder yet.
    pub(crate) fn open_restored(
        config: StoreConfig,
        disk: Arc<dyn Disk>,
        log_config: &LogConfig,
        trees: Option<&TreePlace>,
    ) -> Result<Opened, OpenError> {
        let claimed = folder::claim_unmarked(&disk).map_err(OpenError::Folder)?;
        Store::open_locked(config, disk, log_config, trees, claimed)
    }

    fn open_locked(
        config: StoreConfig,
        disk: Arc<dyn Disk>,
        log_config: &LogConfig,
        trees: Option<&TreePlace>,
        claimed: Claimed,
    ) -> Result<Opened, OpenError> {
        let machine_ms = log_config.now_ms;
        let folder_state = claimed.file.state();
        let folder_file = Arc::new(claimed.file);
        let store = new_store(config, &disk, trees, folder_state.owner)?;
        store.set_follows(log_config.follows);
        let mut replay = Replay::new(&store, log_config.accept_loss).map_err(OpenError::Tree)?;
        let snapshot = load_newest(&*disk, &mut replay).map_err(OpenError::Snapshot)?;
        let log_config = with_trees(
            &with_snapshot(log_config, snapshot.as_ref(), folder_state),
            replay.trees(),
        );
        let ReplayedLog {
            read,
            trees,
            removed,
            owner,
        } = replay_log(&store, &disk, &log_config, replay, &config)?;
        let wall_ms = read.wall_ms().max(wall_ms(snapshot.as_ref()));
        let clocks = ClocksAtStart::new(machine_ms, log_config.now_ms.max(wall_ms));
        let blobs = look_for_blobs(&store, &*disk, &removed, wall_ms, log_config.accept_loss)?;
        let OpenLog {
            log,
            stock,
            recovered,
        } = open_log(&store, read, &folder_file, owner, config.secret)?;
        let trees = trees.finish(clocks.data_ms, recovered.next_sequence - 1);
        let mut trees = trees.map_err(OpenError::Tree)?;
        let trees_set_aside = trees.set_aside;
        let trees_strays = std::mem::take(&mut trees.strays);
        let lost = std::mem::take(&mut trees.lost).into_iter();
        let trees_lost = lost.map(|(id, lost)| with_name(&store, id, lost)).collect();
        begin_behind(&store, &mut trees, &recovered, wall_ms);
        clear_away(&*disk, snapshot.as_ref());
        if !recovered.closed {
            sync_uploads(&blobs, &*disk)?;
        }
        let (blobs, blobs_found) = open_blobs(&store, blobs, &disk, config.blobs, clocks)?;
        store.set_blobs(blobs);
        let (segment_bytes, log_bytes) = (log_config.segment_bytes, recovered.bytes);
        let parts = CommitterParts {
            log,
            stock,
            lock: claimed.lock,
            snapshots: SnapshotPlan::new(disk, segment_bytes, log_bytes, snapshot.as_ref()),
            trees,
            folder_file,
            folder_was_damaged: claimed.was_damaged,
            keep_log: config.keep_log,
        };
        let committer = DurableCommitter::new(&store, parts);
        Ok(Opened {
            store,
            committer,
            recovered,
            snapshot,
            blobs: blobs_found,
            trees_set_aside,
            trees_strays,
            trees_lost,
        })
    }
}

/// A store without anything in it, whose databases on disk belong to the folder of this identity.
fn new_store(
    config: StoreConfig,
    disk: &Arc<dyn Disk>,
    trees: Option<&TreePlace>,
    owner: u64,
) -> Result<Store, OpenError> {
    let trees = trees.map(|place| Trees::open(&place.folder, place.config));
    let trees = trees.transpose().map_err(OpenError::Tree)?;
    if let Some(trees) = &trees {
        trees.set_owner(owner);
    }
    let store = Store::new(config, true, trees).map_err(OpenError::Config)?;
    if let Some(tail) = store.log_tail() {
        tail.set_disk(disk);
    }
    Ok(store)
}

/// Opens the log that was read. From now on it is missed if it is gone.
fn open_log(
    store: &Store,
    read: ReadLog<'_>,
    folder_file: &Arc<FolderFile>,
    owner: u64,
    drawn_secret: FolderSecret,
) -> Result<OpenLog, OpenError> {
    let (mut open, unused) = read.open().map_err(OpenError::Log)?;
    let durable_sequence = open.recovered.next_sequence - 1;
    let is_noted = folder_file
        .note_start(
            owner,
            drawn_secret,
            durable_sequence,
            open.log.newest_segment(),
        )
        .map_err(OpenError::Folder)?;
    // Else the next start would miss them.
    if is_noted {
        let retired = open.stock.retire(unused);
        retired.map_err(|error| OpenError::Log(error.into()))?;
    }
    store.set_secret(folder_file.state().secret);
    open.stock.set_listener(folder_file.clone());
    if let Some(trees) = store.trees() {
        trees.set_owner(folder_file.state().owner);
    }
    Ok(open)
}

/// What the log has made of the databases, before anything is written.
struct ReplayedLog<'a> {
    read: ReadLog<'a>,
    trees: ReplayTrees<'a>,
    /// Blobs that the log removes.
    removed: blob::RemovedContents,
    /// The identity of the folder.
    owner: u64,
}

/// Replays the log behind what was loaded of a snapshot. A refused start leaves the folder as it
/// was.
fn replay_log<'a>(
    store: &Store,
    disk: &Arc<dyn Disk>,
    log_config: &'a LogConfig,
    mut replay: Replay<'a>,
    config: &StoreConfig,
) -> Result<ReplayedLog<'a>, OpenError> {
    let mut ahead = RecordsAhead::new(store.hasher().clone());
    let read = wal::read(disk.clone(), log_config, &mut |record| {
        ahead.add(&Record::try_from(*record)?, &mut replay);
        Ok(())
    });
    ahead.flush(&mut replay);
    // A log that cannot be replayed may be damaged: then that is the better message.
    let read = read.map_err(OpenError::Log)?;
    // Its databases on disk know the identity of a folder whose own file was damaged. Were it
    // another one, a crash before all of them have noted that would make them trees of another
    // folder.
    let owner = replay.trees().noted_owner();
    let owner = owner.unwrap_or_else(|| folder::new_owner(log_config.new_log_id));
    let removed = replay.take_removed();
    let trees = replay.finish(config.default_database.durability)?;
    let last_sequence = read.last_sequence();
    let tree_sequence = match last_sequence {
        // What the log does not know is removed, but not if there is no log at all.
        0 => trees.highest_sequence(),
        _ => trees.durable_sequence(),
    };
    if tree_sequence > last_sequence && !log_config.accept_loss {
        return Err(OpenError::TreeAhead {
            tree_sequence,
            last_sequence,
        });
    }
    Ok(ReplayedLog {
        read,
        trees,
        removed,
        owner,
    })
}

/// Lets a store go on behind what was recovered, with its databases on disk.
fn begin_behind(store: &Store, trees: &mut ReplayedTrees, recovered: &Recovered, wall_ms: u64) {
    let last_sequence = recovered.next_sequence - 1;
    store.skip_sequences(last_sequence);
    for (&id, writer) in &mut trees.writers {
        // What was answered in a previous run may have had a later sequence than the last change.
        writer.end_commit(last_sequence);
        store.set_tree(id, writer.index().clone());
    }
    if !recovered.created {
        store.raise_views(last_sequence);
    }
    store.set_history_id(recovered.history_id);
    store.clock_ms(wall_ms);
    store.load_replica_set();
}

/// Loads the newest snapshot, if there is one. It alone counts: should it be damaged, nobody knows
/// whether an older one would do.
fn load_newest(
    disk: &dyn Disk,
    replay: &mut Replay<'_>,
) -> Result<Option<Summary>, snapshot::SnapshotReadError> {
    let sequences =
        snapshot::list(disk).map_err(|source| snapshot::SnapshotReadError::folder(disk, source))?;
    let Some(&newest) = sequences.last() else {
        return Ok(None);
    };
    snapshot::read(disk, newest, replay).map(Some)
}

/// Looks through the contents of blobs, and changes nothing.
fn look_for_blobs(
    store: &Store,
    disk: &dyn Disk,
    removed: &blob::RemovedContents,
    wall_ms: u64,
    accept_loss: bool,
) -> Result<blob::BlobOpening, OpenError> {
    let folder = || disk.describe(blob::FOLDER);
    let read = || {
        let mut opening = read_descriptions(store);
        // It is made when it is certain that the server starts.
        if disk.has_subfolder(blob::FOLDER)? {
            opening.read_folder(&*disk.subfolder(blob::FOLDER)?, removed, wall_ms)?;
        }
        Ok(opening)
    };
    let opening = read().map_err(|source| OpenError::Blobs {
        folder: folder(),
        source,
    })?;
    match opening.lost_contents() {
        Some(contents) if !accept_loss => Err(OpenError::Orphans {
            folder: folder(),
            contents,
        }),
        _ => Ok(opening),
    }
}

/// Makes durable what unfinished uploads have, after an end that was not clean.
fn sync_uploads(opening: &blob::BlobOpening, disk: &dyn Disk) -> Result<(), OpenError> {
    let synced = disk.subfolder(blob::FOLDER);
    let synced = synced.and_then(|contents| opening.sync_uploads(&*contents));
    synced.map_err(|source| OpenError::Blobs {
        folder: disk.describe(blob::FOLDER),
        source,
    })
}

/// Opens the blobs, and sets aside what nothing names.
fn open_blobs(
    store: &Store,
    opening: blob::BlobOpening,
    disk: &Arc<dyn Disk>,
    config: blob::BlobConfig,
    clocks: ClocksAtStart,
) -> Result<(Arc<blob::BlobStore>, FoundBlobs), OpenError> {
    let aside = SetAside::new(disk.clone(), store.trees().map(Trees::folder), clocks);
    (disk.subfolder(blob::FOLDER))
        .and_then(|contents| opening.open(contents, aside, config, clocks.data_ms))
        .map_err(|source| OpenError::Blobs {
            folder: disk.describe(blob::FOLDER),
            source,
        })
}

/// How the log is opened behind a snapshot, in a folder that knows of it.
fn with_snapshot(
    log_config: &LogConfig,
    snapshot: Option<&Summary>,
    folder_state: FolderState,
) -> LogConfig {
    let known = snapshot.map_or(KnownLog::default(), Summary::known);
    let known = folder_state.add_to(known);
    LogConfig {
        known: Some(known),
        least_sequence: log_config.least_sequence.max(known.durable_sequence),
        // The log's clock does not go back either.
        now_ms: log_config.now_ms.max(wall_ms(snapshot)),
        ..*log_config
    }
}

/// The same with what is known from the trees.
fn with_trees(log_config: &LogConfig, trees: &ReplayTrees<'_>) -> LogConfig {
    let known = log_config.known.map(|known| KnownLog {
        durable_sequence: known.durable_sequence.max(trees.durable_sequence()),
        ..known
    });
    let highest_sequence = trees.highest_sequence();
    LogConfig {
        known,
        least_sequence: log_config.least_sequence.max(highest_sequence),
        ..*log_config
    }
}

fn with_name(store: &Store, id: DatabaseId, lost: LostTree) -> LostTree {
    let name = store.find(id).map(|database| database.name.to_string());
    LostTree {
        name: name.unwrap_or_default(),
        ..lost
    }
}

fn base_sequence(snapshot: Option<&Summary>) -> u64 {
    snapshot.map_or(0, |snapshot| snapshot.header.sequence)
}

fn wall_ms(snapshot: Option<&Summary>) -> u64 {
    snapshot.map_or(0, |snapshot| snapshot.header.wall_ms)
}

/// Removes what a previous run left. What cannot be removed now is tried again at the next start;
/// it does no harm.
fn clear_away(disk: &dyn Disk, snapshot: Option<&Summary>) {
    let _ = snapshot::remove_unfinished(disk);
    let _ = snapshot::remove_older(disk, base_sequence(snapshot));
}
