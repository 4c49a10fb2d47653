//! Calls that wait until others wake them: CompareExchange for a record, PopFirst for any.
//!
//! A waiting call holds a place among the waiting calls of the server, a signal that reaches it
//! wherever it runs, and no thread. It enters the list of what it waits for before it looks, and
//! whoever tells it takes it out: so it knows at the end of its look whether it was told meanwhile.

use crate::actions::{CallClock, Wakeups};
use crate::call::Shared;
use crate::limits::{TKRZW_RETRY_MS, TKRZW_WAIT_S_MAX};
use crate::status::{Code, Status};
use crate::tkrzw_state::{WaitTicket, WaitTopic};
use crate::waiting::WaitingPlace;

/// A call that waits, or looks whether it must.
#[derive(Debug)]
pub(super) struct Waiter {
    ticket: WaitTicket,
    deadline_ns: u64,
    is_asleep: bool,
    /// Held as long as the call lives.
    _place: WaitingPlace,
}

/// The status of a call that would hold up the end of the server.
#[cold]
pub(super) fn stopping() -> Status {
    Status::new(Code::Unavailable, "the server is stopping")
}

impl Waiter {
    /// Lets a call wait for so many seconds; `None`: it does not want to.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if too many wait already.
    pub(super) fn enter(
        topic: WaitTopic,
        seconds: f64,
        shared: &Shared,
        actions: &mut (impl Wakeups + CallClock),
    ) -> Result<Option<Waiter>, Status> {
        if seconds.is_nan() || seconds <= 0.0 {
            return Ok(None);
        }
        let place = shared.waiting.enter(actions.caller())?;
        let signal = shared.store.signal();
        actions.watch(signal.news());
        // A conversion to an integer is bounded by its type.
        let wait_ns = (seconds.min(TKRZW_WAIT_S_MAX) * 1e9) as u64;
        Ok(Some(Waiter {
            ticket: shared.settings.tkrzw.state.waiting.enter(topic, signal),
            deadline_ns: actions.now_ns().saturating_add(wait_ns),
            is_asleep: false,
            _place: place,
        }))
    }

    /// The call has looked in vain. Returns whether it sleeps now; if not, its time is over.
    ///
    /// # Errors
    /// UNAVAILABLE if the server is stopping.
    pub(super) fn sleep(
        &mut self,
        shared: &Shared,
        actions: &mut (impl Wakeups + CallClock),
    ) -> Result<bool, Status> {
        if shared.health.is_stopping() {
            return Err(stopping());
        }
        let now_ns = actions.now_ns();
        if now_ns >= self.deadline_ns {
            return Ok(false);
        }
        // If it was told while it looked, perhaps of what came behind its look, it looks again at
        // once.
        let look_ns = match self.ticket.is_listed() {
            true => now_ns + TKRZW_RETRY_MS * 1_000_000,
            false => now_ns,
        };
        actions.wake_at_ns(look_ns.min(self.deadline_ns));
        self.is_asleep = true;
        Ok(true)
    }

    /// The call was woken. Returns whether it is to look again: not while it looks already.
    pub(super) fn wake(&mut self) -> bool {
        let was_asleep = std::mem::take(&mut self.is_asleep);
        if was_asleep {
            self.ticket.listen();
        }
        was_asleep
    }
}
