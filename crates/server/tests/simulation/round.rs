//! One world from its beginning to its end.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use drive::sim::{FaultCounts, Faults, Network, NodeId};
use drive::{Closed, ConnectionId, Connections, Handler, Io, LoopConfig, Peer};
use server::{Config, Silent, Storage, TimeSource};
use service::ServerInfo;

use super::check::check;
use super::client::Client;
use super::history::{Asked, If, Outcome, Record};
use super::keys;
use super::messages::Logs;
use super::world::{Counts, Manners, World};

/// What a round is to be.
pub struct Plan {
    pub seed: u64,
    pub manners: Manners,
    pub calls: u64,
}

/// What it was.
#[derive(Debug, PartialEq, Eq)]
pub struct Report {
    pub counts: Counts,
    pub faults: FaultCounts,
    pub trace: u64,
}

const NODES: usize = 4;
const CONNECTIONS_OF_NODE: usize = 3;

/// Steps without an end of anything after which a round is stuck.
const PATIENCE_STEPS: u64 = 3_000_000;

/// Steps from the calls that are to be ended by the server until it is stopped: they have arrived, others are on their
/// way.
const STEPS_UNTIL_STOP: u64 = 300;

/// Virtual time, as the driver last said it.
#[derive(Default)]
struct VirtualTime {
    now_ns: AtomicU64,
    readings: AtomicU64,
}

/// What work takes between two readings of the clock within a tick, so that slices of time end.
const READING_NS: u64 = 20_000;

impl TimeSource for VirtualTime {
    fn monotonic_ns(&self) -> u64 {
        let readings = self.readings.fetch_add(1, Ordering::Relaxed);
        self.now_ns.load(Ordering::Relaxed) + readings * READING_NS
    }

    fn wall_ms(&self) -> u64 {
        1_700_000_000_000 + self.now_ns.load(Ordering::Relaxed) / 1_000_000
    }
}

/// A server whose clock follows the driver's.
struct Timed<H> {
    handler: H,
    time: Arc<VirtualTime>,
}

impl<H> Timed<H> {
    fn at(&mut self, now_ns: u64) -> &mut H {
        self.time.now_ns.store(now_ns, Ordering::Relaxed);
        self.time.readings.store(0, Ordering::Relaxed);
        &mut self.handler
    }
}

impl<H: Handler> Handler for Timed<H> {
    fn opened(&mut self, id: ConnectionId, peer: &Peer, io: &mut Io, now_ns: u64) {
        self.at(now_ns).opened(id, peer, io, now_ns);
    }
    fn received(&mut self, id: ConnectionId, io: &mut Io, now_ns: u64) {
        self.at(now_ns).received(id, io, now_ns);
    }
    fn writable(&mut self, id: ConnectionId, io: &mut Io, now_ns: u64) {
        self.at(now_ns).writable(id, io, now_ns);
    }
    fn closed(&mut self, id: ConnectionId, why: Closed, now_ns: u64) {
        self.at(now_ns).closed(id, why, now_ns);
    }
    fn tick(&mut self, connections: &mut dyn Connections, now_ns: u64) {
        self.at(now_ns).tick(connections, now_ns);
    }
    fn next_deadline_ns(&self) -> Option<u64> {
        self.handler.next_deadline_ns()
    }
    fn stop(&mut self, connections: &mut dyn Connections, now_ns: u64) {
        self.at(now_ns).stop(connections, now_ns);
    }
    fn is_drained(&self) -> bool {
        self.handler.is_drained()
    }
}

fn new_server(seed: u64) -> Box<dyn Handler> {
    let time = Arc::new(VirtualTime::default());
    let has_fixed_windows = seed.is_multiple_of(3);
    let config = Config {
        loops: LoopConfig::default(),
        server: ServerInfo {
            name: "simulated",
            version: "0",
        },
        memory_limit_bytes: 1 << 30,
        max_value_bytes: 4_000_000,
        // Fewer than some clients try before they know.
        max_streams: 30,
        stream_window: has_fixed_windows.then_some(5_000),
        connection_window: has_fixed_windows.then_some(65_535),
        interop: false,
        hash_seed: seed,
        time: time.clone(),
        log: Arc::new(Silent),
        storage: Storage::Volatile { history_id: seed },
        backup_root: None,
    };
    let handler = server::simulated(config, Box::new(|| {}))
        .expect("the limits fit together")
        .handler;
    Box::new(Timed { handler, time })
}

/// All faults, cutting only for clients that can bear it.
fn faults(manners: Manners) -> Faults {
    let rough = Faults {
        latency_max_ns: 1_000_000,
        split_per_million: 300_000,
        stall_per_million: 15_000,
        stall_max_ns: 100_000_000,
        pause_per_million: 6_000,
        pause_max_ns: 20_000_000,
        buffer_min_bytes: 500,
        buffer_max_bytes: 64 * 1024,
        ..Faults::none()
    };
    match manners {
        Manners::Polite => rough,
        Manners::Rude => Faults {
            cut_per_million: 25_000,
            ..rough
        },
    }
}

