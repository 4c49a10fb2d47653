//! Backups and restores on disks that fail, and backups that are not what they were.

use std::ops::ControlFlow;

use store::backup::{BackupError, MANIFEST_NAME};
use testkit::Random;
use wal::disk::{Disk, Fault, SimulatedDisk, Step};

use crate::backups::{Client, Model, check, config, restore, restore_watched, verified};
use crate::bench::{Durable, SEGMENT_BYTES, verify};
use crate::crash::{state_of, without_identities};

/// Steps of the backup after each turn.
const STEPS: usize = 3;

/// How far a run with a backup in its midst came.
struct Run {
    /// The cut, if the backup said that it is complete.
    complete: Option<u64>,
    /// All of it was carried out.
    is_over: bool,
}

/// Runs a plan and makes a backup in its midst, a step after each turn. The run ends with a backup
/// that fails, unless it `goes_on`.
fn run(model: &Model, disk: &SimulatedDisk, target: &SimulatedDisk, goes_on: bool) -> Run {
    let mut client = Client::open(disk);
    let (mut under_way, mut complete, mut failed) = (None, None, false);
    for (number, turn) in model.turns.iter().enumerate() {
        client.sweep(turn.now_ms);
        if number == 3 {
            under_way = client.begin(target).ok();
            failed |= under_way.is_none();
        }
        client.commit(turn, 0..turn.commits.len());
        for _ in 0..STEPS {
            let Some(job) = under_way.take() else {
                break;
            };
            match client.step(job) {
                Ok(ControlFlow::Continue(job)) => under_way = Some(job),
                Ok(ControlFlow::Break(cut)) => complete = Some(cut),
                Err(_) => failed = true,
            }
        }
        if failed && !goes_on {
            return Run {
                complete,
                is_over: false,
            };
        }
    }
    let store = &client.durable.store;
    verify(store);
    assert_eq!(
        state_of(store),
        *model.at(u64::MAX),
        "the server is unharmed"
    );
    Run {
        complete,
        is_over: true,
    }
}

/// A plan that is long enough for the backup in its midst.
fn model() -> Model {
    Model::new(11, 700)
}

fn steps(model: &Model) -> usize {
    let target = testkit::simulated_disk(1);
    let run = run(model, &testkit::simulated_disk(2), &target, true);
    check(
        model,
        &target,
        run.complete.expect("it has the time"),
        "without faults",
    );
    target.step_count()
}

#[test]
fn power_loss_at_every_step_of_a_backup() {
    let model = model();
    let steps = steps(&model);
    let (mut whole, mut refused) = (0_u64, 0_u64);
    // At the last one it is complete, and the power goes some time later.
    for step in 0..=steps {
        // It is decided in the last ones which names are there.
        let seeds = if step + 3 > steps { 300 } else { 16 };
        for seed in 0..seeds {
            let what = format!("power loss at step {step} of {steps}, seed {seed}");
            let (disk, target) = (testkit::simulated_disk(seed), testkit::simulated_disk(seed));
            target.plan(step, Fault::PowerLoss);
            let run = run(&model, &disk, &target, false);
            disk.lose_power();
            target.lose_power();
            let restored = testkit::simulated_disk(seed);
            match verified(&target) {
                Ok(verified) => {
                    check(&model, &target, verified.manifest.cut.sequence, &what);
                    whole += 1;
                }
                Err(error) => {
                    assert_eq!(run.complete, None, "{what}: {error}");
                    let names = target.list().expect("it lists");
                    let is_marked = names.iter().any(|name| name == MANIFEST_NAME);
                    assert!(!is_marked, "{what}: looks complete: {error}");
                    assert!(restore(&target, &restored).is_err(), "{what}");
                    assert_eq!(restored.list().expect("it lists"), [""; 0], "{what}");
                    refused += 1;
                }
            }
            let durable = Durable::open(config(), &disk);
            let durable = durable.unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(model.is_state(&state_of(&durable.store)), "{what}");
        }
    }
    println!("{steps} steps, {whole} whole, {refused} refused");
    assert!(whole > 300 && refused > 12 * steps as u64);
}

#[test]
fn after_an_error_at_any_step_of_a_backup_nothing_of_it_is_left_and_the_server_goes_on() {
    let model = model();
    let steps = steps(&model);
    for fault in [Fault::Error, Fault::Full, Fault::Short] {
        for step in 0..steps {
            let what = format!("{fault:?} at step {step} of {steps}");
            let (disk, target) = (testkit::simulated_disk(1), testkit::simulated_disk(1));
            target.plan(step, fault);
            let run = run(&model, &disk, &target, true);
            assert!(run.is_over, "{what}");
            match run.complete {
                Some(cut) => check(&model, &target, cut, &what),
                None => assert_eq!(target.list().expect("it lists"), [""; 0], "{what}"),
            }
        }
    }
}

