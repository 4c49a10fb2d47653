//! A durable store with databases on disk: the log on a simulated disk, the trees in a real folder.
//! CommitLoop, flushes and compactions are run by whoever has the batch.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use store::durable::{CommitLoop, Mailbox, OpenError, Opened, TreePlace};
use store::tree::{Pressure, TreeConfig};
use store::{
    Clock, DatabaseConfig, DatabaseId, Kind, Outcomes, Store, StoreConfig, VolatileCommitter,
    WriteBatch,
};
use testkit::Random;
use testkit::suite::Engine;
use wal::disk::SimulatedDisk;

use crate::bench::log_config;

/// A folder that goes with the value.
pub struct TempFolder(pub PathBuf);

impl TempFolder {
    pub fn new() -> TempFolder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("pelton-durable-trees-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("there is room");
        TempFolder(path)
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Small, so that much happens.
pub fn place(folder: &Path) -> TreePlace {
    TreePlace {
        folder: folder.join("trees"),
        config: TreeConfig {
            memtable_bytes: 4096,
            table_bytes: 8192,
            cache_bytes: 64 * 1024,
            open_files: 16,
            // However slow the machine is, a clean stop removes what is due.
            stop_ms: 600_000,
        },
    }
}

pub struct OnDisk {
    pub store: Store,
    pub commit_loop: CommitLoop,
    pub mailbox: Mailbox,
    committer: VolatileCommitter,
    config: StoreConfig,
    pub disk: SimulatedDisk,
    pub folder: Arc<TempFolder>,
    /// Says when to flush, and whether to crash.
    pub random: Random,
    pub crashes: bool,
    /// Flushes, compacts and makes snapshots now and then by itself.
    pub keeps: bool,
}

impl OnDisk {
    /// Opens a store whose default database is on disk.
    pub fn make(config: StoreConfig, clock: &mut dyn Clock) -> OnDisk {
        let disk = testkit::simulated_disk(config.hash_seed);
        let folder = Arc::new(TempFolder::new());
        let mut made = OnDisk::open(config, &disk, &folder).expect("an empty disk is well");
        let converted = made
            .commit_loop
            .convert(DatabaseId::DEFAULT, Kind::Disk, clock);
        converted.expect("an empty database is converted");
        made
    }

    pub fn open(
        config: StoreConfig,
        disk: &SimulatedDisk,
        folder: &Arc<TempFolder>,
    ) -> Result<OnDisk, OpenError> {
        let Opened {
            store, committer, ..
        } = Store::open_with_trees(
            config,
            Arc::new(disk.clone()),
            &log_config(),
            Some(&place(&folder.0)),
        )?;
        let commit_loop = CommitLoop::new(committer);
        let mailbox = commit_loop.register(Box::new(|| ()));
        Ok(OnDisk {
            committer: store.committer(),
            store,
            commit_loop,
            mailbox,
            config,
            disk: disk.clone(),
            folder: folder.clone(),
            random: Random::new(config.hash_seed),
            crashes: false,
            keeps: true,
        })
    }

    /// Ends in one way or another, and starts again.
    pub fn crash(&mut self, way: usize, clock: &mut dyn Clock) {
        let (disk, folder) = (self.disk.clone(), self.folder.clone());
        // Goes on with another store before the old one is stopped: then nothing of it can be in
        // the way.
        let spare = OnDisk::open(
            self.config,
            &testkit::simulated_disk(0),
            &Arc::new(TempFolder::new()),
        );
        let spare = spare.expect("it is empty");
        // The clock is that of the log, in which nobody has written what reads alone were shown.
        let shown_ms = self.store.clock_ms(0);
        let OnDisk {
            commit_loop,
            random,
            crashes,
            keeps,
            ..
        } = std::mem::replace(self, spare);
        match way {
            0 => commit_loop.close(clock).expect("nothing fails"),
            1 => {
                drop(commit_loop);
                disk.kill();
            }
            _ => {
                drop(commit_loop);
                disk.lose_power();
            }
        }
        *self =
            OnDisk::open(self.config, &disk, &folder).expect("nothing that was durable is lost");
        self.store.clock_ms(shown_ms);
        self.random = random;
        self.crashes = crashes;
        self.keeps = keeps;
    }

    /// Now and then a flush, a compaction, or a snapshot.
    pub fn keep(&mut self, clock: &mut dyn Clock) {
        if !self.keeps {
            return;
        }
        if self.random.once_in(4) {
            self.commit_loop.seal_trees();
        }
        // A commit of a test may be larger than all that a tree may take before its folder is made.
        let trees = self.store.databases().into_iter();
        let mut trees = trees.filter_map(|database| self.store.tree(database.id));
        let is_full = trees.any(|tree| tree.pressure() == Pressure::Refuse);
        if self.random.once_in(3) || is_full {
            self.commit_loop.flush_trees().expect("there is room");
        }
        if self.random.once_in(8) {
            self.commit_loop.ask_for_snapshot();
            while self.commit_loop.step_snapshot(clock) {}
            while self.commit_loop.round(clock) {}
        }
    }
}

impl Engine for OnDisk {
    fn store(&self) -> &Store {
        &self.store
    }

    fn run(&mut self, batch: &mut WriteBatch, clock: &mut dyn Clock, outcomes: &mut Outcomes) {
        let count = batch.len();
        assert!(batch.read_ahead().failure.is_none(), "the tables are whole");
        self.keep(clock);
        drop(self.committer.run(batch, clock, outcomes));
        self.mailbox.submit(batch);
        let mut later = Outcomes::new();
        let mut gathered = Vec::new();
        while self.commit_loop.round(clock) {
            while self.mailbox.take(&mut later) {
                gathered.push(std::mem::take(&mut later));
            }
        }
        assert!(gathered.len() <= 1, "one batch is one group here");
        if let Some(gathered) = gathered.pop() {
            *outcomes = gathered;
        }
        assert_eq!(outcomes.len(), count);
        self.keep(clock);
        if self.crashes && self.random.once_in(4) {
            let way = self.random.below(4);
            self.crash(way, clock);
        }
    }

    fn database_config(&self) -> DatabaseConfig {
        DatabaseConfig {
            durability: self.config.default_database.durability,
            ..DatabaseConfig::default()
        }
        .of_kind(Kind::Disk)
    }
}
