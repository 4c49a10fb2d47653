//! A call that is refused, and whose refusal waits for its time.

use crate::actions::{RequestFlow, Responses, Wakeups};
use crate::call::{CallSteps, PlanReads, Shared};
use crate::status::Status;

/// A call that is refused later. What its caller sends meanwhile stays where flow control leaves
/// it.
pub struct DelayedRefusal {
    /// `None`: it has ended.
    status: Option<Box<Status>>,
}

impl DelayedRefusal {
    /// Has a call end with `status` at a time on the clock of
    /// [`CallClock::now_ns`](crate::actions::CallClock::now_ns).
    pub fn started(
        status: Status,
        at_ns: u64,
        actions: &mut (impl RequestFlow + Wakeups),
    ) -> DelayedRefusal {
        actions.hold();
        actions.wake_at_ns(at_ns);
        DelayedRefusal {
            status: Some(Box::new(status)),
        }
    }
}

impl PlanReads for DelayedRefusal {}

impl<A: Responses> CallSteps<A> for DelayedRefusal {
    fn message(&mut self, _bytes: &[u8], _last: bool, _shared: &Shared, _actions: &mut A) {}

    fn half_closed(&mut self, _shared: &Shared, _actions: &mut A) {}

    fn woken(&mut self, _shared: &Shared, actions: &mut A) {
        if let Some(status) = self.status.take() {
            actions.finish(*status);
        }
    }
}
