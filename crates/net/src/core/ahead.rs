//! For a driver with one connection per thread: waiting for its bytes before a tick, instead of for
//! word of them.

use super::LoopCore;
use crate::handler::ConnectionId;
use crate::port::{Port, TransferError};

impl<P: Port> LoopCore<P> {
    /// The connection's socket, while there is one.
    pub(crate) fn socket(&mut self, id: ConnectionId) -> Option<&P::Socket> {
        Some(self.table.get(id)?.socket())
    }

    /// Whether the handler, without a connection, may be dropped.
    pub(crate) fn is_idle(&self) -> bool {
        self.table.len() == 0 && self.handler.is_idle()
    }

    /// Nothing was to be done for a while: gives back memory that is kept for the next time.
    pub(crate) fn rest(&mut self) {
        self.table.free_buffers();
        self.handler.rest();
    }

    /// Whether only bytes from the connection's peer, or a deadline, can bring work.
    pub(crate) fn only_waits_for(&mut self, id: ConnectionId) -> bool {
        if self.is_stopping() || self.handler.awaits_wake() {
            return false;
        }
        let connection = self.table.get(id);
        connection.is_some_and(|connection| connection.only_waits_for_peer())
    }

    /// Reads by `receive`, which may wait. What comes is taken in with the next tick. Returns
    /// whether something came.
    pub(crate) fn read_ahead(
        &mut self,
        id: ConnectionId,
        receive: impl FnOnce(&P::Socket, &mut [u8]) -> Result<usize, TransferError>,
    ) -> bool {
        let read = self.read(id, |_, socket, room| receive(socket, room));
        if let Some(connection) = self.table.get(id) {
            connection.set_read_ahead(read);
        }
        if read.is_some() {
            self.enqueue(id);
        }
        read.is_some()
    }
}
