//! The services of other systems, so that their unchanged clients can go on with this server.
//!
//! Each file says what the methods of one service mean in terms of store operations, and nothing
//! else: what it would need beyond them belongs into the store. Statuses, texts and answers are
//! those of the original, as far as it has such a case; the rest is as in `pelton.v1`. The `.proto`
//! files are in `proto/compat`.

pub mod brpc_echo;
pub mod gupload;
#[cfg(test)]
pub(crate) mod gupload_tests;
pub mod kvstore;
pub mod srpc_benchmark;
#[cfg(test)]
mod tests;
pub mod tkrzw;
pub mod ydb_ping;
