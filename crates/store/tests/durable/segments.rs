//! The thread that prepares segments beside the committer that takes them: late, early and failing,
//! in every order of two.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use store::durable::{Durable, Mailbox, Opened, StorageEvent};
use store::{Clock, DatabaseId, Decision, Mode, Outcomes, Refusal, Store};
use testkit::suite::{delete, put};
use wal::disk::{Disk, DiskFile, FolderLock, SimulatedDisk};

use crate::bench::{SEGMENT_BYTES, log_config, verify};
use crate::snapshots::config;

/// So long something is waited for that always comes.
const TIMEOUT: Duration = Duration::from_secs(120);

/// What the helper thread does at the rename that gives a segment its place.
#[derive(Default)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    /// The thread waits here.
    is_held: bool,
    /// Whether it may go on, and whether the rename is to fail.
    verdict: Option<Verdict>,
    /// Nobody is held any more.
    is_open: bool,
    /// The thread's next sync of the folder fails.
    fails_sync: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Pass,
    Fail,
}

impl Gate {
    fn pass(&self) -> io::Result<()> {
        let mut state = self.state.lock().expect("no panic");
        state.is_held = true;
        self.changed.notify_all();
        while state.verdict.is_none() && !state.is_open {
            state = self.changed.wait(state).expect("no panic");
        }
        state.is_held = false;
        self.changed.notify_all();
        match state.verdict.take() {
            Some(Verdict::Fail) => Err(io::Error::from_raw_os_error(5)),
            _ => Ok(()),
        }
    }

    fn wait_until(&self, is_held: bool) {
        let state = self.state.lock().expect("no panic");
        let waits = |state: &mut GateState| state.is_held != is_held;
        let waited = self.changed.wait_timeout_while(state, TIMEOUT, waits);
        assert!(
            !waited.expect("no panic").1.timed_out(),
            "the helper is late"
        );
    }

    /// Lets the thread go on that is held, or will be.
    fn release(&self, verdict: Verdict) {
        self.wait_until(true);
        self.state.lock().expect("no panic").verdict = Some(verdict);
        self.changed.notify_all();
    }

    fn open(&self) {
        self.state.lock().expect("no panic").is_open = true;
        self.changed.notify_all();
    }
}

/// A disk whose segments get their names when the test lets them.
#[derive(Clone)]
struct GatedDisk {
    disk: SimulatedDisk,
    gate: Arc<Gate>,
}

impl GatedDisk {
    fn new(seed: u64) -> GatedDisk {
        GatedDisk {
            disk: testkit::simulated_disk(seed),
            gate: Arc::default(),
        }
    }
}

impl fmt::Debug for GatedDisk {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.disk.fmt(formatter)
    }
}

impl Disk for GatedDisk {
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.disk.create(name)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.disk.open(name)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        if to.ends_with(".log") && thread::current().name() == Some("pelton-segments") {
            self.gate.pass()?;
        }
        self.disk.rename(from, to)
    }

    fn sync_folder(&self) -> io::Result<()> {
        if thread::current().name() == Some("pelton-segments") {
            let mut state = self.gate.state.lock().expect("no panic");
            if std::mem::take(&mut state.fails_sync) {
                return Err(io::Error::from_raw_os_error(5));
            }
        }
        self.disk.sync_folder()
    }

    fn lock(&self) -> io::Result<Option<FolderLock>> {
        self.disk.lock()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.disk.free_bytes()
    }

    fn subfolder(&self, name: &str) -> io::Result<Arc<dyn Disk>> {
        self.disk.subfolder(name)
    }

    fn has_subfolder(&self, name: &str) -> io::Result<bool> {
        self.disk.has_subfolder(name)
    }

    fn remove_subfolder(&self, name: &str) -> io::Result<()> {
        self.disk.remove_subfolder(name)
    }

    fn describe(&self, name: &str) -> String {
        self.disk.describe(name)
    }
}

/// Time that passes when the test says so.
#[derive(Clone, Default)]
struct PushedClock(Arc<AtomicU64>);

impl PushedClock {
    fn push_seconds(&self, seconds: u64) {
        self.0.fetch_add(seconds * 1_000_000_000, Ordering::SeqCst);
    }
}

