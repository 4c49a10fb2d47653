//! The bytes' way: a TCP or UNIX socket that blocks.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use net::Address;

use crate::error::ConnectError;

/// A connected socket.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// What became of waiting for bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SocketWait {
    /// So many bytes.
    Bytes(usize),
    /// The peer has closed its side.
    End,
    /// Nothing came in time.
    Nothing,
}

impl Socket {
    /// Connects, to each address that a host name stands for in turn.
    pub(crate) fn connect(address: &Address, timeout: Duration) -> Result<Socket, ConnectError> {
        match address {
            Address::Tcp { host, port } => Socket::connect_tcp(address, host, *port, timeout),
            // A UNIX socket is connected at once or not at all.
            Address::Unix(path) => {
                let stream =
                    UnixStream::connect(path).map_err(|error| connect_error(address, error))?;
                Ok(Socket::Unix(stream))
            }
        }
    }

    fn connect_tcp(
        address: &Address,
        host: &str,
        port: u16,
        timeout: Duration,
    ) -> Result<Socket, ConnectError> {
        let unknown = |error| ConnectError::UnknownHost {
            address: address.clone(),
            error,
        };
        let addresses: Vec<SocketAddr> = (host, port).to_socket_addrs().map_err(unknown)?.collect();
        let until = Instant::now() + timeout;
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name stands for no address");
        for (index, candidate) in addresses.iter().enumerate() {
            let left = until.saturating_duration_since(Instant::now());
            let candidates_left = u32::try_from(addresses.len() - index).unwrap_or(u32::MAX);
            match TcpStream::connect_timeout(candidate, share_of(left, candidates_left)) {
                Ok(stream) => {
                    // Requests are written whole, so there is nothing that Nagle's algorithm could
                    // gather.
                    stream
                        .set_nodelay(true)
                        .map_err(|error| connect_error(address, error))?;
                    return Ok(Socket::Tcp(stream));
                }
                Err(error) => last = error,
            }
        }
        Err(connect_error(address, last))
    }

    /// Waits for bytes for at most `timeout`; not at all if that is zero.
    pub(crate) fn receive(
        &mut self,
        buffer: &mut [u8],
        timeout: Duration,
    ) -> io::Result<SocketWait> {
        // The kernel counts a time limit in ticks of milliseconds: no wait at all must be asked for
        // differently.
        let at_once = timeout.is_zero();
        let read = match self {
            Socket::Tcp(stream) if at_once => {
                stream.set_nonblocking(true)?;
                let read = stream.read(buffer);
                stream.set_nonblocking(false)?;
                read
            }
            Socket::Tcp(stream) => {
                stream.set_read_timeout(Some(timeout))?;
                stream.read(buffer)
            }
            Socket::Unix(stream) if at_once => {
                stream.set_nonblocking(true)?;
                let read = stream.read(buffer);
                stream.set_nonblocking(false)?;
                read
            }
            Socket::Unix(stream) => {
                stream.set_read_timeout(Some(timeout))?;
                stream.read(buffer)
            }
        };
        match read {
            Ok(0) => Ok(SocketWait::End),
            Ok(count) => Ok(SocketWait::Bytes(count)),
            Err(error) if is_nothing(&error) => Ok(SocketWait::Nothing),
            Err(error) => Err(error),
        }
    }

    /// Writes what it can of `bytes` within `timeout`, and returns how much that was.
    pub(crate) fn send(&mut self, bytes: &[u8], timeout: Duration) -> io::Result<usize> {
        let timeout = Some(timeout);
        let written = match self {
            Socket::Tcp(stream) => {
                stream.set_write_timeout(timeout)?;
                stream.write(bytes)
            }
            Socket::Unix(stream) => {
                stream.set_write_timeout(timeout)?;
                stream.write(bytes)
            }
        };
        match written {
            Err(error) if is_nothing(&error) => Ok(0),
            written => written,
        }
    }
}

