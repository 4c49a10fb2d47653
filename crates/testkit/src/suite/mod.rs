//! The tests that every engine must pass: what a caller may rely on, checked through the public
//! contract alone.
//!
//! An engine's tests implement [`Engine`] and call [`run_cases`] and [`run_property`].

mod cases;
mod model;
mod property;
mod remote;
mod remote_bench;
mod view;

pub use property::run_property;
pub use remote::{MakeRemote, remote_config, run_remote};
pub use remote_bench::{GatheredAnswers, RemoteBench, RemoteTarget};
pub use view::SuiteView;

use std::time::Instant;

use store::{
    Clock, CommitOutcome, Condition, CreateError, DatabaseConfig, DatabaseId, Decision, DropError,
    Expiry, Kind, Mode, Operation, Outcomes, Refusal, Store, StoreConfig, WriteBatch,
};

use crate::Random;

/// A store with whatever carries out its commits.
pub trait Engine {
    /// The store.
    fn store(&self) -> &Store;

    /// Carries out a batch. Returns when all its outcomes are there. Afterwards the store may be
    /// another one with the same content: one that was opened again.
    fn run(&mut self, batch: &mut WriteBatch, clock: &mut dyn Clock, outcomes: &mut Outcomes);

    /// The configuration of this engine's databases, but for their limits.
    fn database_config(&self) -> DatabaseConfig;

    /// Whether its databases are on disk: then a Put that needs not know what was there does not
    /// say it either, nobody sweeps, and what is full is another matter.
    fn is_on_disk(&self) -> bool {
        self.database_config().kind == Kind::Disk
    }
}

/// Makes an engine with an empty default database; the kind and durability of `config` are the
/// engine's own to set.
pub type Make<'a> = &'a dyn Fn(StoreConfig) -> Box<dyn Engine>;

/// Runs all cases, each on a fresh engine.
pub fn run_cases(make: Make<'_>) {
    run_cases_but(make, &[]);
}

/// The same without some, by their names.
pub fn run_cases_but(make: Make<'_>, left_out: &[&str]) {
    for name in left_out {
        assert!(cases::all().any(|(other, _)| other == name), "{name}");
    }
    for (name, case) in cases::all().filter(|(name, _)| !left_out.contains(name)) {
        println!("case {name}");
        case(make);
    }
}

/// A clock that stands still until it is set.
#[derive(Clone, Copy, Debug)]
pub struct StandingClock {
    /// Milliseconds since 1970.
    pub now_ms: u64,
}

impl Clock for StandingClock {
    fn now_ns(&mut self) -> u64 {
        self.now_ms * 1_000_000
    }

    fn now_ms(&mut self) -> u64 {
        self.now_ms
    }
}

/// The clocks of a machine: one that only goes on, and one that somebody sets.
#[derive(Clone, Copy, Debug)]
pub struct MachineClock {
    monotonic_ms: u64,
    /// Milliseconds since 1970.
    pub wall_ms: u64,
}

const HOUR_MS: u64 = 3_600_000;
const TEN_YEARS_MS: u64 = 10 * 365 * 24 * HOUR_MS;

impl MachineClock {
    /// A machine that shows so many milliseconds since 1970.
    pub fn new(wall_ms: u64) -> MachineClock {
        MachineClock {
            monotonic_ms: 1_000,
            wall_ms,
        }
    }

    /// Time passes.
    pub fn pass(&mut self, ms: u64) {
        self.monotonic_ms += ms;
        self.wall_ms += ms;
    }

    /// Somebody sets the wall clock: by an hour or by ten years, forth or back, not before 1970.
    pub fn jump(&mut self, random: &mut Random) {
        let by_ms = match random.once_in(2) {
            true => HOUR_MS,
            false => TEN_YEARS_MS,
        };
        self.wall_ms = match random.once_in(2) {
            true => self.wall_ms + by_ms,
            false => self.wall_ms.saturating_sub(by_ms),
        };
    }
}

impl Clock for MachineClock {
    fn now_ns(&mut self) -> u64 {
        self.monotonic_ms * 1_000_000
    }

    fn now_ms(&mut self) -> u64 {
        self.wall_ms
    }
}

/// A clock that goes on, for threads.
#[derive(Clone, Copy, Debug)]
pub struct RunningClock {
    begin: Instant,
    begin_ms: u64,
}

impl RunningClock {
    /// A clock that shows so many milliseconds since 1970 now.
    pub fn new(begin_ms: u64) -> RunningClock {
        RunningClock {
            begin: Instant::now(),
            begin_ms,
        }
    }
}

impl Clock for RunningClock {
    fn now_ns(&mut self) -> u64 {
        self.begin.elapsed().as_nanos() as u64
    }

    fn now_ms(&mut self) -> u64 {
        self.begin_ms + self.begin.elapsed().as_millis() as u64
    }
}

/// An engine with what one client of it needs.
pub struct Bench {
    /// The engine.
    pub engine: Box<dyn Engine>,
    /// Its store.
    pub store: Store,
    /// The time.
    pub clock: StandingClock,
    /// The commits to come.
    pub batch: WriteBatch,
    /// What became of the last ones.
    pub outcomes: Outcomes,
}

impl Bench {
    /// An engine with default limits, at a time of 1000 ms.
    pub fn new(make: Make<'_>) -> Bench {
        Bench::with(make, StoreConfig::new(1))
    }

