//! The pool's own thread: waits in the kernel for futures, and does what is due by time.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, Thread};
use std::time::Duration;

use super::SharedState;
use super::sync::lock;
use crate::limits;

/// Starts the thread, which ends when the pool is closed.
pub(super) fn start(shared: Arc<SharedState>) -> io::Result<Thread> {
    let thread = thread::Builder::new().name("pelton-pool".into());
    let started = thread.spawn(move || run(&shared))?;
    Ok(started.thread().clone())
}

fn run(shared: &SharedState) {
    loop {
        let is_closing = shared.is_closing.load(Ordering::SeqCst);
        if is_closing && shared.combiner.acquire().0.is_closed() {
            return;
        }
        if shared.seat.try_take() {
            poll_for_futures(shared);
            if !shared.seat.leave() && shared.needs_reactor() {
                continue;
            }
        }
        sleep(shared);
    }
}

/// With the seat: polls while there are futures, or once without waiting.
fn poll_for_futures(shared: &SharedState) {
    let mut poller = lock(&shared.poller);
    loop {
        let needs_me = shared.needs_reactor();
        let longest_ns = match needs_me {
            true => limits::SHARED_LONGEST_SLEEP.as_nanos() as u64,
            false => 0,
        };
        shared.poll(&mut poller, None, longest_ns);
        let is_closing = shared.is_closing.load(Ordering::SeqCst);
        if !shared.needs_reactor() || (is_closing && shared.combiner.acquire().0.is_closed()) {
            return;
        }
    }
}

/// Sleeps until somebody needs this thread, or something is due.
fn sleep(shared: &SharedState) {
    let due_ns = shared.combiner.acquire().0.next_deadline_ns();
    shared.serve_if_submitted(None);
    let left_ns = due_ns.map_or(u64::MAX, |due_ns| {
        due_ns.saturating_sub(net::monotonic_ns())
    });
    // A deadline that has passed is for whoever has the seat, which may take a moment.
    let left = Duration::from_nanos(left_ns).max(Duration::from_millis(1));
    thread::park_timeout(left.min(limits::SHARED_LONGEST_SLEEP));
}
