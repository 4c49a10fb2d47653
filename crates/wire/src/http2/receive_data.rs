//! Bodies: DATA frames, and the gRPC messages in them. RFC 9113 section 6.1; gRPC over HTTP/2,
//! "Length-Prefixed-Message".

use std::ops::Range;

use super::connection::{Connection, DataFrame, MessageAt};
use super::error::{Cause, ConnectionError, ErrorCode};
use super::event::Event;
use super::frame::{self, FrameHeader, flag};
use super::guard::Charge;
use super::pool::Pool;
use super::streams::{Dead, Kind, Stream, StreamKey};
use crate::grpc::{Code, MessageError, PREFIX_BYTES, Status, Step};

/// Says when to try again: gRPC proposal A6, "Pushback".
pub const PUSHBACK_TRAILER: &[u8] = b"grpc-retry-pushback-ms";

type Handled = Result<Option<Event>, ConnectionError>;

impl Connection {
    /// DATA. `start` is where the payload begins; `consumed` already stands behind the frame and is
    /// set back if there is something to take from it.
    #[inline]
    pub(super) fn on_data(
        &mut self,
        header: FrameHeader,
        input: &[u8],
        start: usize,
        consumed: &mut usize,
        out: &mut Vec<u8>,
    ) -> Handled {
        if header.stream == 0 {
            return Err(ConnectionError::protocol("DATA on stream 0"));
        }
        let length = header.length as usize;
        let (data_start, padding) = match padding_of(header, &input[start..start + length])? {
            Some(padding) => (start + 1, padding),
            None => (start, 0),
        };
        self.take_connection_window(header.length, out)?;
        let Some(slot) = self.data_stream(header, out)? else {
            return Ok(None);
        };
        let remaining = start + length - padding - data_start;
        let end = header.has(flag::END_STREAM);
        let stream = &mut self.streams[slot];
        if !stream.receive_window.take(header.length) {
            return Err(ConnectionError::flow_control(
                "DATA beyond the window of its stream",
            ));
        }
        // Padding is out of the way at once.
        stream.receive_window.give((length - remaining) as u32);
        stream.receive_closed = end;
        if !stream.takes_content(remaining as u64, end) {
            // RFC 9113 section 8.1.1.
            return self.violation(slot, ErrorCode::ProtocolError, out);
        }
        *consumed = data_start;
        let stream = StreamKey {
            slot,
            id: header.stream,
        };
        let frame = DataFrame {
            stream,
            remaining,
            padding,
            end,
            length: header.length,
            was_useful: end,
        };
        self.take_data(frame, input, consumed, out)
    }

    /// The connection's window is given back on receipt: what waits is bounded by the windows of
    /// its stream.
    #[inline]
    fn take_connection_window(
        &mut self,
        length: u32,
        out: &mut Vec<u8>,
    ) -> Result<(), ConnectionError> {
        if !self.receive_window.take(length) {
            return Err(ConnectionError::flow_control(
                "DATA beyond the window of the connection",
            ));
        }
        self.bandwidth.received(length);
        self.receive_window.give(length);
        if let Some(increment) = self.receive_window.announce() {
            frame::write_window_update(out, 0, increment);
        }
        Ok(())
    }

    /// The stream of a DATA frame, if it is one that may get DATA. RFC 9113 section 5.1.
    #[inline]
    fn data_stream(
        &mut self,
        header: FrameHeader,
        out: &mut Vec<u8>,
    ) -> Result<Option<u32>, ConnectionError> {
        let found = self.streams.find(header.stream);
        if let Some(slot) = found {
            let stream = &self.streams[slot];
            if stream.dead == Dead::No {
                if stream.receive_closed {
                    return Err(ConnectionError::stream_closed(
                        "DATA on a stream that the peer has ended",
                    ));
                }
                if self.is_client() && !stream.head_received {
                    return Err(ConnectionError::protocol(
                        "DATA before the head of the response",
                    ));
                }
                return Ok(Some(slot));
            }
        }
        if self.was_reset(header.stream) {
            self.take_late_data(header)?;
        } else if found.is_none() && self.is_idle(header.stream) {
            return Err(ConnectionError::protocol(
                "DATA on a stream that was never opened",
            ));
        } else {
            frame::write_rst_stream(out, header.stream, ErrorCode::StreamClosed);
            self.charge(Charge::Reset)?;
        }
        Ok(None)
    }

