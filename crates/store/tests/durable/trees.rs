//! Databases on disk: the suite of every engine, and what is theirs alone.

use store::{
    Condition, DatabaseConfig, DatabaseId, Decision, Durability, Kind, Mode, Outcomes, StoreConfig,
};
use testkit::suite::{Engine, StandingClock, put, put_if, run_cases_but, run_property};

use crate::tree_bench::OnDisk;

/// Cases about what databases in memory alone have.
const OF_MEMORY: &[&str] = &[
    "large values are shared",
    "a full database takes what does not grow it",
    "a full store refuses growth anywhere",
    "counts are exact and resume",
    "counts with expired entries resume",
    "a sweep removes what has expired",
    "a sweep takes turns and ends",
    "a sweep asks once for what is on its way",
    "a sweep spares what was written meanwhile",
];

fn make(mut config: StoreConfig, durability: Durability) -> OnDisk {
    config.default_database.durability = durability;
    OnDisk::make(config, &mut StandingClock { now_ms: 1 })
}

#[test]
fn a_database_on_disk_passes_all_cases() {
    for durability in [Durability::Synced, Durability::Written] {
        run_cases_but(&|config| Box::new(make(config, durability)), OF_MEMORY);
    }
}

#[test]
fn a_database_on_disk_equals_the_model() {
    run_property(&|config| Box::new(make(config, Durability::Synced)));
}

/// Everything was answered before each crash, so nothing may be missing; and nothing may be there
/// again.
#[test]
fn a_database_on_disk_equals_the_model_across_crashes() {
    run_property(&|config| {
        let mut made = make(config, Durability::Synced);
        made.crashes = true;
        Box::new(made)
    });
}

/// A loop uses its batches for as long as it lives, and a database may change meanwhile.
#[test]
fn a_batch_knows_that_a_database_was_converted() {
    let mut clock = StandingClock { now_ms: 1 };
    let mut made = make(StoreConfig::new(1), Durability::Synced);
    let mut batch = made.store.write_batch();
    let operation = put_if(b"key", b"value", Condition::Absent);
    for kind in [Kind::Memory, Kind::Disk, Kind::Memory, Kind::Disk] {
        assert_eq!(
            batch.is_outside_memory(DatabaseId::DEFAULT),
            kind == Kind::Memory
        );
        let converted = (made.commit_loop).convert(DatabaseId::DEFAULT, kind, &mut clock);
        converted.expect("an empty database is converted");
        assert_eq!(
            batch.is_outside_memory(DatabaseId::DEFAULT),
            kind == Kind::Disk
        );
        let mut commit = batch.begin(0, DatabaseId::DEFAULT, Mode::Atomic);
        commit.push(&operation).expect("it is small");
        commit.submit();
        assert_eq!(batch.wants_reads(), kind == Kind::Disk);
        batch.clear();
    }
}

/// Many databases with a little in memory each, which is far from a full memtable, and together
/// more than all the memory: what was written is brought to the device before it fills the memory,
/// so that everything is accepted, again and again.
#[test]
fn many_small_memtables_do_not_fill_the_memory() {
    let mut clock = StandingClock { now_ms: 1 };
    let mut config = StoreConfig::new(11);
    config.memory_bytes = 384 << 10;
    config.default_database.durability = Durability::Synced;
    let mut made = OnDisk::make(config, &mut clock);
    made.keeps = false;
    let mut outcomes = Outcomes::new();
    for number in 0..150 {
        let mut batch = made.store.write_batch();
        let config = DatabaseConfig {
            durability: Durability::Synced,
            ..DatabaseConfig::default()
        };
        batch.create_database(0, &format!("d{number}"), &config.of_kind(Kind::Disk));
        made.run(&mut batch, &mut clock, &mut outcomes);
        assert_eq!(outcomes.get(0).decision, Decision::Applied);
    }
    let ids: Vec<DatabaseId> = made.store.databases().iter().map(|info| info.id).collect();
    for round in 0..3_u8 {
        for &id in &ids {
            let mut batch = made.store.write_batch();
            let mut commit = batch.begin(0, id, Mode::Atomic);
            let pushed = commit.push(&put(&[round], &[round; 3_000]));
            pushed.expect("it is small");
            commit.submit();
            made.run(&mut batch, &mut clock, &mut outcomes);
            assert_eq!(
                outcomes.get(0).decision,
                Decision::Applied,
                "{round}, {id:?}"
            );
            // What is sealed is written as it is by the threads of a server.
            made.commit_loop.flush_trees().expect("there is room");
        }
        let (used, limit) = (made.store.memory_bytes(), config.memory_bytes);
        assert!(used < limit / 2, "{used} of {limit}");
    }
    for &id in &ids {
        let tree = made.store.tree(id).expect("it is on disk");
        for round in 0..3_u8 {
            let found = tree
                .view()
                .find_owned(&[round])
                .expect("the tables are whole");
            assert!(found.is_some(), "{round}, {id:?}");
        }
    }
}
