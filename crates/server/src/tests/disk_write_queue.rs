//! The disk_writes of writes to databases on disk, where there is no room for what they must know.

use std::sync::Arc;

use store::durable::{CommitLoop, Mailbox, Opened, TreePlace};
use store::tree::TreeConfig;
use store::{
    DatabaseConfig, DatabaseId, Decision, Durability, Kind, Mode, Outcomes, Refusal, Store,
    StoreConfig, WriteBatch,
};
use testkit::suite::{StandingClock, append, put};
use wal::{LogConfig, LogId};

use crate::disk_write_queue::DiskWriteQueue;
use crate::limits;
use crate::readers::tests::TempFolder;
use crate::readers::{LoopReaders, Readers};

const VALUE_BYTES: usize = 3_000_000;
const RETRY_NS: u64 = limits::READ_AHEAD_RETRY_MS * 1_000_000;

/// A disk_writes before a store on disk with room for two of its values, whose committer runs when
/// the test says so.
struct Bench {
    disk_writes: DiskWriteQueue,
    readers: LoopReaders,
    store: Store,
    rounds: CommitLoop,
    mailbox: Mailbox,
    clock: StandingClock,
    now_ns: u64,
    _folder: TempFolder,
}

impl Bench {
    fn new(values: u64) -> Bench {
        let (folder, mut clock) = (TempFolder::new(), StandingClock { now_ms: 1_000_000 });
        let config = StoreConfig {
            memory_bytes: 128 << 20,
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
        let log = LogConfig::new(id, 1);
        let disk = Arc::new(testkit::simulated_disk(1));
        let opened = Store::open_with_trees(config, disk, &log, Some(&place));
        let Opened {
            store, committer, ..
        } = opened.expect("an empty disk is well");
        let mut rounds = CommitLoop::new(committer);
        let converted = rounds.convert(DatabaseId::DEFAULT, Kind::Disk, &mut clock);
        converted.expect("an empty database is converted");
        let mailbox = rounds.register(Box::new(|| {}));
        let readers = LoopReaders::new(Readers::Inline(store.clone()), Arc::new(|| {}));
        let mut bench = Bench {
            disk_writes: DiskWriteQueue::default(),
            readers,
            store,
            rounds,
            mailbox,
            clock,
            now_ns: 1_000_000_000,
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

    /// A batch with a commit for each of these lists of keys, to whose values it appends; numbered
    /// from `tag` on.
    fn appends(&self, tag: u64, keys_of: &[&[u64]]) -> WriteBatch {
        let mut batch = self.store.write_batch();
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
        let store = &self.store;
        let empty = || store.write_batch();
        self.disk_writes
            .send(batch, empty, &self.readers, &self.mailbox);
        assert!(batch.is_empty());
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
        while self.rounds.round(&mut self.clock) {}
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
        let mut commit = batch.begin(tag, DatabaseId::DEFAULT, Mode::Atomic);
        commit.push(&put(b"small", b"value")).expect("fits");
        commit.submit();
        self.send(&mut batch);
    }

    /// The time comes at which the first batch is read again, and not before.
    fn try_again(&mut self) {
        for step_ns in [0, RETRY_NS - 1, 1] {
            assert!(self.disk_writes.is_stuck() && self.decided().is_empty());
            self.now_ns += step_ns;
            (self.disk_writes).try_again(self.now_ns, &self.readers, &self.mailbox);
        }
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("large{number}").into_bytes()
}

/// While others hold the room nothing goes, not even what needs none; afterwards all goes in order.
/// What was read behind a batch that waits is given back.
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
        bench.try_again();
        drop(others);
        // There is room for this one, but it is behind others.
        let mut batch = bench.appends(13, &[&[1]]);
        bench.send(&mut batch);
        assert_eq!(bench.store.read_before_bytes(), 0);
        bench.try_again();
        assert_eq!(bench.decided(), [10]);
        bench.try_again();
        assert_eq!(bench.decided(), [11, 12]);
        bench.try_again();
        assert_eq!(bench.decided(), [13]);
        assert!(bench.disk_writes.is_empty() && bench.disk_writes.retry_ns().is_none());
        assert_eq!(
            (bench.disk_writes.bytes(), bench.store.read_before_bytes()),
            (0, 0)
        );
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
        bench.try_again();
        assert_eq!(bench.decided(), [23, 24]);
        bench.try_again();
        assert_eq!(bench.decided(), [25]);
        assert!(bench.disk_writes.is_empty());
        assert_eq!(
            (bench.disk_writes.bytes(), bench.store.read_before_bytes()),
            (0, 0)
        );
    }
}

/// There is room again when a batch is read behind one that had found none: what was read of it is
/// given back, and no part of it goes before the other.
#[test]
fn a_batch_that_was_read_in_part_stays_behind_the_one_before_it() {
    let mut bench = Bench::new(6);
    for _ in 0..2 {
        let others = bench.others();
        let mut first = bench.appends(40, &[&[0, 1, 2, 3]]);
        bench.send(&mut first);
        drop(others);
        let mut second = bench.appends(41, &[&[0], &[1], &[2], &[3, 4], &[5]]);
        bench.send(&mut second);
        assert_eq!(bench.store.read_before_bytes(), 0);
        bench.try_again();
        assert_eq!(bench.decided(), [40]);
        bench.try_again();
        assert_eq!(bench.decided(), [41, 42, 43]);
        bench.try_again();
        assert_eq!(bench.decided(), [44, 45]);
        assert!(bench.disk_writes.is_empty() && bench.disk_writes.retry_ns().is_none());
        assert_eq!(
            (bench.disk_writes.bytes(), bench.store.read_before_bytes()),
            (0, 0)
        );
    }
}

/// The committer hears of callers that have left once it has their commits: before, it would not
/// know what is meant, and they would be done.
#[test]
fn what_is_abandoned_in_the_disk_write_queue_is_not_done() {
    let mut bench = Bench::new(4);
    for _ in 0..2 {
        let others = bench.others();
        let mut batch = bench.appends(30, &[&[0, 1, 2, 3]]);
        bench.send(&mut batch);
        bench.small_put(31);
        (bench.disk_writes).abandon(&mut vec![30], &bench.mailbox);
        bench.small_put(32);
        bench.small_put(33);
        (bench.disk_writes).abandon(&mut vec![32], &bench.mailbox);
        bench.try_again();
        drop(others);
        bench.try_again();
        let decided = bench.decided_and_abandoned();
        assert_eq!(decided, (vec![31, 33], vec![30, 32]));
        // The disk_writes is empty: they are told of at once.
        bench.small_put(34);
        bench.small_put(35);
        (bench.disk_writes).abandon(&mut vec![34], &bench.mailbox);
        assert_eq!(bench.decided_and_abandoned(), (vec![35], vec![34]));
    }
}
