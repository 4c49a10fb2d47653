//! The hidden index of identities, and the secret of the data folder that goes with it.

use std::ops::ControlFlow;
use std::sync::Arc;

use store::{
    Condition, CreateError, DatabaseConfig, DatabaseId, Decision, Direction, DropError, Durability,
    Expiry, FolderSecret, Mode, Operation, OperationStatus, Outcomes, Range, Refusal, Store,
    StoreConfig,
};
use testkit::suite::StandingClock;
use wal::disk::{Disk, SimulatedDisk};

use crate::backups::{Client, restore, verified};
use crate::bench::{Durable, log_config};

fn config(secret: u8) -> StoreConfig {
    let mut config = StoreConfig {
        secret: FolderSecret::new([secret; 32]),
        ..StoreConfig::new(1)
    };
    config.default_database.durability = Durability::Synced;
    config
}

/// A store that keeps nothing.
fn in_memory(secret: u8) -> StoreConfig {
    StoreConfig {
        secret: FolderSecret::new([secret; 32]),
        ..StoreConfig::new(1)
    }
}

fn put<'a>(key: &'a [u8], condition: Condition<'a>) -> Operation<'a> {
    Operation::Put {
        key,
        value: b"what it may do",
        condition,
        expiry: Expiry::None,
        want_previous: false,
    }
}

fn delete(key: &[u8]) -> Operation<'_> {
    Operation::Delete {
        key,
        condition: Condition::None,
        want_previous: false,
    }
}

/// Commits one operation on the index; returns what became of it.
fn change(durable: &mut Durable, operation: &Operation<'_>) -> (Decision, OperationStatus) {
    let mut batch = durable.store.write_batch();
    let mut commit = batch.begin(1, DatabaseId::IDENTITIES, Mode::Independent);
    commit.push(operation).expect("it fits");
    commit.submit();
    let (mut clock, mut outcomes) = (StandingClock { now_ms: 1_000 }, Outcomes::new());
    durable.submit(&mut batch, &mut clock, &mut outcomes);
    while durable.commit_loop.round(&mut clock) {}
    durable.mailbox.take(&mut outcomes);
    let outcome = outcomes.get(0);
    assert_eq!(outcome.database, DatabaseId::IDENTITIES);
    let status = outcome.first().map(|one| one.status);
    (outcome.decision, status.unwrap_or(OperationStatus::Done))
}

fn names(store: &Store) -> Vec<String> {
    let view = store.view(DatabaseId::IDENTITIES);
    let (view, mut names) = (view.expect("it is always there"), Vec::new());
    let _ = view.scan(&Range::ALL, Direction::Forward, 0, u32::MAX, &mut |entry| {
        names.push(String::from_utf8_lossy(entry.key).into_owned());
        ControlFlow::Continue(())
    });
    names
}

/// Whatever ends the server: an identity whose removal was acknowledged does not come back, and one
/// whose creation was is there, with a snapshot in between and without.
#[test]
fn what_was_acknowledged_of_identities_survives_every_end() {
    let kill: fn(&SimulatedDisk) = |disk| disk.kill();
    let lose_power: fn(&SimulatedDisk) = |disk| disk.lose_power();
    for (what, end) in [("kill", kill), ("power loss", lose_power)] {
        let disk = testkit::simulated_disk(3);
        let open = |disk: &SimulatedDisk| {
            Durable::open(config(7), disk).unwrap_or_else(|error| panic!("{what}: {error}"))
        };
        let mut durable = open(&disk);
        change(&mut durable, &put(b"kept", Condition::Absent));
        for round in 0..4 {
            let made = change(&mut durable, &put(b"ci", Condition::Absent));
            assert_eq!(made, (Decision::Applied, OperationStatus::Done), "{what}");
            end(&disk);
            drop(durable);
            durable = open(&disk);
            assert_eq!(names(&durable.store), ["ci", "kept"], "{what} {round}");
            if round % 2 == 1 {
                durable.commit_loop.ask_for_snapshot();
                let mut clock = StandingClock { now_ms: 1_000 };
                while durable.commit_loop.round(&mut clock)
                    || durable.commit_loop.step_snapshot(&mut clock)
                {}
            }
            change(&mut durable, &delete(b"ci"));
            end(&disk);
            drop(durable);
            durable = open(&disk);
            assert_eq!(names(&durable.store), ["kept"], "{what} {round}");
            assert_eq!(durable.store.secret(), Some(&FolderSecret::new([7; 32])));
        }
    }
}

#[test]
fn no_name_leads_to_identities_and_nobody_drops_them() {
    let disk = testkit::simulated_disk(1);
    let of_memory = Store::in_memory(in_memory(7)).expect("the configuration is sound");
    let mut durable = Durable::open(config(7), &disk).expect("it is empty");
    for store in [&of_memory, &durable.store] {
        assert_eq!(store.databases().len(), 1);
        assert_eq!(store.database(".identities"), None);
        let durability = match store.has_log() {
            true => Durability::Synced,
            false => Durability::Volatile,
        };
        let config = store.config(DatabaseId::IDENTITIES);
        assert_eq!(config.map(|one| one.durability), Some(durability));
    }
    let mut batch = durable.store.write_batch();
    batch.create_database(1, ".identities", &DatabaseConfig::default());
    batch.drop_database(2, DatabaseId::IDENTITIES);
    let (mut clock, mut outcomes) = (StandingClock { now_ms: 1_000 }, Outcomes::new());
    durable.submit(&mut batch, &mut clock, &mut outcomes);
    while durable.commit_loop.round(&mut clock) {}
    durable.mailbox.take(&mut outcomes);
    let decisions: Vec<Decision> = outcomes.iter().map(|one| one.decision).collect();
    assert_eq!(
        decisions,
        [
            Decision::Refused(Refusal::NotCreated(CreateError::BadName)),
            Decision::Refused(Refusal::NotDropped(DropError::Unknown)),
        ]
    );
}

