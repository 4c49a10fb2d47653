//! The machine of the server: its disk, the committer, and how both are started again.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use net::sim::SplitMix;
use net::{Closed, ConnectionId, Connections, Handler, Io, LoopConfig, Peer};
use server::{ServerConfig, SilentLog, Simulated, Storage, TimeSource, simulated};
use service::ServerInfo;
use service::identities::{DrawToken, TOKEN_BYTES, Token, UsableBindings};
use service::rights::Rights;
use store::blob::BlobConfig;
use store::durable::{CommitLoop, Opened, StorageEvent};
use store::{FolderSecret, KeepLog, Store, StoreConfig};
use wal::disk::{Fault, SimulatedDisk};
use wal::limits::SEQUENCE_RESERVE;
use wal::{LogConfig, LogId, Recovered, WriteError, verify};

use super::databases;
use super::lives::How;
use super::time::{CommitterClock, Timed, VirtualTime};

/// The longest time that the committer is busy with something else after a group.
const BUSY_NS: u64 = 400_000;

/// The committer's node is asked for a snapshot once in so many turns, beside those that it makes
/// by itself.
const SNAPSHOT_ASKED_ONCE_IN: u64 = 200;

/// Half of the groups are complete with fewer operations than this and one, so that batches are
/// parted at all places.
const GROUP_OPERATIONS: u64 = 6;

/// What is behind the server's handler.
pub struct Machine {
    seed: u64,
    pub disk: SimulatedDisk,
    pub time: Arc<VirtualTime>,
    pub random: SplitMix,
    segment_bytes: u64,
    /// The bounds of blobs, from the next start on.
    pub blobs: BlobConfig,
    /// There are answers in the mailbox.
    mail: Arc<AtomicBool>,
    pub commit_loop: Rc<RefCell<Option<CommitLoop>>>,
    pub events: Rc<RefCell<Vec<StorageEvent>>>,
    /// A snapshot is in the making.
    making: Rc<Cell<bool>>,
    /// Syncs of folders that had failed when this life began.
    failed_folder_syncs: u64,
}

/// A server that has started.
pub struct Started {
    pub handler: Box<dyn Handler>,
    pub store: Store,
    pub recovered: Recovered,
    /// Of the last group that the life before has left in the log.
    pub last_sequence: u64,
}

impl Machine {
    pub fn new(seed: u64) -> Machine {
        let mut random = SplitMix::new(!seed);
        Machine {
            seed,
            disk: testkit::simulated_disk(seed),
            time: Arc::default(),
            segment_bytes: [8 << 10, 16 << 10, 64 << 10][random.below(3) as usize],
            random,
            // So that uploads of some blocks are made durable several times.
            blobs: BlobConfig {
                free_bytes: 0,
                sync_bytes: 30_000,
                ..BlobConfig::default()
            },
            mail: Arc::default(),
            commit_loop: Rc::default(),
            events: Rc::default(),
            making: Rc::default(),
            failed_folder_syncs: 0,
        }
    }

    /// The committer as a node of the network, so that it has turns like everybody else.
    pub fn committer(&self) -> Box<dyn Handler> {
        Box::new(Committer {
            commit_loop: Rc::clone(&self.commit_loop),
            events: Rc::clone(&self.events),
            time: Arc::clone(&self.time),
            making: Rc::clone(&self.making),
            random: RefCell::new(SplitMix::new(self.seed ^ 0x55)),
            busy_until_ns: Cell::new(0),
        })
    }

    /// Lets nothing more go wrong on the disk.
    pub fn forget_plans(&self) {
        self.disk.forget_plans();
        self.disk.set_handle_limit(usize::MAX);
    }

    /// Whether the server has mail; forgets it.
    pub fn take_mail(&self) -> bool {
        self.mail.swap(false, Ordering::Relaxed)
    }

    /// Whether a snapshot is in the making.
    pub fn is_making_snapshot(&self) -> bool {
        self.making.get()
    }

    /// Whether the committer has something to do.
    pub fn has_work(&self) -> bool {
        self.commit_loop
            .borrow()
            .as_ref()
            .is_some_and(CommitLoop::has_work)
    }

    /// Whether writes are refused until a restart.
    pub fn has_failed(&self) -> bool {
        self.commit_loop
            .borrow()
            .as_ref()
            .is_some_and(CommitLoop::has_failed)
    }

