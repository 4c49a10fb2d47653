//! What a loop does once in every tick, beside the calls that came in.

use drive::Io;
use service::{Code, Status};
use store::Outcomes;

use crate::calls::CallId;
use crate::connection::Channel;
use crate::core::Core;
use crate::timers::Alarm;

impl Core {
    /// Runs the committer over the writes of this tick.
    pub(crate) fn commit(&mut self, outcomes: &mut Outcomes) {
        let garbage = self
            .committer
            .run(&mut self.batch.writes, &mut self.clock, outcomes);
        self.reaper.take(garbage);
    }

    /// The calls that wait for a change of health, if there was one since this was asked last.
    pub(crate) fn subscribers_to_wake(&mut self) -> Vec<CallId> {
        let version = self.shared.health.version();
        if version == self.health_version {
            return Vec::new();
        }
        self.health_version = version;
        self.calls.subscribers().collect()
    }

    pub(crate) fn deadline_passed(&mut self, channel: &mut Channel, io: &mut Io, id: CallId) {
        self.end(
            channel,
            io,
            id,
            Status::new(
                Code::DeadlineExceeded,
                "the deadline of the call has passed",
            ),
        );
    }

    /// Whether a call still wants to be woken now: it may have asked for a later time since. Takes the wish.
    pub(crate) fn take_wish(&mut self, id: CallId, now_ns: u64) -> bool {
        let Some(running) = self.calls.get_mut(id) else {
            return false;
        };
        let stands = running.wake_at_ns <= now_ns;
        if stands {
            running.wake_at_ns = u64::MAX;
        }
        stands
    }

    /// Gives calls that outlived the tick in which they began an alarm for their deadline.
    pub(crate) fn end_tick(&mut self) {
        self.figures.set(self.connections, self.calls.len());
        for id in self.fresh.drain(..) {
            if let Some(running) = self.calls.get_mut(id) {
                self.timers.set(running.deadline_ns, Alarm::Deadline(id));
            }
        }
    }

    pub(crate) fn next_deadline_ns(&self) -> Option<u64> {
        if self.batch.has_work() {
            return Some(0);
        }
        [self.timers.next_ns(), self.drain_deadline_ns()]
            .into_iter()
            .flatten()
            .min()
    }
}
