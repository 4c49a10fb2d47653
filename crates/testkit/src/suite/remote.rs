//! The tests that every engine behind a network must pass, against the model that the other engines
//! of the store have.
//!
//! A backend's tests make a [`RemoteTarget`] and call [`run_remote`].

use std::ops::Bound;

use store::remote::{Lack, RemoteOrder, RemotePromise, RemoteShape};
use store::tree::PageRequest;
use store::{
    Condition, DatabaseConfig, DatabaseId, DatabaseLimits, Decision, Direction, Durability, Expiry,
    Kind, Mode, Operation, Range, ReadView, Refusal, ScanEnd, TransactList,
};

use super::model::{ExpectedCommit, Model, Stored};
use super::property::seen;
use super::remote_bench::{RemoteBench, RemoteTarget};
use crate::Random;

/// Steps of one round.
const STEPS: usize = 80;

/// Small enough for Appends to meet it.
const VALUE_BYTES_MAX: usize = 40_000;

/// Makes an engine whose default database has this configuration.
pub type MakeRemote<'a> = &'a dyn Fn(u64, DatabaseConfig) -> RemoteTarget;

/// The configuration of a database that is tested.
pub fn remote_config(shape: RemoteShape) -> DatabaseConfig {
    let config = DatabaseConfig {
        durability: Durability::Synced,
        limits: DatabaseLimits::for_values(VALUE_BYTES_MAX),
        ..DatabaseConfig::default()
    };
    config.of_kind(Kind::Remote(shape))
}

/// Runs random sequences of everything with both promises and both orders, from a seed on.
pub fn run_remote(make: MakeRemote<'_>, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        for promise in [RemotePromise::Linearizable, RemotePromise::Quorum] {
            for order in [RemoteOrder::Hash, RemoteOrder::Merged] {
                println!("seed {seed}, {promise}, {order}");
                let buckets = [1, 4][seed as usize % 2];
                let shape = RemoteShape {
                    promise,
                    order,
                    buckets,
                };
                RemoteRound::new(make, seed, shape).run();
            }
        }
    }
}

/// A sequence of everything.
struct RemoteRound {
    bench: RemoteBench,
    random: Random,
    shape: RemoteShape,
    databases: [(DatabaseId, Model); 2],
    now_ms: u64,
    last_version: u64,
}

impl RemoteRound {
    fn new(make: MakeRemote<'_>, seed: u64, shape: RemoteShape) -> RemoteRound {
        let config = remote_config(shape);
        let mut bench = RemoteBench::new(make(seed, config));
        let other = bench
            .create("other", &config)
            .expect("there is none of this name");
        assert_eq!(bench.store().database("other"), Some(other));
        let databases =
            [DatabaseId::DEFAULT, other].map(|id| (id, Model::new(VALUE_BYTES_MAX, true)));
        RemoteRound {
            bench,
            random: Random::new(seed),
            shape,
            databases,
            now_ms: 1_000,
            last_version: 0,
        }
    }

    fn run(&mut self) {
        let keys = keys();
        for _ in 0..STEPS {
            match self.random.below(20) {
                0..12 => self.commit(&keys),
                12..14 => self.read_keys(&keys),
                14..16 => self.scan(&keys),
                16..18 => self.count(&keys),
                _ => self.pass_time(),
            }
        }
        self.read_keys(&keys);
    }

    fn pass_time(&mut self) {
        if let Some(set_now_ms) = &self.bench.target.set_now_ms {
            self.now_ms += self.random.below(60) as u64;
            set_now_ms(self.now_ms);
        }
    }

