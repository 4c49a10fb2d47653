//! How a thread of Python waits for something that a waker reports.

use std::sync::{Arc, Condvar, Mutex};
use std::task::{Wake, Waker};
use std::time::Instant;

use pyo3::prelude::*;

use crate::presence::{Signals, detached, is_main_thread};
use crate::ready_queue::{ReadyQueue, ReadyState};
use crate::sync::{lock, next_wait, until, wait_for};

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
            false => {
                let own = queue.state();
                let is_known = |(queue, other): &(Arc<ReadyState>, u64)| {
                    *other == name && Arc::ptr_eq(queue, own)
                };
                if !state.queues.iter().any(is_known) {
                    state.queues.push((Arc::clone(own), name));
                }
            }
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
        let mut signals = is_main_thread(py).then(Signals::new);
        let happened = detached(py, || self.wait_detached(until, signals.as_mut()));
        signals.map_or(Ok(()), Signals::check)?;
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
