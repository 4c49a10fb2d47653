//! Where a server keeps its data: in memory alone, or with a log in a data folder.

use std::sync::Arc;

use store::disk::Disk;
use store::durable::{Durable, DurableCommitter, Event, Opened};
use store::log::{LogConfig, Recovered};
use store::{DatabaseConfig, DatabaseLimits, Durability, Store, StoreConfig};

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
        /// What an answer of the default database promises.
        durability: Durability,
    },
}

/// A store that is open.
pub(crate) struct Opening {
    pub store: Store,
    /// Of the databases that last; whoever has it must run it.
    pub committer: Option<DurableCommitter>,
    /// What the log held.
    pub recovered: Option<Recovered>,
}

/// Opens the store that the configuration asks for.
pub(crate) fn open(config: &Config) -> Result<Opening, StartError> {
    let (disk, log, durability) = match &config.storage {
        Storage::Volatile { history_id } => {
            let store = Store::in_memory(StoreConfig {
                history_id: *history_id,
                ..store_config(config, Durability::Volatile)
            });
            return Ok(Opening {
                store: store.map_err(StartError::Database)?,
                committer: None,
                recovered: None,
            });
        }
        Storage::Folder {
            disk,
            log,
            durability,
        } => (Arc::clone(disk), log, *durability),
    };
    let opened = Store::open(store_config(config, durability), disk, log);
    let Opened {
        store,
        committer,
        recovered,
        ..
    } = opened.map_err(StartError::Open)?;
    Ok(Opening {
        store,
        committer: Some(committer),
        recovered: Some(recovered),
    })
}

/// Starts the threads behind the databases that last.
pub(crate) fn start(committer: DurableCommitter, config: &Config) -> Result<Durable, StartError> {
    let clock = Unticked(Arc::clone(&config.time));
    let log = Arc::clone(&config.log);
    let report = Box::new(move |event: Event| said(&*log, event));
    Durable::start(committer, clock, report).map_err(StartError::Thread)
}

fn store_config(config: &Config, durability: Durability) -> StoreConfig {
    StoreConfig {
        memory_bytes: config.memory_limit_bytes,
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
        Event::RoomAgain => log.storage("there is room for the log again"),
        Event::NotRetired(why) => log.storage(&format!(
            "files of the log that nobody needs stay, nothing is lost, and it will be tried again; the data folder grows \
             until then: {why}"
        )),
        Event::SnapshotMade(report) => log.snapshot(&report),
        Event::SnapshotFailed(why) => log.storage(&format!(
            "a snapshot failed, nothing is lost, and it will be tried again; the log grows until then: {why}"
        )),
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
