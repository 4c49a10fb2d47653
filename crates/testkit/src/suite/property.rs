//! Random sequences of everything, answered by an engine and by the model.

use std::ops::{Bound, ControlFlow};

use store::limits;
use store::{
    Clock, CommitOutcome, Condition, DatabaseId, DatabaseLimits, Defragmentation, Direction,
    Expiry, Mode, Operation, Range, ScanEnd, StoreConfig, TransactList,
};

use super::model::{Expected, ExpectedCommit, Model, Stored};
use super::{Bench, Make};
use crate::Random;

/// CommitLoop, unless the environment variable `PELTON_ROUNDS` says otherwise.
const ROUNDS: u64 = 200;

/// Steps of one round, each of which is a batch of commits, or reads, or time passing.
const STEPS: usize = 60;

/// Small enough for Appends to meet it.
const VALUE_BYTES_MAX: usize = 40_000;

/// Runs the rounds, from the seed in the environment variable `PELTON_SEED` on if it is set. When
/// one fails, its seed is printed.
pub fn run_property(make: Make<'_>) {
    let variable = |name: &str| {
        std::env::var(name)
            .ok()
            .map(|text| text.parse::<u64>().expect("a number"))
    };
    let first = variable("PELTON_SEED").unwrap_or(1);
    let rounds = variable("PELTON_ROUNDS").unwrap_or(ROUNDS);
    for seed in first..first + rounds {
        let failed = FailedSeed(seed);
        Round::new(make, seed).run();
        std::mem::forget(failed);
    }
}

/// Prints the seed if the round panics.
struct FailedSeed(u64);

impl Drop for FailedSeed {
    fn drop(&mut self) {
        println!("failed: PELTON_SEED={} PELTON_ROUNDS=1", self.0);
    }
}

struct Round {
    bench: Bench,
    random: Random,
    limits: DatabaseLimits,
    databases: [(DatabaseId, Model); 2],
    /// The store's clock: the latest time shown to it.
    now_ms: u64,
    last_sequence: u64,
    defragmentation: Defragmentation,
}

/// Goes on by half a slice each time it is read.
struct SteppingClock(u64);

impl Clock for SteppingClock {
    fn now_ns(&mut self) -> u64 {
        self.0 += limits::SLICE_NS / 2;
        self.0
    }

    fn now_ms(&mut self) -> u64 {
        1
    }
}

/// What the operations are about. Few keys and values, so that they meet; with keys and values at
/// the borders of the forms in which they are stored.
struct Words {
    keys: Vec<Vec<u8>>,
    values: Vec<Vec<u8>>,
}

impl Words {
    fn new() -> Words {
        let mut keys: Vec<Vec<u8>> = ["", "\0", "a", "a\0", "ab", "abc", "b", "key-1", "key-2"]
            .iter()
            .map(|key| key.as_bytes().into())
            .collect();
        keys.extend([
            vec![0xff],
            vec![0xff, 0xff],
            vec![b'k'; 22],
            vec![b'k'; 23],
            vec![b'k'; 300],
        ]);
        let mut values: Vec<Vec<u8>> = [
            "",
            "a",
            "b",
            "ab",
            "abb",
            "seven..",
            "eight...",
            "nine.....",
        ]
        .iter()
        .map(|value| value.as_bytes().into())
        .collect();
        values.extend([0, 1, -1, i64::MAX, i64::MIN].map(|number| number.to_be_bytes().to_vec()));
        values.extend([vec![b'v'; 16 * 1024 - 1], vec![b'v'; 16 * 1024]]);
        Words { keys, values }
    }
}

impl Round {
    fn new(make: Make<'_>, seed: u64) -> Round {
        let limits = DatabaseLimits::for_values(VALUE_BYTES_MAX);
        let mut config = StoreConfig::new(seed);
        config.default_database.limits = limits;
        let mut bench = Bench::with(make, config);
        let now_ms = bench.clock.now_ms;
        let is_on_disk = bench.engine.is_on_disk();
        let databases = [DatabaseId::DEFAULT, create(&mut bench, limits)]
            .map(|database| (database, Model::new(VALUE_BYTES_MAX, is_on_disk)));
        Round {
            bench,
            random: Random::new(seed),
            limits,
            databases,
            now_ms,
            last_sequence: 0,
            defragmentation: Defragmentation::default(),
        }
    }

