//! Locks, and waits that may be over in time.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::limits;

/// Returns what a mutex holds; a panic while it was locked has changed nothing halfway.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns when a timeout in seconds is over; `None`: never.
pub(crate) fn until(timeout_s: Option<f64>) -> Option<Instant> {
    let timeout_s = timeout_s.filter(|timeout_s| *timeout_s < limits::LONGEST_TIMEOUT_S)?;
    let timeout = Duration::try_from_secs_f64(timeout_s).unwrap_or_default();
    Instant::now().checked_add(timeout)
}

/// Returns how long to wait in one go, or `None` if the time is over.
pub(crate) fn next_wait(until: Option<Instant>, looks: bool) -> Option<Option<Duration>> {
    let left = match until {
        None => return Some(looks.then_some(limits::SIGNAL_PERIOD)),
        Some(until) => until.saturating_duration_since(Instant::now()),
    };
    let wait = if looks {
        left.min(limits::SIGNAL_PERIOD)
    } else {
        left
    };
    (!left.is_zero()).then_some(Some(wait))
}

/// Waits for a condition; `None`: as long as it takes.
pub(crate) fn wait_for<'a, T>(
    condition: &Condvar,
    guard: MutexGuard<'a, T>,
    wait: Option<Duration>,
) -> MutexGuard<'a, T> {
    match wait {
        None => condition
            .wait(guard)
            .unwrap_or_else(PoisonError::into_inner),
        Some(wait) => match condition.wait_timeout(guard, wait) {
            Ok((guard, _)) => guard,
            Err(error) => error.into_inner().0,
        },
    }
}
