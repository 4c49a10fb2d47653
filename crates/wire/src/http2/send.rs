//! Sending: the calls of the layer above, and the header blocks that they need.

use super::connection::Connection;
use super::frame::{self, FrameHeader, HEADER_BYTES, flag, kind};
use super::outbound::{Charge, End, SharedBytes};
use super::streams::{Extra, StreamKey};
use crate::grpc::{self, Code, Encoding, PREFIX_BYTES, Status, status};
use crate::hpack::{Encoder, Indexing};
use crate::limits;
use bytes::Bytes;

/// `:status: 200` and `content-type: application/grpc`, by the static table and a literal that is
/// not indexed, so that it is the same bytes on every connection at any time.
const HEAD_BLOCK: &[u8; 20] = b"\x88\x0f\x10\x10application/grpc";

/// `grpc-status: 0`.
const OK_BLOCK: &[u8; 15] = b"\x00\x0bgrpc-status\x010";

const HEAD_FRAME_BYTES: usize = HEADER_BYTES + HEAD_BLOCK.len();
const OK_FRAME_BYTES: usize = HEADER_BYTES + OK_BLOCK.len();
const DATA_PREFIX_BYTES: usize = HEADER_BYTES + PREFIX_BYTES;

/// The constant head, and room for what stands before a message.
const ANSWER_FRAME: [u8; HEAD_FRAME_BYTES + DATA_PREFIX_BYTES] =
    constant_frame(HEAD_BLOCK, flag::END_HEADERS);

/// HEADERS with the constant head, for stream 0.
const HEAD_FRAME: [u8; HEAD_FRAME_BYTES] = constant_frame(HEAD_BLOCK, flag::END_HEADERS);
/// HEADERS with the constant trailers, for stream 0.
const OK_FRAME: [u8; OK_FRAME_BYTES] =
    constant_frame(OK_BLOCK, flag::END_HEADERS | flag::END_STREAM);

const fn constant_frame<const FRAME: usize>(block: &[u8], flags: u8) -> [u8; FRAME] {
    assert!(FRAME >= HEADER_BYTES + block.len());
    let mut frame = [0; FRAME];
    frame[2] = block.len() as u8;
    frame[3] = kind::HEADERS;
    frame[4] = flags;
    let mut at = 0;
    while at < block.len() {
        frame[HEADER_BYTES + at] = block[at];
        at += 1;
    }
    frame
}

/// Writes the identifier into the frame that begins at `at`.
#[inline]
fn set_stream(out: &mut [u8], at: usize, id: u32) {
    out[at + 5..at + HEADER_BYTES].copy_from_slice(&id.to_be_bytes());
}

/// Charges a shared part of a message as long as what it returns lives.
pub type ChargeShared<'a> = dyn Fn(&Bytes) -> Box<dyn Charge> + 'a;

