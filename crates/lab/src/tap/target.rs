//! The server behind the tap.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use net::Address;
use net::tls::ClientTls;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt,
};

use super::limits::TAP_DIAL_MS;

/// Where the server is, and how it is spoken to.
#[derive(Clone, Debug)]
pub struct TapTarget {
    /// Its address.
    pub address: Address,
    /// TLS to it; its certificate is checked there, and not by the client.
    pub tls: Option<ClientTls>,
}

/// Why the tap cannot be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TapError {
    /// The address to listen on cannot be had.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address asked for.
        address: Address,
        /// What the kernel or the resolver says.
        #[source]
        error: io::Error,
    },
    /// The server does not accept a connection.
    #[error("cannot connect to {address}: {error}")]
    Target {
        /// Its address.
        address: Address,
        /// What the kernel or the resolver says.
        #[source]
        error: io::Error,
    },
    /// The process is out of what the relay needs.
    #[error("cannot set up the relay: {0}")]
    System(#[source] io::Error),
}

/// A server that has accepted one connection, so that it is known to be there.
#[derive(Clone, Debug)]
pub(super) struct ReachedTarget {
    place: Place,
    /// From the request for a connection to its acceptance: one way there and back.
    pub(super) connect_ns: u64,
}

#[derive(Clone, Debug)]
enum Place {
    Tcp(SocketAddr),
    Unix(SocketAddrUnix),
}

impl ReachedTarget {
    /// Connects once to each address that the host's name stands for, until one accepts.
    pub(super) fn reach(address: &Address) -> Result<ReachedTarget, TapError> {
        let failed = |error| TapError::Target {
            address: address.clone(),
            error,
        };
        let begin = Instant::now();
        match address {
            Address::Unix(path) => {
                let path = SocketAddrUnix::new(path).map_err(|error| failed(error.into()))?;
                UnixStream::connect(
                    path.path()
                        .map_or_else(String::new, |path| path.to_string_lossy().into_owned()),
                )
                .map_err(failed)?;
                Ok(ReachedTarget {
                    place: Place::Unix(path),
                    connect_ns: begin.elapsed().as_nanos() as u64,
                })
            }
            Address::Tcp { host, port } => {
                let addresses = (host.as_str(), *port).to_socket_addrs().map_err(failed)?;
                let (place, connect_ns) = reach_any(addresses).map_err(failed)?;
                Ok(ReachedTarget {
                    place: Place::Tcp(place),
                    connect_ns,
                })
            }
        }
    }

    /// Whether it is on this machine.
    pub(super) fn is_local(&self) -> bool {
        match &self.place {
            Place::Tcp(address) => address.ip().is_loopback(),
            Place::Unix(_) => true,
        }
    }

    /// Begins a connection; returns whether it stands already.
    pub(super) fn dial(&self) -> Result<(OwnedFd, bool), Errno> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (socket, connected) = match &self.place {
            Place::Tcp(address) => {
                let family = match address {
                    SocketAddr::V4(_) => AddressFamily::INET,
                    SocketAddr::V6(_) => AddressFamily::INET6,
                };
                let socket = socket_with(family, SocketType::STREAM, flags, None)?;
                sockopt::set_tcp_nodelay(&socket, true)?;
                let connected = connect(&socket, address);
                (socket, connected)
            }
            Place::Unix(path) => {
                let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
                let connected = connect(&socket, path);
                (socket, connected)
            }
        };
        match connected {
            Ok(()) => Ok((socket, true)),
            Err(Errno::INPROGRESS) => Ok((socket, false)),
            Err(error) => Err(error),
        }
    }
}

fn reach_any(addresses: impl Iterator<Item = SocketAddr>) -> io::Result<(SocketAddr, u64)> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name stands for no address");
    for address in addresses {
        let begin = Instant::now();
        match TcpStream::connect_timeout(&address, Duration::from_millis(TAP_DIAL_MS)) {
            Ok(_) => return Ok((address, begin.elapsed().as_nanos() as u64)),
            Err(error) => last = error,
        }
    }
    Err(last)
}
