//! Backups made while commits go on: what is restored is what there was after the commit at which
//! they were cut.
//!
//! The reference is a run that carries out one commit at a time and notes what is there after each.

use std::ops::ControlFlow;
use std::sync::Arc;

use store::backup::{
    self, BackupError, BackupJob, BackupStep, RestoreConfig, RestoreError, Restored, Verified,
};
use store::{Decision, Durability, Outcomes, Store, StoreConfig};
use testkit::Random;
use testkit::suite::StandingClock;
use wal::disk::{Disk, SimulatedDisk};
use wal::{LogConfig, LogId, segment_name};

use crate::bench::{Durable, log_config, verify};
use crate::crash::{State, state_of, without_identities};
use crate::plan::{Planner, Turn, Words, submit};

pub fn config() -> StoreConfig {
    let mut config = StoreConfig::new(1);
    config.default_database.durability = Durability::Synced;
    config
}

/// What there was, by sequence: each time from this one on.
pub struct Model {
    pub turns: Vec<Turn>,
    states: Vec<(u64, State)>,
}

impl Model {
    pub fn new(seed: u64, operations: usize) -> Model {
        let turns = Planner::new(seed).plan(operations);
        let disk = testkit::simulated_disk(seed);
        let mut client = Client::open(&disk);
        let mut states = vec![(0, state_of(&client.durable.store))];
        for turn in &turns {
            let first = client.sweep(turn.now_ms);
            states.extend(first.map(|sequence| (sequence, state_of(&client.durable.store))));
            for number in 0..turn.commits.len() {
                let sequence = client.commit(turn, number..number + 1);
                states.extend(sequence.map(|sequence| (sequence, state_of(&client.durable.store))));
            }
        }
        Model { turns, states }
    }

    /// What there was after the commit of a sequence.
    pub fn at(&self, sequence: u64) -> &State {
        let behind = self.states.partition_point(|(at, _)| *at <= sequence);
        &self.states[behind - 1].1
    }

    pub fn is_state(&self, state: &State) -> bool {
        self.states.iter().any(|(_, one)| one == state)
    }
}

/// A store on a disk, whose commits a test hands over turn by turn.
pub struct Client {
    pub durable: Durable,
    words: Words,
    pub clock: StandingClock,
}

impl Client {
    pub fn open(disk: &SimulatedDisk) -> Client {
        Client {
            durable: Durable::open(config(), disk).unwrap_or_else(|error| panic!("{error}")),
            words: Words::new(),
            clock: StandingClock { now_ms: 1000 },
        }
    }

    /// Has entries removed whose time has come; returns the last sequence of that.
    pub fn sweep(&mut self, now_ms: u64) -> Option<u64> {
        self.clock.now_ms = now_ms;
        let mut batch = self.durable.store.write_batch();
        self.durable.store.sweep(now_ms, &mut batch);
        self.durable.mailbox.submit(&mut batch);
        self.finish(&mut |_| {})
    }

    /// Commits some of a turn together; returns the last sequence that took effect.
    pub fn commit(&mut self, turn: &Turn, range: std::ops::Range<usize>) -> Option<u64> {
        self.commit_with(turn, range, &mut |_| {})
    }

    /// The same, with something in between.
    pub fn commit_with(
        &mut self,
        turn: &Turn,
        range: std::ops::Range<usize>,
        between: &mut dyn FnMut(&mut Client),
    ) -> Option<u64> {
        let mut batch = self.durable.store.write_batch();
        let mut outcomes = Outcomes::new();
        for commit in &turn.commits[range] {
            submit(commit, 0, &self.words, &mut batch);
        }
        self.clock.now_ms = turn.now_ms;
        let Client { durable, clock, .. } = self;
        durable.submit(&mut batch, clock, &mut outcomes);
        self.finish(between)
    }

    fn finish(&mut self, between: &mut dyn FnMut(&mut Client)) -> Option<u64> {
        let mut last = None;
        let mut outcomes = Outcomes::new();
        while self.durable.commit_loop.round(&mut self.clock) {
            between(self);
            while self.durable.mailbox.take(&mut outcomes) {
                let applied = outcomes.iter().filter(|outcome| {
                    matches!(
                        outcome.decision,
                        Decision::Applied | Decision::Failed { .. }
                    )
                });
                last = last.max(applied.map(|outcome| outcome.sequence).max());
            }
        }
        last.filter(|&sequence| sequence > 0)
    }

    /// Begins a backup with small files.
    pub fn begin(&mut self, target: &SimulatedDisk) -> Result<BackupJob, BackupError> {
        let target = Arc::new(target.clone());
        let commit_loop = &mut self.durable.commit_loop;
        let mut job = commit_loop.begin_backup(target, "test 1", &mut self.clock)?;
        job.set_slice_rows(3);
        job.set_log_file_bytes(LOG_FILE_BYTES);
        Ok(job)
    }

