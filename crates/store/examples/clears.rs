//! A writer that clears databases, for the crash explorer (tests/crash): no call of the server does
//! that yet, while the log, the trees and every start know how.
//!
//! Run with `cargo run -p pelton-store --example clears -- DATA`. Commands come on standard input,
//! one a line; each is answered by one line, the sequence of its commit, when it is durable:
//!
//! - `create NAME memory|disk`
//! - `put NAME KEY TEXT COUNT`: the value is the text as often as that
//! - `clear NAME`

use std::error::Error;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant, SystemTime};

use store::durable::{Durable, Mailbox, Opened, TreePlace};
use store::tree::TreeConfig;
use store::{
    Condition, DatabaseConfig, DatabaseId, Decision, Durability, Expiry, Kind, Mode, Operation,
    Outcomes, Refusal, Store, StoreConfig, WriteBatch,
};
use testkit::suite::RunningClock;
use wal::{LogConfig, LogId};

/// Small, so that much happens in a short run.
const SEGMENT_BYTES: u64 = 64 * 1024;
const MEMTABLE_BYTES: u64 = 64 * 1024;

/// Longest wait for an answer: only what hangs is ended by it.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Between attempts to do what was refused for now.
const PAUSE: Duration = Duration::from_millis(2);

/// The time of the system.
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder: PathBuf = std::env::args().nth(1).ok_or("which data folder?")?.into();
    let Opened {
        store, committer, ..
    } = open(&folder)?;
    let reporter = Box::new(|event| eprintln!("{event:?}"));
    let durable = Durable::start(committer, RunningClock::new(now_ms()), reporter)?;
    let (sender, woken) = channel();
    let waker = move || {
        // The receiver lives as long as the thread that asks.
        let _ = sender.send(());
    };
    let mut writer = Writer {
        mailbox: durable.register(Box::new(waker)),
        batch: store.write_batch(),
        outcomes: Outcomes::new(),
        woken,
        store,
    };
    let mut stdout = std::io::stdout();
    for line in std::io::stdin().lock().lines() {
        let sequence = writer.obey_patiently(&line?)?;
        // One write, which is the acknowledgement that the explorer looks for.
        stdout.write_all(format!("{sequence}\n").as_bytes())?;
        stdout.flush()?;
    }
    durable.stop()?;
    Ok(())
}

fn open(folder: &Path) -> Result<Opened, Box<dyn Error>> {
    let mut config = StoreConfig::new(1);
    config.default_database.durability = Durability::Synced;
    let disk = store::durable::open_folder(folder)?;
    let id = LogId {
        history: 1,
        secret: 2,
    };
    let log = LogConfig {
        segment_bytes: SEGMENT_BYTES,
        ..LogConfig::new(id, now_ms())
    };
    let trees = TreePlace {
        folder: folder.join("trees"),
        config: TreeConfig {
            memtable_bytes: MEMTABLE_BYTES,
            ..TreeConfig::default()
        },
    };
    Ok(Store::open_with_trees(config, disk, &log, Some(&trees))?)
}

struct Writer {
    store: Store,
    mailbox: Mailbox,
    batch: WriteBatch,
    outcomes: Outcomes,
    woken: Receiver<()>,
}

impl Writer {
    /// Carries out a command, and returns the sequence of its commit when it is durable. What was
    /// refused since a table is still being written is tried again.
    fn obey_patiently(&mut self, line: &str) -> Result<u64, Box<dyn Error>> {
        let until = Instant::now() + TIMEOUT;
        loop {
            match self.obey(line)? {
                Decision::Applied => return Ok(self.outcomes.get(0).sequence),
                Decision::Refused(Refusal::DiskBehind) if Instant::now() < until => {
                    std::thread::sleep(PAUSE)
                }
                other => return Err(format!("{line}: {other:?}").into()),
            }
        }
    }

    /// Carries out a command once, and returns what became of it.
    fn obey(&mut self, line: &str) -> Result<Decision, Box<dyn Error>> {
        let words: Vec<_> = line.split(' ').collect();
        match words[..] {
            ["create", name, kind] => {
                let mut config = DatabaseConfig {
                    durability: Durability::Synced,
                    kind: match kind {
                        "disk" => Kind::Disk,
                        _ => Kind::Memory,
                    },
                    ..DatabaseConfig::default()
                };
                config.limits.key_bytes = store::tree::limits::KEY_BYTES;
                self.batch.create_database(0, name, &config);
            }
            ["put", name, key, text, count] => {
                let value = text.repeat(count.parse()?);
                let database = self.database(name)?;
                self.push(
                    database,
                    &Operation::Put {
                        key: key.as_bytes(),
                        value: value.as_bytes(),
                        condition: Condition::None,
                        expiry: Expiry::None,
                        want_previous: false,
                    },
                )?;
            }
            ["clear", name] => {
                let database = self.database(name)?;
                self.push(database, &Operation::Clear)?;
            }
            _ => return Err(format!("not a command: {line}").into()),
        }
        self.mailbox.submit(&mut self.batch);
        self.wait()
    }

    fn database(&self, name: &str) -> Result<DatabaseId, Box<dyn Error>> {
        let mut databases = self.store.databases().into_iter();
        let found = databases.find(|database| database.name == name);
        Ok(found.ok_or("there is no such database")?.id)
    }

    fn push(&mut self, database: DatabaseId, operation: &Operation) -> Result<(), Box<dyn Error>> {
        let mut commit = self.batch.begin(0, database, Mode::Atomic);
        commit.push(operation)?;
        commit.submit();
        Ok(())
    }

    fn wait(&mut self) -> Result<Decision, Box<dyn Error>> {
        loop {
            if self.mailbox.take(&mut self.outcomes) && !self.outcomes.is_empty() {
                return Ok(self.outcomes.get(0).decision);
            }
            self.woken.recv_timeout(TIMEOUT)?;
        }
    }
}
