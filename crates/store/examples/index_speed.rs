//! What the memory index costs: run with
//! `cargo run --profile quick -p pelton-store --example index_speed`.
//!
//! Arguments: numbers of keys (default: 100000 1000000). Keys of 16 bytes, values of 100.

use std::hint::black_box;
use std::ops::ControlFlow;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use store::{
    Clock, Condition, DatabaseId, Direction, Expiry, Mode, Operation, Outcomes, Range, Store,
    StoreConfig, View, VolatileCommitter, WriteBatch,
};

const READS: usize = 2_000_000;
const WRITES: usize = 500_000;
const VALUE_BYTES: usize = 100;
const COMMIT_OPERATIONS: usize = 100;

fn main() {
    let mut sizes: Vec<usize> = std::env::args()
        .skip(1)
        .map(|text| text.parse().expect("a number of keys"))
        .collect();
    if sizes.is_empty() {
        sizes = vec![100_000, 1_000_000];
    }
    for size in sizes {
        println!("{size} keys of 16 bytes, values of {VALUE_BYTES}");
        measure(size);
    }
}

fn measure(size: usize) {
    let store = Store::in_memory(StoreConfig::new(1)).expect("the configuration is valid");
    let mut writer = Writer::new(&store);
    let value = [7u8; VALUE_BYTES];
    let new_keys: Vec<[u8; 16]> = shuffled(size).map(key).collect();
    let resident = resident_bytes();
    let start = Instant::now();
    let longest_us = writer.put_all(&new_keys, &value);
    let per_entry = |bytes: u64| bytes as f64 / size as f64;
    report("insert", start, size);
    println!("  longest commit of {COMMIT_OPERATIONS} inserts {longest_us:10.0} us");
    println!(
        "  estimated bytes per entry     {:10.1}",
        per_entry(store.memory_bytes())
    );
    println!(
        "  resident bytes per entry      {:10.1}",
        per_entry(resident_bytes().saturating_sub(resident))
    );

    let keys: Vec<[u8; 16]> = random_numbers(READS)
        .map(|number| key(number % size as u64))
        .collect();
    let hashes: Vec<u64> = keys.iter().map(|key| store.hasher().hash(key)).collect();
    let view = store.view(DatabaseId::DEFAULT).expect("it always exists");
    gets(&view, &keys, &hashes, 1);
    let misses: Vec<[u8; 16]> = keys.iter().map(|key| key.map(|byte| byte ^ 1)).collect();
    let start = Instant::now();
    for key in &misses {
        black_box(view.get(key, store.hasher().hash(key), 1));
    }
    report("miss, with its hash", start, READS);
    let start = Instant::now();
    for key in &keys {
        black_box(
            view.get(key, store.hasher().hash(key), 1)
                .map(|entry| entry.value.len()),
        );
    }
    report("get, with its hash", start, READS);
    for ahead in [16, 64] {
        gets(&view, &keys, &hashes, ahead);
    }
    scans(&view, &keys, 10);
    scans(&view, &keys, 1000);
    let start = Instant::now();
    black_box(view.count(&Range::new(b"", None), 1, u32::MAX));
    report("count, per row", start, size);
    drop(view);

    for commit_operations in [1, COMMIT_OPERATIONS] {
        writer.commit_operations = commit_operations;
        let start = Instant::now();
        writer.put_all(&keys[..WRITES], &[8; VALUE_BYTES]);
        report(
            &format!("overwrite, {commit_operations} to a commit"),
            start,
            WRITES,
        );
    }
    let start = Instant::now();
    writer.put_all(&keys[..WRITES], &[8; VALUE_BYTES + 20]);
    report("overwrite, other length", start, WRITES);
    let start = Instant::now();
    let garbage = writer.clear();
    println!(
        "  clear                         {:10.1} us",
        start.elapsed().as_nanos() as f64 / 1e3
    );
    let start = Instant::now();
    drop(garbage);
    report("free", start, size);
}