    /// DATA of a stream that we ended first, as with every call that is refused: it was on its way.
    /// The end of the stream comes once and costs nothing, and neither do as many small messages as
    /// may have been under way, so that who keeps calling an overloaded server does not lose the
    /// connection.
    fn take_late_data(&mut self, header: FrameHeader) -> Result<(), ConnectionError> {
        if self.is_client() {
            // Who gives up many calls gets as many late answers. It chose its server, and could not
            // know.
            return Ok(());
        }
        if header.has(flag::END_STREAM) && self.late.end(header.stream) {
            return Ok(());
        }
        if self.late.count_frame(header.stream) {
            return Ok(());
        }
        self.charge(Charge::Fragment(header.length))
    }

    /// Goes on with the DATA frame that lies in the input at `consumed`.
    pub(super) fn continue_data(
        &mut self,
        input: &[u8],
        consumed: &mut usize,
        out: &mut Vec<u8>,
    ) -> Handled {
        match self.data.take() {
            Some(frame) => self.take_data(frame, input, consumed, out),
            None => Ok(None),
        }
    }

    /// Takes the next message from a DATA frame whose payload lies in the input at `consumed`.
    #[inline]
    fn take_data(
        &mut self,
        mut frame: DataFrame,
        input: &[u8],
        consumed: &mut usize,
        out: &mut Vec<u8>,
    ) -> Handled {
        let slot = frame.stream.slot;
        let end = *consumed + frame.remaining;
        let is_wanted = self
            .streams
            .get(frame.stream)
            .is_some_and(|stream| !stream.is_dead() && !stream.work_done);
        if !is_wanted {
            self.end_frame(frame, end, consumed)?;
            return Ok(None);
        }
        let stream = &mut self.streams[slot];
        if stream.is_held() || !stream.inbound.backlog.is_empty() {
            return self.keep_back(frame, &input[*consumed..end], consumed, out);
        }
        if self.defers_first_message(slot) {
            self.defer(frame.stream);
            return self.keep_back(frame, &input[*consumed..end], consumed, out);
        }
        let stream = &mut self.streams[slot];
        if stream.kind == Kind::Plain {
            return self.on_body(frame, end, consumed, out);
        }
        if !stream.inbound.takes_parts {
            lend_buffer(stream, &mut self.pool, &input[*consumed..end]);
        }
        let mut at = *consumed;
        let max_bytes = self.config.max_message_bytes;
        let step = (stream.inbound).find_message(&input[..end], &mut at, max_bytes);
        let taken = at - *consumed;
        match step {
            Ok(Step::Message { whole, compressed }) => {
                stream.unreleased += taken as u32;
                frame.was_useful = true;
                frame.remaining -= taken;
                let is_taken = frame.remaining == 0;
                if is_taken {
                    self.end_frame(frame, at, consumed)?
                } else {
                    self.keep_frame(frame, at, consumed)
                }
                self.message_at = whole.map_or(MessageAt::Gathered(slot), MessageAt::Input);
                self.deliver(frame.stream, compressed, is_taken && frame.end, input, out)
            }
            Ok(Step::Part { range, left }) => {
                frame.remaining -= taken;
                self.on_part(frame, range, left, consumed, out)
            }
            Ok(Step::NeedMore) => {
                self.end_frame(frame, end, consumed)?;
                self.keep_unfinished(slot, taken, frame.end, out)
            }
            Err(error) => {
                self.end_frame(frame, end, consumed)?;
                self.on_bad_message(slot, error, out)
            }
        }
    }

    /// More may be in the frame: the next `poll_event` goes on with it.
    #[inline]
    fn keep_frame(&mut self, frame: DataFrame, at: usize, consumed: &mut usize) {
        *consumed = at;
        self.data = Some(frame);
    }

    /// The frame was taken to its end.
    #[inline]
    pub(super) fn end_frame(
        &mut self,
        frame: DataFrame,
        end: usize,
        consumed: &mut usize,
    ) -> Result<(), ConnectionError> {
        *consumed = end + frame.padding;
        if frame.was_useful {
            self.guard.did_something();
            return Ok(());
        }
        self.charge(Charge::Fragment(frame.length))
    }

