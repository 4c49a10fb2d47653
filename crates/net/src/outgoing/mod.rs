//! Connections that this side opens, for a caller that turns its own loop.
//!
//! There is no handler and no thread here: the caller dials, waits, asks who is ready, reads each
//! of those once and writes each that has output once. All sockets share one epoll set, so one wait
//! serves them all.

mod diagnosis;
mod endpoint;
mod poller;
mod port_buffers;

use std::io;

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, getpeername, getsockname,
    socket_with,
};

use crate::epoll::{Epoll, EpollToken};
use crate::handler::ConnectionId;
use crate::port::{Interest, Port, Readiness, TransferError};
use crate::slab::Slab;

pub use diagnosis::{TcpDiagnosis, TcpFigures, TcpInfo};
pub use endpoint::OutgoingEndpoint;
pub use poller::{OutgoingPoller, OutgoingWaker};
pub use port_buffers::{PortBuffers, port_buffers};

/// What an [`Outgoing`] did since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutgoingCounters {
    /// Waits in the kernel, also those that had nothing to wait for.
    pub waits: u64,
    /// `recv` calls.
    pub reads: u64,
    /// `send` calls.
    pub writes: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Sockets that began to connect.
    pub dials: u64,
}

/// What became of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketReadResult {
    /// So many bytes came.
    Bytes(usize),
    /// Nothing now.
    Nothing,
    /// The peer ended its side: nothing follows.
    End,
    /// The connection is broken.
    Broken,
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketWriteResult {
    /// So many bytes are on their way, perhaps none. If they are not all, the connection is
    /// reported as writable later.
    Bytes(usize),
    /// The connection is broken.
    Broken,
}

/// What is reported of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// Which one.
    pub id: ConnectionId,
    /// There is something to read, be it the end.
    pub readable: bool,
    /// It takes bytes again; or connecting has ended, see [`Outgoing::finish_dialing`].
    pub writable: bool,
}

/// Sockets that this side opens, and one place to wait for all of them.
pub struct Outgoing {
    epoll: Epoll,
    sockets: Slab<OutgoingSocket>,
    counters: OutgoingCounters,
    next_event: usize,
    diagnosis: Option<TcpDiagnosis>,
}

struct OutgoingSocket {
    descriptor: OwnedFd,
    is_tcp: bool,
    wants_write: bool,
}

impl Outgoing {
    /// An empty set.
    ///
    /// # Errors
    /// If the system gives no epoll set.
    pub fn new() -> io::Result<Outgoing> {
        Ok(Outgoing {
            epoll: Epoll::new()?,
            sockets: Slab::new(),
            counters: OutgoingCounters::default(),
            next_event: 0,
            diagnosis: None,
        })
    }

    /// Begins to connect, without waiting. The connection is reported as writable when that has
    /// ended, well or not: [`Outgoing::finish_dialing`] says which.
    ///
    /// # Errors
    /// What the system says at once: no descriptors left, nobody at a UNIX socket.
    pub fn dial(&mut self, to: &OutgoingEndpoint) -> io::Result<ConnectionId> {
        self.counters.dials += 1;
        let (descriptor, is_tcp) = begin_connecting(to)?;
        let id = self.sockets.insert(OutgoingSocket {
            descriptor,
            is_tcp,
            wants_write: true,
        });
        let socket = self.sockets.get_mut(id).expect("inserted above");
        let both = Interest {
            read: true,
            write: true,
        };
        if self.epoll.register(&socket.descriptor, id, both).is_err() {
            self.sockets.remove(id);
            return Err(io::Error::other("the epoll set takes no further socket"));
        }
        Ok(id)
    }

    /// After the first report of a connection: whether it stands. It is reported as readable only
    /// from now on.
    ///
    /// # Errors
    /// Why it does not; it is closed then.
    pub fn finish_dialing(&mut self, id: ConnectionId) -> io::Result<()> {
        let Some(socket) = self.sockets.get_mut(id) else {
            return Err(Errno::BADF.into());
        };
        let outcome = sockopt::socket_error(&socket.descriptor).and_then(|error| error);
        if let Err(error) = outcome {
            self.close(id);
            return Err(error.into());
        }
        self.watch_writable(id, false);
        Ok(())
    }

    /// Waits until something is ready, but not longer than `timeout_ns` (`None`: for ever).
    ///
    /// # Errors
    /// If the system refuses, which it has no reason to.
    pub fn wait(&mut self, timeout_ns: Option<u64>) -> io::Result<()> {
        self.counters.waits += 1;
        self.next_event = 0;
        self.epoll.wait(timeout_ns)
    }

    /// Returns a place to wait for these sockets while others use them.
    ///
    /// # Errors
    /// If the system gives no descriptors.
    pub fn poller(&self) -> io::Result<OutgoingPoller> {
        OutgoingPoller::new(&self.epoll)
    }

