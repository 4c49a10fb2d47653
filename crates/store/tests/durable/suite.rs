//! The suite of every engine.

use store::{Durability, StoreConfig};
use testkit::Random;
use testkit::suite::{Engine, run_cases, run_property};

use crate::bench::Durable;

fn make(durability: Durability) -> impl Fn(StoreConfig) -> Box<dyn Engine> {
    move |mut config: StoreConfig| {
        config.default_database.durability = durability;
        let disk = testkit::simulated_disk(config.hash_seed);
        Box::new(Durable::open(config, &disk).expect("an empty disk is well"))
    }
}

#[test]
fn synced_passes_all_cases() {
    run_cases(&make(Durability::Synced));
}

#[test]
fn written_passes_all_cases() {
    run_cases(&make(Durability::Written));
}

#[test]
fn volatile_beside_a_log_passes_all_cases() {
    run_cases(&make(Durability::Volatile));
}

#[test]
fn synced_equals_the_model() {
    run_property(&make(Durability::Synced));
}

/// Everything was answered before each crash, so nothing may be missing; and nothing may be there
/// again.
#[test]
fn synced_equals_the_model_across_crashes() {
    run_property(&|mut config: StoreConfig| {
        config.default_database.durability = Durability::Synced;
        let disk = testkit::simulated_disk(config.hash_seed);
        let mut durable = Durable::open(config, &disk).expect("an empty disk is well");
        durable.crashes = Some(Random::new(config.hash_seed));
        Box::new(durable)
    });
}

#[test]
fn interval_equals_the_model() {
    run_property(&make(Durability::Interval { ms: 50 }));
}