    /// A piece of a body that is not gRPC.
    fn on_body(
        &mut self,
        mut frame: DataFrame,
        end: usize,
        consumed: &mut usize,
        out: &mut Vec<u8>,
    ) -> Handled {
        let (start, slot) = (*consumed, frame.stream.slot);
        let is_empty = frame.remaining == 0;
        // Content, however little: as useful as a small message.
        frame.was_useful |= !is_empty;
        self.streams[slot].unreleased += frame.remaining as u32;
        self.end_frame(frame, end, consumed)?;
        if is_empty {
            return if frame.end {
                self.end_of_stream(slot, out)
            } else {
                Ok(None)
            };
        }
        self.message_at = MessageAt::Input(start..end);
        self.streams[slot].has_delivered = true;
        let last = self.take_end(frame.stream, frame.end);
        Ok(Some(Event::Body {
            stream: frame.stream,
            last,
        }))
    }

    /// A part of a message, of a stream that takes parts. `frame` has what follows it.
    fn on_part(
        &mut self,
        mut frame: DataFrame,
        range: Range<usize>,
        left: usize,
        consumed: &mut usize,
        out: &mut Vec<u8>,
    ) -> Handled {
        let slot = frame.stream.slot;
        // Content, as in a body that is not gRPC.
        frame.was_useful = true;
        self.streams[slot].unreleased += (range.end - *consumed) as u32;
        let is_taken = frame.remaining == 0;
        if is_taken {
            self.end_frame(frame, range.end, consumed)?;
        } else {
            self.keep_frame(frame, range.end, consumed);
        }
        if is_taken && frame.end && left > 0 {
            return self.end_of_stream(slot, out);
        }
        self.message_at = MessageAt::Input(range);
        let last = is_taken && frame.end;
        Ok(Some(self.part(frame.stream, left, last)))
    }

    /// Reports a part of a message.
    pub(super) fn part(&mut self, stream: StreamKey, left: usize, last: bool) -> Event {
        self.uncount(stream.slot);
        self.streams[stream.slot].has_delivered = true;
        self.was_compressed = false;
        let last = self.take_end(stream, last);
        let left = u32::try_from(left).expect("a message has a length of four bytes");
        Event::Part { stream, left, last }
    }

    /// The payload ended inside a message, or between two.
    pub(super) fn keep_unfinished(
        &mut self,
        slot: u32,
        taken: usize,
        end: bool,
        out: &mut Vec<u8>,
    ) -> Handled {
        if end {
            return self.end_of_stream(slot, out);
        }
        let inbound = &mut self.streams[slot].inbound;
        if inbound.deframer.is_mid_message() {
            inbound.counted += taken;
            self.gather(taken);
        }
        self.go_on_with_message(slot, taken as u32, out);
        self.check_gathered(slot, out)
    }

    pub(super) fn check_gathered(&mut self, slot: u32, out: &mut Vec<u8>) -> Handled {
        // A message whose turn it is was counted before: it may end.
        let bytes = self.gathered_bytes + self.unpacks.packed_bytes();
        if bytes <= self.config.max_gathered_bytes.min(self.gather_bound)
            || self.streams[slot].turn.is_active()
        {
            return Ok(None);
        }
        let max = self.config.max_gathered_bytes;
        if bytes <= max {
            // Its peer sends no more than the window that it was given.
            if self.streams[slot].is_bulk() {
                return Ok(None);
            }
            return self.end_without_memory(slot, out);
        }
        let message = format!(
            "the unfinished messages on this connection have more than {max} bytes, which is the limit; send fewer at once"
        );
        self.end_call(
            slot,
            &Status::new(Code::ResourceExhausted, message),
            Cause::TooMuchUnfinished,
            out,
        )
    }

    /// The layer above has no memory for what a call sends: it may be tried again, as nothing was
    /// done for it.
    #[cold]
    fn end_without_memory(&mut self, slot: u32, out: &mut Vec<u8>) -> Handled {
        const WHY: &str = "the memory for requests and unsent answers is used up";
        let stream = StreamKey {
            slot,
            id: self.streams[slot].id,
        };
        if self.config.pushback_ms > 0 {
            let pushback_ms = self.config.pushback_ms.to_string();
            self.add_trailer(stream, PUSHBACK_TRAILER, pushback_ms.as_bytes());
        }
        self.end_call(
            slot,
            &Status::new(Code::Unavailable, WHY),
            Cause::NoMemory,
            out,
        )
    }