/// A caller who leaves does not take a change of identities back: others wait for what comes of it.
#[test]
fn a_change_of_identities_is_finished_though_its_caller_has_left() {
    let disk = testkit::simulated_disk(1);
    let mut durable = Durable::open(config(7), &disk).expect("it is empty");
    let mut batch = durable.store.write_batch();
    let databases = [DatabaseId::IDENTITIES, DatabaseId::DEFAULT];
    for (tag, database) in (1..).zip(databases) {
        let mut commit = batch.begin(tag, database, Mode::Independent);
        commit.push(&put(b"ci", Condition::None)).expect("it fits");
        commit.submit();
    }
    let (mut clock, mut outcomes) = (StandingClock { now_ms: 1_000 }, Outcomes::new());
    durable.mailbox.submit(&mut batch);
    durable.mailbox.abandon(&mut vec![1, 2]);
    let mut decisions = Vec::new();
    while durable.commit_loop.round(&mut clock) {
        while durable.mailbox.take(&mut outcomes) {
            decisions.extend(outcomes.iter().map(|one| (one.tag, one.decision)));
        }
    }
    decisions.sort_unstable_by_key(|(tag, _)| *tag);
    let abandoned = Decision::Refused(Refusal::Abandoned);
    assert_eq!(decisions, [(1, Decision::Applied), (2, abandoned)]);
    assert_eq!(names(&durable.store), ["ci"]);
}

/// Of an older folder, which has none, and which is made anew where its file was damaged.
#[test]
fn the_secret_of_a_folder_is_drawn_once() {
    let disk = testkit::simulated_disk(1);
    for secret in 7..9 {
        let durable = Durable::open(config(secret), &disk).expect("it is whole");
        let first = Some(&FolderSecret::new([7; 32]));
        assert_eq!(durable.store.secret(), first, "the first one stays");
        disk.kill();
    }
    let of_memory = Store::in_memory(in_memory(9)).expect("the configuration is sound");
    assert_eq!(of_memory.secret(), Some(&FolderSecret::new([9; 32])));
    let text = String::from_utf8(disk.contents("pelton-data")).expect("a text");
    let line = format!("secret {}\n", "07".repeat(32));
    assert!(text.contains(&line), "{text}");
    // Format 4 has none. The next start draws it.
    let older = text.replace(&line, "").replace("format 6", "format 4");
    let (body, _) = older.rsplit_once("end ").expect("it has a checksum");
    let sum = xxhash_rust::xxh3::xxh3_128(body.as_bytes());
    disk.remove("pelton-data").expect("it is there");
    let older = format!("{body}end {sum:032x}\n");
    wal::disk::write_whole(&disk, "new", "pelton-data", older.as_bytes()).expect("there is room");
    for secret in 5..7 {
        let durable = Durable::open(config(secret), &disk).expect("the older one is read");
        assert_eq!(durable.store.secret(), Some(&FolderSecret::new([5; 32])));
        disk.kill();
    }
}

/// Neither identities nor the secret are in a backup, and changes that its log has of them are
/// undone where it is restored.
#[test]
fn a_restored_folder_has_no_identities_and_a_secret_of_its_own() {
    let disk = testkit::simulated_disk(1);
    let mut client = Client::open(&disk);
    change(&mut client.durable, &put(b"before", Condition::None));
    let target = testkit::simulated_disk(2);
    let job = client.begin(&target).expect("nothing fails");
    change(&mut client.durable, &put(b"meanwhile", Condition::None));
    client.complete(job).expect("nothing fails");
    verified(&target).expect("it is whole");
    let names_in = |disk: &SimulatedDisk, name: &str| {
        let files = disk.list().expect("it lists").into_iter();
        let mut contents = files.map(|file| disk.contents(&file));
        let is_there = |content: Vec<u8>| {
            let mut parts = content.windows(name.len());
            parts.any(|part| part == name.as_bytes())
        };
        contents.any(is_there)
    };
    assert!(names_in(&disk, "before"), "this test can find it");
    assert!(!names_in(&target, "before"), "the snapshot has none");
    assert!(
        names_in(&target, "meanwhile"),
        "its log has what was changed meanwhile"
    );
    for _ in 0..2 {
        let restored = testkit::simulated_disk(3);
        restore(&target, &restored).expect("it is whole");
        let opened = Store::open(config(9), Arc::new(restored.clone()), &log_config());
        let store = opened.expect("it is whole").store;
        assert_eq!(names(&store), [""; 0]);
        assert_eq!(store.secret(), Some(&FolderSecret::new([9; 32])));
    }
    assert_eq!(names(&client.durable.store), ["before", "meanwhile"]);
}
