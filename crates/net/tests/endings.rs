//! How connections end that their handlers have closed, whose peers take nothing, or whose TLS
//! fails, in virtual time: to the byte and to the nanosecond.

mod common;

use std::cell::RefCell;
use std::rc::Rc;

use common::scripted::{BUFFER_BYTES, MS, Pair, Scripted, linked, pair};
use common::tls::Authority;
use net::limits::{DRAIN_MS, LINGER_BYTES, LINGER_MS, STOP_LINGER_MS, WRITE_STALL_MS};
use net::sim::{Network, NodeId};
use net::tls::{ClientTls, TlsPipe};
use net::{Closed, ConnectionId, Connections, Handler, Io, LoopCounters, Peer};

/// A server that has answered and closed, and a peer that does not go.
fn lingering() -> Pair {
    let server = Scripted {
        close_written: true,
        ..Scripted::default()
    };
    let client = Scripted {
        greeting: b"a request".to_vec(),
        ..Scripted::default()
    };
    let mut pair = pair(BUFFER_BYTES, server, client);
    pair.run_until("the server has closed", |pair| {
        !pair.at_server.borrow().closed.is_empty()
    });
    assert_eq!(pair.at_server.borrow().closed, [Closed::ByHandler]);
    assert_eq!(pair.counted().connections, 1);
    pair
}

#[test]
fn a_lingering_peer_may_send_as_many_bytes_as_the_bound_and_no_more() {
    for (bytes, stays) in [
        (LINGER_BYTES - 1, 1),
        (LINGER_BYTES, 1),
        (LINGER_BYTES + 1, 0),
    ] {
        for _ in 0..2 {
            let mut pair = lingering();
            let before = pair.counted();
            pair.send(vec![7; bytes]);
            pair.network.run_for(LINGER_MS / 2 * MS);
            let counters = pair.counted();
            assert_eq!(counters.connections, stays, "{bytes}");
            assert!(counters.reads > before.reads);
            assert_eq!(counters.bytes_in, before.bytes_in, "no handler gets it");
            assert_eq!(
                counters.input_buffers_lent + counters.output_buffers_lent,
                0
            );
            pair.network.run_for(LINGER_MS / 2 * MS);
            assert_eq!(pair.counted().connections, 0);
            assert_eq!(pair.at_server.borrow().received, b"a request");
        }
    }
}

/// The bound counts all that came, however it is divided.
#[test]
fn bytes_of_a_lingering_peer_add_up() {
    let mut pair = lingering();
    for _ in 0..4 {
        pair.send(vec![7; LINGER_BYTES / 4]);
        pair.network.run_for(LINGER_MS / 8 * MS);
        assert_eq!(pair.counted().connections, 1);
    }
    pair.send(vec![7]);
    pair.network.run_for(MS);
    assert_eq!(pair.counted().connections, 0);
}

/// For a shorter time once this side stops.
#[test]
fn a_connection_lingers_to_the_nanosecond() {
    for stops in [false, true, false] {
        let mut pair = lingering();
        let mut left_ms = LINGER_MS;
        if stops {
            left_ms = STOP_LINGER_MS;
            pair.network.stop(pair.server);
            // The shorter time begins with the tick that ends the drain.
            let ticks = pair.counted().ticks;
            pair.run_until("it is drained", |pair| pair.counted().ticks > ticks);
        }
        pair.network.run_for(left_ms * MS - 1);
        assert_eq!(pair.counted().connections, 1, "stops: {stops}");
        assert!(!pair.network.has_ended(pair.server));
        pair.network.run_for(1);
        assert_eq!(pair.counted().connections, 0, "stops: {stops}");
        assert_eq!(pair.network.has_ended(pair.server), stops);
        assert_eq!(pair.at_client.borrow().received, b"an answer");
        assert_eq!(pair.at_client.borrow().ends, 1);
    }
}

