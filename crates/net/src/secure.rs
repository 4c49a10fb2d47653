//! What a connection with TLS has beside its plaintext.

use crate::buffers::SpareBuffers;
use crate::handler::Peer;
use crate::io::{Input, Io};
use crate::limits::SEAL_BYTES;
use crate::peer_address::PeerAddress;
use crate::tls::{Session, TlsFailure, sealed_bytes};

/// Room for what one side says at once in a handshake, with a chain of certificates of the usual
/// length.
const FLIGHT_BYTES: usize = 4 * 1024;

/// The session of one connection, and its ciphertext. An idle one has no buffers.
pub(crate) struct Secure {
    session: Session,
    /// What came and is not a whole record.
    incoming: Input,
    /// What waits for the socket.
    outgoing: Input,
    /// Until the handshake is done: whom to show to the handler then.
    peer: Option<Box<Peer>>,
    /// For the log.
    address: PeerAddress,
    /// Ciphertext received so far, while the handshake is not done.
    handshake_bytes: usize,
}

impl Secure {
    pub(crate) fn new(session: Session, peer: Peer) -> Secure {
        Secure {
            session,
            incoming: Input::default(),
            outgoing: Input::default(),
            address: peer.address,
            peer: Some(Box::new(peer)),
            handshake_bytes: 0,
        }
    }

    /// What came and is not a whole record, to be filled from the socket.
    pub(crate) fn incoming(&mut self) -> &mut Input {
        &mut self.incoming
    }

    pub(crate) fn incoming_bytes(&self) -> usize {
        self.incoming.len()
    }

    /// Counts ciphertext that was received.
    pub(crate) fn count_received(&mut self, count: usize) {
        self.handshake_bytes = self.handshake_bytes.saturating_add(count);
    }

    /// Ciphertext received so far; to be asked while the handshake is not done.
    pub(crate) fn handshake_bytes(&self) -> usize {
        self.handshake_bytes
    }

    /// Where the peer is, for the log.
    pub(crate) fn address(&self) -> PeerAddress {
        self.address
    }

    /// What waits for the socket.
    pub(crate) fn outgoing(&self) -> &[u8] {
        self.outgoing.bytes()
    }

    /// So much of it is on its way.
    pub(crate) fn sent(&mut self, count: usize) {
        self.outgoing.consume(count);
    }

    /// Whether the two sides have yet to agree.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.session.is_handshaking()
    }

    /// Whether the peer has said that nothing follows.
    pub(crate) fn peer_closed(&self) -> bool {
        self.session.peer_closed()
    }

    /// Whether nothing more can be sent.
    pub(crate) fn is_closed(&self) -> bool {
        self.session.is_closed()
    }

    /// Returns the peer with what was agreed on, once, for the handler.
    pub(crate) fn agreed_peer(&mut self) -> Option<Box<Peer>> {
        let mut peer = self.peer.take()?;
        peer.tls = Some(self.session.agreed());
        Some(peer)
    }

    /// Gives back the buffer of what waits for the socket, as far as it is not needed.
    pub(crate) fn settle_outgoing(&mut self, buffers: &mut SpareBuffers) {
        buffers.settle_input(&mut self.outgoing);
    }

    /// Opens what came. There is room for all of it: no more was read than that.
    pub(crate) fn open(
        &mut self,
        io: &mut Io,
        buffers: &mut SpareBuffers,
    ) -> Result<(), TlsFailure> {
        let sealed_bytes = self.incoming.len();
        if self.session.is_handshaking() {
            buffers.make_room_for(&mut self.outgoing, FLIGHT_BYTES);
        }
        let had_buffer = self.outgoing.holds_buffer();
        let (session, input) = (&mut self.session, &mut io.input);
        let opened = session.open(&mut self.incoming, &mut self.outgoing, &mut |plain| {
            // The first record makes room for all: plaintext is shorter than ciphertext.
            if input.room().len() < plain.len() {
                buffers.make_room_for(input, sealed_bytes);
            }
            input.append(plain);
        });
        buffers.adopt(had_buffer, &self.outgoing);
        buffers.settle_input(&mut self.incoming);
        if self.outgoing.is_empty() {
            buffers.settle_input(&mut self.outgoing);
        }
        opened
    }

    /// Seals the next piece of the output, if nothing waits for the socket.
    pub(crate) fn seal(
        &mut self,
        io: &mut Io,
        buffers: &mut SpareBuffers,
    ) -> Result<(), TlsFailure> {
        if !self.outgoing.is_empty() || io.unwritten() == 0 {
            return Ok(());
        }
        let count = io.unwritten().min(SEAL_BYTES);
        buffers.make_room_for(&mut self.outgoing, sealed_bytes(count));
        let plain = &io.unwritten_bytes()[..count];
        self.session
            .seal(&mut self.incoming, plain, &mut self.outgoing)?;
        io.advance_written(count);
        Ok(())
    }

    /// Tells the peer that nothing follows.
    pub(crate) fn close(&mut self, buffers: &mut SpareBuffers) {
        buffers.make_room_for(&mut self.outgoing, sealed_bytes(0));
        self.session.close(&mut self.incoming, &mut self.outgoing);
    }

    /// Gives all buffers back.
    pub(crate) fn take_back(&mut self, buffers: &mut SpareBuffers) {
        for queue in [&mut self.incoming, &mut self.outgoing] {
            queue.consume(queue.len());
            buffers.settle_input(queue);
        }
    }
}