    fn commit(&mut self, keys: &[Vec<u8>]) {
        let place = self.random.below(2_usize);
        let mode = (self.random).pick(&[Mode::Atomic, Mode::Independent, Mode::Transact]);
        let operations = self.operations(keys, mode);
        let (database, model) = &mut self.databases[place];
        let outcomes = self.bench.commit(*database, mode, &operations);
        let outcome = outcomes.get(0);
        if let Some(lack) = lack_of(self.shape, mode, &operations) {
            assert_eq!(outcome.decision, Decision::Refused(Refusal::Lacks(lack)));
            return;
        }
        let found = seen(&outcome);
        if mode != Mode::Independent {
            let version = outcome.sequence;
            assert!(version > self.last_version || operations.is_empty());
            self.last_version = version.max(self.last_version);
            let limit = 4 << 20;
            let expected = model.commit(mode, &operations, version, self.now_ms, limit);
            assert_eq!(found, expected, "{mode:?} {operations:?}");
            return;
        }
        assert_eq!(found.decision, Decision::Applied);
        let expected = independent(model, &operations, &found, self.now_ms);
        assert_eq!(found.operations, expected, "{operations:?}");
        self.last_version = outcome.sequence.max(self.last_version);
    }

    fn operations<'k>(
        &mut self,
        keys: &'k [Vec<u8>],
        mode: Mode,
    ) -> Vec<(TransactList, Operation<'k>)> {
        // Half of the commits are about one key, as those on several buckets are refused.
        let only = self
            .random
            .once_in(2)
            .then(|| self.random.below(keys.len()));
        let key_of = |random: &mut Random| match only {
            Some(place) => &keys[place][..],
            None => &keys[random.below(keys.len())][..],
        };
        let mut operations = Vec::new();
        let lists: &[TransactList] = match mode {
            Mode::Transact => &[TransactList::Then, TransactList::Otherwise],
            _ => &[TransactList::Compares],
        };
        if mode == Mode::Transact {
            for _ in 0..self.random.below(3) {
                let key = key_of(&mut self.random);
                let condition = self.condition();
                let compare = Operation::Compare { key, condition };
                operations.push((TransactList::Compares, compare));
            }
        }
        for &list in lists {
            let count = match self.random.once_in(8) {
                true => 100,
                false => 1 + self.random.below(4),
            };
            for _ in 0..count {
                let key = key_of(&mut self.random);
                operations.push((list, self.operation(key)));
            }
        }
        operations
    }

    fn operation<'k>(&mut self, key: &'k [u8]) -> Operation<'k> {
        let is_quorum = self.shape.promise == RemotePromise::Quorum;
        // Where nearly everything is refused, little would be seen of the rest.
        let is_plain = is_quorum && !self.random.once_in(12);
        let condition = match !is_plain && self.random.once_in(3) {
            true => self.condition(),
            false => Condition::None,
        };
        let want_previous = !is_plain && self.random.once_in(3);
        let value = self.random.pick(VALUES);
        let kinds = if is_plain { 7 } else { 11 };
        match self.random.below(kinds) {
            0 => Operation::Get { key },
            1..5 => Operation::Put {
                key,
                value,
                condition,
                expiry: self.expiry(is_plain),
                want_previous,
            },
            5..7 => Operation::Delete {
                key,
                condition,
                want_previous,
            },
            7 => Operation::Append {
                key,
                value: LONG,
                condition,
            },
            8 => Operation::Increment {
                key,
                delta: self.random.pick(&[1, -1, i64::MAX]),
                initial: 5,
                condition,
            },
            9 => Operation::WrappingIncrement {
                key,
                delta: i64::MAX,
                initial: 100,
            },
            _ => Operation::Compare { key, condition },
        }
    }

    fn condition(&mut self) -> Condition<'static> {
        match self.random.below(5) {
            0 => Condition::Absent,
            1 => Condition::Present,
            2 => Condition::VersionIs(0),
            3 => Condition::VersionIs(self.last_version),
            _ => Condition::ValueIs(self.random.pick(VALUES)),
        }
    }

    fn expiry(&mut self, is_plain: bool) -> Expiry {
        if self.bench.target.set_now_ms.is_none() {
            return Expiry::None;
        }
        match self.random.below(6) {
            0 if !is_plain => Expiry::Keep,
            1 => Expiry::AfterMs(self.random.below(80) as u64),
            2 => Expiry::AtMs(self.random.pick(&[0, 1, 1_000, 1_200])),
            _ => Expiry::None,
        }
    }

    fn read_keys(&mut self, keys: &[Vec<u8>]) {
        for (database, model) in &self.databases {
            for key in keys {
                let found = stored(&mut self.bench, *database, key, self.now_ms);
                assert_eq!(found.as_ref(), model.get(key, self.now_ms), "{key:?}");
            }
        }
    }

    fn scan(&mut self, keys: &[Vec<u8>]) {
        let range = random_range(&mut self.random, keys);
        let direction = self.random.pick(&[Direction::Forward, Direction::Backward]);
        let (database, model) = &self.databases[self.random.below(2_usize)];
        let in_range = |(key, _): &(&[u8], &Stored)| range.contains(key);
        let live = model.live(self.now_ms).into_iter().filter(in_range);
        let mut expected: Vec<(Vec<u8>, Stored)> = live
            .map(|(key, stored)| (key.to_vec(), stored.clone()))
            .collect();
        if self.shape.order == RemoteOrder::Hash {
            expected.sort_by_key(|(key, _)| (self.shape.bucket_of(key), key.clone()));
        }
        if direction == Direction::Backward {
            expected.reverse();
        }
        let mut found: Vec<(Vec<u8>, Stored)> = Vec::new();
        let mut passed: Option<Vec<u8>> = None;
        loop {
            let page = PageRequest {
                direction,
                keys_only: false,
                rows: 100,
                entries: 1 + self.random.below(4_u64),
                bytes: 10_000,
            };
            let fetched = self.bench.read(*database, |plan| {
                plan.page_behind(&range, passed.as_deref(), page);
            });
            let call = fetched.fetched().calls().next().expect("one was asked for");
            let view = ReadView::fetched(&call).expect("it was read");
            let end = view.scan(&range, direction, self.now_ms, 100, &mut |entry| {
                let stored = Stored {
                    value: entry.value.to_vec(),
                    version: entry.version,
                    expires_ms: entry.expires_ms,
                };
                found.push((entry.key.to_vec(), stored));
                std::ops::ControlFlow::Continue(())
            });
            match end.expect("it was planned") {
                ScanEnd::Complete => break,
                ScanEnd::BudgetSpent(key) => passed = Some(key.to_vec()),
                ScanEnd::Stopped => panic!("the visitor goes on"),
            }
        }
        assert_eq!(found, expected, "{range:?} {direction:?}");
    }

    fn count(&mut self, keys: &[Vec<u8>]) {
        let range = random_range(&mut self.random, keys);
        let (database, model) = &self.databases[self.random.below(2_usize)];
        let live = model.live(self.now_ms);
        let expected = live.iter().filter(|(key, _)| range.contains(key)).count() as u64;
        let fetched = self
            .bench
            .read(*database, |plan| plan.count(&range, 100, false));
        let call = fetched.fetched().calls().next().expect("one was asked for");
        let view = ReadView::fetched(&call).expect("it was read");
        let counted = view
            .count(&range, self.now_ms, 100)
            .expect("it was planned");
        assert_eq!(
            (counted.count, counted.passed),
            (expected, None),
            "{range:?}"
        );
    }
}

