//! What only a client does: opens streams, and hears how calls end.

use super::{Connection, Handled};
use crate::grpc::{Code, Status};
use crate::http2::error::ErrorCode;
use crate::http2::event::Event;
use crate::http2::frame::{self, FrameHeader, HEADER_BYTES, flag, kind};
use crate::http2::guard::GlitchCharge;
use crate::http2::headers::{BodyKind, HeadInfo, Malformed};
use crate::http2::outbound::OutboundEnd;
use crate::http2::request::{RequestHead, StreamOpenError};
use crate::http2::stream::LateStatus;
use crate::http2::stream_key::StreamKey;

impl Connection {
    /// Begins a request. The stream ends with `forget` after Finished or Cancelled, or with
    /// `reset`.
    ///
    /// # Errors
    /// If no stream can be opened.
    pub fn open(
        &mut self,
        out: &mut Vec<u8>,
        head: &RequestHead<'_>,
    ) -> Result<StreamKey, StreamOpenError> {
        debug_assert!(self.life.is_client(), "a server opens no streams");
        head.check()?;
        self.may_open(head)?;
        let id = self.life.take_id();
        self.writer.write_request(id, head, out);
        let kind = if head.is_grpc {
            BodyKind::Grpc
        } else {
            BodyKind::Plain
        };
        let slot =
            self.streams
                .insert(id, kind, self.peer.initial_window(), self.windows.initial());
        self.guard.call_began();
        self.streams[slot].set_request_sent(head.gzip, head.method == "HEAD");
        Ok(StreamKey { slot, id })
    }

    fn may_open(&self, head: &RequestHead<'_>) -> Result<(), StreamOpenError> {
        if self.life.is_going_away() {
            return Err(StreamOpenError::GoingAway);
        }
        if self.life.has_used_all_ids() {
            return Err(StreamOpenError::IdsExhausted);
        }
        if self.streams_left() == 0 {
            return Err(StreamOpenError::TooManyStreams);
        }
        if !self.writer.fits_request(head) {
            return Err(StreamOpenError::HeadTooLarge);
        }
        Ok(())
    }

    /// Whether the peer's SETTINGS have come: only then is it known how many streams it allows.
    pub fn has_peer_settings(&self) -> bool {
        self.life.is_open()
    }

    /// Returns whether streams may still be opened, now or when others have ended: the connection
    /// is not over, the peer has sent no GOAWAY, and identifiers are left.
    pub fn takes_streams(&self) -> bool {
        !self.life.is_going_away() && !self.life.has_used_all_ids()
    }

    /// How many further streams may be opened now, as far as both sides' limits go.
    pub fn streams_left(&self) -> usize {
        let allowed = self.peer.max_streams().min(self.config.max_streams) as usize;
        allowed.saturating_sub(self.streams.len())
    }

    /// Returns whether something of the response of a stream came before its end, be it an interim
    /// head: a status alone, in the only head (gRPC over HTTP/2, "Trailers-Only"), is its end.
    pub fn has_response_begun(&self, stream: StreamKey) -> bool {
        (self.streams.get(stream)).is_some_and(|found| found.is_response_begun())
    }

    /// Sends the last message of a request, and ends our side with it.
    pub fn send_last_message(
        &mut self,
        stream: StreamKey,
        out: &mut Vec<u8>,
        encode: impl FnOnce(&mut Vec<u8>),
    ) {
        let start = out.len();
        self.send_message(stream, out, encode);
        let Some(found) = self.streams.get(stream) else {
            return;
        };
        // If the message went out just now as the only frame, it can carry the end.
        let is_out = found.outbound.bytes() == 0;
        if let (true, Some(bytes)) = (is_out, out[start..].first_chunk::<HEADER_BYTES>()) {
            let header = FrameHeader::parse(bytes);
            let is_only_frame = header.stream == stream.id
                && header.kind == kind::DATA
                && out.len() - start == HEADER_BYTES + header.length as usize;
            if is_only_frame {
                out[start + 4] = flag::END_STREAM;
                self.streams[stream.slot].close_send();
                return;
            }
        }
        self.close_send(stream, out);
    }

    /// Sends a piece of the body of a plain request, in a DATA frame of its own where windows and
    /// output allow it.
    pub fn send_request_body(&mut self, stream: StreamKey, out: &mut Vec<u8>, piece: &[u8]) {
        let Some(found) = self.streams.get(stream) else {
            return;
        };
        let takes_more = !found.is_dead() && !found.is_send_closed() && found.outbound.is_open();
        if !takes_more || piece.is_empty() {
            return;
        }
        let slot = stream.slot;
        if self.queue.may_write_at_once(found, out) {
            let start = out.len();
            out.extend_from_slice(&[0; HEADER_BYTES]);
            out.extend_from_slice(piece);
            if (self.queue).complete_frame(&mut self.streams[slot], start, out) {
                self.guard.data_sent();
                return;
            }
            out.truncate(start);
        }
        let outbound = &mut self.streams[slot].outbound;
        let added = outbound.write(&mut self.pool, |bytes| bytes.extend_from_slice(piece));
        self.queued(slot, added, out);
    }

