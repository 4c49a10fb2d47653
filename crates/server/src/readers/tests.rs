//! Databases on disk behind a worker: what waits for the device, and what must not.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use drive::Handler;
use service::keyvalue::messages::{
    CountRequest, CountResponse, DeleteResponse, GetResponse, Keys, PutResponse, Request, ScanPage,
    ScanRequest,
};
use store::disk::SimulatedDisk;
use store::durable::{Opened, Rounds, TreePlace};
use store::log::{LogConfig, LogId};
use store::suite::StandingClock;
use store::tree::{TreeConfig, Wishes};
use store::{
    Condition, DatabaseConfig, DatabaseId, Direction, Durability, Expiry, Kind, Operation,
    StoreConfig,
};
use wire::grpc::Code;
use wire::{ErrorCode, Event, StreamKey};

use super::*;
use crate::limits;
use crate::pair::Pair;

/// How long to wait for another thread before the test has failed.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// A folder that goes with the value.
pub(crate) struct TempFolder(pub PathBuf);

impl TempFolder {
    pub(crate) fn new() -> TempFolder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("pelton-readers-{}-{number}", std::process::id());
        TempFolder(std::env::temp_dir().join(name))
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A worker whose default database is on disk, and another one, `memory`, in memory.
struct Bench {
    pair: Pair,
    store: Store,
    rounds: Rounds,
    pool: Option<Arc<Pool>>,
    woken: Receiver<()>,
    ended: Vec<(StreamKey, Code)>,
    clock: StandingClock,
    folder: TempFolder,
}

impl Bench {
    fn new(pooled: bool) -> Bench {
        let (folder, mut clock) = (TempFolder::new(), StandingClock { now_ms: 1_000_000 });
        let config = StoreConfig {
            default_database: DatabaseConfig {
                durability: Durability::Synced,
                ..DatabaseConfig::default()
            },
            ..StoreConfig::new(1)
        };
        let place = TreePlace {
            folder: folder.0.clone(),
            config: TreeConfig::default(),
        };
        let id = LogId {
            history: 7,
            secret: 8,
        };
        let log = LogConfig {
            segment_bytes: 1 << 20,
            ..LogConfig::new(id, 1)
        };
        let disk = Arc::new(SimulatedDisk::new(1));
        let opened = Store::open_with_trees(config, disk, &log, Some(&place));
        let Opened {
            store, committer, ..
        } = opened.expect("an empty disk is well");
        let mut rounds = Rounds::new(committer);
        let converted = rounds.convert(DatabaseId::DEFAULT, Kind::Disk, &mut clock);
        converted.expect("an empty database is converted");
        let (wake, woken) = channel();
        let waker: Arc<dyn Fn() + Send + Sync> = Arc::new(move || {
            let _ = wake.send(());
        });
        let for_mail = Arc::clone(&waker);
        let mailbox = rounds.register(Box::new(move || for_mail()));
        let mut batch = store.write_batch();
        batch.create_database(u64::MAX, "memory", &config.default_database);
        mailbox.submit(&mut batch);
        while rounds.round(&mut clock) {}
        let pool = pooled.then(|| Pool::new(store.clone(), limits::BROUGHT_BYTES));
        let readers = match &pool {
            Some(pool) => Readers::Pool(Arc::clone(pool)),
            None => Readers::Inline(store.clone()),
        };
        Bench {
            pair: Pair::over(store.clone(), readers, mailbox, waker),
            store,
            rounds,
            pool,
            woken,
            ended: Vec::new(),
            clock,
            folder,
        }
    }

    fn begin(&mut self, method: &str, encode: impl FnOnce(&mut Vec<u8>)) -> StreamKey {
        let mut message = Vec::new();
        encode(&mut message);
        let path = format!("/pelton.v1.KeyValue/{method}");
        self.pair.call(&path, &message)
    }

    fn operation(&mut self, method: &str, database: &str, operation: Operation<'_>) -> StreamKey {
        let request = Request {
            database,
            operation,
        };
        self.begin(method, |out| request.encode(out))
    }

    fn get(&mut self, database: &str, key: &[u8]) -> StreamKey {
        self.operation("Get", database, Operation::Get { key })
    }