    /// An engine as configured, at a time of 1000 ms.
    pub fn with(make: Make<'_>, config: StoreConfig) -> Bench {
        let engine = make(config);
        let store = engine.store().clone();
        let batch = store.write_batch();
        Bench {
            engine,
            store,
            clock: StandingClock { now_ms: 1000 },
            batch,
            outcomes: Outcomes::new(),
        }
    }

    /// Adds a commit to the batch.
    pub fn add(&mut self, database: DatabaseId, mode: Mode, operations: &[Operation<'_>]) {
        let mut commit = self.batch.begin(0, database, mode);
        for operation in operations {
            commit.push(operation).expect("within the limits");
        }
        commit.submit();
    }

    /// Carries out the batch.
    pub fn run(&mut self) {
        self.engine
            .run(&mut self.batch, &mut self.clock, &mut self.outcomes);
        assert!(self.batch.is_empty());
        self.follow();
    }

    /// The engine may have another store now.
    fn follow(&mut self) {
        self.store = self.engine.store().clone();
        if self.batch.is_empty() {
            self.batch = self.store.write_batch();
        }
    }

    /// Carries out one commit on the default database.
    pub fn commit(&mut self, mode: Mode, operations: &[Operation<'_>]) -> CommitOutcome<'_> {
        self.add(DatabaseId::DEFAULT, mode, operations);
        self.run();
        assert_eq!(self.outcomes.len(), 1);
        self.outcomes.get(0)
    }

    /// Puts a value, which must succeed, and returns its version.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> u64 {
        let outcome = self.commit(Mode::Atomic, &[put(key, value)]);
        assert_eq!(outcome.decision, Decision::Applied);
        outcome.sequence
    }

    /// Creates a database, by a commit of its own.
    pub fn create_database(
        &mut self,
        name: &str,
        config: DatabaseConfig,
    ) -> Result<DatabaseId, CreateError> {
        let mut batch = self.store.write_batch();
        batch.create_database(0, name, &config);
        let outcome = self.run_apart(&mut batch);
        match outcome.get(0).decision {
            Decision::Applied => Ok(outcome.get(0).database),
            Decision::Refused(Refusal::NotCreated(error)) => Err(error),
            other => panic!("a creation is applied or refused: {other:?}"),
        }
    }

    /// Drops a database, by a commit of its own.
    pub fn drop_database(&mut self, id: DatabaseId) -> Result<(), DropError> {
        let mut batch = self.store.write_batch();
        batch.drop_database(0, id);
        match self.run_apart(&mut batch).get(0).decision {
            Decision::Applied => Ok(()),
            Decision::Refused(Refusal::NotDropped(error)) => Err(error),
            other => panic!("a drop is applied or refused: {other:?}"),
        }
    }

    /// Drops a database if it is empty, by a commit of its own.
    pub fn drop_empty_database(&mut self, id: DatabaseId) -> Result<(), DropError> {
        let mut batch = self.store.write_batch();
        batch.drop_empty_database(0, id);
        match self.run_apart(&mut batch).get(0).decision {
            Decision::Applied => Ok(()),
            Decision::Refused(Refusal::NotDropped(error)) => Err(error),
            other => panic!("a drop is applied or refused: {other:?}"),
        }
    }

    /// Carries out a batch of its own, and leaves what the bench has in the making.
    fn run_apart(&mut self, batch: &mut WriteBatch) -> Outcomes {
        let mut outcomes = Outcomes::new();
        self.engine.run(batch, &mut self.clock, &mut outcomes);
        assert!(batch.is_empty() && outcomes.len() == 1);
        self.follow();
        outcomes
    }

    /// What readers see of a database.
    pub fn view(&self, database: DatabaseId) -> SuiteView<'_> {
        SuiteView::of(&self.store, database).expect("the database exists")
    }

    /// A visible value of the default database.
    pub fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.get_from(DatabaseId::DEFAULT, key)
    }

    /// A visible value.
    pub fn get_from(&self, database: DatabaseId, key: &[u8]) -> Option<Vec<u8>> {
        let view = self.view(database);
        let now_ms = self.store.clock_ms(self.clock.now_ms);
        view.get(key, self.store.hasher().hash(key), now_ms)
            .map(|entry| entry.value.to_vec())
    }
}

/// A plain Put.
pub fn put<'a>(key: &'a [u8], value: &'a [u8]) -> Operation<'a> {
    put_if(key, value, Condition::None)
}

/// A Put on a condition.
pub fn put_if<'a>(key: &'a [u8], value: &'a [u8], condition: Condition<'a>) -> Operation<'a> {
    Operation::Put {
        key,
        value,
        condition,
        expiry: Expiry::None,
        want_previous: false,
    }
}

/// A Put with a time to live.
pub fn put_expiring<'a>(key: &'a [u8], value: &'a [u8], expiry: Expiry) -> Operation<'a> {
    Operation::Put {
        key,
        value,
        condition: Condition::None,
        expiry,
        want_previous: false,
    }
}

/// A plain Delete.
pub fn delete(key: &[u8]) -> Operation<'_> {
    Operation::Delete {
        key,
        condition: Condition::None,
        want_previous: false,
    }
}

/// A plain Append.
pub fn append<'a>(key: &'a [u8], value: &'a [u8]) -> Operation<'a> {
    Operation::Append {
        key,
        value,
        condition: Condition::None,
    }
}

/// An Increment of a counter that begins at 0.
pub fn increment(key: &[u8], delta: i64) -> Operation<'_> {
    Operation::Increment {
        key,
        delta,
        initial: 0,
        condition: Condition::None,
    }
}

/// A Get.
pub fn get(key: &[u8]) -> Operation<'_> {
    Operation::Get { key }
}
