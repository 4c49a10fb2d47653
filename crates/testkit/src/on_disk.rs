//! A store whose default database is on disk, with nothing in it.

use std::path::Path;
use std::sync::Arc;

use store::durable::{CommitLoop, Opened, TreePlace};
use store::tree::TreeConfig;
use store::{Clock, DatabaseId, Durability, Kind, Store, StoreConfig};
use wal::{LogConfig, LogId};

use crate::simulated_disk;

/// Opens a store with a log on a simulated disk. Its default database is synced, and its tree lies
/// in a folder of the file system. Returns the store and what runs its committer.
pub fn store_on_disk(
    trees: &Path,
    mut config: StoreConfig,
    segment_bytes: u64,
    clock: &mut dyn Clock,
) -> (Store, CommitLoop) {
    config.default_database.durability = Durability::Synced;
    let place = TreePlace {
        folder: trees.into(),
        config: TreeConfig::default(),
    };
    let id = LogId {
        history: 7,
        secret: 8,
    };
    let log = LogConfig {
        segment_bytes,
        ..LogConfig::new(id, 1)
    };
    let disk = Arc::new(simulated_disk(1));
    let opened = Store::open_with_trees(config, disk, &log, Some(&place));
    let Opened {
        store, committer, ..
    } = opened.expect("an empty disk is well");
    let mut commit_loop = CommitLoop::new(committer);
    let converted = commit_loop.convert(DatabaseId::DEFAULT, Kind::Disk, clock);
    converted.expect("an empty database is converted");
    (store, commit_loop)
}
