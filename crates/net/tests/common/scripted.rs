//! A handler that does what a test says, and two of them joined by a simulated network.

use std::cell::RefCell;
use std::rc::Rc;

use net::sim::{Faults, Network, NodeId, Timing};
use net::{Closed, ConnectionId, Connections, Handler, Io, LoopCounters, Peer};

/// A handler that does what a test says, and keeps what it sees.
#[derive(Default)]
pub struct Scripted {
    /// Sent when a connection opens.
    pub greeting: Vec<u8>,
    /// Sent to every connection at the next tick.
    pub later: Vec<u8>,
    /// Closes a connection when something comes.
    pub close_now: bool,
    /// Closes a connection when something comes, once the answer is written.
    pub close_written: bool,
    /// Reads nothing while set.
    pub paused: bool,
    /// Says that its work is done.
    pub busy: bool,
    /// Takes so much in a turn, and goes on with the rest in another; 0: all.
    pub turn_bytes: usize,
    /// What it says that a turn has cost.
    pub turn_cost_bytes: usize,
    /// Whose turns there were, in order.
    pub turns: Vec<ConnectionId>,
    pub open: Vec<ConnectionId>,
    pub received: Vec<u8>,
    pub writable: usize,
    pub ends: usize,
    pub closed: Vec<Closed>,
}

impl Handler for Scripted {
    fn opened(&mut self, id: ConnectionId, _: &Peer, io: &mut Io, _: u64) {
        self.open.push(id);
        io.output.extend_from_slice(&self.greeting);
        io.pause_reading(self.paused);
    }

    fn received(&mut self, id: ConnectionId, io: &mut Io, _: u64) {
        self.turns.push(id);
        let taken = match self.turn_bytes {
            0 => io.input.len(),
            bytes => bytes.min(io.input.len()),
        };
        self.received.extend_from_slice(&io.input.bytes()[..taken]);
        io.input.consume(taken);
        io.set_turn_cost(self.turn_cost_bytes);
        io.set_unfinished(!io.input.is_empty());
        self.ends += usize::from(io.end_of_input());
        if self.close_now {
            io.output.extend_from_slice(b"nobody reads this");
            io.close_now();
            assert!(io.is_closing());
        }
        if self.close_written {
            io.output.extend_from_slice(b"an answer");
            io.close_when_written();
        }
    }

    fn writable(&mut self, _: ConnectionId, _: &mut Io, _: u64) {
        self.writable += 1;
    }

    fn closed(&mut self, id: ConnectionId, why: Closed, _: u64) {
        self.open.retain(|other| *other != id);
        self.closed.push(why);
    }

    fn tick(&mut self, connections: &mut dyn Connections, _: u64) {
        let later = std::mem::take(&mut self.later);
        for id in &self.open {
            let io = connections.io(*id).expect("open");
            io.pause_reading(self.paused);
            io.output.extend_from_slice(&later);
        }
    }

    fn next_deadline_ns(&self) -> Option<u64> {
        None
    }

    fn stop(&mut self, _: &mut dyn Connections, _: u64) {}

    fn is_drained(&self) -> bool {
        !self.busy
    }
}

/// A server and its client.
pub struct Pair {
    pub network: Network,
    pub server: NodeId,
    pub client: NodeId,
    pub at_server: Rc<RefCell<Scripted>>,
    pub at_client: Rc<RefCell<Scripted>>,
}

/// A network without faults whose links hold so many bytes in each direction.
pub fn linked(buffer_bytes: usize) -> Network {
    linked_with(buffer_bytes, Timing::default())
}

/// The same, whose nodes keep these times.
pub fn linked_with(buffer_bytes: usize, timing: Timing) -> Network {
    let faults = Faults {
        buffer_min_bytes: buffer_bytes as u64,
        buffer_max_bytes: buffer_bytes as u64,
        ..Faults::none()
    };
    Network::with_timing(1, faults, timing)
}

/// Joins two handlers by one connection with buffers of this size in each direction.
pub fn pair(buffer_bytes: usize, server: Scripted, client: Scripted) -> Pair {
    joined(linked(buffer_bytes), server, client)
}

/// Joins two handlers by one connection of this network.
pub fn joined(mut network: Network, server: Scripted, client: Scripted) -> Pair {
    let at_server = Rc::new(RefCell::new(server));
    let at_client = Rc::new(RefCell::new(client));
    let server = network.add_node(Box::new(at_server.clone()));
    let client = network.add_node(Box::new(at_client.clone()));
    network.connect(client, server);
    Pair {
        network,
        server,
        client,
        at_server,
        at_client,
    }
}

impl Pair {
    /// What the server's loop counts.
    pub fn counted(&self) -> LoopCounters {
        self.network.counters(self.server)
    }

    /// Runs until something is so, and to the very tick in which it became so.
    pub fn run_until(&mut self, what: &str, is_so: impl Fn(&Pair) -> bool) {
        for _ in 0..1_000_000 {
            if is_so(self) {
                return;
            }
            self.network.step();
        }
        panic!("never: {what}");
    }

    /// Has the client send something at once.
    pub fn send(&mut self, bytes: Vec<u8>) {
        self.at_client.borrow_mut().later = bytes;
        self.network.wake(self.client);
    }
}

/// The room of a link between a pair, where it matters.
pub const BUFFER_BYTES: usize = 10_000;
pub const MS: u64 = 1_000_000;
