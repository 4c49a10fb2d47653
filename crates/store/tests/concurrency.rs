//! Readers and writers on several threads.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use store::{
    Clock, Condition, DatabaseId, Decision, Direction, Expiry, Mode, Operation, Outcomes, Range,
    Store, StoreConfig,
};

const KEYS: [&[u8]; 5] = [b"a", b"b", b"c", b"d", b"e"];

/// A clock that advances by a step each time it is read.
struct SteppingClock {
    now_ns: u64,
    step_ns: u64,
}

impl Clock for SteppingClock {
    fn now_ns(&mut self) -> u64 {
        self.now_ns += self.step_ns;
        self.now_ns
    }

    fn now_ms(&mut self) -> u64 {
        1
    }
}

fn still() -> SteppingClock {
    SteppingClock {
        now_ns: 0,
        step_ns: 0,
    }
}

fn new_store() -> Store {
    Store::in_memory(StoreConfig::new(1)).expect("the configuration is valid")
}

fn put<'a>(key: &'a [u8], value: &'a [u8]) -> Operation<'a> {
    Operation::Put {
        key,
        value,
        condition: Condition::None,
        expiry: Expiry::None,
        want_previous: false,
    }
}

/// Every commit writes its number to all keys; every view must show one number.
#[test]
fn readers_see_commits_whole_and_in_order() {
    let store = new_store();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for direction in [Direction::Forward, Direction::Backward] {
            let (store, done) = (&store, &done);
            scope.spawn(move || {
                let mut views = 0;
                let (mut last_number, mut last_sequence) = (Vec::new(), 0);
                while !done.load(Ordering::Relaxed) || views == 0 {
                    let view = store.view(DatabaseId::DEFAULT).expect("it always exists");
                    let mut numbers = Vec::new();
                    view.scan(&Range::ALL, direction, 1, 100, &mut |entry| {
                        assert_eq!(entry.version, view.sequence(), "the last commit wrote all");
                        numbers.push(entry.value.to_vec());
                        ControlFlow::Continue(())
                    });
                    assert!(numbers.is_empty() || numbers.len() == KEYS.len());
                    assert!(
                        numbers.windows(2).all(|pair| pair[0] == pair[1]),
                        "{numbers:?}"
                    );
                    let number = numbers.pop().unwrap_or_default();
                    assert!(
                        number >= last_number && view.sequence() >= last_sequence,
                        "nothing goes back"
                    );
                    assert_eq!(number == last_number, view.sequence() == last_sequence);
                    (last_number, last_sequence) = (number, view.sequence());
                    views += 1;
                }
                assert!(last_sequence > 0);
            });
        }
        let (mut batch, mut committer, mut outcomes) =
            (store.write_batch(), store.committer(), Outcomes::new());
        for number in 0..20_000u32 {
            let mut commit = batch.begin(0, DatabaseId::DEFAULT, Mode::Atomic);
            for key in KEYS {
                commit.push(&put(key, &number.to_be_bytes())).expect("fits");
            }
            commit.submit();
            if batch.len() == 10 {
                drop(committer.run(&mut batch, &mut still(), &mut outcomes));
            }
        }
        done.store(true, Ordering::Relaxed);
    });
}

/// Two committers on one database: nothing is lost, and an answered write is visible to everybody.
#[test]
fn committers_take_turns() {
    let store = new_store();
    let rounds = 20_000;
    thread::scope(|scope| {
        for _ in 0..2 {
            let store = &store;
            scope.spawn(move || {
                let (mut batch, mut committer, mut outcomes) =
                    (store.write_batch(), store.committer(), Outcomes::new());
                let mut last = 0;
                for _ in 0..rounds {
                    let mut commit = batch.begin(0, DatabaseId::DEFAULT, Mode::Atomic);
                    let (delta, initial, condition) = (1, 0, Condition::None);
                    commit
                        .push(&Operation::Increment {
                            key: b"n",
                            delta,
                            initial,
                            condition,
                        })
                        .expect("fits");
                    commit.submit();
                    drop(committer.run(&mut batch, &mut still(), &mut outcomes));
                    let outcome = outcomes.get(0);
                    let counter = outcome.first().expect("one operation").counter;
                    assert!(counter > last);
                    last = counter;
                    let view = store.view(DatabaseId::DEFAULT).expect("it always exists");
                    let entry = view
                        .get(b"n", store.hasher().hash(b"n"), 1)
                        .expect("it was written");
                    assert!(entry.version >= outcome.sequence && view.sequence() == entry.version);
                }
            });
        }
    });
    let view = store.view(DatabaseId::DEFAULT).expect("it always exists");
    let entry = view
        .get(b"n", store.hasher().hash(b"n"), 1)
        .expect("it was written");
    assert_eq!(entry.value.bytes(), (2 * rounds as u64).to_be_bytes());
}