/// The entry of a key.
fn stored(
    bench: &mut RemoteBench,
    database: DatabaseId,
    key: &[u8],
    now_ms: u64,
) -> Option<Stored> {
    let fetched = bench.read(database, |plan| plan.key(key));
    let call = fetched.fetched().calls().next().expect("one was asked for");
    let view = ReadView::fetched(&call).expect("it was read");
    let entry = view.get(key, 0, now_ms).expect("it was planned");
    entry.map(|entry| Stored {
        value: entry.value.to_vec(),
        version: entry.version,
        expires_ms: entry.expires_ms,
    })
}

/// At the borders of the forms in which they are kept.
const VALUES: &[&[u8]] = &[
    b"",
    b"a",
    b"ab",
    &[0; 8],
    &[0xff; 8],
    b"nine.....",
    &[b'v'; 16 * 1024],
];

/// Three of them are too much.
const LONG: &[u8] = &[b'l'; 15_000];

fn keys() -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> = ["", "\0", "a", "a\0", "ab", "b", "key-1"]
        .map(|key| key.as_bytes().to_vec())
        .to_vec();
    keys.extend([vec![0xff], vec![0xff, 0xff], vec![b'k'; 300]]);
    keys
}

fn random_range<'k>(random: &mut Random, keys: &'k [Vec<u8>]) -> Range<'k> {
    let mut end = || {
        let key = &keys[random.below(keys.len())][..];
        random.pick(&[Bound::Unbounded, Bound::Included(key), Bound::Excluded(key)])
    };
    Range {
        start: end(),
        end: end(),
    }
}

