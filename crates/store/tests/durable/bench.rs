//! A durable store whose commit loop is run by whoever has the batch.

use std::sync::Arc;

use store::durable::{CommitLoop, Mailbox, OpenError, Opened};
use store::{
    Clock, DatabaseConfig, DatabaseId, Outcomes, Store, StoreConfig, VolatileCommitter, WriteBatch,
};
use testkit::Random;
use testkit::suite::Engine;
use wal::disk::SimulatedDisk;
use wal::{LogConfig, LogId};

/// Small, so that segments change often.
pub const SEGMENT_BYTES: u64 = 64 * 1024;

pub struct Durable {
    pub store: Store,
    pub commit_loop: CommitLoop,
    pub mailbox: Mailbox,
    committer: VolatileCommitter,
    config: StoreConfig,
    disk: SimulatedDisk,
    /// After some batches it crashes, and is opened again.
    pub crashes: Option<Random>,
}

pub fn log_config() -> LogConfig {
    let id = LogId {
        history: 77,
        secret: 88,
    };
    LogConfig {
        segment_bytes: SEGMENT_BYTES,
        ..LogConfig::new(id, 1)
    }
}

impl Durable {
    /// Opens the store on a disk. The default database is as `config` says.
    pub fn open(config: StoreConfig, disk: &SimulatedDisk) -> Result<Durable, OpenError> {
        let Opened {
            store, committer, ..
        } = Store::open(config, Arc::new(disk.clone()), &log_config())?;
        let commit_loop = CommitLoop::new(committer);
        let mailbox = commit_loop.register(Box::new(|| ()));
        Ok(Durable {
            committer: store.committer(),
            store,
            commit_loop,
            mailbox,
            config,
            disk: disk.clone(),
            crashes: None,
        })
    }

    /// Ends in one way or another, and starts again.
    fn crash(&mut self, way: usize, clock: &mut dyn Clock) {
        let disk = self.disk.clone();
        if way == 0 {
            // Goes on with another store before the old one is stopped: then nothing of it can be
            // in the way.
            let spare =
                Durable::open(self.config, &testkit::simulated_disk(0)).expect("it is empty");
            let Durable { commit_loop, .. } = std::mem::replace(self, spare);
            commit_loop.close(clock).expect("nothing fails");
        } else if way == 1 {
            disk.kill();
        } else {
            disk.lose_power();
        }
        let crashes = self.crashes.take();
        *self = Durable::open(self.config, &disk).expect("nothing that was durable is lost");
        self.crashes = crashes;
        verify(&self.store);
    }

    /// Hands a batch over. What is volatile is carried out, and has its outcomes.
    pub fn submit(
        &mut self,
        batch: &mut WriteBatch,
        clock: &mut dyn Clock,
        outcomes: &mut Outcomes,
    ) {
        drop(self.committer.run(batch, clock, outcomes));
        self.mailbox.submit(batch);
    }
}

impl Engine for Durable {
    fn store(&self) -> &Store {
        &self.store
    }

    fn run(&mut self, batch: &mut WriteBatch, clock: &mut dyn Clock, outcomes: &mut Outcomes) {
        let count = batch.len();
        self.submit(batch, clock, outcomes);
        let mut later = Outcomes::new();
        while self.commit_loop.round(clock) {
            while self.mailbox.take(&mut later) {
                assert!(outcomes.is_empty(), "one batch is one group here");
                std::mem::swap(outcomes, &mut later);
            }
        }
        assert_eq!(outcomes.len(), count);
        verify(&self.store);
        let is_over = |random: &mut Random| random.once_in(4).then(|| random.below(4));
        if let Some(way) = self.crashes.as_mut().and_then(is_over) {
            self.crash(way, clock);
        }
    }

    fn database_config(&self) -> DatabaseConfig {
        DatabaseConfig {
            durability: self.config.default_database.durability,
            ..DatabaseConfig::default()
        }
    }
}

/// Checks every index, and what is booked for it.
pub fn verify(store: &Store) {
    let mut total = 0;
    for database in store.databases() {
        let view = store.view(database.id).expect("nobody drops it meanwhile");
        assert_eq!(view.verify(), view.statistics().memory_bytes);
        total += view.statistics().memory_bytes;
    }
    for hidden in [DatabaseId::IDENTITIES, DatabaseId::REPLICAS] {
        let view = store.view(hidden).expect("it is always there");
        assert_eq!(view.verify(), view.statistics().memory_bytes);
        total += view.statistics().memory_bytes;
    }
    assert_eq!(store.memory_bytes(), total);
}
