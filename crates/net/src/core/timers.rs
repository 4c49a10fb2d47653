//! Deadlines of the loop itself: lingering sockets and peers that take nothing.

use super::LoopCore;
use crate::handler::{Closed, ConnectionId};
use crate::limits::STOP_STALL_MS;
use crate::port::Port;

/// How often waiting connections are looked through, as a part of the stall limit: a stalled
/// peer is closed at most this much late.
const STALL_CHECKS_PER_LIMIT: u64 = 8;

impl<P: Port> LoopCore<P> {
    /// When a tick is due though nothing is reported. `None`: never.
    pub(crate) fn next_deadline_ns(&self) -> Option<u64> {
        [
            self.handler.next_deadline_ns(),
            self.lingering.front().map(|&(until_ns, _)| until_ns),
            (self.table.blocked() > 0).then_some(self.stall_check_ns),
            self.stop_deadline_ns(),
            self.security.handshakes.deadline_ns(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    pub(super) fn pass_deadlines(&mut self, now_ns: u64) {
        while let Some(&(until_ns, id)) = self.lingering.front()
            && until_ns <= now_ns
        {
            self.lingering.pop_front();
            self.remove(id);
        }
        self.pass_handshake_deadlines(now_ns);
        if self.table.blocked() > 0 && self.stall_check_ns <= now_ns {
            self.close_stalled(now_ns);
            self.stall_check_ns = now_ns + self.stall_check_period_ns();
        }
    }

    pub(super) fn linger_until(&mut self, until_ns: u64, id: ConnectionId) {
        // Deadlines come in order, except when stopping shortens them: then the entry goes before
        // the longer ones.
        let after = self
            .lingering
            .partition_point(|&(other_ns, _)| other_ns <= until_ns);
        self.lingering.insert(after, (until_ns, id));
    }

    /// A connection began to wait for its peer.
    pub(super) fn expect_stall_check(&mut self, now_ns: u64) {
        if self.table.blocked() == 1 {
            self.stall_check_ns = now_ns + self.stall_check_period_ns();
        }
    }

    /// The limit has changed: whoever is stalled by it is closed in the next tick.
    pub(super) fn check_stalls_at_once(&mut self, now_ns: u64) {
        self.stall_check_ns = now_ns;
    }

    fn stall_check_period_ns(&self) -> u64 {
        (self.stall_limit_ns() / STALL_CHECKS_PER_LIMIT).max(1_000_000)
    }

    /// How long a peer may take nothing of what waits for it.
    fn stall_limit_ns(&self) -> u64 {
        match self.is_flushing() {
            true => self.write_stall_ns.min(STOP_STALL_MS * 1_000_000),
            false => self.write_stall_ns,
        }
    }

    fn close_stalled(&mut self, now_ns: u64) {
        for id in self.table.stalled(now_ns, self.stall_limit_ns()) {
            self.counters.stalled.add(1);
            self.close(id, Closed::Stalled, now_ns);
        }
    }
}
