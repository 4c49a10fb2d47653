//! Databases on disk with all threads: loops, the committer, flushes and compactions, and
//! conversions to and fro.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use store::durable::{
    ConvertError, Durable, Opened, Reporter, StorageEvent, TreePlace, open_folder,
};
use store::tree::TreeConfig;
use store::{
    DatabaseId, Decision, Durability, Kind, Mode, Outcomes, Range, Refusal, Store, StoreConfig,
};
use testkit::suite::{RunningClock, SuiteView, increment, put};

use crate::bench::log_config;
use crate::tree_bench::{TempFolder, place};

const LOOPS: u64 = 3;
const COMMITS: u64 = 80;

fn open(folder: &TempFolder) -> Opened {
    open_with(folder, |_| ())
}

fn open_with(folder: &TempFolder, change: impl Fn(&mut TreeConfig)) -> Opened {
    let mut config = StoreConfig::new(1);
    config.default_database.durability = Durability::Synced;
    let data = folder.0.join("data");
    let disk = open_folder(&data).expect("there is room");
    let mut trees = TreePlace {
        folder: data.join("trees"),
        ..place(&data)
    };
    change(&mut trees.config);
    let opened = Store::open_with_trees(config, disk, &log_config(), Some(&trees));
    opened.expect("nothing is wrong with the folder")
}

