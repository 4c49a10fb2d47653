//! Snapshots: what is in them comes back, with what the log holds beyond them; what does not fit is
//! refused.

use std::ops::ControlFlow;

use store::durable::{OpenError, Opened, StorageEvent};
use store::{
    Condition, DatabaseConfig, DatabaseId, Decision, Direction, Durability, Expiry, Mode,
    Operation, Outcomes, Range, Refusal, Store, StoreConfig, snapshot,
};
use testkit::suite::{StandingClock, append, delete, increment, put};
use wal::disk::{Disk, Fault, SimulatedDisk, Step};
use wal::limits::SEQUENCE_RESERVE;
use wal::{LogConfig, LogId, Misfit, segment_name};

use crate::bench::{Durable, log_config};
use crate::crash::state_of;

pub fn config() -> StoreConfig {
    let mut config = StoreConfig::new(1);
    config.default_database.durability = Durability::Synced;
    config
}

/// A store on a disk, with a client that waits for each answer.
pub struct Client {
    pub durable: Durable,
    pub clock: StandingClock,
}

impl Client {
    pub fn open(disk: &SimulatedDisk) -> Client {
        Client {
            durable: Durable::open(config(), disk).unwrap_or_else(|error| panic!("{error}")),
            clock: StandingClock { now_ms: 1000 },
        }
    }

