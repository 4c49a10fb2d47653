//! What a durable Put costs: run with
//! `cargo run --profile quick -p pelton-store --example durable_speed -- FOLDER`.
//!
//! One loop keeps a number of Puts in flight, through the committer's thread: it sleeps until
//! answers are there, and submits as many new Puts together. Beside it the same with the committer
//! on the loop's own thread, which shows what handing over costs, and as many bytes in groups of
//! the same size, written to a bare file full of zeros, with a sync each. The three take turns. CPU
//! is that of the process. The folder must be on the device that is to be measured; without one it
//! is in the current directory.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use store::durable::{
    CommitLoop, CommitWaker, Durable, DurableCommitter, Mailbox, Opened, StorageEvent,
};
use store::{
    Clock, Condition, DatabaseId, Decision, Durability, Expiry, Mode, Operation, Outcomes, Store,
    StoreConfig, WriteBatch,
};
use wal::disk::{Disk, RealDisk};
use wal::limits::SEGMENT_BYTES;
use wal::{HEADER_BYTES, LogConfig, LogId, RECORD_BYTES};

const KEYS: u32 = 100_000;
const KEY_BYTES: usize = 16;
const VALUE_BYTES: usize = 32;
const IN_FLIGHT: [usize; 5] = [1, 16, 64, 256, 1024];
const TIME_PER_ROW: Duration = Duration::from_millis(500);
const ROUNDS: u32 = 3;

#[derive(Clone)]
struct RealClock(Instant);

impl Clock for RealClock {
    fn now_ns(&mut self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }

