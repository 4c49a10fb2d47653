//! HTTP/2 (RFC 9113) with gRPC on it: one connection is one value.
//!
//! [`Connection`] is the state machine of both roles. Each of its parts is a type of its own, with
//! private fields and unit tests, and knows nothing of the connection:
//!
//! - of the connection as a whole: how far it has come (`lifecycle`), the slab of streams
//!   (`streams`), those that we ended first (`late_streams`), budgets (`guard`), deadlines
//!   (`timers`), SETTINGS (`settings`), buffers (`pool`);
//! - receiving: header blocks (`head_reader`), windows (`receive_windows`), where the last message
//!   lies (`last_message`), what is unfinished (`unfinished`), large messages (`turns`) and
//!   compressed ones (`unpack`);
//! - sending: header blocks (`head_writer`), what waits and in which order it goes out
//!   (`send_queue`), what may be produced (`capacity`), what the windows leave room for (`room`).
//!
//! `connection` puts them together, a file for each concern that takes several of them. What only a
//! client or only a server does is in `connection/client.rs` and `connection/server.rs`.

mod bandwidth;
mod capacity;
mod claims;
mod config;
mod connection;
mod constant_frames;
mod error;
mod event;
mod extra_fields;
mod flow;
pub mod frame;
pub(crate) mod guard;
mod head_reader;
mod head_writer;
pub(crate) mod headers;
mod inbound;
mod last_message;
mod late_streams;
mod lifecycle;
mod memo;
mod ok_trailers;
pub(crate) mod outbound;
pub(crate) mod pool;
mod receive_windows;
mod request;
mod request_memo;
mod room;
mod send_queue;
mod settings;
mod stream;
mod stream_key;
mod streams;
mod timers;
mod turn;
mod turns;
mod unfinished;
mod unpack;

pub use capacity::Pause;
pub use config::{Config, Role};
pub use connection::{ChargeShared, Connection, PUSHBACK_TRAILER, SentPart};
pub use error::{CancelCause, CloseReason, ErrorCode};
pub use event::Event;
pub use headers::Head;
pub use last_message::TakenMessage;
pub use outbound::{BodyCharge, SharedBytes};
pub use request::{RequestHead, StreamOpenError};
pub use stream_key::StreamKey;
