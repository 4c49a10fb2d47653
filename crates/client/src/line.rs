//! A socket, with TLS or without.

use std::io;
use std::time::{Duration, Instant};

use net::Address;
use net::tls::{ClientTls, TlsFailure, TlsFailureKind, TlsPipe};

use crate::error::ConnectError;
use crate::limits;
use crate::socket::{Socket, SocketWait};

/// The application protocol of gRPC in ALPN (RFC 9113 section 3.2).
pub const APPLICATION: &[u8] = b"h2";

/// What bytes of a channel go through.
#[derive(Debug)]
pub(crate) struct ChannelLine {
    socket: Socket,
    tls: Option<TlsPipe>,
}

impl ChannelLine {
    /// Connects, and agrees on TLS if that is asked for.
    pub(crate) fn connect(
        address: &Address,
        tls: Option<&ClientTls>,
        timeout: Duration,
    ) -> Result<ChannelLine, ConnectError> {
        let until = Instant::now() + timeout;
        let socket = Socket::connect(address, timeout)?;
        let mut line = ChannelLine { socket, tls: None };
        if let Some(tls) = tls {
            let failed = |failure| tls_error(address, failure);
            line.tls = Some(tls.connect(address).map_err(failed)?);
            line.shake_hands(address, until)?;
        }
        Ok(line)
    }

    fn shake_hands(&mut self, address: &Address, until: Instant) -> Result<(), ConnectError> {
        let failed = |failure| tls_error(address, failure);
        let mut buffer = vec![0; limits::READ_BYTES];
        loop {
            // A server that gives up may close before it has taken all; what it says is still to be
            // read.
            let _ = self.flush(limits::WRITE_TIMEOUT);
            let Some(pipe) = self.tls.as_mut() else {
                return Ok(());
            };
            if !pipe.is_handshaking() {
                return check_agreed(pipe).map_err(failed);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ConnectError::TimedOut {
                    address: address.clone(),
                });
            }
            match self.socket.receive(&mut buffer, left) {
                Ok(SocketWait::Nothing) => {}
                Ok(SocketWait::Bytes(count)) => {
                    let received = pipe.received(&buffer[..count], &mut |_| {});
                    if let Err(failure) = received {
                        let _ = self.flush(limits::WRITE_TIMEOUT);
                        return Err(failed(failure));
                    }
                }
                Ok(SocketWait::End) | Err(_) => return Err(failed(closed_in_handshake())),
            }
        }
    }

    /// Waits for bytes, which go to `take`. An error has its reason in it.
    pub(crate) fn receive(
        &mut self,
        buffer: &mut [u8],
        timeout: Duration,
        take: &mut dyn FnMut(&[u8]),
    ) -> io::Result<SocketWait> {
        let received = self.socket.receive(buffer, timeout)?;
        let (Some(pipe), SocketWait::Bytes(count)) = (&mut self.tls, &received) else {
            if let SocketWait::Bytes(count) = received {
                take(&buffer[..count]);
            }
            return Ok(received);
        };
        let opened = pipe.received(&buffer[..*count], take);
        let is_over = pipe.peer_closed();
        self.flush(limits::WRITE_TIMEOUT)?;
        match opened {
            Ok(()) if is_over => Ok(SocketWait::End),
            Ok(()) => Ok(received),
            Err(failure) => Err(io::Error::other(in_words(failure))),
        }
    }

    /// Takes what it can of `bytes` within `timeout`, and returns how much that was.
    pub(crate) fn send(&mut self, bytes: &[u8], timeout: Duration) -> io::Result<usize> {
        if self.tls.is_none() {
            return self.socket.send(bytes, timeout);
        }
        if !self.flush(timeout)? {
            return Ok(0);
        }
        let piece = &bytes[..bytes.len().min(limits::SEAL_BYTES)];
        if let Some(pipe) = &mut self.tls {
            pipe.seal(piece)
                .map_err(|failure| io::Error::other(in_words(failure)))?;
        }
        self.flush(timeout)?;
        Ok(piece.len())
    }

    /// Whether something that was taken has yet to go out.
    pub(crate) fn has_unsent(&self) -> bool {
        self.tls
            .as_ref()
            .is_some_and(|pipe| !pipe.output().is_empty())
    }

    /// Sends what was sealed. The answer is whether all of it is on its way.
    pub(crate) fn flush(&mut self, timeout: Duration) -> io::Result<bool> {
        let Some(pipe) = &mut self.tls else {
            return Ok(true);
        };
        while !pipe.output().is_empty() {
            match self.socket.send(pipe.output(), timeout)? {
                0 => return Ok(false),
                count => pipe.sent(count),
            }
        }
        Ok(true)
    }
}

impl Drop for ChannelLine {
    fn drop(&mut self) {
        if let Some(pipe) = &mut self.tls {
            pipe.close();
        }
        // A peer that does not read the closure alert sees the end all the same.
        let _ = self.flush(Duration::from_millis(1));
    }
}

/// After the handshake: whether the server speaks HTTP/2.
pub(crate) fn check_agreed(pipe: &TlsPipe) -> Result<(), TlsFailure> {
    if pipe.agreed().application.as_deref() == Some(APPLICATION) {
        return Ok(());
    }
    Err(TlsFailure {
        kind: TlsFailureKind::Incompatible,
        reason: "the server did not choose HTTP/2 (h2 in ALPN)".into(),
        fault: None,
    })
}

pub(crate) fn closed_in_handshake() -> TlsFailure {
    TlsFailure {
        kind: TlsFailureKind::Ended,
        reason: "the server closed the connection in the midst of it: does this port speak TLS?"
            .into(),
        fault: None,
    }
}

/// The failure from the side of a client.
pub(crate) fn in_words(failure: TlsFailure) -> TlsFailure {
    match failure.kind {
        TlsFailureKind::NotTls => TlsFailure {
            reason: "the server does not speak TLS on this port".into(),
            ..failure
        },
        _ => failure,
    }
}

pub(crate) fn tls_error(address: &Address, failure: TlsFailure) -> ConnectError {
    ConnectError::Tls {
        address: address.clone(),
        failure: in_words(failure),
    }
}
