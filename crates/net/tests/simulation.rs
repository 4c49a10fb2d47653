//! Handlers over the simulated network: every byte gets through, in order, whatever happens to it;
//! and the same seed gives the same run.

mod common;

use std::cell::RefCell;
use std::rc::Rc;

use net::limits::OUTPUT_HIGH_WATER_BYTES;
use net::sim::{Faults, Network, SplitMix};
use net::{Closed, ConnectionId, Connections, Handler, Io, Peer};

/// Sends back what it gets, with all habits a handler can have: by turns, in `tick`, with pauses.
struct Echo {
    random: SplitMix,
    /// Answered in `tick` instead of at once.
    late: Vec<(ConnectionId, Vec<u8>)>,
    /// Paused until the next tick.
    paused: Vec<ConnectionId>,
    open: usize,
    wake_ns: Option<u64>,
    stopping: bool,
    /// The most output ever seen waiting.
    most_waiting: usize,
}

impl Echo {
    fn new(seed: u64) -> Echo {
        Echo {
            random: SplitMix::new(seed),
            late: Vec::new(),
            paused: Vec::new(),
            open: 0,
            wake_ns: None,
            stopping: false,
            most_waiting: 0,
        }
    }
}

impl Handler for Echo {
    fn opened(&mut self, _: ConnectionId, peer: &Peer, _: &mut Io, _: u64) {
        assert!(!peer.outgoing);
        self.open += 1;
    }

    fn received(&mut self, id: ConnectionId, io: &mut Io, now_ns: u64) {
        assert!(!io.is_closing());
        if self.late.iter().any(|(other, _)| *other == id) {
            return io.set_unfinished(true); // in order: the late answer first
        }
        let take = match self.random.below(4) {
            0 => io.input.len().min(self.random.below(100) as usize),
            _ => io.input.len(),
        };
        match self.random.below(3) {
            0 => self.late.push((id, io.input.bytes()[..take].to_vec())),
            _ => io.output.extend_from_slice(&io.input.bytes()[..take]),
        }
        io.input.consume(take);
        self.most_waiting = self.most_waiting.max(io.output.len());
        if !io.input.is_empty() {
            io.set_unfinished(true);
        } else if self.random.below(50) == 0 {
            io.pause_reading(true);
            self.paused.push(id);
            self.wake_ns = Some(now_ns + 1_000_000);
        }
        let owing = self.late.iter().any(|(other, _)| *other == id);
        if io.end_of_input() && io.input.is_empty() {
            if owing {
                io.set_unfinished(true)
            } else {
                io.close_when_written()
            }
        }
    }

    fn writable(&mut self, _: ConnectionId, _: &mut Io, _: u64) {}

    fn closed(&mut self, id: ConnectionId, _: Closed, _: u64) {
        self.open -= 1;
        self.late.retain(|(other, _)| *other != id);
        self.paused.retain(|other| *other != id);
    }

    fn tick(&mut self, connections: &mut dyn Connections, now_ns: u64) {
        for (id, bytes) in self.late.drain(..) {
            let io = connections.io(id).expect("closed ones are taken out");
            io.output.extend_from_slice(&bytes);
        }
        if self.wake_ns.is_some_and(|at_ns| at_ns <= now_ns) {
            self.wake_ns = None;
            for id in self.paused.drain(..) {
                connections
                    .io(id)
                    .expect("closed ones are taken out")
                    .pause_reading(false);
            }
        }
    }

    fn next_deadline_ns(&self) -> Option<u64> {
        self.wake_ns
    }

    fn stop(&mut self, _: &mut dyn Connections, _: u64) {
        self.stopping = true;
    }

    fn is_drained(&self) -> bool {
        assert!(self.stopping);
        self.late.is_empty() && self.open == 0
    }
}

/// Sends numbered bytes on each connection and checks what comes back.
struct Client {
    seed: u64,
    total_bytes: usize,
    streams: Vec<(ConnectionId, Stream)>,
    finished: usize,
    lost: usize,
}

#[derive(Default)]
struct Stream {
    sent: usize,
    checked: usize,
    has_closed: bool,
}