#[test]
fn a_peer_that_takes_nothing_is_closed_to_the_nanosecond_and_idle_ones_stay() {
    let mut pair = pair(BUFFER_BYTES, Scripted::default(), Scripted::default());
    let deaf = pair.network.add_node(Box::new(Scripted {
        paused: true,
        ..Scripted::default()
    }));
    for round in 1..=3 {
        pair.network.connect(deaf, pair.server);
        // Nothing was sent to the idle one for longer than any peer may stall.
        pair.network.run_for(2 * WRITE_STALL_MS * MS);
        let before = pair.counted().short_writes;
        pair.at_server.borrow_mut().later = vec![1; BUFFER_BYTES + 1];
        pair.network.wake(pair.server);
        pair.run_until("both wait for their peers", |pair| {
            pair.counted().short_writes == before + 2
        });
        pair.network.run_for(WRITE_STALL_MS * MS - 1);
        let counters = pair.counted();
        assert_eq!((counters.connections, counters.stalled), (2, round - 1));
        pair.network.run_for(1);
        let counters = pair.counted();
        assert_eq!((counters.connections, counters.stalled), (1, round));
        let closed = pair.at_server.borrow().closed.clone();
        assert_eq!(closed, vec![Closed::Stalled; round as usize]);
        let received = pair.at_client.borrow().received.len();
        assert_eq!(received as u64, round * (BUFFER_BYTES as u64 + 1));
        assert!(is_idle(&mut pair.network), "nothing is waited for");
    }
}

/// A deadline that passes at the moment of a tick has passed.
#[test]
fn a_drain_has_its_whole_time_and_no_more() {
    for _ in 0..2 {
        let mut pair = pair(BUFFER_BYTES, Scripted::default(), Scripted::default());
        pair.at_server.borrow_mut().busy = true;
        pair.network.run_for(MS);
        pair.network.stop(pair.server);
        pair.network.run_for(DRAIN_MS * MS - 1);
        assert!(pair.at_server.borrow().closed.is_empty());
        pair.network.run_for(1);
        assert_eq!(pair.at_server.borrow().closed, [Closed::Stopped]);
    }
}

/// Whether nothing will ever happen by itself.
fn is_idle(network: &mut Network) -> bool {
    (0..1_000).any(|_| !network.step())
}

/// A client that speaks TLS by itself, reads nothing once both sides have agreed, and then sends a
/// record that was never sealed.
struct Forger {
    tls: ClientTls,
    pipes: Vec<(ConnectionId, TlsPipe)>,
    /// Sent to every connection at the next tick.
    forged: Vec<u8>,
}

/// A record of application data (RFC 8446 section 5.2), encrypted by nobody.
fn forged_record() -> Vec<u8> {
    let mut record = vec![23, 3, 3, 0, 40];
    record.resize(5 + 40, 9);
    record
}

impl Forger {
    fn pipe(&mut self, id: ConnectionId) -> &mut TlsPipe {
        let found = self.pipes.iter_mut().find(|(other, _)| *other == id);
        &mut found.expect("it is open").1
    }

    fn flush(&mut self, id: ConnectionId, io: &mut Io) {
        let pipe = self.pipe(id);
        io.output.extend_from_slice(pipe.output());
        let count = pipe.output().len();
        pipe.sent(count);
    }
}

impl Handler for Forger {
    fn opened(&mut self, id: ConnectionId, _: &Peer, io: &mut Io, _: u64) {
        let address = "localhost:1".parse().expect("valid");
        let pipe = self.tls.connect(&address).expect("a name");
        self.pipes.push((id, pipe));
        self.flush(id, io);
    }

    fn received(&mut self, id: ConnectionId, io: &mut Io, _: u64) {
        let bytes = io.input.bytes().to_vec();
        io.input.consume(bytes.len());
        let pipe = self.pipe(id);
        pipe.received(&bytes, &mut |_| {}).expect("no fault yet");
        let is_agreed = !pipe.is_handshaking();
        self.flush(id, io);
        io.pause_reading(is_agreed);
    }

    fn writable(&mut self, _: ConnectionId, _: &mut Io, _: u64) {}

    fn closed(&mut self, id: ConnectionId, _: Closed, _: u64) {
        self.pipes.retain(|(other, _)| *other != id);
    }

