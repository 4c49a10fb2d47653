//! HTTP/2, HPACK and gRPC, baidu_std and SRPC as pure state machines.
//!
//! Nothing here does I/O, reads a clock or draws a random number: a [`Connection`] is a value that
//! takes bytes and the time, and returns events and bytes. Whatever moves the bytes can use it. Two
//! whole programs over `std::net`, first a server:
//!
//! ```no_run
#![doc = include_str!("../examples/echo_server.rs")]
//! ```
//!
//! and a client of it:
//!
//! ```no_run
#![doc = include_str!("../examples/echo_client.rs")]
//! ```
//!
//! - [`http2`] has the connection, [`http2::frame`] the layout of frames.
//! - [`hpack`] encodes and decodes header blocks.
//! - [`grpc`] has messages, compression, statuses and metadata.
//! - [`framed`] has baidu_std and SRPC.
//! - [`http1`] recognises what a connection begins with.
//! - [`limits`] bounds what a peer can make a connection hold and do, each with its reason.

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

pub mod framed;
pub mod grpc;
pub mod hpack;
pub mod http1;
pub mod http2;
pub mod limits;

pub use http2::{
    BodyCharge, CancelCause, CloseReason, Config, Connection, ErrorCode, Event, Head,
    PUSHBACK_TRAILER, Pause, RequestHead, Role, SentPart, SharedBytes, StreamKey, StreamOpenError,
    TakenMessage,
};
