//! Compressed messages. A small one is decompressed when it is found; a large one waits, and is
//! then decompressed in steps.

use super::{Connection, Handled};
use crate::grpc::compression;
use crate::grpc::{Code, InflateError, Status};
use crate::http2::error::{CancelCause, ConnectionError};
use crate::http2::event::Event;
use crate::http2::guard::GlitchCharge;
use crate::http2::last_message::TakenMessage;
use crate::http2::stream_key::StreamKey;
use crate::http2::unpack::Unpacking;
use crate::limits;

impl Connection {
    /// Bounds what may be made of large compressed messages from now on, in bytes: in this way the
    /// layer above shares its time among connections. Unbounded at first.
    #[inline]
    pub fn set_unpack_allowance(&mut self, bytes: usize) {
        self.unpacks.set_allowance(bytes);
    }

    /// Returns what is left of [`Connection::set_unpack_allowance`], in bytes.
    pub fn unpack_allowance(&self) -> usize {
        self.unpacks.allowance()
    }

    /// Whether a compressed message has its memory, and goes on when the layer above allows it.
    #[inline]
    pub fn waits_to_unpack(&self) -> bool {
        self.unpacks.is_granted()
    }

    /// Reports a compressed message that has just been found, or keeps it until it is decompressed.
    #[cold]
    pub(super) fn deliver_compressed(
        &mut self,
        stream: StreamKey,
        last: bool,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Handled {
        if !self.streams[stream.slot].receives_gzip() {
            let message = "a message is compressed and no grpc-encoding was named";
            let status = Status::new(Code::Internal, message);
            return self.end_call(stream.slot, &status, CancelCause::BadMessage, out);
        }
        let packed = self.message(input);
        let usual_bytes = packed.len() * limits::USUAL_INFLATE_RATIO;
        let announced = match compression::announced_bytes(packed) {
            Err(error) => return self.end_packed(stream.slot, error, out),
            Ok(bytes) => bytes,
        };
        let max_bytes = self.config.max_message_bytes;
        if announced > max_bytes {
            let error = InflateError::TooLarge { max_bytes };
            return self.end_packed(stream.slot, error, out);
        }
        // Before it is made: what it becomes beyond honest ones is charged, also if its call ends
        // meanwhile.
        let excess = announced.saturating_sub(usual_bytes);
        if !self.pays_inflated(excess)? {
            return self.end_packed(stream.slot, InflateError::TooDense, out);
        }
        let most_work_bytes = match self.life.is_client() {
            true => usize::MAX,
            false => limits::UNPACKED_AT_ONCE_BYTES,
        };
        if announced > most_work_bytes {
            self.keep_packed(stream, announced, last, input);
            return self.check_gathered(stream.slot, out);
        }
        let mut inflated = self.pool.take();
        let message = self.message(input);
        let worked = compression::gunzip(message, announced, most_work_bytes, &mut inflated);
        match worked {
            Ok(Some(work_bytes)) => {
                self.message.set_inflated(inflated, &mut self.pool);
                self.message.set_unpack_work(work_bytes);
                let last = self.take_end(stream, last);
                Ok(Some(Event::Message { stream, last }))
            }
            // It is small, and has more blocks than a large one.
            Ok(None) => {
                self.pool.give(inflated);
                self.keep_packed(stream, announced, last, input);
                self.check_gathered(stream.slot, out)
            }
            // What becomes more than it announced is damaged.
            Err(_) => self.end_packed(stream.slot, InflateError::Damaged, out),
        }
    }

    /// Takes what it costs that a message becomes so many bytes more than others do. Returns
    /// whether that is allowed.
    ///
    /// Of a client only the call ends if not: a server that it has chosen may have such messages
    /// to send, and other calls have no part in it.
    fn pays_inflated(&mut self, excess: usize) -> Result<bool, ConnectionError> {
        let bytes = u32::try_from(excess).unwrap_or(u32::MAX);
        let is_client = self.life.is_client();
        if is_client && bytes > limits::INFLATE_BURST_BYTES {
            return Ok(false);
        }
        let charged = self.charge(GlitchCharge::Inflated(bytes));
        match is_client {
            true => Ok(charged.is_ok()),
            false => charged.map(|()| true),
        }
    }

    /// Puts a message at the end of those that are decompressed in steps.
    fn keep_packed(&mut self, stream: StreamKey, announced: usize, last: bool, input: &[u8]) {
        let packed = match self.take_message() {
            TakenMessage::Input(range) => input[range].to_vec(),
            TakenMessage::Owned(bytes) => bytes,
            TakenMessage::Shared(bytes) => bytes.into(),
        };
        let unpacking = Unpacking::new(stream, packed, announced, last);
        self.unpacks.push(unpacking, &mut self.streams);
    }

    /// Goes on with the message whose turn it is; returns it when it is whole.
    pub(super) fn unpack_some(&mut self, out: &mut Vec<u8>) -> Handled {
        let Some(stream) = self.unpacks.first() else {
            return Ok(None);
        };
        let is_wanted = (self.streams.get(stream)).is_some_and(|found| !found.is_work_done());
        if !is_wanted {
            self.unpacks.remove_of(stream.slot, &mut self.streams);
            return Ok(None);
        }
        match self.unpacks.step(&mut self.streams) {
            None => Ok(None),
            Some(Err((stream, error))) => self.end_packed(stream.slot, error, out),
            Some(Ok(whole)) => self.deliver_unpacked(whole),
        }
    }

    /// Reports a message that was decompressed, and lets go on what waits behind it.
    fn deliver_unpacked(&mut self, whole: Unpacking) -> Handled {
        let (stream, last) = (whole.stream(), whole.is_last());
        let (packed, inflated) = whole.into_bytes();
        self.pool.give(packed);
        let found = &mut self.streams[stream.slot];
        if found.is_held_above() {
            // The layer above has stopped the stream meanwhile: it takes the message when it lets
            // it go on.
            let added = found.inbound.put_back(&inflated, last);
            self.gather(added);
            return Ok(None);
        }
        self.resume(stream);
        self.message.set_inflated(inflated, &mut self.pool);
        self.message.set_compressed(true);
        Ok(Some(Event::Message { stream, last }))
    }

    /// A compressed message cannot be read.
    #[cold]
    fn end_packed(&mut self, slot: u32, error: InflateError, out: &mut Vec<u8>) -> Handled {
        let (status, cause) = match error {
            InflateError::Damaged => (error.status(), CancelCause::BadMessage),
            InflateError::TooLarge { .. } => (
                self.with_hint(&error.status()),
                CancelCause::MessageTooLarge,
            ),
            InflateError::TooDense => (error.status(), CancelCause::MessageTooDense),
        };
        self.end_call(slot, &status, cause, out)
    }
}
