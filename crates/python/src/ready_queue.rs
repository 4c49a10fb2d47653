//! What has happened, for one thread of Python that serves all of it.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

use pyo3::prelude::*;

use crate::channel::lock;
use crate::presence::detached;
use crate::waiting::{next_wait, until, wait_for};

/// Names of calls that have ended. However many end while the thread is busy, it is woken once.
#[pyclass(frozen, module = "pelton_grpc._native")]
pub(crate) struct ReadyQueue {
    state: Arc<ReadyState>,
}

/// What wakers push to. It holds no more names than there are calls.
#[derive(Default)]
pub(crate) struct ReadyState {
    names: Mutex<ReadyNames>,
    arrived: Condvar,
}

#[derive(Default)]
struct ReadyNames {
    names: Vec<u64>,
    is_closed: bool,
    is_waited_for: bool,
}

impl ReadyState {
    pub(crate) fn push(&self, name: u64) {
        let mut names = lock(&self.names);
        names.names.push(name);
        // Woken once for all that comes before it has looked.
        if std::mem::take(&mut names.is_waited_for) {
            self.arrived.notify_one();
        }
    }

    fn take(&self, until: Option<Instant>) -> Option<Vec<u64>> {
        let mut names = lock(&self.names);
        loop {
            if !names.names.is_empty() {
                return Some(std::mem::take(&mut names.names));
            }
            if names.is_closed {
                return None;
            }
            let Some(wait) = next_wait(until, false) else {
                return Some(Vec::new());
            };
            names.is_waited_for = true;
            names = wait_for(&self.arrived, names, wait);
        }
    }
}

impl ReadyQueue {
    pub(crate) fn state(&self) -> &Arc<ReadyState> {
        &self.state
    }
}

#[pymethods]
impl ReadyQueue {
    #[new]
    fn new() -> ReadyQueue {
        ReadyQueue {
            state: Arc::default(),
        }
    }

    /// Waits for names, and returns all that have come; after `timeout_s` an empty list, and `None`
    /// when the queue was closed or the interpreter ends.
    #[pyo3(signature = (timeout_s=None))]
    fn take(&self, py: Python<'_>, timeout_s: Option<f64>) -> Option<Vec<u64>> {
        let until = until(timeout_s);
        detached(py, || self.state.take(until)).flatten()
    }

    /// Ends the wait of its thread.
    fn close(&self) {
        lock(&self.state.names).is_closed = true;
        self.state.arrived.notify_all();
    }
}
