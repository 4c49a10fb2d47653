//! What a thread asks of the system for itself.

use std::io;
use std::num::NonZeroU64;

use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_setaffinity, set_current_timer_slack};

/// Pins the calling thread to one CPU.
///
/// # Errors
/// If there is no such CPU, or this process may not use it.
pub fn pin_thread(cpu: usize) -> io::Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(Errno::INVAL.into());
    }
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    Ok(sched_setaffinity(None, &cpus)?)
}

/// Lets waits of the calling thread end when they should, and not up to 50 µs later, which is the
/// kernel's default. Where the system does not allow it, only precision is lost.
pub fn make_waits_precise() {
    let _ = set_current_timer_slack(NonZeroU64::new(1));
}

#[cfg(test)]
mod tests {
    use rustix::thread::{current_timer_slack, sched_getaffinity};

    use super::*;

    #[test]
    fn a_thread_is_pinned_to_one_cpu_that_there_is() {
        let allowed = sched_getaffinity(None).expect("every thread has CPUs");
        let mut cpus = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu));
        let cpu = cpus.next_back().expect("at least one");
        std::thread::spawn(move || {
            pin_thread(cpu).expect("it may use it");
            let pinned = sched_getaffinity(None).expect("every thread has CPUs");
            assert!(pinned.is_set(cpu) && pinned.count() == 1);
        })
        .join()
        .expect("no panic");
        for none in [CpuSet::MAX_CPU, usize::MAX] {
            assert!(pin_thread(none).is_err());
        }
    }

    #[test]
    fn waits_of_the_thread_that_asks_are_precise() {
        std::thread::spawn(|| {
            let is_allowed = set_current_timer_slack(NonZeroU64::new(7)).is_ok();
            make_waits_precise();
            // A system that does not know of it loses nothing but precision.
            assert!(!is_allowed || current_timer_slack().is_ok_and(|ns| ns == 1));
        })
        .join()
        .expect("no panic");
    }
}