struct Round {
    network: Network,
    world: Rc<RefCell<World>>,
    server: NodeId,
    clients: Vec<(NodeId, Rc<RefCell<Client>>)>,
}

/// Runs a round, and panics if anything in it is wrong.
pub fn run(plan: &Plan) -> Report {
    let (report, history, logs) = play(plan);
    check(&history, &logs);
    report
}

/// Runs a round up to its end, and answers what was heard.
pub fn play(plan: &Plan) -> (Report, Vec<Record>, Logs) {
    let mut network = Network::new(plan.seed, Faults::none());
    let world = Rc::new(RefCell::new(World::new(plan.seed, plan.manners, 0)));
    let server = network.add_node(new_server(plan.seed));
    let clients = (0..NODES).map(|_| {
        let client = Rc::new(RefCell::new(Client::new(Rc::clone(&world))));
        (network.add_node(Box::new(Rc::clone(&client))), client)
    });
    let clients = clients.collect();
    let mut round = Round {
        network,
        world,
        server,
        clients,
    };
    round.script((keys::STABLE).map(|key| Asked::Put {
        key,
        bytes: 20,
        condition: If::Always,
        previous: false,
    }));
    round.network.set_faults(faults(plan.manners));
    round.world.borrow_mut().left = plan.calls;
    round.run_until_idle();
    round.network.set_faults(Faults::none());
    // What was cut is still to hear of it.
    round.network.run_for(1_000_000_000);
    round.script([
        Asked::ReadMany(keys::ALL.collect()),
        read_all(false),
        read_all(true),
        Asked::Count(keys::ALL),
    ]);
    if plan.manners == Manners::Polite {
        assert_eq!(
            round.world.borrow().counts.lost,
            0,
            "no call is lost on a healthy connection"
        );
    }
    round.stop();
    let mut world = round.world.borrow_mut();
    let report = Report {
        counts: world.counts,
        faults: round.network.fault_counts(),
        trace: round.network.trace(),
    };
    (
        report,
        std::mem::take(&mut world.history),
        std::mem::take(&mut world.logs),
    )
}

fn read_all(backward: bool) -> Asked {
    Asked::Scan {
        keys: keys::ALL,
        by_prefix: false,
        backward,
        keys_only: false,
        limit: 0,
    }
}

impl Round {
    /// Does these calls, and waits for their ends.
    fn script(&mut self, calls: impl IntoIterator<Item = Asked>) {
        self.world.borrow_mut().script.extend(calls);
        self.run_until_idle();
    }

    fn run_until_idle(&mut self) {
        let (mut steps, mut calls) = (0, 0);
        while !self.world.borrow().is_idle() {
            self.reconnect();
            for _ in 0..64 {
                if self.world.borrow().is_idle() || !self.network.step() {
                    break;
                }
            }
            steps += 64;
            let ended = self.world.borrow().history.len() - self.world.borrow().open;
            if ended != calls {
                (steps, calls) = (0, ended);
            }
            assert!(
                steps < PATIENCE_STEPS,
                "calls that never end: {:?}",
                self.open_calls()
            );
        }
    }

    fn reconnect(&mut self) {
        for (node, client) in &self.clients {
            let open = client.borrow().connections();
            for _ in open..CONNECTIONS_OF_NODE {
                self.network.connect(*node, self.server);
            }
            self.network.wake(*node);
        }
    }

    fn open_calls(&self) -> Vec<Asked> {
        let world = self.world.borrow();
        let open = world
            .history
            .iter()
            .filter(|record| matches!(record.outcome, Outcome::Open));
        open.map(|record| record.asked.clone()).collect()
    }

    /// Stops the server while calls of every kind are open: each ends once, and none is lost.
    fn stop(&mut self) {
        let lost_before = self.world.borrow().counts.lost;
        self.world.borrow_mut().stopping = true;
        for _ in 0..10 {
            let waiting = [
                Asked::Watch,
                Asked::EchoStream {
                    messages: 2,
                    bytes: 100,
                    ends: false,
                },
                Asked::Echo {
                    bytes: 50,
                    delay_ms: 100,
                },
                Asked::Echo {
                    bytes: 50,
                    delay_ms: 60_000,
                },
                Asked::Silent,
            ];
            self.world.borrow_mut().script.extend(waiting);
        }
        self.world.borrow_mut().left = 1_000;
        for step in 0..PATIENCE_STEPS {
            if step == STEPS_UNTIL_STOP {
                self.network.stop(self.server);
            }
            if step <= STEPS_UNTIL_STOP {
                self.clients
                    .iter()
                    .for_each(|(node, _)| self.network.wake(*node));
            }
            if self.network.has_ended(self.server) && self.world.borrow().open == 0 {
                break;
            }
            self.network.step();
        }
        assert!(
            self.network.has_ended(self.server),
            "the server never ended; open: {:?}",
            self.open_calls()
        );
        let open = self.open_calls();
        assert!(open.is_empty(), "calls without an end: {open:?}");
        assert_eq!(
            self.world.borrow().counts.lost,
            lost_before,
            "a stop loses no call"
        );
    }
}
