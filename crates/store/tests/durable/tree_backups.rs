//! Backups of databases on disk, made while commits, flushes and compactions go on.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use store::backup::{self, BackupStep, MANIFEST_NAME, RestoreConfig};
use store::durable::TreePlace;
use store::{
    DatabaseConfig, DatabaseId, Decision, Durability, Kind, Mode, Operation, Outcomes, Store,
    StoreConfig,
};
use testkit::Random;
use testkit::suite::{Engine, StandingClock, delete, put};
use wal::disk::{Disk, RealDisk};
use wal::{LogConfig, LogId};

use crate::bench::log_config;
use crate::tree_bench::{OnDisk, TempFolder, place};
use crate::tree_power::{State, state_of};

fn config(seed: u64) -> StoreConfig {
    let mut config = StoreConfig::new(seed);
    config.default_database.durability = Durability::Synced;
    config
}

/// One commit; the state after it.
fn commit(made: &mut OnDisk, random: &mut Random, clock: &mut StandingClock) -> (u64, State) {
    let mut batch = made.store.write_batch();
    let others: Vec<_> = made.store.databases().iter().map(|info| info.id).collect();
    let database = random.pick(&others);
    let key = format!("key-{}", random.below(40)).into_bytes();
    let value = vec![b'v'; random.below(500)];
    match random.below(30) {
        0 => {
            let name = format!("other-{}", random.number());
            let config = DatabaseConfig {
                durability: Durability::Synced,
                ..DatabaseConfig::default()
            };
            batch.create_database(0, &name, &config.of_kind(Kind::Disk));
        }
        1 => {
            let mut commit = batch.begin(0, database, Mode::Atomic);
            commit.push(&Operation::Clear).expect("it stands alone");
            commit.submit();
        }
        2 if database != DatabaseId::DEFAULT => batch.drop_database(0, database),
        other => {
            let mut commit = batch.begin(0, database, Mode::Atomic);
            let operation = match other % 4 {
                0 => delete(&key),
                _ => put(&key, &value),
            };
            commit.push(&operation).expect("small");
            commit.submit();
        }
    }
    let mut outcomes = Outcomes::new();
    made.run(&mut batch, clock, &mut outcomes);
    assert_eq!(outcomes.get(0).decision, Decision::Applied);
    (outcomes.get(0).sequence, state_of(&made.store))
}

#[test]
fn a_backup_of_databases_on_disk_is_what_there_was_at_its_cut() {
    for seed in 0..25 {
        println!("seed {seed}");
        let (mut random, mut clock) = (Random::new(seed), StandingClock { now_ms: 1000 });
        let mut made = OnDisk::make(config(seed), &mut clock);
        for _ in 0..random.below(60) {
            commit(&mut made, &mut random, &mut clock);
        }
        if seed % 2 == 0 {
            add_strangers(&made.folder.0.join("trees"));
        }
        let folder = TempFolder::new();
        let target = RealDisk::open_or_create(folder.0.join("backup")).expect("there is room");
        let target: Arc<dyn Disk> = Arc::new(target);
        let begun = (made.commit_loop).begin_backup(target.clone(), "test", &mut clock);
        let mut job = begun.expect("it is new");
        job.set_slice_rows(4);
        let mut states = vec![(0, state_of(&made.store))];
        let report = loop {
            if random.once_in(3) {
                states.push(commit(&mut made, &mut random, &mut clock));
            }
            let step = made.commit_loop.step_backup(job, &mut clock);
            match step.expect("nothing fails") {
                BackupStep::Worked(next) | BackupStep::Synced(next) => job = next,
                BackupStep::Complete(report) => break report,
            }
        };
        let at_cut = states
            .iter()
            .rfind(|(sequence, _)| *sequence <= report.sequence);
        let (_, expected) = at_cut.expect("it began before");
        backup::verify(&*target, &mut |_, _| ControlFlow::Continue(())).expect("it is whole");
        let restored = restore(seed, &*target, &folder.0.join("data"), &mut clock);
        assert_eq!(&restored, expected, "seed {seed}");
        if add_stray_files(&folder.0.join("backup")) > 0 {
            backup::verify(&*target, &mut |_, _| ControlFlow::Continue(())).expect("it is whole");
            let restored = restore(seed, &*target, &folder.0.join("again"), &mut clock);
            assert_eq!(&restored, expected, "seed {seed}, with stray files");
        }
    }
}

