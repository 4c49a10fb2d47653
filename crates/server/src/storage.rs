//! Where a server keeps its data: in memory alone, with a log in a data folder, or on an engine
//! elsewhere.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use store::durable::{ConvertError, Durable, DurableCommitter, Opened, StorageEvent, TreePlace};
use store::remote::{RemoteBackend, RemoteStore};
use store::tree::TreeError;
use store::{
    DatabaseConfig, DatabaseId, DatabaseLimits, Durability, KeepLog, Kind, Store, StoreConfig,
};
use wal::disk::Disk;
use wal::{LogConfig, Recovered};

use crate::clock::TimeSource;
use crate::settings::Log;
use crate::{ServerConfig, StartError};

/// Where data are kept.
#[allow(clippy::large_enum_variant, reason = "a server has one")]
pub enum Storage {
    /// Nowhere: everything is lost when the server stops.
    Volatile {
        /// Names the history of this server's commits, which begins with its start: draw it at
        /// random.
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
        /// What is kept of the log for those who watch.
        keep_log: KeepLog,
    },
    /// On an engine elsewhere, which other servers use too.
    Remote {
        /// The way to it.
        backend: Arc<dyn RemoteBackend>,
        /// What it has for a request before that counts as not answered.
        timeout: Duration,
    },
}

impl Storage {
    /// Whether a loss of what the folder had is accepted.
    pub(crate) fn accepts_loss(&self) -> bool {
        matches!(self, Storage::Folder { log, .. } if log.accept_loss)
    }
}

/// A store that is open.
pub(crate) struct OpenStorage {
    pub store: Store,
    /// The way to the databases, if they are elsewhere.
    pub remote: Option<Arc<RemoteStore>>,
    /// Of the durable databases; whoever has it must run it.
    pub committer: Option<DurableCommitter>,
    /// What the log held.
    pub recovered: Option<Recovered>,
    /// What the folder of blobs held.
    pub blobs: Option<store::blob::FoundBlobs>,
    /// Folders of databases on disk that nothing names, which were set aside.
    pub trees_set_aside: u64,
}

/// Opens the store that the configuration asks for.
pub(crate) fn open(config: &ServerConfig) -> Result<OpenStorage, StartError> {
    let (disk, log, trees, store_config) = match &config.storage {
        Storage::Volatile { history_id } => {
            let store = Store::in_memory(StoreConfig {
                history_id: *history_id,
                ..store_config(config, Durability::Volatile)
            });
            return Ok(OpenStorage {
                store: store.map_err(StartError::Database)?,
                remote: None,
                committer: None,
                recovered: None,
                blobs: None,
                trees_set_aside: 0,
            });
        }
        Storage::Remote { backend, timeout } => return open_remote(config, backend, *timeout),
        Storage::Folder {
            disk,
            log,
            trees,
            durability,
            keep_log,
            ..
        } => {
            let store_config = StoreConfig {
                keep_log: *keep_log,
                ..store_config(config, *durability)
            };
            (Arc::clone(disk), log, trees.as_ref(), store_config)
        }
    };
    let opened = Store::open_with_trees(store_config, disk, log, trees);
    let Opened {
        store,
        committer,
        recovered,
        blobs,
        trees_set_aside,
        trees_strays,
        trees_lost,
        ..
    } = opened.map_err(StartError::Open)?;
    // At once: the next start has nothing of it to tell, whatever comes of this one.
    for lost in trees_lost {
        config.log.storage(&lost.to_string());
    }
    if let Some(first) = trees_strays.first() {
        config.log.storage_recovered(&format!(
            "{} files of databases on disk that belong to none of their lists of tables, such as \
             a crash leaves, were \
             removed; the first was {}",
            trees_strays.len(),
            first.display()
        ));
    }
    Ok(OpenStorage {
        store,
        remote: None,
        committer: Some(committer),
        recovered: Some(recovered),
        blobs: Some(blobs),
        trees_set_aside,
    })
}

