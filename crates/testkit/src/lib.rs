//! What the tests of several crates share: random numbers that come again with their seed, a
//! simulated disk of a seed, folders as values, what names the seed of a test that fails, the
//! replay of what fuzz targets found, gzip that nobody makes, and, with the feature `store`, the
//! suite of every engine of the store with its model, and a store on disk; with `keyvalue`,
//! requests of KeyValue for operations of the store; with `wire`, frames of HTTP/2 for scripts.
//!
//! A dev-dependency only: nothing that ships may use it. `script/test lint` looks.

#[cfg(feature = "wire")]
pub mod frames;
#[cfg(feature = "keyvalue")]
pub mod keyvalue;
#[cfg(feature = "store")]
pub mod suite;

mod corpus;
mod folder;
mod gzip;
#[cfg(feature = "store")]
mod on_disk;
mod on_failure;
mod random;
#[cfg(feature = "store")]
mod remote_double;

pub use corpus::replay_corpus;
pub use folder::{Files, read_folder, write_folder};
pub use gzip::gzip_of_empty_blocks;
#[cfg(feature = "store")]
pub use on_disk::store_on_disk;
pub use on_failure::OnFailure;
pub use random::{Bound, Random};
#[cfg(feature = "store")]
pub use remote_double::{RemoteDouble, RemoteDoubleCounts, RemoteFaults};

use wal::disk::SimulatedDisk;

/// Returns an empty simulated disk that decides by the numbers of a seed.
pub fn simulated_disk(seed: u64) -> SimulatedDisk {
    SimulatedDisk::new(Random::new(seed))
}
