//! A server of echoes with the habits that tests need, and a hand on it.
#![allow(dead_code)] // each test file uses its own part

pub mod scripted;
pub mod tls;

use std::collections::VecDeque;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Signal, getpid, kill_process};

use net::{
    Address, Closed, ConnectionId, Connections, CountersReader, Driver, Handler, Io, LoopConfig,
    LoopCounters, LoopStart, Loops, Notice, Notices, Peer, RunEnd, RunError, StopHandle, Waker,
};

/// What tests see and steer of all handlers of one server.
#[derive(Default)]
pub struct Habits {
    /// Something runs while set: not drained, and another thread may wake.
    pub busy: AtomicBool,
    /// Bytes taken from the input per turn; 0: all.
    pub turn_bytes: AtomicU64,
    /// Answer only this, whatever comes, and close.
    pub last_answer: Mutex<Option<Vec<u8>>>,
    /// Sent to all connections at the next tick.
    pub announcement: Mutex<Option<Vec<u8>>>,
    /// Turns of limited length wait while a test holds this.
    pub gate: Mutex<()>,
    /// How many have come to the gate.
    pub at_gate: AtomicU64,
    /// The first byte seen in each turn, in order.
    pub turns: Mutex<Vec<u8>>,
    pub closed: Mutex<Vec<Closed>>,
    /// The peers of connections, in the order in which these were opened.
    pub peers: Mutex<Vec<Peer>>,
    pub wakers: Mutex<Vec<Arc<dyn Waker>>>,
    /// When ticks came that were asked for by a deadline: how late, in nanoseconds.
    pub lateness_ns: Mutex<VecDeque<u64>>,
    /// Ask for a tick after so many nanoseconds, again and again.
    pub period_ns: AtomicU64,
    pub stops: AtomicU64,
    /// Send SIGTERM to this very process before the loops run.
    pub terminate_early: AtomicBool,
}

struct Echo {
    habits: Arc<Habits>,
    open: Vec<ConnectionId>,
    deadline_ns: Option<u64>,
}

impl Handler for Echo {
    fn opened(&mut self, id: ConnectionId, peer: &Peer, io: &mut Io, _: u64) {
        self.open.push(id);
        // Its place would be counted for as long as it is kept.
        let seen = Peer {
            place: None,
            handshake: None,
            ..peer.clone()
        };
        self.habits.peers.lock().expect("no panic").push(seen);
        if peer.over_limit {
            io.output.extend_from_slice(b"full");
            io.close_when_written();
        }
    }

    fn received(&mut self, _: ConnectionId, io: &mut Io, _: u64) {
        if io.input.bytes().starts_with(b"panic") {
            panic!("asked to");
        }
        if io.input.bytes().starts_with(b"hang") {
            println!("\nhangs");
            std::thread::sleep(Duration::from_secs(3600));
        }
        if let Some(last_answer) = &*self.habits.last_answer.lock().expect("no panic") {
            io.output.extend_from_slice(last_answer);
            return io.close_when_written();
        }
        let turn_bytes = self.habits.turn_bytes.load(Ordering::Relaxed) as usize;
        let take = match turn_bytes {
            0 => io.input.len(),
            limit => limit.min(io.input.len()),
        };
        if turn_bytes > 0 {
            self.habits.at_gate.fetch_add(1, Ordering::Relaxed);
            drop(self.habits.gate.lock().expect("no panic"));
            let mut turns = self.habits.turns.lock().expect("no panic");
            turns.extend(io.input.bytes().first());
        }
        io.output.extend_from_slice(&io.input.bytes()[..take]);
        io.input.consume(take);
        io.set_unfinished(!io.input.is_empty());
        if io.end_of_input() && io.input.is_empty() {
            io.close_when_written();
        }
    }

    fn writable(&mut self, _: ConnectionId, _: &mut Io, _: u64) {}

    fn closed(&mut self, id: ConnectionId, why: Closed, _: u64) {
        self.open.retain(|other| *other != id);
        self.habits.closed.lock().expect("no panic").push(why);
    }

    fn tick(&mut self, connections: &mut dyn Connections, now_ns: u64) {
        if let Some(bytes) = &*self.habits.announcement.lock().expect("no panic") {
            for id in &self.open {
                connections
                    .io(*id)
                    .expect("open")
                    .output
                    .extend_from_slice(bytes);
            }
        }
        let period_ns = self.habits.period_ns.load(Ordering::Relaxed);
        if let Some(deadline_ns) = self
            .deadline_ns
            .take_if(|deadline_ns| *deadline_ns <= now_ns)
        {
            let mut lateness = self.habits.lateness_ns.lock().expect("no panic");
            lateness.push_back(now_ns - deadline_ns);
        }
        if period_ns > 0 && self.deadline_ns.is_none() {
            self.deadline_ns = Some(now_ns + period_ns);
        }
    }

    fn next_deadline_ns(&self) -> Option<u64> {
        self.deadline_ns
    }

    fn awaits_wake(&self) -> bool {
        self.habits.busy.load(Ordering::Relaxed)
    }

