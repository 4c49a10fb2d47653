//! A crash at every step of the disk. What is there afterwards must be what there was after some
//! commit, and not before the last one that was answered.
//!
//! The reference is a run without faults that carries out one commit at a time. A run of groups
//! must give the same answers, since a commit sees all earlier ones, published or not.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::ControlFlow;

use store::durable::StorageEvent;
use store::{
    CommitOutcome, DatabaseId, Decision, Direction, Durability, Outcomes, Range, Refusal, Store,
    StoreConfig,
};
use testkit::Random;
use testkit::suite::StandingClock;
use wal::disk::{Disk, Fault, SimulatedDisk, Step};
use wal::segment_name;

use crate::bench::{Durable, verify};
use crate::plan::{Planned, Planner, Turn, Words, submit};

/// Operations in the run of which every step is tried.
const OPERATIONS: usize = 10_000;

const SEED: u64 = 5;

/// A snapshot is asked for once in so many turns; others are made when they are due.
const SNAPSHOT_TURNS: usize = 10;

/// The hidden index of identities, in a state that has some.
const IDENTITIES: &str = ".identities";

/// Entries of a page, and so of what the walk sees at a time.
const PAGE_ROWS: u32 = 8;

fn config() -> StoreConfig {
    let mut config = StoreConfig::new(1);
    config.default_database.durability = Durability::Synced;
    config
}

/// All that readers can see: for each database, by its name, its configuration and content as one
/// number.
pub type State = BTreeMap<String, u64>;

pub fn state_of(store: &Store) -> State {
    let digest = |id, name: String| {
        let mut hasher = DefaultHasher::new();
        format!("{:?}", store.config(id)).hash(&mut hasher);
        let view = store.view(id).expect("nobody drops it meanwhile");
        // At time 0 nothing has expired: what waits to be swept counts too.
        view.scan(&Range::ALL, Direction::Forward, 0, u32::MAX, &mut |entry| {
            let entry = (
                entry.key,
                entry.value.bytes(),
                entry.version,
                entry.expires_ms,
            );
            entry.hash(&mut hasher);
            ControlFlow::Continue(())
        });
        (name, hasher.finish())
    };
    let databases = store.databases().into_iter();
    let mut state: State = databases.map(|one| digest(one.id, one.name)).collect();
    let identities = store.view(DatabaseId::IDENTITIES);
    let identities = identities.expect("it is always there").statistics().entries;
    if identities > 0 {
        state.extend([digest(DatabaseId::IDENTITIES, IDENTITIES.into())]);
    }
    state
}

/// What a restored backup has of a state: no identities.
pub fn without_identities(state: &State) -> State {
    let mut state = state.clone();
    state.remove(IDENTITIES);
    state
}

/// An answer as its receiver sees it, as one number.
fn answer(outcome: &CommitOutcome<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    let mut text = String::new();
    write!(
        text,
        "{outcome:?} {:?} {:?}",
        outcome.database, outcome.unmet_compare
    )
    .expect("memory");
    text.hash(&mut hasher);
    hasher.finish()
}

/// What a run without faults gives.
struct Reference {
    turns: Vec<Turn>,
    /// By commit.
    answers: Vec<u64>,
    /// Before the first commit, and after each.
    states: Vec<State>,
    /// Whether the answer of a commit waits for a sync.
    synced: Vec<bool>,
}

impl Reference {
    fn new(seed: u64, operations: usize) -> Reference {
        let turns = Planner::new(seed).plan(operations);
        let words = Words::new();
        let mut durable =
            Durable::open(config(), &testkit::simulated_disk(1)).expect("it is empty");
        let mut batch = durable.store.write_batch();
        let mut outcomes = Outcomes::new();
        let mut reference = Reference {
            answers: Vec::new(),
            states: vec![state_of(&durable.store)],
            synced: Vec::new(),
            turns,
        };
        for turn in &reference.turns {
            let mut clock = StandingClock {
                now_ms: turn.now_ms,
            };
            for commit in &turn.commits {
                submit(commit, reference.answers.len() as u64, &words, &mut batch);
                durable.submit(&mut batch, &mut clock, &mut outcomes);
                durable.commit_loop.round(&mut clock);
                // The commit on a database that is no more is refused at once.
                if outcomes.is_empty() {
                    assert!(durable.mailbox.take(&mut outcomes));
                }
                assert_eq!(outcomes.len(), 1);
                let outcome = outcomes.get(0);
                let config = durable.store.config(outcome.database);
                let is_synced =
                    config.is_some_and(|config| config.durability == Durability::Synced);
                let is_of_catalogue = matches!(commit, Planned::Create(..) | Planned::Drop(_));
                reference.answers.push(answer(&outcome));
                let state = state_of(&durable.store);
                // What changes nothing waits for nothing, though others of its group may be lost
                // that need no sync.
                let has_changed = reference.states.last() != Some(&state);
                reference
                    .synced
                    .push((is_synced || is_of_catalogue) && has_changed);
                reference.states.push(state);
            }
        }
        verify(&durable.store);
        reference
    }
}

