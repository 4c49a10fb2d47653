//! Listening sockets: how they come to be, and how they go.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType, acceptfrom_with, bind,
    getsockname, listen, socket_with, sockopt,
};

use crate::Address;
use crate::config::LoopConfig;
use crate::limits::{LISTEN_BACKLOG, MAX_THREADS};
use crate::peer_address::PeerAddress;

/// Why there is nothing to run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// The configuration names no address.
    #[error("no address to listen on was given")]
    NoAddress,
    /// The number of threads is 0 or above the limit.
    #[error("{0} threads asked for; from 1 to {MAX_THREADS} are possible")]
    Threads(usize),
    /// Somebody else listens there.
    #[error("cannot listen on {address}: another process listens there")]
    InUse {
        /// The address asked for.
        address: Address,
    },
    /// The host name is not known.
    #[error("cannot listen on {address}: the host is not known ({error})")]
    UnknownHost {
        /// The address asked for.
        address: Address,
        /// What the resolver says.
        #[source]
        error: io::Error,
    },
    /// A file that is no socket stands at the path. It is left alone.
    #[error("cannot listen on {address}: the file there is not a socket")]
    NotASocket {
        /// The address asked for.
        address: Address,
    },
    /// Anything else that the kernel refuses.
    #[error("cannot listen on {address}: {error}")]
    Failed {
        /// The address asked for.
        address: Address,
        /// What the kernel says.
        #[source]
        error: io::Error,
    },
    /// The process is out of what every server needs: epoll, eventfd, a socket pair.
    #[error("cannot set up event loops: {0}")]
    System(#[source] io::Error),
}

/// A socket that takes connections.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: OwnedFd,
    /// Where it really listens.
    address: Address,
    /// Removed when the listener goes.
    file: Option<SocketFile>,
}

impl Listener {
    pub(crate) fn bind(address: &Address, config: &LoopConfig) -> Result<Listener, BindError> {
        match address {
            Address::Tcp { host, port } => bind_host(address, host, *port, config),
            Address::Unix(path) => bind_path(address, path, config),
        }
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Takes one waiting connection, if there is one.
    pub(crate) fn accept(&self) -> Result<(OwnedFd, PeerAddress), Errno> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (socket, address) = acceptfrom_with(&self.socket, flags)?;
        if self.file.is_some() {
            return Ok((socket, PeerAddress::Unix));
        }
        // A peer without an address is gone already, as is one whose option cannot be set.
        let address = address.ok_or(Errno::CONNABORTED)?;
        let address = SocketAddr::try_from(address).map_err(|_| Errno::CONNABORTED)?;
        sockopt::set_tcp_nodelay(&socket, true).map_err(|_| Errno::CONNABORTED)?;
        Ok((socket, PeerAddress::Tcp(address)))
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> rustix::fd::BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The first of the host's addresses that can be bound.
fn bind_host(
    address: &Address,
    host: &str,
    port: u16,
    config: &LoopConfig,
) -> Result<Listener, BindError> {
    let unknown = |error| BindError::UnknownHost {
        address: address.clone(),
        error,
    };
    let mut last = Errno::ADDRNOTAVAIL;
    for socket_address in (host, port).to_socket_addrs().map_err(unknown)? {
        match bind_tcp(socket_address, config) {
            Ok((socket, bound)) => {
                let address = Address::Tcp {
                    host: bound.ip().to_string(),
                    port: bound.port(),
                };
                return Ok(Listener {
                    socket,
                    address,
                    file: None,
                });
            }
            Err(error) => last = error,
        }
    }
    Err(failed(address, last))
}

fn bind_tcp(address: SocketAddr, config: &LoopConfig) -> Result<(OwnedFd, SocketAddr), Errno> {
    let family = if address.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    // Accepted sockets inherit the sizes; set later, the receive window could not use them.
    if let Some(bytes) = config.tcp_send_buffer {
        sockopt::set_socket_send_buffer_size(&socket, bytes)?;
    }
    if let Some(bytes) = config.tcp_receive_buffer {
        sockopt::set_socket_recv_buffer_size(&socket, bytes)?;
    }
    bind(&socket, &address)?;
    listen(&socket, LISTEN_BACKLOG)?;
    let bound = SocketAddr::try_from(getsockname(&socket)?)?;
    Ok((socket, bound))
}

fn bind_path(address: &Address, path: &Path, config: &LoopConfig) -> Result<Listener, BindError> {
    let (socket, file) = match bind_unix(path, config) {
        Err(Errno::ADDRINUSE) => {
            remove_stale(address, path)?;
            bind_unix(path, config)
        }
        bound => bound,
    }
    .map_err(|error| failed(address, error))?;
    Ok(Listener {
        socket,
        address: address.clone(),
        file: Some(file),
    })
}

fn bind_unix(path: &Path, config: &LoopConfig) -> Result<(OwnedFd, SocketFile), Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let socket_address: SocketAddrAny = SocketAddrUnix::new(path)?.into();
    bind(&socket, &socket_address)?;
    let file = SocketFile::at(path).map_err(errno)?;
    // Before listening, so that nobody gets in while the permissions are still the umask's.
    let permissions = std::fs::Permissions::from_mode(config.unix_mode);
    std::fs::set_permissions(path, permissions).map_err(errno)?;
    listen(&socket, LISTEN_BACKLOG)?;
    Ok((socket, file))
}

/// Removes a socket file that nobody listens at any more: its server was killed.
fn remove_stale(address: &Address, path: &Path) -> Result<(), BindError> {
    let fail = |error| BindError::Failed {
        address: address.clone(),
        error,
    };
    if !std::fs::symlink_metadata(path)
        .map_err(fail)?
        .file_type()
        .is_socket()
    {
        return Err(BindError::NotASocket {
            address: address.clone(),
        });
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(fail)
        }
        _ => Err(BindError::InUse {
            address: address.clone(),
        }),
    }
}

fn failed(address: &Address, error: Errno) -> BindError {
    let address = address.clone();
    match error {
        Errno::ADDRINUSE => BindError::InUse { address },
        error => BindError::Failed {
            address,
            error: error.into(),
        },
    }
}

fn errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

/// The file of a UNIX socket; removed on drop, unless another server has put its own there.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl SocketFile {
    fn at(path: &Path) -> io::Result<SocketFile> {
        let metadata = std::fs::symlink_metadata(path)?;
        Ok(SocketFile {
            path: path.into(),
            device: metadata.dev(),
            inode: metadata.ino(),
        })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let ours = std::fs::symlink_metadata(&self.path)
            .is_ok_and(|metadata| metadata.dev() == self.device && metadata.ino() == self.inode);
        if ours {
            // If it cannot be removed, the next server finds it stale and replaces it.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