    /// Starts the server on what the disk has. Sometimes that fails at first: the power goes again,
    /// or the disk has an error. Then `how` says what the previous run has lost by now. Its
    /// sequences were above `base`.
    pub fn start(&mut self, how: &mut How, base: u64) -> Started {
        self.disk.set_capacity_bytes(u64::MAX);
        self.mail.store(false, Ordering::Relaxed);
        loop {
            self.forget_plans();
            let last_sequence = self.last_sequence(base);
            let is_disturbed = self.random.below(3) == 0;
            if is_disturbed {
                self.disturb();
            }
            self.failed_folder_syncs = self.disk.fault_counts().failed_folder_syncs;
            let started = self.try_start(last_sequence);
            self.forget_plans();
            match started {
                Ok(started) => return started,
                Err(error) => assert!(is_disturbed, "the server does not start: {error}"),
            }
            if self.disk.has_power() && self.random.below(2) == 0 {
                self.disk.kill();
            } else {
                *how = How::Loss;
                self.disk.lose_power();
            }
        }
    }

    /// Plans that something goes wrong in the next start.
    fn disturb(&mut self) {
        let random = &mut self.random;
        let faults = [Fault::PowerLoss, Fault::Error];
        match random.below(4) {
            0 => {
                let step = self.disk.step_count() + random.below(24) as usize;
                self.disk.plan(step, faults[random.below(2) as usize]);
            }
            1 => self.disk.set_handle_limit(random.below(8) as usize),
            _ => {
                let access = self.disk.accesses().len() + random.below(60) as usize;
                let faults = [Fault::PowerLoss, Fault::Error, Fault::Error, Fault::Short];
                self.disk
                    .plan_access(access, faults[random.below(4) as usize]);
            }
        }
    }

    fn log_config(&self) -> LogConfig {
        let log_id = LogId {
            history: self.seed,
            secret: !self.seed,
        };
        LogConfig {
            segment_bytes: self.segment_bytes,
            ..LogConfig::new(log_id, self.time.wall_ms())
        }
    }

    /// A store on a copy of the disk, for somebody who tries what would happen.
    pub fn open_copy(&self) -> Opened {
        let mut config = StoreConfig::new(self.seed);
        config.default_database.durability = databases::durability(databases::DEFAULT);
        config.blobs = BlobConfig {
            quota_bytes: u64::MAX,
            ..self.blobs
        };
        let opened = Store::open(config, Arc::new(self.disk.fork()), &self.log_config());
        opened.unwrap_or_else(|error| panic!("a copy does not start: {error}"))
    }

    fn try_start(&mut self, last_sequence: u64) -> Result<Started, server::StartError> {
        let storage = Storage::Folder {
            disk: Arc::new(self.disk.clone()),
            log: self.log_config(),
            trees: None,
            durability: databases::durability(databases::DEFAULT),
            kind: None,
            // Half of them keep all of it, so that whoever watches finds it.
            keep_log: KeepLog {
                bytes: if self.seed.is_multiple_of(2) {
                    0
                } else {
                    u64::MAX
                },
                age_ms: None,
            },
        };
        let config = ServerConfig {
            blobs: self.blobs,
            ..config(self.seed, Arc::clone(&self.time), storage)
        };
        let mail = Arc::clone(&self.mail);
        let waker = Box::new(move || mail.store(true, Ordering::Relaxed));
        let Simulated {
            handler,
            commit_loop,
            shared,
            recovered,
        } = simulated(config, waker)?;
        *self.commit_loop.borrow_mut() = commit_loop;
        self.events.borrow_mut().clear();
        self.making.set(false);
        let time = Arc::clone(&self.time);
        Ok(Started {
            handler: Box::new(Timed { handler, time }),
            store: shared.store.clone(),
            recovered: recovered.expect("it has a log"),
            last_sequence,
        })
    }

    /// The last sequence in the log that is not of a start that failed: those skip more than any
    /// life has.
    fn last_sequence(&self, base: u64) -> u64 {
        let mut last = base;
        let report = verify(&self.disk, &mut |_, group| {
            let sequence = group.header.last_sequence;
            if sequence < base + SEQUENCE_RESERVE / 2 {
                last = last.max(sequence);
            }
            Ok(())
        });
        report.expect("the disk reads well");
        last
    }

    /// Ends a clean stop.
    ///
    /// After a sync of the folder has failed, no further segment is prepared until a restart. There
    /// may be no room for the closing group then; all that was written is durable even so.
    pub fn close(&self) {
        let commit_loop = self.commit_loop.borrow_mut().take().expect("it runs");
        let mut clock = CommitterClock(Arc::clone(&self.time));
        let failed_folder_syncs = self.disk.fault_counts().failed_folder_syncs;
        match commit_loop.close(&mut clock) {
            Ok(()) => {}
            Err(WriteError::NoRoom { source: None, .. })
                if failed_folder_syncs > self.failed_folder_syncs =>
            {
                self.disk.lose_power();
            }
            Err(error) => panic!("nothing is planned: {error}"),
        }
    }
}