/// The time of a slice is looked at after every few operations, and its end never cuts a commit.
#[test]
fn a_writer_cuts_its_work_into_slices() {
    let store = new_store();
    let (mut batch, mut committer, mut outcomes) =
        (store.write_batch(), store.committer(), Outcomes::new());
    let mut run = |commits: usize, operations: usize, step_ns| {
        for number in 0..commits {
            let mut commit = batch.begin(number as u64, DatabaseId::DEFAULT, Mode::Atomic);
            for _ in 0..operations {
                commit.push(&put(b"key", b"value")).expect("fits");
            }
            commit.submit();
        }
        let before = committer.slices();
        drop(committer.run(
            &mut batch,
            &mut SteppingClock { now_ns: 0, step_ns },
            &mut outcomes,
        ));
        assert!(
            outcomes
                .iter()
                .map(|outcome| outcome.tag)
                .eq(0..commits as u64)
        );
        committer.slices() - before
    };
    // One look at the clock per 16 operations, each 10 us later than the one before: a slice is 10
    // looks, and after it the clock is read once more.
    assert_eq!(run(1600, 1, 10_000), 10);
    assert_eq!(run(160, 10, 10_000), 8, "looks after two commits of ten");
    assert_eq!(run(1, 1600, 10_000), 0, "one commit is not cut");
    assert_eq!(run(10, 100, 100_000), 10);
    assert_eq!(run(10, 100, 99_999), 5);
    assert_eq!(run(1600, 1, 0), 0);
}

/// What an Append copies is work of a slice, also where the commit comes to nothing.
#[test]
fn a_writer_cuts_between_commits_that_copy_large_values() {
    let store = new_store();
    let (mut batch, mut committer, mut outcomes) =
        (store.write_batch(), store.committer(), Outcomes::new());
    let large = vec![1; 100_000];
    let append = Operation::Append {
        key: b"large",
        value: b"1",
        condition: Condition::None,
    };
    let absent = Operation::Delete {
        key: b"large",
        condition: Condition::Absent,
        want_previous: false,
    };
    for fails in [false, true, false, true] {
        let mut first = batch.begin(0, DatabaseId::DEFAULT, Mode::Atomic);
        first.push(&put(b"large", &large)).expect("fits");
        first.submit();
        drop(committer.run(&mut batch, &mut still(), &mut outcomes));
        for _ in 0..10 {
            let mut commit = batch.begin(0, DatabaseId::DEFAULT, Mode::Atomic);
            commit.push(&append).expect("fits");
            if fails {
                commit.push(&absent).expect("fits");
            }
            commit.submit();
        }
        let before = committer.slices();
        let mut clock = SteppingClock {
            now_ns: 0,
            step_ns: 100_000,
        };
        drop(committer.run(&mut batch, &mut clock, &mut outcomes));
        assert_eq!(
            committer.slices() - before,
            10,
            "each is a slice of its own"
        );
        for outcome in outcomes.iter() {
            let failed = matches!(outcome.decision, Decision::Failed { index: 1, .. });
            assert_eq!(failed, fails, "{:?}", outcome.decision);
        }
    }
}

/// A clock under which every slice is over at once, and which gives a reader time to come to the
/// lock.
struct SlowClock(u64);

impl Clock for SlowClock {
    fn now_ns(&mut self) -> u64 {
        thread::sleep(Duration::from_millis(1));
        self.0 += 1_000_000;
        self.0
    }

    fn now_ms(&mut self) -> u64 {
        1
    }
}