/// Returns how long the next of so many addresses may take, so that one that does not answer leaves
/// time for the others.
fn share_of(left: Duration, candidates: u32) -> Duration {
    // Zero is refused by the standard library; whoever has no time left learns so in the first
    // millisecond.
    (left / candidates.max(1)).max(Duration::from_millis(1))
}

/// A time limit that has passed, or a signal in between.
fn is_nothing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

/// What a failure to connect means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DialFailure {
    /// Nothing on the port, or no socket at the path.
    NobodyListens,
    TimedOut,
    Other,
}

impl DialFailure {
    fn of(error: &io::Error) -> DialFailure {
        match error.kind() {
            // Only a path is not found: the addresses of a host are looked up before.
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => {
                DialFailure::NobodyListens
            }
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => DialFailure::TimedOut,
            _ => DialFailure::Other,
        }
    }
}

/// Returns the error of a connection that could not be made.
pub(crate) fn connect_error(address: &Address, error: io::Error) -> ConnectError {
    let address = address.clone();
    match DialFailure::of(&error) {
        DialFailure::NobodyListens => ConnectError::NobodyListens { address },
        DialFailure::TimedOut => ConnectError::TimedOut { address },
        DialFailure::Other => ConnectError::Failed { address, error },
    }
}

/// The same as words for a pool, which knows its addresses.
pub(crate) fn connect_reason(error: &io::Error) -> String {
    match DialFailure::of(error) {
        DialFailure::NobodyListens => "nobody listens there".into(),
        DialFailure::TimedOut => "no answer in time".into(),
        DialFailure::Other => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn connect(text: &str) -> ConnectError {
        let address: Address = text.parse().expect(text);
        Socket::connect(&address, Duration::from_secs(5)).expect_err("nobody listens")
    }

    #[test]
    fn an_address_that_does_not_answer_leaves_time_for_the_others() {
        let second = Duration::from_secs(1);
        assert_eq!(share_of(4 * second, 4), second);
        assert_eq!(share_of(3 * second, 1), 3 * second);
        for candidates in [0, 1, 3] {
            assert_eq!(
                share_of(Duration::ZERO, candidates),
                Duration::from_millis(1)
            );
        }
    }

    #[test]
    fn nobody_listens() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound").to_string();
        drop(listener);
        let error = connect(&address);
        assert!(
            matches!(error, ConnectError::NobodyListens { .. }),
            "{error:?}"
        );
        assert!(error.to_string().contains(&address), "{error}");
        let error = connect("unix:/nowhere/at/all.sock");
        assert!(
            matches!(error, ConnectError::NobodyListens { .. }),
            "{error:?}"
        );
    }

    #[test]
    fn an_error_and_the_words_of_a_pool_say_the_same() {
        let address: Address = "unix:/a.sock".parse().expect("an address");
        for kind in [
            io::ErrorKind::ConnectionRefused,
            io::ErrorKind::NotFound,
            io::ErrorKind::TimedOut,
            io::ErrorKind::WouldBlock,
            io::ErrorKind::PermissionDenied,
        ] {
            let words = connect_reason(&kind.into());
            let error = connect_error(&address, kind.into()).to_string();
            assert!(error.contains(&format!(": {words}")), "{error}: {words}");
        }
    }

    #[test]
    fn unknown_hosts_are_named() {
        let error = connect("no-such-host.invalid:1978");
        assert!(
            matches!(error, ConnectError::UnknownHost { .. }),
            "{error:?}"
        );
        assert!(
            error.to_string().contains("no-such-host.invalid"),
            "{error}"
        );
    }

    #[test]
    fn waiting_ends() {
        let (ours, _theirs) = UnixStream::pair().expect("a pair of sockets");
        let mut socket = Socket::Unix(ours);
        assert_eq!(
            socket
                .receive(&mut [0; 8], Duration::ZERO)
                .expect("no error"),
            SocketWait::Nothing
        );
        drop(_theirs);
        assert_eq!(
            socket
                .receive(&mut [0; 8], Duration::from_secs(5))
                .expect("no error"),
            SocketWait::End
        );
    }
}
