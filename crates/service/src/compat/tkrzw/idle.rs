//! Ends streams and iterators whose callers have left them.

use crate::actions::{CallClock, Responses, Wakeups};
use crate::limits::TKRZW_IDLE_MS;
use crate::status::{Code, Status};

/// Whether something has come within a time. Reads no clock when something comes: so a stream that
/// is left ends after one to two times of [`TKRZW_IDLE_MS`].
#[derive(Debug)]
pub(super) struct IdleTimer {
    has_moved: bool,
    at_ns: u64,
}

impl IdleTimer {
    /// Begins the first time.
    pub(super) fn started(actions: &mut (impl Wakeups + CallClock)) -> IdleTimer {
        let mut timer = IdleTimer {
            has_moved: false,
            at_ns: 0,
        };
        timer.begin(actions);
        timer
    }

    fn begin(&mut self, actions: &mut (impl Wakeups + CallClock)) {
        self.has_moved = false;
        self.at_ns = actions.now_ns().saturating_add(TKRZW_IDLE_MS * 1_000_000);
        actions.wake_at_ns(self.at_ns);
    }

    /// Something has come.
    #[inline]
    pub(super) fn note(&mut self) {
        self.has_moved = true;
    }

    /// The call was woken: ends it if nothing has come since it was last looked.
    pub(super) fn woken(&mut self, actions: &mut (impl Responses + Wakeups + CallClock)) {
        if actions.now_ns() < self.at_ns {
            return;
        }
        match self.has_moved {
            true => self.begin(actions),
            false => actions.finish(left()),
        }
    }
}

#[cold]
fn left() -> Status {
    let seconds = TKRZW_IDLE_MS / 1_000;
    Status::new(
        Code::Unavailable,
        format!("no message has come for {seconds} s (TKRZW_IDLE_MS); open it anew"),
    )
}
