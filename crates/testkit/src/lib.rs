//! What the tests of several crates share: random numbers that come again with their seed, a
//! simulated disk of a seed, and what names the seed of a test that fails.
//!
//! A dev-dependency only: nothing that ships may use it. `script/test lint` looks.

mod on_failure;
mod random;

pub use on_failure::OnFailure;
pub use random::{Bound, Random};

use wal::disk::SimulatedDisk;

/// Returns an empty simulated disk that decides by the numbers of a seed.
pub fn simulated_disk(seed: u64) -> SimulatedDisk {
    SimulatedDisk::new(Random::new(seed))
}
