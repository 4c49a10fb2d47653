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
        if connection.state != State::Open {
            return;
        }
        if connection.io.closing() == Closing::Now {
            return self.close(id, Closed::ByHandler, now_ns);
        }
        let waiting_bytes = connection.io.unwritten();
        connection.above_low_water |= waiting_bytes > OUTPUT_LOW_WATER_BYTES;
        if waiting_bytes > 0 && !connection.blocked && self.write_once(id, now_ns).is_err() {
            return self.close(id, Closed::ByPeer, now_ns);
        }
        self.keep_water_marks(id);
        let Some(connection) = self.table.slots.get_mut(id) else {
            return;
        };
        if connection.io.closing() == Closing::WhenWritten && connection.io.unwritten() == 0 {
            return self.say_goodbye(id, now_ns);
        }
        let has_turn = connection.writable_due || connection.io.is_unfinished();
        let interest = connection.wanted_interest();
        self.table.buffers.settle_output(&mut connection.io);
        self.table.buffers.settle_input(&mut connection.io.input);
        if has_turn && !connection.choked && !connection.io.is_closing() {
            self.enqueue(id);
        }
        self.watch(id, interest);
    }

    fn write_once(&mut self, id: ConnectionId, now_ns: u64) -> Result<(), TransferError> {
        let Some(connection) = self.table.slots.get_mut(id) else {
            return Ok(());
        };
        self.counters.writes.add(1);
        let sent = match self
            .port
            .send(&connection.socket, connection.io.unwritten_bytes())
        {
            Err(TransferError::NotReady) => 0,
            sent => sent?,
        };
        if sent > 0 {
            self.counters.bytes_out.add(sent as u64);
            connection.io.advance_written(sent);
        }
        if connection.io.unwritten() > 0 {
            self.counters.short_writes.add(1);
            connection.blocked = true;
            connection.progress_ns = now_ns;
            self.blocked += 1;
            self.expect_stall_check(now_ns);
        }
        Ok(())
    }

    fn keep_water_marks(&mut self, id: ConnectionId) {
        let Some(connection) = self.table.slots.get_mut(id) else {
            return;
        };
        let waiting_bytes = connection.io.unwritten();
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
        let Some(connection) = self.table.slots.get_mut(id) else {
            return;
        };
        if connection.io.end_of_input() {
            return self.remove(id);
        }
        self.table.buffers.take_back(&mut connection.io);
        self.port.end_output(&connection.socket);
        connection.state = State::Lingering { discarded_bytes: 0 };
        connection.read_size = FIRST_READ_SIZE;
        self.linger_until(now_ns + linger_ms * 1_000_000, id);
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
        self.handler.closed(id, why, now_ns);
        self.remove(id);
    }
}
