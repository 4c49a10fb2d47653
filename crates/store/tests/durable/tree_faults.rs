//! What goes wrong with the folder of one database on disk: it concerns that database alone, is
//! told by its name, and is over when the folder can be made.

use std::path::{Path, PathBuf};

use store::durable::{ConvertError, NamedTrees};
use store::{
    DatabaseConfig, DatabaseId, Decision, Durability, Kind, Mode, Operation, Outcomes, Refusal,
    StoreConfig,
};
use testkit::read_folder;
use testkit::suite::{StandingClock, SuiteView, delete, put};
use wal::disk::{Fault, Step};

use crate::bench::SEGMENT_BYTES;
use crate::tree_bench::OnDisk;
use crate::tree_power::state_of;

/// Plain files where the folders of trees would be made.
struct Obstacles(Vec<PathBuf>);

impl Obstacles {
    /// For a database that is made, cleared or converted soon after the last commit in the log.
    fn put(made: &OnDisk, database: impl std::fmt::Display) -> Obstacles {
        let folder: &Path = &made.folder.0;
        let next = made.commit_loop.log_sequence() + 1;
        let names = (next..next + 300).map(|sequence| format!("{database}-{sequence}.new"));
        let paths = names.map(|name| folder.join("trees").join(name));
        // The folders that are there are left alone.
        let paths: Vec<_> = paths.filter(|path| !path.exists()).collect();
        for path in &paths {
            std::fs::write(path, "in the way").expect("there is room");
        }
        Obstacles(paths)
    }
}

impl Drop for Obstacles {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Commits to databases on disk, one at a time.
pub struct Client {
    pub made: OnDisk,
    pub clock: StandingClock,
}

impl Client {
    pub fn new() -> Client {
        let mut clock = StandingClock { now_ms: 1000 };
        let mut config = StoreConfig::new(1);
        config.default_database.durability = Durability::Synced;
        let mut made = OnDisk::make(config, &mut clock);
        made.keeps = false;
        Client { made, clock }
    }

    /// Also proves that the committer comes to rest.
    fn run(&mut self, fill: &dyn Fn(&mut store::WriteBatch)) -> Vec<Decision> {
        const ROUNDS_MAX: usize = 10_000;
        let mut batch = self.made.store.write_batch();
        fill(&mut batch);
        assert!(batch.read_ahead().failure.is_none(), "the tables are whole");
        self.made.mailbox.submit(&mut batch);
        let (mut outcomes, mut decisions) = (Outcomes::new(), Vec::new());
        let rounds = (0..ROUNDS_MAX).find(|_| !self.made.commit_loop.round(&mut self.clock));
        rounds.expect("rounds without end");
        while self.made.mailbox.take(&mut outcomes) {
            decisions.extend(outcomes.iter().map(|outcome| outcome.decision));
        }
        decisions
    }

