//! The turn of a loop, whatever carries the bytes: serve who is ready, let the handler tick, settle
//! who was touched.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::buffers::SpareBuffers;
use crate::counters::CounterCells;
use crate::handler::{Closed, ConnectionId, Handler, Peer};
use crate::io::Io;
use crate::limits::TICK_INPUT_BYTES;
use crate::port::{Interest, Port, Readiness, TransferError};
use crate::table::{ConnectionTable, SocketRead, TableConnection};
use crate::tls::{TlsFailure, TlsFailureKind};

mod ahead;
mod handshakes;
mod secure;
mod settle;
mod stop;
mod timers;

pub(crate) use secure::Security;
use stop::StopPhase;

/// One loop's connections and handler, driven by calls: no clock, no waiting.
pub(crate) struct LoopCore<P: Port> {
    port: P,
    handler: Box<dyn Handler>,
    table: ConnectionTable<P::Socket>,
    /// Who has a turn due, first come first served. What one tick has no time for stays in front.
    queue: VecDeque<ConnectionId>,
    /// Who has used up a turn and goes on, behind those in `queue`: who brings more than a turn's
    /// work at once waits for those who bring less (RFC 8290 section 4.2, "new" and "old" queues).
    unfinished: VecDeque<ConnectionId>,
    /// Connections in a lingering close, by deadline.
    lingering: VecDeque<(u64, ConnectionId)>,
    stall_check_ns: u64,
    write_stall_ns: u64,
    drain_ns: u64,
    security: Security,
    phase: StopPhase,
    cut_off: Option<usize>,
    counters: Arc<CounterCells>,
}

impl<P: Port> LoopCore<P> {
    pub(crate) fn new(
        port: P,
        handler: Box<dyn Handler>,
        counters: Arc<CounterCells>,
        security: Security,
        write_stall_ms: u64,
        drain_ms: u64,
    ) -> LoopCore<P> {
        LoopCore {
            port,
            handler,
            table: ConnectionTable::new(SpareBuffers::new(counters.clone())),
            queue: VecDeque::new(),
            unfinished: VecDeque::new(),
            lingering: VecDeque::new(),
            stall_check_ns: 0,
            write_stall_ns: write_stall_ms.saturating_mul(1_000_000),
            drain_ns: drain_ms.saturating_mul(1_000_000),
            security,
            phase: StopPhase::Running,
            cut_off: None,
            counters,
        }
    }

    pub(crate) fn port(&self) -> &P {
        &self.port
    }

    pub(crate) fn port_mut(&mut self) -> &mut P {
        &mut self.port
    }

    /// Takes in a new connection, unless it is dead already. A tick has to follow.
    pub(crate) fn open(
        &mut self,
        socket: P::Socket,
        peer: &Peer,
        now_ns: u64,
    ) -> Option<ConnectionId> {
        let Ok(secure) = self.security.secure(peer) else {
            // No random numbers, or no memory: as if there were no such listener.
            self.port.close(socket);
            self.counters.closed.add(1);
            return None;
        };
        let is_secure = secure.is_some();
        let connection = TableConnection::new(socket, secure, peer);
        let interest = connection.interest();
        let id = self.table.insert(connection);
        self.counters.opened.add(1);
        let over_address_limit = peer.is_over_address_limit();
        let over_limit = peer.over_limit && !over_address_limit;
        self.counters.refused.add(u64::from(over_limit));
        (self.counters.refused_by_address).add(u64::from(over_address_limit));
        let registered = self.table.get(id).is_some_and(|connection| {
            let registered = self.port.register(connection.socket(), id, interest);
            registered.is_ok()
        });
        if !registered {
            self.remove(id);
            return None;
        }
        if is_secure {
            self.begin_handshake(id, peer, now_ns);
            return Some(id);
        }
        self.call(id, |handler, io| handler.opened(id, peer, io, now_ns));
        if let Some((connection, buffers)) = self.table.with_buffers(id) {
            // A burst of newcomers with nothing to send yet shares one buffer.
            buffers.settle_output(connection.io_mut());
        }
        Some(id)
    }

    /// The port reports something of a connection; it gets a turn in the next tick.
    pub(crate) fn ready(&mut self, id: ConnectionId, readiness: Readiness) {
        let Some(connection) = self.table.get(id) else {
            return;
        };
        connection.note_input(readiness);
        if readiness.writable && self.table.unblock(id) {
            self.table.touch(id);
        }
        if readiness.readable || readiness.hung_up {
            self.enqueue(id);
        }
    }

    /// One turn of the loop.
    pub(crate) fn tick(&mut self, now_ns: u64) {
        self.counters.ticks.add(1);
        self.serve_queue(now_ns);
        self.serve_handshakes(now_ns);
        self.pass_deadlines(now_ns);
        self.handler.tick(&mut self.table, now_ns);
        self.go_on_stopping(now_ns);
        let touched = self.table.take_touched();
        for &id in &touched {
            self.settle(id, now_ns);
        }
        self.table.reuse_touched(touched);
        self.end_if_empty();
        debug_assert!(self.table.adds_up(), "who waits for a peer is counted");
        self.counters.connections.set(self.table.len() as u64);
        let pooled = self.table.buffers_pooled() as u64;
        self.counters.buffers_pooled.set(pooled);
    }

    /// Whether a tick is due without anything being reported.
    pub(crate) fn has_work(&self) -> bool {
        let has_turns = !self.queue.is_empty() || !self.unfinished.is_empty();
        has_turns || self.security.handshakes.has_turn() || self.table.has_touched()
    }

