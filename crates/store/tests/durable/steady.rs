//! In the steady state a durable write allocates nothing, from the loop's batch to its outcome.

use allocation_counter::measure;
use store::durable::{CommitLoop, Mailbox, Opened, open_folder};
use store::{
    DatabaseConfig, DatabaseId, Decision, Durability, Mode, Outcomes, Store, StoreConfig,
    WriteBatch,
};
use testkit::suite::{StandingClock, increment, put};
use wal::{LogConfig, LogId};

use crate::folder::TestFolder;

struct Client {
    commit_loop: CommitLoop,
    mailbox: Mailbox,
    batch: WriteBatch,
    outcomes: Outcomes,
}

impl Client {
    fn run(&mut self, databases: &[DatabaseId]) {
        for number in 0..300u32 {
            for &database in databases {
                let mut commit = self.batch.begin(0, database, Mode::Atomic);
                let key = number.to_be_bytes();
                commit.push(&put(&key, &[7; 100])).expect("fits");
                commit.push(&increment(b"counter", 1)).expect("fits");
                commit.submit();
            }
            if number % 100 == 0 {
                self.mailbox.submit(&mut self.batch);
            }
        }
        self.mailbox.submit(&mut self.batch);
        let mut clock = StandingClock { now_ms: 1 };
        while self.commit_loop.round(&mut clock) {}
        while self.mailbox.take(&mut self.outcomes) {
            let applied = |decision| assert_eq!(decision, Decision::Applied);
            (self.outcomes.iter()).for_each(|outcome| applied(outcome.decision));
        }
    }
}

#[test]
fn the_steady_state_allocates_nothing() {
    let folder = TestFolder::new("steady");
    let mut config = StoreConfig::new(1);
    config.default_database.durability = Durability::Synced;
    let id = LogId {
        history: 1,
        secret: 2,
    };
    let log_config = LogConfig {
        segment_bytes: 4 * 1024 * 1024,
        ..LogConfig::new(id, 1)
    };
    let disk = open_folder(&folder.0).expect("it is empty");
    let Opened {
        store, committer, ..
    } = Store::open(config, disk, &log_config).expect("it is empty");
    let commit_loop = CommitLoop::new(committer);
    let mut client = Client {
        mailbox: commit_loop.register(Box::new(|| ())),
        commit_loop,
        batch: store.write_batch(),
        outcomes: Outcomes::new(),
    };
    let written = DatabaseConfig {
        durability: Durability::Written,
        ..DatabaseConfig::default()
    };
    client.batch.create_database(0, "written", &written);
    client.run(&[DatabaseId::DEFAULT]);
    let written = store.database("written").expect("it was made");
    for databases in [&[DatabaseId::DEFAULT][..], &[DatabaseId::DEFAULT, written]] {
        // What is there grows to its size, and goes round.
        for _ in 0..8 {
            client.run(databases);
        }
        let count = measure(|| client.run(databases)).count_total;
        assert_eq!(count, 0, "{} databases", databases.len());
    }
}
