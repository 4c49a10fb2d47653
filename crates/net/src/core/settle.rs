//! The end of a tick: write once, keep the water marks, close who is done.

use super::Core;
use crate::buffers::FIRST_READ_SIZE;
use crate::handler::{Closed, ConnectionId};
use crate::io::Closing;
use crate::limits::{
    LINGER_BYTES, LINGER_MS, OUTPUT_HIGH_WATER_BYTES, OUTPUT_LOW_WATER_BYTES, STOP_LINGER_MS,
};
use crate::port::{Interest, Port, TransferError};
use crate::table::State;

impl<P: Port> Core<P> {
    /// Makes true what the handler left behind on one connection.
    pub(super) fn settle(&mut self, id: ConnectionId, now_ns: u64) {
        let Some(connection) = self.table.slots.get_mut(id) else {
            return;
        };
        connection.touched = false;
        if matches!(connection.state, State::Lingering { .. }) {
            return;
        }
        if connection.io.closing() == Closing::Now {
            return self.close(id, Closed::ByHandler, now_ns);
        }
        let waiting_bytes = connection.unwritten();
        connection.above_low_water |= waiting_bytes > OUTPUT_LOW_WATER_BYTES;
        let has_to_write = waiting_bytes > 0 || connection.owes_goodbye();
        if has_to_write && !connection.blocked && self.write(id, now_ns).is_err() {
            return self.close(id, Closed::ByPeer, now_ns);
        }
        self.keep_water_marks(id);
        let Some(connection) = self.table.slots.get_mut(id) else {
            return;
        };
        if connection.io.closing() == Closing::WhenWritten && connection.unwritten() == 0 {
            return self.say_goodbye(id, now_ns);
        }
        let has_turn = connection.writable_due || connection.io.is_unfinished();
        let interest = connection.wanted_interest();
        self.table.buffers.settle_output(&mut connection.io);
        self.table.buffers.settle_input(&mut connection.io.input);
        if let Some(secure) = &mut connection.secure {
            self.table.buffers.settle_input(&mut secure.outgoing);
        }
        if has_turn && !connection.choked && !connection.io.is_closing() {
            self.enqueue(id);
        }
        self.watch(id, interest);
    }

    /// Writes once; with TLS once for each [`SEAL_BYTES`](crate::limits::SEAL_BYTES) while the
    /// socket takes all.
    fn write(&mut self, id: ConnectionId, now_ns: u64) -> Result<(), TransferError> {
        loop {
            let Some(connection) = self.table.slots.get_mut(id) else {
                return Ok(());
            };
            let sealed = connection.seal(&mut self.table.buffers);
            sealed.map_err(|_| TransferError::Broken)?;
            self.counters.writes.add(1);
            let sent = match self.port.send(&connection.socket, connection.next_bytes()) {
                Err(TransferError::NotReady) => 0,
                sent => sent?,
            };
            self.counters.bytes_out.add(sent as u64);
            connection.sent(sent);
            if !connection.has_more_to_seal() {
                break;
            }
        }
        self.note_blocked(id, now_ns);
        Ok(())
    }

    /// What could not be written waits for the peer.
    fn note_blocked(&mut self, id: ConnectionId, now_ns: u64) {
        let Some(connection) = self.table.slots.get_mut(id) else {
            return;
        };
        if connection.unwritten() > 0 {
            self.counters.short_writes.add(1);
            connection.blocked = true;
            connection.progress_ns = now_ns;
            self.blocked += 1;
            self.expect_stall_check(now_ns);
        }
    }

    fn keep_water_marks(&mut self, id: ConnectionId) {
        let Some(connection) = self.table.slots.get_mut(id) else {
            return;
        };
        let waiting_bytes = connection.unwritten();
        if waiting_bytes <= OUTPUT_LOW_WATER_BYTES {
            connection.choked = false;
            connection.writable_due |= std::mem::take(&mut connection.above_low_water);
        } else if waiting_bytes >= OUTPUT_HIGH_WATER_BYTES
            && !connection.choked
            && !connection.outgoing
        {
            connection.choked = true;
            self.counters.chokes.add(1);
        }
    }

    /// All output is written: the handler has done with the connection, the socket lives on until
    /// the peer has closed too.
    fn say_goodbye(&mut self, id: ConnectionId, now_ns: u64) {
        let why = if self.is_stopping() {
            Closed::Stopped
        } else {
            Closed::ByHandler
        };
        self.handler.closed(id, why, now_ns);
        let linger_ms = if self.is_stopping() {
            STOP_LINGER_MS
        } else {
            LINGER_MS
        };
        self.linger(id, now_ns + linger_ms * 1_000_000);
    }

    /// The socket lives on until the peer has closed too, so that it reads what was written.
    pub(super) fn linger(&mut self, id: ConnectionId, until_ns: u64) {
        let Some(connection) = self.table.slots.get_mut(id) else {
            return;
        };
        if connection.io.end_of_input() {
            connection.state = State::Lingering { discarded_bytes: 0 };
            return self.remove(id);
        }
        if std::mem::take(&mut connection.blocked) {
            self.blocked -= 1;
        }
        self.port.end_output(&connection.socket);
        connection.state = State::Lingering { discarded_bytes: 0 };
        connection.read_size = FIRST_READ_SIZE;
        if let Some(mut secure) = connection.secure.take() {
            secure.take_back(&mut self.table.buffers);
        }
        self.table.buffers.take_back(&mut connection.io);
        self.linger_until(until_ns, id);
        self.watch(
            id,
            Interest {
                read: true,
                write: false,
            },
        );
    }

    /// Reads and throws away what a lingering peer still sends, until it closes.
    pub(super) fn discard_input(&mut self, id: ConnectionId) {
        let Some(connection) = self.table.slots.get_mut(id) else {
            return;
        };
        let State::Lingering { discarded_bytes } = &mut connection.state else {
            return;
        };
        let input = &mut connection.io.input;
        self.table.buffers.make_room(input, FIRST_READ_SIZE);
        let received = self.port.receive(&connection.socket, input.room());
        self.counters.reads.add(1);
        self.table.buffers.settle_input(input);
        let done = match received {
            Ok(0) | Err(TransferError::Broken) => true,
            Err(TransferError::NotReady) => connection.hung_up,
            Ok(count) => {
                *discarded_bytes += count;
                *discarded_bytes > LINGER_BYTES
            }
        };
        if done {
            self.remove(id);
        }
    }

    /// Ends a connection at once; what waits is lost.
    pub(super) fn close(&mut self, id: ConnectionId, why: Closed, now_ns: u64) {
        // Of a connection whose handshake is not done the handler does not know.
        if !self.table.is_handshaking(id) {
            self.handler.closed(id, why, now_ns);
        }
        self.remove(id);
    }
}
