//! TLS within the turn of a loop: handshakes, what is bounded of them, and how sessions fail.

use std::sync::Arc;

use super::LoopCore;
use super::handshakes::{HandshakeTurn, Handshakes};
use crate::Address;
use crate::handler::{Closed, ConnectionId, Peer};
use crate::limits::{
    HANDSHAKE_BYTES, HANDSHAKE_STEPS_PER_TICK, HANDSHAKE_TURNS_PER_TICK, LINGER_MS,
};
use crate::notice::{Notice, Notices, SilentNotices};
use crate::port::Port;
use crate::secure::Secure;
use crate::table::ConnectionStage;
use crate::tls::{ClientTls, ServerTls, TlsFailure, TlsFailureKind};

/// Which connections of a loop get TLS, and the handshakes that are under way.
pub(crate) struct Security {
    /// By the index of the listener; what is beyond is plain.
    listeners: Vec<Option<ServerTls>>,
    /// For connections that this side opens. Only in simulations so far.
    outgoing: Option<(ClientTls, Address)>,
    pub(super) handshakes: Handshakes,
    notices: Arc<dyn Notices>,
}

impl Security {
    pub(crate) fn new(listeners: Vec<Option<ServerTls>>, notices: Arc<dyn Notices>) -> Security {
        Security {
            listeners,
            outgoing: None,
            handshakes: Handshakes::default(),
            notices,
        }
    }

    pub(crate) fn none() -> Security {
        Security::new(Vec::new(), Arc::new(SilentNotices))
    }

    pub(crate) fn simulated(
        accept: Option<ServerTls>,
        connect: Option<(ClientTls, Address)>,
    ) -> Security {
        Security {
            outgoing: connect,
            ..Security::new(vec![accept], Arc::new(SilentNotices))
        }
    }

    /// `Ok(None)`: the connection is plain.
    pub(super) fn secure(&self, peer: &Peer) -> Result<Option<Box<Secure>>, TlsFailure> {
        let session = match &self.outgoing {
            Some((tls, address)) if peer.outgoing => tls.session(address)?,
            _ if peer.outgoing => return Ok(None),
            _ => match self.listeners.get(peer.listener) {
                Some(Some(tls)) => tls.accept()?,
                _ => return Ok(None),
            },
        };
        Ok(Some(Box::new(Secure::new(session, peer.clone()))))
    }
}

impl<P: Port> LoopCore<P> {
    /// A connection with TLS was taken in.
    pub(super) fn begin_handshake(&mut self, id: ConnectionId, peer: &Peer, now_ns: u64) {
        let (handshakes, place) = (&mut self.security.handshakes, peer.handshake.clone());
        if let Some(crowded_out) = handshakes.begin(id, &peer.address, place, now_ns) {
            let failure = TlsFailure::new(TlsFailureKind::CrowdedOut);
            self.fail(crowded_out, &failure, now_ns);
        }
        // Who opened the connection has the first word.
        self.open_records(id, now_ns);
    }

    pub(super) fn pass_handshake_deadlines(&mut self, now_ns: u64) {
        while let Some(id) = self.security.handshakes.next_overdue(now_ns) {
            self.fail(id, &TlsFailure::new(TlsFailureKind::TimedOut), now_ns);
        }
    }

    /// Handshakes have their share of the tick. What they compute is much more than what a call of
    /// an open connection does, and whoever connects can ask for it with bytes that were recorded.
    pub(super) fn serve_handshakes(&mut self, now_ns: u64) {
        let mut steps = 0;
        for _ in 0..HANDSHAKE_TURNS_PER_TICK {
            let id = match self.security.handshakes.next_turn(now_ns) {
                None => break,
                Some(HandshakeTurn::Serve(id)) => id,
                Some(HandshakeTurn::CrowdOut(id)) => {
                    self.fail(id, &TlsFailure::new(TlsFailureKind::CrowdedOut), now_ns);
                    continue;
                }
            };
            // A peer that has gone meanwhile costs no step.
            let received_bytes = self.counters.bytes_in.get();
            self.turn(id, now_ns);
            steps += usize::from(self.counters.bytes_in.get() > received_bytes);
            if steps >= HANDSHAKE_STEPS_PER_TICK {
                break;
            }
        }
        let due = self.security.handshakes.due() as u64;
        self.counters.handshakes_due.set(due);
    }

