//! Header blocks: HEADERS and CONTINUATION frames. RFC 9113 sections 4.3, 6.2, 6.10 and 8.1.

use super::{Connection, Handled};
use crate::grpc::Status;
use crate::http2::error::{CancelCause, ConnectionError, ErrorCode};
use crate::http2::frame::{self, FrameHeader, flag};
use crate::http2::guard::GlitchCharge;
use crate::http2::head_reader::BlockInfo;
use crate::http2::stream::Dead;

impl Connection {
    /// HEADERS.
    #[inline]
    pub(super) fn on_headers(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Handled {
        let (fragment, depends_on_itself) = strip(header, payload)?;
        let info = BlockInfo {
            stream: header.stream,
            end_stream: header.has(flag::END_STREAM),
            depends_on_itself,
        };
        if header.has(flag::END_HEADERS) {
            return self.on_block(info, fragment, out);
        }
        self.timers.block_began(self.now_ns);
        self.heads.begin_block(info, fragment)?;
        Ok(None)
    }

    /// CONTINUATION. That it belongs to the block that has begun has been checked for all frames.
    pub(super) fn on_continuation(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Handled {
        self.heads.continue_block(payload)?;
        if !header.has(flag::END_HEADERS) {
            return Ok(None);
        }
        self.timers.block_ended();
        let (info, bytes) = self.heads.end_block();
        let handled = self.on_block(info, &bytes, out);
        self.pool.give(bytes);
        handled
    }

    /// A whole header block.
    #[inline]
    fn on_block(&mut self, info: BlockInfo, block: &[u8], out: &mut Vec<u8>) -> Handled {
        if let Some(slot) = self.streams.find(info.stream) {
            return self.on_further_block(slot, info, block, out);
        }
        if self.life.is_client() {
            return self.on_late_block(info, block);
        }
        if info.stream.is_multiple_of(2) {
            return Err(ConnectionError::protocol(
                "a client's stream has an even identifier",
            ));
        }
        if info.stream <= self.life.highest_peer_id() {
            return self.on_late_block(info, block);
        }
        self.on_request(info, block, out)
    }

    /// A block on a stream that exists: trailers, or a client's response.
    fn on_further_block(
        &mut self,
        slot: u32,
        info: BlockInfo,
        block: &[u8],
        out: &mut Vec<u8>,
    ) -> Handled {
        let stream = &self.streams[slot];
        match stream.dead() {
            Dead::ByUs => return self.drop_late_block(block),
            Dead::ByPeer => return self.on_late_block(info, block),
            Dead::No => {}
        }
        if stream.is_receive_closed() {
            return Err(ConnectionError::stream_closed(
                "HEADERS on a stream that the peer has ended",
            ));
        }
        if self.life.is_client() {
            return self.on_response_block(slot, info.end_stream, block, out);
        }
        let is_well_formed =
            self.heads.read_trailers(block)?.is_ok() && info.end_stream && !info.depends_on_itself;
        if !is_well_formed || self.streams[slot].lacks_content() {
            return self.violation(slot, ErrorCode::ProtocolError, "malformed trailers", out);
        }
        self.end_of_stream(slot, out)
    }

    /// A block on a stream that is closed, or was never opened.
    fn on_late_block(&mut self, info: BlockInfo, block: &[u8]) -> Handled {
        if self.was_reset(info.stream) {
            return self.drop_late_block(block);
        }
        if self.life.is_idle(info.stream) {
            return Err(ConnectionError::protocol(
                "HEADERS on a stream that was never opened",
            ));
        }
        if !self.life.is_client() && info.stream != self.life.highest_peer_id() {
            // "An endpoint that receives an unexpected stream identifier MUST respond with a
            // connection error of type PROTOCOL_ERROR" (RFC 9113 section 5.1.1).
            return Err(ConnectionError::protocol(
                "a stream identifier is lower than one before",
            ));
        }
        Err(ConnectionError::stream_closed("HEADERS on a closed stream"))
    }

    /// A block that was on its way when we ended its stream: decoded, since the table depends on
    /// it, and dropped.
    fn drop_late_block(&mut self, block: &[u8]) -> Handled {
        self.charge(GlitchCharge::Glitch)?;
        self.heads.decode(block)?;
        Ok(None)
    }

    /// The stream did something wrong: RST_STREAM, and the layer above hears of it. A client keeps
    /// which rule it was ([`Connection::status`]).
    pub(super) fn violation(
        &mut self,
        slot: u32,
        code: ErrorCode,
        why: &'static str,
        out: &mut Vec<u8>,
    ) -> Handled {
        if self.life.is_client() {
            self.status = Status::internal(why);
        }
        self.reset_stream(slot, code, out);
        self.report_death(slot, CancelCause::Violation(code));
        self.charge(GlitchCharge::Reset).map(|()| None)
    }
}

/// Takes padding and priority off the payload of HEADERS, and returns whether the stream depends on
/// itself.
#[inline]
fn strip(header: FrameHeader, payload: &[u8]) -> Result<(&[u8], bool), ConnectionError> {
    if header.flags & (flag::PADDED | flag::PRIORITY) == 0 {
        return Ok((payload, false));
    }
    let mut rest = payload;
    let mut padding = 0;
    if header.has(flag::PADDED) {
        let (&length, after) = rest.split_first().ok_or(ConnectionError::frame_size(
            "HEADERS without its pad length",
        ))?;
        (padding, rest) = (usize::from(length), after);
    }
    let mut depends_on_itself = false;
    if header.has(flag::PRIORITY) {
        let (priority, after) =
            rest.split_first_chunk::<5>()
                .ok_or(ConnectionError::frame_size(
                    "HEADERS without its priority fields",
                ))?;
        depends_on_itself = frame::read_u32(priority) & frame::MAX_31_BIT == header.stream;
        rest = after;
    }
    let length = rest
        .len()
        .checked_sub(padding)
        .ok_or(ConnectionError::protocol("HEADERS with too much padding"))?;
    Ok((&rest[..length], depends_on_itself))
}