impl Clock for PushedClock {
    fn now_ns(&mut self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    fn now_ms(&mut self) -> u64 {
        1_000 + self.now_ns() / 1_000_000
    }
}

struct Client {
    store: Store,
    durable: Durable,
    mailbox: Mailbox,
    events: Receiver<StorageEvent>,
    gate: Arc<Gate>,
    clock: PushedClock,
    next_key: u64,
    /// Keys that were answered as applied, and those that were refused.
    applied: Vec<u64>,
    refused: Vec<u64>,
}

impl Client {
    /// Opens a new store, and has a commit applied: there was room in the first segment.
    fn start(disk: &GatedDisk) -> Client {
        let opened = Store::open(config(), Arc::new(disk.clone()), &log_config());
        let Opened {
            store, committer, ..
        } = opened.expect("it is empty");
        let (sender, events) = channel();
        let reporter = move |event| {
            // Those at the end are for nobody.
            let _ = sender.send(event);
        };
        let clock = PushedClock::default();
        let durable = Durable::start(committer, clock.clone(), Box::new(reporter));
        let durable = durable.expect("threads can be started");
        let this = thread::current();
        let mut client = Client {
            mailbox: durable.register(Box::new(move || this.unpark())),
            store,
            durable,
            events,
            gate: disk.gate.clone(),
            clock,
            next_key: 0,
            applied: Vec::new(),
            refused: Vec::new(),
        };
        client.submit(1);
        assert_eq!(client.answers(), [Decision::Applied]);
        client
    }

    /// Hands over commits of which each takes most of a segment, as groups of their own where they
    /// come one by one.
    fn submit(&mut self, commits: u64) {
        for _ in 0..commits {
            let mut batch = self.store.write_batch();
            let mut commit = batch.begin(self.next_key, DatabaseId::DEFAULT, Mode::Atomic);
            let value = vec![7; SEGMENT_BYTES as usize * 3 / 4];
            commit
                .push(&put(&self.next_key.to_be_bytes(), &value))
                .expect("fits");
            commit.submit();
            self.mailbox.submit(&mut batch);
            self.next_key += 1;
        }
    }

    fn wait_until_decided(&self) {
        while self.mailbox.waiting_bytes() > 0 {
            thread::yield_now();
        }
    }

    /// The decisions of all that is not answered yet.
    fn answers(&mut self) -> Vec<Decision> {
        let mut outcomes = Outcomes::new();
        let mut decisions = Vec::new();
        while (self.applied.len() + self.refused.len()) as u64 != self.next_key {
            while self.mailbox.take(&mut outcomes) {
                for outcome in outcomes.iter() {
                    let is_applied = outcome.decision == Decision::Applied;
                    let place = match is_applied {
                        true => &mut self.applied,
                        false => &mut self.refused,
                    };
                    place.push(outcome.tag);
                    decisions.push(outcome.decision);
                }
            }
            thread::park_timeout(Duration::from_millis(20));
        }
        decisions
    }

    /// The segment comes after the group that needs it, and so does the one after it.
    fn late(&mut self) {
        for _ in 0..2 {
            self.gate.wait_until(true);
            self.submit(1);
            self.wait_until_decided();
            assert!(
                !self.mailbox.take(&mut Outcomes::new()),
                "answered without a place in the log"
            );
            self.gate.release(Verdict::Pass);
            assert_eq!(self.answers(), [Decision::Applied]);
        }
    }

    /// Two groups wait at once, the second behind the first. They need two segments, and get no
    /// third one: the next test begins with it.
    fn two_wait(&mut self) {
        self.gate.wait_until(true);
        self.submit(1);
        self.wait_until_decided();
        self.submit(1);
        for _ in 0..2 {
            self.gate.release(Verdict::Pass);
            self.gate.wait_until_taken();
        }
        assert_eq!(self.answers(), [Decision::Applied; 2]);
    }

    /// The segment is there before the group, though the committer may not have taken it yet.
    fn early(&mut self) {
        self.gate.release(Verdict::Pass);
        self.submit(1);
        assert_eq!(self.answers(), [Decision::Applied]);
    }