/// Opens a store of databases on an engine elsewhere.
fn open_remote(
    config: &ServerConfig,
    backend: &Arc<dyn RemoteBackend>,
    timeout: Duration,
) -> Result<OpenStorage, StartError> {
    let store_config = store_config(config, Durability::Volatile);
    let opened = RemoteStore::open(store_config, Arc::clone(backend), timeout);
    let remote = opened.map_err(StartError::Remote)?;
    Ok(OpenStorage {
        store: remote.store().clone(),
        remote: Some(remote),
        committer: None,
        recovered: None,
        blobs: None,
        trees_set_aside: 0,
    })
}

/// Starts the threads behind the durable databases.
pub(crate) fn start(
    committer: DurableCommitter,
    config: &ServerConfig,
) -> Result<Durable, StartError> {
    let clock = Unticked(Arc::clone(&config.time));
    let log = Arc::clone(&config.log);
    let report = Box::new(move |event: StorageEvent| said(&*log, event));
    Durable::start(committer, clock, report).map_err(StartError::Thread)
}

/// Makes the default database one of the kind that the configuration asks for, if nothing is in it.
pub(crate) fn settle_kind(
    config: &ServerConfig,
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
    let tree = tree.expect("it always exists, and is not in memory");
    tree.view().is_empty()
}

