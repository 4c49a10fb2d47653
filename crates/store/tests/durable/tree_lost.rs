//! A database on disk that is damaged: a start that is told to accept a loss gives this one up,
//! keeps its folder aside, and has everything of all others.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use store::durable::{CommitLoop, OpenError, Opened};
use store::{DatabaseId, Durability, Kind, SET_ASIDE_FOLDER, Store, StoreConfig};
use testkit::suite::{StandingClock, put};
use testkit::{Files, read_folder, write_folder};
use wal::LogConfig;
use wal::disk::SimulatedDisk;

use crate::bench::log_config;
use crate::tree_bench::{TempFolder, place};
use crate::tree_faults::{APPLIED, Client};

fn config() -> StoreConfig {
    let mut config = StoreConfig::new(1);
    config.default_database.durability = Durability::Synced;
    config
}

fn accepting() -> LogConfig {
    LogConfig {
        accept_loss: true,
        ..log_config()
    }
}

/// Two databases on disk and one in memory, with tables, a snapshot, and some changes in the log
/// alone, after a crash.
struct Crashed {
    disk: SimulatedDisk,
    folder: Arc<TempFolder>,
    hurt: DatabaseId,
    others: [DatabaseId; 2],
    tree: PathBuf,
}

const KEYS: u32 = 60;
const IN_LOG: std::ops::Range<u32> = 60..70;

fn key(number: u32) -> Vec<u8> {
    format!("key-{number}").into_bytes()
}

impl Crashed {
    fn new() -> Crashed {
        let mut client = Client::new();
        assert_eq!(client.create("hurt", Kind::Disk), APPLIED);
        assert_eq!(client.create("memory", Kind::Memory), APPLIED);
        let hurt = client.id("hurt");
        let others = [DatabaseId::DEFAULT, client.id("memory")];
        let write = |client: &mut Client, from: u32, to: u32| {
            for database in [hurt, others[0], others[1]] {
                for number in from..to {
                    let key = key(number);
                    let operation = put(&key, &[7; 300]);
                    assert_eq!(client.commit(database, &[operation]), APPLIED);
                }
            }
        };
        for round in 0..3 {
            write(&mut client, 20 * round, 20 * (round + 1));
            client.made.commit_loop.seal_trees();
            client
                .made
                .commit_loop
                .flush_trees()
                .expect("there is room");
        }
        client.snapshot();
        client.snapshot();
        write(&mut client, IN_LOG.start, IN_LOG.end);
        let tree = client.made.store.tree(hurt).expect("it is on disk");
        let tree = tree.folder().to_owned();
        let (disk, folder) = (client.made.disk.clone(), client.made.folder.clone());
        drop(client);
        disk.kill();
        Crashed {
            disk,
            folder,
            hurt,
            others,
            tree,
        }
    }

    fn open(&self, log: &LogConfig) -> Result<Opened, OpenError> {
        let place = place(&self.folder.0);
        Store::open_with_trees(config(), Arc::new(self.disk.clone()), log, Some(&place))
    }

    fn end(&self, opened: Opened) {
        drop(opened);
        self.disk.kill();
    }

    /// Looks at all databases: which of the keys the one that was hurt has.
    fn keys(&self, store: &Store) -> Vec<u32> {
        for id in self.others {
            for number in 0..IN_LOG.end {
                assert!(has(store, id, number), "{id}: key-{number}");
            }
        }
        let found = (0..IN_LOG.end).filter(|&number| has(store, self.hurt, number));
        found.collect()
    }

    fn kept_aside(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.folder.0.join(SET_ASIDE_FOLDER)) else {
            return Vec::new();
        };
        let paths = entries.map(|entry| entry.expect("it is read").path());
        let mut paths: Vec<_> = paths.collect();
        paths.sort();
        paths
    }
}

fn has(store: &Store, id: DatabaseId, number: u32) -> bool {
    testkit::suite::SuiteView::of(store, id)
        .expect("it is there")
        .get(&key(number), store.hasher().hash(&key(number)), 1)
        .is_some()
}

fn name_of(files: &Files, start: &str) -> PathBuf {
    let is_one = |name: &&PathBuf| name.to_string_lossy().starts_with(start);
    files.keys().find(is_one).expect("there is one").clone()
}

