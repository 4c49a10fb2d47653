//! Blobs over a simulated network, on a simulated disk, with a server that dies.
//!
//! Clients upload in pieces, break off, go on, replace, delete, read ranges and list, each on names
//! of its own and reading those of all, over gRPC and plain HTTP/2; one takes uploads of the others
//! over. The server loses power in the midst of what the disk does, has failing writes and syncs,
//! or is killed, and is started again; meanwhile backups are made, restored and looked at. Every
//! answer, and what each start finds, is held against the [`model`].

mod backup;
mod calls;
mod client;
mod found;
mod model;
mod plain;
mod sending;
mod world;

use std::cell::RefCell;
use std::rc::Rc;
use std::thread;

use net::sim::{FaultCounts, Faults, Network, NodeId};
use store::durable::StorageEvent;
use store::{DatabaseId, Store};
use wal::disk::{DiskFaultCounts, Fault, Step};

use super::fate::Fate;
use super::lives::How;
use super::machine::{Machine, Started};
use super::{SayOnPanic, from_environment};
use backup::{Backup, BackupFate};
use client::Client;
use found::{Found, check_unfinished, check_use, found, found_at_start};
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
/// A life ends with a clean stop once in so many times, beside those of other fates.
const STOP_ONCE_IN: u64 = 8;
/// What the blobs may have in a third of the rounds: less than the clients would like.
const QUOTA_BYTES: u64 = 400_000;
/// Virtual time in which whoever was cut off hears of it.
const QUIET_NS: u64 = 60_000_000_000;
/// Steps without an end of anything after which a round is stuck.
const STUCK_AFTER_STEPS: u64 = 2_000_000;

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

/// What is visible, and how much is stored of what can be gone on with.
type Kept = (Found, Vec<Option<u64>>);

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
    /// The disk has no room, until so many calls have ended; or it has.
    is_full: bool,
    full_due: u64,
    backup: Option<Backup>,
}