    fn now_ms(&mut self) -> u64 {
        1_000_000 + self.0.elapsed().as_millis() as u64
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let parent = std::env::args().nth(1).map_or(".".into(), PathBuf::from);
    let folder = parent.join(format!("durable-speed-{}", std::process::id()));
    std::fs::create_dir(&folder)?;
    let result = measure(&folder);
    std::fs::remove_dir_all(&folder)?;
    result
}

fn measure(folder: &Path) -> Result<(), Box<dyn Error>> {
    let clock = RealClock(Instant::now());
    let (store, committer) = open(&folder.join("thread"))?;
    let reporter = Box::new(|event| match event {
        StorageEvent::SnapshotMade(_) => {}
        other => eprintln!("{other:?}"),
    });
    let durable = Durable::start(committer, clock.clone(), reporter)?;
    let mut with_thread = Client::new(&store, |waker| (durable.register(waker), None));
    let (store, committer) = open(&folder.join("alone"))?;
    let mut alone = Client::new(&store, |waker| {
        let commit_loop = CommitLoop::new(committer);
        (commit_loop.register(waker), Some((commit_loop, clock)))
    });
    with_thread.fill()?;
    alone.fill()?;
    println!(
        "Puts of {KEY_BYTES} + {VALUE_BYTES} bytes over {KEYS} keys; times in us, from group to group"
    );
    println!(
        "{:>9} {:>10} {:>8} {:>8} {:>8} {:>8} {:>10} {:>8} {:>8} {:>9} {:>8}",
        "in flight",
        "puts/s",
        "group",
        "p50",
        "p99",
        "longest",
        "CPU/group",
        "bare p50",
        "ratio",
        "alone p50",
        "CPU/group"
    );
    for in_flight in IN_FLIGHT {
        for _ in 0..ROUNDS {
            let row = with_thread.run(in_flight)?;
            let other = alone.run(in_flight)?;
            let group = row.puts as f64 / row.times_us.len() as f64;
            let bare_us = bare_group_us(folder, group)?;
            println!(
                "{in_flight:>9} {:>10.0} {group:>8.1} {:>8.0} {:>8.0} {:>8.0} {:>10.1} {bare_us:>8.0} {:>8.2} {:>9.0} {:>8.1}",
                row.puts as f64 / row.elapsed.as_secs_f64(),
                row.at(0.5),
                row.at(0.99),
                row.at(1.0),
                row.cpu_us / row.times_us.len() as f64,
                bare_us / row.at(0.5),
                other.at(0.5),
                other.cpu_us / other.times_us.len() as f64,
            );
        }
    }
    durable.stop()?;
    Ok(())
}

fn open(folder: &Path) -> Result<(Store, DurableCommitter), Box<dyn Error>> {
    let mut config = StoreConfig::new(1);
    config.default_database.durability = Durability::Synced;
    let id = LogId {
        history: 1,
        secret: 2,
    };
    let disk = store::durable::open_folder(folder)?;
    let Opened {
        store, committer, ..
    } = Store::open(config, disk, &LogConfig::new(id, 1))?;
    Ok((store, committer))
}

/// CPU time of this process, in microseconds.
fn cpu_us() -> f64 {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    let times = threads.filter_map(|thread| {
        let text = std::fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    times.sum::<u64>() as f64 / 1e3
}

/// What a number of Puts in flight came to.
struct Row {
    puts: usize,
    elapsed: Duration,
    /// From one answer of a group to the next, sorted.
    times_us: Vec<f64>,
    /// Of the process.
    cpu_us: f64,
}

impl Row {
    fn at(&self, share: f64) -> f64 {
        self.times_us[(share * (self.times_us.len() - 1) as f64) as usize]
    }
}

struct Client {
    mailbox: Mailbox,
    batch: WriteBatch,
    outcomes: Outcomes,
    has_answers: Arc<AtomicBool>,
    next: u32,
    /// Where there is no thread for it.
    commit_loop: Option<(CommitLoop, RealClock)>,
}

impl Client {
    fn new(
        store: &Store,
        register: impl FnOnce(CommitWaker) -> (Mailbox, Option<(CommitLoop, RealClock)>),
    ) -> Client {
        let has_answers = Arc::new(AtomicBool::new(false));
        let (loop_thread, seen) = (std::thread::current(), has_answers.clone());
        let waker = move || {
            seen.store(true, Ordering::Release);
            loop_thread.unpark();
        };
        let (mailbox, commit_loop) = register(Box::new(waker));
        Client {
            mailbox,
            commit_loop,
            batch: store.write_batch(),
            outcomes: Outcomes::new(),
            has_answers,
            next: 0,
        }
    }

    fn submit(&mut self, count: usize) -> Result<(), Box<dyn Error>> {
        for _ in 0..count {
            // Every key has its turn, in an order that jumps about.
            self.next = self.next.wrapping_add(1);
            let key = format!("{:0KEY_BYTES$}", self.next.wrapping_mul(0x9e37_79b1) % KEYS);
            let (condition, expiry) = (Condition::None, Expiry::None);
            let mut commit = self.batch.begin(0, DatabaseId::DEFAULT, Mode::Atomic);
            commit.push(&Operation::Put {
                key: key.as_bytes(),
                value: &[7; VALUE_BYTES],
                condition,
                expiry,
                want_previous: false,
            })?;
            commit.submit();
        }
        self.mailbox.submit(&mut self.batch);
        if let Some((commit_loop, clock)) = &mut self.commit_loop {
            commit_loop.round(clock);
        }
        Ok(())
    }

    /// Waits for answers; says how many came.
    fn wait(&mut self) -> usize {
        while !self.has_answers.swap(false, Ordering::Acquire) {
            std::thread::park();
        }
        let mut count = 0;
        while self.mailbox.take(&mut self.outcomes) {
            let applied = |decision| assert_eq!(decision, Decision::Applied);
            (self.outcomes.iter()).for_each(|outcome| applied(outcome.decision));
            count += self.outcomes.len();
        }
        count
    }

    fn fill(&mut self) -> Result<(), Box<dyn Error>> {
        for _ in 0..2 * KEYS / 1000 {
            self.submit(1000)?;
            let mut left = 1000;
            while left > 0 {
                left -= self.wait();
            }
        }
        Ok(())
    }

    fn run(&mut self, in_flight: usize) -> Result<Row, Box<dyn Error>> {
        let mut row = Row {
            puts: 0,
            elapsed: Duration::ZERO,
            times_us: Vec::new(),
            cpu_us: 0.0,
        };
        let before_us = cpu_us();
        let start = Instant::now();
        let mut last = start;
        self.submit(in_flight)?;
        while row.elapsed < TIME_PER_ROW {
            let count = self.wait();
            self.submit(count)?;
            let now = Instant::now();
            row.times_us.push((now - last).as_secs_f64() * 1e6);
            row.puts += count;
            row.elapsed = now - start;
            last = now;
        }
        let mut left = in_flight;
        while left > 0 {
            left -= self.wait();
        }
        row.cpu_us = cpu_us() - before_us;
        row.times_us.sort_by(f64::total_cmp);
        Ok(row)
    }
}

/// The median time of a group with the same bytes in a bare file, in microseconds.
fn bare_group_us(folder: &Path, group: f64) -> Result<f64, Box<dyn Error>> {
    let record_bytes = RECORD_BYTES + KEY_BYTES + VALUE_BYTES;
    let bytes = HEADER_BYTES + (group * record_bytes as f64) as usize;
    let bytes = vec![7; bytes.next_multiple_of(512)];
    let disk = RealDisk::open(folder)?;
    let file = disk.create("bare")?;
    for offset in (0..SEGMENT_BYTES).step_by(1 << 20) {
        file.write_all_at(&vec![0; 1 << 20], offset)?;
    }
    file.sync()?;
    let mut offset = 0;
    let mut times_us = Vec::new();
    let end = Instant::now() + TIME_PER_ROW;
    while Instant::now() < end {
        if offset + bytes.len() as u64 > SEGMENT_BYTES {
            offset = 0;
        }
        let start = Instant::now();
        file.write_all_at(&bytes, offset)?;
        file.sync()?;
        times_us.push(start.elapsed().as_secs_f64() * 1e6);
        offset += bytes.len() as u64;
    }
    disk.remove("bare")?;
    times_us.sort_by(f64::total_cmp);
    Ok(times_us[times_us.len() / 2])
}
