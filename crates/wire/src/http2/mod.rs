//! HTTP/2 (RFC 9113) with gRPC on it: one connection is one value.
//!
//! [`Connection`] is the state machine of both roles. Its parts, each in its own file: frames and
//! SETTINGS as bytes, the slab of streams, flow-control windows, the head of a message, the header
//! memo; receiving (one file for header blocks, one for bodies, one for what the layer above
//! consumes of them, one for all other frames), sending (calls of the layer above, answers to plain
//! requests, the queue behind them), what the windows leave room for, the client's calls, the ways
//! in which streams and connections end, and what happens by time.

mod bandwidth;
mod capacity;
mod client;
mod config;
mod connection;
mod consumption;
mod ending;
mod error;
mod event;
mod flow;
pub mod frame;
mod guard;
mod headers;
mod inbound;
mod late_streams;
mod memo;
mod ok_trailers;
mod outbound;
mod pool;
mod receive;
mod receive_data;
mod receive_headers;
mod request_memo;
mod room;
mod send;
mod send_plain;
mod settings;
mod streams;
mod timers;
mod transmit;
mod turns;
mod unpack;

pub use capacity::Pause;
pub use client::{OpenError, RequestHead};
pub use config::{Config, Role};
pub use connection::{Connection, TakenMessage};
pub use error::{Cause, CloseReason, ErrorCode};
pub use event::Event;
pub use headers::Head;
pub use outbound::{Charge, SharedBytes};
pub use receive_data::PUSHBACK_TRAILER;
pub use send::{ChargeShared, MessagePart};
pub use streams::StreamKey;
