//! The end of a loop's work: peers are told, what runs ends with a status.

use net::Io;

use super::LoopState;
use crate::admission;
use crate::call_id::CallId;
use crate::connection::{ConnectionState, RpcState};
use crate::drain::Drain;

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
            ConnectionState::Rpc(rpc) => {
                rpc.connection.drain(&mut io.output, now_ns);
                let is_held_back = self.is_held_back(rpc.link.id);
                self.after_walk(rpc, io, is_held_back, now_ns);
            }
            ConnectionState::Undecided(_) | ConnectionState::Over(_) => io.close_when_written(),
        }
    }

    /// Whether peers have had the time that a drain gives them.
    pub(super) fn idle_time_is_over(&self) -> bool {
        self.drain.as_ref().is_some_and(Drain::idle_time_is_over)
    }

    /// Returns whether a drain has to look at calls and connections now: when the idle time ends,
    /// as often as peers may have stopped to take their answers since, and always from the last
    /// call on.
    pub(super) fn is_look_due(&mut self, now_ns: u64) -> bool {
        (self.drain.as_mut()).is_some_and(|drain| drain.is_due(now_ns))
    }

    /// Returns whether the peer of a connection has taken nothing for so long that a drain does not
    /// wait for it. Of another one is noted when that may be so.
    pub(super) fn is_stalled(&mut self, state: &ConnectionState, now_ns: u64) -> bool {
        let Some(drain) = &mut self.drain else {
            return false;
        };
        let holding = &state.link().holding;
        let is_stalled = drain.is_stalled(holding.taken_ns(), now_ns);
        if !is_stalled && holding.unsent_bytes() > 0 {
            drain.note_taken(holding.taken_ns());
        }
        is_stalled
    }

    /// Whether the rest of an answer is on its way to a peer that goes on taking it: a large answer
    /// is not cut off because its call has ended.
    pub(super) fn is_sending(&self, state: &ConnectionState) -> bool {
        let now_ns = self.context.clock.tick_ns();
        let holding = &state.link().holding;
        let is_waited_for = |drain: &Drain| {
            !drain.is_past_last_call(now_ns) && !drain.is_stalled(holding.taken_ns(), now_ns)
        };
        holding.unsent_bytes() > 0 && self.drain.as_ref().is_some_and(is_waited_for)
    }

    /// When something is to be done about the drain.
    pub(super) fn drain_deadline_ns(&self) -> Option<u64> {
        let drain = self.drain.as_ref()?;
        let has_calls = self.calls.len() > 0;
        Some(drain.deadline_ns(has_calls))
    }

    /// Ends a call that waits for more of its request or for an event, one that waits for a peer
    /// that is stalled, and from the last call on any call.
    pub(super) fn end_for_stop(
        &mut self,
        rpc: &mut RpcState,
        io: &mut Io,
        id: CallId,
        is_stalled: bool,
    ) {
        let now_ns = self.context.clock.tick_ns();
        let is_past = |drain: &Drain| drain.is_past_last_call(now_ns);
        let is_last_call = self.drain.as_ref().is_some_and(is_past);
        let is_cut_off = is_stalled && self.calls.awaits_taking(rpc, id);
        if !(is_last_call || is_cut_off || self.calls.is_idle(rpc, id)) {
            return;
        }
        let status = match self.calls.has_commits(id) {
            true => admission::stopped_in_commit(),
            false => admission::stopping(),
        };
        if is_cut_off && let Some(stream) = self.calls.stream(id) {
            // The status would wait behind it.
            rpc.connection.drop_unsent(stream);
        }
        self.end(rpc, io, id, status);
    }

    /// Cuts off the answers of calls that have ended, as their peer takes nothing.
    pub(super) fn cut_off_stalled(&mut self, state: &mut ConnectionState, io: &mut Io) {
        if let Some(rpc) = state.rpc()
            && !rpc.unsent_answers.is_empty()
        {
            rpc.refresh_pause();
            self.calls.cut_off_stalled(rpc, &mut io.output);
            self.after_step(rpc, io);
        }
    }
}
