//! How late this machine wakes a thread that only looks at the clock: what a generator of load can
//! do nothing about.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use hdrhistogram::Histogram;
use net::{make_waits_precise, monotonic_ns, pin_thread};

use crate::limits;
use crate::measure::{Window, histogram};
use crate::pacing::time_left;
use crate::process;

/// What the thread that looks at the clock has seen.
#[derive(Clone, Debug)]
pub struct Stalls {
    /// How late it was, in nanoseconds, for each moment of a fixed schedule: a stall counts for
    /// each moment that fell into it, as it does for the calls of an open loop.
    pub late_ns: Histogram<u64>,
    /// The CPU time that it took itself.
    pub cpu_ns: u64,
}

/// Looks at the clock until `stop` is set, and records what falls into the window. `cpu`: where the
/// generator runs.
pub fn watch(window: Window, cpu: Option<usize>, stop: &AtomicBool) -> Stalls {
    if let Some(cpu) = cpu {
        // If it cannot be had, the generator says so.
        let _ = pin_thread(cpu);
    }
    make_waits_precise();
    let mut late_ns = histogram();
    let every_ns = limits::STALL_LOOK.as_nanos() as u64;
    let mut due_ns = monotonic_ns() + every_ns;
    while !stop.load(Relaxed) {
        let now_ns = monotonic_ns();
        if let Some(left) = time_left(due_ns, now_ns) {
            thread::sleep(left);
            continue;
        }
        due_ns = record(window, due_ns, now_ns, every_ns, &mut late_ns);
    }
    Stalls {
        late_ns,
        cpu_ns: process::thread_cpu_ns(),
    }
}

/// Records all moments from `due_ns` on that have come by now. Returns the next one.
fn record(
    window: Window,
    mut due_ns: u64,
    now_ns: u64,
    every_ns: u64,
    late_ns: &mut Histogram<u64>,
) -> u64 {
    while due_ns <= now_ns {
        if window.contains(due_ns) {
            late_ns.saturating_record(now_ns - due_ns);
        }
        due_ns += every_ns;
    }
    due_ns
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Each of two stalls covers five looks.
    #[test]
    fn a_stall_counts_for_each_moment_in_it() {
        let window = Window {
            from_ns: 200,
            until_ns: 2_000,
        };
        let mut late_ns = histogram();
        assert_eq!(record(window, 100, 100, 100, &mut late_ns), 200);
        assert!(late_ns.is_empty(), "before the window");
        let mut due_ns = 200;
        for now_ns in [650, 1_150] {
            due_ns = record(window, due_ns, now_ns, 100, &mut late_ns);
        }
        assert_eq!(due_ns, 1_200);
        assert_eq!((late_ns.len(), late_ns.min(), late_ns.max()), (10, 50, 450));
        assert_eq!(record(window, 2_000, 2_000, 100, &mut late_ns), 2_100);
        assert_eq!(late_ns.len(), 10, "behind the window");
    }

    #[test]
    fn the_clock_is_looked_at_until_it_is_stopped() {
        let stop = AtomicBool::new(false);
        let window = Window {
            from_ns: 0,
            until_ns: u64::MAX,
        };
        let stalls = thread::scope(|scope| {
            let watching = scope.spawn(|| watch(window, None, &stop));
            thread::sleep(Duration::from_millis(50));
            stop.store(true, Relaxed);
            watching.join().expect("it does not panic")
        });
        assert!(!stalls.late_ns.is_empty());
    }
}
