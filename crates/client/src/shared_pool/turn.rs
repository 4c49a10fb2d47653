//! Who is to be woken when a turn is over.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;
use std::thread::Thread;

use net::OutgoingWaker;

use super::protocol::CallPhase;
use crate::error::{CallError, NotBegun};

/// Who is to be woken when what it waits for has happened.
#[derive(Debug)]
pub(super) enum TurnWaiter {
    Thread(Thread),
    Task(Waker),
}

impl TurnWaiter {
    pub(super) fn wake(self) {
        match self {
            TurnWaiter::Thread(thread) => thread.unpark(),
            TurnWaiter::Task(waker) => wake_task(waker),
        }
    }
}

thread_local! {
    /// This thread is in a waker, and may be the one that waits in the kernel for all.
    static IN_WAKER: Cell<bool> = const { Cell::new(false) };
}

/// Wakes a task, by code that is not ours: if it panics, the pool goes on for all others. What it
/// panicked with was reported by the panic hook.
fn wake_task(waker: Waker) {
    let was_in_waker = IN_WAKER.try_with(|is| is.replace(true));
    let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
    let _ = IN_WAKER.try_with(|is| is.set(was_in_waker.unwrap_or(false)));
}

/// Refuses to wait for a call in a waker: nobody might work for it.
pub(super) fn check_may_wait() -> Result<(), CallError> {
    match IN_WAKER.try_with(Cell::get) {
        Ok(true) => Err(CallError::NotBegun(NotBegun::InWaker)),
        Ok(false) | Err(_) => Ok(()),
    }
}

/// The call that a combining thread waits for itself, and who is to be woken when it has unlocked
/// the combiner.
pub(super) struct DriverTurn<'a> {
    pub(super) own: Option<&'a CallPhase>,
    pub(super) woken: Vec<TurnWaiter>,
}

impl DriverTurn<'_> {
    /// What `phase` waits for has happened: `waiter` is woken, and the thread in the kernel.
    pub(super) fn complete(
        &mut self,
        phase: &CallPhase,
        waiter: Option<TurnWaiter>,
        waker: &OutgoingWaker,
    ) {
        let is_polling = phase.finish();
        if self.own.is_some_and(|own| std::ptr::eq(own, phase)) {
            return;
        }
        if is_polling {
            waker.wake();
        }
        self.woken.extend(waiter);
    }
}
