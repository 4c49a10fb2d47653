//! What is seen of a run while it goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use net::monotonic_ns;

use crate::latency_counts::{LatencyCounts, SharedLatencies};
use crate::load_plan::{Length, LoadPlan};
use crate::measure::Window;
use crate::run_intervals::{RunIntervals, RunLook};

/// How often progress is shown, and requests to stop looked for.
pub(crate) const SHOW_EVERY: Duration = Duration::from_millis(100);

/// How far a run has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadProgress {
    /// Since the load began, in nanoseconds; while it connects, since that began.
    pub elapsed_ns: u64,
    /// Whether connections are still being made.
    pub is_connecting: bool,
    /// Whether it is measured.
    pub is_measuring: bool,
    /// Measured calls so far.
    pub ended: u64,
    /// Measured calls that failed so far.
    pub failed: u64,
    /// How long it has been measured.
    pub measured_ns: u64,
    /// How long it still goes on: of a run of a number of calls at the rate so far; `None`: not
    /// known.
    pub left_ns: Option<u64>,
    /// The median of the latencies so far, to 1.6 %; `None`: no call has succeeded.
    pub p50_ns: Option<u64>,
    /// Their 99th percentile.
    pub p99_ns: Option<u64>,
}

/// What threads share.
pub(crate) struct RunShared {
    pub(crate) stop: AtomicBool,
    /// Nothing more is measured.
    pub(crate) is_over: AtomicBool,
    pub(crate) ended: AtomicU64,
    pub(crate) failed: AtomicU64,
    /// Of each thread its own.
    pub(crate) latencies: Vec<Arc<SharedLatencies>>,
}

impl RunShared {
    pub(crate) fn new(threads: usize) -> RunShared {
        RunShared {
            stop: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            ended: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            latencies: (0..threads).map(|_| Arc::default()).collect(),
        }
    }

    /// What has been counted until now.
    pub(crate) fn look(&self, at_ns: u64) -> RunLook {
        let mut latencies = LatencyCounts::default();
        for shared in &self.latencies {
            latencies.add_shared(shared);
        }
        RunLook {
            at_ns,
            ended: self.ended.load(Relaxed),
            failed: self.failed.load(Relaxed),
            latencies,
        }
    }
}

/// When the load begins, and what is measured of it.
#[derive(Clone, Copy)]
pub(crate) struct Timeline {
    pub(crate) begin_ns: u64,
    pub(crate) window: Window,
}

/// What is seen of a run while it goes on.
pub(crate) struct RunWatch<'a> {
    pub(crate) plan: &'a LoadPlan,
    pub(crate) timeline: Timeline,
    pub(crate) shared: &'a RunShared,
    /// Whether the measured time has begun.
    pub(crate) is_measuring: bool,
    pub(crate) intervals: RunIntervals,
    pub(crate) was_stopped: bool,
}

impl RunWatch<'_> {
    /// Looks and shows until this moment, unless all threads end before, or the run is to stop.
    pub(crate) fn wait_until<T>(
        &mut self,
        until_ns: u64,
        threads: &[ScopedJoinHandle<'_, T>],
        show: &mut dyn FnMut(&LoadProgress) -> bool,
    ) {
        while monotonic_ns() < until_ns && !threads.iter().all(ScopedJoinHandle::is_finished) {
            let left_ns = until_ns.saturating_sub(monotonic_ns());
            thread::sleep(Duration::from_nanos(left_ns).min(SHOW_EVERY));
            let progress = self.look(monotonic_ns());
            if !show(&progress) && !self.was_stopped {
                self.was_stopped = true;
                self.shared.stop.store(true, Relaxed);
            }
            if self.shared.stop.load(Relaxed) {
                return;
            }
        }
    }

    fn look(&mut self, now_ns: u64) -> LoadProgress {
        let window = self.timeline.window;
        let measured_ns = now_ns.min(window.until_ns).saturating_sub(window.from_ns);
        if self.is_measuring {
            self.intervals.add(self.shared.look(measured_ns));
        }
        let look = self.intervals.last();
        LoadProgress {
            elapsed_ns: now_ns.saturating_sub(self.timeline.begin_ns),
            is_connecting: false,
            is_measuring: self.is_measuring,
            ended: look.ended,
            failed: look.failed,
            measured_ns,
            left_ns: left_ns(self.plan.length, window, now_ns, look.ended),
            p50_ns: look.latencies.quantile_ns(0.5),
            p99_ns: look.latencies.quantile_ns(0.99),
        }
    }
}

/// How long a run still goes on of whose calls so many have ended.
fn left_ns(length: Length, window: Window, now_ns: u64, ended: u64) -> Option<u64> {
    match length {
        Length::Duration(_) => Some(window.until_ns.saturating_sub(now_ns)),
        Length::Calls(calls) => {
            let measured_ns = now_ns.saturating_sub(window.from_ns);
            let each_ns = measured_ns.checked_div(ended)?;
            Some(each_ns.saturating_mul(calls.saturating_sub(ended)))
        }
    }
}