#[test]
fn a_full_disk_ends_a_backup_and_is_told() {
    let model = model();
    let mut fitted = 0;
    for capacity in (0..60).map(|kib| kib * 1024) {
        let disk = testkit::simulated_disk(1);
        let mut client = Client::open(&disk);
        for turn in &model.turns[..10] {
            client.sweep(turn.now_ms);
            client.commit(turn, 0..turn.commits.len());
        }
        let target = testkit::simulated_disk(1);
        target.set_capacity_bytes(capacity);
        match client.backup(&target) {
            Ok(cut) => {
                fitted += 1;
                check(&model, &target, cut, "it fits");
            }
            Err(error) => {
                assert!(error.is_full(), "{error}");
                assert_eq!(target.list().expect("it lists"), [""; 0]);
            }
        }
    }
    assert!((1..59).contains(&fitted), "{fitted}");
}

/// The server comes before its backup: no room for its log, and what the backup holds is given up.
#[test]
fn a_server_without_room_takes_back_what_a_backup_holds() {
    let model = Model::new(5, 6_000);
    let disk = testkit::simulated_disk(1);
    let mut client = Client::open(&disk);
    let mut turns = model.turns.iter();
    for turn in turns.by_ref().take(20) {
        client.sweep(turn.now_ms);
        client.commit(turn, 0..turn.commits.len());
    }
    let target = testkit::simulated_disk(2);
    let job = client.begin(&target).expect("nothing fails");
    let used_bytes = u64::MAX - disk.free_bytes().expect("it is known");
    disk.set_capacity_bytes(used_bytes + SEGMENT_BYTES / 2);
    for turn in turns {
        client.sweep(turn.now_ms);
        client.commit(turn, 0..turn.commits.len());
        client.durable.commit_loop.ask_for_snapshot();
        while client.durable.commit_loop.step_snapshot(&mut client.clock) {}
        while client.durable.commit_loop.round(&mut client.clock) {}
    }
    let error = client.complete(job).expect_err("the log it needs is gone");
    assert!(matches!(error, BackupError::LogGone), "{error}");
    assert!(error.is_full());
    assert_eq!(target.list().expect("it lists"), [""; 0]);
}

/// A backup to damage.
fn whole(model: &Model) -> (SimulatedDisk, u64) {
    let target = testkit::simulated_disk(7);
    let run = run(model, &testkit::simulated_disk(7), &target, true);
    (target, run.complete.expect("it has the time"))
}

/// Copies all files of a disk.
fn copy(disk: &SimulatedDisk) -> SimulatedDisk {
    let other = testkit::simulated_disk(1);
    for name in disk.list().expect("it lists") {
        let file = other.create(&name).expect("it is new");
        let content = disk.contents(&name);
        file.write_all_at(&content, 0).expect("there is room");
    }
    other
}

fn must_be_refused(damaged: &SimulatedDisk, what: &str) {
    let error = verified(damaged).err();
    assert!(error.is_some(), "{what}: verify takes it");
    let target = testkit::simulated_disk(1);
    assert!(
        restore(damaged, &target).is_err(),
        "{what}: restore takes it"
    );
    let left = target.list().expect("it lists");
    assert_eq!(left, [""; 0], "{what}");
}

#[test]
fn backups_that_are_not_what_they_were_are_refused() {
    let model = model();
    let (backup, cut) = whole(&model);
    check(&model, &copy(&backup), cut, "the copy");
    let names = backup.list().expect("it lists");
    let mut random = Random::new(3);
    let mut tried = 0;
    for name in &names {
        let bytes = backup.contents(name).len();
        // Every byte of the manifest, and some of the others.
        let places: Vec<usize> = match name == MANIFEST_NAME {
            true => (0..bytes).collect(),
            false => (0..40).map(|_| random.below(bytes)).collect(),
        };
        for at in places {
            let damaged = copy(&backup);
            damaged.flip(name, at, 1 << random.below(8));
            must_be_refused(&damaged, &format!("a bit of {name} at {at}"));
            tried += 1;
        }
        for bytes in [0, 1, bytes / 2, bytes - 1, bytes + 1, bytes + 512] {
            let damaged = copy(&backup);
            let file = damaged.open(name).expect("it is there");
            file.set_len(bytes as u64).expect("it can be cut");
            must_be_refused(&damaged, &format!("{name} with {bytes} bytes"));
            tried += 1;
        }
        let damaged = copy(&backup);
        damaged.remove(name).expect("it is there");
        must_be_refused(&damaged, &format!("without {name}"));
    }
    for extra in [
        "notes.txt",
        "00000000000000000099.log",
        "00000000000000000001.snapshot",
    ] {
        let damaged = copy(&backup);
        damaged.create(extra).expect("it is new");
        must_be_refused(&damaged, &format!("with {extra}"));
    }
    // Files of another backup of the same server.
    let other = testkit::simulated_disk(8);
    let mut client = Client::open(&testkit::simulated_disk(8));
    client.backup(&other).expect("nothing fails");
    for name in names
        .iter()
        .filter(|name| other.list().expect("it lists").contains(name))
    {
        let damaged = copy(&backup);
        damaged.remove(name).expect("it is there");
        let file = damaged.create(name).expect("it is gone");
        file.write_all_at(&other.contents(name), 0)
            .expect("there is room");
        must_be_refused(&damaged, &format!("with {name} of another one"));
        tried += 1;
    }
    println!("{tried} damaged backups");
}