    /// Reports a message, decompressed if it has to be.
    #[inline]
    pub(super) fn deliver(
        &mut self,
        stream: StreamKey,
        compressed: bool,
        last: bool,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Handled {
        self.uncount(stream.slot);
        self.end_turn(stream.slot);
        self.streams[stream.slot].has_delivered = true;
        self.was_compressed = compressed;
        if compressed {
            return self.deliver_compressed(stream, last, input, out);
        }
        let last = self.take_end(stream, last);
        Ok(Some(Event::Message { stream, last }))
    }

    /// A client hears of the end by Finished, which follows; a server by the last message.
    #[inline]
    pub(super) fn take_end(&mut self, stream: StreamKey, last: bool) -> bool {
        if last && self.is_client() {
            self.streams[stream.slot].inbound.end_waits = true;
            if !self.resumed.contains(&stream) {
                self.resumed.push_back(stream);
            }
            return false;
        }
        last
    }

    /// The message is complete: what was gathered of it is no longer unfinished.
    #[inline]
    pub(super) fn uncount(&mut self, slot: u32) {
        let inbound = &mut self.streams[slot].inbound;
        let still = inbound.backlog.len() - inbound.backlog_at;
        let done = inbound.counted - still;
        if done > 0 {
            inbound.counted = still;
            self.ungather(done);
        }
    }

    /// Counts bytes of an unfinished message, or of a backlog.
    pub(super) fn gather(&mut self, bytes: usize) {
        self.gathered_bytes += bytes;
        // A client chose its server, which may think for as long as it likes.
        if !self.is_client() {
            self.timers
                .gathered(self.gathered_bytes, bytes, self.now_ns);
        }
    }

    /// Takes them out of the count.
    pub(super) fn ungather(&mut self, bytes: usize) {
        self.gathered_bytes -= bytes;
        if self.gathered_bytes == 0 {
            self.timers.gathered(0, 0, self.now_ns);
        }
    }

    pub(super) fn on_bad_message(
        &mut self,
        slot: u32,
        error: MessageError,
        out: &mut Vec<u8>,
    ) -> Handled {
        let (status, cause) = match error {
            MessageError::TooLarge { .. } => {
                (self.with_hint(&error.status()), Cause::MessageTooLarge)
            }
            MessageError::BadFlag(_) | MessageError::Truncated => {
                (error.status(), Cause::BadMessage)
            }
        };
        self.end_call(slot, &status, cause, out)
    }

    /// Adds what is to be done about a message that is too large.
    #[cold]
    pub(super) fn with_hint(&self, status: &Status) -> Status {
        let (message, hint) = (status.message(), self.config.too_large_hint);
        let separator = if hint.is_empty() { "" } else { "; " };
        Status::new(status.code(), format!("{message}{separator}{hint}"))
    }

    /// The peer has ended its side without a message in the same frame.
    pub(super) fn end_of_stream(&mut self, slot: u32, out: &mut Vec<u8>) -> Handled {
        let stream = &mut self.streams[slot];
        stream.receive_closed = true;
        let key = StreamKey {
            slot,
            id: stream.id,
        };
        if stream.is_held() || !stream.inbound.backlog.is_empty() {
            stream.inbound.end_waits = true;
            return Ok(None);
        }
        if stream.work_done {
            return Ok(None);
        }
        if stream.inbound.deframer.is_mid_message() && stream.late_status.has_not_come() {
            return self.on_bad_message(slot, MessageError::Truncated, out);
        }
        if self.is_client() {
            return self.on_end_of_response(key, out);
        }
        Ok(Some(Event::HalfClosed { stream: key }))
    }
}

/// The padding of a DATA frame that has any. RFC 9113 section 6.1.
#[inline]
fn padding_of(header: FrameHeader, payload: &[u8]) -> Result<Option<usize>, ConnectionError> {
    if !header.has(flag::PADDED) {
        return Ok(None);
    }
    match payload.first() {
        None => Err(ConnectionError::frame_size("DATA without its pad length")),
        Some(&padding) if usize::from(padding) >= payload.len() => {
            Err(ConnectionError::protocol("DATA with too much padding"))
        }
        Some(&padding) => Ok(Some(usize::from(padding))),
    }
}

/// Gives the stream a buffer with memory if the payload will have to be gathered.
#[inline]
fn lend_buffer(stream: &mut Stream, pool: &mut Pool, payload: &[u8]) {
    let is_whole = payload.len() >= PREFIX_BYTES
        && payload.len() - PREFIX_BYTES >= frame::read_u32(&payload[1..]) as usize;
    if !is_whole && !pool.is_empty() && stream.inbound.deframer.buffer_bytes() == 0 {
        stream.inbound.deframer.give_buffer(pool.take());
    }
}
