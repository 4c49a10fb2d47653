//! The committer on its thread, over real files.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use store::backup::BackupError;
use store::durable::{Durable, Opened, Reporter, StorageEvent, open_folder};
use store::snapshot::SnapshotError;
use store::{Clock, DatabaseId, Decision, Durability, Mode, Outcomes, Refusal, Store, StoreConfig};
use testkit::Random;
use testkit::suite::{RunningClock, append, increment, put};
use wal::LogConfig;
use wal::disk::{Disk, Fault, RealDisk};

use crate::bench::{log_config, verify};
use crate::folder::TestFolder;

const LOOPS: u64 = 4;
const COMMITS: u64 = 500;
const IN_FLIGHT: u64 = 20;

fn clock() -> RunningClock {
    RunningClock::new(1000)
}

/// A reporter for a run in which nothing fails.
fn nothing_but_snapshots() -> Reporter {
    Box::new(|event| match event {
        StorageEvent::SnapshotMade(_) => {}
        _ => panic!("{event:?}"),
    })
}

pub fn config() -> StoreConfig {
    let mut config = StoreConfig::new(1);
    config.default_database.durability = Durability::Synced;
    config
}

fn log_config_large() -> LogConfig {
    LogConfig {
        segment_bytes: 256 * 1024,
        ..log_config()
    }
}

/// One loop: keeps some commits in flight until it has had all its answers. Every commit raises the
/// counter that all share, and puts a key of its own.
fn run_loop(number: u64, store: &Store, durable: &Durable) {
    let (woken, this) = (Arc::new(AtomicU64::new(0)), thread::current());
    let waker = woken.clone();
    let mailbox = durable.register(Box::new(move || {
        waker.fetch_add(1, Ordering::Release);
        this.unpark();
    }));
    let mut batch = store.write_batch();
    let mut outcomes = Outcomes::new();
    let (mut submitted, mut answered, mut last_sequence) = (0, 0, 0);
    while answered < COMMITS {
        while submitted < COMMITS && submitted < answered + IN_FLIGHT {
            let mut commit = batch.begin(submitted, DatabaseId::DEFAULT, Mode::Atomic);
            let key = [number.to_be_bytes(), submitted.to_be_bytes()].concat();
            commit.push(&increment(b"all", 1)).expect("fits");
            commit.push(&put(&key, &[7; 200])).expect("fits");
            commit.submit();
            submitted += 1;
        }
        mailbox.submit(&mut batch);
        while woken.swap(0, Ordering::Acquire) == 0 {
            thread::park_timeout(Duration::from_secs(20));
        }
        while mailbox.take(&mut outcomes) {
            for outcome in outcomes.iter() {
                assert_eq!(outcome.decision, Decision::Applied);
                assert_eq!(outcome.tag, answered, "answers come in order");
                assert!(outcome.sequence > last_sequence);
                (answered, last_sequence) = (answered + 1, outcome.sequence);
                let view = store.view(DatabaseId::DEFAULT).expect("it exists");
                assert!(view.sequence() >= outcome.sequence, "it is visible");
            }
        }
    }
}

fn visible_sequence(store: &Store) -> u64 {
    let view = store.view(DatabaseId::DEFAULT).expect("it exists");
    view.sequence()
}

fn check_content(store: &Store) {
    let view = store.view(DatabaseId::DEFAULT).expect("it exists");
    let hash = |key: &[u8]| store.hasher().hash(key);
    let total = view
        .get(b"all", hash(b"all"), 1000)
        .expect("it was counted");
    let total = total.value.to_vec();
    assert_eq!(total, (LOOPS * COMMITS).to_be_bytes());
    assert_eq!(view.statistics().entries, LOOPS * COMMITS + 1);
    drop(view);
    verify(store);
}

