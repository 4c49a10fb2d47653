//! One connection as its driver sees it.

use std::mem;

use crate::addresses::AddressPlace;
use crate::buffers::{FIRST_READ_SIZE, LAST_READ_SIZE, SpareBuffers};
use crate::handler::Peer;
use crate::io::{Closing, Io};
use crate::limits::{
    INPUT_BUFFER_BYTES, INPUT_MAX_BYTES, LINGER_BYTES, OUTPUT_HIGH_WATER_BYTES,
    OUTPUT_LOW_WATER_BYTES,
};
use crate::port::{Interest, Readiness, TransferError};
use crate::secure::Secure;
use crate::tls::TlsFailure;

/// A socket, the bytes in hand, and what is due.
pub(crate) struct TableConnection<S> {
    socket: S,
    io: Io,
    /// The TLS between the two; without it, the input is what was read and the output is what is
    /// written.
    secure: Option<Box<Secure>>,
    stage: ConnectionStage,
    /// What the port reports at present.
    interest: Interest,
    /// Which of the buffer sizes the next read asks for.
    read_size: u8,
    /// Stands in the run queue.
    queued: bool,
    /// Stands in the list of connections to settle when the tick ends.
    touched: bool,
    /// What was read ahead of the connection's turn.
    read_ahead: Option<SocketRead>,
    /// The port reported input.
    readable: bool,
    /// The port reported that both directions are dead.
    hung_up: bool,
    /// The last write was short, at this time: nothing is written until the port reports room.
    blocked_ns: Option<u64>,
    /// The output rose above the low-water mark; `Handler::writable` follows when it falls.
    above_low_water: bool,
    /// It has fallen: `Handler::writable` is due in the connection's next turn.
    writable_due: bool,
    /// This side opened the connection. It is never choked: if each side waited for the other to
    /// read, neither ever would.
    outgoing: bool,
    /// The output rose above the high-water mark: the peer is not served until it falls below the
    /// low-water mark.
    choked: bool,
    /// Its place in the count of connections from its peer's address, held as long as it lives.
    _place: Option<AddressPlace>,
}

/// What a read brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SocketRead {
    /// More input, or its end.
    Input,
    /// The socket is dead.
    Broken,
}

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionStage {
    /// The handler does not know of it yet.
    Handshaking,
    /// The handler knows of it.
    Open,
    /// The handler has done with it; so many bytes were thrown away since.
    Lingering {
        /// So far.
        discarded_bytes: usize,
    },
}

/// What opening the records that came has changed.
pub(crate) struct OpenedRecords {
    /// Whether the session goes on.
    pub(crate) outcome: Result<(), TlsFailure>,
    /// Whether there is plaintext, or the end of input, to show to the handler.
    pub(crate) has_news: bool,
    /// Whether the two sides have agreed.
    pub(crate) is_agreed: bool,
    /// Whether the session has something to send.
    pub(crate) has_output: bool,
}

impl<S> TableConnection<S> {
    pub(crate) fn new(socket: S, secure: Option<Box<Secure>>, peer: &Peer) -> TableConnection<S> {
        let stage = match secure {
            Some(_) => ConnectionStage::Handshaking,
            None => ConnectionStage::Open,
        };
        TableConnection {
            socket,
            io: Io::new(),
            secure,
            stage,
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
            blocked_ns: None,
            above_low_water: false,
            writable_due: false,
            outgoing: peer.outgoing,
            choked: false,
            _place: peer.place.clone(),
        }
    }

    pub(crate) fn socket(&self) -> &S {
        &self.socket
    }

    /// Gives the socket to `close`, and only then up the place among those of the peer's address.
    pub(crate) fn close(self, close: impl FnOnce(S)) {
        close(self.socket);
    }

    pub(crate) fn io(&self) -> &Io {
        &self.io
    }

    pub(crate) fn io_mut(&mut self) -> &mut Io {
        &mut self.io
    }

    pub(crate) fn secure(&self) -> Option<&Secure> {
        self.secure.as_deref()
    }

    pub(crate) fn stage(&self) -> ConnectionStage {
        self.stage
    }

    pub(crate) fn is_open(&self) -> bool {
        self.stage == ConnectionStage::Open
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        self.stage == ConnectionStage::Handshaking
    }

    pub(crate) fn is_lingering(&self) -> bool {
        matches!(self.stage, ConnectionStage::Lingering { .. })
    }

    /// What the port reports at present.
    pub(crate) fn interest(&self) -> Interest {
        self.interest
    }

    /// What the port should report.
    pub(crate) fn wanted_interest(&self) -> Interest {
        Interest {
            read: self.may_read(),
            write: self.is_blocked(),
        }
    }

    /// Returns whether that is a change.
    pub(crate) fn change_interest(&mut self, interest: Interest) -> bool {
        mem::replace(&mut self.interest, interest) != interest
    }

    /// The port reports something to read, or the end of both directions.
    pub(crate) fn note_input(&mut self, readiness: Readiness) {
        self.readable |= readiness.readable;
        self.hung_up |= readiness.hung_up;
    }

