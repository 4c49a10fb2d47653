//! CPU time and memory of processes, as the kernel counts them.

use std::fs;

/// CPU time of all threads of a process, in nanoseconds, user and system.
///
/// `/proc/PID/task/*/schedstat` counts nanoseconds; where the kernel has none, `/proc/PID/stat`
/// counts hundredths of a second. Threads that have ended are missing from the former, which
/// servers that keep their threads do not notice.
pub fn process_ns(pid: u32) -> Result<u64, String> {
    let explain = |error: std::io::Error| format!("CPU time of process {pid}: {error}");
    let mut total_ns = 0;
    for entry in fs::read_dir(format!("/proc/{pid}/task")).map_err(explain)? {
        let path = entry.map_err(explain)?.path().join("schedstat");
        let Ok(text) = fs::read_to_string(path) else {
            return process_ticks_ns(pid);
        };
        let first = text
            .split_whitespace()
            .next()
            .and_then(|word| word.parse::<u64>().ok());
        total_ns +=
            first.ok_or_else(|| format!("CPU time of process {pid}: odd schedstat {text:?}"))?;
    }
    Ok(total_ns)
}

fn process_ticks_ns(pid: u32) -> Result<u64, String> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))
        .map_err(|error| format!("CPU time of process {pid}: {error}"))?;
    // The second field is the program's name in brackets and may hold blanks; utime and stime are
    // fields 14 and 15.
    let after_name = text.rsplit(')').next().unwrap_or_default();
    let fields: Vec<u64> = after_name
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|word| word.parse().ok())
        .collect();
    Ok(fields.iter().sum::<u64>() * TICK_NS)
}

/// Linux counts user-visible ticks of a hundredth of a second on all common machines.
const TICK_NS: u64 = 10_000_000;

/// Busy CPU time of the whole machine, in nanoseconds.
pub fn machine_ns() -> Result<u64, String> {
    let text = fs::read_to_string("/proc/stat").map_err(|error| format!("/proc/stat: {error}"))?;
    let ticks: Vec<u64> = text
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .skip(1)
        .filter_map(|word| word.parse().ok())
        .collect();
    // user, nice, system, idle, iowait, irq, softirq: all but the two idle ones.
    Ok(ticks
        .iter()
        .take(7)
        .enumerate()
        .filter(|(column, _)| !matches!(column, 3 | 4))
        .map(|(_, ticks)| ticks * TICK_NS)
        .sum())
}

/// Memory of a process that belongs to it alone (anonymous), in bytes.
pub fn anonymous_bytes(pid: u32) -> Result<u64, String> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))
        .map_err(|error| format!("memory of process {pid}: {error}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kilobytes = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    Ok(kilobytes.ok_or_else(|| format!("memory of process {pid}: no RssAnon"))? * 1024)
}