/// How far a run came before it failed.
#[derive(Default)]
struct Run {
    submitted: usize,
    /// Behind the last commit that was answered, by what its answer promises.
    answered: usize,
    synced: usize,
    /// A commit was refused for want of room: what comes after it is not as in the reference.
    diverged: bool,
    snapshots: usize,
}

/// Runs a plan until it is over or the log fails; every answer must be that of the reference.
fn run(reference: &Reference, disk: &SimulatedDisk) -> (Run, Option<Durable>) {
    let mut run = Run::default();
    let Ok(mut durable) = Durable::open(config(), disk) else {
        return (run, None);
    };
    let words = Words::new();
    let mut batch = durable.store.write_batch();
    let mut outcomes = Outcomes::new();
    durable.commit_loop.set_slice_rows(PAGE_ROWS);
    for (number, turn) in reference.turns.iter().enumerate() {
        if number % SNAPSHOT_TURNS == SNAPSHOT_TURNS / 2 {
            durable.commit_loop.ask_for_snapshot();
        }
        let mut clock = StandingClock {
            now_ms: turn.now_ms,
        };
        for commit in &turn.commits {
            submit(commit, run.submitted as u64, &words, &mut batch);
            run.submitted += 1;
        }
        durable.submit(&mut batch, &mut clock, &mut outcomes);
        let mut answers = outcomes.len();
        while durable.commit_loop.round(&mut clock) {
            while durable.mailbox.take(&mut outcomes) {
                answers += outcomes.len();
                outcomes
                    .iter()
                    .for_each(|outcome| run.check(reference, &outcome));
            }
            durable.commit_loop.step_snapshot(&mut clock);
        }
        // Some of its pages see what comes after others.
        durable.commit_loop.step_snapshot(&mut clock);
        durable.commit_loop.step_snapshot(&mut clock);
        let events = durable.commit_loop.take_events().into_iter();
        run.snapshots += events
            .filter(|event| matches!(event, StorageEvent::SnapshotMade(_)))
            .count();
        assert_eq!(answers, turn.commits.len(), "each commit is answered once");
        if durable.commit_loop.has_failed() || run.diverged {
            break;
        }
    }
    (run, Some(durable))
}

impl Run {
    fn check(&mut self, reference: &Reference, outcome: &CommitOutcome<'_>) {
        if let Decision::Refused(Refusal::LogFailed | Refusal::OutcomeUnknown) = outcome.decision {
            return;
        }
        let has_no_room = matches!(
            outcome.decision,
            Decision::Refused(Refusal::LogFull | Refusal::LogNotReady)
        );
        self.diverged |= has_no_room;
        if self.diverged {
            return;
        }
        let number = outcome.tag as usize;
        assert_eq!(
            answer(outcome),
            reference.answers[number],
            "commit {number}: {outcome:?}"
        );
        self.answered = self.answered.max(number + 1);
        if reference.synced[number] {
            self.synced = self.synced.max(number + 1);
        }
    }
}

/// Which prefixes of the plan may be there after a crash.
fn check_state(reference: &Reference, store: &Store, least: usize, most: usize, what: &str) {
    verify(store);
    let found = state_of(store);
    assert!(
        reference.states[least..=most].contains(&found),
        "{what}: what is there is not what was there after {least} to {most} commits, but after \
         {:?}",
        reference.states.iter().position(|state| *state == found)
    );
}

/// After a failure: reads go on, and show what was answered. Some databases need no sync, so each
/// is at its own place.
fn check_visible(reference: &Reference, store: &Store, run: &Run, what: &str) {
    verify(store);
    let possible = &reference.states[run.synced..=run.submitted];
    for (name, found) in state_of(store) {
        let is_possible = possible
            .iter()
            .any(|state| state.get(&name) == Some(&found));
        assert!(
            is_possible,
            "{what}: {name} is not as it was at any time since the last answer"
        );
    }
}