    fn run(&mut self) {
        let words = Words::new();
        for _ in 0..STEPS {
            match self.random.below(22) {
                0..10 => self.batch(&words),
                10..13 => self.read_keys(&words),
                13..15 => self.scan(&words),
                15..17 => self.count(&words),
                17..19 => self.pass_time(),
                19 => self.sweep(),
                20 => self.defragment(),
                _ if self.random.once_in(4) => self.replace_database(),
                _ => self.clear(),
            }
        }
        self.read_keys(&words);
    }

    fn pass_time(&mut self) {
        // Now and then the wall clock goes back; the store's must not.
        let wall_ms = self.now_ms + self.random.below(60) as u64;
        self.bench.clock.now_ms = if self.random.once_in(8) {
            wall_ms.saturating_sub(500)
        } else {
            wall_ms
        };
        self.now_ms = self.bench.store.clock_ms(self.bench.clock.now_ms);
        assert!(self.now_ms >= self.bench.clock.now_ms);
    }

    fn sweep(&mut self) {
        let is_on_disk = self.bench.engine.is_on_disk();
        let Bench { store, batch, .. } = &mut self.bench;
        let due_ms = store.sweep_due_ms();
        for (_, model) in &self.databases {
            let expires_ms = model.first_expiry_ms();
            let latest_ms = expires_ms.map_or(u64::MAX, |ms| ms + limits::SWEEP_DELAY_MS);
            assert!(
                due_ms <= latest_ms || is_on_disk,
                "a sweep is due after every expiry"
            );
        }
        let swept = store.sweep(self.now_ms, batch);
        if is_on_disk {
            assert_eq!(swept, 0);
            return;
        }
        if due_ms > self.now_ms {
            assert_eq!(swept, 0);
            return;
        }
        self.bench.run();
        let mut expected = 0;
        for (database, model) in &mut self.databases {
            expected += model.sweep(self.now_ms);
            let view = self.bench.view(*database);
            assert_eq!(view.expired(self.now_ms).len(), 0);
        }
        assert_eq!(swept, expected, "there are fewer keys than one sweep takes");
        for outcome in self.bench.outcomes.iter() {
            assert!(outcome.operations().all(|one| one.counter == 1));
            self.last_sequence = outcome.sequence;
        }
    }

    /// Some slices of a pass that goes on in later steps.
    fn defragment(&mut self) {
        for _ in 0..1 + self.random.below(3) {
            let store = &self.bench.store;
            store.defragment(&mut self.defragmentation, &mut SteppingClock(0));
        }
    }

    fn replace_database(&mut self) {
        let old = self.databases[1].0;
        self.bench.drop_database(old).expect("it was there");
        assert!(self.bench.store.config(old).is_none());
        let new = create(&mut self.bench, self.limits);
        assert!(new > old, "ids are not reused");
        let is_on_disk = self.bench.engine.is_on_disk();
        self.databases[1] = (new, Model::new(VALUE_BYTES_MAX, is_on_disk));
    }

    fn clear(&mut self) {
        let (database, model) = &mut self.databases[self.random.below(2)];
        self.bench.add(*database, Mode::Atomic, &[Operation::Clear]);
        self.bench.run();
        let outcome = self.bench.outcomes.get(0);
        let expected = model.commit(
            Mode::Atomic,
            &[(TransactList::Compares, Operation::Clear)],
            outcome.sequence,
            self.now_ms,
            1000,
        );
        // How many expired entries were left to clear is not promised.
        assert_eq!(outcome.decision, expected.decision);
        let view = self.bench.view(*database);
        assert_eq!(view.entries(), 0);
        assert!((view.memory()).is_none_or(|view| view.statistics().memory_bytes == 0));
    }

