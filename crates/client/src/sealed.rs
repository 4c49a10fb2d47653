//! TLS between a socket that does not block and what a connection carries.

use net::tls::{TlsFailure, TlsPipe};

use crate::line::{check_agreed, in_words};

/// Why a socket is of no further use.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SocketEnd {
    #[error("{0}")]
    Said(&'static str),
    #[error("{0}")]
    Tls(TlsFailure),
}

/// Seals all of `plain`, unless the two sides have yet to agree, or something that was sealed waits
/// for the socket. Returns whether it did.
pub(crate) fn seal(plain: &[u8], pipe: &mut TlsPipe) -> bool {
    if plain.is_empty() || pipe.is_handshaking() || !pipe.output().is_empty() {
        return false;
    }
    // Of a session that is over the next read reports why.
    let _ = pipe.seal(plain);
    true
}

/// Opens what came; plaintext goes to `take`. The server must have chosen HTTP/2.
pub(crate) fn open(
    bytes: &[u8],
    pipe: &mut TlsPipe,
    take: &mut dyn FnMut(&[u8]),
) -> Result<(), SocketEnd> {
    let was_handshaking = pipe.is_handshaking();
    let opened = receive(bytes, pipe, take);
    if was_handshaking && !pipe.is_handshaking() && !matches!(opened, Err(SocketEnd::Tls(_))) {
        check_agreed(pipe).map_err(SocketEnd::Tls)?;
    }
    opened
}

/// The same whatever the server has chosen.
pub(crate) fn receive(
    bytes: &[u8],
    pipe: &mut TlsPipe,
    take: &mut dyn FnMut(&[u8]),
) -> Result<(), SocketEnd> {
    let opened = pipe.received(bytes, take);
    opened.map_err(|failure| SocketEnd::Tls(in_words(failure)))?;
    if pipe.peer_closed() {
        return Err(SocketEnd::Said("the server closed it"));
    }
    Ok(())
}
