//! The connections of one loop, their buffers, and which of them wait for what.

mod connection;

pub(crate) use connection::{ConnectionStage, SocketRead, TableConnection};

use crate::buffers::SpareBuffers;
use crate::handler::{ConnectionId, Connections};
use crate::io::Io;
use crate::slab::Slab;

/// All connections of a loop.
pub(crate) struct ConnectionTable<S> {
    slots: Slab<TableConnection<S>>,
    buffers: SpareBuffers,
    /// Those to settle when the tick ends.
    touched: Vec<ConnectionId>,
    /// How many wait for their peer to make room.
    blocked: usize,
}

impl<S> ConnectionTable<S> {
    pub(crate) fn new(buffers: SpareBuffers) -> ConnectionTable<S> {
        ConnectionTable {
            slots: Slab::new(),
            buffers,
            touched: Vec::new(),
            blocked: 0,
        }
    }

    pub(crate) fn insert(&mut self, connection: TableConnection<S>) -> ConnectionId {
        self.slots.insert(connection)
    }

    pub(crate) fn get(&mut self, id: ConnectionId) -> Option<&mut TableConnection<S>> {
        self.slots.get_mut(id)
    }

    /// A connection, and the buffers of the loop.
    pub(crate) fn with_buffers(
        &mut self,
        id: ConnectionId,
    ) -> Option<(&mut TableConnection<S>, &mut SpareBuffers)> {
        let connection = self.slots.get_mut(id)?;
        Some((connection, &mut self.buffers))
    }

    /// Takes a connection out, without its buffers.
    pub(crate) fn remove(&mut self, id: ConnectionId) -> Option<TableConnection<S>> {
        self.unblock(id);
        let mut connection = self.slots.remove(id)?;
        connection.take_back(&mut self.buffers);
        Some(connection)
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The connections that there are now.
    pub(crate) fn ids(&self) -> Vec<ConnectionId> {
        self.slots.iter().map(|(id, _)| id).collect()
    }

    pub(crate) fn is_secure(&mut self, id: ConnectionId) -> bool {
        let connection = self.slots.get_mut(id);
        connection.is_some_and(|connection| connection.secure().is_some())
    }

    pub(crate) fn is_handshaking(&mut self, id: ConnectionId) -> bool {
        let connection = self.slots.get_mut(id);
        connection.is_some_and(|connection| connection.is_handshaking())
    }

    /// How many connections wait for their peer to make room.
    pub(crate) fn blocked(&self) -> usize {
        self.blocked
    }

    /// A connection's last write was short.
    pub(crate) fn block(&mut self, id: ConnectionId, now_ns: u64) {
        if let Some(connection) = self.slots.get_mut(id) {
            self.blocked += usize::from(!connection.is_blocked());
            connection.block(now_ns);
        }
    }

    /// A connection does not wait for its peer any more. Returns whether it did.
    pub(crate) fn unblock(&mut self, id: ConnectionId) -> bool {
        let connection = self.slots.get_mut(id);
        let was_blocked = connection.is_some_and(|connection| connection.unblock());
        self.blocked -= usize::from(was_blocked);
        was_blocked
    }

    /// Open connections whose peers have made no room for so long.
    pub(crate) fn stalled(&self, now_ns: u64, limit_ns: u64) -> Vec<ConnectionId> {
        let all = self.slots.iter();
        all.filter(|(_, connection)| connection.is_stalled(now_ns, limit_ns))
            .map(|(id, _)| id)
            .collect()
    }

    /// The handler has done with a connection: what it held is given back, the socket stays.
    pub(crate) fn begin_lingering(&mut self, id: ConnectionId) {
        self.unblock(id);
        if let Some(connection) = self.slots.get_mut(id) {
            connection.begin_lingering(&mut self.buffers);
        }
    }

    /// Has the connection settled when the tick ends.
    pub(crate) fn touch(&mut self, id: ConnectionId) {
        if let Some(connection) = self.slots.get_mut(id)
            && connection.touch()
        {
            self.touched.push(id);
        }
    }

    /// Whether connections are to be settled.
    pub(crate) fn has_touched(&self) -> bool {
        !self.touched.is_empty()
    }

    /// Takes the connections to settle.
    pub(crate) fn take_touched(&mut self) -> Vec<ConnectionId> {
        std::mem::take(&mut self.touched)
    }

    /// Gives the list back when they are settled, for its memory.
    // mutants: skip, it only saves an allocation in each tick
    pub(crate) fn reuse_touched(&mut self, mut settled: Vec<ConnectionId>) {
        debug_assert!(self.touched.is_empty(), "settling touches nobody else");
        settled.clear();
        self.touched = settled;
    }

    /// Readies an open connection for a handler: it has an output buffer, its output is exactly
    /// what waits, and it will be settled when the tick ends.
    pub(crate) fn hand_out(&mut self, id: ConnectionId) -> Option<&mut Io> {
        let connection = self.slots.get_mut(id)?;
        if !connection.is_open() {
            return None;
        }
        if connection.touch() {
            self.touched.push(id);
        }
        let io = connection.io_mut();
        self.buffers.lend_output(io);
        io.compact_output();
        Some(io)
    }

    /// Buffers that nobody has.
    pub(crate) fn buffers_pooled(&self) -> usize {
        self.buffers.pooled()
    }

    /// Frees the buffers that nobody has.
    pub(crate) fn free_buffers(&mut self) {
        self.buffers.free_all();
    }

    /// Whether the count of connections that wait for their peers is right.
    // mutants: skip, it is only asserted in debug builds
    pub(crate) fn adds_up(&self) -> bool {
        let all = self.slots.iter();
        self.blocked
            == all
                .filter(|(_, connection)| connection.is_blocked())
                .count()
    }
}

impl<S> Connections for ConnectionTable<S> {
    fn io(&mut self, id: ConnectionId) -> Option<&mut Io> {
        self.hand_out(id)
    }
}
