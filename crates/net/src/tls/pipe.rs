//! A session with its buffers, for whoever owns the socket.

use std::fmt;

use super::session::Session;
use super::{Agreed, TlsFailure};
use crate::io::Input;
use crate::limits::PIPE_KEPT_BYTES;

/// TLS of one connection. Bytes go in and out by calls; the socket belongs to the caller.
pub struct TlsPipe {
    session: Session,
    incoming: Input,
    outgoing: Input,
}

impl TlsPipe {
    pub(super) fn new(session: Session) -> Result<TlsPipe, TlsFailure> {
        let mut pipe = TlsPipe {
            session,
            incoming: Input::default(),
            outgoing: Input::default(),
        };
        pipe.received(&[], &mut |_| {})?; // makes the first word
        Ok(pipe)
    }

    /// Takes in what came from the socket; plaintext goes to `plain`, piece by piece.
    ///
    /// # Errors
    /// If the session has come to its end by a fault. What is in [`TlsPipe::output`] tells the
    /// peer.
    pub fn received(
        &mut self,
        bytes: &[u8],
        plain: &mut dyn FnMut(&[u8]),
    ) -> Result<(), TlsFailure> {
        self.incoming.push(bytes);
        let opened = self
            .session
            .open(&mut self.incoming, &mut self.outgoing, plain);
        shed(&mut self.incoming);
        opened
    }

    /// Seals plaintext; it waits in [`TlsPipe::output`].
    ///
    /// # Errors
    /// If the session has come to its end.
    pub fn seal(&mut self, plain: &[u8]) -> Result<(), TlsFailure> {
        self.session
            .seal(&mut self.incoming, plain, &mut self.outgoing)
    }

    /// Tells the peer that nothing follows.
    pub fn close(&mut self) {
        self.session.close(&mut self.incoming, &mut self.outgoing);
    }

    /// What waits for the socket.
    pub fn output(&self) -> &[u8] {
        self.outgoing.bytes()
    }

    /// So much of the output is on its way.
    pub fn sent(&mut self, count: usize) {
        self.outgoing.consume(count);
        shed(&mut self.outgoing);
    }

    /// Whether the two sides have yet to agree; until then nothing can be sealed.
    pub fn is_handshaking(&self) -> bool {
        self.session.is_handshaking()
    }

    /// What was agreed on, once the handshake is done.
    pub fn agreed(&self) -> Agreed {
        self.session.agreed()
    }

    /// Whether the peer has said that nothing follows.
    pub fn peer_closed(&self) -> bool {
        self.session.peer_closed()
    }
}

impl fmt::Debug for TlsPipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsPipe")
            .field("is_handshaking", &self.is_handshaking())
            .field("output_bytes", &self.outgoing.len())
            .finish_non_exhaustive()
    }
}

/// An empty queue starts anew, and does not keep a buffer that grew large.
fn shed(queue: &mut Input) {
    queue.compact();
    if queue.is_empty() && queue.capacity() > PIPE_KEPT_BYTES {
        *queue = Input::default();
    }
}
