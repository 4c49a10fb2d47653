//! Stopping: drain, flush, close.

use super::LoopCore;
use crate::handler::Closed;
use crate::limits::{STOP_FLUSH_LEAST_MS, STOP_FLUSH_MS, STOP_LINGER_MS};
use crate::port::Port;

/// How far a loop is on its way to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StopPhase {
    Running,
    /// The handler finishes what runs.
    Draining {
        until_ns: u64,
    },
    /// Nothing runs any more; the peers take the rest of the output, and connections linger.
    Flushing {
        until_ns: u64,
    },
    Ended,
}

impl<P: Port> LoopCore<P> {
    /// Asks the handler to drain. A tick has to follow.
    pub(crate) fn stop(&mut self, now_ns: u64) {
        if self.phase == StopPhase::Running {
            self.phase = StopPhase::Draining {
                until_ns: now_ns.saturating_add(self.drain_ns),
            };
            self.end_handshakes();
            self.handler.stop(&mut self.table, now_ns);
        }
    }

    /// Nothing was answered: the peers may safely try elsewhere.
    fn end_handshakes(&mut self) {
        for id in self.table.ids() {
            if self.table.is_handshaking(id) {
                self.remove(id);
            }
        }
    }

    /// Closes everything at once.
    pub(crate) fn stop_now(&mut self, now_ns: u64) {
        self.phase = StopPhase::Ended;
        for id in self.table.ids() {
            let connection = self.table.get(id);
            if connection.is_some_and(|connection| connection.is_open()) {
                self.close(id, Closed::Stopped, now_ns);
            } else {
                self.remove(id);
            }
        }
    }

    /// How many connections were cut because the handler did not drain in time; `None`: it did.
    pub(crate) fn cut_off(&self) -> Option<usize> {
        self.cut_off
    }

    /// Whether the loop has nothing left to do for ever.
    pub(crate) fn has_ended(&self) -> bool {
        self.phase == StopPhase::Ended
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.phase != StopPhase::Running
    }

    pub(super) fn is_flushing(&self) -> bool {
        matches!(self.phase, StopPhase::Flushing { .. })
    }

    pub(super) fn stop_deadline_ns(&self) -> Option<u64> {
        match self.phase {
            StopPhase::Draining { until_ns } | StopPhase::Flushing { until_ns } => Some(until_ns),
            StopPhase::Running | StopPhase::Ended => None,
        }
    }

    /// Within a tick, after the handler's: one step further if it is time.
    pub(super) fn go_on_stopping(&mut self, now_ns: u64) {
        match self.phase {
            StopPhase::Draining { until_ns } => {
                let drained = self.handler.is_drained();
                let is_late = now_ns >= until_ns;
                if !drained && is_late {
                    self.cut_off = Some(self.table.len());
                }
                if drained || is_late {
                    self.flush_all(until_ns, now_ns);
                }
            }
            StopPhase::Flushing { until_ns } if now_ns >= until_ns => self.stop_now(now_ns),
            _ => {}
        }
    }

    /// At the end of a tick: the last connection may be gone.
    pub(super) fn end_if_empty(&mut self) {
        if self.is_flushing() && self.table.len() == 0 {
            self.phase = StopPhase::Ended;
        }
    }

    /// Has all connections end when their output is written. That counts for the time of the drain,
    /// but for a little that each stop has: whoever asks for a stop waits for both.
    fn flush_all(&mut self, drained_until_ns: u64, now_ns: u64) {
        let least_ns = now_ns + STOP_FLUSH_LEAST_MS * 1_000_000;
        let most_ns = now_ns + STOP_FLUSH_MS * 1_000_000;
        self.phase = StopPhase::Flushing {
            until_ns: drained_until_ns.clamp(least_ns, most_ns),
        };
        self.check_stalls_at_once(now_ns);
        for id in self.table.ids() {
            if let Some(io) = self.table.hand_out(id) {
                io.close_when_written();
            }
        }
        let linger_until_ns = now_ns + STOP_LINGER_MS * 1_000_000;
        for (until_ns, _) in &mut self.lingering {
            *until_ns = linger_until_ns.min(*until_ns);
        }
    }
}