/// However it ends, everything that was answered is there.
#[test]
fn loops_share_the_committer() {
    for is_clean in [true, false] {
        let folder = TestFolder::new(if is_clean { "stop" } else { "drop" });
        let open = || {
            let disk = open_folder(&folder.0).expect("it is empty, or ours");
            Store::open(config(), disk, &log_config_large())
        };
        let Opened {
            store, committer, ..
        } = open().expect("it is well");
        let durable = Durable::start(committer, clock(), nothing_but_snapshots());
        let durable = durable.expect("threads can be started");
        let mut last_base = 0;
        thread::scope(|scope| {
            let (store, durable) = (&store, &durable);
            let loops: Vec<_> = (0..LOOPS)
                .map(|number| scope.spawn(move || run_loop(number, store, durable)))
                .collect();
            // Snapshots one after the other meanwhile. Each has at least what was there before it.
            while !loops.iter().all(|one| one.is_finished()) {
                let sequence = visible_sequence(store);
                let report = durable.snapshot().expect("nothing fails");
                assert!(report.sequence >= sequence && report.last_sequence >= report.sequence);
                assert!(report.sequence >= last_base);
                last_base = report.sequence;
            }
        });
        assert!(last_base > 0);
        check_content(&store);
        if is_clean {
            durable.stop().expect("nothing fails");
            durable
                .stop()
                .expect("a second time there is nothing to do");
        }
        drop(durable);
        // The thread lets go of the lock when it ends.
        let until = Instant::now() + Duration::from_secs(20);
        let reopened = loop {
            match open() {
                Ok(opened) => break opened,
                Err(error) => assert!(Instant::now() < until, "{error}"),
            }
            thread::sleep(Duration::from_millis(5));
        };
        assert_eq!(reopened.recovered.closed, is_clean);
        let snapshot = reopened.snapshot.expect("one was made at least");
        assert!(snapshot.header.sequence >= last_base);
        check_content(&reopened.store);
    }
}

/// The events of a failure come through, and the thread stops all the same.
#[test]
fn a_failure_is_reported() {
    let disk = testkit::simulated_disk(1);
    let Opened {
        store, committer, ..
    } = Store::open(config(), Arc::new(disk.clone()), &log_config()).expect("it is empty");
    let (sender, events) = std::sync::mpsc::channel();
    let reporter = move |event| sender.send(event).expect("somebody listens");
    let durable = Durable::start(committer, clock(), Box::new(reporter)).expect("it starts");
    let this = thread::current();
    let mailbox = durable.register(Box::new(move || this.unpark()));
    let mut outcomes = Outcomes::new();
    // The other thread makes a segment ready meanwhile, so which step comes when is not known.
    let mut decide = || {
        let mut batch = store.write_batch();
        let mut commit = batch.begin(0, DatabaseId::DEFAULT, Mode::Atomic);
        commit.push(&put(b"key", b"value")).expect("fits");
        commit.submit();
        mailbox.submit(&mut batch);
        while !mailbox.take(&mut outcomes) {
            thread::park_timeout(Duration::from_millis(100));
        }
        outcomes.get(0).decision
    };
    assert_eq!(decide(), Decision::Applied);
    while events.try_recv().is_ok() {}
    for ahead in 0..200 {
        disk.plan(disk.step_count() + ahead, Fault::Error);
    }
    assert_eq!(decide(), Decision::Refused(Refusal::OutcomeUnknown));
    assert_eq!(decide(), Decision::Refused(Refusal::LogFailed));
    let next = || events.recv_timeout(Duration::from_secs(20));
    while !matches!(
        next().expect("the failure is told"),
        StorageEvent::Failed(_)
    ) {}
    assert!(
        durable.stop().is_err(),
        "a log that has failed cannot be closed"
    );
}

/// A data folder that is moved or removed while a server uses it is noticed: nothing more is
/// written, least of all into the folder that comes to its path.
#[test]
fn a_data_folder_that_is_gone_from_its_place() {
    for is_moved in [true, false] {
        let folder = TestFolder::new(if is_moved { "moved" } else { "removed" });
        let (data, moved) = (folder.0.join("data"), folder.0.join("moved"));
        std::fs::create_dir_all(&folder.0).expect("it can be made");
        let disk = open_folder(&data).expect("it is empty");
        let Opened {
            store, committer, ..
        } = Store::open(config(), disk, &log_config()).expect("it is empty");
        let (events, told) = std::sync::mpsc::channel();
        let reporter: Reporter = Box::new(move |event| {
            let _ = events.send(event);
        });
        let durable = Durable::start(committer, clock(), reporter).expect("threads can be started");
        std::fs::remove_file(data.join("lock")).expect("it is there");
        let second = open_folder(&data).expect("it is ours");
        let second = Store::open(config(), second, &log_config());
        assert!(second.is_err(), "the folder itself is locked too");
        drop(second);
        if is_moved {
            std::fs::rename(&data, &moved).expect("it can be moved");
            std::fs::create_dir(&data).expect("nothing is there");
        } else {
            // Segments are made meanwhile.
            while data.exists() {
                let _ = std::fs::remove_dir_all(&data);
            }
        }
        let why = loop {
            match told
                .recv_timeout(Duration::from_secs(60))
                .expect("it is told")
            {
                StorageEvent::Failed(why) => break why,
                _ => continue,
            }
        };
        // The files in a folder go before the folder itself.
        let is_told = why.contains("the folder is no longer there")
            || (!is_moved && why.contains("is no longer in its folder"));
        assert!(is_told, "{why}");
        assert_eq!(commit(&store, &durable), REFUSED);
        let _ = durable.stop();
        if is_moved {
            let names = std::fs::read_dir(&data).expect("it is there").count();
            assert_eq!(names, 0, "this is somebody else's");
        }
    }
}

