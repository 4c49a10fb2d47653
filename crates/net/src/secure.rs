//! What a connection with TLS has beside its plaintext.

use crate::buffers::Buffers;
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
    pub(crate) session: Session,
    /// What came and is not a whole record.
    pub(crate) incoming: Input,
    /// What waits for the socket.
    pub(crate) outgoing: Input,
    /// Until the handshake is done: whom to show to the handler then.
    pub(crate) peer: Option<Box<Peer>>,
    /// For the log.
    pub(crate) address: PeerAddress,
    /// Ciphertext received so far, while the handshake is not done.
    pub(crate) handshake_bytes: usize,
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

    /// Opens what came. There is room for all of it: no more was read than that.
    pub(crate) fn open(&mut self, io: &mut Io, buffers: &mut Buffers) -> Result<(), TlsFailure> {
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
    pub(crate) fn seal(&mut self, io: &mut Io, buffers: &mut Buffers) -> Result<(), TlsFailure> {
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
    pub(crate) fn close(&mut self, buffers: &mut Buffers) {
        buffers.make_room_for(&mut self.outgoing, sealed_bytes(0));
        self.session.close(&mut self.incoming, &mut self.outgoing);
    }

    /// Gives all buffers back.
    pub(crate) fn take_back(&mut self, buffers: &mut Buffers) {
        for queue in [&mut self.incoming, &mut self.outgoing] {
            queue.consume(queue.len());
            buffers.settle_input(queue);
        }
    }
}