#[test]
fn what_is_not_empty_is_left_alone() {
    let (backup, _) = whole(&model());
    let target = testkit::simulated_disk(1);
    target.create("something").expect("it is new");
    assert!(restore(&backup, &target).is_err());
    assert_eq!(target.list().expect("it lists"), ["something"]);
}

#[test]
fn power_loss_at_every_step_of_a_restore() {
    let model = model();
    let (backup, cut) = whole(&model);
    let target = testkit::simulated_disk(1);
    restore(&backup, &target).expect("it is whole");
    let steps = target.step_count();
    let (mut taken, mut refused, mut empty) = (0, 0, 0);
    for step in 0..steps {
        for seed in 0..16 {
            let what = format!("power loss at step {step} of {steps}, seed {seed}");
            let target = testkit::simulated_disk(seed);
            target.plan(step, Fault::PowerLoss);
            assert!(restore(&backup, &target).is_err(), "{what}");
            target.lose_power();
            let names = target.list().expect("it lists");
            match Durable::open(config(), &target) {
                Ok(durable) if names.iter().all(|name| name == "lock") => {
                    empty += 1;
                    drop(durable);
                }
                Ok(durable) => {
                    assert_eq!(
                        state_of(&durable.store),
                        without_identities(model.at(cut)),
                        "{what}: {names:?}"
                    );
                    taken += 1;
                }
                Err(_) => refused += 1,
            }
        }
    }
    println!("{steps} steps: {refused} refused, {empty} empty, {taken} whole");
    assert!(refused > 8 * steps && taken > 0);
}

#[test]
fn after_an_error_at_any_step_of_a_restore_nothing_is_left() {
    let model = model();
    let (backup, cut) = whole(&model);
    let target = testkit::simulated_disk(1);
    restore(&backup, &target).expect("it is whole");
    let steps = target.step_count();
    for fault in [Fault::Error, Fault::Full, Fault::Short] {
        for step in 0..steps {
            let what = format!("{fault:?} at step {step} of {steps}");
            let target = testkit::simulated_disk(1);
            target.plan(step, fault);
            match restore(&backup, &target) {
                Ok(_) => {
                    let durable = Durable::open(config(), &target).expect("it is whole");
                    let expected = without_identities(model.at(cut));
                    assert_eq!(state_of(&durable.store), expected, "{what}");
                }
                Err(_) => {
                    let left = target.list().expect("it lists");
                    assert_eq!(left, [""; 0], "{what}");
                }
            }
        }
    }
}

/// Nobody knows what is on the device behind a sync that has failed: the restore has failed too,
/// and blames its target. Files of the log that are retired at its end are not part of what was
/// restored.
#[test]
fn no_failed_sync_of_a_folder_is_passed_over_by_a_restore() {
    let (backup, _) = whole(&model());
    let mut failed = 0;
    for before in 0.. {
        let target = testkit::simulated_disk(3);
        target.plan_next(Step::SyncFolder, before, Fault::Error);
        let restored = restore(&backup, &target);
        if target.fault_counts().failed_folder_syncs == 0 {
            restored.expect("nothing has failed");
            break;
        }
        let error = match restored {
            Ok(_) => panic!("folder sync {before} has failed after {:?}", target.steps()),
            Err(error) => error.to_string(),
        };
        assert!(error.contains("simulated/"), "{before}: {error}");
        assert_eq!(
            target.list().expect("it lists"),
            [""; 0],
            "{before}: {error}"
        );
        failed += 1;
    }
    assert!(failed > 3, "{failed}");
}

/// What others have put into the new folder meanwhile is not removed with what was restored, and
/// what cannot be removed is told.
#[test]
fn a_restore_that_fails_says_what_it_leaves_and_leaves_what_is_not_its_own() {
    let (backup, _) = whole(&model());
    for stays in [false, true, false, true] {
        let target = testkit::simulated_disk(4);
        let other = target.clone();
        let cancelled = restore_watched(&backup, &target, &mut |_, _| {
            for name in ["mine", "my.log"] {
                let made = other.create(name);
                assert!(made.is_ok(), "{name}: {made:?}");
            }
            if stays {
                other.plan_next(Step::Remove, 0, Fault::Error);
            }
            ControlFlow::Break(())
        });
        let error = cancelled.expect_err("it is cancelled");
        assert!(error.is_cancelled());
        let (said, left) = (error.to_string(), target.list().expect("it lists"));
        assert!(
            left.contains(&"mine".into()) && left.contains(&"my.log".into()),
            "{left:?}"
        );
        assert_eq!(left.len(), 2 + usize::from(stays), "{left:?}");
        assert_eq!(said.contains("is to be removed"), stays, "{said}");
        assert_eq!(said.contains("simulated"), stays, "{said}");
    }
}
