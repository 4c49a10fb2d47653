//! Channels to a gRPC server.
//!
//! [`Core`] is one connection as a value, without a socket: requests, bytes and the time go in,
//! what happened to each call comes out. [`Channel`] is its blocking interface: it owns a socket,
//! and the thread that calls it does the work. [`Local`] is its polled interface: many connections
//! to one server, many calls on each, and one thread that turns it. [`LocalPool`] is the same with
//! a pool ([`PoolEngine`]) that chooses the connections, opens and closes them. [`SharedPool`] is
//! that pool for any number of threads and futures. None of them knows what the messages mean: they
//! take bytes, and call any gRPC service.
//!
//! [`spans`] makes spans of calls, and [`otlp`] exports them.
//!
//! [`typed`] is the other way to call: [`typed::KeyValue`], [`typed::Blobs`] and [`typed::Admin`]
//! make calls of `pelton.v1` over a [`Channel`] or a [`SharedPool`], with values in the place of
//! bytes.
//!
//! ```no_run
//! use client::{CallOptions, Channel, ChannelOptions};
//!
//! let address = "127.0.0.1:1978".parse()?;
//! let mut channel = Channel::connect(&address, &ChannelOptions::default())?;
//! let answer = channel.unary("/grpc.health.v1.Health/Check", b"", &CallOptions::default())?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

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

mod channel;
mod core;
mod credentials;
mod deadlines;
mod dialing;
mod error;
pub mod limits;
mod line;
mod local;
mod local_pool;
pub mod otlp;
mod pool;
mod sealed;
mod shared_pool;
mod socket;
pub mod spans;
mod taken_at_once;
pub mod typed;

pub use api;
pub use bytes::Bytes;
pub use channel::{
    CallInfo, CallOptions, Channel, ChannelOptions, HttpAnswer, HttpPost, SERVER_SPEAKS_TLS,
    ServerStreaming, StreamStep, Streaming,
};
pub use core::{CallEvent, CallEventKind, CallRequest, Core};
pub use credentials::Credentials;
pub use error::{CallError, ConnectError, NotBegun, WaitedFor};
pub use line::APPLICATION;
pub use local::{
    CallKey, CallStart, ChannelKey, Ending, Happened, Local, LocalCounters, LocalOptions,
};
pub use local_pool::{LocalPool, LocalPoolOptions};
pub use net::{Address, OutgoingEndpoint, TcpFigures, monotonic_ns, tls};
pub use pool::{
    Balancing, ConnectionStatistics, ConnectionTraffic, EndpointHealth, EndpointStatistics,
    HealthCheck, PoolAction, PoolCall, PoolCallKey, PoolConnectionKey, PoolCounters, PoolEndpoint,
    PoolEngine, PoolEvent, PoolMode, PoolOptions, PoolSize, PoolStage, PoolStatistics,
    RetryOptions, SendError, WaitTimes,
};
pub use shared_pool::{
    PoolStream, PoolStreamControl, PoolStreamReceiver, PoolStreamSender, SharedPool, UnaryFuture,
};
pub use taken_at_once::TakenAtOnce;
pub use wire::framed::{FramedProtocol, FramedStatus, StatusMeaning};
pub use wire::grpc::{Code, Metadata, MetadataError, Status};
pub use wire::{SharedBytes, StreamKey};

/// The examples of docs/client.md.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/client.md")]
struct Page;
