//! A durable store whose rounds are run by whoever has the batch.

use std::sync::Arc;

use store::disk::SimulatedDisk;
use store::durable::{Mailbox, OpenError, Opened, Rounds};
use store::log::{LogConfig, LogId};
use store::suite::Engine;
use store::{
    Clock, Committer, DatabaseConfig, Durability, Outcomes, Store, StoreConfig, WriteBatch,
};

/// Small, so that segments change often.
const SEGMENT_BYTES: u64 = 64 * 1024;

pub struct Durable {
    pub store: Store,
    pub rounds: Rounds,
    pub mailbox: Mailbox,
    committer: Committer,
    durability: Durability,
    verify: bool,
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
        let rounds = Rounds::new(committer);
        let mailbox = rounds.register(Box::new(|| ()));
        Ok(Durable {
            committer: store.committer(),
            store,
            rounds,
            mailbox,
            durability: config.default_database.durability,
            verify: true,
        })
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
        while self.rounds.round(clock) {
            while self.mailbox.take(&mut later) {
                assert!(outcomes.is_empty(), "one batch is one group here");
                std::mem::swap(outcomes, &mut later);
            }
        }
        assert_eq!(outcomes.len(), count);
        if self.verify {
            verify(&self.store);
        }
    }

    fn database_config(&self) -> DatabaseConfig {
        DatabaseConfig {
            durability: self.durability,
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
    assert_eq!(store.memory_bytes(), total);
}