/// A part of a message that is sent by [`Connection::send_parts`].
#[derive(Clone, Copy)]
pub enum MessagePart<'a> {
    /// Bytes that are copied.
    Own(&'a [u8]),
    /// Bytes that others hold too, and how they are charged as long as they wait.
    Shared(&'a Bytes, &'a ChargeShared<'a>),
}

impl MessagePart<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            MessagePart::Own(bytes) => bytes,
            MessagePart::Shared(bytes, _) => bytes,
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
        let is_usual = !found.head_sent
            && !found.is_dead()
            && found.extra.is_none()
            && !found.compress
            && self.may_write_at_once(stream.slot, out)
            && self.has_constant_blocks();
        if !is_usual {
            self.send_message(stream, out, encode);
            return self.finish(stream, out, &Status::OK);
        }
        let start = out.len();
        out.extend_from_slice(&ANSWER_FRAME);
        encode(out);
        set_stream(out, start, stream.id);
        let data_start = start + HEAD_FRAME_BYTES;
        self.streams[stream.slot].head_sent = true;
        if self.complete_data(stream.slot, data_start, out) {
            let trailers = out.len();
            out.extend_from_slice(&OK_FRAME);
            set_stream(out, trailers, stream.id);
            let found = &mut self.streams[stream.slot];
            found.send_closed = true;
            found.work_done = true;
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
        if self.streams[slot].compress && self.streams[slot].head_names_gzip {
            return self.send_compressed(slot, out, encode);
        }
        if self.may_write_at_once(slot, out) {
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
        if self.streams[slot].compress && self.streams[slot].head_names_gzip {
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
        self.capacity.shared_bytes += outbound.share(&mut self.pool, body);
        self.queued(slot, added + body_bytes, out);
    }

    /// Sends one message of several parts. Shared ones are not copied before they go out.
    pub fn send_parts<'a>(
        &mut self,
        stream: StreamKey,
        out: &mut Vec<u8>,
        parts: impl Iterator<Item = MessagePart<'a>> + Clone,
    ) {
        if !self.begin_message(stream, out) {
            return;
        }
        let slot = stream.slot;
        if self.streams[slot].compress && self.streams[slot].head_names_gzip {
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
                MessagePart::Own(part) => {
                    outbound.write(&mut self.pool, |bytes| bytes.extend_from_slice(part));
                }
                MessagePart::Shared(body, charge) => {
                    let shared = outbound.share(&mut self.pool, body.clone().into());
                    self.capacity.shared_bytes += shared;
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
        debug_assert!(!found.work_done, "a call ends once");
        self.release_reserved(slot);
        let found = &self.streams[slot];
        if found.outbound.bytes() == 0 {
            self.write_status(slot, status, out);
            self.streams[slot].send_closed = true;
        } else {
            let is_plain_ok = is_bare(status) && found.extra.is_none();
            self.streams[slot].outbound.end = if is_plain_ok {
                End::OkTrailers
            } else {
                let mut block = self.pool.take();
                self.encode_status(slot, status, &mut block);
                End::Trailers(block)
            };
        }
        self.streams[slot].work_done = true;
        self.close_if_over(slot, Some(out));
    }

    /// Adds a field to the head of a response, if it has not been sent. `name` is in lower case;
    /// `value` is as it travels, in base64 if the name ends with `-bin`.
    pub fn add_header(&mut self, stream: StreamKey, name: &[u8], value: &[u8]) {
        self.add_extra(stream, name, value, |extra| &mut extra.head);
    }

    /// Adds a field to the trailers of a response.
    pub fn add_trailer(&mut self, stream: StreamKey, name: &[u8], value: &[u8]) {
        self.add_extra(stream, name, value, |extra| &mut extra.trailers);
    }

    fn add_extra(
        &mut self,
        stream: StreamKey,
        name: &[u8],
        value: &[u8],
        part: impl FnOnce(&mut Extra) -> &mut Vec<u8>,
    ) {
        if !self.streams.contains(stream) {
            return;
        }
        let mut extra = self.streams[stream.slot].extra.take().unwrap_or_default();
        let before = extra.bytes();
        let block = part(&mut extra);
        if block.len() + name.len() + value.len() + limits::MAX_STATUS_MESSAGE_BYTES
            <= limits::MAX_SENT_BLOCK_BYTES
        {
            encode_field(name, value, block);
        }
        self.capacity.extra_bytes += extra.bytes() - before;
        self.streams[stream.slot].extra = Some(extra);
    }

    /// Whether messages from here on are compressed with gzip, if the peer reads it. Takes effect
    /// only if it is first asked for before the head is sent, which has to name the encoding.
    pub fn set_compress(&mut self, stream: StreamKey, compress: bool) {
        if self
            .streams
            .get(stream)
            .is_some_and(|found| found.peer_takes_gzip)
        {
            self.streams[stream.slot].compress = compress;
            if !self.streams[stream.slot].head_sent && compress {
                self.streams[stream.slot].head_names_gzip = true;
            }
        }
    }

    /// Whether the peer makes the call of a stream wait: it has not ended its side, or does not
    /// take what is sent to it.
    pub fn waits_for_peer(&self, stream: StreamKey) -> bool {
        !self.is_writable(stream)
            || self.streams.get(stream).is_some_and(|found| {
                !found.receive_closed
                    || found.is_deferred
                    || found.awaits_capacity
                    || found.awaits_room
            })
    }

    /// Makes the stream ready for a message: sends the head if it has not been sent. False: the
    /// message goes nowhere.
    #[inline]
    fn begin_message(&mut self, stream: StreamKey, out: &mut Vec<u8>) -> bool {
        let Some(found) = self.streams.get(stream) else {
            return false;
        };
        if found.is_dead() || found.send_closed || found.outbound.end != End::Open {
            return false;
        }
        if !found.head_sent {
            self.write_head(stream.slot, out);
        }
        self.release_reserved(stream.slot);
        true
    }

    /// Whether a message may be encoded straight into the output.
    #[inline]
    fn may_write_at_once(&self, slot: u32, out: &[u8]) -> bool {
        self.ready.is_empty()
            && self.pending_acks.is_empty()
            && out.len() < self.config.output_bound_bytes
            && self.streams[slot].outbound.bytes() == 0
    }

    /// Whether header blocks may be constant bytes.
    #[inline]
    fn has_constant_blocks(&self) -> bool {
        self.config.short_ways && !self.encoder.has_size_update()
    }

    /// A DATA frame with one message was written from `start` on, its headers left blank. Fills
    /// them in if the windows allow the whole frame; otherwise moves the message to the queue and
    /// answers false.
    #[inline]
    fn complete_data(&mut self, slot: u32, start: usize, out: &mut Vec<u8>) -> bool {
        set_prefix(out, start + HEADER_BYTES, false);
        let length = out.len() - start - HEADER_BYTES;
        let stream = &mut self.streams[slot];
        let fits = length <= limits::MAX_SENT_DATA_BYTES
            && length <= stream.send_window.available()
            && length <= self.send_window.available();
        if fits {
            let header = FrameHeader {
                length: length as u32,
                kind: kind::DATA,
                flags: 0,
                stream: stream.id,
            };
            out[start..start + HEADER_BYTES].copy_from_slice(&header.to_bytes());
            stream.send_window.take(length);
            self.send_window.take(length);
            self.guard.data_sent();
            return true;
        }
        stream.outbound.write(&mut self.pool, |bytes| {
            bytes.extend_from_slice(&out[start + HEADER_BYTES..])
        });
        out.truncate(start);
        self.queued(slot, length, out);
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
        self.unsent_bytes += added;
        if self.streams[slot].send_window.available() > 0 {
            self.make_ready(slot);
        }
        self.pump(out);
        let stream = &mut self.streams[slot];
        stream.owes_writable |= stream.outbound.bytes() >= self.config.stream_unsent_bytes;
    }

    /// The response head.
    fn write_head(&mut self, slot: u32, out: &mut Vec<u8>) {
        let stream = &mut self.streams[slot];
        let (id, names_gzip, has_extra) =
            (stream.id, stream.head_names_gzip, stream.extra.is_some());
        stream.head_sent = true;
        if self.has_constant_blocks() && !names_gzip && !has_extra {
            let start = out.len();
            out.extend_from_slice(&HEAD_FRAME);
            return set_stream(out, start, id);
        }
        let mut block = self.pool.take();
        self.encode_head(slot, &mut block);
        self.write_block(id, &block, false, out);
        self.pool.give(block);
    }

    fn encode_head(&mut self, slot: u32, block: &mut Vec<u8>) {
        encode_field(b":status", b"200", block);
        encode_field(b"content-type", b"application/grpc", block);
        if self.streams[slot].head_names_gzip {
            encode_field(b"grpc-encoding", Encoding::Gzip.name().as_bytes(), block);
        }
        if let Some(extra) = &self.streams[slot].extra {
            block.extend_from_slice(&extra.head);
        }
    }

    /// Trailers, or head and trailers in one if nothing has been sent (gRPC over HTTP/2,
    /// "Trailers-Only").
    pub(super) fn write_status(&mut self, slot: u32, status: &Status, out: &mut Vec<u8>) {
        let stream = &mut self.streams[slot];
        let (id, head_sent) = (stream.id, stream.head_sent);
        if head_sent && stream.extra.is_none() && is_bare(status) {
            return self.write_ok_trailers(id, out);
        }
        let mut block = self.pool.take();
        if !head_sent {
            self.encode_head(slot, &mut block);
            self.streams[slot].head_sent = true;
        }
        self.encode_status(slot, status, &mut block);
        self.write_block(id, &block, true, out);
        self.pool.give(block);
    }

    pub(super) fn write_ok_trailers(&mut self, id: u32, out: &mut Vec<u8>) {
        if self.has_constant_blocks() {
            let start = out.len();
            out.extend_from_slice(&OK_FRAME);
            return set_stream(out, start, id);
        }
        let mut block = self.pool.take();
        encode_field(b"grpc-status", b"0", &mut block);
        self.write_block(id, &block, true, out);
        self.pool.give(block);
    }

    fn encode_status(&mut self, slot: u32, status: &Status, block: &mut Vec<u8>) {
        self.encode_status_fields(status, block);
        if let Some(extra) = &self.streams[slot].extra {
            let fits = block.len() + extra.trailers.len() <= limits::MAX_SENT_BLOCK_BYTES;
            block.extend_from_slice(if fits { &extra.trailers } else { &[] });
        }
    }

    fn encode_status_fields(&mut self, status: &Status, block: &mut Vec<u8>) {
        encode_field(b"grpc-status", status.code().digits().as_bytes(), block);
        let is_small_peer =
            (self.peer.max_header_list_bytes as usize) < 2 * limits::MAX_STATUS_MESSAGE_BYTES;
        if is_small_peer {
            // Little more than the code is sure to be taken.
            return;
        }
        if !status.message().is_empty() {
            let mut message = self.pool.take();
            status::encode_message(status.message(), &mut message);
            encode_field(b"grpc-message", &message, block);
            self.pool.give(message);
        }
        if status.code() == Code::Unimplemented {
            encode_field(
                b"grpc-accept-encoding",
                Encoding::ACCEPTED.as_bytes(),
                block,
            );
        }
        for (name, value) in status.metadata().into_iter().flat_map(grpc::Metadata::iter) {
            self.encode_metadata(name, value, block);
        }
    }

    /// Metadata that would make the block too large for one frame, or for the peer, are left out.
    pub(super) fn encode_metadata(
        &mut self,
        name: &str,
        value: &[u8],
        block: &mut Vec<u8>,
    ) -> bool {
        let max = limits::MAX_SENT_BLOCK_BYTES.min(self.peer.max_header_list_bytes as usize / 2);
        if block.len() + name.len() + value.len() * 4 / 3 + 16 > max {
            return false;
        }
        if grpc::metadata::is_binary_key(name.as_bytes()) {
            let mut text = self.pool.take();
            grpc::metadata::encode_binary(value, &mut text);
            encode_field(name.as_bytes(), &text, block);
            self.pool.give(text);
        } else {
            encode_field(name.as_bytes(), value, block);
        }
        true
    }

    /// Answers a call of which the layer above does not hear.
    pub(super) fn reject(
        &mut self,
        id: u32,
        status: &Status,
        peer_has_ended: bool,
        out: &mut Vec<u8>,
    ) {
        let mut block = self.pool.take();
        encode_field(b":status", b"200", &mut block);
        encode_field(b"content-type", b"application/grpc", &mut block);
        self.encode_status_fields(status, &mut block);
        self.write_block(id, &block, true, out);
        self.pool.give(block);
        if !peer_has_ended {
            frame::write_rst_stream(out, id, super::error::ErrorCode::NoError);
            self.remember_reset(id);
        }
    }

    /// Writes a header block as one HEADERS frame, behind the size updates that are due.
    pub(super) fn write_block(&mut self, id: u32, block: &[u8], end: bool, out: &mut Vec<u8>) {
        let flags = if end {
            flag::END_HEADERS | flag::END_STREAM
        } else {
            flag::END_HEADERS
        };
        let start = out.len();
        frame::write_header(out, 0, kind::HEADERS, flags, id);
        self.encoder.begin_block(out);
        out.extend_from_slice(block);
        let length = out.len() - start - HEADER_BYTES;
        debug_assert!(
            length <= limits::MAX_FRAME_BYTES,
            "what is added to a block is bounded"
        );
        let header = FrameHeader {
            length: length as u32,
            kind: kind::HEADERS,
            flags,
            stream: id,
        };
        out[start..start + HEADER_BYTES].copy_from_slice(&header.to_bytes());
    }
}

/// Appends a field without the dynamic table, so that blocks may be sent in any order.
pub(super) fn encode_field(name: &[u8], value: &[u8], block: &mut Vec<u8>) {
    Encoder::new().field(name, value, Indexing::Without, block);
}

/// An OK status that is nothing but the constant trailers.
pub(super) fn is_bare(status: &Status) -> bool {
    status.is_ok() && status.message().is_empty() && status.metadata().is_none()
}

fn message_length(length: usize) -> u32 {
    u32::try_from(length)
        .expect("a message that is sent is bounded by the room above, far below 4 GiB")
}

/// Fills in the prefix of the message that goes from `start` to the end.
#[inline]
fn set_prefix(bytes: &mut [u8], start: usize, compressed: bool) {
    let length = message_length(bytes.len() - start - PREFIX_BYTES);
    bytes[start..start + PREFIX_BYTES].copy_from_slice(&grpc::message::prefix(length, compressed));
}
