//! Messages and methods of the services that a Pelton server serves: `pelton.v1`, health,
//! reflection, the agent of the lab, and the services of others that it stands in for.
//!
//! Each message is described once, field by field, and decoded and encoded by what
//! [`protobuf::message!`] makes of it: server, client, load generator and command line use the
//! same. What a message means is in the `.proto` files, whose comments are repeated here.

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

pub mod admin;
pub mod agent;
pub mod blob;
pub mod brpc_echo;
pub mod echo;
pub mod error_details;
pub mod gupload;
pub mod health;
pub mod interop;
pub mod keyvalue;
pub mod kvstore;
mod method;
pub mod otlp;
pub mod reflection;
pub mod replication;
pub mod rpc;
pub mod srpc_benchmark;
pub mod tkrzw;
pub mod tkrzw_before;
pub mod ydb_ping;

pub use method::{CallKind, Method};

/// Returns the bytes that name a history in messages, in a buffer; see [`history_id`].
pub const fn history_id_bytes(history_id: u64) -> [u8; 8] {
    history_id.to_be_bytes()
}

/// Returns the history that `bytes` of a message name: 8, big-endian. Others are of no server of
/// this version, and count as unknown, which is 0.
pub fn history_id(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_be_bytes)
}
