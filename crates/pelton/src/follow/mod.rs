//! `pelton serve --follow`: a replica. Before the server starts, its folder gets a first copy;
//! while it runs, a thread follows the log of the leader, and takes a new copy where it must.
//!
//! Design: docs/internals/replicas.md.

mod assembler;
mod backoff;
mod contents;
mod copying;
mod leader;
mod mark;
mod placing;
mod prepare;
mod renewal;
mod replica_id;
mod stream;

pub use leader::Leader;
pub use prepare::prepare;
pub use renewal::Renewal;
pub use stream::start;
