//! A server that lasts: it dies, and is started again.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

use net::sim::{Network, NodeId};
use store::durable::StorageEvent;
use store::{DatabaseInfo, Direction, Durability, Range, Store};
use wal::disk::DiskFaultCounts;

use super::databases::{self, Db};
use super::fate::Fate;
use super::history::Seen;
use super::keys;
use super::lives::{End, How, Life};
use super::machine::{Machine, Started};
use super::messages;
use super::time::wall_ms;
use super::timelines::Dump;
use super::world::World;

/// Within so many calls after there was room, there is none again, for so many calls at most.
const FULL_EVERY_CALLS: u64 = 60;
const FULL_CALLS: u64 = 60;

/// Within so many calls, what was planned on the disk has come.
const FATE_CALLS: u64 = 60;

pub struct Durable {
    pub server: NodeId,
    committer: NodeId,
    machine: Machine,
    lives: Vec<Life>,
    /// `None`: it is left alone.
    fate: Option<Fate>,
    /// How many calls have ended when fate comes.
    due: u64,
    /// What fate has planned on the disk is under way.
    is_planned: bool,
    failed_ms: Option<u64>,
    /// Writes and syncs that had failed when this was looked at last.
    failures: u64,
    /// How many calls have ended when the disk becomes full, or has room again.
    full_due: u64,
    is_full: bool,
    /// Times in which there was no room for the log.
    pub full_times: u64,
    /// Times in which the log could not grow for another reason.
    pub not_ready_times: u64,
    /// Times in which there was room again, without a restart.
    pub room_again_times: u64,
    pub snapshots: u64,
    /// Deaths in the midst of a snapshot.
    pub snapshots_cut: u64,
}

impl Durable {
    pub fn start(seed: u64, network: &mut Network, world: &mut World) -> Durable {
        let mut machine = Machine::new(seed);
        let started = machine.start(&mut How::Stop, 0);
        world.first_life(started.recovered.next_sequence - 1);
        Durable {
            server: network.add_node(started.handler),
            committer: network.add_node(machine.committer()),
            machine,
            lives: vec![Life::default()],
            fate: None,
            due: 0,
            is_planned: false,
            failed_ms: None,
            failures: 0,
            full_due: u64::MAX,
            is_full: false,
            full_times: 0,
            not_ready_times: 0,
            room_again_times: 0,
            snapshots: 0,
            snapshots_cut: 0,
        }
    }

    pub fn fault_counts(&self) -> DiskFaultCounts {
        self.machine.disk.fault_counts()
    }

    /// From now on it dies again and again, or not any more.
    pub fn let_die(&mut self, dies: bool, world: &mut World) {
        self.fate = None;
        if dies {
            self.choose_fate(0);
        } else {
            self.full_due = u64::MAX;
            self.due = 0;
            self.give_room(world);
            self.machine.forget_plans();
        }
    }

    fn choose_fate(&mut self, ended: u64) {
        let random = &mut self.machine.random;
        self.machine.disk.forget_plans();
        self.machine.disk.set_handle_limit(usize::MAX);
        self.fate = Some(Fate::draw_any(random));
        self.due = ended + random.below(50);
        self.is_planned = false;
        if self.full_due == u64::MAX {
            self.full_due = ended + random.below(FULL_EVERY_CALLS);
        }
    }

    /// Brings the news between the nodes, and does what fate wants.
    pub fn after_step(&mut self, network: &mut Network, world: &RefCell<World>) {
        if self.machine.has_work() {
            network.wake(self.committer);
        }
        if self.machine.take_mail() {
            network.wake(self.server);
        }
        let mut world = world.borrow_mut();
        self.take_events(&mut world, network.now_ns());
        if !self.machine.disk.has_power() {
            return self.die(network, &mut world, How::Loss);
        }
        let ended = world.ended();
        if ended >= self.full_due {
            self.change_room(ended, &mut world);
        }
        if ended < self.due {
            return;
        }
        if self.machine.has_failed() {
            let how = self.how_after_failure();
            return self.die(network, &mut world, how);
        }
        let Some(fate) = self.fate else { return };
        match fate {
            Fate::Kill => self.die(network, &mut world, How::Kill),
            Fate::PowerLoss => self.die(network, &mut world, How::Loss),
            Fate::Stop if !self.is_planned => {
                self.is_planned = true;
                self.full_due = u64::MAX;
                self.give_room(&mut world);
                world.is_holding = true;
                network.stop(self.server);
            }
            Fate::Stop if network.has_ended(self.server) => {
                self.die(network, &mut world, How::Stop);
            }
            Fate::Stop => {}
            planned if !self.is_planned => {
                self.is_planned = true;
                planned.plan(&self.machine.disk);
                self.due = ended + FATE_CALLS;
            }
            // What was planned has hit something that bears it.
            _ => self.choose_fate(ended),
        }
    }

