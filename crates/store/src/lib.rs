//! Operations on keys and values: the contract, the committer and the indexes.
//!
//! A [`Store`] holds databases. Reads take a [`View`] of one database; writes are put into a
//! [`WriteBatch`], commit by commit, and carried out by a [`VolatileCommitter`], which leaves their
//! [`Outcomes`].
//!
//! ```
//! use store::*;
//! # struct Fixed;
//! # impl Clock for Fixed {
//! #     fn now_ns(&mut self) -> u64 { 0 }
//! #     fn now_ms(&mut self) -> u64 { 1 }
//! # }
//! # let mut clock = Fixed;
//! let store = Store::in_memory(StoreConfig::new(42))?;
//! let mut batch = store.write_batch();
//! let mut commit = batch.begin(7, DatabaseId::DEFAULT, Mode::Atomic);
//! let (condition, expiry) = (Condition::Absent, Expiry::None);
//! let (key, value) = (b"key", b"value");
//! commit.push(&Operation::Put { key, value, condition, expiry, want_previous: false })?;
//! commit.submit();
//!
//! let mut outcomes = Outcomes::new();
//! drop(store.committer().run(&mut batch, &mut clock, &mut outcomes));
//! assert_eq!(outcomes.get(0).tag, 7);
//! assert_eq!(outcomes.get(0).decision, Decision::Applied);
//!
//! let view = store.view(DatabaseId::DEFAULT).expect("the default database always exists");
//! let entry = view.get(b"key", store.hasher().hash(b"key"), 1).expect("it was just put");
//! assert_eq!(entry.value.bytes(), b"value");
//! assert_eq!(entry.version, outcomes.get(0).sequence);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Layers
//!
//! A module imports only from layers below its own, or from its own without a circle:
//!
//! | layer | modules |
//! |---|---|
//! | copies | `backup` |
//! | commits | `volatile_committer` for volatile databases, `durable` for those with a log, `remote` for those on an engine elsewhere |
//! | decisions | `decide`, `effects`, `batch`, `read_before`, `apply`; `sweep`, `tree_sweep`, `blob_index`, whose commits remove what nobody needs; `defragment` |
//! | views | `snapshot`, `read_view`, `watch`, `replica_reading`, `ordering` |
//! | the store | `store`, which has the `catalogue` of all databases; `view` |
//! | databases | `database`, `index`, `feed`, `garbage`; forms of commits: `record`, `operations`, `outcome` |
//! | contents | `memory`, `tree`, `blob`: they know keys, values and ids, and no store |
//! | basics | ids, operations, ranges, values, limits, the clock, budgets; `remote_kind` |
//!
//! What a lower layer must know of a higher one comes as an argument. Methods of a type may stand
//! in a higher module that they need, as [`Store::committer`] and [`blob::BlobStore::collect`] do.

// What ships does not panic: docs/internals/panics.md.
#![cfg_attr(
    not(test),
    warn(
        clippy::disallowed_methods,
        clippy::panic,
        clippy::todo,
        clippy::unimplemented,
        clippy::unwrap_used
    )
)]

pub mod background;
pub mod backup;
pub mod blob;
pub mod descriptors;
pub mod durable;
pub mod durations;
pub mod limits;
pub mod log;
pub mod remote;
pub mod snapshot;
pub mod tree;

mod acknowledged;
mod apply;
mod aside;
mod await_replicas;
mod batch;
mod blob_index;
mod bounded;
mod cache;
mod catalogue;
mod change_replicas;
mod clock;
mod database;
mod database_id;
mod decide;
mod defragment;
mod descriptor_budget;
mod effects;
mod engine;
mod feed;
mod figures;
mod garbage;
mod hash;
mod index;
mod keep_log;
mod log_statistics;
mod memory;
mod memory_use;
mod operation;
mod operations;
mod ordering;
mod outcome;
mod payload;
mod push_error;
mod range;
mod read_before;
mod read_room;
mod read_view;
mod record;
mod remote_kind;
mod replica_reading;
mod replica_set;
mod reserve;
mod secret;
mod store;
mod sweep;
mod sweep_schedule;
mod tree_sweep;
mod value;
mod view;
mod volatile_committer;
mod watch;

pub use acknowledged::{AcknowledgedState, FollowerSession, ReplicasAcked};
pub use aside::SET_ASIDE_FOLDER;
pub use batch::{Commit, WriteBatch};
pub use cache::CacheBounds;
pub use catalogue::is_database_name;
pub use clock::Clock;
pub use database::{CreateError, DatabaseConfig, DatabaseLimits, DropError, Durability, Kind};
pub use database_id::DatabaseId;
pub use decide::leading_number;
pub use defragment::Defragmentation;
pub use feed::{
    ChangeKind, ChangeNews, ChangeSignal, ChangeWaker, FeedChange, FeedCommit, FollowRefusal,
    GroupReading, LogFollower, LogReadError, LogReading, NextCommits, WatchError, Watched, Watcher,
};
pub use garbage::Garbage;
pub use hash::KeyHasher;
pub use keep_log::KeepLog;
pub use operation::{Condition, Expiry, Mode, Operation, TransactList};
pub use outcome::{
    CommitOutcome, Decision, KeyState, OperationOutcome, OperationStatus, Outcomes, Refusal,
};
pub use push_error::{Limit, PushError};
pub use range::{CountSlice, Direction, Range, ScanEnd};
pub use read_before::ReadAhead;
pub use read_view::{Counted, ReadView};
pub use record::{CommitRun, Source};
pub use replica_reading::{FileReading, ReplicaPiece, ReplicaReading};
pub use replica_set::{
    EpochPlace, FIRST_EPOCH, PlaceError, QuorumError, REPLICA_ID_BYTES, ReplicaId, ReplicaSet,
    ReplicaSetChange,
};
pub use secret::FolderSecret;
pub use store::{DatabaseInfo, Store, StoreConfig};
pub use sweep::SWEEP_TAG;
pub use value::{Entry, Value};
pub use view::{IndexView, Statistics, View};
pub use volatile_committer::VolatileCommitter;
