//! Loss of power with databases on disk: the folder of trees as it is after each step and in the
//! midst of it, with the log as it is then and later. What a start finds must be what there was
//! after a commit, and not before the last one that was answered; and what is written afterwards
//! must stay too.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use store::{
    DatabaseConfig, DatabaseId, Decision, Direction, Durability, Kind, Mode, Operation, Outcomes,
    Range, Store, StoreConfig,
};
use testkit::suite::{Engine, StandingClock, SuiteView, delete, increment, put};
use testkit::{Files, Random, read_folder, write_folder};
use wal::disk::{Disk, SimulatedDisk};

use crate::tree_bench::{OnDisk, TempFolder};

/// Value, version and expiry of each key.
pub type Content = BTreeMap<Vec<u8>, (Vec<u8>, u64, u64)>;

/// Kind and content of each database.
pub type State = BTreeMap<String, (Kind, Content)>;

/// States of the device in the midst of a step. Before the list of tables of a tree is replaced,
/// everything new may be there, in part or whole; afterwards everything old may still be there.
fn between(random: &mut Random, before: &Files, after: &Files) -> Vec<Files> {
    let is_current = |name: &Path| name.file_name().is_some_and(|name| name == "current");
    let mut states = Vec::new();
    for _ in 0..2 {
        let mut state = before.clone();
        for (name, bytes) in after.iter().filter(|(name, _)| !is_current(name)) {
            if !before.contains_key(name) && !random.once_in(3) {
                let whole = random.once_in(2);
                let len = if whole {
                    bytes.len()
                } else {
                    random.below(bytes.len() + 1)
                };
                state.insert(name_before(before, name), bytes[..len].to_vec());
            }
        }
        states.push(state);
        let mut state = after.clone();
        for (name, bytes) in before.iter().filter(|(name, _)| !is_current(name)) {
            if !random.once_in(3) {
                state.entry(name.clone()).or_insert_with(|| bytes.clone());
            }
        }
        states.push(state);
    }
    states
}

/// The name of a new file while a step is not done: a tree that is made has its own name when it is
/// whole.
fn name_before(before: &Files, name: &Path) -> PathBuf {
    // trees/1-23/tables/4
    let tree: PathBuf = name.components().take(2).collect();
    if before.keys().any(|other| other.starts_with(&tree)) {
        return name.into();
    }
    let unfinished = format!("{}.new", tree.display());
    let within = name.strip_prefix(&tree).expect("it begins with it");
    Path::new(&unfinished).join(within)
}

/// Snapshots that are there: they say which lists of tables there must be.
fn snapshots(disk: &SimulatedDisk) -> Vec<String> {
    let names = disk.list().expect("it can be listed").into_iter();
    names.filter(|name| name.ends_with(".snapshot")).collect()
}

pub fn state_of(store: &Store) -> State {
    let content = |id| {
        let view = SuiteView::of(store, id).expect("nobody drops it meanwhile");
        let mut content = Content::new();
        // At time 0 nothing has expired.
        view.scan(&Range::ALL, Direction::Forward, 0, u32::MAX, &mut |entry| {
            let rest = (entry.value.to_vec(), entry.version, entry.expires_ms);
            content.insert(entry.key.to_vec(), rest);
            ControlFlow::Continue(())
        });
        content
    };
    let databases = store.databases().into_iter();
    databases
        .map(|database| (database.name, (database.config.kind, content(database.id))))
        .collect()
}

/// A moment: what was visible, and what was on the device.
struct Moment {
    state: State,
    folder: Files,
    log: SimulatedDisk,
    step: Step,
}

/// What led to a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// It has changed nothing but the folder.
    Flush,
    /// The folder is changed before the log.
    Convert,
    /// The folder is changed after the log, if at all.
    Commit,
}

struct Run {
    seed: u64,
    random: Random,
    clock: StandingClock,
    config: StoreConfig,
    on_disk: OnDisk,
    moments: Vec<Moment>,
}

impl Run {
    fn new(seed: u64, durability: Durability) -> Run {
        let mut clock = StandingClock { now_ms: 1000 };
        let mut config = StoreConfig::new(seed);
        config.default_database.durability = durability;
        let mut on_disk = OnDisk::make(config, &mut clock);
        on_disk.keeps = false;
        Run {
            seed,
            random: Random::new(seed),
            clock,
            config,
            on_disk,
            moments: Vec::new(),
        }
    }

    fn key(&mut self) -> Vec<u8> {
        format!("key-{}", self.random.below(25)).into_bytes()
    }

    /// One commit, or a step of those who keep the trees.
    fn step(&mut self) {
        let step = if self.random.once_in(4) {
            self.keep();
            Step::Flush
        } else if self.random.once_in(12) {
            self.convert();
            Step::Convert
        } else {
            self.commit();
            Step::Commit
        };
        self.note(step);
    }

    fn note(&mut self, step: Step) {
        self.moments.push(Moment {
            state: state_of(&self.on_disk.store),
            folder: read_folder(&self.on_disk.folder.0),
            log: self.on_disk.disk.fork(),
            step,
        });
    }

    fn keep(&mut self) {
        self.on_disk.commit_loop.seal_trees();
        self.on_disk
            .commit_loop
            .flush_trees()
            .expect("there is room");
    }

    fn convert(&mut self) {
        let other = self.on_disk.store.database("other");
        let database = other.unwrap_or(DatabaseId::DEFAULT);
        let config = self.on_disk.store.config(database).expect("it is there");
        let kind = match config.kind {
            Kind::Memory => Kind::Disk,
            _ => Kind::Memory,
        };
        let converted = (self.on_disk.commit_loop).convert(database, kind, &mut self.clock);
        converted.expect("it fits");
    }

