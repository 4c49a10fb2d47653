//! `pelton serve --follow`: a replica. Before the server starts, its folder gets a first copy;
//! while it runs, a thread follows the log of the leader, and takes a new copy where it must.
//!
//! Design: docs/internals/replicas.md.

mod assembler;
mod backoff;
mod contents;
mod copying;
mod lag;
mod leader;
mod leading;
mod mark;
mod old_leader;
mod placing;
mod prepare;
mod promise;
mod promotion;
mod renewal;
mod replica_id;
mod stream;

pub use backoff::Backoff;
pub use lag::watch as watch_lag;
pub use leader::{Leader, is_for_tls};
pub use leading::note_leadership;
pub use mark::Promotion;
pub use old_leader::tell_old_leader;
pub use prepare::{Prepared, prepare};
pub use renewal::Renewal;
pub use stream::start;
