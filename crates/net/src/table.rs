//! The connections of one loop.

use crate::addresses::AddressPlace;
use crate::buffers::{Buffers, FIRST_READ_SIZE};
use crate::handler::{ConnectionId, Connections};
use crate::io::{Closing, Io};
use crate::limits::INPUT_MAX_BYTES;
use crate::port::Interest;
use crate::secure::Secure;
use crate::slab::Slab;
use crate::tls::TlsFailure;

/// One connection as its driver sees it.
pub(crate) struct Connection<S> {
    pub(crate) socket: S,
    pub(crate) io: Io,
    /// The TLS between the two; without it, the input is what was read and the output is what is
    /// written.
    pub(crate) secure: Option<Box<Secure>>,
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
    /// Its place in the count of connections from its peer's address, held as long as it lives.
    pub(crate) place: Option<AddressPlace>,
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
    /// The handler does not know of it yet.
    Handshaking,
    Open,
    /// The handler has done with it; so many bytes were thrown away since.
    Lingering {
        discarded_bytes: usize,
    },
}

impl<S> Connection<S> {
    pub(crate) fn new(
        socket: S,
        secure: Option<Box<Secure>>,
        outgoing: bool,
        now_ns: u64,
    ) -> Connection<S> {
        let state = match secure {
            Some(_) => State::Handshaking,
            None => State::Open,
        };
        Connection {
            socket,
            io: Io::new(),
            secure,
            state,
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
            place: None,
            progress_ns: now_ns,
        }
    }

    pub(crate) fn may_read(&self) -> bool {
        match self.state {
            State::Lingering { .. } => true,
            State::Handshaking => !(self.io.end_of_input() || self.blocked),
            State::Open => {
                !(self.choked
                    || self.io.end_of_input()
                    || self.io.is_reading_paused()
                    || self.io.is_closing()
                    || self.input_room() == 0)
            }
        }
    }

    /// How much more may be read, so that all of it has room, as plaintext too.
    pub(crate) fn input_room(&self) -> usize {
        let sealed_bytes = self.secure.as_ref().map_or(0, |one| one.incoming.len());
        INPUT_MAX_BYTES.saturating_sub(self.io.input.len() + sealed_bytes)
    }

    /// How much output waits.
    pub(crate) fn unwritten(&self) -> usize {
        let sealed_bytes = self.secure.as_ref().map_or(0, |one| one.outgoing.len());
        self.io.unwritten() + sealed_bytes
    }

    /// Seals what comes next, if there is TLS and nothing sealed waits. The last is the goodbye.
    pub(crate) fn seal(&mut self, buffers: &mut Buffers) -> Result<(), TlsFailure> {
        let Some(secure) = &mut self.secure else {
            return Ok(());
        };
        if secure.session.is_closed() {
            // Nothing follows a goodbye.
            self.io.clear_output();
            return Ok(());
        }
        secure.seal(&mut self.io, buffers)?;
        if self.io.closing() == Closing::WhenWritten && self.io.unwritten() == 0 {
            secure.close(buffers);
        }
        Ok(())
    }

    /// Whether the connection is to be closed and the peer has not been told in words of TLS.
    pub(crate) fn owes_goodbye(&self) -> bool {
        let is_told = |secure: &Secure| secure.session.is_closed();
        self.io.closing() == Closing::WhenWritten
            && self.secure.as_ref().is_some_and(|secure| !is_told(secure))
    }

    /// What the socket gets next.
    pub(crate) fn next_bytes(&self) -> &[u8] {
        match &self.secure {
            Some(secure) => secure.outgoing.bytes(),
            None => self.io.unwritten_bytes(),
        }
    }

    /// So many of these bytes are on their way.
    pub(crate) fn sent(&mut self, count: usize) {
        match &mut self.secure {
            Some(secure) => secure.outgoing.consume(count),
            None if count > 0 => self.io.advance_written(count),
            None => {}
        }
    }

    /// Whether all that was sealed is on its way, and more is to follow.
    pub(crate) fn has_more_to_seal(&self) -> bool {
        let secure = self.secure.as_ref();
        secure.is_some_and(|one| one.outgoing.is_empty())
            && (self.io.unwritten() > 0 || self.owes_goodbye())
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

    pub(crate) fn is_secure(&mut self, id: ConnectionId) -> bool {
        let connection = self.slots.get_mut(id);
        connection.is_some_and(|connection| connection.secure.is_some())
    }

    /// Takes all buffers of a connection back.
    pub(crate) fn take_back(&mut self, connection: &mut Connection<S>) {
        self.buffers.take_back(&mut connection.io);
        if let Some(secure) = &mut connection.secure {
            secure.take_back(&mut self.buffers);
        }
    }

    pub(crate) fn is_handshaking(&mut self, id: ConnectionId) -> bool {
        let connection = self.slots.get_mut(id);
        connection.is_some_and(|connection| connection.state == State::Handshaking)
    }

    /// Has the connection settled when the tick ends.
    pub(crate) fn touch(&mut self, id: ConnectionId) {
        if let Some(connection) = self.slots.get_mut(id)
            && !connection.touched
        {
            connection.touched = true;
            self.touched.push(id);
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
