//! Bytes in and out of the kernel's sockets, for every port that has some.

use std::time::Duration;

use rustix::event::Timespec;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

use crate::peer_address::PeerAddress;
use crate::port::TransferError;

/// Takes what is there.
pub(crate) fn receive(socket: &OwnedFd, into: &mut [u8]) -> Result<usize, TransferError> {
    receive_with(socket, into, RecvFlags::DONTWAIT)
}

/// Waits for bytes as long as [`make_waiting`] allowed.
pub(crate) fn receive_waiting(socket: &OwnedFd, into: &mut [u8]) -> Result<usize, TransferError> {
    receive_with(socket, into, RecvFlags::empty())
}

fn receive_with(
    socket: &OwnedFd,
    into: &mut [u8],
    flags: RecvFlags,
) -> Result<usize, TransferError> {
    match recv(socket, into, flags) {
        Ok((count, _)) => Ok(count),
        Err(error) => Err(transfer_error(error)),
    }
}

/// Gives the kernel what it takes now.
pub(crate) fn send_some(socket: &OwnedFd, bytes: &[u8]) -> Result<usize, TransferError> {
    send(socket, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT).map_err(transfer_error)
}

/// Returns the user of the process at the other end of a UNIX socket, as of when it connected.
pub(crate) fn peer_user(socket: &OwnedFd, address: &PeerAddress) -> Option<u32> {
    match address {
        PeerAddress::Unix => socket_peercred(socket).ok().map(|peer| peer.uid.as_raw()),
        PeerAddress::Tcp(_) | PeerAddress::Simulated(_) => None,
    }
}

pub(crate) fn end_output(socket: &OwnedFd) {
    // Fails only if the peer is gone already, which the next event tells.
    let _ = shutdown(socket, Shutdown::Write);
}

/// Lets [`receive_waiting`] wait on an accepted socket, for at most so long.
pub(crate) fn make_waiting(socket: &OwnedFd, wait_ms: u64) -> Result<(), Errno> {
    rustix::io::ioctl_fionbio(socket, false)?;
    set_socket_timeout(socket, Timeout::Recv, Some(Duration::from_millis(wait_ms)))
}

pub(crate) fn timespec(ns: u64) -> Timespec {
    Timespec {
        tv_sec: (ns / 1_000_000_000) as i64,
        tv_nsec: (ns % 1_000_000_000) as i64,
    }
}

/// Would-block and interruption pass; all else is the end of a stream socket.
fn transfer_error(error: Errno) -> TransferError {
    match error {
        Errno::AGAIN | Errno::INTR | Errno::NOBUFS | Errno::NOMEM => TransferError::NotReady,
        _ => TransferError::Broken,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_end_of_output_reaches_the_peer_and_input_still_comes() {
        let (near, far) = UnixStream::pair().expect("a pair");
        let (near, far) = (OwnedFd::from(near), OwnedFd::from(far));
        let mut into = [0; 8];
        assert!(matches!(
            receive(&far, &mut into),
            Err(TransferError::NotReady)
        ));
        assert!(matches!(send_some(&near, b"last"), Ok(4)));
        end_output(&near);
        assert!(matches!(receive(&far, &mut into), Ok(4)));
        assert!(matches!(receive(&far, &mut into), Ok(0)), "the end");
        assert!(matches!(send_some(&far, b"still"), Ok(5)));
        assert!(matches!(receive(&near, &mut into), Ok(5)));
    }

    #[test]
    fn nanoseconds_are_divided_into_seconds_and_the_rest() {
        for (ns, expected) in [
            (0, (0, 0)),
            (999_999_999, (0, 999_999_999)),
            (1_000_000_000, (1, 0)),
            (3_600_000_000_007, (3_600, 7)),
        ] {
            let time = timespec(ns);
            assert_eq!((time.tv_sec, time.tv_nsec), expected);
        }
    }

    #[test]
    fn errors_that_pass_are_told_from_the_end_of_a_socket() {
        for passing in [Errno::AGAIN, Errno::INTR, Errno::NOBUFS, Errno::NOMEM] {
            assert_eq!(transfer_error(passing), TransferError::NotReady);
        }
        for ending in [Errno::CONNRESET, Errno::PIPE, Errno::TIMEDOUT] {
            assert_eq!(transfer_error(ending), TransferError::Broken);
        }
    }
}
