//! One case for each promise, small enough to be read as its specification.

mod commits;
mod databases;
mod ranges;
mod time;
mod writes;

use store::DatabaseId;

use super::{Bench, Make};

/// A name and a case.
pub(super) type Case = (&'static str, fn(Make<'_>));

/// All cases.
pub(super) fn all() -> impl Iterator<Item = &'static Case> {
    let themes = [
        writes::CASES,
        commits::CASES,
        databases::CASES,
        ranges::CASES,
        time::CASES,
    ];
    themes.into_iter().flatten()
}

fn create(bench: &mut Bench, name: &str) -> DatabaseId {
    let config = bench.engine.database_config();
    bench
        .create_database(name, config)
        .expect("there is none of this name")
}