    /// The segment cannot be made, while a group waits for it; and it can when that is tried again.
    fn failing(&mut self) {
        while self.events.try_recv().is_ok() {}
        self.gate.wait_until(true);
        self.submit(1);
        self.wait_until_decided();
        self.gate.release(Verdict::Fail);
        let refused = Decision::Refused(Refusal::LogNotReady);
        assert_eq!(self.answers(), [refused]);
        self.expect(
            |event| matches!(event, StorageEvent::NotReady(why) if why.contains("os error 5")),
        );
        // Nothing is tried before its time.
        self.submit(1);
        assert_eq!(self.answers(), [refused]);
        self.clock.push_seconds(2);
        self.wake();
        self.gate.release(Verdict::Pass);
        self.expect(|event| matches!(event, StorageEvent::RoomAgain));
        self.submit(1);
        assert_eq!(self.answers(), [Decision::Applied]);
    }

    /// Lets the committer look at its clock, with a commit that does not grow.
    fn wake(&mut self) {
        let mut batch = self.store.write_batch();
        let mut commit = batch.begin(self.next_key, DatabaseId::DEFAULT, Mode::Atomic);
        commit.push(&delete(b"nothing")).expect("fits");
        commit.submit();
        self.mailbox.submit(&mut batch);
        let mut outcomes = Outcomes::new();
        while !self.mailbox.take(&mut outcomes) {
            thread::park_timeout(Duration::from_millis(20));
        }
    }

    fn expect(&self, is_it: impl Fn(&StorageEvent) -> bool) {
        loop {
            let event = self.events.recv_timeout(TIMEOUT).expect("it is told");
            if is_it(&event) {
                return;
            }
            // Which segments are asked for and which are taken back meanwhile is nobody's order.
            let is_by_the_way = matches!(
                event,
                StorageEvent::SnapshotMade(_) | StorageEvent::NotRetired(_)
            );
            assert!(is_by_the_way, "{event:?}");
        }
    }
}

impl Gate {
    /// After a release: until the thread has taken the verdict.
    fn wait_until_taken(&self) {
        let state = self.state.lock().expect("no panic");
        let waits = |state: &mut GateState| state.verdict.is_some();
        drop(self.changed.wait_timeout_while(state, TIMEOUT, waits));
    }
}

#[test]
fn segments_come_late_early_and_not_in_every_order() {
    let kinds: [fn(&mut Client); 4] = [
        Client::late,
        Client::two_wait,
        Client::early,
        Client::failing,
    ];
    let disk = GatedDisk::new(1);
    let mut client = Client::start(&disk);
    for first in kinds {
        for second in kinds {
            first(&mut client);
            second(&mut client);
        }
    }
    client.gate.open();
    client.durable.stop().expect("nothing fails any more");
    let (applied, refused) = (client.applied.clone(), client.refused.clone());
    drop(client);
    disk.disk.lose_power();
    let opened = Store::open(config(), Arc::new(disk.disk.clone()), &log_config());
    let store = opened.expect("nothing is lost").store;
    verify(&store);
    let view = store.view(DatabaseId::DEFAULT).expect("it exists");
    let has = |number: &u64| {
        let key = number.to_be_bytes();
        view.get(&key, store.hasher().hash(&key), 1_000).is_some()
    };
    assert!(applied.iter().all(has));
    assert!(!refused.iter().any(has));
    assert_eq!(refused.len(), 16, "two at each of eight failures");
}

/// Whether the new name is durable is not known, so nothing more is prepared until a restart: that
/// is a failed log, and not a shortage that passes.
#[test]
fn a_folder_that_cannot_be_synced_is_a_failed_log() {
    let mut client = Client::start(&GatedDisk::new(2));
    client.late();
    client.gate.wait_until(true);
    client.gate.state.lock().expect("no panic").fails_sync = true;
    client.submit(1);
    client.wait_until_decided();
    client.gate.release(Verdict::Pass);
    assert_eq!(client.answers().len(), 1);
    client
        .expect(|event| matches!(event, StorageEvent::NotReady(why) if why.contains("os error 5")));
    client
        .expect(|event| matches!(event, StorageEvent::Failed(why) if why.contains("is not known")));
    for _ in 0..2 {
        client.submit(1);
        let failed = Decision::Refused(Refusal::LogFailed);
        assert_eq!(client.answers(), [failed]);
    }
    let statistics = client.store.log_statistics().expect("it has a log");
    assert!(statistics.has_failed, "whoever asks is told");
    client.gate.open();
    let stopped = client.durable.stop();
    stopped.expect("what was written before has its end");
    let (applied, refused) = (client.applied.clone(), client.refused.clone());
    assert_eq!((applied.len(), refused.len()), (3, 3));
}
