//! Blobs over a simulated network, on a simulated disk, with a server that dies.
//!
//! Clients upload in pieces, break off, go on, replace, delete, read ranges and list, each on names of its own and reading
//! those of all; one takes uploads of the others over. The server loses power in the midst of what the disk does, has
//! failing writes and syncs, or is killed, and is started again; meanwhile backups are made, restored and looked at. Every
//! answer, and what each start finds, is held against the [`model`].

mod backup;
mod calls;
mod client;
mod found;
mod model;
mod sending;
mod world;

use std::cell::RefCell;
use std::rc::Rc;
use std::thread;

use drive::sim::{FaultCounts, Faults, Network, NodeId};
use store::Store;
use store::disk::DiskFaultCounts;
use store::durable::Event;

use super::fate::Fate;
use super::lives::How;
use super::machine::{Machine, Started};
use super::{SayOnPanic, from_environment};
use backup::Backup;
use client::Client;
use found::{check_unfinished, check_use, found_at_start};
use world::{Counts, RIVAL, World};

/// Rounds of a usual run.
const ROUNDS: u64 = 60;
/// Calls of one of them.
const CALLS: u64 = 700;
/// Calls between two deaths at most, and between what fate plans on the disk and another fate.
const CALLS_OF_A_LIFE: u64 = 40;
/// Once in so many steps a backup begins, if there is none.
const BACKUP_ONCE_IN: u64 = 4_000;
/// A backup goes on once in so many steps.
const BACKUP_STEP_ONCE_IN: u64 = 8;
/// Steps without an end of anything after which a round is stuck.
const PATIENCE_STEPS: u64 = 2_000_000;