    fn put(&mut self, database: &str, value: &[u8], condition: Condition<'_>) -> StreamKey {
        self.operation("Put", database, put(b"key", value, condition))
    }

    /// Some turns of the worker and of the committer.
    fn turn(&mut self) {
        for _ in 0..3 {
            self.note_ends();
            while self.rounds.round(&mut self.clock) {}
        }
    }

    /// A turn of the worker alone.
    fn note_ends(&mut self) {
        for event in self.pair.turn() {
            if let Event::Finished { stream } = event {
                let code = self.pair.client.status().code();
                self.ended.push((stream, code));
                self.pair.client.forget(stream);
            }
        }
    }

    fn status(&self, call: StreamKey) -> Option<Code> {
        let ended = self.ended.iter().find(|(stream, _)| *stream == call);
        ended.map(|(_, code)| *code)
    }

    /// Waits for the end of a call.
    fn wait(&mut self, call: StreamKey) -> Code {
        loop {
            self.turn();
            if let Some(code) = self.status(call) {
                return code;
            }
            let woken = self.woken.recv_timeout(LONGEST_WAIT);
            woken.expect("a reader gives a sign when it is done");
        }
    }

    /// The only message of a call that goes well.
    fn wait_ok(&mut self, call: StreamKey) -> Vec<u8> {
        assert_eq!(self.wait(call), Code::Ok);
        let messages = &mut self.pair.messages;
        let place = messages.iter().position(|(stream, _)| *stream == call);
        messages.remove(place.expect("it has a message")).1
    }

    /// Whether a call is not answered although everything else has had its turn.
    fn waits(&mut self, call: StreamKey) -> bool {
        self.turn();
        self.status(call).is_none()
    }

    fn get_ok(&mut self, database: &str) -> Option<Vec<u8>> {
        let call = self.get(database, b"key");
        let message = self.wait_ok(call);
        let found = GetResponse::decode(&message).expect("it is a message");
        found.found.then(|| found.value.to_vec())
    }

    fn put_ok(&mut self, database: &str, value: &[u8], condition: Condition<'_>) -> bool {
        let call = self.put(database, value, condition);
        let message = self.wait_ok(call);
        PutResponse::decode(&message)
            .expect("it is a message")
            .applied
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if let Some(pool) = &self.pool {
            pool.stop();
        }
    }
}

fn put<'a>(key: &'a [u8], value: &'a [u8], condition: Condition<'a>) -> Operation<'a> {
    Operation::Put {
        key,
        value,
        condition,
        expiry: Expiry::None,
        want_previous: false,
    }
}

#[test]
fn everything_is_read_and_written_on_the_thread_itself_or_by_others() {
    for pooled in [false, true] {
        let mut bench = Bench::new(pooled);
        assert_eq!(bench.get_ok(""), None);
        assert!(bench.put_ok("", b"one", Condition::None));
        assert_eq!(bench.get_ok("").as_deref(), Some(&b"one"[..]));
        assert!(!bench.put_ok("", b"two", Condition::Absent));
        assert!(bench.put_ok("", b"two", Condition::ValueIs(b"one")));
        let scan = ScanRequest {
            database: "",
            keys: Keys::All,
            direction: Direction::Forward,
            keys_only: false,
            limit: 0,
            start_after: None,
        };
        let call = bench.begin("Scan", |out| scan.encode(out));
        let message = bench.wait_ok(call);
        let page = ScanPage::decode(&message).expect("it is a message");
        let entry = page.entries().next().expect("there is one");
        assert_eq!(entry.expect("it is an entry").value, b"two");
        let call = bench.begin("Count", |out| CountRequest::default().encode(out));
        let message = bench.wait_ok(call);
        let counted = CountResponse::decode(&message).expect("it is a message");
        assert_eq!((counted.count, counted.exact), (1, true));
        let delete = Operation::Delete {
            key: b"key",
            condition: Condition::None,
            want_previous: false,
        };
        let call = bench.operation("Delete", "", delete);
        let message = bench.wait_ok(call);
        assert!(
            DeleteResponse::decode(&message)
                .expect("it is a message")
                .deleted
        );
        assert_eq!(bench.get_ok(""), None);
    }
}

