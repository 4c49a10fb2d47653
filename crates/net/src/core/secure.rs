//! TLS within the turn of a loop: handshakes, what is bounded of them, and how sessions fail.

use std::collections::VecDeque;
use std::sync::Arc;

use super::LoopCore;
use crate::Address;
use crate::handler::{Closed, ConnectionId, Peer};
use crate::limits::{
    HANDSHAKE_BYTES, HANDSHAKE_COST_BYTES, HANDSHAKE_MS, HANDSHAKES_PER_LOOP, LINGER_MS,
};
use crate::notice::{Notice, Notices, Silent};
use crate::port::Port;
use crate::secure::Secure;
use crate::table::ConnectionStage;
use crate::tls::{ClientTls, FailureKind, ServerTls, TlsFailure};

/// Which connections of a loop get TLS, and the handshakes that are under way.
pub(crate) struct Security {
    /// By the index of the listener; what is beyond is plain.
    listeners: Vec<Option<ServerTls>>,
    /// For connections that this side opens. Only in simulations so far.
    outgoing: Option<(ClientTls, Address)>,
    /// By the time at which they must be done; with some that are.
    handshakes: VecDeque<(u64, ConnectionId)>,
    /// Those that are not done.
    under_way: usize,
    notices: Arc<dyn Notices>,
}

impl Security {
    pub(crate) fn new(listeners: Vec<Option<ServerTls>>, notices: Arc<dyn Notices>) -> Security {
        Security {
            listeners,
            outgoing: None,
            handshakes: VecDeque::new(),
            under_way: 0,
            notices,
        }
    }

    pub(crate) fn none() -> Security {
        Security::new(Vec::new(), Arc::new(Silent))
    }

    pub(crate) fn simulated(
        accept: Option<ServerTls>,
        connect: Option<(ClientTls, Address)>,
    ) -> Security {
        Security {
            outgoing: connect,
            ..Security::new(vec![accept], Arc::new(Silent))
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

    /// A handshake is no longer under way.
    pub(super) fn handshake_ended(&mut self) {
        self.under_way -= 1;
        if self.under_way == 0 {
            self.handshakes.clear();
        }
    }

    /// When the next handshake must be done.
    pub(super) fn deadline_ns(&self) -> Option<u64> {
        self.handshakes.front().map(|&(at_ns, _)| at_ns)
    }
}

impl<P: Port> LoopCore<P> {
    /// A connection with TLS was taken in.
    pub(super) fn begin_handshake(&mut self, id: ConnectionId, now_ns: u64) {
        let deadline_ns = now_ns + HANDSHAKE_MS * 1_000_000;
        self.security.handshakes.push_back((deadline_ns, id));
        self.security.under_way += 1;
        if self.security.under_way > HANDSHAKES_PER_LOOP {
            self.crowd_out(now_ns);
        }
        if self.security.handshakes.len() > 2 * HANDSHAKES_PER_LOOP {
            // Those that are done have become most of the list.
            let table = &mut self.table;
            let is_under_way = |&(_, id): &(u64, ConnectionId)| table.is_handshaking(id);
            self.security.handshakes.retain(is_under_way);
        }
        // Who opened the connection has the first word.
        self.open_records(id, now_ns);
    }

    /// Closes the handshake that has been under way for longest.
    fn crowd_out(&mut self, now_ns: u64) {
        while let Some((_, id)) = self.security.handshakes.pop_front() {
            if self.table.is_handshaking(id) {
                return self.fail(id, &TlsFailure::new(FailureKind::CrowdedOut), now_ns);
            }
        }
    }

    pub(super) fn pass_handshake_deadlines(&mut self, now_ns: u64) {
        while let Some(&(at_ns, id)) = self.security.handshakes.front()
            && at_ns <= now_ns
        {
            self.security.handshakes.pop_front();
            if self.table.is_handshaking(id) {
                self.fail(id, &TlsFailure::new(FailureKind::TimedOut), now_ns);
            }
        }
    }

    /// Opens the records that came, and shows the handler what is in them. The answer is what it
    /// counts for in the tick.
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
            Ok(()) if was_handshaking && !opened.is_agreed => self.bound_handshake(id, now_ns),
            Ok(()) => {
                if was_handshaking {
                    self.finish_handshake(id, now_ns);
                }
                if opened.has_news {
                    return self.receive_more(id, now_ns);
                }
            }
        }
        if was_handshaking {
            HANDSHAKE_COST_BYTES
        } else {
            0
        }
    }

    /// The handshake goes on, unless the peer has gone or has said too much.
    fn bound_handshake(&mut self, id: ConnectionId, now_ns: u64) {
        let Some(connection) = self.table.get(id) else {
            return;
        };
        let handshake_bytes = connection.secure().map_or(0, Secure::handshake_bytes);
        if connection.io().end_of_input() {
            self.fail(id, &TlsFailure::new(FailureKind::Ended), now_ns);
        } else if handshake_bytes > HANDSHAKE_BYTES {
            self.fail(id, &TlsFailure::new(FailureKind::TooLarge), now_ns);
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
        self.security.handshake_ended();
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
        if failure.kind != FailureKind::Ended || secure.handshake_bytes() > 0 {
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
            (ConnectionStage::Handshaking, FailureKind::TimedOut | FailureKind::CrowdedOut) => {
                return self.remove(id);
            }
            (ConnectionStage::Handshaking, _) => self.security.handshake_ended(),
            (ConnectionStage::Lingering { .. }, _) => return,
        }
        self.linger(id, now_ns + LINGER_MS * 1_000_000);
    }
}