fn faults(cuts: bool) -> Faults {
    Faults {
        latency_max_ns: 1_000_000,
        split_per_million: 100_000,
        stall_per_million: 10_000,
        stall_max_ns: 50_000_000,
        pause_per_million: 5_000,
        pause_max_ns: 20_000_000,
        cut_per_million: if cuts { 4_000 } else { 0 },
        buffer_min_bytes: 2_000,
        buffer_max_bytes: 64 * 1024,
        ..Faults::none()
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Report {
    counts: Counts,
    network: FaultCounts,
    disk: DiskFaultCounts,
    trace: u64,
}

struct Round {
    network: Network,
    machine: Machine,
    world: Rc<RefCell<World>>,
    store: Store,
    server: NodeId,
    committer: NodeId,
    clients: Vec<(NodeId, Rc<RefCell<Client>>)>,
    fate: Option<Fate>,
    is_planned: bool,
    /// How many calls have ended when fate comes.
    due: u64,
    /// Below the first sequence of this life.
    base: u64,
    backup: Option<Backup>,
}

fn run(seed: u64, calls: u64) -> Report {
    let mut round = Round::new(seed, calls);
    round.network.set_faults(faults(seed % 2 == 1));
    round.choose_fate();
    round.run_until_idle();
    // In peace: everybody reads, and what is there is there after one more start.
    round.fate = None;
    round.machine.disk.forget_plans();
    round.world.borrow_mut().left = 60;
    round.run_until_idle();
    round.die(How::Loss);
    let counts = round.world.borrow().counts;
    Report {
        counts,
        network: round.network.fault_counts(),
        disk: round.machine.disk.fault_counts(),
        trace: round.network.trace(),
    }
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
        let clients = (0..=RIVAL).map(|number| {
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
            backup: None,
        }
    }

    fn run_until_idle(&mut self) {
        let (mut steps, mut ended) = (0, 0);
        while !self.world.borrow().is_idle() {
            for (node, client) in &self.clients {
                if !client.borrow().is_connected() {
                    self.network.connect(*node, self.server);
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
            assert!(steps < PATIENCE_STEPS, "calls that never end");
        }
    }

    /// Brings the news between the nodes, does what fate wants, and goes on with the backup.
    fn after_step(&mut self) {
        if self.machine.has_work() {
            self.network.wake(self.committer);
        }
        if self.machine.take_mail() {
            self.network.wake(self.server);
        }
        self.take_events();
        if !self.machine.disk.has_power() {
            self.world.borrow_mut().note_power_loss();
            return self.die(How::Loss);
        }
        self.go_on_with_backup();
        if self.world.borrow().ended >= self.due {
            self.let_fate_come();
        }
    }

    fn take_events(&mut self) {
        let counts = self.machine.disk.fault_counts();
        let failures = counts.failed_writes + counts.failed_syncs;
        self.world.borrow_mut().note_faults(failures);
        for event in std::mem::take(&mut *self.machine.events.borrow_mut()) {
            if let Event::Failed(_) = event {
                // It goes on for a while, for those who only read.
                self.due = self.world.borrow().ended + self.machine.random.below(10);
            }
        }
    }

    fn choose_fate(&mut self) {
        self.machine.disk.forget_plans();
        self.fate = Some(Fate::draw(&mut self.machine.random));
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
            Some(Fate::Kill | Fate::Stop) => self.die(How::Kill),
            Some(Fate::PowerLoss) => self.die(How::Loss),
            Some(planned) if !self.is_planned => {
                self.is_planned = true;
                let disk = &self.machine.disk;
                match self.machine.random.below(4) {
                    0 => planned.plan(disk),
                    _ => planned.plan(&disk.folder("blobs")),
                }
                self.due += CALLS_OF_A_LIFE;
            }
            // What was planned has hit something that bears it.
            Some(_) => self.choose_fate(),
        }
    }

    fn go_on_with_backup(&mut self) {
        let Some(backup) = &mut self.backup else {
            if self.machine.random.below(BACKUP_ONCE_IN) == 0 {
                let seed = self.machine.random.any();
                self.backup = Backup::begin(&self.machine, &self.store, seed);
            }
            return;
        };
        if self.machine.random.below(BACKUP_STEP_ONCE_IN) > 0 {
            return;
        }
        match backup.step(&self.machine, &self.store) {
            Ok(false) => {}
            Ok(true) => {
                self.world.borrow_mut().counts.backups += 1;
                self.backup = None;
            }
            Err(error) => {
                let may_fail = self.machine.has_failed() || !self.machine.disk.has_power();
                assert!(may_fail, "{error}");
                self.backup = None;
            }
        }
    }

    /// The life of the server ends, and another one begins.
    fn die(&mut self, mut how: How) {
        let cut = self.backup.take();
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
        world.counts.lives += 1;
        world.counts.backups_cut += u64::from(cut.is_some());
        let found = found_at_start(&self.store);
        world.model.restarted(&found);
        check_use(&self.store, &found, &world.begun);
        check_unfinished(&self.machine, &world.begun);
        drop(world);
        if self.fate.is_some() {
            self.choose_fate();
        }
    }

    fn restart(&mut self, how: &mut How) -> Started {
        match how {
            How::Loss => self.machine.disk.lose_power(),
            _ => self.machine.disk.kill(),
        }
        // What the dead tidy up is none of the living's: theirs is another disk from now on.
        self.machine.disk = self.machine.disk.fork();
        *self.machine.rounds.borrow_mut() = None;
        self.machine.start(how, self.base)
    }
}

#[test]
fn blobs_stay_what_was_answered_however_the_server_dies() {
    let test = "blobs_stay_what_was_answered_however_the_server_dies";
    let first_seed = from_environment("PELTON_SEED").unwrap_or(1);
    let rounds = from_environment("PELTON_SIM_ROUNDS").unwrap_or(ROUNDS);
    let half = |which: usize| {
        let (mut sum, mut disk) = (Counts::default(), DiskFaultCounts::default());
        for seed in (first_seed..first_seed + rounds).skip(which).step_by(2) {
            let _say = SayOnPanic(seed, test);
            let report = run(seed, CALLS);
            sum.add(&report.counts);
            disk.add(&report.disk);
        }
        (sum, disk)
    };
    let (sum, disk) = thread::scope(|scope| {
        let other = scope.spawn(|| half(1));
        let (mut sum, mut disk) = half(0);
        let other = other.join().expect("it says what went wrong");
        sum.add(&other.0);
        disk.add(&other.1);
        (sum, disk)
    });
    println!(
        "seeds {first_seed} to {}: {sum:#?} {disk:#?}",
        first_seed + rounds - 1
    );
    if rounds >= ROUNDS {
        let each = [
            sum.uploaded,
            sum.resumed,
            sum.downloaded,
            sum.deleted,
            sum.lives,
            sum.lost,
        ];
        assert!(each.iter().all(|count| *count >= 200), "{sum:?}");
        assert!(sum.backups >= 50 && sum.backups_cut >= 20, "{sum:?}");
        let each = [
            disk.power_losses,
            disk.torn_writes,
            disk.failed_writes,
            disk.failed_syncs,
        ];
        assert!(each.iter().all(|count| *count >= 50), "{disk:?}");
    }
}

#[test]
fn the_same_seed_brings_the_same_blobs() {
    for seed in [1, 2] {
        let _say = SayOnPanic(seed, "the_same_seed_brings_the_same_blobs");
        let [one, other]: [Report; 2] = std::array::from_fn(|_| run(seed, 150));
        assert_eq!(one, other);
    }
}
