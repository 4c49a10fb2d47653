//! How long a process could run. On a busy machine a process that wants the processor may wait for
//! it longer than it runs, and must not be taken for one that never ends. What counts is time in
//! which it ran, or waited for something other than the processor.

use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};

/// How often the kernel's figures are read.
const INTERVAL: Duration = Duration::from_millis(200);

/// The time of one process, its threads and its children.
pub struct Clock {
    process: u32,
    /// Running and waiting for the processor so far, in nanoseconds, by thread.
    threads: HashMap<u32, (u64, u64)>,
    read: Instant,
    elapsed: Duration,
}

impl Clock {
    /// Returns a clock for a process that has just begun.
    pub fn new(process: u32) -> Clock {
        Clock {
            process,
            threads: HashMap::new(),
            read: Instant::now(),
            elapsed: Duration::ZERO,
        }
    }

    /// Returns the time in which the process ran, or had no wish to.
    pub fn elapsed(&mut self) -> Duration {
        let interval = self.read.elapsed();
        if interval >= INTERVAL {
            self.read = Instant::now();
            let (ran, waited) = self.advance();
            self.elapsed += effective(interval, ran, waited);
        }
        self.elapsed
    }

    /// Returns by how much the figures of all threads grew, in nanoseconds.
    fn advance(&mut self) -> (u64, u64) {
        let mut threads = HashMap::new();
        read_process(self.process, &mut threads);
        let mut grown = (0, 0);
        for (thread, (ran, waited)) in &threads {
            let before = self.threads.get(thread).copied().unwrap_or_default();
            grown.0 += ran.saturating_sub(before.0);
            grown.1 += waited.saturating_sub(before.1);
        }
        self.threads = threads;
        grown
    }
}

/// Returns what an interval counts for, if threads ran and waited for the processor so long in it.
fn effective(interval: Duration, ran: u64, waited: u64) -> Duration {
    let wanted = ran + waited;
    if u128::from(waited) * 4 < interval.as_nanos() || wanted == 0 {
        return interval;
    }
    interval.mul_f64(ran as f64 / wanted as f64)
}

fn read_process(process: u32, threads: &mut HashMap<u32, (u64, u64)>) {
    let Ok(tasks) = fs::read_dir(format!("/proc/{process}/task")) else {
        return;
    };
    for task in tasks.flatten() {
        let path = task.path();
        let Some(thread) = task.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let figures = fs::read_to_string(path.join("schedstat")).unwrap_or_default();
        let mut figures = figures
            .split_whitespace()
            .filter_map(|figure| figure.parse().ok());
        let (ran, waited) = (figures.next(), figures.next());
        threads.insert(thread, (ran.unwrap_or(0), waited.unwrap_or(0)));
        let children = fs::read_to_string(path.join("children")).unwrap_or_default();
        for child in children
            .split_whitespace()
            .filter_map(|child| child.parse().ok())
        {
            read_process(child, threads);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_for_the_processor_does_not_count_and_sleeping_does() {
        let second = Duration::from_secs(1);
        let ms = |ms: u64| ms * 1_000_000;
        assert_eq!(effective(second, 0, 0), second);
        assert_eq!(effective(second, ms(900), ms(50)), second);
        assert_eq!(effective(second, ms(100), ms(900)), second / 10);
        // Two threads that share a processor with others.
        assert_eq!(effective(second, ms(500), ms(1500)), second / 4);
    }

    #[test]
    fn a_sleeping_process_gets_older() {
        let mut child = std::process::Command::new("sleep")
            .arg("1000")
            .spawn()
            .unwrap();
        let mut clock = Clock::new(child.id());
        while clock.elapsed() < Duration::from_millis(600) {
            std::thread::sleep(Duration::from_millis(20));
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
