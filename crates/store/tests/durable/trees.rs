//! Databases on disk: the suite of every engine, and what is theirs alone.

use store::suite::{StandingClock, run_cases_but, run_property};
use store::{Durability, StoreConfig};

use crate::tree_bench::OnDisk;

/// Cases about what databases in memory alone have.
const OF_MEMORY: &[&str] = &[
    "large values are shared",
    "a full database takes what does not grow it",
    "a full store refuses growth anywhere",
    "counts are exact and resume",
    "counts with expired entries resume",
    "a sweep removes what has expired",
    "a sweep takes turns and ends",
    "a sweep asks once for what is on its way",
    "a sweep spares what was written meanwhile",
];

fn make(mut config: StoreConfig, durability: Durability) -> OnDisk {
    config.default_database.durability = durability;
    OnDisk::make(config, &mut StandingClock { now_ms: 1 })
}

#[test]
fn a_database_on_disk_passes_all_cases() {
    for durability in [Durability::Synced, Durability::Written] {
        run_cases_but(&|config| Box::new(make(config, durability)), OF_MEMORY);
    }
}

#[test]
fn a_database_on_disk_equals_the_model() {
    run_property(&|config| Box::new(make(config, Durability::Synced)));
}

/// Everything was answered before each crash, so nothing may be missing; and nothing may be there again.
#[test]
fn a_database_on_disk_equals_the_model_across_crashes() {
    run_property(&|config| {
        let mut made = make(config, Durability::Synced);
        made.crashes = true;
        Box::new(made)
    });
}
