//! Tokens over a simulated network, on a simulated disk, with a server that dies.
//!
//! Some clients make, rotate, revoke and list tokens, some call with them, those that are good no
//! longer too, and some keep Pipes open. The server loses power in the midst of what the disk does,
//! has failing writes and syncs, or is killed, and is started again. Every answer, and at the end
//! every write, is held against the [`model`]: what was taken back and acknowledged never comes
//! back, and nothing takes effect that was asked for with it afterwards; what nobody has taken back
//! is good, whatever happened. Some tokens have a role, which is changed and dropped meanwhile:
//! they may do what it granted at a moment of their call. Other identities are bound to users,
//! whose calls have no token.

mod bindings;
mod calls;
mod client;
mod model;
mod roles;
mod world;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::thread;

use net::sim::{Faults, Network, NodeId};
use store::durable::StorageEvent;
use store::{DatabaseId, Direction, Range, Store};

use super::fate::Fate;
use super::lives::How;
use super::machine::{Machine, Started};
use super::time::wall_ms;
use super::{SayOnPanic, from_environment};
use client::Client;
use world::{CLIENTS, Counts, World};

/// Rounds of a usual run.
const ROUNDS: u64 = 60;
/// Calls of one of them.
const CALLS: u64 = 1_500;
/// Calls between two deaths at most.
const CALLS_OF_A_LIFE: u64 = 150;
/// A life ends with a clean stop once in so many times, beside those of other fates.
const STOP_ONCE_IN: u64 = 8;
/// A stream ends within a second; the network may be slow as well.
const OUTLIVES_MS: u64 = 1_500;
/// Steps without an end of anything after which a round is stuck.
const STUCK_AFTER_STEPS: u64 = 2_000_000;

fn faults(cuts: bool) -> Faults {
    Faults {
        latency_max_ns: 1_000_000,
        split_per_million: 50_000,
        stall_per_million: 10_000,
        stall_max_ns: 50_000_000,
        pause_per_million: 5_000,
        pause_max_ns: 20_000_000,
        cut_per_million: if cuts { 2_000 } else { 0 },
        ..Faults::none()
    }
}

struct Round {
    network: Network,
    machine: Machine,
    world: Rc<RefCell<World>>,
    store: Store,
    server: NodeId,
    committer: NodeId,
    clients: Vec<(NodeId, Rc<RefCell<Client>>)>,
    /// `None`: nothing happens to the server any more.
    fate: Option<Fate>,
    is_planned: bool,
    /// How many calls have ended when fate comes.
    due: u64,
    base: u64,
}

fn run(seed: u64, calls: u64) -> Counts {
    let mut round = Round::new(seed, calls);
    round.network.set_faults(faults(seed % 2 == 1));
    round.choose_fate();
    round.run_until_idle();
    // In peace: what is there is there after one more start.
    round.leave_in_peace();
    round.world.borrow_mut().left = 100;
    round.run_until_idle();
    round.die(How::Loss);
    round.world.borrow_mut().left = 100;
    round.run_until_idle();
    let world = round.world.borrow();
    world.model.check_effects(&found(&round.store));
    world.counts
}

/// The numbers of the writes that have taken effect.
fn found(store: &Store) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let view = store.view(DatabaseId::DEFAULT).expect("it is always there");
    view.scan(&Range::ALL, Direction::Forward, 0, u32::MAX, &mut |entry| {
        found.extend(calls::write_of(entry.key));
        ControlFlow::Continue(())
    });
    found
}

impl Round {
    fn new(seed: u64, calls: u64) -> Round {
        let mut network = Network::new(seed, Faults::none());
        let mut machine = Machine::new(seed);
        let Started {
            handler,
            store,
            recovered,
            ..
        } = machine.start(&mut How::Stop, 0);
        let world = Rc::new(RefCell::new(World::new(seed, calls)));
        let server = network.add_node(handler);
        let committer = network.add_node(machine.committer());
        let clients = (0..CLIENTS).map(|number| {
            let client = Rc::new(RefCell::new(Client::new(number, Rc::clone(&world))));
            (network.add_node(Box::new(Rc::clone(&client))), client)
        });
        let clients = clients.collect();
        Round {
            network,
            machine,
            world,
            store,
            server,
            committer,
            clients,
            fate: None,
            is_planned: false,
            due: 0,
            base: recovered.next_sequence - 1,
        }
    }

    fn leave_in_peace(&mut self) {
        while self.world.borrow().is_holding {
            self.network.step();
            self.after_step();
        }
        self.fate = None;
        self.machine.disk.forget_plans();
        if self.machine.has_failed() {
            self.die(How::Loss);
        }
    }

    fn run_until_idle(&mut self) {
        let (mut steps, mut ended) = (0, 0);
        while !self.world.borrow().is_idle() {
            for (node, client) in &self.clients {
                if !client.borrow().is_connected() {
                    let user = client.borrow().user();
                    self.network.connect_as(*node, self.server, user);
                }
                self.network.wake(*node);
            }
            for _ in 0..16 {
                let went_on = self.network.step();
                self.after_step();
                if !went_on || self.world.borrow().is_idle() {
                    break;
                }
            }
            steps += 16;
            let now_ended = self.world.borrow().ended;
            if now_ended != ended {
                (steps, ended) = (0, now_ended);
            }
            assert!(steps < STUCK_AFTER_STEPS, "calls that never end");
        }
    }