    pub fn commit(&mut self, database: DatabaseId, operations: &[Operation<'_>]) -> Decision {
        let decisions = self.run(&|batch| {
            let mut commit = batch.begin(0, database, Mode::Atomic);
            for operation in operations {
                commit.push(operation).expect("within the limits");
            }
            commit.submit();
        });
        decisions[0]
    }

    pub fn create(&mut self, name: &str, kind: Kind) -> Decision {
        let config = DatabaseConfig {
            durability: Durability::Synced,
            ..DatabaseConfig::default()
        };
        self.run(&|batch| batch.create_database(0, name, &config.of_kind(kind)))[0]
    }

    pub fn drop_database(&mut self, name: &str) {
        let id = self.id(name);
        let decisions = self.run(&|batch| batch.drop_database(0, id));
        assert_eq!(decisions, [APPLIED]);
    }

    pub fn id(&self, name: &str) -> DatabaseId {
        self.made.store.database(name).expect("it was made")
    }

    pub fn has(&self, database: DatabaseId, key: &[u8]) -> bool {
        let view = SuiteView::of(&self.made.store, database).expect("it is there");
        view.get(key, self.made.store.hasher().hash(key), 1)
            .is_some()
    }

    pub fn snapshot(&mut self) {
        self.made.commit_loop.ask_for_snapshot();
        while self.made.commit_loop.step_snapshot(&mut self.clock) {}
        while self.made.commit_loop.round(&mut self.clock) {}
    }

    /// The folders of trees, and what else is there.
    pub fn folders(&self) -> Vec<String> {
        let folder = std::fs::read_dir(self.made.folder.0.join("trees")).expect("it is there");
        let names = folder.map(|file| file.expect("it is read").file_name());
        let mut names: Vec<_> = names.filter_map(|name| name.into_string().ok()).collect();
        names.sort();
        names
    }

    fn is_made(&self, name: &str) -> bool {
        let tree = self.made.store.tree(self.id(name));
        tree.expect("it is on disk").is_made()
    }
}

pub const APPLIED: Decision = Decision::Applied;

fn refused(refusal: Refusal) -> Decision {
    Decision::Refused(refusal)
}

#[test]
fn figures_of_a_database_on_disk_are_those_of_its_files() {
    let mut client = Client::new();
    assert_eq!(client.create("one", Kind::Disk), APPLIED);
    let id = client.id("one");
    client
        .made
        .commit_loop
        .flush_trees()
        .expect("there is room");
    for round in 1..=2 {
        for number in 0..30 {
            let key = [round, number];
            assert_eq!(client.commit(id, &[put(&key, &[7; 100])]), APPLIED);
        }
        let entries = 30 * u64::from(round);
        let figures = |client: &Client| client.made.store.statistics(id).expect("it is there");
        assert_eq!(figures(&client).entries, entries, "in memory and in tables");
        client.made.commit_loop.seal_trees();
        assert_eq!(figures(&client).entries, entries, "sealed");
        client
            .made
            .commit_loop
            .flush_trees()
            .expect("there is room");
        assert_eq!(figures(&client).entries, entries, "in tables");

        let tree = client.made.store.tree(id).expect("it is on disk");
        let tables = read_folder(&tree.folder().join("tables"));
        let bytes: usize = tables.values().map(Vec::len).sum();
        let mut named = NamedTrees::default();
        let log = wal::verify(&client.made.disk, &mut |_, group| {
            for record in store::log::records(group) {
                named.record(&record.expect("it was written"));
            }
            Ok(())
        });
        log.expect("it is whole");
        let trees = client.made.folder.0.join("trees");
        let owner = store::durable::owner(&client.made.disk).expect("it is whole");
        assert_ne!(owner, 0);
        // As a start does, which takes the note of another data folder for that of another tree.
        for another in named.verify(&trees, owner ^ 1) {
            let noted = another.database.contains("one");
            assert_eq!(another.found.is_err(), noted, "{another:?}");
        }
        let verdicts = named.verify(&trees, owner);
        let verdict = verdicts.iter().find(|one| one.database.contains("one"));
        let report = verdict.expect("it is named").found.as_ref();
        let report = report.expect("it is whole").as_ref().expect("there is one");
        assert_eq!(
            (report.tables, report.bytes),
            (tables.len() as u64, bytes as u64)
        );
        assert_eq!(tables.len(), usize::from(round));
    }
}

/// Creates a database on disk whose folder cannot be made, and sees the failure that names it.
fn create_without_a_folder(client: &mut Client, name: &str) -> (DatabaseId, Obstacles) {
    // Numbers are given out in their order.
    let before = format!("before-{name}");
    assert_eq!(client.create(&before, Kind::Memory), APPLIED);
    let before = client.id(&before).to_string();
    let number = before.parse::<u32>().expect("it is a number") + 1;
    let obstacles = Obstacles::put(&client.made, number);
    assert_eq!(client.create(name, Kind::Disk), APPLIED, "{name}");
    let id = client.id(name);
    assert_eq!(id.to_string(), number.to_string());
    let failed = client.made.commit_loop.flush_trees();
    let text = failed.expect_err("it is in the way").to_string();
    assert!(text.contains(&format!("{id}-")), "{text}");
    assert!(!client.made.commit_loop.has_failed());
    (id, obstacles)
}

/// Databases beside it take commits, on disk and in memory, and reach the device.
fn others_go_on(client: &mut Client, good: DatabaseId, round: usize) {
    for database in [good, DatabaseId::DEFAULT] {
        let key = format!("beside {round}");
        let decision = client.commit(database, &[put(key.as_bytes(), b"v")]);
        assert_eq!(decision, APPLIED);
        assert!(client.has(database, key.as_bytes()));
    }
    client.made.commit_loop.seal_trees();
    assert!(client.made.commit_loop.flush_trees().is_err());
    let good_tree = client.made.store.tree(good).expect("it is on disk");
    assert!(!good_tree.wants_flush(), "its flush had nothing in its way");

    // One more folder is not even begun.
    let one_more = client.create("one-more", Kind::Disk);
    assert_eq!(one_more, refused(Refusal::NoFolder));
    let in_memory = client.create(&format!("in-memory-{round}"), Kind::Memory);
    assert_eq!(in_memory, APPLIED);
}

/// A database without a folder takes commits in memory, up to a bound; what does not grow is taken
/// beyond it.
fn goes_on_in_memory_up_to_a_bound(client: &mut Client, database: DatabaseId) {
    let mut written = 0u32;
    let value = [7; 500];
    let last = loop {
        match client.commit(database, &[put(&written.to_be_bytes(), &value)]) {
            Decision::Applied => written += 1,
            other => break other,
        }
        assert!(written < 1000, "without end");
    };
    assert_eq!(last, refused(Refusal::DiskFailed));
    assert!(written >= 5, "{written}");
    for number in 0..written {
        assert!(client.has(database, &number.to_be_bytes()));
    }
    let deletion = client.commit(database, &[delete(&0u32.to_be_bytes())]);
    assert_eq!(deletion, APPLIED);
    assert!(!client.has(database, &0u32.to_be_bytes()));
}

#[test]
fn a_folder_that_cannot_be_made_concerns_its_database_alone() {
    let mut client = Client::new();
    assert_eq!(client.create("good", Kind::Disk), APPLIED);
    client
        .made
        .commit_loop
        .flush_trees()
        .expect("there is room");
    let good = client.id("good");
    for round in 0..2 {
        let name = format!("bad-{round}");
        let (bad, obstacles) = create_without_a_folder(&mut client, &name);
        others_go_on(&mut client, good, round);
        goes_on_in_memory_up_to_a_bound(&mut client, bad);
        // It is over when the folder can be made, or at a restart.
        drop(obstacles);
        if round == 0 {
            let made = client.made.commit_loop.flush_trees();
            made.expect("nothing is in the way");
            assert_eq!(client.commit(bad, &[put(b"after", b"v")]), APPLIED);
        }
        let state = state_of(&client.made.store);
        client.made.crash(2, &mut client.clock);
        client.made.keeps = false;
        assert_eq!(state_of(&client.made.store), state, "round {round}");
        let bad = client.id(&name);
        assert_eq!(client.commit(bad, &[put(b"behind", b"v")]), APPLIED);
    }
}

/// The committer makes no folders: those who keep the trees do.
#[test]
fn no_commit_makes_a_folder() {
    let mut client = Client::new();
    let before = client.folders();
    assert_eq!(client.create("other", Kind::Disk), APPLIED);
    for round in 0..2 {
        assert_eq!(client.folders(), before, "round {round}");
        assert!(!client.is_made("other"));
        let other = client.id("other");
        assert_eq!(client.commit(other, &[put(b"key", b"value")]), APPLIED);
        assert_eq!(client.commit(other, &[Operation::Clear]), APPLIED);
        assert!(!client.has(other, b"key"));
        assert_eq!(client.folders(), before, "round {round}");
        // Two clears in one group, and what comes between.
        let decisions = client.run(&|batch| {
            for operations in [
                &[Operation::Clear][..],
                &[put(b"a", b"1")],
                &[Operation::Clear],
            ] {
                let mut commit = batch.begin(0, other, Mode::Atomic);
                operations
                    .iter()
                    .for_each(|operation| commit.push(operation).expect("small"));
                commit.submit();
            }
            let mut commit = batch.begin(0, other, Mode::Atomic);
            commit.push(&put(b"b", b"2")).expect("small");
            commit.submit();
        });
        assert_eq!(decisions, [APPLIED; 4]);
        assert!(client.has(other, b"b") && !client.has(other, b"a"));
        assert_eq!(client.folders(), before, "round {round}");
        // Much is written elsewhere and snapshots are made, so that the log is shortened as far as
        // it may be; then the power is lost.
        let filler = format!("filler-{round}");
        assert_eq!(client.create(&filler, Kind::Memory), APPLIED);
        for number in 0..60u8 {
            let id = client.id(&filler);
            let filled = client.commit(id, &[put(&[number], &[7; 4000])]);
            assert_eq!(filled, APPLIED);
        }
        client.snapshot();
        client.snapshot();
        assert_eq!(client.folders(), before, "round {round}");
        let state = state_of(&client.made.store);
        client.made.crash(2, &mut client.clock);
        client.made.keeps = false;
        assert_eq!(state_of(&client.made.store), state, "round {round}");
        // Begun anew by the same name.
        let other = client.id("other");
        assert_eq!(
            client.run(&|batch| batch.drop_database(0, other)),
            [APPLIED]
        );
        drop(client.made.commit_loop.take_garbage());
        assert_eq!(client.folders(), before, "what was dropped is gone");
        assert_eq!(client.create("other", Kind::Disk), APPLIED);
    }
}

/// It needs a mark in the log, for which there is no next file, and not for want of room.
#[test]
fn conversion_while_the_log_cannot_grow_says_so_and_not_that_the_disk_is_full() {
    let mut client = Client::new();
    assert_eq!(client.create("in-memory", Kind::Memory), APPLIED);
    let id = client.id("in-memory");
    let disk = client.made.disk.clone();
    for before in 0..3_000 {
        disk.plan_next(Step::Create, before, Fault::Error);
        disk.plan_next(Step::Rename, before, Fault::Error);
    }
    let value = vec![7; 6_000];
    let refused = refused(Refusal::LogNotReady);
    for length in [6_000, 1] {
        // Until nothing at all can be logged.
        let mut applied = 0;
        while client.commit(id, &[put(b"k", &value[..length])]) == APPLIED {
            applied += 1;
            assert!(applied < 1_000, "without end");
        }
        assert_eq!(client.commit(id, &[put(b"k", &value[..length])]), refused);
    }
    for _ in 0..2 {
        let error = (client.made.commit_loop).convert(id, Kind::Disk, &mut client.clock);
        let error = error.expect_err("its mark cannot be logged");
        assert!(
            matches!(error, ConvertError::Refused(Refusal::LogNotReady)),
            "{error}"
        );
    }
}

#[test]
fn a_refused_group_leaves_no_folder() {
    let mut client = Client::new();
    assert_eq!(client.create("other", Kind::Disk), APPLIED);
    client
        .made
        .commit_loop
        .flush_trees()
        .expect("there is room");
    let before = client.folders();
    for round in 0..2 {
        let disk = client.made.disk.clone();
        disk.set_capacity_bytes(2 * SEGMENT_BYTES + 4096);
        let full = refused(Refusal::LogFull);
        let other = client.id("other");
        // Until nothing at all can be logged: then a group with a clear is refused too.
        let value = vec![7; 6_000];
        let same = |client: &mut Client| client.commit(DatabaseId::DEFAULT, &[put(b"k", &value)]);
        while same(&mut client) == APPLIED {}
        let (mut cleared, mut created) = (0, 0);
        while client.commit(other, &[Operation::Clear]) == APPLIED {
            cleared += 1;
            assert!(cleared < 5000, "without end");
            let name = format!("new-{round}-{created}");
            created += usize::from(client.create(&name, Kind::Disk) == APPLIED);
        }
        for _ in 0..3 {
            assert_eq!(client.commit(other, &[Operation::Clear]), full);
            assert_eq!(client.create("refused", Kind::Disk), full);
        }
        drop(client.made.commit_loop.take_garbage());
        let names = client.folders();
        assert!(
            names.iter().all(|name| !name.ends_with(".new")),
            "{names:?}"
        );
        assert!(names.len() <= before.len() + created, "{names:?}");
        disk.set_capacity_bytes(u64::MAX);
        assert_eq!(client.commit(other, &[put(b"late", b"v")]), APPLIED);
        client
            .made
            .commit_loop
            .flush_trees()
            .expect("there is room");
        assert!(client.has(other, b"late"));
    }
}

/// Converted to and fro, dropped and made again by the same name, with what is written between;
/// each time again.
#[test]
fn the_second_time_is_as_the_first() {
    let mut client = Client::new();
    for round in 0..3 {
        println!("round {round}");
        assert_eq!(client.create("other", Kind::Memory), APPLIED);
        let other = client.id("other");
        for turn in 0..2u8 {
            for kind in [Kind::Disk, Kind::Memory] {
                let key = [turn, u8::from(kind == Kind::Disk)];
                assert_eq!(client.commit(other, &[put(&key, b"before")]), APPLIED);
                let before = state_of(&client.made.store);
                let report = client
                    .made
                    .commit_loop
                    .convert(other, kind, &mut client.clock);
                assert!(report.expect("it fits").entries > 0);
                let after = state_of(&client.made.store);
                assert_eq!(after["other"].1, before["other"].1, "entries as they were");
                assert_eq!(client.commit(other, &[put(&key, b"after")]), APPLIED);
                if turn == 1 {
                    client.snapshot();
                }
                let state = state_of(&client.made.store);
                let memory_bytes = client.made.store.memory_bytes();
                client.made.crash(2, &mut client.clock);
                client.made.keeps = false;
                assert_eq!(state_of(&client.made.store), state);
                // A start counts anew what was counted on.
                assert_eq!(client.made.store.memory_bytes(), memory_bytes);
            }
        }
        let other = client.id("other");
        assert_eq!(
            client.run(&|batch| batch.drop_database(0, other)),
            [APPLIED]
        );
    }
    // The trees of the default database, and of nobody else.
    client.snapshot();
    client.made.crash(2, &mut client.clock);
    assert_eq!(client.folders().len(), 1, "{:?}", client.folders());
}

/// A conversion that the log refuses leaves nothing behind, and the next one works.
#[test]
fn a_conversion_that_is_refused_can_be_tried_again() {
    let mut client = Client::new();
    assert_eq!(client.create("other", Kind::Memory), APPLIED);
    let other = client.id("other");
    assert_eq!(client.commit(other, &[put(b"key", b"value")]), APPLIED);
    for round in 0..2 {
        let before = client.folders();
        // In the way of the folder that it would be filled in.
        let obstacles = Obstacles::put(&client.made, other);
        let converted = client
            .made
            .commit_loop
            .convert(other, Kind::Disk, &mut client.clock);
        assert!(converted.is_err(), "round {round}");
        assert!(!client.made.commit_loop.has_failed());
        assert_eq!(client.commit(other, &[put(b"key", b"value 2")]), APPLIED);
        drop(obstacles);
        assert_eq!(client.folders(), before);
        let converted = client
            .made
            .commit_loop
            .convert(other, Kind::Disk, &mut client.clock);
        converted.expect("nothing is in the way");
        assert!(client.has(other, b"key"));
        let converted = client
            .made
            .commit_loop
            .convert(other, Kind::Memory, &mut client.clock);
        converted.expect("it fits");
    }
}

/// Where the device is far behind, deletes are taken for longer than what grows, but not without
/// end.
#[test]
fn what_waits_for_the_device_has_a_bound() {
    let mut client = Client::new();
    let key = |number: u32| format!("a key of some length {number:06}").into_bytes();
    let mut deleted = 0;
    for round in 0..2 {
        for number in 0..1500 {
            let key = key(number + round * 1500);
            assert_eq!(
                client.commit(DatabaseId::DEFAULT, &[put(&key, b"")]),
                APPLIED
            );
            if number % 50 == 0 {
                client
                    .made
                    .commit_loop
                    .flush_trees()
                    .expect("there is room");
            }
        }
        client.made.commit_loop.seal_trees();
        client
            .made
            .commit_loop
            .flush_trees()
            .expect("there is room");
        let value = [7; 900];
        let behind = refused(Refusal::DiskBehind);
        let grow = |client: &mut Client| client.commit(DatabaseId::DEFAULT, &[put(b"g", &value)]);
        while grow(&mut client) == APPLIED {}
        assert_eq!(grow(&mut client), behind);
        assert_eq!(
            client.commit(DatabaseId::DEFAULT, &[delete(&key(deleted))]),
            APPLIED
        );
        let refusal = loop {
            deleted += 1;
            match client.commit(DatabaseId::DEFAULT, &[delete(&key(deleted))]) {
                Decision::Applied => assert!(deleted < round * 1500 + 1400, "without end"),
                other => break other,
            }
        };
        assert_eq!(refusal, behind, "round {round}: {deleted}");
        client
            .made
            .commit_loop
            .flush_trees()
            .expect("there is room");
        assert_eq!(
            client.commit(DatabaseId::DEFAULT, &[delete(&key(deleted))]),
            APPLIED
        );
        assert_eq!(grow(&mut client), APPLIED);
    }
}

/// What a database was converted from takes room until a snapshot has what it became: one is made
/// for that, however little there is in the log.
#[test]
fn a_tree_that_was_converted_goes_by_itself() {
    let mut client = Client::new();
    assert_eq!(client.create("other", Kind::Disk), APPLIED);
    let other = client.id("other");
    assert_eq!(client.commit(other, &[put(b"key", b"value")]), APPLIED);
    client
        .made
        .commit_loop
        .flush_trees()
        .expect("there is room");
    let snapshots = |client: &mut Client| {
        while client.made.commit_loop.step_snapshot(&mut client.clock) {}
        while client.made.commit_loop.round(&mut client.clock) {}
        let statistics = client.made.store.log_statistics();
        statistics.expect("there is a log").snapshots_made
    };
    assert_eq!(snapshots(&mut client), 0, "none is due");
    let converted = client
        .made
        .commit_loop
        .convert(other, Kind::Memory, &mut client.clock);
    converted.expect("it fits");
    for _ in 0..2 {
        assert_eq!(snapshots(&mut client), 1, "one is enough");
    }
    client.made.crash(2, &mut client.clock);
    assert_eq!(client.folders().len(), 1, "{:?}", client.folders());
    assert!(client.has(other, b"key"));
}

/// Nothing of it can be sealed, so the committer does not wait for that; twice.
#[test]
fn rounds_end_while_the_largest_tree_is_not_made_and_memory_is_short() {
    let mut clock = StandingClock { now_ms: 1000 };
    let mut config = StoreConfig::new(1);
    config.default_database.durability = Durability::Synced;
    config.memory_bytes = 128 << 10;
    let mut made = OnDisk::make(config, &mut clock);
    made.keeps = false;
    let mut client = Client { made, clock };
    assert_eq!(client.create("other", Kind::Disk), APPLIED);
    let other = client.id("other");
    assert!(!client.is_made("other"));
    assert_eq!(client.create("memory", Kind::Memory), APPLIED);
    let memory = client.id("memory");
    for _ in 0..2 {
        for key in 0..7 {
            client.commit(other, &[put(&[key], &[7; 500])]);
        }
        for key in 0..40 {
            client.commit(memory, &[put(&[key], &[7; 4000])]);
        }
    }
    assert!(!client.is_made("other"));
}
