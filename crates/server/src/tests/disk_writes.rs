//! The way of writes to databases on disk, where there is no room for what they must know.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use net::ConnectionId;
use store::durable::{CommitLoop, Mailbox};
use store::{
    DatabaseId, Decision, Mode, Operation, Outcomes, Refusal, Source, Store, StoreConfig,
    WriteBatch,
};
use testkit::suite::{StandingClock, append, put};

use crate::call_id::joined;
use crate::disk_writes::DiskWrites;
use crate::limits;
use crate::readers::tests::TempFolder;
use crate::readers::{DoneRead, LoopReaders, Pool, Readers};

const VALUE_BYTES: usize = 3_000_000;
const RETRY_NS: u64 = limits::READ_AHEAD_RETRY_MS * 1_000_000;

/// The way to a store on disk with room for two of its values, whose committer runs when
/// the test says so.
struct Bench {
    disk_writes: DiskWrites,
    readers: LoopReaders,
    woken: Receiver<()>,
    store: Store,
    commit_loop: CommitLoop,
    mailbox: Mailbox,
    clock: StandingClock,
    now_ns: u64,
    /// Whose writes come next.
    source: Source,
    _folder: TempFolder,
}

impl Bench {
    /// The thread itself reads.
    fn new(values: u64) -> Bench {
        Bench::with_readers(values, |store| Readers::Inline(store.clone()))
    }

    fn with_readers(values: u64, readers: impl FnOnce(&Store) -> Readers) -> Bench {
        let (folder, mut clock) = (TempFolder::new(), StandingClock { now_ms: 1_000_000 });
        let config = StoreConfig {
            memory_bytes: 128 << 20,
            ..StoreConfig::new(1)
        };
        let segment_bytes = wal::limits::SEGMENT_BYTES;
        let (store, commit_loop) =
            testkit::store_on_disk(&folder.0, config, segment_bytes, &mut clock);
        let mailbox = commit_loop.register(Box::new(|| {}));
        let (wake, woken) = channel();
        let waker = move || {
            let _ = wake.send(());
        };
        let readers = LoopReaders::new(readers(&store), Arc::new(waker));
        let mut bench = Bench {
            disk_writes: DiskWrites::default(),
            readers,
            woken,
            store,
            commit_loop,
            mailbox,
            clock,
            now_ns: 1_000_000_000,
            source: Source::default(),
            _folder: folder,
        };
        for number in 0..values {
            let mut batch = bench.store.write_batch();
            let mut commit = batch.begin(number, DatabaseId::DEFAULT, Mode::Atomic);
            let value = vec![7; VALUE_BYTES];
            commit.push(&put(&key(number), &value)).expect("fits");
            commit.submit();
            bench.send(&mut batch);
            assert_eq!(bench.decided(), [number]);
        }
        bench
    }

    /// What comes next is of this connection.
    fn of(&mut self, slot: u32) {
        self.source.connection = joined(0, slot);
    }

    /// A batch with a commit for each of these lists of keys, to whose values it appends; numbered
    /// from `tag` on.
    fn appends(&self, tag: u64, keys_of: &[&[u64]]) -> WriteBatch {
        let mut batch = self.store.write_batch();
        batch.set_source(self.source);
        for (tag, keys) in (tag..).zip(keys_of) {
            let mut commit = batch.begin(tag, DatabaseId::DEFAULT, Mode::Atomic);
            for &number in *keys {
                commit.push(&append(&key(number), b"x")).expect("fits");
            }
            commit.submit();
        }
        batch
    }

    /// What holds all the room, until it is dropped.
    fn others(&self) -> WriteBatch {
        let mut others = self.appends(0, &[&[0, 1, 2]]);
        assert_eq!(others.read_ahead().commits, 1);
        others
    }

    fn send(&mut self, batch: &mut WriteBatch) {
        (self.disk_writes).send(batch, &self.readers, &self.mailbox);
        assert!(batch.is_empty());
    }

