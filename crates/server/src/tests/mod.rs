//! Calls of an event loop that no socket, thread or clock is behind.

mod audit;
mod calls;
mod charges;
mod disk_writes;
mod framed;
mod identities;
mod interop;
mod logs;
mod long_requests;
mod orphans;
mod peers;
mod remote;
mod replica_reads;
mod shares;
mod started;
mod stop;
mod ticks;
mod wrong_tokens;

/// The path of a request for a method.
fn path(method: service::Method) -> String {
    format!("/{}", method.path())
}