    fn take_events(&mut self, world: &mut World, now_ns: u64) {
        let counts = self.fault_counts();
        let failures = counts.failed_writes + counts.failed_syncs;
        if std::mem::replace(&mut self.failures, failures) != failures && !self.is_full {
            // Perhaps one that would have made room: then a group is refused, and the next one
            // tries again.
            world.set_full(false);
        }
        let events = std::mem::take(&mut *self.machine.events.borrow_mut());
        for event in events {
            match event {
                StorageEvent::Failed(_) => {
                    self.failed_ms = Some(wall_ms(now_ns));
                    world.trouble.failed.push(world.life);
                    // It goes on for a while, for those who only read.
                    self.due = world.ended() + self.machine.random.below(20);
                }
                StorageEvent::Full(_) => self.full_times += 1,
                StorageEvent::NotReady(_) => self.not_ready_times += 1,
                StorageEvent::RoomAgain => self.room_again_times += 1,
                StorageEvent::SnapshotMade(_) => self.snapshots += 1,
                // Full, or an error that was planned: tried again later.
                StorageEvent::SnapshotFailed(_)
                | StorageEvent::NotRetired(_)
                | StorageEvent::NoPriority(_) => {}
                StorageEvent::TreeFailed(_)
                | StorageEvent::TreeWorks(_)
                | StorageEvent::FolderRemade => {
                    unreachable!("a simulated store has no databases on disk")
                }
            }
        }
    }

    fn how_after_failure(&mut self) -> How {
        match self.machine.random.below(4) {
            0 => How::Loss,
            1 => {
                // What the operating system believes to be on the device is read from there again.
                self.machine.disk.evict();
                How::Loss
            }
            _ => How::Kill,
        }
    }

    fn change_room(&mut self, ended: u64, world: &mut World) {
        let most = if self.is_full {
            FULL_EVERY_CALLS
        } else {
            FULL_CALLS
        };
        self.full_due = ended + self.machine.random.below(most);
        if self.is_full {
            self.give_room(world);
        } else {
            self.is_full = true;
            world.set_full(true);
            let used_bytes = self.machine.disk.used_bytes();
            self.machine.disk.set_capacity_bytes(used_bytes);
        }
    }

    /// From now on nothing is refused for want of it.
    fn give_room(&mut self, world: &mut World) {
        if std::mem::take(&mut self.is_full) {
            world.set_full(false);
        }
        self.machine.disk.set_capacity_bytes(u64::MAX);
    }

    /// The life of the server ends, and another one begins.
    fn die(&mut self, network: &mut Network, world: &mut World, how: How) {
        let started = self.restart(world, how, network.now_ns());
        network.restart(self.server, started.handler);
        network.wake(self.committer);
        if self.fate.is_some() {
            self.choose_fate(world.ended());
        }
    }

    fn restart(&mut self, world: &mut World, mut how: How, now_ns: u64) -> Started {
        self.snapshots_cut += u64::from(self.machine.is_making_snapshot());
        if how == How::Stop {
            self.machine.close();
        } else {
            // The dead do not tidy up: their files are dead before they are dropped.
            match how {
                How::Loss => self.machine.disk.lose_power(),
                _ => self.machine.disk.kill(),
            }
            *self.machine.commit_loop.borrow_mut() = None;
        }
        self.is_full = false;
        let started = self.machine.start(&mut how, world.base());
        self.begin_life(world, &started, how, now_ns);
        started
    }

    fn begin_life(&mut self, world: &mut World, started: &Started, how: How, now_ns: u64) {
        let next_sequence = started.recovered.next_sequence;
        let old = world.life;
        self.lives[old].end = Some(End {
            how,
            at_ms: wall_ms(now_ns),
            failed_ms: self.failed_ms.take(),
            last_sequence: started.last_sequence,
        });
        world.next_life(next_sequence - 1);
        let found = dump(world, &started.store, old);
        let there: Vec<Db> = found.keys().copied().collect();
        world.learn_databases(&there);
        there.iter().for_each(|db| world.found_database(*db));
        self.lives.push(Life {
            found,
            begun_at: world.next_moment(),
            end: None,
        });
    }

    /// The round is over, and the server has stopped: a last start shows what it has left.
    pub fn end(&mut self, world: &mut World, now_ns: u64) -> Vec<Life> {
        drop(self.restart(world, How::Stop, now_ns));
        std::mem::take(&mut self.lives)
    }
}

/// All that is there at the beginning of a life. It must fit to what was seen of logs in the one
/// before.
fn dump(world: &mut World, store: &Store, old: usize) -> BTreeMap<Db, Dump> {
    let databases = store.databases();
    databases
        .iter()
        .map(|info| {
            let db = databases::of_name(&info.name);
            assert_eq!(info.config.durability, databases::durability(db));
            (db, dump_database(world, store, info, db, old))
        })
        .collect()
}

fn dump_database(
    world: &mut World,
    store: &Store,
    info: &DatabaseInfo,
    db: Db,
    old: usize,
) -> Dump {
    let view = store.view(info.id).expect("nobody drops it");
    view.verify();
    let is_volatile = info.config.durability == Durability::Volatile;
    let mut dump = Dump::new();
    // At time 0 nothing has expired: what waits to be swept counts too.
    view.scan(&Range::ALL, Direction::Forward, 0, u32::MAX, &mut |entry| {
        let key = keys::key_of(entry.key);
        let value = entry.value.bytes();
        if !is_volatile {
            messages::content(key, value, world.logs_of(old, db));
        }
        let seen = Seen {
            version: entry.version,
            content: Some(messages::content(key, value, world.logs_of(old + 1, db))),
            expires_ms: Some(entry.expires_ms),
        };
        dump.insert(key, seen);
        ControlFlow::Continue(())
    });
    dump
}