    /// Ends our side of a request.
    pub fn close_send(&mut self, stream: StreamKey, out: &mut Vec<u8>) {
        let Some(found) = self.streams.get(stream) else {
            return;
        };
        if found.is_send_closed() || !found.outbound.is_open() {
            return;
        }
        if found.outbound.bytes() > 0 {
            self.streams[stream.slot]
                .outbound
                .end_with(OutboundEnd::Bare);
        } else {
            frame::write_header(out, 0, kind::DATA, flag::END_STREAM, stream.id);
            self.streams[stream.slot].close_send();
        }
    }

    /// A header block on a stream that we opened. RFC 9113 section 8.1.
    pub(super) fn on_response_block(
        &mut self,
        slot: u32,
        end: bool,
        block: &[u8],
        out: &mut Vec<u8>,
    ) -> Handled {
        let stream = self.streams.key(slot);
        if self.streams[slot].is_head_received() {
            return self.on_trailers(stream, end, block, out);
        }
        if let Err(Malformed(why)) = self.heads.read_head(block)? {
            return self.violation(slot, ErrorCode::ProtocolError, why, out);
        }
        let info = *self.head().info;
        if info.status < 200 {
            // An interim response, of which there may be several before the final one.
            return if end {
                const WHY: &str = "an interim head ends the stream";
                self.violation(slot, ErrorCode::ProtocolError, WHY, out)
            } else {
                self.streams[slot].set_response_begun();
                self.charge(GlitchCharge::BesideCall).map(|()| None)
            };
        }
        self.streams[slot].set_response(&info, end);
        if self.streams[slot].is_grpc() {
            if let Some(status) = self.not_grpc(&info) {
                return self.finish_call(stream, status, out);
            }
            if end {
                let status = self.heads.status();
                return self.finish_call(stream, status, out);
            }
        } else if end {
            return self.finish_call(stream, Status::OK, out);
        }
        self.streams[slot].set_response_begun();
        Ok(Some(Event::Response { stream, end }))
    }

    /// What a response means that cannot be read as gRPC.
    fn not_grpc(&self, info: &HeadInfo) -> Option<Status> {
        if info.status != 200 {
            return Some(Status::new(
                Code::from_http(info.status),
                format!("the answer is HTTP status {}", info.status),
            ));
        }
        if info.kind != BodyKind::Grpc {
            return Some(Status::new(
                Code::Unknown,
                "the answer is not gRPC: its content-type is another",
            ));
        }
        if info.encoding.is_none() {
            return Some(Status::new(
                Code::Internal,
                "the answer has a grpc-encoding that was not offered",
            ));
        }
        None
    }

    fn on_trailers(
        &mut self,
        stream: StreamKey,
        end: bool,
        block: &[u8],
        out: &mut Vec<u8>,
    ) -> Handled {
        let late_status = match self.heads.read_status_trailers(block, end)? {
            Ok(late_status) => late_status,
            Err(Malformed(why)) => {
                return self.violation(stream.slot, ErrorCode::ProtocolError, why, out);
            }
        };
        let found = &mut self.streams[stream.slot];
        found.close_receive();
        if found.is_grpc() {
            found.set_late_status(late_status);
        }
        self.end_of_stream(stream.slot, out)
    }

    /// The response is complete; if there were trailers, they are kept with the stream.
    pub(super) fn on_end_of_response(&mut self, stream: StreamKey, out: &mut Vec<u8>) -> Handled {
        let found = &mut self.streams[stream.slot];
        let status = match (found.take_late_status(), found.is_grpc()) {
            (LateStatus::Other(status), _) => *status,
            (LateStatus::Ok, _) | (LateStatus::NotCome, false) => Status::OK,
            (LateStatus::NotCome, true) => {
                Status::new(Code::Internal, "the answer ended without a status")
            }
        };
        self.finish_call(stream, status, out)
    }

    /// The call is over. A server that ended it before we had sent all is told that nothing
    /// follows.
    pub(super) fn finish_call(
        &mut self,
        stream: StreamKey,
        status: Status,
        out: &mut Vec<u8>,
    ) -> Handled {
        self.status = status;
        self.reset_stream(stream.slot, ErrorCode::Cancel, out);
        Ok(Some(Event::Finished { stream }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http2::config::Config;
    use crate::http2::frame::MAX_31_BIT;

    #[test]
    fn no_stream_is_opened_when_all_identifiers_are_used() {
        let mut out = Vec::new();
        let mut client = Connection::new(&Config::client(), 0);
        client.start(&mut out);
        client.life.skip_ids_to(MAX_31_BIT - 2);
        assert!(client.takes_streams());
        let head = RequestHead::call("here", "/a.B/C");
        for id in [MAX_31_BIT - 2, MAX_31_BIT] {
            let stream = client.open(&mut out, &head).expect("a stream");
            assert_eq!(stream.id, id);
            client.reset(stream, &mut out, ErrorCode::Cancel);
        }
        out.clear();
        assert!(!client.takes_streams());
        for _ in 0..2 {
            let refused = client.open(&mut out, &head);
            assert_eq!(refused, Err(StreamOpenError::IdsExhausted));
        }
        assert!(out.is_empty());
        assert_eq!((client.running(), client.close_reason()), (0, None));
    }
}