fn run(seed: u64, calls: u64) -> Report {
    let mut round = Round::new(seed, calls);
    round.network.set_faults(faults(seed % 2 == 1));
    round.choose_fate();
    round.run_until_idle();
    // In peace: everybody reads, and what is there is there after one more start.
    round.leave_in_peace();
    round.world.borrow_mut().left = 60;
    round.run_until_idle();
    round.check_live_use();
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
        let mut world = World::new(seed, calls);
        if seed.is_multiple_of(3) {
            machine.blobs.quota_bytes = QUOTA_BYTES;
            world.quota_bytes = Some(QUOTA_BYTES);
        }
        let Started {
            handler,
            store,
            recovered,
            ..
        } = machine.start(&mut How::Stop, 0);
        let world = Rc::new(RefCell::new(world));
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
            is_full: false,
            full_due: 0,
            backup: None,
        }
    }

    /// Nothing happens any more to the server.
    fn leave_in_peace(&mut self) {
        while self.world.borrow().is_holding {
            self.network.step();
            self.after_step();
        }
        self.fate = None;
        self.machine.disk.forget_plans();
        self.give_room();
    }

    /// When everybody has ended, nothing is counted but what is there.
    fn check_live_use(&mut self) {
        self.network.set_faults(Faults::none());
        let until_ns = self.network.now_ns() + QUIET_NS;
        while self.network.now_ns() < until_ns && self.network.step() {
            self.after_step();
        }
        // It holds what was removed since it began.
        self.backup = None;
        let world = self.world.borrow();
        // What could not be removed is counted until the next start.
        if !world.has_faults(world.model.life) {
            check_use(&self.store, &found(&self.store), &world.begun);
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
            assert!(steps < STUCK_AFTER_STEPS, "calls that never end");
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
        self.check_quota();
        self.change_room();
        self.go_on_with_backup();
        if self.world.borrow().ended >= self.due {
            self.let_fate_come();
        }
    }

    fn take_events(&mut self) {
        let counts = self.machine.disk.fault_counts();
        self.world.borrow_mut().note_faults(&counts);
        let blobs = self.store.blobs().expect("there is a log").statistics();
        self.world.borrow_mut().note_evicted(blobs.evicted_uploads);
        for event in std::mem::take(&mut *self.machine.events.borrow_mut()) {
            if let StorageEvent::Failed(_) = event {
                // It goes on for a while, for those who only read.
                self.due = self.world.borrow().ended + self.machine.random.below(10);
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
                self.give_room();
                self.world.borrow_mut().note_stop();
                self.network.stop(self.server);
            }
            Some(Fate::Stop) if self.network.has_ended(self.server) => self.die(How::Stop),
            Some(Fate::Stop) => {}
            Some(planned) if !self.is_planned => {
                self.is_planned = true;
                self.plan(planned);
                self.due += CALLS_OF_A_LIFE;
            }
            // What was planned has hit something that bears it.
            Some(_) => self.choose_fate(),
        }
    }

    /// Mostly in the folder of contents, and sometimes there is no room there.
    fn plan(&mut self, planned: Fate) {
        let (disk, random) = (&self.machine.disk, &mut self.machine.random);
        let contents = disk.folder("blobs");
        match random.below(8) {
            0..2 => planned.plan(disk),
            2..4 => {
                let steps = [Step::Write, Step::Write, Step::Sync, Step::Create];
                let step = steps[random.below(4) as usize];
                contents.plan_next(step, random.below(6) as usize, Fault::Full);
            }
            _ => planned.plan(&contents),
        }
    }

    /// Lets the disk become full, or have room again.
    fn change_room(&mut self) {
        let ended = self.world.borrow().ended;
        if self.fate.is_none() || ended < self.full_due {
            return;
        }
        self.full_due = ended + self.machine.random.below(CALLS_OF_A_LIFE);
        self.is_full = !self.is_full && self.machine.random.below(3) == 0;
        let capacity_bytes = match self.is_full {
            true => self.machine.disk.used_bytes() + self.machine.random.below(200_000),
            false => u64::MAX,
        };
        self.machine.disk.set_capacity_bytes(capacity_bytes);
        let mut world = self.world.borrow_mut();
        if self.is_full {
            world.counts.full += 1;
            world.note_full();
        }
    }

    fn give_room(&mut self) {
        self.machine.disk.set_capacity_bytes(u64::MAX);
        (self.is_full, self.full_due) = (false, u64::MAX);
    }

    fn kept(&self) -> Kept {
        let world = self.world.borrow();
        let stored = world
            .begun
            .iter()
            .map(|begun| begun.stored_bytes(&self.store));
        (found(&self.store), stored.collect())
    }

    /// After a clean stop everything is as it was. But a file may be back whose removal was not on
    /// the device.
    fn check_kept(&self, (visible, stored): &Kept) {
        let (visible_now, stored_now) = self.kept();
        assert_eq!(visible_now, *visible, "a clean stop keeps everything");
        for (stored, now) in stored.iter().zip(stored_now) {
            assert!(
                stored.is_none() || *stored == now,
                "{stored:?} became {now:?}"
            );
        }
    }

    fn check_quota(&self) {
        if let Some(quota_bytes) = self.world.borrow().quota_bytes {
            let blobs = self.store.blobs().expect("there is a log");
            let used = blobs.used(DatabaseId::DEFAULT);
            assert!(used.bytes <= quota_bytes, "{used:?} of {quota_bytes}");
        }
    }

    fn go_on_with_backup(&mut self) {
        if self.backup.is_none() {
            if self.machine.random.below(BACKUP_ONCE_IN) == 0 {
                self.backup = Backup::begin(&mut self.machine);
            }
            return;
        }
        if self.machine.random.below(BACKUP_STEP_ONCE_IN) > 0 {
            return;
        }
        let Some(backup) = self.backup.take() else {
            return;
        };
        match backup.step(&self.machine, &self.store) {
            BackupFate::GoesOn(backup) => self.backup = Some(*backup),
            BackupFate::Complete => self.world.borrow_mut().counts.backups += 1,
            BackupFate::Failed {
                has_target_failed: true,
                ..
            } => self.world.borrow_mut().counts.backups_failed += 1,
            BackupFate::Failed { error, .. } => {
                let world = self.world.borrow();
                let may_fail = self.machine.has_failed()
                    || !self.machine.disk.has_power()
                    || world.may_be_full(world.model.life);
                assert!(may_fail, "{error}");
            }
        }
    }

    /// The life of the server ends, and another one begins.
    fn die(&mut self, mut how: How) {
        let cut = self.backup.take();
        let kept = (how == How::Stop).then(|| self.kept());
        let mut started = self.restart(&mut how);
        // Lost again in the midst of something that a start bears.
        while !self.machine.disk.has_power() {
            started = self.restart(&mut How::Loss);
        }
        self.base = started.recovered.next_sequence - 1;
        self.store = started.store;
        self.network.restart(self.server, started.handler);
        self.network.wake(self.committer);
        (self.is_full, self.full_due) = (false, 0);
        if let Some(kept) = kept {
            self.world.borrow_mut().counts.stops += 1;
            self.check_kept(&kept);
        }
        let mut world = self.world.borrow_mut();
        world.is_holding = false;
        world.counts.lives += 1;
        if let Some(cut) = cut {
            cut.cut();
            world.counts.backups_cut += 1;
        }
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
            How::Kill => self.machine.disk.kill(),
            How::Stop => {
                self.machine.close();
                // What a clean stop has left is on the device.
                if self.machine.random.below(2) == 0 {
                    self.machine.disk.lose_power();
                }
            }
        }
        // What the dead tidy up is none of the living's: theirs is another disk from now on.
        self.machine.disk = self.machine.disk.fork();
        *self.machine.commit_loop.borrow_mut() = None;
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
        let each = [
            sum.taken_over,
            sum.refused_full,
            sum.full,
            sum.plain,
            sum.stops,
            disk.full_writes,
        ];
        assert!(each.iter().all(|count| *count >= 100), "{sum:?} {disk:?}");
        assert!(sum.evicted >= 20, "{sum:?}");
        assert!(
            sum.completing >= 10 && disk.failed_changes() >= 25,
            "{sum:?}"
        );
        assert!(sum.backups >= 50 && sum.backups_cut >= 10, "{sum:?}");
        assert!(sum.backups_failed >= 10, "{sum:?}");
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