fn byte_at(seed: u64, position: usize) -> u8 {
    (seed as usize)
        .wrapping_mul(31)
        .wrapping_add(position * 7 + position / 251) as u8
}

impl Client {
    fn new(seed: u64, total_bytes: usize) -> Client {
        Client {
            seed,
            total_bytes,
            streams: Vec::new(),
            finished: 0,
            lost: 0,
        }
    }

    fn send_more(&mut self, id: ConnectionId, io: &mut Io) {
        let (seed, total) = (self.seed, self.total_bytes);
        let stream = self.stream(id);
        while stream.sent < total && !io.output_is_full() {
            io.output.push(byte_at(seed, stream.sent));
            stream.sent += 1;
        }
    }

    fn stream(&mut self, id: ConnectionId) -> &mut Stream {
        let found = self.streams.iter_mut().find(|(other, _)| *other == id);
        &mut found.expect("opened before").1
    }
}

impl Handler for Client {
    fn opened(&mut self, id: ConnectionId, peer: &Peer, io: &mut Io, _: u64) {
        assert!(peer.outgoing);
        self.streams.push((id, Stream::default()));
        self.send_more(id, io);
    }

    fn received(&mut self, id: ConnectionId, io: &mut Io, _: u64) {
        let (seed, total) = (self.seed, self.total_bytes);
        let stream = self.stream(id);
        for &byte in io.input.bytes() {
            assert_eq!(
                byte,
                byte_at(seed, stream.checked),
                "byte {} of {id:?}",
                stream.checked
            );
            stream.checked += 1;
        }
        assert!(stream.checked <= stream.sent);
        io.input.consume(io.input.len());
        if stream.checked == total {
            stream.has_closed = true;
            io.close_when_written();
        } else {
            assert!(
                !io.end_of_input(),
                "nothing ends before all is echoed, but by a cut"
            );
            self.send_more(id, io);
        }
    }

    fn writable(&mut self, id: ConnectionId, io: &mut Io, _: u64) {
        self.send_more(id, io);
    }

    fn closed(&mut self, id: ConnectionId, why: Closed, _: u64) {
        let place = self.streams.iter().position(|(other, _)| *other == id);
        let (_, stream) = self.streams.swap_remove(place.expect("closed once"));
        if stream.has_closed && why == Closed::ByHandler {
            self.finished += 1;
        } else {
            assert_eq!(why, Closed::ByPeer);
            self.lost += 1;
        }
    }

    fn tick(&mut self, _: &mut dyn Connections, _: u64) {}
    fn next_deadline_ns(&self) -> Option<u64> {
        None
    }
    fn stop(&mut self, _: &mut dyn Connections, _: u64) {}
    fn is_drained(&self) -> bool {
        self.streams.is_empty()
    }
}

/// Whether the two nodes speak TLS.
#[derive(Clone, Copy, PartialEq)]
enum Layer {
    Plain,
    Tls,
}

struct Run {
    network: Network,
    client: Rc<RefCell<Client>>,
    echo: Rc<RefCell<Echo>>,
    node: net::sim::NodeId,
}

fn run(seed: u64, faults: Faults, connections: usize, total_bytes: usize) -> Run {
    run_over(Layer::Plain, seed, faults, connections, total_bytes)
}

fn run_over(
    layer: Layer,
    seed: u64,
    faults: Faults,
    connections: usize,
    total_bytes: usize,
) -> Run {
    println!("seed {seed}");
    let mut network = Network::new(seed, faults);
    let echo = Rc::new(RefCell::new(Echo::new(seed)));
    let client = Rc::new(RefCell::new(Client::new(seed, total_bytes)));
    let (accept, connect) = match layer {
        Layer::Plain => (None, None),
        Layer::Tls => {
            let authority = common::tls::Authority::new();
            let address = "localhost:1".parse().expect("valid");
            (
                Some(authority.server()),
                Some((authority.client(), address)),
            )
        }
    };
    let node = network.add_secure_node(Box::new(echo.clone()), accept, None);
    let from = network.add_secure_node(Box::new(client.clone()), None, connect);
    for _ in 0..connections {
        network.connect(from, node);
    }
    // With TLS, a connection that was cut early was never shown to the handlers.
    let done = network.run_until(50_000_000, |network| {
        let is_empty = network.counters(node).connections == 0;
        let has_closed = network.counters(from).closed == connections as u64;
        has_closed && echo.borrow().open == 0 && is_empty
    });
    let finished = client.borrow().finished;
    client.borrow_mut().lost = connections - finished;
    assert!(done, "seed {seed}: {:?}", network.fault_counts());
    Run {
        network,
        client,
        echo,
        node,
    }
}

