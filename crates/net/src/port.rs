//! What carries bytes: sockets in earnest, links in a simulation.

use crate::handler::ConnectionId;

/// Non-blocking reads and writes, and word of when they are worth trying.
pub(crate) trait Port {
    /// One end of one connection. Dropping is not closing: see [`close`](Self::close).
    type Socket;

    /// Begins to report the socket's readiness under `id`, for `interest`.
    fn register(
        &mut self,
        socket: &Self::Socket,
        id: ConnectionId,
        interest: Interest,
    ) -> Result<(), BrokenSocket>;

    /// Changes what is reported. Readiness is a level: it is reported as long as it holds.
    fn watch(&mut self, socket: &Self::Socket, id: ConnectionId, interest: Interest);

    /// Reads once. Zero bytes: the peer ended its side.
    fn receive(&mut self, socket: &Self::Socket, into: &mut [u8]) -> Result<usize, TransferError>;

    /// Writes once; may take only a part.
    fn send(&mut self, socket: &Self::Socket, bytes: &[u8]) -> Result<usize, TransferError>;

    /// Tells the peer that nothing more comes from this side.
    fn end_output(&mut self, socket: &Self::Socket);

    /// Ends the connection in both directions.
    fn close(&mut self, socket: Self::Socket);
}

/// What a port should report of a socket. That the peer is gone is always reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interest {
    pub(crate) read: bool,
    pub(crate) write: bool,
}

/// What a port reports of a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Readiness {
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// Both directions are dead.
    pub(crate) hung_up: bool,
}

/// Why a read or write moved nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransferError {
    /// Not now: wait until it is reported ready.
    NotReady,
    /// Never again.
    Broken,
}

/// The socket is of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BrokenSocket;
