//! The pool's own thread: waits in the kernel for futures, and does what is due by time.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, Thread};
use std::time::Duration;

use super::SharedState;
use super::driver::PoolDriver;
use super::sync::lock;
use crate::limits;

/// Starts the thread, which ends when the pool is closed.
pub(super) fn start(shared: Arc<SharedState>) -> io::Result<Thread> {
    let thread = thread::Builder::new().name("pelton-pool".into());
    let started = thread.spawn(move || run(&shared))?;
    Ok(started.thread().clone())
}

fn run(shared: &SharedState) {
    let mut pause = limits::SHARED_FIRST_UNATTENDED;
    let mut has_paused = false;
    loop {
        let is_closing = shared.is_closing.load(Ordering::SeqCst);
        if is_closing && shared.with_driver(None, PoolDriver::is_closed) {
            return;
        }
        if shared.leadership.try_acquire() {
            poll_for_futures(shared);
            if !shared.leadership.release() && shared.needs_reactor() {
                continue;
            }
        }
        if has_paused {
            pause = match has_unattended(shared) {
                true => (2 * pause).min(limits::SHARED_LONGEST_UNATTENDED),
                false => limits::SHARED_FIRST_UNATTENDED,
            };
        }
        if !has_paused && shared.with_driver(None, PoolDriver::has_unsent) {
            // A connection that is made anew, because it was due.
            shared.is_unattended.store(true, Ordering::SeqCst);
        }
        has_paused = shared.is_unattended.load(Ordering::SeqCst);
        match has_paused {
            // Whoever has submitted it may be about to wait for it, and then needs no other thread.
            true => thread::park_timeout(pause),
            false => sleep(shared),
        }
    }
}

/// Returns whether something is under way for which nobody may wait, after a poll.
fn has_unattended(shared: &SharedState) -> bool {
    // Cleared first: what is submitted from here on sets it again.
    shared.is_unattended.store(false, Ordering::SeqCst);
    let has_unsent = shared.with_driver(None, PoolDriver::has_unsent);
    if has_unsent {
        shared.is_unattended.store(true, Ordering::SeqCst);
    }
    has_unsent
}

/// As the leader: polls while there are futures or the pool is idle, or once without waiting.
///
/// Whoever begins a call in an idle pool ends its idleness, and so becomes the leader. That costs a
/// hand-over; but an idle pool has to learn of servers that leave.
fn poll_for_futures(shared: &SharedState) {
    let mut poller = lock(&shared.poller);
    loop {
        let longest_ns = if shared.needs_reactor() {
            limits::SHARED_LONGEST_SLEEP.as_nanos() as u64
        } else if is_idle(shared) {
            u64::MAX
        } else {
            0
        };
        shared.poll(&mut poller, None, longest_ns);
        let is_closing = shared.is_closing.load(Ordering::SeqCst);
        let is_needed = shared.needs_reactor() || is_idle(shared);
        if !is_needed || (is_closing && shared.with_driver(None, PoolDriver::is_closed)) {
            return;
        }
    }
}

fn is_idle(shared: &SharedState) -> bool {
    shared.with_driver(None, PoolDriver::is_idle)
}

/// Sleeps until somebody needs this thread, or something is due.
fn sleep(shared: &SharedState) {
    let due_ns = shared.with_driver(None, PoolDriver::next_deadline_ns);
    let Some(due_ns) = due_ns else {
        return thread::park();
    };
    let left = Duration::from_nanos(due_ns.saturating_sub(net::monotonic_ns()));
    // A deadline that has passed is for the leader, which may take a moment.
    thread::park_timeout(left.max(Duration::from_millis(1)));
}