#[test]
fn all_bytes_come_back_through_a_rough_network() {
    let mut runs_with = [0; 7];
    for seed in 0..20 {
        let run = run(seed, Faults::rough(), 10, 20_000);
        assert_eq!(run.client.borrow().finished, 10, "seed {seed}");
        let faults = run.network.fault_counts();
        assert_eq!(
            (faults.cuts, faults.resets),
            (0, 0),
            "seed {seed}: {faults:?}"
        );
        let kinds = [
            faults.splits,
            faults.short_reads,
            faults.short_writes,
            faults.reorderings,
            faults.full_buffers,
            faults.stalls,
            faults.pauses,
        ];
        (0..7).for_each(|kind| runs_with[kind] += u64::from(kinds[kind] > 0));
    }
    assert!(
        runs_with.iter().all(|&runs| runs > 10),
        "each fault in most runs: {runs_with:?}"
    );
}

#[test]
fn all_bytes_come_back_through_tls_however_records_are_split() {
    let faults = Faults {
        buffer_min_bytes: 64, // with less, a handshake takes longer than it may
        ..Faults::rough()
    };
    for seed in 0..20 {
        let run = run_over(Layer::Tls, seed, faults.clone(), 6, 60_000);
        assert_eq!(run.client.borrow().finished, 6, "seed {seed}");
        let counters = run.network.counters(run.node);
        assert_eq!(counters.handshakes, 6, "seed {seed}");
        let lent = counters.input_buffers_lent + counters.output_buffers_lent;
        assert_eq!(lent, 0, "seed {seed}");
        let faults = run.network.fault_counts();
        assert!(faults.splits > 0 && faults.short_reads > 0 && faults.short_writes > 0);
    }
}

#[test]
fn a_hostile_network_damages_nothing_that_comes_through_tls() {
    let (mut finished, mut lost) = (0, 0);
    for seed in 200..220 {
        let faults = Faults {
            buffer_min_bytes: 64,
            ..Faults::hostile()
        };
        let run = run_over(Layer::Tls, seed, faults, 12, 20_000);
        finished += run.client.borrow().finished;
        lost += run.client.borrow().lost;
        let counters = run.network.counters(run.node);
        assert_eq!(
            (counters.connections, counters.input_buffers_lent),
            (0, 0),
            "seed {seed}"
        );
    }
    assert!(finished > 0 && lost > 0, "{finished} {lost}");
}

#[test]
fn large_streams_through_tls_are_held_back_and_memory_stays_bounded() {
    let faults = Faults {
        buffer_min_bytes: 9_000,
        buffer_max_bytes: 9_000,
        ..Faults::none()
    };
    let run = run_over(Layer::Tls, 1, faults, 3, 3_000_000);
    assert_eq!(run.client.borrow().finished, 3);
    let counters = run.network.counters(run.node);
    assert!(run.network.fault_counts().full_buffers > 0);
    let lent = (counters.input_buffers_lent, counters.output_buffers_lent);
    assert_eq!(lent, (0, 0));
    let bound = OUTPUT_HIGH_WATER_BYTES + net::limits::INPUT_MAX_BYTES;
    assert!(run.echo.borrow().most_waiting <= bound);
}