    fn stop(&mut self, _: &mut dyn Connections, _: u64) {
        self.habits.stops.fetch_add(1, Ordering::Relaxed);
    }

    fn is_drained(&self) -> bool {
        !self.habits.busy.load(Ordering::Relaxed)
    }
}

/// Notices, as text.
pub struct Collect(Mutex<mpsc::Sender<String>>);

impl Notices for Collect {
    fn notice(&self, notice: &Notice) {
        let _ = self.0.lock().expect("no panic").send(notice.to_string());
    }
}

pub struct Server {
    pub addresses: Vec<Address>,
    pub habits: Arc<Habits>,
    pub counters: CountersReader,
    pub stop: StopHandle,
    pub notices: Receiver<String>,
    thread: Option<JoinHandle<Result<RunEnd, RunError>>>,
}

impl Server {
    pub fn start(config: LoopConfig) -> Server {
        Server::start_with(config, Habits::default())
    }

    pub fn start_with(mut config: LoopConfig, habits: Habits) -> Server {
        let (sender, notices) = mpsc::channel();
        config.notices = Arc::new(Collect(Mutex::new(sender)));
        let habits = Arc::new(habits);
        let mut loops = Loops::bind(config).expect("a free address");
        loops.handle_signals().expect("signals can be handled");
        if habits.terminate_early.load(Ordering::Relaxed) {
            kill_process(getpid(), Signal::TERM).expect("it is there");
        }
        let (addresses, counters, stop) = (
            loops.addresses().to_vec(),
            loops.counters(),
            loops.stop_handle(),
        );
        let for_handlers = habits.clone();
        let thread = std::thread::spawn(move || {
            loops.run(|start: &LoopStart| {
                let habits = for_handlers.clone();
                habits
                    .wakers
                    .lock()
                    .expect("no panic")
                    .push(start.waker.clone());
                Box::new(Echo {
                    habits,
                    open: Vec::new(),
                    deadline_ns: None,
                })
            })
        });
        Server {
            addresses,
            habits,
            counters,
            stop,
            notices,
            thread: Some(thread),
        }
    }

    pub fn connect(&self) -> TcpStream {
        let Address::Tcp { host, port } = &self.addresses[0] else {
            panic!("not TCP")
        };
        let stream = TcpStream::connect((host.as_str(), *port)).expect("listening");
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .expect("valid");
        stream
    }

    pub fn connect_unix(&self, index: usize) -> UnixStream {
        let Address::Unix(path) = &self.addresses[index] else {
            panic!("not UNIX")
        };
        let stream = UnixStream::connect(path).expect("listening");
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .expect("valid");
        stream
    }

    pub fn sum(&self, of: impl Fn(&LoopCounters) -> u64) -> u64 {
        self.counters.read().iter().map(of).sum()
    }

    pub fn wait_for_end(mut self) -> Result<RunEnd, RunError> {
        self.thread
            .take()
            .expect("ends once")
            .join()
            .expect("run does not panic")
    }

    pub fn stop(self) -> Result<RunEnd, RunError> {
        self.stop.stop();
        self.wait_for_end()
    }
}

/// One loop on a free port, deaf to signals.
pub fn one_loop() -> LoopConfig {
    LoopConfig {
        listen: vec!["127.0.0.1:0".parse().expect("valid")],
        threads: 1,
        handle_signals: false,
        ..LoopConfig::default()
    }
}

/// For tests in which nobody waits for it: no machine is so busy that half of it goes by.
pub const LONG_DRAIN_MS: u64 = 60_000;

/// A thread for each connection, of which so many compute at once, on a free port, deaf to signals.
pub fn blocking(threads: usize) -> LoopConfig {
    LoopConfig {
        driver: Driver::Blocking,
        threads,
        // As few descriptors as any machine allows.
        max_connections: 1_000,
        ..one_loop()
    }
}

/// Waits until something is so, with a deadline that no healthy machine needs.
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until all threads sleep: so long that one which spins would have been seen, none has
/// ticked.
pub fn fall_asleep(server: &Server) {
    eventually("idle threads sleep", || {
        let before = server.sum(|thread| thread.ticks);
        std::thread::sleep(Duration::from_millis(300));
        server.sum(|thread| thread.ticks) == before
    });
}

/// Waits for so many deadlines one after the other of which the half are kept to 5 ms. A busy
/// machine is late by itself, but not each time; a wait that is rounded up is.
pub fn keep_deadlines(server: &Server, count: usize) {
    eventually("deadlines that are kept", || {
        let mut lateness = server.habits.lateness_ns.lock().expect("no panic");
        if lateness.len() < count {
            return false;
        }
        let mut all: Vec<u64> = lateness.drain(..).collect();
        all.sort();
        all[all.len() / 2] < 5_000_000
    });
}

/// A directory of this test's own, removed when it ends.
pub struct Directory(pub PathBuf);

impl Directory {
    pub fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("net-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a writable directory for temporary files");
        Directory(path)
    }

    pub fn socket(&self) -> Address {
        Address::Unix(self.0.join("socket"))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