/// Commits one after the other; one that is refused since the database is another one now is tried
/// again. Returns how many were.
fn run_loop(number: u64, store: &Store, durable: &Durable) -> u64 {
    let (woken, this) = (Arc::new(AtomicU64::new(0)), thread::current());
    let waker = woken.clone();
    let mailbox = durable.register(Box::new(move || {
        waker.fetch_add(1, Ordering::Release);
        this.unpark();
    }));
    let (mut outcomes, mut refused, mut done) = (Outcomes::new(), 0, 0u64);
    while done < COMMITS {
        let mut batch = store.write_batch();
        let mut commit = batch.begin(done, DatabaseId::DEFAULT, Mode::Atomic);
        let key = [number.to_be_bytes(), done.to_be_bytes()].concat();
        commit.push(&increment(b"all", 1)).expect("fits");
        commit.push(&put(&key, &[7; 300])).expect("fits");
        commit.submit();
        assert!(batch.read_ahead().failure.is_none());
        mailbox.submit(&mut batch);
        while woken.swap(0, Ordering::Acquire) == 0 {
            thread::park_timeout(Duration::from_secs(20));
        }
        while mailbox.take(&mut outcomes) {
            for outcome in outcomes.iter() {
                match outcome.decision {
                    Decision::Applied => done += 1,
                    Decision::Refused(Refusal::Converting | Refusal::NotReadAhead) => {
                        refused += 1;
                        // As a client would that heeds the pause of the status.
                        thread::sleep(Duration::from_millis(1));
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }
    refused
}

fn check(store: &Store) {
    let view = SuiteView::of(store, DatabaseId::DEFAULT).expect("it is there");
    let hash = store.hasher().hash(b"all");
    let total = view.get(b"all", hash, 1).expect("it was counted");
    assert_eq!(total.value.bytes(), (LOOPS * COMMITS).to_be_bytes());
    let count = view.count(&Range::ALL, 1, u32::MAX).count;
    assert_eq!(count, LOOPS * COMMITS + 1);
}

#[test]
fn loops_flushes_and_conversions_go_on_together() {
    let folder = TempFolder::new();
    let Opened {
        store, committer, ..
    } = open(&folder);
    let clock = RunningClock::new(1000);
    let durable = Durable::start(committer, clock, Box::new(|_| ())).expect("threads are there");
    let convert = |kind| {
        durable.convert(
            DatabaseId::DEFAULT,
            kind,
            &mut |_| ControlFlow::Continue(()),
        )
    };
    convert(Kind::Disk).expect("it is empty");
    assert!(matches!(convert(Kind::Disk), Err(ConvertError::IsOfKind)));
    thread::scope(|scope| {
        let loops: Vec<_> = (0..LOOPS)
            .map(|number| {
                let (store, durable) = (&store, &durable);
                scope.spawn(move || run_loop(number, store, durable))
            })
            .collect();
        let mut converted = 0;
        while loops.iter().any(|one| !one.is_finished()) {
            for kind in [Kind::Memory, Kind::Disk] {
                let report = convert(kind).expect("it fits");
                assert!(report.sequence > 0);
                converted += 1;
            }
        }
        let refused: u64 = loops
            .into_iter()
            .map(|one| one.join().expect("it ends well"))
            .sum();
        println!("{converted} conversions, {refused} commits refused meanwhile");
        assert!(converted >= 2);
    });
    check(&store);
    durable.snapshot().expect("there is room");
    durable.stop().expect("nothing fails");
    drop((store, durable));
    let opened = open(&folder);
    check(&opened.store);
    let database = &opened.store.databases()[0];
    assert_eq!(database.config.kind, Kind::Disk);
}

/// Leaves a folder for each time that nobody needs.
fn convert_often(durable: &Durable, times: u32) {
    for _ in 0..times {
        for kind in [Kind::Disk, Kind::Memory] {
            let mut go_on = |_| ControlFlow::Continue(());
            (durable.convert(DatabaseId::DEFAULT, kind, &mut go_on)).expect("it is empty");
        }
    }
    durable.snapshot().expect("there is room");
}

fn folders(folder: &TempFolder) -> usize {
    let folders = std::fs::read_dir(folder.0.join("data/trees")).expect("it is there");
    folders.count()
}

#[test]
fn a_clean_stop_removes_the_folders_that_are_due() {
    let folder = TempFolder::new();
    // Twice: the second start finds the folder as the first stop left it.
    for round in 0..2 {
        let Opened {
            store, committer, ..
        } = open(&folder);
        let clock = RunningClock::new(1000);
        let durable =
            Durable::start(committer, clock, Box::new(|_| ())).expect("threads are there");
        // More than the queue of the thread that removes them has room for.
        convert_often(&durable, 90);
        durable.stop().expect("nothing fails");
        drop((store, durable));
        assert_eq!(folders(&folder), 0, "round {round}");
    }
}

#[test]
fn folders_for_which_a_clean_stop_had_no_time_go_at_the_next_start() {
    let folder = TempFolder::new();
    for _ in 0..2 {
        let Opened {
            store, committer, ..
        } = open_with(&folder, |config| config.stop_ms = 0);
        assert_eq!(folders(&folder), 0);
        let clock = RunningClock::new(1000);
        let durable =
            Durable::start(committer, clock, Box::new(|_| ())).expect("threads are there");
        convert_often(&durable, 8);
        durable.stop().expect("nothing fails");
        drop((store, durable));
    }
    drop(open(&folder));
    assert_eq!(folders(&folder), 0);
}

/// What becomes of a commit into the database on disk.
fn commit(store: &Store, durable: &Durable) -> Decision {
    let this = thread::current();
    let mailbox = durable.register(Box::new(move || this.unpark()));
    let mut batch = store.write_batch();
    let mut commit = batch.begin(0, DatabaseId::DEFAULT, Mode::Atomic);
    commit.push(&put(b"key", b"value")).expect("fits");
    commit.submit();
    mailbox.submit(&mut batch);
    let mut outcomes = Outcomes::new();
    while !mailbox.take(&mut outcomes) {
        thread::park_timeout(Duration::from_millis(100));
    }
    outcomes.get(0).decision
}

/// Waits until the folder's own file names the segment behind the one that is written: until then
/// it is written anew, which would mend its removal before that is noticed.
fn wait_for_next_segment(folder: &TempFolder) {
    let file = folder.0.join("data/pelton-data");
    let is_named = || {
        let text = std::fs::read_to_string(&file).expect("it is a text");
        text.lines().any(|line| line == "segment 2")
    };
    for _ in 0..6_000 {
        if is_named() {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("the second segment is not ready");
}

/// Whatever of the data folder somebody removes while a server uses it: it is named within a
/// moment, and nothing more is written that the next start could not find. A stop that comes before
/// that moment is not clean either.
#[test]
fn what_is_removed_of_a_data_folder_in_use_is_noticed() {
    for (name, is_told_first) in [
        ("trees", true),
        ("trees", false),
        ("trees/0-2", true),
        ("trees/0-2/tables", true),
        ("pelton-data", true),
        ("pelton-data", false),
    ] {
        let folder = TempFolder::new();
        let Opened {
            store, committer, ..
        } = open(&folder);
        let (events, told) = std::sync::mpsc::channel();
        let reporter: Reporter = Box::new(move |event| {
            let _ = events.send(event);
        });
        let clock = RunningClock::new(1000);
        let durable = Durable::start(committer, clock, reporter).expect("threads can be started");
        let watch = &mut |_| ControlFlow::Continue(());
        let converted = durable.convert(DatabaseId::DEFAULT, Kind::Disk, watch);
        converted.expect("it is empty");
        assert_eq!(commit(&store, &durable), Decision::Applied);
        let tree = store.tree(DatabaseId::DEFAULT).expect("it is on disk");
        let tree = tree.folder().file_name().expect("it has one").to_owned();
        let name = name.replace("0-2", tree.to_str().expect("a text"));
        let path = folder.0.join("data").join(&name);
        wait_for_next_segment(&folder);
        match path.is_dir() {
            true => std::fs::remove_dir_all(&path).expect("it is there"),
            false => std::fs::remove_file(&path).expect("it is there"),
        }
        if is_told_first {
            let why = loop {
                match told.recv_timeout(Duration::from_secs(60)) {
                    Ok(StorageEvent::Failed(why)) => break why,
                    Ok(_) => continue,
                    Err(error) => panic!("nobody has noticed {name}: {error}"),
                }
            };
            let named = format!("{}, which is in use", path.display());
            assert!(why.contains(&named), "{why}");
            let refused = Decision::Refused(Refusal::LogFailed);
            assert_eq!(commit(&store, &durable), refused);
        }
        let _ = durable.stop();
        let has_failed = store.log_statistics().expect("it has a log").has_failed;
        assert!(has_failed, "{name}: what was written is out of reach");
        // The folder's own file is known, and made again.
        assert!(!path.exists() || name == "pelton-data", "{name}");
    }
}
