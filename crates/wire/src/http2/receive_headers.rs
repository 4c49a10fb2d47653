//! Header blocks: HEADERS and CONTINUATION frames. RFC 9113 sections 4.3, 6.2, 6.10 and 8.1.

use super::config::Role;
use super::connection::{Connection, Draining, HeadAt};
use super::error::{Cause, ConnectionError, ErrorCode};
use super::event::Event;
use super::frame::{self, FrameHeader, flag};
use super::guard::Charge;
use super::headers::{self, HeadInfo, Malformed};
use super::streams::{Dead, Encoding, Kind, StreamKey};
use crate::grpc::{self, Code, Status};
use crate::hpack::FieldLimits;
use crate::limits;

/// A header block whose END_HEADERS has not arrived.
#[derive(Debug, Default)]
pub(super) struct PendingBlock {
    /// 0: there is none.
    pub(super) stream: u32,
    end_stream: bool,
    depends_on_itself: bool,
    frames: u32,
    pub(super) bytes: Vec<u8>,
}

/// What a block belongs to.
#[derive(Debug, Clone, Copy)]
struct BlockInfo {
    stream: u32,
    end_stream: bool,
    depends_on_itself: bool,
}

type Handled = Result<Option<Event>, ConnectionError>;

impl Connection {
    /// HEADERS.
    #[inline]
    pub(super) fn on_headers(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Handled {
        if header.stream == 0 {
            return Err(ConnectionError::protocol("HEADERS on stream 0"));
        }
        let (fragment, depends_on_itself) = strip(header, payload)?;
        let info = BlockInfo {
            stream: header.stream,
            end_stream: header.has(flag::END_STREAM),
            depends_on_itself,
        };
        if header.has(flag::END_HEADERS) {
            return self.on_block(info, fragment, out);
        }
        self.block.stream = header.stream;
        self.block.end_stream = info.end_stream;
        self.block.depends_on_itself = depends_on_itself;
        self.block.frames = 0;
        self.block.bytes.clear();
        self.timers.block_began(self.now_ns);
        self.extend_block(fragment)?;
        Ok(None)
    }

    /// CONTINUATION. That it belongs to the block that has begun has been checked for all frames.
    pub(super) fn on_continuation(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Handled {
        if self.block.stream == 0 {
            return Err(ConnectionError::protocol(
                "CONTINUATION without a header block that has begun",
            ));
        }
        self.block.frames += 1;
        if self.block.frames > limits::MAX_CONTINUATION_FRAMES {
            return Err(ConnectionError::calm("too many CONTINUATION frames"));
        }
        self.extend_block(payload)?;
        if !header.has(flag::END_HEADERS) {
            return Ok(None);
        }
        let info = BlockInfo {
            stream: std::mem::take(&mut self.block.stream),
            end_stream: self.block.end_stream,
            depends_on_itself: self.block.depends_on_itself,
        };
        self.timers.block_ended();
        let bytes = std::mem::take(&mut self.block.bytes);
        let handled = self.on_block(info, &bytes, out);
        self.pool.give(bytes);
        handled
    }

    fn extend_block(&mut self, fragment: &[u8]) -> Result<(), ConnectionError> {
        if self.block.bytes.len() + fragment.len() > limits::MAX_COMPRESSED_BLOCK_BYTES {
            return Err(ConnectionError::calm("a header block is too large"));
        }
        self.block.bytes.extend_from_slice(fragment);
        Ok(())
    }

    /// A whole header block.
    #[inline]
    fn on_block(&mut self, info: BlockInfo, block: &[u8], out: &mut Vec<u8>) -> Handled {
        if let Some(slot) = self.streams.find(info.stream) {
            return self.on_further_block(slot, info, block, out);
        }
        if self.config.role == Role::Client {
            return self.on_late_block(info, block);
        }
        if info.stream.is_multiple_of(2) {
            return Err(ConnectionError::protocol(
                "a client's stream has an even identifier",
            ));
        }
        if info.stream <= self.highest_peer_id {
            return self.on_late_block(info, block);
        }
        self.on_request(info, block, out)
    }

    /// Server: a new stream. RFC 9113 section 8.3.1.
    #[inline]
    fn on_request(&mut self, block_info: BlockInfo, block: &[u8], out: &mut Vec<u8>) -> Handled {
        let id = block_info.stream;
        self.highest_peer_id = id;
        let read = self.read_head(block)?;
        if let Draining::Final(last) = self.draining
            && id > last
        {
            // "the sender will ignore frames sent on streams initiated by the receiver if the
            // stream has an identifier higher than the included last stream identifier" (RFC 9113
            // section 6.8).
            return Ok(None);
        }
        if let Some(code) = self.reason_to_refuse(block_info, read) {
            return self.refuse(id, code, out);
        }
        let info = *self.head().info;
        if info.kind == Kind::Grpc
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
            self.peer.initial_window,
            self.our_initial_window,
        );
        let stream = &mut self.streams[slot];
        stream.receive_closed = end;
        stream.encoding = info.encoding;
        stream.peer_takes_gzip = info.takes_gzip;
        stream.is_head_request = info.is_head_request;
        stream.content_left = info.content_length;
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
        if info.encoding == Encoding::Unknown {
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

    /// A block on a stream that exists: trailers, or a client's response.
    fn on_further_block(
        &mut self,
        slot: u32,
        info: BlockInfo,
        block: &[u8],
        out: &mut Vec<u8>,
    ) -> Handled {
        let stream = &self.streams[slot];
        match stream.dead {
            Dead::ByUs => return self.drop_late_block(block),
            Dead::ByPeer => return self.on_late_block(info, block),
            Dead::No => {}
        }
        if stream.receive_closed {
            return Err(ConnectionError::stream_closed(
                "HEADERS on a stream that the peer has ended",
            ));
        }
        if self.config.role == Role::Client {
            return self.on_response_block(slot, info.end_stream, block, out);
        }
        let is_well_formed =
            self.read_trailers(block)?.is_ok() && info.end_stream && !info.depends_on_itself;
        let promised = self.streams[slot].content_left.is_some_and(|left| left > 0);
        if !is_well_formed || promised {
            return self.violation(slot, ErrorCode::ProtocolError, out);
        }
        self.end_of_stream(slot, out)
    }

    /// Decodes trailers into the fields.
    pub(super) fn read_trailers(
        &mut self,
        block: &[u8],
    ) -> Result<Result<(), Malformed>, ConnectionError> {
        self.decode(block)?;
        self.info = HeadInfo::EMPTY;
        Ok(headers::check_trailers(&self.fields))
    }

    /// A block on a stream that is closed, or was never opened.
    fn on_late_block(&mut self, info: BlockInfo, block: &[u8]) -> Handled {
        if self.was_reset(info.stream) {
            return self.drop_late_block(block);
        }
        if self.is_idle(info.stream) {
            return Err(ConnectionError::protocol(
                "HEADERS on a stream that was never opened",
            ));
        }
        if self.config.role == Role::Server && info.stream != self.highest_peer_id {
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
        self.charge(Charge::Glitch)?;
        self.decode(block)?;
        Ok(None)
    }

    /// Decodes a head, or finds it in the memo.
    #[inline]
    pub(super) fn read_head(
        &mut self,
        block: &[u8],
    ) -> Result<Result<(), Malformed>, ConnectionError> {
        let changes = self.decoder.changes();
        if self.config.short_ways
            && let Some(at) = self.memo.find(block, changes)
        {
            self.head_at = HeadAt::Memo(at);
            return Ok(Ok(()));
        }
        self.decode(block)?;
        let info = match self.config.role {
            Role::Server => HeadInfo::of_request(&self.fields),
            Role::Client => HeadInfo::of_response(&self.fields),
        };
        match info {
            Ok(info) => self.info = info,
            Err(malformed) => return Ok(Err(malformed)),
        }
        if self.config.short_ways
            && self.decoder.changes() == changes
            && let Some(at) = self.memo.learn(block, changes, &mut self.fields, self.info)
        {
            self.head_at = HeadAt::Memo(at);
        }
        Ok(Ok(()))
    }

    /// Decodes a block into the fields. An error ends the connection: the two sides no longer agree
    /// about the table.
    fn decode(&mut self, block: &[u8]) -> Result<(), ConnectionError> {
        self.head_at = HeadAt::Fields;
        self.route = None;
        self.decoder
            .decode(block, &FieldLimits::default(), &mut self.fields)
            .map_err(|error| {
                if error.is_limit() {
                    ConnectionError::calm(
                        "a header block has too many fields, or they are too large",
                    )
                } else {
                    ConnectionError {
                        code: ErrorCode::CompressionError,
                        why: "a header block cannot be decoded",
                    }
                }
            })
    }

    /// Ends a stream of which the layer above has not heard.
    fn refuse(&mut self, id: u32, code: ErrorCode, out: &mut Vec<u8>) -> Handled {
        frame::write_rst_stream(out, id, code);
        self.remember_reset(id);
        // Before it has seen our SETTINGS a peer cannot know how many streams are too many (RFC
        // 9113 section 5.1.2).
        if code == ErrorCode::RefusedStream && !self.settings_acked {
            return Ok(None);
        }
        // The peer keeps our limit where the work of calls that are over takes the places.
        let keeps_limit = self.streams.open() < self.config.max_streams as usize;
        if code == ErrorCode::RefusedStream && keeps_limit && self.peer.can_be_answered() {
            return self.charge(Charge::Glitch).map(|()| None);
        }
        self.charge(Charge::Reset).map(|()| None)
    }

    /// The stream did something wrong: RST_STREAM, and the layer above hears of it.
    pub(super) fn violation(&mut self, slot: u32, code: ErrorCode, out: &mut Vec<u8>) -> Handled {
        self.reset_stream(slot, code, out);
        self.report_death(slot, Cause::Violation(code));
        self.charge(Charge::Reset).map(|()| None)
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
