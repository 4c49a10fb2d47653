//! Where a server keeps its data: in memory alone, or with a log in a data folder.

use std::ops::ControlFlow;
use std::sync::Arc;

use store::disk::Disk;
use store::durable::{ConvertError, Durable, DurableCommitter, Event, Opened, TreePlace};
use store::log::{LogConfig, Recovered};
use store::tree::TreeError;
use store::{
    DatabaseConfig, DatabaseId, DatabaseLimits, Direction, Durability, Kind, Range, Store,
    StoreConfig,
};

use crate::clock::TimeSource;
use crate::settings::Log;
use crate::{Config, StartError};

/// Where data are kept.
pub enum Storage {
    /// Nowhere: everything is lost when the server stops.
    Volatile {
        /// Names the history of this server's commits, which begins with its start: draw it at random.
        history_id: u64,
    },
    /// In a data folder, with a log.
    Folder {
        /// The folder.
        disk: Arc<dyn Disk>,
        /// How the log is opened.
        log: LogConfig,
        /// Where databases on disk are; `None`: there can be none.
        trees: Option<TreePlace>,
        /// What an answer of the default database promises.
        durability: Durability,
        /// What the default database becomes if nothing is in it; `None`: it stays what it is.
        kind: Option<Kind>,
    },
}

/// A store that is open.
pub(crate) struct Opening {
    pub store: Store,
    /// Of the databases that last; whoever has it must run it.
    pub committer: Option<DurableCommitter>,
    /// What the log held.
    pub recovered: Option<Recovered>,
    /// What the folder of blobs held.
    pub blobs: Option<store::blob::Found>,
    /// Folders of databases on disk that nothing names, which were set aside.
    pub trees_set_aside: u64,
}

/// Opens the store that the configuration asks for.
pub(crate) fn open(config: &Config) -> Result<Opening, StartError> {
    let (disk, log, trees, durability) = match &config.storage {
        Storage::Volatile { history_id } => {
            let store = Store::in_memory(StoreConfig {
                history_id: *history_id,
                ..store_config(config, Durability::Volatile)
            });
            return Ok(Opening {
                store: store.map_err(StartError::Database)?,
                committer: None,
                recovered: None,
                blobs: None,
                trees_set_aside: 0,
            });
        }
        Storage::Folder {
            disk,
            log,
            trees,
            durability,
            ..
        } => (Arc::clone(disk), log, trees.as_ref(), *durability),
    };
    let store_config = store_config(config, durability);
    let opened = Store::open_with_trees(store_config, disk, log, trees);
    let Opened {
        store,
        committer,
        recovered,
        blobs,
        trees_set_aside,
        ..
    } = opened.map_err(StartError::Open)?;
    Ok(Opening {
        store,
        committer: Some(committer),
        recovered: Some(recovered),
        blobs: Some(blobs),
        trees_set_aside,
    })
}

/// Starts the threads behind the databases that last.
pub(crate) fn start(committer: DurableCommitter, config: &Config) -> Result<Durable, StartError> {
    let clock = Unticked(Arc::clone(&config.time));
    let log = Arc::clone(&config.log);
    let report = Box::new(move |event: Event| said(&*log, event));
    Durable::start(committer, clock, report).map_err(StartError::Thread)
}

/// Makes the default database one of the kind that the configuration asks for, if nothing is in it.
pub(crate) fn settle_kind(
    config: &Config,
    store: &Store,
    durable: &Durable,
) -> Result<(), StartError> {
    let Storage::Folder {
        kind: Some(wanted), ..
    } = config.storage
    else {
        return Ok(());
    };
    let is_other = |of: &DatabaseConfig| of.kind != wanted;
    let Some(is) = store.config(DatabaseId::DEFAULT).filter(is_other) else {
        return Ok(());
    };
    let failed = |error| StartError::NotConverted(ConvertError::Tree(error));
    if !is_default_empty(store).map_err(failed)? {
        return Err(StartError::OtherKind(is.kind));
    }
    let watch = &mut |_| ControlFlow::Continue(());
    let converted = durable.convert(DatabaseId::DEFAULT, wanted, watch);
    converted.map(drop).map_err(StartError::NotConverted)
}

/// Whether the default database has no entry, not even one that has expired.
fn is_default_empty(store: &Store) -> Result<bool, TreeError> {
    if let Some(view) = store.view(DatabaseId::DEFAULT) {
        return Ok(view.statistics().entries == 0);
    }
    let tree = store.tree(DatabaseId::DEFAULT);
    let view = tree.expect("it always exists, and is not in memory").view();
    let mut is_empty = true;
    // No time has come for it to expire.
    view.scan(&Range::ALL, Direction::Forward, 0, 1, &mut |_| {
        is_empty = false;
        ControlFlow::Break(())
    })?;
    Ok(is_empty)
}

fn store_config(config: &Config, durability: Durability) -> StoreConfig {
    StoreConfig {
        memory_bytes: config.memory_limit_bytes,
        blobs: config.blobs,
        default_database: DatabaseConfig {
            durability,
            limits: DatabaseLimits::for_values(config.max_value_bytes),
            ..DatabaseConfig::default()
        },
        ..StoreConfig::new(config.hash_seed)
    }
}

fn said(log: &dyn Log, event: Event) {
    match event {
        Event::Failed(why) => log.storage(&format!(
            "writing or syncing the log has failed; writes are refused until a restart: {why}"
        )),
        Event::Full(why) => log.storage(&format!(
            "there is no room for the log; writes that grow are refused until there is: {why}"
        )),
        Event::NotReady(why) => log.storage(&format!(
            "the log cannot grow; writes that grow are refused until it can, and it is tried again: {why}"
        )),
        Event::RoomAgain => log.storage_recovered("there is room for the log again"),
        Event::NotRetired(why) => log.storage(&format!(
            "files of the log that nobody needs stay, nothing is lost, and it will be tried again; the data folder grows \
             until then: {why}"
        )),
        Event::SnapshotMade(report) => log.snapshot(&report),
        Event::SnapshotFailed(why) => log.storage(&format!(
            "a snapshot failed, nothing is lost, and it will be tried again; the log grows until then: {why}"
        )),
        Event::TreeFailed(why) => log.storage(&format!(
            "the disk does not take what was written to one database; nothing is lost, and it will be tried again; the log \
             grows until then: {why}"
        )),
        Event::TreeWorks(which) => {
            log.storage_recovered(&format!("the disk takes what is written to {which} again"));
        }
        Event::NoPriority(why) => log.storage(&why),
        Event::FolderRemade => log.storage(
            "the file `pelton-data` of the data folder was damaged and was made anew, as --accept-loss allows: an end of the \
             log that is missing was not noticed",
        ),
    }
}

/// The committer's thread reads the time anew for each group.
impl store::Clock for Unticked {
    fn now_ns(&mut self) -> u64 {
        self.0.monotonic_ns()
    }

    fn now_ms(&mut self) -> u64 {
        self.0.wall_ms()
    }
}

/// Time for a thread without ticks.
#[derive(Clone)]
pub(crate) struct Unticked(pub Arc<dyn TimeSource>);
