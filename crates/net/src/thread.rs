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
