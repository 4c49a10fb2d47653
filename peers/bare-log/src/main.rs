//! Writes groups of bytes to a file that is full of zeros, with a `pwrite` and an `fdatasync` each,
//! and nothing else: what a log of the same groups takes beyond this is its own. One thread.
//! Results are one line of JSON.

use std::error::Error;
use std::fs::{self, File};
use std::io::{self, BufRead};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use lexopt::prelude::*;

const USAGE: &str = "\
usage: bare-log FILE < SIZES

Writes groups of SIZES bytes (one number a line) to FILE, each followed by a sync of its data, and measures. FILE is made
first, full of zeros and synced, which is not measured, and removed at the end. Where it ends, writing goes on at its
beginning. It must be on the device that is to be measured.
";

/// Bytes of the file, like a segment of Pelton's log.
const FILE_BYTES: u64 = 64 << 20;

/// Zeros written at a time.
const ZEROS_BYTES: usize = 1 << 20;

/// What came out.
struct Outcome {
    elapsed_ns: u64,
    own_ns: u64,
    /// Of each group, sorted.
    times_ns: Vec<u64>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = parse_options()?;
    let sizes = read_sizes()?;
    let outcome = measure(&path, &sizes);
    fs::remove_file(&path)?;
    println!("{}", describe(&sizes, &outcome?));
    Ok(())
}

fn parse_options() -> Result<PathBuf, lexopt::Error> {
    let mut path = None;
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Value(file) if path.is_none() => path = Some(file.into()),
            Short('h') | Long("help") => {
                print!("{USAGE}");
                std::process::exit(0);
            }
            other => return Err(other.unexpected()),
        }
    }
    path.ok_or_else(|| "which file? See bare-log --help".into())
}

fn read_sizes() -> Result<Vec<usize>, Box<dyn Error>> {
    let mut sizes = Vec::new();
    for line in io::stdin().lock().lines() {
        let bytes: usize = line?.trim().parse()?;
        if bytes as u64 > FILE_BYTES {
            return Err(format!("a group of {bytes} bytes is larger than the file").into());
        }
        sizes.push(bytes);
    }
    if sizes.is_empty() {
        return Err("there are no sizes on standard input".into());
    }
    Ok(sizes)
}

fn measure(path: &Path, sizes: &[usize]) -> Result<Outcome, Box<dyn Error>> {
    let file = zeroed(path)?;
    let bytes = vec![7; sizes.iter().copied().max().unwrap_or_default()];
    let mut times_ns = Vec::with_capacity(sizes.len());
    let mut offset = 0;
    let (own_ns, begin) = (own_ns()?, Instant::now());
    let mut last_ns = 0;
    for &size in sizes {
        if offset + size as u64 > FILE_BYTES {
            offset = 0;
        }
        file.write_all_at(&bytes[..size], offset)?;
        file.sync_data()?;
        offset += size as u64;
        let now_ns = begin.elapsed().as_nanos() as u64;
        times_ns.push(now_ns - last_ns);
        last_ns = now_ns;
    }
    times_ns.sort_unstable();
    Ok(Outcome {
        elapsed_ns: last_ns,
        own_ns: self::own_ns()? - own_ns,
        times_ns,
    })
}

fn zeroed(path: &Path) -> io::Result<File> {
    let file = File::create_new(path)?;
    let zeros = vec![0; ZEROS_BYTES];
    for offset in (0..FILE_BYTES).step_by(ZEROS_BYTES) {
        file.write_all_at(&zeros, offset)?;
    }
    file.sync_all()?;
    Ok(file)
}

/// CPU time of this process, of its only thread, in nanoseconds.
fn own_ns() -> Result<u64, Box<dyn Error>> {
    let text = fs::read_to_string("/proc/self/schedstat")?;
    let first = text.split_whitespace().next().ok_or("odd schedstat")?;
    Ok(first.parse()?)
}

fn describe(sizes: &[usize], outcome: &Outcome) -> String {
    let groups = sizes.len();
    let bytes: usize = sizes.iter().sum();
    let at_us = |share: f64| {
        let place = (share * (groups - 1) as f64).round() as usize;
        outcome.times_ns[place] as f64 / 1e3
    };
    format!(
        "{{\"groups\":{groups},\"bytes\":{bytes},\"elapsed_s\":{:.6},\"groups_per_s\":{:.1},\"own_us_per_group\":{:.3},\
         \"group_p50_us\":{:.1},\"group_p99_us\":{:.1},\"group_p999_us\":{:.1},\"group_longest_us\":{:.1}}}",
        outcome.elapsed_ns as f64 / 1e9,
        groups as f64 / (outcome.elapsed_ns as f64 / 1e9),
        outcome.own_ns as f64 / 1e3 / groups as f64,
        at_us(0.5),
        at_us(0.99),
        at_us(0.999),
        at_us(1.0),
    )
}