#[test]
fn nobody_else_waits_for_a_device_that_does_not_answer() {
    let mut bench = Bench::new(true);
    assert!(bench.put_ok("", b"disk", Condition::None));
    let tree = bench
        .store
        .tree(DatabaseId::DEFAULT)
        .expect("it is on disk");
    let held = tree.hold_reads();
    let read = bench.get("", b"key");
    assert!(bench.waits(read));
    let write = bench.put("", b"more", Condition::Present);
    assert!(bench.waits(write));
    assert!(bench.put_ok("memory", b"memory", Condition::Absent));
    assert_eq!(bench.get_ok("memory").as_deref(), Some(&b"memory"[..]));
    assert!(bench.waits(read) && bench.waits(write));
    drop(held);
    let message = bench.wait_ok(read);
    assert!(
        GetResponse::decode(&message)
            .expect("it is a message")
            .found
    );
    // The read was first in the queue; a Get that is sent before the write was answered may see what was before it.
    let message = bench.wait_ok(write);
    let written = PutResponse::decode(&message).expect("it is a message");
    assert!(written.applied);
    assert_eq!(bench.get_ok("").as_deref(), Some(&b"more"[..]));
}

/// Long keys that wait for a device are charged, and given back when it has answered or the caller has gone.
#[test]
fn what_is_kept_for_reads_that_wait_is_charged() {
    let mut bench = Bench::new(true);
    assert!(bench.put_ok("", b"disk", Condition::None));
    let tree = bench
        .store
        .tree(DatabaseId::DEFAULT)
        .expect("it is on disk");
    let charged = |bench: &Bench| bench.pair.worker.account().charged_bytes();
    let at_rest = charged(&bench);
    for is_reset in [false, true, false, true] {
        let held = tree.hold_reads();
        let reads = [(); 3].map(|()| bench.get("", &[b'k'; 60_000]));
        assert!(reads.iter().all(|read| bench.waits(*read)));
        assert!(charged(&bench) >= at_rest + 6 * 60_000);
        if is_reset {
            let Pair { client, sent, .. } = &mut bench.pair;
            for read in reads {
                client.reset(read, sent, ErrorCode::Cancel);
            }
        }
        bench.turn();
        drop(held);
        if !is_reset {
            for read in reads {
                bench.wait_ok(read);
            }
        }
        bench.turn();
        assert_eq!(charged(&bench), at_rest);
    }
}

#[test]
fn what_comes_for_a_call_that_is_gone_is_for_nobody() {
    let mut bench = Bench::new(true);
    assert!(bench.put_ok("", b"disk", Condition::None));
    let tree = bench
        .store
        .tree(DatabaseId::DEFAULT)
        .expect("it is on disk");
    let held = tree.hold_reads();
    let read = bench.get("", b"key");
    assert!(bench.waits(read));
    let Pair { client, sent, .. } = &mut bench.pair;
    client.reset(read, sent, ErrorCode::Cancel);
    // Its place is taken by others, for which the late answer must not be.
    let other = bench.get("memory", b"key");
    let message = bench.wait_ok(other);
    assert!(
        !GetResponse::decode(&message)
            .expect("it is a message")
            .found
    );
    let next = bench.get("", b"other key");
    assert!(bench.waits(next));
    drop(held);
    let message = bench.wait_ok(next);
    assert!(
        !GetResponse::decode(&message)
            .expect("it is a message")
            .found
    );
}

/// UNAVAILABLE invites to try again.
#[test]
fn a_stop_is_unavailable_only_where_nothing_was_done() {
    let mut bench = Bench::new(true);
    assert!(bench.put_ok("", b"disk", Condition::None));
    let tree = bench
        .store
        .tree(DatabaseId::DEFAULT)
        .expect("it is on disk");
    let held = tree.hold_reads();
    let reads = [(); 2].map(|()| bench.get("", b"key"));
    assert!(bench.waits(reads[0]) && bench.waits(reads[1]));
    // These are with the committer, which has no turn any more.
    let writes = [b"one", b"two"].map(|value| bench.put("memory", value, Condition::None));
    bench.pair.turn();
    bench.pair.stop();
    for _ in 0..30 {
        bench.pair.now_ns += 1_000_000_000;
        bench.note_ends();
    }
    for read in reads {
        assert_eq!(bench.status(read), Some(Code::Unavailable));
    }
    for write in writes {
        assert_eq!(bench.status(write), Some(Code::Unknown), "it may be done");
    }
    assert!(bench.pair.worker.is_drained());
    drop(held);
}

