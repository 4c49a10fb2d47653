//! The end of a loop's work: peers are told, what runs ends with a status.

use net::Io;

use super::LoopState;
use crate::admission;
use crate::call_id::CallId;
use crate::connection::{ConnectionState, Http2State};
use crate::drain::Drain;
use crate::limits;

impl LoopState {
    /// From now on nothing new begins.
    pub(super) fn begin_drain(&mut self, now_ns: u64) {
        self.drain = Some(Drain::new(self.context.settings.drain_ms, now_ns));
        self.shared.health.stop();
    }

    pub(super) fn drain_connection(
        &mut self,
        state: &mut ConnectionState,
        io: &mut Io,
        now_ns: u64,
    ) {
        match state {
            ConnectionState::Http2(http2) => {
                http2.connection.drain(&mut io.output, now_ns);
                let is_held_back = self.is_held_back(http2.link.id);
                self.after_walk(http2, io, is_held_back, now_ns);
            }
            ConnectionState::Undecided(_) | ConnectionState::Over(_) => io.close_when_written(),
        }
    }

    /// Whether peers have had the time that a drain gives them.
    pub(super) fn idle_time_is_over(&self) -> bool {
        self.drain.as_ref().is_some_and(Drain::idle_time_is_over)
    }

    /// The calls that a drain has to look at: once when the idle time ends, and all from the last
    /// call on.
    pub(super) fn overstayed(&mut self, now_ns: u64) -> Vec<CallId> {
        let is_due = |drain: &mut Drain| drain.is_due(now_ns);
        match self.drain.as_mut().is_some_and(is_due) {
            true => self.calls.ids().collect(),
            false => Vec::new(),
        }
    }

    /// Whether the rest of an answer is on its way to a peer that goes on taking it: a large answer
    /// is not cut off because its call has ended.
    pub(super) fn is_sending(&self, state: &ConnectionState) -> bool {
        let now_ns = self.context.clock.tick_ns();
        let is_in_time = |drain: &Drain| !drain.is_past_last_call(now_ns);
        let timeout_ns = limits::DRAIN_IDLE_MS * 1_000_000;
        (state.link().holding.changed_ns())
            .is_some_and(|changed_ns| now_ns.saturating_sub(changed_ns) < timeout_ns)
            && self.drain.as_ref().is_some_and(is_in_time)
    }

    /// When something is to be done about the drain.
    pub(super) fn drain_deadline_ns(&self) -> Option<u64> {
        let drain = self.drain.as_ref()?;
        let has_calls = self.calls.len() > 0;
        Some(drain.deadline_ns(has_calls, self.context.clock.tick_ns()))
    }

    /// Ends a call that waits for its peer or for an event, and from the last call on any call.
    pub(super) fn end_for_stop(&mut self, http2: &mut Http2State, io: &mut Io, id: CallId) {
        let now_ns = self.context.clock.tick_ns();
        let is_past = |drain: &Drain| drain.is_past_last_call(now_ns);
        let is_last_call = self.drain.as_ref().is_some_and(is_past);
        if is_last_call || self.calls.only_waits(http2, id) {
            let status = match self.calls.has_commits(id) {
                true => admission::stopped_in_commit(),
                false => admission::stopping(),
            };
            self.end(http2, io, id, status);
        }
    }
}
