//! What a run measures: latencies, failures, and the CPU time of client and server.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};
use std::{fs, io};

use crate::options::Options;

/// Where a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Calls are made, and not counted.
    WarmUp,
    /// Calls that end count.
    Measure,
    /// No more calls begin.
    Drain,
}

const PHASES: [Phase; 3] = [Phase::WarmUp, Phase::Measure, Phase::Drain];

/// A run, which all threads look at.
#[derive(Debug, Default)]
pub struct Measurement {
    phase: AtomicU8,
}

/// What one thread or task has seen.
#[derive(Debug, Default)]
pub struct Recorder {
    latencies_ns: Vec<u64>,
    failures: u64,
    first_failure: Option<String>,
}

/// A moment of the run.
#[derive(Debug)]
pub struct Mark {
    time: Instant,
    own_ns: u64,
    server_ns: u64,
}

/// The measured time.
#[derive(Debug)]
pub struct Period {
    elapsed: Duration,
    own_ns: u64,
    server_ns: u64,
}

impl Measurement {
    /// Returns where the run is.
    pub fn phase(&self) -> Phase {
        PHASES[usize::from(self.phase.load(Ordering::Relaxed))]
    }

    /// Begins to measure.
    pub fn begin(&self, options: &Options) -> io::Result<Mark> {
        self.enter(Phase::Measure);
        Mark::now(options)
    }

    /// Ends what [`begin`](Measurement::begin) began, and all calls.
    pub fn end(&self, options: &Options, begin: &Mark) -> io::Result<Period> {
        let end = Mark::now(options)?;
        self.enter(Phase::Drain);
        Ok(Period {
            elapsed: end.time - begin.time,
            own_ns: end.own_ns - begin.own_ns,
            server_ns: end.server_ns - begin.server_ns,
        })
    }

    fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Relaxed);
    }
}

impl Recorder {
    /// A call has ended that began then.
    pub fn record(&mut self, phase: Phase, begun: Instant, outcome: Result<(), String>) {
        match outcome {
            Err(failure) => {
                self.failures += 1;
                self.first_failure.get_or_insert(failure);
            }
            Ok(()) if phase == Phase::Measure => {
                self.latencies_ns.push(begun.elapsed().as_nanos() as u64);
            }
            Ok(()) => {}
        }
    }

    /// Adds what another one has seen.
    pub fn add(&mut self, other: Recorder) {
        self.latencies_ns.extend(other.latencies_ns);
        self.failures += other.failures;
        self.first_failure = self.first_failure.take().or(other.first_failure);
    }

    /// Prints the line of JSON, and returns whether no call failed.
    pub fn print(mut self, client: &str, options: &Options, period: &Period) -> bool {
        self.latencies_ns.sort_unstable();
        let calls = self.latencies_ns.len();
        let elapsed_s = period.elapsed.as_secs_f64();
        let us_per_call = |ns: u64| ns as f64 / 1e3 / calls.max(1) as f64;
        let server = options.server_pid.map_or(String::new(), |_| {
            format!(",\"server_us\":{:.4}", us_per_call(period.server_ns))
        });
        println!(
            "{{\"client\":{},\"method\":\"{}\",\"in_flight\":{},\"channels\":{},\
             \"channel_args\":\"{}\",\"calls\":{calls},\"failures\":{},\"first_failure\":{},\
             \"elapsed_s\":{elapsed_s:.6},\"calls_per_s\":{:.1},\"p50_us\":{:.1},\"p99_us\":{:.1},\
             \"max_us\":{:.1},\"own_us\":{:.4}{server}}}",
            quoted(client),
            options.method.name(),
            options.in_flight,
            options.channels,
            options.channel_args,
            self.failures,
            quoted(self.first_failure.as_deref().unwrap_or_default()),
            calls as f64 / elapsed_s,
            self.percentile_us(0.5),
            self.percentile_us(0.99),
            self.percentile_us(1.0),
            us_per_call(period.own_ns),
        );
        self.failures == 0
    }

    /// Of sorted latencies.
    fn percentile_us(&self, share: f64) -> f64 {
        let sorted = &self.latencies_ns;
        let at = (share * sorted.len() as f64) as usize;
        let last = sorted.len().saturating_sub(1);
        sorted.get(at.min(last)).map_or(0.0, |ns| *ns as f64 / 1e3)
    }
}

impl Mark {
    fn now(options: &Options) -> io::Result<Mark> {
        Ok(Mark {
            time: Instant::now(),
            own_ns: process_ns("self")?,
            server_ns: match options.server_pid {
                Some(pid) => process_ns(&pid.to_string())?,
                None => 0,
            },
        })
    }
}

/// CPU time of all threads of a process, in nanoseconds; of none any more that has just ended.
fn process_ns(pid: &str) -> io::Result<u64> {
    let mut total_ns = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = match fs::read_to_string(task?.path().join("schedstat")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            read => read?,
        };
        let first = text.split_whitespace().next();
        total_ns += first.and_then(|word| word.parse().ok()).unwrap_or(0);
    }
    Ok(total_ns)
}

/// A text as JSON has it, without what cannot be printed.
fn quoted(text: &str) -> String {
    let plain = text.replace(|letter: char| letter.is_control(), " ");
    format!("\"{}\"", plain.replace('\\', "\\\\").replace('"', "\\\""))
}
