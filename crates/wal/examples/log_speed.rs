//! What the log costs: run with `cargo run --profile quick -p pelton-wal --example log_speed --
//! FOLDER`.
//!
//! Writes groups of records with a sync each, the same bytes to a bare file full of zeros, and
//! reads the log again. The folder must be on the device that is to be measured; without one it is
//! in the current directory.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use wal::disk::{Disk, RealDisk};
use wal::{GroupBuffer, LogConfig, LogId, OpenLog, RawRecord, VisitRecord, limits::SEGMENT_BYTES};

const KEY_BYTES: usize = 16;
const VALUE_BYTES: usize = 100;
const GROUP_RECORDS: [usize; 4] = [1, 16, 256, 1024];
const TIME_PER_ROW: Duration = Duration::from_secs(3);
const REPLAY_BYTES: u64 = 1 << 30;

fn main() -> Result<(), Box<dyn Error>> {
    let parent = std::env::args().nth(1).map_or(".".into(), PathBuf::from);
    let folder = parent.join(format!("log-speed-{}", std::process::id()));
    let result = measure(&folder);
    std::fs::remove_dir_all(&folder)?;
    result
}

fn measure(folder: &Path) -> Result<(), Box<dyn Error>> {
    println!("records of {KEY_BYTES} + {VALUE_BYTES} bytes, a sync after each group");
    println!(
        "{:>8} {:>12} {:>12} {:>8} {:>12} {:>12} {:>12}",
        "group", "log rec/s", "bare rec/s", "ratio", "log p50 us", "bare p50 us", "longest us"
    );
    for records in GROUP_RECORDS {
        std::fs::create_dir(folder)?;
        let [log_us, bare_us] = log_and_bare(folder, records)?;
        let rate = |times_us: &[f64]| {
            (times_us.len() * records) as f64 * 1e6 / times_us.iter().sum::<f64>()
        };
        println!(
            "{records:>8} {:>12.0} {:>12.0} {:>8.2} {:>12.0} {:>12.0} {:>12.0}",
            rate(&log_us),
            rate(&bare_us),
            rate(&log_us) / rate(&bare_us),
            log_us[log_us.len() / 2],
            bare_us[bare_us.len() / 2],
            log_us[log_us.len() - 1],
        );
        std::fs::remove_dir_all(folder)?;
    }
    std::fs::create_dir(folder)?;
    fill_and_replay(folder)
}

/// The sorted times of groups, in microseconds: in the log, and of the same bytes in a bare file
/// that was full of zeros. In turns, so that both meet the same weather. The making of segments,
/// which a server does ahead and on another thread, is left out.
fn log_and_bare(folder: &Path, records: usize) -> Result<[Vec<f64>; 2], Box<dyn Error>> {
    let mut opened = open(folder, &mut |_| Ok(()))?;
    let mut sequence = opened.recovered.next_sequence;
    let mut group = GroupBuffer::new();
    fill(&mut group, records, &mut sequence);
    let bytes = vec![7; group.group_bytes() as usize];

    let disk = RealDisk::open(folder)?;
    let file = disk.create("bare")?;
    for offset in (0..SEGMENT_BYTES).step_by(1 << 20) {
        file.write_all_at(&vec![0; 1 << 20], offset)?;
    }
    file.sync()?;

    let mut offset = 0;
    let mut times_us = [Vec::new(), Vec::new()];
    let end = Instant::now() + TIME_PER_ROW;
    while Instant::now() < end {
        let start = Instant::now();
        opened.log.write_group(&mut group, 1)?;
        opened.log.sync()?;
        times_us[0].push(start.elapsed().as_secs_f64() * 1e6);

        if offset + bytes.len() as u64 > SEGMENT_BYTES {
            offset = 0;
        }
        let start = Instant::now();
        file.write_all_at(&bytes, offset)?;
        file.sync()?;
        times_us[1].push(start.elapsed().as_secs_f64() * 1e6);
        offset += bytes.len() as u64;

        fill(&mut group, records, &mut sequence);
        prepare(&mut opened)?;
    }
    for times_us in &mut times_us {
        times_us.sort_by(f64::total_cmp);
    }
    Ok(times_us)
}

fn fill_and_replay(folder: &Path) -> Result<(), Box<dyn Error>> {
    let mut opened = open(folder, &mut |_| Ok(()))?;
    let mut group = GroupBuffer::new();
    let mut sequence = opened.recovered.next_sequence;
    let (mut written, mut encoding) = (0, Duration::ZERO);
    let mut records = 0;
    while written < REPLAY_BYTES {
        let start = Instant::now();
        fill(&mut group, 1024, &mut sequence);
        encoding += start.elapsed();
        records += 1024;
        written += group.group_bytes();
        opened.log.write_group(&mut group, 1)?;
        opened.log.sync()?;
        prepare(&mut opened)?;
    }
    println!(
        "append to the buffer: {:.1} ns a record",
        encoding.as_nanos() as f64 / f64::from(records)
    );
    drop(opened);
    let start = Instant::now();
    let mut seen = 0;
    let opened = open(folder, &mut |record| {
        seen += record.value.len();
        Ok(())
    })?;
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "start: {} records, {seen} bytes of values in {seconds:.3} s: {:.0} MB of log a second",
        opened.recovered.records,
        written as f64 / seconds / 1e6
    );
    Ok(())
}

fn open(folder: &Path, visit: VisitRecord<'_>) -> Result<OpenLog, Box<dyn Error>> {
    let disk = Arc::new(RealDisk::open(folder)?);
    let id = LogId {
        history: 1,
        secret: 2,
    };
    let mut open = wal::open(disk, &LogConfig::new(id, 1), visit)?;
    prepare(&mut open)?;
    Ok(open)
}

fn prepare(open: &mut OpenLog) -> Result<(), Box<dyn Error>> {
    if let Some(wanted) = open.log.wanted_segment() {
        open.log.take_segment(open.stock.prepare(wanted)?);
    }
    Ok(())
}

fn fill(group: &mut GroupBuffer, records: usize, sequence: &mut u64) {
    let value = [7; VALUE_BYTES];
    for _ in 0..records {
        let mut key = [0; KEY_BYTES];
        key[..8].copy_from_slice(&sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
        group.push(&RawRecord {
            kind: 1,
            key: &key,
            value: &value,
            ..RawRecord::mark(*sequence)
        });
        *sequence += 1;
    }
}
