//! Commits that rest on what was read ahead, while others commit, and memtables are flushed: what
//! was read may be old when the commit is decided, and nobody looks again.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use store::{
    Condition, DatabaseId, Decision, Direction, Durability, Expiry, Kind, Mode, Operation,
    OperationStatus, Outcomes, Range, Refusal, StoreConfig, WriteBatch,
};
use testkit::Random;
use testkit::suite::{Engine, StandingClock, SuiteView, put};

use crate::tree_bench::{OnDisk, TempFolder};

/// What a commit does to one key.
#[derive(Clone, Copy, Debug)]
enum Act {
    Increment,
    PutIfAbsent,
    PutIfPresent,
    Delete,
    Put,
    Clear,
}

/// A commit that has read what it needs and is not submitted.
struct Held {
    batch: WriteBatch,
    act: Act,
    key: Vec<u8>,
    number: i64,
}

type Model = BTreeMap<Vec<u8>, i64>;

/// What a commit should answer: whether it was done, and the number that it gives.
fn expected(model: &mut Model, held: &Held) -> (bool, i64) {
    let old = model.get(&held.key).copied();
    let is_done = match held.act {
        Act::PutIfAbsent => old.is_none(),
        Act::PutIfPresent => old.is_some(),
        _ => true,
    };
    match held.act {
        Act::Clear => model.clear(),
        Act::Delete => drop(model.remove(&held.key)),
        Act::Increment => {
            let sum = old.unwrap_or(0) + 1;
            model.insert(held.key.clone(), sum);
            return (true, sum);
        }
        _ if is_done => drop(model.insert(held.key.clone(), held.number)),
        _ => {}
    }
    let existed = i64::from(matches!(held.act, Act::Delete) && old.is_some());
    (is_done, existed)
}

fn hold(made: &OnDisk, random: &mut Random, tag: u64) -> Held {
    let acts = [
        Act::Increment,
        Act::Increment,
        Act::PutIfAbsent,
        Act::PutIfPresent,
        Act::Delete,
        Act::Put,
    ];
    let act = if random.once_in(25) {
        Act::Clear
    } else {
        random.pick(&acts)
    };
    let key = format!("key-{}", random.below(6)).into_bytes();
    let number = random.below(1000) as i64;
    let value = number.to_be_bytes();
    let put_if = |condition| Operation::Put {
        key: &key,
        value: &value,
        condition,
        expiry: Expiry::None,
        want_previous: false,
    };
    let operation = match act {
        Act::Increment => Operation::Increment {
            key: &key,
            delta: 1,
            initial: 0,
            condition: Condition::None,
        },
        Act::PutIfAbsent => put_if(Condition::Absent),
        Act::PutIfPresent => put_if(Condition::Present),
        Act::Delete => Operation::Delete {
            key: &key,
            condition: Condition::None,
            want_previous: false,
        },
        Act::Put => put_if(Condition::None),
        Act::Clear => Operation::Clear,
    };
    let mut batch = made.store.write_batch();
    let mut commit = batch.begin(tag, DatabaseId::DEFAULT, Mode::Independent);
    commit.push(&operation).expect("small");
    commit.submit();
    assert_eq!(
        batch.wants_reads(),
        !matches!(act, Act::Put | Act::Clear),
        "a plain Put reads nothing"
    );
    assert!(batch.read_ahead().failure.is_none());
    Held {
        batch,
        act,
        key,
        number,
    }
}

/// Submits some of what is held, in another order than it was read, and checks the answers.
fn submit(
    made: &mut OnDisk,
    random: &mut Random,
    held: &mut Vec<Held>,
    model: &mut Model,
    clock: &mut StandingClock,
) {
    let mut order = Vec::new();
    for _ in 0..1 + random.below(held.len()) {
        let place = random.below(held.len());
        let mut one = held.swap_remove(place);
        made.mailbox.submit(&mut one.batch);
        order.push(one);
    }
    let (mut outcomes, mut place) = (Outcomes::new(), 0);
    while made.commit_loop.round(clock) {
        while made.mailbox.take(&mut outcomes) {
            for outcome in outcomes.iter() {
                let one = &order[place];
                place += 1;
                assert_eq!(outcome.decision, Decision::Applied, "{:?}", one.act);
                let (is_done, number) = expected(model, one);
                let first = outcome.first().expect("it has one operation");
                assert_eq!(
                    first.status == OperationStatus::Done,
                    is_done,
                    "{:?}",
                    one.act
                );
                match one.act {
                    Act::Increment => assert_eq!(first.counter, number),
                    Act::Delete => assert_eq!(i64::from(first.existed()), number),
                    _ => {}
                }
            }
        }
    }
    assert_eq!(place, order.len());
}