    fn enqueue(&mut self, id: ConnectionId) {
        if let Some(connection) = self.table.get(id)
            && connection.enqueue()
        {
            match connection.is_handshaking() {
                true => self.security.handshakes.bytes_came(id),
                false if connection.io().is_unfinished() => self.unfinished.push_back(id),
                false => self.queue.push_back(id),
            }
        }
    }

    /// One turn for each connection that stands in the queues now, as long as the tick's input
    /// allowance lasts. One of those that go on has its turn in any case.
    fn serve_queue(&mut self, now_ns: u64) {
        let allowance = self.serve_some(|core| &mut core.queue, (0, TICK_INPUT_BYTES), now_ns);
        self.serve_some(|core| &mut core.unfinished, (1, allowance), now_ns);
        let turns_left = self.queue.len() + self.unfinished.len();
        self.counters.turns_left.set(turns_left as u64);
    }

    /// One turn for each connection that stands in a queue now, as long as the allowance lasts;
    /// `least` of them have theirs in any case. Returns what is left of the allowance.
    fn serve_some(
        &mut self,
        queue: impl Fn(&mut Self) -> &mut VecDeque<ConnectionId>,
        (least, mut allowance): (usize, usize),
        now_ns: u64,
    ) -> usize {
        for index in 0..queue(self).len() {
            if allowance == 0 && index >= least {
                break;
            }
            let Some(id) = queue(self).pop_front() else {
                break;
            };
            allowance = allowance.saturating_sub(self.turn(id, now_ns));
        }
        allowance
    }

    /// One connection's turn. Returns how many bytes the handler consumed, or took as long as.
    fn turn(&mut self, id: ConnectionId, now_ns: u64) -> usize {
        let Some(connection) = self.table.get(id) else {
            return 0;
        };
        let readable = connection.begin_turn();
        if connection.is_handshaking() && self.security.handshakes.is_crowded_out(id) {
            self.fail(id, &TlsFailure::new(TlsFailureKind::CrowdedOut), now_ns);
            return 0;
        }
        if connection.is_lingering() {
            self.discard_input(id);
            return 0;
        }
        if connection.is_over() {
            // Nobody is there to take an answer, and nothing more will be read.
            self.close(id, Closed::ByPeer, now_ns);
            return 0;
        }
        if connection.take_writable_due() {
            self.call(id, |handler, io| handler.writable(id, io, now_ns));
        }
        let Some(connection) = self.table.get(id) else {
            return 0;
        };
        if connection.io().is_unfinished() {
            if connection.is_held_back() {
                return 0; // settled when the peer makes room
            }
            return self.receive_more(id, now_ns);
        }
        if let Some(read) = connection.take_read_ahead() {
            self.take_in(id, Some(read), now_ns)
        } else if readable && connection.may_read() {
            self.read_once(id, now_ns)
        } else {
            0
        }
    }

    fn read_once(&mut self, id: ConnectionId, now_ns: u64) -> usize {
        let read = self.read(id, |port, socket, room| port.receive(socket, room));
        self.take_in(id, read, now_ns)
    }

    /// What was read goes to the handler.
    fn take_in(&mut self, id: ConnectionId, read: Option<SocketRead>, now_ns: u64) -> usize {
        match read {
            None => 0,
            Some(SocketRead::Input) if self.table.is_secure(id) => self.open_records(id, now_ns),
            Some(SocketRead::Input) => self.receive_more(id, now_ns),
            Some(SocketRead::Broken) => {
                self.close(id, Closed::ByPeer, now_ns);
                0
            }
        }
    }

    /// Reads once into the connection's input. `None`: nothing came, or there is no room.
    fn read(
        &mut self,
        id: ConnectionId,
        receive: impl FnOnce(&mut P, &P::Socket, &mut [u8]) -> Result<usize, TransferError>,
    ) -> Option<SocketRead> {
        let (connection, buffers) = self.table.with_buffers(id)?;
        let (port, counters) = (&mut self.port, &self.counters);
        let received = connection.receive(buffers, |socket, room| {
            counters.reads.add(1);
            receive(port, socket, room)
        });
        match received? {
            Ok(count) => {
                counters.bytes_in.add(count as u64);
                Some(SocketRead::Input)
            }
            Err(TransferError::NotReady) => None,
            Err(TransferError::Broken) => Some(SocketRead::Broken),
        }
    }

    /// Shows the handler its input, and takes back the buffer that it does not need for the rest.
    fn receive_more(&mut self, id: ConnectionId, now_ns: u64) -> usize {
        let mut consumed_bytes = 0;
        self.call(id, |handler, io| {
            let shown_bytes = io.input.len();
            io.set_unfinished(false);
            handler.received(id, io, now_ns);
            consumed_bytes = (shown_bytes - io.input.len()).max(io.take_turn_cost());
        });
        if let Some((connection, buffers)) = self.table.with_buffers(id) {
            buffers.settle_input(&mut connection.io_mut().input);
        }
        consumed_bytes
    }

    fn call(&mut self, id: ConnectionId, call: impl FnOnce(&mut dyn Handler, &mut Io)) {
        if let Some(io) = self.table.hand_out(id) {
            call(&mut *self.handler, io);
        }
    }

    /// Forgets a connection and closes its socket.
    fn remove(&mut self, id: ConnectionId) {
        if let Some(connection) = self.table.remove(id) {
            if connection.is_handshaking() {
                self.security.handshakes.end(id);
            }
            connection.close(|socket| self.port.close(socket));
            self.counters.closed.add(1);
        }
    }

    fn watch(&mut self, id: ConnectionId, interest: Interest) {
        if let Some(connection) = self.table.get(id)
            && connection.change_interest(interest)
        {
            self.port.watch(connection.socket(), id, interest);
        }
    }
}
