//! Bounds and deadlines to the byte and to the nanosecond, in virtual time: with real sockets they
//! can only be tested from far away.

use std::cell::RefCell;
use std::rc::Rc;

use drive::limits::{
    OUTPUT_HIGH_WATER_BYTES, OUTPUT_LOW_WATER_BYTES, STOP_FLUSH_MS, WRITE_STALL_MS,
};
use drive::sim::{Faults, Network, NodeId};
use drive::{Closed, ConnectionId, Connections, Handler, Io, Peer};

/// A handler that does what a test says, and keeps what it sees.
#[derive(Default)]
struct Scripted {
    /// Sent when a connection opens.
    greeting: Vec<u8>,
    /// Closes a connection when something comes.
    close_now: bool,
    /// Reads nothing while set.
    paused: bool,
    /// Says that its work is done.
    busy: bool,
    open: Vec<ConnectionId>,
    received: Vec<u8>,
    writable: usize,
    ends: usize,
    closed: Vec<Closed>,
}

impl Handler for Scripted {
    fn opened(&mut self, id: ConnectionId, _: &Peer, io: &mut Io, _: u64) {
        self.open.push(id);
        io.output.extend_from_slice(&self.greeting);
        io.pause_reading(self.paused);
    }

    fn received(&mut self, _: ConnectionId, io: &mut Io, _: u64) {
        self.received.extend_from_slice(io.input.bytes());
        io.input.consume(io.input.len());
        self.ends += usize::from(io.end_of_input());
        if self.close_now {
            io.output.extend_from_slice(b"nobody reads this");
            io.close_now();
            assert!(io.is_closing());
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
        for id in &self.open {
            connections
                .io(*id)
                .expect("open")
                .pause_reading(self.paused);
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

struct Pair {
    network: Network,
    server: NodeId,
    client: NodeId,
    at_server: Rc<RefCell<Scripted>>,
    at_client: Rc<RefCell<Scripted>>,
}

/// Joins two handlers by one connection with buffers of this size in each direction.
fn pair(buffer_bytes: usize, server: Scripted, client: Scripted) -> Pair {
    let faults = Faults {
        buffer_min_bytes: buffer_bytes as u64,
        buffer_max_bytes: buffer_bytes as u64,
        ..Faults::none()
    };
    let mut network = Network::new(1, faults);
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

const BUFFER_BYTES: usize = 10_000;
const MS: u64 = 1_000_000;

/// The server greets with so many bytes more than the network takes; nobody reads them.
fn waiting(waiting_bytes: usize) -> Pair {
    let greeting = vec![1; BUFFER_BYTES + waiting_bytes];
    let server = Scripted {
        greeting,
        ..Scripted::default()
    };
    let client = Scripted {
        paused: true,
        greeting: b"a request".to_vec(),
        ..Scripted::default()
    };
    let mut pair = pair(BUFFER_BYTES, server, client);
    pair.network.run_for(10 * MS);
    pair
}

#[test]
fn reading_stops_at_the_high_water_mark_and_not_a_byte_below() {
    let below = waiting(OUTPUT_HIGH_WATER_BYTES - 1);
    assert_eq!(below.network.counters(below.server).chokes, 0);
    let at = waiting(OUTPUT_HIGH_WATER_BYTES);
    assert_eq!(at.network.counters(at.server).chokes, 1);
}

#[test]
fn reading_goes_on_when_the_peer_takes_bytes_again() {
    for round in 0..2 {
        let mut pair = waiting(OUTPUT_HIGH_WATER_BYTES + round);
        let before = pair.at_server.borrow().received.len();
        // What is sent while the server does not read.
        assert_eq!(pair.at_server.borrow().writable, 0);
        pair.at_client.borrow_mut().paused = false;
        pair.network.wake(pair.client);
        pair.network.run_for(1_000 * MS);
        assert_eq!(
            pair.at_server.borrow().writable,
            1,
            "told once, at the low-water mark"
        );
        let sent = BUFFER_BYTES + OUTPUT_HIGH_WATER_BYTES + round;
        assert_eq!(pair.at_client.borrow().received.len(), sent);
        assert!(pair.at_server.borrow().received.len() >= before);
    }
    // What never rose above the low-water mark is nothing to be told of.
    let mut low = waiting(OUTPUT_LOW_WATER_BYTES - BUFFER_BYTES);
    low.at_client.borrow_mut().paused = false;
    low.network.wake(low.client);
    low.network.run_for(1_000 * MS);
    assert_eq!(low.at_server.borrow().writable, 0);
}

#[test]
fn a_connection_that_is_closed_now_sends_nothing_and_leaves_nothing() {
    for _ in 0..2 {
        let server = Scripted {
            close_now: true,
            ..Scripted::default()
        };
        let client = Scripted {
            greeting: b"a request".to_vec(),
            ..Scripted::default()
        };
        let mut pair = pair(BUFFER_BYTES, server, client);
        pair.network.run_for(10 * MS);
        assert_eq!(pair.at_server.borrow().closed, [Closed::ByHandler]);
        assert_eq!(pair.at_client.borrow().received, b"");
        let counters = pair.network.counters(pair.server);
        assert_eq!((counters.connections, counters.bytes_out), (0, 0));
        assert_eq!(
            (counters.input_buffers_lent, counters.output_buffers_lent),
            (0, 0)
        );
    }
}

#[test]
fn a_peer_that_takes_nothing_has_its_whole_time_and_no_more() {
    let mut pair = waiting(1);
    pair.network.run_for((WRITE_STALL_MS - 20) * MS);
    assert_eq!(pair.network.counters(pair.server).connections, 1);
    pair.network.run_for(WRITE_STALL_MS * MS);
    let counters = pair.network.counters(pair.server);
    assert_eq!((counters.connections, counters.stalled), (0, 1));
}

#[test]
fn a_stop_ends_with_the_last_connection_and_does_not_wait_for_its_deadline() {
    let client = Scripted {
        greeting: b"a request".to_vec(),
        ..Scripted::default()
    };
    let mut pair = pair(
        BUFFER_BYTES,
        Scripted {
            busy: true,
            ..Scripted::default()
        },
        client,
    );
    pair.network.run_for(10 * MS);
    pair.network.stop(pair.server);
    pair.network.run_for(500 * MS);
    assert!(!pair.network.has_ended(pair.server), "its work is not done");
    pair.at_server.borrow_mut().busy = false;
    pair.network.wake(pair.server);
    pair.network.run_for(10 * MS);
    assert_eq!(
        pair.at_client.borrow().ends,
        1,
        "the end of output reaches the peer at once"
    );
    pair.network.stop_now(pair.client);
    pair.network.run_for(10 * MS);
    assert!(
        pair.network.has_ended(pair.server),
        "long before {STOP_FLUSH_MS} ms"
    );
}

#[test]
fn a_stop_without_connections_ends_in_the_next_tick() {
    let mut network = Network::new(1, Faults::none());
    let server = network.add_node(Box::new(Scripted::default()));
    network.run_for(MS);
    network.stop(server);
    network.run_for(MS);
    assert!(network.has_ended(server));
}
