//! The agent: says on the server's machine what its process does, for a diagnosis on another one.
//!
//! [`AgentHandler`] serves `pelton.lab.v1.Agent` over the event loops of `net`; what it reports is
//! made by an `ActivityWatch` of the same figures that a diagnosis on that machine would have.
//! [`RemoteWatch`] calls it, and returns these figures as a watch of this machine does.

mod activity_watch;
mod agent_handler;
mod agent_subject;
mod connection_standing;
mod cpu_share;
pub mod limits;
mod network_reading;
mod remote_watch;
mod report_figures;
mod socket_look;
mod subject_search;
mod watch_call;

pub use agent_handler::AgentHandler;
pub use agent_subject::AgentSubject;
pub use remote_watch::{RemoteWatch, RemoteWatchError};
