use std::sync::atomic::AtomicUsize as Counter;

use super::*;
use crate::batch::WriteBatch;
use crate::clock::Clock;
use crate::database::{DatabaseConfig, Durability};
use crate::database_id::DatabaseId;
use crate::index::Index;
use crate::memory::MemoryIndex;
use crate::operation::{Condition, Expiry, Mode, Operation};
use crate::outcome::Outcomes;
use crate::store::{Store, StoreConfig};
use crate::volatile_committer::VolatileCommitter;

const DEFAULT: DatabaseId = DatabaseId::DEFAULT;

struct At(u64);

impl Clock for At {
    fn now_ns(&mut self) -> u64 {
        0
    }

    fn now_ms(&mut self) -> u64 {
        self.0
    }
}

/// A store without a log, at a time.
struct Bench {
    store: Store,
    committer: VolatileCommitter,
    outcomes: Outcomes,
    now_ms: u64,
}

impl Bench {
    /// All feeds together may hold so much.
    fn new(feed_bytes: usize) -> Bench {
        let config = StoreConfig {
            memory_bytes: feed_bytes as u64 * limits::FEED_SHARE,
            ..StoreConfig::new(1)
        };
        let store = Store::in_memory(config).expect("the configuration is valid");
        Bench {
            committer: store.committer(),
            store,
            outcomes: Outcomes::new(),
            now_ms: 1_000,
        }
    }

    fn run(&mut self, fill: impl FnOnce(&mut WriteBatch)) -> u64 {
        let mut batch = self.store.write_batch();
        fill(&mut batch);
        drop(
            self.committer
                .run(&mut batch, &mut At(self.now_ms), &mut self.outcomes),
        );
        self.outcomes.get(0).sequence
    }