fn content(made: &OnDisk) -> Model {
    let view = SuiteView::of(&made.store, DatabaseId::DEFAULT).expect("it is there");
    let mut content = Model::new();
    view.scan(&Range::ALL, Direction::Forward, 1, u32::MAX, &mut |entry| {
        let number = entry.value.bytes().try_into().expect("numbers have eight");
        content.insert(entry.key.to_vec(), i64::from_be_bytes(number));
        ControlFlow::Continue(())
    });
    content
}

fn config(seed: u64) -> StoreConfig {
    let mut config = StoreConfig::new(seed);
    config.default_database.durability = Durability::Synced;
    config
}

#[test]
fn what_was_read_ahead_is_never_taken_for_newer_than_it_is() {
    for seed in 0..15 {
        println!("seed {seed}");
        let (mut random, mut clock) = (Random::new(seed), StandingClock { now_ms: 1000 });
        let mut made = OnDisk::make(config(seed), &mut clock);
        let (mut held, mut model) = (Vec::new(), Model::new());
        for tag in 0..150 {
            held.push(hold(&made, &mut random, tag));
            if random.once_in(2) {
                made.commit_loop.seal_trees();
                made.commit_loop.flush_trees().expect("there is room");
            }
            if held.len() > 8 || random.once_in(3) {
                submit(&mut made, &mut random, &mut held, &mut model, &mut clock);
                assert_eq!(content(&made), model);
            }
        }
        while !held.is_empty() {
            submit(&mut made, &mut random, &mut held, &mut model, &mut clock);
        }
        // Nobody needs what is on the device any more.
        made.commit_loop.seal_trees();
        made.commit_loop.flush_trees().expect("there is room");
        let tree = made.store.tree(DatabaseId::DEFAULT);
        assert!(!tree.expect("it is on disk").keeps_flushed());
        made.crash(1, &mut clock);
        assert_eq!(content(&made), model);
    }
}

/// A hundred times as much as may be in memory; the log behind it is retired.
#[test]
fn a_database_on_disk_may_be_larger_than_memory() {
    const MEMORY_BYTES: u64 = 64 * 1024;
    let mut clock = StandingClock { now_ms: 1000 };
    let mut config = config(3);
    config.memory_bytes = MEMORY_BYTES;
    let mut made = OnDisk::make(config, &mut clock);
    made.keeps = false;
    let key = |number: u32| number.to_be_bytes();
    let (mut outcomes, mut most_bytes, mut refused) = (Outcomes::new(), 0, 0);
    for number in 0..6000 {
        let mut batch = made.store.write_batch();
        let mut commit = batch.begin(0, DatabaseId::DEFAULT, Mode::Atomic);
        let value = vec![number as u8; 1000];
        commit.push(&put(&key(number), &value)).expect("small");
        commit.submit();
        made.run(&mut batch, &mut clock, &mut outcomes);
        if outcomes.get(0).decision != Decision::Applied {
            refused += 1;
            made.commit_loop.flush_trees().expect("there is room");
            made.run(&mut batch_of(&made, number), &mut clock, &mut outcomes);
            assert_eq!(outcomes.get(0).decision, Decision::Applied);
        }
        most_bytes = most_bytes.max(made.store.memory_bytes());
        if number % 1000 == 999 {
            made.commit_loop.ask_for_snapshot();
            while made.commit_loop.step_snapshot(&mut clock) {}
            while made.commit_loop.round(&mut clock) {}
        }
    }
    assert!(most_bytes <= MEMORY_BYTES + 8 * 1024, "{most_bytes}");
    assert!(refused > 0, "the memtables did fill the memory");
    let log_bytes = made
        .store
        .log_statistics()
        .expect("it has one")
        .segment_bytes;
    assert!(log_bytes < 3 << 20, "{log_bytes} bytes of log are left");
    made.crash(2, &mut clock);
    let view = SuiteView::of(&made.store, DatabaseId::DEFAULT).expect("it is there");
    for number in (0..6000).step_by(7) {
        let key = key(number);
        let entry = view.get(&key, 0, 1).expect("it was put");
        assert_eq!(entry.value.bytes(), vec![number as u8; 1000]);
    }
    let (mut count, mut rest) = (0, Range::ALL);
    loop {
        let slice = view.count(&rest, 1, u32::MAX);
        count += slice.count;
        let Some(passed) = slice.passed else { break };
        rest = rest.beyond(passed, Direction::Forward);
    }
    assert_eq!(count, 6000);
}