    /// Takes what a poller of these sockets has waited for, as [`Outgoing::wait`] would.
    pub fn take_events(&mut self, poller: &mut OutgoingPoller) {
        self.counters.waits += poller.take_waits();
        self.next_event = 0;
        self.epoll.swap_events(poller.epoll());
    }

    /// Who is ready, one after the other, after [`Outgoing::wait`] or [`Outgoing::take_events`].
    pub fn next_ready(&mut self) -> Option<Ready> {
        while self.next_event < self.epoll.event_count() {
            let (token, readiness) = self.epoll.event(self.next_event);
            self.next_event += 1;
            if let EpollToken::Connection(id) = token
                && self.sockets.get_mut(id).is_some()
            {
                let Readiness {
                    readable, writable, ..
                } = readiness;
                return Some(Ready {
                    id,
                    readable,
                    writable,
                });
            }
        }
        None
    }

    /// Reads once.
    pub fn read(&mut self, id: ConnectionId, into: &mut [u8]) -> SocketReadResult {
        let Some(socket) = self.sockets.get_mut(id) else {
            return SocketReadResult::Broken;
        };
        self.counters.reads += 1;
        match self.epoll.receive(&socket.descriptor, into) {
            Ok(0) => SocketReadResult::End,
            Ok(count) => {
                self.counters.bytes_in += count as u64;
                SocketReadResult::Bytes(count)
            }
            Err(TransferError::NotReady) => SocketReadResult::Nothing,
            Err(TransferError::Broken) => SocketReadResult::Broken,
        }
    }

    /// Writes once. What was not taken waits with the caller until the connection is reported as
    /// writable.
    pub fn write(&mut self, id: ConnectionId, bytes: &[u8]) -> SocketWriteResult {
        let Some(socket) = self.sockets.get_mut(id) else {
            return SocketWriteResult::Broken;
        };
        self.counters.writes += 1;
        let count = match self.epoll.send(&socket.descriptor, bytes) {
            Ok(count) => count,
            Err(TransferError::NotReady) => 0,
            Err(TransferError::Broken) => return SocketWriteResult::Broken,
        };
        self.counters.bytes_out += count as u64;
        self.watch_writable(id, count < bytes.len());
        SocketWriteResult::Bytes(count)
    }

    /// Closes a connection; what the kernel has taken still goes out.
    pub fn close(&mut self, id: ConnectionId) {
        if let Some(socket) = self.sockets.remove(id) {
            self.epoll.close(socket.descriptor);
        }
    }

    /// What has been done so far.
    pub fn counters(&self) -> OutgoingCounters {
        self.counters
    }

    /// What the kernel has counted for a TCP connection; `None` for a UNIX socket, and where the
    /// kernel does not say.
    pub fn tcp_figures(&mut self, id: ConnectionId) -> Option<TcpFigures> {
        let socket = self.sockets.get_mut(id).filter(|socket| socket.is_tcp)?;
        let local = getsockname(&socket.descriptor).ok()?.try_into().ok()?;
        let peer = getpeername(&socket.descriptor).ok()??.try_into().ok()?;
        if self.diagnosis.is_none() {
            self.diagnosis = TcpDiagnosis::open().ok();
        }
        let info = self.diagnosis.as_mut()?.info(local, peer)?;
        Some(info.figures)
    }

    fn watch_writable(&mut self, id: ConnectionId, wanted: bool) {
        if let Some(socket) = self.sockets.get_mut(id)
            && socket.wants_write != wanted
        {
            socket.wants_write = wanted;
            let interest = Interest {
                read: true,
                write: wanted,
            };
            self.epoll.watch(&socket.descriptor, id, interest);
        }
    }
}

impl std::fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outgoing")
            .field("sockets", &self.sockets.len())
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

/// A socket that is connecting, and whether it is one of TCP.
fn begin_connecting(to: &OutgoingEndpoint) -> io::Result<(OwnedFd, bool)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (family, is_tcp) = match to {
        OutgoingEndpoint::Tcp(address) if address.is_ipv4() => (AddressFamily::INET, true),
        OutgoingEndpoint::Tcp(_) => (AddressFamily::INET6, true),
        OutgoingEndpoint::Unix(_) => (AddressFamily::UNIX, false),
    };
    let descriptor = socket_with(family, SocketType::STREAM, flags, None)?;
    let begun = match to {
        OutgoingEndpoint::Tcp(address) => {
            // Requests are written whole, so there is nothing that Nagle's algorithm could gather.
            sockopt::set_tcp_nodelay(&descriptor, true)?;
            connect(&descriptor, address)
        }
        OutgoingEndpoint::Unix(path) => connect(&descriptor, &SocketAddrUnix::new(path.as_path())?),
    };
    match begun {
        Ok(()) | Err(Errno::INPROGRESS) => Ok((descriptor, is_tcp)),
        Err(error) => Err(error.into()),
    }
}
