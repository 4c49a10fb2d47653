//! The turn of a loop, whatever carries the bytes: serve who is ready, let the handler tick, settle
//! who was touched.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::buffers::{Buffers, FIRST_READ_SIZE, LAST_READ_SIZE};
use crate::counters::CounterCells;
use crate::handler::{Closed, ConnectionId, Handler, Peer};
use crate::limits::{INPUT_BUFFER_BYTES, TICK_INPUT_BYTES};
use crate::port::{Interest, Port, Readiness, TransferError};
use crate::table::{Connection, ReadAhead, State, Table};

mod ahead;
mod secure;
mod settle;
mod stop;
mod timers;

pub(crate) use secure::Security;
use stop::Phase;

/// One loop's connections and handler, driven by calls: no clock, no waiting.
pub(crate) struct Core<P: Port> {
    pub(crate) port: P,
    handler: Box<dyn Handler>,
    table: Table<P::Socket>,
    /// Who has a turn due, first come first served. What one tick has no time for stays in front.
    queue: VecDeque<ConnectionId>,
    /// Who only waits for its peer's goodbye, by deadline.
    lingering: VecDeque<(u64, ConnectionId)>,
    /// Connections whose peer has to make room first.
    blocked: usize,
    stall_check_ns: u64,
    write_stall_ns: u64,
    drain_ns: u64,
    security: Security,
    phase: Phase,
    cut_off: Option<usize>,
    counters: Arc<CounterCells>,
}

impl<P: Port> Core<P> {
    pub(crate) fn new(
        port: P,
        handler: Box<dyn Handler>,
        counters: Arc<CounterCells>,
        security: Security,
        write_stall_ms: u64,
        drain_ms: u64,
    ) -> Core<P> {
        Core {
            port,
            handler,
            table: Table::new(Buffers::new(counters.clone())),
            queue: VecDeque::new(),
            lingering: VecDeque::new(),
            blocked: 0,
            stall_check_ns: 0,
            write_stall_ns: write_stall_ms.saturating_mul(1_000_000),
            drain_ns: drain_ms.saturating_mul(1_000_000),
            security,
            phase: Phase::Running,
            cut_off: None,
            counters,
        }
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
        let mut connection = Connection::new(socket, secure, peer.outgoing, now_ns);
        connection.place.clone_from(&peer.place);
        let interest = connection.interest;
        let id = self.table.slots.insert(connection);
        self.counters.opened.add(1);
        let over_address_limit = peer.is_over_address_limit();
        let over_limit = peer.over_limit && !over_address_limit;
        self.counters.refused.add(u64::from(over_limit));
        (self.counters.refused_by_address).add(u64::from(over_address_limit));
        let connection = self.table.slots.get_mut(id).expect("inserted above");
        if self
            .port
            .register(&connection.socket, id, interest)
            .is_err()
        {
            self.remove(id);
            return None;
        }
        if is_secure {
            self.begin_handshake(id, now_ns);
            return Some(id);
        }
        self.call(id, |handler, connection| {
            handler.opened(id, peer, &mut connection.io, now_ns);
        });
        if let Some(connection) = self.table.slots.get_mut(id) {
            // A burst of newcomers with nothing to say yet shares one buffer.
            self.table.buffers.settle_output(&mut connection.io);
        }
        Some(id)
    }

