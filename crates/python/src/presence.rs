//! Threads that are in here without the lock of the interpreter, its end, and forks.
//!
//! A thread that comes back when the interpreter has ended would be ended in the midst of Rust
//! code; so the end waits for those inside, whose calls it has ended before, and lets no others in.
//! After a fork the child has none of the threads and shares the sockets, so it must not touch what
//! it has inherited: each object knows in which process it was made.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use crate::limits;

static IS_EXITING: AtomicBool = AtomicBool::new(false);
static INSIDE: AtomicUsize = AtomicUsize::new(0);
/// Forks on the way from the process that has loaded the module to this one.
static FORKS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Whether this is the thread that signals interrupt, as of which fork.
    static IS_MAIN: Cell<Option<(u64, bool)>> = const { Cell::new(None) };
}

/// Runs something that may wait without the lock of the interpreter. `None`: the interpreter ends.
pub(crate) fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> Option<T> {
    let _inside = Inside::enter()?;
    Some(py.detach(work))
}

/// The same if a message of so many bytes makes it take long: so that others go on meanwhile.
pub(crate) fn detached_if_large<T: Send>(
    py: Python<'_>,
    bytes: usize,
    compress: bool,
    work: impl FnOnce() -> T + Send,
) -> Option<T> {
    let large = match compress {
        true => limits::LARGE_COMPRESSED_BYTES,
        false => limits::LARGE_MESSAGE_BYTES,
    };
    match bytes >= large {
        true => detached(py, work),
        false => Some(work()),
    }
}

/// A thread that is inside, as of which fork.
struct Inside(u64);

impl Inside {
    fn enter() -> Option<Inside> {
        let forks = FORKS.load(Ordering::SeqCst);
        INSIDE.fetch_add(1, Ordering::SeqCst);
        let inside = Inside(forks);
        (!is_exiting()).then_some(inside)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        // The child of a fork in the handler of a signal comes out too, and is counted nowhere.
        if self.0 == FORKS.load(Ordering::SeqCst) {
            INSIDE.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Returns whether the end of the interpreter has begun.
pub(crate) fn is_exiting() -> bool {
    IS_EXITING.load(Ordering::SeqCst)
}

/// Returns how many threads are inside.
#[pyfunction]
pub(crate) fn calls_inside() -> usize {
    INSIDE.load(Ordering::SeqCst)
}

/// Lets no further thread in, and waits until all have come out, but not longer than
/// `timeout_s`. Returns how many are left.
#[pyfunction]
pub(crate) fn shut_down(py: Python<'_>, timeout_s: f64) -> usize {
    IS_EXITING.store(true, Ordering::SeqCst);
    let longest = Duration::try_from_secs_f64(timeout_s).unwrap_or_default();
    py.detach(|| {
        let begun = Instant::now();
        while INSIDE.load(Ordering::SeqCst) > 0 && begun.elapsed() < longest {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    INSIDE.load(Ordering::SeqCst)
}

/// This process is the child of a fork.
#[pyfunction]
pub(crate) fn forked() {
    FORKS.fetch_add(1, Ordering::SeqCst);
    INSIDE.store(0, Ordering::SeqCst);
}

/// Something that only the process in which it was made may touch: in the child of a fork it is
/// neither used nor dropped, as threads that it needs are missing, and sockets are the parent's.
pub(crate) struct OfProcess<T> {
    value: Option<T>,
    forks: u64,
}

impl<T> OfProcess<T> {
    pub(crate) fn new(value: T) -> OfProcess<T> {
        OfProcess {
            value: Some(value),
            forks: FORKS.load(Ordering::SeqCst),
        }
    }

    fn is_of_this_process(&self) -> bool {
        self.forks == FORKS.load(Ordering::SeqCst)
    }

    pub(crate) fn get(&self) -> Option<&T> {
        match self.is_of_this_process() {
            true => self.value.as_ref(),
            false => None,
        }
    }
}

impl<T> OfProcess<T> {
    pub(crate) fn get_mut(&mut self) -> Option<&mut T> {
        match self.is_of_this_process() {
            true => self.value.as_mut(),
            false => None,
        }
    }
}

impl<T> Drop for OfProcess<T> {
    fn drop(&mut self) {
        if !self.is_of_this_process() {
            std::mem::forget(self.value.take());
        }
    }
}

/// Runs something that waits in a pool. `None`: a handler of a signal has forked meanwhile, and
/// this is the child.
pub(crate) fn outside_of_children<T>(work: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(done) => Some(done),
        Err(payload) if payload.is::<InChild>() => None,
        Err(payload) => resume_unwind(payload),
    }
}

/// Returns whether signals interrupt this thread.
pub(crate) fn is_main_thread(py: Python<'_>) -> bool {
    let forks = FORKS.load(Ordering::SeqCst);
    if let Some((of, is_main)) = IS_MAIN.get()
        && of == forks
    {
        return is_main;
    }
    // If it cannot be known, looking for signals does no harm.
    let is_main = ask_whether_main(py).unwrap_or(true);
    IS_MAIN.set(Some((forks, is_main)));
    is_main
}

fn ask_whether_main(py: Python<'_>) -> PyResult<bool> {
    let threading = py.import("threading")?;
    let main = threading.call_method0("main_thread")?;
    let own = threading.call_method0("current_thread")?;
    Ok(main.is(&own))
}

/// Looks for signals while a thread waits without the lock of the interpreter; the exception that
/// the handler of one has raised is kept.
pub(crate) struct Signals {
    raised: Option<PyErr>,
    forks: u64,
}

/// What a thread unwinds with that finds itself in the child of a fork.
struct InChild;

impl Signals {
    pub(crate) fn new() -> Signals {
        Signals {
            raised: None,
            forks: FORKS.load(Ordering::SeqCst),
        }
    }

    /// Returns whether to wait no longer: a handler has raised something, or has forked, and this
    /// is the child, where nothing will come.
    pub(crate) fn look(&mut self) -> bool {
        if let Err(error) = Python::attach(|py| py.check_signals()) {
            self.raised = Some(error);
        }
        self.raised.is_some() || self.is_in_child()
    }

    fn is_in_child(&self) -> bool {
        self.forks != FORKS.load(Ordering::SeqCst)
    }

    /// As [`Signals::look`] for a thread that waits in a pool, and in the child must not touch it
    /// again, not even to give up: leaves what runs in [`outside_of_children`].
    pub(crate) fn look_in_pool(&mut self) -> bool {
        let is_over = self.look();
        if self.is_in_child() {
            resume_unwind(Box::new(InChild));
        }
        is_over
    }

    /// Returns what was raised as an error.
    pub(crate) fn check(self) -> PyResult<()> {
        self.raised.map_or(Ok(()), Err)
    }
}
