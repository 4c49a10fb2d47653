//! CPU time, as the kernel counts it.

use std::fs;
use std::io;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// CPU time of the calling thread, user and system, in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    read_clock(ClockId::ThreadCPUTime)
}

/// CPU time of this process.
pub fn own_cpu_ns() -> u64 {
    read_clock(ClockId::ProcessCPUTime)
}

fn read_clock(clock: ClockId) -> u64 {
    nanoseconds(clock_gettime(clock))
}

fn nanoseconds(time: Timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// CPU time of all threads of another process on this machine.
///
/// `/proc/PID/task/*/schedstat` counts nanoseconds; where the kernel has none, `/proc/PID/stat`
/// counts ticks, usually of a hundredth of a second. Threads that have ended are missing from the
/// former, which servers that keep their threads do not notice.
///
/// # Errors
/// If there is no such process, or nothing can be read of it.
pub fn process_cpu_ns(process_id: u32) -> io::Result<u64> {
    let mut total_ns = 0;
    for entry in fs::read_dir(format!("/proc/{process_id}/task"))? {
        let thread = entry?.path();
        let text = match fs::read_to_string(thread.join("schedstat")) {
            Ok(text) => text,
            // It has ended since the folder was read. Ticks count those that have ended too, and
            // are not to be mixed with nanoseconds that do not.
            Err(_) if !thread.exists() => continue,
            Err(_) => return process_ticks_ns(process_id),
        };
        let first = text.split_whitespace().next();
        let on_cpu_ns: Option<u64> = first.and_then(|word| word.parse().ok());
        total_ns += on_cpu_ns.ok_or_else(|| io::Error::other("schedstat cannot be understood"))?;
    }
    Ok(total_ns)
}

fn process_ticks_ns(process_id: u32) -> io::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{process_id}/stat"))?;
    // The second field is the program's name in brackets and may hold blanks; utime and stime are
    // fields 14 and 15.
    let after_name = text.rsplit(')').next().unwrap_or_default();
    let ticks: u64 = after_name
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|word| word.parse::<u64>().ok())
        .sum();
    Ok(ticks * 1_000_000_000 / rustix::param::clock_ticks_per_second())
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    /// Threads of a test work for less than a second.
    #[test]
    fn seconds_are_counted_too() {
        let time = Timespec {
            tv_sec: 3,
            tv_nsec: 7,
        };
        assert_eq!(nanoseconds(time), 3_000_000_007);
    }

    #[test]
    fn work_is_counted() {
        let before = (thread_cpu_ns(), own_cpu_ns());
        let mut sum = 0_u64;
        while thread_cpu_ns() - before.0 < 30_000_000 {
            sum = sum.wrapping_mul(31).wrapping_add(7);
        }
        assert!(own_cpu_ns() - before.1 >= 30_000_000, "{sum}");
    }

    /// Of a process with one thread: those of this one, which has tests in others, come and go.
    #[test]
    fn the_work_of_another_process_is_counted() {
        let begin = Instant::now();
        let mut worker = Command::new("sh")
            .args(["-c", "while :; do :; done"])
            .spawn()
            .expect("there is a shell");
        let exact_ns = || process_cpu_ns(worker.id()).expect("it is there");
        let ticks_ns = || process_ticks_ns(worker.id()).expect("it is there");
        while exact_ns() < 50_000_000 || ticks_ns() < 50_000_000 {
            assert!(begin.elapsed() < Duration::from_secs(60), "it has no turn");
            thread::sleep(Duration::from_millis(1));
        }
        // A process of one thread works no longer than it exists; the kernel may be a tick ahead
        // where it divides.
        let (exact, ticks) = (exact_ns(), ticks_ns());
        let longest_ns = begin.elapsed().as_nanos() as u64 + 20_000_000;
        worker.kill().expect("it runs");
        worker.wait().expect("it was killed");
        assert!(exact <= longest_ns, "{exact} in {longest_ns}");
        assert!(ticks <= longest_ns, "{ticks} in {longest_ns}");
    }

    #[test]
    fn processes_that_are_not_there_are_told() {
        assert!(process_cpu_ns(u32::MAX).is_err());
    }
}
