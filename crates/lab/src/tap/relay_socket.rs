//! One of the two sockets of a connection that the tap relays, with TLS or without.

use net::tls::{TlsFailure, TlsPipe};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown, sockopt};

use super::limits::TAP_READ_BYTES;

/// Plaintext that is sealed at once: one record of TLS.
const SEAL_BYTES: usize = 16 << 10;

/// Why a socket is of no further use.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    /// The kernel says so.
    #[error("{0}")]
    Socket(#[from] Errno),
    /// TLS could not be agreed on, or its bytes are wrong.
    #[error("{0}")]
    Tls(#[from] TlsFailure),
}

impl Broken {
    /// Whether the peer has closed its socket.
    pub(super) fn is_peer_gone(&self) -> bool {
        matches!(self, Broken::Socket(Errno::PIPE | Errno::CONNRESET))
    }
}

/// What reading brought.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Came {
    /// Bytes of the socket, which may be none of plaintext.
    Bytes,
    /// The peer has ended its side.
    End,
    /// Nothing for now.
    Nothing,
}

/// A socket that does not block.
#[derive(Debug)]
pub(super) struct RelaySocket {
    descriptor: OwnedFd,
    tls: Option<TlsPipe>,
    is_connected: bool,
    /// TLS has been told to end.
    is_closing: bool,
    is_shut: bool,
}

impl RelaySocket {
    /// A socket that was accepted, or is being connected.
    pub(super) fn new(
        descriptor: OwnedFd,
        tls: Option<TlsPipe>,
        is_connected: bool,
    ) -> RelaySocket {
        RelaySocket {
            descriptor,
            tls,
            is_connected,
            is_closing: false,
            is_shut: false,
        }
    }

    pub(super) fn descriptor(&self) -> &OwnedFd {
        &self.descriptor
    }

    pub(super) fn is_connected(&self) -> bool {
        self.is_connected
    }

    /// Returns what has happened to the socket, as the kernel reports an error.
    ///
    /// # Errors
    /// With that error.
    pub(super) fn error(&self) -> Result<(), Broken> {
        Ok(sockopt::socket_error(&self.descriptor)??)
    }

    /// The kernel says that there is room: of a socket that was being connected this is the answer.
    ///
    /// # Errors
    /// If the peer could not be reached.
    pub(super) fn finish_connecting(&mut self) -> Result<(), Broken> {
        if !self.is_connected {
            self.error()?;
            self.is_connected = true;
        }
        Ok(())
    }

    /// Reads once; plaintext goes to the end of `plain`.
    pub(super) fn read(
        &mut self,
        scratch: &mut [u8; TAP_READ_BYTES],
        plain: &mut Vec<u8>,
    ) -> Result<Came, Broken> {
        let count = match recv(&self.descriptor, &mut scratch[..], RecvFlags::DONTWAIT) {
            Ok((0, _)) => return Ok(Came::End),
            Ok((count, _)) => count,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(Came::Nothing),
            Err(error) => return Err(error.into()),
        };
        let bytes = scratch.get(..count).unwrap_or_default();
        let Some(pipe) = &mut self.tls else {
            plain.extend_from_slice(bytes);
            return Ok(Came::Bytes);
        };
        let opened = pipe.received(bytes, &mut |piece| plain.extend_from_slice(piece));
        let has_ended = pipe.peer_closed();
        // What TLS has to say is said even where it fails.
        self.flush()?;
        opened?;
        match has_ended && plain.is_empty() {
            true => Ok(Came::End),
            false => Ok(Came::Bytes),
        }
    }

    /// Forwards what it can of `bytes`; returns how many.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<usize, Broken> {
        if !self.is_connected {
            return Ok(0);
        }
        if self.tls.is_none() {
            return self.send(bytes);
        }
        if !self.flush()? {
            return Ok(0);
        }
        let Some(pipe) = self.tls.as_mut().filter(|pipe| !pipe.is_handshaking()) else {
            return Ok(0);
        };
        let piece = bytes.get(..SEAL_BYTES).unwrap_or(bytes);
        pipe.seal(piece)?;
        self.flush()?;
        Ok(piece.len())
    }

    /// Sends what TLS has sealed; returns whether all of it is on its way.
    pub(super) fn flush(&mut self) -> Result<bool, Broken> {
        if !self.is_connected {
            return Ok(false);
        }
        while let Some(pipe) = self.tls.as_ref().filter(|pipe| !pipe.output().is_empty()) {
            let sent = self.send(pipe.output())?;
            if sent == 0 {
                return Ok(false);
            }
            if let Some(pipe) = &mut self.tls {
                pipe.sent(sent);
            }
        }
        Ok(true)
    }

    /// Whether something that was taken has yet to go out.
    pub(super) fn has_unsent(&self) -> bool {
        let pipe = self.tls.as_ref();
        pipe.is_some_and(|pipe| !pipe.output().is_empty())
    }

    fn send(&self, bytes: &[u8]) -> Result<usize, Broken> {
        match send(
            &self.descriptor,
            bytes,
            SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
        ) {
            Ok(count) => Ok(count),
            Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// Ends the own side; returns whether that is done.
    pub(super) fn shut(&mut self) -> Result<bool, Broken> {
        if self.is_shut {
            return Ok(true);
        }
        if let Some(pipe) = self.tls.as_mut().filter(|_| !self.is_closing) {
            pipe.close();
            self.is_closing = true;
        }
        if !self.flush()? {
            return Ok(false);
        }
        self.is_shut = true;
        match shutdown(&self.descriptor, Shutdown::Write) {
            // The peer is gone already.
            Ok(()) | Err(Errno::NOTCONN) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }
}