    pub fn run(&mut self, database: DatabaseId, operations: &[Operation<'_>]) {
        let mut batch = self.durable.store.write_batch();
        let mut commit = batch.begin(0, database, Mode::Independent);
        for operation in operations {
            commit.push(operation).expect("within the limits");
        }
        commit.submit();
        self.durable.mailbox.submit(&mut batch);
        self.finish();
    }

    pub fn finish(&mut self) -> DatabaseId {
        while self.durable.commit_loop.round(&mut self.clock) {}
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

    pub fn create(&mut self, name: &str, durability: Durability) -> DatabaseId {
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
    pub fn snapshot(&mut self) -> u64 {
        self.durable.commit_loop.ask_for_snapshot();
        while self.durable.commit_loop.step_snapshot(&mut self.clock) {}
        self.made()
    }

    pub fn drop_database(&mut self, database: DatabaseId) {
        let mut batch = self.durable.store.write_batch();
        batch.drop_database(0, database);
        self.durable.mailbox.submit(&mut batch);
        self.finish();
    }

    fn made(&mut self) -> u64 {
        while self.durable.commit_loop.round(&mut self.clock) {}
        match &self.durable.commit_loop.take_events()[..] {
            [StorageEvent::SnapshotMade(report)] => report.sequence,
            events => panic!("{events:?}"),
        }
    }
}

#[test]
fn what_is_in_a_snapshot_comes_back() {
    let disk = testkit::simulated_disk(1);
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
        !names.contains(&segment_name(1)),
        "the first segment is not needed any more: {names:?}"
    );
}

const KEYS: u32 = 40;

/// A change that meets a snapshot in the making.
type Change = fn(&mut Client, DatabaseId, DatabaseId);

const CHANGES: [(&str, Change); 10] = [
    ("delete", |client, _, other| {
        client.run(other, &[delete(&key(3)), delete(&key(30))]);
    }),
    ("overwrite", |client, _, other| {
        client.run(other, &[put(&key(3), b"new"), put(&key(30), b"new")]);
    }),
    ("append twice", |client, _, other| {
        client.run(other, &[append(&key(3), b"+"), append(&key(30), b"+")]);
        client.run(other, &[append(&key(3), b"+"), append(&key(30), b"+")]);
    }),
    ("increment", |client, _, other| {
        client.run(other, &[increment(b"a", 1), increment(b"z", 1)]);
        client.run(other, &[increment(b"a", 1), increment(b"z", 1)]);
    }),
    ("clear", |client, _, other| {
        client.run(other, &[Operation::Clear]);
    }),
    ("clear and put", |client, _, other| {
        client.run(other, &[Operation::Clear]);
        client.run(other, &[put(&key(3), b"new"), put(&key(30), b"new")]);
    }),
    ("drop", |client, _, other| client.drop_database(other)),
    ("drop and create", |client, _, other| {
        client.drop_database(other);
        let again = client.create("other", Durability::Written);
        assert_ne!(again, other);
        client.run(again, &[put(&key(3), b"new")]);
    }),
    ("expire", |client, _, other| {
        client.clock.now_ms += 1000;
        let expire = |key| Operation::Expire { key };
        client.run(other, &[expire(&key(10)), expire(&key(20))]);
    }),
    ("delete and put", |client, first, other| {
        client.run(other, &[delete(&key(3)), delete(&key(30))]);
        client.run(first, &[delete(&key(3)), delete(&key(30))]);
        client.run(other, &[put(&key(3), b"new"), put(&key(30), b"new")]);
    }),
];

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

fn filled(disk: &SimulatedDisk) -> (Client, DatabaseId) {
    let mut client = Client::open(disk);
    let other = client.create("other", Durability::Synced);
    for number in 0..KEYS {
        for database in [DatabaseId::DEFAULT, other] {
            let expiry = match number % 10 {
                0 => Expiry::AfterMs(500),
                _ => Expiry::None,
            };
            let operation = Operation::Put {
                key: &key(number),
                value: b"value",
                condition: Condition::None,
                expiry,
                want_previous: false,
            };
            client.run(database, &[operation]);
        }
    }
    (client, other)
}

/// Whatever happens in the midst of the walk: the snapshot and the log behind it give what was
/// there.
#[test]
fn changes_in_the_midst_of_a_snapshot_are_replayed_over_it() {
    for (name, change) in CHANGES {
        let mut steps_before = 0;
        loop {
            let disk = testkit::simulated_disk(1);
            let (mut client, other) = filled(&disk);
            let commit_loop = &mut client.durable.commit_loop;
            commit_loop.set_slice_rows(8);
            commit_loop.ask_for_snapshot();
            for _ in 0..steps_before {
                commit_loop.step_snapshot(&mut client.clock);
            }
            let is_over = matches!(
                &commit_loop.take_events()[..],
                [StorageEvent::SnapshotMade(_)]
            );
            change(&mut client, DatabaseId::DEFAULT, other);
            while client.durable.commit_loop.step_snapshot(&mut client.clock) {}
            let before = state_of(&client.durable.store);
            disk.kill();
            let client = Client::open(&disk);
            let what = format!("{name} after {steps_before} steps");
            assert_eq!(state_of(&client.durable.store), before, "{what}");
            assert_eq!(snapshot::list(&disk).expect("it can be listed").len(), 1);
            if is_over {
                break;
            }
            steps_before += 1;
        }
        assert!(steps_before > 10, "{name}");
    }
}

/// An entry whose time has come is in the snapshot until it is swept, and the clock does not go
/// back behind it.
#[test]
fn the_clock_of_a_snapshot_counts() {
    let disk = testkit::simulated_disk(1);
    let (mut client, _) = filled(&disk);
    client.clock.now_ms = 5_000;
    client.snapshot();
    let before = state_of(&client.durable.store);
    disk.lose_power();
    let client = Client::open(&disk);
    assert_eq!(state_of(&client.durable.store), before);
    assert_eq!(client.durable.store.clock_ms(1), 5_000);
}

#[test]
fn numbers_of_databases_are_not_used_again() {
    let disk = testkit::simulated_disk(1);
    let mut client = Client::open(&disk);
    let dropped = client.create("dropped", Durability::Synced);
    client.drop_database(dropped);
    client.snapshot();
    disk.kill();
    let mut client = Client::open(&disk);
    assert_ne!(client.create("dropped", Durability::Synced), dropped);
}

/// The folder of a server that overwrites the same keys again and again does not grow.
#[test]
fn the_log_is_shortened_again_and_again() {
    let disk = testkit::simulated_disk(1);
    let mut client = Client::open(&disk);
    let value = vec![7; 1000];
    let (mut most, mut snapshots) = (0, 0);
    for number in 0..2000u32 {
        client.run(DatabaseId::DEFAULT, &[put(&key(number % 50), &value)]);
        client.durable.commit_loop.step_snapshot(&mut client.clock);
        snapshots += client.durable.commit_loop.take_events().len();
        most = most.max(disk.list().expect("it can be listed").len());
    }
    assert!(snapshots > 8, "{snapshots}");
    // The format file; two snapshots, for a moment; as many segments as a snapshot is due after,
    // the current one, the next one, and two spares.
    assert!(most <= 1 + 2 + 3 + 1 + 2, "{:?}", disk.list());
    let before = state_of(&client.durable.store);
    disk.lose_power();
    let client = Client::open(&disk);
    assert_eq!(state_of(&client.durable.store), before);
}

// --- what does not fit

fn open(disk: &SimulatedDisk, log_config: &LogConfig) -> Result<Opened, OpenError> {
    Store::open(config(), std::sync::Arc::new(disk.clone()), log_config)
}

/// Opening is refused, and changes nothing.
fn refusal(disk: &SimulatedDisk, log_config: &LogConfig) -> OpenError {
    let steps = disk.step_count();
    let error = open(disk, log_config).expect_err("it is refused");
    assert_eq!(disk.step_count(), steps, "{error}");
    error
}

fn overwrite(disk: &SimulatedDisk, name: &str, bytes: &[u8]) {
    if disk
        .list()
        .expect("it can be listed")
        .contains(&name.to_owned())
    {
        disk.remove(name).expect("it is there");
    }
    let file = disk.create(name).expect("it is not there");
    file.write_all_at(bytes, 0).expect("there is room");
    file.sync().expect("nothing fails");
    disk.sync_folder().expect("nothing fails");
}

#[test]
fn a_damaged_snapshot_is_refused_and_an_older_one_not_used() {
    let disk = testkit::simulated_disk(1);
    let (mut client, other) = filled(&disk);
    let older = client.snapshot();
    let older_bytes = disk.contents(&snapshot::file_name(older));
    client.run(other, &[put(b"later", b"value")]);
    let newest = client.snapshot();
    let before = state_of(&client.durable.store);
    disk.kill();
    overwrite(&disk, &snapshot::file_name(older), &older_bytes);
    overwrite(&disk, "00000000000000000007.snapshot.new", b"half");
    let name = snapshot::file_name(newest);
    disk.flip(&name, 100, 1);
    let error = refusal(&disk, &log_config());
    assert!(matches!(error, OpenError::Snapshot(_)), "{error}");
    let message = error.to_string();
    assert!(
        message.contains(&name) && message.contains(" at byte "),
        "{message}"
    );
    // Nor is the loss of one accepted.
    let accepting = LogConfig {
        accept_loss: true,
        ..log_config()
    };
    let error = refusal(&disk, &accepting);
    assert!(matches!(error, OpenError::Snapshot(_)), "{error}");

    // Whole again it is used, and the others go.
    disk.flip(&name, 100, 1);
    let client = Client::open(&disk);
    assert_eq!(state_of(&client.durable.store), before);
    let names = disk.list().expect("it can be listed");
    let snapshots: Vec<_> = names
        .iter()
        .filter(|name| name.contains("snapshot"))
        .collect();
    assert_eq!(snapshots, [&name]);
}

/// Without the snapshot the log has a beginning that nobody knows.
#[test]
fn a_missing_snapshot_is_a_hole() {
    let disk = testkit::simulated_disk(1);
    let (mut client, other) = filled(&disk);
    let value = vec![7; 30_000];
    for _ in 0..8 {
        client.run(other, &[put(b"large", &value)]);
    }
    let older = client.snapshot();
    let older_bytes = disk.contents(&snapshot::file_name(older));
    for _ in 0..8 {
        client.run(other, &[put(b"large", &value)]);
    }
    let newest = client.snapshot();
    disk.kill();
    assert!(
        !disk
            .list()
            .expect("it can be listed")
            .contains(&segment_name(1))
    );
    disk.remove(&snapshot::file_name(newest))
        .expect("it is there");
    for with_older in [false, true] {
        if with_older {
            overwrite(&disk, &snapshot::file_name(older), &older_bytes);
        }
        let error = refusal(&disk, &log_config());
        let expected = if with_older { older } else { 0 };
        let OpenError::Log(wal::LogOpenError::Misfit { misfit, .. }) = &error else {
            panic!("{error}");
        };
        let Misfit::Hole { base_sequence, .. } = misfit else {
            panic!("{error}");
        };
        assert_eq!(*base_sequence, expected, "{error}");
    }
}

#[test]
fn a_snapshot_of_another_log_is_refused() {
    let disk = testkit::simulated_disk(1);
    let (mut client, _) = filled(&disk);
    let sequence = client.snapshot();
    let bytes = disk.contents(&snapshot::file_name(sequence));
    let elsewhere = testkit::simulated_disk(2);
    let another_log = LogConfig {
        new_log_id: LogId {
            history: 1,
            secret: 2,
        },
        ..log_config()
    };
    drop(open(&elsewhere, &another_log).expect("it is empty"));
    overwrite(&elsewhere, &snapshot::file_name(sequence), &bytes);
    let error = refusal(&elsewhere, &another_log);
    assert!(
        matches!(
            error,
            OpenError::Log(wal::LogOpenError::Misfit {
                misfit: Misfit::OtherHistory,
                ..
            })
        ),
        "{error}"
    );
}

/// The log's end is gone with all that could tell of it, but for the snapshot.
#[test]
fn a_snapshot_knows_the_end_of_the_log() {
    let disk = testkit::simulated_disk(1);
    let (mut client, other) = filled(&disk);
    let log = disk.contents(&segment_name(1));
    let commit_loop = &mut client.durable.commit_loop;
    commit_loop.set_slice_rows(8);
    commit_loop.ask_for_snapshot();
    for _ in 0..9 {
        commit_loop.step_snapshot(&mut client.clock);
    }
    // The first of these keys is behind the walk, the second before it.
    let at_base = values(&client.durable.store, other);
    for _ in 0..5 {
        client.run(other, &[put(&key(3), b"new"), put(&key(30), b"new")]);
    }
    let at_end = values(&client.durable.store, other);
    while client.durable.commit_loop.step_snapshot(&mut client.clock) {}
    let sequence = client.made();
    let last_sequence = client.durable.commit_loop.log_sequence();
    disk.kill();
    overwrite(&disk, &segment_name(1), &log);

    let error = refusal(&disk, &log_config());
    let OpenError::Log(wal::LogOpenError::Damaged { damage, .. }) = &error else {
        panic!("{error}");
    };
    assert_eq!(damage.known_sequence, last_sequence);
    assert_eq!(damage.last_good.sequence, sequence);
    let text = error.to_string();
    assert!(text.contains("is known to have been durable"), "{text}");

    let accepting = LogConfig {
        accept_loss: true,
        new_log_id: LogId {
            history: 1,
            secret: 2,
        },
        ..log_config()
    };
    let opened = open(&disk, &accepting).expect("it is accepted");
    assert_eq!(opened.recovered.history_id, 1);
    assert_eq!(opened.recovered.loss, Some(**damage));
    // So many may have been given out beyond it without a record.
    assert!(opened.recovered.next_sequence > last_sequence + SEQUENCE_RESERVE);
    // Each key has a value that it had at some time since the base.
    let found = values(&opened.store, other);
    assert_eq!(found.len(), at_base.len());
    for ((one, base), end) in found.iter().zip(&at_base).zip(&at_end) {
        assert!(one == base || one == end);
    }
    assert!(
        found != at_base && found != at_end,
        "the walk saw one change of two"
    );
    // And so it stays, without accepting anything any more.
    let before = state_of(&opened.store);
    drop(opened);
    disk.lose_power();
    let mut client = Client::open(&disk);
    assert_eq!(state_of(&client.durable.store), before);
    client.run(other, &[put(b"later", b"value")]);
    client.snapshot();
    let before = state_of(&client.durable.store);
    disk.lose_power();
    assert_eq!(state_of(&Client::open(&disk).durable.store), before);
}

/// The same where nothing of the log is left at all.
#[test]
fn a_snapshot_without_its_log_is_damage() {
    let disk = testkit::simulated_disk(1);
    let (mut client, _) = filled(&disk);
    client.snapshot();
    let before = state_of(&client.durable.store);
    disk.kill();
    for name in disk.list().expect("it can be listed") {
        if name.ends_with(".log") {
            disk.remove(&name).expect("it is there");
        }
    }
    let error = refusal(&disk, &log_config());
    assert!(
        matches!(error, OpenError::Log(wal::LogOpenError::Damaged { .. })),
        "{error}"
    );
    let accepting = LogConfig {
        accept_loss: true,
        ..log_config()
    };
    let opened = open(&disk, &accepting).expect("it is accepted");
    assert_eq!(state_of(&opened.store), before);
    drop(opened);
    disk.lose_power();
    assert_eq!(state_of(&Client::open(&disk).durable.store), before);
}

fn values(store: &Store, database: DatabaseId) -> Vec<Vec<u8>> {
    let mut values = Vec::new();
    let view = store.view(database).expect("it exists");
    view.scan(&Range::ALL, Direction::Forward, 0, u32::MAX, &mut |entry| {
        values.push(entry.value.to_vec());
        ControlFlow::Continue(())
    });
    values
}

// --- what goes wrong while one is made

/// Whichever step fails: it is told, the half file goes, serving goes on, and a later attempt
/// succeeds.
#[test]
fn a_failed_snapshot_does_no_harm() {
    for fault in [Fault::Error, Fault::Full] {
        for step in 0.. {
            let disk = testkit::simulated_disk(1);
            let (mut client, other) = filled(&disk);
            let planned = disk.step_count() + step;
            disk.plan(planned, fault);
            client.durable.commit_loop.ask_for_snapshot();
            while client.durable.commit_loop.step_snapshot(&mut client.clock) {}
            let events = client.durable.commit_loop.take_events();
            let what = format!("{fault:?} at step {step}: {events:?}");
            if disk.step_count() <= planned {
                assert!(step >= 5, "{what}");
                break;
            }
            // Only writes and names find no room.
            let finds_no_room = matches!(
                disk.steps()[planned],
                Step::Write | Step::Create | Step::Rename | Step::Remove
            );
            if fault == Fault::Error || finds_no_room {
                assert!(
                    matches!(&events[..], [StorageEvent::SnapshotFailed(_)]),
                    "{what}"
                );
            }
            let names = disk.list().expect("it can be listed");
            assert!(
                !names.iter().any(|name| name.ends_with(".new")),
                "{what} {names:?}"
            );
            client.run(other, &[put(b"later", b"value")]);
            client.snapshot();
            let before = state_of(&client.durable.store);
            disk.lose_power();
            assert_eq!(
                state_of(&Client::open(&disk).durable.store),
                before,
                "{what}"
            );
        }
    }
}

#[test]
fn after_a_failure_it_is_tried_again_some_time_later() {
    let disk = testkit::simulated_disk(1);
    let mut client = Client::open(&disk);
    let value = vec![7; 20_000];
    let fill = |client: &mut Client| {
        for number in 0..10 {
            client.run(DatabaseId::DEFAULT, &[put(&key(number), &value)]);
        }
    };
    fill(&mut client);
    disk.plan(disk.step_count() + 1, Fault::Full);
    while client.durable.commit_loop.step_snapshot(&mut client.clock) {}
    let events = client.durable.commit_loop.take_events();
    assert!(
        matches!(&events[..], [StorageEvent::SnapshotFailed(_)]),
        "{events:?}"
    );
    fill(&mut client);
    assert!(
        !client.durable.commit_loop.step_snapshot(&mut client.clock),
        "too early"
    );
    client.clock.now_ms += snapshot::limits::RETRY_MS;
    while client.durable.commit_loop.step_snapshot(&mut client.clock) {}
    client.made();
}

#[test]
fn no_snapshot_is_made_of_a_log_that_has_failed() {
    let disk = testkit::simulated_disk(1);
    let (mut client, other) = filled(&disk);
    let commit_loop = &mut client.durable.commit_loop;
    commit_loop.ask_for_snapshot();
    for _ in 0..3 {
        commit_loop.step_snapshot(&mut client.clock);
    }
    let mut batch = client.durable.store.write_batch();
    let mut commit = batch.begin(0, other, Mode::Atomic);
    commit.push(&put(b"key", b"")).expect("fits");
    commit.submit();
    client.durable.mailbox.submit(&mut batch);
    disk.plan(disk.step_count(), Fault::Error);
    while client.durable.commit_loop.round(&mut client.clock) {}
    let mut outcomes = Outcomes::new();
    assert!(client.durable.mailbox.take(&mut outcomes));
    let unknown = Decision::Refused(Refusal::OutcomeUnknown);
    assert_eq!(outcomes.get(0).decision, unknown);
    while client.durable.commit_loop.step_snapshot(&mut client.clock) {}
    client.durable.commit_loop.ask_for_snapshot();
    while client.durable.commit_loop.step_snapshot(&mut client.clock) {}
    let events = client.durable.commit_loop.take_events();
    let failed = |event: &&StorageEvent| matches!(event, StorageEvent::SnapshotFailed(_));
    assert_eq!(events.iter().filter(failed).count(), 2, "{events:?}");
    assert_eq!(snapshot::list(&disk).expect("it can be listed"), []);
}