    fn snapshot(&mut self) {
        let commit_loop = &mut self.on_disk.commit_loop;
        commit_loop.ask_for_snapshot();
        while commit_loop.step_snapshot(&mut self.clock) {}
        while commit_loop.round(&mut self.clock) {}
    }

    fn commit(&mut self) {
        if self.random.once_in(10) {
            self.snapshot();
        }
        let mut batch = self.on_disk.store.write_batch();
        let other = self.on_disk.store.database("other");
        let databases: Vec<DatabaseId> = [Some(DatabaseId::DEFAULT), other]
            .into_iter()
            .flatten()
            .collect();
        let database = self.random.pick(&databases);
        match self.random.below(20) {
            0 => batch.begin_clear(database),
            1 => match other {
                Some(id) => batch.drop_database(0, id),
                None => {
                    let config = DatabaseConfig {
                        durability: self.config.default_database.durability,
                        ..DatabaseConfig::default()
                    };
                    let kind = self.random.pick(&[Kind::Memory, Kind::Disk]);
                    batch.create_database(0, "other", &config.of_kind(kind));
                }
            },
            _ => {
                let keys: Vec<_> = (0..1 + self.random.below(6)).map(|_| self.key()).collect();
                let value = vec![b'v'; self.random.below(600)];
                let mut commit = batch.begin(0, database, Mode::Independent);
                for (place, key) in keys.iter().enumerate() {
                    let operation = match (place + value.len()) % 4 {
                        0 => delete(key),
                        1 => increment(b"counter", 1),
                        _ => put(key, &value),
                    };
                    commit.push(&operation).expect("within the limits");
                }
                commit.submit();
            }
        }
        let mut outcomes = Outcomes::new();
        self.on_disk.run(&mut batch, &mut self.clock, &mut outcomes);
        assert_eq!(outcomes.get(0).decision, Decision::Applied);
    }

    /// Starts from what was on the device, and looks at it; then writes, and starts again.
    fn check(&mut self, files: &Files, log: usize, least: usize) {
        let disk = self.moments[log].log.fork();
        disk.lose_power();
        let folder = Arc::new(TempFolder::new());
        write_folder(&folder.0, files);
        let mut opened = OnDisk::open(self.config, &disk, &folder)
            .unwrap_or_else(|error| panic!("seed {} log {log}: {error}", self.seed));
        let found = state_of(&opened.store);
        let place = (least..=log).rfind(|&place| self.moments[place].state == found);
        assert!(
            place.is_some(),
            "seed {} log {log}: neither state {least} nor a later one",
            self.seed
        );
        for round in 0..2 {
            let mut batch = opened.store.write_batch();
            let mut commit = batch.begin(0, DatabaseId::DEFAULT, Mode::Atomic);
            let key = format!("after-{round}");
            commit.push(&put(key.as_bytes(), &[7; 900])).expect("small");
            let counter = Operation::Increment {
                key: b"counter",
                delta: 1,
                initial: 0,
                condition: store::Condition::None,
            };
            commit.push(&counter).expect("small");
            commit.submit();
            let mut outcomes = Outcomes::new();
            opened.run(&mut batch, &mut self.clock, &mut outcomes);
            let decision = outcomes.get(0).decision;
            assert_eq!(decision, Decision::Applied);
            let written = state_of(&opened.store);
            opened.crash(1, &mut self.clock);
            assert_eq!(state_of(&opened.store), written, "seed {}", self.seed);
        }
    }

    fn check_all(&mut self) -> usize {
        let mut checked = 0;
        let mut random = Random::new(self.seed);
        let is_synced = self.config.default_database.durability == Durability::Synced;
        for place in 1..self.moments.len() {
            let (before, after) = (&self.moments[place - 1], &self.moments[place]);
            let step = after.step;
            let (before, after) = (before.folder.clone(), after.folder.clone());
            // What was answered is there, if that is promised.
            let least = |log: usize| if is_synced { log } else { 0 };
            self.check(&after, place, least(place));
            checked += 1;
            // A conversion syncs the log before it changes the folder: the log as it was then is
            // not here.
            if before == after || (step == Step::Convert && !is_synced) {
                continue;
            }
            let log = place - usize::from(step == Step::Convert);
            for state in between(&mut random, &before, &after) {
                self.check(&state, log, least(log));
                checked += 1;
            }
            // A flush takes its time, and the log goes on meanwhile, as long as nobody relies on
            // the flush.
            let next = place + 1;
            let known = snapshots(&self.moments[place].log);
            let is_plain = |moment: &Moment| {
                moment.folder == after
                    && moment.step == Step::Commit
                    && snapshots(&moment.log) == known
            };
            if step == Step::Flush && self.moments.get(next).is_some_and(is_plain) {
                for state in between(&mut random, &before, &after) {
                    self.check(&state, next, least(next));
                    checked += 1;
                }
            }
        }
        checked
    }
}

trait BeginClear {
    fn begin_clear(&mut self, database: DatabaseId);
}

impl BeginClear for store::WriteBatch {
    fn begin_clear(&mut self, database: DatabaseId) {
        let mut commit = self.begin(0, database, Mode::Atomic);
        commit.push(&Operation::Clear).expect("it stands alone");
        commit.submit();
    }
}

#[test]
fn a_start_after_a_loss_of_power_finds_what_the_log_says() {
    let mut checked = 0;
    for seed in 0..4 {
        println!("seed {seed}");
        let durability = [Durability::Synced, Durability::Written][seed as usize % 2];
        let mut run = Run::new(seed, durability);
        run.note(Step::Commit);
        for _ in 0..40 {
            run.step();
        }
        checked += run.check_all();
    }
    println!("{checked} starts");
    assert!(checked >= 100, "{checked}");
}
