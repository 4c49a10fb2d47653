//! One world from its beginning to its end.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use net::sim::{FaultCounts, Faults, Network, NodeId};
use store::Expiry;
use wal::disk::DiskFaultCounts;

use super::client::Client;
use super::counts::Counts;
use super::databases::{self, Db};
use super::durable::Durable;
use super::history::{Asked, If, Outcome, Record};
use super::keys;
use super::lives::{Life, check};
use super::machine::volatile_server;
use super::messages::Logs;
use super::world::{Manners, World};

/// What a round is to be.
pub struct Plan {
    pub seed: u64,
    pub manners: Manners,
    pub calls: u64,
    /// The server has a log, on a disk that fails, and dies again and again.
    pub dies: bool,
}

/// What it was.
#[derive(Debug, PartialEq, Eq)]
pub struct Report {
    pub counts: Counts,
    pub faults: FaultCounts,
    pub disk: DiskFaultCounts,
    pub lives: u64,
    /// Times in which there was no room for the log.
    pub full: u64,
    /// Times in which the log could not grow for another reason.
    pub not_ready: u64,
    /// Times in which there was room again, without a restart.
    pub room_again: u64,
    pub snapshots: u64,
    /// Deaths in the midst of a snapshot.
    pub snapshots_cut: u64,
    pub trace: u64,
}

/// What was heard in a round.
pub struct Heard {
    pub history: Vec<Record>,
    pub lives: Vec<Life>,
    pub logs: BTreeMap<(usize, Db), Logs>,
}

/// Steps without an end of anything after which a round is stuck.
const STUCK_AFTER_STEPS: u64 = 3_000_000;

/// Steps from the calls that are to be ended by the server until it is stopped: they have arrived,
/// others are on their way.
const STEPS_UNTIL_STOP: u64 = 300;

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
    durable: Option<Durable>,
    clients: Vec<(NodeId, Rc<RefCell<Client>>)>,
    connections_of_node: usize,
}

/// Runs a round, and panics if anything in it is wrong.
pub fn run(plan: &Plan) -> Report {
    let (report, heard) = play(plan);
    check(&heard.history, &heard.lives, &heard.logs);
    report
}

/// Runs a round up to its end, and returns what was heard.
pub fn play(plan: &Plan) -> (Report, Heard) {
    let mut round = Round::new(plan);
    round.prepare();
    round.network.set_faults(faults(plan.manners));
    round.world.borrow_mut().left = plan.calls;
    round.let_die(plan.dies);
    round.run_until_idle();
    round.let_die(false);
    round.network.set_faults(Faults::none());
    // What was cut is still to hear of it.
    round.run_for(1_000_000_000);
    round.read_everything();
    if plan.manners == Manners::Polite && !plan.dies {
        assert_eq!(
            round.world.borrow().counts.lost,
            0,
            "no call is lost on a healthy connection"
        );
    }
    round.stop();
    let lives = match &mut round.durable {
        Some(durable) => durable.end(&mut round.world.borrow_mut(), round.network.now_ns()),
        None => vec![Life::default()],
    };
    let mut world = round.world.borrow_mut();
    let durable = round.durable.as_ref();
    let of_durable = |count: fn(&Durable) -> u64| durable.map_or(0, count);
    let report = Report {
        counts: world.counts,
        faults: round.network.fault_counts(),
        disk: round
            .durable
            .as_ref()
            .map(Durable::fault_counts)
            .unwrap_or_default(),
        lives: lives.len() as u64,
        full: of_durable(|durable| durable.full_times),
        not_ready: of_durable(|durable| durable.not_ready_times),
        room_again: of_durable(|durable| durable.room_again_times),
        snapshots: of_durable(|durable| durable.snapshots),
        snapshots_cut: of_durable(|durable| durable.snapshots_cut),
        trace: round.network.trace(),
    };
    let heard = Heard {
        history: std::mem::take(&mut world.history),
        lives,
        logs: std::mem::take(&mut world.logs),
    };
    (report, heard)
}

