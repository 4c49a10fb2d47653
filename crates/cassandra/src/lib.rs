//! Databases on Apache Cassandra or ScyllaDB: [`store::remote::RemoteBackend`] with the driver
//! `scylla`.
//!
//! [`init`] makes a keyspace ready, once. [`Cassandra::start`] opens it. Everything a request does
//! happens on threads of this crate; a loop hands it over and gets the answer through its sink.
//!
//! | layer | modules |
//! |---|---|
//! | the contract | `backend` |
//! | requests | `read`, `page`, `commit`, `catalogue`, `health`, `init` |
//! | rows | `rows`, `rows_at_once`, `scope`, `entry`, `merge`, `partition` |
//! | the engine | `engine`, `connect`, `nodes`, `queues`, `statements`, `caller_error` |
//! | basics | `schema`, `clock`, `failure`, `message_log`, [`limits`] |
//!
//! `docs/internals/cassandra.md` has the data model and what happens when nodes fail.

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

pub mod limits;

mod backend;
mod caller_error;
mod catalogue;
mod clock;
mod commit;
mod connect;
mod engine;
mod entry;
mod failure;
mod health;
mod init;
mod merge;
mod message_log;
mod nodes;
mod page;
mod partition;
#[cfg(test)]
mod paused_time;
mod queues;
mod read;
mod rows;
mod rows_at_once;
mod schema;
mod scope;
mod statements;
#[cfg(feature = "tls")]
mod tls;

pub use backend::Cassandra;
pub use connect::{CassandraConfig, ConnectError};
pub use engine::WallClock;
pub use failure::{EngineFailure, FailureCause};
pub use init::{InitError, InitOptions, InitReport, init};
pub use message_log::MessageSink;
pub use schema::{KeyspaceNameError, SchemaDifference, check_keyspace_name};
#[cfg(feature = "tls")]
pub use tls::{NodeTls, NodeTlsError, tls_of};