    /// Sends a batch, which a reader reads on its thread; returns what it gives back.
    fn send_to_reader(&mut self, batch: &mut WriteBatch) -> DoneRead {
        self.send(batch);
        self.next_done()
    }

    fn next_done(&mut self) -> DoneRead {
        let woken = self.woken.recv_timeout(Duration::from_secs(60));
        woken.expect("a reader gives a sign when it is done");
        let mut result = self.readers.next().expect("it is there");
        result.take().expect("it is taken once")
    }

    /// What a reader gives back arrives.
    fn arrives(&mut self, done: DoneRead) {
        let DoneRead::Ahead { id, batch, read } = done else {
            panic!("nothing else was asked for");
        };
        (self.disk_writes).arrived(id, batch, read.commits, &self.mailbox);
    }

    /// The time comes at which the next batch that waits is read again, by a reader.
    fn turn_of_reader(&mut self) {
        while self.disk_writes.retry_ns().is_some() {
            self.now_ns += RETRY_NS;
            (self.disk_writes).try_again(self.now_ns, &self.readers, &self.mailbox);
        }
        let done = self.next_done();
        self.arrives(done);
    }

    /// The tags of what has been applied, in order, after the committer ran; nothing else was
    /// decided.
    fn decided(&mut self) -> Vec<u64> {
        let (applied, abandoned) = self.decided_and_abandoned();
        assert_eq!(abandoned, []);
        applied
    }

    /// The tags of what has been applied, and of what was not because its caller had left.
    fn decided_and_abandoned(&mut self) -> (Vec<u64>, Vec<u64>) {
        let (mut outcomes, mut applied, mut abandoned) = (Outcomes::new(), vec![], vec![]);
        while self.commit_loop.round(&mut self.clock) {}
        while self.mailbox.take(&mut outcomes) {
            for outcome in outcomes.iter() {
                match outcome.decision {
                    Decision::Applied => applied.push(outcome.tag),
                    Decision::Refused(Refusal::Abandoned) => abandoned.push(outcome.tag),
                    other => panic!("{other:?}"),
                }
            }
        }
        (applied, abandoned)
    }

    fn small_put(&mut self, tag: u64) {
        let mut batch = self.store.write_batch();
        self.add(&mut batch, tag, &put(b"small", b"value"));
        self.send(&mut batch);
    }

    fn add(&self, batch: &mut WriteBatch, tag: u64, operation: &Operation<'_>) {
        batch.set_source(self.source);
        let mut commit = batch.begin(tag, DatabaseId::DEFAULT, Mode::Atomic);
        commit.push(operation).expect("fits");
        commit.submit();
    }

    /// The time comes at which the next batch that waits for room is read again, and not before.
    fn wait(&mut self) {
        for step_ns in [0, RETRY_NS - 1, 1] {
            assert!(self.disk_writes.is_stuck() && self.decided().is_empty());
            self.now_ns += step_ns;
            (self.disk_writes).try_again(self.now_ns, &self.readers, &self.mailbox);
        }
    }

    /// The batch before has gone: the next one is read at once.
    fn go_on(&mut self) {
        assert_eq!(self.disk_writes.retry_ns(), Some(0));
        (self.disk_writes).try_again(self.now_ns, &self.readers, &self.mailbox);
    }

    /// Nothing waits, and nothing is held.
    fn is_at_rest(&self) -> bool {
        let writes = &self.disk_writes;
        writes.is_empty()
            && !writes.is_stuck()
            && writes.retry_ns().is_none()
            && (writes.bytes(), self.store.read_before_bytes()) == (0, 0)
    }
}