    /// Puts the connection into the run queue; returns whether it was not there.
    pub(crate) fn enqueue(&mut self) -> bool {
        !mem::replace(&mut self.queued, true)
    }

    /// Takes the connection out of the run queue; returns whether the port reported input.
    pub(crate) fn begin_turn(&mut self) -> bool {
        self.queued = false;
        mem::take(&mut self.readable)
    }

    /// Puts the connection among those to settle; returns whether it was not there.
    pub(super) fn touch(&mut self) -> bool {
        !mem::replace(&mut self.touched, true)
    }

    /// The connection is settled now.
    pub(crate) fn begin_settling(&mut self) {
        self.touched = false;
        self.above_low_water |= self.unwritten() > OUTPUT_LOW_WATER_BYTES;
    }

    /// Whether nobody is there to take output, and nothing more will be read.
    pub(crate) fn is_over(&self) -> bool {
        self.hung_up && !self.may_read()
    }

    pub(crate) fn may_read(&self) -> bool {
        match self.stage {
            ConnectionStage::Lingering { .. } => true,
            ConnectionStage::Handshaking => !(self.io.end_of_input() || self.is_blocked()),
            ConnectionStage::Open => {
                !(self.choked
                    || self.io.end_of_input()
                    || self.io.is_reading_paused()
                    || self.io.is_closing()
                    || self.input_room() == 0)
            }
        }
    }

    /// Whether only the peer can bring work.
    pub(crate) fn only_waits_for_peer(&self) -> bool {
        self.is_open() && !self.is_blocked() && self.may_read()
    }

    /// How much more may be read, so that all of it has room, as plaintext too.
    fn input_room(&self) -> usize {
        let sealed_bytes = self.secure().map_or(0, Secure::incoming_bytes);
        INPUT_MAX_BYTES.saturating_sub(self.io.input.len() + sealed_bytes)
    }

    /// Reads once by `receive`. `None`: there is no room, and nothing was tried.
    pub(crate) fn receive(
        &mut self,
        buffers: &mut SpareBuffers,
        receive: impl FnOnce(&S, &mut [u8]) -> Result<usize, TransferError>,
    ) -> Option<Result<usize, TransferError>> {
        let most_bytes = self.input_room();
        let input = match &mut self.secure {
            Some(secure) => secure.incoming(),
            None => &mut self.io.input,
        };
        if most_bytes == 0 || !buffers.make_room(input, self.read_size) {
            return None;
        }
        let room = input.room();
        let most_bytes = most_bytes.min(room.len());
        let received = receive(&self.socket, &mut room[..most_bytes]);
        match received {
            Ok(0) => self.io.set_end_of_input(),
            Ok(count) => {
                input.filled(count);
                if let Some(secure) = &mut self.secure {
                    secure.count_received(count);
                }
                self.read_size = next_read_size(self.read_size, count, most_bytes);
            }
            Err(TransferError::NotReady) => buffers.settle_input(input),
            Err(TransferError::Broken) => {}
        }
        Some(received)
    }

    /// Notes what was read ahead of the next turn.
    pub(crate) fn set_read_ahead(&mut self, read: Option<SocketRead>) {
        self.read_ahead = read;
    }

    pub(crate) fn take_read_ahead(&mut self) -> Option<SocketRead> {
        self.read_ahead.take()
    }

    /// Opens the records that came. `None`: there is no TLS.
    pub(crate) fn open_records(&mut self, buffers: &mut SpareBuffers) -> Option<OpenedRecords> {
        let secure = self.secure.as_mut()?;
        let before_bytes = self.io.input.len();
        let outcome = secure.open(&mut self.io, buffers);
        if secure.peer_closed() {
            self.io.set_end_of_input();
        }
        Some(OpenedRecords {
            outcome,
            has_news: self.io.input.len() > before_bytes || self.io.end_of_input(),
            is_agreed: !secure.is_handshaking(),
            has_output: !secure.outgoing().is_empty(),
        })
    }

    /// The two sides have agreed. Returns the peer that the handler has not seen yet.
    pub(crate) fn finish_handshake(&mut self) -> Option<Box<Peer>> {
        let peer = self.secure.as_mut()?.agreed_peer()?;
        self.stage = ConnectionStage::Open;
        Some(peer)
    }

    /// How much output waits.
    pub(crate) fn unwritten(&self) -> usize {
        let sealed_bytes = self.secure().map_or(0, |secure| secure.outgoing().len());
        self.io.unwritten() + sealed_bytes
    }

    /// Whether there is something to write, and the peer has room as far as is known.
    pub(crate) fn has_to_write(&self) -> bool {
        (self.unwritten() > 0 || self.owes_close()) && !self.is_blocked()
    }

    /// Whether the peer has yet to be told in TLS that nothing follows.
    fn owes_close(&self) -> bool {
        self.io.closing() == Closing::WhenWritten
            && self.secure().is_some_and(|secure| !secure.is_closed())
    }