    fn commit(&mut self, id: DatabaseId, operations: &[Operation<'_>]) -> u64 {
        self.run(|batch| {
            let mut commit = batch.begin(0, id, Mode::Atomic);
            for operation in operations {
                commit.push(operation).expect("it fits");
            }
            commit.submit();
        })
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> u64 {
        self.commit(DEFAULT, &[put(key, value, Expiry::None)])
    }

    fn create(&mut self, name: &str) -> DatabaseId {
        let config = DatabaseConfig {
            durability: Durability::Volatile,
            ..DatabaseConfig::default()
        };
        self.run(|batch| batch.create_database(0, name, &config));
        self.store.database(name).expect("it was just made")
    }

    fn watch(&self, resume: Option<u64>) -> Result<Watcher, WatchError> {
        self.store.watch(DEFAULT, resume, false)
    }

    /// Does what loops do now and then, so much later.
    fn tend_after(&mut self, ms: u64) {
        self.now_ms += ms;
        self.store.clock_ms(self.now_ms);
        self.store.feeds().tend(self.now_ms);
    }

    /// That of a database which somebody has watched.
    fn feed(&self, id: DatabaseId) -> Arc<Feed> {
        let database = self.store.find(id).expect("it is there");
        let none = Feeds::new(0, &Arc::default());
        let feed = database.feed(&none);
        assert!(!Arc::ptr_eq(&feed.feeds, &none), "nobody has watched it");
        Arc::clone(feed)
    }
}

fn put<'a>(key: &'a [u8], value: &'a [u8], expiry: Expiry) -> Operation<'a> {
    Operation::Put {
        key,
        value,
        condition: Condition::None,
        expiry,
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

/// Takes all that there is.
fn take(watcher: &mut Watcher) -> Result<Vec<u64>, WatchError> {
    let next = watcher.next(usize::MAX)?;
    watcher.pass(next.through);
    Ok(next
        .commits
        .iter()
        .map(|commit| commit.sequence())
        .collect())
}

type ChangeParts = (ChangeKind, Vec<u8>, Option<Vec<u8>>, Option<Vec<u8>>);

fn parts_of(commit: &FeedCommit) -> Vec<ChangeParts> {
    let value = |entry: Option<Entry<'_>>| entry.map(|entry| entry.value.bytes().to_vec());
    let changes = commit.changes();
    let parts = |change: FeedChange<'_>| {
        let key = change.key.to_vec();
        (
            change.kind,
            key,
            value(change.entry),
            value(change.previous),
        )
    };
    changes.map(parts).collect()
}

#[test]
fn what_is_committed_is_recorded_from_the_first_watcher_on() {
    let mut bench = Bench::new(1 << 20);
    let before = bench.put(b"before", b"");
    let database = bench.store.find(DEFAULT).expect("it is there");
    assert!(database.open_feed().is_none());
    let mut watcher = bench.watch(None).expect("it is there");
    assert_eq!((watcher.position(), watcher.has_news()), (before, false));
    for _ in 0..2 {
        let first = bench.put(b"a", b"1");
        assert!(watcher.has_news());
        let (two, gone) = ([7; 5_000], delete(b"gone"));
        let second = bench.commit(
            DEFAULT,
            &[put(b"b", &two, Expiry::None), gone, delete(b"a")],
        );
        let next = watcher.next(usize::MAX).expect("it is there");
        assert_eq!(next.through, second);
        let sequences: Vec<_> = next.commits.iter().map(|one| one.sequence()).collect();
        assert_eq!(sequences, [first, second]);
        let set =
            |key: &[u8], value: &[u8]| (ChangeKind::Set, key.to_vec(), Some(value.to_vec()), None);
        assert_eq!(parts_of(&next.commits[0]), [set(b"a", b"1")]);
        let removed = (ChangeKind::Delete, b"a".to_vec(), None, None);
        assert_eq!(parts_of(&next.commits[1]), [set(b"b", &two), removed]);
        assert_eq!(next.commits[1].at_ms(), bench.now_ms);
        assert_eq!(next.commits[1].change(2).map(|change| change.kind), None);
        // Nothing is taken before it is passed.
        assert_eq!(take(&mut watcher), Ok(vec![first, second]));
        assert_eq!(take(&mut watcher), Ok(vec![]));
        assert!(!watcher.has_news());
    }
}

/// The point moves on all the same, so that what is resumed from is not older than need be.
#[test]
fn a_commit_that_changes_nothing_moves_the_point() {
    let mut bench = Bench::new(1 << 20);
    let mut watcher = bench.watch(None).expect("it is there");
    for _ in 0..2 {
        let nothing = bench.commit(DEFAULT, &[delete(b"no such key")]);
        assert!(watcher.has_news());
        assert_eq!(take(&mut watcher), Ok(vec![]));
        assert_eq!((watcher.position(), watcher.has_news()), (nothing, false));
    }
}

#[test]
fn a_step_takes_whole_commits_and_at_least_one() {
    let mut bench = Bench::new(1 << 20);
    let mut watcher = bench.watch(None).expect("it is there");
    let three = [b"a", b"b", b"c"].map(|key| put(key, b"", Expiry::None));
    let all: Vec<_> = (0..4).map(|_| bench.commit(DEFAULT, &three)).collect();
    for (changes, taken) in [(0, 1), (1, 1), (3, 1), (4, 2), (6, 2), (12, 4), (13, 4)] {
        let next = watcher.next(changes).expect("it is there");
        assert_eq!(next.commits.len(), taken, "{changes}");
        assert_eq!(next.through, all[taken - 1]);
    }
    watcher.pass(all[1]);
    assert_eq!(take(&mut watcher), Ok(all[2..].to_vec()));
}

#[test]
fn what_was_there_before_is_recorded_for_those_who_ask() {
    let mut bench = Bench::new(1 << 20);
    bench.put(b"k", b"old");
    let mut plain = bench.watch(None).expect("it is there");
    for _ in 0..2 {
        let asking = bench.store.watch(DEFAULT, None, true).expect("it is there");
        bench.put(b"k", b"new");
        let short = Expiry::AfterMs(10);
        bench.commit(DEFAULT, &[put(b"k", b"short-lived", short)]);
        bench.now_ms += 10;
        bench.put(b"k", b"old");
        let next = asking.next(usize::MAX).expect("it is there");
        let before: Vec<_> = next
            .commits
            .iter()
            .map(|one| parts_of(one)[0].3.clone())
            .collect();
        // Whose time had come was nothing.
        let expected = [Some(b"old".to_vec()), Some(b"new".to_vec()), None];
        assert_eq!(before, expected);
        drop(asking);
        bench.put(b"k", b"old");
        plain.pass(next.through);
        let next = plain.next(usize::MAX).expect("it is there");
        assert_eq!(parts_of(&next.commits[0])[0].3, None);
        plain.pass(next.through);
    }
}

#[test]
fn what_expires_and_what_is_cleared_is_told_apart() {
    let mut bench = Bench::new(1 << 20);
    let asking = bench.store.watch(DEFAULT, None, true).expect("it is there");
    bench.commit(DEFAULT, &[put(b"k", b"v", Expiry::AfterMs(10))]);
    bench.now_ms += 10_000;
    bench.store.clock_ms(bench.now_ms);
    let mut batch = bench.store.write_batch();
    bench.store.sweep(bench.now_ms, &mut batch);
    let mut at = At(bench.now_ms);
    drop((bench.committer).run(&mut batch, &mut at, &mut bench.outcomes));
    bench.put(b"other", b"");
    bench.commit(DEFAULT, &[Operation::Clear]);
    let next = asking.next(usize::MAX).expect("it is there");
    let kinds: Vec<_> = next.commits.iter().map(|one| parts_of(one)[0].0).collect();
    let (set, expire) = (ChangeKind::Set, ChangeKind::Expire);
    assert_eq!(kinds, [set, expire, set, ChangeKind::Clear]);
    // Here it is what was there.
    let expired = (expire, b"k".to_vec(), None, Some(b"v".to_vec()));
    assert_eq!(parts_of(&next.commits[1]), [expired]);
    let cleared = (ChangeKind::Clear, Vec::new(), None, None);
    assert_eq!(parts_of(&next.commits[3]), [cleared]);
}

#[test]
fn a_point_is_good_if_all_that_follows_is_there() {
    let mut bench = Bench::new(1 << 20);
    let first = bench.put(b"k", b"1");
    let second = bench.put(b"k", b"2");
    for _ in 0..2 {
        let lost = |asked| WatchError::Lost {
            asked,
            present: second,
        };
        let ahead = |asked| WatchError::Ahead {
            asked,
            present: second,
        };
        let error = |resume| bench.watch(Some(resume)).map(|_| ()).unwrap_err();
        assert_eq!([0, first].map(error), [0, first].map(lost));
        assert_eq!(
            [second + 1, u64::MAX].map(error),
            [second + 1, u64::MAX].map(ahead)
        );
        let watcher = bench.watch(Some(second)).expect("nothing is missing");
        assert_eq!(watcher.position(), second);
        let gone = bench.store.watch(DatabaseId::BLOBS, None, false);
        assert_eq!(gone.map(|_| ()).unwrap_err(), WatchError::Gone);
    }
    let third = bench.put(b"k", b"3");
    for resume in [second, third] {
        let mut watcher = bench.watch(Some(resume)).expect("nothing is missing");
        let missing = if resume == second {
            vec![third]
        } else {
            vec![]
        };
        assert_eq!(take(&mut watcher), Ok(missing));
    }
}

#[test]
fn the_oldest_commits_go_when_there_are_too_many() {
    let mut bench = Bench::new(10_000);
    for _ in 0..2 {
        let mut slow = bench.watch(None).expect("it is there");
        let start = slow.position();
        let mut sequences = vec![start];
        for _ in 0..30 {
            sequences.push(bench.put(b"k", &[7; 1_000]));
            assert!(bench.feed(DEFAULT).held_bytes() <= 10_000);
        }
        let present = *sequences.last().expect("there are some");
        let lost = WatchError::Lost {
            asked: start,
            present,
        };
        assert_eq!(take(&mut slow), Err(lost));
        // Some are there, and from no earlier point can be watched.
        let is_there = |resume: u64| bench.watch(Some(resume)).is_ok();
        let oldest = sequences.partition_point(|&sequence| !is_there(sequence));
        assert!((20..30).contains(&oldest), "{oldest}");
        assert!(
            sequences[oldest..]
                .iter()
                .all(|&sequence| is_there(sequence))
        );
        let mut watcher = bench.watch(Some(sequences[oldest])).expect("it is there");
        assert_eq!(take(&mut watcher), Ok(sequences[oldest + 1..].to_vec()));
        // One that is too large for it is nowhere.
        let large = bench.put(b"k", &[7; 20_000]);
        assert_eq!(bench.feed(DEFAULT).held_bytes(), 0);
        assert!(take(&mut watcher).is_err());
        assert!(bench.watch(Some(large)).is_ok());
    }
}

#[test]
fn feeds_that_hold_something_have_equal_parts() {
    let mut bench = Bench::new(20_000);
    let (other, idle) = (bench.create("other"), bench.create("idle"));
    let _watcher = bench.watch(None).expect("it is there");
    // It holds nothing, and takes nothing from anybody.
    let _idle = bench.store.watch(idle, None, false).expect("it is there");
    let value = [7; 1_000];
    for turn in 0..2 {
        for _ in 0..30 {
            bench.put(b"k", &value);
        }
        let alone = bench.feed(DEFAULT).held_bytes();
        assert!((15_000..=20_000).contains(&alone), "{alone}");
        let both = bench.store.watch(other, None, false).expect("it is there");
        for _ in 0..30 {
            bench.commit(other, &[put(b"k", &value, Expiry::None)]);
        }
        let its = bench.feed(other).held_bytes();
        assert!((5_000..=10_000).contains(&its), "{its}");
        bench.tend_after(limits::FEED_TRIM_MS);
        let half = bench.feed(DEFAULT).held_bytes();
        assert!((5_000..=10_000).contains(&half), "{turn}: {half}");
        drop(both);
        // When it has not been watched for long, the other one has all.
        bench.tend_after(limits::FEED_KEPT_MS);
        assert_eq!(bench.feed(other).held_bytes(), 0);
        assert!(!bench.feed(other).is_open());
    }
}

/// Who keeps up is told of it, also where others hold something.
#[test]
fn the_newest_commit_stays_however_large_it_is() {
    let mut bench = Bench::new(20_000);
    let other = bench.create("other");
    let _others = bench.store.watch(other, None, false).expect("it is there");
    bench.commit(other, &[put(b"k", b"v", Expiry::None)]);
    let mut watcher = bench.watch(None).expect("it is there");
    for _ in 0..2 {
        for bytes in [100, 15_000, 18_000] {
            let sequence = bench.put(b"k", &vec![7; bytes]);
            assert_eq!(take(&mut watcher), Ok(vec![sequence]), "{bytes}");
        }
        // More than all may hold together.
        bench.put(b"k", &[7; 21_000]);
        assert!(take(&mut watcher).is_err());
        watcher = bench.watch(None).expect("it is there");
    }
    let feeds = Arc::clone(&bench.feed(other).feeds);
    assert_eq!(
        feeds.held(),
        bench.feed(DEFAULT).held_bytes() + bench.feed(other).held_bytes()
    );
}

#[test]
fn a_feed_stays_open_for_a_while_for_one_that_was_cut_off() {
    let mut bench = Bench::new(1 << 20);
    for _ in 0..2 {
        let watcher = bench.watch(None).expect("it is there");
        let point = watcher.position();
        // It has watched for long before it is cut off.
        bench.tend_after(2 * limits::FEED_KEPT_MS);
        drop(watcher);
        let first = bench.put(b"k", b"1");
        bench.tend_after(limits::FEED_KEPT_MS - 1);
        let second = bench.put(b"k", b"2");
        let mut again = bench.watch(Some(point)).expect("it has come back in time");
        assert_eq!(take(&mut again), Ok(vec![first, second]));
        bench.tend_after(2 * limits::FEED_KEPT_MS);
        let third = bench.put(b"k", b"3");
        assert_eq!(take(&mut again), Ok(vec![third]));
        drop(again);
        // By the next commit, if nobody looks before.
        bench.now_ms += limits::FEED_KEPT_MS;
        let fourth = bench.put(b"k", b"4");
        assert!(!bench.feed(DEFAULT).is_open());
        assert_eq!(bench.feed(DEFAULT).held_bytes(), 0);
        let lost = WatchError::Lost {
            asked: third,
            present: fourth,
        };
        assert_eq!(bench.watch(Some(third)).map(|_| ()), Err(lost));
        // Where nothing is written, too.
        drop(bench.watch(None));
        assert!(bench.feed(DEFAULT).is_open());
        bench.tend_after(limits::FEED_KEPT_MS);
        assert!(!bench.feed(DEFAULT).is_open());
    }
    assert_eq!(bench.feed(DEFAULT).feeds.open_feeds(), 0);
}

/// To free much takes long: whoever commits does not wait for that.
#[test]
fn what_a_closed_feed_held_is_freed_some_at_a_time() {
    let mut bench = Bench::new(10 << 20);
    for _ in 0..2 {
        drop(bench.watch(None));
        let commits = 2 * limits::FEED_FREED_AT_ONCE + 1;
        for _ in 0..commits {
            bench.put(b"k", b"v");
        }
        let feeds = Arc::clone(&bench.feed(DEFAULT).feeds);
        bench.tend_after(limits::FEED_KEPT_MS);
        assert_eq!((feeds.held(), feeds.discarded_commits()), (0, commits));
        for left in [commits - limits::FEED_FREED_AT_ONCE, 1, 0, 0] {
            bench.tend_after(0);
            assert_eq!(feeds.discarded_commits(), left);
        }
    }
}

/// It was asked for before that, under another lock.
#[test]
fn a_commit_that_is_published_while_its_feed_closes_is_not_kept() {
    let mut bench = Bench::new(1 << 20);
    drop(bench.watch(None));
    let feed = bench.feed(DEFAULT);
    let late = feed.record(7, bench.now_ms);
    bench.tend_after(limits::FEED_KEPT_MS);
    feed.add(late);
    assert_eq!((feed.held_bytes(), feed.state.lock().commits.len()), (0, 0));
    let before = bench.put(b"k", b"v");
    let mut watcher = bench.watch(None).expect("it is there");
    assert_eq!(take(&mut watcher), Ok(vec![]));
    assert_eq!(watcher.position(), before);
}

/// One of the same name that was there before is another one.
#[test]
fn a_point_from_before_a_database_was_made_is_refused() {
    let mut bench = Bench::new(1 << 20);
    let mut older = bench.put(b"k", b"v");
    for name in ["one", "one"] {
        let id = bench.create(name);
        let watcher = bench.store.watch(id, None, false).expect("it is there");
        let begun = watcher.position();
        assert!(begun > older);
        bench.commit(id, &[put(b"k", b"v", Expiry::None)]);
        let error = bench.store.watch(id, Some(older), false).map(|_| ());
        assert!(matches!(error, Err(WatchError::Lost { .. })), "{error:?}");
        assert!(bench.store.watch(id, Some(begun), false).is_ok());
        older = bench.run(|batch| batch.drop_database(0, id));
    }
}

/// Readers see a commit that changes nothing.
#[test]
fn whoever_begins_behind_a_conversion_stays_there() {
    let bench = Bench::new(1 << 20);
    let mut before = bench.watch(None).expect("it is there");
    for sequence in [10, 20] {
        let index = MemoryIndex::new(bench.store.hasher().clone());
        let config = bench.store.config(DEFAULT).expect("it is there");
        drop(
            bench
                .store
                .convert_database(DEFAULT, config, Index::Memory(index), 0, sequence),
        );
        let mut after = bench.watch(None).expect("it is there");
        assert_eq!(after.position(), sequence);
        assert_eq!(take(&mut after), Ok(vec![]));
        assert_eq!(after.position(), sequence);
        assert!(before.has_news());
        assert_eq!(take(&mut before), Ok(vec![]));
        assert_eq!(before.position(), sequence);
        assert!(bench.watch(Some(sequence)).is_ok());
    }
}

#[test]
fn who_watches_a_database_that_is_dropped_hears_of_it() {
    let mut bench = Bench::new(1 << 20);
    for _ in 0..2 {
        let id = bench.create("brief");
        let mut watcher = bench.store.watch(id, None, false).expect("it is there");
        let feed = bench.feed(id);
        let (news, woken) = (watcher.news(), Arc::new(Counter::new(0)));
        let counted = Arc::clone(&woken);
        let wake = move || {
            counted.fetch_add(1, Ordering::Relaxed);
        };
        let waker = bench.store.wake_at_changes(Arc::new(wake));
        let before = news.changes();
        bench.run(|batch| batch.drop_database(0, id));
        assert!(woken.load(Ordering::Relaxed) > 0 && news.changes() > before);
        drop(waker);
        assert!(watcher.has_news());
        assert_eq!(take(&mut watcher), Err(WatchError::Gone));
        let gone = bench.store.watch(id, None, false);
        assert_eq!(gone.map(|_| ()).unwrap_err(), WatchError::Gone);
        assert_eq!((feed.held_bytes(), feed.is_open()), (0, false));
        assert_eq!(feed.feeds.open_feeds(), 0);
    }
}

#[test]
fn those_who_wait_are_woken_once_for_what_came_together() {
    let mut bench = Bench::new(1 << 20);
    let woken = Arc::new(Counter::new(0));
    let count = || {
        let (woken, store) = (Arc::clone(&woken), bench.store.clone());
        let before = store.changes_version();
        let wake = move || {
            assert_ne!(
                store.changes_version(),
                before,
                "it is looked at by those who are woken"
            );
            woken.fetch_add(1, Ordering::Relaxed);
        };
        bench.store.wake_at_changes(Arc::new(wake))
    };
    let (one, other) = (count(), count());
    let version = bench.store.changes_version();
    bench.put(b"k", b"nobody watches");
    assert_eq!(
        (woken.load(Ordering::Relaxed), bench.store.changes_version()),
        (0, version)
    );
    let _watcher = bench.watch(None).expect("it is there");
    bench.run(|batch| {
        for _ in 0..3 {
            let mut commit = batch.begin(0, DEFAULT, Mode::Atomic);
            commit
                .push(&put(b"k", b"v", Expiry::None))
                .expect("it fits");
            commit.submit();
        }
    });
    assert_eq!(woken.load(Ordering::Relaxed), 2);
    assert_ne!(bench.store.changes_version(), version);
    drop(one);
    bench.put(b"k", b"v");
    assert_eq!(woken.load(Ordering::Relaxed), 3);
    drop(other);
    bench.put(b"k", b"v");
    assert_eq!(woken.load(Ordering::Relaxed), 3);
}
