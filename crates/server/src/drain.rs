//! The end of a loop's work: peers are told, what runs ends with a status.

use net::Io;

use crate::admission;
use crate::calls::CallId;
use crate::connection::{ConnectionState, Protocol};
use crate::limits;
use crate::loop_state::LoopState;

/// A loop that drains.
pub(crate) struct Drain {
    /// Calls that wait for their peer then are ended.
    idle_until_ns: u64,
    idle_time_is_over: bool,
    /// All calls that still run then are ended.
    last_call_ns: u64,
}

impl LoopState {
    /// From now on nothing new begins.
    pub(crate) fn begin_drain(&mut self, now_ns: u64) {
        let drain_ms = self.settings.drain_ms;
        let idle_ms = limits::DRAIN_IDLE_MS.min(drain_ms / 2);
        let last_call_ms = drain_ms - limits::LAST_CALL_MS.min(drain_ms / 4);
        self.drain = Some(Drain {
            idle_until_ns: now_ns + idle_ms * 1_000_000,
            idle_time_is_over: false,
            last_call_ns: now_ns.saturating_add(last_call_ms.saturating_mul(1_000_000)),
        });
        self.shared.health.stop();
    }

    pub(crate) fn drain_connection(
        &mut self,
        channel: &mut ConnectionState,
        io: &mut Io,
        now_ns: u64,
    ) {
        match &mut channel.protocol {
            Protocol::Http2(connection) => {
                connection.drain(&mut io.output, now_ns);
                self.after_walk(channel, io, now_ns);
            }
            Protocol::Undecided | Protocol::Over => io.close_when_written(),
        }
    }

    /// Whether peers have had the time that a drain gives them.
    pub(crate) fn idle_time_is_over(&self) -> bool {
        self.drain
            .as_ref()
            .is_some_and(|drain| drain.idle_time_is_over)
    }

    /// The calls that a drain has to look at: once when its patience ends, and all from the last
    /// call on.
    pub(crate) fn overstayed(&mut self, now_ns: u64) -> Vec<CallId> {
        let Some(drain) = &mut self.drain else {
            return Vec::new();
        };
        let idle_time_ends = now_ns >= drain.idle_until_ns && !drain.idle_time_is_over;
        drain.idle_time_is_over |= idle_time_ends;
        if idle_time_ends || now_ns >= drain.last_call_ns {
            self.calls.ids().collect()
        } else {
            Vec::new()
        }
    }

    /// Whether the rest of an answer is on its way to a peer that goes on taking it: a large answer
    /// is not cut off because its call has ended.
    pub(crate) fn is_sending(&self, channel: &ConnectionState) -> bool {
        let now_ns = self.clock.tick_ns();
        let is_in_time = |drain: &Drain| now_ns < drain.last_call_ns;
        let timeout_ns = limits::DRAIN_IDLE_MS * 1_000_000;
        (channel.holding.changed_ns())
            .is_some_and(|changed_ns| now_ns.saturating_sub(changed_ns) < timeout_ns)
            && self.drain.as_ref().is_some_and(is_in_time)
    }

    /// When something is to be done about the drain. Its patience ends also for peers without
    /// calls.
    pub(crate) fn drain_deadline_ns(&self) -> Option<u64> {
        let drain = self.drain.as_ref()?;
        if !drain.idle_time_is_over {
            return Some(drain.idle_until_ns);
        }
        if self.calls.len() > 0 {
            return Some(drain.last_call_ns);
        }
        // Nothing else may tell that a peer has stopped to take its answer.
        Some(self.clock.tick_ns() + limits::DRAIN_IDLE_MS * 1_000_000)
    }

    /// Ends a call that waits for its peer or for an event, and from the last call on any call.
    pub(crate) fn end_for_stop(&mut self, channel: &mut ConnectionState, io: &mut Io, id: CallId) {
        let now_ns = self.clock.tick_ns();
        let last_call = self
            .drain
            .as_ref()
            .is_some_and(|drain| now_ns >= drain.last_call_ns);
        if last_call || self.only_waits(channel, id) {
            let status = match self.calls.get_mut(id) {
                Some(running) if running.commits > 0 => admission::stopped_in_commit(),
                _ => admission::stopping(),
            };
            self.end(channel, io, id, status);
        }
    }

    /// Whether it is not this server's turn to do something for the call.
    fn only_waits(&mut self, channel: &ConnectionState, id: CallId) -> bool {
        let Some(running) = self.calls.get_mut(id) else {
            return false;
        };
        let Protocol::Http2(connection) = &channel.protocol else {
            return true;
        };
        running.subscribed || connection.waits_for_peer(running.stream)
    }
}
