//! How fast a tree takes commits, beside the engine under it, and how fast it is read, beside the
//! index in memory.
//!
//! `cargo run --release --features hooks --example tree_speed -- [FOLDER] [RECORDS]`: new random
//! keys of 16 bytes with values of 100, in commits of one record, 256 of them between two looks at
//! the clock. The folder should be on the device in question.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lsm_tree::{AbstractTree, AnyTree, Config};
use store::tree::{Generation, Keeper, Pressure, TreeConfig, TreeWriter, Trees};
use store::{
    Condition, DatabaseId, Entry, Expiry, Mode, Operation, Outcomes, Store, StoreConfig, Value,
};
use testkit::Random;
use testkit::suite::StandingClock;

const GROUP: u64 = 256;
const VALUE: [u8; 100] = [7; 100];

fn main() {
    let mut args = std::env::args().skip(1);
    let folder = args.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let records: u64 = args.next().map_or(3_000_000, |count| {
        count.parse().expect("RECORDS is a number")
    });
    let folder = folder.join(format!("pelton-tree-speed-{}", std::process::id()));
    engine_alone(&folder.join("engine"), records);
    let writer = tree(&folder.join("trees"), records);
    reads(&writer, records);
    drop(writer);
    memory(records.min(1_000_000));
    std::fs::remove_dir_all(&folder).expect("it was made here");
}

/// The key of a record: random, and the same each time.
fn key(record: u64) -> [u8; 16] {
    let mut random = Random::new(record);
    let mut key = [0; 16];
    key[..8].copy_from_slice(&random.number().to_be_bytes());
    key[8..].copy_from_slice(&random.number().to_be_bytes());
    key
}

/// CPU time of this thread: other load on the machine hardly changes it.
fn cpu_time() -> Duration {
    let times = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux has it");
    let ns = times
        .split(' ')
        .next()
        .expect("the first is the time on a CPU");
    Duration::from_nanos(ns.parse().expect("it is a number"))
}

fn cpu_us_since(start: Duration) -> f64 {
    (cpu_time() - start).as_secs_f64() * 1e6
}

/// Times groups.
struct Stopwatch {
    start: Instant,
    start_cpu: Duration,
    longest: Duration,
    above_20_ms: u32,
}

impl Stopwatch {
    fn start() -> Stopwatch {
        Stopwatch {
            start: Instant::now(),
            start_cpu: cpu_time(),
            longest: Duration::ZERO,
            above_20_ms: 0,
        }
    }

    fn group(&mut self, group: impl FnOnce()) {
        let start = Instant::now();
        group();
        let took = start.elapsed();
        self.longest = self.longest.max(took);
        self.above_20_ms += u32::from(took > Duration::from_millis(20));
    }

    fn print(&self, what: &str, records: u64) {
        let seconds = self.start.elapsed().as_secs_f64();
        println!(
            "{what}: {:.0} k records/s, {:.2} µs CPU of the writing thread each, longest group {:.1} ms, {} above 20 ms",
            records as f64 / seconds / 1000.0,
            cpu_us_since(self.start_cpu) / records as f64,
            self.longest.as_secs_f64() * 1000.0,
            self.above_20_ms
        );
    }
}

/// The engine as it is meant to be used, with flushes and compactions on two threads and no bound
/// on what waits.
fn engine_alone(folder: &Path, records: u64) {
    let opened = Config::new(folder, Default::default(), Default::default()).open();
    let AnyTree::Standard(tree) = opened.expect("there is room") else {
        panic!("no blobs were asked for");
    };
    let limit = store::tree::limits::MEMTABLE_BYTES;
    let done = std::sync::atomic::AtomicBool::new(false);
    let is_done = || done.load(std::sync::atomic::Ordering::Acquire);
    let pause = || std::thread::sleep(Duration::from_millis(1));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done() {
                let lock = tree.get_flush_lock();
                tree.flush(&lock, u64::MAX >> 1).expect("there is room");
                drop(lock);
                pause();
            }
        });
        scope.spawn(|| {
            let strategy = Arc::new(lsm_tree::compaction::Leveled::default());
            while !is_done() {
                let compacted = tree.compact(strategy.clone(), u64::MAX >> 1);
                compacted.expect("there is room");
                pause();
            }
        });
        let mut watch = Stopwatch::start();
        for first in (0..records).step_by(GROUP as usize) {
            watch.group(|| {
                let mut bytes = 0;
                for record in first..first + GROUP {
                    (_, bytes) = tree.insert(key(record), VALUE, record + 1);
                }
                if bytes > limit {
                    tree.rotate_memtable();
                }
            });
        }
        watch.print("engine alone", records);
        done.store(true, std::sync::atomic::Ordering::Release);
    });
}