/// Files that are no part of a tree: what a full disk leaves of the server's own, and what others
/// put there.
fn add_strangers(trees: &Path) {
    for tree in fs::read_dir(trees).expect("it is there") {
        let tree = tree.expect("it can be read").path();
        for name in [".tmp-known-tables", ".tmp-current", "notes.txt", "v1.bak"] {
            fs::write(tree.join(name), b"half").expect("there is room");
        }
        let tables = tree.join("tables");
        if tables.exists() {
            fs::write(tables.join(".DS_Store"), b"of a file manager").expect("there is room");
        }
    }
}

/// Adds to a backup what earlier versions took into it: a temporary file of each tree. Returns how
/// many.
fn add_stray_files(backup: &Path) -> usize {
    let manifest = fs::read_to_string(backup.join(MANIFEST_NAME)).expect("it is text");
    let (lines, _) = manifest
        .split_once("checksum ")
        .expect("it is the last line");
    let (mut trees, mut lines): (Vec<_>, Vec<_>) = lines
        .lines()
        .map(str::to_owned)
        .partition(|line| line.contains(".tree "));
    let currents = trees.iter().filter_map(|line| {
        let name = line.strip_prefix("file ")?;
        Some(name.split_once(".current.tree")?.0.to_owned())
    });
    let currents: Vec<_> = currents.collect();
    for tree in &currents {
        let name = format!("{tree}..tmp-known-tables.tree");
        fs::write(backup.join(&name), b"half").expect("there is room");
        trees.push(format!("file {name} 4 {:08x}", crc32c::crc32c(b"half")));
    }
    trees.sort();
    lines.append(&mut trees);
    let text = lines.join("\n") + "\n";
    let checksum = crc32c::crc32c(text.as_bytes());
    let text = format!("{text}checksum {checksum:08x}\n");
    fs::write(backup.join(MANIFEST_NAME), text).expect("there is room");
    currents.len()
}

/// A change of the set of tables that failed leaves files that nobody names, and the next change
/// writes over them, in place. A backup that had them under a second name would be damaged then.
#[test]
fn a_backup_has_no_file_that_a_later_change_writes_over() {
    let (mut random, mut clock) = (Random::new(7), StandingClock { now_ms: 1000 });
    let mut made = OnDisk::make(config(7), &mut clock);
    for round in 0..2 {
        for _ in 0..60 {
            commit(&mut made, &mut random, &mut clock);
        }
        let left = leave_unnamed_files(&made.folder.0.join("trees"));
        assert!(left.len() > 1, "round {round}: there are trees");
        let folder = TempFolder::new();
        let target = RealDisk::open_or_create(folder.0.join("backup")).expect("there is room");
        let target: Arc<dyn Disk> = Arc::new(target);
        let begun = (made.commit_loop).begin_backup(target.clone(), "test", &mut clock);
        let mut job = begun.expect("it is new");
        let expected = state_of(&made.store);
        while let BackupStep::Worked(next) | BackupStep::Synced(next) =
            (made.commit_loop.step_backup(job, &mut clock)).expect("nothing fails")
        {
            job = next;
        }
        for path in &left {
            fs::write(path, b"written over").expect("it is there");
        }
        backup::verify(&*target, &mut |_, _| ControlFlow::Continue(())).expect("it is whole");
        let restored = restore(7, &*target, &folder.0.join("data"), &mut clock);
        assert_eq!(restored, expected, "round {round}");
    }
}

/// Leaves in each tree a list of tables and a table that nobody names; returns where.
fn leave_unnamed_files(trees: &Path) -> Vec<PathBuf> {
    let mut left = Vec::new();
    for tree in fs::read_dir(trees).expect("it is there") {
        let tree = tree.expect("it can be read").path();
        for path in ["v4000", "tables/4000"] {
            let path = tree.join(path);
            if path.parent().is_some_and(Path::exists) {
                fs::write(&path, b"of a change that failed").expect("there is room");
                left.push(path);
            }
        }
    }
    left
}

fn restore(seed: u64, backup: &dyn Disk, data: &Path, clock: &mut StandingClock) -> State {
    let (target, _) = backup::new_folder(data).expect("it is new");
    let target: Arc<dyn Disk> = Arc::new(target);
    let trees = TreePlace {
        folder: data.join("trees"),
        ..place(data)
    };
    let id = LogId {
        history: 4711,
        secret: 1,
    };
    let restoring = RestoreConfig {
        store: config(seed),
        log: LogConfig {
            new_log_id: id,
            ..log_config()
        },
        trees: Some(trees.clone()),
    };
    let restored = backup::restore(backup, &target, &restoring, clock, &mut |_, _| {
        ControlFlow::Continue(())
    });
    restored.expect("it is whole");
    let opened = Store::open_with_trees(config(seed), target, &log_config(), Some(&trees));
    state_of(&opened.expect("it was restored").store)
}