fn batch_of(made: &OnDisk, number: u32) -> WriteBatch {
    let mut batch = made.store.write_batch();
    let mut commit = batch.begin(0, DatabaseId::DEFAULT, Mode::Atomic);
    let value = vec![number as u8; 1000];
    commit
        .push(&put(&number.to_be_bytes(), &value))
        .expect("small");
    commit.submit();
    batch
}

/// A folder that is not there, though the log does not have what was in it, is told as such.
#[test]
fn a_missing_tree_is_named() {
    let mut clock = StandingClock { now_ms: 1000 };
    let mut made = OnDisk::make(config(1), &mut clock);
    made.keeps = false;
    let mut outcomes = Outcomes::new();
    made.run(&mut batch_of(&made, 1), &mut clock, &mut outcomes);
    made.commit_loop.seal_trees();
    made.commit_loop.flush_trees().expect("there is room");
    made.commit_loop.ask_for_snapshot();
    while made.commit_loop.step_snapshot(&mut clock) {}
    let generation = made.store.databases()[0].tree.expect("it is on disk");
    let (disk, folder) = (made.disk.clone(), made.folder.clone());
    drop(made);
    disk.kill();
    let tree = folder.0.join("trees").join(generation.to_string());
    let away = TempFolder::new();
    std::fs::rename(&tree, away.0.join("tree")).expect("it is there");
    let error = OnDisk::open(config(1), &disk, &folder).err();
    let text = error.expect("the tree is not there").to_string();
    assert!(
        text.contains("is missing") && text.contains(&generation.to_string()),
        "{text}"
    );
    std::fs::rename(away.0.join("tree"), &tree).expect("there is room");
    let opened = OnDisk::open(config(1), &disk, &folder);
    assert_eq!(opened.expect("it is back").store.databases().len(), 1);
}

/// What was read on disk means nothing once the database has been in memory, though it is on disk
/// again.
#[test]
fn what_was_read_before_a_conversion_is_not_believed() {
    let mut clock = StandingClock { now_ms: 1000 };
    let mut made = OnDisk::make(config(1), &mut clock);
    made.keeps = false;
    let increment = |made: &OnDisk| {
        let mut batch = made.store.write_batch();
        let mut commit = batch.begin(0, DatabaseId::DEFAULT, Mode::Atomic);
        let operation = testkit::suite::increment(b"counter", 1);
        commit.push(&operation).expect("small");
        commit.submit();
        assert!(batch.read_ahead().failure.is_none());
        batch
    };
    let (mut early, mut outcomes) = (increment(&made), Outcomes::new());
    for kind in [Kind::Memory, Kind::Disk] {
        let converted = made
            .commit_loop
            .convert(DatabaseId::DEFAULT, kind, &mut clock);
        converted.expect("it fits");
        made.run(&mut increment(&made), &mut clock, &mut outcomes);
        made.commit_loop.seal_trees();
        made.commit_loop.flush_trees().expect("there is room");
    }
    made.mailbox.submit(&mut early);
    while made.commit_loop.round(&mut clock) {}
    assert!(made.mailbox.take(&mut outcomes));
    let refused = Decision::Refused(Refusal::NotReadAhead);
    assert_eq!(outcomes.get(0).decision, refused);
    assert_eq!(content(&made)[&b"counter"[..]], 2);
}
