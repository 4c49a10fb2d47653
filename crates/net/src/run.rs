//! How a run of loops begins for each of them, and how it ends.

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::handler::Waker;
use crate::spread::CountersReader;

/// What a handler's maker is told about the loop that the handler is for.
pub struct LoopStart {
    /// Which loop, from 0. With [`Driver::Blocking`](crate::Driver::Blocking) the number of a
    /// thread that has ended is used again.
    pub index: usize,
    /// The loop only accepts connections, and refuses some: the first one with
    /// [`Driver::Blocking`](crate::Driver::Blocking).
    pub is_door: bool,
    /// The handler serves one connection at a time, and should take one request at a time:
    /// [`Driver::Blocking`](crate::Driver::Blocking).
    pub one_connection: bool,
    /// Wakes this loop, from any thread.
    pub waker: Arc<dyn Waker>,
    /// The counters of all loops.
    pub counters: CountersReader,
    /// The time on the clock of all loops.
    pub now_ns: u64,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Every handler had drained before the deadline, and nobody asked to stop at once.
    pub drained: bool,
    /// Somebody asked to stop a second time, so that nobody was waited for any more.
    pub hurried: bool,
}

/// Why loops could not run, or not to the end.
#[derive(Debug)]
#[non_exhaustive]
pub enum RunError {
    /// No handler for the signals could be installed.
    Signals(io::Error),
    /// A thread could not be started.
    Thread(io::Error),
    /// A loop failed in the kernel; the others were stopped.
    Loop {
        /// Which loop.
        index: usize,
        /// What the kernel says.
        error: io::Error,
    },
    /// A handler panicked; the other loops were stopped.
    Panicked {
        /// Which loop.
        index: usize,
    },
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::Signals(error) => write!(f, "cannot handle signals: {error}"),
            RunError::Thread(error) => write!(f, "cannot start a thread: {error}"),
            RunError::Loop { index, error } => write!(f, "event loop {index} failed: {error}"),
            RunError::Panicked { index } => write!(f, "event loop {index} panicked"),
        }
    }
}

impl std::error::Error for RunError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            RunError::Signals(error) | RunError::Thread(error) => Some(error),
            RunError::Loop { error, .. } => Some(error),
            RunError::Panicked { .. } => None,
        }
    }
}
