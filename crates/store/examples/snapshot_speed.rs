//! What snapshots cost: run with
//! `cargo run --profile quick -p pelton-store --example snapshot_speed -- FOLDER`.
//!
//! Fills a database through the log and opens it again (a replay), makes a snapshot as a server
//! does, opens it again (a load), and makes a second one while a loop overwrites keys. Says how
//! fast each was, and the longest time for which a page has held the database's read lock: reading
//! by the time that the thread had the processor, so that a busy machine tells the same as a quiet
//! one, and writing by the clock, with its rests and waits for the device. The folder must be on
//! the device that is to be measured; without one it is in the current directory.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use store::durable::{Durable, Mailbox, Opened};
use store::snapshot::SnapshotReport;
use store::{
    Clock, Condition, DatabaseId, Decision, Durability, Expiry, Mode, Operation, Outcomes, Store,
    StoreConfig, WriteBatch,
};
use wal::{LogConfig, LogId};

const KEY_BYTES: usize = 16;
/// Bytes of a value, and how many entries have it: less log than after which a snapshot is made by
/// itself.
const SHAPES: [(usize, u32); 3] = [(32, 1_000_000), (1_000, 100_000), (100_000, 1_000)];
const BATCH: u32 = 500;

/// Shows the time that the calling thread has had the processor.
#[derive(Clone)]
struct ProcessorClock;

impl Clock for ProcessorClock {
    fn now_ns(&mut self) -> u64 {
        processor_ns()
    }

    fn now_ms(&mut self) -> u64 {
        1_000_000
    }
}

fn processor_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

fn main() -> Result<(), Box<dyn Error>> {
    let parent = std::env::args().nth(1).map_or(".".into(), PathBuf::from);
    println!(
        "{:>8} {:>9} {:>12} {:>11} {:>11} {:>14} {:>16} {:>14}",
        "value",
        "entries",
        "replay MB/s",
        "write MB/s",
        "load MB/s",
        "longest us",
        "busy write MB/s",
        "longest us"
    );
    for (value_bytes, entries) in SHAPES {
        let folder = parent.join(format!("snapshot-speed-{}", std::process::id()));
        std::fs::create_dir(&folder)?;
        let result = measure(&folder.join("data"), value_bytes, entries);
        std::fs::remove_dir_all(&folder)?;
        result?;
    }
    Ok(())
}

fn measure(folder: &Path, value_bytes: usize, entries: u32) -> Result<(), Box<dyn Error>> {
    {
        let (opened, _) = open(folder)?;
        let mut client = Client::start(opened, value_bytes)?;
        client.put(entries, &mut || true)?;
        // As if the process had died: the log is to be replayed.
    }
    let (opened, replay) = open(folder)?;
    let log_bytes =
        opened.recovered.bytes + opened.snapshot.as_ref().map_or(0, |one| one.file_bytes);
    let mut client = Client::start(opened, value_bytes)?;
    let (quiet, quiet_time) = timed(|| client.durable.snapshot())?;
    let (busy, busy_time) = client.snapshot_while_busy(entries)?;
    client.durable.stop()?;
    drop(client);
    let (opened, load) = open(folder)?;
    let file_bytes = opened.snapshot.map_or(0, |one| one.file_bytes) + opened.recovered.bytes;
    let rate = |bytes: u64, time: Duration| bytes as f64 / time.as_secs_f64() / 1e6;
    println!(
        "{value_bytes:>8} {entries:>9} {:>12.0} {:>11.0} {:>11.0} {:>14.0} {:>16.0} {:>14.0}",
        rate(log_bytes, replay),
        rate(quiet.file_bytes, quiet_time),
        rate(file_bytes, load),
        quiet.longest_page_ns as f64 / 1e3,
        rate(busy.file_bytes, busy_time),
        busy.longest_page_ns as f64 / 1e3,
    );
    Ok(())
}

/// Opens the store, when whoever had it before has let go of it; says how long that took.
fn open(folder: &Path) -> Result<(Opened, Duration), Box<dyn Error>> {
    let mut config = StoreConfig::new(1);
    config.default_database.durability = Durability::Written;
    let id = LogId {
        history: 1,
        secret: 2,
    };
    loop {
        let disk = store::durable::open_folder(folder)?;
        let start_ns = processor_ns();
        match Store::open(config, disk, &LogConfig::new(id, 1)) {
            Ok(opened) => return Ok((opened, Duration::from_nanos(processor_ns() - start_ns))),
            Err(error) if error.to_string().contains("another server") => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn timed<T, E>(work: impl FnOnce() -> Result<T, E>) -> Result<(T, Duration), E> {
    let start = Instant::now();
    Ok((work()?, start.elapsed()))
}

struct Client {
    durable: Arc<Durable>,
    mailbox: Mailbox,
    batch: WriteBatch,
    outcomes: Outcomes,
    value: Vec<u8>,
}

impl Client {
    fn start(opened: Opened, value_bytes: usize) -> Result<Client, Box<dyn Error>> {
        let report = Box::new(|_| ());
        let durable = Durable::start(opened.committer, ProcessorClock, report)?;
        let this = std::thread::current();
        Ok(Client {
            mailbox: durable.register(Box::new(move || this.unpark())),
            durable: Arc::new(durable),
            batch: opened.store.write_batch(),
            outcomes: Outcomes::new(),
            value: vec![7; value_bytes],
        })
    }

    /// Puts each key once, in an order that jumps about, while `go_on` says so.
    fn put(&mut self, entries: u32, go_on: &mut dyn FnMut() -> bool) -> Result<(), Box<dyn Error>> {
        let per_batch = BATCH.min(1 + 4_000_000 / self.value.len() as u32);
        let mut number = 0;
        while number < entries && go_on() {
            let end = (number + per_batch).min(entries);
            for place in number..end {
                let key = format!(
                    "{:0KEY_BYTES$}",
                    u64::from(place) * 0x9e37_79b1 % 1_000_000_007
                );
                let (condition, expiry) = (Condition::None, Expiry::None);
                let mut commit = self.batch.begin(0, DatabaseId::DEFAULT, Mode::Atomic);
                commit.push(&Operation::Put {
                    key: key.as_bytes(),
                    value: &self.value,
                    condition,
                    expiry,
                    want_previous: false,
                })?;
                commit.submit();
            }
            self.mailbox.submit(&mut self.batch);
            let mut left = (end - number) as usize;
            while left > 0 {
                std::thread::park_timeout(Duration::from_millis(100));
                while self.mailbox.take(&mut self.outcomes) {
                    let applied = |decision| assert_eq!(decision, Decision::Applied);
                    (self.outcomes.iter()).for_each(|outcome| applied(outcome.decision));
                    left -= self.outcomes.len();
                }
            }
            number = end;
        }
        Ok(())
    }

    fn snapshot_while_busy(
        &mut self,
        entries: u32,
    ) -> Result<(SnapshotReport, Duration), Box<dyn Error>> {
        let is_made = Arc::new(AtomicBool::new(false));
        let (durable, told) = (self.durable.clone(), is_made.clone());
        let maker = std::thread::spawn(move || {
            let made = timed(|| durable.snapshot());
            told.store(true, Ordering::Release);
            made
        });
        while !is_made.load(Ordering::Acquire) {
            self.put(entries, &mut || !is_made.load(Ordering::Acquire))?;
        }
        let made = maker.join().expect("it does not panic");
        Ok(made?)
    }
}