/// A tree of ours, with its threads, and held back as it asks.
fn tree(folder: &Path, records: u64) -> TreeWriter {
    let trees = Trees::open(folder, TreeConfig::default()).expect("there is room");
    let generation = Generation {
        database: DatabaseId::DEFAULT,
        sequence: 0,
    };
    let mut writer = trees.create(generation).expect("there is room");
    let keeper = Keeper::start(Arc::new(|event| panic!("{event:?}"))).expect("two threads");
    keeper.add(writer.index());
    let mut watch = Stopwatch::start();
    let mut delayed = Duration::ZERO;
    for first in (0..records).step_by(GROUP as usize) {
        watch.group(|| {
            delayed += hold_back(&writer);
            for record in first..first + GROUP {
                writer.put(&Entry {
                    key: &key(record),
                    value: Value::Inline(&VALUE),
                    version: record + 1,
                    expires_ms: 0,
                });
                writer.end_commit(record + 1);
            }
            if writer.wants_seal() && writer.seal(u64::MAX) {
                keeper.call();
            }
        });
    }
    watch.print("tree", records);
    println!(
        "  held back for {delayed:?}; {:?}",
        writer.index().statistics()
    );
    drop(keeper);
    writer.seal(u64::MAX);
    writer.index().flush().expect("there is room");
    writer
}

fn hold_back(writer: &TreeWriter) -> Duration {
    let delay = match writer.index().pressure() {
        Pressure::None => return Duration::ZERO,
        Pressure::Slow { delay_ns } => Duration::from_nanos(delay_ns),
        Pressure::Refuse => Duration::from_millis(20),
    };
    std::thread::sleep(delay);
    delay
}

/// Gets by 64 from a view, of keys that fit into the block cache, and of all.
fn reads(writer: &TreeWriter, records: u64) {
    let mut random = Random::new(1);
    for (what, among) in [("10 000 keys", 10_000), ("all keys", records)] {
        let mut start = cpu_time();
        let mut times = Vec::new();
        for tick in 0..4000 {
            if tick == 1000 {
                // What comes before warms the cache.
                start = cpu_time();
                times.clear();
            }
            let keys: Vec<_> = (0..64)
                .map(|_| key(random.below(among as usize) as u64))
                .collect();
            let one = Instant::now();
            let view = writer.index().view();
            for key in &keys {
                assert!(view.find(key).expect("it is whole").is_some());
            }
            times.push(one.elapsed());
        }
        let gets = (times.len() * 64) as f64;
        let mean_us = cpu_us_since(start) / gets;
        times.sort_unstable();
        println!(
            "tree, gets of {what} by 64: {mean_us:.2} µs CPU each, 64 took p50 {:?}, p99 {:?}, longest {:?}",
            times[times.len() / 2],
            times[times.len() * 99 / 100],
            times[times.len() - 1]
        );
    }
}

/// The same from memory.
fn memory(records: u64) {
    let store = Store::in_memory(StoreConfig::new(1)).expect("it is valid");
    let (mut batch, mut outcomes) = (store.write_batch(), Outcomes::new());
    let (mut committer, mut clock) = (store.committer(), StandingClock { now_ms: 1 });
    for record in 0..records {
        let mut commit = batch.begin(0, DatabaseId::DEFAULT, Mode::Atomic);
        let put = Operation::Put {
            key: &key(record),
            value: &VALUE,
            condition: Condition::None,
            expiry: Expiry::None,
            want_previous: false,
        };
        commit.push(&put).expect("it is small");
        commit.submit();
        if batch.len() as u64 == GROUP {
            drop(committer.run(&mut batch, &mut clock, &mut outcomes));
        }
    }
    let mut random = Random::new(1);
    for (what, among) in [("10 000 keys", 10_000), ("all keys", records - GROUP)] {
        let start = cpu_time();
        for _ in 0..3000 {
            let keys: Vec<_> = (0..64)
                .map(|_| key(random.below(among as usize) as u64))
                .collect();
            let view = store.view(DatabaseId::DEFAULT).expect("it is always there");
            for key in &keys {
                assert!(view.get(key, store.hasher().hash(key), 1).is_some());
            }
        }
        let mean_us = cpu_us_since(start) / (3000.0 * 64.0);
        println!("memory, gets of {what} by 64: {mean_us:.2} µs CPU each");
    }
}