    /// Seals what comes next, if there is TLS and nothing sealed waits. The last is the end.
    pub(crate) fn seal(&mut self, buffers: &mut SpareBuffers) -> Result<(), TlsFailure> {
        let Some(secure) = &mut self.secure else {
            return Ok(());
        };
        if secure.is_closed() {
            // Nothing follows the end.
            self.io.clear_output();
            return Ok(());
        }
        secure.seal(&mut self.io, buffers)?;
        if self.io.closing() == Closing::WhenWritten && self.io.unwritten() == 0 {
            secure.close(buffers);
        }
        Ok(())
    }

    /// What the socket gets next.
    pub(crate) fn next_bytes(&self) -> &[u8] {
        match self.secure() {
            Some(secure) => secure.outgoing(),
            None => self.io.unwritten_bytes(),
        }
    }

    /// So many of these bytes are on their way.
    pub(crate) fn sent(&mut self, count: usize) {
        match &mut self.secure {
            Some(secure) => secure.sent(count),
            None => self.io.advance_written(count),
        }
    }

    /// Whether all that was sealed is on its way, and more is to follow.
    pub(crate) fn has_more_to_seal(&self) -> bool {
        self.secure()
            .is_some_and(|secure| secure.outgoing().is_empty())
            && (self.io.unwritten() > 0 || self.owes_close())
    }

    /// The last write was short and the port has not reported room since.
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked_ns.is_some()
    }

    pub(super) fn block(&mut self, now_ns: u64) {
        self.blocked_ns = Some(now_ns);
    }

    /// Returns whether the connection was blocked.
    pub(super) fn unblock(&mut self) -> bool {
        self.blocked_ns.take().is_some()
    }

    /// Whether the handler's output has waited for so long.
    pub(super) fn is_stalled(&self, now_ns: u64, limit_ns: u64) -> bool {
        let has_waited = |since_ns: u64| now_ns.saturating_sub(since_ns) >= limit_ns;
        self.is_open() && self.blocked_ns.is_some_and(has_waited)
    }

    /// Compares the output with the water marks; returns whether the connection became choked.
    pub(crate) fn pass_water_marks(&mut self) -> bool {
        let waiting_bytes = self.unwritten();
        if waiting_bytes <= OUTPUT_LOW_WATER_BYTES {
            self.choked = false;
            self.writable_due |= mem::take(&mut self.above_low_water);
            return false;
        }
        let is_full = waiting_bytes >= OUTPUT_HIGH_WATER_BYTES && !self.outgoing;
        is_full && !mem::replace(&mut self.choked, true)
    }

    /// Whether `Handler::writable` was due; it is not any more.
    pub(crate) fn take_writable_due(&mut self) -> bool {
        mem::take(&mut self.writable_due)
    }

    /// Whether the handler is not asked to go on: its output is full, or it is closing.
    pub(crate) fn is_held_back(&self) -> bool {
        self.choked || self.io.is_closing()
    }

    /// Whether the handler can go on without anything being reported.
    pub(crate) fn has_turn(&self) -> bool {
        (self.writable_due || self.io.is_unfinished()) && !self.is_held_back()
    }

    /// Whether all output of a connection that is to be closed then is written.
    pub(crate) fn is_written_and_closing(&self) -> bool {
        self.io.closing() == Closing::WhenWritten && self.unwritten() == 0
    }

    /// Gives back the buffers that are not needed for the bytes in hand.
    pub(crate) fn settle_buffers(&mut self, buffers: &mut SpareBuffers) {
        buffers.settle_output(&mut self.io);
        buffers.settle_input(&mut self.io.input);
        if let Some(secure) = &mut self.secure {
            secure.settle_outgoing(buffers);
        }
    }

    /// Gives all buffers back.
    pub(super) fn take_back(&mut self, buffers: &mut SpareBuffers) {
        buffers.take_back(&mut self.io);
        if let Some(secure) = &mut self.secure {
            secure.take_back(buffers);
        }
    }

    /// The handler has done with the connection: nothing is kept but the socket.
    pub(super) fn begin_lingering(&mut self, buffers: &mut SpareBuffers) {
        self.take_back(buffers);
        self.secure = None;
        self.stage = ConnectionStage::Lingering { discarded_bytes: 0 };
        self.read_size = FIRST_READ_SIZE;
    }

    /// Throws away what a lingering peer still sends. Returns whether the connection is to end.
    pub(crate) fn discard_input(
        &mut self,
        buffers: &mut SpareBuffers,
        receive: impl FnOnce(&S, &mut [u8]) -> Result<usize, TransferError>,
    ) -> bool {
        let ConnectionStage::Lingering { discarded_bytes } = &mut self.stage else {
            return false;
        };
        let input = &mut self.io.input;
        buffers.make_room(input, FIRST_READ_SIZE);
        let received = receive(&self.socket, input.room());
        buffers.settle_input(input);
        match received {
            Ok(0) | Err(TransferError::Broken) => true,
            Err(TransferError::NotReady) => self.hung_up,
            Ok(count) => {
                *discarded_bytes += count;
                *discarded_bytes > LINGER_BYTES
            }
        }
    }
}

/// Larger reads for a connection that fills them, smaller ones for one that does not.
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
mod tests;
