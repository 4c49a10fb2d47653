//! Writes new random keys into one LSM tree of the engine that databases on disk have, as fast as
//! it takes them: no log, no sync, no server. What such a database takes beyond this is its own.
//! Results are one line of JSON.
//!
//! One thread writes, one flushes, one compacts, as in the server; the memtable is as large, and
//! the writer waits where the server would slow its own down, so that what is measured can go on
//! for ever.

use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lexopt::prelude::*;
use lsm_tree::compaction::Leveled;
use lsm_tree::{AbstractTree, AnyTree, Config};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const USAGE: &str = "\
usage: bare-tree FOLDER [--seconds N] [--value-bytes N]

Writes records with random keys of 16 bytes for N seconds (10) with values of N bytes (32), and measures. FOLDER is made
first, and removed at the end. It must be on the device that is to be measured.
";

/// As in the server: see crates/store/src/tree/limits.rs.
const MEMTABLE_BYTES: u64 = 64 << 20;
const SEALED_MEMTABLES: usize = 3;

/// Records between two looks at the clock.
const GROUP: u64 = 256;

/// No version is needed any more once there is a newer one.
const NO_READER: u64 = u64::MAX >> 1;

struct Options {
    folder: PathBuf,
    seconds: u64,
    value_bytes: usize,
}

/// What came out.
struct Outcome {
    records: u64,
    elapsed: Duration,
    longest: Duration,
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = parse_options()?;
    let outcome = measure(&options);
    fs::remove_dir_all(&options.folder)?;
    let Outcome {
        records,
        elapsed,
        longest,
    } = outcome?;
    println!(
        "{{\"records\":{records},\"elapsed_s\":{:.3},\"records_per_s\":{:.0},\"longest_us\":{:.0}}}",
        elapsed.as_secs_f64(),
        records as f64 / elapsed.as_secs_f64(),
        longest.as_secs_f64() * 1e6,
    );
    Ok(())
}

fn parse_options() -> Result<Options, lexopt::Error> {
    let (mut folder, mut seconds, mut value_bytes) = (None, 10, 32);
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Value(path) if folder.is_none() => folder = Some(path.into()),
            Long("seconds") => seconds = parser.value()?.parse()?,
            Long("value-bytes") => value_bytes = parser.value()?.parse()?,
            Short('h') | Long("help") => {
                print!("{USAGE}");
                std::process::exit(0);
            }
            other => return Err(other.unexpected()),
        }
    }
    Ok(Options {
        folder: folder.ok_or_else(|| lexopt::Error::from("which folder? See bare-tree --help"))?,
        seconds,
        value_bytes,
    })
}

fn measure(options: &Options) -> Result<Outcome, Box<dyn Error>> {
    let opened = Config::new(&options.folder, Default::default(), Default::default()).open()?;
    let AnyTree::Standard(tree) = opened else {
        return Err("the engine made another kind of tree than was asked for".into());
    };
    let done = AtomicBool::new(false);
    let work = |step: &dyn Fn() -> lsm_tree::Result<()>| -> lsm_tree::Result<()> {
        while !done.load(Ordering::Acquire) {
            step()?;
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    };
    let flush = || tree.flush(&tree.get_flush_lock(), NO_READER).map(drop);
    let strategy = Arc::new(Leveled::default());
    let compact = || tree.compact(strategy.clone(), NO_READER).map(drop);
    thread::scope(|scope| {
        let flusher = scope.spawn(|| work(&flush));
        let compactor = scope.spawn(|| work(&compact));
        let outcome = write(&tree, options, || {
            flusher.is_finished() || compactor.is_finished()
        });
        done.store(true, Ordering::Release);
        for helper in [flusher, compactor] {
            helper
                .join()
                .map_err(|_| "a thread of the engine failed")??;
        }
        Ok(outcome)
    })
}

/// Writes until the time is over, or the helpers have given up.
fn write(tree: &lsm_tree::Tree, options: &Options, is_broken: impl Fn() -> bool) -> Outcome {
    let value = vec![7; options.value_bytes];
    let (begin, limit) = (Instant::now(), Duration::from_secs(options.seconds));
    let mut outcome = Outcome {
        records: 0,
        elapsed: Duration::ZERO,
        longest: Duration::ZERO,
    };
    while outcome.elapsed < limit && !is_broken() {
        while tree.sealed_memtable_count() > SEALED_MEMTABLES && !is_broken() {
            thread::sleep(Duration::from_millis(1));
        }
        let mut bytes = 0;
        for record in outcome.records..outcome.records + GROUP {
            (_, bytes) = tree.insert(key(record), &value, record + 1);
        }
        if bytes > MEMTABLE_BYTES {
            tree.rotate_memtable();
        }
        outcome.records += GROUP;
        let elapsed = begin.elapsed();
        outcome.longest = outcome.longest.max(elapsed - outcome.elapsed);
        outcome.elapsed = elapsed;
    }
    outcome
}

/// The key of a record: its number, spread over 128 bits (splitmix64,
/// https://prng.di.unimi.it/splitmix64.c).
fn key(record: u64) -> [u8; 16] {
    let spread = |number: u64| {
        let mut mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    let mut key = [0; 16];
    key[..8].copy_from_slice(&spread(2 * record + 1).to_be_bytes());
    key[8..].copy_from_slice(&spread(2 * record + 2).to_be_bytes());
    key
}
