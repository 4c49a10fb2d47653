//! The end of connections whose certificate is not trusted any more.

use net::{ConnectionId, Connections};
use service::identities::Unauthenticated;

use super::LoopHandler;
use crate::limits;

/// Where a loop is in the walk over its connections that finds them, which goes on in later ticks.
#[derive(Default)]
pub(super) struct TrustWalk {
    /// The slot to look at next; `None`: all were looked at.
    next: Option<usize>,
}

impl TrustWalk {
    /// Has all slots from this one on looked at, beside those that are still to be.
    pub fn begin_at(&mut self, slot: usize) {
        self.next = Some(self.next.map_or(slot, |next| next.min(slot)));
    }

    /// Returns whether slots are still to be looked at.
    pub fn is_under_way(&self) -> bool {
        self.next.is_some()
    }
}

impl LoopHandler {
    /// Ends connections whose certificate is of an authority that was taken away, as many as there
    /// is time for in a tick: their calls, and then themselves.
    #[inline]
    pub(super) fn end_distrusted(&mut self, connections: &mut dyn Connections, now_ns: u64) {
        if self.trust_walk.is_under_way() {
            self.walk_distrusted(connections, now_ns);
        }
    }

    #[cold]
    fn walk_distrusted(&mut self, connections: &mut dyn Connections, now_ns: u64) {
        let now_ms = self.state.now_ms();
        let mut checks = 0;
        for slot in self.trust_walk.next.take().unwrap_or_default()..self.slots.len() {
            let Some(state) = self.slots[slot].as_mut() else {
                continue;
            };
            let Some(identity) = state.link_mut().identity.to_check() else {
                continue;
            };
            if checks == limits::CERTIFICATE_CHECKS_PER_TICK {
                self.trust_walk.begin_at(slot);
                return;
            }
            checks += 1;
            if !identity.is_trusted(now_ms) {
                let id = state.link().id;
                self.end_calls_of(connections, id);
                self.drain_slot(connections, slot, now_ns);
            }
        }
    }

    fn end_calls_of(&mut self, connections: &mut dyn Connections, id: ConnectionId) {
        for call in self.state.calls.of_connection(id) {
            self.with_call(connections, call, |state, http2, io, call| {
                state.end_unauthenticated(http2, io, call, Unauthenticated::CertificateNotTrusted);
            });
        }
        let http2 = LoopHandler::http2_of(&mut self.slots, id);
        if let (Some(http2), Some(io)) = (http2, connections.io(id)) {
            http2.refresh_pause();
            (self.state.calls).cut_off_all_unsent(http2, &mut io.output);
            self.state.after_step(http2, io);
        }
    }
}
