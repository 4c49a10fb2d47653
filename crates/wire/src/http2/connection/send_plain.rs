//! Answers to plain requests, which are not gRPC.

use bytes::Bytes;

use super::Connection;
use crate::http2::extra_fields::encode_field;
use crate::http2::frame::{self, flag, kind};
use crate::http2::outbound::{OutboundEnd, SharedBytes};
use crate::http2::stream_key::StreamKey;

impl Connection {
    /// Answers a plain request. `headers` are to be in lower case; `content-length` is added. The
    /// last call for this stream.
    pub fn send_plain(
        &mut self,
        stream: StreamKey,
        out: &mut Vec<u8>,
        status: u16,
        headers: &[(&str, &str)],
        body: &[u8],
    ) {
        if self.send_plain_head(stream, out, (status, body.len()), headers) {
            self.end_body(stream, out, body);
        }
    }

    /// The same with a body that is held as long as the program runs: it is not copied before it
    /// goes out.
    pub fn send_plain_shared(
        &mut self,
        stream: StreamKey,
        out: &mut Vec<u8>,
        status: u16,
        headers: &[(&str, &str)],
        body: Bytes,
    ) {
        if !self.send_plain_head(stream, out, (status, body.len()), headers) {
            return;
        }
        let slot = stream.slot;
        if self.streams.is_alive(stream) {
            self.release_reserved(slot);
            let outbound = &mut self.streams[slot].outbound;
            outbound.end_with(OutboundEnd::Bare);
            let bytes = outbound.share_whole(body.into());
            self.capacity.add_shared(bytes);
            self.queued(slot, bytes, out);
        }
        if self.streams.contains(stream) {
            self.streams[slot].end_work();
            self.close_if_over(slot, Some(out));
        }
    }

    /// Sends the head of a whole answer with a body of so many bytes. Returns whether the body is
    /// to follow: else it was the last call for this stream.
    fn send_plain_head(
        &mut self,
        stream: StreamKey,
        out: &mut Vec<u8>,
        (status, body_bytes): (u16, usize),
        headers: &[(&str, &str)],
    ) -> bool {
        let Some(found) = self.streams.get(stream) else {
            return false;
        };
        // The answer to HEAD has the length that GET would have brought (RFC 9110 section 9.3.2).
        let length = body_bytes.to_string();
        let has_body = body_bytes > 0 && !found.is_head_request();
        let headers: Vec<_> = headers
            .iter()
            .copied()
            .chain([("content-length", length.as_str())])
            .collect();
        self.send_plain_headers(stream, out, status, &headers, !has_body);
        has_body
    }

    /// Tells who waits for it (`expect: 100-continue`) that the body of a plain request may come.
    /// Does nothing once the answer has begun. RFC 9110 section 10.1.1.
    pub fn send_continue(&mut self, stream: StreamKey, out: &mut Vec<u8>) {
        match self.streams.get(stream) {
            Some(found) if !found.is_dead() && !found.is_head_sent() => {}
            _ => return,
        }
        let mut block = self.pool.take();
        encode_field(b":status", b"100", &mut block);
        self.writer.write_block(stream.id, &block, false, out);
        self.pool.give(block);
    }

    /// Begins the answer to a plain request; with `end` it is the last call for this stream.
    pub fn send_plain_headers(
        &mut self,
        stream: StreamKey,
        out: &mut Vec<u8>,
        status: u16,
        headers: &[(&str, &str)],
        end: bool,
    ) {
        let Some(found) = self.streams.get(stream) else {
            return;
        };
        let (slot, is_dead) = (stream.slot, found.is_dead());
        debug_assert!(!found.is_head_sent(), "the head is sent once");
        if !is_dead {
            let mut block = self.pool.take();
            encode_field(b":status", status.to_string().as_bytes(), &mut block);
            for (name, value) in headers {
                encode_field(name.as_bytes(), value.as_bytes(), &mut block);
            }
            self.writer.write_block(stream.id, &block, end, out);
            self.pool.give(block);
            self.streams[slot].set_head_sent();
            if end {
                self.streams[slot].close_send();
            }
        }
        if end {
            self.streams[slot].end_work();
            self.close_if_over(slot, Some(out));
        }
    }

    /// Sends the last piece of the answer to a plain request, which may be empty. The last call for
    /// this stream.
    pub fn end_body(&mut self, stream: StreamKey, out: &mut Vec<u8>, body: &[u8]) {
        let Some(found) = self.streams.get(stream) else {
            return;
        };
        let slot = stream.slot;
        if !found.is_dead() {
            debug_assert!(found.is_head_sent(), "the head comes first");
            self.release_reserved(slot);
            let outbound = &mut self.streams[slot].outbound;
            outbound.end_with(OutboundEnd::Bare);
            outbound.write(&mut self.pool, |bytes| bytes.extend_from_slice(body));
            if outbound.bytes() == 0 {
                frame::write_header(out, 0, kind::DATA, flag::END_STREAM, stream.id);
                self.send_end(slot, out);
            } else {
                self.queued(slot, body.len(), out);
            }
        }
        if self.streams.contains(stream) {
            self.streams[slot].end_work();
            self.close_if_over(slot, Some(out));
        }
    }

    /// Sends a piece of the answer to a plain request. It is not copied before it goes out.
    pub fn send_body(&mut self, stream: StreamKey, out: &mut Vec<u8>, body: SharedBytes) {
        let Some(found) = self.streams.get(stream) else {
            return;
        };
        let slot = stream.slot;
        if !found.is_dead() {
            debug_assert!(found.is_head_sent(), "the head comes first");
            let added = body.len();
            self.release_reserved(slot);
            let shared = self.streams[slot].outbound.share(&mut self.pool, body);
            self.capacity.add_shared(shared);
            self.queued(slot, added, out);
        }
    }
}