#[test]
fn writes_keep_their_order_behind_one_that_must_read() {
    let mut bench = Bench::new(true);
    let tree = bench
        .store
        .tree(DatabaseId::DEFAULT)
        .expect("it is on disk");
    let held = tree.hold_reads();
    let first = bench.put("", b"first", Condition::Absent);
    assert!(bench.waits(first));
    // It need not read, and would be there before.
    let second = bench.put("", b"second", Condition::None);
    assert!(bench.waits(second));
    drop(held);
    let message = bench.wait_ok(second);
    assert!(
        PutResponse::decode(&message)
            .expect("it is a message")
            .applied
    );
    assert_eq!(bench.get_ok("").as_deref(), Some(&b"second"[..]));
    let found = bench.put_ok("", b"third", Condition::ValueIs(b"second"));
    assert!(found, "the first was decided before the second");
}

#[test]
fn so_many_jobs_wait_and_no_more() {
    let mut bench = Bench::new(true);
    assert!(bench.put_ok("", b"disk", Condition::None));
    let pool = bench.pool.clone().expect("there is one");
    let tree = bench.store.tree(DatabaseId::DEFAULT);
    let tree = tree.expect("it is on disk");
    let held = tree.hold_reads();
    let inbox = Inbox::new(Arc::new(|| ()));
    let mut accepted = 0;
    loop {
        let mut wishes = Wishes::default();
        wishes.begin(0, b"");
        wishes.key(b"key");
        let job = Job::Fetch(Fetch::new(tree.clone(), &mut wishes), Length::Short);
        // Of one alone there are fewer.
        let (slot, generation) = (accepted as u32, 0);
        let asker = Asker::Connection(1, ConnectionId { slot, generation });
        if pool.submit(asker, job, &inbox).is_err() {
            break;
        }
        accepted += 1;
    }
    // Readers have taken some; others than these may wait too.
    let all = limits::READ_JOBS - limits::READERS..=limits::READ_JOBS + limits::READERS;
    assert!(all.contains(&accepted), "{accepted}");
    drop(held);
    let (mut brought, mut seen) = (VecDeque::new(), 0);
    while seen < accepted {
        inbox.take(&mut brought);
        seen += brought.drain(..).count();
        std::thread::yield_now();
    }
    assert_eq!(bench.get_ok("").as_deref(), Some(&b"disk"[..]));
}

#[test]
fn without_a_place_calls_are_told_to_come_again() {
    let mut bench = Bench::new(true);
    assert!(bench.put_ok("", b"disk", Condition::None));
    bench.pool.as_ref().expect("there is one").stop();
    let read = bench.get("", b"key");
    assert_eq!(bench.wait(read), Code::Unavailable);
    let write = bench.operation("Put", "", put(b"other key", b"more", Condition::Present));
    assert_eq!(bench.wait(write), Code::Unavailable);
    // What needs no read finds its way.
    assert!(bench.put_ok("", b"blind", Condition::None));
    assert!(bench.put_ok("memory", b"memory", Condition::Absent));
}