    /// Brings the news between the nodes, and does what fate wants.
    fn after_step(&mut self) {
        if self.machine.has_work() {
            self.network.wake(self.committer);
        }
        if self.machine.take_mail() {
            self.network.wake(self.server);
        }
        for event in std::mem::take(&mut *self.machine.events.borrow_mut()) {
            if let StorageEvent::Failed(_) = event {
                // It goes on for a while, for those who only read.
                self.due = self.world.borrow().ended + self.machine.random.below(10);
            }
        }
        if !self.machine.disk.has_power() {
            return self.die(How::Loss);
        }
        self.check_streams();
        if self.world.borrow().ended >= self.due {
            self.let_fate_come();
        }
    }

    /// No stream goes on for long after the end of its token.
    fn check_streams(&self) {
        let now_ns = self.network.now_ns();
        let mut world = self.world.borrow_mut();
        world.model.set_now(wall_ms(now_ns));
        for (_, client) in &self.clients {
            if let Some((token, span)) = client.borrow().open_pipe() {
                let fact = &world.model.tokens[token];
                assert!(
                    !world.model.outlives(token, span, OUTLIVES_MS),
                    "{fact:?} at {now_ns}"
                );
            }
        }
    }

    fn choose_fate(&mut self) {
        self.machine.disk.forget_plans();
        let random = &mut self.machine.random;
        self.fate = Some(match random.below(STOP_ONCE_IN) {
            0 => Fate::Stop,
            _ => Fate::draw(random),
        });
        self.is_planned = false;
        self.due = self.world.borrow().ended + self.machine.random.below(CALLS_OF_A_LIFE);
    }

    fn let_fate_come(&mut self) {
        if self.machine.has_failed() {
            let how = [How::Loss, How::Kill][self.machine.random.below(2) as usize];
            return self.die(how);
        }
        match self.fate {
            None => {}
            Some(Fate::Kill) => self.die(How::Kill),
            Some(Fate::PowerLoss) => self.die(How::Loss),
            Some(Fate::Stop) if !self.is_planned => {
                self.is_planned = true;
                self.world.borrow_mut().is_holding = true;
                self.network.stop(self.server);
            }
            Some(Fate::Stop) if self.network.has_ended(self.server) => self.die(How::Stop),
            Some(Fate::Stop) => {}
            Some(planned) if !self.is_planned => {
                self.is_planned = true;
                planned.plan(&self.machine.disk);
                self.due += CALLS_OF_A_LIFE;
            }
            // What was planned has hit something that bears it.
            Some(_) => self.choose_fate(),
        }
    }

    /// The life of the server ends, and another one begins.
    fn die(&mut self, mut how: How) {
        let mut started = self.restart(&mut how);
        // Lost again in the midst of something that a start bears.
        while !self.machine.disk.has_power() {
            started = self.restart(&mut How::Loss);
        }
        self.base = started.recovered.next_sequence - 1;
        self.store = started.store;
        self.network.restart(self.server, started.handler);
        self.network.wake(self.committer);
        let mut world = self.world.borrow_mut();
        world.is_holding = false;
        world.counts.lives += 1;
        drop(world);
        if self.fate.is_some() {
            self.choose_fate();
        }
    }

    fn restart(&mut self, how: &mut How) -> Started {
        match how {
            How::Loss => self.machine.disk.lose_power(),
            How::Kill => self.machine.disk.kill(),
            How::Stop => self.machine.close(),
        }
        // What the dead tidy up is none of the living's: theirs is another disk from now on.
        self.machine.disk = self.machine.disk.fork();
        *self.machine.commit_loop.borrow_mut() = None;
        self.machine.start(how, self.base)
    }
}

#[test]
fn what_was_taken_back_stays_so_however_the_server_dies() {
    let test = "what_was_taken_back_stays_so_however_the_server_dies";
    let first_seed = from_environment("PELTON_SEED").unwrap_or(1);
    let rounds = from_environment("PELTON_SIM_ROUNDS").unwrap_or(ROUNDS);
    let half = |which: usize| {
        let mut sum = Counts::default();
        for seed in (first_seed..first_seed + rounds).skip(which).step_by(2) {
            let _say = SayOnPanic(seed, test);
            sum.add(&run(seed, CALLS));
        }
        sum
    };
    let sum = thread::scope(|scope| {
        let other = scope.spawn(|| half(1));
        let mut sum = half(0);
        sum.add(&other.join().expect("it says what went wrong"));
        sum
    });
    println!(
        "seeds {first_seed} to {}: {sum:#?}",
        first_seed + rounds - 1
    );
    if rounds >= ROUNDS {
        assert!(sum.all().iter().all(|count| *count >= 100), "{sum:?}");
    }
}