    /// Takes a step of it; breaks with the cut when it is complete.
    pub fn step(&mut self, job: BackupJob) -> Result<ControlFlow<u64, BackupJob>, BackupError> {
        let step = self.durable.commit_loop.step_backup(job, &mut self.clock)?;
        Ok(match step {
            BackupStep::Worked(job) | BackupStep::Synced(job) => ControlFlow::Continue(job),
            BackupStep::Complete(report) => ControlFlow::Break(report.sequence),
        })
    }

    /// Takes the steps that are left, without a pause; returns the cut.
    pub fn complete(&mut self, mut job: BackupJob) -> Result<u64, BackupError> {
        loop {
            match self.step(job)? {
                ControlFlow::Continue(next) => job = next,
                ControlFlow::Break(cut) => return Ok(cut),
            }
        }
    }

    /// Makes one without a pause.
    pub fn backup(&mut self, target: &SimulatedDisk) -> Result<u64, BackupError> {
        let job = self.begin(target)?;
        self.complete(job)
    }
}

pub const RESTORED_ID: u64 = 4242;

/// Of a file of log in a backup.
const LOG_FILE_BYTES: u64 = 16 * 1024;

pub fn restore(source: &SimulatedDisk, target: &SimulatedDisk) -> Result<Restored, RestoreError> {
    restore_watched(source, target, &mut |_, _| ControlFlow::Continue(()))
}

