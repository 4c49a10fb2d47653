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
            let growth = self.advance();
            self.elapsed += growth.effective(interval);
        }
        self.elapsed
    }

    /// Returns what has happened to all threads since the figures were read last.
    fn advance(&mut self) -> Growth {
        let mut now = Figures::default();
        now.read(self.process);
        let mut growth = Growth {
            is_runnable: now.is_runnable,
            ..Growth::default()
        };
        for (thread, (ran, waited)) in &now.threads {
            let before = self.threads.get(thread).copied().unwrap_or_default();
            growth.ran += Duration::from_nanos(ran.saturating_sub(before.0));
            growth.waited += Duration::from_nanos(waited.saturating_sub(before.1));
        }
        self.threads = now.threads;
        growth
    }
}

/// What happened to a process in an interval.
#[derive(Default)]
struct Growth {
    ran: Duration,
    /// Waiting for the processor, as far as it is over: the kernel counts it when the wait ends.
    waited: Duration,
    /// A thread runs or waits for the processor now.
    is_runnable: bool,
}

impl Growth {
    /// Returns what the interval counts for.
    fn effective(&self, interval: Duration) -> Duration {
        if self.is_runnable || self.waited * 4 > interval {
            return self.ran.min(interval);
        }
        interval
    }
}

/// The kernel's figures of a process and its children.
#[derive(Default)]
struct Figures {
    threads: HashMap<u32, (u64, u64)>,
    is_runnable: bool,
}

impl Figures {
    fn read(&mut self, process: u32) {
        let Ok(tasks) = fs::read_dir(format!("/proc/{process}/task")) else {
            return;
        };
        for task in tasks.flatten() {
            let path = task.path();
            let Some(thread) = task.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let text = |name: &str| fs::read_to_string(path.join(name)).unwrap_or_default();
            let figures = text("schedstat");
            let mut figures = figures
                .split_whitespace()
                .filter_map(|figure| figure.parse().ok());
            let (ran, waited) = (figures.next(), figures.next());
            self.threads
                .insert(thread, (ran.unwrap_or(0), waited.unwrap_or(0)));
            // The state stands behind the name, which may have spaces and brackets.
            let state = text("stat");
            self.is_runnable |= state
                .rsplit_once(") ")
                .is_some_and(|(_, state)| state.starts_with('R'));
            for child in text("children").split_whitespace() {
                if let Ok(child) = child.parse() {
                    self.read(child);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_for_the_processor_does_not_count_and_sleeping_does() {
        let second = Duration::from_secs(1);
        let effective = |ran: u64, waited: u64, is_runnable| {
            let (ran, waited) = (Duration::from_millis(ran), Duration::from_millis(waited));
            Growth {
                ran,
                waited,
                is_runnable,
            }
            .effective(second)
        };
        assert_eq!(effective(0, 0, false), second, "it sleeps");
        assert_eq!(effective(100, 50, false), second, "it sleeps mostly");
        assert_eq!(
            effective(0, 0, true),
            Duration::ZERO,
            "the wait is not over"
        );
        assert_eq!(effective(100, 900, false), second / 10);
        assert_eq!(
            effective(1900, 100, true),
            second,
            "two threads on two processors"
        );
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