#[test]
fn a_hostile_network_loses_connections_but_nothing_else() {
    let (mut finished, mut lost, mut cuts) = (0, 0, 0);
    for seed in 100..120 {
        let run = run(seed, Faults::hostile(), 20, 20_000);
        finished += run.client.borrow().finished;
        lost += run.client.borrow().lost;
        cuts += run.network.fault_counts().cuts;
    }
    assert!(finished > 0 && lost > 0, "{finished} {lost}");
    assert!(cuts >= lost as u64, "{cuts} {lost}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let traces: Vec<u64> = [5, 5, 6]
        .map(|seed| run(seed, Faults::hostile(), 8, 5_000).network.trace())
        .to_vec();
    assert_eq!(traces[0], traces[1]);
    assert_ne!(traces[0], traces[2]);
}

#[test]
fn large_streams_are_held_back_and_memory_stays_bounded() {
    let faults = Faults {
        buffer_min_bytes: 9_000,
        buffer_max_bytes: 9_000,
        ..Faults::none()
    };
    let run = run(1, faults, 3, 3_000_000);
    assert_eq!(run.client.borrow().finished, 3);
    let counters = run.network.counters(run.node);
    assert!(run.network.fault_counts().full_buffers > 0);
    assert_eq!(counters.connections, 0);
    assert_eq!(
        (counters.input_buffers_lent, counters.output_buffers_lent),
        (0, 0)
    );
    let bound = OUTPUT_HIGH_WATER_BYTES + net::limits::INPUT_MAX_BYTES;
    assert!(
        run.echo.borrow().most_waiting <= bound,
        "{}",
        run.echo.borrow().most_waiting
    );
}

#[test]
fn a_peer_that_takes_nothing_is_closed_when_its_time_is_up() {
    /// Asks and never reads.
    struct Deaf;
    impl Handler for Deaf {
        fn opened(&mut self, _: ConnectionId, _: &Peer, io: &mut Io, _: u64) {
            io.output.resize(4 << 20, 1);
            io.pause_reading(true);
        }
        fn received(&mut self, _: ConnectionId, _: &mut Io, _: u64) {}
        fn writable(&mut self, _: ConnectionId, _: &mut Io, _: u64) {}
        fn closed(&mut self, _: ConnectionId, why: Closed, _: u64) {
            assert_eq!(why, Closed::ByPeer);
        }
        fn tick(&mut self, _: &mut dyn Connections, _: u64) {}
        fn next_deadline_ns(&self) -> Option<u64> {
            None
        }
        fn stop(&mut self, _: &mut dyn Connections, _: u64) {}
        fn is_drained(&self) -> bool {
            true
        }
    }
    let mut network = Network::new(3, Faults::none());
    let echo = Rc::new(RefCell::new(Echo::new(3)));
    let server = network.add_node(Box::new(echo.clone()));
    let client = network.add_node(Box::new(Deaf));
    network.connect(client, server);
    network.run_for(29_000_000_000);
    assert_eq!(
        (network.counters(server).chokes, echo.borrow().open),
        (1, 1)
    );
    network.run_for(10_000_000_000);
    assert_eq!(
        (network.counters(server).stalled, echo.borrow().open),
        (1, 0)
    );
    assert!(
        network.counters(server).bytes_in < 2 << 20,
        "not read once its output was full"
    );
    assert_eq!(network.counters(client).connections, 0);
}

#[test]
fn a_node_stops_when_its_work_is_done() {
    let mut network = Network::new(9, Faults::rough());
    let echo = Rc::new(RefCell::new(Echo::new(9)));
    let client = Rc::new(RefCell::new(Client::new(9, 50_000)));
    let server = network.add_node(Box::new(echo.clone()));
    let from = network.add_node(Box::new(client.clone()));
    (0..5).for_each(|_| network.connect(from, server));
    network.run_for(1_000_000);
    network.stop(server);
    network.run_for(60_000_000_000);
    assert!(network.has_ended(server));
    let client = client.borrow();
    assert_eq!(client.finished + client.lost, 5, "each ended exactly once");
    assert_eq!(network.counters(server).connections, 0);
}

#[test]
fn a_restarted_node_has_lost_its_connections_and_takes_new_ones() {
    let mut network = Network::new(4, Faults::rough());
    let client = Rc::new(RefCell::new(Client::new(4, 10_000)));
    let server = network.add_node(Box::new(Echo::new(4)));
    let from = network.add_node(Box::new(client.clone()));
    (0..5).for_each(|_| network.connect(from, server));
    network.run_for(100_000);
    network.restart(server, Box::new(Echo::new(5)));
    (0..5).for_each(|_| network.connect(from, server));
    network.run_for(60_000_000_000);
    assert_eq!((client.borrow().lost, client.borrow().finished), (5, 5));
}