    /// Opens the records that came, and shows the handler what is in them. Returns how many bytes
    /// of that it consumed.
    pub(super) fn open_records(&mut self, id: ConnectionId, now_ns: u64) -> usize {
        let was_handshaking = self.table.is_handshaking(id);
        let Some((connection, buffers)) = self.table.with_buffers(id) else {
            return 0;
        };
        let Some(opened) = connection.open_records(buffers) else {
            return 0;
        };
        if opened.has_output {
            self.table.touch(id);
        }
        match opened.outcome {
            Err(failure) => self.fail(id, &failure, now_ns),
            Ok(()) if was_handshaking && !opened.is_agreed => {
                if opened.has_output {
                    self.security.handshakes.flight_sent(id, now_ns);
                }
                self.bound_handshake(id, now_ns);
            }
            Ok(()) => {
                if was_handshaking {
                    self.finish_handshake(id, now_ns);
                }
                if opened.has_news {
                    return self.receive_more(id, now_ns);
                }
            }
        }
        0
    }

    /// The handshake goes on, unless the peer has gone or has said too much.
    fn bound_handshake(&mut self, id: ConnectionId, now_ns: u64) {
        let Some(connection) = self.table.get(id) else {
            return;
        };
        let handshake_bytes = connection.secure().map_or(0, Secure::handshake_bytes);
        if connection.io().end_of_input() {
            self.fail(id, &TlsFailure::new(TlsFailureKind::Ended), now_ns);
        } else if handshake_bytes > HANDSHAKE_BYTES {
            self.fail(id, &TlsFailure::new(TlsFailureKind::TooLarge), now_ns);
        }
    }

    /// The two sides have agreed: the handler sees the connection.
    fn finish_handshake(&mut self, id: ConnectionId, now_ns: u64) {
        let connection = self.table.get(id);
        let Some(peer) = connection.and_then(|connection| connection.finish_handshake()) else {
            return;
        };
        let is_resumed = peer.tls.as_ref().is_some_and(|agreed| agreed.resumed);
        self.counters.handshakes.add(1);
        self.counters.resumed.add(u64::from(is_resumed));
        self.security.handshakes.end(id);
        self.call(id, |handler, io| handler.opened(id, &peer, io, now_ns));
    }

    /// Ends a session by a fault. The peer is told why, as far as it takes it at once.
    pub(super) fn fail(&mut self, id: ConnectionId, failure: &TlsFailure, now_ns: u64) {
        let Some(connection) = self.table.get(id) else {
            return;
        };
        let Some(secure) = connection.secure() else {
            return;
        };
        self.counters.count_failure(failure.kind);
        // A peer that only looks whether somebody listens sends nothing and goes.
        if failure.kind != TlsFailureKind::Ended || secure.handshake_bytes() > 0 {
            self.security.notices.notice(&Notice::TlsFailed {
                peer: secure.address(),
                failure: failure.clone(),
            });
        }
        if !connection.is_blocked() && !secure.outgoing().is_empty() {
            self.counters.writes.add(1);
            let _ = self.port.send(connection.socket(), secure.outgoing());
        }
        match (connection.stage(), failure.kind) {
            (ConnectionStage::Open, _) => self.handler.closed(id, Closed::ByPeer, now_ns),
            (
                ConnectionStage::Handshaking,
                TlsFailureKind::TimedOut | TlsFailureKind::CrowdedOut,
            ) => {
                return self.remove(id);
            }
            (ConnectionStage::Handshaking, _) => self.security.handshakes.end(id),
            (ConnectionStage::Lingering { .. }, _) => return,
        }
        self.linger(id, now_ns + LINGER_MS * 1_000_000);
    }
}
