//! Where to connect to: an address whose name has been looked up.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use crate::Address;

/// One place that can be connected to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum OutgoingEndpoint {
    /// An IP address and a port.
    Tcp(SocketAddr),
    /// The path of a UNIX socket.
    Unix(PathBuf),
}

impl OutgoingEndpoint {
    /// All that an address stands for, in the order of the resolver. Waits for the resolver.
    ///
    /// # Errors
    /// If the name is not known, or stands for nothing.
    pub fn resolve(address: &Address) -> io::Result<Vec<OutgoingEndpoint>> {
        match address {
            Address::Unix(path) => Ok(vec![OutgoingEndpoint::Unix(path.clone())]),
            Address::Tcp { host, port } => {
                let found: Vec<OutgoingEndpoint> = (host.as_str(), *port)
                    .to_socket_addrs()?
                    .map(OutgoingEndpoint::Tcp)
                    .collect();
                if found.is_empty() {
                    let none = "the name stands for no address";
                    return Err(io::Error::new(io::ErrorKind::NotFound, none));
                }
                Ok(found)
            }
        }
    }
}

impl fmt::Display for OutgoingEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OutgoingEndpoint::Tcp(address) => address.fmt(f),
            OutgoingEndpoint::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}