#[test]
fn large_answers_that_nobody_takes_hold_readers_back() {
    let mut bench = Bench::new(true);
    let (value, times) = (vec![7; 32 << 10], 64);
    let job_bytes = value.len() * times;
    assert!(bench.put_ok("", &value, Condition::None));
    let pool = bench.pool.clone().expect("there is one");
    let tree = bench
        .store
        .tree(DatabaseId::DEFAULT)
        .expect("it is on disk");
    let (news, arrived) = channel();
    let inbox = Inbox::new(Arc::new(move || {
        let _ = news.send(());
    }));
    let jobs = 3 * limits::BROUGHT_BYTES / job_bytes;
    for tag in 0..jobs {
        let mut wishes = Wishes::default();
        wishes.begin(tag as u64, b"");
        wishes.keys(usize::MAX, std::iter::repeat_n(&b"key"[..], times));
        let job = Job::Fetch(Fetch::new(tree.clone(), &mut wishes), Length::Short);
        assert!(pool.submit(Asker::Loop(1), job, &inbox).is_ok());
    }
    // No job brings more than is claimed for it beforehand.
    let bound = limits::BROUGHT_BYTES;
    while pool.brought_bytes() + store::tree::limits::FETCHED_BYTES <= bound {
        std::thread::yield_now();
    }
    // Without the bound they would go on now; with it, nothing comes, however long this waits.
    for _ in 0..300 {
        assert!(pool.brought_bytes() <= bound);
        std::thread::sleep(Duration::from_millis(1));
    }
    let (mut brought, mut seen) = (VecDeque::new(), 0);
    while seen < jobs {
        inbox.take(&mut brought);
        if brought.is_empty() {
            let news = arrived.recv_timeout(LONGEST_WAIT);
            news.expect("readers go on when there is room");
        }
        assert!(pool.brought_bytes() <= bound);
        seen += brought.drain(..).count();
    }
    assert_eq!(pool.brought_bytes(), 0);
}

#[test]
fn what_has_expired_is_swept_from_the_device() {
    for pooled in [false, true] {
        let mut bench = Bench::new(pooled);
        let tree = bench.store.tree(DatabaseId::DEFAULT);
        let tree = tree.expect("it is on disk");
        for number in 0..300u32 {
            let operation = Operation::Put {
                key: &number.to_be_bytes(),
                value: b"",
                condition: Condition::None,
                expiry: match number % 2 {
                    0 => Expiry::AfterMs(10),
                    _ => Expiry::None,
                },
                want_previous: false,
            };
            let call = bench.operation("Put", "", operation);
            bench.wait_ok(call);
        }
        let left = |tree: &store::tree::TreeIndex| {
            let view = tree.view();
            let counted = view.count(&store::Range::ALL, 0, u32::MAX);
            counted.expect("it is whole").count
        };
        assert_eq!(left(&tree), 300);
        for _ in 0..1_000 {
            if left(&tree) == 150 {
                break;
            }
            // A minute, as between two rounds of the sweep.
            bench.pair.now_ns += 60_000_000_000;
            bench.clock.now_ms += 60_000;
            bench.turn();
            if pooled {
                std::thread::yield_now();
            }
        }
        assert_eq!(left(&tree), 150);
    }
}

#[test]
fn damage_is_data_loss_and_is_told_once() {
    let mut bench = Bench::new(true);
    assert!(bench.put_ok("", b"disk", Condition::None));
    bench.rounds.seal_trees();
    bench.rounds.flush_trees().expect("there is room");
    // Views of earlier commits still see the memtable.
    let next = bench.operation("Put", "", put(b"next", b"", Condition::None));
    bench.wait_ok(next);
    let mut damaged = 0;
    for_each_table(&bench.folder.0, &mut |table| {
        let mut bytes = std::fs::read(table).expect("it is there");
        // The first block has the entry.
        bytes[..64].fill(0x55);
        std::fs::write(table, bytes).expect("there is room");
        damaged += 1;
    });
    assert_eq!(damaged, 1);
    for _ in 0..3 {
        let read = bench.get("", b"key");
        assert_eq!(bench.wait(read), Code::DataLoss);
        let write = bench.put("", b"more", Condition::Present);
        assert_eq!(bench.wait(write), Code::DataLoss);
    }
    let said = bench.pair.said.lock().expect("nobody panicked").clone();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("could not be read"), "{said:?}");
    // The rest goes on.
    assert!(bench.put_ok("", b"blind", Condition::None));
    assert_eq!(bench.get_ok("").as_deref(), Some(&b"blind"[..]));
}

fn for_each_table(folder: &Path, act: &mut dyn FnMut(&Path)) {
    for entry in std::fs::read_dir(folder).expect("it is a folder") {
        let path = entry.expect("it can be read").path();
        if path.is_dir() {
            for_each_table(&path, act);
        } else if folder.ends_with("tables") {
            act(&path);
        }
    }
}
