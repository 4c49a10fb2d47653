//! What only a server does: takes requests, or refuses them. RFC 9113 section 8.3.1.

use super::{Connection, Handled};
use crate::grpc::{self, Code, Status};
use crate::http2::error::ErrorCode;
use crate::http2::event::Event;
use crate::http2::frame;
use crate::http2::guard::GlitchCharge;
use crate::http2::head_reader::BlockInfo;
use crate::http2::headers::{BodyKind, HeadInfo, Malformed};
use crate::http2::stream_key::StreamKey;

impl Connection {
    /// Server: a new stream. RFC 9113 section 8.3.1.
    #[inline]
    pub(super) fn on_request(
        &mut self,
        block_info: BlockInfo,
        block: &[u8],
        out: &mut Vec<u8>,
    ) -> Handled {
        let id = block_info.stream;
        self.life.begin_peer_stream(id);
        let read = self.heads.read_head(block)?;
        if self.life.is_beyond_goaway(id) {
            // "the sender will ignore frames sent on streams initiated by the receiver if the
            // stream has an identifier higher than the included last stream identifier" (RFC 9113
            // section 6.8).
            return Ok(None);
        }
        if let Some(code) = self.reason_to_refuse(block_info, read) {
            return self.refuse(id, code, out);
        }
        let info = *self.head().info;
        if info.kind == BodyKind::Grpc
            && let Some(status) = self.reason_to_reject(&info)
        {
            self.reject(id, &status, block_info.end_stream, out);
            return Ok(None);
        }
        Ok(Some(self.begin_request(block_info, &info)))
    }

    #[inline]
    fn begin_request(&mut self, block_info: BlockInfo, info: &HeadInfo) -> Event {
        self.guard.did_something();
        let (id, end) = (block_info.stream, block_info.end_stream);
        let slot = self.streams.insert(
            id,
            info.kind,
            self.peer.initial_window(),
            self.windows.initial(),
        );
        self.streams[slot].set_request(info, end);
        Event::Request {
            stream: StreamKey { slot, id },
            end,
        }
    }

    /// Why a request is answered with RST_STREAM and nothing else.
    #[inline]
    fn reason_to_refuse(
        &self,
        block_info: BlockInfo,
        read: Result<(), Malformed>,
    ) -> Option<ErrorCode> {
        if read.is_err() || block_info.depends_on_itself {
            return Some(ErrorCode::ProtocolError);
        }
        let promises_body = self
            .head()
            .info
            .content_length
            .is_some_and(|length| length > 0);
        if block_info.end_stream && promises_body {
            return Some(ErrorCode::ProtocolError);
        }
        let is_full = self.streams.len() >= self.config.max_streams as usize;
        (is_full || !self.peer.can_be_answered()).then_some(ErrorCode::RefusedStream)
    }

    /// Why a call cannot even begin.
    #[inline]
    fn reason_to_reject(&self, info: &HeadInfo) -> Option<Status> {
        if info.encoding.is_none() {
            return Some(grpc::compression::unknown_encoding(
                self.head().get(b"grpc-encoding").unwrap_or_default(),
            ));
        }
        if info.has_bad_timeout {
            return Some(Status::new(
                Code::Internal,
                "grpc-timeout is not up to eight digits and a unit",
            ));
        }
        None
    }

    /// Ends a stream of which the layer above has not heard.
    fn refuse(&mut self, id: u32, code: ErrorCode, out: &mut Vec<u8>) -> Handled {
        frame::write_rst_stream(out, id, code);
        self.remember_reset(id);
        // Before it has seen our SETTINGS a peer cannot know how many streams are too many (RFC
        // 9113 section 5.1.2).
        if code == ErrorCode::RefusedStream && !self.windows.is_acknowledged() {
            return Ok(None);
        }
        // The peer keeps our limit where the work of calls that are over takes the places.
        let keeps_limit = self.streams.open() < self.config.max_streams as usize;
        if code == ErrorCode::RefusedStream && keeps_limit && self.peer.can_be_answered() {
            return self.charge(GlitchCharge::Glitch).map(|()| None);
        }
        self.charge(GlitchCharge::Reset).map(|()| None)
    }

    /// Answers a call of which the layer above does not hear.
    fn reject(&mut self, id: u32, status: &Status, peer_has_ended: bool, out: &mut Vec<u8>) {
        (self.writer).write_rejection(id, status, &mut self.pool, out);
        if !peer_has_ended {
            frame::write_rst_stream(out, id, ErrorCode::NoError);
            self.remember_reset(id);
        }
    }
}
