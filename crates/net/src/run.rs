//! How a run of loops begins for each of them, and how it ends.

use std::io;
use std::sync::Arc;

use crate::handler::Waker;
use crate::spread::CountersReader;

/// What may be in the way where the system gives no thread, in words.
pub const THREAD_LIMITS: &str = "`ulimit -u`, TasksMax= of systemd, `pids.max` of the control \
                                 group, kernel.threads-max, and memory";

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
pub struct RunEnd {
    /// Every handler had drained before the deadline, and nobody asked to stop at once.
    pub drained: bool,
    /// Somebody asked to stop a second time, so that nobody was waited for any more.
    pub hurried: bool,
    /// When somebody asked to stop, on the clock of [`monotonic_ns`](crate::monotonic_ns); `None`:
    /// nobody did.
    pub asked_ns: Option<u64>,
}

/// Why loops could not run, or not to the end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// No handler for the signals could be installed.
    #[error("cannot handle signals: {0}")]
    Signals(#[source] io::Error),
    /// A thread could not be started.
    #[error("cannot start a thread: {0}; what limits threads: {THREAD_LIMITS}")]
    Thread(#[source] io::Error),
    /// A loop failed in the kernel; the others were stopped.
    #[error("event loop {index} failed: {error}")]
    Loop {
        /// Which loop.
        index: usize,
        /// What the kernel says.
        #[source]
        error: io::Error,
    },
    /// A handler panicked; the other loops were stopped.
    #[error("event loop {index} panicked")]
    Panicked {
        /// Which loop.
        index: usize,
    },
}