/// Gets in groups, of which each is looked at before it is read: `ahead` 1 reads straight away.
fn gets(view: &View<'_>, keys: &[[u8; 16]], hashes: &[u64], ahead: usize) {
    let start = Instant::now();
    let mut found = 0;
    for (keys, hashes) in keys.chunks(ahead).zip(hashes.chunks(ahead)) {
        if ahead > 1 {
            view.warm(hashes.iter().copied());
        }
        for (key, hash) in keys.iter().zip(hashes) {
            found += view
                .get(key, *hash, 1)
                .map_or(0, |entry| usize::from(entry.value[VALUE_BYTES - 1] == 7));
        }
    }
    assert_eq!(found, READS);
    report(&format!("get, {ahead} at a time"), start, READS);
}

fn scans(view: &View<'_>, keys: &[[u8; 16]], rows: u32) {
    let scans = 200_000 / rows as usize;
    let start = Instant::now();
    for key in &keys[..scans] {
        view.scan(
            &Range::new(key, None),
            Direction::Forward,
            1,
            rows,
            &mut |entry| {
                black_box(entry.value.len());
                ControlFlow::Continue(())
            },
        );
    }
    report(&format!("scan of {rows} rows"), start, scans);
}

struct Writer {
    batch: WriteBatch,
    committer: VolatileCommitter,
    outcomes: Outcomes,
    clock: RealClock,
    commit_operations: usize,
}

impl Writer {
    fn new(store: &Store) -> Writer {
        Writer {
            batch: store.write_batch(),
            committer: store.committer(),
            outcomes: Outcomes::new(),
            clock: RealClock(Instant::now()),
            commit_operations: COMMIT_OPERATIONS,
        }
    }

    /// Puts all, a hundred operations to a batch. Answers the longest batch in microseconds.
    fn put_all(&mut self, keys: &[[u8; 16]], value: &[u8]) -> f64 {
        let mut longest_us = 0f64;
        for keys in keys.chunks(COMMIT_OPERATIONS) {
            let start = Instant::now();
            for keys in keys.chunks(self.commit_operations) {
                let mut commit = self.batch.begin(0, DatabaseId::DEFAULT, Mode::Independent);
                for key in keys {
                    let (condition, expiry) = (Condition::None, Expiry::None);
                    let put = Operation::Put {
                        key,
                        value,
                        condition,
                        expiry,
                        want_previous: false,
                    };
                    commit.push(&put).expect("within the limits");
                }
                commit.submit();
            }
            drop(
                self.committer
                    .run(&mut self.batch, &mut self.clock, &mut self.outcomes),
            );
            longest_us = longest_us.max(start.elapsed().as_nanos() as f64 / 1e3);
        }
        longest_us
    }

    fn clear(&mut self) -> store::Garbage {
        let mut commit = self.batch.begin(0, DatabaseId::DEFAULT, Mode::Atomic);
        commit.push(&Operation::Clear).expect("it stands alone");
        commit.submit();
        self.committer
            .run(&mut self.batch, &mut self.clock, &mut self.outcomes)
    }
}

struct RealClock(Instant);

impl Clock for RealClock {
    fn now_ns(&mut self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }

    fn now_ms(&mut self) -> u64 {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(1, |since| since.as_millis() as u64)
    }
}

/// What the process takes in memory, where the system says it.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap_or("0");
    line.trim()
        .trim_end_matches(" kB")
        .parse::<u64>()
        .unwrap_or(0)
        * 1024
}

fn report(what: &str, start: Instant, count: usize) {
    println!(
        "  {what:<30}{:10.3} us",
        start.elapsed().as_nanos() as f64 / 1e3 / count as f64
    );
}

fn key(number: u64) -> [u8; 16] {
    *format!("key-{number:012}")
        .as_bytes()
        .first_chunk()
        .expect("16 bytes")
}

fn random_numbers(count: usize) -> impl Iterator<Item = u64> {
    let mut random = testkit::Random::new(5);
    (0..count).map(move |_| random.number())
}

/// All numbers below `size`, in an order without rhyme.
fn shuffled(size: usize) -> impl Iterator<Item = u64> {
    let mut numbers: Vec<u64> = (0..size as u64).collect();
    let mut random = testkit::Random::new(9);
    for place in (1..size).rev() {
        numbers.swap(place, random.below(place + 1));
    }
    numbers.into_iter()
}