    /// The port reports something of a connection; it gets a turn in the next tick.
    pub(crate) fn ready(&mut self, id: ConnectionId, readiness: Readiness) {
        let Some(connection) = self.table.slots.get_mut(id) else {
            return;
        };
        connection.readable |= readiness.readable;
        connection.hung_up |= readiness.hung_up;
        if readiness.writable && connection.blocked {
            connection.blocked = false;
            self.blocked -= 1;
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
        self.pass_deadlines(now_ns);
        self.handler.tick(&mut self.table, now_ns);
        self.go_on_stopping(now_ns);
        let mut touched = std::mem::take(&mut self.table.touched);
        for &id in &touched {
            self.settle(id, now_ns);
        }
        touched.clear();
        debug_assert!(
            self.table.touched.is_empty(),
            "settling touches nobody else"
        );
        self.table.touched = touched;
        self.end_if_empty();
        debug_assert_eq!(
            self.blocked,
            (self.table.slots.iter())
                .filter(|(_, connection)| connection.blocked)
                .count(),
            "the count of connections that wait for their peers adds up"
        );
        self.counters.connections.set(self.table.slots.len() as u64);
        self.counters
            .buffers_pooled
            .set(self.table.buffers.pooled() as u64);
    }

    /// Whether a tick is due without anything being reported.
    pub(crate) fn has_work(&self) -> bool {
        !self.queue.is_empty() || !self.table.touched.is_empty()
    }

    fn enqueue(&mut self, id: ConnectionId) {
        if let Some(connection) = self.table.slots.get_mut(id)
            && !connection.queued
        {
            connection.queued = true;
            self.queue.push_back(id);
        }
    }

    /// One turn for each connection that stands in the queue now, as long as the tick's input
    /// allowance lasts.
    fn serve_queue(&mut self, now_ns: u64) {
        let mut allowance = TICK_INPUT_BYTES;
        for _ in 0..self.queue.len() {
            if allowance == 0 {
                break;
            }
            let Some(id) = self.queue.pop_front() else {
                break;
            };
            allowance = allowance.saturating_sub(self.turn(id, now_ns));
        }
    }

    /// One connection's turn. The answer is how many bytes the handler consumed.
    fn turn(&mut self, id: ConnectionId, now_ns: u64) -> usize {
        let Some(connection) = self.table.slots.get_mut(id) else {
            return 0;
        };
        connection.queued = false;
        let readable = std::mem::take(&mut connection.readable);
        if matches!(connection.state, State::Lingering { .. }) {
            self.discard_input(id);
            return 0;
        }
        if connection.hung_up && !connection.may_read() {
            // Nobody is there to take an answer, and nothing more will be read.
            self.close(id, Closed::ByPeer, now_ns);
            return 0;
        }
        if std::mem::take(&mut connection.writable_due) {
            self.call(id, |handler, connection| {
                handler.writable(id, &mut connection.io, now_ns);
            });
        }
        let Some(connection) = self.table.slots.get_mut(id) else {
            return 0;
        };
        if connection.io.is_unfinished() {
            if connection.choked || connection.io.is_closing() {
                return 0; // settled when the peer makes room
            }
            return self.receive_more(id, now_ns);
        }
        if let Some(read) = connection.read_ahead.take() {
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
    fn take_in(&mut self, id: ConnectionId, read: Option<ReadAhead>, now_ns: u64) -> usize {
        match read {
            None => 0,
            Some(ReadAhead::Input) if self.table.is_secure(id) => self.open_records(id, now_ns),
            Some(ReadAhead::Input) => self.receive_more(id, now_ns),
            Some(ReadAhead::Broken) => {
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
    ) -> Option<ReadAhead> {
        let connection = self.table.slots.get_mut(id)?;
        let most_bytes = connection.input_room();
        let input = match &mut connection.secure {
            Some(secure) => &mut secure.incoming,
            None => &mut connection.io.input,
        };
        if most_bytes == 0 || !self.table.buffers.make_room(input, connection.read_size) {
            return None;
        }
        let room = input.room();
        let most_bytes = most_bytes.min(room.len());
        let room = &mut room[..most_bytes];
        let room_bytes = room.len();
        self.counters.reads.add(1);
        match receive(&mut self.port, &connection.socket, room) {
            Ok(0) => connection.io.set_end_of_input(),
            Ok(count) => {
                self.counters.bytes_in.add(count as u64);
                input.filled(count);
                if let Some(secure) = &mut connection.secure {
                    secure.handshake_bytes = secure.handshake_bytes.saturating_add(count);
                }
                connection.read_size = next_read_size(connection.read_size, count, room_bytes);
            }
            Err(TransferError::NotReady) => {
                self.table.buffers.settle_input(input);
                return None;
            }
            Err(TransferError::Broken) => return Some(ReadAhead::Broken),
        }
        Some(ReadAhead::Input)
    }

    /// Shows the handler its input, and takes back the buffer that it does not need for the rest.
    fn receive_more(&mut self, id: ConnectionId, now_ns: u64) -> usize {
        let mut consumed_bytes = 0;
        self.call(id, |handler, connection| {
            let shown_bytes = connection.io.input.len();
            connection.io.set_unfinished(false);
            handler.received(id, &mut connection.io, now_ns);
            consumed_bytes = shown_bytes - connection.io.input.len();
        });
        if let Some(connection) = self.table.slots.get_mut(id) {
            self.table.buffers.settle_input(&mut connection.io.input);
        }
        consumed_bytes
    }

    fn call(
        &mut self,
        id: ConnectionId,
        call: impl FnOnce(&mut dyn Handler, &mut Connection<P::Socket>),
    ) {
        if let Some(connection) = self.table.hand_out(id) {
            call(&mut *self.handler, connection);
        }
    }

    /// Forgets a connection and closes its socket.
    fn remove(&mut self, id: ConnectionId) {
        if let Some(mut connection) = self.table.slots.remove(id) {
            self.blocked -= usize::from(connection.blocked);
            if connection.state == State::Handshaking {
                self.security.handshake_ended();
            }
            self.table.take_back(&mut connection);
            self.port.close(connection.socket);
            self.counters.closed.add(1);
        }
    }

    fn watch(&mut self, id: ConnectionId, interest: Interest) {
        if let Some(connection) = self.table.slots.get_mut(id)
            && connection.interest != interest
        {
            connection.interest = interest;
            self.port.watch(&connection.socket, id, interest);
        }
    }
}

/// Larger reads for who fills them, smaller ones for who does not.
fn next_read_size(size: u8, count: usize, room_bytes: usize) -> u8 {
    if count == room_bytes {
        (size + 1).min(LAST_READ_SIZE)
    } else if size > FIRST_READ_SIZE && count < INPUT_BUFFER_BYTES[usize::from(size) - 1] / 2 {
        size - 1
    } else {
        size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_grow_while_they_come_full_and_shrink_when_they_come_small() {
        let size = FIRST_READ_SIZE;
        let larger = next_read_size(size, 16_384, 16_384);
        assert_eq!(larger, size + 1);
        assert_eq!(
            next_read_size(larger, 10_000, 65_536),
            larger,
            "worth its buffer"
        );
        assert_eq!(next_read_size(larger, 8_000, 65_536), size);
        assert_eq!(
            next_read_size(size, 1, 16_384),
            size,
            "the smallest is for leftovers only"
        );
        assert_eq!(next_read_size(LAST_READ_SIZE, 7, 7), LAST_READ_SIZE);
    }
}