const REFUSED: Decision = Decision::Refused(Refusal::LogFailed);

/// What becomes of a commit.
pub fn commit(store: &Store, durable: &Durable) -> Decision {
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

/// A file of the log that somebody removes while a server uses it is noticed soon: what would be
/// answered from then on would be lost at the next start.
#[test]
fn a_file_of_the_log_that_is_gone() {
    let folder = TestFolder::new("unlinked");
    let data = folder.0.join("data");
    std::fs::create_dir_all(&folder.0).expect("it can be made");
    let disk = open_folder(&data).expect("it is empty");
    let Opened {
        store, committer, ..
    } = Store::open(config(), disk, &log_config()).expect("it is empty");
    let (events, told) = std::sync::mpsc::channel();
    let reporter: Reporter = Box::new(move |event| {
        let _ = events.send(event);
    });
    let durable = Durable::start(committer, clock(), reporter).expect("threads can be started");
    assert_eq!(commit(&store, &durable), Decision::Applied);
    let segment = data.join(wal::segment_name(1));
    let aside = data.join("aside");
    std::fs::rename(&segment, &aside).expect("it is there");
    let why = loop {
        match told.recv_timeout(Duration::from_secs(60)) {
            Ok(StorageEvent::Failed(why)) => break why,
            Ok(_) => continue,
            Err(error) => panic!("nobody has noticed: {error}"),
        }
    };
    let name = segment.display().to_string();
    assert!(why.contains(&name) && why.contains("in use"), "{why}");
    assert_eq!(commit(&store, &durable), REFUSED);
    let _ = durable.stop();
    // What was answered before is there for whoever puts it back.
    std::fs::rename(&aside, &segment).expect("it is there");
    let disk = open_folder(&data).expect("it is ours");
    let opened = Store::open(config(), disk, &log_config()).expect("it is whole");
    let view = opened.store.view(DatabaseId::DEFAULT).expect("in memory");
    let hash = opened.store.hasher().hash(b"key");
    assert!(view.get(b"key", hash, 1).is_some());
}

/// Time that stands still in the midst of the first snapshot, until the test has done what it
/// wants.
#[derive(Clone)]
struct HeldClock {
    time: RunningClock,
    is_held: Arc<AtomicBool>,
    meeting: Arc<Barrier>,
}

impl Clock for HeldClock {
    fn now_ns(&mut self) -> u64 {
        let is_maker = thread::current().name() == Some("pelton-snapshots");
        if is_maker && self.is_held.swap(false, Ordering::Relaxed) {
            self.meeting.wait();
            self.meeting.wait();
        }
        self.time.now_ns()
    }

    fn now_ms(&mut self) -> u64 {
        self.time.now_ms()
    }
}

/// A stop need not wait for a snapshot, however large.
#[test]
fn a_snapshot_is_given_up_when_no_more_are_wanted() {
    let disk = testkit::simulated_disk(2);
    let opened = Store::open(config(), Arc::new(disk.clone()), &log_config());
    let clock = HeldClock {
        time: clock(),
        is_held: Arc::new(AtomicBool::new(true)),
        meeting: Arc::new(Barrier::new(2)),
    };
    let meeting = clock.meeting.clone();
    let committer = opened.expect("it is empty").committer;
    let durable = Durable::start(committer, clock, nothing_but_snapshots()).expect("it starts");
    thread::scope(|scope| {
        let asked = scope.spawn(|| durable.snapshot());
        meeting.wait();
        durable.end_snapshots();
        meeting.wait();
        let outcome = asked.join().expect("no panic");
        assert!(
            matches!(outcome, Err(SnapshotError::Stopping)),
            "{outcome:?}"
        );
    });
    durable.stop().expect("it stops as always");
    let names = disk.list().expect("it can be listed");
    assert!(
        !names.iter().any(|name| name.contains("snapshot")),
        "{names:?}"
    );
}

/// Whoever wants it may give it up after each step; another one can be made afterwards.
#[test]
fn a_backup_that_is_given_up_leaves_nothing() {
    let disk = testkit::simulated_disk(3);
    let Opened {
        store, committer, ..
    } = Store::open(config(), Arc::new(disk), &log_config()).expect("it is empty");
    let durable = Durable::start(committer, clock(), nothing_but_snapshots());
    let durable = durable.expect("threads can be started");
    for _ in 0..2 {
        assert_eq!(commit(&store, &durable), Decision::Applied);
        let mut given_up = 0;
        loop {
            let target = testkit::simulated_disk(4);
            let mut steps = 0;
            let mut watch = |_| {
                steps += 1;
                match steps > given_up {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            };
            let made = durable.backup(Arc::new(target.clone()), "test", &mut clock(), &mut watch);
            let names = target.list().expect("it can be listed");
            match made {
                Err(BackupError::Cancelled) => assert_eq!(names, [""; 0], "step {given_up}"),
                made => {
                    made.expect("nothing fails");
                    assert!(!names.is_empty());
                    break;
                }
            }
            given_up += 1;
        }
        assert!(given_up >= 3, "{given_up}");
    }
    durable.stop().expect("nothing fails");
}

/// Whenever it comes: also while the committer is between two looks at what there is to do.
#[test]
fn a_stop_is_never_overlooked() {
    let mut random = Random::new(1);
    for number in 0..1_000 {
        let disk = testkit::simulated_disk(number);
        let opened = Store::open(config(), Arc::new(disk), &log_config()).expect("it is empty");
        let durable = Durable::start(opened.committer, clock(), nothing_but_snapshots());
        let durable = durable.expect("threads can be started");
        for _ in 0..random.below(30_000) {
            std::hint::spin_loop();
        }
        durable.stop().expect("nothing fails");
    }
}

/// Sends 20 commits at once, each of which is larger than a segment, and waits for their outcomes.
fn commit_more_than_a_segment_each(store: &Store, durable: &Durable) {
    let this = thread::current();
    let mailbox = durable.register(Box::new(move || this.unpark()));
    let mut batch = store.write_batch();
    let value = vec![7; 300_000];
    let mut sent_bytes = 0;
    for number in 0..20u8 {
        let mut commit = batch.begin(number.into(), DatabaseId::DEFAULT, Mode::Atomic);
        commit.push(&put(&[number], &value)).expect("fits");
        commit.submit();
        sent_bytes += batch.held_bytes();
        mailbox.submit(&mut batch);
        assert!(mailbox.waiting_bytes() <= sent_bytes);
    }
    let (mut decided, mut outcomes) = (0, Outcomes::new());
    while decided < 20 {
        while mailbox.take(&mut outcomes) {
            let applied = |decision| assert_eq!(decision, Decision::Applied);
            (outcomes.iter()).for_each(|outcome| applied(outcome.decision));
            decided += outcomes.len();
        }
        thread::park_timeout(Duration::from_millis(100));
    }
    assert_eq!(mailbox.waiting_bytes(), 0, "all are decided");
}

/// A segment that is needed at once is waited for; and an interval is kept although nothing comes.
#[test]
fn large_commits_and_late_syncs() {
    let folder = TestFolder::new("large");
    let mut config = config();
    config.default_database.durability = Durability::Interval { ms: 20 };
    let disk = open_folder(&folder.0).expect("it is empty");
    let Opened {
        store, committer, ..
    } = Store::open(config, disk, &log_config()).expect("it is empty");
    let durable = Durable::start(committer, clock(), nothing_but_snapshots());
    let durable = durable.expect("threads can be started");
    commit_more_than_a_segment_each(&store, &durable);
    assert!(durable.sync());
    let last_sequence = store
        .view(DatabaseId::DEFAULT)
        .expect("it exists")
        .sequence();
    let disk = RealDisk::open(&folder.0).expect("it is there");
    // By their numbers: older ones may have gone by themselves, since snapshots are made meanwhile.
    let segments = || {
        let names = disk.list().expect("it can be listed");
        let numbers = names
            .iter()
            .filter_map(|name| name.strip_suffix(".log")?.parse().ok());
        numbers.collect::<Vec<u64>>()
    };
    let report = durable.snapshot().expect("nothing fails");
    assert_eq!((report.entries, report.last_sequence), (20, last_sequence));
    let newest = segments().into_iter().max();
    assert!(
        newest >= Some(3),
        "a group of these is larger than a segment: {newest:?}"
    );
    let until = Instant::now() + Duration::from_secs(60);
    // The current one and the next; the one before is kept until something in the current one is
    // durable.
    while segments().len() > 3 {
        assert!(
            Instant::now() < until,
            "the segments stay: {:?}",
            segments()
        );
        thread::sleep(Duration::from_millis(5));
    }
    durable.stop().expect("nothing fails");
    assert!(!durable.sync(), "nobody is there to do it");
    let refused = durable.snapshot().expect_err("nobody is there to do it");
    assert!(matches!(refused, SnapshotError::Stopping), "{refused}");
    verify(&store);
}

/// What nobody has waited to be synced is synced before a snapshot that has seen it gets its name.
#[test]
fn the_log_is_durable_before_a_snapshot_is() {
    for seed in 0..20 {
        let disk = testkit::simulated_disk(seed);
        let mut config = config();
        config.default_database.durability = Durability::Written;
        let open = || Store::open(config, Arc::new(disk.clone()), &log_config());
        let opened = open().expect("it is empty");
        let durable = Durable::start(opened.committer, clock(), nothing_but_snapshots());
        let durable = durable.expect("threads can be started");
        let this = thread::current();
        let mailbox = durable.register(Box::new(move || this.unpark()));
        let mut batch = opened.store.write_batch();
        for number in 0..50u8 {
            let mut commit = batch.begin(0, DatabaseId::DEFAULT, Mode::Atomic);
            commit.push(&put(&[number], &[7; 600])).expect("fits");
            commit.submit();
        }
        mailbox.submit(&mut batch);
        let mut outcomes = Outcomes::new();
        while !mailbox.take(&mut outcomes) {
            thread::park_timeout(Duration::from_millis(100));
        }
        let report = durable.snapshot().expect("nothing fails");
        disk.lose_power();
        drop(durable);
        let opened = open().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(opened.recovered.last_sequence >= report.last_sequence);
        let view = opened.store.view(DatabaseId::DEFAULT).expect("it exists");
        assert_eq!(view.statistics().entries, 50, "seed {seed}");
    }
}

/// A clock on which each look takes a second.
#[derive(Clone, Default)]
struct SlowClock(Arc<AtomicU64>);

impl Clock for SlowClock {
    fn now_ns(&mut self) -> u64 {
        self.0.fetch_add(1_000_000_000, Ordering::SeqCst)
    }

    fn now_ms(&mut self) -> u64 {
        1_000 + self.now_ns() / 1_000_000
    }
}

/// Small Appends to a large value are little to send and much to do: a stop does not wait for those
/// that nobody waits for, and what it has decided is there, in order.
#[test]
fn a_stop_does_not_decide_all_that_waits() {
    const APPENDS: u64 = 400;
    let value = vec![7; 1 << 20];
    for seed in 0..2 {
        let disk = testkit::simulated_disk(seed);
        let opened = Store::open(config(), Arc::new(disk.clone()), &log_config());
        let Opened {
            store, committer, ..
        } = opened.expect("it is empty");
        let durable = Durable::start(committer, SlowClock::default(), nothing_but_snapshots());
        let durable = durable.expect("threads can be started");
        let mailbox = durable.register(Box::new(|| {}));
        let mut batch = store.write_batch();
        for number in 0..=APPENDS {
            let mut commit = batch.begin(number, DatabaseId::DEFAULT, Mode::Atomic);
            let operation = match number {
                0 => put(b"k", &value),
                _ => append(b"k", b"+"),
            };
            commit.push(&operation).expect("fits");
            commit.submit();
            mailbox.submit(&mut batch);
        }
        durable.stop().expect("it stops as always");
        drop((mailbox, store));
        let opened = Store::open(config(), Arc::new(disk), &log_config());
        let store = opened.expect("a clean stop leaves a whole log").store;
        verify(&store);
        let view = store.view(DatabaseId::DEFAULT).expect("it exists");
        let found = view.get(b"k", store.hasher().hash(b"k"), 1_000);
        let appended = found.map_or(0, |found| found.value.len() - value.len());
        assert!(appended < APPENDS as usize, "{appended} were decided");
    }
}
