//! What each RPC means, as pure state machines.
//!
//! [`route`] finds the [`Method`] of a request, [`ServiceCall::started`] makes its state machine,
//! and [`CallSteps`] names the steps that the layer above brings to it. What a call wants done it
//! asks of [`Actions`].

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

pub mod actions;
pub mod admin;
pub mod blob;
pub mod call;
pub mod compat;
mod delayed_refusal;
mod descriptor;
pub mod echo;
#[cfg(test)]
mod fake;
pub mod figures;
pub mod following;
#[cfg(test)]
mod fuzz;
pub mod health;
pub mod http;
pub mod identities;
pub mod interop;
pub mod keyvalue;
mod leadership;
pub mod limits;
mod message_parts;
pub mod method;
mod permission;
pub mod redact;
pub mod reflection;
pub mod replica_orders;
pub mod replication;
pub mod request_subject;
pub mod rights;
pub mod services;
pub mod serving;
pub mod settings;
mod shares;
pub mod status;
pub mod task;
pub mod tkrzw_state;
pub mod waiting;

pub use actions::{
    Actions, Administration, BlobAccess, CallClock, DatabaseAccess, Permissions, PlainResponse,
    RequestFlow, ResponseHeaders, ResponseMemory, Responses, SendRoom, Topic, Wakeups,
};
pub use call::{CallHead, CallSteps, Metadata, PlanReads, ServerInfo, Shared};
pub use delayed_refusal::DelayedRefusal;
pub use figures::{Figures, LoopFigures, ReaderFigures, RefusedFor};
pub use message_parts::{MessagePart, MessageParts};
pub use method::{CallKind, Method, route};
pub use permission::{PeerKind, check_begin};
pub use services::ServiceCall;
pub use settings::ServiceSettings;
pub use shares::CallerId;
pub use status::{Code, Status};
pub use task::{Task, TaskFailure, TaskFailureKind, TaskNews, TaskRefusal};
pub use waiting::WaitingCalls;
