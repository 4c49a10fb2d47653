//! The end of a tick: write once, keep the water marks, close who is done.

use super::LoopCore;
use crate::handler::{Closed, ConnectionId};
use crate::io::Closing;
use crate::limits::{LINGER_MS, STOP_LINGER_MS};
use crate::port::{Interest, Port, TransferError};

impl<P: Port> LoopCore<P> {
    /// Makes true what the handler left behind on one connection.
    pub(super) fn settle(&mut self, id: ConnectionId, now_ns: u64) {
        let Some(connection) = self.table.get(id) else {
            return;
        };
        connection.begin_settling();
        if connection.is_lingering() {
            return;
        }
        if connection.io().closing() == Closing::Now {
            return self.close(id, Closed::ByHandler, now_ns);
        }
        if connection.has_to_write() && self.write(id, now_ns).is_err() {
            return self.close(id, Closed::ByPeer, now_ns);
        }
        let Some((connection, buffers)) = self.table.with_buffers(id) else {
            return;
        };
        if connection.pass_water_marks() {
            self.counters.chokes.add(1);
        }
        if connection.is_written_and_closing() {
            return self.close_written(id, now_ns);
        }
        let has_turn = connection.has_turn();
        let interest = connection.wanted_interest();
        connection.settle_buffers(buffers);
        if has_turn {
            self.enqueue(id);
        }
        self.watch(id, interest);
    }

    /// Writes once; with TLS once for each [`SEAL_BYTES`](crate::limits::SEAL_BYTES) while the
    /// socket takes all.
    fn write(&mut self, id: ConnectionId, now_ns: u64) -> Result<(), TransferError> {
        loop {
            let Some((connection, buffers)) = self.table.with_buffers(id) else {
                return Ok(());
            };
            let sealed = connection.seal(buffers);
            sealed.map_err(|_| TransferError::Broken)?;
            self.counters.writes.add(1);
            let sent = match self.port.send(connection.socket(), connection.next_bytes()) {
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
        let connection = self.table.get(id);
        if connection.is_some_and(|connection| connection.unwritten() > 0) {
            self.counters.short_writes.add(1);
            self.table.block(id, now_ns);
            self.expect_stall_check(now_ns);
        }
    }

    /// All output is written: the handler has done with the connection, the socket lives on until
    /// the peer has closed too.
    fn close_written(&mut self, id: ConnectionId, now_ns: u64) {
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
        self.table.begin_lingering(id);
        let Some(connection) = self.table.get(id) else {
            return;
        };
        if connection.io().end_of_input() {
            return self.remove(id);
        }
        self.port.end_output(connection.socket());
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
        let Some((connection, buffers)) = self.table.with_buffers(id) else {
            return;
        };
        let port = &mut self.port;
        self.counters.reads.add(1);
        if connection.discard_input(buffers, |socket, room| port.receive(socket, room)) {
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