/// A server without a log.
pub fn volatile_server(seed: u64) -> Box<dyn Handler> {
    let time = Arc::new(VirtualTime::default());
    let config = config(
        seed,
        Arc::clone(&time),
        Storage::Volatile { history_id: seed },
    );
    let simulated = simulated(config, Box::new(|| {})).expect("the limits fit together");
    let handler = simulated.handler;
    Box::new(Timed { handler, time })
}

fn config(seed: u64, time: Arc<VirtualTime>, storage: Storage) -> ServerConfig {
    let has_fixed_windows = seed.is_multiple_of(3);
    ServerConfig {
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
        services: Default::default(),
        secret: FolderSecret::new([1; 32]),
        draw_token: draw_token(),
        first_admin: None,
        bindings: UsableBindings::ALL,
        hash_seed: seed,
        time,
        log: Arc::new(SilentLog),
        storage,
        blobs: BlobConfig::default(),
        backup_root: None,
        following: None,
        data: None,
        time_calls: true,
        slow_calls: None,
        spans: None,
        anonymous: vec![Rights::everything()],
    }
}

/// Tokens that are other ones each time, also after a start.
fn draw_token() -> Box<DrawToken> {
    static DRAWN: AtomicU64 = AtomicU64::new(1);
    Box::new(|| {
        let mut bytes = [7; TOKEN_BYTES];
        bytes[..8].copy_from_slice(&DRAWN.fetch_add(1, Ordering::Relaxed).to_le_bytes());
        Some(Token::new(bytes))
    })
}

/// The node of the committer. It carries out one group, and is busy for a while.
struct Committer {
    commit_loop: Rc<RefCell<Option<CommitLoop>>>,
    events: Rc<RefCell<Vec<StorageEvent>>>,
    time: Arc<VirtualTime>,
    making: Rc<Cell<bool>>,
    random: RefCell<SplitMix>,
    busy_until_ns: Cell<u64>,
}

impl Handler for Committer {
    fn opened(&mut self, _: ConnectionId, _: &Peer, _: &mut Io, _: u64) {}
    fn received(&mut self, _: ConnectionId, _: &mut Io, _: u64) {}
    fn writable(&mut self, _: ConnectionId, _: &mut Io, _: u64) {}
    fn closed(&mut self, _: ConnectionId, _: Closed, _: u64) {}

    fn tick(&mut self, _: &mut dyn Connections, now_ns: u64) {
        let mut commit_loop = self.commit_loop.borrow_mut();
        let Some(commit_loop) = commit_loop
            .as_mut()
            .filter(|_| self.busy_until_ns.get() <= now_ns)
        else {
            return;
        };
        self.time.set(now_ns);
        let mut clock = CommitterClock(Arc::clone(&self.time));
        let mut random = self.random.borrow_mut();
        let is_small = random.below(2) == 0;
        commit_loop.set_group_operations(if is_small {
            1 + random.below(GROUP_OPERATIONS) as usize
        } else {
            usize::MAX
        });
        let worked = commit_loop.round(&mut clock);
        if random.below(SNAPSHOT_ASKED_ONCE_IN) == 0 {
            commit_loop.ask_for_snapshot();
        }
        for _ in 0..random.below(3) {
            self.making.set(commit_loop.step_snapshot(&mut clock));
        }
        if worked || self.making.get() {
            self.busy_until_ns.set(now_ns + random.below(BUSY_NS));
        }
        self.events.borrow_mut().extend(commit_loop.take_events());
        drop(commit_loop.take_garbage());
    }

    fn next_deadline_ns(&self) -> Option<u64> {
        let commit_loop = self.commit_loop.borrow();
        let commit_loop = commit_loop.as_ref()?;
        let busy_until_ns = self.busy_until_ns.get();
        if commit_loop.has_work() || self.making.get() {
            return Some(busy_until_ns);
        }
        let due_ns = commit_loop.due_ns();
        (due_ns != u64::MAX).then_some(due_ns.max(busy_until_ns))
    }

    fn stop(&mut self, _: &mut dyn Connections, _: u64) {}

    fn is_drained(&self) -> bool {
        true
    }
}