    fn batch(&mut self, words: &Words) {
        let mut planned = Vec::new();
        for tag in 0..1 + self.random.below(4) as u64 {
            let place = self.random.below(2);
            let mode = self
                .random
                .pick(&[Mode::Atomic, Mode::Independent, Mode::Transact]);
            let operations = self.operations(words, place, mode);
            let answer_limit = if self.random.once_in(10) {
                self.random.below(500)
            } else {
                1 << 20
            };
            let mut commit = self.bench.batch.begin(tag, self.databases[place].0, mode);
            commit.limit_answer(answer_limit);
            let mut list = TransactList::Compares;
            for (its_list, operation) in &operations {
                if *its_list != list {
                    list = *its_list;
                    commit.list(list);
                }
                commit.push(operation).expect("within the limits");
            }
            if self.random.once_in(10) {
                drop(commit);
                continue;
            }
            commit.submit();
            planned.push((tag, place, mode, operations, answer_limit));
        }
        self.bench.run();
        assert_eq!(self.bench.outcomes.len(), planned.len());
        for (outcome, (tag, place, mode, operations, answer_limit)) in
            self.bench.outcomes.iter().zip(planned)
        {
            assert_eq!(outcome.tag, tag);
            assert!(outcome.sequence > self.last_sequence, "sequences grow");
            self.last_sequence = outcome.sequence;
            let model = &mut self.databases[place].1;
            let expected = model.commit(
                mode,
                &operations,
                outcome.sequence,
                self.now_ms,
                answer_limit,
            );
            assert_eq!(seen(&outcome), expected, "{mode:?} {operations:?}");
            let view = self.bench.view(outcome.database);
            assert!(view.sequence() >= outcome.sequence);
        }
    }

