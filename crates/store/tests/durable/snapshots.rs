//! Snapshots: what is in them comes back, with what the log holds beyond them; what does not fit is refused.

use store::disk::{Disk, SimulatedDisk};
use store::durable::Event;
use store::suite::{StandingClock, delete, put};
use store::{
    DatabaseConfig, DatabaseId, Decision, Durability, Mode, Operation, Outcomes, StoreConfig,
    snapshot,
};

use crate::bench::Durable;
use crate::crash::state_of;

fn config() -> StoreConfig {
    let mut config = StoreConfig::new(1);
    config.default_database.durability = Durability::Synced;
    config
}

/// A store on a disk, with a client that waits for each answer.
struct Client {
    durable: Durable,
    clock: StandingClock,
}

impl Client {
    fn open(disk: &SimulatedDisk) -> Client {
        Client {
            durable: Durable::open(config(), disk).unwrap_or_else(|error| panic!("{error}")),
            clock: StandingClock { now_ms: 1000 },
        }
    }

    fn run(&mut self, database: DatabaseId, operations: &[Operation<'_>]) {
        let mut batch = self.durable.store.write_batch();
        let mut commit = batch.begin(0, database, Mode::Independent);
        for operation in operations {
            commit.push(operation).expect("within the limits");
        }
        commit.submit();
        self.durable.mailbox.submit(&mut batch);
        self.finish();
    }

    fn finish(&mut self) -> DatabaseId {
        while self.durable.rounds.round(&mut self.clock) {}
        let mut outcomes = Outcomes::new();
        let mut database = DatabaseId::DEFAULT;
        while self.durable.mailbox.take(&mut outcomes) {
            for outcome in outcomes.iter() {
                assert_eq!(outcome.decision, Decision::Applied);
                database = outcome.database;
            }
        }
        database
    }

    fn create(&mut self, name: &str, durability: Durability) -> DatabaseId {
        let config = DatabaseConfig {
            durability,
            ..DatabaseConfig::default()
        };
        let mut batch = self.durable.store.write_batch();
        batch.create_database(0, name, &config);
        self.durable.mailbox.submit(&mut batch);
        self.finish()
    }

    /// Makes a snapshot without a pause; answers its base.
    fn snapshot(&mut self) -> u64 {
        self.durable.rounds.ask_for_snapshot();
        while self.durable.rounds.step_snapshot(&mut self.clock) {}
        self.made()
    }

    fn made(&mut self) -> u64 {
        while self.durable.rounds.round(&mut self.clock) {}
        match &self.durable.rounds.take_events()[..] {
            [Event::SnapshotMade(report)] => report.sequence,
            events => panic!("{events:?}"),
        }
    }
}

#[test]
fn what_is_in_a_snapshot_comes_back() {
    let disk = SimulatedDisk::new(1);
    let mut client = Client::open(&disk);
    let other = client.create("other", Durability::Written);
    client.create("volatile", Durability::Volatile);
    let large = vec![7; 100_000];
    for number in 0..1000u32 {
        client.run(DatabaseId::DEFAULT, &[put(&number.to_be_bytes(), b"value")]);
    }
    // The last page before the volatile database is not a full one.
    client.run(other, &[put(b"large", &large), put(b"small", b"")]);
    let sequence = client.snapshot();
    assert_eq!(snapshot::list(&disk).expect("it can be listed"), [sequence]);
    client.run(DatabaseId::DEFAULT, &[delete(&7u32.to_be_bytes())]);
    client.run(other, &[put(b"later", b"value")]);
    let before = state_of(&client.durable.store);
    disk.kill();
    let client = Client::open(&disk);
    assert_eq!(state_of(&client.durable.store), before);
    let names = disk.list().expect("it can be listed");
    assert!(
        !names.contains(&store::log::segment_name(1)),
        "the first segment is not needed any more: {names:?}"
    );
}