/// What can happen to the folder of a tree, and a word of how it is told.
type Damage = (&'static str, fn(&Path, &Files));

const DAMAGES: [Damage; 9] = [
    ("tables/", |tree, files| {
        fs::write(tree.join(name_of(files, "tables/")), "").expect("room");
    }),
    ("tables/", |tree, files| {
        let table = name_of(files, "tables/");
        fs::write(tree.join(&table), &files[&table][..1]).expect("room");
    }),
    ("`known-tables` is not a file", |tree, _| {
        fs::remove_file(tree.join("known-tables")).expect("it is there");
        fs::create_dir(tree.join("known-tables")).expect("room");
    }),
    ("tables/", |tree, files| {
        let table = name_of(files, "tables/");
        fs::write(tree.join(&table), &files[&table][..files[&table].len() / 2]).expect("room");
    }),
    ("tables/", |tree, files| {
        let table = name_of(files, "tables/");
        let mut bytes = files[&table].clone();
        let at = bytes.len() - 60;
        bytes[at] ^= 1;
        fs::write(tree.join(&table), bytes).expect("room");
    }),
    ("tables/", |tree, files| {
        fs::remove_file(tree.join(name_of(files, "tables/"))).expect("it is there");
    }),
    ("`current`", |tree, _| {
        fs::remove_file(tree.join("current")).expect("it is there");
    }),
    ("`v", |tree, files| {
        for name in files
            .keys()
            .filter(|name| name.to_string_lossy().starts_with('v'))
        {
            fs::remove_file(tree.join(name)).expect("it is there");
        }
    }),
    ("is missing", |tree, _| {
        fs::remove_dir_all(tree).expect("it is there");
    }),
];

#[test]
fn a_damaged_database_is_given_up_alone_and_its_folder_is_kept() {
    let mut crashed = Crashed::new();
    let folder = crashed.folder.0.clone();
    let (whole, whole_disk) = (read_folder(&folder), crashed.disk.clone());
    for (number, (word, damage)) in DAMAGES.into_iter().enumerate() {
        crashed.disk = whole_disk.fork();
        let tree = read_folder(&crashed.tree);
        damage(&crashed.tree, &tree);
        let damaged = crashed.tree.exists().then(|| read_folder(&crashed.tree));
        let why = crashed.open(&log_config()).expect_err("it is damaged");
        let why = why.to_string();
        assert!(why.starts_with("the database `hurt`: "), "{why}");
        assert!(why.contains(word), "{number}: {why}");
        crashed.disk.kill();

        let opened = crashed.open(&accepting());
        let opened = opened.unwrap_or_else(|error| panic!("{number}: {error}"));
        let [lost] = &opened.trees_lost[..] else {
            panic!("{number}: {:?}", opened.trees_lost);
        };
        assert_eq!(lost.name, "hurt");
        assert!(!lost.is_in_log);
        let keys = crashed.keys(&opened.store);
        assert!(
            IN_LOG.clone().all(|number| keys.contains(&number)),
            "{keys:?}"
        );
        assert!(keys.len() < KEYS as usize, "{keys:?}");
        assert_eq!(lost.changes, keys.len() as u64);
        let aside = crashed.kept_aside();
        match (&damaged, &lost.moved_to) {
            (Some(damaged), Some(path)) => {
                assert_eq!(aside, std::slice::from_ref(path));
                assert!(&read_folder(path) == damaged, "{number}: all of it is kept");
                assert!(lost.to_string().contains(&path.display().to_string()));
            }
            (None, None) => assert!(aside.is_empty()),
            other => panic!("{number}: {other:?}"),
        }
        crashed.end(opened);

        // From then on it needs no flag, and loses nothing more; nor does one that has it.
        for log in [log_config(), accepting(), log_config()] {
            let opened = crashed.open(&log);
            let opened = opened.unwrap_or_else(|error| panic!("{number}: {error}"));
            assert!(opened.trees_lost.is_empty());
            assert_eq!(crashed.keys(&opened.store), keys);
            assert_eq!(crashed.kept_aside(), aside);
            crashed.end(opened);
        }

        fs::remove_dir_all(&folder).expect("it is there");
        write_folder(&folder, &whole);
    }
}

/// Whatever the length to which a table or a list was cut, the start names the file, and the flag
/// helps.
#[test]
fn a_file_that_was_cut_to_any_length_is_named_and_can_be_given_up() {
    let crashed = Crashed::new();
    let files = read_folder(&crashed.tree);
    let number = &files[Path::new("current")][..8];
    let number = u64::from_le_bytes(number.try_into().expect("eight bytes"));
    let list = PathBuf::from(format!("v{number}"));
    for name in [name_of(&files, "tables/"), list] {
        let path = crashed.tree.join(&name);
        let whole = &files[&name];
        let short = (0..64).chain((64..whole.len()).step_by(whole.len() / 16));
        for length in short {
            fs::write(&path, &whole[..length]).expect("there is room");
            let opened = crashed.open(&log_config()).map(drop);
            let why = opened.expect_err("it was cut");
            let named = why.to_string();
            assert!(named.contains(&format!("`{}`", name.display())), "{named}");
            let OpenError::Database { error, .. } = why else {
                panic!("{length}: {named}");
            };
            assert!(error.can_be_given_up(), "{length}: {error}");
            crashed.disk.kill();
        }
        fs::write(&path, whole).expect("there is room");
    }
    let opened = crashed.open(&log_config()).expect("it is whole again");
    assert_eq!(crashed.keys(&opened.store).len(), IN_LOG.end as usize);
    crashed.end(opened);
}

/// What is written to a database that has begun anew lasts, with and without a snapshot.
#[test]
fn a_database_that_has_begun_anew_works() {
    let crashed = Crashed::new();
    fs::remove_file(crashed.tree.join("current")).expect("it is there");
    let opened = crashed.open(&accepting()).expect("the loss is accepted");
    let mut keys = crashed.keys(&opened.store);
    let mut clock = StandingClock { now_ms: 2000 };
    let mut opened = Some(opened);
    for round in 0..3 {
        let Opened {
            store, committer, ..
        } = match opened.take() {
            Some(opened) => opened,
            None => crashed.open(&log_config()).expect("it is whole"),
        };
        let mut commit_loop = CommitLoop::new(committer);
        let mailbox = commit_loop.register(Box::new(|| ()));
        let mut batch = store.write_batch();
        let mut commit = batch.begin(0, crashed.hurt, store::Mode::Atomic);
        commit.push(&put(&key(round), &[8; 300])).expect("it fits");
        commit.submit();
        mailbox.submit(&mut batch);
        while commit_loop.round(&mut clock) {}
        commit_loop.seal_trees();
        commit_loop.flush_trees().expect("there is room");
        if round == 1 {
            commit_loop.ask_for_snapshot();
            while commit_loop.step_snapshot(&mut clock) {}
            while commit_loop.round(&mut clock) {}
        }
        if !keys.contains(&round) {
            keys.push(round);
            keys.sort_unstable();
        }
        assert_eq!(crashed.keys(&store), keys);
        drop((commit_loop, mailbox, batch, store));
        crashed.disk.kill();
    }
    let opened = crashed.open(&log_config()).expect("it is whole");
    assert_eq!(crashed.keys(&opened.store), keys);
    crashed.end(opened);
}

/// A database that came into memory since the snapshot, and is made from its tree at each start: if
/// that cannot be read, it has what came later, at each start the same.
#[test]
fn a_tree_that_a_database_in_memory_is_made_from() {
    let mut client = Client::new();
    assert_eq!(client.create("hurt", Kind::Disk), APPLIED);
    let hurt = client.id("hurt");
    let write = |client: &mut Client, numbers: std::ops::Range<u32>| {
        for number in numbers {
            let key = key(number);
            assert_eq!(client.commit(hurt, &[put(&key, &[7; 300])]), APPLIED);
        }
    };
    for from in [0, 10, 20, 30] {
        write(&mut client, from..from + 10);
        client.made.commit_loop.seal_trees();
        client
            .made
            .commit_loop
            .flush_trees()
            .expect("there is room");
    }
    let converted = client
        .made
        .commit_loop
        .convert(hurt, Kind::Memory, &mut client.clock);
    converted.expect("it fits");
    write(&mut client, 40..50);
    let (disk, folder) = (client.made.disk.clone(), client.made.folder.clone());
    drop(client);
    disk.kill();
    let mut hurt_tables = 0;
    for name in read_folder(&folder.0).into_keys() {
        let path = folder.0.join(&name);
        let text = name.to_string_lossy();
        if text.contains(&format!("trees/{hurt}-")) && text.contains("tables/") {
            let mut bytes = fs::read(&path).expect("it is there");
            bytes[100] ^= 1;
            fs::write(&path, bytes).expect("there is room");
            hurt_tables += 1;
        }
    }
    assert!(hurt_tables > 0);
    let open = |log: &LogConfig| {
        let place = place(&folder.0);
        Store::open_with_trees(config(), Arc::new(disk.clone()), log, Some(&place))
    };
    let why = open(&log_config()).expect_err("it is damaged").to_string();
    assert!(why.starts_with("the database `hurt`: "), "{why}");
    disk.kill();
    for (log, lost) in [(accepting(), 1), (log_config(), 0), (accepting(), 0)] {
        let opened = open(&log).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(opened.trees_lost.len(), lost);
        let found = (0..50).filter(|&number| has(&opened.store, hurt, number));
        assert_eq!(found.collect::<Vec<_>>(), (40..50).collect::<Vec<_>>());
        drop(opened);
        disk.kill();
    }
}

/// A crash after the damaged folder was moved, before another one was made: the flag helps once
/// more, and nothing is moved or lost a second time.
#[test]
fn a_crash_while_a_database_is_given_up_loses_nothing_more() {
    let crashed = Crashed::new();
    fs::remove_file(crashed.tree.join("current")).expect("it is there");
    let keys = {
        let opened = crashed.open(&accepting()).expect("the loss is accepted");
        let keys = crashed.keys(&opened.store);
        crashed.end(opened);
        keys
    };
    let aside = crashed.kept_aside();
    assert_eq!(aside.len(), 1);
    fs::remove_dir_all(&crashed.tree).expect("it was made");
    let why = crashed.open(&log_config()).expect_err("it is missing");
    assert!(why.to_string().contains("is missing"), "{why}");
    crashed.disk.kill();
    let opened = crashed.open(&accepting()).expect("the loss is accepted");
    assert_eq!(crashed.keys(&opened.store), keys);
    assert_eq!(crashed.kept_aside(), aside);
    crashed.end(opened);
}