/// What the model says of an independent commit, in which each key has a version of its own.
fn independent(
    model: &mut Model,
    operations: &[(TransactList, Operation<'_>)],
    found: &ExpectedCommit,
    now_ms: u64,
) -> Vec<super::model::Expected> {
    assert_eq!(found.operations.len(), operations.len());
    let mut expected: Vec<_> = operations.iter().map(|_| None).collect();
    for place in 0..operations.len() {
        if expected[place].is_some() {
            continue;
        }
        let key = key_of(&operations[place].1);
        let alike = (0..operations.len()).filter(|&other| key_of(&operations[other].1) == key);
        let alike: Vec<usize> = alike.collect();
        let version = alike
            .iter()
            .map(|&place| found.operations[place].after.version)
            .max();
        let its_operations: Vec<_> = alike.iter().map(|&place| operations[place]).collect();
        let version = version.unwrap_or(0);
        let of_key = model.commit(Mode::Independent, &its_operations, version, now_ms, 4 << 20);
        for (outcome, place) in of_key.operations.into_iter().zip(alike) {
            expected[place] = Some(outcome);
        }
    }
    expected.into_iter().flatten().collect()
}

fn key_of<'k>(operation: &Operation<'k>) -> &'k [u8] {
    match *operation {
        Operation::Get { key }
        | Operation::Put { key, .. }
        | Operation::Delete { key, .. }
        | Operation::Append { key, .. }
        | Operation::Increment { key, .. }
        | Operation::WrappingIncrement { key, .. }
        | Operation::Compare { key, .. }
        | Operation::Expire { key } => key,
        Operation::Clear => &[],
    }
}

/// What an engine cannot do of a commit.
fn lack_of(
    shape: RemoteShape,
    mode: Mode,
    operations: &[(TransactList, Operation<'_>)],
) -> Option<Lack> {
    let is_alone = mode == Mode::Independent || operations.len() == 1;
    let depends = |operation: &Operation<'_>| match operation {
        Operation::Get { .. } => !is_alone,
        Operation::Put {
            condition,
            expiry,
            want_previous,
            ..
        } => *condition != Condition::None || *expiry == Expiry::Keep || *want_previous,
        Operation::Delete {
            condition,
            want_previous,
            ..
        } => *condition != Condition::None || *want_previous,
        _ => true,
    };
    let dependent = operations
        .iter()
        .position(|(_, operation)| depends(operation));
    if let (RemotePromise::Quorum, Some(operation)) = (shape.promise, dependent) {
        let operation = operation as u32;
        return Some(Lack::NeedsLinearizable { operation });
    }
    let bucket = |place: usize| shape.bucket_of(key_of(&operations[place].1));
    let other = (1..operations.len()).find(|&place| bucket(place) != bucket(0));
    match (mode, other) {
        (Mode::Independent, _) | (_, None) => None,
        (_, Some(other)) => Some(Lack::SeveralBuckets {
            first: 0,
            other: other as u32,
        }),
    }
}