    fn tick(&mut self, connections: &mut dyn Connections, _: u64) {
        let forged = std::mem::take(&mut self.forged);
        for (id, _) in &self.pipes {
            let io = connections.io(*id).expect("open");
            io.output.extend_from_slice(&forged);
        }
    }

    fn next_deadline_ns(&self) -> Option<u64> {
        None
    }

    fn stop(&mut self, _: &mut dyn Connections, _: u64) {}

    fn is_drained(&self) -> bool {
        true
    }
}

/// A server with TLS, and a client that forges records.
struct Forgery {
    network: Network,
    server: NodeId,
    client: NodeId,
    at_server: Rc<RefCell<Scripted>>,
    at_client: Rc<RefCell<Forger>>,
}

impl Forgery {
    fn new(greeting: Vec<u8>) -> Forgery {
        let authority = Authority::new();
        let mut network = linked(BUFFER_BYTES);
        let at_server = Rc::new(RefCell::new(Scripted {
            greeting,
            ..Scripted::default()
        }));
        let at_client = Rc::new(RefCell::new(Forger {
            tls: authority.client(),
            pipes: Vec::new(),
            forged: Vec::new(),
        }));
        let accept = Some(authority.server());
        Forgery {
            server: network.add_secure_node(Box::new(at_server.clone()), accept, None),
            client: network.add_node(Box::new(at_client.clone())),
            network,
            at_server,
            at_client,
        }
    }

    fn counted(&self) -> LoopCounters {
        self.network.counters(self.server)
    }

    fn connect(&mut self) {
        self.network.connect(self.client, self.server);
        self.network.run_for(10 * MS);
    }

    fn forge(&mut self) {
        self.at_client.borrow_mut().forged = forged_record();
        self.network.wake(self.client);
        self.network.run_for(10 * MS);
    }

    /// After the time for lingering: nothing is left on the server's side, and nothing is looked at
    /// from time to time.
    fn expect_nothing_left(&mut self) {
        self.network.run_for(LINGER_MS * MS);
        let counters = self.counted();
        assert_eq!(
            (counters.connections, counters.closed),
            (0, counters.opened)
        );
        let lent = counters.input_buffers_lent + counters.output_buffers_lent;
        assert_eq!((lent, counters.stalled), (0, 0));
        assert!(is_idle(&mut self.network), "nothing is waited for");
        self.at_client.borrow_mut().pipes.clear();
    }
}

/// The loop must not go on counting the connection among those that wait for their peers.
#[test]
fn tls_that_fails_while_output_waits_for_the_peer_leaves_nothing() {
    let mut forgery = Forgery::new(vec![1; 3 * BUFFER_BYTES]);
    for round in 1..=2 {
        forgery.connect();
        let before = forgery.counted();
        assert_eq!((before.handshakes, before.connections), (round, 1));
        assert_eq!(before.short_writes, round, "it waits for its peer");
        forgery.forge();
        let failed = forgery.counted();
        assert_eq!((failed.failed_broken, failed.connections), (round, 1));
        assert_eq!(failed.writes, before.writes, "nobody would take an alert");
        let closed = forgery.at_server.borrow().closed.clone();
        assert_eq!(closed, vec![Closed::ByPeer; round as usize]);
        forgery.expect_nothing_left();
    }
}

#[test]
fn tls_that_fails_while_nothing_waits_sends_its_alert() {
    let mut forgery = Forgery::new(b"hello".to_vec());
    for round in 1..=2 {
        forgery.connect();
        let before = forgery.counted();
        assert_eq!((before.handshakes, before.short_writes), (round, 0));
        forgery.forge();
        let failed = forgery.counted();
        assert_eq!((failed.failed_broken, failed.connections), (round, 1));
        assert_eq!(failed.writes, before.writes + 1, "the alert");
        let closed = forgery.at_server.borrow().closed.clone();
        assert_eq!(closed, vec![Closed::ByPeer; round as usize]);
        forgery.expect_nothing_left();
    }
}
