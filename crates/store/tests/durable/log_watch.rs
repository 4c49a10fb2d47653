//! Watching from a point that memory does not have: what is read on from the log is what those
//! heard who watched all the time, across restarts; what a crash took back, or was retired, is
//! lost.

use std::collections::BTreeMap;
use std::sync::Arc;

use store::durable::{CommitLoop, Mailbox, Opened};
use store::{
    DatabaseConfig, DatabaseId, Decision, Durability, FeedChange, FeedCommit, KeepLog,
    LogReadError, LogReading, Mode, Operation, Outcomes, Store, StoreConfig, WatchError, Watcher,
};
use testkit::Random;
use testkit::suite::{StandingClock, append, delete, put};
use wal::LogConfig;
use wal::disk::{Disk, SimulatedDisk, Step};

use crate::bench::{SEGMENT_BYTES, log_config};
use crate::snapshots::config;

const KEEP_ALL: KeepLog = KeepLog {
    bytes: u64::MAX,
    age_ms: None,
};

/// What a commit has done: what became of each key, and its value.
type Told = Vec<(String, Vec<u8>, Vec<u8>)>;

/// A store on a disk, with somebody who watches every database all the time.
struct Watched {
    store: Store,
    commit_loop: CommitLoop,
    mailbox: Mailbox,
    clock: StandingClock,
    keep_log: KeepLog,
    segment_bytes: u64,
    watchers: BTreeMap<DatabaseId, Watcher>,
    /// What they have heard, by database and commit.
    heard: BTreeMap<DatabaseId, BTreeMap<u64, Told>>,
    /// Where they stood.
    points: Vec<(DatabaseId, u64)>,
    /// Of these, points that a crash took back.
    taken_back: Vec<(DatabaseId, u64)>,
}

fn told(commit: &FeedCommit) -> Told {
    let of = |change: FeedChange<'_>| {
        let value = change.entry.map(|entry| entry.value.to_vec());
        (
            format!("{:?}", change.kind),
            change.key.to_vec(),
            value.unwrap_or_default(),
        )
    };
    commit.changes().map(of).collect()
}

fn open(disk: &SimulatedDisk, keep_log: KeepLog, segment_bytes: u64) -> (Store, CommitLoop, u64) {
    let log_config = LogConfig {
        segment_bytes,
        ..log_config()
    };
    let config = StoreConfig {
        keep_log,
        ..config()
    };
    let opened = Store::open(config, Arc::new(disk.clone()), &log_config);
    let Opened {
        store,
        committer,
        recovered,
        ..
    } = opened.unwrap_or_else(|error| panic!("{error}"));
    (store, CommitLoop::new(committer), recovered.last_sequence)
}

impl Watched {
    fn new(disk: &SimulatedDisk, keep_log: KeepLog) -> Watched {
        Watched::with_segments(disk, keep_log, SEGMENT_BYTES)
    }

    fn with_segments(disk: &SimulatedDisk, keep_log: KeepLog, segment_bytes: u64) -> Watched {
        let (store, commit_loop, _) = open(disk, keep_log, segment_bytes);
        let mailbox = commit_loop.register(Box::new(|| ()));
        let mut watched = Watched {
            store,
            commit_loop,
            mailbox,
            clock: StandingClock { now_ms: 1000 },
            keep_log,
            segment_bytes,
            watchers: BTreeMap::new(),
            heard: BTreeMap::new(),
            points: Vec::new(),
            taken_back: Vec::new(),
        };
        watched.watch();
        watched.hear();
        watched
    }

    fn databases(&self) -> Vec<DatabaseId> {
        self.store.databases().iter().map(|info| info.id).collect()
    }

    fn watch(&mut self) {
        for id in self.databases() {
            let begin = || self.store.watch(id, None, false).expect("it is there");
            self.watchers.entry(id).or_insert_with(begin);
        }
    }

