//! Moves bytes between sockets and protocols.
//!
//! One event loop is one thread with one [`Handler`]. In each *tick* it reads every readable
//! socket once, hands the bytes to the handler, lets the handler serve what has gathered, and
//! writes every connection that has output once. So the cost of a system call is shared by all
//! requests that arrived together.
//!
//! For a side that opens connections and turns its own loop there is [`Outgoing`].
//!
//! The same handlers run over [`sim`], a network in memory with virtual time and one seed.
//!
//! ```no_run
//! use net::{LoopConfig, Loops};
//! # fn make_handler(_: &net::LoopStart) -> Box<dyn net::Handler> { unimplemented!() }
//!
//! let config = LoopConfig { listen: vec!["127.0.0.1:1978".parse()?], ..LoopConfig::default() };
//! let loops = Loops::bind(config)?;
//! println!("listening on {}", loops.addresses()[0]);
//! let ended = loops.run(make_handler)?;
//! println!("every loop drained in time: {}", ended.drained);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! With [`Driver::Blocking`] each connection has a thread of its own instead, which serves one
//! request after the other.
//!
//! Inside, `core` is the turn of a loop, driven by calls and generic over a `Port` that
//! carries bytes: `epoll` is one, `sim::fabric` the other. `event_loop` waits and accepts, `loops`
//! starts threads and stops them; `blocking` is a thread with one connection, `pool` gives it one.

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

mod address;
mod addresses;
mod blocking;
mod buffers;
mod config;
mod core;
mod counters;
mod epoll;
mod event_loop;
mod handler;
mod io;
pub mod limits;
mod listener;
mod loops;
mod notice;
mod outgoing;
mod peer_address;
mod permits;
mod pool;
mod port;
mod reports;
mod run;
mod secure;
pub mod sim;
mod slab;
mod socket;
mod spread;
mod supervisor;
mod table;
mod thread;
pub mod tls;
mod unfinished;
mod wake;

pub use address::{Address, AddressError};
pub use addresses::AddressPlace;
pub use config::{Driver, Listen, LoopConfig};
pub use counters::LoopCounters;
pub use event_loop::monotonic_ns;
pub use handler::{Closed, ConnectionId, Connections, Handler, Peer, Waker};
pub use io::{Input, Io};
pub use listener::BindError;
pub use loops::{Loops, StopHandle};
pub use notice::{Notice, Notices, SilentNotices};
pub use outgoing::{
    Outgoing, OutgoingCounters, OutgoingEndpoint, OutgoingPoller, OutgoingWaker, PortBuffers,
    Ready, SocketReadResult, SocketWriteResult, TcpDiagnosis, TcpFigures, TcpInfo, port_buffers,
};
pub use peer_address::{AddressKey, PeerAddress};
pub use run::{LoopStart, RunEnd, RunError, THREAD_LIMITS};
pub use spread::CountersReader;
pub use thread::{make_waits_precise, pin_thread};
pub use unfinished::HandshakePlace;
