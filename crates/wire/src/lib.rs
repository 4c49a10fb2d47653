//! HTTP/2, HPACK and gRPC as pure state machines.
//!
//! Nothing here does I/O, reads a clock or draws a random number: a [`Connection`] is a value that
//! takes bytes and the time, and gives events and bytes.

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

pub mod grpc;
pub mod hpack;
pub mod http1;
pub mod http2;
pub mod limits;

pub use http2::{
    Cause, Charge, CloseReason, Config, Connection, ErrorCode, Event, Head, MessagePart, OpenError,
    PUSHBACK_TRAILER, Pause, RequestHead, Role, SharedBytes, StreamKey, TakenMessage,
};