fn connection(slot: u32) -> ConnectionId {
    ConnectionId {
        slot,
        generation: 0,
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("large{number}").into_bytes()
}

/// While others hold the room nothing of a connection goes, not even what needs none; afterwards
/// all goes in order. Nothing is read behind a batch that waits.
#[test]
fn what_finds_no_room_waits_and_keeps_its_order() {
    let mut bench = Bench::new(4);
    for _ in 0..2 {
        let others = bench.others();
        let held_bytes = bench.store.read_before_bytes();
        for (tag, keys) in [(10, &[0, 1, 2, 3][..]), (11, &[3])] {
            let mut batch = bench.appends(tag, &[keys]);
            bench.send(&mut batch);
        }
        bench.small_put(12);
        assert!(bench.disk_writes.bytes() > 0 && bench.disk_writes.retry_ns().is_some());
        assert_eq!(bench.store.read_before_bytes(), held_bytes);
        bench.wait();
        drop(others);
        // There is room for this one, but it is behind others.
        let mut batch = bench.appends(13, &[&[1]]);
        bench.send(&mut batch);
        assert_eq!(bench.store.read_before_bytes(), 0);
        bench.wait();
        // In vain: what the one before has read is held until it is decided.
        bench.go_on();
        assert_eq!(bench.decided(), [10]);
        bench.wait();
        bench.go_on();
        assert_eq!(bench.decided(), [11, 12, 13]);
        assert!(bench.is_at_rest());
    }
}

/// What needs no read, or a small one, does not wait for what another connection has read, whatever
/// comes with it in a tick.
#[test]
fn large_reads_do_not_hold_up_other_connections() {
    let mut bench = Bench::new(4);
    for _ in 0..2 {
        let others = bench.others();
        bench.of(1);
        let mut batch = bench.appends(10, &[&[0, 1, 2, 3]]);
        bench.send(&mut batch);
        bench.small_put(11);
        assert_eq!(bench.decided(), []);
        bench.of(2);
        bench.small_put(12);
        assert_eq!(bench.decided(), [12]);
        let mut batch = bench.store.write_batch();
        for (slot, tag) in [(2, 13), (1, 14), (3, 15), (2, 16), (3, 17)] {
            bench.of(slot);
            let operation = match tag {
                15 => append(b"small", b"x"),
                _ => put(b"small", b"value"),
            };
            bench.add(&mut batch, tag, &operation);
        }
        bench.send(&mut batch);
        assert_eq!(bench.decided(), [13, 16, 15, 17]);
        drop(others);
        bench.wait();
        assert_eq!(bench.decided(), [10, 11, 14]);
        assert!(bench.is_at_rest());
    }
}

/// Connections with writes that need more than the room, each: all have their turns.
#[test]
fn connections_that_wait_for_room_take_turns() {
    let mut bench = Bench::new(4);
    for _ in 0..2 {
        let others = bench.others();
        for slot in 1..3 {
            bench.of(slot);
            for tag in [slot * 10, slot * 10 + 1] {
                let mut batch = bench.appends(tag.into(), &[&[0, 1, 2, 3]]);
                bench.send(&mut batch);
            }
        }
        drop(others);
        bench.wait();
        let mut decided = bench.decided();
        while !bench.disk_writes.is_empty() {
            bench.go_on();
            decided.extend(bench.decided());
        }
        assert_eq!(decided, [10, 20, 11, 21]);
        assert!(bench.is_at_rest());
    }
}

/// A batch goes as far as there is room for it, and the rest later.
#[test]
fn a_batch_goes_in_parts() {
    let mut bench = Bench::new(6);
    for _ in 0..2 {
        let mut batch = bench.appends(20, &[&[0], &[1], &[2], &[3], &[4, 5], &[0]]);
        bench.send(&mut batch);
        assert_eq!(bench.decided(), [20, 21, 22]);
        bench.wait();
        assert_eq!(bench.decided(), [23, 24]);
        bench.wait();
        assert_eq!(bench.decided(), [25]);
        assert!(bench.is_at_rest());
    }
}

/// No part of a batch goes before the one that was sent earlier and had found no room.
#[test]
fn a_batch_that_is_read_in_part_stays_behind_the_one_before_it() {
    let mut bench = Bench::new(6);
    for _ in 0..2 {
        let others = bench.others();
        let mut first = bench.appends(40, &[&[0, 1, 2, 3]]);
        bench.send(&mut first);
        drop(others);
        let mut second = bench.appends(41, &[&[0], &[1], &[2], &[3, 4], &[5]]);
        bench.send(&mut second);
        assert_eq!(bench.store.read_before_bytes(), 0);
        bench.wait();
        assert_eq!(bench.decided(), [40]);
        bench.go_on();
        assert_eq!(bench.decided(), [41, 42, 43]);
        bench.wait();
        assert_eq!(bench.decided(), [44, 45]);
        assert!(bench.is_at_rest());
    }
}

/// Readers may be done in another order: what was read in part behind another batch is given back,
/// and so is what was read as a whole, if the one in front finds no room.
#[test]
fn batches_that_come_back_in_another_order_go_in_theirs() {
    let log = Arc::new(crate::settings::SilentLog);
    let mut pool = None;
    let mut bench = Bench::with_readers(6, |store| {
        let made = Pool::new(store.clone(), limits::READ_RESULT_BYTES, log);
        Readers::Pool(Arc::clone(pool.insert(made)))
    });
    for _ in 0..2 {
        let mut first = bench.appends(50, &[&[0]]);
        let first = bench.send_to_reader(&mut first);
        let held_bytes = bench.store.read_before_bytes();
        let mut second = bench.appends(51, &[&[1], &[2], &[3]]);
        let second = bench.send_to_reader(&mut second);
        assert!(bench.store.read_before_bytes() > held_bytes);
        bench.arrives(second);
        assert_eq!(bench.store.read_before_bytes(), held_bytes);
        bench.arrives(first);
        assert_eq!(bench.decided(), [50]);
        bench.turn_of_reader();
        assert_eq!(bench.decided(), [51, 52, 53]);

        let others = bench.others();
        let mut first = bench.appends(60, &[&[0]]);
        let first = bench.send_to_reader(&mut first);
        drop(others);
        let mut second = bench.appends(61, &[&[1]]);
        let second = bench.send_to_reader(&mut second);
        bench.arrives(second);
        assert!(bench.store.read_before_bytes() > 0);
        bench.arrives(first);
        assert_eq!(bench.store.read_before_bytes(), 0);
        bench.turn_of_reader();
        assert_eq!(bench.decided(), [60]);
        bench.turn_of_reader();
        assert_eq!(bench.decided(), [61]);
        assert!(bench.is_at_rest());
    }
    Readers::stop(&Readers::Pool(pool.expect("it was made")));
}

/// Nothing is read for callers that have left, so that what they had asked for waits for no room,
/// and it is refused.
#[test]
fn what_is_abandoned_is_neither_read_nor_done() {
    let mut bench = Bench::new(4);
    for _ in 0..2 {
        let others = bench.others();
        let held_bytes = bench.store.read_before_bytes();
        let mut batch = bench.appends(30, &[&[0, 1, 2, 3]]);
        bench.send(&mut batch);
        bench.small_put(31);
        (bench.disk_writes).abandon(&mut vec![(connection(0), 30)], &bench.mailbox);
        bench.small_put(32);
        bench.small_put(33);
        (bench.disk_writes).abandon(&mut vec![(connection(0), 32)], &bench.mailbox);
        bench.wait();
        assert_eq!(bench.store.read_before_bytes(), held_bytes);
        let decided = bench.decided_and_abandoned();
        assert_eq!(decided, (vec![31, 33], vec![30, 32]));
        drop(others);
        // Nothing waits: the committer is told at once.
        bench.small_put(34);
        bench.small_put(35);
        (bench.disk_writes).abandon(&mut vec![(connection(0), 34)], &bench.mailbox);
        assert_eq!(bench.decided_and_abandoned(), (vec![35], vec![34]));
        assert!(bench.is_at_rest());
    }
}
