//! What has happened, for one thread or event loop of Python that serves all of it.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Wake, Waker};
use std::time::Instant;

use pyo3::prelude::*;

use crate::presence::detached;
use crate::sync::{lock, next_wait, until, wait_for};

/// Names of what has happened. However much happens while its thread is busy, it is woken once.
#[pyclass(frozen, module = "pelton_grpc._native")]
pub(crate) struct ReadyQueue {
    state: Arc<ReadyState>,
    /// For an event loop: readable while there are names.
    readable: Option<UnixStream>,
}

/// What wakers push to. Each name is of something that is waited for, which bounds them.
#[derive(Default)]
pub(crate) struct ReadyState {
    names: Mutex<ReadyNames>,
    arrived: Condvar,
    /// The other end of what is readable.
    signal: Option<UnixStream>,
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
        if !std::mem::take(&mut names.is_waited_for) {
            return;
        }
        drop(names);
        match &self.signal {
            None => self.arrived.notify_one(),
            // There is room for one byte: the one before was read.
            Some(signal) => {
                let mut signal: &UnixStream = signal;
                let _ = signal.write(&[0]);
            }
        }
    }

    /// Returns what pushes a name when it is woken.
    pub(crate) fn waker(self: &Arc<Self>, name: u64) -> Waker {
        let queue = Arc::clone(self);
        Waker::from(Arc::new(NamedWaker { queue, name }))
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

struct NamedWaker {
    queue: Arc<ReadyState>,
    name: u64,
}

impl Wake for NamedWaker {
    fn wake(self: Arc<Self>) {
        self.queue.push(self.name);
    }
}

impl ReadyQueue {
    pub(crate) fn state(&self) -> &Arc<ReadyState> {
        &self.state
    }
}

#[pymethods]
impl ReadyQueue {
    /// A queue for a thread, or, if it `is_polled`, for an event loop that waits for its
    /// descriptor.
    #[new]
    #[pyo3(signature = (is_polled=false))]
    fn new(is_polled: bool) -> PyResult<ReadyQueue> {
        if !is_polled {
            return Ok(ReadyQueue {
                state: Arc::default(),
                readable: None,
            });
        }
        let (readable, signal) = UnixStream::pair()?;
        readable.set_nonblocking(true)?;
        signal.set_nonblocking(true)?;
        let state = ReadyState {
            signal: Some(signal),
            ..ReadyState::default()
        };
        lock(&state.names).is_waited_for = true;
        Ok(ReadyQueue {
            state: Arc::new(state),
            readable: Some(readable),
        })
    }

    /// Returns the descriptor that an event loop waits for.
    fn fileno(&self) -> Option<i32> {
        self.readable.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Returns all names that have come, when the descriptor is readable.
    fn take_polled(&self) -> Vec<u64> {
        if let Some(mut readable) = self.readable.as_ref() {
            // One byte at most: nothing is written before the names were taken.
            let _ = readable.read(&mut [0; 8]);
        }
        let mut names = lock(&self.state.names);
        names.is_waited_for = true;
        std::mem::take(&mut names.names)
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
