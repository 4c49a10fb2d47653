//! A network in memory: the same handlers, virtual time, faults on purpose, one seed.
//!
//! Every node is a loop with its handler; clients are handlers too. Nothing here reads a clock or
//! the system's randomness, so the same seed gives the same run, event by event
//! ([`Network::trace`] proves it): a failure that prints its seed can be brought back.
//!
//! ```
//! use net::sim::{Faults, Network};
//! # struct Echo;
//! # impl net::Handler for Echo {
//! #     fn opened(&mut self, _: net::ConnectionId, _: &net::Peer, _: &mut net::Io, _: u64) {}
//! #     fn received(&mut self, _: net::ConnectionId, _: &mut net::Io, _: u64) {}
//! #     fn writable(&mut self, _: net::ConnectionId, _: &mut net::Io, _: u64) {}
//! #     fn closed(&mut self, _: net::ConnectionId, _: net::Closed, _: u64) {}
//! #     fn tick(&mut self, _: &mut dyn net::Connections, _: u64) {}
//! #     fn next_deadline_ns(&self) -> Option<u64> { None }
//! #     fn stop(&mut self, _: &mut dyn net::Connections, _: u64) {}
//! #     fn is_drained(&self) -> bool { true }
//! # }
//! # let (client, server) = (Echo, Echo);
//! let mut network = Network::new(7, Faults::rough());
//! let client = network.add_node(Box::new(client));
//! let server = network.add_node(Box::new(server));
//! network.connect(client, server);
//! network.run_for(1_000_000_000);
//! println!("{:?}", network.fault_counts());
//! ```

mod fabric;
mod faults;
mod network;
mod random;
mod timing;

pub use faults::{FaultCounts, Faults};
pub use network::{Network, NodeId};
pub use random::SplitMix;
pub use timing::Timing;