    fn submit(&mut self, fill: impl FnOnce(&mut store::WriteBatch)) -> DatabaseId {
        let mut batch = self.store.write_batch();
        fill(&mut batch);
        self.mailbox.submit(&mut batch);
        while self.commit_loop.round(&mut self.clock) {}
        let mut outcomes = Outcomes::new();
        let mut database = DatabaseId::DEFAULT;
        while self.mailbox.take(&mut outcomes) {
            for outcome in outcomes.iter() {
                assert_eq!(outcome.decision, Decision::Applied);
                database = outcome.database;
            }
        }
        self.hear();
        database
    }

    fn create(&mut self, name: &str, durability: Durability) -> DatabaseId {
        let config = DatabaseConfig {
            durability,
            ..DatabaseConfig::default()
        };
        let id = self.submit(|batch| batch.create_database(0, name, &config));
        self.watch();
        id
    }

    /// Commits, one commit for each list.
    fn commit(&mut self, database: DatabaseId, commits: &[Vec<Operation<'_>>]) {
        self.submit(|batch| {
            for operations in commits {
                let mut commit = batch.begin(0, database, Mode::Independent);
                for operation in operations {
                    commit.push(operation).expect("within the limits");
                }
                commit.submit();
            }
        });
    }

    fn put(&mut self, database: DatabaseId, key: &[u8], value: &[u8]) {
        self.commit(database, &[vec![put(key, value)]]);
    }

    fn hear(&mut self) {
        for (&id, watcher) in &mut self.watchers {
            while watcher.has_news() {
                let next = watcher.next(usize::MAX).expect("memory has room for all");
                let heard = self.heard.entry(id).or_default();
                heard.extend(next.commits.iter().map(|one| (one.sequence(), told(one))));
                watcher.pass(next.through);
            }
            self.points.push((id, watcher.position()));
        }
    }

    fn snapshot(&mut self) {
        self.commit_loop.ask_for_snapshot();
        while self.commit_loop.step_snapshot(&mut self.clock) {}
        while self.commit_loop.round(&mut self.clock) {}
        drop(self.commit_loop.take_events());
    }

    /// Ends: by a stop, a kill, or a loss of power. Starts again.
    fn restart(&mut self, disk: &SimulatedDisk, way: usize) {
        self.watchers.clear();
        let spare = Watched::new(&testkit::simulated_disk(0), self.keep_log);
        let old = std::mem::replace(self, spare);
        match way {
            0 => old
                .commit_loop
                .close(&mut StandingClock { now_ms: 1000 })
                .expect("nothing fails"),
            1 => disk.kill(),
            _ => disk.lose_power(),
        }
        let (store, commit_loop, last_sequence) = open(disk, old.keep_log, old.segment_bytes);
        let mailbox = commit_loop.register(Box::new(|| ()));
        let is_there = |point: &(DatabaseId, u64)| point.1 <= last_sequence;
        let (points, gone) = old.points.into_iter().partition(is_there);
        let mut heard = old.heard;
        for heard in heard.values_mut() {
            heard.retain(|&sequence, _| sequence <= last_sequence);
        }
        let mut taken_back = old.taken_back;
        taken_back.extend::<Vec<_>>(gone);
        let watchers = BTreeMap::new();
        *self = Watched {
            store,
            commit_loop,
            mailbox,
            watchers,
            heard,
            points,
            taken_back,
            segment_bytes: old.segment_bytes,
            ..std::mem::replace(
                self,
                Watched::new(&testkit::simulated_disk(0), old.keep_log),
            )
        };
        while self.commit_loop.round(&mut self.clock) {}
        self.watch();
        self.hear();
    }

    /// What there is behind a point, taken a few commits at a time.
    fn read_from(
        &self,
        (id, point): (DatabaseId, u64),
        random: &mut Random,
    ) -> Result<(BTreeMap<u64, Told>, bool), WatchError> {
        let mut watcher = self.store.watch(id, Some(point), false)?;
        let (mut all, mut was_read) = (BTreeMap::new(), false);
        let mut reading = None;
        while watcher.has_news() {
            let (commits, through) = match watcher.next(1 + random.below(5)) {
                Ok(next) => (next.commits, next.through),
                Err(WatchError::Lost { .. }) => {
                    was_read = true;
                    let mut on = watcher
                        .read_log(reading.take(), 0)
                        .expect("it reaches back");
                    let next = read_piece(&mut on, 1 + random.below(4000))?;
                    reading = Some(on);
                    let taken = random.below(next.commits.len() + 1);
                    match next.commits.get(..taken) {
                        Some([.., last]) if taken < next.commits.len() => {
                            let through = last.sequence();
                            (next.commits[..taken].to_vec(), through)
                        }
                        _ => (next.commits, next.through),
                    }
                }
                Err(error) => return Err(error),
            };
            assert!(through >= watcher.position());
            for commit in commits {
                assert!(commit.sequence() > watcher.position() && commit.sequence() <= through);
                let before = all.insert(commit.sequence(), told(&commit));
                assert!(before.is_none(), "each commit is told once");
            }
            watcher.pass(through);
        }
        Ok((all, was_read))
    }

    fn check(&self, point: (DatabaseId, u64), random: &mut Random) -> Result<bool, WatchError> {
        let (read, was_read) = self.read_from(point, random)?;
        let heard = self.heard.get(&point.0).cloned().unwrap_or_default();
        let expected: BTreeMap<_, _> = heard.range(point.1 + 1..).collect();
        assert_eq!(
            read.iter().collect::<BTreeMap<_, _>>(),
            expected,
            "{point:?}"
        );
        Ok(was_read)
    }
}

/// Reads a piece, with as much memory as it needs.
fn read_piece(reading: &mut LogReading, bytes: usize) -> Result<store::NextCommits, WatchError> {
    let mut claimed_bytes = 0;
    loop {
        match reading.run(bytes, claimed_bytes) {
            Ok(next) => return Ok(next),
            Err(LogReadError::Needs(needed)) => {
                assert!(needed > claimed_bytes);
                claimed_bytes = needed;
            }
            Err(LogReadError::Failed(error)) => return Err(error),
            Err(LogReadError::Busy) => unreachable!("nobody else reads"),
        }
    }
}

fn seeds() -> std::ops::Range<u64> {
    let seed = std::env::var("PELTON_SEED").ok();
    match seed.and_then(|seed| seed.parse().ok()) {
        Some(seed) => seed..seed + 1,
        None => 1..13,
    }
}

#[test]
fn every_point_that_is_still_there_leads_to_what_was_heard_since() {
    let mut all_refused = 0;
    for seed in seeds() {
        let mut random = Random::new(seed);
        let disk = testkit::simulated_disk(seed);
        let mut watched = Watched::new(&disk, KEEP_ALL);
        let written = watched.create("written", Durability::Written);
        let other = watched.create("other", Durability::Synced);
        let (mut read, mut refused) = (0, 0);
        for step in 0..120 {
            let ids = [DatabaseId::DEFAULT, written, other];
            let id = ids[random.below(ids.len())];
            let large = vec![b'l'; 1 + random.below(9000)];
            let keys: Vec<[u8; 1]> = (0..8).map(|key| [key]).collect();
            let mut some = || {
                let count = 1 + random.below(4);
                let operations = (0..count).map(|_| {
                    let key = &keys[random.below(keys.len())];
                    match random.below(4) {
                        0 => delete(key),
                        1 => append(key, b"more"),
                        2 => put(key, &large),
                        _ => put(key, b"small"),
                    }
                });
                operations.collect::<Vec<_>>()
            };
            let commits = [some(), some()];
            let is_clear = step % 17 == 5;
            match is_clear {
                true => watched.commit(id, &[vec![Operation::Clear]]),
                false => watched.commit(id, &commits),
            }
            if random.once_in(12) {
                watched.snapshot();
            }
            if random.once_in(12) {
                watched.restart(&disk, random.below(3));
            }
            let point = watched.points[random.below(watched.points.len())];
            let was_read = watched.check(point, &mut random);
            let was_read = was_read.unwrap_or_else(|error| {
                panic!("PELTON_SEED={seed}: step {step}: {point:?}: {error}")
            });
            read += usize::from(was_read);
            if let Some(&point) = watched.taken_back.last() {
                let error = watched.check(point, &mut random);
                let is_lost = matches!(error, Err(WatchError::Lost { .. }));
                assert!(
                    is_lost,
                    "PELTON_SEED={seed}: step {step}: {point:?}: {error:?}"
                );
                refused += 1;
            }
        }
        assert!(read > 5, "PELTON_SEED={seed}: {read}");
        all_refused += refused;
    }
    assert!(
        seeds().count() == 1 || all_refused > 0,
        "no crash took anything back"
    );
}

#[test]
fn a_point_before_what_is_kept_is_lost_and_one_within_it_is_not() {
    let disk = testkit::simulated_disk(1);
    let keep_log = KeepLog {
        bytes: 2 * SEGMENT_BYTES,
        age_ms: None,
    };
    let mut watched = Watched::new(&disk, keep_log);
    let mut random = Random::new(1);
    for _ in 0..2 {
        let segments = |watched: &Watched| {
            let statistics = watched.store.log_statistics();
            statistics.expect("there is a log").segments
        };
        let first = *watched.points.last().expect("there is one");
        for key in 0..60_u32 {
            watched.put(DatabaseId::DEFAULT, &key.to_be_bytes(), &[1; 8000]);
        }
        watched.restart(&disk, 0);
        assert_eq!(
            watched.check(first, &mut random),
            Ok(true),
            "no start needs less"
        );
        watched.snapshot();
        assert_eq!(
            segments(&watched),
            3,
            "two are kept, beside the current one"
        );
        let lost = watched.check(first, &mut random);
        assert!(matches!(lost, Err(WatchError::Lost { .. })), "{lost:?}");
        let there = watched.points[watched.points.len() - 10];
        assert_eq!(watched.check(there, &mut random), Ok(true));
        // Those that come push out those that were kept.
        for key in 0..60_u32 {
            watched.put(DatabaseId::DEFAULT, &key.to_be_bytes(), &[2; 8000]);
            if key == 30 {
                watched.snapshot();
            }
        }
        watched.snapshot();
        assert_eq!(segments(&watched), 3);
        watched.restart(&disk, 1);
        assert_eq!(segments(&watched), 3);
    }
}

#[test]
fn what_is_kept_for_a_time_goes_when_that_is_over() {
    let disk = testkit::simulated_disk(1);
    let keep_log = KeepLog {
        bytes: u64::MAX,
        age_ms: Some(60_000),
    };
    let mut watched = Watched::new(&disk, keep_log);
    for _ in 0..2 {
        for key in 0..60_u32 {
            watched.put(DatabaseId::DEFAULT, &key.to_be_bytes(), &[1; 8000]);
        }
        watched.snapshot();
        let segments = |watched: &Watched| {
            let statistics = watched.store.log_statistics();
            statistics.expect("there is a log").segments
        };
        let kept = segments(&watched);
        assert!(kept > 5, "{kept}");
        watched.clock.now_ms += 59_000;
        while watched.commit_loop.round(&mut watched.clock) {}
        assert_eq!(segments(&watched), kept);
        let due_ms = watched.commit_loop.due_ns() / 1_000_000;
        assert!(
            due_ms <= watched.clock.now_ms + 10_000,
            "it is looked now and then"
        );
        watched.clock.now_ms += 12_000;
        while watched.commit_loop.round(&mut watched.clock) {}
        assert_eq!(segments(&watched), 1);
        assert_eq!(watched.commit_loop.due_ns(), u64::MAX);
    }
}

/// A database of the same name that was made later is another one.
#[test]
fn a_point_from_before_a_database_was_made_is_lost() {
    let disk = testkit::simulated_disk(1);
    let mut watched = Watched::new(&disk, KEEP_ALL);
    watched.put(DatabaseId::DEFAULT, b"key", b"value");
    let before = watched.points.last().expect("there is one").1;
    let id = watched.create("other", Durability::Synced);
    watched.put(id, b"key", b"value");
    let mut random = Random::new(1);
    for way in [0, 1] {
        watched.restart(&disk, way);
        let lost = watched.check((id, before), &mut random);
        assert!(matches!(lost, Err(WatchError::Lost { .. })), "{lost:?}");
        let made = watched.points.iter().find(|point| point.0 == id);
        assert_eq!(
            watched.check(*made.expect("it was watched"), &mut random),
            Ok(true)
        );
    }
}

/// What a snapshot has is not read from the log, so it may be damaged there: nothing is refused,
/// and nothing lost but what those hear who watch from before that.
#[test]
fn damage_to_what_is_kept_for_those_who_watch_loses_nothing_else() {
    let write = |disk: &SimulatedDisk, name: &str, bytes: &[u8], offset| {
        let file = disk.open(name).expect("it is there");
        file.write_all_at(bytes, offset).expect("the disk is well");
        file.sync().expect("the disk is well");
    };
    let harm = |number, disk: &SimulatedDisk, kept: &[String]| match number {
        0 => disk.remove(&kept[1]).expect("it is there"),
        1 => write(disk, &kept[1], &[7; 512], 4096),
        2 => write(disk, &kept[1], &[0; 512], 0),
        3 => {
            let file = disk.open(&kept[0]).expect("it is there");
            file.set_len(100).expect("the disk is well");
            file.sync().expect("the disk is well");
        }
        _ => kept
            .iter()
            .for_each(|name| disk.remove(name).expect("it is there")),
    };
    for number in 0..5 {
        let disk = testkit::simulated_disk(1);
        let mut watched = Watched::new(&disk, KEEP_ALL);
        for key in 0..60_u32 {
            watched.put(DatabaseId::DEFAULT, &key.to_be_bytes(), &[1; 8000]);
        }
        let first = watched.points[0];
        let kept: Vec<String> = segment_names(&disk);
        watched.snapshot();
        for key in 100..160_u32 {
            watched.put(DatabaseId::DEFAULT, &key.to_be_bytes(), &[2; 8000]);
        }
        let behind = watched.points[watched.points.len() - 20];
        // The last of them is the one that was written to when the snapshot was made.
        let kept = &kept[..kept.len() - 3];
        harm(number, &disk, kept);
        let mut random = Random::new(1);
        for way in [1, 0, 2] {
            watched.restart(&disk, way);
            let view = watched
                .store
                .view(DatabaseId::DEFAULT)
                .expect("it is there");
            assert_eq!(view.statistics().entries, 120, "harm {number}");
            drop(view);
            assert_eq!(
                watched.check(behind, &mut random),
                Ok(true),
                "harm {number}"
            );
            let lost = watched.check(first, &mut random);
            let is_lost = matches!(
                lost,
                Err(WatchError::Lost { .. } | WatchError::Unreadable(_))
            );
            assert!(is_lost, "harm {number}: {lost:?}");
            // Writing goes on.
            watched.put(DatabaseId::DEFAULT, b"more", b"value");
            watched.commit(DatabaseId::DEFAULT, &[vec![delete(b"more")]]);
        }
        assert!(!segment_names(&disk).contains(&kept[1]) || number == 1 || number == 3);
    }
}

fn segment_names(disk: &SimulatedDisk) -> Vec<String> {
    let mut names = disk.list().expect("the disk is well");
    names.retain(|name| wal::is_segment(name));
    names.sort();
    names
}

/// What is kept leaves room for a snapshot, and for the log until that is made.
#[test]
fn what_is_kept_takes_a_third_of_a_small_disk_at_most() {
    let disk = testkit::simulated_disk(1);
    let mut watched = Watched::new(&disk, KEEP_ALL);
    disk.set_capacity_bytes(40 * SEGMENT_BYTES);
    for turn in 0..12_u32 {
        for key in 0..30_u32 {
            watched.put(DatabaseId::DEFAULT, &key.to_be_bytes(), &[turn as u8; 8000]);
        }
        watched.snapshot();
        let free_bytes = disk.free_bytes().expect("it says so");
        let log_bytes = segment_names(&disk).len() as u64 * SEGMENT_BYTES;
        assert!(
            free_bytes + 4 * SEGMENT_BYTES > 12 * SEGMENT_BYTES,
            "{turn}: {free_bytes}"
        );
        assert!(
            turn < 6 || log_bytes > 5 * SEGMENT_BYTES,
            "{turn}: {log_bytes}"
        );
    }
}

/// Readings that come by where others were begin there: a segment is looked through once.
#[test]
fn a_place_that_one_has_found_is_not_looked_for_again() {
    let disk = testkit::simulated_disk(1);
    let mut watched = Watched::with_segments(&disk, KEEP_ALL, 16 << 20);
    let mut random = Random::new(1);
    let reads = |watched: &Watched, point, random: &mut Random| {
        let count = || {
            let accesses = disk.accesses();
            accesses.iter().filter(|step| **step == Step::Read).count()
        };
        let before = count();
        assert_eq!(watched.check(point, random), Ok(true));
        count() - before
    };
    for key in 0..100_u32 {
        watched.put(DatabaseId::DEFAULT, &key.to_be_bytes(), &[1; 100_000]);
    }
    watched.restart(&disk, 0);
    let point = watched.points[watched.points.len() - 4];
    let first = reads(&watched, point, &mut random);
    for _ in 0..2 {
        let next = reads(&watched, point, &mut random);
        assert!(first > 8 && next < first / 2, "{first} reads, then {next}");
    }
}

/// However many parts there are: how much is read does not grow with their square.
#[test]
fn a_commit_that_is_taken_in_parts_is_read_on_from_where_the_last_one_ended() {
    const CHANGES: u32 = 5_000;
    let disk = testkit::simulated_disk(1);
    let mut watched = Watched::new(&disk, KEEP_ALL);
    let (id, mut random) = (DatabaseId::DEFAULT, Random::new(1));
    watched.put(id, b"before", b"");
    let point = watched.watchers[&id].position();
    let keys: Vec<_> = (0..CHANGES).map(|number| number.to_be_bytes()).collect();
    // All in one group, among those of others.
    let large = keys.iter().map(|key| put(key, b"value")).collect();
    let commits = [vec![put(b"first", b"")], large, vec![put(b"last", b"")]];
    watched.commit(id, &commits);
    watched.restart(&disk, 0);
    let mut watcher = watched
        .store
        .watch(id, Some(point), false)
        .expect("it is kept");
    let (mut reading, mut taken, mut read) = (None, 0, 0);
    let mut told: Vec<Vec<u8>> = Vec::new();
    while watcher.has_news() {
        let mut on = watcher
            .read_log(reading.take(), taken)
            .expect("it reaches back");
        let next = read_piece(&mut on, 20_000).expect("it can be read");
        reading = Some(on);
        read += next
            .commits
            .iter()
            .map(|commit| commit.len())
            .sum::<usize>();
        for commit in &next.commits {
            let here = taken - commit.passed_changes();
            let left = commit.len() - here;
            // Most of it is taken, or all.
            let count = left.min(100 + random.below(100_usize));
            told.extend(
                commit
                    .changes_from(here)
                    .take(count)
                    .map(|(_, one)| one.key.to_vec()),
            );
            taken += count;
            if count < left || commit.is_cut() {
                break;
            }
            taken = 0;
            watcher.pass(commit.sequence());
        }
        if next.commits.is_empty() {
            watcher.pass(next.through);
        }
    }
    let mut expected = vec![b"first".to_vec()];
    expected.extend(keys.iter().map(|key| key.to_vec()));
    expected.push(b"last".to_vec());
    assert!(told == expected, "each change once, in order");
    assert!(read < 4 * CHANGES as usize, "{read} changes were read");
}

/// Who has left does not have gigabytes read for it.
#[test]
fn nothing_is_read_for_a_watcher_that_has_gone() {
    let disk = testkit::simulated_disk(1);
    let mut watched = Watched::new(&disk, KEEP_ALL);
    watched.put(DatabaseId::DEFAULT, b"key", b"value");
    watched.restart(&disk, 0);
    let watcher = watched.store.watch(DatabaseId::DEFAULT, Some(0), false);
    let watcher = watcher.expect("the log reaches back");
    let mut reading = watcher.read_log(None, 0).expect("the log reaches back");
    assert_eq!(
        read_piece(&mut reading, 1000)
            .expect("it can be read")
            .commits
            .len(),
        1
    );
    drop(watcher);
    assert!(
        read_piece(&mut reading, 1000)
            .expect("it can be read")
            .commits
            .is_empty()
    );
}
