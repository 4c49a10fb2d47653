//! Sending: the calls of the layer above.

use super::Connection;
use crate::grpc::{self, PREFIX_BYTES, Status};
use crate::http2::constant_frames::{self, DATA_PREFIX_BYTES};
use crate::http2::extra_fields::ExtraFields;
use crate::http2::frame::HEADER_BYTES;
use crate::http2::outbound::{BodyCharge, OutboundEnd, SharedBytes};
use crate::http2::stream_key::StreamKey;
use bytes::Bytes;

/// Charges a shared part of a message as long as what it returns lives.
pub type ChargeShared<'a> = dyn Fn(&Bytes) -> Box<dyn BodyCharge> + 'a;

/// A part of a message that is sent by [`Connection::send_parts`].
#[derive(Clone, Copy)]
pub enum SentPart<'a> {
    /// Bytes that are copied.
    Own(&'a [u8]),
    /// Bytes that others hold too, and how they are charged as long as they wait.
    Shared(&'a Bytes, &'a ChargeShared<'a>),
}

impl SentPart<'_> {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            SentPart::Own(bytes) => bytes,
            SentPart::Shared(bytes, _) => bytes,
        }
    }
}

impl Connection {
    /// Answers a unary call: head, one message, status OK. The last call for this stream.
    #[inline]
    pub fn respond(
        &mut self,
        stream: StreamKey,
        out: &mut Vec<u8>,
        encode: impl FnOnce(&mut Vec<u8>),
    ) {
        let Some(found) = self.streams.get(stream) else {
            return;
        };
        let is_usual = !found.is_head_sent()
            && !found.is_dead()
            && found.extra().is_none()
            && !found.is_compress_set()
            && self.queue.may_write_at_once(found, out)
            && self.writer.has_constant_blocks();
        if !is_usual {
            self.send_message(stream, out, encode);
            return self.finish(stream, out, &Status::OK);
        }
        let data_start = constant_frames::begin_response(out, stream.id);
        encode(out);
        self.streams[stream.slot].set_head_sent();
        if self.complete_data(stream.slot, data_start, out) {
            constant_frames::write_ok_trailers(out, stream.id);
            let found = &mut self.streams[stream.slot];
            found.close_send();
            found.end_work();
            self.close_if_over(stream.slot, Some(out));
        } else {
            self.finish(stream, out, &Status::OK);
        }
    }

    /// Sends one message; before the first, the head.
    #[inline]
    pub fn send_message(
        &mut self,
        stream: StreamKey,
        out: &mut Vec<u8>,
        encode: impl FnOnce(&mut Vec<u8>),
    ) {
        if !self.begin_message(stream, out) {
            return;
        }
        let slot = stream.slot;
        if self.streams[slot].compresses() {
            return self.send_compressed(slot, out, encode);
        }
        if self.queue.may_write_at_once(&self.streams[slot], out) {
            let start = out.len();
            out.extend_from_slice(&[0; DATA_PREFIX_BYTES]);
            encode(out);
            self.complete_data(slot, start, out);
            return;
        }
        let added = self.streams[slot].outbound.write(&mut self.pool, |bytes| {
            let start = bytes.len();
            bytes.extend_from_slice(&[0; PREFIX_BYTES]);
            encode(bytes);
            set_prefix(bytes, start, false);
        });
        self.queued(slot, added, out);
    }

