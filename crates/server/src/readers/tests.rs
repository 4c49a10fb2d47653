//! Databases on disk behind an event loop: what waits for the device, and what must not.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use api::keyvalue::{
    CountRequest, CountResponse, DeleteResponse, GetResponse, PutResponse, ScanPage, ScanRequest,
};
use net::Handler;
use store::durable::CommitLoop;
use store::tree::ReadPlan;
use store::{Condition, DatabaseConfig, DatabaseId, Durability, Expiry, Operation, StoreConfig};
use testkit::keyvalue::OperationRequest;
use testkit::suite::StandingClock;
use wire::grpc::Code;
use wire::{ErrorCode, Event, RequestHead, StreamKey};

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

/// An event loop whose default database is on disk, and another one, `memory`, in memory.
struct Bench {
    pair: Pair,
    store: Store,
    commit_loop: CommitLoop,
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
        let (store, mut commit_loop) =
            testkit::store_on_disk(&folder.0, config, 1 << 20, &mut clock);
        let (wake, woken) = channel();
        let waker: Arc<dyn Fn() + Send + Sync> = Arc::new(move || {
            let _ = wake.send(());
        });
        let for_mail = Arc::clone(&waker);
        let mailbox = commit_loop.register(Box::new(move || for_mail()));
        let mut batch = store.write_batch();
        batch.create_database(u64::MAX, "memory", &config.default_database);
        mailbox.submit(&mut batch);
        while commit_loop.round(&mut clock) {}
        let pool = pooled.then(|| {
            Pool::new(
                store.clone(),
                limits::READ_RESULT_BYTES,
                Arc::new(crate::settings::SilentLog),
            )
        });
        let readers = match &pool {
            Some(pool) => Readers::Pool(Arc::clone(pool)),
            None => Readers::Inline(store.clone()),
        };
        Bench {
            pair: Pair::over(store.clone(), readers, mailbox, waker),
            store,
            commit_loop,
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
        let request = OperationRequest {
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

    /// A put whose caller waits as long for its answer.
    fn put_within(&mut self, database: &str, value: &[u8], timeout_ns: u64) -> StreamKey {
        let request = OperationRequest {
            database,
            operation: put(b"key", value, Condition::None),
        };
        let head = RequestHead {
            timeout_ns: Some(timeout_ns),
            ..RequestHead::call("test", "/pelton.v1.KeyValue/Put")
        };
        let Pair { client, sent, .. } = &mut self.pair;
        let stream = client.open(sent, &head).expect("a stream is free");
        client.send_last_message(stream, sent, |out| request.encode(out));
        stream
    }

    /// Some turns of the loop and of the committer.
    fn turn(&mut self) {
        for _ in 0..3 {
            self.note_ends();
            while self.commit_loop.round(&mut self.clock) {}
        }
    }

    /// A turn of the loop alone.
    fn note_ends(&mut self) {
        let events = self.pair.turn();
        self.note(events);
    }

    fn note(&mut self, events: Vec<Event>) {
        for event in events {
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

    /// Waits for a sweep that a reader makes: the blocks that it reads stay in their cache.
    fn wait_for_sweep(&self) {
        while self.store.tree_sweep_due_ms() == u64::MAX {
            std::thread::yield_now();
        }
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
        let call = bench.begin("Scan", |out| ScanRequest::default().encode(out));
        let message = bench.wait_ok(call);
        let page = ScanPage::decode(&message).expect("it is a message");
        let entry = page.entries.iter().next().expect("there is one");
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
    // The read was first in the queue; a Get that is sent before the write was answered may see
    // what was before it.
    let message = bench.wait_ok(write);
    let written = PutResponse::decode(&message).expect("it is a message");
    assert!(written.applied);
    assert_eq!(bench.get_ok("").as_deref(), Some(&b"more"[..]));
}

/// Long keys that wait for a device are charged, and given back when it has answered or the caller
/// has gone.
#[test]
fn what_is_kept_for_reads_that_wait_is_charged() {
    let mut bench = Bench::new(true);
    assert!(bench.put_ok("", b"disk", Condition::None));
    let tree = bench
        .store
        .tree(DatabaseId::DEFAULT)
        .expect("it is on disk");
    let charged = |bench: &Bench| bench.pair.handler.account().charged_bytes();
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
    assert!(bench.pair.handler.is_drained());
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

/// A connection leaves while its writes wait for readers: all come back, and are decided or
/// refused.
#[test]
fn writes_of_a_connection_that_has_left_come_back() {
    for _ in 0..2 {
        let mut bench = Bench::new(true);
        assert!(bench.put_ok("", b"disk", Condition::None));
        let tree = bench.store.tree(DatabaseId::DEFAULT);
        let tree = tree.expect("it is on disk");
        let held = tree.hold_reads();
        // One batch each: more than there are readers.
        for _ in 0..2 * limits::READERS {
            let write = bench.put("", b"more", Condition::Present);
            assert!(bench.waits(write));
        }
        let waiting = bench.pool.as_ref().expect("there is one").figures();
        let waiting = || waiting.waiting_jobs.load(Ordering::Relaxed);
        assert!(waiting() >= limits::READERS as u64);
        bench.pair.close();
        drop(held);
        // The loop may sweep its trees meanwhile: with readers, too.
        let is_done = |bench: &Bench| {
            let handler = &bench.pair.handler;
            handler.write_bytes() == (0, 0) && handler.readers_are_idle()
        };
        // A reader lets go of its results behind its last sign, so that there is none to wait for.
        while !is_done(&bench) {
            bench.pair.turn_of_loop();
            while bench.commit_loop.round(&mut bench.clock) {}
            std::thread::yield_now();
        }
        assert_eq!((waiting(), bench.store.read_before_bytes()), (0, 0));
    }
}

/// Writes that wait for a reader, for the committer, and for the end of the tick: above the bound
/// for all of them together nothing more is taken from a peer.
#[test]
fn writes_that_wait_are_bounded_wherever_they_wait() {
    const VALUE: usize = 10_000;
    let mut bench = Bench::new(true);
    assert!(bench.put_ok("", b"disk", Condition::None));
    let tree = bench.store.tree(DatabaseId::DEFAULT);
    let tree = tree.expect("it is on disk");
    let value = [7; VALUE];
    for (missing_bytes, is_taken) in [(0, true), (1, false)] {
        let held = tree.hold_reads();
        let at_reader = bench.put("", &value, Condition::Present);
        bench.pair.turn();
        let bytes = bench.pair.handler.write_bytes().1;
        let records = bytes - VALUE - b"key".len();
        assert!((100..400).contains(&records), "{records}");
        let at_committer = bench.put("memory", &value, Condition::None);
        bench.pair.turn();
        bench
            .pair
            .handler
            .bound_write_bytes(3 * bytes - missing_bytes);
        let in_batch = bench.put("memory", &value, Condition::None);
        let next = bench.get("memory", b"other key");
        let sent = std::mem::take(&mut bench.pair.sent);
        bench.pair.receive(&sent);
        assert_eq!(bench.pair.handler.write_bytes().0, bytes);
        let is_held_back = bench.pair.handler.has_held_back();
        assert_eq!(is_held_back, !is_taken);
        assert_eq!(bench.pair.handler.running(), 3 + usize::from(is_taken));
        drop(held);
        for call in [at_reader, at_committer, in_batch, next] {
            bench.wait_ok(call);
        }
    }
}

/// However often the loop turns meanwhile, and it does not turn for nothing.
#[test]
fn writes_stay_bounded_while_the_committer_stands_still() {
    const VALUE: usize = 10_000;
    let mut bench = Bench::new(true);
    assert!(bench.put_ok("memory", b"x", Condition::None));
    bench.pair.handler.bound_write_bytes(3 * VALUE);
    let waiting = |bench: &Bench| {
        let (in_batch, behind_it) = bench.pair.handler.write_bytes();
        in_batch + behind_it
    };
    for _ in 0..2 {
        let calls: Vec<_> = (0..6)
            .map(|_| bench.put("memory", &[7; VALUE], Condition::None))
            .collect();
        let sent = std::mem::take(&mut bench.pair.sent);
        bench.pair.receive(&sent);
        bench.pair.tick_without_input();
        for _ in 0..20 {
            assert!(!bench.pair.io.is_unfinished(), "there is nothing to do");
            bench.pair.tick_without_input();
            // A timer, or more input.
            bench.pair.receive(&[]);
            assert!(waiting(&bench) <= 4 * VALUE, "{}", waiting(&bench));
        }
        for call in calls {
            bench.wait_ok(call);
        }
        assert_eq!(waiting(&bench), 0);
        assert!(!bench.pair.handler.has_held_back());
    }
}

/// Where the callers of all writes that wait have left, nobody need wake the loop: a timer has the
/// connection visited again.
#[test]
fn a_connection_is_taken_up_again_when_all_writes_that_wait_were_given_up() {
    const VALUE: usize = 10_000;
    const TIMEOUT_NS: u64 = 5_000_000_000;
    let mut bench = Bench::new(true);
    bench.pair.now_ns = 1_000_000_000;
    assert!(bench.put_ok("memory", b"x", Condition::None));
    bench.pair.handler.bound_write_bytes(3 * VALUE);
    for _ in 0..2 {
        let calls = [(); 6].map(|()| bench.put_within("memory", &[7; VALUE], TIMEOUT_NS));
        let sent = std::mem::take(&mut bench.pair.sent);
        bench.pair.receive(&sent);
        bench.pair.tick_without_input();
        assert!(bench.pair.handler.has_held_back());
        let (given_up, held_back) = calls.split_at(bench.pair.handler.running());
        assert!(!held_back.is_empty());
        bench.pair.now_ns += TIMEOUT_NS;
        for _ in 0..3 {
            bench.pair.tick_without_input();
            let events = bench.pair.take();
            bench.note(events);
        }
        for call in given_up {
            assert_eq!(bench.status(*call), Some(Code::DeadlineExceeded));
        }
        while bench.commit_loop.round(&mut bench.clock) {}
        assert!(bench.pair.handler.has_held_back());
        let timer_ns = bench.pair.handler.next_deadline_ns().expect("it is set");
        let retry_ns = limits::HELD_BACK_RETRY_MS * 1_000_000;
        assert!(timer_ns <= bench.pair.now_ns + retry_ns, "{timer_ns}");
        // It may be due already.
        bench.pair.now_ns = bench.pair.now_ns.max(timer_ns);
        for _ in 0..2 {
            bench.pair.tick_without_input();
        }
        assert_eq!(bench.pair.handler.running(), held_back.len());
        for call in held_back {
            bench.wait_ok(*call);
        }
        assert!(!bench.pair.handler.has_held_back());
        assert_eq!(bench.pair.handler.write_bytes(), (0, 0));
        assert_eq!(bench.pair.handler.running(), 0);
    }
}

/// What the loops of a server have waiting is bounded together, but a loop with little goes on.
#[test]
fn writes_of_other_loops_hold_those_back_that_have_more_than_a_little() {
    const LITTLE: usize = limits::WAITING_WRITES_IN_ANY_CASE_BYTES;
    let mut bench = Bench::new(true);
    assert!(bench.put_ok("memory", b"x", Condition::None));
    let memory = bench.store.database("memory").expect("it is there");
    let other = bench.commit_loop.register(Box::new(|| ()));
    bench.pair.handler.bound_write_bytes(10 * LITTLE);
    for round in 0..2 {
        let mut batch = bench.store.write_batch();
        let mut commit = batch.begin(7, memory, store::Mode::Atomic);
        let value = vec![7; 10 * LITTLE];
        let put = testkit::suite::put(b"other", &value);
        commit.push(&put).expect("it fits");
        commit.submit();
        other.submit(&mut batch);
        assert!(other.waiting_bytes() > 10 * LITTLE);
        let calls = [(); 4].map(|()| bench.put("memory", &[7; LITTLE / 2], Condition::None));
        let sent = std::mem::take(&mut bench.pair.sent);
        bench.pair.receive(&sent);
        bench.pair.tick_without_input();
        assert!(bench.pair.handler.has_held_back(), "round {round}");
        assert_eq!(bench.pair.handler.running(), 2, "round {round}");
        assert_eq!(
            other.all_waiting_bytes(),
            other.waiting_bytes() + bench.pair.handler.write_bytes().1
        );
        for call in calls {
            bench.wait_ok(call);
        }
        assert_eq!((other.waiting_bytes(), other.all_waiting_bytes()), (0, 0));
        let mut outcomes = store::Outcomes::new();
        assert!(other.take(&mut outcomes) && other.is_idle());
    }
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
        let mut plan = ReadPlan::default();
        plan.begin(0, b"");
        plan.key(b"key");
        let job = Job::Fetch {
            fetch: Fetch::new(tree.clone(), &mut plan),
            length: JobLength::Short,
            needed_bytes: 0,
            has_left: None,
        };
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
    let (mut results, mut seen) = (VecDeque::new(), 0);
    while seen < accepted {
        inbox.take(&mut results);
        seen += results.drain(..).count();
        std::thread::yield_now();
    }
    assert_eq!(bench.get_ok("").as_deref(), Some(&b"disk"[..]));
}

/// Those that wait for a reader go with their connection, and not when readers have come to them.
#[test]
fn reads_of_a_connection_that_has_gone_are_not_done() {
    const WAITING: usize = 10;
    let mut bench = Bench::new(true);
    let pool = Arc::clone(bench.pool.as_ref().expect("there is one"));
    let figures = pool.figures();
    let waiting = || figures.waiting_jobs.load(Ordering::Relaxed);
    let tree = bench.store.tree(DatabaseId::DEFAULT);
    let tree = tree.expect("it is on disk");
    for _ in 0..2 {
        // What was written is in no cache of rows: each Get needs a reader.
        assert!(bench.put_ok("", b"disk", Condition::None));
        let held = tree.hold_reads();
        for _ in 0..limits::READERS + WAITING {
            bench.get("", b"key");
            bench.note_ends();
        }
        assert!(waiting() >= WAITING as u64, "{}", waiting());
        bench.pair.close();
        assert!(waiting() <= 1, "{} beside a sweep of the loop", waiting());
        drop(held);
        // The next connection names its streams as this one did.
        bench.ended.clear();
        bench.pair.messages.clear();
        bench.pair.client = wire::Connection::new(&wire::Config::client(), 0);
        (bench.pair.io, bench.pair.sent) = (net::Io::new(), Vec::new());
        bench.pair.accept(false);
        bench.pair.greet();
        assert_eq!(bench.get_ok("").as_deref(), Some(&b"disk"[..]));
    }
    Readers::Pool(Arc::clone(&pool)).stop();
    bench.turn();
    assert!(bench.pair.handler.readers_are_idle());
    assert_eq!(pool.result_bytes(), 0);
}

#[test]
fn the_figures_of_readers_show_their_threads() {
    let mut bench = Bench::new(true);
    assert!(bench.put_ok("", b"disk", Condition::None));
    let pool = Arc::clone(bench.pool.as_ref().expect("there is one"));
    let figures = pool.figures();
    let threads = || figures.threads.load(Ordering::Relaxed);
    let tree = bench.store.tree(DatabaseId::DEFAULT);
    let tree = tree.expect("it is on disk");
    let held = tree.hold_reads();
    let read = bench.get("", b"key");
    assert!(bench.waits(read));
    assert!(threads() >= 1, "one waits for the device");
    assert!(!bench.pair.handler.readers_are_idle());
    drop(held);
    bench.wait_ok(read);
    Readers::Pool(pool).stop();
    assert_eq!(threads(), 0);
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

/// What was fetched is shown to its calls until so much of the tick is over, and the rest in the
/// next.
#[test]
fn what_was_fetched_has_a_share_of_each_tick() {
    const CALLS: usize = 3 * limits::READS_PER_JOB;
    let half_us = limits::LONG_READS_PER_TICK_US / 2;
    for (job_us, jobs) in [
        (0, 3),
        (half_us - 1, 3),
        (half_us, 2),
        (half_us + 1, 2),
        (2 * half_us, 1),
    ] {
        let mut bench = Bench::new(false);
        // Each in a block of its own: what one job reads, the next would find.
        let keys = [b"one", b"two", b"six"];
        for key in keys {
            let large = [7; 20_000];
            let stored = bench.operation("Put", "", put(key, &large, Condition::None));
            bench.wait_ok(stored);
        }
        bench.commit_loop.seal_trees();
        bench.commit_loop.flush_trees().expect("there is room");
        // Views of earlier commits still see the memtable.
        let next = bench.operation("Put", "", put(b"next", b"", Condition::None));
        bench.wait_ok(next);
        // Not at the beginning of time, where everything would be over.
        bench.pair.now_ns = 1_000_000_000;
        bench.pair.take_time(job_us * 1_000);
        for number in 0..CALLS {
            bench.get("", keys[number / limits::READS_PER_JOB]);
        }
        let mut left = CALLS;
        bench.pair.serve();
        while left > 0 {
            left = left.saturating_sub(jobs * limits::READS_PER_JOB);
            assert_eq!(bench.pair.handler.running(), left, "{job_us}");
            assert!(left == 0 || !bench.pair.handler.readers_are_idle());
            bench.pair.serve();
        }
    }
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
    let jobs = 3 * limits::READ_RESULT_BYTES / job_bytes;
    for tag in 0..jobs {
        let mut plan = ReadPlan::default();
        plan.begin(tag as u64, b"");
        plan.keys(usize::MAX, std::iter::repeat_n(&b"key"[..], times));
        let job = Job::Fetch {
            fetch: Fetch::new(tree.clone(), &mut plan),
            length: JobLength::Short,
            needed_bytes: 0,
            has_left: None,
        };
        assert!(pool.submit(Asker::Loop(1), job, &inbox).is_ok());
    }
    // No job reads more than is claimed for it beforehand.
    let bound = limits::READ_RESULT_BYTES;
    while pool.result_bytes() + store::tree::limits::FETCHED_BYTES <= bound {
        std::thread::yield_now();
    }
    // Without the bound they would go on now; with it, nothing comes, however long this waits.
    for _ in 0..300 {
        assert!(pool.result_bytes() <= bound);
        std::thread::sleep(Duration::from_millis(1));
    }
    let (mut results, mut seen) = (VecDeque::new(), 0);
    while seen < jobs {
        inbox.take(&mut results);
        if results.is_empty() {
            let news = arrived.recv_timeout(LONGEST_WAIT);
            news.expect("readers go on when there is room");
        }
        assert!(pool.result_bytes() <= bound);
        seen += results.drain(..).count();
    }
    assert_eq!(pool.result_bytes(), 0);
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
    // The first turn has begun a sweep. One that is late would read the table while it is whole.
    bench.wait_for_sweep();
    bench.commit_loop.seal_trees();
    bench.commit_loop.flush_trees().expect("there is room");
    // Views of earlier commits still see the memtable, and commits look there first.
    let next = bench.operation("Put", "", put(b"next", b"", Condition::None));
    bench.wait_ok(next);
    let tree = bench.store.tree(DatabaseId::DEFAULT);
    let tree = tree.expect("it is on disk");
    while tree.keeps_flushed() {
        tree.trim();
        bench.turn();
    }
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
    // It is said again as the interval is over, and then not for as long.
    let interval_ns = limits::DAMAGE_TOLD_MS * 1_000_000;
    for (step_ns, times) in [(interval_ns - 1, 1), (1, 2), (interval_ns - 1, 2), (1, 3)] {
        bench.pair.now_ns += step_ns;
        let read = bench.get("", b"key");
        assert_eq!(bench.wait(read), Code::DataLoss);
        let said = bench.pair.said.lock().expect("nobody panicked").len();
        assert_eq!(said, times);
    }
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

/// The waker is called once for all that lies in the inbox: who has taken that call, and ends
/// before all is served, must know of what came since.
#[test]
fn what_comes_while_a_tick_serves_others_is_not_slept_over() {
    let bench = Bench::new(false);
    let wakes = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&wakes);
    let waker: SharedWaker = Arc::new(move || {
        counter.fetch_add(1, Ordering::Relaxed);
    });
    let mut readers = LoopReaders::new(Readers::Inline(bench.store.clone()), waker);
    let something = || {
        ReaderResult::free(DoneRead::Swept {
            batch: Box::new(bench.store.write_batch()),
            failure: None,
        })
    };
    for _ in 0..2 {
        wakes.store(0, Ordering::Relaxed);
        readers.inbox.put(something());
        readers.inbox.put(something());
        // A tick whose time is over after each.
        assert!(readers.next().is_some() && readers.has_results());
        readers.inbox.put(something());
        let calls = wakes.load(Ordering::Relaxed);
        assert!(readers.next().is_some());
        readers.inbox.put(something());
        assert_eq!(wakes.load(Ordering::Relaxed), calls, "nobody calls again");
        assert!(readers.has_results());
        assert!(readers.next().is_some() && readers.next().is_some());
        assert!(!readers.has_results() && readers.next().is_none());
    }
}

/// A read waits for send capacity that writes on its connection have set aside: when they are done,
/// with small answers, the peer has nothing to say.
#[test]
fn a_read_goes_on_when_a_write_before_it_has_ended() {
    let mut bench = Bench::new(true);
    assert!(bench.put_ok("", b"disk", Condition::None));
    for _ in 0..2 {
        let tree = (bench.store.tree(DatabaseId::DEFAULT)).expect("it is on disk");
        let held = tree.hold_reads();
        let read = bench.get("", b"key2");
        assert!(bench.waits(read));
        let write = bench.put("memory", b"memory", Condition::None);
        // Without a turn of the committer.
        bench.note_ends();
        bench.note_ends();
        assert!(bench.status(write).is_none());
        // As if it were many writes, whose answers can be large.
        let connection = &mut bench.pair.handler.rpc().connection;
        connection.reserve_more(write, 64 << 20);
        drop(held);
        let deadline = std::time::Instant::now() + Duration::from_secs(60);
        while bench.pair.handler.rpc().deferred_reads.is_empty() {
            assert!(
                std::time::Instant::now() < deadline,
                "the read has no result"
            );
            std::thread::sleep(Duration::from_millis(1));
            bench.note_ends();
        }
        assert!(bench.status(read).is_none());
        while bench.commit_loop.round(&mut bench.clock) {}
        // No input from here on: more time passes than another thread can need.
        for _ in 0..2_000 {
            if bench.status(write).is_some() && bench.status(read).is_some() {
                break;
            }
            bench.pair.tick_without_input();
            let events = bench.pair.take();
            bench.note(events);
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(bench.status(write).is_some(), "the write has ended");
        assert!(bench.status(read).is_some(), "the read goes on");
    }
}

/// A device that fails while a sweep begins must not make it the last one.
#[test]
fn a_sweep_that_failed_is_made_again() {
    let mut bench = Bench::new(false);
    let tree = (bench.store.tree(DatabaseId::DEFAULT)).expect("it is on disk");
    for number in 0..300_u32 {
        let operation = Operation::Put {
            key: &number.to_be_bytes(),
            value: b"",
            condition: Condition::None,
            expiry: match number % 2 {
                0 => Expiry::AfterMs(90_000),
                _ => Expiry::None,
            },
            want_previous: false,
        };
        let call = bench.operation("Put", "", operation);
        bench.wait_ok(call);
    }
    bench.commit_loop.seal_trees();
    bench.commit_loop.flush_trees().expect("there is room");
    let next = bench.operation("Put", "", put(b"next", b"", Condition::None));
    bench.wait_ok(next);
    let left = || {
        let view = tree.view();
        let counted = view.count(&store::Range::ALL, 0, u32::MAX);
        counted.map_or(0, |counted| counted.count)
    };
    let mut whole = Vec::new();
    let folder = bench.folder.0.clone();
    for_each_table(&folder, &mut |table| {
        let bytes = std::fs::read(table).expect("it is there");
        let mut damaged = bytes.clone();
        damaged[..64].fill(0x55);
        std::fs::write(table, damaged).expect("there is room");
        whole.push((table.to_path_buf(), bytes));
    });
    assert!(!whole.is_empty());
    let minute = |bench: &mut Bench| {
        bench.pair.now_ns += 60_000_000_000;
        bench.clock.now_ms += 60_000;
        bench.turn();
    };
    for _ in 0..10 {
        minute(&mut bench);
    }
    for (table, bytes) in whole {
        std::fs::write(table, bytes).expect("there is room");
    }
    for _ in 0..1_000 {
        if left() == 151 {
            break;
        }
        minute(&mut bench);
    }
    assert_eq!(left(), 151, "what has expired is gone, the rest is there");
}

/// Jobs of a connection that has gone are not done, not even to the end of the one that a reader is
/// at; those of others are.
#[test]
fn nothing_is_read_for_a_connection_that_has_gone() {
    let mut bench = Bench::new(true);
    for number in 0..40_u32 {
        let call = bench.operation(
            "Put",
            "",
            put(&number.to_be_bytes(), &vec![7; 200_000], Condition::None),
        );
        bench.wait_ok(call);
    }
    let tree = (bench.store.tree(DatabaseId::DEFAULT)).expect("it is on disk");
    let pool = Pool::new(
        bench.store.clone(),
        1 << 20,
        Arc::new(crate::settings::SilentLog),
    );
    let (wake, woken) = channel();
    let waker: SharedWaker = Arc::new(move || {
        let _ = wake.send(());
    });
    let mut readers = LoopReaders::new(Readers::Pool(Arc::clone(&pool)), waker);
    let id = |slot| ConnectionId {
        slot,
        generation: 0,
    };
    let fetch = |tags: std::ops::Range<u64>| {
        let mut plan = ReadPlan::default();
        for tag in tags {
            let key = (tag as u32 % 40).to_be_bytes();
            plan.begin(tag, &key);
            plan.key(&key);
        }
        Fetch::new(tree.clone(), &mut plan)
    };
    for _ in 0..2 {
        // More than there are readers; each reads more than the room for results.
        for job in 0..40 {
            let asked = readers.fetch_own(id(1), fetch(job * 100..job * 100 + 40));
            assert!(asked.is_ok());
        }
        assert!(
            readers.fetch(id(1), fetch(9_000..9_002)).is_ok(),
            "9001 is of another one"
        );
        woken.recv_timeout(LONGEST_WAIT).expect("there is a result");
        readers.forget(id(1), &|tag| (tag == 9_001).then(|| id(2)));
        assert!(readers.leaving.is_empty());
        let (mut done, mut others) = (0, 0);
        let deadline = std::time::Instant::now() + LONGEST_WAIT;
        while !readers.is_idle() {
            assert!(std::time::Instant::now() < deadline, "{done} done");
            let Some(mut result) = readers.next() else {
                let _ = woken.recv_timeout(Duration::from_millis(1));
                continue;
            };
            if let Some(DoneRead::Fetched(fetched)) = result.take() {
                for call in fetched.calls() {
                    done += 1;
                    others += u32::from(call.tag() >= 9_000);
                }
            }
        }
        assert_eq!(others, 2, "what is shared is done");
        assert!(done < 40 * 40 / 2, "{done} of 1600");
        assert_eq!(pool.result_bytes(), 0);
        assert_eq!(pool.figures().waiting_jobs.load(Ordering::Relaxed), 0);
    }
}

/// Slices of long reads say to no reader that their caller has gone: those that wait are forgotten.
#[test]
fn what_waits_for_a_connection_that_has_gone_is_taken_from_the_readers() {
    const SLICES: usize = 3 * limits::READERS;
    let mut bench = Bench::new(true);
    assert!(bench.put_ok("", b"disk", Condition::None));
    let tree = (bench.store.tree(DatabaseId::DEFAULT)).expect("it is on disk");
    // Nobody else has jobs for it, as the loop of the bench has for its own.
    let log = Arc::new(crate::settings::SilentLog);
    let pool = Pool::new(bench.store.clone(), limits::READ_RESULT_BYTES, log);
    let figures = pool.figures();
    let waiting = || figures.waiting_jobs.load(Ordering::Relaxed);
    let mut readers = LoopReaders::new(Readers::Pool(Arc::clone(&pool)), Arc::new(|| {}));
    let id = |slot| ConnectionId {
        slot,
        generation: 0,
    };
    let fetch = |tag| {
        let mut plan = ReadPlan::default();
        plan.begin(tag, b"");
        plan.key(b"key");
        Fetch::new(tree.clone(), &mut plan)
    };
    for _ in 0..2 {
        let held = tree.hold_reads();
        for _ in 0..SLICES {
            assert!(readers.fetch_slice(id(1), fetch(1)).is_ok());
        }
        assert!(readers.fetch_slice(id(2), fetch(2)).is_ok());
        assert!(waiting() as usize > SLICES - limits::LONG_READERS);
        readers.forget(id(1), &|_| None);
        assert!(waiting() <= 1, "{} wait", waiting());
        drop(held);
        let mut done = [0; 3];
        let deadline = std::time::Instant::now() + LONGEST_WAIT;
        while !readers.is_idle() {
            assert!(std::time::Instant::now() < deadline, "{done:?}");
            let Some(mut result) = readers.next() else {
                std::thread::yield_now();
                continue;
            };
            if let Some(DoneRead::Fetched(fetched)) = result.take() {
                for call in fetched.calls() {
                    done[call.tag() as usize] += 1;
                }
            }
        }
        assert!(done[1] <= limits::LONG_READERS && done[2] == 1, "{done:?}");
        assert_eq!(waiting(), 0);
    }
    pool.stop();
}

/// A read for which there is no reader, and the system gives no thread for one, is told as that.
#[test]
fn a_read_without_a_thread_says_so() {
    let mut bench = Bench::new(true);
    let call = bench.operation("Put", "", put(b"key", b"value", Condition::None));
    bench.wait_ok(call);
    let tree = (bench.store.tree(DatabaseId::DEFAULT)).expect("it is on disk");
    let log = Arc::new(crate::settings::SilentLog);
    let pool = Pool::new(bench.store.clone(), 1 << 20, log);
    let mut readers = LoopReaders::new(Readers::Pool(Arc::clone(&pool)), Arc::new(|| {}));
    let id = ConnectionId {
        slot: 1,
        generation: 0,
    };
    crate::threads::NO_THREADS.set(true);
    let mut plan = store::tree::ReadPlan::default();
    plan.begin(1, b"");
    plan.key(b"key");
    let asked = readers.fetch(id, store::tree::Fetch::new(tree, &mut plan));
    crate::threads::NO_THREADS.set(false);
    assert_eq!(asked.err().map(|full| full.1), Some(WhyFull::NoThread));
    pool.stop();
}
