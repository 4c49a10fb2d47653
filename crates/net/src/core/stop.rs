//! Stopping: drain, flush, close.

use super::Core;
use crate::handler::{Closed, ConnectionId};
use crate::limits::{STOP_FLUSH_LEAST_MS, STOP_FLUSH_MS, STOP_LINGER_MS};
use crate::port::Port;
use crate::table::State;

/// How far a loop is on its way to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Running,
    /// The handler finishes what runs.
    Draining {
        until_ns: u64,
    },
    /// Nothing runs any more; the peers take the rest of the output and say goodbye.
    Flushing {
        until_ns: u64,
    },
    Ended,
}

impl<P: Port> Core<P> {
    /// Asks the handler to drain. A tick has to follow.
    pub(crate) fn stop(&mut self, now_ns: u64) {
        if self.phase == Phase::Running {
            self.phase = Phase::Draining {
                until_ns: now_ns.saturating_add(self.drain_ns),
            };
            self.end_handshakes();
            self.handler.stop(&mut self.table, now_ns);
        }
    }

    /// Nothing was answered: the peers may safely try elsewhere.
    fn end_handshakes(&mut self) {
        for id in self.all() {
            if self.table.is_handshaking(id) {
                self.remove(id);
            }
        }
    }

    /// Closes everything at once.
    pub(crate) fn stop_now(&mut self, now_ns: u64) {
        self.phase = Phase::Ended;
        for id in self.all() {
            match self
                .table
                .slots
                .get_mut(id)
                .map(|connection| connection.state)
            {
                Some(State::Open) => self.close(id, Closed::Stopped, now_ns),
                _ => self.remove(id),
            }
        }
    }

    /// How many connections were cut because the handler did not drain in time; `None`: it did.
    pub(crate) fn cut_off(&self) -> Option<usize> {
        self.cut_off
    }

    /// Whether the loop has nothing left to do for ever.
    pub(crate) fn has_ended(&self) -> bool {
        self.phase == Phase::Ended
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.phase != Phase::Running
    }

    pub(super) fn stop_deadline_ns(&self) -> Option<u64> {
        match self.phase {
            Phase::Draining { until_ns } | Phase::Flushing { until_ns } => Some(until_ns),
            Phase::Running | Phase::Ended => None,
        }
    }

    /// Within a tick, after the handler's: one step further if it is time.
    pub(super) fn go_on_stopping(&mut self, now_ns: u64) {
        match self.phase {
            Phase::Draining { until_ns } => {
                let drained = self.handler.is_drained();
                if !drained && now_ns >= until_ns {
                    self.cut_off = Some(self.table.slots.len());
                }
                if drained || now_ns >= until_ns {
                    self.flush_all(until_ns, now_ns);
                }
            }
            Phase::Flushing { until_ns } if now_ns >= until_ns => self.stop_now(now_ns),
            _ => {}
        }
    }

    /// At the end of a tick: the last connection may be gone.
    pub(super) fn end_if_empty(&mut self) {
        if matches!(self.phase, Phase::Flushing { .. }) && self.table.slots.len() == 0 {
            self.phase = Phase::Ended;
        }
    }

    /// Has all connections end when their output is written. That counts for the time of the drain,
    /// but for a little that each stop has: whoever asks for a stop waits for both.
    fn flush_all(&mut self, drained_until_ns: u64, now_ns: u64) {
        let least_ns = now_ns + STOP_FLUSH_LEAST_MS * 1_000_000;
        let most_ns = now_ns + STOP_FLUSH_MS * 1_000_000;
        self.phase = Phase::Flushing {
            until_ns: drained_until_ns.clamp(least_ns, most_ns),
        };
        for id in self.all() {
            if let Some(connection) = self.table.hand_out(id) {
                connection.io.close_when_written();
            }
        }
        let linger_until_ns = now_ns + STOP_LINGER_MS * 1_000_000;
        for (until_ns, _) in &mut self.lingering {
            *until_ns = linger_until_ns.min(*until_ns);
        }
    }

    fn all(&self) -> Vec<ConnectionId> {
        self.table.slots.iter().map(|(id, _)| id).collect()
    }
}
