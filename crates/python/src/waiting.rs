//! How a thread of Python waits for something that a waker reports.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use crate::channel::lock;
use crate::limits;
use crate::presence::{Signals, detached, is_main_thread};
use crate::ready_queue::{ReadyQueue, ReadyState};

/// Whether something has happened, and who waits for that.
#[derive(Default)]
pub(crate) struct Event {
    state: Mutex<EventState>,
    happened: Condvar,
}

#[derive(Default)]
struct EventState {
    has_happened: bool,
    /// Queues that are told, each with the name of what has happened.
    queues: Vec<(Arc<ReadyState>, u64)>,
}

impl Wake for Event {
    fn wake(self: Arc<Self>) {
        let mut state = lock(&self.state);
        state.has_happened = true;
        let queues = std::mem::take(&mut state.queues);
        drop(state);
        self.happened.notify_all();
        for (queue, name) in queues {
            queue.push(name);
        }
    }
}

impl Event {
    pub(crate) fn waker(self: &Arc<Self>) -> Waker {
        Waker::from(Arc::clone(self))
    }

    pub(crate) fn has_happened(&self) -> bool {
        lock(&self.state).has_happened
    }

    /// Tells a queue when it happens; at once if it has.
    pub(crate) fn notify(&self, queue: &ReadyQueue, name: u64) {
        let mut state = lock(&self.state);
        match state.has_happened {
            true => {
                drop(state);
                queue.state().push(name);
            }
            false => state.queues.push((Arc::clone(queue.state()), name)),
        }
    }

    /// Waits until it has happened, without the lock of the interpreter. Returns whether it has,
    /// which is `false` after `timeout_s`, and when the interpreter ends.
    ///
    /// # Errors
    /// What the handler of a signal has raised.
    pub(crate) fn wait(&self, py: Python<'_>, timeout_s: Option<f64>) -> PyResult<bool> {
        if self.has_happened() {
            return Ok(true);
        }
        let until = until(timeout_s);
        let mut signals = is_main_thread(py).then(Signals::default);
        let happened = detached(py, || self.wait_detached(until, signals.as_mut()));
        signals.unwrap_or_default().check()?;
        Ok(happened.unwrap_or(false))
    }

    fn wait_detached(&self, until: Option<Instant>, mut signals: Option<&mut Signals>) -> bool {
        let mut state = lock(&self.state);
        while !state.has_happened {
            let Some(wait) = next_wait(until, signals.is_some()) else {
                return false;
            };
            state = wait_for(&self.happened, state, wait);
            if let Some(signals) = &mut signals
                && !state.has_happened
            {
                drop(state);
                if signals.look() {
                    return false;
                }
                state = lock(&self.state);
            }
        }
        true
    }
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