    fn operations<'w>(
        &mut self,
        words: &'w Words,
        place: usize,
        mode: Mode,
    ) -> Vec<(TransactList, Operation<'w>)> {
        let mut operations = Vec::new();
        if mode == Mode::Transact {
            for _ in 0..self.random.below(3) {
                let key = &words.keys[self.random.below(words.keys.len())];
                let condition = self.condition(words, place, key);
                operations.push((
                    TransactList::Compares,
                    Operation::Compare { key, condition },
                ));
            }
            for list in [TransactList::Then, TransactList::Otherwise] {
                for _ in 0..self.random.below(5) {
                    operations.push((list, self.operation(words, place)));
                }
            }
        } else {
            // Now and then so many that the effects need their table.
            let count = if self.random.once_in(6) {
                40
            } else {
                self.random.below(6)
            };
            operations
                .extend((0..count).map(|_| (TransactList::Compares, self.operation(words, place))));
        }
        operations
    }

    fn operation<'w>(&mut self, words: &'w Words, place: usize) -> Operation<'w> {
        let key = &words.keys[self.random.below(words.keys.len())];
        let value = &words.values[self.random.below(words.values.len())];
        let condition = if self.random.once_in(3) {
            self.condition(words, place, key)
        } else {
            Condition::None
        };
        let want_previous = self.random.once_in(3);
        match self.random.below(12) {
            0..2 => Operation::Get { key },
            2..5 => Operation::Put {
                key,
                value,
                condition,
                expiry: self.expiry(),
                want_previous,
            },
            5 => Operation::Delete {
                key,
                condition,
                want_previous,
            },
            6..8 => Operation::Append {
                key,
                value,
                condition,
            },
            8 => {
                let delta = self.random.pick(&[0, 1, -1, 1000, i64::MAX, i64::MIN]);
                let initial = self.random.pick(&[0, 5, i64::MAX]);
                Operation::Increment {
                    key,
                    delta,
                    initial,
                    condition,
                }
            }
            9 => Operation::WrappingIncrement {
                key,
                delta: self.random.pick(&[1, -1, i64::MAX, i64::MIN]),
                initial: self.random.pick(&[0, 100]),
            },
            10 => Operation::Expire { key },
            _ => Operation::Compare { key, condition },
        }
    }

    fn expiry(&mut self) -> Expiry {
        match self.random.below(6) {
            0 => Expiry::Keep,
            1 => Expiry::AfterMs(self.random.below(80) as u64),
            2 => Expiry::AtMs(self.random.pick(&[0, 1, 1_000, 1_050, 1_200])),
            _ => Expiry::None,
        }
    }

    fn condition<'w>(&mut self, words: &'w Words, place: usize, key: &[u8]) -> Condition<'w> {
        let stored = self.databases[place].1.get(key, self.now_ms);
        let version = stored.map_or(0, |stored| stored.version);
        let same =
            stored.and_then(|stored| words.values.iter().find(|value| **value == stored.value));
        match self.random.below(6) {
            0 => Condition::Absent,
            1 => Condition::Present,
            2 => Condition::VersionIs(version),
            3 => Condition::VersionIs(self.random.below(100) as u64),
            4 => Condition::ValueIs(same.unwrap_or(&words.values[1])),
            _ => Condition::ValueIs(&words.values[self.random.below(words.values.len())]),
        }
    }

    fn read_keys(&self, words: &Words) {
        for (database, model) in &self.databases {
            let view = self.bench.view(*database);
            for key in &words.keys {
                let entry = view.get(key, self.bench.store.hasher().hash(key), self.now_ms);
                assert!(entry.is_none_or(|entry| entry.key == key));
                let found = entry.map(|entry| Stored {
                    value: entry.value.to_vec(),
                    version: entry.version,
                    expires_ms: entry.expires_ms,
                });
                assert_eq!(found.as_ref(), model.get(key, self.now_ms), "{key:?}");
            }
        }
    }

    fn scan(&mut self, words: &Words) {
        let range = random_range(&mut self.random, words);
        let direction = self.random.pick(&[Direction::Forward, Direction::Backward]);
        let (database, model) = &self.databases[self.random.below(2)];
        let view = self.bench.view(*database);
        let mut expected: Vec<_> = model
            .live(self.now_ms)
            .into_iter()
            .filter(|(key, _)| range.contains(key))
            .collect();
        if direction == Direction::Backward {
            expected.reverse();
        }
        let mut found = Vec::new();
        let mut rest = range;
        loop {
            // Pages ended by the visitor's will or by the budget, whichever is first.
            let (page_rows, budget_rows) = (1 + self.random.below(5), self.random.below(8) as u32);
            let page_end = found.len() + page_rows;
            let end = view.scan(&rest, direction, self.now_ms, budget_rows, &mut |entry| {
                let &store::Entry {
                    key,
                    value,
                    version,
                    expires_ms,
                } = entry;
                found.push((
                    key,
                    Stored {
                        value: value.to_vec(),
                        version,
                        expires_ms,
                    },
                ));
                if found.len() == page_end {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            });
            let passed = match end {
                ScanEnd::Complete => break,
                ScanEnd::Stopped => found.last().expect("a visitor has stopped it").0,
                ScanEnd::BudgetSpent(passed) => passed,
            };
            rest = rest.beyond(passed, direction);
        }
        let found: Vec<_> = found.iter().map(|(key, stored)| (*key, stored)).collect();
        assert_eq!(found, expected, "{range:?} {direction:?}");
    }

    fn count(&mut self, words: &Words) {
        let range = random_range(&mut self.random, words);
        let (database, model) = &self.databases[self.random.below(2)];
        let view = self.bench.view(*database);
        let expected = model
            .live(self.now_ms)
            .iter()
            .filter(|(key, _)| range.contains(key))
            .count() as u64;
        let (mut count, mut rest) = (0, range);
        loop {
            let slice = view.count(&rest, self.now_ms, self.random.below(40) as u32);
            count += slice.count;
            match slice.passed {
                Some(passed) => rest = rest.beyond(passed, Direction::Forward),
                None => break,
            }
        }
        assert_eq!(count, expected, "{range:?}");
    }
}

fn create(bench: &mut Bench, limits: DatabaseLimits) -> DatabaseId {
    let config = store::DatabaseConfig {
        limits,
        ..bench.engine.database_config()
    };
    bench
        .create_database("other", config.of_kind(config.kind))
        .expect("there is none of this name")
}

fn random_range<'w>(random: &mut Random, words: &'w Words) -> Range<'w> {
    let mut end = || {
        let key = &words.keys[random.below(words.keys.len())][..];
        random.pick(&[Bound::Unbounded, Bound::Included(key), Bound::Excluded(key)])
    };
    Range {
        start: end(),
        end: end(),
    }
}

pub(super) fn seen(outcome: &CommitOutcome<'_>) -> ExpectedCommit {
    let operations = outcome.operations().map(|operation| Expected {
        status: operation.status,
        before: operation.before,
        after: operation.after,
        counter: operation.counter,
        value: operation.value.map(|value| value.to_vec()),
    });
    ExpectedCommit {
        decision: outcome.decision,
        unmet_compare: outcome.unmet_compare,
        operations: operations.collect(),
    }
}