/// Between the slices of one long run readers get in, though the writer wants the lock back at
/// once.
#[test]
fn readers_get_in_between_slices() {
    let store = new_store();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut seen = 0;
            let mut last = 0;
            while !done.load(Ordering::Relaxed) {
                let view = store.view(DatabaseId::DEFAULT).expect("it always exists");
                if view.sequence() != last {
                    (seen, last) = (seen + 1, view.sequence());
                }
                drop(view);
                thread::yield_now();
            }
            seen
        });
        let (mut batch, mut committer, mut outcomes) =
            (store.write_batch(), store.committer(), Outcomes::new());
        for _ in 0..16 * 50 {
            let mut commit = batch.begin(0, DatabaseId::DEFAULT, Mode::Atomic);
            commit.push(&put(b"key", b"value")).expect("fits");
            commit.submit();
        }
        drop(committer.run(&mut batch, &mut SlowClock(0), &mut outcomes));
        done.store(true, Ordering::Relaxed);
        let seen = reader.join().expect("the reader has not failed");
        assert_eq!(committer.slices(), 50);
        // On a busy machine the reader misses some; without the hand-over it would miss nearly all.
        assert!(
            seen > 5,
            "the reader saw {seen} states of a run in 50 slices"
        );
    });
}

/// Changes the catalogue by a commit of its own, and names the database that was changed.
fn change(store: &Store, add: impl FnOnce(&mut store::WriteBatch)) -> DatabaseId {
    struct Standing;
    impl Clock for Standing {
        fn now_ns(&mut self) -> u64 {
            0
        }

        fn now_ms(&mut self) -> u64 {
            1
        }
    }
    let (mut batch, mut outcomes) = (store.write_batch(), Outcomes::new());
    add(&mut batch);
    drop(
        store
            .committer()
            .run(&mut batch, &mut Standing, &mut outcomes),
    );
    assert_eq!(outcomes.get(0).decision, Decision::Applied);
    outcomes.get(0).database
}

/// A database that is dropped in the middle of a run answers the rest as unknown, and keeps no
/// memory booked.
#[test]
fn a_drop_between_slices_is_noticed() {
    let store = new_store();
    let config = store::DatabaseConfig::default();
    let database = change(&store, |batch| batch.create_database(0, "gone", &config));

    const COMMITS: u32 = 20_000;

    /// From its second look on somebody drops the database. Nothing tells when he waits for the
    /// lock that the run holds, so each later look gives him a millisecond: there are a thousand of
    /// them, and after one he is in between.
    struct DroppingClock(u64, Store, DatabaseId, Option<thread::JoinHandle<()>>);
    impl Clock for DroppingClock {
        fn now_ns(&mut self) -> u64 {
            self.0 += 60_000;
            if self.0 == 120_000 {
                let (store, database) = (self.1.clone(), self.2);
                self.3 = Some(thread::spawn(move || {
                    change(&store, |batch| batch.drop_database(0, database));
                }));
            }
            if self.3.is_some() && self.1.database("gone").is_some() {
                thread::sleep(Duration::from_millis(1));
            }
            self.0
        }

        fn now_ms(&mut self) -> u64 {
            1
        }
    }

    let (mut batch, mut committer, mut outcomes) =
        (store.write_batch(), store.committer(), Outcomes::new());
    for number in 0..COMMITS {
        let mut commit = batch.begin(0, database, Mode::Atomic);
        commit
            .push(&put(&number.to_be_bytes(), b"value"))
            .expect("fits");
        commit.submit();
    }
    let mut clock = DroppingClock(0, store.clone(), database, None);
    drop(committer.run(&mut batch, &mut clock, &mut outcomes));
    clock
        .3
        .expect("it was started")
        .join()
        .expect("the drop has not failed");
    let applied = outcomes
        .iter()
        .take_while(|outcome| outcome.decision == Decision::Applied)
        .count();
    assert!(
        (1..COMMITS as usize).contains(&applied),
        "{applied} applied"
    );
    let unknown = Decision::Refused(store::Refusal::UnknownDatabase);
    assert!(
        outcomes
            .iter()
            .skip(applied)
            .all(|outcome| outcome.decision == unknown)
    );
    assert_eq!(outcomes.len(), COMMITS as usize);
    assert_eq!(store.memory_bytes(), 0);
}
