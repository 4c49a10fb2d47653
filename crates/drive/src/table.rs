//! The connections of one loop.

use crate::buffers::{Buffers, FIRST_READ_SIZE};
use crate::handler::{ConnectionId, Connections};
use crate::io::Io;
use crate::limits::INPUT_MAX_BYTES;
use crate::port::Interest;
use crate::slab::Slab;

/// One connection as its driver sees it.
pub(crate) struct Connection<S> {
    pub(crate) socket: S,
    pub(crate) io: Io,
    pub(crate) state: State,
    /// What the port reports at present.
    pub(crate) interest: Interest,
    /// Which of the buffer sizes the next read asks for.
    pub(crate) read_size: u8,
    /// Stands in the run queue.
    pub(crate) queued: bool,
    /// Stands in the list of connections to settle when the tick ends.
    pub(crate) touched: bool,
    /// What was read ahead of the connection's turn.
    pub(crate) read_ahead: Option<ReadAhead>,
    /// The port reported input.
    pub(crate) readable: bool,
    /// The port reported that both directions are dead.
    pub(crate) hung_up: bool,
    /// The last write was short: nothing is written until the port reports room.
    pub(crate) blocked: bool,
    /// The output rose above the low-water mark; `Handler::writable` follows when it falls.
    pub(crate) above_low_water: bool,
    /// It has fallen: `Handler::writable` is due in the connection's next turn.
    pub(crate) writable_due: bool,
    /// This side opened the connection. It is never choked: if each side waited for the other to
    /// read, neither ever would.
    pub(crate) outgoing: bool,
    /// The output rose above the high-water mark: the peer is not served until it falls below the
    /// low-water mark.
    pub(crate) choked: bool,
    /// While blocked: when the last attempt to write was made, hence when the peer last made room.
    pub(crate) progress_ns: u64,
}

/// What a read brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadAhead {
    /// More input, or its end.
    Input,
    /// The socket is dead.
    Broken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Open,
    /// The handler has done with it; so many bytes were thrown away since.
    Lingering {
        discarded_bytes: usize,
    },
}

impl<S> Connection<S> {
    pub(crate) fn new(socket: S, outgoing: bool, now_ns: u64) -> Connection<S> {
        Connection {
            socket,
            io: Io::new(),
            state: State::Open,
            interest: Interest {
                read: true,
                write: false,
            },
            read_size: FIRST_READ_SIZE,
            queued: false,
            touched: false,
            read_ahead: None,
            readable: false,
            hung_up: false,
            blocked: false,
            above_low_water: false,
            writable_due: false,
            outgoing,
            choked: false,
            progress_ns: now_ns,
        }
    }

    pub(crate) fn may_read(&self) -> bool {
        match self.state {
            State::Lingering { .. } => true,
            State::Open => {
                !(self.choked
                    || self.io.end_of_input()
                    || self.io.is_reading_paused()
                    || self.io.is_closing()
                    || self.io.input.len() >= INPUT_MAX_BYTES)
            }
        }
    }

    pub(crate) fn wanted_interest(&self) -> Interest {
        Interest {
            read: self.may_read(),
            write: self.blocked,
        }
    }
}

/// All connections, their buffers, and which of them have to be settled.
pub(crate) struct Table<S> {
    pub(crate) slots: Slab<Connection<S>>,
    pub(crate) buffers: Buffers,
    pub(crate) touched: Vec<ConnectionId>,
}

impl<S> Table<S> {
    pub(crate) fn new(buffers: Buffers) -> Table<S> {
        Table {
            slots: Slab::new(),
            buffers,
            touched: Vec::new(),
        }
    }

    /// Readies an open connection for a handler: it has an output buffer, its output is exactly
    /// what waits, and it will be settled when the tick ends.
    pub(crate) fn hand_out(&mut self, id: ConnectionId) -> Option<&mut Connection<S>> {
        let connection = self.slots.get_mut(id)?;
        if connection.state != State::Open {
            return None;
        }
        if !connection.touched {
            connection.touched = true;
            self.touched.push(id);
        }
        self.buffers.lend_output(&mut connection.io);
        connection.io.compact_output();
        Some(connection)
    }
}

impl<S> Connections for Table<S> {
    fn io(&mut self, id: ConnectionId) -> Option<&mut Io> {
        self.hand_out(id).map(|connection| &mut connection.io)
    }
}