impl Round {
    fn new(plan: &Plan) -> Round {
        let mut network = Network::new(plan.seed, Faults::none());
        let world = World::new(plan.seed, plan.manners, plan.dies);
        let world = Rc::new(RefCell::new(world));
        let (server, durable) = if plan.dies {
            let durable = Durable::start(plan.seed, &mut network, &mut world.borrow_mut());
            (durable.server, Some(durable))
        } else {
            (network.add_node(volatile_server(plan.seed)), None)
        };
        // Those who die often have few calls under way: most calls should have an answer.
        let (nodes, connections_of_node) = if plan.dies { (3, 2) } else { (4, 3) };
        let clients = (0..nodes).map(|_| {
            let client = Rc::new(RefCell::new(Client::new(Rc::clone(&world))));
            (network.add_node(Box::new(Rc::clone(&client))), client)
        });
        let clients = clients.collect();
        Round {
            network,
            world,
            server,
            durable,
            clients,
            connections_of_node,
        }
    }

    /// Makes the databases that are always there, and the keys.
    fn prepare(&mut self) {
        if self.durable.is_some() {
            self.script(databases::MADE.map(|db| (db, Asked::Create)));
        }
        // Each start reads them all.
        let count = if self.durable.is_some() {
            100
        } else {
            usize::MAX
        };
        self.script((keys::STABLE).take(count).map(|key| {
            let put = Asked::Put {
                key,
                bytes: 20,
                condition: If::Always,
                previous: false,
                expiry: Expiry::None,
            };
            (databases::DEFAULT, put)
        }));
    }

    fn read_everything(&mut self) {
        let mut all = vec![databases::DEFAULT];
        if self.durable.is_some() {
            all.extend(databases::MADE);
            all.extend(self.world.borrow().fleeting.clone());
        }
        for db in all {
            let calls = [
                Asked::ReadMany(keys::ALL.collect()),
                read_all(false),
                read_all(true),
                Asked::Count(keys::ALL),
            ];
            self.script(calls.map(|asked| (db, asked)));
        }
    }

    fn let_die(&mut self, dies: bool) {
        if let Some(durable) = &mut self.durable {
            durable.let_die(dies, &mut self.world.borrow_mut());
        }
    }

    /// Does these calls, and waits for their ends.
    fn script(&mut self, calls: impl IntoIterator<Item = (Db, Asked)>) {
        self.world.borrow_mut().script.extend(calls);
        self.run_until_idle();
    }

    /// Lets the next thing happen. False: nothing will ever happen by itself.
    fn step(&mut self) -> bool {
        let went_on = self.network.step();
        if let Some(durable) = &mut self.durable {
            durable.after_step(&mut self.network, &self.world);
        }
        went_on
    }

    fn run_for(&mut self, duration_ns: u64) {
        let until_ns = self.network.now_ns() + duration_ns;
        while self.network.now_ns() < until_ns && self.step() {}
    }

    fn run_until_idle(&mut self) {
        let (mut steps, mut calls) = (0, 0);
        while !self.world.borrow().is_idle() {
            self.reconnect();
            for _ in 0..64 {
                if self.world.borrow().is_idle() || !self.step() {
                    break;
                }
            }
            steps += 64;
            let ended = self.world.borrow().ended();
            if ended != calls {
                (steps, calls) = (0, ended);
            }
            assert!(
                steps < STUCK_AFTER_STEPS,
                "calls that never end: {:?}",
                self.open_calls()
            );
        }
    }

    fn reconnect(&mut self) {
        for (node, client) in &self.clients {
            let open = client.borrow().connections();
            for _ in open..self.connections_of_node {
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
                Asked::Changes { behind: None },
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
            let waiting = waiting.map(|asked| (databases::DEFAULT, asked));
            self.world.borrow_mut().script.extend(waiting);
        }
        self.world.borrow_mut().left = 1_000;
        for step in 0..STUCK_AFTER_STEPS {
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
            self.step();
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

fn read_all(backward: bool) -> Asked {
    Asked::Scan {
        keys: keys::ALL,
        by_prefix: false,
        backward,
        keys_only: false,
        limit: 0,
    }
}
