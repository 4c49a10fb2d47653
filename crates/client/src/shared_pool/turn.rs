//! Who is to be woken when a turn is over.

use std::task::Waker;
use std::thread::Thread;

use net::OutgoingWaker;

use super::protocol::CallPhase;

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
            TurnWaiter::Task(waker) => waker.wake(),
        }
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