pub fn restore_watched(
    source: &SimulatedDisk,
    target: &SimulatedDisk,
    watch: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<Restored, RestoreError> {
    let id = LogId {
        history: RESTORED_ID,
        secret: 1,
    };
    let config = RestoreConfig {
        store: config(),
        log: LogConfig {
            new_log_id: id,
            ..log_config()
        },
        trees: None,
    };
    let target: Arc<dyn Disk> = Arc::new(target.clone());
    let mut clock = StandingClock { now_ms: 1000 };
    backup::restore(source, &target, &config, &mut clock, watch)
}

pub fn verified(source: &SimulatedDisk) -> Result<Verified, RestoreError> {
    backup::verify(source, &mut |_, _| ControlFlow::Continue(()))
}

/// Restores a backup; what is there must be what there was at the cut, and stay so, with room for
/// more.
pub fn check(model: &Model, source: &SimulatedDisk, cut: u64, what: &str) {
    let checked = verified(source).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(checked.manifest.cut.sequence, cut, "{what}");
    let target = testkit::simulated_disk(cut);
    let restored = restore(source, &target).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(restored.history_id, RESTORED_ID, "{what}");
    assert_eq!(restored.manifest, checked.manifest, "{what}");
    let expected = without_identities(model.at(cut));
    assert_eq!(restored.databases, expected.len() as u64, "{what}");
    let mut client = Client::open(&target);
    let store = &client.durable.store;
    verify(store);
    assert_eq!(state_of(store), expected, "{what}");
    assert_eq!(store.history_id(), RESTORED_ID, "{what}");
    let (databases, volatile) = kinds(store);
    let manifest = &checked.manifest;
    assert_eq!(
        (manifest.databases, manifest.volatile_databases),
        (databases, volatile),
        "{what}"
    );
    // New commits are above the old ones, and last.
    let turn = model.turns.last().expect("there are turns");
    let sequence = client.commit(turn, 0..turn.commits.len());
    assert!(sequence.is_none_or(|sequence| sequence > cut), "{what}");
    let before = state_of(&client.durable.store);
    drop(client);
    target.kill();
    let client = Client::open(&target);
    assert_eq!(state_of(&client.durable.store), before, "{what}");
    assert_eq!(client.durable.store.history_id(), RESTORED_ID, "{what}");
}

fn kinds(store: &Store) -> (u64, u64) {
    let databases = store.databases();
    let is_volatile = |info: &&store::DatabaseInfo| info.config.durability == Durability::Volatile;
    let volatile = databases.iter().filter(is_volatile).count() as u64;
    (databases.len() as u64 - volatile, volatile)
}

#[test]
fn a_backup_made_while_commits_go_on_shows_one_commit() {
    let (mut made, mut changed_meanwhile) = (0, 0);
    for seed in 1..=8 {
        let model = Model::new(seed, 3_000);
        let mut random = Random::new(seed);
        let disk = testkit::simulated_disk(seed);
        let mut client = Client::open(&disk);
        let mut under_way: Option<(BackupJob, SimulatedDisk, State)> = None;
        for (number, turn) in model.turns.iter().enumerate() {
            client.sweep(turn.now_ms);
            if under_way.is_none() && random.once_in(3) {
                let target = testkit::simulated_disk(seed);
                let job = client.begin(&target).expect("nothing fails");
                let begun = state_of(&client.durable.store);
                under_way = Some((job, target, begun));
            }
            // The log is shortened meanwhile, as far as the backup allows.
            if number % 20 == 0 {
                client.durable.commit_loop.ask_for_snapshot();
            }
            let steps = random.below(16);
            client.commit_with(turn, 0..turn.commits.len(), &mut |client| {
                client.durable.commit_loop.step_snapshot(&mut client.clock);
                for _ in 0..steps {
                    let Some((job, target, begun)) = under_way.take() else {
                        return;
                    };
                    match client.step(job).expect("nothing fails") {
                        ControlFlow::Continue(job) => under_way = Some((job, target, begun)),
                        ControlFlow::Break(cut) => {
                            let what = format!("seed {seed}, cut at {cut}");
                            check(&model, &target, cut, &what);
                            made += 1;
                            changed_meanwhile += u64::from(begun != *model.at(cut));
                        }
                    }
                }
            });
        }
        drop(under_way);
        // The server is what it would be without backups.
        let last = model.states.last().expect("there are states");
        assert_eq!(state_of(&client.durable.store), last.1);
    }
    println!("{made} backups, {changed_meanwhile} with changes in their midst");
    assert!(made > 40, "{made}");
    assert!(changed_meanwhile > 30, "{changed_meanwhile}");
}

/// One without any log behind its snapshot, and one of an empty store.
#[test]
fn a_backup_of_a_server_at_rest_is_whole() {
    let model = Model::new(3, 1_500);
    let disk = testkit::simulated_disk(1);
    let mut client = Client::open(&disk);
    let target = testkit::simulated_disk(2);
    let cut = client.backup(&target).expect("nothing fails");
    check(&model, &target, cut, "an empty one");
    for turn in &model.turns {
        client.sweep(turn.now_ms);
        client.commit(turn, 0..turn.commits.len());
    }
    let target = testkit::simulated_disk(2);
    let expected_bytes = client.begin(&target).expect("nothing fails").progress();
    let expected_bytes = expected_bytes.total_bytes;
    let target = testkit::simulated_disk(2);
    let cut = client.backup(&target).expect("nothing fails");
    check(&model, &target, cut, "at rest");
    // What it tells of its progress: about what it comes to in the end, with heads of files and
    // pages and the log.
    let manifest = verified(&target).expect("it is whole").manifest;
    let bytes = manifest.bytes();
    assert!(
        (bytes / 2..=bytes).contains(&expected_bytes),
        "{expected_bytes} expected, {bytes} written"
    );
}

/// What is written in between would be missing, if the log were shortened as it usually is.
#[test]
fn the_log_is_kept_until_the_backup_has_it() {
    let model = Model::new(5, 6_000);
    let disk = testkit::simulated_disk(1);
    let mut client = Client::open(&disk);
    let (first, rest) = model.turns.split_at(40);
    for turn in first {
        client.sweep(turn.now_ms);
        client.commit(turn, 0..turn.commits.len());
    }
    let target = testkit::simulated_disk(2);
    let job = client.begin(&target).expect("nothing fails");
    let (kept, _) = log_files(&disk);
    for turn in rest {
        client.sweep(turn.now_ms);
        client.commit(turn, 0..turn.commits.len());
        client.durable.commit_loop.ask_for_snapshot();
        while client.durable.commit_loop.step_snapshot(&mut client.clock) {}
    }
    while client.durable.commit_loop.round(&mut client.clock) {}
    let (first, count) = log_files(&disk);
    assert_eq!(first, kept, "nothing has gone");
    assert!(count >= 4, "{count} segments");
    let cut = client.complete(job).expect("nothing fails");
    check(&model, &target, cut, "with a long log");
    let manifest = verified(&target).expect("it is whole").manifest;
    let logs = manifest
        .files
        .iter()
        .filter(|file| file.name.ends_with(".log"));
    let sizes: Vec<u64> = logs.map(|file| file.bytes).collect();
    assert!(sizes.len() > 4, "many files of log: {manifest:?}");
    assert!(
        sizes.iter().all(|&bytes| bytes <= LOG_FILE_BYTES),
        "{sizes:?}"
    );
    let is_full = |two: &[u64]| two[0] + two[1] > LOG_FILE_BYTES;
    assert!(sizes.windows(2).all(is_full), "as few as can be: {sizes:?}");
    while client.durable.commit_loop.round(&mut client.clock) {}
    client.durable.commit_loop.round(&mut client.clock);
    assert!(
        log_files(&disk).1 <= 3,
        "what was held goes when the backup is over"
    );
}

/// The oldest file of the log, and how many there are.
fn log_files(disk: &SimulatedDisk) -> (String, usize) {
    let names = disk.list().expect("it can be listed");
    let mut logs = names.into_iter().filter(|name| name.ends_with(".log"));
    let first = logs.next().expect("there is always one");
    assert!(first >= segment_name(1));
    (first, 1 + logs.count())
}
