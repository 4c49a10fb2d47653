//! Power loss, kills and failures at every step of a run: nothing that was promised is lost,
//! nothing is half there.

mod common;

use common::{Client, Promise};
use testkit::{OnFailure, Random};
use wal::disk::{Fault, Step};

const STEPS: usize = 60;

/// How a life of the process ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    PowerLoss,
    Kill,
    /// Killed, and the operating system reads again from the device what it believes to be there.
    KillAndEvict,
}

/// Lives through `lives` of them, in one of which a fault is met; returns all steps.
fn run(seed: u64, fault: Option<(usize, Fault)>, end: End, lives: usize) -> Vec<Step> {
    let _on_failure = OnFailure(format!("seed {seed}, fault {fault:?}, end {end:?}"));
    let mut random = Random::new(seed);
    let salt = fault.map_or(0, |(step, _)| step as u64 + 1);
    let disk = testkit::simulated_disk(seed ^ (salt << 32));
    if let Some((step, fault)) = fault {
        disk.plan(step, fault);
    }
    let mut promise = Promise::default();
    let mut power_was_lost = true;
    for life in 0..lives {
        let first_step = disk.step_count();
        let started = Client::start(&disk, &mut promise, power_was_lost);
        let met = fault.filter(|(step, _)| (first_step..disk.step_count()).contains(step));
        match started {
            Ok(client) => drop(client.work(&mut random, STEPS)),
            // Only a fault may prevent a start.
            Err(error) => assert!(met.is_some(), "life {life}: {error}"),
        }
        let met = fault.filter(|(step, _)| (first_step..disk.step_count()).contains(step));
        let powerless = matches!(met, Some((_, Fault::PowerLoss)));
        power_was_lost = powerless || end != End::Kill;
        match end {
            _ if powerless => disk.lose_power(),
            End::PowerLoss => disk.lose_power(),
            End::Kill => disk.kill(),
            End::KillAndEvict => {
                disk.kill();
                disk.evict();
            }
        }
    }
    let steps = disk.steps();
    let client = Client::start(&disk, &mut promise, power_was_lost);
    client.unwrap_or_else(|error| panic!("{error}"));
    steps
}

#[test]
fn power_loss_between_lives() {
    for seed in 0..150 {
        run(seed, None, End::PowerLoss, 6);
    }
}

#[test]
fn power_loss_at_every_step() {
    for seed in 0..4 {
        let end = [End::PowerLoss, End::Kill][seed as usize % 2];
        let steps = run(seed, None, end, 2).len();
        for step in 0..steps {
            run(seed, Some((step, Fault::PowerLoss)), end, 3);
        }
    }
}

#[test]
fn an_error_at_every_step_then_a_kill() {
    for seed in 100..102 {
        let steps = run(seed, None, End::Kill, 2).len();
        for step in 0..steps {
            for end in [End::Kill, End::KillAndEvict, End::PowerLoss] {
                run(seed, Some((step, Fault::Error)), end, 3);
            }
        }
    }
}

#[test]
fn a_full_disk_or_a_short_write_at_every_step() {
    for seed in 200..202 {
        let steps = run(seed, None, End::Kill, 1);
        for (step, kind) in steps.into_iter().enumerate() {
            if kind == Step::Write {
                run(seed, Some((step, Fault::Full)), End::PowerLoss, 2);
                run(seed, Some((step, Fault::Short)), End::Kill, 2);
            }
        }
    }
}

/// The server dies after a failed sync, starts again and reads what only the cache has; then the
/// power goes.
#[test]
fn what_a_start_accepted_is_durable() {
    for seed in 300..305 {
        let steps = run(seed, None, End::Kill, 1);
        for (step, kind) in steps.into_iter().enumerate() {
            if kind != Step::Sync {
                continue;
            }
            let _on_failure = OnFailure(format!("seed {seed}, step {step}"));
            let disk = testkit::simulated_disk(seed ^ ((step as u64) << 32));
            disk.plan(step, Fault::Error);
            let mut promise = Promise::default();
            let mut random = Random::new(seed);
            if let Ok(client) = Client::start(&disk, &mut promise, true) {
                client.work(&mut random, STEPS);
            }
            disk.kill();
            Client::start(&disk, &mut promise, false).unwrap_or_else(|error| panic!("{error}"));
            // The start has taken what it found for the truth: `check` made it the promise.
            disk.lose_power();
            Client::start(&disk, &mut promise, true).unwrap_or_else(|error| panic!("{error}"));
        }
    }
}