    /// Sends one message of `head` and then `body`, which is not copied before it goes out.
    pub fn send_shared(
        &mut self,
        stream: StreamKey,
        out: &mut Vec<u8>,
        head: impl FnOnce(&mut Vec<u8>),
        body: impl Into<SharedBytes>,
    ) {
        if !self.begin_message(stream, out) {
            return;
        }
        let (slot, body) = (stream.slot, body.into());
        if self.streams[slot].compresses() {
            return self.send_compressed(slot, out, |bytes| {
                head(bytes);
                bytes.extend_from_slice(&body);
            });
        }
        let body_bytes = body.len();
        let outbound = &mut self.streams[slot].outbound;
        let added = outbound.write(&mut self.pool, |bytes| {
            let start = bytes.len();
            bytes.extend_from_slice(&[0; PREFIX_BYTES]);
            head(bytes);
            let length = bytes.len() - start - PREFIX_BYTES + body_bytes;
            bytes[start..start + PREFIX_BYTES]
                .copy_from_slice(&grpc::message::prefix(message_length(length), false));
        });
        let shared = outbound.share(&mut self.pool, body);
        self.capacity.add_shared(shared);
        self.queued(slot, added + body_bytes, out);
    }

    /// Sends one message of several parts. Shared ones are not copied before they go out.
    pub fn send_parts<'a>(
        &mut self,
        stream: StreamKey,
        out: &mut Vec<u8>,
        parts: impl Iterator<Item = SentPart<'a>> + Clone,
    ) {
        if !self.begin_message(stream, out) {
            return;
        }
        let slot = stream.slot;
        if self.streams[slot].compresses() {
            return self.send_compressed(slot, out, |bytes| {
                parts.for_each(|part| bytes.extend_from_slice(part.bytes()));
            });
        }
        let length = parts.clone().map(|part| part.bytes().len()).sum();
        let prefix = grpc::message::prefix(message_length(length), false);
        let outbound = &mut self.streams[slot].outbound;
        outbound.write(&mut self.pool, |bytes| bytes.extend_from_slice(&prefix));
        for part in parts {
            match part {
                SentPart::Own(part) => {
                    outbound.write(&mut self.pool, |bytes| bytes.extend_from_slice(part));
                }
                SentPart::Shared(body, charge) => {
                    let shared = outbound.share(&mut self.pool, body.clone().into());
                    self.capacity.add_shared(shared);
                    outbound.charge_last(|| charge(body));
                }
            }
        }
        self.queued(slot, PREFIX_BYTES + length, out);
    }

    /// Ends a call with a status. The last call for this stream.
    pub fn finish(&mut self, stream: StreamKey, out: &mut Vec<u8>, status: &Status) {
        let Some(found) = self.streams.get(stream) else {
            return;
        };
        let slot = stream.slot;
        if found.is_dead() {
            return self.end_work(slot);
        }
        debug_assert!(!found.is_work_done(), "a call ends once");
        self.release_reserved(slot);
        let found = &self.streams[slot];
        if found.outbound.bytes() == 0 {
            self.write_status(slot, status, out);
        } else {
            let is_plain_ok = status.is_bare_ok() && found.extra().is_none();
            let end = if is_plain_ok {
                OutboundEnd::OkTrailers
            } else {
                let mut block = self.pool.take();
                (self.writer).encode_status(found, status, &mut self.pool, &mut block);
                OutboundEnd::Trailers(block)
            };
            self.streams[slot].outbound.end_with(end);
        }
        self.streams[slot].end_work();
        self.close_if_over(slot, Some(out));
    }

    /// Adds a field to the head of a response, if it has not been sent. `name` is in lower case;
    /// `value` is as it travels, in base64 if the name ends with `-bin`.
    pub fn add_header(&mut self, stream: StreamKey, name: &[u8], value: &[u8]) {
        self.add_extra(stream, |extra| extra.add_to_head(name, value));
    }

    /// Adds a field to the trailers of a response.
    pub fn add_trailer(&mut self, stream: StreamKey, name: &[u8], value: &[u8]) {
        self.add_extra(stream, |extra| extra.add_to_trailers(name, value));
    }

    fn add_extra(&mut self, stream: StreamKey, add: impl FnOnce(&mut ExtraFields) -> usize) {
        if self.streams.contains(stream) {
            let added = add(self.streams[stream.slot].extra_mut());
            self.capacity.add_extra(added);
        }
    }

    /// Whether messages from here on are compressed with gzip, if the peer reads it. Takes effect
    /// only if it is first asked for before the head is sent, which has to name the encoding.
    pub fn set_compress(&mut self, stream: StreamKey, compress: bool) {
        if self.streams.contains(stream) {
            self.streams[stream.slot].set_compress(compress);
        }
    }

    /// Makes the stream ready for a message: sends the head if it has not been sent. False: the
    /// message goes nowhere.
    #[inline]
    fn begin_message(&mut self, stream: StreamKey, out: &mut Vec<u8>) -> bool {
        let Some(found) = self.streams.get(stream) else {
            return false;
        };
        if found.is_dead() || found.is_send_closed() || !found.outbound.is_open() {
            return false;
        }
        if !found.is_head_sent() {
            self.writer.write_head(found, &mut self.pool, out);
            self.streams[stream.slot].set_head_sent();
        }
        self.release_reserved(stream.slot);
        true
    }

    /// A DATA frame with one message was written from `start` on, its headers left blank. Fills
    /// them in if the windows allow the whole frame; otherwise moves the message to the queue and
    /// returns false.
    #[inline]
    fn complete_data(&mut self, slot: u32, start: usize, out: &mut Vec<u8>) -> bool {
        set_prefix(out, start + HEADER_BYTES, false);
        let stream = &mut self.streams[slot];
        if self.queue.complete_frame(stream, start, out) {
            self.guard.data_sent();
            return true;
        }
        let added = match out.len() > self.config.output_bound_bytes {
            // The output would stay as large as the message for as long as anything waits in it.
            true => {
                let before = out[..start].to_vec();
                let whole = std::mem::replace(out, before);
                let out_bytes = start + HEADER_BYTES;
                self.capacity.count_out(0, out_bytes);
                stream.outbound.own(whole, out_bytes)
            }
            false => {
                let added = stream.outbound.write(&mut self.pool, |bytes| {
                    bytes.extend_from_slice(&out[start + HEADER_BYTES..])
                });
                out.truncate(start);
                added
            }
        };
        self.queued(slot, added, out);
        false
    }

    fn send_compressed(&mut self, slot: u32, out: &mut Vec<u8>, encode: impl FnOnce(&mut Vec<u8>)) {
        let mut message = self.pool.take();
        encode(&mut message);
        let added = self.streams[slot].outbound.write(&mut self.pool, |bytes| {
            let start = bytes.len();
            bytes.extend_from_slice(&[0; PREFIX_BYTES]);
            grpc::compression::gzip(&message, bytes);
            set_prefix(bytes, start, true);
        });
        self.pool.give(message);
        self.queued(slot, added, out);
    }

    /// Bytes have been queued on a stream: sends what may be sent.
    pub(super) fn queued(&mut self, slot: u32, added: usize, out: &mut Vec<u8>) {
        self.capacity.add_unsent(added);
        let stream = &mut self.streams[slot];
        if stream.send_window.available() > 0 {
            self.queue.make_ready(slot, stream);
        }
        self.pump(out);
        let stream = &mut self.streams[slot];
        stream.owe_writable(self.config.stream_unsent_bytes);
    }

    /// Ends our side of a call with a status.
    pub(super) fn write_status(&mut self, slot: u32, status: &Status, out: &mut Vec<u8>) {
        let stream = &mut self.streams[slot];
        self.writer
            .write_status(stream, status, &mut self.pool, out);
        stream.set_head_sent();
        stream.close_send();
    }
}

fn message_length(length: usize) -> u32 {
    u32::try_from(length)
        .expect("a message that is sent is bounded by the layer above, far below 4 GiB")
}

/// Fills in the prefix of the message that goes from `start` to the end.
#[inline]
fn set_prefix(bytes: &mut [u8], start: usize, compressed: bool) {
    let length = message_length(bytes.len() - start - PREFIX_BYTES);
    bytes[start..start + PREFIX_BYTES].copy_from_slice(&grpc::message::prefix(length, compressed));
}