fn store_config(config: &ServerConfig, durability: Durability) -> StoreConfig {
    StoreConfig {
        secret: config.secret,
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

fn said(log: &dyn Log, event: StorageEvent) {
    match event {
        StorageEvent::Failed(why) => log.storage(&format!(
            "writing or syncing the log has failed; writes are refused until a restart: {why}"
        )),
        StorageEvent::Full(why) => log.storage(&format!(
            "there is no room for the log; writes that grow are refused until there is: {why}"
        )),
        StorageEvent::NotReady(why) => log.storage(&format!(
            "the log cannot grow; writes that grow are refused until it can, and it is tried \
             again: {why}"
        )),
        StorageEvent::RoomAgain => log.storage_recovered("there is room for the log again"),
        StorageEvent::NotRetired(why) => log.storage(&format!(
            "files of the log that nobody needs stay, nothing is lost, and it will be tried \
             again; the data folder grows \
             until then: {why}"
        )),
        StorageEvent::SnapshotMade(report) => log.snapshot(&report),
        StorageEvent::SnapshotFailed(why) => log.storage(&format!(
            "a snapshot failed, nothing is lost, and it will be tried again; the log grows until \
             then: {why}"
        )),
        StorageEvent::TreeFailed(why) => log.storage(&format!(
            "the disk does not take what was written to one database; nothing is lost, and it \
             will be tried again; the log \
             grows until then: {why}"
        )),
        StorageEvent::TreeWorks(which) => {
            log.storage_recovered(&format!("the disk takes what is written to {which} again"));
        }
        StorageEvent::NoPriority(why) => log.storage(&why),
        StorageEvent::FolderRemade => log.storage(
            "the file `pelton-data` of the data folder was damaged and was made anew, as \
             --accept-loss allows: an end of the \
             log that is missing was not noticed, and the secret under which tokens are hashed is \
             another one",
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use store::Clock as _;
    use store::durable::CommitLoop;
    use store::tree::TreeConfig;
    use testkit::suite::{StandingClock, put};
    use wal::LogId;
    use wal::disk::SimulatedDisk;

    use super::*;
    use crate::readers::tests::TempFolder;
    use crate::settings::SilentLog;

    /// A data folder that is opened again and again, and what its default database is to be.
    struct Folder {
        disk: Arc<SimulatedDisk>,
        trees: TempFolder,
    }

    impl Folder {
        fn config(&self, kind: Option<Kind>) -> ServerConfig {
            let id = LogId {
                history: 7,
                secret: 8,
            };
            let time = Arc::new(Ticking(AtomicU64::new(0)));
            let config = crate::pair::config(Arc::new(SilentLog), time);
            ServerConfig {
                storage: Storage::Folder {
                    disk: Arc::clone(&self.disk) as _,
                    log: LogConfig {
                        segment_bytes: 1 << 20,
                        ..LogConfig::new(id, 1)
                    },
                    trees: Some(TreePlace {
                        folder: self.trees.0.clone(),
                        config: TreeConfig::default(),
                    }),
                    durability: Durability::Synced,
                    kind,
                    keep_log: KeepLog::NONE,
                },
                ..config
            }
        }

        /// A start; returns why it was refused, and the kind that the default database has
        /// afterwards.
        fn start(&self, kind: Option<Kind>) -> (Option<StartError>, Kind) {
            let config = self.config(kind);
            let opening = open(&config).expect("the disk is well");
            let committer = opening.committer.expect("there is a log");
            let durable = start(committer, &config).expect("there are threads");
            let refused = settle_kind(&config, &opening.store, &durable).err();
            let is = opening.store.config(DatabaseId::DEFAULT);
            durable.stop().expect("the log is closed");
            (refused, is.expect("it always exists").kind)
        }

        fn write_an_entry(&self) {
            let opening = open(&self.config(None)).expect("the disk is well");
            let committer = opening.committer.expect("there is a log");
            let mut commit_loop = CommitLoop::new(committer);
            let mailbox = commit_loop.register(Box::new(|| {}));
            let mut batch = opening.store.write_batch();
            let mut commit = batch.begin(1, DatabaseId::DEFAULT, store::Mode::Atomic);
            commit.push(&put(b"key", b"value")).expect("it fits");
            commit.submit();
            mailbox.submit(&mut batch);
            let mut clock = StandingClock { now_ms: 1_000_000 };
            while commit_loop.round(&mut clock) {}
        }
    }

    #[test]
    fn an_empty_default_database_becomes_what_the_configuration_says_and_no_other_does() {
        for first in [Kind::Memory, Kind::Disk] {
            let other = match first {
                Kind::Memory => Kind::Disk,
                _ => Kind::Memory,
            };
            let folder = Folder {
                disk: Arc::new(testkit::simulated_disk(1)),
                trees: TempFolder::new(),
            };
            let (refused, kind) = folder.start(None);
            assert!(refused.is_none(), "{refused:?}");
            assert_eq!(kind, Kind::Memory);
            // To and fro: nothing is in it.
            for wanted in [first, first, other, first] {
                let (refused, kind) = folder.start(Some(wanted));
                assert!(refused.is_none(), "{refused:?}");
                assert_eq!(kind, wanted);
            }
            folder.write_an_entry();
            for wanted in [None, Some(other), Some(first), Some(other)] {
                let (refused, kind) = folder.start(wanted);
                let is_refused = wanted == Some(other);
                match refused {
                    Some(StartError::OtherKind(found)) if is_refused => assert_eq!(found, first),
                    refused => assert!(refused.is_none() && !is_refused, "{refused:?}"),
                }
                assert_eq!(kind, first);
            }
        }
    }

    /// Goes on by itself whenever somebody looks.
    struct Ticking(AtomicU64);

    impl TimeSource for Ticking {
        fn monotonic_ns(&self) -> u64 {
            self.0.fetch_add(1_000_000, Ordering::Relaxed)
        }

        fn wall_ms(&self) -> u64 {
            5_000 + self.0.load(Ordering::Relaxed) / 1_000_000
        }
    }

    #[test]
    fn the_clock_of_the_committer_is_read_anew_each_time() {
        let mut clock = Unticked(Arc::new(Ticking(AtomicU64::new(3_000_000))));
        for round in 3..6 {
            assert_eq!(clock.now_ms(), 5_000 + round);
            assert_eq!(clock.now_ns(), round * 1_000_000);
        }
    }
}