/// After a crash: opens the store, checks it, writes on, closes it and opens it again.
fn recover(reference: &Reference, disk: &SimulatedDisk, least: usize, most: usize, what: &str) {
    let mut durable =
        Durable::open(config(), disk).unwrap_or_else(|error| panic!("{what}: {error}"));
    check_state(reference, &durable.store, least, most, what);
    let mut clock = StandingClock {
        now_ms: 100_000_000,
    };
    let mut batch = durable.store.write_batch();
    let mut outcomes = Outcomes::new();
    for turn in reference
        .turns
        .iter()
        .filter(|turn| turn.commits.len() > 1)
        .take(3)
    {
        for commit in &turn.commits {
            submit(commit, 0, &Words::new(), &mut batch);
        }
        durable.submit(&mut batch, &mut clock, &mut outcomes);
        while durable.commit_loop.round(&mut clock) {}
    }
    if most.is_multiple_of(2) {
        durable.commit_loop.ask_for_snapshot();
        while durable.commit_loop.step_snapshot(&mut clock) {}
    }
    let before = state_of(&durable.store);
    let Durable { commit_loop, .. } = durable;
    commit_loop
        .close(&mut clock)
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    let durable = Durable::open(config(), disk).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(
        state_of(&durable.store),
        before,
        "{what}: after a clean stop"
    );
}

#[test]
fn a_run_of_groups_answers_like_one_commit_at_a_time() {
    for seed in 1..6 {
        let reference = Reference::new(seed, 3000);
        let disk = testkit::simulated_disk(seed);
        let (run, durable) = run(&reference, &disk);
        assert_eq!(run.answered, reference.answers.len());
        let durable = durable.expect("nothing fails");
        check_state(
            &reference,
            &durable.store,
            run.submitted,
            run.submitted,
            "no fault",
        );
        let before = state_of(&durable.store);
        disk.kill();
        let durable = Durable::open(config(), &disk).expect("nothing is lost");
        assert_eq!(state_of(&durable.store), before);
    }
}

#[test]
fn power_loss_at_every_step() {
    let reference = Reference::new(SEED, OPERATIONS);
    let steps = steps_of(&reference);
    println!("{} commits, {} steps", reference.answers.len(), steps.len());
    for (step, kind) in steps.iter().enumerate() {
        let what = format!("power loss at step {step}, {kind:?}");
        let disk = testkit::simulated_disk(SEED);
        disk.plan(step, Fault::PowerLoss);
        let (run, _) = run(&reference, &disk);
        disk.lose_power();
        recover(&reference, &disk, run.synced, run.submitted, &what);
    }
}

/// The steps that a run without faults takes.
fn steps_of(reference: &Reference) -> Vec<Step> {
    let disk = testkit::simulated_disk(SEED);
    let (run, _) = run(reference, &disk);
    assert_eq!(run.answered, reference.answers.len());
    println!("{} snapshots", run.snapshots);
    assert!(run.snapshots >= 3, "snapshots are made and segments go");
    let names = disk.list().expect("it can be listed");
    assert!(!names.contains(&segment_name(1)), "{names:?}");
    disk.steps()
}

#[test]
fn an_error_at_every_step_then_a_kill() {
    let reference = Reference::new(SEED + 1, 5000);
    let steps = steps_of(&reference);
    let mut random = Random::new(SEED);
    for (step, kind) in steps.iter().enumerate() {
        let what = format!("an error at step {step}, {kind:?}");
        let disk = testkit::simulated_disk(SEED);
        disk.plan(step, Fault::Error);
        let (run, durable) = run(&reference, &disk);
        if let Some(durable) = &durable {
            if run.diverged {
                assert!(!durable.commit_loop.has_failed());
                let before = state_of(&durable.store);
                disk.kill();
                let durable = Durable::open(config(), &disk).expect("nothing is lost");
                assert_eq!(state_of(&durable.store), before, "{what}");
                continue;
            }
            check_visible(&reference, &durable.store, &run, &what);
        }
        drop(durable);
        // What the operating system believed to be clean may be read from the device again.
        let (evicted, killed) = (random.once_in(2), random.once_in(2));
        if evicted {
            disk.evict();
        }
        if killed {
            disk.kill();
        } else {
            disk.lose_power();
        }
        let is_kept = killed && !evicted;
        let least = if is_kept { run.answered } else { run.synced };
        recover(&reference, &disk, least, run.submitted, &what);
    }
}
